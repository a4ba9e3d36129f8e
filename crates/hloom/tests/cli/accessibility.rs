//! What axe-core, the usual automatic check of accessibility, says of the pages: in every view, wide and narrow, on light
//! and on dark ground.
//!
//! axe-core is no part of this project: `./x test` puts it into the target folder, `HLOOM_AXE` names its `axe.min.js`
//! elsewhere. Where it or a browser is missing these tests say so and end.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use super::browser::{browser, use_html_for};
use super::report_page::{MODULE, TRACE};
use super::*;
use serde_json::json;

/// Where the check is put, in a folder of its own beside the builds.
const USUAL_PLACE: &str = "axe/axe_playwright_python/axe.min.js";

/// The text of axe-core; without one, says so.
fn axe() -> Option<String> {
    let target = Path::new(env!("CARGO_BIN_EXE_hloom")).ancestors().nth(2).map(|t| t.join(USUAL_PLACE));
    let named = std::env::var_os("HLOOM_AXE").map(PathBuf::from).or(target)?;
    let text = std::fs::read_to_string(&named).ok();
    if text.is_none() {
        eprintln!("skipped: there is no axe-core here ({}, or HLOOM_AXE)", named.display());
    }
    text
}

/// Lets the check look at all views of a page.
fn check(browser: &Path, axe: &str, folder: &Folder, page: &str, select: &str) {
    let script = format!("{axe}\n{}", include_str!("accessibility.js"));
    for size in ["1400,900", "820,600"] {
        for scheme in ["light", "dark"] {
            let dark = if scheme == "dark" { 0 } else { 1 };
            let look = [format!("--window-size={size}"), format!("--blink-settings=preferredColorScheme={dark}")];
            let look = [&*look[0], &*look[1], "--virtual-time-budget=60000"];
            let expected = json!({ "select": select, "scheme": scheme });
            let seen = use_html_for(browser, folder, page, &expected, &script, &look);
            assert!(seen["checked"].as_u64() > Some(20), "{page}, {size}, {scheme}: {seen:#}");
        }
    }
}

#[test]
fn every_view_of_a_report_passes() {
    let (Some(browser), Some(axe)) = (browser(), axe()) else { return };
    let folder = Folder::new("axe-report").with("m.hlo", MODULE).with("t.json", TRACE);
    folder.hloom(&["report", "m.hlo", "--trace", "t.json", "-o", "page.html"]).exits(0);
    check(&browser, &axe, &folder, "page.html", "act");
}

#[test]
fn comparisons_and_indices_pass() {
    let (Some(browser), Some(axe)) = (browser(), axe()) else { return };
    let other = MODULE.replace("tanh(g)", "cosine(g)");
    let folder = Folder::new("axe-others").with("d/a.hlo", MODULE).with("d/b.hlo", other).with("d/bad.hlo", "no");
    folder.hloom(&["report", "d/a.hlo", "d/b.hlo", "-o", "two.html"]).exits(0);
    check(&browser, &axe, &folder, "two.html", "act");
    folder.hloom(&["report", "d", "-o", "index.html", "--pages"]).exits(0);
    check(&browser, &axe, &folder, "index.html", "");
}
