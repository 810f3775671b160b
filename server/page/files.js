// Texts beside a message: files that a person attaches, and long pastes.
import { el, icon, iconButton } from "./dom.js";
import { toast } from "./notice.js";

const MAX_BYTES = 2 << 20, MAX_PART = 0.02; // of a file; of characters that no text has
export const LONG_PASTE = 2500; // characters, from which a paste is a file

const size = (text) => (text.length < 1000 ? text.length + " characters" : (text.length / 1000).toFixed(1) + "k characters");

// What the model is sent for a message: its files, each in a fence that its own lines do not end, then what a person wrote.
export function withFiles(m) {
  const parts = (m.files ?? []).map(({ name, text }) => {
    const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
    const fence = "`".repeat(longest + 1);
    return `File ${name}:\n\n${fence}\n${text}\n${fence}`;
  });
  return [...parts, m.content].filter(Boolean).join("\n\n");
}

// The text of a file; null, with a word why, where it is none.
export async function readText(file) {
  if (file.size > MAX_BYTES) return toast(`${file.name} is larger than 2 MB.`), null;
  const text = await file.text();
  const odd = text.match(/[\u0000-\u0008\u000e-\u001f\ufffd]/g)?.length ?? 0;
  if (odd > MAX_PART * text.length) return toast(`${file.name} is no text. Pictures, PDF and other files cannot be read here.`), null;
  return text;
}

// A file as a chip that opens; with `remove`, a button for that.
export function chip(file, remove) {
  const text = el("pre", { tabIndex: 0, dir: "auto" });
  const name = el("span", { textContent: file.name }), length = el("small", { textContent: size(file.text) });
  const box = el("details", { className: "chip" }, el("summary", {}, icon("file"), name, length), text);
  box.ontoggle = () => (text.textContent = box.open ? file.text : "");
  return remove ? el("div", { className: "removable" }, box, iconButton("close", "Remove " + file.name, remove)) : box;
}
