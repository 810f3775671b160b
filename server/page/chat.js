// The chat: conversations in the browser's storage, one answer at a time from /v1/chat/completions.
import { button, byId, el, events, getJson, load, save, send } from "./api.js";
import { keepToken, markdown, tokenElement, tokenFacts } from "./message.js";

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "repetition_penalty", "presence_penalty", "frequency_penalty"];
const list = byId("messages"), form = byId("parameters"), prompt = byId("prompt");
const names = { user: "You", assistant: "Answer", tool: "Tool result", system: "System" };

let chats = load("chats", []); // ids, newest first
let chat = null; // {id, title, settings, messages}
let answering = null; // AbortController

// ---- conversations

const titleOf = (id) => load("chat." + id, null)?.title || "New conversation";

// Where the storage is full, tokens go first, then the oldest conversations.
function keep() {
  const first = chat.messages.find((m) => m.role === "user");
  chat.title = first ? first.content.slice(0, 60) : "";
  chats = [chat.id, ...chats.filter((id) => id !== chat.id)];
  let slim = chat;
  while (!save("chat." + chat.id, slim) || !save("chats", chats)) {
    if (slim === chat) {
      slim = { ...chat, messages: chat.messages.map(({ tokens, ...m }) => m) };
    } else if (chats.length > 1) {
      save("chat." + chats.pop(), undefined);
    } else {
      showProblem("The browser keeps no more: this conversation is lost when the page is closed.");
      break;
    }
  }
  showList();
}

function open(id) {
  stop();
  chat = load("chat." + id, null) ?? { id, title: "", settings: {}, messages: [] };
  fillSettings();
  showProblem("");
  showMessages();
  showList();
}

function begin() {
  stop();
  const settings = chat?.settings ?? load("settings", {});
  chat = { id: crypto.randomUUID?.() ?? String(Math.random()).slice(2), title: "", settings: { ...settings }, messages: [] };
  fillSettings();
  showProblem("");
  showMessages();
  showList();
  prompt.focus();
}

function remove(id) {
  chats = chats.filter((c) => c !== id);
  save("chat." + id, undefined);
  save("chats", chats);
  if (chat.id === id) chats.length ? open(chats[0]) : begin();
  else showList();
}

function showList() {
  byId("chat-list").replaceChildren(...chats.map((id) => {
    const title = id === chat.id ? chat.title || "New conversation" : titleOf(id);
    const choose = button(title, () => open(id));
    if (id === chat.id) choose.setAttribute("aria-current", "true");
    return el("li", {}, choose, button("✕", () => remove(id), { "aria-label": "Delete " + title }));
  }));
}

// ---- settings

function fillSettings() {
  for (const e of form.elements)
    if (e.name && e.type === "checkbox") e.checked = !!chat.settings[e.name];
    else if (e.name) e.value = chat.settings[e.name] ?? "";
  if (form.elements.model.selectedIndex < 0) form.elements.model.selectedIndex = 0;
}

function readSettings() {
  for (const e of form.elements)
    if (e.name) chat.settings[e.name] = e.type === "checkbox" ? e.checked : e.value;
  save("settings", chat.settings);
  if (chat.messages.length) keep();
  byId("settings-problem").textContent = "";
  try {
    requestBody();
  } catch (e) {
    byId("settings-problem").textContent = e.message;
  }
}

function parsed(name, what, ok) {
  const text = (chat.settings[name] ?? "").trim();
  if (!text) return undefined;
  let value;
  try {
    value = JSON.parse(text);
  } catch (e) {
    throw new Error(`${what}: ${e.message}`);
  }
  if (!ok(value)) throw new Error(`${what}: this is no ${what.split(", a ")[1]}`);
  return value;
}

