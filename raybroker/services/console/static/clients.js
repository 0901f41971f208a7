// Subscriptions, transactions, connections and users.

import { html, useState } from "./hooks.js";
import { command, path, verb, view } from "./api.js";
import { Action } from "./actions.js";
import { Missing, State, Table, Trouble, number, time, usePoll } from "./parts.js";
import { link } from "./destinations.js";
import { Why } from "./why.js";

export function Subscriptions() {
  const poll = usePoll((renews) => view("subscriptions", { renews }), 10, []);
  const key = (row) => ({ client_id: row.client_id, topic: row.topic });
  const line = (words, row) => command(words, { n: row.name, c: row.client_id, d: row.topic, f: true });
  return html`<h1 tabindex="-1">Subscriptions</h1><${Trouble} poll=${poll} /><${Missing} missing=${poll.data?.missing} />
    <div class="bar"><${Action} label="Create" about="durable subscription" done=${poll.again} fields=${[{ name: "name", label: "Name", required: true }, { name: "topic", label: "Topic", required: true },
      { name: "client_id", label: "Client id, if it has one" }, { name: "selector", label: "Selector" }, { name: "shared", label: "Several consumers share its messages", kind: "check", value: false }]}
      line=${(given) => command("create dur", { n: given.name, d: given.topic, c: given.client_id, s: given.selector, shared: given.shared === true })}
      run=${(given) => verb("POST", "/subscriptions", { body: { name: given.name, topic: given.topic, shared: given.shared === true,
        ...(given.client_id ? { client_id: given.client_id } : {}), ...(given.selector ? { selector: given.selector } : {}) } }).then(() => "created")} /></div>
    <${Table} caption="Subscriptions" quiet sorts rows=${poll.data?.rows} id=${(row) => `${row.topic} ${row.client_id} ${row.name}`} columns=${[
      { key: "name", title: "Name", row: true }, { key: "topic", title: "Topic", show: (row) => html`<a href=${link("destination", "topic", row.topic)}>${row.topic}</a>` },
      { key: "client_id", title: "Client id" }, { key: "kind", title: "Kind", unsorted: true, show: (row) => `${row.durable ? "durable" : "not durable"}${row.shared ? ", shared" : ""}` },
      { key: "selector", title: "Selector" }, { key: "active", title: "Active", show: (row) => (row.active ? "active" : "not active") },
      { key: "messages", title: "Messages", number: true }, { key: "consumers", title: "Consumers", number: true },
      { title: "Explain", show: (row) => html`<${Why} what="subscription" id=${row.name} within=${{ destination: row.topic, type: "topic", client_id: row.client_id }} />` },
      { title: "Change", show: (row) => html`<span class="bar">
        <${Action} short label="Purge" about=${`subscription ${row.name}`} danger named=${row.name} refused=${row.not_now.purge_subscription}
          warning="The messages that wait for it are lost." line=${() => line("purge dur", row)} done=${poll.again}
          run=${() => verb("POST", path`/subscriptions/${row.name}/purge`, { body: key(row) }).then(() => "purged")} />
        <${Action} short label="Destroy" about=${`subscription ${row.name}`} danger named=${row.name} refused=${row.not_now.destroy_subscription}
          warning="The subscription ends, and its messages are lost." line=${() => line("destroy dur", row)} done=${poll.again}
          run=${() => verb("DELETE", path`/subscriptions/${row.name}`, { query: key(row) }).then(() => "destroyed")} /></span>` }]} />`;
}

export function Transactions() {
  const poll = usePoll((renews) => view("transactions", { renews }), 5, []);
  const idOf = (row) => `${row.host}:${row.id}`;
  return html`<h1 tabindex="-1">Transactions</h1><${Trouble} poll=${poll} /><${Missing} missing=${poll.data?.missing} />
    <${Table} caption="Transactions that have not ended" sorts rows=${poll.data?.rows} id=${idOf} columns=${[
      { key: "id", title: "Transaction", row: true, show: idOf }, { key: "kind", title: "Kind" }, { key: "state", title: "State" }, { key: "client_id", title: "Client id" },
      { key: "messages", title: "Messages", number: true }, { key: "acks", title: "Acknowledgements", number: true }, { key: "created_ms", title: "Began", show: (row) => time(row.created_ms) },
      { title: "Explain", show: (row) => html`<${Why} what="transaction" id=${row.id} />` },
      { title: "Change", show: (row) => html`<span class="bar">
        <${Action} short label="Commit" about=${`transaction ${idOf(row)}`} refused=${row.not_now.commit_transaction}
          line=${() => command("commit txn", { n: idOf(row), f: true })} done=${poll.again} run=${() => verb("POST", path`/transactions/${idOf(row)}/commit`).then(() => "committed")} />
        <${Action} short label="Roll back" about=${`transaction ${idOf(row)}`} danger refused=${row.not_now.rollback_transaction}
          warning="What it sent is dropped, and what it took comes again."
          line=${() => command("rollback txn", { n: idOf(row), f: true })} done=${poll.again} run=${() => verb("POST", path`/transactions/${idOf(row)}/rollback`).then(() => "rolled back")} /></span>` }]} />`;
}

