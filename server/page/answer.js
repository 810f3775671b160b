// An answer of the server, from its request to its end. It goes on when another conversation is shown.
import { events, send } from "./api.js";
import { keep, running } from "./chats.js";
import { requestBody } from "./settings.js";
import { keepToken } from "./tokens.js";
import { add } from "./tree.js";

function addCall(m, delta) {
  m.tool_calls ??= [];
  const call = (m.tool_calls[delta.index ?? m.tool_calls.length] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
  call.id ||= delta.id ?? "";
  call.function.name ||= delta.function?.name ?? "";
  call.function.arguments += delta.function?.arguments ?? "";
}

export const stop = (chat) => running.get(chat.id)?.stop();

// Answers a conversation's shown branch. `ready`: a promise to wait for. What has come is kept every second or so.
// grown(): there is more text; ended(some, error): some: there is a message; error: what went wrong, or null.
export async function answer(chat, ready, grown, ended) {
  stop(chat);
  const parent = chat.leaf, controller = new AbortController(), decoder = new TextDecoder();
  const m = { role: "assistant", content: "", model: chat.settings.model };
  const run = { m, view: null, begun: false, stop: () => end("stopped", null) };
  const runs = () => running.get(chat.id) === run;
  let firstAt = 0, lastAt = 0, count = 0, keepAt = 0;

  function end(finish, error) {
    if (!runs()) return;
    running.delete(chat.id);
    controller.abort();
    if (finish) m.finish = finish;
    ended(chat.messages.includes(m), error);
  }

  function keepSome() {
    const began = performance.now();
    keep(chat);
    keepAt = performance.now() + 1000 + 20 * (performance.now() - began);
  }

  function take(event, began) {
    if (event.usage) m.usage = event.usage;
    const choice = event.choices?.[0];
    if (!choice) return;
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
    if (count && !run.begun) run.begun = !!add(chat, m, parent);
    if (run.begun && performance.now() > keepAt) keepSome();
  }

  running.set(chat.id, run);
  try {
    await ready;
    if (!runs()) return;
    const body = requestBody(chat), began = performance.now();
    const response = await send("v1/chat/completions", { body, signal: controller.signal });
    for await (const event of events(response)) {
      if (!runs()) return;
      take(event, began);
      grown();
    }
    const tokens = m.usage?.completion_tokens ?? count;
    if (lastAt - firstAt > 100 && tokens > 1) m.speed = ((tokens - 1) * 1000) / (lastAt - firstAt);
    end("", null);
  } catch (e) {
    end("", e);
  }
}
