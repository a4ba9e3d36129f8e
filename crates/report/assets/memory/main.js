/* What the memory view does: tabs of memory spaces, tools, search, pointer and keys. State is in `shown` and `view`;
 * whatever changes it asks for a new frame.
 */
/* How many allocations can be chosen one by one, from how many parameters and constants on they are folded, and how many
 * steps are shown around the peak at least. */
const MOST_OPTIONS = 300;
const MANY_GIVEN = 100;
const AROUND_PEAK = 24;
const tabList = element("div", { id: "memory-tabs", className: "subtabs", role: "tablist", "aria-label": "Memory spaces" });
const tools = {
  allocation: choice("Show", [], () => rebuild(true)),
  colouring: choice("Colour by", [["stem", "name"], ["opcode", "operation"], ["kind", "kind of allocation"], ["source", "source line"]], recolour),
  scale: choice("Heights", [["bytes", "by bytes"], ["even", "even"]], () => rebuild(true)),
};
const searchBox = element("input", { id: "memory-search", type: "search", placeholder: "Search names, shapes, source ( / )", "aria-label": "Search values by name, operation, shape or source", autocomplete: "off", spellcheck: false });
const found = element("output", { className: "quiet", "aria-live": "polite" });
const legendPlace = element("div", { className: "legend", role: "group", "aria-label": "Colours" });

function start() {
  const headline = `${bytes(plan.total)} on ${plan.target} in ${count(plan.allocations.size.length, "allocation")}, ${count(valueCount, "value")}, ${count(plan.steps, "step")}`;
  root.append(
    element("div", { className: "bar-line" }, tabList, element("p", { className: "quiet" }, headline)),
    element("div", { className: "tools" }, tools.allocation.label, tools.colouring.label, tools.scale.label, element("span", { className: "search" }, searchBox, found),
      element("span", { className: "buttons" },
        button("+", { title: "Zoom in (+)", "aria-label": "Zoom in" }, () => zoom(0.6, 0.6)),
        button("−", { title: "Zoom out (−)", "aria-label": "Zoom out" }, () => zoom(1 / 0.6, 1 / 0.6)),
        button("Fit", { title: "Show everything (0)" }, fit),
        button("Peak", { title: "Zoom to the peak (p)" }, zoomToPeak))),
    element("div", { className: "split" }, element("div", { id: "memory-stage" }, curveCanvas, mapCanvas, legendPlace, keyHelp()), panel),
  );
  plan.spaces.forEach((_, i) => {
    tabList.append(button("", { id: `memory-tab-${i}`, role: "tab", tabIndex: -1, "aria-controls": "memory-map" }, () => showSpace(i)));
  });
  tabList.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.stopPropagation();
    showSpace((shown.space + step + plan.spaces.length) % plan.spaces.length);
    byId(`memory-tab-${shown.space}`).focus();
  });
  searchBox.addEventListener("input", find);
  searchBox.addEventListener("keydown", (event) => {
    if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") clear();
  });
  [mapCanvas, curveCanvas].forEach(watch);
  mapCanvas.addEventListener("dblclick", (event) => {
    const b = boxAt(...inside(event, mapCanvas));
    if (b >= 0) zoomToBox(b);
  });
  // Drawn at once: a picture of another size would be stretched until the next frame.
  const resized = new ResizeObserver(draw);
  [mapCanvas, curveCanvas].forEach((canvas) => resized.observe(canvas));
  // The memory that takes most is what one comes for.
  const largest = plan.spaces.reduce((best, s, i) => (s.total > plan.spaces[best].total ? i : best), 0);
  showSpace(largest);
}

function keyHelp() {
  const key = (name) => element("kbd", {}, name);
  return element("p", { id: "memory-keys", className: "quiet keys" }, key("wheel"), " zoom, with ", key("shift"), " time only, with ", key("alt"), " memory only · ", key("drag"), " ", key("arrows"), " pan · ", key("Enter"), " zoom to the selected box · ", key("["), " ", key("]"), " previous, next value · ", key("/"), " search · ", key("Esc"), " clear");
}

function showSpace(i) {
  shown.space = i;
  const { memory_space: memorySpace } = plan.spaces[i];
  const own = plan.allocations.size.map((_, a) => a).filter((a) => plan.allocations.memory_space[a] === memorySpace);
  const option = (value, words) => element("option", { value: String(value), textContent: words });
  const sum = (all) => bytes(all.reduce((total, a) => total + plan.allocations.size[a], 0));
  const given = own.filter(isGiven);
  const whole = [option(ALL, own.length === 1 ? "its allocation" : `all ${exact(own.length)} allocations`)];
  if (given.length > 0 && given.length < own.length) {
    whole.push(option(FOLDED, `without ${exact(given.length)} parameters and constants, ${sum(given)}`));
  }
  // Of many, those that take most.
  const listed = own.length <= MOST_OPTIONS ? own : largest(own, MOST_OPTIONS);
  const options = listed.map((a) => option(a, `${allocationName(a)}, ${bytes(plan.allocations.size[a])}`));
  const rest = own.length - listed.length;
  if (rest > 0) options.push(element("option", { disabled: true, textContent: `… and ${exact(rest)} smaller` }));
  tools.allocation.select.replaceChildren(...whole, ...options);
  // Hundreds of parameters would leave no room for what the program makes.
  tools.allocation.select.value = String(given.length > MANY_GIVEN && given.length < own.length ? FOLDED : ALL);
  rebuild(true);
  labelTabs();
  showAdvice();
}

