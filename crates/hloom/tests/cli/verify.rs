//! `hloom verify`.

use super::*;
use expect_test::expect;

#[test]
fn a_good_module_needs_no_words() {
    let folder = Folder::new("verify").with("m.hlo", WRITTEN);
    let ran = folder.hloom(&["verify", "m.hlo"]).exits(0);
    assert_eq!((&*ran.stdout, &*ran.stderr), ("", ""));
    folder.hloom_with(&["verify", "-"], WRITTEN).exits(0);
}

#[test]
fn a_wrong_shape_is_shown_where_it_is_written() {
    let folder = Folder::new("verify-shape").with("m.hlo", WRONG_SHAPE);
    let ran = folder.hloom(&["verify", "m.hlo"]).exits(1);
    assert_eq!(ran.stdout, "");
    expect![[r#"
        error[H0313]: negate makes f32[2,3] of its operands, not f32[2,4]
         --> m.hlo:5:12
          |
        5 |   ROOT z = f32[2,4] negate(x), metadata={op_name="jit(f)/neg" source_file="model.py" source_line=7}
          |            ^^^^^^^^
          |
          = note: it comes from model.py:7, op_name "jit(f)/neg"

    "#]]
    .assert_eq(&ran.stderr);
}

#[test]
fn json_says_the_same_to_programs() {
    let folder = Folder::new("verify-json").with("m.hlo", WRONG_SHAPE);
    let ran = folder.hloom(&["verify", "--json", "m.hlo"]).exits(1);
    assert_eq!(ran.stderr, "");
    let found = json_lines(&ran.stdout);
    assert_eq!(found.len(), 1, "{}", ran.stdout);
    let it = &found[0];
    assert_eq!((&it["severity"], &it["blame"], &it["file"]), (&"error".into(), &"program".into(), &"m.hlo".into()));
    assert_eq!((&it["line"], &it["column"]), (&5.into(), &12.into()));
    assert_eq!((&it["end_line"], &it["end_column"]), (&5.into(), &20.into()));
    let (start, end) = (it["byte_start"].as_u64().expect("a number"), it["byte_end"].as_u64().expect("a number"));
    assert_eq!(&WRONG_SHAPE[start as usize..end as usize], "f32[2,4]");
    assert_eq!(it["instruction"]["name"], "z");
    assert_eq!(it["instruction"]["computation"], "main");
    assert_eq!((&it["instruction"]["source_file"], &it["instruction"]["source_line"]), (&"model.py".into(), &7.into()));
    assert_eq!(it["instruction"]["op_name"], "jit(f)/neg");
    assert!(it["notes"].is_array() && it["code"].as_str().is_some_and(|c| c.starts_with('H')), "{it}");
}

#[test]
fn every_file_is_checked_and_one_bad_one_decides() {
    let folder = Folder::new("verify-many").with("a.hlo", WRONG_SHAPE).with("b.hlo", WRITTEN).with("c.hlo", "nonsense");
    let ran = folder.hloom(&["verify", "a.hlo", "b.hlo", "missing.hlo", "c.hlo"]).exits(1);
    for place in ["a.hlo:5:", "`missing.hlo`", "c.hlo:1:9"] {
        assert!(ran.stderr.contains(place), "{place} is not in: {}", ran.stderr);
    }
    assert!(!ran.stderr.contains("b.hlo"), "{}", ran.stderr);
}

#[test]
fn the_number_of_devices_matters_where_it_is_given() {
    let text = "HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY main {
  x = f32[4] parameter(0)
  ROOT y = f32[4] all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=add
}
";
    let folder = Folder::new("verify-devices").with("m.hlo", text);
    folder.hloom(&["verify", "m.hlo", "--devices", "4"]).exits(0);
    let ran = folder.hloom(&["verify", "m.hlo", "--devices", "2"]).exits(1);
    assert!(ran.stderr.contains("m.hlo:11:"), "{}", ran.stderr);
    folder.hloom(&["verify", "m.hlo", "--devices", "0"]).exits(2);
}

#[test]
fn mixed_precision_is_refused_in_sources_and_where_that_is_asked_for() {
    let body = "

ENTRY main {
  x = f32[4]{0} parameter(0)
  y = bf16[4]{0} parameter(1)
  ROOT z = f32[4]{0} maximum(x, y)
}
";
    let (source, optimized) = (format!("HloModule m{body}"), format!("HloModule m, is_scheduled=true{body}"));
    let folder = Folder::new("verify-precision").with("source.hlo", &source).with("optimized.hlo", &optimized);
    folder.hloom(&["verify", "optimized.hlo"]).exits(0);
    folder.hloom(&["run", "optimized.hlo", "--seed", "1"]).exits(0);
    let refused = folder.hloom(&["verify", "source.hlo"]).exits(1).stderr;
    assert!(refused.contains("source.hlo:6:") && refused.contains("f32") && refused.contains("bf16"), "{refused}");
    for command in [&["verify"][..], &["run", "--seed", "1"], &["compile", "--target", "cpu"]] {
        let asked = [command, &["--strict-precision", "optimized.hlo"]].concat();
        let strict = folder.hloom(&asked).exits(1).stderr;
        assert_eq!(strict, refused.replace("source.hlo", "optimized.hlo"), "{asked:?}");
    }
}
