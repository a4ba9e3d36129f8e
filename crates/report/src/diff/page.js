// Shows the differences whose text holds what is typed. Without scripts the page shows them all.
const field = document.querySelector("#find");
const all = [...document.querySelectorAll("main > article")].map((node) => [node, node.textContent.toLowerCase()]);
const count = document.querySelector("#count");
field.addEventListener("input", () => {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const [node, text] of all) {
    node.hidden = !words.every((word) => text.includes(word));
    shown += node.hidden ? 0 : 1;
  }
  count.textContent = `${shown} of ${all.length} shown`;
});
