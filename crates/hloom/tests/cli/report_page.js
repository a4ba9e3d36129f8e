/* What the browser test does in a page of `hloom report`, with the events that a person's hands would make. What is found
 * goes into an element of its own, as JSON, for the test to read.
 */
const seen = { failures: [], milliseconds: {} };
const { made, mod, ins, goTo, selection, byName, views } = globalThis.hloom;

function expect(holds, what) {
  if (!holds) seen.failures.push(what);
}

const byId = (id) => document.getElementById(id);
const inspector = () => (byId("inspector").hidden ? "" : byId("inspector").textContent);
const tip = () => (byId("tip").hidden ? "" : byId("tip").textContent);
const press = (key, target = document.body) => target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));

function point(type, canvas, x, y) {
  const r = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new PointerEvent(type, { clientX: r.left + x, clientY: r.top + y, pointerId: 1, bubbles: true }));
}

function clickAt(canvas, x, y) {
  point("pointerdown", canvas, x, y);
  point("pointerup", canvas, x, y);
}

/* A change of the address is told to the page a little later; here at once. */
function go(view, i = -1) {
  goTo(view, i);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}
const settle = () => window.dispatchEvent(new HashChangeEvent("hashchange"));

function type(box, words) {
  box.value = words;
  box.dispatchEvent(new Event("input", { bubbles: true }));
}

function choose(select, value) {
  select.value = value;
  select.dispatchEvent(new Event("change", { bubbles: true }));
}

/* Every view opens from its tab, and has something to show. */
function checkTabs() {
  for (const tab of document.querySelectorAll("#view-tabs [role=tab]")) {
    tab.click();
    settle();
    const id = tab.id.slice("tab-of-".length);
    expect(tab.getAttribute("aria-selected") === "true" && !byId(`view-${id}`).hidden, `${id} is shown by its tab`);
    expect(byId(`view-${id}`).textContent.length > 20, `${id} shows something`);
    expect(document.querySelectorAll(".view:not([hidden])").length === 1, "one view is shown at a time");
  }
  press("1");
  settle();
  expect(!byId("view-summary").hidden, "1 goes to the first view");
}

/* An instruction is shown with all that is known of it, in every view that has it. */
function checkInstruction() {
  const i = byName.get(expected.look_at);
  for (const view of ["where", "graph", "timeline", "collectives", "memory"]) {
    if (!views[view].selects(i)) continue;
    go(view, i);
    expect(location.hash === `#/${view}/${encodeURIComponent(expected.look_at)}`, `${view}: the address names the instruction`);
    const told = view === "memory" ? byId("memory-details").textContent : inspector();
    for (const part of expected.told) expect(told.includes(part), `${view}: ${part} is not in ${told}`);
  }
  go("graph", i);
  const operand = ins.operands(i)[0];
  [...byId("inspector").querySelectorAll("a")].find((a) => a.textContent === ins.name(operand)).click();
  settle();
  expect(selection.instruction === operand, "an operand is a link");
  press("Escape");
  settle();
  expect(inspector() === "", "Escape closes what is selected");
}

function checkJump() {
  const box = byId("jump");
  press("1");
  settle();
  press("/");
  expect(document.activeElement === box, "/ goes to the search");
  type(box, expected.look_at);
  expect(box.getAttribute("aria-expanded") === "true", "what is found is listed");
  expect(byId("jump-0").textContent.startsWith(expected.look_at), `the best is first: ${byId("jump-0").textContent}`);
  press("Enter", box);
  settle();
  expect(ins.name(selection.instruction) === expected.look_at, "Enter goes to it");
}

