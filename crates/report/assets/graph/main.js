/* What the graph view does: which part of the module is shown, folding, neighbours, paths, colours, pointer and keys. */
const SPACES = new Map((mod.memory?.spaces ?? []).map((s) => [s.memory_space, s.name || "memory"]));
const costs = metrics.filter((m) => m.key !== "count");
const colourChoice = choice("Colour by", [["opcode", "operation"], ...costs.map((m) => [`cost:${m.key}`, m.title]), ["space", "memory space"], ["source", "source line"]], recolour);
const searchBox = element("input", { type: "search", placeholder: "Search names, shapes, source ( / )", "aria-label": "Search nodes", autocomplete: "off", spellcheck: false });
const found = element("output", { className: "quiet", "aria-live": "polite" });
const legendPlace = element("div", { className: "legend", role: "group", "aria-label": "Colours" });
const status = element("p", { className: "quiet", "aria-live": "polite" });
const crumbs = element("div", { className: "crumbs" });
const ask = frames(draw);

/* Computations that run as such, the entry first, then the largest. */
const listed = Array.from({ length: computationCount }, (_, c) => c)
  .filter((c) => c === mod.entry || !(callers.get(c) ?? []).every((i) => ins.opcode(i) === "fusion"))
  .sort((a, b) => (b === mod.entry) - (a === mod.entry) || sizeOf(b) - sizeOf(a)).slice(0, 500);
const computationChoice = choice("Computation", listed.map((c) => [String(c), `${clip(computationName(c), 60)} (${exact(sizeOf(c))})`]), (c) => showComputation(Number(c)));
const reach = choice("Steps", [1, 2, 3, 5, 8].map((n) => [String(n), String(n)]), () => {
  if (scope.centre !== undefined) showNeighbours(scope.centre);
});
reach.select.value = "2";

function sizeOf(c) {
  return mod.computations.first[c + 1] - mod.computations.first[c];
}

function recolour() {
  const [by, key] = colourChoice.select.value.split(":");
  if (by === "cost") {
    const m = metric(key);
    const of = callsIncluded(m);
    const most = of.reduce((a, b) => Math.max(a, b), 0) || 1;
    const share = (i) => (of[i] > 0 ? Math.max(0, 1 + Math.log10(of[i] / most) / 4) : 0);
    shown.colours = { fill: (i) => toHex(heat(share(i))), ink: (i) => (share(i) > 0.62 ? theme.panel : theme.ink) };
    legendPlace.replaceChildren(element("span", {}, `${m.title}: `), ...[0, 0.33, 0.66, 1].map((s) => {
      const swatch = element("i");
      swatch.style.background = heat(s);
      return element("span", {}, swatch, element("em", {}, s === 0 ? "little or none" : m.words(most * 10 ** (4 * (s - 1)))));
    }));
  } else {
    const keyOf = { opcode: ins.opcode, source: ins.source, space: (i) => SPACES.get(columns.space[i]) ?? `space ${columns.space[i]}` }[by];
    const weights = by === "opcode" ? new Float64Array(instructionCount).fill(1) : columns.size;
    const colours = colouring(Array.from({ length: instructionCount }, (_, i) => keyOf(i)), weights);
    shown.colours = { fill: (i) => theme.fills[colours.numbers[i]], ink: () => theme["box-ink"] };
    legend(legendPlace, colours.names, new Set(scene.instruction.map((i) => colours.numbers[i])));
  }
  draw();
}

const toHex = (rgb) => `#${rgb.match(/\d+/g).map((n) => Number(n).toString(16).padStart(2, "0")).join("")}`;

/* Lays out anew what is to be shown. */
function rebuild(keepView) {
  const anchor = keepView >= 0 ? scene.nodeOf.get(keepView) : undefined;
  const before = anchor === undefined ? null : [screenX(scene.x[anchor]), screenY(scene.y[anchor])];
  buildScene();
  const after = before && scene.nodeOf.get(keepView);
  if (after !== undefined && before) {
    view.x = scene.x[after] - before[0] / view.scale;
    view.y = scene.y[after] - before[1] / view.scale;
  } else home();
  computationChoice.select.value = String(scope.computation);
  const parts = [element("b", { className: "mono" }, clip(computationName(scope.computation), 80))];
  if (scope.about) parts.push(element("span", {}, ` · ${scope.about} `), button("Show all of it", { className: "link" }, () => showComputation(scope.computation, true)));
  crumbs.replaceChildren(...parts);
  status.textContent = `${count(scene.instruction.length, "node")}, ${count(scene.edgeFrom.length, "edge")}`;
  recolour();
}

