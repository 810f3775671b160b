// The pages of the cache, drawn by number or as the tree of prefixes, and what one of them holds.
import { getJson } from "./api.js";
import { button, byId, el } from "./dom.js";
import { seconds, whole } from "./history.js";
import { channels, colour, surface } from "./plot.js";

const LARGE_POOL = 20000, MAX_ROWS = 2000;
const STATES = ["free", "cached", "active"];

let view = null, pool = null; // the engine's last answer, and the pages of one, as arrays
let poolAt = 0, chosen = -1, layout = null;

const picked = (name) => document.querySelector(`input[name=${name}]:checked`).value;

// ---- asking

function bytesOf(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes.buffer;
}

const ARRAYS = { state: Uint8Array, group: Uint8Array, refs: Uint8Array, owner: Uint16Array, parent: Int32Array, age: Uint32Array };

function readPages(pages) {
  const out = { count: pages.count };
  for (const [name, kind] of Object.entries(ARRAYS)) if (pages[name] !== undefined) out[name] = new kind(bytesOf(pages[name]));
  return out;
}

// What of the pages the next question asks for.
export function wantedPages(now) {
  const large = (view?.limits.pages ?? 0) > LARGE_POOL;
  if (pool && (!byId("watch-pages").checked || (large && now - poolAt < 3000))) return "";
  const tree = picked("draw") === "tree" ? ",parent" : "";
  return "?pages=state,refs," + (picked("colour") === "age" ? "age" : "owner") + tree;
}

// ---- drawing

const ownerHue = (id) => (Number(id) * 137.508) % 360;
export const ownerColour = (id) => `hsl(${ownerHue(id)} 65% 52%)`;

