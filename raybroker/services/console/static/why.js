// Why something waits: the broker's reasons, each with what takes it away.

import { html, useId, useState } from "./hooks.js";
import { command, path, verb } from "./api.js";
import { Command, Dialog } from "./actions.js";
import { Missing, Trouble, usePoll } from "./parts.js";

const LINES = {
  message: (id, { destination, type }) => command("why msg", { n: destination, t: type === "topic" ? "t" : "", id }),
  consumer: (id) => command("why con", { n: id }),
  producer: (id, { destination, type }) => command("why prod", { n: id, d: destination, t: type === "topic" ? "t" : "" }),
  destination: (id, { type }) => command("why dst", { n: id, t: type === "topic" ? "t" : "" }),
  subscription: (id, { destination, client_id }) => command("why dur", { n: id, c: client_id, d: destination }),
  transaction: (id) => command("why txn", { n: id }),
};

/** A button that asks why. what, id: as for raybroker why; within: {destination, type, client_id}, where they are needed. */
export function Why({ what, id, within = {}, label = "Why?" }) {
  const [open, setOpen] = useState(false);
  return html`<button type="button" aria-label=${`${label} ${what} ${id}`} onClick=${() => setOpen(true)}>${label}</button>
    ${open ? html`<${Answer} what=${what} id=${id} within=${within} close=${() => setOpen(false)} />` : null}`;
}

function Answer({ what, id, within, close }) {
  const poll = usePoll((renews) => verb("GET", path`/why/${what}/${id}`, { renews, query: within }), 0, [what, id]);
  return html`<${Dialog} title=${`Why does ${what} ${id} wait?`} close=${close}>
    <${Trouble} poll=${poll} /><${Missing} missing=${poll.data?.missing} />
    <div role="status">${poll.data || poll.error ? null : "Loading…"}
      ${(poll.data?.rows ?? []).map((row) => html`<${Place} row=${row} />`)}
      ${poll.data?.rows.length === 0 ? html`<p>Nothing of it waits.</p>` : null}</div>
    <${Command} line=${LINES[what](id, within)} />
    <div class="bar"><button type="button" onClick=${poll.again}>Ask again</button><button type="button" class="main" onClick=${close}>Close</button></div></${Dialog}>`;
}

function Place({ row }) {
  const name = useId();
  const where = [row.type, row.destination, row.subscription && `subscription ${row.subscription}`, row.client_id && `client id ${row.client_id}`, row.broker && `broker ${row.broker}`].filter(Boolean).join(", ");
  return html`<section aria-labelledby=${name}><h3 id=${name}>${row.state ?? row.what}${where ? `: ${where}` : ""}</h3><p>${row.text}</p>
    <${Reasons} title="Reasons" reasons=${row.reasons} /><${Reasons} title="Before" reasons=${row.history} /><${Reasons} title="Producers" reasons=${row.producers} /></section>`;
}

function Reasons({ title, reasons }) {
  if (!reasons?.length) return null;
  return html`<p><strong>${title}</strong></p><ul>${reasons.map((reason) => html`<li>${reason.text}
    ${reason.remedy ? html`<br /><span class="faint">What helps: ${reason.remedy}</span>` : null}</li>`)}</ul>`;
}
