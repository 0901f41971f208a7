// What the console asks of the broker. Every answer is data: it is shown as text, never as markup.

export const session = { user: null, token: "", broker: "", version: "", idle_s: 0 };
const ended = new Set();

export class Refused extends Error {
  constructor(status, text, problem) {
    super(text);
    this.status = status;
    this.problem = problem;
  }
}

/** Call `listener` when the session has ended. */
export function whenEnded(listener) {
  ended.add(listener);
  return () => ended.delete(listener);
}

/** A path whose parts are escaped: path`/destinations/${type}/${name}`. */
export function path(texts, ...parts) {
  return texts.reduce((made, text, n) => made + encodeURIComponent(parts[n - 1]) + text);
}

function withQuery(url, query) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `${url}?${new URLSearchParams(given)}` : url;
}

async function asked(method, url, { query, body, renews } = {}) {
  const headers = {};
  if (body !== undefined) headers["content-type"] = "application/json";
  if (method !== "GET") headers["x-csrf-token"] = session.token;
  if (renews) headers["x-console-renews"] = "1";
  let answer;
  try {
    answer = await fetch(withQuery(url, query), {
      method, headers, credentials: "same-origin", cache: "no-store",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Refused(0, "The broker does not answer.");
  }
  const kind = answer.headers.get("content-type") ?? "";
  const found = kind.includes("json") ? await answer.json() : null;
  if (answer.ok || (answer.status === 503 && found && "grade" in found)) return found;
  if (answer.status === 401 && session.user !== null) {
    session.user = null;
    session.token = "";
    for (const listener of ended) listener();
  }
  throw new Refused(answer.status, found?.detail ?? `The broker answers ${answer.status}.`, found);
}

/** A verb: method and path as in administration over HTTP. */
export const verb = (method, at, options) => asked(method, `api${at}`, options);
export const view = (name, options) => asked("GET", `view/${name}`, options);

export async function logIn(user, password) {
  Object.assign(session, await asked("POST", "session", { body: { user, password } }));
}

export async function logInWithToken(token) {
  Object.assign(session, await asked("POST", "session", { body: { token } }));
}

/** Whether a session is there already. */
export async function resume() {
  try {
    Object.assign(session, await asked("GET", "session"));
    return true;
  } catch (error) {
    if (error.status === 401) return false;
    throw error;
  }
}

export async function logOut() {
  try {
    await asked("DELETE", "session");
  } finally {
    session.user = null;
    session.token = "";
  }
}

/** The command line that does the same: command("purge dst", {t: "q", n: "orders"}, "FILE"). */
export function command(words, options = {}, ...rest) {
  const made = ["raybroker", words];
  for (const [name, value] of Object.entries(options)) {
    const flag = name.length === 1 || /^(pst|svn)$/.test(name) ? `-${name}` : `--${name}`;
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one === true) made.push(flag);
      else if (one !== false && one !== null && one !== undefined && one !== "") made.push(flag, quoted(String(one)));
    }
  }
  return [...made, ...rest.map((one) => quoted(String(one)))].join(" ");
}

function quoted(text) {
  return /^[\w.@%+=:,/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** "name=value" a line → object; numbers and true/false as such. Throws an Error that names the line. */
export function attributes(text) {
  const found = {};
  for (const line of text.split("\n").map((one) => one.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`${line}: write name=value`);
    const value = line.slice(at + 1).trim();
    found[line.slice(0, at).trim()] = /^-?\d{1,15}$/.test(value) ? Number(value)
      : value === "true" ? true : value === "false" ? false : value;
  }
  return found;
}

export const options = (found) => Object.entries(found).map(([name, value]) => `${name}=${value}`);

export function download(name, parts, kind) {
  const url = URL.createObjectURL(new Blob(parts, { type: kind }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[^\w.-]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
}
