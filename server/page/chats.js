// The conversations, all in memory and each a record in store.js, so that tabs write side by side: what two tabs wrote of one is
// merged. Those of an older page, and what a page that is left has no time to write, are texts in localStorage until the next start.
import { keptNames, load, loadText, save, saveText } from "./api.js";
import { change, get, getAll, openStore, watchStore } from "./store.js";
import { index, newId, path, show } from "./tree.js";

const all = new Map(); // id -> {id, name, title, settings, changed, leaf, cut, messages}, and gone: it is deleted
const seen = new Map(); // id -> which state of its record this tab has seen
const troubles = new Map(); // id -> why its record is not in the storage as it should be
export const running = new Map(); // id -> the answer that comes to it in this tab

export const find = (id) => all.get(id);
export const list = () => [...all.values()].filter((c) => !c.gone).sort((a, b) => b.changed - a.changed); // newest first
export const create = (settings) => ({ id: newId(), name: "", title: "", settings: { ...settings }, changed: 0, leaf: "", cut: {}, messages: [] });
export const titleOf = (chat) => chat.name || chat.title || "New conversation";

// ---- records

const isText = (v) => typeof v === "string";
const isList = (v, ok) => v === undefined || v === null || (Array.isArray(v) && v.every(ok));
const isCall = (c) => isText(c?.function?.name) && isText(c.function.arguments);
const isToken = (t) => isText(t?.text) && Number.isFinite(t.logprob) && Array.isArray(t.top);
const isFile = (f) => isText(f?.name) && isText(f.text);
const isNumber = (v) => v === undefined || Number.isFinite(v);
const isMessage = (m) => isText(m?.role) && isText(m.content ?? "") && isText(m.reasoning ?? "") && isNumber(m.first) && isNumber(m.speed) &&
  isList(m.tool_calls, isCall) && isList(m.tokens, isToken) && isList(m.files, isFile);

const order = load("chats", []); // of records without `changed`: newest first
const ageOf = (id) => (Array.isArray(order) && order.includes(id) ? -order.indexOf(id) : -1e6);

// A conversation from its record. Messages without ids, of records of old, follow each other. What is no record is still a text.
function read(id, record) {
  try {
    const c = isText(record) ? JSON.parse(record) : record;
    if (!c.messages.every(isMessage)) throw new TypeError();
    const settings = Object.fromEntries(Object.entries(c.settings ?? {}).filter(([, v]) => isText(v) || typeof v === "boolean"));
    let before = "";
    const messages = c.messages.map((m, i) => {
      const one = { ...m, content: m.content ?? "", id: String(m.id ?? "m" + i), parent: String(m.parent ?? before) };
      before = one.id;
      return one;
    });
    const chat = { id, name: String(c.name ?? ""), title: String(c.title ?? ""), settings, changed: Number(c.changed ?? ageOf(id)) || 0, leaf: "",
      cut: { ...c.cut }, messages };
    show(chat, c.leaf);
    return chat;
  } catch {
    const raw = { id: "raw", parent: "", role: "unreadable", content: isText(record) ? record : JSON.stringify(record) };
    return { ...create({}), id, title: "Could not be read", changed: ageOf(id), leaf: "raw", messages: [raw] };
  }
}

const record = ({ id, name, title, settings, changed, leaf, cut, messages }) => ({ id, name, title, settings, changed, leaf, cut, messages });
const withoutTokens = ({ tokens, ...m }) => m;

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

// ---- writing: one write at a time of each conversation; what changes meanwhile is written after it

const wanted = new Set(), writing = new Set(); // ids
let tellTrouble = () => {};

async function write(chat) {
  wanted.add(chat.id);
  if (writing.has(chat.id)) return;
  writing.add(chat.id);
  while (wanted.delete(chat.id)) {
    const before = trouble();
    await put(chat, false);
    if (trouble() !== before) tellTrouble();
  }
  writing.delete(chat.id);
}

// Where the storage is full, log-probabilities are left out; nothing else is, and nothing is deleted for it.
async function put(chat, slim) {
  try {
    await change(chat.id, (stored) => {
      if (chat.gone) return undefined;
      if (stored && stored.rev !== seen.get(chat.id)) merge(chat, read(chat.id, stored));
      seen.set(chat.id, newId());
      return { ...record(chat), messages: slim ? chat.messages.map(withoutTokens) : chat.messages, rev: seen.get(chat.id) };
    });
    if (slim && !chat.gone) troubles.set(chat.id, "slim");
    else troubles.delete(chat.id);
  } catch (e) {
    if (e.name === "QuotaExceededError" && !slim) return put(chat, true);
    if (chat.gone) return troubles.delete(chat.id);
    troubles.set(chat.id, e.name === "QuotaExceededError" ? "full" : "refused");
  }
}

