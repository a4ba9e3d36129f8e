//! Large modules: a step that is quadratic does not end.

mod common;

use common::parse;
use hloom_ir::verify::{VerifyOptions, verify};
use hloom_plan::check::{Assignment, check};
use hloom_plan::copies::{Inserted, insert_copies};
use hloom_plan::dump::{Part, dump_a, dump_b};
use hloom_plan::dump_checker::check_dump;
use hloom_plan::plan;
use hloom_plan::summary::{advise, sharings, summarise};
use hloom_target::Target;
use std::fmt::Write;

/// Plans, proves and sums up; returns the bytes of temporaries.
fn temporaries(text: &str) -> i128 {
    let module = parse(text);
    let target = Target::named("cpu").unwrap();
    let plan = plan(&module, &target).unwrap();
    assert_eq!(check(&module, &target, &Assignment::from(&plan)), []);
    assert!(dump_b(&plan, &target, Part::Allocations).len() > 100);
    let spaces = summarise(&plan, &target);
    assert!(advise(&plan, &target, &spaces, 10).len() <= 10);
    assert!(sharings(&plan).iter().all(|s| s.apart > i128::from(plan.allocations[s.allocation].size)));
    spaces.iter().map(|s| s.temporaries).sum()
}

#[test]
fn a_long_chain_takes_the_memory_of_its_widest_place() {
    let n = 100_000;
    let mut text = String::from("HloModule chain, is_scheduled=true\n\nENTRY e {\n  v0 = f32[16]{0} parameter(0)\n");
    for i in 1..n {
        let root = if i + 1 == n { "ROOT " } else { "" };
        let _ = writeln!(text, "  {root}v{i} = f32[16]{{0}} reverse(v{}), dimensions={{0}}", i - 1);
    }
    text.push_str("}\n");
    // Each step reads one array and writes another: the result's memory serves for every second one.
    assert_eq!(temporaries(&text), 64);
}

#[test]
fn thousands_of_results() {
    let n = 20_000;
    let mut text = String::from("HloModule results, is_scheduled=true\n\nENTRY e {\n  p = f32[16]{0} parameter(0)\n");
    for i in 0..n {
        let _ = writeln!(text, "  t{i} = f32[16]{{0}} reverse(p), dimensions={{0}}");
        let _ = writeln!(text, "  o{i} = f32[16]{{0}} reverse(t{i}), dimensions={{0}}");
    }
    let shapes = vec!["f32[16]{0}"; n].join(", ");
    let names: Vec<String> = (0..n).map(|i| format!("o{i}")).collect();
    let _ = writeln!(text, "  ROOT r = ({shapes}) tuple({})\n}}", names.join(", "));
    // All but the last temporary fit into memory of results that are made later.
    assert_eq!(temporaries(&text), 64);
}

#[test]
fn a_loop_that_carries_thousands_of_values() {
    let n = 10_000;
    let tuple = format!("({})", vec!["f32[16]{0}"; n].join(", "));
    let list = |name: &str| (0..n).map(|i| format!("{name}{i}")).collect::<Vec<_>>().join(", ");
    let mut text = format!("HloModule wide, is_scheduled=true\n\nbody {{\n  p = {tuple} parameter(0)\n");
    for i in 0..n {
        let _ = writeln!(text, "  g{i} = f32[16]{{0}} get-tuple-element(p), index={i}");
        let _ = writeln!(text, "  n{i} = f32[16]{{0}} negate(g{i})");
    }
    let _ = writeln!(text, "  ROOT b = {tuple} tuple({})\n}}\n\ncondition {{", list("n"));
    let _ = writeln!(text, "  q = {tuple} parameter(0)\n  ROOT no = pred[] constant(false)\n}}\n\nENTRY e {{");
    for i in 0..n {
        let _ = writeln!(text, "  x{i} = f32[16]{{0}} parameter({i})\n  y{i} = f32[16]{{0}} copy(x{i})");
    }
    let _ = writeln!(text, "  init = {tuple} tuple({})", list("y"));
    let _ = writeln!(text, "  w = {tuple} while(init), condition=condition, body=body");
    text.push_str("  ROOT r = f32[16]{0} get-tuple-element(w), index=0\n}\n");
    // One place for each value carried, but for the one that is the result, and the table of pointers.
    let carried = 64 * (n as i128 - 1);
    assert_eq!(temporaries(&text), carried + 8 * n as i128);
}

