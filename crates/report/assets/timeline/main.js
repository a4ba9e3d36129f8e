/* What the timeline view does: zoom, search, selection, and the way to Perfetto. */
const colourChoice = choice("Colour by", [["stem", "name"], ["opcode", "operation"], ["category", "kind of work"], ["source", "source line"]], recolour);
const searchBox = element("input", { type: "search", placeholder: "Search names, shapes, source ( / )", "aria-label": "Search events", autocomplete: "off", spellcheck: false });
const found = element("output", { className: "quiet", "aria-live": "polite" });
const legendPlace = element("div", { className: "legend", role: "group", "aria-label": "Colours" });
const ask = frames(draw);
/* Measured and simulated, where there are both. */
const timelineChoice = choice("Show", mod.timelines.map((other, k) => [String(k), other.origin]), () => {
  chosenTimeline = Number(timelineChoice.select.value);
  root.replaceChildren();
  made.timeline = views.timeline.make(root);
  made.timeline.select(selection.instruction);
  root.querySelector("select").focus();
});
timelineChoice.select.value = String(chosenTimeline);

function setView(from, to, top = view.top) {
  const span = Math.min(length * 1.02, Math.max(length * 1e-7, to - from));
  const middle = (from + to) / 2;
  view.from = Math.max(-length * 0.01, Math.min(middle - span / 2, length * 1.01 - span));
  view.to = view.from + span;
  view.top = Math.max(0, Math.min(top, Math.max(0, shown.height - canvas.clientHeight + SCALE + 10)));
  ask();
}

const fit = () => setView(-length * 0.01, length * 1.01, 0);
const zoom = (factor, at = (view.from + view.to) / 2) => setView(at - (at - view.from) * factor, at + (view.to - at) * factor);
const pan = (share) => setView(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));

function recolour() {
  const by = colourChoice.select.value;
  const key = (e) => {
    const i = t.instruction[e];
    if (by === "category") return text(t.category[e]);
    if (i < 0) return by === "stem" ? stem(eventName(e)) : "";
    return by === "stem" ? stem(ins.name(i)) : by === "opcode" ? ins.opcode(i) : ins.source(i);
  };
  shown.colours = colouring(Array.from({ length: eventCount }, (_, e) => key(e)), t.duration);
  legend(legendPlace, shown.colours.names, new Set(shown.colours.numbers));
  if (t.exposed.length) {
    const swatch = element("i");
    swatch.style.background = theme.exposed;
    legendPlace.append(element("span", {}, swatch, element("em", {}, "exposed communication")));
  }
  draw();
}

function find() {
  const query = searchBox.value.trim().toLowerCase();
  if (!query) shown.matches = null;
  else {
    const byInstruction = searchInstructions(query);
    shown.matches = Uint8Array.from({ length: eventCount }, (_, e) => (t.instruction[e] >= 0 ? byInstruction[t.instruction[e]] : eventName(e).toLowerCase().includes(query) ? 1 : 0));
  }
  found.textContent = shown.matches ? `${exact(shown.matches.reduce((a, b) => a + b, 0))} found` : "";
  ask();
}

/* Goes to the next event that is found, or to the next of the selected instruction. */
function next(step) {
  const from = shown.cursor ?? (step > 0 ? -1 : eventCount);
  for (let e = from + step; e >= 0 && e < eventCount; e += step) {
    if (shown.matches ? shown.matches[e] : true) return chooseEvent(e);
  }
}

function chooseEvent(e) {
  shown.cursor = e;
  bringIntoSight(e);
  if (t.instruction[e] >= 0) goTo("timeline", t.instruction[e]);
}

function bringIntoSight(e) {
  const row = shown.rows.find((r) => r.lane === laneOf.get(e));
  if (!row) return;
  const span = view.to - view.from;
  const y = row.y + depth[e] * BAR;
  const isHigh = y < view.top || y + BAR > view.top + canvas.clientHeight - SCALE;
  const isSeen = ends[e] > view.from && t.start[e] < view.to;
  const wide = Math.max(t.duration[e] * 3, Math.min(span, length / 20));
  const middle = t.start[e] + t.duration[e] / 2;
  setView(isSeen ? view.from : middle - wide / 2, isSeen ? view.to : middle + wide / 2, isHigh ? y - canvas.clientHeight / 2 : view.top);
}

