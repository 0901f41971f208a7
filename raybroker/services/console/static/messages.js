// The messages of a destination: looked at, selected, deleted, moved, sent back, and as a file.

import { html, useEffect, useState } from "./hooks.js";
import { bytesOf, command, download, path, verb, view } from "./api.js";
import { Action, Command, Dialog, say } from "./actions.js";
import { State, Table, Trouble, number, text, time, usePoll } from "./parts.js";
import { link } from "./destinations.js";
import { Why } from "./why.js";

const PAGE = 50;
const BODY_MAX = 262144;
const BATCH = 1 << 20;
const MAGIC = "RBEXPRT1";

export function Messages({ parts: [type, name], query }) {
  const [selector, setSelector] = useState(query.get("selector") ?? "");
  const [typed, setTyped] = useState(selector);
  const [starts, setStarts] = useState([""]);
  const [chosen, setChosen] = useState([]);
  const [looked, setLooked] = useState(null);
  const at = path`/destinations/${type}/${name}`;
  const start = starts[starts.length - 1];
  const poll = usePoll((renews) => verb("GET", `${at}/messages`, { renews, query: { selector, start, max: PAGE, body_bytes_max: 200 } }), 0, [at, selector, start]);
  const about = usePoll((renews) => view("destination", { renews, query: { type, name } }), 10, [at]);
  useEffect(() => setChosen([]), [selector, start]);
  const rows = poll.data?.messages ?? [];
  const state = about.data?.state;
  const again = () => { setChosen([]); setStarts([""]); poll.again(); about.again(); };
  const find = (event) => { event.preventDefault(); setStarts([""]); setSelector(typed.trim()); };
  const toggle = (id) => setChosen(chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id]);
  const not = about.data?.not_now ?? {};
  const some = chosen.length > 0;
  const what = some ? `${chosen.length} selected` : selector ? "all that match" : "all";
  const own = { n: name, t: type === "topic" ? "t" : "q" };
  const which = some ? { ids: chosen } : selector ? { selector } : {};
  const said = some ? { id: chosen } : selector ? { s: selector } : {};
  const post = (action, body) => verb("POST", `${at}/messages/${action}`, { body }).then((answer) => `${number(answer.result)} messages`);
  const shared = { done: again, about: `${what} of ${name}` };
  return html`<h1 tabindex="-1">Messages of ${name}</h1>
    <p><a href=${link("destination", type, name)}>${type} ${name}</a> ${state ? html`<${State} state=${state} />` : null}</p>
    <form class="bar" role="search" onSubmit=${find}>
      <label>Selector <input name="selector" size="40" placeholder="price > 5 AND region = 'EU'" value=${typed} onInput=${(event) => setTyped(event.target.value)} /></label>
      <button type="submit" class="main">Show</button>
      <button type="button" onClick=${again}>Look again</button>
    </form>
    <${Trouble} poll=${poll} />
    <div class="bar">
      <${Action} label="Delete" ...${shared} refused=${not.delete_messages} danger named=${some ? "" : name} warning="They are lost."
        line=${() => command("delete msg", { ...own, ...said, ...(some || selector ? {} : { all: true }), f: true })} run=${() => post("delete", which)} />
      <${Action} label="Move" ...${shared} refused=${not.move_messages} short=${not.move_messages === not.delete_messages} fields=${[{ name: "target", label: "To the destination", required: true }, { name: "kind", label: "Of type", choices: ["queue", "topic"], value: type }]}
        line=${(given) => command("move msg", { ...own, to: given.target, "to-type": given.kind === type ? "" : given.kind, ...said, ...(some || selector ? {} : { all: true }) })}
        run=${(given) => post("move", { target: given.target, target_type: given.kind, ...which })} />
      <${Action} label="Retry" ...${shared} refused=${not.retry_messages} short=${not.retry_messages === not.delete_messages} warning="Each goes back to where it died, as a new message."
        line=${() => command("retry msg", { ...own, ...said })} run=${() => post("retry", which)} />
      <${Action} label="Export" about=${`${selector ? "all that match" : "all"} of ${name}`} line=${() => command("export msg", { ...own, s: selector }, `${name}.messages`)}
        run=${() => exported(at, name, selector)} />
      <${Import} at=${at} name=${name} own=${own} done=${again} />
    </div>
    <${Table} caption=${`Messages, oldest first${selector ? ", that match" : ""}`} rows=${rows} id=${(row) => row.id} empty=${poll.data ? "There is no such message." : poll.error ? "Not known." : "Loading…"} columns=${[
      { title: html`<input type="checkbox" aria-label="Select all of this page" checked=${rows.length > 0 && chosen.length === rows.length}
        onChange=${(event) => setChosen(event.target.checked ? rows.map((row) => row.id) : [])} />`,
        show: (row) => html`<input type="checkbox" aria-label=${`Select ${row.id}`} checked=${chosen.includes(row.id)} onChange=${() => toggle(row.id)} />` },
      { key: "id", title: "Id", row: true, show: (row) => html`<button type="button" class="plain" onClick=${() => setLooked(row)}><u>${row.id}</u></button>` },
      { key: "timestamp", title: "Sent", show: (row) => time(row.timestamp) }, { key: "state", title: "State" }, { key: "delivery_count", title: "Deliveries", number: true },
      { key: "priority", title: "Priority", number: true }, { key: "type", title: "Type" }, { key: "size", title: "Bytes", number: true },
      { key: "body", title: "Body", show: (row) => text(row.body).slice(0, 200) },
      { title: "Explain", show: (row) => html`<${Why} what="message" id=${row.id} within=${{ destination: name, type }} />` }]} />
    <nav class="bar" aria-label="Pages of messages">
      <button type="button" disabled=${starts.length === 1} onClick=${() => setStarts(starts.slice(0, -1))}>Previous</button>
      <button type="button" disabled=${!poll.data?.next} onClick=${() => setStarts([...starts, poll.data.next])}>Next</button></nav>
    ${looked ? html`<${Message} row=${looked} at=${at} own=${own} close=${() => setLooked(null)} />` : null}`;
}

