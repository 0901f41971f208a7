// Destinations, many and one.

import { html, useState } from "./hooks.js";
import { attributes, command, options, path, verb, view } from "./api.js";
import { Action } from "./actions.js";
import { LastHour, Missing, Pager, State, Table, Trouble, bytes, number, text, time, usePoll } from "./parts.js";
import { Why } from "./why.js";

const at = (type, name) => path`/destinations/${type}/${name}`;
const at_ = (row) => at(row.type, row.name);
export const link = (page, type, name) => `#/${page}/${encodeURIComponent(type)}/${encodeURIComponent(name)}`;
const args = (type, name) => ({ t: type === "topic" ? "t" : "q", n: name });

export function DestinationLink({ row }) {
  return html`<a href=${link("destination", row.type, row.name)}>${row.name}</a>`;
}

const COLUMNS = [
  { key: "name", title: "Name", row: true, show: (row) => html`<${DestinationLink} row=${row} />` },
  { key: "type", title: "Type" },
  { key: "state", title: "State", show: (row) => html`<${State} state=${row.state} />` },
  { key: "messages", title: "Messages", number: true },
  { key: "bytes", title: "Bytes", number: true, show: (row) => bytes(row.bytes) },
  { key: "full_percent", title: "Full %", number: true },
  { key: "in_rate", title: "In/s", number: true },
  { key: "out_rate", title: "Out/s", number: true },
  { key: "waiting", title: "Waiting", number: true },
  { key: "unacknowledged", title: "Unacknowledged", number: true },
  { key: "producers", title: "Producers", number: true },
  { key: "active_consumers", title: "Consumers", number: true },
  { key: "dead", title: "Dead", number: true },
  { title: "Explain", show: (row) => (row.messages ? html`<${Why} what="destination" id=${row.name} within=${{ type: row.type }} />` : null) },
];

export function Destinations({ query }) {
  const [asked, setAsked] = useState({ text: query.get("find") ?? "", type: "", sort: "name", falling: false, start: 0 });
  const poll = usePoll((renews) => view("destinations", { renews, query: { ...asked, max: 50 } }), 5, [asked]);
  const found = poll.data ?? { rows: [], count: 0, all: 0 };
  const change = (more) => setAsked({ ...asked, start: 0, ...more });
  return html`<h1 tabindex="-1">Destinations</h1>
    <form class="bar" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>Name has <input type="search" name="find" value=${asked.text} onInput=${(event) => change({ text: event.target.value })} /></label>
      <label>Type <select name="type" value=${asked.type} onChange=${(event) => change({ type: event.target.value })}>
        <option value="">all</option><option value="queue">queues</option><option value="topic">topics</option></select></label>
      <${Action} label="Create" about="destination" done=${poll.again}
        fields=${[{ name: "name", label: "Name", required: true }, { name: "type", label: "Type", choices: ["queue", "topic"], value: "queue" },
          { name: "attributes", label: "Attributes, name=value a line", kind: "lines", hint: "Such as maxNumMsgs=1000" }]}
        line=${(given) => command("create dst", { ...args(given.type, given.name), o: options(attributes(given.attributes)) })}
        run=${(given) => verb("POST", "/destinations", { body: { type: given.type, name: given.name, attributes: attributes(given.attributes) } }).then((answer) => answer.result)} />
    </form>
    <${Trouble} poll=${poll} /><${Missing} missing=${found.missing} />
    <p role="status">${poll.data ? `${number(found.count)} of ${number(found.all)} destinations.` : poll.error ? "" : "Loading…"}</p>
    <${Table} caption="Destinations" quiet columns=${COLUMNS} rows=${found.rows} id=${(row) => `${row.type} ${row.name}`}
      sort=${{ key: asked.sort, falling: asked.falling }}
      onSort=${(key) => change({ sort: key, falling: asked.sort === key ? !asked.falling : COLUMNS.find((column) => column.key === key).number === true })}
      empty="There is no destination of that name." />
    <${Pager} of="destinations" start=${asked.start} shown=${found.rows.length} all=${found.count} go=${(start) => setAsked({ ...asked, start })} />
    <p class="faint">Figures of ${time(found.at_ms)}.</p>`;
}

