//! `hloom run`: where arguments come from, and that looking at values changes none.

use super::{Folder, WRITTEN};
use hloom::formats::npz::{self, Descr};

const F32: Descr = Descr { kind: b'f', size: 4 };

fn array(name: &str, elements: [f32; 6]) -> (String, Vec<u8>) {
    (name.to_owned(), elements.iter().flat_map(|x| x.to_le_bytes()).collect())
}

fn npz(arrays: &[(String, Vec<u8>)]) -> Vec<u8> {
    npz::write(arrays.iter().map(|(name, bytes)| (name.clone(), F32, &[2i64, 3][..], &bytes[..])))
}

const SIX: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

#[test]
fn what_a_file_lacks_is_made_up_or_filled() {
    let folder = Folder::new("partial").with("sum.hlo", WRITTEN).with("in.npz", npz(&[array("p0", SIX)]));
    let filled = folder.hloom(&["run", "sum.hlo", "--input", "in.npz", "--fill", "p1=10"]).exits(0).stdout;
    assert!(filled.contains("{ 11, 12, 13 }"), "{filled}");
    let all = folder.hloom(&["run", "sum.hlo", "--fill", "p0=1.5", "--fill", "p1=-2"]).exits(0).stdout;
    assert!(all.contains("{ -0.5, -0.5, -0.5 }"), "{all}");
    // What is made up is what it would be if all were.
    let seeded = folder.hloom(&["run", "sum.hlo", "--input", "in.npz", "--seed", "3"]).exits(0).stdout;
    let zero = folder.with("zero.npz", npz(&[array("p0", [0.0; 6])]));
    let rest = zero.hloom(&["run", "sum.hlo", "--input", "zero.npz", "--seed", "3"]).exits(0).stdout;
    assert_ne!(seeded, rest);
    let wrong = zero.hloom(&["run", "sum.hlo", "--fill", "p0=one", "--seed", "1"]).exits(1);
    assert!(wrong.stderr.contains("input p0 is one, which is no f32"), "{}", wrong.stderr);
    let nobody = zero.hloom(&["run", "sum.hlo", "--fill", "p7=1", "--seed", "1"]).exits(1);
    assert!(nobody.stderr.contains("input p7 is not one of the program's"), "{}", nobody.stderr);
}

#[test]
fn errors_name_the_file_its_arrays_and_the_contract() {
    let folder = Folder::new("contract").with("sum.hlo", WRITTEN).with("in.npz", npz(&[array("x", SIX)]));
    let ran = folder.hloom(&["run", "sum.hlo", "--input", "in.npz"]).exits(1);
    for words in ["input p0 is missing", "in.npz holds x", "p3 is parameter 3 on every device"] {
        assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    }
}

#[test]
fn arrays_without_names_are_parameters_in_order() {
    let arrays = [array("arr_0", SIX), array("arr_1", [10.0; 6])];
    let folder = Folder::new("unnamed").with("sum.hlo", WRITTEN).with("in.npz", npz(&arrays));
    let shown = folder.hloom(&["run", "sum.hlo", "--input", "in.npz"]).exits(0).stdout;
    assert!(shown.contains("{ 11, 12, 13 }"), "{shown}");
}

const SMALL: &str = "HloModule m

ENTRY main {
  x = bf16[4] parameter(0)
  y = bf16[4] parameter(1)
  product = bf16[4] multiply(x, y)
  ROOT wide = f32[4] convert(product)
}
";

#[test]
fn watching_changes_no_result() {
    let folder = Folder::new("watching").with("m.hlo", SMALL);
    let fill = ["--fill", "p0=1.0078125", "--fill", "p1=1.0078125", "--engine", "cpu"];
    let run = |more: &[&str]| folder.hloom(&[&["run", "m.hlo"], &fill[..], more].concat()).exits(0).stdout;
    let plain = run(&[]);
    assert!(plain.contains("1.0156860"), "{plain}");
    assert_eq!(run(&["--check-nan"]), plain);
    let printed = run(&["--print-values", "product"]);
    assert!(printed.ends_with(&plain) && printed.contains("product = bf16[4]"), "{printed}");
}

#[test]
fn excess_precision_is_chosen() {
    let folder = Folder::new("excess").with("m.hlo", SMALL);
    let fill = ["run", "m.hlo", "--fill", "p0=1.0078125", "--fill", "p1=1.0078125"];
    let run = |more: &str| folder.hloom(&[&fill[..], &[more]].concat()).exits(0).stdout;
    assert!(run("--excess-precision=never").contains("{1.015625, 1.015625,"), "{}", run("--excess-precision=never"));
    assert!(run("--excess-precision").contains("1.0156860"));
    assert_eq!(run("--engine=eval"), run("--excess-precision=never"), "the evaluator rounds what is written");
}

#[test]
fn a_scheduled_module_rounds_what_is_written() {
    let text = "HloModule m, is_scheduled=true\n\nENTRY e {\n  p0 = bf16[2] parameter(0)\n  p1 = bf16[2] parameter(1)\n  \
                product = bf16[2] multiply(p0, p1)\n  ROOT wide = f32[2] convert(product)\n}\n";
    let plain = text.replace(", is_scheduled=true", "");
    let folder = Folder::new("excess_scheduled").with("dump.hlo", text).with("plain.hlo", &plain);
    let fill = ["--fill", "p0=1.0078125", "--fill", "p1=1.0078125"];
    let run = |file: &str, more: &[&str]| folder.hloom(&[&["run", file][..], &fill, more].concat()).exits(0).stdout;
    assert!(run("plain.hlo", &[]).contains("1.0156860"), "a source program leaves it to the compiler");
    assert!(run("dump.hlo", &[]).contains("{1.015625, 1.015625}"), "a compiler has decided: {}", run("dump.hlo", &[]));
    assert_eq!(run("dump.hlo", &[]), run("dump.hlo", &["--engine=eval"]));
}

#[test]
fn a_program_for_too_many_devices_is_refused() {
    let text = "HloModule m, replica_count=1000000000\n\nENTRY e {\n  ROOT c = f32[] constant(1)\n}\n";
    let folder = Folder::new("many_devices").with("m.hlo", text);
    let ran = folder.hloom(&["run", "m.hlo"]).exits(1);
    assert!(ran.stderr.contains("at most 4096 devices"), "{}", ran.stderr);
}

#[test]
fn a_custom_call_that_lacks_operands_is_the_programs_fault() {
    let text =
        "HloModule m\n\nENTRY e {\n  ROOT c = (f32[8], s32[]) custom-call(), custom_call_target=\"PadToStatic\"\n}\n";
    let folder = Folder::new("pad_to_static").with("m.hlo", text);
    let ran = folder.hloom(&["run", "m.hlo", "--engine", "eval"]).exits(1);
    assert!(ran.stderr.contains("PadToStatic"), "{}", ran.stderr);
}
