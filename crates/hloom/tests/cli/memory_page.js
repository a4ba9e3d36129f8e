/* What the browser test does in a page of `hloom memory --html`, with the events that a person's hands would make.
 * `expected` is what `hloom memory --json` says of the same module. What is found goes into an element of its own, as
 * JSON, for the test to read.
 */
const seen = { failures: [] };
const memory = globalThis.hloom.made.memory;
const { plan, values, shown, view, mapCanvas, curveCanvas, panels, tools, found, searchBox, draw, plot, scales, place, setView, nameOf, kindOf, selectValue, repaint } = memory.parts;
const tip = () => (document.getElementById("tip").hidden ? "" : document.getElementById("tip").textContent);

function expect(holds, what) {
  if (!holds) seen.failures.push(what);
}

/* Uses one of the tools above the map as a person does. */
function choose(id, value) {
  const tool = id === "search" ? searchBox : tools[id].select;
  tool.value = value;
  tool.dispatchEvent(new Event(id === "search" ? "input" : "change", { bubbles: true }));
  draw();
}

function point(type, canvas, x, y) {
  const r = canvas.getBoundingClientRect();
  const where = { clientX: r.left + x, clientY: r.top + y, pointerId: 1, bubbles: true };
  canvas.dispatchEvent(new PointerEvent(type, where));
}

function clickAt(x, y, canvas = mapCanvas) {
  point("pointerdown", canvas, x, y);
  point("pointerup", canvas, x, y);
}

function press(key, target = document.body) {
  target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  draw();
}


function pixel(x, y) {
  const ratio = window.devicePixelRatio;
  const [r, g, b] = mapCanvas.getContext("2d").getImageData(Math.round(x * ratio), Math.round(y * ratio), 1, 1).data;
  return `#${[r, g, b].map((n) => n.toString(16).padStart(2, "0")).join("")}`;
}

/* The middle of a value in the picture of its allocation alone, from the numbers of the assignment. */
function middle(value, allocation, steps) {
  const area = plot();
  const [start, end] = value.live;
  const x = area.left + (((start + end + 1) / 2) * area.width) / (steps + 1);
  const y = area.top + area.height * (1 - (value.offset + value.size / 2) / allocation.size);
  return [x, y];
}

/* Every memory has its tab, its boxes and its peak. */
function checkMemories() {
  expected.memories.forEach((memory, i) => {
    document.getElementById(`memory-tab-${i}`).click();
    draw();
    const own = expected.allocations.filter((a) => a.color === memory.color);
    const sized = own.flatMap((a) => a.values).filter((v) => v.size > 0);
    expect(shown.boxes.count === sized.length, `${memory.name}: ${shown.boxes.count} boxes for ${sized.length} values`);
    expect(shown.drawn === sized.length, `${memory.name}: ${shown.drawn} boxes were drawn of ${sized.length}`);
    expect(shown.boxes.total === memory.total_bytes, `${memory.name}: the total is ${shown.boxes.total}`);
    const most = shown.boxes.live[shown.boxes.peak];
    const { bytes: peak, time } = memory.peak ?? { bytes: 0, time: 0 };
    expect(most === peak, `${memory.name}: the curve's peak is ${most}, not ${peak}`);
    expect(shown.boxes.peak === time, `${memory.name}: the peak is at ${shown.boxes.peak}, not ${time}`);
  });
}

/* In the picture of each allocation, every value that is large enough there is where it should be. */
function checkPlaces() {
  let hovered = 0;
  for (const [a, allocation] of expected.allocations.entries()) {
    const space = expected.memories.findIndex((m) => m.color === allocation.color);
    document.getElementById(`memory-tab-${space}`).click();
    choose("allocation", String(a));
    const s = scales();
    for (const value of allocation.values.filter((v) => v.live && v.size > 0)) {
      // Values that take turns in one place end where the next begins: those are covered by the next.
      const next = allocation.values.some((o) => o !== value && o.live && o.offset === value.offset && o.live[0] <= value.live[1] && o.live[0] >= value.live[0]);
      const large = (value.size / allocation.size) * s.area.height >= 4 && (value.live[1] - value.live[0] + 1) * s.perStep >= 4;
      if (next || !large || hovered > 400) continue;
      hovered += 1;
      const [x, y] = middle(value, allocation, expected.schedule_length);
      point("pointermove", mapCanvas, x, y);
      expect(tip().startsWith(value.value), `at ${value.value} the page shows "${tip()}"`);
    }
  }
  seen.hovered = hovered;
  document.getElementById("memory-tab-0").click();
  choose("allocation", "-1");
}

/* A click opens what there is to say of a value; its colour is on the canvas. */
function checkDetails() {
  choose("colouring", "kind");
  const b = shown.boxes.boxOf.get(values.id.findIndex((_, v) => nameOf(v) === expected.look_at));
  selectValue(-1);
  draw();
  const r = place(b, scales());
  // Names are written from the left: the right end of a box is plain colour.
  const at = [r.left + r.width * 0.93, r.top + r.height * 0.5];
  seen.pixel = pixel(...at);
  seen.fill = getComputedStyle(document.documentElement).getPropertyValue(`--c${kindOf(shown.boxes.value[b])}`).trim();
  clickAt(...at);
  seen.details = panels.details.textContent;
  seen.selected = nameOf(shown.selected);
  clickAt(plot().left + 1, 40, curveCanvas);
  seen.moment = panels.moment.textContent;
  expect(shown.selected === -1, "a click beside all boxes clears the selection");
}