/* The allocations that take most, in their own order. */
function largest(own, most) {
  const bySize = [...own].sort((a, b) => plan.allocations.size[b] - plan.allocations.size[a] || a - b);
  return bySize.slice(0, most).sort((a, b) => a - b);
}

function labelTabs() {
  plan.spaces.forEach((space, i) => {
    const tab = byId(`memory-tab-${i}`);
    const parts = [`${space.name || "memory"} `, element("span", { className: "quiet" }, bytes(space.total))];
    const here = matchCount(space.memory_space);
    if (here > 0) parts.push(element("span", { className: "badge" }, here.toLocaleString("en")));
    tab.replaceChildren(...parts);
    tab.title = space.capacity ? `${bytes(space.total)} of ${bytes(space.capacity)}` : "";
    tab.setAttribute("aria-selected", String(i === shown.space));
    tab.tabIndex = i === shown.space ? 0 : -1;
  });
}

function matchCount(memorySpace) {
  if (!shown.matches) return 0;
  let n = 0;
  for (let v = 0; v < valueCount; v++) {
    if (shown.matches[v] && plan.allocations.memory_space[values.allocation[v]] === memorySpace) n += 1;
  }
  return n;
}

/* Makes the boxes anew; the view starts over where what is shown is another thing. */
function rebuild(startOver) {
  const only = Number(tools.allocation.select.value);
  shown.boxes = new Boxes(plan.spaces[shown.space].memory_space, only, tools.scale.select.value);
  shown.hovered = -1;
  shown.moment = shown.boxes.peak;
  recolour();
  if (startOver) fit();
  showMoment();
}

function recolour() {
  shown.colours = valueColours(tools.colouring.select.value);
  const used = new Set();
  for (const v of shown.boxes.value) used.add(shown.colours.numbers[v]);
  legend(legendPlace, shown.colours.names, used);
  look += 1;
  ask();
}

function fit() {
  setView(0, plan.steps + 1, 0, shown.boxes.height || 1);
}

/* Makes the view `x` times as wide and `y` times as high, with one point of the map where it is. */
function zoom(x, y, px, py) {
  const s = scales();
  const t = px === undefined ? (view.left + view.right) / 2 : s.step(px);
  const a = py === undefined ? (view.low + view.high) / 2 : s.address(py);
  // At an end of the scale the point cannot stay where it is; it then stays in sight.
  setView(t - (t - view.left) * x, t + (view.right - t) * x, a - (a - view.low) * y, a + (view.high - a) * y);
}

function pan(dx, dy) {
  const [width, height] = [view.right - view.left, view.high - view.low];
  setView(view.left + dx * width, view.right + dx * width, view.low + dy * height, view.high + dy * height);
}

function goToStep(step) {
  const width = view.right - view.left;
  if (step < view.left || step >= view.right) setView(step + 0.5 - width / 2, step + 0.5 + width / 2, view.low, view.high);
  shown.moment = Math.min(step, plan.steps);
  showMoment();
  ask();
}

/* Shows the steps around the peak, and of the memory what is in use then. */
function zoomToPeak() {
  const { peak } = shown.boxes;
  const [low, high] = shown.boxes.extent(peak);
  const width = Math.min(plan.steps + 1, Math.max(AROUND_PEAK, (plan.steps + 1) / 20));
  const margin = (high - low) * 0.05;
  setView(peak + 0.5 - width / 2, peak + 0.5 + width / 2, low - margin, high + margin);
  goToStep(peak);
}

/* Selects a value, in the memory where it is; `seek` brings it into sight. */
function selectValue(v, seek) {
  shown.selected = v;
  if (v >= 0) {
    const memorySpace = plan.allocations.memory_space[values.allocation[v]];
    const space = plan.spaces.findIndex((s) => s.memory_space === memorySpace);
    if (space !== shown.space) {
      showSpace(space);
    } else if (!shown.boxes.base.has(values.allocation[v])) {
      tools.allocation.select.value = "-1";
      rebuild(true);
    }
    if (seek) bringIntoSight(v);
  }
  showDetails(v);
  panel.scrollTop = 0;
  ask();
}

