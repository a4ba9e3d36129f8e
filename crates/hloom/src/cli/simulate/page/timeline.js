'use strict';
// Draws the timeline of a simulation, and memory below it on the same axis of time.
const COLOURS = ['#4477cc', '#dd9933', '#cc4444', '#999999'];
const ROW = 22;
const byId = (id) => document.getElementById(id);
const dark = window.matchMedia('(prefers-color-scheme: dark)').matches;
const ink = dark ? '#ddd' : '#222';

function time(seconds) {
  const units = [[1, 's'], [1e-3, 'ms'], [1e-6, 'µs'], [1e-9, 'ns']];
  const [scale, unit] = units.find(([scale]) => Math.abs(seconds) >= scale) || units[3];
  return (seconds / scale).toPrecision(3) + ' ' + unit;
}

function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1; }
  return n.toPrecision(3) + ' ' + units[unit];
}

// Rows: for each class its compute lane, and as many lines for copies and exchanges as overlap.
function layOut(events) {
  const rows = [];
  const free = new Map();
  return { rows, placed: events.map((e) => {
    const key = e[0] + '/' + e[1];
    if (!free.has(key)) free.set(key, []);
    const lines = free.get(key);
    let line = lines.findIndex((l) => l.until <= e[3] + 1e-15);
    if (line < 0) {
      if (lines.length >= 8) line = 7;
      else { lines.push({ until: 0, row: -1 }); line = lines.length - 1; }
    }
    lines[line].until = Math.max(lines[line].until, e[4]);
    if (lines[line].row < 0) {
      lines[line].row = rows.length;
      rows.push({ class: e[0], lane: e[1], line });
    }
    return lines[line].row;
  }) };
}

const { rows, placed } = layOut(DATA.events);
const order = rows.map((r, i) => i).sort((a, b) =>
  rows[a].class - rows[b].class || rows[a].lane - rows[b].lane || rows[a].line - rows[b].line);
const place = [];
order.forEach((row, y) => { place[row] = y; });
let from = 0;
let until = DATA.step || 1;
let sought = '';

function fit(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.height_ || (canvas.height_ = +canvas.getAttribute('height'));
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = height + 'px';
  const g = canvas.getContext('2d');
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  g.font = '11px system-ui, sans-serif';
  return { g, width, height };
}

const LEFT = 110;
const toX = (t, width) => LEFT + (t - from) / (until - from) * (width - LEFT);

function axis(g, width, height) {
  g.fillStyle = ink;
  g.strokeStyle = dark ? '#444' : '#ddd';
  const step = Math.pow(10, Math.floor(Math.log10((until - from) / 4)));
  for (let t = Math.ceil(from / step) * step; t < until; t += step * Math.ceil((until - from) / step / 10)) {
    const x = toX(t, width);
    g.beginPath(); g.moveTo(x, 0); g.lineTo(x, height); g.stroke();
    g.fillText(time(t), x + 2, height - 3);
  }
}

function draw() {
  const canvas = byId('timeline');
  canvas.height_ = Math.max(120, rows.length * ROW + 24);
  const { g, width, height } = fit(canvas);
  axis(g, width, height);
  g.save();
  g.beginPath(); g.rect(LEFT, 0, width - LEFT, height); g.clip();
  DATA.events.forEach((e, i) => {
    const [, , name, start, end, bound, rounds, critical] = e;
    if (end < from || start > until) return;
    const x = toX(start, width);
    const w = Math.max(toX(end, width) - x, 0.5);
    const y = place[placed[i]] * ROW + 2;
    const found = sought && DATA.names[name].includes(sought);
    g.globalAlpha = rounds > 1 ? 0.35 : sought && !found ? 0.2 : 0.9;
    g.fillStyle = COLOURS[bound];
    g.fillRect(x, y, w, ROW - 4);
    if (critical && w > 2) { g.strokeStyle = ink; g.strokeRect(x + .5, y + .5, w - 1, ROW - 5); }
    if (w > 40) {
      g.globalAlpha = 1; g.fillStyle = '#fff';
      g.fillText((rounds > 1 ? rounds + ' × ' : '') + DATA.names[name], x + 3, y + 13, w - 6);
    }
  });
  g.restore();
  g.globalAlpha = 1;
  g.fillStyle = ink;
  rows.forEach((r, i) => {
    if (r.line > 0) return;
    const device = DATA.classes.length > 1 ? r.class + ' ' : '';
    g.fillText(device + DATA.lanes[r.lane], 2, place[i] * ROW + 15);
  });
  drawMemory();
}