function showComputation(c, whole = false) {
  Object.assign(scope, { computation: c, only: null, about: "", centre: undefined });
  if (sizeOf(c) > MOST_AT_ONCE && !whole) {
    // Too much to begin with: around what costs most, or else the result.
    const of = costs.length ? insideOf(costs[0]) : null;
    const own = instructionsOf(c);
    const centre = of ? own.reduce((a, b) => (of[b] > of[a] ? b : a), own[0]) : mod.computations.root[c];
    scope.only = neighbourhood(centre, 8, 300);
    scope.about = `around ${clip(ins.name(centre), 40)}, of ${exact(sizeOf(c))} instructions`;
  }
  rebuild(-1);
}

function showNeighbours(i) {
  const steps = Number(reach.select.value);
  reveal(i);
  Object.assign(scope, { computation: owner[i], only: neighbourhood(i, steps), about: `${count(steps, "step")} around ${clip(ins.name(i), 40)}`, centre: i });
  rebuild(-1);
}

function showPath(a, b) {
  const nodes = between(a, b);
  if (nodes.size === 0) {
    status.textContent = `There is no way from ${clip(ins.name(a), 40)} to ${clip(ins.name(b), 40)}, nor back.`;
    return;
  }
  Object.assign(scope, { computation: owner[a], only: nodes, about: `between ${clip(ins.name(a), 40)} and ${clip(ins.name(b), 40)}`, centre: undefined });
  rebuild(-1);
}

/* Unfolds or folds a call. */
function toggle(i) {
  if (!isCall(i)) return;
  if (!scope.open.delete(i)) {
    const inside = ins.calls(i).reduce((sum, c) => sum + sizeOf(c), 0);
    if (inside > MOST_AT_ONCE) return showComputation(ins.calls(i)[0]);
    scope.open.add(i);
  }
  rebuild(i);
}

/* Makes sure that an instruction is among what is shown. */
function reveal(i) {
  if (scene.nodeOf.has(i)) return;
  const chain = [];
  let top = i;
  while (owner[top] !== scope.computation) {
    const by = callers.get(owner[top]) ?? [];
    const isFused = by.length === 1 && (ins.opcode(by[0]) === "fusion" || scene.nodeOf.has(by[0]));
    if (!isFused || chain.length > 30) break;
    chain.push(by[0]);
    [top] = by;
  }
  chain.forEach((call) => scope.open.add(call));
  const isOther = owner[top] !== scope.computation;
  Object.assign(scope, { computation: owner[top], only: null, about: "", centre: undefined });
  if (isOther || sizeOf(scope.computation) > MOST_AT_ONCE) {
    if (sizeOf(scope.computation) > MOST_AT_ONCE) {
      scope.only = neighbourhood(top, 5, 300);
      scope.about = `around ${clip(ins.name(top), 40)}, of ${exact(sizeOf(scope.computation))} instructions`;
    }
  }
  rebuild(-1);
}

function setView(x, y, scale) {
  Object.assign(view, { x, y, scale: Math.min(3, Math.max(0.002, scale)) });
  ask();
}

/* Everything, if it can be read then; otherwise what costs most. */
function home() {
  const whole = Math.min((canvas.clientWidth - 40) / scene.width, (canvas.clientHeight - 40) / scene.height);
  if (whole > 0.15 || !costs.length) return fit();
  const of = insideOf(costs[0]);
  const first = scene.instruction.reduce((a, b) => (of[b] > of[a] ? b : a));
  view.scale = 0.7;
  centre(first);
}

function fit() {
  const [width, height] = [canvas.clientWidth || 1000, canvas.clientHeight || 600];
  const whole = Math.min(1.2, (width - 40) / scene.width, (height - 40) / scene.height);
  const scale = Math.max(whole, 0.002);
  setView(scene.width / 2 - width / 2 / scale, scene.height / 2 - height / 2 / scale, scale);
}

function centre(i) {
  const v = scene.nodeOf.get(i);
  if (v === undefined) return;
  const scale = Math.max(view.scale, 0.7);
  setView(scene.x[v] + scene.w[v] / 2 - canvas.clientWidth / 2 / scale, scene.y[v] + Math.min(scene.h[v], 80) / 2 - canvas.clientHeight / 2 / scale, scale);
}

