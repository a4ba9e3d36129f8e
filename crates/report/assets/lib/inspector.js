/* The selected instruction, one for all views, and what there is to say of it. Every mention of an instruction is a link;
 * its address works from outside too.
 */
const LISTED = 100;
const selection = { instruction: -1 };
/* Views by their names: what makes them, and what they gave when they were made. A view that is made has `show`, and may
 * have `select(instruction)`, `redraw` and `keys(event)`. */
const views = {};
const made = {};

const addressOf = (view, i) => `#${shownModule ? "b" : ""}/${view}${i >= 0 ? `/${encodeURIComponent(ins.name(i))}` : ""}`;

/* Names of a megabyte are cut where they are shown, never where they are looked for. */
function instructionLink(i, view = "") {
  const target = view || currentView;
  const link = element("a", { className: "mono", href: addressOf(target, i), title: clip(`${ins.opcode(i)} ${ins.shape(i)}`, 400) }, clip(ins.name(i), 160));
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    goTo(target, i);
  });
  return link;
}

function linkList(list) {
  const items = Array.from(list.slice(0, LISTED), (i) => element("li", {}, instructionLink(i)));
  if (list.length > LISTED) items.push(element("li", { className: "quiet" }, `… and ${exact(list.length - LISTED)} more`));
  return element("ul", { className: "names" }, ...items);
}

/* The instruction as HLO text, its operands as links. */
function instructionText(i) {
  const operands = ins.operands(i).flatMap((o, k) => [k ? ", " : "", "%", instructionLink(o)]);
  const metadata = [ins.opName(i) && `op_name="${ins.opName(i)}"`, ins.source(i) && `source="${ins.source(i)}"`].filter(Boolean);
  return element("pre", { className: "hlo", tabIndex: 0 },
    mod.computations.root[owner[i]] === i ? "ROOT " : "", element("b", {}, `%${clip(ins.name(i), 2000)}`), " = ",
    element("span", { className: "shape" }, clip(ins.shape(i), 4000)), ` ${ins.opcode(i)}(`,
    clip(text(columns.argument[i]), 2000), ...operands, ")", clip(text(columns.attributes[i]), 8000),
    metadata.length ? element("span", { className: "quiet" }, clip(`, metadata={${metadata.join(" ")}}`, 4000)) : "");
}

/* The buffers that an instruction's results have, if its memory was planned. */
const buffersOf = (() => {
  let index = null;
  return (i) => {
    if (!mod.memory) return [];
    if (!index) {
      index = new Map();
      mod.memory.values.instruction.forEach((n, v) => {
        const of = mod.memory.instructions.number[n];
        if (of >= 0) addTo(index, of, v);
      });
    }
    return index.get(i) ?? [];
  };
})();

const isCall = (i) => callsOf.has(i);

function bufferRows(i) {
  const { values, allocations, spaces } = mod.memory ?? {};
  const own = buffersOf(i).slice().sort((a, b) => values.size[b] - values.size[a]);
  const more = own.length > 5 ? [element("li", { className: "quiet" }, `… and ${own.length - 5} smaller`)] : [];
  return [...own.slice(0, 5).map((v) => {
    const a = values.allocation[v];
    const space = spaces.find((s) => s.memory_space === allocations.memory_space[a]);
    return element("li", {}, `${bytes(values.size[v])} in ${space?.name || "memory"}, allocation ${a}, offset ${exact(values.offset[v])}`);
  }), ...more];
}

/* What a page says of an instruction, wherever it is selected. */
function instructionCard(i) {
  const costs = metrics.filter((m) => m.key !== "count");
  const whole = (m) => callsIncluded(m)[i];
  const costRows = costs.filter((m) => whole(m) > 0).map((m) => element("li", {}, `${m.words(whole(m))} ${m.key === "time" ? "" : m.title} `, element("span", { className: "quiet" }, percent(whole(m), m.total))));
  if (isCall(i) && costRows.length) costRows.push(element("li", { className: "quiet" }, "with what it calls"));
  const runs = mod.computations.runs[owner[i]];
  const callees = ins.calls(i).map((c) => element("li", {}, element("span", { className: "mono" }, clip(computationName(c), 160)), mod.computations.root[c] >= 0 ? [" → "] : "", mod.computations.root[c] >= 0 ? instructionLink(mod.computations.root[c]) : ""));
  const buffers = bufferRows(i);
  const userList = ins.users(i);
  const operandList = [...new Set(ins.operands(i))];
  const within = callers.get(owner[i]) ?? [];
  const outer = executedAs[i] !== i ? executedAs[i] : -1;
  const elsewhere = page.views.filter((v) => v !== currentView && views[v]?.selects?.(i));
  return [
    element("h2", {}, element("span", { className: "mono" }, clip(ins.name(i), 300))),
    instructionText(i),
    elsewhere.length ? element("p", { className: "elsewhere" }, "Show in ", ...elsewhere.flatMap((v, k) => [k ? " · " : "", viewLink(v, i)])) : null,
    terms([
      ["source", ins.source(i)],
      ["op_name", clip(ins.opName(i), 2000)],
      ["cost", costRows.length ? element("ul", { className: "names" }, ...costRows) : "nothing that is counted"],
      ["executed", runs === 1 ? "once" : runs === 0 ? "for elements, or never" : `${exact(runs)} times`],
      ["part of", outer >= 0 ? instructionLink(outer) : ""],
      [`buffer${buffers.length === 1 ? "" : "s"}`, buffers.length ? element("ul", { className: "names" }, ...buffers) : ""],
      [`users (${userList.length})`, userList.length ? linkList(userList) : "none"],
      [`operands (${operandList.length})`, operandList.length ? linkList(operandList) : ""],
      ["calls", callees.length ? element("ul", { className: "names" }, ...callees.map((c) => c)) : ""],
      ["computation", element("span", { className: "mono" }, clip(computationName(owner[i]), 200)), within.length ? " called by " : "", within.length ? linkList(within.slice(0, 5)) : ""],
    ]),
  ].filter(Boolean);
}

/* Sums with what is fused, and with all that is called; kept since each is needed again and again. */
const remembered = (make) => {
  const known = new Map();
  return (m) => {
    if (!known.has(m.key)) known.set(m.key, make(m.of));
    return known.get(m.key);
  };
};
const insideOf = remembered(inclusive);
const callsIncluded = remembered(withCalls);

function viewLink(view, i) {
  const link = element("a", { href: addressOf(view, i) }, views[view].title);
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    goTo(view, i);
  });
  return link;
}
