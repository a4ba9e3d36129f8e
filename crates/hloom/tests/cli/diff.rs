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

#[test]
fn modules_of_two_dump_folders_are_paired_by_what_they_are_called() {
    let after = |number: usize, name: &str| format!("module_{number:04}.{name}.cpu_after_optimizations.txt");
    let changed = PROGRAM.replace("constant(2)", "constant(3)");
    let folder = Folder::new("diff-folders")
        .with(&format!("a/{}", after(6, "jit_f")), PROGRAM)
        .with(&format!("a/{}", after(7, "jit_g")), PROGRAM)
        .with(&format!("a/{}", after(8, "jit_f")), PROGRAM)
        .with("a/notes.md", "nothing")
        .with(&format!("b/{}", after(2, "jit_g")), changed)
        .with(&format!("b/{}", after(3, "jit_f")), PROGRAM)
        .with(&format!("b/{}", after(9, "jit_h")), PROGRAM);
    let ran = folder.hloom(&["diff", "a", "b"]).exits(1);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[0], "modules: 1 different, 2 without another, 1 equal");
    assert_eq!(lines[1], "module_0006.jit_f: no difference: 5 instructions each");
    assert!(lines[2].starts_with("module_0007.jit_g: 1 difference (1 constant"), "{}", ran.stdout);
    assert!(lines.contains(&"module_0008.jit_f: is only in a") && lines.contains(&"module_0009.jit_h: is only in b"));
    let ran = folder.hloom(&["diff", "a", "b", "--json"]).exits(1);
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    assert_eq!((&json["equal"], &json["modules"][0]["diff"]["equal"]), (&false.into(), &true.into()));
    folder.hloom(&["diff", "a", "b", "--html", "pages"]).exits(1);
    assert!(folder.read("pages/module_0007.jit_g.html").contains("module_0002.jit_g"));
    folder.hloom(&["diff", "a", "a"]).exits(0);
    folder.hloom(&["diff", "a", &format!("b/{}", after(3, "jit_f"))]).exits(2);
}

#[test]
fn a_folder_with_a_broken_module_is_2_and_the_others_are_compared() {
    let folder = Folder::new("diff-folders-bad")
        .with("a/one.hlo", PROGRAM)
        .with("a/two.hlo", "HloModule x\nnonsense")
        .with("b/one.hlo", PROGRAM)
        .with("b/two.hlo", PROGRAM)
        .with("empty/notes.md", "nothing");
    let ran = folder.hloom(&["diff", "a", "b"]).exits(2);
    assert!(
        ran.stdout.starts_with("modules: 1 that cannot be compared, 1 equal\none.hlo: no difference"),
        "{}",
        ran.stdout
    );
    folder.hloom(&["diff", "a", "empty"]).exits(2);
}
