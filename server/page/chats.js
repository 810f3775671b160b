// Conversations as the browser keeps them: a stored record each, so that tabs write side by side; what two tabs wrote of one
// is merged. A conversation is a tree: a message names the one before it, and the leaf says which branch is shown. So an edit or
// another answer is one more branch, and takes nothing away.
import { keptNames, load, loadText, save, saveText } from "./api.js";

const all = new Map(); // id -> {id, title, settings, changed, leaf, cut, messages}, and gone: it is deleted
const texts = new Map(); // id -> the record as it was last seen in the storage
const troubles = new Map(); // id -> why its record is not in the storage as it should be
export const running = new Map(); // id -> the answer that comes to it in this tab

export const newId = () => crypto.getRandomValues(new Uint32Array(2)).join("");
export const find = (id) => all.get(id);
export const list = () => [...all.values()].filter((c) => !c.gone).sort((a, b) => b.changed - a.changed); // newest first
export const create = (settings) => ({ id: newId(), title: "", settings: { ...settings }, changed: 0, leaf: "", cut: {}, messages: [] });

// ---- the tree

const index = (chat) => new Map(chat.messages.map((m) => [m.id, m]));
const after = (chat, id) => chat.messages.filter((m) => m.parent === id);

// The messages of the branch that is shown, in their order.
export function path(chat) {
  const known = index(chat), out = new Set();
  for (let m = known.get(chat.leaf); m && !out.has(m); m = known.get(m.parent)) out.add(m);
  return [...out].reverse();
}

// The messages that stand at the place of this one, itself among them.
export function versions(chat, m) {
  const known = index(chat), place = (o) => (known.has(o.parent) ? o.parent : "");
  return chat.messages.filter((o) => place(o) === place(m));
}

// The end of the newest branch through a message.
export function tip(chat, id) {
  const seen = new Set();
  for (let next = id; next !== undefined && !seen.has(next); next = after(chat, next).at(-1)?.id) seen.add((id = next));
  return id;
}

// Shows the branch of `id`; where there is none, the newest.
export function show(chat, id) {
  chat.leaf = tip(chat, index(chat).has(id) ? id : chat.messages.at(-1)?.id ?? "");
}

export function add(chat, m, parent = chat.leaf) {
  Object.assign(m, { id: newId(), parent });
  chat.messages.push(m);
  chat.leaf = m.id;
  chat.changed = Date.now();
  return m;
}

// Adds a message behind `parent`; what followed `m` on the shown branch follows it.
export function insert(chat, m, fresh, parent) {
  const leaf = chat.leaf, next = path(chat).find((o) => o.parent === m.id);
  add(chat, fresh, parent);
  if (!next) return;
  Object.assign(next, { parent: fresh.id, v: (next.v ?? 0) + 1 });
  chat.leaf = leaf;
}

// Takes away a message and all that follow it. Gives what brings them back.
export function cut(chat, m) {
  const away = new Set([m]), ids = new Set([m.id]), leaf = chat.leaf;
  for (let n = 0; n !== away.size; ) {
    n = away.size;
    for (const o of chat.messages) if (ids.has(o.parent)) ids.add(o.id), away.add(o);
  }
  const others = versions(chat, m).filter((o) => !away.has(o));
  chat.messages = chat.messages.filter((o) => !away.has(o));
  for (const o of away) chat.cut[o.id] = o.v ?? 0;
  show(chat, others.at(-1)?.id ?? m.parent);
  return () => {
    const back = [...away].filter((o) => !index(chat).has(o.id));
    for (const o of back) o.v = chat.cut[o.id] + 1;
    chat.messages.push(...back);
    show(chat, leaf);
  };
}

// ---- records

const isText = (v) => typeof v === "string";
const isList = (v, ok) => v === undefined || v === null || (Array.isArray(v) && v.every(ok));
const isCall = (c) => isText(c?.function?.name) && isText(c.function.arguments);
const isToken = (t) => isText(t?.text) && Number.isFinite(t.logprob) && Array.isArray(t.top);
const isNumber = (v) => v === undefined || Number.isFinite(v);
const isMessage = (m) => isText(m?.role) && isText(m.content ?? "") && isText(m.reasoning ?? "") && isNumber(m.first) && isNumber(m.speed) &&
  isList(m.tool_calls, isCall) && isList(m.tokens, isToken);

const order = load("chats", []); // of records without `changed`: newest first
const ageOf = (id) => (Array.isArray(order) && order.includes(id) ? -order.indexOf(id) : -1e6);

// A conversation from its record. Messages without ids, of records of old, follow each other. What is no record is still a text.
function read(id, text) {
  try {
    const c = JSON.parse(text);
    if (!c.messages.every(isMessage)) throw new TypeError();
    const settings = Object.fromEntries(Object.entries(c.settings ?? {}).filter(([, v]) => isText(v) || typeof v === "boolean"));
    let before = "";
    const messages = c.messages.map((m, i) => {
      const one = { ...m, content: m.content ?? "", id: String(m.id ?? "m" + i), parent: String(m.parent ?? before) };
      before = one.id;
      return one;
    });
    const chat = { id, title: String(c.title ?? ""), settings, changed: Number(c.changed ?? ageOf(id)) || 0, leaf: "", cut: { ...c.cut }, messages };
    show(chat, c.leaf);
    return chat;
  } catch {
    const raw = { id: "raw", parent: "", role: "unreadable", content: text };
    return { ...create({}), id, title: "Could not be read", changed: ageOf(id), leaf: "raw", messages: [raw] };
  }
}

const record = ({ id, title, settings, changed, leaf, cut: gone, messages }) => ({ id, title, settings, changed, leaf, cut: gone, messages });

