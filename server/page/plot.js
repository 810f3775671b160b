// Drawing on canvases: sizes, colours of the style sheet, lines over time, the time line of steps.

const probe = document.createElement("span");
probe.hidden = true;
document.documentElement.append(probe);
let cache = new Map();
addEventListener("theme", () => (cache = new Map()));

// A variable of the style sheet as rgb(…), in the theme that is shown.
export function colour(name) {
  if (!cache.has(name)) {
    probe.style.color = `var(--${name})`;
    cache.set(name, getComputedStyle(probe).color);
  }
  return cache.get(name);
}

// rgb(…) as [red, green, blue]
export const channels = (text) => text.match(/[\d.]+/g).slice(0, 3).map(Number);

// A context whose unit is a CSS pixel; the canvas is emptied.
export function surface(canvas, width = canvas.clientWidth, height = canvas.clientHeight) {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.font = "11px system-ui, sans-serif";
  return context;
}

function niceTop(v) {
  const unit = 10 ** Math.floor(Math.log10(v || 1));
  return [1, 2, 5, 10].map((k) => k * unit).find((k) => k >= v) || 1;
}

const short = (v) => (v >= 1000 ? (v / 1000).toPrecision(2) + "k" : v >= 10 || v === 0 ? v.toFixed(0) : v.toPrecision(2));

// series: [{name, colour, unit, points: [[ms, value], …]}], the newest last; now and span in ms.
export function plotLines(canvas, series, now, span) {
  const w = canvas.clientWidth, h = canvas.clientHeight, left = 40, top = 18, bottom = h - 16;
  if (!w) return;
  const c = surface(canvas);
  const seen = series.map((s) => s.points.filter((p) => p[0] >= now - span));
  const max = niceTop(Math.max(0, ...seen.flat().map((p) => p[1])));
  const x = (t) => left + ((t - now + span) / span) * (w - left - 4), y = (v) => bottom - (v / max) * (bottom - top);
  c.strokeStyle = colour("line");
  c.fillStyle = colour("soft");
  c.textAlign = "right";
  for (const part of [0, 0.5, 1]) {
    c.beginPath();
    c.moveTo(left, y(part * max));
    c.lineTo(w - 4, y(part * max));
    c.stroke();
    c.fillText(short(part * max), left - 4, y(part * max) + 4);
  }
  c.textAlign = "center";
  for (const part of [0, 0.5]) c.fillText(`−${((1 - part) * span) / 1000} s`, x(now - span * (1 - part)) + (part ? 0 : 14), h - 3);
  let at = left;
  c.textAlign = "left";
  series.forEach((s, i) => {
    c.strokeStyle = c.fillStyle = colour(s.colour);
    const last = seen[i].at(-1), text = `${s.name}${last ? ` ${short(last[1])} ${s.unit}` : ""}`;
    c.fillRect(at, 4, 9, 9);
    c.fillText(text, at + 13, 12);
    at += c.measureText(text).width + 30;
    c.lineWidth = 1.75;
    c.beginPath();
    if (s.dots) seen[i].forEach((p) => c.fillRect(x(p[0]) - 1.5, y(p[1]) - 1.5, 3, 3));
    else seen[i].forEach((p, k) => (k ? c.lineTo(x(p[0]), y(p[1])) : c.moveTo(x(p[0]), y(p[1]))));
    c.stroke();
  });
}

// Steps {end, schedule, execute, update (ms), decode, prefill} of the last span ms: as wide as they took, as high as they have tokens.
export function plotSteps(canvas, steps, now, span) {
  const w = canvas.clientWidth, h = canvas.clientHeight, bottom = h - 16;
  if (!w) return;
  const c = surface(canvas), seen = steps.filter((s) => s.end >= now - span);
  const most = Math.log2(1 + Math.max(1, ...seen.map((s) => s.decode + s.prefill)));
  const x = (t) => ((t - now + span) / span) * w;
  let at = 4;
  for (const [text, name] of [["decode", "a"], ["prefill", "b"], ["schedule and update", "c"]]) {
    c.fillStyle = colour(name);
    c.fillRect(at, 4, 9, 9);
    c.fillText(text, at + 13, 12);
    at += c.measureText(text).width + 30;
  }
  const last = seen.at(-1);
  c.fillStyle = colour("soft");
  c.textAlign = "right";
  if (last && w > 520) c.fillText(`last: ${last.requests} requests, ${last.decode} + ${last.prefill} tokens, ${last.execute.toFixed(1)} ms`, w - 4, 12);
  c.fillText("now", w - 4, h - 3);
  c.textAlign = "left";
  c.fillText(`−${span / 1000} s; height: tokens, by powers of two`, 4, h - 3);
  for (const s of seen) {
    const tokens = s.decode + s.prefill, high = Math.max(2, (Math.log2(1 + tokens) / most) * (bottom - 22));
    const from = x(s.end - s.update - s.execute), to = x(s.end - s.update), part = tokens ? (s.decode / tokens) * high : high;
    c.fillStyle = colour("c");
    c.fillRect(x(s.end - s.update - s.execute - s.schedule), bottom - 4, Math.max(x(s.end) - x(s.end - s.update - s.execute - s.schedule), 0.5), 4);
    c.fillStyle = colour("a");
    c.fillRect(from, bottom - part, Math.max(to - from - 0.5, 0.6), part);
    c.fillStyle = colour("b");
    c.fillRect(from, bottom - high, Math.max(to - from - 0.5, 0.6), high - part);
  }
}
