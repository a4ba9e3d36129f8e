/* What differs in two modules: their figures beside each other, then the changes. */
const [a, b] = page.modules;

/* The sum of a column. */
const sum = (list) => list.reduce((n, x) => n + x, 0);
const sent = (m) => sum(m.collectives.all.map((c) => c.wire));
const step = ({ timelines: [t] }) => (t ? t.start.reduce((most, s, e) => Math.max(most, s + t.duration[e]), 0) : 0);
const of = (m, opcode) => m.instructions.opcode.filter((o) => m.strings[o] === opcode).length;

function opcodesOf(m) {
  const counts = new Map();
  for (const o of m.instructions.opcode) counts.set(m.strings[o], (counts.get(m.strings[o]) ?? 0) + 1);
  return counts;
}

/* More of what costs something is worse; numbers of instructions are neither. */
function row(title, left, right, words, isCost = true) {
  const change = right - left;
  const share = left > 0 && change !== 0 ? ` (${change > 0 ? "+" : "−"}${percent(Math.abs(change), left)})` : "";
  const told = change === 0 ? "the same" : `${change > 0 ? "+" : "−"}${words(Math.abs(change))}${share}`;
  return element("tr", {}, element("th", { scope: "row" }, title), element("td", {}, words(left)), element("td", {}, words(right)), element("td", { className: change > 0 && isCost ? "worse" : change === 0 ? "quiet" : "" }, told));
}

function versus(title, rows) {
  const head = element("thead", {}, element("tr", {}, ...[title, `A ${clip(a.file.split("/").at(-1), 36)}`, `B ${clip(b.file.split("/").at(-1), 36)}`, "change"].map((t) => element("th", { scope: "col" }, t))));
  return element("div", { className: "panel" }, element("table", { className: "versus" }, head, element("tbody", {}, ...rows)));
}

const figures = [
  ...(step(a) && step(b) ? [row("step time", step(a), step(b), duration)] : []),
  row("flops", a.total.flops, b.total.flops, big),
  row("transcendentals", a.total.transcendentals, b.total.transcendentals, big),
  row("memory traffic", a.total.bytes, b.total.bytes, bytes),
  row("sent by each device", sent(a), sent(b), bytes),
  row("collectives", a.collectives.all.length, b.collectives.all.length, exact),
  ...(a.memory && b.memory ? [row("memory allocated", a.memory.total, b.memory.total, bytes)] : []),
  row("instructions", a.instructions.name.length, b.instructions.name.length, exact, false),
  row("fusions", of(a, "fusion"), of(b, "fusion"), exact, false),
];

function opcodeRows() {
  const [left, right] = [opcodesOf(a), opcodesOf(b)];
  const all = [...new Set([...left.keys(), ...right.keys()])].map((name) => [name, left.get(name) ?? 0, right.get(name) ?? 0]).filter(([, x, y]) => x !== y);
  all.sort((p, q) => Math.abs(q[2] - q[1]) - Math.abs(p[2] - p[1]) || (p[0] < q[0] ? -1 : 1));
  return all.slice(0, 25).map(([name, x, y]) => row(name, x, y, exact, false));
}

const MOST_CHANGES = 500;

/* The way to an instruction of one of the modules. */
function sideLink(side, name) {
  const here = side === shownModule;
  const link = element("a", { className: "mono", href: `#${side ? "b" : ""}/graph/${encodeURIComponent(name)}` }, `${"AB"[side]} ${clip(name, 120)}`);
  if (here) link.addEventListener("click", (event) => {
    event.preventDefault();
    goTo("graph", byName.get(name) ?? -1);
  });
  return link;
}

/* Where two texts are the same at their beginnings and ends, and what is between, marked. */
function marked(words, other) {
  if (!other) return [clip(words, 3000)];
  let start = 0;
  while (start < words.length && start < other.length && words[start] === other[start]) start += 1;
  let end = 0;
  while (end < words.length - start && end < other.length - start && words[words.length - 1 - end] === other[other.length - 1 - end]) end += 1;
  const middle = words.slice(start, words.length - end);
  return [clip(words.slice(0, start), 3000), middle ? element("mark", {}, clip(middle, 3000)) : "", clip(words.slice(words.length - end), 3000)];
}

/* A change with both texts, and what changed inside what it calls. */
function change(c) {
  const details = c.aspects.map((a) => (a.detail ? `${a.kind}: ${a.detail}` : a.kind)).join("; ");
  const text = (side, one, other) => (one ? element("pre", { className: side ? "come" : "gone" }, ...marked(one.text, other?.text)) : null);
  const of = c.b ?? c.a;
  const places = [c.a && sideLink(0, c.a.name), c.b && sideLink(1, c.b.name)].filter(Boolean);
  const costs = ["flops", "bytes"].map((key) => [key, (c.b?.cost[key] ?? 0) - (c.a?.cost[key] ?? 0)]).filter(([, n]) => n !== 0);
  const told = costs.map(([key, n]) => `${n > 0 ? "+" : "−"}${key === "flops" ? `${big(Math.abs(n))} flops` : `${bytes(Math.abs(n))} of memory traffic`}`).join(", ");
  return element("div", { className: "change" },
    element("div", {}, element("b", {}, c.kind), c.times > 1 ? ` ${exact(c.times)} times` : "", details && details !== c.kind ? ` ${clip(details, 300)} ` : " ", ...places.flatMap((p, k) => [k ? " → " : "", p]), told ? element("span", { className: "quiet" }, ` ${told}`) : null),
    text(0, c.a, c.b), text(1, c.b, c.a),
    of?.source || of?.op_name ? element("div", { className: "quiet" }, clip(`${of.source} ${of.op_name}`.trim(), 300)) : null,
    c.inside.length ? element("div", { className: "inside" }, ...c.inside.slice(0, 50).map(change)) : null);
}

function changes() {
  const d = page.difference;
  if (!d) return null;
  const list = d.differences;
  const filter = element("input", { type: "search", placeholder: "Filter changes", "aria-label": "Filter changes", autocomplete: "off", spellcheck: false });
  const place = element("div");
  const told = element("output", { className: "quiet", "aria-live": "polite" });
  const wordsOf = (c) => [c.kind, c.a?.text, c.b?.text, c.a?.source, c.b?.source, c.a?.op_name, ...c.inside.flatMap(wordsOf)];
  const fill = () => {
    const word = filter.value.toLowerCase();
    const shown = list.filter((c) => !word || wordsOf(c).some((t) => t?.toLowerCase().includes(word)));
    told.textContent = count(shown.length, "change");
    place.replaceChildren(...shown.slice(0, MOST_CHANGES).map(change), shown.length > MOST_CHANGES ? element("p", { className: "quiet" }, `… and ${exact(shown.length - MOST_CHANGES)} more`) : "");
  };
  filter.addEventListener("input", fill);
  fill();
  const header = d.header.map((words) => element("li", {}, clip(words, 600)));
  return element("div", { className: "panel" }, element("h2", {}, d.summary), header.length ? element("ul", {}, ...header) : "", list.length ? element("div", { className: "tools" }, element("span", { className: "search" }, filter, told)) : "", place);
}

root.classList.add("flow");
const byOpcode = opcodeRows();
const tables = [versus("figure", figures), byOpcode.length ? versus("number of", byOpcode) : null].filter(Boolean);
root.append(...[element("div", { className: "columns" }, ...tables), changes()].filter(Boolean));
return {};
