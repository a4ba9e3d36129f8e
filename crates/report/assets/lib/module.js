/* The module that the page shows: the embedded data, and what follows from them.
 *
 * Instructions and computations are numbers; `ins` has words for instructions. Texts are numbers into one list, of which
 * number 0 is the empty one. Instructions of a computation are a stretch of numbers. Costs are those of all executions.
 */
/* Where the page is: `#/view/instruction`, and `#b/view/instruction` for the second of two modules. */
function parseHash() {
  const [, which, view, name] = /^#([ab]?)\/([a-z]*)(?:\/(.*))?$/.exec(location.hash) ?? [];
  let instruction = "";
  try {
    instruction = decodeURIComponent(name ?? "");
  } catch {
    // A damaged link names nothing.
  }
  return { module: which === "b" && page.modules.length > 1 ? 1 : 0, view: view ?? "", instruction };
}

const shownModule = parseHash().module;
const mod = page.modules[shownModule];
const columns = mod.instructions;
const text = (number) => mod.strings[number];
const instructionCount = columns.name.length;
const computationCount = mod.computations.name.length;
const numbers = (list) => Float64Array.from(list);
/* Which of the timelines is shown. */
let chosenTimeline = 0;

/* Of a list for each of many things, stored one after another: that of thing i. */
const listOf = (lists, i) => lists.items.slice(lists.from[i], lists.from[i + 1]);

const ins = {
  name: (i) => text(columns.name[i]),
  opcode: (i) => text(columns.opcode[i]),
  shape: (i) => text(columns.shape[i]),
  source: (i) => text(columns.source[i]),
  opName: (i) => text(columns.op_name[i]),
  operands: (i) => listOf(mod.operands, i),
  users: (i) => listOf(users, i),
  computation: (i) => owner[i],
  calls: (i) => callsOf.get(i) ?? [],
};

/* The computation of each instruction. */
const owner = new Int32Array(instructionCount);
for (let c = 0; c < computationCount; c++) {
  owner.fill(c, mod.computations.first[c], mod.computations.first[c + 1]);
}
const computationName = (c) => text(mod.computations.name[c]);

/* Who reads each instruction, each once. */
const users = (() => {
  const { from, items } = mod.operands;
  const counts = new Int32Array(instructionCount + 1);
  const each = (found) => {
    const last = new Int32Array(instructionCount).fill(-1);
    for (let i = 0; i < instructionCount; i++) {
      for (let k = from[i]; k < from[i + 1]; k++) {
        if (last[items[k]] !== i) found(items[k], i);
        last[items[k]] = i;
      }
    }
  };
  each((o) => (counts[o + 1] += 1));
  for (let i = 0; i < instructionCount; i++) counts[i + 1] += counts[i];
  const next = counts.slice();
  const list = new Int32Array(counts[instructionCount]);
  each((o, i) => (list[next[o]++] = i));
  return { from: counts, items: list };
})();

/* Adds to one of many lists by key. */
function addTo(lists, key, item) {
  const list = lists.get(key);
  if (list) list.push(item);
  else lists.set(key, [item]);
}

/* Which computations an instruction calls, and which instructions call a computation. */
const callsOf = new Map();
const callers = new Map();
for (const [i, c] of mod.calls) {
  addTo(callsOf, i, c);
  addTo(callers, c, i);
}

/* The instruction as which an instruction is executed: itself, or the outermost fusion that it is part of. */
const executedAs = (() => {
  const fusionOf = new Int32Array(computationCount).fill(-1);
  for (const [c, list] of callers) {
    if (list.length === 1 && ins.opcode(list[0]) === "fusion") fusionOf[c] = list[0];
  }
  const found = new Int32Array(instructionCount);
  for (let i = 0; i < instructionCount; i++) {
    let at = i;
    while (fusionOf[owner[at]] >= 0) at = fusionOf[owner[at]];
    found[i] = at;
  }
  return found;
})();

const byName = new Map();
for (let i = 0; i < instructionCount; i++) byName.set(ins.name(i), i);

/* What can be measured of instructions: numbers that add up. */
const metrics = (() => {
  const wire = new Float64Array(instructionCount);
  for (const collective of mod.collectives.all) wire[collective.instruction] = collective.wire;
  const all = [
    { key: "bytes", title: "memory traffic", of: numbers(columns.bytes), words: bytes },
    { key: "flops", title: "flops", of: numbers(columns.flops), words: big },
    { key: "transcendentals", title: "transcendentals", of: numbers(columns.transcendentals), words: big },
    { key: "size", title: "size of results", of: numbers(columns.size), words: bytes },
    { key: "wire", title: "bytes sent", of: wire, words: bytes },
    { key: "count", title: "instructions", of: new Float64Array(instructionCount).fill(1), words: exact },
  ];
  if (columns.time.length) all.unshift({ key: "time", title: "time", of: numbers(columns.time), words: duration });
  for (const metric of all) metric.total = metric.of.reduce((a, b) => a + b, 0);
  return all.filter((m) => m.total > 0);
})();
const metric = (key) => metrics.find((m) => m.key === key) ?? metrics[0];

/* Of each instruction, what it costs with all that is fused into it. */
function inclusive(of) {
  const sums = new Float64Array(instructionCount);
  for (let i = 0; i < instructionCount; i++) sums[executedAs[i]] += of[i];
  return sums;
}

/* Of each instruction, what it costs with all that it calls; a computation with several callers counts for each in part. */
function withCalls(of) {
  const sums = Float64Array.from(of);
  const whole = new Float64Array(computationCount).fill(-1);
  const called = (c) => {
    const found = [];
    for (let i = mod.computations.first[c]; i < mod.computations.first[c + 1]; i++) for (const d of callsOf.get(i) ?? []) found.push(d);
    return found;
  };
  for (let c = 0; c < computationCount; c++) {
    // What is called is summed first; without recursion, since calls may nest deeply.
    const stack = [c];
    while (stack.length) {
      const at = stack.at(-1);
      const missing = whole[at] >= 0 ? [] : called(at).filter((d) => whole[d] < 0 && !stack.includes(d));
      if (missing.length) {
        stack.push(...missing);
        continue;
      }
      stack.pop();
      if (whole[at] >= 0) continue;
      whole[at] = 0;
      for (let i = mod.computations.first[at]; i < mod.computations.first[at + 1]; i++) {
        for (const d of callsOf.get(i) ?? []) sums[i] += Math.max(0, whole[d]) / callers.get(d).length;
        whole[at] += sums[i];
      }
    }
  }
  return sums;
}

/* The name without what makes it unique: names that compilers give say what a fusion does. */
const stem = (name) => name.replace(/(\.clone|\.remat\d*|[._-]?\d+)+$/, "") || name;

/* Which instructions match: those that have every word of the query in their name, opcode, shape, source or op_name. */
let lowered = null;

function searchInstructions(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return null;
  lowered ??= mod.strings.map((s) => s.toLowerCase());
  const matches = new Uint8Array(instructionCount).fill(1);
  for (const word of words) {
    const has = Uint8Array.from(lowered, (s) => (s.includes(word) ? 1 : 0));
    for (let i = 0; i < instructionCount; i++) {
      const found = has[columns.name[i]] || has[columns.opcode[i]] || has[columns.shape[i]] || has[columns.source[i]] || has[columns.op_name[i]];
      if (!found) matches[i] = 0;
    }
  }
  return matches;
}
