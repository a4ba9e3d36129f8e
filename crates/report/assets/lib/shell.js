/* The frame around the views: tabs, the way from an address to what is shown, the search for an instruction, and keys. */
let currentView = "";

/* Which instructions a view can show. */
Object.assign(views, Object.fromEntries(Object.entries({
  where: () => true,
  memory: (i) => buffersOf(i).length > 0,
  timeline: (i) => mod.timelines.some((t) => t.instruction.includes(i)),
  graph: () => true,
  collectives: (i) => mod.collectives.all.some((c) => c.instruction === i || c.also.includes(i)),
}).map(([id, selects]) => [id, { ...views[id], selects }])));

/* Goes to a view, and to an instruction there; -1 is none. */
function goTo(view, i) {
  const address = addressOf(view, i);
  if (location.hash === address) follow();
  else location.hash = address;
}

/* Shows what the address says. */
function follow() {
  const where = parseHash();
  if (where.module !== shownModule) return location.reload();
  const view = page.views.includes(where.view) ? where.view : page.views[0];
  const i = where.instruction ? byName.get(where.instruction) ?? -1 : -1;
  showView(view);
  select(i);
}

function showView(id) {
  if (currentView !== id) {
    currentView = id;
    for (const other of page.views) {
      byId(`view-${other}`).hidden = other !== id;
      const tab = byId(`tab-of-${other}`);
      tab?.setAttribute("aria-selected", String(other === id));
      if (tab) tab.tabIndex = other === id ? 0 : -1;
    }
    showTip();
  }
  made[id] ??= views[id].make(byId(`view-${id}`));
  made[id].show?.();
}

/* Selects an instruction in the view that is shown; its card stands beside all views that have none of their own. */
function select(i) {
  selection.instruction = i;
  const panel = byId("inspector");
  panel.hidden = i < 0 || made[currentView].hasOwnCard === true;
  if (!panel.hidden) {
    const close = button("×", { className: "close", title: "Close (Esc)", "aria-label": "Close" }, () => goTo(currentView, -1));
    panel.replaceChildren(close, ...instructionCard(i));
    panel.scrollTop = 0;
  }
  made[currentView].select?.(i);
}

/* The box that finds instructions by their names. */
function jumpBox() {
  const box = byId("jump");
  const list = byId("jump-list");
  let active = -1;
  const close = () => {
    list.hidden = true;
    active = -1;
    box.setAttribute("aria-expanded", "false");
    box.removeAttribute("aria-activedescendant");
  };
  const best = (query) => {
    const matches = searchInstructions(query);
    if (!matches) return [];
    const wanted = query.trim().toLowerCase();
    const rank = (i) => {
      const at = ins.name(i).toLowerCase().indexOf(wanted);
      return at === 0 ? ins.name(i).length : at > 0 ? 1e5 : 2e5;
    };
    const found = [];
    for (let i = 0; i < instructionCount; i++) if (matches[i]) found.push([rank(i), i]);
    return found.sort((a, b) => a[0] - b[0] || a[1] - b[1]).slice(0, 12).map(([, i]) => i);
  };
  const choose = (i) => {
    close();
    box.value = "";
    const target = views[currentView].selects?.(i) ? currentView : page.views.find((v) => views[v].selects?.(i)) ?? currentView;
    goTo(target, i);
    box.blur();
  };
  const mark = (at) => {
    active = at;
    [...list.children].forEach((item, k) => item.setAttribute("aria-selected", String(k === at)));
    if (at >= 0) box.setAttribute("aria-activedescendant", `jump-${at}`);
  };
  let found = [];
  box.addEventListener("input", () => {
    found = best(box.value);
    list.replaceChildren(...found.map((i, k) => {
      const item = element("li", { id: `jump-${k}`, role: "option", "aria-selected": "false" }, element("span", { className: "mono" }, clip(ins.name(i), 80)),
        element("span", { className: "quiet" }, ` ${clip(`${ins.opcode(i)} ${ins.shape(i)}`, 80)}`));
      item.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        choose(i);
      });
      return item;
    }));
    list.hidden = found.length === 0;
    box.setAttribute("aria-expanded", String(!list.hidden));
    mark(found.length ? 0 : -1);
  });
  box.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) {
      event.preventDefault();
      mark((active + step + found.length) % found.length);
    }
    if (event.key === "Enter" && active >= 0 && !list.hidden) choose(found[active]);
    if (event.key === "Escape") {
      close();
      box.value = "";
      box.blur();
    }
  });
  box.addEventListener("blur", close);
}

function keys(event) {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const number = Number(event.key);
  if (made[currentView].keys?.(event)) {
    event.preventDefault();
  } else if (event.key === "/") {
    event.preventDefault();
    byId("jump").focus();
  } else if (event.key === "Escape" && selection.instruction >= 0) {
    goTo(currentView, -1);
  } else if (number >= 1 && number <= page.views.length) {
    goTo(page.views[number - 1], selection.instruction);
  }
}

function tabs() {
  if (page.views.length === 1) byId("view-tabs").hidden = true;
  for (const [k, id] of page.views.entries()) {
    const alone = page.views.length === 1;
    byId("views").append(element("section", { id: `view-${id}`, className: "view", hidden: true, ...(alone ? {} : { role: "tabpanel", "aria-labelledby": `tab-of-${id}` }) }));
    const tab = button(views[id].title, { id: `tab-of-${id}`, role: "tab", "aria-controls": `view-${id}`, title: `${views[id].title} (${k + 1})`, tabIndex: -1 }, () => goTo(id, selection.instruction));
    if (!alone) byId("view-tabs").append(tab);
  }
  byId("view-tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = page.views[(page.views.indexOf(currentView) + step + page.views.length) % page.views.length];
    byId(`tab-of-${next}`).focus();
    goTo(next, selection.instruction);
  });
}

/* Of two modules, which one the views show. */
function moduleChoice() {
  if (page.modules.length < 2) return;
  byId("module-choice").hidden = false;
  byId("module-choice").append(...page.modules.map((m, k) => {
    const go = () => (location.hash = `#${k ? "b" : ""}/${currentView}`);
    return button(`${"AB"[k]} ${clip(m.file.split("/").at(-1), 40)}`, { "aria-pressed": String(k === shownModule), title: m.file }, go);
  }));
}

function startPage() {
  byId("module-name").textContent = clip(mod.name, 200);
  const devices = mod.collectives.devices;
  byId("module-about").textContent = `${count(instructionCount, "instruction")} in ${count(computationCount, "computation")}` +
    `${mod.is_scheduled ? ", scheduled" : ""}${devices > 1 ? `, ${count(devices, "device")}` : ""}`;
  readTheme();
  tabs();
  moduleChoice();
  jumpBox();
  window.addEventListener("hashchange", follow);
  document.addEventListener("keydown", keys);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readTheme();
    Object.values(made).forEach((view) => view.redraw?.());
  });
  // Paper has no scroll bars: tables show what fits.
  window.addEventListener("beforeprint", () => made[currentView].print?.(true));
  window.addEventListener("afterprint", () => made[currentView].print?.(false));
  follow();
}

startPage();
globalThis.hloom = { made, views, mod, ins, select, goTo, selection, metrics, byName };
document.documentElement.dataset.ready = "true";
