// One message on the screen: its text, files, reasoning, calls of tools, and what can be done with it.
import { draft, setDraft } from "./chats.js";
import { button, el, icon, iconButton } from "./dom.js";
import { chip } from "./files.js";
import { showMarkdown } from "./markdown.js";
import { copy } from "./notice.js";
import { tokenElement } from "./tokens.js";
import { path, versions } from "./tree.js";

const NAMES = { user: "You", assistant: "Answer", tool: "Tool result", system: "System", unreadable: "In the browser's storage" };
const FINISHED = { length: "cut at the limit of tokens", tool_calls: "calls a tool", stopped: "stopped" };

export const editKey = (chat, m) => chat.id + " " + m.id;

const time = (ms) => (ms < 1000 ? ms.toFixed(0) + " ms" : (ms / 1000).toFixed(1) + " s");

function facts(m) {
  const parts = [];
  if (m.finish && m.finish !== "stop") parts.push(FINISHED[m.finish] ?? m.finish);
  if (m.speed) parts.push(`${m.speed.toFixed(1)} tokens/s`);
  if (m.first !== undefined) parts.push(`first token ${time(m.first)}`);
  if (m.usage) {
    const cached = m.usage.prompt_tokens_details?.cached_tokens;
    parts.push(`${m.usage.completion_tokens} tokens for ${m.usage.prompt_tokens}${cached ? `, ${cached} of them cached` : ""}`);
  }
  return parts.join(" · ");
}

