// The chat on the screen: a conversation, its settings, answers from /v1/chat/completions. chats.js keeps conversations.
import { button, byId, el, events, getJson, load, save, send } from "./api.js";
import * as chats from "./chats.js";
import { keepToken, markdown, tokenElement, tokenFacts } from "./message.js";
import { copy, download, toast } from "./notice.js";

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "repetition_penalty", "presence_penalty", "frequency_penalty"];
const list = byId("messages"), form = byId("parameters"), prompt = byId("prompt");
const names = { user: "You", assistant: "Answer", tool: "Tool result", system: "System", unreadable: "In the browser's storage" };

let chat = null; // the conversation that is shown; see chats.js
let usual = {}; // how the server samples for a person who sets nothing; the fields show it
let known; // when that is there, or never comes
let blank = null; // a conversation whose settings are written, and no message yet
const problems = new Map(); // id of a conversation -> what went wrong with its last answer

// ---- conversations

const titleOf = (c) => c.title || "New conversation";
const draftKey = (c) => (c.messages.length ? c.id : "new");
const editKey = (c, m) => c.id + " " + m.id;
const fillPrompt = () => (prompt.value = chats.draft(draftKey(chat)));

function keep(c) {
  chats.keep(c);
  showList();
}

function show(c) {
  chat = c;
  save("open", c.messages.length ? c.id : "", "session");
  fillSettings();
  fillPrompt();
  showProblem(problems.get(c.id) ?? "");
  showMessages();
  showBusy();
  showList();
}

function begin() {
  show(blank?.messages.length === 0 ? blank : chats.create(chat?.settings ?? load("settings", {})));
  prompt.focus();
}

function remove(c) {
  const shown = chat === c;
  stop(c);
  chats.discard(c);
  if (shown) chats.list().length ? show(chats.list()[0]) : begin();
  else showList();
  toast(`Deleted “${titleOf(c)}”.`, () => {
    keep(c);
    if (shown) show(c);
  });
}

let listed = ""; // what the list shows
function showList() {
  showStorage();
  const all = chats.list(), now = JSON.stringify([chat?.id, all.map((c) => [c.id, c.title])]);
  if (now === listed) return;
  listed = now;
  byId("chat-list").replaceChildren(...all.map((c) => {
    const choose = button(titleOf(c), () => show(c));
    if (c === chat) choose.setAttribute("aria-current", "true");
    return el("li", {}, choose, button("✕", () => remove(c), { "aria-label": "Delete " + titleOf(c) }));
  }));
}

// ---- the browser's storage

const TROUBLES = {
  slim: "The browser's storage is full: log-probabilities of tokens are no longer kept.",
  full: "The browser's storage is full: what is new is in this tab only, and lost when it is closed. Export it, or delete what you do not need.",
  refused: "The browser keeps nothing of this page: conversations are in this tab only, and lost when it is closed.",
};

const exportAll = () => download("quire-conversations.json", chats.exported());

let troubled = ""; // what is said of the storage
function showStorage() {
  const trouble = chats.trouble(), oldest = chats.list().filter((c) => c !== chat).at(-1), now = trouble && trouble + oldest?.id;
  if (now === troubled) return;
  troubled = now;
  byId("storage").replaceChildren(...(!trouble ? [] : [TROUBLES[trouble], el("div", { className: "acts" }, button("Export", exportAll),
    oldest && trouble !== "refused" ? button(`Delete the oldest: ${titleOf(oldest)}`, () => remove(oldest)) : null)]));
}

async function importFile(input) {
  try {
    for (const file of input.files) toast(`Conversations added: ${chats.imported(await file.text())}.`);
  } catch (e) {
    toast("This is no file of exported conversations: " + e.message);
  }
  input.value = "";
  show(chat);
}