/** One message, whole where it is not too long. */
function Message({ row, at, own, close }) {
  const selector = `JMSMessageID = '${row.id}'`;
  const poll = usePoll(() => verb("GET", `${at}/messages`, { query: { selector, max: 1, body_bytes_max: BODY_MAX } }), 0, [row.id]);
  const found = poll.data?.messages?.[0] ?? row;
  const { body, properties, ...heads } = found;
  return html`<${Dialog} title=${`Message ${row.id}`} close=${close}>
    <${Trouble} poll=${poll} />
    <${Table} caption="Headers" rows=${Object.entries(heads).map(([key, value]) => ({ key, value }))} id=${(one) => one.key} columns=${[
      { key: "key", title: "Header", row: true }, { key: "value", title: "Value", show: (one) => (/^(timestamp|expiration)$/.test(one.key) && one.value ? time(one.value) : text(one.value)) }]} />
    <${Table} caption="Properties" rows=${Object.entries(properties ?? {}).map(([key, value]) => ({ key, value }))} id=${(one) => one.key} columns=${[
      { key: "key", title: "Property", row: true }, { key: "value", title: "Value" }]} />
    <h2>Body</h2>
    <pre tabindex="0" aria-label="Body">${typeof body === "string" ? body : JSON.stringify(body, null, 2)}</pre>
    ${found.size > BODY_MAX ? html`<p class="faint">It has ${number(found.size)} bytes; the first ${number(BODY_MAX)} are shown.</p>` : null}
    <${Command} line=${command("list msg", { ...own, s: selector })} />
    <div class="bar"><${Why} what="producer" id=${row.id} within=${{ destination: own.n, type: own.t === "t" ? "topic" : "queue" }} label="Why does its producer wait?" />
      <button type="button" class="main" onClick=${close}>Close</button></div></${Dialog}>`;
}