// What the server is sent: a setting that is empty is not there, so that the server's own default holds.
function requestBody() {
  const s = chat.settings;
  const body = { messages: [], stream: true, stream_options: { include_usage: true } };
  if (s.model) body.model = s.model;
  for (const name of NUMBERS) if (s[name]) body[name] = Number(s[name]);
  if (s.stop) body.stop = [s.stop];
  if (s.logprobs) Object.assign(body, { logprobs: true, top_logprobs: 5 });
  body.tools = parsed("tools", "Tools, a JSON list", Array.isArray);
  if (s.system) body.messages.push({ role: "system", content: s.system });
  for (const m of chat.messages) {
    const one = { role: m.role, content: m.content };
    if (m.tool_calls?.length) {
      one.tool_calls = m.tool_calls;
      one.content ||= null;
      if (m.reasoning) one.reasoning_content = m.reasoning;
    }
    if (m.role === "tool") one.tool_call_id = m.tool_call_id;
    if (m.role !== "assistant" || m.content || m.tool_calls?.length) body.messages.push(one);
  }
  return Object.assign(body, parsed("more", "More fields, a JSON object", (v) => v && typeof v === "object" && !Array.isArray(v)));
}

// ---- messages

export function showProblem(text) {
  byId("problem").textContent = text;
}

const atEnd = () => list.scrollHeight - list.scrollTop - list.clientHeight < 60;

function facts(m) {
  const parts = [];
  if (m.first !== undefined) parts.push(`first token ${m.first < 1000 ? m.first.toFixed(0) + " ms" : (m.first / 1000).toFixed(1) + " s"}`);
  if (m.speed) parts.push(`${m.speed.toFixed(1)} tokens/s`);
  if (m.usage) {
    const cached = m.usage.prompt_tokens_details?.cached_tokens;
    parts.push(`${m.usage.prompt_tokens} prompt tokens${cached ? ` (${cached} cached)` : ""}, ${m.usage.completion_tokens} answered`);
  }
  if (m.finish && m.finish !== "stop") parts.push({ length: "cut at the limit of tokens", tool_calls: "calls a tool", stopped: "stopped" }[m.finish] ?? m.finish);
  return parts.join(" · ");
}

