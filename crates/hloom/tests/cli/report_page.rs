//! The pages of `hloom report`: what they show, used in a real browser by `report_page.js`, and what bad input does to them.
#![allow(clippy::print_stderr, reason = "a test that measures tells")]

use super::browser::{browser, dom_of, use_html};
use super::*;
use serde_json::json;
use std::fmt::Write as _;

pub(super) const MODULE: &str = r#"HloModule layer, num_partitions=4, is_scheduled=true

sum {
  l = f32[] parameter(0)
  r = f32[] parameter(1)
  ROOT s = f32[] add(l, r)
}

gelu {
  g = f32[256,256]{1,0} parameter(0)
  t = f32[256,256]{1,0} tanh(g), metadata={op_name="net/mlp/tanh" source_file="net.py" source_line=12}
  ROOT m = f32[256,256]{1,0} multiply(g, t), metadata={op_name="net/mlp/mul" source_file="net.py" source_line=13}
}

ENTRY e {
  x = f32[256,256]{1,0} parameter(0)
  w = f32[256,256]{1,0} parameter(1)
  gather = f32[1024,256]{1,0} all-gather(w), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}, use_global_device_ids=true, metadata={op_name="net/gather" source_file="net.py" source_line=9}
  sent = (f32[256,256]{1,0}, f32[256,256]{1,0}) collective-permute-start(x), channel_id=2, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  dot = f32[256,256]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="net/mlp/dot" source_file="net.py" source_line=11}
  act = f32[256,256]{1,0} fusion(dot), kind=kLoop, calls=gelu, metadata={op_name="net/mlp/mul" source_file="net.py" source_line=13}
  came = f32[256,256]{1,0} collective-permute-done(sent)
  both = f32[256,256]{1,0} add(act, came), metadata={op_name="net/add" source_file="net.py" source_line=15}
  zero = f32[] constant(0)
  total = f32[256]{0} reduce(gather, zero), dimensions={0}, to_apply=sum
  ROOT out = (f32[256,256]{1,0}, f32[256]{0}) tuple(both, total)
}
"#;

pub(super) const TRACE: &str = r#"{"traceEvents":[
  {"ph":"X","name":"gather","cat":"collective","ts":0,"dur":20,"pid":0,"tid":0},
  {"ph":"X","name":"sent","cat":"collective","ts":20,"dur":2,"pid":0,"tid":0},
  {"ph":"X","name":"dot","cat":"kernel","ts":22,"dur":30,"pid":0,"tid":0},
  {"ph":"X","name":"act","cat":"kernel","ts":52,"dur":10,"pid":0,"tid":0},
  {"ph":"X","name":"came","cat":"collective","ts":62,"dur":5,"pid":0,"tid":0},
  {"ph":"X","name":"both","cat":"kernel","ts":67,"dur":8,"pid":0,"tid":0}]}"#;

#[test]
fn the_page_is_used_by_hand_and_by_keys() {
    let Some(browser) = browser() else { return };
    let folder = Folder::new("report-page").with("m.hlo", MODULE).with("t.json", TRACE);
    folder.hloom(&["report", "m.hlo", "--trace", "t.json", "-o", "page.html"]).exits(0);
    let expected = json!({
        "look_at": "act",
        "told": ["act", "fusion", "f32[256,256]", "net.py:13", "net/mlp/mul", "dot", "both"],
        "search_for": "net.py fusion",
        "path": ["dot", "both"],
        "call": "act",
    });
    let seen = use_html(&browser, &folder, "page.html", &expected, include_str!("report_page.js"));
    assert_eq!(seen["path"], json!(["act", "both", "dot"]), "{seen:#}");
    assert_eq!((&seen["arcs"], &seen["exposed"]), (&json!(1), &json!(2)), "the gather and the end of the permute");
    assert_eq!(seen["timelines"], json!(["measured", "simulated on cpu"]));
    // The gather is waited for where it stands; the permute has the product to hide behind.
    let simulated = &seen["simulated"];
    assert!(simulated["arcs"].as_u64() >= Some(2) && simulated["exposed"].as_u64() >= Some(1), "{simulated}");
    assert_eq!(seen["scopes"], json!(["net", "(not known)"]));
    // Each device has 256 KiB for all others, handed on around the ring, and 256 KiB for the next.
    let link = json!(4 * 256 * 1024);
    for (from, row) in seen["matrix"].as_array().expect("rows").iter().enumerate() {
        for (to, bytes) in row.as_array().expect("cells").iter().enumerate() {
            let expected = if to == (from + 1) % 4 { link.as_f64() } else { Some(0.0) };
            assert_eq!(bytes.as_f64(), expected, "from {from} to {to}");
        }
    }
    assert_eq!(seen["groups"], json!(["all 4 devices", "4 pairs, mostly +1"]));
}

