/* Drawing: the map of boxes over time, and above it the curve of bytes in use. Both have the same scale of time.
 *
 * Only what is in sight is drawn, at most once per refresh of the screen. Boxes are painted into a layer of their own as
 * rows of pixels, which is many times faster than a call for each; the layer stays while only the pointer moves.
 */
const GUTTER = 98;
const AXIS = 22;
const LABEL = 11.5;
/* Between the scale and the boxes: a bar for each allocation, and the kind beside it. */
const BAND = 28;

const mapCanvas = element("canvas", { id: "memory-map", tabIndex: 0, role: "application", "aria-label": "Memory map: steps of the schedule from left to right, addresses from bottom to top", "aria-describedby": "memory-keys" });
const curveCanvas = element("canvas", { id: "memory-curve", "aria-hidden": "true" });

const view = { left: 0, right: 1, low: 0, high: 1 };
const shown = {
  space: 0,
  boxes: null,
  colours: null,
  matches: null,
  hovered: -1,
  selected: -1,
  cursor: null,
  moment: 0,
  drawn: 0,
};
const layer = { canvas: document.createElement("canvas"), image: null, pixels: null, labelled: [], key: "" };
/* Goes up with whatever changes the boxes' looks other than the view. */
let look = 0;

/* The part of the map that shows boxes, in CSS pixels. */
const plot = () => ({
  left: GUTTER,
  top: 6,
  width: Math.max(1, mapCanvas.clientWidth - GUTTER - 10),
  height: Math.max(1, mapCanvas.clientHeight - AXIS - 6),
});

function scales() {
  const area = plot();
  const perStep = area.width / (view.right - view.left);
  const perByte = area.height / (view.high - view.low);
  const x = (step) => area.left + (step - view.left) * perStep;
  const y = (address) => area.top + area.height - (address - view.low) * perByte;
  const step = (px) => view.left + (px - area.left) / perStep;
  const address = (py) => view.low + (area.top + area.height - py) / perByte;
  return { area, perStep, perByte, x, y, step, address };
}

/* Keeps the view within the plan and not too near. */
function clampView() {
  const clamp = (from, to, size, least) => {
    const span = Math.min(size, Math.max(least, to - from));
    const middle = (from + to) / 2;
    const start = Math.min(Math.max(0, middle - span / 2), size - span);
    return [start, start + span];
  };
  const boxes = shown.boxes;
  [view.left, view.right] = clamp(view.left, view.right, plan.steps + 1, 1);
  [view.low, view.high] = clamp(view.low, view.high, boxes.height || 1, Math.min(boxes.height || 1, 1));
}

function setView(left, right, low, high) {
  Object.assign(view, { left, right, low, high });
  clampView();
  ask();
}

function draw() {
  if (mapCanvas.clientWidth === 0) return;
  drawMap();
  drawCurve();
}

const ask = frames(draw);

/* Where a box is on the screen: on whole pixels, and small ones stay visible. */
function place(b, s) {
  const boxes = shown.boxes;
  const { area } = s;
  const left = Math.round(Math.max(area.left, s.x(boxes.left[b])));
  const right = Math.round(Math.min(area.left + area.width, s.x(boxes.right[b])));
  const top = Math.round(Math.max(area.top, s.y(boxes.high[b])));
  const bottom = Math.round(Math.min(area.top + area.height, s.y(boxes.low[b])));
  const width = Math.max(1, right - left);
  const height = Math.max(1, bottom - top);
  return { left, top: Math.min(top, area.top + area.height - 1), width, height };
}

function drawMap() {
  const c = context(mapCanvas);
  const s = scales();
  drawGrid(c, s);
  paint(s);
  const { area } = s;
  c.drawImage(layer.canvas, area.left, area.top, area.width, area.height);
  c.save();
  c.beginPath();
  c.rect(area.left, area.top, area.width, area.height);
  c.clip();
  for (const b of layer.labelled) drawLabel(c, b, place(b, s));
  drawMarks(c, s);
  c.restore();
}

/* Brings the layer of boxes up to date. */
function paint(s) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(1, Math.round(s.area.width * ratio));
  const height = Math.max(1, Math.round(s.area.height * ratio));
  const key = [look, width, height, view.left, view.right, view.low, view.high].join();
  if (key === layer.key) return;
  layer.key = key;
  const c = layer.canvas.getContext("2d");
  if (!layer.image || layer.image.width !== width || layer.image.height !== height) {
    [layer.canvas.width, layer.canvas.height] = [width, height];
    layer.image = c.createImageData(width, height);
    layer.pixels = new Uint32Array(layer.image.data.buffer);
  }
  layer.pixels.fill(0);
  layer.labelled = [];
  shown.drawn = 0;
  const { boxes, matches } = shown;
  // What the search did not find lies faint below what it found.
  if (matches) paintBoxes(s, width, height, theme.faint, (b) => !matches[boxes.value[b]]);
  paintBoxes(s, width, height, theme.plain, matches ? (b) => matches[boxes.value[b]] : null, layer.labelled);
  c.putImageData(layer.image, 0, 0);
}

