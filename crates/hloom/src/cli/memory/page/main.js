/* What the page does: tabs, tools, search, pointer and keys. State is in `shown` and `view`; whatever changes it asks for
 * a new frame.
 */
const byId = (id) => document.getElementById(id);

function start() {
  document.title = `${plan.module} · memory`;
  byId("module").textContent = plan.module;
  byId("target").textContent = plan.target;
  byId("headline").textContent =
    `${bytes(plan.total)} in ${count(plan.allocations.size.length, "allocation")}, ` +
    `${count(valueCount, "value")}, ${count(plan.steps, "step")}`;
  // A program of tokens alone takes no memory.
  if (plan.spaces.length === 0) return;
  plan.spaces.forEach((_, i) => {
    const tab = element("button", { type: "button", id: `tab-${i}`, tabIndex: -1 });
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", "map");
    tab.addEventListener("click", () => showSpace(i));
    byId("tabs").append(tab);
  });
  byId("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    showSpace((shown.space + step + plan.spaces.length) % plan.spaces.length);
    byId(`tab-${shown.space}`).focus();
  });
  byId("allocation").addEventListener("change", () => rebuild(true));
  byId("scale").addEventListener("change", () => rebuild(true));
  byId("colouring").addEventListener("change", recolour);
  byId("search").addEventListener("input", find);
  byId("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") clear();
  });
  byId("zoom-in").addEventListener("click", () => zoom(0.6, 0.6));
  byId("zoom-out").addEventListener("click", () => zoom(1 / 0.6, 1 / 0.6));
  byId("fit").addEventListener("click", fit);
  byId("to-peak").addEventListener("click", () => goToStep(shown.boxes.peak));
  pointer();
  document.addEventListener("keydown", keys);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readTheme();
    recolour();
  });
  // Drawn at once: a picture of another size would be stretched until the next frame.
  const resized = new ResizeObserver(draw);
  [mapCanvas, curveCanvas].forEach((canvas) => resized.observe(canvas));
  readTheme();
  // The memory that takes most is what one comes for.
  const largest = plan.spaces.reduce((best, s, i) => (s.total > plan.spaces[best].total ? i : best), 0);
  showSpace(largest);
}

function showSpace(i) {
  shown.space = i;
  const { colour } = plan.spaces[i];
  const own = plan.allocations.size.map((_, a) => a).filter((a) => plan.allocations.colour[a] === colour);
  const option = (value, words) => element("option", { value: String(value), textContent: words });
  const options = own.map((a) => option(a, `${allocationName(a)}, ${bytes(plan.allocations.size[a])}`));
  byId("allocation").replaceChildren(option(-1, own.length === 1 ? "its allocation" : `all ${own.length} allocations`), ...options);
  rebuild(true);
  labelTabs();
  showAdvice();
}

function labelTabs() {
  plan.spaces.forEach((space, i) => {
    const tab = byId(`tab-${i}`);
    const parts = [`${space.name || "memory"} `, element("span", { className: "quiet" }, bytes(space.total))];
    const here = matchCount(space.colour);
    if (here > 0) parts.push(element("span", { className: "badge" }, here.toLocaleString("en")));
    tab.replaceChildren(...parts);
    tab.title = space.capacity ? `${bytes(space.total)} of ${bytes(space.capacity)}` : "";
    tab.setAttribute("aria-selected", String(i === shown.space));
    tab.tabIndex = i === shown.space ? 0 : -1;
  });
}

function matchCount(colour) {
  if (!shown.matches) return 0;
  let n = 0;
  for (let v = 0; v < valueCount; v++) {
    if (shown.matches[v] && plan.allocations.colour[values.allocation[v]] === colour) n += 1;
  }
  return n;
}

/* Makes the boxes anew; the view starts over where what is shown is another thing. */
function rebuild(startOver) {
  const only = Number(byId("allocation").value);
  shown.boxes = new Boxes(plan.spaces[shown.space].colour, only, byId("scale").value);
  shown.hovered = -1;
  shown.moment = shown.boxes.peak;
  recolour();
  if (startOver) fit();
  showMoment();
}

