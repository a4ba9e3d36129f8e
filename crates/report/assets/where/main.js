/* Where it goes: a flame graph or treemap of a measure by the source's own structure, and a table of what is in focus. */
const hasScopes = columns.op_name.some(Boolean);
const state = { by: hasScopes ? "op_name" : "fusion", metric: metrics[0].key, form: hasScopes ? "flame" : "treemap", rows: "instructions", focus: null, tree: null, matches: null, boxes: [], hovered: null, matched: null };

const byChoice = choice("By", Object.entries(groupings).map(([key, g]) => [key, g.title]), (value) => change({ by: value }));
const metricChoice = choice("Measure", metrics.map((m) => [m.key, m.title]), (value) => change({ metric: value }));
const formChoice = choice("As", [["flame", "flame graph"], ["treemap", "treemap"]], (value) => change({ form: value }));
const rowsChoice = choice("Table of", [["instructions", "instructions"], ["groups", "parts"]], (value) => change({ rows: value }));
const filter = element("input", { type: "search", placeholder: "Filter: names, opcodes, shapes, source", "aria-label": "Filter by name, opcode, shape or source", autocomplete: "off", spellcheck: false });
const found = element("output", { className: "quiet", "aria-live": "polite" });
const crumbs = element("nav", { className: "crumbs", "aria-label": "Path to what is in focus" });
const canvas = element("canvas", { className: "picture", tabIndex: 0, role: "application", "aria-label": "Shares as boxes. Arrows move, Enter goes into a box, Backspace goes out; the table below says the same in text." });

const NAME = { title: "instruction", isText: true, value: (i) => ins.name(i), cell: (i) => instructionLink(i) };
const instructionTable = () => new Table([
  ...metrics.filter((m) => m.key !== "count").map((m) => ({ title: m.title, value: (i) => insideOf(m)[i], cell: (i) => (insideOf(m)[i] ? m.words(insideOf(m)[i]) : "") })),
  { title: "share", value: (i) => insideOf(metric(state.metric))[i], cell: (i) => percent(insideOf(metric(state.metric))[i], metric(state.metric).total) },
  NAME,
  { title: "opcode", isText: true, value: (i) => ins.opcode(i), cell: (i) => ins.opcode(i) },
  { title: "shape", isText: true, value: (i) => ins.shape(i), cell: (i) => clip(ins.shape(i), 80) },
  { title: "source", isText: true, value: (i) => ins.source(i) || ins.opName(i), cell: (i) => clip(ins.source(i) || ins.opName(i), 120) },
], { label: "Instructions in focus", sorted: Math.max(0, metrics.findIndex((m) => m.key === state.metric)), selected: (i) => i === selection.instruction });
const groupTable = () => new Table([
  { title: "sum", value: (n) => n.value, cell: (n) => metric(state.metric).words(n.value) },
  { title: "share", value: (n) => n.value, cell: (n) => percent(n.value, state.tree.value) },
  { title: "parts", value: (n) => n.children.size, cell: (n) => exact(n.children.size) },
  { title: "name", isText: true, value: (n) => n.name, cell: (n) => button(clip(n.name, 160), { className: "link mono" }, () => focusOn(n)) },
], { label: "Parts of what is in focus" });
let table = null;
const tablePlace = element("div", { className: "grow" });

root.append(
  element("div", { className: "tools" }, metricChoice.label, byChoice.label, formChoice.label, rowsChoice.label, element("span", { className: "search" }, filter, found)),
  crumbs, canvas, tablePlace,
);
byChoice.select.value = state.by;
formChoice.select.value = state.form;
filter.addEventListener("input", () => change({ matches: searchInstructions(filter.value) }));

function change(what) {
  Object.assign(state, what);
  state.tree = makeTree(state.by, metric(state.metric).of, state.matches);
  if (state.tree.value > 0) {
    // Scopes that hold everything are walked through at once.
    let top = state.tree;
    while (top.children.size === 1 && top.sorted[0].value === top.value && top.sorted[0].children.size) [top] = top.sorted;
    state.focus = top;
  } else {
    state.focus = state.tree;
  }
  table = null;
  focusOn(state.focus);
}

function focusOn(node) {
  state.focus = node;
  crumbs.replaceChildren(...node.path.flatMap((n, k) => [k ? element("span", { className: "quiet" }, "/") : "", n === node ? element("b", { className: "mono" }, clip(n.name, 80)) : button(clip(n.name, 80), { className: "link mono" }, () => focusOn(n))]),
    element("span", { className: "quiet" }, ` ${metric(state.metric).words(node.value)}, ${percent(node.value, metric(state.metric).total) || "0 %"}`));
  // A flame graph is as high as its tree is deep, within reason.
  const rows = state.form === "flame" ? node.depth + height(node) + 1 : 99;
  canvas.style.height = `${Math.max(4, rows) * FLAME_ROW + 2}px`;
  fillTable();
  draw();
}

