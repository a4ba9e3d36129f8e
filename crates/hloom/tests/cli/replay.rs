//! Runs of what ran elsewhere: snapshots, dump folders, results to compare with.

use super::*;

const PROGRAM: &str = "HloModule jit_f

ENTRY e {
  x = f32[4] parameter(0)
  s = f32[4] sine(x)
  n = f32[4] negate(s), metadata={op_name=\"jit(f)/neg\" source_file=\"model.py\" source_line=7}
  ROOT r = (f32[4], f32[4]) tuple(n, x)
}
";

#[test]
fn a_snapshot_brings_its_inputs() {
    let folder = Folder::new("replay-snapshot").with("m.hlo", PROGRAM);
    let first = folder.hloom(&["run", "m.hlo", "--engine", "eval", "--seed", "3", "--snapshot", "s.pb"]).exits(0);
    let again = folder.hloom(&["run", "s.pb", "--engine", "eval"]).exits(0);
    assert_eq!(again.stdout, first.stdout);
    assert!(again.stderr.contains("the results agree with those of hloom eval in the snapshot"), "{}", again.stderr);
    // Other inputs can be given.
    let other = folder.hloom(&["run", "s.pb", "--engine", "eval", "--seed", "4"]).exits(0);
    assert_ne!(other.stdout, first.stdout);
}

#[test]
fn a_snapshot_in_text_form_brings_its_inputs() {
    let shape = "shape { element_type: F32 dimensions: 2 layout { minor_to_major: 0 } }";
    let text = format!(
        "hlo_module {{ name: \"m\" entry_computation_name: \"e\" entry_computation_id: 1 computations {{ name: \"e\" id: 1 \
         root_id: 2 instructions {{ name: \"x\" opcode: \"parameter\" id: 1 {shape} }} instructions {{ name: \"y\" \
         opcode: \"negate\" id: 2 operand_ids: 1 {shape} }} }} }} partitions {{ arguments {{ {shape} f32s: 1 f32s: -2.5 }} }}"
    );
    let folder = Folder::new("replay-text").with("s.txt", &text).with("bad.txt", text.replace("opcode", "opcod"));
    let ran = folder.hloom(&["run", "s.txt", "--engine", "eval"]).exits(0);
    assert!(ran.stdout.contains("2.5") && ran.stdout.contains("-1"), "{}", ran.stdout);
    let ran = folder.hloom(&["run", "bad.txt"]).exits(1);
    assert!(ran.stderr.contains("HloInstructionProto has no field `opcod`"), "{}", ran.stderr);
}

#[test]
fn snapshots_of_several_devices_have_the_inputs_of_each() {
    let text = PROGRAM.replace("HloModule jit_f", "HloModule jit_f, num_partitions=2");
    let folder = Folder::new("replay-devices").with("m.hlo", text);
    let first = folder.hloom(&["run", "m.hlo", "--engine", "eval", "--seed", "3", "--snapshot", "s.pb"]).exits(0);
    let again = folder.hloom(&["run", "s.pb", "--engine", "eval"]).exits(0);
    assert_eq!(again.stdout, first.stdout);
    assert!(again.stdout.contains("d1.o0"), "{}", again.stdout);
}

#[test]
fn a_truncated_snapshot_is_an_error() {
    let folder = Folder::new("replay-truncated").with("m.hlo", PROGRAM);
    folder.hloom(&["run", "m.hlo", "--engine", "eval", "--seed", "3", "--snapshot", "s.pb"]).exits(0);
    let bytes = std::fs::read(folder.0.join("s.pb")).expect("it was written");
    for length in (0..bytes.len()).step_by(7) {
        let folder = Folder::new(&format!("replay-cut-{length}")).with("cut.pb", &bytes[..length]);
        let ran = folder.hloom(&["run", "cut.pb", "--engine", "eval"]);
        // A cut between fields leaves a whole program, perhaps without its result or its arguments.
        assert!([0, 1, 2].contains(&ran.status), "{length}: {}", ran.stderr);
    }
}

#[test]
fn a_dump_folder_is_sorted_and_run() {
    let folder = Folder::new("replay-folder");
    std::fs::create_dir_all(folder.0.join("d")).expect("a folder");
    let folder = folder
        .with("d/module_0003.jit_f.before_optimizations.txt", PROGRAM)
        .with("d/module_0003.jit_f.cpu_after_optimizations.txt", PROGRAM)
        .with("d/module_0003.jit_f.cpu_after_optimizations-buffer-assignment.txt", "")
        .with("d/notes.md", "");
    let ran = folder.hloom(&["run", "d", "--engine", "eval", "--seed", "1"]).exits(0);
    let there = "module_0003.jit_f: before optimisation, after optimisation for cpu, buffer assignment";
    assert!(ran.stderr.contains(there), "{}", ran.stderr);
    assert!(ran.stdout.contains("d0.o0"), "{}", ran.stdout);
    let folder = folder.with("d/module_0005.jit_g.before_optimizations.txt", PROGRAM);
    let ran = folder.hloom(&["run", "d", "--engine", "eval", "--seed", "1"]).exits(0);
    assert!(ran.stdout.contains("jit_g") && ran.stdout.contains("notes.md"), "{}", ran.stdout);
    let ran = folder.hloom(&["run", "d", "--engine", "eval", "--seed", "1", "--module", "jit_g"]).exits(0);
    assert!(ran.stdout.contains("d0.o0"), "{}", ran.stdout);
    folder.hloom(&["run", "d", "--module", "jit_h"]).exits(2);
}

#[test]
fn an_empty_folder_is_named() {
    let folder = Folder::new("replay-empty");
    std::fs::create_dir_all(folder.0.join("d")).expect("a folder");
    let ran = folder.hloom(&["run", "d"]).exits(2);
    assert!(ran.stderr.contains("no module"), "{}", ran.stderr);
}

#[test]
fn results_are_compared_with_others() {
    let folder = Folder::new("replay-compare").with("m.hlo", PROGRAM);
    let folder = folder.with("other.hlo", PROGRAM.replace("negate(s)", "abs(s)"));
    let run = |file: &str, more: &[&str]| {
        folder.hloom(&[&["run", file, "--engine", "eval", "--seed", "5"][..], more].concat())
    };
    run("m.hlo", &["--output", "own.npz"]).exits(0);
    run("other.hlo", &["--output", "other.npz"]).exits(0);
    run("m.hlo", &["--compare-with", "own.npz"]).exits(0);
    let ran = run("m.hlo", &["--compare-with", "other.npz"]).exits(1);
    assert!(ran.stderr.contains("result d0.o0"), "{}", ran.stderr);
    assert!(ran.stderr.contains("model.py:7"), "{}", ran.stderr);
    run("m.hlo", &["--compare-with", "missing.npz"]).exits(2);
}

#[test]
fn the_first_value_that_is_not_finite_is_named_with_its_source() {
    let text = PROGRAM.replace("negate(s)", "log(s)");
    let folder = Folder::new("replay-nan").with("m.hlo", text);
    let ran = folder.hloom(&["run", "m.hlo", "--seed", "1", "--check-nan"]).exits(1);
    assert!(ran.stderr.contains("made a NaN") && ran.stderr.contains("model.py:7"), "{}", ran.stderr);
}
