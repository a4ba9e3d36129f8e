/* The plan as the memory view holds it: words for its parts, and the boxes of what is shown.
 *
 * Invariants: values come sorted by the step at which they begin (those without a time first); boxes keep that order, so
 * that those of a stretch of time are found by bisection. A plan has instructions of its own: copies may have been added
 * to the module before its memory was planned.
 */
const plan = mod.memory;
if (!plan || plan.spaces.length === 0) {
  const why = mod.memory_absent ? `The memory of this module was not planned: ${mod.memory_absent}` : "This program takes no memory.";
  root.append(element("p", { className: "note" }, clip(why, 2000)));
  return {};
}
const values = plan.values;
const instructions = plan.instructions;
const valueCount = values.id.length;

/* Kinds of allocations in the order in which they are stacked, as numbered in the data. */
const KINDS = ["parameter", "constant", "thread-local", "result", "temporary"];
const KIND_PLURALS = ["parameters", "constants", "thread-local", "results", "temporaries"];
const nameOf = (v) => text(instructions.name[values.instruction[v]]) + text(values.index[v]);
const stemOf = (v) => stem(text(instructions.name[values.instruction[v]]));
const opcodeOf = (v) => text(instructions.opcode[values.instruction[v]]);
const sourceOf = (v) => text(instructions.source[values.instruction[v]]);
const opNameOf = (v) => text(instructions.op_name[values.instruction[v]]);
const hasTime = (v) => values.start[v] >= 0;
const kindOf = (v) => plan.allocations.kind[values.allocation[v]];

function allocationName(a) {
  const parameter = text(plan.allocations.parameter[a]);
  const kind = KINDS[plan.allocations.kind[a]];
  return `${a} · ${parameter ? `${kind} ${parameter}` : kind}`;
}

/* The name of the instruction at a step; the last step is that after the end. */
const stepName = (step) => (step < plan.steps ? text(instructions.name[step]) : "the end");

/* The values that an instruction makes, by its number. */
const madeBy = (() => {
  const made = new Map();
  for (let v = 0; v < valueCount; v++) addTo(made, values.instruction[v], v);
  return made;
})();

/* Where several values take turns in one place, a box ends where the next begins. By value, in steps, end excluded. */
const boxEnd = (() => {
  const ends = new Float64Array(valueCount);
  const last = new Map();
  for (let v = 0; v < valueCount; v++) {
    ends[v] = values.end[v] + 1;
    if (!hasTime(v)) continue;
    const place = `${values.allocation[v]}:${values.offset[v]}`;
    const before = last.get(place);
    if (before !== undefined && values.start[before] < values.start[v]) {
      ends[before] = Math.min(ends[before], values.start[v]);
    }
    last.set(place, v);
  }
  return ends;
})();

/* What may be shown of a memory: an allocation by its number, all of them, or those that the program itself makes. */
const ALL = -1;
const FOLDED = -2;
const isGiven = (a) => plan.allocations.kind[a] <= KINDS.indexOf("constant");
const isShown = (a, only) => only === ALL || (only === FOLDED ? !isGiven(a) : only === a);

/* Boxes of a memory space, or of some of its allocations: flat arrays, and blocks of them with their bounds, so that what
 * is out of sight costs nothing. */
const BLOCK = 64;

class Boxes {
  constructor(space, only, scale) {
    this.allocations = [];
    for (let a = 0; a < plan.allocations.size.length; a++) {
      if (plan.allocations.memory_space[a] === space && isShown(a, only)) this.allocations.push(a);
    }
    this.allocations.sort((a, b) => plan.allocations.kind[a] - plan.allocations.kind[b] || a - b);
    this.base = new Map();
    this.total = 0;
    for (const a of this.allocations) {
      this.base.set(a, this.total);
      this.total += plan.allocations.size[a];
    }
    const shown = [];
    for (let v = 0; v < valueCount; v++) {
      if (values.size[v] > 0 && this.base.has(values.allocation[v])) shown.push(v);
    }
    this.value = Int32Array.from(shown);
    this.boxOf = new Map(shown.map((v, b) => [v, b]));
    const n = (this.count = shown.length);
    this.left = new Float64Array(n);
    this.right = new Float64Array(n);
    this.low = new Float64Array(n);
    this.high = new Float64Array(n);
    for (let b = 0; b < n; b++) {
      const v = shown[b];
      // What has no time, since it is made anew for each element, is there all the time.
      this.left[b] = hasTime(v) ? values.start[v] : 0;
      this.right[b] = hasTime(v) ? boxEnd[v] : plan.steps + 1;
      this.low[b] = this.base.get(values.allocation[v]) + values.offset[v];
      this.high[b] = this.low[b] + values.size[v];
    }
    this.live = this.liveBytes();
    this.peak = this.live.indexOf(this.live.reduce((a, b) => Math.max(a, b), 0));
    this.lanes = this.allocations.map((a) => [this.base.get(a), this.base.get(a) + plan.allocations.size[a]]);
    this.height = this.total;
    if (scale === "even") this.even();
    this.bound();
  }

