// Parts that all pages are made of: polling, tables, marks, charts.

import { html, useEffect, useId, useMemo, useRef, useState } from "./hooks.js";
import { view } from "./api.js";

export const SHOWN_MAX = 50;
export const number = (value) => (typeof value === "number" ? value.toLocaleString("en") : value ?? "–");
export const time = (ms) => (ms ? new Date(ms).toLocaleString("en-GB") : "–");
export const bytes = (value) => {
  if (typeof value !== "number") return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < 4) [value, at] = [value / 1024, at + 1];
  return `${at ? value.toFixed(1) : value} ${units[at]}`;
};
/** Anything that came from the broker, as text. */
export const text = (value) => (typeof value === "string" ? value : value === null || value === undefined ? "–"
  : JSON.stringify(value));

/** What `load` answers: at once, every `seconds` while the page is seen, and when `again()` is called. */
export function usePoll(load, seconds, given) {
  const [state, setState] = useState({ data: null, error: null, at: 0 });
  const run = useRef(null);
  useEffect(() => {
    let over = false;
    let timer = 0;
    let turn = 0;
    const ask = async (renews) => {
      clearTimeout(timer);
      const own = ++turn;
      try {
        const data = await load(renews);
        if (over || own !== turn) return;
        setState({ data, error: null, at: Date.now() });
      } catch (error) {
        if (over || own !== turn) return;
        setState((before) => ({ ...before, error }));
      }
      if (seconds) timer = setTimeout(later, seconds * 1000);
    };
    const later = () => (document.hidden ? undefined : ask(true));
    const seen = () => { if (!document.hidden && seconds) ask(true); };
    document.addEventListener("visibilitychange", seen);
    run.current = () => ask(false);
    setState((before) => ({ ...before, error: null }));
    ask(false);
    return () => {
      over = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, given);
  return { ...state, again: () => run.current?.() };
}

/** What went wrong with a poll, and how old what is shown is. */
export function Trouble({ poll }) {
  if (!poll.error) return null;
  const old = poll.at ? ` What is shown is of ${new Date(poll.at).toLocaleTimeString("en-GB")}.` : "";
  return html`<div class="alert" role="alert">${poll.error.message}${old}</div>`;
}

export function Missing({ missing }) {
  const names = Object.entries(missing ?? {});
  return names.length
    ? html`<div class="alert" role="alert">Not everything is shown. ${names.map(([name, why]) => `${name}: ${why}`).join("; ")}</div>`
    : null;
}

const GRADES = { ok: "✓ ok", warning: "! warning", critical: "✕ critical", unknown: "? unknown" };
/** A state in words and with a sign, so that colour is never alone. */
export function Grade({ grade }) {
  return html`<span class=${`mark ${grade === "unknown" ? "critical" : grade}`}>${GRADES[grade] ?? grade}</span>`;
}

const GOOD = ["RUNNING", "UP", "ACTIVE", "IDLE", "CONNECTED"];
export function State({ state }) {
  const grade = GOOD.includes(state) ? "ok" : /PAUSED|QUIESCED|SUSPECT|JOINING|WAITING/.test(state) ? "warning" : "critical";
  const sign = { ok: "✓", warning: "!", critical: "✕" }[grade];
  return html`<span class=${`mark ${grade}`}>${sign} ${state}</span>`;
}

/**
 * A table. columns: {key, title, number, show(row), row} (row: it names the row); id(row); sort {key, falling} and
 * onSort(key) where it is sorted elsewhere, or `sorts` to sort what is there; rows: null while they are not known; quiet: a heading says what the caption does.
 */
export function Table({ caption, quiet, columns, rows: given, id, sort, onSort, sorts, empty }) {
  const rows = given ?? [];
  const [own, setOwn] = useState({ key: "", falling: false });
  const [start, setStart] = useState(0);
  const by = sort ?? own;
  const change = onSort ?? ((key) => setOwn({ key, falling: own.key === key && !own.falling }));
  const sorted = !sorts || !own.key ? rows : [...rows].sort((a, b) => compare(a[own.key], b[own.key]) * (own.falling ? -1 : 1));
  const first = start < sorted.length ? start : 0;
  const shown = onSort ? sorted : sorted.slice(first, first + SHOWN_MAX);
  return html`<div class="scroll" role="region" aria-label=${caption} tabindex="0">
    <table>
      <caption class=${quiet ? "hidden" : ""}>${caption}${!onSort && rows.length > SHOWN_MAX ? `: ${first + 1} to ${first + shown.length} of ${rows.length}` : ""}</caption>
      <thead><tr>${columns.map((column) => html`<th scope="col" class=${column.number ? "number" : ""}
        aria-sort=${(onSort || sorts) && column.key === by.key ? (by.falling ? "descending" : "ascending") : undefined}>
        ${(onSort || sorts) && column.key && !column.unsorted
          ? html`<button type="button" class="plain" onClick=${() => change(column.key)}>${column.title} <span aria-hidden="true">${column.key === by.key ? (by.falling ? "▼" : "▲") : "↕"}</span></button>`
          : column.title}</th>`)}</tr></thead>
      <tbody>${shown.map((row) => html`<tr key=${id(row)}>${columns.map((column) => {
        const cell = column.show ? column.show(row) : column.number ? number(row[column.key]) : text(row[column.key]);
        return column.row ? html`<th scope="row" class="name">${cell}</th>` : html`<td class=${column.number ? "number" : ""}>${cell}</td>`;
      })}</tr>`)}
      ${rows.length === 0 ? html`<tr><td colspan=${columns.length}>${empty ?? (given ? "There are none." : "Not known yet.")}</td></tr>` : null}</tbody>
    </table></div>
    ${!onSort && rows.length > SHOWN_MAX ? html`<${Pager} start=${first} shown=${shown.length} all=${rows.length} go=${setStart} of=${caption} />` : null}`;
}

export function Pager({ start, shown, all, go, of }) {
  return html`<nav class="bar" aria-label=${`Pages of ${of}`}>
    <button type="button" disabled=${start === 0} onClick=${() => go(Math.max(0, start - SHOWN_MAX))}>Previous</button>
    <span>${all ? start + 1 : 0} to ${start + shown} of ${number(all)}</span>
    <button type="button" disabled=${start + shown >= all} onClick=${() => go(start + SHOWN_MAX)}>Next</button>
  </nav>`;
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return text(a).localeCompare(text(b));
}

const clock = (seconds, exact) => new Date(seconds * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: exact ? "2-digit" : undefined });

/** From the first time to the last, five minutes at least: uPlot would take years for a single time. */
function spanOf(seconds) {
  const last = seconds[seconds.length - 1];
  return seconds.length ? [Math.min(seconds[0], last - 300), last] : [0, 1];
}

/** Lines over time. times: in ms; lines: [{title, values, color}]. The table of the last values is its text. */
export function Chart({ title, times, lines }) {
  const place = useRef(null);
  const plot = useRef(null);
  const name = useId();
  const [themes, setThemes] = useState(0);
  useEffect(() => {
    const changed = () => setThemes((count) => count + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    window.addEventListener("themed", changed);
    system.addEventListener("change", changed);
    return () => {
      window.removeEventListener("themed", changed);
      system.removeEventListener("change", changed);
    };
  }, []);
  const last = lines.map((line) => `${line.title} ${number(line.values[line.values.length - 1])}`).join(", ");
  useEffect(() => {
    const css = getComputedStyle(document.documentElement);
    const color = (of) => css.getPropertyValue(of).trim();
    const axis = { stroke: color("--faint"), grid: { stroke: color("--line"), width: 1 } };
    const dashes = [[], [8, 4], [2, 3]];
    plot.current = new window.uPlot({
      width: Math.max(280, place.current.clientWidth), height: 180, legend: { show: false }, cursor: { show: false },
      axes: [{ ...axis, space: 80, values: (_, seconds, _axis, _space, step) => seconds.map((one) => clock(one, step < 60)) }, { ...axis, size: 64 }],
      scales: { x: { range: ({ data: [seconds] }) => spanOf(seconds) }, y: { range: (_, least, most) => [0, Math.max(1, (most ?? 0) * 1.1)] } },
      series: [{}, ...lines.map((line, n) => ({ label: line.title, stroke: color(line.color), width: 2, dash: dashes[n], points: { fill: color("--back") } }))],
    }, [[], ...lines.map(() => [])], place.current);
    const fit = () => plot.current?.setSize({ width: Math.max(280, place.current.clientWidth), height: 180 });
    window.addEventListener("resize", fit);
    return () => {
      window.removeEventListener("resize", fit);
      plot.current.destroy();
      plot.current = null;
    };
  }, [themes, lines.length]);
  useEffect(() => {
    plot.current?.setData([times.map((ms) => ms / 1000), ...lines.map((line) => line.values)]);
  }, [themes, times.length, times[times.length - 1]]);
  return html`<figure class="chart" aria-labelledby=${name}>
    <figcaption id=${name}>${title}: ${lines.map((line, n) => html`<span>${n ? ", " : ""}${line.title} (${["solid", "dashed", "dotted"][n]})</span>`)}.
      ${times.length ? ` Now: ${last}.` : " There are no figures yet."}</figcaption>
    <div ref=${place} aria-hidden="true"></div></figure>`;
}

/** What the broker has sampled, of one destination or of all: rows of [ms, held, in/s, out/s], null where it is not known. */
export function LastHour({ type = "", name = "" }) {
  const poll = usePoll((renews) => view("history", { renews, query: { type, name } }), 15, [type, name]);
  const rows = poll.data?.rows ?? [];
  const [times, held, arrive, leave] = useMemo(() => [0, 1, 2, 3].map((at) => rows.map((row) => row[at])), [poll.data]);
  const spanned = poll.data && (poll.data.every_s * poll.data.slots) / 60;
  return html`<h2>The last ${!poll.data || spanned === 60 ? "hour" : `${number(spanned)} minutes`}</h2><${Trouble} poll=${poll} />
    <${Chart} title="Messages held" times=${times} lines=${[{ title: "messages", values: held, color: "--chart3" }]} />
    <${Chart} title="Messages each second" times=${times} lines=${[{ title: "in", values: arrive, color: "--chart1" }, { title: "out", values: leave, color: "--chart2" }]} />`;
}
