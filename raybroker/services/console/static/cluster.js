// Quotas, policies and templates; definitions as a file; brokers, services and the configuration record.

import { html, useState } from "./hooks.js";
import { attributes, bytesOf, command, download, options, path, session, verb, view } from "./api.js";
import { Action } from "./actions.js";
import { Grade, Missing, State, Table, Trouble, number, text, time, usePoll } from "./parts.js";
import { brokers } from "./overview.js";

const LINES = { name: "attributes", label: "Attributes, name=value a line", kind: "lines" };

function shownAttributes(row) {
  return options(row.attributes ?? {}).join(", ");
}

function Kind({ title, word, short, at, fields = [], columns = [], made = () => ({}), said = () => ({}), hint }) {
  const poll = usePoll((renews) => verb("GET", at, { renews }), 30, []);
  const lines = (row) => ({ ...LINES, hint, value: row ? options(row.attributes).join("\n") : "" });
  return html`<h2>${title}</h2><${Trouble} poll=${poll} />
    <div class="bar"><${Action} label="Create" about=${word} done=${poll.again} fields=${[{ name: "name", label: "Name", required: true }, ...fields, lines()]}
      line=${(given) => command(`create ${short}`, { n: given.name, ...said(given), o: options(attributes(given.attributes)) })}
      run=${(given) => verb("POST", at, { body: { name: given.name, ...made(given), attributes: attributes(given.attributes) } }).then(() => "created")} /></div>
    <${Table} caption=${title} quiet sorts rows=${poll.data?.rows} id=${(row) => row.name} columns=${[{ key: "name", title: "Name", row: true }, ...columns,
      { key: "attributes", title: "Attributes", unsorted: true, show: shownAttributes },
      { title: "Change", show: (row) => html`<span class="bar">
        <${Action} label="Change" about=${`${word} ${row.name}`} fields=${[lines(row)]} done=${poll.again} line=${(given) => command(`update ${short}`, { n: row.name, o: options(attributes(given.attributes)) })}
          run=${(given) => verb("PATCH", `${at}${path`/${row.name}`}`, { body: { changes: attributes(given.attributes) } }).then(() => "changed")} />
        <${Action} label="Destroy" about=${`${word} ${row.name}`} danger named=${row.name} done=${poll.again} line=${() => command(`destroy ${short}`, { n: row.name, f: true })}
          run=${() => verb("DELETE", `${at}${path`/${row.name}`}`).then(() => "destroyed")} /></span>` }]} />`;
}

export function Quotas() {
  return html`<h1 tabindex="-1">Quotas and policies</h1>
    <${Kind} title="Quotas" word="quota" short="quota" at="/quotas" hint="MessagesMaximum, BytesMaximum, Policy, Shared" />
    <${Kind} title="Policies" word="policy" short="policy" at="/policies" hint="Such as maxNumMsgs=1000"
      fields=${[{ name: "pattern", label: "Names of destinations, such as orders>", required: true }, { name: "apply_to", label: "Destinations of type", choices: ["all", "queue", "topic"], value: "all" },
        { name: "priority", label: "Priority", kind: "number", value: "0" }, { name: "operator", label: "An upper bound that destinations cannot exceed", kind: "check", value: false }]}
      made=${(given) => ({ pattern: given.pattern, apply_to: given.apply_to, priority: Number(given.priority), operator: given.operator === true })}
      said=${(given) => ({ p: given.pattern, "apply-to": given.apply_to, priority: given.priority, operator: given.operator === true })}
      columns=${[{ key: "pattern", title: "Pattern" }, { key: "applyTo", title: "Of" }, { key: "priority", title: "Priority", number: true }, { key: "operator", title: "Operator", show: (row) => (row.operator ? "yes" : "no") },
        { key: "conflicts", title: "Conflicts", unsorted: true, show: (row) => Object.keys(row.conflicts ?? {}).join(", ") }]} />
    <${Kind} title="Templates" word="template" short="tpl" at="/templates" hint="Such as maxNumMsgs=1000" />`;
}

