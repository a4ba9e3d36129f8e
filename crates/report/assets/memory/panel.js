/* The panel beside the map: the selected value, what would lower the peak, and what is in use at a moment.
 *
 * Everything from the module goes in as text, never as markup.
 */
/* Advice that is seen at once. */
const FIRST = 4;

const panels = { details: element("section", { id: "memory-details", "aria-live": "polite" }), advice: element("section", { id: "memory-advice" }), moment: element("section", { id: "memory-moment" }) };
const panel = element("aside", { id: "memory-panel", "aria-label": "Details" }, panels.details, panels.advice, panels.moment);

const link = (words, title, action) => button(clip(words, 160), { className: "link mono", title: clip(title, 400) }, action);

const valueLink = (v) => link(nameOf(v), `${opcodeOf(v)} ${text(values.shape[v])}`, () => selectValue(v, true));

/* An instruction that is the user of something: it leads to what it makes, or to its step if that has no memory. */
function stepLink(i) {
  const name = text(instructions.name[i]);
  const made = madeBy.get(i);
  const title = `${text(instructions.opcode[i])}${i < plan.steps ? `, step ${i}` : ""}`;
  if (made) return link(name, title, () => selectValue(made.reduce((a, b) => (values.size[b] > values.size[a] ? b : a)), true));
  return link(name, title, () => goToStep(i));
}

function names(list, make) {
  const items = list.slice(0, LISTED).map((x) => element("li", {}, make(x)));
  if (list.length > LISTED) items.push(element("li", { className: "quiet" }, `… and ${list.length - LISTED} more`));
  return element("ul", { className: "names" }, ...items);
}

function showDetails(v) {
  panels.details.replaceChildren();
  if (v < 0) return;
  const rows = [];
  const row = (term, ...content) => {
    if (content.some((c) => c !== "")) rows.push(element("dt", {}, term), element("dd", {}, ...content));
  };
  const i = values.instruction[v];
  const a = values.allocation[v];
  const space = plan.spaces.find((s) => s.memory_space === plan.allocations.memory_space[a]);
  row("operation", opcodeOf(v));
  row("shape", element("code", {}, clip(text(values.shape[v]), 2000)));
  row("size", exactBytes(values.size[v]));
  const padding = values.size[v] - values.data[v];
  if (padding > 0) row("padding", `${exactBytes(padding)}, ${Math.round((100 * padding) / values.size[v])} %`);
  row("memory", `${space.name || "memory"} (memory space ${space.memory_space})`);
  row("allocation", `${allocationName(a)}, ${bytes(plan.allocations.size[a])}`);
  row("offset", values.offset[v].toLocaleString("en"));
  if (hasTime(v)) {
    const [start, end] = [values.start[v], values.end[v]];
    const first = opcodeOf(v) === "parameter" ? "the start" : stepName(start);
    row("in use", `steps ${start} to ${end}, `, link(`from ${first}`, "go there", () => goToStep(start)),
      " ", link(`to ${stepName(end)}`, "go there", () => goToStep(Math.min(end, plan.steps))));
  } else {
    row("in use", "for each element anew: it has no step of its own");
  }
  row("computation", element("span", { className: "mono" }, text(instructions.computation[i])));
  row("source", sourceOf(v));
  row("op_name", clip(opNameOf(v), 2000));
  const users = listOf(plan.users, v);
  row(`users (${users.length})`, users.length ? names(users, stepLink) : "none");
  const operands = listOf(plan.operands, i);
  if (operands.length) row("made from", names(operands, stepLink));
  const mates = sharers(v);
  if (mates.length) row(`takes turns with (${mates.length})`, names(mates, valueLink));
  const title = element("h2", {}, element("span", { className: "mono" }, clip(nameOf(v), 300)), element("span", { className: "quiet" }, `  value ${values.id[v]}`));
  const of = instructions.number[i];
  const more = of >= 0 ? element("details", {}, element("summary", {}, "The instruction"), ...instructionCard(of).slice(1)) : element("p", { className: "quiet" }, "It was added to plan the memory: the module itself has no such instruction.");
  panels.details.append(title, element("dl", {}, ...rows), more);
}

