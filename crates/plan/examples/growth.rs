//! How the time of scheduling, planning, packing and checking grows with the module: modules of several kinds, from 1,000
//! to 100,000 instructions (or as many as the first argument says), with the seconds that each step takes, and how far the
//! reference packing and the best one are above the least there can be.
//!
//! `cargo run --release -p hloom-plan --example growth`
#![allow(clippy::print_stdout, reason = "it is a command")]

use hloom_formats::hlo_text;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::verify::{VerifyOptions, verify};
use hloom_plan::check::{Assignment, check};
use hloom_plan::copies::insert_copies;
use hloom_plan::flatten::flatten_call_graph;
use hloom_plan::schedule::{Scheduler, schedule};
use hloom_plan::{Packer, Plan, plan_with};
use hloom_target::Target;
use std::fmt::Write;
use std::time::Instant;

/// Numbers that look random and are always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// Each instruction reads the one before it.
fn chain(n: usize) -> String {
    let mut text = String::from("HloModule chain\n\nENTRY e {\n  v0 = f32[64] parameter(0)\n");
    for i in 1..n {
        let root = if i + 1 == n { "ROOT " } else { "" };
        let _ = writeln!(text, "  {root}v{i} = f32[64] reverse(v{}), dimensions={{0}}", i - 1);
    }
    text + "}\n"
}

/// Values of many sizes, each made from up to three of the values before it, near or far.
fn web(n: usize) -> String {
    let mut numbers = Numbers(7);
    let mut text = String::from("HloModule web\n\nENTRY e {\n  v0 = f32[] parameter(0)\n");
    let mut used = vec![false; n];
    for i in 1..n {
        let size = 1 << numbers.below(14);
        let mut operands = format!("v{}", i - 1 - numbers.below(i.min(8)));
        for _ in 0..numbers.below(3) {
            let near = if numbers.below(10) == 0 { i } else { i.min(200) };
            let _ = write!(operands, ", v{}", i - 1 - numbers.below(near));
        }
        for name in operands.split(", ") {
            used[name[1..].parse::<usize>().unwrap_or(0)] = true;
        }
        let _ = writeln!(
            text,
            "  v{i} = f32[{}] custom-call({operands}), custom_call_target=\"f\"",
            size + numbers.below(size)
        );
    }
    let rest: Vec<String> = (1..n).filter(|&i| !used[i]).map(|i| format!("v{i}")).collect();
    let _ = writeln!(text, "  ROOT r = f32[] custom-call({}), custom_call_target=\"f\"\n}}", rest.join(", "));
    text
}

/// Layers forwards, then backwards with what the layers left; every layer has weights of its own.
fn training(n: usize) -> String {
    let layers = (n / 10).max(1);
    let mut text = String::from("HloModule training\n\nENTRY e {\n  x0 = f32[256,512] parameter(0)\n");
    let dot = |from: i32, to: i32| format!("lhs_contracting_dims={{{from}}}, rhs_contracting_dims={{{to}}}");
    for i in 0..layers {
        let _ = writeln!(text, "  w{i} = f32[512,512] parameter({})", i + 1);
        let _ = writeln!(text, "  d{i} = f32[256,512] dot(x{i}, w{i}), {}", dot(1, 0));
        let _ = writeln!(text, "  t{i} = f32[256,512] tanh(d{i})");
        let _ = writeln!(text, "  x{} = f32[256,512] add(t{i}, x{i})", i + 1);
    }
    let _ = writeln!(text, "  g{layers} = f32[256,512] negate(x{layers})");
    for i in (0..layers).rev() {
        let _ = writeln!(text, "  a{i} = f32[256,512] multiply(t{i}, g{})", i + 1);
        let _ = writeln!(text, "  h{i} = f32[256,512] dot(a{i}, w{i}), {}", dot(1, 1));
        let _ = writeln!(text, "  m{i} = f32[512,512] dot(x{i}, a{i}), {}", dot(0, 0));
        let _ = writeln!(text, "  n{i} = f32[512,512] subtract(w{i}, m{i})");
        let _ = writeln!(text, "  g{i} = f32[256,512] add(h{i}, g{})", i + 1);
    }
    let names: Vec<String> = (0..layers).map(|i| format!("n{i}")).collect();
    let shapes = vec!["f32[512,512]"; layers].join(", ");
    let _ = writeln!(text, "  ROOT r = ({shapes}) tuple({})\n}}", names.join(", "));
    text
}