export function Definitions() {
  const [file, setFile] = useState(null);
  const [plan, setPlan] = useState(null);
  const [error, setError] = useState("");
  const ask = (body) => verb("POST", "/definitions", { body });
  const take = async (event) => {
    const chosen = event.target.files[0];
    if (!chosen) return;
    setPlan(null);
    setError("");
    setFile(null);
    try {
      const definitions = JSON.parse(await chosen.text());
      setPlan(await ask({ definitions, dry_run: true }));
      setFile({ name: chosen.name, definitions });
    } catch (wrong) {
      setError(wrong instanceof SyntaxError ? `${chosen.name} is no JSON: ${wrong.message}` : wrong.message);
    }
  };
  const again = async (prune) => {
    try {
      setPlan(await ask({ definitions: file.definitions, dry_run: true, prune }));
    } catch (wrong) {
      setError(wrong.message);
    }
  };
  return html`<h1 tabindex="-1">Definitions</h1>
    <p>All that administrators have made, as one file: destinations, templates, quotas, policies, subscriptions, forwarding agents and properties.</p>
    <div class="bar"><${Action} label="Export" about="definitions" line=${() => command("export definitions", {}, "definitions.json")}
      run=${() => verb("GET", "/definitions").then((found) => { download("definitions.json", [JSON.stringify(found, null, 2)], "application/json"); return "in the file definitions.json"; })} />
      <label>Plan an import of a file (JSON) <input type="file" name="definitions" accept=".json,application/json" onChange=${take} /></label></div>
    ${error ? html`<div class="alert" role="alert">${error}</div>` : null}
    ${plan && file ? html`<h2>Plan for ${file.name}</h2>
      <p role="status">${number(plan.steps.length)} steps; ${number(plan.same)} entries are as wanted; ${number((plan.left ?? []).length)} would stay that the file does not have.</p>
      <${Table} caption="Steps" rows=${plan.steps} id=${(row) => `${row.action} ${row.kind} ${row.name}`} columns=${[
        { key: "action", title: "Action" }, { key: "kind", title: "Kind" }, { key: "name", title: "Name", row: true }, { key: "changes", title: "Changes" }, { key: "state", title: "State" }, { key: "reason", title: "Reason" }]} />
      <div class="bar">
        <button type="button" onClick=${() => again(true)}>Plan with destroying what is not in the file</button>
        <${Action} label="Import" about=${file.name} fields=${[{ name: "keep_going", label: "Go on after a step that fails", kind: "check", value: false }]}
          line=${(given) => command("import definitions", { "keep-going": given.keep_going === true }, file.name)}
          run=${(given) => ask({ definitions: file.definitions, keep_going: given.keep_going === true }).then((answer) => { setPlan(answer); return answer.complete ? "all is as wanted" : "not all is done; see the steps"; })} />
        <${Action} label="Import and destroy the rest" about=${file.name} danger named=${session.broker} warning="What the file does not have is destroyed, with its messages."
          line=${() => command("import definitions", { prune: true }, file.name)}
          run=${() => ask({ definitions: file.definitions, prune: true }).then((answer) => { setPlan(answer); return answer.complete ? "all is as wanted" : "not all is done; see the steps"; })} />
      </div>` : null}`;
}

