/* The summary: what the program is, what it takes, what costs most and what would help. */
const devices = mod.collectives.devices;
const sent = mod.collectives.all.reduce((sum, c) => sum + c.wire, 0);

function card(title, figure, ...notes) {
  return element("div", { className: "card" }, element("h2", {}, title), element("p", { className: "figure" }, figure),
    ...notes.filter(Boolean).map((n) => element("p", { className: "quiet" }, n)));
}

function stepTime(timeline) {
  const end = timeline.start.reduce((most, s, e) => Math.max(most, s + timeline.duration[e]), 0);
  const exposed = timeline.exposed.reduce((sum, e) => sum + timeline.duration[e], 0);
  const note = exposed > 0 ? `${duration(exposed)} of it on all devices waiting for others` : "";
  return card("Step time", duration(end), timeline.origin, note);
}

function figures() {
  const { flops, transcendentals, bytes: traffic } = mod.total;
  const cards = [];
  cards.push(...mod.timelines.map(stepTime));
  cards.push(
    card("Arithmetic", `${big(flops)} flops`, transcendentals ? `${big(transcendentals)} transcendentals` : "", "one run on one device"),
    card("Memory traffic", bytes(traffic), flops && traffic ? `${(flops / traffic).toFixed(1)} flops for each byte` : ""),
    card("In and out", bytes(mod.parameter_bytes + mod.result_bytes), `${bytes(mod.parameter_bytes)} of parameters`, `${bytes(mod.result_bytes)} of results`),
  );
  if (mod.memory) {
    for (const space of mod.memory.spaces.filter((s) => s.total > 0).slice(0, 4)) {
      const of = space.capacity ? `${percent(space.total, space.capacity)} of ${bytes(space.capacity)}` : "";
      cards.push(card(`In ${space.name || "memory"}`, bytes(space.total), of, `allocated on ${mod.memory.target}`));
    }
  }
  if (devices > 1 || mod.collectives.all.length) {
    const many = mod.collectives.all.length;
    cards.push(card("Devices", exact(devices), many ? `${count(many, "collective")}, ${bytes(sent)} sent by each device` : "no collectives"));
  }
  return element("div", { className: "cards" }, ...cards);
}

const METRIC_WORDS = { time: "of the time", flops: "of all flops", bytes: "of all memory traffic", collective: "of all that is exchanged" };

function highlight(h) {
  const [first] = h.instructions;
  const many = h.instructions.length;
  const bar = element("span", { className: "bar", role: "presentation" }, element("i"));
  bar.firstChild.style.width = `${Math.round(100 * h.share)}%`;
  const named = element("div", {}, many > 1 ? `${exact(many)} × ${ins.opcode(first)}, as ` : `${ins.opcode(first)} `, instructionLink(first, page.views.includes("graph") ? "graph" : ""),
    element("span", { className: "quiet" }, ` ${clip(ins.shape(first), 90)}`));
  const place = ins.source(first) || ins.opName(first);
  return element("li", {},
    element("div", { className: "share" }, element("b", {}, percent(h.share, 1)), bar, element("span", { className: "quiet" }, METRIC_WORDS[h.metric])),
    element("div", {}, named, place ? element("div", { className: "quiet mono" }, clip(place, 160)) : null,
      element("div", {}, element("span", { className: "amount" }, h.amount), ` ${h.help}`)));
}

/* Opcodes by what they cost, for a first look. */
function opcodes(m) {
  const sums = new Map();
  for (let i = 0; i < instructionCount; i++) {
    const line = sums.get(columns.opcode[i]) ?? { value: 0, count: 0 };
    line.value += m.of[i];
    line.count += 1;
    sums.set(columns.opcode[i], line);
  }
  const lines = [...sums].sort((a, b) => b[1].value - a[1].value).filter(([, l]) => l.value > 0).slice(0, 8);
  const most = lines[0]?.[1].value ?? 1;
  return element("div", { className: "panel" }, element("h2", {}, `By opcode: ${m.title}`), element("table", { className: "bars" }, element("tbody", {}, ...lines.map(([opcode, line]) => {
    const bar = element("span", { className: "bar", role: "presentation" }, element("i"));
    bar.firstChild.style.width = `${(100 * line.value) / most}%`;
    return element("tr", {}, element("th", { scope: "row", className: "mono" }, text(opcode)), element("td", { className: "quiet" }, `${exact(line.count)} ×`), element("td", {}, bar), element("td", { className: "number" }, m.words(line.value)), element("td", { className: "quiet number" }, percent(line.value, m.total)));
  }))));
}

function notes() {
  const list = [];
  const loops = mod.unknown_trip_counts;
  if (loops.length) {
    list.push(element("li", {}, `${count(loops.length, "loop")} of unknown trip count, counted as if ${loops.length === 1 ? "it" : "each"} ran once: `, ...loops.slice(0, 5).flatMap((i, k) => [k ? ", " : "", instructionLink(i)]), loops.length > 5 ? ", …" : ""));
  }
  if (mod.memory_absent) list.push(element("li", {}, `Its memory was not planned: ${clip(mod.memory_absent, 1000)}`));
  const custom = new Set();
  for (let i = 0; i < instructionCount; i++) if (ins.opcode(i) === "custom-call") custom.add(i);
  if (custom.size) list.push(element("li", {}, `${count(custom.size, "custom call")}, whose work is not counted, as `, instructionLink([...custom][0])));
  if (!columns.source.some(Boolean) && !columns.op_name.some(Boolean)) list.push(element("li", {}, "The module does not say where its instructions come from: nothing can be told by source line."));
  return list.length ? element("div", { className: "panel" }, element("h2", {}, "To be kept in mind"), element("ul", {}, ...list)) : null;
}

const entry = mod.entry === null ? "" : computationName(mod.entry);
root.classList.add("flow");
root.append(
  element("p", { className: "lead" }, `${clip(mod.file, 300)}${entry ? ` · entry ${clip(entry, 120)}` : ""}${mod.replicas > 1 || mod.partitions > 1 ? ` · ${count(mod.replicas, "replica")} × ${count(mod.partitions, "partition")}` : ""}`),
  figures(),
  element("div", { className: "panel" }, element("h2", {}, "What costs most, and what would help"), mod.highlights.length ? element("ol", { className: "highlights" }, ...mod.highlights.map(highlight)) : "Nothing in it costs anything."),
  element("div", { className: "columns" }, ...metrics.filter((m) => ["time", "flops", "bytes"].includes(m.key)).slice(0, 2).map(opcodes)),
  ...[notes()].filter(Boolean),
);
return {};