function paintBoxes(s, width, height, fills, wanted, labelled) {
  const { boxes, colours } = shown;
  const { pixels } = layer;
  const { left: lefts, right: rights, low: lows, high: highs, value } = boxes;
  const perStep = width / (view.right - view.left);
  const perByte = height / (view.high - view.low);
  const ratio = width / s.area.width;
  const labelWidth = 30 * ratio;
  const labelHeight = 11 * ratio;
  boxes.within(view.left, view.right, view.low, view.high, (b) => {
    if (wanted && !wanted(b)) return;
    const left = Math.min(width - 1, Math.max(0, Math.round((lefts[b] - view.left) * perStep)));
    const top = Math.min(height - 1, Math.max(0, Math.round((view.high - highs[b]) * perByte)));
    const right = Math.max(left + 1, Math.min(width, Math.round((rights[b] - view.left) * perStep)));
    const bottom = Math.max(top + 1, Math.min(height, Math.round((view.high - lows[b]) * perByte)));
    // A hair of ground between boxes tells them apart where there is room for it.
    const end = right - left > 5 ? right - 1 : right;
    const floor = bottom - top > 5 ? bottom - 1 : bottom;
    const fill = fills[colours.numbers[value[b]]];
    for (let row = top * width; row < floor * width; row += width) {
      // For a few pixels a loop is faster than a call.
      if (end - left > 40) pixels.fill(fill, row + left, row + end);
      else for (let x = row + left; x < row + end; x++) pixels[x] = fill;
    }
    shown.drawn += 1;
    if (labelled && right - left > labelWidth && bottom - top >= labelHeight) labelled.push(b);
  });
}

function drawLabel(c, b, r) {
  const v = shown.boxes.value[b];
  c.font = `${LABEL}px ${FONT}`;
  c.textBaseline = "middle";
  c.fillStyle = theme["box-ink"];
  const letters = Math.floor((r.width - 9) / (LABEL * 0.602));
  const fit = (word) => (word.length <= letters ? word : letters > 3 ? `${word.slice(0, letters - 1)}…` : "");
  const row = LABEL + 3;
  const rows = r.height >= 4 * row + 8 ? 4 : r.height >= 2 * row + 4 ? 2 : 1;
  const first = rows === 1 ? r.top + (r.height - 1) / 2 : r.top + 4 + row / 2;
  const lines = [nameOf(v), bytes(values.size[v]), opcodeOf(v), text(values.shape[v])];
  for (let i = 0; i < rows; i++) {
    c.globalAlpha = i === 0 ? 1 : 0.72;
    c.fillText(fit(lines[i]), r.left + 4, first + i * row + 0.5);
  }
  c.globalAlpha = 1;
}

/* Lines between allocations, and the scales. */
function drawGrid(c, s) {
  const { area } = s;
  const bottom = area.top + area.height;
  c.font = `11px ${FONT}`;
  c.textBaseline = "middle";
  c.lineWidth = 1;
  const byBytes = tools.scale.select.value === "bytes";
  if (byBytes) {
    c.textAlign = "right";
    const wanted = (view.high - view.low) / Math.max(2, area.height / 56);
    const tick = 2 ** Math.ceil(Math.log2(Math.max(1, wanted)));
    for (let a = Math.ceil(view.low / tick) * tick; a <= view.high; a += tick) {
      const y = Math.round(s.y(a)) + 0.5;
      c.strokeStyle = theme.line;
      line(c, area.left, y, area.left + area.width, y);
      c.fillStyle = theme.quiet;
      c.fillText(tickBytes(a, tick), area.left - BAND, Math.min(bottom - 5, Math.max(area.top + 6, y)), area.left - BAND - 2);
    }
  }
  drawAllocations(c, s, byBytes);
  c.font = `11px ${FONT}`;
  c.textAlign = "center";
  const wanted = (view.right - view.left) / Math.max(2, area.width / 90);
  const magnitude = 10 ** Math.floor(Math.log10(Math.max(1, wanted)));
  const tick = [1, 2, 5, 10].map((n) => n * magnitude).find((n) => n >= wanted) ?? 1;
  for (let t = Math.ceil(view.left / tick) * tick; t <= view.right; t += tick) {
    const x = Math.round(s.x(t)) + 0.5;
    if (x > area.left + area.width) break;
    c.strokeStyle = theme.line;
    line(c, x, area.top, x, bottom);
    c.fillStyle = theme.quiet;
    c.fillText(String(t), Math.min(x, area.left + area.width - 12), bottom + 12);
  }
  c.textAlign = "right";
  c.fillText("step", area.left - BAND, bottom + 12);
  c.textAlign = "left";
}