export function Brokers() {
  const members = usePoll(brokers, 10, []);
  const own = usePoll((renews) => verb("GET", "/broker", { renews }), 15, []);
  const services = usePoll((renews) => view("services", { renews }), 15, []);
  const rows = members.data ?? [];
  const alone = rows.some((row) => row.alone);
  const record = usePoll(async (renews) => (alone || !members.data ? null : verb("GET", "/cluster", { renews })), 15, [alone, members.data !== null]);
  return html`<h1 tabindex="-1">Brokers</h1><${Trouble} poll=${members} />
    <${Table} caption="Brokers" quiet rows=${members.data} id=${(row) => row.broker} columns=${[
      { key: "broker", title: "Broker", row: true }, { key: "state", title: "State", show: (row) => html`<${State} state=${row.state} />` }, { key: "node", title: "Node" },
      { title: "Role", show: (row) => (row.alone ? "alone" : [row.seat && "coordinator", row.master && "master"].filter(Boolean).join(", ") || "member") },
      { key: "record", title: "Record", number: true }, { key: "reason", title: "Why it is not up" },
      { title: "Change", show: (row) => html`<span class="bar">
        <${Action} short label="Restart" about=${`broker ${row.broker}`} danger named=${row.broker} refused=${row.not_now.restart_broker} warning="Its clients are told, and come again when it is back."
          line=${() => command("restart bkr", { b: row.broker, f: true })} done=${members.again}
          run=${() => verb("POST", path`/brokers/${row.broker}/restart`, { body: {} }).then(() => "it ends and is started again")} />
        <${Action} short label="Shut down" about=${`broker ${row.broker}`} danger named=${row.broker} refused=${row.not_now.shutdown_broker} warning="Its destinations are away until it is started again."
          fields=${[{ name: "time_s", label: "In seconds", kind: "number", value: "0" }]} line=${(given) => command("shutdown bkr", { b: row.broker, time: given.time_s, f: true })} done=${members.again}
          run=${(given) => verb("POST", path`/brokers/${row.broker}/shutdown`, { body: { time_s: Number(given.time_s) } }).then(() => "it ends")} /></span>` }]} />
    <h2>Broker ${own.data?.broker ?? session.broker}</h2><${Trouble} poll=${own} />
    <div class="bar"><${Action} label="Change properties" about="of all brokers" fields=${[{ ...LINES, label: "Properties, name=value a line", hint: "Such as imq.log.level=WARNING" }]} done=${own.again}
      line=${(given) => command("update bkr", { o: options(attributes(given.attributes)) })}
      run=${(given) => verb("PATCH", "/brokers", { body: { properties: attributes(given.attributes) } }).then(() => "changed")} /></div>
    <p>Started ${time(own.data?.started_ms)}; memory level ${own.data?.memory_level ?? "–"}. Changed while it runs: ${options(own.data?.changed ?? {}).join(", ") || "nothing"}.</p>
    <${Table} caption="Hosts of this broker" rows=${own.data?.hosts} id=${(row) => row.host} columns=${[
      { key: "host", title: "Host", row: true }, { key: "hosting", title: "Hosting" }, { key: "destinations", title: "Destinations", number: true }, { key: "connections", title: "Connections", number: true },
      { key: "messages", title: "Messages", number: true }, { key: "memory_level", title: "Memory" }, { key: "failure", title: "Failure" }]} />
    <h2>Services</h2><${Trouble} poll=${services} /><${Missing} missing=${services.data?.missing} />
    <${Table} caption="Connection services that are active" sorts rows=${services.data?.rows.filter((row) => row.state !== "UNKNOWN")} id=${(row) => `${row.broker} ${row.service}`} columns=${[
      { key: "service", title: "Service", row: true }, { key: "broker", title: "Broker" }, { key: "kind", title: "Kind" }, { key: "protocol", title: "Protocol" }, { key: "port", title: "Port" },
      { key: "state", title: "State", show: (row) => html`<${State} state=${row.state} />` }, { key: "connections", title: "Clients", number: true }, { key: "connections_max", title: "At most", number: true },
      { key: "refused", title: "Refused", number: true },
      { title: "Change", show: (row) => { const at = path`/services/${row.service}`; return row.kind === "PORTMAPPER" ? null : html`<span class="bar">
        <${Action} short label="Pause" about=${`service ${row.service}`} refused=${row.not_now.pause_service} line=${() => command("pause svc", { n: row.service })} done=${services.again}
          warning="Nothing of its clients is processed until it is resumed." run=${() => verb("POST", `${at}/pause`).then(() => "paused")} />
        <${Action} short label="Resume" about=${`service ${row.service}`}  line=${() => command("resume svc", { n: row.service })} done=${services.again}
          run=${() => verb("POST", `${at}/resume`).then(() => "resumed")} /></span>`; } }]} />
    <h2>Configuration record</h2><${Trouble} poll=${record} />
    ${alone ? html`<p>A broker without a cluster has no configuration change record; <a href="#/definitions">definitions</a> have what was made.</p>` : html`
      <${Table} caption="The cluster and its record, as this broker sees them" rows=${Object.entries(record.data ?? {}).map(([key, value]) => ({ key, value }))} id=${(row) => row.key} columns=${[
        { key: "key", title: "What", row: true }, { key: "value", title: "Value" }]} />
      <div class="bar"><${Action} label="Back up" about="the record" line=${() => command("backup cls", { f: "record.backup" })}
        run=${() => verb("GET", "/cluster/record").then((answer) => { download("record.backup", [bytesOf(answer.result)], "application/octet-stream"); return "in the file record.backup"; })} />
        <${Action} label="Move the record" about="to another broker" fields=${[{ name: "target", label: "Broker", required: true }]} line=${(given) => command("changemaster cls", { o: `imq.cluster.masterbroker=${given.target}` })}
          run=${(given) => verb("POST", "/cluster/master", { body: { target: given.target } }).then(() => "moved")} done=${record.again} /></div>`}`;
}
