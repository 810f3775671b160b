// Lines that go away by themselves, with an undo where something was taken away; copies, where a browser lends no clipboard, too.
import { button, byId, el } from "./dom.js";

const SHOWN_MS = 15000;

// A line; with `undo`, a button that calls it. It stays while the pointer or the focus is on it.
export function toast(text, undo) {
  const line = el("div", {}, el("span", { textContent: text }), undo && button("Undo", () => (line.remove(), undo())));
  const leave = () => (line.matches(":hover, :focus-within") ? setTimeout(leave, SHOWN_MS) : line.remove());
  byId("toasts").append(line);
  setTimeout(leave, SHOWN_MS);
}

// Browsers lend the clipboard to pages from this machine or over HTTPS; to others they leave copying what is selected.
function copySelected(text) {
  const area = el("textarea", { value: text, className: "hidden-text", readOnly: true }), focus = document.activeElement;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  focus?.focus();
  return done;
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    if (!copySelected(text)) return toast("The browser does not let this page copy. Select the text, and copy it by hand.");
  }
  toast("Copied.");
}

// Gives the browser a file to keep.
export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