function hslBytes(h) { // hsl(h 65% 52%)
  const f = (n) => {
    const k = (n + h / 30) % 12, a = 0.65 * 0.48;
    return Math.round(255 * (0.52 - a * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [f(0), f(8), f(4)];
}

// page number -> [red, green, blue]
function painter() {
  const fixed = STATES.map((s) => channels(colour(s))), by = picked("colour");
  if (by === "owner" && pool.owner) {
    const owners = pool.requests.map((r) => hslBytes(ownerHue(r.id)));
    return (i) => (pool.state[i] === 2 && pool.owner[i] ? owners[pool.owner[i] - 1] ?? fixed[2] : fixed[pool.state[i]]);
  }
  if (by === "age" && pool.age) {
    const [old, young] = [channels(colour("line")), channels(colour("b"))];
    return (i) => {
      if (pool.state[i] === 0) return fixed[0];
      const part = Math.min(1, Math.log2(1 + pool.age[i] / 10) / 12); // tenths of seconds; an hour is old
      return young.map((v, k) => Math.round(v + (old[k] - v) * part));
    };
  }
  return (i) => fixed[pool.state[i]];
}

function showLegend() {
  const items = [["free", colour("free")], ["cached, of nobody", colour("cached")]];
  const by = picked("colour");
  if (by === "owner") for (const r of view.requests.slice(0, 8)) items.push([(r.request_id || "#" + r.id).slice(0, 12), ownerColour(r.id)]);
  if (by === "state") items.push(["active", colour("active")]);
  if (by === "age") items[1] = ["touched just now", colour("b")], items.push(["an hour ago", colour("line")]);
  const shared = pool.refs.reduce((n, refs) => n + (refs > 1), 0);
  byId("legend").replaceChildren(
    ...items.map(([text, c]) => {
      const swatch = el("span", { className: "swatch" });
      swatch.style.background = c;
      return el("span", {}, swatch, text);
    }),
    el("span", { textContent: `${whole(pool.count)} pages of ${view.limits.page_tokens} tokens; ${whole(shared)} shared (with a dot)` }));
  byId("pool").setAttribute("aria-label",
    `${pool.count} pages of the pool: ` + STATES.map((s, k) => `${pool.state.reduce((n, v) => n + (v === k), 0)} ${s}`).join(", ") + `; ${shared} shared`);
}

export function showPool() {
  if (!pool || byId("engine").hidden) return;
  showLegend();
  if (picked("draw") === "tree" && pool.parent) drawTree();
  else drawGrid();
}

function sized(canvas, width, height) {
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  return surface(canvas, width, height);
}

// All pages by number: one pixel each, drawn larger.
function drawGrid() {
  const canvas = byId("pool"), width = byId("pool-box").clientWidth, n = pool.count, paint = painter();
  let cell = 16;
  while (cell > 2 && Math.ceil(n / Math.floor(width / cell)) * cell > 420) cell--;
  const columns = Math.max(1, Math.floor(width / cell)), rows = Math.ceil(n / columns);
  const c = sized(canvas, columns * cell, rows * cell), small = new OffscreenCanvas(columns, rows), image = new ImageData(columns, rows);
  for (let i = 0; i < n; i++) {
    const [r, g, b] = paint(i);
    image.data.set([r, g, b, 255], 4 * i);
  }
  small.getContext("2d").putImageData(image, 0, 0);
  c.imageSmoothingEnabled = false;
  c.drawImage(small, 0, 0, columns * cell, rows * cell);
  c.fillStyle = colour("back");
  if (cell >= 5) {
    for (let x = 1; x <= columns; x++) c.fillRect(x * cell - 1, 0, 1, rows * cell);
    for (let y = 1; y <= rows; y++) c.fillRect(0, y * cell - 1, columns * cell, 1);
  }
  for (let i = 0; i < n && cell >= 4; i++)
    if (pool.refs[i] > 1) c.fillRect((i % columns) * cell + cell * 0.35, Math.floor(i / columns) * cell + cell * 0.35, cell * 0.3, cell * 0.3);
  const box = (i) => [(i % columns) * cell, Math.floor(i / columns) * cell, cell, cell];
  frame(c, box);
  layout = (x, y) => {
    const i = Math.floor(y / cell) * columns + Math.floor(x / cell);
    return x < columns * cell && i < n ? i : -1;
  };
}

function frame(c, box) {
  const at = chosen >= 0 && chosen < pool.count ? box(chosen) : null;
  if (!at) return;
  c.strokeStyle = colour("ink");
  c.lineWidth = 2;
  c.strokeRect(at[0] + 0.5, at[1] + 0.5, Math.max(at[2] - 2, 2), Math.max(at[3] - 2, 2));
}

// Prefixes from left to right: a page that several continue is as high as they are together.
function drawTree() {
  const n = pool.count, { parent, state, refs } = pool, children = new Map(), roots = [];
  for (let i = 0; i < n; i++)
    if (parent[i] >= 0) children.has(parent[i]) ? children.get(parent[i]).push(i) : children.set(parent[i], [i]);
  // A page that is being filled has no place in the tree yet.
  for (let i = 0; i < n; i++)
    if (parent[i] < 0 && state[i] !== 0 && (children.has(i) || state[i] === 1 || refs[i] > 1)) roots.push(i);
  const depth = new Map(), first = new Map(), rows = [], order = []; // rows: the leaf of each
  let deepest = 0, hidden = 0;
  const todo = roots.map((i) => [i, 0]).reverse();
  while (todo.length) {
    const [i, d] = todo.pop();
    if (rows.length >= MAX_ROWS) {
      hidden++;
      continue;
    }
    depth.set(i, d);
    first.set(i, rows.length);
    order.push(i);
    deepest = Math.max(deepest, d);
    const below = children.get(i);
    if (below) for (const k of below.toReversed()) todo.push([k, d + 1]);
    else rows.push(i);
  }
  const high = new Map();
  for (const i of order.toReversed()) {
    const own = high.get(i) ?? (high.set(i, 1), 1);
    if (depth.get(i) > 0) high.set(parent[i], (high.get(parent[i]) ?? 0) + own);
  }
  const width = byId("pool-box").clientWidth, w = Math.max(3, Math.min(18, Math.floor(width / (deepest + 1)))), h = rows.length > 60 ? 6 : 12;
  const c = sized(byId("pool"), Math.max(width, w * (deepest + 1)), Math.max(rows.length * h + (hidden ? 18 : 0), 30)), paint = painter();
  const box = (i) => [depth.get(i) * w, first.get(i) * h, w, high.get(i) * h];
  for (const i of order) {
    const [x, y, bw, bh] = box(i);
    c.fillStyle = `rgb(${paint(i).join()})`;
    c.fillRect(x, y, bw - 1, bh - 1);
    if (refs[i] > 1 && w >= 5) {
      c.fillStyle = colour("back");
      c.fillRect(x + bw / 2 - 2, y + bh / 2 - 2, 3, 3);
    }
  }
  c.fillStyle = colour("soft");
  if (!order.length) c.fillText("No prefix is cached.", 4, 16);
  if (hidden) c.fillText(`${whole(hidden)} more pages are not drawn.`, 4, rows.length * h + 14);
  frame(c, (i) => (depth.has(i) ? box(i) : null));
  layout = (x, y) => {
    let i = rows[Math.floor(y / h)] ?? -1;
    const column = Math.floor(x / w);
    while (i >= 0 && depth.get(i) > column) i = parent[i];
    return i >= 0 && depth.get(i) === column ? i : -1;
  };
}

// ---- one page

export async function choose(number) {
  if (!(number >= 0)) return;
  chosen = number;
  byId("page-number").value = number;
  showPool();
  const detail = byId("page-detail");
  try {
    const p = await getJson("v1/engine/pages/" + number, { admin: true });
    if (number !== chosen) return;
    const link = (i) => button(String(i), () => choose(i));
    const owners = p.owners.map((id) => view.requests.find((r) => r.id === id)?.request_id || "#" + id);
    const facts = {
      Page: p.page, State: p.state, References: p.refs, Owners: owners.join(", ") || "nobody", "Last touched": seconds(p.age_s) + " ago",
      Group: `${p.group} (${p.kind})`, Hash: p.hash ?? "not full yet", Depth: p.depth,
    };
    detail.replaceChildren(
      el("dl", { className: "legend" }, ...Object.entries(facts).map(([k, v]) => el("div", {}, el("dt", { textContent: k }), el("dd", { textContent: v })))),
      el("div", { className: "row" }, "Before it: ", p.parent === null ? "nothing" : link(p.parent), " After it: ", ...(p.children.length ? p.children.slice(0, 16).map(link) : ["nothing"])),
      p.text === null ? el("p", { className: "hint", textContent: p.tokens ? "Its text is shown with the server's admin key only." : "Its text is not known until it is full." })
        : el("pre", { tabIndex: 0, textContent: p.text }));
  } catch (e) {
    detail.replaceChildren(el("p", { className: "problem", textContent: e.message }));
  }
}

// An answer of the engine, with pages or without.
export function takePages(answer, now) {
  view = answer;
  if (!view.pages) return;
  pool = { ...readPages(view.pages), requests: view.requests };
  poolAt = now;
}

// poll(): asks the engine at once, for other pages than before.
export function openPool(poll) {
  byId("pool").onclick = (e) => layout && choose(layout(e.offsetX, e.offsetY));
  byId("page-number").onchange = (e) => e.target.value && choose(Number(e.target.value));
  for (const e of document.querySelectorAll("input[name=colour], input[name=draw]"))
    e.onchange = () => {
      poolAt = -1e9;
      pool = null;
      poll();
    };
  addEventListener("keys", () => byId("engine").hidden || choose(chosen));
}
