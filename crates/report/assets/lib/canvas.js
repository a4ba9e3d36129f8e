/* Drawing: the colours of the page's style as the script needs them, and canvases as sharp as the screen. */
const PALETTE = 12;
const FONT = 'ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", Menlo, monospace';
const SANS = 'system-ui, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif';
const theme = {};

function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  const names = ["ground", "panel", "ink", "quiet", "line", "strong-line", "accent", "peak", "curve", "curve-fill", "box-ink", "exposed"];
  for (const name of names) theme[name] = of(`--${name}`);
  theme.dim = Number(of("--dim"));
  theme.fills = Array.from({ length: PALETTE + 1 }, (_, i) => of(`--c${i}`));
  theme.heat = [0, 1, 2, 3].map((i) => channels(of(`--heat${i}`)));
  theme.plain = theme.fills.map((f) => packed(f, 1));
  theme.faint = theme.fills.map((f) => packed(f, theme.dim));
}

const channels = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));

/* A colour as a pixel of an ImageData seen as 32-bit numbers. */
function packed(colour, alpha) {
  const [r, g, b] = channels(colour);
  return ((Math.round(alpha * 255) << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

/* From little (0) to much (1). */
function heat(share) {
  const at = Math.min(1, Math.max(0, share)) * (theme.heat.length - 1);
  const low = Math.min(theme.heat.length - 2, Math.floor(at));
  const mixed = theme.heat[low].map((from, i) => Math.round(from + (theme.heat[low + 1][i] - from) * (at - low)));
  return `rgb(${mixed.join()})`;
}

/* The context of a canvas, cleared, in CSS pixels. */
function context(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * ratio);
  const height = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  return c;
}

function line(c, x0, y0, x1, y1) {
  c.beginPath();
  c.moveTo(x0, y0);
  c.lineTo(x1, y1);
  c.stroke();
}

/* Calls `draw` at most once per refresh of the screen, however often it is asked. */
function frames(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}

/* Where an event is in a canvas. */
function inside(event, canvas) {
  const r = canvas.getBoundingClientRect();
  return [event.clientX - r.left, event.clientY - r.top];
}

/* Pointers on a canvas: hover, click, drag and pinch, told apart. `drag` gets the way in pixels, `pinch` a factor and the
 * middle of both fingers, `click` and `hover` a point. */
function pointers(canvas, { hover, leave, click, drag, pinch }) {
  const held = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    held.set(event.pointerId, [event.clientX, event.clientY]);
    if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = held.get(event.pointerId);
    if (!before) return hover(...inside(event, canvas), event);
    const now = [event.clientX, event.clientY];
    moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
    held.set(event.pointerId, now);
    if (held.size === 2) {
      const other = [...held].find(([id]) => id !== event.pointerId)[1];
      const distance = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]) || 1;
      const r = canvas.getBoundingClientRect();
      pinch(distance(before) / distance(now), (now[0] + other[0]) / 2 - r.left, (now[1] + other[1]) / 2 - r.top);
    } else if (moved > 4) {
      canvas.classList.add("dragging");
      showTip();
      drag(now[0] - before[0], now[1] - before[1]);
    }
  });
  const release = (event) => {
    const wasClick = held.delete(event.pointerId) && moved <= 4 && event.type === "pointerup";
    canvas.classList.remove("dragging");
    if (wasClick) click(...inside(event, canvas), event);
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => {
    showTip();
    leave();
  });
}

/* How much a turn of the wheel zooms: less than 1 is nearer. */
const wheelFactor = (event) => Math.exp((event.deltaY || event.deltaX) * (event.deltaMode === 1 ? 16 : 1) * 0.0016);

/* Which colour each of many things gets by its key: the twelve keys of most weight have their own, the rest one. */
function colouring(keys, weights) {
  const weight = new Map();
  keys.forEach((name, i) => weight.set(name, (weight.get(name) || 0) + weights[i]));
  const named = [...weight.keys()].filter(Boolean);
  // The largest first; where two are as large, by name, so that a page always looks the same.
  named.sort((a, b) => weight.get(b) - weight.get(a) || (a < b ? -1 : 1));
  const number = new Map(named.slice(0, PALETTE).map((name, i) => [name, i]));
  const numbers = Uint8Array.from(keys, (name) => number.get(name) ?? PALETTE);
  const names = named.slice(0, PALETTE);
  names[PALETTE] = named.length > PALETTE ? "others" : "not known";
  return { numbers, names };
}

/* What the colours mean: those numbers that are used. */
function legend(place, names, used) {
  const entries = [...used].sort((a, b) => a - b).map((number) => {
    const swatch = element("i");
    swatch.style.background = theme.fills[number];
    return element("span", { title: names[number] }, swatch, element("em", {}, clip(names[number], 120)));
  });
  place.replaceChildren(...entries);
}
