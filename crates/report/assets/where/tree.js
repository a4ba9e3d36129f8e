/* Where it goes, as trees: what instructions cost, summed along paths. A node has a name, its parent, its children by
 * name, the sum below it, and the instructions that end at it.
 */
class Node {
  constructor(name, parent) {
    this.name = name;
    this.parent = parent;
    this.children = new Map();
    this.instructions = [];
    this.value = 0;
    this.depth = parent ? parent.depth + 1 : 0;
  }

  child(name) {
    let found = this.children.get(name);
    if (!found) this.children.set(name, (found = new Node(name, this)));
    return found;
  }

  /* Children, the largest first; made when asked for the first time. */
  get sorted() {
    return (this.sortedChildren ??= [...this.children.values()].sort((a, b) => b.value - a.value || (a.name < b.name ? -1 : 1)));
  }

  get path() {
    const names = [];
    for (let node = this; node; node = node.parent) names.unshift(node);
    return names;
  }

  /* All instructions at and below it. */
  all() {
    const found = [];
    const stack = [this];
    while (stack.length) {
      const node = stack.pop();
      for (const i of node.instructions) found.push(i);
      for (const child of node.children.values()) stack.push(child);
    }
    return found;
  }
}

/* The parts of an op_name: slashes inside brackets do not part. */
function scopes(name) {
  const parts = [];
  let depth = 0;
  let from = 0;
  for (let k = 0; k < name.length; k++) {
    const c = name[k];
    if (c === "(" || c === "[" || c === "{") depth += 1;
    else if (c === ")" || c === "]" || c === "}") depth = Math.max(0, depth - 1);
    else if (c === "/" && depth === 0) {
      if (k > from) parts.push(name.slice(from, k));
      from = k + 1;
    }
  }
  if (from < name.length) parts.push(name.slice(from));
  return parts;
}

const UNKNOWN = "(not known)";
const MOST_DEEP = 60;

/* Calls from the entry to a computation; where several call it, they are not told apart. */
const callPath = (() => {
  const known = new Map();
  return (c) => {
    const chain = [];
    let at = c;
    while (!known.has(at) && chain.length < MOST_DEEP) {
      chain.push(at);
      const by = callers.get(at) ?? [];
      if (by.length !== 1) break;
      at = owner[by[0]];
    }
    let path = known.get(at) ?? [];
    for (const of of chain.reverse()) {
      const by = callers.get(of) ?? [];
      const name = computationName(of);
      path = by.length > 1 ? [`${name} (${by.length} callers)`] : [...path, ...(by.length ? [ins.name(by[0])] : [name])];
      known.set(of, path);
    }
    return path;
  };
})();

/* By what instructions are grouped: a path of names for each. */
const groupings = {
  op_name: { title: "op_name path", path: (i) => (ins.opName(i) ? scopes(ins.opName(i)) : [UNKNOWN]) },
  source: {
    title: "source line",
    path: (i) => {
      const at = /^(.*):(\d+)$/.exec(ins.source(i));
      return at ? [at[1], `line ${at[2]}`] : [ins.source(i) || UNKNOWN];
    },
  },
  opcode: { title: "opcode", path: (i) => [ins.opcode(i), ins.shape(i)] },
  fusion: {
    title: "fusion",
    path: (i) => {
      const outer = executedAs[i];
      const own = [stem(ins.name(outer)), ins.name(outer)];
      return outer === i ? own : [...own, ins.name(i)];
    },
  },
  computation: { title: "computation", path: (i) => [...callPath(owner[i]), ins.name(i)] },
};

function makeTree(by, of, wanted) {
  const top = new Node("everything", null);
  const { path } = groupings[by];
  // Most instructions share their path with others: it is walked once.
  const places = new Map();
  for (let i = 0; i < instructionCount; i++) {
    if (!(of[i] > 0) || (wanted && !wanted[i])) continue;
    const key = by === "op_name" ? columns.op_name[i] : by === "source" ? columns.source[i] : -1;
    let node = key >= 0 ? places.get(key) : undefined;
    if (!node) {
      node = top;
      for (const part of path(i).slice(0, MOST_DEEP)) node = node.child(part);
      if (key >= 0) places.set(key, node);
    }
    node.instructions.push(i);
    for (let at = node; at; at = at.parent) at.value += of[i];
  }
  return top;
}