function fillTable() {
  const wanted = state.rows === "groups" ? "groups" : "instructions";
  if (!table) {
    table = wanted === "groups" ? groupTable() : instructionTable();
    tablePlace.replaceChildren(table.place);
  }
  if (wanted === "groups") {
    found.textContent = count(state.focus.children.size, "part");
    return table.setRows(state.focus.sorted.slice());
  }
  const list = state.focus.all();
  // What is fused is told by the fusion, unless the fusion itself is elsewhere.
  const rows = [...new Set(list.map((i) => executedAs[i]))];
  found.textContent = count(rows.length, "instruction");
  table.setRows(rows);
}

function draw() {
  const c = context(canvas);
  const { clientWidth: width, clientHeight: height } = canvas;
  if (width === 0 || !state.tree) return;
  c.font = `11.5px ${FONT}`;
  c.textBaseline = "middle";
  if (!(state.tree.value > 0)) {
    c.fillStyle = theme.quiet;
    c.font = `13px ${SANS}`;
    c.fillText(state.matches ? "Nothing that costs anything matches." : "Nothing here costs anything.", 14, 24);
    state.boxes = [];
    return;
  }
  state.boxes = state.form === "flame" ? flameBoxes(state.focus, width, height) : treemapBoxes(state.focus, width, height);
  for (const box of state.boxes) drawNode(c, box, metric(state.metric).words, true);
  c.globalAlpha = 1;
  const mark = (box, colour, thick) => {
    c.strokeStyle = colour;
    c.lineWidth = thick;
    c.strokeRect(box.x + thick / 2, box.y + thick / 2, Math.max(2, box.width - 1 - thick), box.height - 1 - thick);
  };
  const chosen = selection.instruction;
  for (const box of state.boxes) if (chosen >= 0 && box.node.instructions.includes(chosen)) mark(box, theme.accent, 2.5);
  const hovered = state.boxes.find((b) => b.node === state.hovered);
  if (hovered) mark(hovered, theme.ink, 1.5);
}

/* The innermost box at a point: the last that was drawn. */
const boxAt = (x, y) => state.boxes.findLast((b) => x >= b.x && x < b.x + b.width && y >= b.y && y < b.y + b.height);
const ask = frames(draw);

pointers(canvas, {
  hover: (x, y, event) => {
    const box = boxAt(x, y);
    state.hovered = box?.node ?? null;
    if (box) {
      const { node } = box;
      const m = metric(state.metric);
      showTip(event, node.name, `${m.words(node.value)}, ${percent(node.value, m.total)} of all`, node.instructions.length === 1 ? `${ins.opcode(node.instructions[0])} ${ins.shape(node.instructions[0])}` : node.instructions.length ? count(node.instructions.length, "instruction") : "");
    } else showTip();
    ask();
  },
  leave: () => {
    state.hovered = null;
    ask();
  },
  click: (x, y) => {
    const box = boxAt(x, y);
    if (box) enter(box.node);
  },
  drag: () => {},
  pinch: () => {},
});

/* Into a part; at the end of a path, to its instruction. */
function enter(node) {
  if (node === state.focus && node.parent) return focusOn(node.parent);
  if (node.children.size === 0 && node.instructions.length === 1) return goTo("where", node.instructions[0]);
  focusOn(node);
}

new ResizeObserver(draw).observe(canvas);

function keys(event) {
  if (event.key === "/") {
    filter.focus();
    return true;
  }
  if (event.target !== canvas) return false;
  const siblings = (state.hovered?.parent ?? state.focus).sorted;
  const at = siblings.indexOf(state.hovered);
  const moves = {
    ArrowRight: () => siblings[Math.min(siblings.length - 1, at + 1)],
    ArrowLeft: () => siblings[Math.max(0, at - 1)],
    ArrowDown: () => (state.hovered ?? state.focus).sorted[0] ?? state.hovered,
    ArrowUp: () => state.hovered?.parent ?? state.focus,
  };
  if (moves[event.key]) state.hovered = moves[event.key]();
  else if (event.key === "Enter" && state.hovered) enter(state.hovered);
  else if (event.key === "Backspace" && state.focus.parent) focusOn(state.focus.parent);
  else return false;
  draw();
  return true;
}

change({});
return {
  state,
  show: draw,
  redraw: draw,
  keys,
  change,
  focusOn,
  select: (i) => {
    draw();
    if (i >= 0 && state.rows === "instructions") table.seek((row) => row === i || row === executedAs[i]);
    else table.render();
  },
  print: (isPrinting) => table.print(isPrinting),
};