// Keeps a conversation as it now is, together with what other tabs have added to it.
export function keep(chat) {
  chat.gone = false;
  all.set(chat.id, chat);
  chat.title = path(chat).find((m) => m.role === "user")?.content.slice(0, 60) ?? chat.title;
  return write(chat);
}

// The person's own name of a conversation; without one it has that of its first message.
export function rename(chat, name) {
  chat.name = name.trim() === chat.title ? "" : name.trim();
  return keep(chat);
}

function forget(id) {
  if (all.has(id)) all.get(id).gone = true;
  seen.delete(id);
  troubles.delete(id);
}

// Deletes a conversation; keep() brings it back. There may be room now for others.
export async function discard(chat) {
  forget(chat.id);
  chat.gone = true;
  await write(chat);
  for (const id of [...troubles.keys()]) if (all.has(id)) write(all.get(id));
}

// What is wrong with the storage: "", slim (log-probabilities are not kept), full or refused (conversations are not kept).
export const trouble = () => ["refused", "full", "slim"].find((t) => [...troubles.values()].includes(t)) ?? "";

// A page that is left has no time for a transaction, but for a text.
export function keepNow() {
  for (const id of new Set([...wanted, ...writing, ...running.keys()])) {
    const chat = all.get(id);
    if (chat && !chat.gone) saveText(PREFIX + id, JSON.stringify(record(chat)));
  }
}

// ---- reading

// What was written elsewhere joins what this tab has, whose branch goes on with it. Gives whether this tab has more.
function join(theirs) {
  const mine = all.get(theirs.id);
  if (!mine) return all.set(theirs.id, theirs), false;
  const follows = !running.has(mine.id) && path(theirs).some((m) => m.id === mine.leaf);
  const more = merge(mine, theirs);
  if (follows) show(mine, theirs.leaf);
  return more;
}

// A record that another tab has written, or that was there.
function take(id, stored) {
  const theirs = read(id, stored), more = join(theirs), mine = all.get(id);
  seen.set(id, stored.rev);
  mine.gone = false;
  Object.assign(mine, { name: theirs.name, settings: theirs.settings, changed: Math.max(mine.changed, theirs.changed) });
  if (more) keep(mine);
  else mine.title = theirs.title;
}

const PREFIX = "chat.";

// Texts of localStorage become records, and leave it when those are written.
async function takeTexts() {
  for (const name of keptNames(PREFIX)) {
    const id = name.slice(PREFIX.length), text = loadText(name);
    if (text === null) continue;
    join(read(id, text));
    await write(all.get(id));
    if (!troubles.has(id) && loadText(name) === text) save(name, undefined);
  }
}

// Reads what there is. changed(id): another tab has changed or deleted a conversation; troubled(): trouble() gives something else.
export async function open(changed, troubled) {
  const look = async (id) => {
    const stored = await get(id); // as it is now, which may be later than the news
    if (!stored) forget(id);
    else if (!all.has(id) || stored.rev !== seen.get(id)) take(id, stored);
    changed(id);
  };
  const lookAtAll = async () => {
    const ids = (await getAll()).map((r) => r.id);
    for (const id of new Set([...seen.keys(), ...ids])) await look(id);
    await takeTexts();
  };
  tellTrouble = troubled;
  try {
    await openStore();
    for (const stored of await getAll()) take(stored.id, stored);
  } catch {
    troubles.set("", "refused");
  }
  await takeTexts();
  watchStore(look);
  addEventListener("storage", (e) => e.newValue !== null && e.key?.startsWith("quire." + PREFIX) &&
    takeTexts().then(() => changed(e.key.slice("quire.".length + PREFIX.length)))); // of a tab that was left
  addEventListener("pageshow", (e) => e.persisted && lookAtAll()); // one that a browser had put aside has heard of nothing meanwhile
  addEventListener("pagehide", keepNow);
}

// ---- files

export const exported = (chats = list()) => JSON.stringify({ conversations: chats.map(record) }, null, 1);

// Adds the conversations of an exported file. Gives how many; throws where it is none.
export function imported(text) {
  const chats = JSON.parse(text).conversations.filter((c) => isText(c?.id)).map((c) => read(c.id, c));
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
