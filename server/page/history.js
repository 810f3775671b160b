// What the engine has told over the last hour, as series; the page asks it while it is open, seldom where nobody looks.
export const HOUR = 3600e3;
const KEPT_STEPS = 4096, RECENT = 10e3, MINUTE = 60e3;

export const series = {
  prompt: { name: "prompt", colour: "b", points: [] },
  output: { name: "output", colour: "a", points: [] },
  first: { name: "first token", colour: "b", points: [], dots: true },
  step: { name: "step", colour: "a", points: [] },
};
export const steps = []; // {id, end, schedule, execute, update (ms), decode, prefill, requests}
let lastStep = -1, known = new Set(); // requests whose first token has a point
let last = null, recent = []; // {time, totals}: the one before, and those of the last ten seconds

export const whole = (v) => Math.round(v).toLocaleString("en");
export const seconds = (s) => (s < 60 ? s.toFixed(1) + " s" : s < 5400 ? (s / 60).toFixed(1) + " min" : (s / 3600).toFixed(1) + " h");
export const time = (ms) => (ms < 9.95 ? ms.toFixed(1) + " ms" : ms < 999.5 ? ms.toFixed(0) + " ms" : seconds(ms / 1e3));

function add(s, at, value) {
  s.points.push([at, value]);
  while (s.points[0][0] < at - HOUR) s.points.shift();
}

function forget() {
  steps.length = 0;
  lastStep = -1;
  known = new Set();
  for (const s of Object.values(series)) s.points = [];
  last = null;
  recent = [];
}

// An answer of the engine that came at `now`, in ms.
export function take(view, now) {
  const t = view.totals, fields = view.steps.fields;
  if (last && t.steps < last.totals.steps) forget(); // another server
  const fresh = view.steps.rows.map((row) => Object.fromEntries(fields.map((f, i) => [f, row[i]]))).filter((s) => s.id > lastStep);
  for (const s of fresh) {
    steps.push({ id: s.id, end: now - s.age_ms, schedule: s.schedule_us / 1e3, execute: s.execute_us / 1e3, update: s.update_us / 1e3,
      decode: s.decode_tokens, prefill: s.prefill_tokens, requests: s.requests });
    lastStep = s.id;
  }
  steps.splice(0, steps.length - KEPT_STEPS);
  for (const r of view.requests)
    if (r.first_token_s > 0 && !known.has(r.id)) {
      known.add(r.id);
      add(series.first, now - 1e3 * (r.age_s - r.first_token_s), 1e3 * r.first_token_s);
    }
  if (known.size > 10000) known = new Set(view.requests.map((r) => r.id));
  if (last && now - last.time < 500) return; // asked out of turn: rates over so little say nothing
  if (last) {
    const span = (now - last.time) / 1e3;
    add(series.prompt, now, (t.prompt_tokens - last.totals.prompt_tokens) / span);
    add(series.output, now, (t.generated_tokens - last.totals.generated_tokens) / span);
    if (fresh.length) add(series.step, now, fresh.reduce((sum, s) => sum + s.schedule_us + s.execute_us + s.update_us, 0) / fresh.length / 1e3);
  }
  last = { time: now, totals: t };
  recent = [...recent.filter((r) => r.time > now - RECENT), last];
}

// The numbers of tiles and legends alike: the mean of ten seconds, the median of a minute; null: there was none.
export function recentRate(total) {
  const [first, latest] = [recent[0], recent.at(-1)];
  return latest && latest !== first ? (1e3 * (latest.totals[total] - first.totals[total])) / (latest.time - first.time) : null;
}
export function recentStep(now) {
  const some = steps.filter((s) => s.end > now - RECENT);
  return some.length ? some.reduce((sum, s) => sum + s.schedule + s.execute + s.update, 0) / some.length : null;
}
export function recentFirst(now) {
  const some = series.first.points.filter((p) => p[0] > now - MINUTE).map((p) => p[1]).sort((a, b) => a - b);
  return some.length ? some[some.length >> 1] : null;
}
