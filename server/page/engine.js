// The engine view: GET /v1/engine once a second while it is looked at, and now and then while it is not, for the history.
import { getJson } from "./api.js";
import { byId, el } from "./dom.js";
import { recentFirst, recentRate, recentStep, seconds, series, steps, take, time, whole } from "./history.js";
import { colour, plotLines, plotSteps } from "./plot.js";
import { openPool, ownerColour, showPool, takePages, wantedPages } from "./pool.js";

const STEP_SPAN = 4e3, LOOKED_AT = 1000, ASIDE = 5000;

let view = null; // the last answer
let watching = false, timer = 0, refused = false;

// ---- asking

async function poll() {
  clearTimeout(timer);
  timer = 0;
  const looked = watching && !document.hidden;
  let wait = looked ? LOOKED_AT : ASIDE;
  try {
    view = await getJson("v1/engine" + (looked ? wantedPages(performance.now()) : ""), { quiet: refused || !looked });
    refused = false;
    byId("engine-problem").textContent = "";
    take(view, performance.now());
    takePages(view, performance.now());
    if (watching) show(!!view.pages);
  } catch (e) {
    refused ||= looked && e.status === 401; // the dialog was closed: it does not come again by itself
    byId("engine-problem").textContent = e.message;
    if (!looked && e.status === 401) return; // until there is a key, or one looks
    wait = Math.max(wait, 3000);
  }
  timer ||= setTimeout(poll, wait);
}

export function watchEngine(on) {
  watching = on;
  if (on) poll();
}

// ---- figures

const bytes = (n) => (n >= 1 << 30 ? (n / (1 << 30)).toFixed(1) + " GiB" : (n / (1 << 20)).toFixed(n < 100 << 20 ? 1 : 0) + " MiB");
const many = (n) => (n >= 1e9 ? (n / 1e9).toFixed(1) + " billion" : (n / 1e6).toFixed(1) + " million");

// The same texts in tiles and legends.
function numbers(now) {
  const told = (value, as) => (value === null ? "–" : as(value));
  return {
    output: told(recentRate("generated_tokens"), whole), prompt: told(recentRate("prompt_tokens"), whole),
    first: told(recentFirst(now), time), step: told(recentStep(now), time),
  };
}

function showFigures(n) {
  const q = view.queue, t = view.totals, m = view.memory;
  const of = (name) => view.groups.reduce((sum, g) => sum + g[name], 0);
  const figures = [
    ["Output", n.output, "tokens/s", true], ["Prompt", n.prompt, "tokens/s", true], ["First token", n.first, "median of a minute", true],
    ["Running", `${q.running} of ${view.limits.max_num_seqs}`], ["Waiting", q.waiting + q.deferred], ["Step", n.step],
    ["Prefix hits", t.prefix_queries ? ((100 * t.prefix_hits) / t.prefix_queries).toFixed(1) + " %" : "–"], ["Preemptions", whole(t.preemptions)],
    ["Evictions", whole(t.evictions)], ["Pages active", whole(of("active"))], ["Pages cached", whole(of("cached"))], ["Pages free", whole(view.free_pages)],
    ["Weights", m ? bytes(m.weight_bytes) : "–"], ["Cache", m ? bytes(m.cache_bytes) : "–"], ["Uptime", seconds(view.uptime_s)],
  ];
  const d = view.store; // the tier behind the cache; null: there is none
  if (d) {
    const kept = d.max_bytes ? `${bytes(d.bytes)} of ${bytes(d.max_bytes)}` : `${whole(d.writes)} blocks written`;
    figures.push([`Store: ${d.where}`, kept], ["From the store", whole(d.hit_tokens), "prompt tokens"]);
  }
  byId("figures").replaceChildren(...figures.map(([name, value, unit, big]) =>
    el("div", { className: big ? "big" : "" }, el("dt", { textContent: name }),
      el("dd", {}, String(value), unit ? el("small", { textContent: " " + unit }) : null))));
  const f = view.facts, l = view.limits;
  byId("model-facts").textContent = !f ? "" : [view.model, f.architecture, `${many(f.parameters)} parameters`, `${f.layers} layers`, `weights ${f.weights}`,
    `cache ${f.cache}`, `${whole(l.max_model_len)} tokens of context`, f.device].join(" · ");
}

function legend(id, items) {
  byId(id).replaceChildren(...items.map(([name, c, value, unit]) => {
    const swatch = el("span", { className: "swatch" });
    swatch.style.background = colour(c);
    return el("span", {}, swatch, name + " ", value === undefined ? null : el("b", { textContent: value }), unit ? " " + unit : null);
  }));
}

function showPlots(n, now) {
  const span = Number(document.querySelector("input[name=span]:checked").value) * 60e3;
  legend("tokens-legend", [["output", "a", n.output, "tokens/s"], ["prompt", "b", n.prompt, "tokens/s"]]);
  legend("latency-legend", [["step", "a", n.step], ["first token", "b", n.first]]);
  legend("steps-legend", [["decode", "a"], ["prefill", "b"], ["schedule and update", "c"], ["not told", "free"]]);
  plotLines(byId("plot-tokens"), [series.prompt, series.output], now, span, false);
  plotLines(byId("plot-latency"), [series.first, series.step], now, span, true);
  plotSteps(byId("plot-steps"), steps, now, STEP_SPAN);
}

function showRequests() {
  const rows = view.requests.slice(0, 200).map((r) => {
    const swatch = el("span", { className: "swatch" });
    swatch.style.background = ownerColour(r.id);
    const cells = [r.state, seconds(r.age_s), r.prompt_tokens, r.cached_tokens, r.computed_tokens, r.generated_tokens,
      r.tokens_per_s.toFixed(1), r.pages, r.preemptions].map((v) => el("td", { textContent: v }));
    return el("tr", {}, el("td", {}, swatch, r.request_id || "#" + r.id), ...cells);
  });
  const none = el("tr", {}, el("td", { colSpan: 10, textContent: "No request runs." }));
  document.querySelector("#requests tbody").replaceChildren(...(rows.length ? rows : [none]));
}

function show(withPages) {
  const now = performance.now(), n = numbers(now);
  showFigures(n);
  showPlots(n, now);
  showRequests();
  if (withPages) showPool();
}

export function openEngine() {
  openPool(poll);
  for (const e of document.querySelectorAll("input[name=span]")) e.onchange = () => view && show(false);
  document.addEventListener("visibilitychange", () => watching && !document.hidden && poll());
  addEventListener("keys", () => ((refused = false), poll()));
  for (const name of ["theme", "resize"]) addEventListener(name, () => view && watching && show(true));
  timer ||= setTimeout(poll, ASIDE);
}
