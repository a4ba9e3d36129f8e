//! Pages in a real browser without a window, for the tests of what `hloom` writes in HTML.
//!
//! A copy of a page gets a script at its end that uses it with the events of pointer and keys; what it saw comes back as
//! JSON. Where there is no browser these tests say so and end; `HLOOM_BROWSER` names one that is not found by itself.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use super::*;
use flate2::read::DeflateDecoder;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

const BROWSERS: [&str; 5] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];

/// The browser on this machine; without one, says so.
pub(super) fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("HLOOM_BROWSER") {
        return Some(named.into());
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::env::split_paths(&folders).flat_map(|f| BROWSERS.map(|b| f.join(b)));
    let found = paths.into_iter().find(|p| p.is_file());
    if found.is_none() {
        eprintln!("skipped: there is no browser here ({}, or HLOOM_BROWSER)", BROWSERS.join(", "));
    }
    found
}

/// Opens the file in the browser and returns what its page looks like to a program once everything in it has run.
pub(super) fn dom_of(browser: &Path, folder: &Folder, page: &str, more: &[&str]) -> String {
    let out = folder.0.join("dom.html");
    let profile = folder.0.join("profile");
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(["--window-size=1400,900", "--dump-dom"])
        .args(more)
        .arg(format!("file://{}", folder.0.join(page).display()))
        .stdin(Stdio::null())
        .stdout(File::create(&out).expect("a file for the page"))
        .stderr(Stdio::null())
        .spawn()
        .expect("the browser starts");
    let begun = Instant::now();
    let ended = loop {
        match child.try_wait().expect("the browser can be waited for") {
            Some(_) => break true,
            None if begun.elapsed() > Duration::from_secs(120) => break false,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    if !ended {
        child.kill().expect("the browser can be ended");
        let _ = child.wait();
    }
    assert!(ended, "the browser did not end in two minutes");
    folder.read("dom.html")
}

/// Uses the page in `file` by `script`, which finds `expected` under that name, and returns what it saw. The script runs
/// when the page is complete: for that the data are put in as plain JSON, which the page reads at once.
pub(super) fn use_html(browser: &Path, folder: &Folder, file: &str, expected: &Value, script: &str) -> Value {
    use_html_for(browser, folder, file, expected, script, &[])
}

/// The same with more options of the browser: one that gives the page time lets a script wait for what comes later.
pub(super) fn use_html_for(
    browser: &Path,
    folder: &Folder,
    file: &str,
    expected: &Value,
    script: &str,
    more: &[&str],
) -> Value {
    let page = with_plain_data(&folder.read(file));
    let script = format!(
        "<script type=\"module\">\nconst expected = {};\n{script}</script>\n</body>",
        expected.to_string().replace('<', "\\u003c"),
    );
    let (start, end) = page.rsplit_once("</body>").expect("the page has a body");
    std::fs::write(folder.0.join("used.html"), format!("{start}{script}{end}")).expect("it can be written");
    let dom = dom_of(browser, folder, "used.html", more);
    let seen = dom.rsplit_once("<pre id=\"seen\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (seen, _) =
        seen.unwrap_or_else(|| panic!("the page's script did not end: {}", &dom[dom.len().saturating_sub(3000)..]));
    let seen = seen.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let seen: Value = serde_json::from_str(&seen).unwrap_or_else(|e| panic!("{e}: {seen}"));
    assert_eq!(seen["failures"], json!([]), "{seen:#}");
    seen
}

/// The page with its data as they were before they were deflated, and with no policy against the test's own script.
fn with_plain_data(page: &str) -> String {
    let (before, rest) = page.split_once("<script type=\"text/plain\" id=\"data\">").expect("the page has data");
    let (data, after) = rest.split_once("</script>").expect("they end");
    let mut json = String::new();
    DeflateDecoder::new(&*from_base64(data)).read_to_string(&mut json).expect("they are deflated");
    let (head, policy) = before.split_once("<meta http-equiv=\"Content-Security-Policy\"").expect("it has a policy");
    let before = format!("{head}{}", policy.split_once('>').expect("it ends").1);
    let json = json.replace('<', "\\u003c");
    format!("{before}<script type=\"application/json\" id=\"data\">{json}</script>{after}")
}

fn from_base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for chunk in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = chunk.iter().enumerate().fold(0u32, |n, (i, &c)| n | u32::from(digit(c)) << (18 - 6 * i));
        out.extend(bits.to_be_bytes()[1..].iter().take(chunk.len() - 1));
    }
    out
}
