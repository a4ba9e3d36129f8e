//! The page of `hloom memory --html`, in a real browser without a window.
//!
//! A copy of the page gets a script at its end (`memory_page.js`) that uses it with the events of pointer and keys, and
//! compares what it shows with what `--json` says. Where there is no browser these tests say so and end;
//! `HLOOM_BROWSER` names one that is not found by itself.
#![allow(clippy::print_stderr, reason = "a test that measures tells")]

use super::browser::{browser, use_html};
use super::*;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Makes the page of the module in `file`, uses it, and returns what was seen. `more` goes to the script: `look_at` is the
/// value that is clicked, `search_for` what is searched.
fn use_page(browser: &Path, folder: &Folder, file: &str, target: &str, more: &Value) -> Value {
    folder.hloom(&["memory", file, "--target", target, "--html", "page.html"]).exits(0);
    let mut expected =
        json_lines(&folder.hloom(&["memory", file, "--target", target, "--json"]).exits(0).stdout).remove(0);
    let (Value::Object(expected_fields), Value::Object(more)) = (&mut expected, more) else { panic!("objects") };
    expected_fields.extend(more.clone());
    use_html(browser, folder, "page.html", &expected, include_str!("memory_page.js"))
}

const MODULE: &str = r#"HloModule two_memories, is_scheduled=true

sum {
  l = f32[] parameter(0)
  r = f32[] parameter(1)
  ROOT s = f32[] add(l, r)
}

ENTRY e {
  x = f32[256,256]{1,0:T(8,128)} parameter(0), metadata={op_name="x"}
  w = f32[256,256]{1,0:T(8,128)} parameter(1)
  early = f32[256,256]{1,0:T(8,128)} multiply(x, w), metadata={op_name="net/early" source_file="net.py" source_line=7}
  fast = f32[256,256]{1,0:T(8,128)S(1)} reverse(x), dimensions={0}, metadata={op_name="net/fast" source_file="net.py" source_line=8}
  slow = f32[256,256]{1,0:T(8,128)} reverse(fast), dimensions={1}
  zero = f32[]{:T(128)} constant(0)
  wide = f32[512,512]{1,0:T(8,128)} pad(slow, zero), padding=128_128x128_128
  total = f32[512]{0:T(512)} reduce(wide, zero), dimensions={0}, to_apply=sum
  ROOT out = (f32[256,256]{1,0:T(8,128)}, f32[512]{0:T(512)}) tuple(early, total)
}
"#;

#[test]
fn the_page_shows_what_the_plan_says() {
    let Some(browser) = browser() else { return };
    let folder = Folder::new("memory-page").with("m.hlo", MODULE);
    let more = json!({ "look_at": "early", "search_for": "net.py rev" });
    let seen = use_page(&browser, &folder, "m.hlo", "tpu-v6e", &more);
    assert_eq!((&seen["selected"], &seen["pixel"]), (&json!("early"), &seen["fill"]), "{seen:#}");
    let details = seen["details"].as_str().unwrap_or_default();
    for part in
        ["early", "multiply", "f32[256,256]", "256 KiB (262,144 bytes)", "net.py:7", "net/early", "users (1)out", "xw"]
    {
        assert!(details.contains(part), "{part} is not in {details}");
    }
    assert!(seen["moment"].as_str().is_some_and(|m| m.starts_with("In use at step 0")), "{seen:#}");
    // In the memory that is shown nothing matches; `fast` is in the other one, and found when one goes on.
    assert_eq!((&seen["found"], &seen["said"], &seen["nothing"]), (&json!([]), &json!("0 found"), &json!("0 found")));
    assert!(seen["hovered"].as_i64().is_some_and(|n| n > 5), "{seen:#}");
    assert!(seen["advice"].as_i64().is_some_and(|n| n > 0), "{seen:#}");
}