const keyLabel = (name) => element("kbd", {}, name);
const exposedWords = t.exposed.length ? `, ${duration(exposedTime)} exposed communication on all lanes` : "";
root.append(
  element("div", { className: "tools" }, ...(mod.timelines.length > 1 ? [timelineChoice.label] : []), element("span", {}, `${duration(length)}, ${t.origin}: ${count(eventCount, "event")} on ${count(lanes.length, "lane")}${exposedWords}`), colourChoice.label, element("span", { className: "search" }, searchBox, found),
    element("span", { className: "buttons" },
      button("+", { title: "Zoom in (+)", "aria-label": "Zoom in" }, () => zoom(0.5)),
      button("−", { title: "Zoom out (−)", "aria-label": "Zoom out" }, () => zoom(2)),
      button("Fit", { title: "Show everything (0)" }, fit),
      button("For Perfetto", { title: "Save it as trace events that Perfetto opens" }, () => download(`${mod.name.slice(0, 80)}.trace.json`, "application/json", perfetto())))),
  canvas, legendPlace,
  element("p", { id: "timeline-keys", className: "quiet keys" }, keyLabel("wheel"), " zoom, with ", keyLabel("shift"), " up and down · ", keyLabel("drag"), " ", keyLabel("arrows"), " pan · ", keyLabel("["), " ", keyLabel("]"), " previous, next · ", keyLabel("/"), " search"),
);
searchBox.addEventListener("input", find);
searchBox.addEventListener("keydown", (event) => {
  if (event.key === "Enter") next(event.shiftKey ? -1 : 1);
  if (event.key === "Escape") {
    searchBox.value = "";
    find();
    canvas.focus();
  }
});

pointers(canvas, {
  hover: (px, py, event) => {
    shown.hovered = eventAt(px, py);
    const e = shown.hovered;
    if (e < 0) showTip();
    else {
      const i = t.instruction[e];
      showTip(event, eventName(e), `${duration(t.duration[e])} from ${duration(t.start[e])}${text(t.category[e]) ? ` · ${text(t.category[e])}` : ""}${isExposed[e] ? " · waits for others" : ""}`, i >= 0 ? `${ins.opcode(i)} ${ins.shape(i)}` : "", i >= 0 ? ins.source(i) || ins.opName(i) : "");
    }
    ask();
  },
  leave: () => {
    shown.hovered = -1;
    ask();
  },
  click: (px, py) => {
    const e = eventAt(px, py);
    shown.cursor = e >= 0 ? e : undefined;
    goTo("timeline", e >= 0 ? t.instruction[e] : -1);
  },
  drag: (dx, dy) => {
    const { per } = scales();
    setView(view.from - dx / per, view.to - dx / per, view.top - dy);
  },
  pinch: (factor, px) => zoom(factor, scales().time(px)),
});
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  if (event.shiftKey) return setView(view.from, view.to, view.top + event.deltaY);
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) return pan(event.deltaX / canvas.clientWidth);
  zoom(wheelFactor(event), scales().time(inside(event, canvas)[0]));
}, { passive: false });

function keys(event) {
  const onCanvas = event.target === document.body || event.target === canvas;
  const actions = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: fit, "/": () => searchBox.focus(), "[": () => next(-1), "]": () => next(1) };
  const moves = { ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15), ArrowUp: () => setView(view.from, view.to, view.top - 60), ArrowDown: () => setView(view.from, view.to, view.top + 60) };
  const action = actions[event.key] ?? (onCanvas ? moves[event.key] : undefined);
  action?.();
  return action !== undefined;
}

layOut();
recolour();
fit();
new ResizeObserver(draw).observe(canvas);
return {
  view, shown, draw, setView, eventAt, perfetto,
  show: draw,
  redraw: recolour,
  keys,
  select: (i) => {
    const own = eventsOf.get(i);
    if (own && !own.some((e) => ends[e] > view.from && t.start[e] < view.to)) bringIntoSight(own[0]);
    draw();
  },
};