/* A place on the scale of bytes, in the largest unit in which the distance of its marks can be told. */
function tickBytes(n, tick) {
  if (n === 0) return "0";
  let unit = Math.min(UNITS.length - 1, Math.floor(Math.log2(n) / 10));
  while (unit > 0 && tick < 1024 ** unit / 4) unit -= 1;
  const digits = Math.max(0, Math.round(10 * unit - Math.log2(tick)));
  return `${(n / 1024 ** unit).toLocaleString("en", { minimumFractionDigits: digits })} ${UNITS[unit]}`;
}

/* A bar for each allocation, and the name of its kind along those that have it. */
function drawAllocations(c, s, byBytes) {
  const { area } = s;
  const bottom = area.top + area.height;
  const { allocations, lanes } = shown.boxes;
  const reach = new Map();
  allocations.forEach((a, i) => {
    const [low, high] = lanes[i];
    if (high < view.low || low > view.high) return;
    const top = Math.max(area.top, s.y(high));
    const end = Math.min(bottom, s.y(low));
    const kind = plan.allocations.kind[a];
    const before = reach.get(kind);
    reach.set(kind, [Math.min(top, before ? before[0] : top), Math.max(end, before ? before[1] : end)]);
    c.fillStyle = theme["strong-line"];
    c.fillRect(area.left - 6, top + 0.5, 3, Math.max(1, end - top - 1));
    if (end - top < 3) return;
    c.strokeStyle = theme["strong-line"];
    const y = Math.round(top) + 0.5;
    line(c, area.left - 6, y, area.left + area.width, y);
    if (!byBytes && end - top > 12) {
      c.fillStyle = theme.quiet;
      c.textAlign = "right";
      c.fillText(`#${a}`, area.left - BAND, (top + end) / 2);
    }
  });
  c.font = `11px ${SANS}`;
  c.textAlign = "center";
  c.fillStyle = theme.quiet;
  for (const [kind, [top, end]] of reach) {
    const name = KIND_PLURALS[kind];
    if (c.measureText(name).width + 6 > end - top) continue;
    c.save();
    c.translate(area.left - 15, (top + end) / 2);
    c.rotate(-Math.PI / 2);
    c.fillText(name, 0, 0);
    c.restore();
  }
}

/* The peak, the cursor, and what is hovered and selected with the steps that use it. */
function drawMarks(c, s) {
  const { area } = s;
  const boxes = shown.boxes;
  drawMoments(c, s, area.top, area.top + area.height);
  const outline = (b, colour, width) => {
    const r = place(b, s);
    c.strokeStyle = colour;
    c.lineWidth = width;
    // Around the box, so that a low one is not hidden by its own outline.
    c.strokeRect(r.left - width / 2, r.top - width / 2, r.width + width - 1, r.height + width - 1);
  };
  if (shown.matches) {
    c.globalAlpha = 0.9;
    boxes.within(view.left, view.right, view.low, view.high, (b) => {
      if (shown.matches[boxes.value[b]]) outline(b, theme.accent, 1);
    });
    c.globalAlpha = 1;
  }
  if (shown.hovered >= 0) outline(shown.hovered, theme.ink, 1.5);
  const b = boxes.boxOf.get(shown.selected);
  if (b === undefined) return;
  outline(b, theme.accent, 2.5);
  const r = place(b, s);
  c.fillStyle = theme.accent;
  for (const user of listOf(plan.users, shown.selected)) {
    if (user >= plan.steps) continue;
    const x = s.x(user + 0.5);
    c.beginPath();
    c.moveTo(x, r.top + r.height - 1);
    c.lineTo(x - 4, r.top + r.height + 7);
    c.lineTo(x + 4, r.top + r.height + 7);
    c.fill();
  }
}

