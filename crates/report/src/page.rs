//! Pages: one file of HTML that needs nothing else and asks no network.
//!
//! Markup, style and script are the files in `assets/`, plain as they are; what they show is put in as JSON, deflated and in
//! base64, so that nothing from a module can end an element or become markup. The page's own policy names the hashes of
//! its script and style: no other script runs in it, whatever it shows.

use crate::diff::{diff, to_json};
use crate::memory::MemoryReport;
use crate::module_data::{ModuleData, module_data};
use crate::timeline::Timeline;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use hloom_ir::verify::VerifiedModule;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::io::Write;

const HTML: &str = include_str!("../assets/page.html");
const STYLE: &str = concat!(
    include_str!("../assets/lib/base.css"),
    include_str!("../assets/lib/views.css"),
    include_str!("../assets/memory/memory.css"),
);

/// The files of a view: together they are the body of the function that makes it in the element `root`.
macro_rules! view {
    ($id:literal, $title:literal, $($file:literal),+) => {
        concat!(
            "views[\"", $id, "\"] = { title: \"", $title, "\", make: (root) => {\n",
            $(include_str!(concat!("../assets/", $id, "/", $file))),+,
            "} };\n"
        )
    };
}

/// What all views use, then each view, then what starts the page.
const SCRIPT: &str = concat!(
    "\n",
    include_str!("../assets/lib/words.js"),
    include_str!("../assets/lib/dom.js"),
    include_str!("../assets/lib/canvas.js"),
    include_str!("../assets/lib/table.js"),
    include_str!("../assets/lib/data.js"),
    include_str!("../assets/lib/module.js"),
    include_str!("../assets/lib/inspector.js"),
    view!("difference", "Differences", "main.js"),
    view!("summary", "Summary", "main.js"),
    view!("where", "Where it goes", "tree.js", "draw.js", "main.js"),
    view!("memory", "Memory", "model.js", "draw.js", "panel.js", "main.js"),
    view!("timeline", "Timeline", "model.js", "draw.js", "main.js"),
    view!("graph", "Graph", "layout.js", "model.js", "draw.js", "main.js"),
    view!("collectives", "Collectives", "main.js"),
    include_str!("../assets/lib/shell.js"),
);

/// A module that a page is about, and what is known of it.
pub struct Subject<'a> {
    /// The module.
    pub module: &'a VerifiedModule,
    /// The file that it was read from.
    pub file: &'a str,
    /// Its memory, planned; or why it could not be.
    pub memory: Result<&'a MemoryReport<'a, 'a>, String>,
    /// When it ran, and when it would run; the first is shown first.
    pub timelines: &'a [Timeline],
    /// Why it could not be simulated, where it could not.
    pub simulation_absent: Option<&'a str>,
}

#[derive(Serialize)]
struct PageData<'a> {
    views: &'a [&'a str],
    modules: Vec<ModuleData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<serde_json::Value>,
}

/// The whole report on a module.
pub fn report(subject: &Subject<'_>) -> String {
    let views = ["summary", "where", "memory", "timeline", "graph", "collectives"];
    let module = module_data(subject);
    let title = format!("{} · report", module.name);
    page(&title, &PageData { views: &views, modules: vec![module], difference: None })
}

/// Two modules beside each other, with what differs first.
pub fn comparison(before: &Subject<'_>, after: &Subject<'_>) -> String {
    let views = ["difference", "summary", "where", "memory", "timeline", "graph", "collectives"];
    let modules = vec![module_data(before), module_data(after)];
    let title = format!("{} and {} · comparison", modules[0].name, modules[1].name);
    let difference = Some(to_json(&diff(before.module, after.module)));
    page(&title, &PageData { views: &views, modules, difference })
}

/// The memory view alone.
pub fn memory(subject: &Subject<'_>) -> String {
    let module = module_data(subject);
    let title = format!("{} · memory", module.name);
    page(&title, &PageData { views: &["memory"], modules: vec![module], difference: None })
}

fn page(title: &str, data: &PageData<'_>) -> String {
    let json = serde_json::to_vec(data).unwrap_or_default();
    fill(HTML, STYLE, SCRIPT, title, &json)
}

/// Puts title, style, data and script into the markup.
pub(crate) fn fill(html: &str, style: &str, script: &str, title: &str, json: &[u8]) -> String {
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; form-action 'none'; base-uri 'none'",
        base64(&Sha256::digest(script)),
        base64(&Sha256::digest(style)),
    );
    let data = base64(&deflate(json));
    let parts =
        [("policy", &*policy), ("title", &escape(title)), ("style", style), ("data", &data), ("script", script)];
    let mut page = String::with_capacity(data.len() + html.len() + style.len() + script.len() + 1024);
    let mut rest = html;
    // The marks are looked for in the page's own text only, never in what has been put in.
    for (mark, content) in parts {
        let (before, after) = rest.split_once(&format!("<!--{mark}-->")).unwrap_or((rest, ""));
        page.extend([before, content]);
        rest = after;
    }
    page.push_str(rest);
    page
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(bytes.len() / 6), Compression::default());
    // Writing into memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let place = (bits >> (18 - 6 * digit)) & 63;
            out.push(if digit <= chunk.len() { char::from(DIGITS[place as usize]) } else { '=' });
        }
    }
    out
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_fills_up_with_equals_signs() {
        let encoded: Vec<String> = ["", "f", "fo", "foo", "foob"].map(|t| base64(t.as_bytes())).into();
        assert_eq!(encoded, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    }

    #[test]
    fn the_marks_of_the_markup_are_all_filled() {
        let page = fill(HTML, STYLE, SCRIPT, "<title> & <!--data-->", b"{}");
        for mark in ["policy", "title", "style", "script"] {
            assert!(!page.contains(&format!("<!--{mark}-->")), "{mark}");
        }
        assert!(page.contains("<title>&lt;title&gt; &amp; &lt;!--data--&gt;</title>"));
        assert_eq!(page.matches("<script").count(), 2, "data and script");
    }
}