/* The other values at the same place of the same allocation. */
function sharers(v) {
  const mates = [];
  for (let other = 0; other < valueCount; other++) {
    if (other !== v && values.allocation[other] === values.allocation[v] && values.offset[other] === values.offset[v]) {
      mates.push(other);
    }
  }
  return mates;
}

function showAdvice() {
  panels.advice.replaceChildren();
  const memorySpace = plan.spaces[shown.space].memory_space;
  const advice = plan.advice.filter((a) => a.memory_space === memorySpace);
  if (advice.length === 0) return;
  const items = advice.map((a) => {
    const value = a.value === null ? -1 : values.id.indexOf(a.value);
    // Names stand between backticks.
    const words = a.text.split("`").map((part, i) => (i % 2 ? element("code", {}, part) : part));
    const less = element("b", {}, `−${bytes(a.bytes)}`);
    if (value < 0) return element("li", {}, less, element("span", {}, ...words));
    const button = element("button", { className: "link plain", type: "button", title: "show it" }, ...words);
    button.addEventListener("click", () => selectValue(value, true));
    return element("li", {}, less, button);
  });
  const note = "Each alone, with the peak computed anew; they do not add up.";
  panels.advice.append(element("h2", {}, "What would lower the peak"), element("ol", {}, ...items.slice(0, FIRST)));
  const rest = items.slice(FIRST);
  if (rest.length) {
    panels.advice.append(element("details", {}, element("summary", {}, `${rest.length} more`), element("ol", {}, ...rest)));
  }
  panels.advice.append(element("p", { className: "quiet" }, note));
}

function showMoment() {
  const { boxes, moment } = shown;
  const there = boxes.at(moment).filter((b) => hasTime(boxes.value[b]));
  const isPeak = moment === boxes.peak;
  const title = element("h2", {}, `In use at step ${moment}${isPeak ? ", the peak" : ""}: ${bytes(boxes.live[moment] ?? 0)}`);
  const groups = alike(there.map((b) => boxes.value[b]));
  const rows = groups.slice(0, LISTED).map(groupRow);
  const unlisted = groups.slice(LISTED).flat();
  const rest = unlisted.reduce((sum, v) => sum + values.size[v], 0);
  const more = rest > 0 ? element("p", { className: "quiet" }, `… and ${count(unlisted.length, "more value")}, ${bytes(rest)}`) : null;
  panels.moment.replaceChildren(title, element("p", { className: "quiet mono" }, stepName(moment)), element("table", {}, element("tbody", {}, ...rows)), ...(more ? [more] : []));
}

/* Values with the same stem of a name, shape and size together; what takes most first. */
function alike(list) {
  const groups = new Map();
  for (const v of list) addTo(groups, `${stemOf(v)} ${values.shape[v]} ${values.size[v]}`, v);
  const size = (group) => group.length * values.size[group[0]];
  return [...groups.values()].sort((a, b) => size(b) - size(a) || a[0] - b[0]);
}

function groupRow(group) {
  const [first, ...others] = group;
  const detail = element("div", { className: "quiet" }, [text(values.shape[first]), sourceOf(first)].filter(Boolean).join(" · "));
  const parts = [valueLink(first), detail];
  if (others.length > 0) {
    const words = `and ${exact(others.length)} more like it, ${bytes(values.size[first])} each`;
    const links = others.slice(0, LISTED).flatMap((v) => [valueLink(v), " "]);
    if (others.length > LISTED) links.push(element("span", { className: "quiet" }, "…"));
    parts.push(element("details", {}, element("summary", { className: "quiet" }, words), ...links));
  }
  return element("tr", {}, element("td", {}, bytes(group.length * values.size[first])), element("td", {}, ...parts));
}

function tipFor(b, event) {
  if (b < 0) return showTip();
  const v = shown.boxes.value[b];
  const when = hasTime(v) ? `steps ${values.start[v]} to ${values.end[v]}` : "for each element anew";
  const padding = values.size[v] - values.data[v];
  const size = `${bytes(values.size[v])}${padding > 0 ? `, ${bytes(padding)} of it padding` : ""}`;
  showTip(event, nameOf(v), `${opcodeOf(v)} · ${size} · ${when}`, text(values.shape[v]), sourceOf(v) || opNameOf(v));
}
