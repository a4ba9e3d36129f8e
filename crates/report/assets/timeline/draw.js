/* Drawing the timeline: a row for each depth of each lane, arcs between the start and the end of what is asynchronous.
 *
 * Many events on one pixel are one box of the colour of the first: at most as many boxes are drawn as a row has pixels.
 */
const LABELS = 168;
const SCALE = 26;
const BAR = 18;
const GAP = 7;

const canvas = element("canvas", { className: "picture grow", tabIndex: 0, role: "application", "aria-label": "Timeline: time from left to right, a row for each engine, thread or link", "aria-describedby": "timeline-keys" });
const view = { from: 0, to: length, top: 0 };
const shown = { hovered: -1, matches: null, colours: null, rows: [], height: 0, drawn: 0 };

/* The height at which each lane begins, all lanes one below another. */
function layOut() {
  let y = 0;
  let group = null;
  shown.rows = lanes.map((lane) => {
    if (lane.group !== group) {
      group = lane.group;
      y += 20;
    }
    const row = { lane, y };
    y += lane.rows * BAR + GAP;
    return row;
  });
  shown.height = y;
}

function scales() {
  const width = Math.max(1, canvas.clientWidth - LABELS - 8);
  const per = width / (view.to - view.from);
  return { width, per, x: (time) => LABELS + (time - view.from) * per, time: (x) => view.from + (x - LABELS) / per };
}

const yOf = (row, e) => SCALE + row.y - view.top + depth[e] * BAR;

function draw() {
  if (canvas.clientWidth === 0) return;
  const c = context(canvas);
  const s = scales();
  const { clientHeight: high } = canvas;
  shown.drawn = 0;
  c.textBaseline = "middle";
  drawScale(c, s, high);
  c.save();
  c.beginPath();
  c.rect(0, SCALE, canvas.clientWidth, high - SCALE);
  c.clip();
  let group = null;
  for (const row of shown.rows) {
    const y = SCALE + row.y - view.top;
    if (row.lane.group !== group) {
      group = row.lane.group;
      c.fillStyle = theme.ink;
      c.font = `600 12px ${SANS}`;
      c.fillText(clip(group, 26), 8, y - 10);
    }
    if (y + row.lane.rows * BAR < SCALE || y > high) continue;
    drawLane(c, s, row, y);
  }
  drawArcs(c, s);
  drawMarks(c, s);
  c.restore();
}

function drawScale(c, s, high) {
  const wanted = (view.to - view.from) / Math.max(2, s.width / 110);
  const magnitude = 10 ** Math.floor(Math.log10(wanted));
  const tick = [1, 2, 5, 10].map((n) => n * magnitude).find((n) => n >= wanted);
  c.font = `11px ${FONT}`;
  c.textAlign = "center";
  for (let k = Math.ceil(view.from / tick); k * tick <= view.to; k++) {
    const x = Math.round(s.x(k * tick)) + 0.5;
    c.strokeStyle = theme.line;
    line(c, x, SCALE - 4, x, high);
    c.fillStyle = theme.quiet;
    c.fillText(duration(Math.max(0, k * tick)), Math.max(x, LABELS + 14), SCALE / 2);
  }
  c.textAlign = "left";
}