function recolour() {
  const by = byId("colouring").value;
  shown.colours = colouring(by);
  const used = new Set();
  for (const v of shown.boxes.value) used.add(shown.colours.numbers[v]);
  const entries = [];
  for (const number of [...used].sort((a, b) => a - b)) {
    const swatch = element("i", {});
    swatch.style.background = theme.fills[number];
    const name = shown.colours.names[number];
    entries.push(element("span", { title: name }, swatch, element("em", {}, name)));
  }
  byId("legend").replaceChildren(...entries);
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

/* Selects a value, in the memory where it is; `seek` brings it into sight. */
function select(v, seek) {
  shown.selected = v;
  if (v >= 0) {
    const colour = plan.allocations.colour[values.allocation[v]];
    const space = plan.spaces.findIndex((s) => s.colour === colour);
    if (space !== shown.space) {
      showSpace(space);
    } else if (!shown.boxes.base.has(values.allocation[v])) {
      byId("allocation").value = "-1";
      rebuild(true);
    }
    if (seek) bringIntoSight(v);
  }
  showDetails(v);
  byId("panel").scrollTop = 0;
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
  shown.matches = search(byId("search").value);
  look += 1;
  labelTabs();
  const here = matchCount(plan.spaces[shown.space].colour);
  byId("found").textContent = shown.matches ? `${here.toLocaleString("en")} found` : "";
  ask();
}

/* The next value of the list that is found, or any next one where nothing is searched for. */
function nextMatch(step) {
  const { boxes, matches } = shown;
  const from = boxes.boxOf.get(shown.selected) ?? (step > 0 ? -1 : boxes.count);
  for (let b = from + step, seen = 0; seen < boxes.count; b += step, seen++) {
    if (b < 0) b = boxes.count - 1;
    if (b >= boxes.count) b = 0;
    if (!matches || matches[boxes.value[b]]) return select(boxes.value[b], true);
  }
}

function clear() {
  byId("search").value = "";
  find();
  shown.moment = shown.boxes.peak;
  showMoment();
  select(-1);
}

function keys(event) {
  if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  // Arrows belong to the tabs where one of them has the focus, and Enter to whatever button has it.
  const onMap = event.target === document.body || event.target === mapCanvas;
  const actions = {
    "+": () => zoom(0.6, 0.6),
    "=": () => zoom(0.6, 0.6),
    "-": () => zoom(1 / 0.6, 1 / 0.6),
    "0": fit,
    p: () => goToStep(shown.boxes.peak),
    "/": () => byId("search").focus(),
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
  if (!action) return;
  event.preventDefault();
  action();
}

function pointer() {
  const inside = (event, canvas) => {
    const r = canvas.getBoundingClientRect();
    return [event.clientX - r.left, event.clientY - r.top];
  };
  const held = new Map();
  let moved = 0;
  const hover = (event, canvas) => {
    const [px, py] = inside(event, canvas);
    const step = Math.floor(scales().step(px));
    shown.cursor = px >= GUTTER && step >= 0 && step <= plan.steps ? step : null;
    shown.hovered = canvas === mapCanvas ? boxAt(px, py) : -1;
    const stage = byId("stage").getBoundingClientRect();
    showTip(shown.hovered, event.clientX - stage.left, event.clientY - stage.top);
    ask();
  };
  for (const canvas of [mapCanvas, curveCanvas]) {
    canvas.addEventListener("pointerdown", (event) => {
      held.set(event.pointerId, [event.clientX, event.clientY]);
      if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
      moved = 0;
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = held.get(event.pointerId);
      if (!before) return hover(event, canvas);
      const now = [event.clientX, event.clientY];
      const [dx, dy] = [now[0] - before[0], now[1] - before[1]];
      moved += Math.abs(dx) + Math.abs(dy);
      held.set(event.pointerId, now);
      const { area } = scales();
      if (held.size === 2) pinch(before, now, event.pointerId);
      else if (moved > 4) {
        mapCanvas.classList.add("dragging");
        showTip(-1);
        pan(-dx / area.width, canvas === mapCanvas ? dy / area.height : 0);
      }
    });
    const release = (event) => {
      const wasClick = held.delete(event.pointerId) && moved <= 4 && event.type === "pointerup";
      mapCanvas.classList.remove("dragging");
      if (wasClick) click(...inside(event, canvas), canvas);
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("pointerleave", () => {
      shown.cursor = null;
      shown.hovered = -1;
      showTip(-1);
      ask();
    });
    canvas.addEventListener("wheel", (event) => wheel(event, ...inside(event, canvas), canvas), { passive: false });
  }
  mapCanvas.addEventListener("dblclick", (event) => {
    const b = boxAt(...inside(event, mapCanvas));
    if (b >= 0) zoomToBox(b);
  });
  /* Two fingers: the distance between them sets the scale. */
  function pinch(before, now, id) {
    const other = [...held].find(([key]) => key !== id)[1];
    const distance = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]) || 1;
    const factor = distance(before) / distance(now);
    const r = mapCanvas.getBoundingClientRect();
    zoom(factor, factor, (now[0] + other[0]) / 2 - r.left, (now[1] + other[1]) / 2 - r.top);
  }
}

function click(px, py, canvas) {
  const b = canvas === mapCanvas ? boxAt(px, py) : -1;
  if (b >= 0) return select(shown.boxes.value[b]);
  if (px >= GUTTER) goToStep(Math.max(0, Math.min(plan.steps, Math.floor(scales().step(px)))));
  select(-1);
}

function wheel(event, px, py, canvas) {
  event.preventDefault();
  const unit = event.deltaMode === 1 ? 16 : 1;
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && !event.shiftKey) {
    return pan((event.deltaX * unit) / plot().width, 0);
  }
  const factor = Math.exp((event.deltaY || event.deltaX) * unit * 0.0016);
  const timeOnly = event.shiftKey || canvas === curveCanvas;
  zoom(event.altKey ? 1 : factor, timeOnly ? 1 : factor, px, py);
}

start();
