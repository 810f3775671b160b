// A conversation is a tree: a message names the one before it, and the leaf says which branch is shown. So an edit or another
// answer is one more branch, and takes nothing away.

export const newId = () => crypto.getRandomValues(new Uint32Array(2)).join("");
export const index = (chat) => new Map(chat.messages.map((m) => [m.id, m]));
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