#[test]
fn the_page_opens_as_it_is_written() {
    let Some(browser) = browser() else { return };
    let folder = Folder::new("report-as-is").with("m.hlo", MODULE);
    folder.hloom(&["report", "m.hlo", "-o", "page.html"]).exits(0);
    let page = folder.read("page.html");
    assert!(!page.contains("://"), "a page asks no network");
    let dom = dom_of(&browser, &folder, "page.html", &["--virtual-time-budget=20000"]);
    assert!(dom.contains("data-ready=\"true\""), "its script ran under its own policy");
    assert!(dom.contains("What costs most, and what would help"), "the summary is shown first");
}

#[test]
fn nothing_in_a_module_becomes_markup_or_script() {
    let Some(browser) = browser() else { return };
    let hostile = r#"\"'><script>owned=1</script><img src=x onerror=owned=1> <!-- ]]> </script> <!--script-->"#;
    let long = "n".repeat(1 << 20);
    let text = format!(
        "HloModule m<script>, is_scheduled=true\n\nENTRY e {{\n  x = f32[64]{{0}} parameter(0)\n  {long} = f32[64]{{0}} reverse(x), \
         dimensions={{0}}, metadata={{op_name=\"{hostile}\u{2028}ö\u{1F600}\" source_file=\"</title></style></script>\" \
         source_line=3}}, frontend_attributes={{k=\"<img src=x onerror=owned=1>\"}}\n  \
         ROOT r = f32[64]{{0}} reverse({long}), dimensions={{0}}\n}}\n"
    )
    .replace("m<script>", "m");
    let folder = Folder::new("report-hostile").with("m.hlo", text);
    folder.hloom(&["report", "m.hlo", "-o", "page.html"]).exits(0);
    let seen = use_html(&browser, &folder, "page.html", &json!({}), include_str!("report_page.js"));
    assert_eq!((&seen["markup"], &seen["owned"]), (&json!(3), &json!(true)), "data, page and test: {seen:#}");
    // The trace, too, is someone else's.
    let trace = format!(r#"[{{"ph":"X","name":"{0}","cat":"{0}","ts":1,"dur":2}}]"#, hostile.replace('\\', ""))
        .replace("\"'", "'");
    std::fs::write(folder.0.join("t.json"), trace).expect("it can be written");
    folder.hloom(&["report", "m.hlo", "--trace", "t.json", "-o", "page.html"]).exits(0);
    let seen = use_html(&browser, &folder, "page.html", &json!({}), include_str!("report_page.js"));
    assert_eq!((&seen["markup"], &seen["owned"]), (&json!(3), &json!(true)), "{seen:#}");
}

/// A module of `n` instructions and more, in the form of a network of layers.
fn large(n: usize) -> String {
    let mut text =
        String::from("HloModule large\n\nENTRY e {\n  b0 = f32[128] parameter(0)\n  z = f32[] constant(0)\n");
    for i in 1..n / 2 {
        let (size, read) = (32 + 32 * (i % 3), i.saturating_sub(i % 7 + 1));
        let scope = format!(
            "metadata={{op_name=\"net/layer_{}/op_{}\" source_file=\"net.py\" source_line={}}}",
            i / 40,
            i % 5,
            i % 50
        );
        let _ = writeln!(text, "  t{i} = f32[{size}] slice(b{read}), slice={{[0:{size}]}}, {scope}");
        let root = if i + 1 == n / 2 { "ROOT " } else { "" };
        let _ = writeln!(text, "  {root}b{i} = f32[128] pad(t{i}, z), padding=0_{}, {scope}", 128 - size);
    }
    text.push_str("}\n");
    text
}

#[test]
fn the_page_stays_fluid_with_twenty_thousand_instructions() {
    let Some(browser) = browser() else { return };
    let folder = Folder::new("report-large").with("m.hlo", large(20_000));
    folder.hloom(&["report", "m.hlo", "-o", "page.html"]).exits(0);
    let bytes = folder.read("page.html").len();
    let seen = use_html(&browser, &folder, "page.html", &json!({ "measure": true }), include_str!("report_page.js"));
    assert_eq!((&seen["instructions"], &seen["nodes"]), (&json!(20_000), &json!(20_000)));
    // Not a measure of the machine: only what no quadratic step would pass.
    let times = &seen["milliseconds"];
    eprintln!("{bytes} bytes; milliseconds with 20,000 instructions: {times}");
    assert!(seen["events"].as_u64() > Some(9000), "{} events", seen["events"]);
    for (what, most) in [
        ("layout", 20_000.0),
        ("graph_far", 2000.0),
        ("graph_near", 2000.0),
        ("where", 2000.0),
        ("tree", 4000.0),
        ("timeline_far", 2000.0),
        ("timeline_near", 2000.0),
    ] {
        assert!(times[what].as_f64().is_some_and(|t| t < most), "{what}: {times}");
    }
    assert!(bytes < 2 << 20, "{bytes}");
}

#[test]
fn two_modules_are_compared() {
    let Some(browser) = browser() else { return };
    let folder = Folder::new("report-two").with("a.hlo", MODULE).with("b.hlo", MODULE.replace("tanh(g)", "cosine(g)"));
    folder.hloom(&["report", "a.hlo", "b.hlo", "-o", "page.html"]).exits(0);
    let dom = dom_of(&browser, &folder, "page.html", &["--virtual-time-budget=20000"]);
    for part in ["Differences", "number of", "cosine", "A a.hlo", "B b.hlo"] {
        assert!(dom.contains(part), "{part}");
    }
}

#[test]
fn a_folder_gives_an_index_that_names_what_is_wrong() {
    let Some(browser) = browser() else { return };
    let folder = Folder::new("report-folder").with("d/module_0001.f.after_optimizations.txt", MODULE);
    let folder = folder
        .with("d/module_0001.f.cpu_after_optimizations-buffer-assignment.txt", "BufferAssignment:\n")
        .with("d/module_0002.cut.txt", &MODULE[..MODULE.len() / 2])
        .with("d/sub/empty.hlo", "")
        .with("d/notes.md", "no module")
        .with("d/foreign<img src=x onerror=owned=1>.txt", "not HLO at all");
    let ran = folder.hloom(&["report", "d", "-o", "index.html", "--pages"]).exits(0);
    assert!(ran.stderr.contains("3 of 4 files could not be read"), "{}", ran.stderr);
    let dom = dom_of(&browser, &folder, "index.html", &["--virtual-time-budget=20000"]);
    for part in
        ["1 module, 3 files that could not be read", "module_0002.cut.txt", "empty.hlo", "foreign&lt;img", "layer"]
    {
        assert!(dom.contains(part), "{part}");
    }
    assert!(!dom.contains("<img"), "names are text");
    assert!(folder.read("index_pages/0001.html").contains("<title>layer · report</title>"));
}

/// Assignments are found by how they begin, go with the module whose values they name, and are judged.
#[test]
fn an_index_judges_the_buffer_assignments_of_its_modules() {
    let Some(browser) = browser() else { return };
    let folder = Folder::new("report-assignments").with("d/a.txt", MODULE);
    let scheduled = folder.hloom(&["compile", "d/a.txt", "--target", "cpu", "--emit", "schedule"]).exits(0).stdout;
    let folder = folder.with("d/b.txt", &scheduled);
    let dump = folder.hloom(&["memory", "d/b.txt", "--target", "cpu"]).exits(0).stdout;
    assert!(dump.starts_with("BufferAssignment:"), "{dump}");
    let other = dump.replace("offset=0", "offset=64");
    let folder = folder.with("d/x.txt", &dump).with("e/b.txt", &scheduled).with("e/y.txt", &other);
    let folder = folder.with("f/z.txt", &dump);
    let shown = |name: &str| {
        folder.hloom(&["report", name, "-o", "i.html", "--target", "cpu"]).exits(0);
        dom_of(&browser, &folder, "i.html", &["--virtual-time-budget=20000"])
    };
    let right = shown("d");
    assert!(right.contains(", right</span>") && right.contains("x.txt\"") && right.contains("2 modules"), "{right}");
    assert!(shown("e").contains(", not as planned</span>"));
    assert!(shown("f").contains("of a module that is not here"));
    let alone = folder.hloom(&["report", "f/z.txt"]).exits(1);
    assert!(alone.stderr.contains("is a buffer assignment, and no module"), "{}", alone.stderr);
}

#[test]
fn what_cannot_be_reported_is_said() {
    let folder = Folder::new("report-bad").with("m.hlo", MODULE).with("t.json", "{}").with("bad.hlo", "HloModule");
    let ran = folder.hloom(&["report", "m.hlo", "--trace", "t.json"]).exits(1);
    assert!(ran.stderr.contains("`t.json` is no trace: it has no list of trace events"), "{}", ran.stderr);
    folder.hloom(&["report", "bad.hlo"]).exits(1);
    folder.hloom(&["report", "absent.hlo"]).exits(1);
    folder.hloom(&["report", "m.hlo", "--trace", "t.json", "--trace", "t.json"]).exits(2);
    folder.hloom(&["report", "m.hlo", "--pages"]).exits(2);
    folder.hloom(&["report"]).exits(2);
    // A module whose memory cannot be planned still has all else.
    folder.hloom(&["report", "m.hlo", "-o", "page.html"]).exits(0);
}