#[test]
fn an_update_of_thousands_of_parameters_at_once() {
    // One fusion reads and makes all of them: each is asked which of the others could have its place.
    let n = 5_000;
    let tuple = format!("({})", vec!["f32[16]{0}"; n].join(", "));
    let mut text = String::from("HloModule update, is_scheduled=true\n\nfused {\n");
    for i in 0..n {
        let _ = writeln!(text, "  p{i} = f32[16]{{0}} parameter({i})\n  n{i} = f32[16]{{0}} negate(p{i})");
    }
    let list = |name: &str| (0..n).map(|i| format!("{name}{i}")).collect::<Vec<_>>().join(", ");
    let _ = writeln!(text, "  ROOT t = {tuple} tuple({})\n}}\n\nENTRY e {{", list("n"));
    (0..n).for_each(|i| text.push_str(&format!("  x{i} = f32[16]{{0}} parameter({i})\n")));
    let _ = writeln!(text, "  early = f32[16]{{0}} reverse(x0), dimensions={{0}}");
    let _ = writeln!(text, "  late = f32[16]{{0}} reverse(early), dimensions={{0}}");
    let _ = writeln!(
        text,
        "  ROOT f = {tuple} fusion({}), kind=kLoop, calls=fused\n}}",
        list("x").replacen("x0", "late", 1)
    );
    assert_eq!(temporaries(&text), 0);
}

/// Adds copies to a module without a schedule, and proves that the plan of the result is right.
fn copied(text: &str) -> Inserted {
    let target = Target::named("cpu").unwrap();
    let mut module = parse(text).into_module();
    let inserted = insert_copies(&mut module, &target).unwrap();
    module.is_scheduled = true;
    let module =
        verify(module, &VerifyOptions { devices: None }).unwrap_or_else(|e| panic!("{:?}", e.diagnostics.first()));
    let plan = plan(&module, &target).unwrap();
    assert_eq!(check(&module, &target, &Assignment::from(&plan)), []);
    inserted
}

#[test]
fn a_loop_that_turns_thousands_of_values_round() {
    let n = 5_000;
    let tuple = format!("({})", vec!["f32[16]"; n].join(", "));
    let list = |name: &str, by: usize| (0..n).map(|i| format!("{name}{}", (i + by) % n)).collect::<Vec<_>>().join(", ");
    let mut text = format!("HloModule wheel\n\nbody {{\n  p = {tuple} parameter(0)\n");
    for i in 0..n {
        let _ = writeln!(text, "  g{i} = f32[16] get-tuple-element(p), index={i}");
    }
    let _ = writeln!(text, "  ROOT b = {tuple} tuple({})\n}}\n\ncondition {{", list("g", 1));
    let _ = writeln!(text, "  q = {tuple} parameter(0)\n  ROOT no = pred[] constant(false)\n}}\n\nENTRY e {{");
    for i in 0..n {
        let _ = writeln!(text, "  x{i} = f32[16] parameter({i})");
    }
    let _ = writeln!(text, "  init = {tuple} tuple({})", list("x", 0));
    let _ = writeln!(text, "  ROOT w = {tuple} while(init), condition=condition, body=body\n}}");
    // Parameters are copied on the way in; in the loop each moves on by one, and one steps aside.
    assert_eq!(copied(&text).copies, n + n + 1);
}

#[test]
fn thousands_of_readers_before_thousands_of_updates() {
    let n = 20_000;
    let mut text = String::from(
        "HloModule m\n\nENTRY e {\n  p = f32[16] parameter(0)\n  i = s32[] parameter(1)\n  s = f32[1] parameter(2)\n  up0 = f32[16] negate(p)\n",
    );
    for i in 1..n {
        let _ = writeln!(text, "  up{i} = f32[16] dynamic-update-slice(up{}, s, i)", i - 1);
    }
    for i in 0..n {
        let _ = writeln!(text, "  r{i} = f32[16] exponential(up0)");
    }
    let shapes = vec!["f32[16]"; n + 1].join(", ");
    let readers: Vec<String> = (0..n).map(|i| format!("r{i}")).collect();
    let _ = writeln!(text, "  ROOT t = ({shapes}) tuple(up{}, {})\n}}", n - 1, readers.join(", "));
    let inserted = copied(&text);
    assert_eq!((inserted.copies, inserted.dependencies), (0, n), "every reader comes before the first update");
}

#[test]
fn a_long_dump_is_judged() {
    let n = 50_000;
    let mut text = String::from("HloModule chain, is_scheduled=true\n\nENTRY e {\n  v0 = f32[16]{0} parameter(0)\n");
    for i in 1..n {
        let root = if i + 1 == n { "ROOT " } else { "" };
        let _ = writeln!(text, "  {root}v{i} = f32[16]{{0}} reverse(v{}), dimensions={{0}}", i - 1);
    }
    text.push_str("}\n");
    let (module, target) = (parse(&text), Target::named("cpu").unwrap());
    let dump = dump_a(&plan(&module, &target).unwrap(), &target);
    assert_eq!(check_dump(&module, &target, &dump), []);
    assert_eq!(check_dump(&module, &target, &dump[..dump.len() - 20]).len(), 1);
}