function actionsOf(row, again) {
  const own = args(row.type, row.name);
  const about = `${row.type} ${row.name}`;
  const not = row.not_now;
  const post = (what, body) => verb("POST", `${at_(row)}/${what}`, { body });
  const PST = { all: "ALL", producers: "PRODUCERS", consumers: "CONSUMERS", insertion: "INSERTION" };
  return [
    { label: "Pause", refused: not.pause_destination, fields: [{ name: "which", label: "What of it", choices: Object.keys(PST), value: "all" }],
      line: (given) => command("pause dst", { ...own, pst: PST[given.which] }), run: (given) => post("pause", { which: given.which }).then(() => "paused") },
    { label: "Resume", refused: not.resume_destination, line: () => command("resume dst", own), run: () => post("resume", {}).then(() => "resumed") },
    { label: "Change attributes", fields: [{ name: "attributes", label: "Attributes, name=value a line", kind: "lines" }],
      line: (given) => command("update dst", { ...own, o: options(attributes(given.attributes)) }),
      run: (given) => verb("PATCH", at_(row), { body: { changes: attributes(given.attributes) } }).then(() => "changed") },
    { label: "Reset counts", line: () => command("reset dst", own), run: () => post("reset", {}).then(() => "counted from zero") },
    { label: "Compact store", refused: not.compact_destination,
      line: () => command("compact dst", own), run: () => post("compact", {}).then(() => "compacted") },
    ...(row.damaged?.length ? [{ label: "Skip damaged", danger: true, named: row.name, warning: "What can still be read goes to mq.sys.dmq.",
      line: () => command("skip msg", { ...own, f: true }), run: () => post("messages/skip").then((answer) => `${answer.result} messages were skipped`) }] : []),
    ...(row.state === "ORPHANED" ? [{ label: "Adopt", line: () => command("adopt dst", own), run: () => post("adopt").then(() => "adopted") }] : []),
    { label: "Purge", danger: true, named: row.name, warning: "All messages that no consumer holds are lost.",
      line: () => command("purge dst", { ...own, f: true }), run: () => post("purge", {}).then(() => "purged") },
    { label: "Destroy", danger: true, named: row.name, warning: "The destination and all its messages are lost.",
      refused: not.destroy_destination,
      line: () => command("destroy dst", { ...own, f: true }), run: () => verb("DELETE", at_(row)).then(() => "destroyed"),
      done: () => { location.hash = "#/destinations"; } },
  ].map((one) => html`<${Action} key=${one.label} about=${about} done=${again} ...${one} />`);
}