#[test]
fn nothing_in_a_module_becomes_markup() {
    let Some(browser) = browser() else { return };
    // Readers allow no such names; what metadata says is free.
    let hostile = r#"\"'><script>owned=1</script><img src=x onerror=owned=1> <!-- ]]> &lt; <!--data-->"#;
    let text = format!(
        "HloModule m, is_scheduled=true\n\nENTRY e {{\n  x = f32[64]{{0}} parameter(0)\n  y = f32[64]{{0}} reverse(x), \
         dimensions={{0}}, metadata={{op_name=\"{hostile}\u{2028}\" source_file=\"</title></style></script>\" source_line=3}}\n  \
         ROOT r = f32[64]{{0}} reverse(y), dimensions={{0}}\n}}\n"
    );
    let folder = Folder::new("memory-hostile").with("m.hlo", text);
    let more = json!({ "look_at": "y", "search_for": "<script> <!-- </title>" });
    let seen = use_page(&browser, &folder, "m.hlo", "cpu", &more);
    assert_eq!((&seen["markup"], &seen["owned"]), (&json!(3), &json!(true)), "data, page and test: {seen:#}");
    assert_eq!((&seen["found"], &seen["first"], &seen["title"]), (&json!(["y"]), &json!("y"), &json!("m · memory")));
    let details = seen["details"].as_str().unwrap_or_default();
    for part in ["</title></style></script>:3", "\"'><script>owned=1</script><img", "<!-- ]]> &lt; <!--data-->\u{2028}"]
    {
        assert!(details.contains(part), "{part} is not in {details}");
    }
}

#[test]
fn the_page_stays_fluid_with_twenty_thousand_buffers() {
    let Some(browser) = browser() else { return };
    let n = 20_000usize;
    let mut text = String::from("HloModule large, is_scheduled=true\n\nENTRY e {\n");
    text.push_str("  b0 = f32[128]{0} parameter(0)\n  z = f32[] constant(0)\n");
    for i in 1..n {
        // What each reads was made some steps before, so that many are in use at once.
        let (size, read) = (32 + 32 * (i % 3), i.saturating_sub(i % 97 + 1));
        let _ = writeln!(text, "  t{i} = f32[{size}]{{0}} slice(b{read}), slice={{[0:{size}]}}");
        let root = if i + 1 == n { "ROOT " } else { "" };
        let _ = writeln!(text, "  {root}b{i} = f32[128]{{0}} pad(t{i}, z), padding=0_{}", 128 - size);
    }
    text.push_str("}\n");
    let folder = Folder::new("memory-large").with("m.hlo", text);
    let seen = use_page(&browser, &folder, "m.hlo", "cpu", &json!({ "look_at": "b0", "search_for": "t1999 slice" }));
    assert_eq!(seen["found"].as_array().map(Vec::len), Some(11), "{:#}", seen["found"]);
    // Not a measure of the machine: only what no quadratic step would pass.
    let times = &seen["milliseconds"];
    eprintln!("milliseconds for a frame with {} values and so on: {times}", 2 * n);
    for what in ["whole", "near", "hover", "search"] {
        assert!(times[what].as_f64().is_some_and(|t| t < 2000.0), "{what}: {times}");
    }
}

#[test]
fn many_parameters_are_folded_and_equal_values_listed_once() {
    let Some(browser) = browser() else { return };
    let n = 3000usize;
    let mut text = String::from("HloModule many, is_scheduled=true\n\nENTRY e {\n");
    for i in 0..n {
        let _ = writeln!(text, "  p{i} = f32[64]{{0}} parameter({i})");
    }
    // Half of what is made stays until the second half is made of it.
    for i in 0..n {
        let _ = writeln!(text, "  turned.{i} = f32[64]{{0}} reverse(p{i}), dimensions={{0}}");
    }
    let _ = writeln!(text, "  sum.0 = f32[64]{{0}} add(turned.0, turned.{})", n - 1);
    for i in 1..n {
        let root = if i + 1 == n { "ROOT " } else { "" };
        let _ = writeln!(text, "  {root}sum.{i} = f32[64]{{0}} add(sum.{}, turned.{i})", i - 1);
    }
    text.push_str("}\n");
    let folder = Folder::new("memory-many").with("m.hlo", text);
    let seen = use_page(&browser, &folder, "m.hlo", "cpu", &json!({ "many": true }));
    let folded = &seen["folded"];
    assert!(folded["options"].as_u64().is_some_and(|o| o < 310), "{folded:#}");
    assert_eq!((&folded["given"], &folded["all"]), (&json!(false), &json!(3 * n)), "{folded:#}");
    assert_eq!(folded["boxes"], json!(2 * n), "{folded:#}");
    assert!(folded["near"].as_f64().is_some_and(|width| width < n as f64), "{folded:#}");
    let rows = folded["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 1, "{rows:#?}");
    assert!(rows[0].as_str().is_some_and(|r| r.contains("and 2,999 more like it, 256 B each")), "{rows:#?}");
}