  /* Bytes in use at each step. */
  liveBytes() {
    const live = new Float64Array(plan.steps + 2);
    for (let b = 0; b < this.count; b++) {
      if (!hasTime(this.value[b])) continue;
      live[this.left[b]] += this.high[b] - this.low[b];
      live[this.right[b]] -= this.high[b] - this.low[b];
    }
    for (let t = 1; t < live.length; t++) live[t] += live[t - 1];
    return live.subarray(0, plan.steps + 1);
  }

  /* Gives every stretch between two ends of boxes the same height. */
  even() {
    const ends = Float64Array.from(new Set([...this.low, ...this.high, ...this.lanes.flat()])).sort();
    const rank = (address) => bisect(ends, address) - 1;
    this.low = this.low.map(rank);
    this.high = this.high.map(rank);
    this.lanes = this.lanes.map((lane) => lane.map(rank));
    this.height = Math.max(1, ends.length - 1);
  }

  bound() {
    const blocks = Math.ceil(this.count / BLOCK);
    this.blockRight = new Float64Array(blocks);
    this.blockLow = new Float64Array(blocks).fill(Infinity);
    this.blockHigh = new Float64Array(blocks);
    for (let b = 0; b < this.count; b++) {
      const block = Math.floor(b / BLOCK);
      this.blockRight[block] = Math.max(this.blockRight[block], this.right[b]);
      this.blockLow[block] = Math.min(this.blockLow[block], this.low[b]);
      this.blockHigh[block] = Math.max(this.blockHigh[block], this.high[b]);
    }
  }

  /* Calls `found` with each box that meets the rectangle. */
  within(left, right, low, high, found) {
    const until = bisect(this.left, right);
    for (let block = 0; block * BLOCK < until; block++) {
      if (this.blockRight[block] < left || this.blockHigh[block] < low || this.blockLow[block] > high) continue;
      const end = Math.min(until, (block + 1) * BLOCK);
      for (let b = block * BLOCK; b < end; b++) {
        if (this.left[b] <= right && this.right[b] >= left && this.low[b] <= high && this.high[b] >= low) found(b);
      }
    }
  }

  /* The lowest and the highest address in use at a step. */
  extent(step) {
    const there = this.at(step);
    if (there.length === 0) return [0, this.height];
    return [there.reduce((l, b) => Math.min(l, this.low[b]), Infinity), there.reduce((h, b) => Math.max(h, this.high[b]), 0)];
  }

  /* The boxes in use at a step, largest first. */
  at(step) {
    const there = [];
    this.within(step, step, 0, this.height, (b) => {
      if (this.left[b] <= step && step < this.right[b]) there.push(b);
    });
    const size = (b) => values.size[this.value[b]];
    return there.sort((a, b) => size(b) - size(a) || this.value[a] - this.value[b]);
  }
}

/* Which values match: those that have every word of the query in their name, operation, shape, source or op_name. */
let loweredStrings = null;

function search(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return null;
  loweredStrings ??= mod.strings.map((s) => s.toLowerCase());
  const matches = new Uint8Array(valueCount).fill(1);
  for (const word of words) {
    const has = Uint8Array.from(loweredStrings, (s) => (s.includes(word) ? 1 : 0));
    for (let v = 0; v < valueCount; v++) {
      const i = values.instruction[v];
      const own = has[instructions.name[i]] || has[instructions.opcode[i]] || has[instructions.source[i]];
      const whole = () => values.index[v] && nameOf(v).toLowerCase().includes(word);
      if (!(own || has[instructions.op_name[i]] || has[values.shape[v]] || whole())) matches[v] = 0;
    }
  }
  return matches;
}

/* The colour number of each value, and what each number means. */
function valueColours(by) {
  if (by === "kind") return { numbers: Uint8Array.from({ length: valueCount }, (_, v) => kindOf(v)), names: KINDS };
  const key = { stem: stemOf, opcode: opcodeOf, source: sourceOf }[by];
  return colouring(Array.from({ length: valueCount }, (_, v) => key(v)), values.size);
}