// A field whose text stays, when the messages are drawn anew or the page is loaded again.
export function draftArea(key, set) {
  const area = el("textarea", { dir: "auto", ...set });
  area.value = draft(key) || area.value;
  area.oninput = () => setDraft(key, area.value);
  return area;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export const resultOf = (chat, call) => path(chat).find((o) => o.role === "tool" && o.tool_call_id === call.id);

// The calls of a message. Those that have no result yet are open, with a field for each and one button for all.
function callElements(chat, m, running, giveResults) {
  const asked = running ? [] : m.tool_calls.filter((c) => !resultOf(chat, c)), areas = new Map();
  const boxes = m.tool_calls.map((call) => {
    const name = call.function.name || "…";
    const box = el("details", { className: "fold", open: asked.includes(call) }, el("summary", { textContent: "Calls " + name }),
      el("pre", { tabIndex: 0, textContent: pretty(call.function.arguments) }));
    if (!asked.includes(call)) return box;
    const key = editKey(chat, m) + call.id;
    areas.set(call, draftArea(key, { rows: 2, "aria-label": "Result of " + name, placeholder: `What ${name} gives` }));
    box.append(areas.get(call));
    return box;
  });
  const give = () => giveResults(m, asked.map((c) => [c, areas.get(c).value]));
  if (asked.length) boxes.push(button(asked.length > 1 ? "Send results" : "Send result", give, { className: "main" }));
  return boxes;
}

// Its element, and update(running) after more text has come. `todo`: what the chat does with a message.
export function messageView(chat, m, running, todo) {
  const label = NAMES[m.role] ?? m.role;
  const text = el("div", { className: "text" }), tokens = el("div", { className: "tokens", dir: "auto" }), calls = el("div", { className: "calls" });
  const thought = el("div", { className: "plain", dir: "auto" });
  const reasoning = el("details", { className: "fold", hidden: true }, el("summary", { textContent: "Reasoning" }), thought);
  const cutOff = el("div", { className: "cut", hidden: true }, "The answer was cut off.", button("Retry", () => todo.regenerate(m)));
  const files = el("div", { className: "files" }, ...(m.files ?? []).map((f) => chip(f)));
  const acts = el("div", { className: "acts" });
  const heading = el("h2", { className: ["tool", "unreadable"].includes(m.role) ? "who" : "hidden-text", textContent: label });
  const element = el("article", { className: "message " + m.role, "aria-label": label }, heading, files, reasoning, tokens, text, calls, cutOff, acts);
  let numTokens = 0;

  function update(running) {
    const byToken = m.role === "assistant" && m.tokens?.length > 0 && m.byToken !== false;
    for (const t of (m.tokens ?? []).slice(numTokens)) tokens.append(tokenElement(t, numTokens++ === 0));
    tokens.hidden = !byToken;
    text.hidden = byToken || !m.content;
    if (!byToken && m.role === "assistant") showMarkdown(text, m.content ?? "");
    else if (!byToken) text.replaceChildren(el("p", { dir: "auto", textContent: m.content }));
    reasoning.hidden = !m.reasoning;
    thought.textContent = m.reasoning ?? "";
    reasoning.firstChild.textContent = running && !m.content ? "Reasoning …" : "Reasoning";
    if (m.tool_calls) calls.replaceChildren(...callElements(chat, m, running, todo.giveResults));
    element.classList.toggle("running", !!running);
    element.ariaBusy = running ? "true" : "false";
    cutOff.hidden = running || m.role !== "assistant" || !!m.finish;
    if (running) acts.replaceChildren();
    else showActs();
  }

  function showActs() {
    const all = versions(chat, m), at = all.indexOf(m), told = facts(m);
    const turn = (by, name, label) => iconButton(name, label, () => todo.showVersion(all[at + by]), { disabled: !all[at + by] });
    const turns = [turn(-1, "previous", "Previous version"), `${at + 1} of ${all.length}`, turn(1, "next", "Next version")];
    acts.replaceChildren(...[
      ...(all.length > 1 ? turns : []),
      iconButton("copy", "Copy", () => copy(m.content)),
      iconButton("edit", "Edit", () => edit().focus()),
      m.role === "assistant" && iconButton("retry", "Regenerate", () => todo.regenerate(m)),
      m.tokens?.length && iconButton("tokens", m.byToken === false ? "Tokens" : "Text", () => ((m.byToken = m.byToken === false), update())),
      iconButton("trash", "Delete from here", () => todo.cut(m)),
      told && el("span", { className: "told", textContent: told })].filter(Boolean));
  }

  function edit() {
    const area = draftArea(editKey(chat, m), { value: m.content, rows: Math.min(14, 1 + m.content.split("\n").length), "aria-label": "Message, edited" });
    text.hidden = false;
    tokens.hidden = true;
    element.classList.add("edited");
    const cancel = () => (setDraft(editKey(chat, m), ""), element.classList.remove("edited"), todo.redraw());
    text.replaceChildren(area);
    area.onkeydown = (e) => e.key === "Escape" && (e.stopPropagation(), cancel());
    acts.replaceChildren(
      ...(m.role === "assistant" ? [] : [button("Send", () => todo.sendVersion(m, area.value), { className: "main" })]),
      button("Save", () => todo.saveVersion(m, area.value)), button("Cancel", cancel));
    return area;
  }

  update(running);
  if (draft(editKey(chat, m))) edit();
  return { element, update };
}

// What stands where there is no message yet: what answers, and prompts to begin with.
const BEGINNINGS = [
  ["Explain", "how a web page finds its way to my screen"], ["Compare", "tea and coffee in a small table"],
  ["Write", "a Python function that finds duplicate lines"], ["Tell", "me a short story about a lighthouse"],
];

export function emptyView(name, facts, begin) {
  const cards = BEGINNINGS.map(([first, rest]) =>
    el("button", { type: "button", onclick: () => begin(`${first} ${rest}.`) }, el("b", { textContent: first }), " " + rest));
  return el("div", { className: "empty" }, el("p", { className: "name", textContent: name }), el("p", { className: "facts", textContent: facts }),
    el("div", { className: "beginnings" }, ...cards),
    el("p", { className: "hint", textContent: "Conversations stay in this browser. Messages go to this server, and nowhere else." }));
}

export const systemLine = (text, open) =>
  el("button", { type: "button", className: "system-line", title: "Change the system prompt", onclick: open }, icon("settings"),
    el("span", { dir: "auto", textContent: "System prompt: " + text }));