// Of two states of one message, whether a is the one to keep: changed more often, then longer; two tabs choose alike.
function later(a, b) {
  if ((a.v ?? 0) !== (b.v ?? 0)) return (a.v ?? 0) > (b.v ?? 0);
  const x = JSON.stringify(a), y = JSON.stringify(b);
  return x.length === y.length ? x > y : x.length > y.length;
}

// Into `chat` what `other`, another tab's state of it, has more. Gives whether `other` lacks something of `chat`.
function merge(chat, other) {
  const mine = index(chat), theirs = index(other);
  for (const [id, v] of Object.entries(other.cut)) chat.cut[id] = Math.max(v, chat.cut[id] ?? 0);
  for (const m of other.messages) {
    const own = mine.get(m.id);
    if (!own) chat.messages.push(m);
    else if (later(m, own)) Object.assign(own, m);
  }
  chat.messages = chat.messages.filter((m) => !(chat.cut[m.id] >= (m.v ?? 0)));
  if (chat.leaf && !index(chat).has(chat.leaf)) show(chat, other.leaf);
  return chat.messages.some((m) => !theirs.has(m.id) || later(m, theirs.get(m.id))) || Object.entries(chat.cut).some(([id, v]) => other.cut[id] !== v);
}

// ---- storage

const PREFIX = "chat.";
const keptIds = () => keptNames(PREFIX).map((name) => name.slice(PREFIX.length));

const withoutTokens = ({ tokens, ...m }) => m;

// Where the storage is full, log-probabilities are left out; nothing else is, and nothing is deleted for it.
function write(chat) {
  let text = JSON.stringify(record(chat)), error = saveText(PREFIX + chat.id, text), trouble = "";
  if (error?.name === "QuotaExceededError") {
    text = JSON.stringify(record({ ...chat, messages: chat.messages.map(withoutTokens) }));
    error = saveText(PREFIX + chat.id, text);
    trouble = "slim";
  }
  if (!error) texts.set(chat.id, text);
  if (error) trouble = error.name === "QuotaExceededError" ? "full" : "refused";
  if (trouble) troubles.set(chat.id, trouble);
  else troubles.delete(chat.id);
}

// Keeps a conversation as it now is, together with what other tabs have added to it.
export function keep(chat) {
  chat.gone = false;
  all.set(chat.id, chat);
  const stored = loadText(PREFIX + chat.id);
  if (stored !== null && stored !== texts.get(chat.id)) merge(chat, read(chat.id, stored));
  chat.title = path(chat).find((m) => m.role === "user")?.content.slice(0, 60) ?? chat.title;
  write(chat);
}

function forget(id) {
  if (all.has(id)) all.get(id).gone = true;
  texts.delete(id);
  troubles.delete(id);
}

// Deletes a conversation; keep() brings it back. There may be room now for others.
export function discard(chat) {
  save(PREFIX + chat.id, undefined);
  forget(chat.id);
  for (const id of [...troubles.keys()]) write(all.get(id));
}

// What is wrong with the storage: "", slim (log-probabilities are not kept), full or refused (conversations are not kept).
export const trouble = () => ["refused", "full", "slim"].find((t) => [...troubles.values()].includes(t)) ?? "";

// A record that another tab has written, or that was there.
function take(id, text) {
  texts.set(id, text);
  const theirs = read(id, text), mine = all.get(id);
  if (!mine) return all.set(id, theirs);
  const follows = !running.has(id) && path(theirs).some((m) => m.id === mine.leaf);
  mine.gone = false;
  const more = merge(mine, theirs);
  Object.assign(mine, { settings: theirs.settings, changed: Math.max(mine.changed, theirs.changed) });
  if (follows) show(mine, theirs.leaf);
  if (more) keep(mine);
  else mine.title = theirs.title;
}

// changed(id): another tab has changed or deleted a conversation. A page that a browser had put aside heard of nothing meanwhile.
export function watch(changed) {
  const look = (ids) => {
    for (const id of new Set(ids)) {
      const text = loadText(PREFIX + id); // as it is now, which may be later than the event
      if (text === null) forget(id);
      else if (text !== texts.get(id)) take(id, text);
      changed(id);
    }
  };
  const lookAtAll = () => look([...texts.keys(), ...keptIds()]);
  addEventListener("storage", (e) => {
    if (e.key === null) lookAtAll();
    else if (e.key.startsWith("quire." + PREFIX)) look([e.key.slice("quire.".length + PREFIX.length)]);
  });
  addEventListener("pageshow", (e) => e.persisted && lookAtAll());
}

for (const id of keptIds()) take(id, loadText(PREFIX + id));

// ---- files

export const exported = () => JSON.stringify({ conversations: list().map(record) }, null, 1);

// Adds the conversations of an exported file. Gives how many; throws where it is none.
export function imported(text) {
  const chats = JSON.parse(text).conversations.filter((c) => isText(c?.id)).map((c) => read(c.id, JSON.stringify(c)));
  for (const c of chats) {
    const mine = all.get(c.id);
    for (const m of c.messages) if (mine?.cut[m.id] >= (m.v ?? 0)) m.v = mine.cut[m.id] + 1; // wanted back
    if (mine) merge(mine, { ...c, cut: {} });
    if (mine && !running.has(c.id)) show(mine, mine.leaf);
    keep(mine ?? c);
  }
  return chats.length;
}

// ---- drafts: what is written and not sent, of this tab, through a reload. The key is what it is written for.

const drafts = new Map(Object.entries(load("drafts", {}, "session")).filter(([, text]) => isText(text)));
export const draft = (key) => drafts.get(key) ?? "";
export function setDraft(key, text) {
  if (text) drafts.set(key, text);
  else drafts.delete(key);
  save("drafts", Object.fromEntries(drafts), "session");
}