function checkWhere() {
  go("where");
  const { state, focusOn, change } = made.where;
  const canvas = document.querySelector("#view-where canvas");
  const total = state.tree.value;
  seen.scopes = state.tree.sorted.map((n) => n.name);
  expect(state.boxes.length > 1, "there are boxes");
  const inner = state.boxes.find((b) => b.node.depth > state.focus.depth && b.node.children.size > 0) ?? state.boxes.at(-1);
  point("pointermove", canvas, inner.x + inner.width / 2, inner.y + 8);
  expect(tip().startsWith(inner.node.name), `the tip names the box: ${tip()}`);
  clickAt(canvas, inner.x + inner.width / 2, inner.y + 8);
  settle();
  expect(state.focus === inner.node || selection.instruction >= 0, "a click goes into a box");
  canvas.focus();
  press("Backspace", canvas);
  focusOn(state.tree);
  for (const by of ["source", "opcode", "fusion", "computation", "op_name"]) {
    change({ by, form: "treemap" });
    expect(Math.abs(state.tree.value - total) <= 1e-6 * total, `by ${by} the sum is the same`);
    expect(state.boxes.every((b) => b.width >= 0 && b.height >= 0 && Number.isFinite(b.x + b.y)), `by ${by} boxes have places`);
  }
  change({ form: "flame" });
  const rows = () => [...document.querySelectorAll("#view-where tbody tr:not(.spacer)")].map((r) => r.textContent);
  type(document.querySelector("#view-where input"), expected.search_for);
  seen.filtered = rows().length;
  expect(rows().every((r) => r.toLowerCase().includes(expected.search_for.split(" ")[0])) && rows().length > 0, `the table is filtered: ${rows()}`);
  type(document.querySelector("#view-where input"), "");
  const head = document.querySelector("#view-where th:nth-child(1)");
  const numbers = () => [...document.querySelectorAll("#view-where tbody tr:not(.spacer) td:first-child")].map((c) => c.textContent);
  const before = numbers();
  head.querySelector("button").click();
  const isTurned = head.getAttribute("aria-sort") === "ascending" && (before.length < 2 || numbers()[0] !== before[0] || before.every((n) => n === before[0]));
  expect(isTurned, `a head turns the order: ${before.slice(0, 3)} and ${numbers().slice(0, 3)}`);
}

function checkGraph() {
  go("graph", byName.get(expected.look_at));
  const graph = made.graph;
  const { scene, view, canvas } = graph;
  const at = (i) => scene.nodeOf.get(i);
  const middle = (v) => [(scene.x[v] + scene.w[v] / 2 - view.x) * view.scale, (scene.y[v] + Math.min(scene.h[v], 20) / 2 - view.y) * view.scale];
  // Nothing overlaps, and everything is below what it reads.
  for (let e = 0; e < scene.edgeFrom.length; e++) {
    expect(scene.y[scene.edgeFrom[e]] + scene.h[scene.edgeFrom[e]] <= scene.y[scene.edgeTo[e]], "edges lead down");
  }
  const order = scene.x.map((_, v) => v).sort((a, b) => scene.y[a] - scene.y[b] || scene.x[a] - scene.x[b]);
  for (let k = 1; k < order.length; k++) {
    const [a, b] = [order[k - 1], order[k]];
    expect(scene.y[a] !== scene.y[b] || scene.x[a] + scene.w[a] <= scene.x[b] + 1e-6, "nodes of a layer lie side by side");
  }
  const target = at(ins.operands(byName.get(expected.look_at))[0]);
  graph.fit();
  graph.draw();
  point("pointermove", canvas, ...middle(target));
  expect(tip().startsWith(ins.name(scene.instruction[target])), `the tip names the node: ${tip()}`);
  clickAt(canvas, ...middle(target));
  settle();
  expect(selection.instruction === scene.instruction[target], "a click selects");
  const before = view.scale;
  press("+");
  expect(view.scale > before, "+ zooms in");
  canvas.focus();
  press("ArrowDown", canvas);
  settle();
  expect(ins.operands(selection.instruction).includes(scene.instruction[target]), "arrow down goes to a user");
  graph.showNeighbours(byName.get(expected.look_at));
  expect(at(byName.get(expected.look_at)) !== undefined && scene.instruction.length > 1, "neighbours are shown");
  const [from, to] = expected.path.map((name) => byName.get(name));
  graph.showPath(from, to);
  seen.path = scene.instruction.map(ins.name).sort();
  graph.showComputation(mod.entry);
  const call = byName.get(expected.call);
  const folded = scene.instruction.length;
  graph.toggle(call);
  expect(scene.instruction.length > folded && scene.frame[at(call)], "a call unfolds");
  const box = at(call);
  const inner = scene.instruction.flatMap((i, v) => (ins.computation(i) === ins.calls(call)[0] ? [v] : []));
  expect(inner.length > 0 && inner.every((v) => scene.x[v] >= scene.x[box] && scene.x[v] + scene.w[v] <= scene.x[box] + scene.w[box] + 1 && scene.y[v] + scene.h[v] <= scene.y[box] + scene.h[box]), "what is inside lies inside");
  graph.toggle(call);
  expect(scene.instruction.length === folded, "and folds again");
  go("graph", mod.computations.root[ins.calls(call)[0]]);
  expect(at(selection.instruction) !== undefined, "what is in a fusion is unfolded when it is gone to");
}