// Another tab has changed a conversation.
function changed(id) {
  const c = chats.find(id), run = chats.running.get(id), focus = document.activeElement;
  const gone = c?.gone || (run?.begun && !c.messages.includes(run.m));
  if (run && gone) run.stop();
  showList();
  if (c !== chat || c.gone) return;
  if (!form.contains(focus)) fillSettings();
  if (!list.contains(focus) || focus.localName !== "textarea") showMessages(true);
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
  if (!chat.messages.length) blank = chat;
  else if (!chat.gone) keep(chat);
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

// What the server is sent: a setting that is empty is what its field shows, or not there, so that the server's own default holds.
function requestBody() {
  const s = chat.settings;
  const body = { messages: [], stream: true, stream_options: { include_usage: true }, ...usual };
  if (s.model) body.model = s.model;
  for (const name of NUMBERS) if (s[name]) body[name] = Number(s[name]);
  if (s.stop) body.stop = [s.stop];
  if (s.logprobs) Object.assign(body, { logprobs: true, top_logprobs: 5 });
  body.tools = parsed("tools", "Tools, a JSON list", Array.isArray);
  if (s.system) body.messages.push({ role: "system", content: s.system });
  for (const m of chats.path(chat)) {
    if (m.role === "unreadable") continue;
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

function showProblem(text) {
  byId("problem").textContent = text;
}

const atEnd = () => list.scrollHeight - list.scrollTop - list.clientHeight < 60;

function facts(m, running) {
  const parts = [];
  if (m.role === "assistant" && !m.finish && !running) parts.push("not complete");
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
function view(m, running = false) {
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
    note.textContent = facts(m, running);
    if (!running) showActs();
  }

  function showActs() {
    const all = chats.versions(chat, m), at = all.indexOf(m);
    const turn = (by, text, label) => button(text, () => showVersion(all[at + by]), { "aria-label": label, disabled: !all[at + by] });
    acts.replaceChildren(...[
      ...(all.length > 1 ? [turn(-1, "‹", "Previous version"), `${at + 1} of ${all.length}`, turn(1, "›", "Next version")] : []),
      button("Copy", () => copy(m.content)),
      button("Edit", () => edit().focus()),
      m.role === "assistant" && button("Regenerate", () => regenerate(m)),
      m.tokens?.length && button(m.byToken === false ? "Tokens" : "Text", () => ((m.byToken = m.byToken === false), update())),
      button("Delete from here", () => cut(m)),
      note].filter(Boolean));
  }

  function edit() {
    const area = draftArea(editKey(chat, m), { value: m.content, rows: 4, "aria-label": "Message, edited" });
    text.hidden = false;
    tokens.hidden = true;
    text.replaceChildren(area);
    const cancel = () => (chats.setDraft(editKey(chat, m), ""), update());
    acts.replaceChildren(
      ...(m.role === "assistant" ? [] : [button("Send", () => sendVersion(m, area.value))]), button("Save", () => saveVersion(m, area.value)),
      button("Cancel", cancel));
    return area;
  }

  update(running);
  if (chats.draft(editKey(chat, m))) edit();
  return { element, update };
}

// A field whose text stays, when the messages are drawn anew or the page is loaded again.
function draftArea(key, set) {
  const area = el("textarea", set);
  area.value = chats.draft(key) || area.value;
  area.oninput = () => chats.setDraft(key, area.value);
  return area;
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
  const resultOf = (c) => chats.path(chat).find((o) => o.role === "tool" && o.tool_call_id === c.id);
  if (running || resultOf(call)) return box;
  const key = editKey(chat, m) + call.id;
  const area = draftArea(key, { rows: 2, "aria-label": "Result of " + call.function.name, placeholder: "the result" });
  const give = button("Send result", () => {
    const where = chat, content = area.value, result = { role: "tool", content, tool_call_id: call.id };
    const last = m.tool_calls.map(resultOf).filter(Boolean).at(-1) ?? m;
    stop(where);
    chats.setDraft(key, "");
    chats.insert(where, last, result, last.id);
    keep(where);
    showMessages();
    if (m.tool_calls.every(resultOf)) answer((refused) => refused && (chats.cut(where, result), chats.setDraft(key, content)));
  });
  return el("div", {}, box, area, give);
}

function showVersion(m) {
  stop(chat);
  chats.show(chat, m.id);
  keep(chat);
  showMessages(true);
  list.focus();
}

function cut(m) {
  const where = chat;
  stop(where);
  const back = chats.cut(where, m);
  keepOrDrop(where);
  showMessages(true);
  toast("Deleted.", () => {
    back();
    keep(where);
    if (chat === where) showMessages(true);
  });
}

// What is edited is one more version. Where it is sent, what followed stays with the old one; where it is only saved, follows it.
const version = ({ tokens, byToken, v, ...m }, content) => ({ ...m, content });

function saveVersion(m, content) {
  stop(chat);
  chats.setDraft(editKey(chat, m), "");
  if (content !== m.content) chats.insert(chat, m, version(m, content), m.parent);
  keep(chat);
  showMessages(true);
}

function sendVersion(m, content) {
  stop(chat);
  chats.setDraft(editKey(chat, m), "");
  const where = chat, leaf = where.leaf, fresh = chats.add(where, version(m, content), m.parent);
  keep(where);
  answer((refused) => {
    if (!refused) return;
    chats.cut(where, fresh);
    chats.show(where, leaf);
    chats.setDraft(editKey(where, m), content);
  });
}

function regenerate(m) {
  stop(chat);
  const where = chat, leaf = where.leaf;
  where.leaf = m.parent;
  answer(() => chats.show(where, leaf));
}

// `stay`: where one has scrolled to.
function showMessages(stay = false) {
  const run = chats.running.get(chat.id), shown = chats.path(chat), top = stay && !atEnd() ? list.scrollTop : 1e9;
  if (run && !shown.includes(run.m)) shown.push(run.m);
  const empty = el("p", { className: "empty", textContent: "Ask something. Nothing leaves this browser but to this server." });
  const views = shown.map((m) => view(m, run?.m === m));
  if (run) run.view = views[shown.indexOf(run.m)];
  list.replaceChildren(...(views.length ? views.map((v) => v.element) : [empty]));
  list.scrollTop = top;
}

// ---- answers

function addCall(m, delta) {
  m.tool_calls ??= [];
  const call = (m.tool_calls[delta.index ?? m.tool_calls.length] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
  call.id ||= delta.id ?? "";
  call.function.name ||= delta.function?.name ?? "";
  call.function.arguments += delta.function?.arguments ?? "";
}

function showBusy() {
  const busy = chats.running.has(chat.id);
  byId("send").hidden = busy;
  byId("stop").hidden = !busy;
}

const stop = (c) => chats.running.get(c.id)?.stop();

// A conversation without messages is none to keep.
function keepOrDrop(c) {
  if (c.messages.length) return keep(c);
  if (c === chat) save("open", "", "session");
  chats.discard(c);
  showList();
}

// Answers the conversation that is shown; it goes on when another one is. What has come of it is kept every second or so.
// nothing(refused): no text came; refused: because of an error.
async function answer(nothing = () => {}) {
  stop(chat);
  const where = chat, parent = chat.leaf, controller = new AbortController();
  const m = { role: "assistant", content: "", model: chat.settings.model };
  let frame = 0, firstAt = 0, lastAt = 0, count = 0, drawn = 0, keepAt = 0;
  const decoder = new TextDecoder();
  const run = { m, view: null, begun: false, stop: () => end("stopped"), keep: keepNow };
  const runs = () => chats.running.get(where.id) === run;

  function draw() {
    frame = 0;
    if (chat !== where || !runs()) return;
    if (m.content.length > 20000 && performance.now() - drawn < 250) return schedule(); // drawing a long text anew takes time
    drawn = performance.now();
    const end = atEnd();
    run.view.update(true);
    if (end) list.scrollTop = list.scrollHeight;
  }
  function schedule() {
    frame ||= requestAnimationFrame(draw);
  }

  function keepNow() {
    const began = performance.now();
    if (run.begun) keep(where);
    keepAt = performance.now() + 1000 + 20 * (performance.now() - began);
  }

  function end(finish, problem = "") {
    if (!runs()) return;
    chats.running.delete(where.id);
    cancelAnimationFrame(frame);
    controller.abort();
    if (finish) m.finish = finish;
    const some = where.messages.includes(m);
    if (!some) nothing(!!problem);
    problems.set(where.id, problem);
    if (!where.gone) keepOrDrop(where);
    byId("status").textContent = "The answer is complete.";
    fillPrompt();
    if (chat !== where) return problem && toast(`${titleOf(where)}: ${problem}`);
    showProblem(problem);
    showBusy();
    const atBottom = atEnd();
    if (!some || !run.view?.element.isConnected) return showMessages();
    run.view.update(false);
    if (atBottom) list.scrollTop = list.scrollHeight;
  }

  chats.running.set(where.id, run);
  problems.delete(where.id);
  showProblem("");
  showBusy();
  byId("status").textContent = "The server answers.";
  showMessages();
  try {
    await known;
    if (!runs()) return;
    const body = requestBody(), began = performance.now();
    const response = await send("v1/chat/completions", { body, signal: controller.signal });
    for await (const event of events(response)) {
      if (!runs()) return;
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
      if (count && !run.begun) run.begun = !!chats.add(where, m, parent);
      if (performance.now() > keepAt) keepNow();
      schedule();
    }
    const tokens = m.usage?.completion_tokens ?? count;
    if (lastAt - firstAt > 100 && tokens > 1) m.speed = ((tokens - 1) * 1000) / (lastAt - firstAt);
    end();
  } catch (e) {
    end("", e.code ? `${e.message} (${e.code})` : e.message);
  }
}

// A message that is refused goes back into the field: in the conversation, it would have every later one refused, too.
function submit() {
  const content = prompt.value, where = chat;
  if (!content.trim()) return;
  stop(where);
  chats.setDraft(draftKey(where), "");
  prompt.value = "";
  const m = chats.add(where, { role: "user", content });
  keep(where);
  save("open", where.id, "session");
  answer((refused) => {
    if (!refused) return;
    chats.cut(where, m);
    chats.setDraft(draftKey(where), [content, chats.draft(draftKey(where))].filter(Boolean).join("\n"));
  });
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
  byId("stop").onclick = () => stop(chat);
  byId("export").onclick = exportAll;
  byId("import").onclick = () => byId("import-file").click();
  byId("import-file").onchange = (e) => importFile(e.target);
  byId("composer").onsubmit = (e) => (e.preventDefault(), submit());
  form.onsubmit = (e) => e.preventDefault();
  form.oninput = readSettings;
  prompt.oninput = () => chats.setDraft(draftKey(chat), prompt.value);
  prompt.addEventListener("keydown", (e) => {
    if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    submit();
  });
  addEventListener("keydown", (e) => {
    if (e.key === "Escape" && !byId("key-dialog").open) stop(chat);
  });
  setUpTip();
  if (innerWidth <= 760) byId("chat-list-box").open = false;
  const last = load("open", null, "session"), shown = chats.list().find((c) => c.id === last) ?? (last === "" ? null : chats.list()[0]);
  if (shown) show(shown);
  else begin();
  chats.watch(changed);
  for (const name of ["pagehide", "visibilitychange"]) addEventListener(name, () => chats.running.forEach((run) => run.keep()));
  addEventListener("beforeunload", (e) => ["full", "refused"].includes(chats.trouble()) && e.preventDefault());
  addEventListener("keys", () => form.elements.model.length || (known = showModels()));
  known = showModels();
}

async function showModels() {
  try {
    const models = (await getJson("v1/models")).data;
    form.elements.model.replaceChildren(...models.map((m) => el("option", { value: m.id, textContent: m.id })));
    byId("model-name").textContent = models[0]?.id ?? "";
    usual = (await getJson("props")).chat_sampling;
    for (const [name, value] of Object.entries(usual)) form.elements[name].placeholder = value;
    fillSettings();
  } catch (e) {
    showProblem(e.message);
  }
}
