/* Collectives: how much is sent, by kind and by group of devices, and a matrix of who sends to whom.
 *
 * Bytes on links are those of rings along each group's order, and of a direct exchange for all-to-all.
 */
const { all, groupings, devices } = mod.collectives;
if (all.length === 0) {
  root.append(element("p", { className: "note" }, "No devices talk in this module: it has no collectives."));
  return {};
}
const MOST_DEVICES = 2048;
const state = { matches: null, kind: "", hovered: null, matrix: null, cells: 0 };
const totalWire = all.reduce((sum, c) => sum + c.wire, 0);

/* Bytes from each device to each other, of the collectives that are shown; devices are taken together where there are
 * more than the picture can hold. */
function matrix(list) {
  const size = Math.min(devices, 256);
  const per = devices / size;
  const sent = new Float64Array(size * size);
  const add = (from, to, n) => {
    if (from < 0 || to < 0 || from >= devices || to >= devices) return;
    sent[Math.floor(from / per) * size + Math.floor(to / per)] += n;
  };
  // Groupings are few: each is walked once, with what all its collectives send.
  const sums = new Map();
  for (const c of list) {
    const key = `${c.grouping}:${c.kind.includes("all-to-all") ? "direct" : "ring"}`;
    sums.set(key, (sums.get(key) ?? 0) + c.wire);
  }
  for (const [key, wire] of sums) {
    const [grouping, way] = key.split(":");
    const { groups, is_pairs: isPairs } = groupings[grouping];
    for (const group of groups) {
      const n = group.length;
      if (isPairs) add(group[0], group[1], wire);
      else if (way === "ring") for (let k = 0; k < n; k++) add(group[k], group[(k + 1) % n], n > 1 ? wire : 0);
      else if (n <= 512) for (let a = 0; a < n; a++) for (let b = 0; b < n; b++) if (a !== b) add(group[a], group[b], wire / (n - 1));
    }
  }
  return { size, per, sent, most: sent.reduce((a, b) => Math.max(a, b), 0) };
}

const canvas = element("canvas", { id: "link-matrix", tabIndex: 0, role: "img", "aria-label": "Bytes from each device (rows) to each other (columns)" });
const readout = element("p", { className: "quiet", "aria-live": "polite" });

function draw() {
  if (canvas.clientWidth === 0) return;
  const c = context(canvas);
  const m = state.matrix;
  const margin = 34;
  const side = Math.min(canvas.clientWidth - margin - 4, canvas.clientHeight - margin - 4);
  const cell = side / m.size;
  state.cells = { margin, cell };
  c.fillStyle = theme.ground;
  c.fillRect(margin, margin, side, side);
  for (let from = 0; from < m.size; from++) {
    for (let to = 0; to < m.size; to++) {
      const n = m.sent[from * m.size + to];
      if (n === 0) continue;
      c.fillStyle = heat(0.15 + 0.85 * (n / m.most));
      c.fillRect(margin + to * cell, margin + from * cell, Math.max(1, cell - (cell > 6 ? 1 : 0)), Math.max(1, cell - (cell > 6 ? 1 : 0)));
      if (cell > 54) {
        c.fillStyle = n / m.most > 0.55 ? theme.panel : theme.ink;
        c.font = `11px ${FONT}`;
        c.textAlign = "center";
        c.textBaseline = "middle";
        c.fillText(bytes(n), margin + (to + 0.5) * cell, margin + (from + 0.5) * cell);
      }
    }
  }
  c.strokeStyle = theme["strong-line"];
  c.lineWidth = 1;
  c.strokeRect(margin - 0.5, margin - 0.5, side + 1, side + 1);
  c.fillStyle = theme.quiet;
  c.font = `11px ${FONT}`;
  c.textAlign = "center";
  c.textBaseline = "middle";
  const every = Math.max(1, Math.ceil((m.size * m.per > 100 ? 34 : 22) / cell));
  for (let d = 0; d < m.size; d += every) {
    c.fillText(String(Math.round(d * m.per)), margin + (d + 0.5) * cell, margin - 10);
    c.fillText(String(Math.round(d * m.per)), margin - 15, margin + (d + 0.5) * cell);
  }
  c.textAlign = "left";
  c.font = `11px ${SANS}`;
  c.fillText("to", margin, 9);
  c.save();
  c.translate(8, margin + 16);
  c.rotate(-Math.PI / 2);
  c.fillText("from", -14, 0);
  c.restore();
}

canvas.addEventListener("pointermove", (event) => {
  const [x, y] = inside(event, canvas);
  const { margin, cell } = state.cells;
  const m = state.matrix;
  const [to, from] = [Math.floor((x - margin) / cell), Math.floor((y - margin) / cell)];
  if (to < 0 || from < 0 || to >= m.size || from >= m.size) return showTip();
  const name = (d) => (m.per > 1 ? `devices ${Math.round(d * m.per)} to ${Math.round((d + 1) * m.per) - 1}` : `device ${d}`);
  showTip(event, `${name(from)} → ${name(to)}`, m.sent[from * m.size + to] ? `${bytes(m.sent[from * m.size + to])} a run` : "nothing");
});
canvas.addEventListener("pointerleave", () => showTip());