function bringIntoSight(v) {
  const b = shown.boxes.boxOf.get(v);
  if (b === undefined) return;
  const { left, right, low, high } = shown.boxes;
  const seen = left[b] < view.right && right[b] > view.left && low[b] < view.high && high[b] > view.low;
  if (seen) return;
  const [w, h] = [view.right - view.left, view.high - view.low];
  const [t, a] = [(left[b] + right[b]) / 2, (low[b] + high[b]) / 2];
  setView(t - w / 2, t + w / 2, a - h / 2, a + h / 2);
}

function zoomToBox(b) {
  const { left, right, low, high } = shown.boxes;
  const [w, h] = [right[b] - left[b], high[b] - low[b]];
  setView(left[b] - w * 0.3, right[b] + w * 0.3, low[b] - h * 0.3, high[b] + h * 0.3);
}

function find() {
  shown.matches = search(searchBox.value);
  look += 1;
  labelTabs();
  const here = matchCount(plan.spaces[shown.space].memory_space);
  found.textContent = shown.matches ? `${here.toLocaleString("en")} found` : "";
  ask();
}

/* The next value of the list that is found, or any next one where nothing is searched for. */
function nextMatch(step) {
  const { boxes, matches } = shown;
  const from = boxes.boxOf.get(shown.selected) ?? (step > 0 ? -1 : boxes.count);
  for (let b = from + step, seen = 0; seen < boxes.count; b += step, seen++) {
    if (b < 0) b = boxes.count - 1;
    if (b >= boxes.count) b = 0;
    if (!matches || matches[boxes.value[b]]) return selectValue(boxes.value[b], true);
  }
}

function clear() {
  searchBox.value = "";
  find();
  shown.moment = shown.boxes.peak;
  showMoment();
  selectValue(-1);
}

/* Whether the key meant something here. */
function keys(event) {
  // Arrows belong to the tabs where one of them has the focus, and Enter to whatever button has it.
  const onMap = event.target === document.body || event.target === mapCanvas;
  const actions = {
    "+": () => zoom(0.6, 0.6),
    "=": () => zoom(0.6, 0.6),
    "-": () => zoom(1 / 0.6, 1 / 0.6),
    "0": fit,
    p: zoomToPeak,
    "/": () => searchBox.focus(),
    "[": () => nextMatch(-1),
    "]": () => nextMatch(1),
    Escape: clear,
  };
  const onMapOnly = {
    ArrowLeft: () => pan(-0.15, 0),
    ArrowRight: () => pan(0.15, 0),
    ArrowUp: () => pan(0, 0.15),
    ArrowDown: () => pan(0, -0.15),
    Enter: () => {
      const b = shown.boxes.boxOf.get(shown.selected);
      if (b !== undefined) zoomToBox(b);
    },
  };
  const action = actions[event.key] ?? (onMap ? onMapOnly[event.key] : undefined);
  action?.();
  return action !== undefined;
}

function watch(canvas) {
  pointers(canvas, {
    hover: (px, py, event) => {
      const step = Math.floor(scales().step(px));
      shown.cursor = px >= GUTTER && step >= 0 && step <= plan.steps ? step : null;
      shown.hovered = canvas === mapCanvas ? boxAt(px, py) : -1;
      tipFor(shown.hovered, event);
      ask();
    },
    leave: () => {
      shown.cursor = null;
      shown.hovered = -1;
      ask();
    },
    click: (px, py) => click(px, py, canvas),
    drag: (dx, dy) => {
      const { area } = scales();
      pan(-dx / area.width, canvas === mapCanvas ? dy / area.height : 0);
    },
    pinch: (factor, px, py) => zoom(factor, factor, px, py),
  });
  canvas.addEventListener("wheel", (event) => wheel(event, ...inside(event, canvas), canvas), { passive: false });
}

function click(px, py, canvas) {
  const b = canvas === mapCanvas ? boxAt(px, py) : -1;
  if (b >= 0) return selectValue(shown.boxes.value[b]);
  if (px >= GUTTER) goToStep(Math.max(0, Math.min(plan.steps, Math.floor(scales().step(px)))));
  selectValue(-1);
}

function wheel(event, px, py, canvas) {
  event.preventDefault();
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && !event.shiftKey) {
    return pan((event.deltaX * (event.deltaMode === 1 ? 16 : 1)) / plot().width, 0);
  }
  const factor = wheelFactor(event);
  const timeOnly = event.shiftKey || canvas === curveCanvas;
  zoom(event.altKey ? 1 : factor, timeOnly ? 1 : factor, px, py);
}

/* The largest value of an instruction of the module. */
function selectInstruction(i) {
  const own = buffersOf(i);
  if (own.length) selectValue(own.reduce((a, b) => (values.size[b] > values.size[a] ? b : a)), true);
  else selectValue(-1);
}

start();
return {
  hasOwnCard: true,
  show: draw,
  redraw: recolour,
  keys,
  select: selectInstruction,
  parts: {
    plan, values, shown, view, mapCanvas, curveCanvas, panels, tools, found, searchBox,
    draw, plot, scales, place, setView, nameOf, kindOf, selectValue,
    repaint: () => {
      look += 1;
      draw();
    },
  },
};
