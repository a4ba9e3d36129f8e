//! Large modules: a step that is quadratic does not end.

use hloom_formats::hlo_text;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_plan::check::{Assignment, check};
use hloom_plan::dump::{Part, dump_b};
use hloom_plan::plan;
use hloom_plan::summary::{advise, sharings, summarise};
use hloom_target::Target;
use std::fmt::Write;

fn parse(text: &str) -> VerifiedModule {
    let result = hlo_text::read(text.as_bytes());
    let module = result.module.unwrap_or_else(|| panic!("{:?}", result.diagnostics.first()));
    verify(module, &VerifyOptions { devices: None }).unwrap_or_else(|e| panic!("{:?}", e.diagnostics.first()))
}

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
