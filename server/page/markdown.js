// A model's Markdown as elements. The lexer of marked takes the text apart; here its tokens become nodes. HTML stays the text that it
// is, links lead to the web or to mail, and nothing is loaded.
import { button, el } from "./dom.js";
import { highlight } from "./colours.js";
import { math } from "./math.js";
import { copy } from "./notice.js";
import { Lexer, use } from "./vendor/marked.js";

// ---- formulas: $…$, \(…\), $$…$$, \[…\]. Amounts of money are none: a space inside or a digit behind.

const INLINE = /^(?:\$\$([^$\n]+)\$\$|\$(?![\s$])((?:\\.|[^\\$\n])*?(?:\\.|[^\\\s$]))\$(?![\d$])|\\\((.+?)\\\)|\\\[(.+?)\\\])/;
const BLOCK = /^ {0,3}(?:\$\$((?:[^$]|\$(?!\$))+)\$\$|\\\[([^]+?)\\\]) *(?:\n|$)/;

use({
  extensions: [
    {
      name: "formula", level: "inline", start: (text) => text.search(/\$|\\[([]/),
      tokenizer(text) {
        const found = INLINE.exec(text);
        if (found) return { type: "formula", raw: found[0], tex: found[1] ?? found[2] ?? found[3] ?? found[4], block: !found[2] && !found[3] };
      },
    },
    {
      name: "formulaBlock", level: "block", start: (text) => text.search(/\n *(?:\$\$|\\\[)/) + 1 || undefined,
      tokenizer(text) {
        const found = BLOCK.exec(text);
        if (found) return { type: "formula", raw: found[0], tex: found[1] ?? found[2], block: true };
      },
    },
  ],
});

// ---- pieces of a line

const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0", copy: "©", hellip: "…", mdash: "—", ndash: "–", times: "×", rarr: "→" };
const plain = (text) =>
  text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|(\w{2,8}));/gi, (all, decimal, hex, name) => {
    if (name) return Object.hasOwn(ENTITIES, name) ? ENTITIES[name] : all;
    const code = decimal ? Number(decimal) : parseInt(hex, 16);
    return code && code < 0x110000 ? String.fromCodePoint(code) : all;
  });

function link(t, inner) {
  let url = null;
  try {
    url = new URL(plain(t.href));
  } catch {
    // no address
  }
  if (!["http:", "https:", "mailto:"].includes(url?.protocol)) return [plain(t.raw)];
  return [el("a", { href: url.href, title: url.href, target: "_blank", rel: "noopener noreferrer" }, ...inner)];
}

const wrap = (tag) => (t) => [el(tag, {}, ...inline(t.tokens))];
const PIECES = {
  br: () => [el("br")],
  codespan: (t) => [el("code", { textContent: plain(t.text) })],
  del: wrap("del"),
  em: wrap("em"),
  escape: (t) => [t.raw.slice(1)],
  formula: (t) => [math(t.tex, t.block, t.raw)],
  html: (t) => [/^<br *\/?>$/i.test(t.raw) ? el("br") : t.raw],
  image: (t) => link(t, [t.text || t.href]), // nothing is loaded: a link to it
  link: (t) => link(t, inline(t.tokens)),
  strong: wrap("strong"),
  text: (t) => (t.tokens ? inline(t.tokens) : [plain(t.raw)]),
};

// Lines are taken apart when they are shown. Finding what ends where takes the square of the marks of one: beyond these it stays as it is.
const MAX_MARKS = 400;
let lexer = null, lines = new Map(); // tokens of a block -> its text, which is not taken apart yet
function inline(tokens) {
  const text = lines.get(tokens);
  lines.delete(tokens);
  if (text?.match(/[*_~[!<$`]/g)?.length > MAX_MARKS) return [plain(text)];
  if (text !== undefined) lexer.inlineTokens(text, tokens);
  return tokens.flatMap((t) => PIECES[t.type]?.(t) ?? [t.raw]);
}

// ---- blocks

function code(t) {
  const take = button("Copy", () => copy(t.text), { "aria-label": "Copy code" });
  const language = (t.lang ?? "").trim().split(/\s/)[0].slice(0, 30);
  return el("div", { className: "code", dir: "ltr" }, el("div", { className: "codebar" }, el("span", { textContent: language }), take),
    el("pre", { tabIndex: 0 }, el("code", {}, ...highlight(t.text, language))));
}

function table(t) {
  const cell = (tag, c, i) => el(tag, { dir: "auto", className: t.align[i] ? "at-" + t.align[i] : "" }, ...inline(c.tokens));
  return el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Table" }, el("table", {},
    el("thead", {}, el("tr", {}, ...t.header.map((c, i) => cell("th", c, i)))),
    el("tbody", {}, ...t.rows.map((r) => el("tr", {}, ...r.map((c, i) => cell("td", c, i)))))));
}

function item(t) {
  const box = t.task && el("input", { type: "checkbox", checked: t.checked, disabled: true, "aria-label": t.checked ? "done" : "to do" });
  const parts = t.tokens.flatMap((b) => (b.type === "text" && !t.loose ? PIECES.text(b) : blocks([b])));
  return el("li", { dir: "auto", className: t.task ? "task" : "" }, box, ...parts);
}

const BLOCKS = {
  blockquote: (t) => el("blockquote", { dir: "auto" }, ...blocks(t.tokens)),
  code,
  def: () => null,
  formula: (t) => el("p", { className: "formula" }, math(t.tex, true, t.raw)),
  heading: (t) => el("h" + Math.min(6, t.depth + 2), { dir: "auto" }, ...inline(t.tokens)),
  hr: () => el("hr"),
  list: (t) => el(t.ordered ? "ol" : "ul", t.ordered ? { start: Number(t.start) } : {}, ...t.items.map(item)),
  paragraph: (t) => el("p", { dir: "auto" }, ...inline(t.tokens)),
  space: () => null,
  table,
};
const text = (t) => el("p", { dir: "auto" }, ...(t.tokens ? inline(t.tokens) : [plain(t.raw.trimEnd())])); // HTML, too
const block = (t) => (BLOCKS[t.type] ?? text)(t);
const blocks = (tokens) => tokens.map(block).filter(Boolean);

// Shows `text` in `box`. Blocks that are as they were stay, with what is selected and scrolled in them, while a text grows.
const shown = new WeakMap(); // box -> [[source, node]]
export function showMarkdown(box, text) {
  const before = shown.get(box) ?? [];
  let tokens;
  lexer = new Lexer();
  try {
    tokens = lexer.blockTokens(text.replace(/\r\n?/g, "\n"), []);
  } catch {
    tokens = [{ type: "text", raw: text }]; // nested deeper than anyone writes
  }
  lines = new Map(lexer.inlineQueue.map((line) => [line.tokens, line.src]));
  const defined = JSON.stringify(lexer.tokens.links);
  const now = tokens.filter((t) => t.type !== "space" && t.type !== "def").map((t, i) => {
    const key = t.type + t.raw + defined;
    return before[i]?.[0] === key ? before[i] : [key, block(t)];
  });
  shown.set(box, now);
  now.forEach(([, node], i) => {
    if (box.childNodes[i] === node) return;
    if (box.childNodes[i]) box.childNodes[i].replaceWith(node);
    else box.append(node);
  });
  while (box.childNodes.length > now.length) box.lastChild.remove();
}
