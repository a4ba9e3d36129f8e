//! `hloom fmt`.

use super::*;

#[test]
fn prints_in_the_canonical_form() {
    let folder = Folder::new("fmt").with("m.hlo", WRITTEN);
    let ran = folder.hloom(&["fmt", "m.hlo"]).exits(0);
    assert_eq!((&*ran.stdout, &*ran.stderr), (PRINTED, ""));
    // What it printed is a fixed point.
    assert_eq!(folder.hloom_with(&["fmt", "-"], PRINTED).exits(0).stdout, PRINTED);
}

#[test]
fn writes_over_its_own_input_when_asked_to() {
    let folder = Folder::new("fmt-o").with("m.hlo", WRITTEN);
    let ran = folder.hloom(&["fmt", "m.hlo", "-o", "m.hlo"]).exits(0);
    assert_eq!((&*ran.stdout, folder.read("m.hlo").as_str()), ("", PRINTED));
    assert_eq!(folder.names(), ["m.hlo"], "nothing is left behind");
}

#[test]
fn a_module_that_cannot_be_read_leaves_the_output_alone() {
    let folder = Folder::new("fmt-bad").with("m.hlo", "HloModule m ENTRY {").with("out.hlo", "precious");
    folder.hloom(&["fmt", "m.hlo", "-o", "out.hlo"]).exits(1);
    folder.hloom(&["fmt", "m.hlo", "-o", "m.hlo"]).exits(1);
    assert_eq!(folder.read("out.hlo"), "precious");
    assert_eq!(folder.read("m.hlo"), "HloModule m ENTRY {");
    assert_eq!(folder.names(), ["m.hlo", "out.hlo"]);
}

#[test]
fn an_output_that_cannot_be_written_is_said() {
    let folder = Folder::new("fmt-nowhere").with("m.hlo", WRITTEN);
    let ran = folder.hloom(&["fmt", "m.hlo", "-o", "no/such/folder/out.hlo"]).exits(1);
    assert!(ran.stderr.starts_with("error[H0802]: cannot write `no/such/folder/out.hlo`"), "{}", ran.stderr);
}

#[cfg(unix)]
#[test]
fn a_link_stays_a_link_and_permissions_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = Folder::new("fmt-link").with("real.hlo", WRITTEN);
    std::fs::set_permissions(folder.0.join("real.hlo"), std::fs::Permissions::from_mode(0o640)).expect("its own file");
    symlink("real.hlo", folder.0.join("link.hlo")).expect("links can be made");
    folder.hloom(&["fmt", "link.hlo", "-o", "link.hlo"]).exits(0);
    assert_eq!(folder.read("real.hlo"), PRINTED);
    assert!(folder.0.join("link.hlo").symlink_metadata().expect("it is there").is_symlink());
    let mode = folder.0.join("real.hlo").metadata().expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn check_tells_where_the_text_is_not_canonical() {
    let folder = Folder::new("fmt-check").with("good.hlo", PRINTED).with("bad.hlo", PRINTED.replace("  %y", "   %y"));
    let good = folder.hloom(&["fmt", "--check", "good.hlo"]).exits(0);
    assert_eq!((&*good.stdout, &*good.stderr), ("", ""));
    let bad = folder.hloom(&["fmt", "--check", "bad.hlo"]).exits(1);
    assert_eq!(bad.stderr, "bad.hlo:5:1: from here on the text is not as `hloom fmt` prints it\n");
    assert_eq!(bad.stdout, "");
}

#[test]
fn constants_are_elided_on_demand() {
    let values = (0..20).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!("HloModule m\nENTRY main {{\n  ROOT c = s32[20] constant({{{values}}})\n}}\n");
    let folder = Folder::new("fmt-elide").with("m.hlo", text);
    assert!(folder.hloom(&["fmt", "m.hlo"]).exits(0).stdout.contains("17, 18, 19"));
    let elided = folder.hloom(&["fmt", "--elide-constants", "m.hlo"]).exits(0).stdout;
    assert!(elided.contains("constant({...})"), "{elided}");
}

#[test]
fn bench_gives_three_times() {
    let folder = Folder::new("fmt-bench").with("m.hlo", WRITTEN);
    let ran = folder.hloom(&["fmt", "m.hlo", "--bench", "2", "--json"]).exits(0);
    let times = &json_lines(&ran.stdout)[0];
    for key in ["read_ms", "verify_ms", "print_ms"] {
        let time = times[key].as_f64().unwrap_or_else(|| panic!("{key} is missing in {times}"));
        assert!((0.0..60_000.0).contains(&time), "{key} is {time}");
    }
    assert!(folder.hloom(&["fmt", "m.hlo", "--bench", "1"]).exits(0).stdout.starts_with("read "));
}

#[test]
fn options_that_contradict_are_refused() {
    let folder = Folder::new("fmt-usage").with("m.hlo", WRITTEN);
    folder.hloom(&["fmt", "m.hlo", "--check", "-o", "x"]).exits(2);
    folder.hloom(&["fmt", "m.hlo", "--json"]).exits(2);
    folder.hloom(&["fmt", "m.hlo", "--bench", "0"]).exits(2);
    assert_eq!(folder.names(), ["m.hlo"]);
}
