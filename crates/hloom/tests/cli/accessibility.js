/* Lets axe-core look at each view of a page, with and without an instruction selected. What it objects to goes into an
 * element of its own, as JSON, for the test to read.
 */
const seen = { failures: [], checked: 0 };

async function look(at) {
  const { violations, passes } = await globalThis.axe.run(document, { resultTypes: ["violations"] });
  seen.checked += passes.length;
  for (const v of violations) seen.failures.push(`${at}: ${v.id} (${v.impact}): ${v.help}: ${v.nodes[0].html.slice(0, 200)}`);
}

try {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  if (isDark !== (expected.scheme === "dark")) seen.failures.push(`the page is not ${expected.scheme}`);
  const tabs = [...document.querySelectorAll("#view-tabs [role=tab]")];
  if (tabs.length === 0) await look("the page");
  for (const tab of tabs) {
    tab.click();
    window.dispatchEvent(new HashChangeEvent("hashchange"));
    await look(tab.textContent);
    const view = tab.id.slice("tab-of-".length);
    const { goTo, byName } = globalThis.hloom;
    if (view === "difference") continue;
    goTo(view, byName.get(expected.select));
    window.dispatchEvent(new HashChangeEvent("hashchange"));
    await look(`${tab.textContent}, ${expected.select} selected`);
  }
} catch (error) {
  seen.failures.push(String(error.stack ?? error));
}
const result = document.createElement("pre");
result.id = "seen";
result.textContent = JSON.stringify(seen);
document.body.append(result);