/* Advice is shown for the memory that it is about, and leads to its value. */
function checkAdvice() {
  const { color } = expected.memories[shown.space];
  const own = expected.advice.filter((a) => a.color === color);
  const shownItems = [...document.querySelectorAll("#memory-advice li")];
  expect(shownItems.length === own.length, `${shownItems.length} of ${own.length} pieces of advice are shown`);
  own.slice(0, 10).forEach((advice, i) => {
    expect(shownItems[i].textContent.includes(advice.text.replaceAll("`", "")), `${advice.text} is not shown`);
    if (advice.value === undefined) return;
    shownItems[i].querySelector("button").click();
    expect(nameOf(shown.selected) === advice.value, `advice on ${advice.value} leads to ${nameOf(shown.selected)}`);
  });
  seen.advice = own.length;
  selectValue(-1);
}

function checkSearch() {
  choose("search", expected.search_for);
  seen.found = [...shown.boxes.value].filter((v) => shown.matches[v]).map(nameOf);
  seen.said = found.textContent;
  press("Enter", searchBox);
  seen.first = shown.selected >= 0 ? nameOf(shown.selected) : "";
  choose("search", "no such thing anywhere");
  seen.nothing = found.textContent;
  press("Escape");
  expect(shown.matches === null && shown.selected === -1, "Escape clears the search and the selection");
}

function checkMoving() {
  const width = () => view.right - view.left;
  const whole = width();
  press("+");
  expect(width() < whole, "+ zooms in");
  const left = view.left;
  press("ArrowRight");
  expect(view.left > left, "an arrow moves the view");
  const where = { left: view.left, right: view.right };
  point("pointerdown", mapCanvas, 300, 100);
  point("pointermove", mapCanvas, 340, 100);
  point("pointerup", mapCanvas, 340, 100);
  expect(view.left < where.left && shown.selected === -1, "dragging moves the view and selects nothing");
  press("0");
  expect(width() === whole, "0 shows everything");
  const r = mapCanvas.getBoundingClientRect();
  const under = scales().step(500);
  mapCanvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -200, clientX: r.left + 500, clientY: r.top + 100, cancelable: true }));
  expect(width() < whole && Math.abs(scales().step(500) - under) < 1e-6, "the wheel zooms around the pointer");
  press("p");
  expect(view.left <= shown.boxes.peak && shown.boxes.peak < view.right, "p zooms to the peak");
  press("0");
  press("]");
  const first = shown.selected;
  press("]");
  expect(first >= 0 && shown.selected !== first, "] goes from value to value");
  press("[");
  expect(shown.selected === first, "[ goes back");
  press("Enter", mapCanvas);
  expect(width() <= whole, "Enter zooms to the selected box");
  press("Escape");
  press("0");
  choose("scale", "even");
  const low = Math.min(...[...shown.boxes.value].map((_, b) => shown.boxes.high[b] - shown.boxes.low[b]));
  expect(low >= 1, "with even heights no box is lower than a row");
  choose("scale", "bytes");
  const tabs = document.getElementById("memory-tabs");
  press("ArrowRight", tabs.firstChild);
  expect(tabs.querySelectorAll("[aria-selected=true]").length === 1, "one tab is selected");
  document.getElementById("memory-tab-0").click();
  draw();
}

/* A memory of thousands: parameters are folded away, what is alike is listed once, and the peak is in sight. */
function checkMany() {
  const kinds = new Set([...shown.boxes.value].map(kindOf));
  seen.folded = { options: tools.allocation.select.length, boxes: shown.boxes.count, given: kinds.has(0) || kinds.has(1) };
  press("p");
  seen.folded.near = view.right - view.left;
  const rows = [...panels.moment.querySelectorAll("tr")];
  seen.folded.rows = rows.map((row) => row.textContent);
  choose("allocation", "-1");
  seen.folded.all = shown.boxes.count;
}

/* How long a frame takes, to the last pixel, and how long it takes to find what is under the pointer. */
function measure() {
  const time = (work) => {
    const times = [];
    for (let i = 0; i < 15; i++) {
      const begun = performance.now();
      work(i);
      times.push(performance.now() - begun);
    }
    // The least, since the machine may have other things to do.
    return Math.min(...times);
  };
  const frame = () => {
    repaint();
    pixel(200, 200);
  };
  frame();
  const drawn = shown.drawn;
  seen.milliseconds = { whole: time(frame) };
  seen.milliseconds.hover = time((i) => {
    point("pointermove", mapCanvas, 150 + 40 * i, 100 + 10 * i);
    draw();
    pixel(200, 200);
  });
  seen.milliseconds.search = time(() => choose("search", expected.search_for));
  choose("search", "");
  setView(plan.steps / 3, plan.steps / 3 + Math.min(60, plan.steps / 5), 0, shown.boxes.height);
  seen.milliseconds.near = time(frame);
  expect(shown.drawn > 0 && shown.drawn < drawn, `near by ${shown.drawn} boxes are drawn, of ${drawn} in all`);
}

try {
  if (expected.many) {
    checkMany();
  } else {
    checkMemories();
    checkPlaces();
    checkDetails();
    checkAdvice();
    checkSearch();
    checkMoving();
    measure();
  }
  seen.title = document.title;
  seen.markup = document.querySelectorAll("img, iframe, object, body script").length;
  seen.owned = window.owned === undefined;
} catch (error) {
  seen.failures.push(`${error}\n${error.stack}`);
}
const result = document.createElement("pre");
result.id = "seen";
result.textContent = JSON.stringify(seen);
document.body.append(result);