/* The vertical lines that both pictures have. */
function drawMoments(c, s, top, bottom) {
  const mark = (step, colour, dash) => {
    const x = Math.round(s.x(step + 0.5)) + 0.5;
    if (x < s.area.left || x > s.area.left + s.area.width) return;
    c.strokeStyle = colour;
    c.lineWidth = 1;
    c.setLineDash(dash);
    line(c, x, top, x, bottom);
    c.setLineDash([]);
  };
  mark(shown.boxes.peak, theme.peak, []);
  if (shown.moment !== shown.boxes.peak) mark(shown.moment, theme.accent, []);
  if (shown.cursor !== null) mark(shown.cursor, theme.quiet, [3, 3]);
}

function drawCurve() {
  const c = context(curveCanvas);
  const s = scales();
  const { live, total, peak } = shown.boxes;
  const top = 30;
  const bottom = curveCanvas.clientHeight - 8;
  const most = Math.max(1, total, live[peak]);
  const y = (n) => bottom - (n / most) * (bottom - top);
  c.font = `11px ${FONT}`;
  c.textBaseline = "middle";
  c.textAlign = "right";
  for (const part of [0, 0.5, 1]) {
    const at = Math.round(y(most * part)) + 0.5;
    c.strokeStyle = theme.line;
    line(c, s.area.left, at, s.area.left + s.area.width, at);
    c.fillStyle = theme.quiet;
    c.fillText(part === 0 ? "0" : bytes(most * part), s.area.left - BAND, at);
  }
  c.save();
  c.beginPath();
  c.rect(s.area.left, 0, s.area.width, bottom + 1);
  c.clip();
  // For each column of pixels the most of its steps, so that no peak is lost between two of them.
  c.beginPath();
  c.moveTo(s.area.left, bottom);
  const columns = Math.ceil(s.area.width);
  for (let column = 0; column <= columns; column++) {
    const from = Math.max(0, Math.floor(s.step(s.area.left + column)));
    const to = Math.min(live.length - 1, Math.max(from, Math.ceil(s.step(s.area.left + column + 1)) - 1));
    let highest = 0;
    for (let t = from; t <= to; t++) highest = Math.max(highest, live[t]);
    c.lineTo(s.area.left + column, y(highest));
    c.lineTo(s.area.left + column + 1, y(highest));
  }
  c.lineTo(s.area.left + columns + 1, bottom);
  c.fillStyle = theme["curve-fill"];
  c.fill();
  c.strokeStyle = theme.curve;
  c.lineWidth = 1.5;
  c.stroke();
  c.strokeStyle = theme["strong-line"];
  c.setLineDash([5, 4]);
  line(c, s.area.left, Math.round(y(total)) + 0.5, s.area.left + s.area.width, Math.round(y(total)) + 0.5);
  c.setLineDash([]);
  drawMoments(c, s, top, bottom);
  const x = s.x(peak + 0.5);
  c.fillStyle = theme.peak;
  c.beginPath();
  c.arc(x, y(live[peak]), 3.5, 0, 7);
  c.fill();
  c.restore();
  drawReadout(c, s);
}

/* Above the curve: what is allocated, the peak, and what is in use under the cursor. */
function drawReadout(c, s) {
  const { live, total, peak } = shown.boxes;
  c.font = `12.5px ${SANS}`;
  c.textAlign = "left";
  let x = s.area.left;
  const say = (words, colour) => {
    c.fillStyle = colour;
    c.fillText(words, x, 14);
    x += c.measureText(words).width + 18;
  };
  say(`allocated ${bytes(total)}`, theme.quiet);
  say(`peak ${bytes(live[peak])} at step ${peak}, ${clip(stepName(peak), 44)}`, theme.peak);
  if (shown.cursor !== null && shown.cursor < live.length) {
    say(`step ${shown.cursor}, ${clip(stepName(shown.cursor), 44)}: ${bytes(live[shown.cursor])}`, theme.ink);
  }
}

/* The box under a point of the map: of several, the smallest, since it was the hardest to hit. */
function boxAt(px, py) {
  const s = scales();
  const { area } = s;
  if (px < area.left || px > area.left + area.width || py < area.top || py > area.top + area.height) return -1;
  const boxes = shown.boxes;
  // What is drawn larger than it is can be hit where it is drawn.
  const slackX = 1 / s.perStep;
  const slackY = 1 / s.perByte;
  let best = -1;
  let bestSize = Infinity;
  const [t, a] = [s.step(px), s.address(py)];
  boxes.within(t - slackX, t + slackX, a - slackY, a + slackY, (b) => {
    const r = place(b, s);
    if (px < r.left || px >= r.left + r.width || py < r.top || py >= r.top + r.height) return;
    const size = r.width * r.height;
    if (size < bestSize) [best, bestSize] = [b, size];
  });
  return best;
}
