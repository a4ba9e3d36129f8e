//! `hloom bisect`.

use super::*;

const PROGRAM: &str = "HloModule m

ENTRY e {
  x = f32[8,8] parameter(0)
  y = f32[8,8] parameter(1)
  a = f32[8,8] add(x, y)
  s = f32[8,8] sine(a)
  t = f32[8,8] tanh(s)
  d = f32[8,8] dot(t, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[8,8], f32[8,8]) tuple(d, a)
}
";

#[test]
fn a_command_decides_what_is_kept() {
    let folder = Folder::new("bisect-command").with("m.hlo", PROGRAM);
    let args = ["bisect", "m.hlo", "--seed", "1", "--command", "grep -q tanh {}", "-o", "out.hlo", "--jobs", "2"];
    let ran = folder.hloom(&args).exits(0);
    let out = folder.read("out.hlo");
    assert!(out.starts_with("// the command `grep -q tanh {}` ends with 0"), "{out}");
    assert!(out.contains("tanh(") && !out.contains("dot(") && !out.contains("sine("), "{out}");
    assert!(ran.stdout.contains("2 instructions"), "{}", ran.stdout);
    // The reproducer runs with its inputs, and no folder is left behind.
    folder.hloom(&["run", "out.hlo", "--engine", "eval", "--input", "out.npz"]).exits(0);
    assert_eq!(folder.names(), ["m.hlo", "out.hlo", "out.npz"]);
}

#[test]
fn nothing_to_find_is_1() {
    let folder = Folder::new("bisect-nothing").with("m.hlo", PROGRAM);
    let ran = folder.hloom(&["bisect", "m.hlo", "--seed", "1", "--command", "grep -q cholesky {}"]).exits(1);
    assert!(ran.stdout.contains("does not end with 0"), "{}", ran.stdout);
    let ran = folder.hloom(&["bisect", "m.hlo", "--seed", "1", "--engine", "eval", "--against", "eval"]).exits(1);
    assert_eq!(ran.stdout, "the engines agree\n");
    let ran = folder.hloom(&["bisect", "m.hlo", "--seed", "1", "--passes"]).exits(1);
    assert!(ran.stdout.contains("the same after every pass"), "{}", ran.stdout);
}

#[test]
fn questions_that_cannot_be_asked_are_2() {
    let folder = Folder::new("bisect-bad").with("m.hlo", PROGRAM);
    folder.hloom(&["bisect", "missing.hlo"]).exits(2);
    folder.hloom(&["bisect", "m.hlo"]).exits(2);
    folder.hloom(&["bisect", "m.hlo", "--passes", "--command", "true"]).exits(2);
}

#[test]
fn a_search_goes_on_where_it_was() {
    let folder = Folder::new("bisect-resume").with("m.hlo", PROGRAM);
    let args = ["bisect", "m.hlo", "--seed", "1", "--command", "grep -q tanh {}", "-o", "out.hlo", "--resume", "work"];
    folder.hloom(&args).exits(0);
    let state: serde_json::Value = serde_json::from_str(&folder.read("work/state.json")).expect("it is JSON");
    assert_eq!(state["instructions"], 2);
    // The second begins with the best of the first, and has nothing left to find.
    folder.hloom(&args).exits(0);
    assert!(folder.read("out.hlo").contains("tanh("));
    // Another question does not take this answer.
    let other = ["bisect", "m.hlo", "--seed", "1", "--command", "grep -q dot {}", "-o", "out.hlo", "--resume", "work"];
    let ran = folder.hloom(&other).exits(2);
    assert!(ran.stderr.contains("another program or question"), "{}", ran.stderr);
}

#[test]
fn candidates_that_do_not_end_are_ended() {
    let folder = Folder::new("bisect-hang").with("m.hlo", PROGRAM);
    // Whatever lost its tanh hangs.
    let command = "grep -q tanh {} || sleep 600";
    let args = ["bisect", "m.hlo", "--seed", "1", "--command", command, "-o", "out.hlo", "--time-limit", "1"];
    folder.hloom(&args).exits(0);
    assert!(folder.read("out.hlo").contains("tanh("));
}

#[test]
fn expected_results_that_no_engine_gives_are_named() {
    let folder = Folder::new("bisect-expect").with("m.hlo", PROGRAM);
    let other = PROGRAM.replace("add(x, y)", "subtract(x, y)");
    let folder = folder.with("other.hlo", other);
    folder.hloom(&["run", "other.hlo", "--engine", "eval", "--seed", "1", "--output", "expected.npz"]).exits(0);
    folder.hloom(&["run", "m.hlo", "--engine", "eval", "--seed", "1", "--output", "own.npz"]).exits(0);
    let args = ["bisect", "m.hlo", "--seed", "1", "--engine", "eval", "--expect"];
    folder.hloom(&[&args[..], &["own.npz"]].concat()).exits(1);
    let ran = folder.hloom(&[&args[..], &["expected.npz"]].concat()).exits(0);
    assert!(ran.stdout.contains("does not give what is expected either"), "{}", ran.stdout);
    folder.hloom(&[&args[..], &["m.hlo"]].concat()).exits(2);
}
