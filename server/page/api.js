// The server as this page sees it: keys, requests, streams, and what is kept in the browser. All paths are relative, so that
// the page also works below a prefix of a proxy.

export class ApiError extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// ---- storage, which a browser may refuse or find full. `session`: of this tab only

const storage = (kind) => (kind === "session" ? sessionStorage : localStorage);

export function loadText(name, kind) {
  try {
    return storage(kind).getItem("quire." + name);
  } catch {
    return null;
  }
}

export function load(name, otherwise, kind) {
  try {
    return JSON.parse(loadText(name, kind)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

// Gives what the browser threw, or null.
export function saveText(name, text, kind) {
  try {
    if (text === undefined) storage(kind).removeItem("quire." + name);
    else storage(kind).setItem("quire." + name, text);
    return null;
  } catch (e) {
    return e;
  }
}
export const save = (name, value, kind) => saveText(name, JSON.stringify(value), kind);

// The names that begin so and are kept.
export function keptNames(prefix) {
  try {
    return Object.keys(localStorage).filter((k) => k.startsWith("quire." + prefix)).map((k) => k.slice("quire.".length));
  } catch {
    return [];
  }
}

// ---- keys

const keys = { key: "", admin: "", ...load("keys", {}) };
let askForKey = async () => false;

let wanted = false; // the server has asked for a key
export const hasKeys = () => wanted || !!keys.key || !!keys.admin;

// ask(why): shows a dialog; resolves to whether a key was given.
export function onKeyWanted(ask) {
  askForKey = ask;
}
export const getKeys = () => ({ ...keys });
export function setKeys(key, admin, keep) {
  Object.assign(keys, { key, admin });
  save("keys", keep ? keys : undefined);
  dispatchEvent(new Event("keys"));
}

let asking = null; // one dialog for all requests that wait for it
function wantKey(why) {
  wanted = true;
  dispatchEvent(new Event("keywanted"));
  asking ??= askForKey(why).finally(() => (asking = null));
  return asking;
}

// ---- requests

async function readError(response) {
  const text = await response.text();
  try {
    const error = JSON.parse(text).error;
    return new ApiError(response.status, error.message ?? String(error), error.code);
  } catch {
    return new ApiError(response.status, text.slice(0, 400) || response.statusText || `status ${response.status}`);
  }
}

// A response with status 2xx, or throws. 401 asks for a key and tries again, unless `quiet`.
export async function send(path, { body, signal, admin = false, quiet = false } = {}) {
  for (;;) {
    const key = (admin && keys.admin) || keys.key;
    const headers = {};
    if (key) headers.Authorization = "Bearer " + key;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(path, {
        method: body === undefined ? "GET" : "POST", headers, signal, cache: "no-store", credentials: "same-origin",
        body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (e) {
      throw e.name === "AbortError" ? e : new ApiError(0, "The server cannot be reached.");
    }
    if (response.ok) return response;
    const error = await readError(response);
    if (response.status !== 401) throw error;
    error.message = key ? "The server does not accept this key." : "This server asks for an API key. Whoever runs it can give you one.";
    if (quiet || !(await wantKey(error.message))) throw error;
  }
}

export const getJson = async (path, options) => (await send(path, options)).json();

// The JSON objects of a stream of server-sent events, to its end or [DONE].
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch((e) => {
      throw e.name === "AbortError" ? e : new ApiError(0, "The connection to the server has broken.");
    });
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new ApiError(200, event.error.message ?? String(event.error), event.error.code);
      yield event;
    }
  }
}
