//! `hloom diff`.

use super::*;

const PROGRAM: &str = "HloModule m

ENTRY e {
  x = f32[4] parameter(0)
  c = f32[] constant(2)
  cs = f32[4] broadcast(c), dimensions={}
  y = f32[4] subtract(x, cs), metadata={op_name=\"jit(f)/sub\" source_file=\"model.py\" source_line=12}
  ROOT z = f32[4] add(y, x)
}
";

#[test]
fn renamed_and_reordered_modules_are_equal() {
    let other = PROGRAM.replace("add(y, x)", "add(x, y)").replace("cs", "twos").replace("HloModule m", "HloModule n");
    let folder = Folder::new("diff-equal").with("a.hlo", PROGRAM).with("b.hlo", other);
    let ran = folder.hloom(&["diff", "a.hlo", "b.hlo"]).exits(0);
    assert_eq!(ran.stdout, "no difference: 5 instructions each\n");
}

#[test]
fn a_change_is_told_with_both_texts_and_its_source() {
    let other = PROGRAM.replace("subtract(x, cs)", "subtract(cs, x)");
    let folder = Folder::new("diff-change").with("a.hlo", PROGRAM).with("b.hlo", other);
    let ran = folder.hloom(&["diff", "a.hlo", "b.hlo"]).exits(1);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines[0].starts_with("1 difference (1 operands); 5 instructions each"), "{}", ran.stdout);
    assert_eq!(lines[2], "changed operands of %y in e: operand 0: x → cs, operand 1: cs → x");
    assert!(ran.stdout.contains("model.py:12"), "{}", ran.stdout);
    let ran = folder.hloom(&["diff", "a.hlo", "b.hlo", "--json"]).exits(1);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    assert_eq!((&json["equal"], &json["differences"][0]["kind"]), (&false.into(), &"operands".into()));
    folder.hloom(&["diff", "a.hlo", "b.hlo", "--html", "out.html"]).exits(1);
    let page = folder.read("out.html");
    assert!(page.contains("subtract(%<mark>cs, %x</mark>)"), "{page}");
}

#[test]
fn a_file_that_cannot_be_read_is_2() {
    let folder = Folder::new("diff-bad").with("a.hlo", PROGRAM).with("b.hlo", "HloModule x\nnonsense");
    folder.hloom(&["diff", "a.hlo", "b.hlo"]).exits(2);
    folder.hloom(&["diff", "missing.hlo", "a.hlo"]).exits(2);
    folder.hloom(&["diff", "-", "-"]).exits(2);
}
