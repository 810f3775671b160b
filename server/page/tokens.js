// The tokens of an answer: each an element, coloured by its probability; what else it could have been under the pointer or the focus.
import { byId, el } from "./dom.js";

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
function factsOf(element) {
  const t = facts.get(element);
  if (!t) return null;
  const lines = [`${shown(t.name)}   ${percent(t.logprob)}   ln p = ${t.logprob.toFixed(3)}`];
  for (const [text, logprob] of t.top) lines.push(`${percent(logprob).padStart(9)}   ${shown(text)}`);
  return lines.join("\n");
}

export function setUpTip(list) {
  const tip = byId("tip");
  const show = (target) => {
    const text = target instanceof Element ? factsOf(target) : null;
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
    if (!factsOf(e.target)) return;
    const next = { ArrowRight: e.target.nextElementSibling, ArrowLeft: e.target.previousElementSibling }[e.key];
    if (e.key === "Escape") show(null);
    if (!next) return;
    e.preventDefault();
    e.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}