function zoom(factor, px = canvas.clientWidth / 2, py = canvas.clientHeight / 2) {
  const scale = Math.min(3, Math.max(0.002, view.scale / factor));
  setView(view.x + px / view.scale - px / scale, view.y + py / view.scale - py / scale, scale);
}

const pan = (dx, dy) => setView(view.x + dx / view.scale, view.y + dy / view.scale, view.scale);

function find() {
  shown.matches = searchInstructions(searchBox.value);
  const own = shown.matches ? scene.instruction.filter((i) => shown.matches[i]).length : 0;
  found.textContent = shown.matches ? `${exact(own)} found` : "";
  ask();
}

function next(step) {
  const all = scene.instruction;
  const from = scene.nodeOf.get(selection.instruction) ?? (step > 0 ? -1 : all.length);
  for (let k = 1; k <= all.length; k++) {
    const v = (((from + k * step) % all.length) + all.length) % all.length;
    if (!shown.matches || shown.matches[all[v]]) return goTo("graph", all[v]);
  }
}

/* The nearest node beside the selected one. */
function beside(step) {
  const v = scene.nodeOf.get(selection.instruction);
  if (v === undefined) return;
  let best = -1;
  scene.x.forEach((x, w) => {
    if (w === v || Math.abs(scene.y[w] - scene.y[v]) > 1 || (x - scene.x[v]) * step <= 0) return;
    if (best < 0 || Math.abs(x - scene.x[v]) < Math.abs(scene.x[best] - scene.x[v])) best = w;
  });
  if (best >= 0) goTo("graph", scene.instruction[best]);
}

const keyLabel = (name) => element("kbd", {}, name);
const selected = () => selection.instruction;
const onSelected = (action) => () => (selected() >= 0 ? action(selected()) : (status.textContent = "Select an instruction first."));
const pathButton = button("Path from here", { title: "Mark the selected instruction, then select another (f)" }, onSelected(markPath));

function markPath(i) {
  if (shown.pathStart !== undefined && shown.pathStart !== i) {
    const start = shown.pathStart;
    shown.pathStart = undefined;
    pathButton.textContent = "Path from here";
    return showPath(start, i);
  }
  shown.pathStart = i;
  pathButton.textContent = "Path to here";
  status.textContent = `From ${clip(ins.name(i), 40)}: select where the path leads to, then “Path to here”.`;
  ask();
}

root.append(
  element("div", { className: "tools" }, computationChoice.label, colourChoice.label, element("span", { className: "search" }, searchBox, found),
    element("span", { className: "buttons" },
      button("Neighbours", { title: "Only what is near the selected instruction (n)" }, onSelected(showNeighbours)), reach.label,
      pathButton,
      button("Unfold", { title: "Unfold or fold the selected call (Enter)" }, onSelected(toggle)),
      button("Unfold fusions", { title: "Unfold every fusion that is shown" }, unfoldFusions),
      button("Fold all", {}, () => {
        scope.open.clear();
        rebuild(-1);
      }),
      button("+", { title: "Zoom in (+)", "aria-label": "Zoom in" }, () => zoom(0.6)),
      button("−", { title: "Zoom out (−)", "aria-label": "Zoom out" }, () => zoom(1 / 0.6)),
      button("Fit", { title: "Show everything (0)" }, fit))),
  element("div", { className: "bar-line" }, crumbs, status), element("div", { className: "grow graph-stage" }, canvas, minimap), legendPlace,
  element("p", { id: "graph-keys", className: "quiet keys" }, keyLabel("wheel"), " zoom · ", keyLabel("drag"), " pan · ", keyLabel("↑"), " ", keyLabel("↓"), " operand, user · ", keyLabel("←"), " ", keyLabel("→"), " beside · ", keyLabel("Enter"), " or double click unfolds · ", keyLabel("n"), " neighbours · ", keyLabel("["), " ", keyLabel("]"), " previous, next found · ", keyLabel("/"), " search"),
);
searchBox.addEventListener("input", find);
searchBox.addEventListener("keydown", (event) => {
  if (event.key === "Enter") next(event.shiftKey ? -1 : 1);
  if (event.key === "Escape") {
    searchBox.value = "";
    find();
    canvas.focus();
  }
});