/* A bar for each of some parts of all that is sent. */
function bars(title, key, words) {
  const sums = new Map();
  for (const c of all) {
    const line = sums.get(key(c)) ?? { wire: 0, count: 0 };
    line.wire += c.wire;
    line.count += 1;
    sums.set(key(c), line);
  }
  const rows = [...sums].sort((a, b) => b[1].wire - a[1].wire).map(([of, sum]) => {
    const bar = element("span", { className: "bar", role: "presentation" }, element("i"));
    bar.firstChild.style.width = `${(100 * sum.wire) / (totalWire || 1)}%`;
    return element("tr", {}, element("th", { scope: "row" }, words(of)), element("td", { className: "quiet" }, `${exact(sum.count)} ×`), element("td", {}, bar), element("td", { className: "number" }, bytes(sum.wire)), element("td", { className: "quiet number" }, percent(sum.wire, totalWire)));
  });
  return element("div", { className: "panel" }, element("h2", {}, title), element("table", { className: "bars" }, element("tbody", {}, ...rows.slice(0, 12))));
}

const table = new Table([
  { title: "sent", help: "Bytes that each device sends, in all executions", value: (c) => c.wire, cell: (c) => bytes(c.wire) },
  { title: "put in", help: "Bytes of the operands, in all executions", value: (c) => c.bytes_in, cell: (c) => bytes(c.bytes_in) },
  { title: "executed", value: (c) => c.executions, cell: (c) => exact(c.executions) },
  { title: "kind", isText: true, value: (c) => c.kind, cell: (c) => `${c.kind}${c.is_async ? ", async" : ""}` },
  { title: "instruction", isText: true, value: (c) => ins.name(c.instruction), cell: (c) => instructionLink(c.instruction) },
  { title: "devices", isText: true, value: (c) => groupings[c.grouping].label, cell: (c) => groupings[c.grouping].label },
  { title: "shape", isText: true, value: (c) => ins.shape(c.instruction), cell: (c) => clip(ins.shape(c.instruction), 70) },
  { title: "source", isText: true, value: (c) => ins.source(c.instruction) || ins.opName(c.instruction), cell: (c) => clip(ins.source(c.instruction) || ins.opName(c.instruction), 90) },
], { label: "Collectives", selected: (c) => c.instruction === selection.instruction || c.also.includes(selection.instruction) });

const kinds = [...new Set(all.map((c) => c.kind))].sort();
const kindChoice = choice("Kind", [["", "all kinds"], ...kinds.map((k) => [k, k])], (value) => {
  state.kind = value;
  refresh();
});
const filter = element("input", { type: "search", placeholder: "Filter: names, shapes, source", "aria-label": "Filter collectives", autocomplete: "off", spellcheck: false });
filter.addEventListener("input", () => {
  state.matches = searchInstructions(filter.value);
  refresh();
});

function refresh() {
  const list = all.filter((c) => (!state.kind || c.kind === state.kind) && (!state.matches || state.matches[c.instruction]));
  table.setRows(list);
  state.matrix = matrix(list);
  const waiting = list.filter((c) => !c.is_async).length;
  const wire = list.reduce((sum, c) => sum + c.wire, 0);
  readout.textContent = `${count(list.length, "collective")}: each device sends ${bytes(wire)} a run${waiting === 0 ? "" : waiting === list.length ? "; none of them is asynchronous" : `; ${exact(waiting)} of them ${waiting === 1 ? "is" : "are"} not asynchronous`}`;
  draw();
}

const isHuge = devices > MOST_DEVICES || groupings.some((g) => g.groups.length === 0);
root.classList.add("flow");
root.append(
  element("div", { className: "tools" }, kindChoice.label, element("span", { className: "search" }, filter), readout),
  element("div", { className: "columns" },
    element("div", { className: "panel" }, element("h2", {}, "From device to device"), canvas, element("p", { className: "quiet" }, isHuge ? "Groups of very many devices are not drawn." : "Rings along the order of each group are assumed, and a direct exchange for all-to-all.")),
    element("div", { className: "stack" }, bars("By group of devices", (c) => c.grouping, (g) => groupings[g].label), bars("By kind", (c) => c.kind, (k) => k))),
  element("div", { className: "panel fill" }, element("h2", {}, "All collectives"), table.place),
);
refresh();
new ResizeObserver(draw).observe(canvas);
return {
  state,
  show: draw,
  redraw: draw,
  select: (i) => {
    if (i >= 0) table.seek((c) => c.instruction === i || c.also.includes(i));
    else table.render();
  },
  print: (isPrinting) => table.print(isPrinting),
};
