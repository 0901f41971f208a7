// What changes something: a button, a dialog that says what will be done and by which command line, and what became of it.

import { html, useEffect, useId, useRef, useState } from "./hooks.js";

const listeners = new Set();
/** Tell everybody who looks what was done. */
export function say(words) {
  for (const listener of listeners) listener(words);
}

/** What was done last, read aloud where somebody listens. */
export function Said() {
  const [words, setWords] = useState("");
  useEffect(() => {
    listeners.add(setWords);
    return () => listeners.delete(setWords);
  }, []);
  return html`<div role="status" aria-live="polite">${words ? html`<p class="said">${words}
    ${" "}<button type="button" class="plain" onClick=${() => setWords("")}>Dismiss</button></p>` : null}</div>`;
}

export function Command({ line }) {
  return html`<p class="faint">The same by the command line:</p><pre><code>${line}</code></pre>`;
}

/** A dialog over the page, which gets the focus and gives it back. */
export function Dialog({ title, close, children }) {
  const dialog = useRef(null);
  const name = useId();
  useEffect(() => {
    const before = document.activeElement;
    const shown = dialog.current;
    shown.showModal();
    return () => {
      shown.close();
      before?.focus?.();
    };
  }, []);
  return html`<dialog ref=${dialog} aria-labelledby=${name} onCancel=${(event) => { event.preventDefault(); close(); }}>
    <h2 id=${name}>${title}</h2>${children}</dialog>`;
}

/**
 * A button for a change.
 *
 * label, about   "Purge" and what is meant, "queue orders"
 * refused        why it would be refused now: the button is disabled, and says that
 * fields         [{name, label, kind, value, choices, hint, rows}] that are asked for
 * line(given)    the command line
 * run(given)     does it; what it answers is said
 * warning        what is lost
 * named          a name that has to be typed, for what cannot be undone
 */
export function Action({ label, about, refused, fields = [], line, run, done, warning, named, danger, short }) {
  const [open, setOpen] = useState(false);
  const reason = useId();
  const name = about ? `${label} ${about}` : label;
  if (refused) {
    return html`<span class="bar"><button type="button" aria-disabled="true" aria-label=${name} aria-describedby=${reason} title=${refused}>${label}</button>
      <span id=${reason} class=${short ? "hidden" : "reason"}>${refused}</span></span>`;
  }
  return html`<button type="button" class=${danger ? "danger" : ""} aria-label=${name} onClick=${() => setOpen(true)}>${label}</button>
    ${open ? html`<${Ask} ...${{ label, name, fields, line, run, done, warning, named, danger }} close=${() => setOpen(false)} />` : null}`;
}

function Ask({ label, name, fields, line, run, done, warning, named, danger, close }) {
  const [given, setGiven] = useState(Object.fromEntries(fields.map((field) => [field.name, field.value ?? ""])));
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState("");
  const ready = !busy && (!named || typed === named);
  let shown;
  try {
    shown = line(given);
  } catch (wrong) {
    shown = wrong.message;
  }
  const go = async (event) => {
    event.preventDefault();
    if (!ready) return;
    setBusy(true);
    setError("");
    try {
      const answer = await run(given);
      say(`${name}: ${typeof answer === "string" ? answer : "done"}.`);
      close();
      done?.();
    } catch (wrong) {
      setError(wrong.message);
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${name} close=${close}><form onSubmit=${go}>
    ${warning ? html`<p>${warning}</p>` : null}
    ${fields.map((field) => html`<${Field} field=${field} value=${given[field.name]} set=${(value) => setGiven({ ...given, [field.name]: value })} />`)}
    <${Command} line=${shown} />
    ${named ? html`<label><span>Type the name <strong>${named}</strong> to confirm</span>
      <input name="confirm" autocomplete="off" value=${typed} onInput=${(event) => setTyped(event.target.value)} /></label>` : null}
    ${error ? html`<div class="alert" role="alert">${error}</div>` : null}
    <div class="bar"><button type="submit" class=${danger || named ? "danger" : "main"} disabled=${!ready}>${busy ? "Working…" : label}</button>
      <button type="button" onClick=${close}>Cancel</button></div></form></${Dialog}>`;
}

function Field({ field, value, set }) {
  const on = (event) => set(field.kind === "check" ? event.target.checked : event.target.value);
  if (field.kind === "check") return html`<label><input type="checkbox" name=${field.name} checked=${value === true} onChange=${on} /> ${field.label}</label>`;
  const control = field.choices
    ? html`<select name=${field.name} value=${value} onChange=${on}>${field.choices.map((one) => html`<option value=${one} selected=${one === value}>${one}</option>`)}</select>`
    : field.kind === "lines"
      ? html`<textarea name=${field.name} value=${value} onInput=${on}></textarea>`
      : html`<input name=${field.name} type=${field.kind ?? "text"} autocomplete=${field.kind === "password" ? "new-password" : "off"} value=${value} required=${field.required} onInput=${on} />`;
  return html`<label><span>${field.label}</span>${control}${field.hint ? html`<span class="reason">${field.hint}</span>` : null}</label>`;
}