function unfoldFusions() {
  let room = MOST_AT_ONCE - scene.instruction.length;
  for (const i of scene.instruction.slice()) {
    if (ins.opcode(i) !== "fusion" || scope.open.has(i)) continue;
    room -= ins.calls(i).reduce((sum, c) => sum + sizeOf(c), 0);
    if (room < 0) break;
    scope.open.add(i);
  }
  rebuild(selected());
}

pointers(canvas, {
  hover: (px, py, event) => {
    shown.hovered = nodeAt(px, py);
    if (shown.hovered < 0) showTip();
    else {
      const i = scene.instruction[shown.hovered];
      const worth = costs.filter((m) => callsIncluded(m)[i] > 0).slice(0, 3).map((m) => `${m.words(callsIncluded(m)[i])} ${m.title}`);
      showTip(event, ins.name(i), `${ins.opcode(i)} ${ins.shape(i)}`, worth.join(" · "), ins.source(i) || ins.opName(i));
    }
    ask();
  },
  leave: () => {
    shown.hovered = -1;
    ask();
  },
  click: (px, py) => {
    const v = nodeAt(px, py);
    goTo("graph", v >= 0 ? scene.instruction[v] : -1);
  },
  drag: (dx, dy) => pan(-dx, -dy),
  pinch: zoom,
});
const byMinimap = (event) => {
  const [x, y] = inside(event, minimap);
  const [at, down] = [(x / minimap.clientWidth) * scene.width, (y / minimap.clientHeight) * scene.height];
  setView(at - canvas.clientWidth / 2 / view.scale, down - canvas.clientHeight / 2 / view.scale, view.scale);
};
pointers(minimap, { hover: () => {}, leave: () => {}, click: (x, y, event) => byMinimap(event), drag: () => {}, pinch: () => {} });
minimap.addEventListener("pointermove", (event) => event.buttons && byMinimap(event));
canvas.addEventListener("dblclick", (event) => {
  const v = nodeAt(...inside(event, canvas));
  if (v >= 0) toggle(scene.instruction[v]);
});
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  if (event.shiftKey) return pan(event.deltaX || event.deltaY, event.deltaX ? event.deltaY : 0);
  zoom(wheelFactor(event), ...inside(event, canvas));
}, { passive: false });

function keys(event) {
  const onCanvas = event.target === document.body || event.target === canvas;
  const i = selected();
  const go = (to) => to !== undefined && goTo("graph", to);
  const actions = { "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: fit, "/": () => searchBox.focus(), "[": () => next(-1), "]": () => next(1), n: onSelected(showNeighbours), f: onSelected(markPath) };
  const moves = {
    ArrowUp: () => (i < 0 ? pan(0, -80) : go(ins.operands(i).find((o) => scene.nodeOf.has(o)))),
    ArrowDown: () => (i < 0 ? pan(0, 80) : go(Array.from(ins.users(i)).find((u) => scene.nodeOf.has(u)))),
    ArrowLeft: () => (i < 0 ? pan(-80, 0) : beside(-1)),
    ArrowRight: () => (i < 0 ? pan(80, 0) : beside(1)),
    Enter: onSelected(toggle),
  };
  const action = actions[event.key] ?? (onCanvas ? moves[event.key] : undefined);
  action?.();
  return action !== undefined;
}

/* A node that is not in sight, or too small to be read, is brought to the middle. */
function isInSight(i) {
  const v = scene.nodeOf.get(i);
  const [x, y] = [screenX(scene.x[v]), screenY(scene.y[v])];
  return view.scale > 0.3 && x > 0 && y > 0 && x < canvas.clientWidth - 60 && y < canvas.clientHeight - 30;
}

let isFitted = false;
shown.colours = { fill: () => theme.fills[0], ink: () => theme.ink };
showComputation(scope.computation);
new ResizeObserver(() => {
  if (!isFitted && canvas.clientWidth > 0) {
    isFitted = true;
    if (selected() < 0) home();
  }
  draw();
}).observe(canvas);
return {
  view, scene, scope, shown, canvas, draw, fit, toggle, showNeighbours, showPath, showComputation, nodeAt, between,
  show: draw,
  redraw: recolour,
  keys,
  select: (i) => {
    if (i >= 0) {
      reveal(i);
      if (!isInSight(i)) centre(i);
    }
    draw();
  },
};