export function Connections() {
  const [by, setBy] = useState({ user: "", address: "", client_id: "" });
  const [asked, setAsked] = useState(by);
  const poll = usePoll((renews) => verb("GET", "/connections", { renews, query: asked }), 10, [asked]);
  const field = (name, label) => html`<label>${label} <input name=${name} value=${by[name]} onInput=${(event) => setBy({ ...by, [name]: event.target.value })} /></label>`;
  return html`<h1 tabindex="-1">Connections</h1>
    <form class="bar" role="search" onSubmit=${(event) => { event.preventDefault(); setAsked({ ...by }); }}>
      ${field("user", "User")} ${field("address", "Address or network")} ${field("client_id", "Client id")} <button type="submit" class="main">Show</button></form>
    <${Trouble} poll=${poll} /><${Missing} missing=${poll.data?.missing} />
    <${Table} caption="Clients of the services, and those inside the Ray cluster" sorts rows=${poll.data?.rows} id=${(row) => row.id} columns=${[
      { key: "id", title: "Connection", row: true }, { key: "user", title: "User" }, { key: "service", title: "Service" }, { key: "host", title: "Address" }, { key: "client_id", title: "Client id" },
      { key: "platform", title: "Platform" }, { key: "producers", title: "Producers", number: true }, { key: "consumers", title: "Consumers", number: true },
      { key: "destinations", title: "Destinations", unsorted: true, show: (row) => row.destinations?.join(", ") },
      { key: "messages_in", title: "In", number: true }, { key: "messages_out", title: "Out", number: true },
      { title: "Change", show: (row) => html`<${Action} short label="Close" about=${`connection ${row.id}`} danger warning="The client is told the reason, and what it held comes again elsewhere."
        fields=${[{ name: "reason", label: "Reason, which the client is told" }]} done=${poll.again} line=${(given) => command("destroy cxn", { n: row.id, reason: given.reason, f: true })}
        run=${(given) => verb("DELETE", path`/connections/${row.id}`, { query: { reason: given.reason } }).then(() => "closed")} />` }]} />`;
}

// ---- users -----------------------------------------------------------------------------------------------------------

const ROUNDS = 600_000;
const encoded = (data) => btoa(String.fromCharCode(...new Uint8Array(data)));

