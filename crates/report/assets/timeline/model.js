/* A timeline as the view holds it: lanes with rows for what nests in them, and events as flat arrays.
 *
 * Invariants: events come sorted by when they begin, longer ones first, so that what nests follows what it is in; each
 * lane keeps that order for itself and ends are known by blocks, so that what is out of sight costs nothing.
 */
const t = mod.timelines[chosenTimeline];
if (!t) {
  const how = [
    `There is no timeline of this module${mod.simulation_absent ? `: it could not be simulated, as ${clip(mod.simulation_absent, 1000)}` : " yet"}. To measure one, run it and give the record to the report:`,
    "hloom run FILE --trace trace.json",
    "hloom report FILE --trace trace.json -o report.html",
  ];
  root.append(element("div", { className: "note" }, element("p", {}, how[0]), element("pre", {}, `${how[1]}\n${how[2]}`)));
  return {};
}
const eventCount = t.start.length;
const LANE_BLOCK = 64;
/* Times are told to the nanosecond: what ends where the next begins may seem to end a little later. */
const GRAIN = 2e-3;
const ends = Float64Array.from(t.start, (s, e) => s + t.duration[e]);
const length = ends.reduce((a, b) => Math.max(a, b), 1e-3);
const eventName = (e) => (t.instruction[e] >= 0 ? ins.name(t.instruction[e]) : text(t.name[e]));
const isExposed = new Uint8Array(eventCount);
for (const e of t.exposed) isExposed[e] = 1;

/* The row of each event in its lane. */
const depth = new Uint8Array(eventCount);
const lanes = t.lanes.map((lane) => ({ ...lane, events: [], rows: 1 }));
{
  // When each row of a lane is free again. What nests finds the rows of what it is in taken.
  const free = lanes.map(() => []);
  for (let e = 0; e < eventCount; e++) {
    const lane = lanes[t.lane[e]];
    if (!lane) continue;
    const rows = free[t.lane[e]];
    const row = rows.findIndex((end) => end <= t.start[e] + GRAIN);
    depth[e] = Math.min(row < 0 ? rows.length : row, 11);
    rows[depth[e]] = Math.max(rows[depth[e]] ?? 0, ends[e]);
    lane.events.push(e);
    lane.rows = Math.max(lane.rows, depth[e] + 1);
  }
}
for (const lane of lanes) {
  lane.start = Float64Array.from(lane.events, (e) => t.start[e]);
  lane.blockEnd = new Float64Array(Math.ceil(lane.events.length / LANE_BLOCK));
  lane.events.forEach((e, k) => {
    const block = Math.floor(k / LANE_BLOCK);
    lane.blockEnd[block] = Math.max(lane.blockEnd[block], ends[e]);
  });
  lane.busy = lane.events.reduce((sum, e) => sum + (depth[e] === 0 ? t.duration[e] : 0), 0);
}
const groups = [...new Set(lanes.map((l) => l.group))];
lanes.sort((a, b) => groups.indexOf(a.group) - groups.indexOf(b.group));
const laneOf = new Map();
lanes.forEach((lane) => lane.events.forEach((e) => laneOf.set(e, lane)));

/* Calls `found` with each event of a lane that meets the stretch of time. */
function within(lane, from, to, found) {
  const until = bisect(lane.start, to);
  for (let block = 0; block * LANE_BLOCK < until; block++) {
    if (lane.blockEnd[block] < from) continue;
    const last = Math.min(until, (block + 1) * LANE_BLOCK);
    for (let k = block * LANE_BLOCK; k < last; k++) if (ends[lane.events[k]] >= from) found(lane.events[k]);
  }
}

const eventsOf = new Map();
t.instruction.forEach((i, e) => {
  if (i >= 0) addTo(eventsOf, i, e);
});

/* How much of the time a device is waiting for others with nothing else to do. */
const exposedTime = t.exposed.reduce((sum, e) => sum + t.duration[e], 0);

/* The timeline as Perfetto reads it. */
function perfetto() {
  const number = new Map(groups.map((g, k) => [g, k]));
  const events = [];
  t.lanes.forEach((lane, k) => events.push({ name: "thread_name", ph: "M", pid: number.get(lane.group), tid: k, args: { name: lane.name } }));
  groups.forEach((g, k) => events.push({ name: "process_name", ph: "M", pid: k, tid: 0, args: { name: g } }));
  for (let e = 0; e < eventCount; e++) {
    const i = t.instruction[e];
    const about = i >= 0 ? { opcode: ins.opcode(i), shape: ins.shape(i), source: ins.source(i), op_name: ins.opName(i) } : {};
    events.push({ name: eventName(e), cat: text(t.category[e]) || "event", ph: "X", ts: t.start[e], dur: t.duration[e], pid: number.get(t.lanes[t.lane[e]]?.group) ?? 0, tid: t.lane[e], args: about });
  }
  t.arcs.forEach(([from, to], id) => {
    const end = (e, ph, ts) => events.push({ name: "async", cat: "async", ph, id, ts, pid: number.get(t.lanes[t.lane[e]]?.group) ?? 0, tid: t.lane[e], ...(ph === "f" ? { bp: "e" } : {}) });
    end(from, "s", t.start[from]);
    end(to, "f", t.start[to]);
  });
  return JSON.stringify({ traceEvents: events, displayTimeUnit: "ns" });
}
