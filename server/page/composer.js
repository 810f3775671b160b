// The field for the next message: it grows, keeps what is not sent, and takes files, dropped ones and long pastes too.
import { draft, setDraft } from "./chats.js";
import { byId } from "./dom.js";
import { chip, LONG_PASTE, readText } from "./files.js";

const prompt = byId("prompt");
let key = ""; // of the draft that is shown
let files = [];

const fileKey = (name = key) => name + " files";
const filesOf = (name) => JSON.parse(draft(fileKey(name)) || "[]");

function grow() {
  if (CSS.supports("field-sizing", "content")) return;
  prompt.style.height = "auto";
  prompt.style.height = prompt.scrollHeight + 2 + "px";
}

function keepFiles() {
  setDraft(fileKey(), files.length ? JSON.stringify(files) : "");
  byId("files").replaceChildren(...files.map((f) => chip(f, () => {
    files = files.filter((o) => o !== f);
    keepFiles();
    prompt.focus();
  })));
}

// Shows what has been written for `name`.
export function fillPrompt(name = key) {
  key = name;
  prompt.value = draft(key);
  files = filesOf(key);
  keepFiles();
  grow();
}

export const focusPrompt = () => prompt.focus();

// Gives what is written, which leaves the field.
export function takePrompt() {
  const taken = { content: prompt.value, files };
  setDraft(key, "");
  files = [];
  keepFiles();
  prompt.value = "";
  grow();
  return taken;
}
export const isEmpty = () => !prompt.value.trim() && !files.length;

// A message that was refused comes back, before what has been written since.
export function giveBack(name, { content, files: some = [] }) {
  setDraft(name, [content, draft(name)].filter(Boolean).join("\n"));
  const all = [...some, ...filesOf(name)];
  setDraft(fileKey(name), all.length ? JSON.stringify(all) : "");
}

async function attach(list) {
  for (const file of list) {
    const text = await readText(file);
    if (text !== null) files.push({ name: file.name, text });
  }
  keepFiles();
  prompt.focus();
}

export function openComposer(submit) {
  byId("composer").onsubmit = (e) => (e.preventDefault(), submit());
  prompt.oninput = () => {
    setDraft(key, prompt.value);
    grow();
  };
  prompt.onkeydown = (e) => {
    if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    submit();
  };
  prompt.onpaste = (e) => {
    const text = e.clipboardData.getData("text/plain"), given = [...e.clipboardData.files];
    if (!given.length && text.length < LONG_PASTE) return;
    e.preventDefault();
    if (given.length) return attach(given);
    const taken = new Set(files.map((f) => f.name));
    let n = 1;
    while (taken.has(`pasted-${n}.txt`)) n++;
    files.push({ name: `pasted-${n}.txt`, text });
    keepFiles();
  };
  byId("attach").onclick = () => byId("attach-file").click();
  byId("attach-file").onchange = async (e) => {
    await attach(e.target.files);
    e.target.value = "";
  };
  const talk = byId("messages").parentElement;
  talk.ondragover = (e) => e.dataTransfer.types.includes("Files") && e.preventDefault();
  talk.ondrop = (e) => e.dataTransfer.files.length && (e.preventDefault(), attach(e.dataTransfer.files));
}
