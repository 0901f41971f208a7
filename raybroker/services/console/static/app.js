// The console: login, navigation, and which page is shown. A page is a hash: #/destination/queue/orders?find=x.

import { html, render, useEffect, useLayoutEffect, useRef, useState } from "./hooks.js";
import { logIn, logInWithToken, logOut, resume, session, whenEnded } from "./api.js";
import { Said, say } from "./actions.js";
import { Overview } from "./overview.js";
import { Destination, Destinations } from "./destinations.js";
import { Messages } from "./messages.js";
import { Connections, Subscriptions, Transactions, Users } from "./clients.js";
import { Brokers, Definitions, Quotas } from "./cluster.js";

const PAGES = {
  "": ["Overview", Overview],
  destinations: ["Destinations", Destinations],
  destination: ["Destination", Destination, "destinations"],
  messages: ["Messages", Messages, "destinations"],
  subscriptions: ["Subscriptions", Subscriptions],
  transactions: ["Transactions", Transactions],
  connections: ["Connections", Connections],
  users: ["Users and rights", Users],
  quotas: ["Quotas and policies", Quotas],
  definitions: ["Definitions", Definitions],
  brokers: ["Brokers", Brokers],
};

/** Which page a hash names: its key, the parts behind that, and its parameters. */
function placeOf(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { key: parts[0] in PAGES ? parts[0] : "", parts: parts.slice(1), query: new URLSearchParams(query ?? "") };
}

function Theme() {
  const [chosen, setChosen] = useState(document.documentElement.dataset.theme ?? "");
  const choose = (event) => {
    const value = event.target.value;
    if (value) document.documentElement.dataset.theme = value;
    else delete document.documentElement.dataset.theme;
    try {
      localStorage.setItem("raybroker.theme", value);
    } catch { /* It holds until the page is loaded again. */ }
    setChosen(value);
    window.dispatchEvent(new Event("themed"));  // Plots are drawn in colours of the theme.
  };
  return html`<label>Theme <select name="theme" value=${chosen} onChange=${choose}>
    <option value="" selected=${chosen === ""}>of the system</option><option value="light" selected=${chosen === "light"}>light</option>
    <option value="dark" selected=${chosen === "dark"}>dark</option></select></label>`;
}

function Login({ entered, words }) {
  const [given, setGiven] = useState({ user: "", password: "", token: "" });
  const [byToken, setByToken] = useState(false);
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const first = useRef(null);
  useEffect(() => { document.title = "Log in – raybroker console"; first.current?.focus(); }, [byToken]);
  const set = (name) => (event) => setGiven({ ...given, [name]: event.target.value });
  const go = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError("");
    try {
      await (byToken ? logInWithToken(given.token) : logIn(given.user, given.password));
      entered();
    } catch (wrong) {
      setError(wrong.message);
      setBusy(false);
    }
  };
  return html`<main class="login"><h1>raybroker console</h1>
    ${words ? html`<p role="status">${words}</p>` : null}
    <form onSubmit=${go} method="post">
      ${byToken
        ? html`<label>Token<textarea ref=${first} name="token" value=${given.token} onInput=${set("token")} required></textarea></label>`
        : html`<label>User<input ref=${first} name="user" autocomplete="username" value=${given.user} onInput=${set("user")} required /></label>
          <label>Password<input name="password" type="password" autocomplete="current-password" value=${given.password} onInput=${set("password")} required /></label>`}
      ${error ? html`<div class="alert" role="alert">${error}</div>` : null}
      <div class="bar"><button type="submit" class="main" disabled=${busy}>${busy ? "Logging in…" : "Log in"}</button>
        <button type="button" onClick=${() => setByToken(!byToken)}>${byToken ? "With a password" : "With a token"}</button></div>
    </form></main>`;
}

function Console({ left }) {
  const [place, setPlace] = useState(placeOf(location.hash));
  const main = useRef(null);
  useEffect(() => {
    const moved = () => setPlace(placeOf(location.hash));
    window.addEventListener("hashchange", moved);
    return () => window.removeEventListener("hashchange", moved);
  }, []);
  const [title, Page, under] = PAGES[place.key];
  const name = [title, ...place.parts].join(" ");
  const shown = useRef(name);
  useLayoutEffect(() => {
    document.title = `${name} – ${session.broker} – raybroker console`;
    if (shown.current !== name) main.current?.querySelector("h1")?.focus();
    shown.current = name;
  }, [name]);
  const leave = async () => {
    try {
      await logOut();
    } finally {
      left("You are logged out.");
    }
  };
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>To the content</a>
    <header class="top"><strong>raybroker</strong><span>broker ${session.broker}, ${session.version}</span><span class="space"></span>
      <${Theme} /><span>${session.user}</span><button type="button" onClick=${leave}>Log out</button></header>
    <nav class="main" aria-label="Pages"><ul>${Object.entries(PAGES).filter(([, page]) => page.length === 2).map(([key, [label]]) => html`<li><a
      href=${`#/${key}`} aria-current=${key === place.key ? "page" : key === under ? "true" : undefined}>${label}</a></li>`)}</ul></nav>
    <main id="main" ref=${main} tabindex="-1"><${Said} /><${Page} key=${[place.key, ...place.parts].join("/")} parts=${place.parts} query=${place.query} /></main>`;
}

function App() {
  const [entered, setEntered] = useState(null);
  const [words, setWords] = useState("");
  useEffect(() => {
    resume().then(setEntered, (error) => { setWords(error.message); setEntered(false); });
    return whenEnded(() => { setWords("The session has ended. Log in again."); setEntered(false); });
  }, []);
  if (entered === null) return html`<main><p role="status">Loading…</p></main>`;
  if (!entered) return html`<${Login} words=${words} entered=${() => { setWords(""); say(""); setEntered(true); }} />`;
  return html`<${Console} left=${(why) => { setWords(why); setEntered(false); }} />`;
}

render(html`<${App} />`, document.getElementById("app"));
