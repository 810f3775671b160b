// The chat on the screen: which conversation is shown, its messages, and what is done with them.
import { answer as ask, stop } from "./answer.js";
import { load, save, send } from "./api.js";
import * as chats from "./chats.js";
import { fillPrompt, focusPrompt, giveBack, isEmpty, openComposer, takePrompt } from "./composer.js";
import { button, byId } from "./dom.js";
import { editKey, emptyView, messageView, resultOf, systemLine } from "./message.js";
import { toast } from "./notice.js";
import { askServer, fillSettings, firstSettings, isEditing, openSettings, requestBody, server, showPanel } from "./settings.js";
import { openSidebar, showList } from "./sidebar.js";
import { setUpTip } from "./tokens.js";
import * as tree from "./tree.js";

const list = byId("messages");
const { titleOf } = chats;

let chat = null; // the conversation that is shown
let known; // when the server has told what it serves, or never will
let blank = null; // a conversation whose settings are written, and no message yet
const problems = new Map(); // id of a conversation -> what went wrong with its last answer: {text, retry}

// ---- conversations

const draftKey = (c) => (c.messages.length ? c.id : "new");

function keep(c) {
  chats.keep(c);
  showList();
}

function show(c) {
  chat = c;
  save("open", c.messages.length ? c.id : "", "session");
  fillSettings(c.settings);
  fillPrompt(draftKey(c));
  showProblem();
  showMessages();
  showBusy();
  showList();
}