/// Many loops, one after another, each with a body of its own that updates an array in place.
fn loops(n: usize) -> String {
    let count = (n / 16).max(1);
    let state = "(s32[], f32[128], f32[4,128])";
    let mut text = String::from("HloModule loops\n\n");
    for i in 0..count {
        let _ = writeln!(text, "body{i} {{\n  p = {state} parameter(0)\n  i = s32[] get-tuple-element(p), index=0");
        let _ = writeln!(
            text,
            "  a = f32[128] get-tuple-element(p), index=1\n  b = f32[4,128] get-tuple-element(p), index=2"
        );
        let _ = writeln!(text, "  one = s32[] constant(1)\n  zero = s32[] constant(0)\n  j = s32[] add(i, one)");
        let _ = writeln!(text, "  c = f32[128] reverse(a), dimensions={{0}}\n  row = f32[1,128] reshape(c)");
        let _ = writeln!(
            text,
            "  u = f32[4,128] dynamic-update-slice(b, row, i, zero)\n  ROOT t = {state} tuple(j, c, u)\n}}\n"
        );
        let _ =
            writeln!(text, "condition{i} {{\n  q = {state} parameter(0)\n  k = s32[] get-tuple-element(q), index=0");
        let _ = writeln!(text, "  four = s32[] constant(4)\n  ROOT less = pred[] compare(k, four), direction=LT\n}}\n");
    }
    text.push_str(
        "ENTRY e {\n  start = s32[] constant(0)\n  x0 = f32[128] parameter(0)\n  y0 = f32[4,128] parameter(1)\n",
    );
    for i in 0..count {
        let _ = writeln!(text, "  in{i} = {state} tuple(start, x{i}, y{i})");
        let _ = writeln!(text, "  w{i} = {state} while(in{i}), condition=condition{i}, body=body{i}");
        let _ = writeln!(text, "  x{} = f32[128] get-tuple-element(w{i}), index=1", i + 1);
        let _ = writeln!(text, "  y{} = f32[4,128] get-tuple-element(w{i}), index=2", i + 1);
    }
    let _ = writeln!(text, "  ROOT r = f32[4,128] negate(y{count})\n}}");
    text
}

/// A name, and a module of about that many instructions.
type Kind = (&'static str, fn(usize) -> String);

fn main() {
    let most = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(100_000);
    let Ok(target) = Target::named("cpu") else { return };
    let kinds: [Kind; 4] = [("chain", chain), ("web", web), ("training", training), ("loops", loops)];
    let headings = ["copies", "schedule", "plan", "best", "check", "above", "best above"];
    let headings: Vec<String> = headings.iter().map(|h| format!("{h:>9}")).collect();
    println!("{:<9} {:>12} {}", "kind", "instructions", headings.join(" "));
    for (kind, make) in kinds {
        for n in [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000].into_iter().filter(|&n| n <= most) {
            match measure(&make(n), &target) {
                Ok(Measured { count, seconds, above: [reference, best] }) => {
                    let columns: Vec<String> = seconds.iter().map(|s| format!("{s:>9.3}")).collect();
                    println!("{kind:<9} {count:>12} {} {reference:>8.2}% {best:>8.2}%", columns.join(" "));
                }
                Err(why) => println!("{kind:<9} {n:>12} {why}"),
            }
        }
    }
}

/// Seconds from lap to lap.
struct Watch {
    begin: Instant,
    seconds: Vec<f64>,
}

impl Watch {
    fn lap(&mut self) {
        self.seconds.push(self.begin.elapsed().as_secs_f64());
        self.begin = Instant::now();
    }
}

/// What was measured of one module.
struct Measured {
    /// Instructions.
    count: usize,
    /// Seconds of each step.
    seconds: Vec<f64>,
    /// How far the packings are above their lower bounds, in hundredths of those.
    above: [f64; 2],
}

fn above(plan: &Plan<'_>) -> f64 {
    let (bytes, bound) = (plan.heap_bytes(0), plan.lower_bound(0));
    if bound == 0 { 0.0 } else { (bytes - bound) as f64 * 100.0 / bound as f64 }
}

fn measure(text: &str, target: &Target) -> Result<Measured, String> {
    let read = hlo_text::read(text.as_bytes());
    let mut module = read.module.ok_or_else(|| format!("{:?}", read.diagnostics.first().map(|d| &d.message)))?;
    let count = module.instruction_count();
    let first = |faults: Vec<Diagnostic>| faults.first().map_or(String::new(), |d| d.message.clone());
    let mut watch = Watch { begin: Instant::now(), seconds: Vec::new() };
    flatten_call_graph(&mut module).map_err(|d| d.message)?;
    insert_copies(&mut module, target).map_err(first)?;
    watch.lap();
    schedule(&mut module, Scheduler::Memory, target).map_err(|d| d.message)?;
    watch.lap();
    let module = verify(module, &VerifyOptions { devices: None }).map_err(|e| first(e.diagnostics))?;
    watch.begin = Instant::now();
    let planned = plan_with(&module, target, Packer::Reference).map_err(first)?;
    watch.lap();
    let best = plan_with(&module, target, Packer::Best).map_err(first)?;
    watch.lap();
    let faults = check(&module, target, &Assignment::from(&planned));
    watch.lap();
    match faults.first() {
        Some(fault) => Err(format!("the plan is wrong: {}", fault.message)),
        None => Ok(Measured { count, seconds: watch.seconds, above: [above(&planned), above(&best)] }),
    }
}