// A message on the screen: its element, and update() after more text has come.
function view(m) {
  const text = el("div", { className: "text" }), tokens = el("div", { className: "tokens" }), calls = el("div");
  const thought = el("div", { className: "plain" });
  const reasoning = el("details", { className: "fold", hidden: true }, el("summary", { textContent: "Reasoning" }), thought);
  const note = el("span"), acts = el("div", { className: "acts" });
  const who = el("div", { className: "who", textContent: names[m.role] ?? m.role });
  const element = el("article", { className: "message " + m.role, "aria-label": names[m.role] ?? m.role }, who, reasoning, tokens, text, calls, acts);
  let numTokens = 0;

  function update(running) {
    const byToken = m.role === "assistant" && m.tokens?.length > 0 && m.byToken !== false;
    for (const t of (m.tokens ?? []).slice(numTokens)) tokens.append(tokenElement(t, numTokens++ === 0));
    tokens.hidden = !byToken;
    text.hidden = byToken;
    if (!byToken) text.replaceChildren(...(m.role === "assistant" ? markdown(m.content ?? "") : [el("p", { textContent: m.content })]));
    reasoning.hidden = !m.reasoning;
    thought.textContent = m.reasoning ?? "";
    reasoning.firstChild.textContent = running && !m.content ? "Reasoning …" : "Reasoning";
    calls.replaceChildren(...(m.tool_calls ?? []).map((c) => callElement(m, c, running)));
    element.classList.toggle("cursor", !!running);
    element.ariaBusy = running ? "true" : "false";
    note.textContent = facts(m);
    if (!running) showActs();
  }

  function showActs() {
    const at = chat.messages.indexOf(m);
    acts.replaceChildren(...[
      button("Copy", () => navigator.clipboard?.writeText(m.content ?? "")),
      button("Edit", edit),
      m.role === "assistant" && button("Regenerate", () => regenerate(at)),
      m.tokens?.length && button(m.byToken === false ? "Tokens" : "Text", () => ((m.byToken = m.byToken === false), update())),
      button("Delete from here", () => (cut(at), keep())),
      note].filter(Boolean));
  }

  function edit() {
    stop();
    const area = el("textarea", { value: m.content ?? "", rows: 4, "aria-label": "Message, edited" });
    const done = (go) => {
      const at = chat.messages.indexOf(m);
      m.content = area.value;
      delete m.tokens;
      if (go) cut(at + 1);
      keep();
      showMessages();
      if (go) answer();
    };
    text.hidden = false;
    tokens.hidden = true;
    text.replaceChildren(area);
    acts.replaceChildren(
      ...(m.role === "assistant" ? [] : [button("Send", () => done(true))]), button("Save", () => done(false)), button("Cancel", () => update()));
    area.focus();
  }

  update();
  return { element, update };
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// A call, folded; where it has no result yet, a field for it.
function callElement(m, call, running) {
  const box = el("details", { className: "fold" }, el("summary", { textContent: "Calls " + (call.function.name || "…") }),
    el("pre", { tabIndex: 0, textContent: pretty(call.function.arguments) }));
  const answered = chat.messages.some((o) => o.role === "tool" && o.tool_call_id === call.id);
  if (running || answered) return box;
  const area = el("textarea", { rows: 2, "aria-label": "Result of " + call.function.name, placeholder: "the result" });
  const give = button("Send result", () => {
    const at = chat.messages.indexOf(m) + 1 + chat.messages.slice(chat.messages.indexOf(m) + 1).filter((o) => o.role === "tool").length;
    chat.messages.splice(at, 0, { role: "tool", content: area.value, tool_call_id: call.id });
    keep();
    showMessages();
    const open = m.tool_calls.some((c) => !chat.messages.some((o) => o.role === "tool" && o.tool_call_id === c.id));
    if (!open) answer();
  });
  return el("div", {}, box, area, give);
}

function cut(at) {
  stop();
  chat.messages.length = Math.max(at, 0);
  showMessages();
}

function showMessages() {
  const empty = el("p", { className: "empty", textContent: "Ask something. Nothing leaves this browser but to this server." });
  list.replaceChildren(...(chat.messages.length ? chat.messages.map((m) => view(m).element) : [empty]));
  list.scrollTop = list.scrollHeight;
}

// ---- answers

function addCall(m, delta) {
  m.tool_calls ??= [];
  const call = (m.tool_calls[delta.index ?? m.tool_calls.length] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
  call.id ||= delta.id ?? "";
  call.function.name ||= delta.function?.name ?? "";
  call.function.arguments += delta.function?.arguments ?? "";
}

function busy(controller) {
  answering = controller;
  byId("send").hidden = !!controller;
  byId("stop").hidden = !controller;
  byId("status").textContent = controller ? "The server answers." : "The answer is complete.";
}

function stop() {
  answering?.abort();
}

function regenerate(at) {
  cut(at);
  answer();
}

async function answer() {
  stop();
  showProblem("");
  const controller = new AbortController(), where = chat;
  const m = { role: "assistant", content: "", model: chat.settings.model };
  let shownView = null, frame = 0, firstAt = 0, lastAt = 0, count = 0, drawn = 0;
  const decoder = new TextDecoder();
  const draw = () => {
    frame = 0;
    if (chat !== where || !answering) return;
    if (m.content.length > 20000 && performance.now() - drawn < 250) return schedule(); // drawing a long text anew takes time
    drawn = performance.now();
    const end = atEnd();
    if (!shownView) {
      shownView = view(m);
      list.append(shownView.element);
    }
    shownView.update(true);
    if (end) list.scrollTop = list.scrollHeight;
  };
  const schedule = () => (frame ||= requestAnimationFrame(draw));
  busy(controller);
  try {
    const body = requestBody(), began = performance.now();
    chat.messages.push(m);
    schedule();
    const response = await send("v1/chat/completions", { body, signal: controller.signal });
    for await (const event of events(response)) {
      if (event.usage) m.usage = event.usage;
      const choice = event.choices?.[0];
      if (!choice) continue;
      const d = choice.delta ?? {}, thought = d.reasoning_content ?? d.reasoning;
      if (d.content || thought || d.tool_calls) {
        lastAt = performance.now();
        firstAt ||= lastAt;
        m.first ??= firstAt - began;
        count++;
      }
      if (d.content) m.content += d.content;
      if (thought) m.reasoning = (m.reasoning ?? "") + thought;
      for (const delta of d.tool_calls ?? []) addCall(m, delta);
      for (const entry of choice.logprobs?.content ?? []) (m.tokens ??= []).push(keepToken(decoder, entry));
      if (choice.finish_reason) m.finish = choice.finish_reason;
      schedule();
    }
    const tokens = m.usage?.completion_tokens ?? count;
    if (lastAt - firstAt > 100 && tokens > 1) m.speed = ((tokens - 1) * 1000) / (lastAt - firstAt);
  } catch (e) {
    if (e.name === "AbortError") m.finish = "stopped";
    else if (chat === where) showProblem(e.code ? `${e.message} (${e.code})` : e.message);
  }
  if (answering !== controller) return; // another answer has begun
  cancelAnimationFrame(frame);
  busy(null);
  const some = m.content || m.reasoning || m.tool_calls?.length;
  if (!some) where.messages = where.messages.filter((o) => o !== m);
  if (chat !== where) return;
  keep();
  const end = atEnd();
  if (shownView && some) {
    shownView.update(false);
    if (end) list.scrollTop = list.scrollHeight;
  } else {
    showMessages();
  }
}

function submit() {
  const content = prompt.value;
  if (!content.trim()) return;
  prompt.value = "";
  stop();
  chat.messages.push({ role: "user", content });
  keep();
  showMessages();
  answer();
}

// ---- the token under the pointer or the focus

function setUpTip() {
  const tip = byId("tip");
  const show = (target) => {
    const text = target instanceof Element ? tokenFacts(target) : null;
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    target.setAttribute("aria-describedby", "tip");
    const box = target.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(box.left, innerWidth - tip.offsetWidth - 8)) + "px";
    const below = box.bottom + 6;
    tip.style.top = (below + tip.offsetHeight < innerHeight ? below : box.top - tip.offsetHeight - 6) + "px";
  };
  list.addEventListener("pointerover", (e) => show(e.target));
  list.addEventListener("focusin", (e) => show(e.target));
  list.addEventListener("focusout", () => show(null));
  list.addEventListener("pointerleave", () => show(null));
  list.addEventListener("scroll", () => show(null), { passive: true });
  list.addEventListener("keydown", (e) => {
    if (!tokenFacts(e.target)) return;
    const next = { ArrowRight: e.target.nextElementSibling, ArrowLeft: e.target.previousElementSibling }[e.key];
    if (e.key === "Escape") show(null);
    if (!next) return;
    e.preventDefault();
    e.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}

export function openChat() {
  byId("new-chat").onclick = begin;
  byId("stop").onclick = stop;
  byId("composer").onsubmit = (e) => (e.preventDefault(), submit());
  form.onsubmit = (e) => e.preventDefault();
  form.oninput = readSettings;
  prompt.addEventListener("keydown", (e) => {
    if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    submit();
  });
  addEventListener("keydown", (e) => {
    if (e.key === "Escape" && answering && !byId("key-dialog").open) stop();
  });
  setUpTip();
  if (innerWidth <= 760) byId("chat-list-box").open = false;
  if (chats.length) open(chats[0]);
  else begin();
  addEventListener("keys", () => form.elements.model.length || showModels());
  showModels();
}

async function showModels() {
  try {
    const models = (await getJson("v1/models")).data;
    form.elements.model.replaceChildren(...models.map((m) => el("option", { value: m.id, textContent: m.id })));
    byId("model-name").textContent = models[0]?.id ?? "";
    fillSettings();
  } catch (e) {
    showProblem(e.message);
  }
}