function checkTimeline() {
  if (!mod.timelines.length) return;
  go("timeline");
  const timeline = made.timeline;
  const canvas = document.querySelector("#view-timeline canvas");
  const width = () => timeline.view.to - timeline.view.from;
  timeline.draw();
  expect(timeline.shown.drawn > 0, "events are drawn");
  const whole = width();
  press("+");
  expect(width() < whole, "+ zooms in");
  press("0");
  expect(Math.abs(width() - whole) < 1e-9, "0 shows everything");
  const r = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -300, clientX: r.left + 400, clientY: r.top + 80, cancelable: true }));
  expect(width() < whole, "the wheel zooms");
  press("0");
  timeline.draw();
  let hit = -1;
  for (let y = 30; y < 120 && hit < 0; y += 4) for (let x = 180; x < canvas.clientWidth - 20 && hit < 0; x += 3) hit = timeline.eventAt(x, y) >= 0 ? (clickAt(canvas, x, y), timeline.eventAt(x, y)) : -1;
  settle();
  expect(hit >= 0 && selection.instruction === mod.timelines[0].instruction[hit], "a click selects the instruction of an event");
  const trace = JSON.parse(timeline.perfetto());
  expect(trace.traceEvents.filter((e) => e.ph === "X").length === mod.timelines[0].start.length, "all events go to Perfetto");
  seen.arcs = mod.timelines[0].arcs.length;
  seen.exposed = mod.timelines[0].exposed.length;
  seen.timelines = mod.timelines.map((t) => t.origin);
  if (mod.timelines.length > 1) checkOtherTimeline();
}

/* Measured and simulated are chosen between, and the second is drawn with its own events. */
function checkOtherTimeline() {
  const select = document.querySelector("#view-timeline select");
  select.value = "1";
  select.dispatchEvent(new Event("change"));
  const other = mod.timelines[1];
  expect(document.querySelector("#view-timeline .tools").textContent.includes(other.origin), "the other timeline is shown");
  made.timeline.draw();
  expect(made.timeline.shown.drawn > 0, "its events are drawn");
  const trace = JSON.parse(made.timeline.perfetto());
  expect(trace.traceEvents.filter((e) => e.ph === "X").length === other.start.length, "its events go to Perfetto");
  seen.simulated = { arcs: other.arcs.length, exposed: other.exposed.length };
}

function checkCollectives() {
  go("collectives");
  if (mod.collectives.all.length === 0) return;
  const { size, sent } = made.collectives.state.matrix;
  seen.matrix = Array.from({ length: size }, (_, from) => Array.from(sent.slice(from * size, (from + 1) * size)));
  seen.groups = mod.collectives.groupings.map((g) => g.label);
}