function drawLane(c, s, row, y) {
  c.fillStyle = theme.quiet;
  c.font = `12px ${SANS}`;
  c.fillText(clip(row.lane.name, 24), 14, y + BAR / 2);
  c.strokeStyle = theme.line;
  line(c, LABELS, Math.round(y + row.lane.rows * BAR + GAP / 2) + 0.5, canvas.clientWidth, Math.round(y + row.lane.rows * BAR + GAP / 2) + 0.5);
  const reached = new Float64Array(row.lane.rows).fill(-1);
  const labelled = [];
  within(row.lane, view.from, view.to, (e) => {
    const left = Math.max(LABELS, s.x(t.start[e]));
    const right = Math.min(LABELS + s.width, Math.max(s.x(ends[e]), left + 1));
    const isMatched = !shown.matches || shown.matches[e];
    // On a pixel that is taken nothing can be told apart; what is searched for is never hidden.
    if (right <= reached[depth[e]] + 0.5 && !(shown.matches && isMatched)) return;
    reached[depth[e]] = Math.max(reached[depth[e]], Math.floor(right));
    const top = yOf(row, e);
    c.globalAlpha = isMatched ? 1 : theme.dim;
    c.fillStyle = theme.fills[shown.colours.numbers[e]];
    const width = right - left > 4 ? right - left - 1 : right - left;
    c.fillRect(left, top, width, BAR - 2);
    if (isExposed[e] && width > 2) {
      c.fillStyle = theme.exposed;
      c.fillRect(left, top + BAR - 5, width, 3);
    }
    shown.drawn += 1;
    if (width > 34) labelled.push([e, left, top, width]);
  });
  c.globalAlpha = 1;
  c.font = `11px ${FONT}`;
  c.fillStyle = theme["box-ink"];
  for (const [e, left, top, width] of labelled) {
    if (shown.matches && !shown.matches[e]) continue;
    c.fillText(clip(eventName(e), Math.floor((width - 6) / 6.7)), left + 4, top + BAR / 2 - 1);
  }
}

/* From where something starts to where it is waited for. */
function drawArcs(c, s) {
  c.lineWidth = 1.2;
  const chosen = selection.instruction;
  const rowOf = new Map(shown.rows.map((row) => [row.lane, row]));
  for (const [from, to] of t.arcs) {
    const isChosen = chosen >= 0 && (t.instruction[from] === chosen || t.instruction[to] === chosen);
    if (t.start[to] < view.from || t.start[from] > view.to) continue;
    const [x0, x1] = [s.x(ends[from]), s.x(t.start[to])];
    if (x1 - x0 < 3 && !isChosen) continue;
    const [row0, row1] = [rowOf.get(laneOf.get(from)), rowOf.get(laneOf.get(to))];
    if (!row0 || !row1) continue;
    const [y0, y1] = [yOf(row0, from) + BAR - 2, yOf(row1, to) + BAR - 2];
    const bend = Math.min(26, 8 + (x1 - x0) / 8);
    c.strokeStyle = isChosen ? theme.accent : theme.curve;
    c.lineWidth = isChosen ? 2 : 1.2;
    c.beginPath();
    c.moveTo(x0, y0);
    c.bezierCurveTo(x0 + (x1 - x0) * 0.25, y0 + bend, x0 + (x1 - x0) * 0.75, y1 + bend, x1, y1);
    c.stroke();
  }
}

function drawMarks(c, s) {
  const mark = (e, colour, thick) => {
    const row = shown.rows.find((r) => r.lane === laneOf.get(e));
    if (!row || ends[e] < view.from || t.start[e] > view.to) return;
    const left = Math.max(LABELS, s.x(t.start[e]));
    c.strokeStyle = colour;
    c.lineWidth = thick;
    c.strokeRect(left - 0.5, yOf(row, e) - 1, Math.max(3, Math.min(LABELS + s.width, s.x(ends[e])) - left), BAR);
  };
  if (shown.hovered >= 0) mark(shown.hovered, theme.ink, 1.5);
  for (const e of (eventsOf.get(selection.instruction) ?? []).slice(0, 2000)) mark(e, theme.accent, 2.5);
}

/* The event at a point; of several on one pixel the longest. */
function eventAt(px, py) {
  const s = scales();
  if (px < LABELS || py < SCALE) return -1;
  let best = -1;
  for (const row of shown.rows) {
    const y = SCALE + row.y - view.top;
    if (py < y || py >= y + row.lane.rows * BAR) continue;
    const wanted = Math.floor((py - y) / BAR);
    within(row.lane, s.time(px - 1), s.time(px + 1), (e) => {
      if (depth[e] === wanted && (best < 0 || t.duration[e] > t.duration[best])) best = e;
    });
  }
  return best;
}
