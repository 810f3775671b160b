// Text of a model as elements: a small part of Markdown, or its tokens. Whatever the text is, it becomes text nodes.
import { button, el } from "./api.js";
import { copy } from "./notice.js";

// ---- Markdown: fences, headings, lists, quotes, paragraphs; **bold**, *italic*, `code`. One pass over lines.

function inline(text) {
  const out = [], marks = new Set(["**", "*", "`"]);
  let at = 0, plain = 0;
  while (at < text.length) {
    const mark = [...marks].find((m) => text.startsWith(m, at));
    if (!mark) {
      at++;
      continue;
    }
    const end = text.indexOf(mark, at + mark.length), inner = text.slice(at + mark.length, end);
    if (end < 0) marks.delete(mark); // nor does any later one end
    if (end < 0 || !inner || (mark !== "`" && inner.trim() !== inner)) {
      at += mark.length;
      continue;
    }
    if (at > plain) out.push(text.slice(plain, at));
    out.push(el(mark === "`" ? "code" : mark === "*" ? "em" : "strong", { textContent: inner }));
    at = plain = end + mark.length;
  }
  if (plain < text.length) out.push(text.slice(plain));
  return out;
}

function codeBlock(language, lines) {
  const text = lines.join("\n");
  const take = button("Copy", () => copy(text), { "aria-label": "Copy code" });
  return el("div", {}, el("div", { className: "codebar" }, el("span", { textContent: language }), take),
    el("pre", { tabIndex: 0 }, el("code", { textContent: text })));
}

export function markdown(text) {
  const lines = text.split("\n");
  const out = [];
  let list = null, paragraph = [];
  const flush = () => {
    if (paragraph.length) out.push(el("p", {}, ...inline(paragraph.join("\n"))));
    paragraph = [];
  };
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i], trimmed = line.trimStart();
    const item = /^(?:[-*+]|(\d{1,9})[.)]) +/.exec(trimmed);
    if (!item) list = null;
    if (trimmed.startsWith("```")) {
      flush();
      const body = [];
      while (++i < lines.length && !lines[i].trimStart().startsWith("```")) body.push(lines[i]);
      out.push(codeBlock(trimmed.slice(3).trim().slice(0, 30), body));
    } else if (!trimmed) {
      flush();
    } else if (/^#{1,6} /.test(trimmed)) {
      flush();
      const level = trimmed.indexOf(" ");
      out.push(el(level < 3 ? "h3" : "h4", {}, ...inline(trimmed.slice(level + 1))));
    } else if (item) {
      flush();
      const kind = item[1] === undefined ? "ul" : "ol";
      if (!list || list.localName !== kind) {
        list = el(kind, kind === "ol" ? { start: Number(item[1]) } : {});
        out.push(list);
      }
      list.append(el("li", {}, ...inline(trimmed.slice(item[0].length))));
    } else if (trimmed.startsWith("> ")) {
      flush();
      out.push(el("blockquote", {}, ...inline(trimmed.slice(2))));
    } else {
      paragraph.push(line);
    }
  }
  flush();
  return out;
}

// ---- tokens

const facts = new WeakMap(); // element -> its token

// A token as it is kept: text, log-probability, [text, log-probability] of the others. `decoder` holds half characters.
export function keepToken(decoder, entry) {
  const bytes = entry.bytes ?? [...new TextEncoder().encode(entry.token)];
  return {
    text: decoder.decode(new Uint8Array(bytes), { stream: true }), name: entry.token, logprob: entry.logprob,
    top: (entry.top_logprobs ?? []).map((t) => [t.token, t.logprob]),
  };
}

export function tokenElement(token, first) {
  const p = Math.exp(token.logprob);
  const e = el("span", { className: "tok" + (p > 0.9 ? "" : p > 0.5 ? " p1" : p > 0.1 ? " p2" : " p3"), textContent: token.text });
  e.tabIndex = first ? 0 : -1;
  facts.set(e, token);
  return e;
}

const percent = (logprob) => (100 * Math.exp(logprob)).toPrecision(3) + " %";
const shown = (text) => JSON.stringify(text);

// What is known of the token under the pointer or the focus, as lines; null: it is none.
export function tokenFacts(element) {
  const t = facts.get(element);
  if (!t) return null;
  const lines = [`${shown(t.name)}   ${percent(t.logprob)}   ln p = ${t.logprob.toFixed(3)}`];
  for (const [text, logprob] of t.top) lines.push(`${percent(logprob).padStart(9)}   ${shown(text)}`);
  return lines.join("\n");
}