/** What the broker keeps of a password (SCRAM-SHA-256, RFC 5803): made here, so that the password stays here. */
export async function verifierOf(password) {
  const bytesOfText = (words) => new TextEncoder().encode(words);
  const salt = crypto.getRandomValues(new Uint8Array(16));
  const key = await crypto.subtle.importKey("raw", bytesOfText(password), "PBKDF2", false, ["deriveBits"]);
  const salted = await crypto.subtle.deriveBits({ name: "PBKDF2", hash: "SHA-256", salt, iterations: ROUNDS }, key, 256);
  const mac = await crypto.subtle.importKey("raw", salted, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const client = await crypto.subtle.sign("HMAC", mac, bytesOfText("Client Key"));
  const server = await crypto.subtle.sign("HMAC", mac, bytesOfText("Server Key"));
  return `SCRAM-SHA-256$${ROUNDS}:${encoded(salt)}$${encoded(await crypto.subtle.digest("SHA-256", client))}:${encoded(server)}`;
}

const insecure = () => (globalThis.crypto?.subtle ? "" : "A password is made into what the broker keeps in the browser, which needs https.");
const repeated = [{ name: "password", label: "Password", kind: "password", required: true }, { name: "again", label: "Password again", kind: "password", required: true }];

async function set(name, given, group) {
  if (given.password !== given.again) throw new Error("The two passwords differ.");
  if (given.password.length < 1) throw new Error("There is no password.");
  const answer = await verb("PUT", path`/users/${name}`, { body: { verifier: await verifierOf(given.password), group } });
  return answer?.result ?? "set";
}

export function Users() {
  const poll = usePoll((renews) => verb("GET", "/users", { renews }), 30, []);
  return html`<h1 tabindex="-1">Users and rights</h1><${Trouble} poll=${poll} /><${Missing} missing=${poll.data?.missing} />
    <div class="bar"><${Action} label="Add" about="user" refused=${insecure()} done=${poll.again}
      fields=${[{ name: "user", label: "Name", required: true }, { name: "group", label: "Group", choices: ["user", "admin", "anonymous"], value: "user" }, ...repeated]}
      line=${(given) => command("usermgr add", { u: given.user, g: given.group })} run=${(given) => set(given.user, given, given.group)} /></div>
    <${Table} caption="Users of the connection services" sorts rows=${poll.data?.rows} id=${(row) => `${row.broker} ${row.user}`} columns=${[
      { key: "user", title: "User", row: true }, { key: "group", title: "Group" }, { key: "active", title: "Active", show: (row) => (row.active ? "active" : "not active") }, { key: "broker", title: "Broker" },
      { title: "Change", show: (row) => html`<span class="bar">
        <${Action} short label="Password" about=${`of ${row.user}`} refused=${insecure()} fields=${repeated} warning="All sessions of the console that this user has end."
          line=${() => command("usermgr update", { u: row.user, password: true })} run=${(given) => set(row.user, given, row.group)} done=${poll.again} />
        <${Action} short label="Delete" about=${`user ${row.user}`} danger named=${row.user} warning="The user cannot log in any more, and what the user has open ends."
          line=${() => command("usermgr delete", { u: row.user, f: true })} run=${() => verb("DELETE", path`/users/${row.user}`).then(() => "deleted")} done=${poll.again} /></span>` }]} />
    <${Rights} users=${[...new Set((poll.data?.rows ?? []).map((row) => row.user))]} />`;
}

/** What a user may do, and by which rule. */
function Rights({ users }) {
  const [given, setGiven] = useState({ user: "", destination: "", type: "queue", service: "jms" });
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  const on = (name) => (event) => setGiven({ ...given, [name]: event.target.value });
  const go = async (event) => {
    event.preventDefault();
    setError("");
    const { user, destination, type, service } = given;
    const asked = ["connect", ...(destination ? ["produce", "consume", ...(type === "queue" ? ["browse"] : []), "create"] : [])];
    try {
      setFound(await Promise.all(asked.map(async (operation) => ({ operation, ...(await verb("GET", "/why-denied", {
        query: { user, operation, service, type, destination: operation === "connect" ? service : destination } })) }))));
    } catch (wrong) {
      setFound(null);
      setError(wrong.message);
    }
  };
  return html`<h2>What may a user do, and why not?</h2>
    <form class="bar" onSubmit=${go}>
      <label>User <input name="who" list="users" value=${given.user} onInput=${on("user")} required /></label><datalist id="users">${users.map((user) => html`<option value=${user}></option>`)}</datalist>
      <label>Destination <input name="what" value=${given.destination} onInput=${on("destination")} /></label>
      <label>Type <select name="kind" value=${given.type} onChange=${on("type")}><option value="queue">queue</option><option value="topic">topic</option></select></label>
      <label>Service <input name="service" value=${given.service} onInput=${on("service")} /></label><button type="submit" class="main">Ask</button></form>
    ${error ? html`<div class="alert" role="alert">${error}</div>` : null}
    ${found ? html`<${Table} caption=${`What ${given.user} may do`} rows=${found} id=${(row) => row.operation} columns=${[
      { key: "operation", title: "Operation", row: true }, { key: "allowed", title: "Allowed", show: (row) => html`<span class=${`mark ${row.allowed ? "ok" : "critical"}`}>${row.allowed ? "✓ yes" : "✕ no"}</span>` },
      { key: "request", title: "What is asked" }, { key: "rule", title: "Rule" },
      { title: "Command", show: (row) => html`<code>${command("why-denied", { t: given.type === "topic" ? "t" : "", service: given.service }, given.user, row.operation, ...(row.operation === "connect" ? [] : [given.destination]))}</code>` }]} />` : null}`;
}
