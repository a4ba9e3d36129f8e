//! `hloom compile`: every stage prints; what is saved runs, and what cannot be loaded is refused with a word.

use super::Folder;

const PROGRAM: &str = "HloModule m
add { p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT a = f32[] add(p, q) }
ENTRY e {
  x = f32[64,100] parameter(0)
  y = f32[64,100] exponential(x)
  zero = f32[] constant(0)
  s = f32[64] reduce(y, zero), dimensions={1}, to_apply=add
  b = f32[64,100] broadcast(s), dimensions={0}
  ROOT d = f32[64,100] divide(y, b)
}
";

#[test]
fn what_a_stage_makes_can_be_printed_and_hlo_read_back() {
    let folder = Folder::new("compile-emit").with("m.hlo", PROGRAM);
    let emit = |form: &str| folder.hloom(&["compile", "m.hlo", "--target", "cpu", "--emit", form]).exits(0).stdout;
    assert!(emit("hlo").contains("divide("));
    assert!(emit("schedule").contains("is_scheduled=true"));
    assert!(emit("memory").starts_with("BufferAssignment:"));
    let thunks = emit("thunks");
    assert!(thunks.contains("argument 0") && thunks.contains("result, 25600 bytes"), "{thunks}");
    if cfg!(feature = "llvm") {
        let loops = emit("loops");
        assert!(loops.contains("reduce add") && loops.contains("exponential %"), "{loops}");
        assert!(emit("llvm").contains("define void @k0("));
        assert!(emit("asm").contains(".text"));
    }
    folder.hloom(&["compile", "m.hlo", "--target", "cpu", "-o", "out.hlo"]).exits(0);
    folder.hloom(&["verify", "out.hlo"]).exits(0);
    let plain = folder.hloom(&["run", "m.hlo", "--seed", "3"]).exits(0).stdout;
    assert_eq!(folder.hloom(&["run", "out.hlo", "--seed", "3"]).exits(0).stdout, plain);
    let ran = folder.hloom(&["compile", "m.hlo", "--target", "cpu", "--emit", "ptx"]).exits(2);
    assert!(ran.stderr.contains("nothing that could be printed as ptx"), "{}", ran.stderr);
}

#[test]
fn programs_for_gpus_are_compiled_without_one() {
    let folder = Folder::new("compile-gpu").with("m.hlo", PROGRAM);
    let emit = |form: &str| folder.hloom(&["compile", "m.hlo", "--target", "gpu-h200", "--emit", form]).exits(0).stdout;
    assert!(emit("schedule").contains("is_scheduled=true"));
    assert!(emit("memory").starts_with("BufferAssignment:"));
    let thunks = emit("thunks");
    assert!(thunks.contains("argument 0") && thunks.contains("result, 25600 bytes"), "{thunks}");
    if cfg!(feature = "llvm") {
        let ptx = emit("ptx");
        assert!(ptx.contains(".target sm_90a") && ptx.contains(".entry"), "{ptx}");
    }
    folder.hloom(&["compile", "m.hlo", "--target", "gpu-a100", "-o", "m.hloom"]).exits(0);
}

#[test]
fn a_saved_program_runs_and_a_damaged_one_is_refused() {
    let folder = Folder::new("compile-saved").with("m.hlo", PROGRAM);
    folder.hloom(&["compile", "m.hlo", "--target", "cpu", "-o", "m.hloom"]).exits(0);
    let plain = folder.hloom(&["run", "m.hlo", "--seed", "3"]).exits(0);
    let saved = folder.hloom(&["run", "m.hloom", "--seed", "3"]).exits(0);
    assert_eq!((saved.stdout, saved.stderr.as_str()), (plain.stdout.clone(), ""));
    let bytes = std::fs::read(folder.0.join("m.hloom")).expect("it was written");
    std::fs::write(folder.0.join("cut.hloom"), &bytes[..bytes.len() / 2]).expect("it can be written");
    let ran = folder.hloom(&["run", "cut.hloom", "--seed", "3"]).exits(1);
    assert!(ran.stderr.contains("not as it was written"), "{}", ran.stderr);
    // Another engine cannot use the code, but compiles the source inside.
    let other = folder.hloom(&["run", "m.hloom", "--seed", "3", "--engine", "eval"]).exits(0);
    assert!(other.stderr.contains("compiled anew"), "{}", other.stderr);
}

#[test]
fn what_has_no_native_code_is_warned_of_or_refused() {
    let program = "HloModule m
ENTRY e {
  x = f32[8] parameter(0)
  n = s32[] constant(3)
  d = f32[<=8] set-dimension-size(x, n), dimensions={0}
  ROOT y = f32[<=8] negate(d)
}
";
    let folder = Folder::new("compile-strict").with("m.hlo", program);
    let ran = folder.hloom(&["run", "m.hlo", "--seed", "1"]).exits(0);
    assert!(ran.stderr.contains("no native code for negate"), "{}", ran.stderr);
    let compiled = folder.hloom(&["compile", "m.hlo", "--target", "cpu", "-o", "m.hloom"]).exits(0);
    assert!(compiled.stderr.contains("no native code for negate"), "{}", compiled.stderr);
    let ran = folder.hloom(&["run", "m.hlo", "--seed", "1", "--strict"]).exits(1);
    assert!(ran.stderr.contains("there is no native code for negate"), "{}", ran.stderr);
}
