/* The index of modules: a table with their figures, and what could not be read. */
const { entries, title } = page;
const good = entries.filter((e) => !e.problem);
const bad = entries.filter((e) => e.problem);
const folder = commonFolder(entries.map((e) => e.file));

/* What all files lie in; names are told without it. */
function commonFolder(files) {
  if (files.length === 0) return "";
  const parts = files[0].split("/").slice(0, -1);
  while (parts.length && !files.every((f) => f.startsWith(`${parts.join("/")}/`))) parts.pop();
  return parts.length ? `${parts.join("/")}/` : "";
}

const shortName = (e) => e.file.slice(folder.length);
/* A page's address is one of ours; anything else is no link. */
const isOwn = (address) => /^[^:<>"]+\.html$/.test(address ?? "");
/* What a dump's file is of its module, as its name says. */
const stage = (e) => (/before_optimizations/.test(e.file) ? "before optimisation" : /after_optimizations/.test(e.file) ? "after optimisation" : "");
const number = (title, key, words, help) => ({ title, help, value: (e) => e[key], cell: (e) => (e[key] ? words(e[key]) : "") });
const columns = [
  { title: "file", isText: true, value: shortName, cell: (e) => (isOwn(e.page) ? element("a", { href: e.page, title: e.file }, clip(shortName(e), 90)) : element("span", { title: clip(e.file, 400) }, clip(shortName(e), 90))) },
  { title: "module", isText: true, value: (e) => e.module, cell: (e) => clip(e.module, 60) },
  { title: "stage", isText: true, value: stage, cell: stage },
  number("instructions", "instructions", exact),
  number("fusions", "fusions", exact),
  number("flops", "flops", big, "Flops of one run on one device"),
  number("memory traffic", "bytes", bytes, "Bytes read and written in one run on one device"),
  number("parameters", "parameter_bytes", bytes),
  number("results", "result_bytes", bytes),
  number("devices", "devices", exact),
  number("collectives", "collectives", exact),
  number("put into them", "collective_bytes", bytes, "Bytes that a device puts into collectives in one run"),
  {
    title: "buffer assignment",
    help: "Bytes of the buffer assignment that was dumped beside the module, and whether it is right",
    value: (e) => e.assignment?.bytes ?? 0,
    cell: (e) => (e.assignment ? element("span", { title: clip(e.assignment.fault ?? e.assignment.file, 400) }, `${bytes(e.assignment.bytes)}${e.assignment.fault ? ", not as planned" : ", right"}`) : ""),
  },
  { title: "scheduled", isText: true, value: (e) => (e.is_scheduled ? "yes" : ""), cell: (e) => (e.is_scheduled ? "yes" : "") },
];
/* What no module has is no column. */
const table = new Table(columns.filter((c) => good.some((e) => c.value(e))), { label: "Modules", sorted: 0, descending: false });

const filter = element("input", { type: "search", placeholder: "Filter: files, modules ( / )", "aria-label": "Filter by file or module", autocomplete: "off", spellcheck: false });
const found = element("output", { className: "quiet", "aria-live": "polite" });

function refresh() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = good.filter((e) => words.every((w) => `${e.file} ${e.module}`.toLowerCase().includes(w)));
  found.textContent = count(rows.length, "module");
  table.setRows(rows);
}

readTheme();
byId("folder").textContent = clip(title, 300);
byId("told").textContent = `${count(good.length, "module")}${bad.length ? `, ${count(bad.length, "file")} that could not be read` : ""}`;
byId("list").append(element("div", { className: "tools" }, element("span", { className: "search" }, filter, found)), table.place);
if (bad.length) {
  const items = bad.map((e) => element("li", {}, element("span", { className: "mono" }, clip(shortName(e), 160)), ` ${clip(e.problem, 600)}`));
  byId("list").append(element("details", { className: "panel", open: good.length === 0 }, element("summary", {}, `${count(bad.length, "file")} could not be read`), element("ul", {}, ...items)));
}
filter.addEventListener("input", refresh);
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.matches("input")) return;
  event.preventDefault();
  filter.focus();
});
window.addEventListener("beforeprint", () => table.print(true));
window.addEventListener("afterprint", () => table.print(false));
refresh();
globalThis.hloom = { entries, table };
document.documentElement.dataset.ready = "true";