// ---- the file of exported messages, as raybroker export msg writes it: magic, frames of length, CRC-32 and block, end

const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  let value = n;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value;
});
function crc32(data) {
  let value = 0xffffffff;
  for (const one of data) value = TABLE[(value ^ one) & 255] ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}
function frame(length, checksum) {
  const head = new DataView(new ArrayBuffer(8));
  head.setUint32(0, length, true);
  head.setUint32(4, checksum, true);
  return head.buffer;
}

async function exported(at, name, selector) {
  const parts = [MAGIC];
  let count = 0;
  for (let start = ""; start !== null;) {
    const page = await verb("GET", `${at}/messages/export`, { query: { selector, start } });
    for (const block of page.blocks.map(bytesOf)) {
      parts.push(frame(block.length, crc32(block)), block);
      count++;
    }
    start = page.next;
  }
  parts.push(frame(0, count));
  download(`${name}.messages`, parts, "application/octet-stream");
  return `${number(count)} blocks are in the file`;
}

/** The blocks of such a file; throws an Error for one that is not whole. */
function blocksOf(data) {
  const bad = new Error("This is no whole file of exported messages.");
  const seen = new DataView(data.buffer);
  if (new TextDecoder().decode(data.slice(0, 8)) !== MAGIC) throw bad;
  const found = [];
  for (let at = 8; ;) {
    if (at + 8 > data.length) throw bad;
    const [length, checksum] = [seen.getUint32(at, true), seen.getUint32(at + 4, true)];
    at += 8;
    if (length === 0) {
      if (checksum !== found.length || at !== data.length) throw bad;
      return found;
    }
    const block = data.slice(at, at + length);
    if (block.length < length || crc32(block) !== checksum) throw bad;
    found.push(block);
    at += length;
  }
}

function base64(data) {
  let made = "";
  for (let at = 0; at < data.length; at += 8192) made += String.fromCharCode(...data.subarray(at, at + 8192));
  return btoa(made);
}

function Import({ at, name, own, done }) {
  const [error, setError] = useState("");
  const [file, setFile] = useState(null);
  const take = async (event) => {
    const chosen = event.target.files[0];
    event.target.value = "";
    if (!chosen) return;
    try {
      setFile({ name: chosen.name, blocks: blocksOf(new Uint8Array(await chosen.arrayBuffer())) });
      setError("");
    } catch (wrong) {
      setError(wrong.message);
    }
  };
  const go = async (event) => {
    event.preventDefault();
    let count = 0;
    try {
      for (let batch = []; file.blocks.length || batch.length;) {
        let size = 0;
        while (file.blocks.length && (batch.length === 0 || size + file.blocks[0].length < BATCH)) {
          size += file.blocks[0].length;
          batch.push(file.blocks.shift());
        }
        count += (await verb("POST", `${at}/messages/import`, { body: { blocks: batch.map(base64) } })).result;
        batch = [];
      }
      say(`Import into ${name}: ${number(count)} messages.`);
      setFile(null);
      done();
    } catch (wrong) {
      setError(`${wrong.message} ${count ? `${number(count)} messages were imported before.` : ""}`);
      setFile(null);
    }
  };
  return html`<label>Import a file <input type="file" name="import" onChange=${take} /></label>
    ${error ? html`<div class="alert" role="alert">${error}</div>` : null}
    ${file ? html`<${Dialog} title=${`Import into ${name}`} close=${() => setFile(null)}><form onSubmit=${go}>
      <p>${file.name} has ${number(file.blocks.length)} blocks of messages.</p><${Command} line=${command("import msg", own, file.name)} />
      <div class="bar"><button type="submit" class="main">Import</button><button type="button" onClick=${() => setFile(null)}>Cancel</button></div></form></${Dialog}>` : null}`;
}
