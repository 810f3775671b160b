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
  context.font = "12px system-ui, sans-serif";
  return context;
}

// Ticks of a linear axis from 0: three to five, the last at or above `max`.
function linearTicks(max) {
  const unit = 10 ** Math.floor(Math.log10(max / 2)), step = [1, 2, 2.5, 5, 10].map((k) => k * unit).find((k) => k * 4 >= max);
  return Array.from({ length: Math.ceil(max / step) + 1 }, (_, i) => i * step);
}

// Ticks of a logarithmic axis: the powers of ten around all values.
function decades(values) {
  const from = Math.floor(Math.log10(Math.min(...values, 10))), to = Math.max(from + 1, Math.ceil(Math.log10(Math.max(...values, 1000))));
  return Array.from({ length: to - from + 1 }, (_, i) => 10 ** (from + i));
}

const short = (v) => (v >= 1e6 ? v / 1e6 + "M" : v >= 1000 ? v / 1000 + "k" : String(v));
const shortTime = (ms) => (ms >= 1000 ? ms / 1000 + " s" : ms + " ms");
const ago = (ms) => (ms === 0 ? "now" : ms < 90e3 ? `−${ms / 1e3} s` : `−${ms / 60e3} min`);

// Means of the points in as many parts of the time as there is room for.
function thinned(points, part) {
  const out = [];
  for (const [at, value] of points) {
    const key = Math.floor(at / part), lastOne = out.at(-1);
    if (lastOne?.key === key) lastOne.sum += value, lastOne.n++;
    else out.push({ key, at, sum: value, n: 1 });
  }
  return out.map((p) => [p.at, p.sum / p.n]);
}

// series: [{colour, points: [[ms, value], …], dots}], the newest last; now and span in ms. `latency`: times on a logarithmic axis.
export function plotLines(canvas, series, now, span, latency) {
  const w = canvas.clientWidth, h = canvas.clientHeight, left = 52, right = w - 14, top = 10, bottom = h - 20;
  if (!w) return;
  const c = surface(canvas), seen = series.map((s) => s.points.filter((p) => p[0] >= now - span));
  const values = seen.flat().map((p) => p[1]), max = values.reduce((a, b) => Math.max(a, b), 10);
  const ticks = latency ? decades([values.reduce((a, b) => Math.min(a, Math.max(b, 0.1)), 10), max]) : linearTicks(max);
  const place = latency ? (v) => Math.log10(Math.max(v, ticks[0])) : (v) => v, low = place(ticks[0]), high = place(ticks.at(-1));
  const x = (t) => left + ((t - now + span) / span) * (right - left), y = (v) => bottom - ((place(v) - low) / (high - low)) * (bottom - top);
  c.strokeStyle = colour("line");
  c.fillStyle = colour("soft");
  c.textAlign = "right";
  for (const tick of ticks) {
    c.beginPath();
    c.moveTo(left, y(tick));
    c.lineTo(right, y(tick));
    c.stroke();
    c.fillText(latency ? shortTime(tick) : short(tick), left - 6, y(tick) + 4);
  }
  for (const part of [1, 0.75, 0.5, 0.25, 0]) {
    c.textAlign = part === 1 ? "left" : part === 0 ? "right" : "center";
    if (w > 380 || part % 0.5 === 0) c.fillText(ago(part * span), part === 0 ? right + 8 : x(now - part * span), h - 4);
  }
  series.forEach((s, i) => {
    c.strokeStyle = c.fillStyle = colour(s.colour);
    if (s.dots) {
      c.globalAlpha = 0.75;
      for (const p of seen[i]) c.fillRect(x(p[0]) - 1.5, y(p[1]) - 1.5, 3, 3);
      c.globalAlpha = 1;
      return;
    }
    c.lineWidth = 1.75;
    c.lineJoin = "round";
    c.beginPath();
    thinned(seen[i], span / 240).forEach((p, k) => (k ? c.lineTo(x(p[0]), y(p[1])) : c.moveTo(x(p[0]), y(p[1]))));
    c.stroke();
  });
}

// Steps {id, end, schedule, execute, update (ms), decode, prefill} of the last span ms: as wide as they took, as high as they have tokens.
// After the last one the picture stands still.
export function plotSteps(canvas, steps, now, span) {
  const w = canvas.clientWidth, h = canvas.clientHeight, top = 22, bottom = h - 20;
  if (!w) return;
  const last = steps.at(-1), end = last && now - last.end > span / 2 ? last.end + span / 20 : now;
  const c = surface(canvas), seen = steps.filter((s) => s.end >= end - span);
  const most = Math.log2(1 + Math.max(1, ...seen.map((s) => s.decode + s.prefill)));
  const x = (t) => ((t - end + span) / span) * w;
  c.fillStyle = colour("soft");
  c.textAlign = "right";
  const requests = last?.requests === 1 ? "1 request" : `${last?.requests} requests`;
  if (last) c.fillText(`last: ${requests}, ${last.decode} + ${last.prefill} tokens, ${last.execute.toFixed(1)} ms`, w - 4, 12);
  c.fillText(end === now ? "now" : `${((now - last.end) / 1e3).toFixed(0)} s ago`, w - 4, h - 4);
  c.textAlign = "left";
  c.fillText(w > 520 ? `${span / 1000} seconds; height: tokens, by powers of two` : `${span / 1000} s`, 4, h - 4);
  seen.forEach((s, i) => { // between two that were told there may have been others
    if (!i || s.id === seen[i - 1].id + 1) return;
    c.fillStyle = colour("free");
    c.fillRect(x(seen[i - 1].end), bottom - 4, x(s.end - s.update - s.execute - s.schedule) - x(seen[i - 1].end), 4);
  });
  for (const s of seen) {
    const tokens = s.decode + s.prefill, high = Math.max(2, (Math.log2(1 + tokens) / most) * (bottom - top));
    const from = x(s.end - s.update - s.execute), to = x(s.end - s.update), part = tokens ? (s.decode / tokens) * high : high;
    c.fillStyle = colour("c");
    c.fillRect(x(s.end - s.update - s.execute - s.schedule), bottom - 4, Math.max(x(s.end) - x(s.end - s.update - s.execute - s.schedule), 0.5), 4);
    c.fillStyle = colour("a");
    c.fillRect(from, bottom - part, Math.max(to - from - 0.5, 0.6), part);
    c.fillStyle = colour("b");
    c.fillRect(from, bottom - high, Math.max(to - from - 0.5, 0.6), high - part);
  }
}