export function Destination({ parts: [type, name] }) {
  const poll = usePoll((renews) => view("destination", { renews, query: { type, name } }), 5, [type, name]);
  const consumers = usePoll((renews) => verb("GET", "/consumers", { renews, query: { destination: name, type } }), 5, [type, name]);
  const clients = usePoll((renews) => verb("GET", "/connections", { renews, query: { destination: name, type } }), 10, [type, name]);
  const schedules = usePoll((renews) => verb("GET", "/schedules", { renews, query: { destination: name, type } }), 15, [type, name]);
  const row = poll.data;
  const title = html`<h1 tabindex="-1">${type === "topic" ? "Topic" : "Queue"} ${name}</h1>`;
  if (!row) return html`${title}<${Trouble} poll=${poll} />${poll.error ? null : html`<p role="status">Loading…</p>`}`;
  const again = () => { poll.again(); consumers.again(); };
  const tiles = [["State", html`<${State} state=${row.state} />`], ["Messages", number(row.messages)], ["Bytes", bytes(row.bytes)], ["Waiting", number(row.waiting)],
    ["Unacknowledged", number(row.unacknowledged)], ["Delayed", number(row.delayed)], ["In transactions", number(row.in_transaction)], ["Producers", number(row.producers)],
    ["Consumers", `${number(row.active_consumers)}${row.backup_consumers ? ` and ${number(row.backup_consumers)} in reserve` : ""}`],
    ["In", number(row.messages_in)], ["Out", number(row.messages_out)], ["Redelivered", number(row.redelivered)], ["Expired", number(row.expired)],
    ["Refused", number(row.refused)], ["Dead", number(row.dead)], ["Units of order", `${number(row.units)}, ${number(row.units_blocked)} blocked`], ["Schedules", number(row.schedules)]];
  return html`${title}<${Trouble} poll=${poll} />
    <p><a href=${link("messages", type, name)}>Messages of ${name}</a></p>
    <div class="bar"><${Why} what="destination" id=${name} within=${{ type }} label="Why do messages wait?" /> ${actionsOf(row, again)}</div>
    <dl class="tiles">${tiles.map(([label, value]) => html`<div><dt>${label}</dt><dd>${value}</dd></div>`)}</dl>
    ${row.over_threshold?.length ? html`<div class="alert">Over its threshold: ${row.over_threshold.join(", ")}.</div>` : null}
    <p class="faint">Counts are since ${time(row.counted_since_ms)}.</p>
    <${LastHour} type=${type} name=${name} />
    <h2>Consumers</h2><${Trouble} poll=${consumers} />
    <${Table} caption="Consumers, their credit and what they hold" rows=${consumers.data?.rows} id=${(one) => one.id} sorts columns=${[
      { key: "id", title: "Consumer", row: true }, { key: "active", title: "Active", show: (one) => (one.active ? "active" : "in reserve") }, { key: "flow", title: "Flow" },
      { key: "limit", title: "Limit", number: true }, { key: "granted", title: "Credit", number: true }, { key: "unacknowledged", title: "Holds", number: true },
      { key: "sent", title: "Sent", number: true }, { key: "selector", title: "Selector" }, { key: "subscription", title: "Subscription" }, { key: "broker", title: "Broker" },
      { title: "Explain", show: (one) => html`<${Why} what="consumer" id=${one.id} />` }]} />
    <h2>Producers and their clients</h2><${Trouble} poll=${clients} />
    <${Table} caption="Clients with producers or consumers of it" rows=${clients.data?.rows} id=${(one) => one.id} sorts columns=${[
      { key: "id", title: "Connection", row: true }, { key: "user", title: "User" }, { key: "host", title: "Address" }, { key: "client_id", title: "Client id" },
      { key: "producers", title: "Producers", number: true }, { key: "consumers", title: "Consumers", number: true }]} />
    <h2>Schedules</h2><${Trouble} poll=${schedules} />
    <${Table} caption="Recurring messages" rows=${schedules.data?.rows} id=${(one) => one.id} columns=${[
      { key: "id", title: "Schedule", row: true }, { key: "schedule", title: "When" }, { key: "timezone", title: "Zone" }, { key: "fired", title: "Sent", number: true },
      { key: "next_ms", title: "Next", show: (one) => time(one.next_ms) }, { key: "state", title: "State", show: (one) => html`<${State} state=${one.state} />` },
      { title: "Change", show: (one) => html`<${Action} label="End" about=${`schedule ${one.id}`} danger warning="It sends nothing any more; what it has sent stays."
        line=${() => command("destroy sch", { n: one.id, f: true })} run=${() => verb("DELETE", path`/schedules/${one.id}`).then(() => "ended")} done=${schedules.again} />` }]} />
    <h2>Attributes</h2>
    <p>${row.policy ? `Policy ${row.policy}. ` : ""}${row.operator_policy ? `Operator policy ${row.operator_policy}. ` : ""}</p>
    <${Table} caption="Attributes that hold, and where each value comes from" rows=${Object.entries(row.effective ?? row.attributes).map(([key, value]) => ({
      key, value, from: row.origins?.[key] ?? "default", own: row.attributes[key] }))} id=${(one) => one.key} sorts columns=${[
      { key: "key", title: "Attribute", row: true }, { key: "value", title: "Value", show: (one) => text(one.value) }, { key: "from", title: "Comes from" },
      { key: "own", title: "Its own value", show: (one) => text(one.own) }]} />`;
}