function begin() {
  show(blank?.messages.length === 0 ? blank : chats.create(chat?.settings ?? firstSettings()));
  focusPrompt();
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

// Another tab has changed a conversation.
function changed(id) {
  const c = chats.find(id), run = chats.running.get(id), focus = document.activeElement;
  const gone = c?.gone || (run?.begun && !c.messages.includes(run.m));
  if (run && gone) run.stop();
  showList();
  if (c !== chat || c.gone) return;
  if (!isEditing()) fillSettings(chat.settings);
  if (!list.contains(focus) || focus.localName !== "textarea") showMessages(true);
}

function changeSettings(settings) {
  chat.settings = settings;
  if (!chat.messages.length) blank = chat;
  else if (!chat.gone) keep(chat);
  showMessages(true);
}

// ---- messages

const atEnd = () => list.scrollHeight - list.scrollTop - list.clientHeight < 60;

const size = (n) => (n >= 1e9 ? (n / 1e9).toFixed(1) + " billion" : (n / 1e6).toFixed(1) + " million");
const count = (n) => n.toLocaleString("en");

function serverFacts() {
  const f = server.facts, parts = [];
  if (f) parts.push(f.architecture, `${size(f.parameters)} parameters`, f.weights);
  if (server.context) parts.push(`${count(server.context)} tokens of context`);
  return parts.join(" · ");
}

// What stands before and instead of messages. `stay`: where one has scrolled to.
function showMessages(stay = false) {
  const run = chats.running.get(chat.id), shown = tree.path(chat), top = stay && !atEnd() ? list.scrollTop : 1e9;
  if (run && !shown.includes(run.m)) shown.push(run.m);
  const views = shown.map((m) => messageView(chat, m, run?.m === m, todo));
  if (run) run.view = views[shown.indexOf(run.m)];
  const system = chat.settings.system && systemLine(chat.settings.system, () => showPanel(true));
  const parts = views.length ? views.map((v) => v.element) : [emptyView(chat.settings.model || (server.models[0]?.id ?? "Quire"), serverFacts(), begins)];
  list.replaceChildren(...(system ? [system] : []), ...parts);
  list.scrollTop = top;
  showContext();
}

function begins(text) {
  giveBack(draftKey(chat), { content: text });
  fillPrompt();
  submit();
}

// How much of the context the shown branch has taken, by the server's count after its last answer.
function showContext() {
  const used = tree.path(chat).findLast((m) => m.usage)?.usage, total = used ? used.prompt_tokens + used.completion_tokens : 0;
  const meter = byId("context"), left = Math.max(0, server.context - total);
  meter.textContent = server.context && total ? `${count(total)} of ${count(server.context)} tokens, ${count(left)} left` : "";
  meter.classList.toggle("low", !!server.context && left < server.context / 8);
}

const todo = {
  redraw: () => showMessages(true),
  showVersion(m) {
    stop(chat);
    tree.show(chat, m.id);
    keep(chat);
    showMessages(true);
    list.focus();
  },
  cut(m) {
    const where = chat;
    stop(where);
    const back = tree.cut(where, m);
    keepOrDrop(where);
    showMessages(true);
    toast("Deleted.", () => {
      back();
      keep(where);
      if (chat === where) showMessages(true);
    });
  },
  // What is edited is one more version. Where it is sent, what followed stays with the old one; where it is only saved, follows it.
  saveVersion(m, content) {
    stop(chat);
    chats.setDraft(editKey(chat, m), "");
    if (content !== m.content) tree.insert(chat, m, version(m, content), m.parent);
    keep(chat);
    showMessages(true);
  },
  sendVersion(m, content) {
    stop(chat);
    chats.setDraft(editKey(chat, m), "");
    const where = chat, leaf = where.leaf, fresh = tree.add(where, version(m, content), m.parent);
    keep(where);
    answer((refused) => {
      if (!refused) return;
      tree.cut(where, fresh);
      tree.show(where, leaf);
      chats.setDraft(editKey(where, m), content);
    });
  },
  regenerate(m) {
    stop(chat);
    const where = chat, leaf = where.leaf;
    where.leaf = m.parent;
    answer(() => tree.show(where, leaf));
  },
  // results: [[call, text], …] of all calls of m that had none
  giveResults(m, results) {
    const where = chat, added = [];
    stop(where);
    for (const [call, content] of results) {
      const last = m.tool_calls.map((c) => resultOf(where, c)).filter(Boolean).at(-1) ?? m;
      const result = { role: "tool", content, tool_call_id: call.id };
      chats.setDraft(editKey(where, m) + call.id, "");
      tree.insert(where, last, result, last.id);
      added.push(result);
    }
    keep(where);
    answer((refused) => {
      if (!refused) return;
      for (const result of added) tree.cut(where, result);
      for (const [call, content] of results) chats.setDraft(editKey(where, m) + call.id, content);
    });
  },
};

const version = ({ tokens, byToken, v, ...m }, content) => ({ ...m, content });

// ---- answers

function showBusy() {
  const busy = chats.running.has(chat.id);
  byId("send").hidden = busy;
  byId("stop").hidden = !busy;
}

// What went wrong. While the server cannot be reached it is asked again and again; when it is back, the line goes.
function showProblem() {
  const problem = problems.get(chat.id), box = byId("problem");
  box.replaceChildren(...(!problem ? [] : [problem.text, problem.retry && button("Retry", problem.retry)].filter(Boolean)));
}

function giveProblem(c, text, retry) {
  if (text) problems.set(c.id, { text, retry });
  else problems.delete(c.id);
  if (c === chat) showProblem();
}

let waiting = 0;
function waitForServer() {
  clearTimeout(waiting);
  waiting = setTimeout(async () => {
    try {
      await send("livez", { quiet: true });
    } catch (e) {
      if (!e.status) return waitForServer();
    }
    for (const [id, p] of problems) if (p.lost) problems.delete(id);
    showProblem();
    if (!server.context) known = showServer();
  }, 2000);
}

// A conversation without messages is none to keep.
function keepOrDrop(c) {
  if (c.messages.length) return keep(c);
  if (c === chat) save("open", "", "session");
  chats.discard(c);
  showList();
}

// Answers the conversation that is shown; it goes on when another one is.
// nothing(refused): no text came; refused: because of an error. `retry`: what asks once more then.
function answer(nothing = () => {}, retry = null) {
  const where = chat;
  let frame = 0, drawn = 0;

  function draw() {
    frame = 0;
    const run = chats.running.get(where.id);
    if (chat !== where || !run) return;
    if (run.m.content.length > 20000 && performance.now() - drawn < 250) return schedule(); // a long text takes time
    drawn = performance.now();
    const end = atEnd();
    run.view.update(true);
    if (end) list.scrollTop = list.scrollHeight;
  }
  function schedule() {
    frame ||= requestAnimationFrame(draw);
  }

  function ended(m, view, some, error) {
    cancelAnimationFrame(frame);
    if (!some) nothing(!!error);
    if (!where.gone) keepOrDrop(where);
    giveProblem(where, error?.message ?? "", some ? null : retry);
    if (error?.status === 0) {
      problems.get(where.id).lost = true;
      waitForServer();
    }
    byId("status").textContent = error ? "The answer has failed." : "The answer is complete.";
    fillPrompt();
    if (chat !== where) return error && toast(`${titleOf(where)}: ${error.message}`);
    showBusy();
    const atBottom = atEnd();
    if (!some || !view?.element.isConnected) return showMessages();
    view.update(false);
    showContext();
    if (atBottom) list.scrollTop = list.scrollHeight;
  }

  giveProblem(where, "");
  let run = null;
  ask(where, known, schedule, (some, error) => ended(run.m, run.view, some, error));
  run = chats.running.get(where.id);
  byId("status").textContent = "The server answers.";
  showBusy();
  showMessages();
  showList();
}

// A message that is refused goes back into the field: in the conversation, it would have every later one refused, too.
function submit() {
  if (isEmpty()) return;
  const where = chat;
  stop(where);
  const taken = takePrompt(), m = tree.add(where, { role: "user", content: taken.content, ...(taken.files.length ? { files: taken.files } : {}) });
  keep(where);
  save("open", where.id, "session");
  fillPrompt(draftKey(where));
  answer((refused) => {
    if (!refused) return;
    tree.cut(where, m);
    giveBack(draftKey(where), taken);
    if (chat === where) fillPrompt(draftKey(where));
  }, () => (show(where), submit()));
}

// ---- start

async function showServer() {
  try {
    await askServer();
    fillSettings(chat.settings);
    if (!chat.messages.length) showMessages();
    showContext();
  } catch (e) {
    giveProblem(chat, e.message);
    if (e.status === 0) waitForServer();
  }
}

export async function openChat() {
  openSidebar({ shown: () => chat, show, remove, redraw: () => show(chat) });
  openComposer(submit);
  openSettings(changeSettings, () => requestBody(chat));
  setUpTip(list);
  await chats.open(changed, showList);
  byId("new-chat").onclick = begin;
  byId("stop").onclick = () => stop(chat);
  addEventListener("keydown", (e) => {
    if (e.key === "Escape" && !document.querySelector("dialog[open]")) stop(chat);
    if (e.key.toLowerCase() === "o" && e.ctrlKey && e.shiftKey && !byId("chat").hidden) e.preventDefault(), begin();
  });
  addEventListener("beforeunload", (e) => ["full", "refused"].includes(chats.trouble()) && e.preventDefault());
  addEventListener("keys", () => server.context || (known = showServer()));
  const last = load("open", null, "session"), shown = chats.list().find((c) => c.id === last) ?? (last === "" ? null : chats.list()[0]);
  if (shown) show(shown);
  else begin();
  known = showServer();
}