/* What an automatic check of accessibility looks for. */
function checkAccess() {
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  expect(new Set(ids).size === ids.length, `ids occur twice: ${ids.filter((id, k) => ids.indexOf(id) !== k)}`);
  for (const attribute of ["aria-controls", "aria-labelledby", "aria-describedby", "aria-activedescendant"]) {
    for (const e of document.querySelectorAll(`[${attribute}]`)) expect(byId(e.getAttribute(attribute)), `${attribute}="${e.getAttribute(attribute)}" leads nowhere`);
  }
  for (const e of document.querySelectorAll("button, a[href], input, select, canvas, [role=region], [role=group], [role=tablist]")) {
    const label = e.getAttribute("aria-label") || e.textContent.trim() || e.closest("label")?.textContent.trim() || (e.getAttribute("aria-hidden") === "true" ? "hidden" : "");
    expect(label, `without a name: ${e.outerHTML.slice(0, 200)}`);
  }
  expect(document.querySelectorAll("h1").length === 1 && document.querySelectorAll("main").length === 1 && document.documentElement.lang, "one title, one main part, a language");
  const light = ([r, g, b]) => [r, g, b].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4)).reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const colour = (words) => words.match(/[\d.]+/g).map(Number);
  const ground = (e) => {
    for (let at = e; at; at = at.parentElement) {
      const of = colour(getComputedStyle(at).backgroundColor);
      if (of.length < 4 || of[3] > 0) return of;
    }
    return [255, 255, 255];
  };
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.textContent.trim());
    if (!own || e.offsetParent === null || e.tagName === "SCRIPT") continue;
    const [a, b] = [light(colour(getComputedStyle(e).color)), light(ground(e))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    expect(contrast >= 4.5, `contrast ${contrast.toFixed(2)} of ${e.outerHTML.slice(0, 120)}`);
  }
}

/* The least of several times, since the machine may have other things to do. */
function time(work) {
  const times = [];
  for (let k = 0; k < 9; k++) {
    const begun = performance.now();
    work(k);
    times.push(performance.now() - begun);
  }
  return Math.min(...times);
}

function measure() {
  go("graph");
  const graph = made.graph;
  graph.showComputation(mod.entry, true);
  seen.milliseconds.layout = graph.scene.milliseconds;
  graph.fit();
  const pixel = (canvas) => canvas.getContext("2d").getImageData(20, 20, 1, 1);
  seen.milliseconds.graph_far = time(() => (graph.draw(), pixel(graph.canvas)));
  Object.assign(graph.view, { scale: 0.8, x: graph.scene.width / 2, y: graph.scene.height / 3 });
  seen.milliseconds.graph_near = time(() => (graph.draw(), pixel(graph.canvas)));
  go("where");
  seen.milliseconds.where = time(() => made.where.show());
  seen.milliseconds.tree = time(() => made.where.change({}));
  seen.nodes = graph.scene.instruction.length;
  go("timeline");
  const canvas = document.querySelector("#view-timeline canvas");
  seen.milliseconds.timeline_far = time(() => (made.timeline.draw(), pixel(canvas)));
  made.timeline.setView(made.timeline.view.to * 0.4, made.timeline.view.to * 0.41);
  seen.milliseconds.timeline_near = time(() => (made.timeline.draw(), pixel(canvas)));
  seen.events = mod.timelines[0].start.length;
}

try {
  checkTabs();
  if (expected.look_at) {
    checkInstruction();
    checkJump();
    checkWhere();
    checkGraph();
    checkTimeline();
    checkCollectives();
    for (const id of ["summary", "where", "memory", "timeline", "graph", "collectives"]) {
      go(id, byName.get(expected.look_at));
      checkAccess();
    }
  }
  if (expected.measure) measure();
  seen.title = document.title;
  seen.markup = document.querySelectorAll("img, iframe, object, body script").length;
  seen.owned = window.owned === undefined;
  seen.instructions = mod.instructions.name.length;
} catch (error) {
  seen.failures.push(`${error}\n${error.stack}`);
}
const result = document.createElement("pre");
result.id = "seen";
result.textContent = JSON.stringify(seen);
document.body.append(result);
