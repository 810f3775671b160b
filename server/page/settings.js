// What a conversation is asked with: its settings, the models there are, and the body of a request.
import { getJson, load, save } from "./api.js";
import { byId, el } from "./dom.js";
import { withFiles } from "./files.js";
import { path } from "./tree.js";

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "repetition_penalty", "presence_penalty", "frequency_penalty"];
const form = byId("parameters"), panel = byId("settings");

// How the server samples for a person who sets nothing, which the fields show; of what it serves: names, adapters, context, facts.
export const server = { usual: {}, models: [], context: 0, facts: null };

export const firstSettings = () => load("settings", {});
export const isEditing = () => form.contains(document.activeElement);

export function fillSettings(settings) {
  for (const e of form.elements)
    if (e.name && e.type === "checkbox") e.checked = !!settings[e.name];
    else if (e.name) e.value = settings[e.name] ?? "";
  if (form.elements.model.selectedIndex < 0) form.elements.model.selectedIndex = 0;
}

function readSettings() {
  return Object.fromEntries([...form.elements].filter((e) => e.name).map((e) => [e.name, e.type === "checkbox" ? e.checked : e.value]));
}

function parsed(settings, name, what, ok) {
  const text = (settings[name] ?? "").trim();
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
export function requestBody(chat) {
  const s = chat.settings;
  const body = { messages: [], stream: true, stream_options: { include_usage: true }, ...server.usual };
  if (s.model) body.model = s.model;
  for (const name of NUMBERS) if (s[name]) body[name] = Number(s[name]);
  if (s.stop) body.stop = [s.stop];
  if (s.logprobs) Object.assign(body, { logprobs: true, top_logprobs: 5 });
  body.tools = parsed(s, "tools", "Tools, a JSON list", Array.isArray);
  if (s.system) body.messages.push({ role: "system", content: s.system });
  for (const m of path(chat)) {
    if (m.role === "unreadable") continue;
    const one = { role: m.role, content: withFiles(m) };
    if (m.tool_calls?.length) {
      one.tool_calls = m.tool_calls;
      one.content ||= null;
      if (m.reasoning) one.reasoning_content = m.reasoning;
    }
    if (m.role === "tool") one.tool_call_id = m.tool_call_id;
    if (m.role !== "assistant" || m.content || m.tool_calls?.length) body.messages.push(one);
  }
  return Object.assign(body, parsed(s, "more", "More fields, a JSON object", (v) => v && typeof v === "object" && !Array.isArray(v)));
}

// ---- the panel

export function showPanel(open, field = "system") {
  panel.hidden = !open;
  byId("settings-button").ariaExpanded = String(open);
  if (open) form.elements[field].focus();
  else if (panel.contains(document.activeElement) || document.activeElement === document.body) byId("settings-button").focus();
}

// changed(settings): a person has changed a field. checked(): throws where a field cannot be sent.
export function openSettings(changed, checked) {
  const read = () => {
    const settings = readSettings();
    save("settings", settings);
    changed(settings);
    byId("settings-problem").textContent = "";
    try {
      checked();
    } catch (e) {
      byId("settings-problem").textContent = e.message;
    }
  };
  form.onsubmit = (e) => e.preventDefault();
  form.oninput = read;
  byId("model").onchange = read; // it stands outside of the form
  byId("settings-button").onclick = () => showPanel(panel.hidden);
  byId("settings-close").onclick = () => showPanel(false);
  panel.addEventListener("keydown", (e) => e.key === "Escape" && (e.stopPropagation(), showPanel(false)));
  byId("reset").onclick = () => {
    fillSettings({ model: form.elements.model.value });
    read();
  };
}

// ---- what is served

const option = (model) => el("option", { value: model.id, textContent: model.id });

// Asks the server; throws where it does not tell.
export async function askServer() {
  const models = (await getJson("v1/models")).data;
  const adapters = models.filter((m) => m.parent), own = models.filter((m) => !m.parent);
  byId("model").replaceChildren(...own.map(option), ...(adapters.length ? [el("optgroup", { label: "Adapters" }, ...adapters.map(option))] : []));
  const props = await getJson("props");
  Object.assign(server, { models, usual: props.chat_sampling, context: props.default_generation_settings.n_ctx });
  for (const [name, value] of Object.entries(server.usual)) form.elements[name].placeholder = value;
  server.facts = (await getJson("v1/engine")).facts;
}
