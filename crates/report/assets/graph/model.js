/* The graph as it is shown: a computation, or a part of one, with the calls in it that are unfolded.
 *
 * What is shown is a list of nodes and edges in one plane; what is inside an unfolded call lies inside its node.
 */
const MOST_AT_ONCE = 60000;
const LETTER = 6.7;
const PADDING = 12;
const HEAD = 24;

const scope = { computation: mod.entry ?? 0, only: null, about: "", open: new Set() };

const instructionsOf = (c) => {
  const list = [];
  for (let i = mod.computations.first[c]; i < mod.computations.first[c + 1]; i++) list.push(i);
  return list;
};

const controlOf = new Map();
for (const [i, before] of mod.control) addTo(controlOf, i, before);

/* What only picks a part of a tuple is as small as what there is to say of it. */
const isPick = (i) => ins.opcode(i) === "get-tuple-element";
const pickLabel = (i) => `{${/index=(\d+)/.exec(text(columns.attributes[i]))?.[1] ?? ""}}`;

/* The second line of a node. */
const aboutNode = (i) => {
  const shape = ins.shape(i).replace(/\{[^}]*\}/g, "");
  return ins.opcode(i) === "constant" ? clip(`${text(columns.argument[i])} ${shape}`, 40) : `${ins.opcode(i)} ${shape}`;
};
const nodeWidth = (i) => isPick(i) ? 34 : Math.round(Math.max(64, Math.min(210, PADDING + LETTER * Math.max(Math.min(30, ins.name(i).length), Math.min(30, aboutNode(i).length)))));
const nodeHeight = (i) => (isPick(i) ? 20 : 36);

/* Lays out some instructions of one computation, with what is unfolded in them. */
function layOutPart(list) {
  const at = new Map(list.map((i, k) => [i, k]));
  const inner = list.map((i) => (scope.open.has(i) ? layOutCall(i) : null));
  const width = list.map((i, k) => (inner[k] ? inner[k].width : nodeWidth(i)));
  const height = list.map((i, k) => (inner[k] ? inner[k].height : nodeHeight(i)));
  const from = [];
  const to = [];
  const isControl = [];
  list.forEach((i, k) => {
    for (const o of new Set(ins.operands(i))) {
      if (!at.has(o)) continue;
      from.push(at.get(o));
      to.push(k);
      isControl.push(false);
    }
    for (const o of controlOf.get(i) ?? []) {
      if (!at.has(o)) continue;
      from.push(at.get(o));
      to.push(k);
      isControl.push(true);
    }
  });
  return { list, inner, nodeWidth: width, nodeHeight: height, from, to, isControl, ...layered(width, height, from, to) };
}

/* An unfolded call: its computations side by side in a frame. */
function layOutCall(i) {
  const parts = ins.calls(i).map((c) => ({ computation: c, part: layOutPart(instructionsOf(c)) }));
  let x = PADDING;
  for (const p of parts) {
    p.x = x;
    x += p.part.width + 2 * PADDING;
  }
  const tallest = parts.reduce((most, p) => Math.max(most, p.part.height), 0);
  return { parts, width: Math.max(x, nodeWidth(i) + 2 * PADDING), height: tallest + HEAD + 2 * PADDING };
}

/* What is shown now, as flat arrays. */
const scene = { instruction: [], x: [], y: [], w: [], h: [], frame: [], edgeFrom: [], edgeTo: [], bends: [], control: [], width: 1, height: 1, nodeOf: new Map(), milliseconds: 0 };

function shownInstructions() {
  const all = instructionsOf(scope.computation);
  return scope.only ? all.filter((i) => scope.only.has(i)) : all;
}

function buildScene() {
  const begun = performance.now();
  for (const key of ["instruction", "x", "y", "w", "h", "frame", "edgeFrom", "edgeTo", "bends", "control"]) scene[key] = [];
  scene.nodeOf = new Map();
  const whole = layOutPart(shownInstructions());
  const stack = [{ part: whole, x: 0, y: 0 }];
  while (stack.length) {
    const { part, x, y } = stack.pop();
    const first = scene.instruction.length;
    part.list.forEach((i, k) => {
      scene.nodeOf.set(i, scene.instruction.length);
      scene.instruction.push(i);
      scene.x.push(x + part.left[k]);
      scene.y.push(y + part.top[k]);
      scene.w.push(part.nodeWidth[k]);
      scene.h.push(part.nodeHeight[k]);
      scene.frame.push(part.inner[k] !== null);
      for (const p of part.inner[k]?.parts ?? []) {
        stack.push({ part: p.part, x: x + part.left[k] + p.x, y: y + part.top[k] + HEAD + PADDING });
      }
    });
    part.from.forEach((from, e) => {
      scene.edgeFrom.push(first + from);
      scene.edgeTo.push(first + part.to[e]);
      scene.control.push(part.isControl[e]);
      scene.bends.push(part.bends[e] && part.bends[e].map((v, k) => v + (k % 2 ? y : x)));
    });
  }
  scene.width = Math.max(1, whole.width);
  scene.height = Math.max(1, whole.height);
  scene.key = (scene.key ?? 0) + 1;
  scene.milliseconds = performance.now() - begun;
}

/* Everything up to so many steps before and after an instruction, in its computation. */
function neighbourhood(i, steps, most = 400) {
  const found = new Set([i]);
  const walk = (next) => {
    let edge = [i];
    for (let k = 0; k < steps && edge.length; k++) {
      const reached = [];
      for (const v of edge) {
        for (const w of next(v)) {
          if (found.has(w) || found.size >= most) continue;
          found.add(w);
          reached.push(w);
        }
      }
      edge = reached;
    }
  };
  walk((v) => ins.users(v));
  walk((v) => [...ins.operands(v), ...(controlOf.get(v) ?? [])]);
  return found;
}

/* All instructions on ways from one to another, either way round; empty if there are none. */
function between(a, b) {
  if (owner[a] !== owner[b]) return new Set();
  const reach = (start, next) => {
    const found = new Set([start]);
    const stack = [start];
    while (stack.length) for (const w of next(stack.pop())) if (!found.has(w)) stack.push((found.add(w), w));
    return found;
  };
  const below = (i) => reach(i, (v) => ins.users(v));
  const above = (i) => reach(i, (v) => ins.operands(v));
  const common = (one, other) => new Set([...one].filter((i) => other.has(i)));
  const forward = common(below(a), above(b));
  return forward.size ? forward : common(below(b), above(a));
}
