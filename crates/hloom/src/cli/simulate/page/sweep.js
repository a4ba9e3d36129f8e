'use strict';
// A bar for each machine and topology: the step, and what of it is waiting for the network.
const byId = (id) => document.getElementById(id);
const COLOURS = { step: '#4477cc', network: '#cc4444', none: '#bbbbbb' };
const known = DATA.rows.filter((r) => r.step_ms !== undefined);
byId('title').textContent = DATA.file + ': milliseconds a step';
[['step', COLOURS.step], ['network waited for', COLOURS.network], ['does not fit', COLOURS.none]].forEach(([name, colour]) => {
  const box = document.createElement('span');
  box.style.background = colour;
  byId('key').append(box, name);
});

function draw() {
  const canvas = byId('plot');
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = 24 * known.length + 8;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = height + 'px';
  const g = canvas.getContext('2d');
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.font = '12px system-ui, sans-serif';
  const ink = window.matchMedia('(prefers-color-scheme: dark)').matches ? '#ddd' : '#222';
  const most = Math.max(...known.map((r) => r.step_ms), 1e-9);
  known.forEach((r, i) => {
    const y = i * 24 + 4;
    const length = (ms) => ms / most * (width - 300);
    g.fillStyle = r.fits ? COLOURS.step : COLOURS.none;
    g.fillRect(180, y, length(r.step_ms), 18);
    g.fillStyle = COLOURS.network;
    g.fillRect(180 + length(r.step_ms - r.exposed_network_ms), y, length(r.exposed_network_ms), 18);
    g.fillStyle = ink;
    g.fillText(r.target + ' ' + r.topology, 4, y + 13);
    g.fillText(r.step_ms.toPrecision(4) + ', ' + r.bound, 186 + length(r.step_ms), y + 13);
  });
}

const columns = ['target', 'topology', 'step_ms', 'device_ms', 'mfu', 'exposed_network_ms', 'main_memory_bytes', 'bound', 'error'];
const head = byId('rows').insertRow();
columns.forEach((c) => { const cell = document.createElement('th'); cell.textContent = c; head.append(cell); });
DATA.rows.forEach((r) => {
  const row = byId('rows').insertRow();
  columns.forEach((c) => {
    const value = r[c];
    row.insertCell().textContent = value === undefined ? '' : typeof value === 'number' ? +value.toPrecision(4) : value;
  });
});
window.addEventListener('resize', draw);
draw();
