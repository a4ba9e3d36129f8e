/* Making parts of the page. Everything from a module goes in as text, never as markup. */
const byId = (id) => document.getElementById(id);

/* An element: properties are set as they are, those with a dash as attributes. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role" || name === "for" || name === "scope") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
  return made;
}

function button(words, properties, action) {
  const made = element("button", { type: "button", ...properties }, words);
  made.addEventListener("click", action);
  return made;
}

/* A choice with its label before it; `options` are pairs of a value and words. */
function choice(label, options, action, properties = {}) {
  const made = options.map(([value, words]) => element("option", { value, textContent: words }));
  const select = element("select", properties, ...made);
  select.addEventListener("change", () => action(select.value));
  return { label: element("label", {}, `${label} `, select), select };
}

/* A list of terms and what is said of them; those without a word are left out. */
function terms(pairs) {
  const rows = pairs.filter(([, ...content]) => content.some((c) => c !== "" && c !== null && c !== undefined));
  return element("dl", {}, ...rows.flatMap(([term, ...content]) => [element("dt", {}, term), element("dd", {}, ...content)]));
}

/* A box beside the pointer, one for the whole page. */
const tip = element("div", { id: "tip", role: "presentation", hidden: true });
document.body.append(tip);

function showTip(event, ...lines) {
  tip.hidden = lines.length === 0;
  if (tip.hidden) return;
  const [first, ...rest] = lines;
  tip.replaceChildren(element("b", {}, clip(first, 300)), ...rest.filter(Boolean).map((l) => element("div", {}, clip(l, 400))));
  const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 6);
  const below = event.clientY + 18 + tip.offsetHeight < window.innerHeight;
  tip.style.left = `${Math.max(0, left)}px`;
  tip.style.top = `${below ? event.clientY + 18 : Math.max(0, event.clientY - tip.offsetHeight - 10)}px`;
}

/* Gives a text to the user as a file. */
function download(name, type, text) {
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