function drawMemory() {
  const canvas = byId('memory');
  const { g, width, height } = fit(canvas);
  axis(g, width, height);
  DATA.memory.forEach((m, i) => {
    const most = Math.max(m.capacity || 0, ...m.samples.map((s) => s[1]), 1);
    g.strokeStyle = COLOURS[i % COLOURS.length];
    g.beginPath();
    let last = 0;
    m.samples.forEach(([t, n]) => {
      const x = Math.max(LEFT, toX(t, width));
      g.lineTo(x, height - 16 - last / most * (height - 24));
      last = n;
      g.lineTo(x, height - 16 - n / most * (height - 24));
    });
    g.lineTo(width, height - 16 - last / most * (height - 24));
    g.stroke();
    g.fillStyle = COLOURS[i % COLOURS.length];
    g.fillText(m.name, 2, 14 + i * 26);
    g.fillText(bytes(Math.max(0, ...m.samples.map((s) => s[1]))) + (m.capacity ? ' of ' + bytes(m.capacity) : ''), 2, 26 + i * 26);
  });
}

function at(x, y) {
  const canvas = byId('timeline');
  const t = from + (x - LEFT) / (canvas.clientWidth - LEFT) * (until - from);
  const row = Math.floor(y / ROW);
  for (let i = DATA.events.length - 1; i >= 0; i--) {
    const e = DATA.events[i];
    if (place[placed[i]] === row && e[3] <= t && t <= e[4]) return e;
  }
  return null;
}

function listen(canvas) {
  let held = null;
  canvas.addEventListener('wheel', (event) => {
    event.preventDefault();
    const share = Math.max(0, (event.offsetX - LEFT) / (canvas.clientWidth - LEFT));
    const t = from + share * (until - from);
    const span = Math.min(DATA.step || 1, (until - from) * Math.exp(event.deltaY / 400));
    from = Math.max(0, t - share * span);
    until = from + Math.max(span, 1e-10);
    draw();
  }, { passive: false });
  canvas.addEventListener('mousedown', (event) => { held = event.offsetX; });
  window.addEventListener('mouseup', () => { held = null; });
  canvas.addEventListener('dblclick', () => { from = 0; until = DATA.step || 1; draw(); });
  canvas.addEventListener('mousemove', (event) => {
    const tip = byId('tip');
    if (held !== null) {
      const moved = (held - event.offsetX) / (canvas.clientWidth - LEFT) * (until - from);
      held = event.offsetX;
      from = Math.max(0, from + moved);
      until = Math.max(from + 1e-10, until + moved);
      draw();
      return;
    }
    const e = canvas.id === 'timeline' ? at(event.offsetX, event.offsetY) : null;
    tip.style.display = e ? 'block' : 'none';
    if (!e) return;
    const again = e[6] > 1 ? e[6] + ' more rounds of ' : '';
    tip.textContent = again + DATA.names[e[2]] + ' (' + DATA.opcodes[e[2]] + ')\n' + time(e[3]) + ' + ' + time(e[4] - e[3])
      + (e[6] > 1 ? '' : ', bound by ' + DATA.bounds[e[5]]) + (e[7] ? '\non the critical path' : '');
    tip.style.left = Math.min(event.clientX + 12, window.innerWidth - 260) + 'px';
    tip.style.top = event.clientY + 12 + 'px';
  });
  canvas.addEventListener('mouseleave', () => { byId('tip').style.display = 'none'; });
}

byId('title').textContent = DATA.file + ' on ' + DATA.target
  + (DATA.devices > 1 ? ', ' + DATA.devices + ' devices as ' + DATA.topology : '') + ': ' + time(DATA.step) + ' a step, '
  + (DATA.mfu * 100).toFixed(1) + ' % of the peak';
DATA.summary.filter((s) => s[1] > 0).forEach(([name, seconds]) => {
  const row = byId('summary').insertRow();
  [name, time(seconds), (seconds / DATA.step * 100).toFixed(1) + ' %'].forEach((text) => { row.insertCell().textContent = text; });
});
DATA.bounds.forEach((name, i) => {
  const box = document.createElement('span');
  box.style.background = COLOURS[i];
  byId('key').append(box, name);
});
if (DATA.left_out) byId('left_out').textContent = DATA.left_out + ' short events are left out.';
byId('find').addEventListener('input', (event) => { sought = event.target.value; draw(); });
window.addEventListener('resize', draw);
['timeline', 'memory'].forEach((id) => listen(byId(id)));
draw();
