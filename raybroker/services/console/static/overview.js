// The cluster at one glance: sums and rates, what is wrong, brokers, and where messages pile up.

import { html } from "./hooks.js";
import { verb, view } from "./api.js";
import { Grade, LastHour, Missing, State, Table, Trouble, bytes, number, time, usePoll } from "./parts.js";
import { DestinationLink } from "./destinations.js";

/** Brokers as the cluster tells them; a broker without a cluster tells of itself, and that it is alone. */
export const brokers = async (renews) => (await view("brokers", { renews })).rows;

async function health(renews) {
  const asked = ["/health/broker", "/health/services", "/health/cluster"].map((at) => verb("GET", at, { renews }));
  const found = await Promise.allSettled(asked);
  if (found[0].status === "rejected") throw found[0].reason;
  return found.flatMap((one) => (one.status === "fulfilled" ? one.value.checks : []));
}

export function Overview() {
  const figures = usePoll((renews) => view("destinations", { renews, query: { sort: "messages", falling: true, max: 10 } }), 5, []);
  const checks = usePoll(health, 30, []);
  const members = usePoll(brokers, 15, []);
  const sums = figures.data?.sums ?? {};
  const alarms = (checks.data ?? []).filter((check) => check.grade !== "ok");
  return html`<h1 tabindex="-1">Overview</h1>
    <${Trouble} poll=${figures} /><${Missing} missing=${figures.data?.missing} />
    <dl class="tiles">
      ${[["Destinations", number(figures.data?.all)], ["Messages", number(sums.messages)], ["Bytes", bytes(sums.bytes)], ["In each second", number(sums.in_rate)],
        ["Out each second", number(sums.out_rate)], ["Producers", number(sums.producers)], ["Consumers", number(sums.active_consumers)], ["Dead", number(sums.dead)]]
        .map(([label, value]) => html`<div><dt>${label}</dt><dd>${value}</dd></div>`)}</dl>
    <h2>Alarms and findings</h2><${Trouble} poll=${checks} />
    ${checks.data && alarms.length === 0 ? html`<p><${Grade} grade="ok" /> All ${checks.data.length} checks are well.</p>` : null}
    ${alarms.length ? html`<${Table} caption="Checks that are not well" rows=${alarms} id=${(row) => `${row.check} ${row.of} ${row.broker}`} columns=${[
      { key: "check", title: "Check", row: true }, { key: "of", title: "Of" }, { key: "grade", title: "Grade", show: (row) => html`<${Grade} grade=${row.grade} />` },
      { key: "text", title: "What" }]} />` : null}
    <${LastHour} />
    <h2>Brokers</h2><${Trouble} poll=${members} />
    <${Table} caption="Brokers of the cluster" rows=${members.data} id=${(row) => row.broker} columns=${[
      { key: "broker", title: "Broker", row: true }, { key: "state", title: "State", show: (row) => html`<${State} state=${row.state} />` },
      { key: "role", title: "Role", show: (row) => (row.alone ? "alone" : [row.seat && "coordinator", row.master && "master"].filter(Boolean).join(", ") || "member") },
      { key: "node", title: "Node", show: (row) => row.node ?? "–" }]} />
    <h2>Deepest destinations</h2>
    <${Table} caption="The ten destinations with the most messages" rows=${figures.data?.rows} id=${(row) => `${row.type} ${row.name}`} columns=${[
      { key: "name", title: "Name", row: true, show: (row) => html`<${DestinationLink} row=${row} />` }, { key: "type", title: "Type" },
      { key: "state", title: "State", show: (row) => html`<${State} state=${row.state} />` }, { key: "messages", title: "Messages", number: true },
      { key: "in_rate", title: "In/s", number: true }, { key: "out_rate", title: "Out/s", number: true }, { key: "active_consumers", title: "Consumers", number: true }]} />
    <p class="faint">Figures of ${time(figures.data?.at_ms)}; the broker is asked again every ${number(figures.data?.every_s)} s at most.</p>`;
}
