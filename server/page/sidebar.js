// The list of conversations: by date, searched, renamed, deleted; files of them; what is wrong with the browser's storage.
import { load, save } from "./api.js";
import * as chats from "./chats.js";
import { button, byId, el, iconButton } from "./dom.js";
import { download, toast } from "./notice.js";

const NARROW = 760, DAY = 86400e3;
const { titleOf } = chats;
let todo = null; // what the chat does: shown(), show(c), remove(c), redraw()
let renaming = ""; // id of the conversation whose name is being written

// ---- the list

function groupOf(changed) {
  const midnight = new Date().setHours(0, 0, 0, 0), date = new Date(changed);
  if (changed <= 0) return "Before";
  if (changed >= midnight) return "Today";
  if (changed >= midnight - DAY) return "Yesterday";
  if (changed >= midnight - 7 * DAY) return "Last 7 days";
  if (changed >= midnight - 30 * DAY) return "Last 30 days";
  return date.toLocaleDateString("en", { month: "long", year: "numeric" });
}

const holds = (text, c) => [titleOf(c), ...c.messages.map((m) => m.content)].some((t) => t.toLowerCase().includes(text));

function nameField(c) {
  const field = el("input", { value: titleOf(c), "aria-label": "Name", dir: "auto" });
  const end = (name) => {
    if (renaming !== c.id) return;
    renaming = "";
    if (name !== null) chats.rename(c, name);
    showList();
  };
  field.onkeydown = (e) => {
    if (e.key === "Enter") end(field.value);
    if (e.key === "Escape") e.stopPropagation(), end(null);
  };
  field.onblur = () => end(field.value);
  return field;
}

function row(c) {
  if (renaming === c.id) return el("li", {}, nameField(c));
  const choose = button(titleOf(c), () => {
    todo.show(c);
    if (innerWidth <= NARROW) showSidebar(false);
  }, { dir: "auto", title: titleOf(c) });
  if (c === todo.shown()) choose.setAttribute("aria-current", "true");
  const rename = () => {
    renaming = c.id;
    showList();
    byId("chat-list").querySelector("input").select();
  };
  return el("li", { className: chats.running.has(c.id) ? "busy" : "" }, choose, iconButton("edit", "Rename " + titleOf(c), rename),
    iconButton("trash", "Delete " + titleOf(c), () => todo.remove(c)));
}

let listed = ""; // what the list shows
export function showList() {
  showTrouble();
  const wanted = byId("search").value.trim().toLowerCase(), all = chats.list().filter((c) => !wanted || holds(wanted, c));
  const now = JSON.stringify([todo.shown()?.id, renaming, wanted, all.map((c) => [c.id, titleOf(c), groupOf(c.changed), chats.running.has(c.id)])]);
  if (now === listed || (renaming && byId("chat-list").querySelector("input"))) return;
  listed = now;
  const groups = new Map();
  for (const c of all) groups.set(groupOf(c.changed), [...(groups.get(groupOf(c.changed)) ?? []), c]);
  const none = wanted ? "No conversation has these words." : "";
  byId("chat-list").replaceChildren(...[...groups].flatMap(([name, members]) => [el("h2", { textContent: name }), el("ul", {}, ...members.map(row))]),
    ...(all.length || !none ? [] : [el("p", { className: "hint", textContent: none })]));
}

// ---- the browser's storage

const TROUBLES = {
  slim: "The browser's storage is full: probabilities of tokens are no longer kept.",
  full: "The browser's storage is full: what is new is in this tab only, and lost when it is closed. Export it, or delete what you do not need.",
  refused: "The browser keeps nothing of this page: conversations are in this tab only, and lost when it is closed.",
};

const exportAll = () => download("quire-conversations.json", chats.exported());

let troubled = ""; // what is said of the storage
function showTrouble() {
  const trouble = chats.trouble(), oldest = chats.list().filter((c) => c !== todo.shown()).at(-1), now = trouble && trouble + oldest?.id;
  if (now === troubled) return;
  troubled = now;
  byId("storage").replaceChildren(...(!trouble ? [] : [TROUBLES[trouble], el("div", { className: "acts" }, button("Export", exportAll),
    oldest && trouble !== "refused" ? button(`Delete the oldest: ${titleOf(oldest)}`, () => todo.remove(oldest)) : null)]));
}

async function importFiles(input) {
  try {
    for (const file of input.files) toast(`Conversations added: ${chats.imported(await file.text())}.`);
  } catch (e) {
    toast("This is no file of exported conversations: " + e.message);
  }
  input.value = "";
  todo.redraw();
}

// ---- shown or not

export function showSidebar(open) {
  byId("sidebar").hidden = !open;
  byId("menu").ariaExpanded = String(open);
}

export function openSidebar(does) {
  todo = does;
  showSidebar(innerWidth > NARROW && load("sidebar", true));
  byId("menu").onclick = () => {
    showSidebar(byId("sidebar").hidden);
    if (innerWidth > NARROW) save("sidebar", !byId("sidebar").hidden);
  };
  const aside = () => innerWidth <= NARROW && !byId("sidebar").hidden;
  byId("messages").parentElement.addEventListener("pointerdown", () => aside() && showSidebar(false));
  byId("sidebar").addEventListener("keydown", (e) => {
    if (e.key !== "Escape" || !aside()) return;
    showSidebar(false);
    byId("menu").focus();
  });
  byId("search").oninput = showList;
  byId("export").onclick = exportAll;
  byId("import").onclick = () => byId("import-file").click();
  byId("import-file").onchange = (e) => importFiles(e.target);
  addEventListener("keydown", (e) => {
    if (!(e.ctrlKey || e.metaKey) || e.key.toLowerCase() !== "k" || byId("chat").hidden) return;
    e.preventDefault();
    showSidebar(true);
    byId("search").focus();
  });
}
