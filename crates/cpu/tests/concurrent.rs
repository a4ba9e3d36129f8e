//! Steps beside each other, and collectives that are waited for late: the same results as one after another.
#![cfg(feature = "llvm")]

mod common;

use common::{execute, parse};
use hloom_compiler::CompileOptions;
use hloom_cpu::{CpuClient, CpuClientOptions};
use hloom_eval::run::{DeviceGrid, Options, run};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{Agreement, compare};
use hloom_ir::diagnostic::codes::eval as codes;
use hloom_ir::verify::VerifiedModule;
use hloom_runtime::{Client, ExecuteOptions, LoadedExecutable};
use hloom_value::{Array, Value};
use std::fmt::Write as _;
use std::sync::Arc;

fn compile(module: &VerifiedModule, replicas: usize, threads: usize) -> (CpuClient, Arc<dyn LoadedExecutable>) {
    let client =
        CpuClient::new(&CpuClientOptions { threads: Some(threads), ..CpuClientOptions::default() }).expect("a client");
    let grid = DeviceGrid { replicas, partitions: 1 };
    let options = CompileOptions::new(grid);
    let compiled = client.compile(module, &options).unwrap_or_else(|e| panic!("{e:?}"));
    (client, compiled)
}

/// Forks of the compiled program.
fn forks((_, compiled): &(CpuClient, Arc<dyn LoadedExecutable>)) -> usize {
    compiled.compiled().report.native.get("fork").copied().unwrap_or(0)
}

/// Runs a program several times on one thread and on three; returns how often it forks on three.
fn agrees(text: &str, arguments: &[Vec<Value>], tolerance: f64) -> usize {
    let module = parse(text);
    let grid = DeviceGrid { replicas: arguments.len(), partitions: 1 };
    let expected = run(&module, grid, arguments.to_vec(), &Options::default()).unwrap_or_else(|e| panic!("{e:?}"));
    let (alone, three) = (compile(&module, arguments.len(), 1), compile(&module, arguments.len(), 3));
    assert_eq!(forks(&alone), 0, "one thread has nobody to run beside");
    let options = ExecuteOptions::default();
    let first = execute(&alone.0, &alone.1, arguments, &options).unwrap_or_else(|e| panic!("{e:?}"));
    compare(&first, &expected, Agreement::Within(tolerance)).unwrap_or_else(|e| panic!("{e}\n{text}"));
    for _ in 0..4 {
        let results = execute(&three.0, &three.1, arguments, &options).unwrap_or_else(|e| panic!("{e:?}"));
        compare(&results, &first, Agreement::Exact).unwrap_or_else(|e| panic!("{e}\n{text}"));
    }
    forks(&three)
}

fn floats(dims: &[i64], seed: i64) -> Value {
    let count = dims.iter().product::<i64>();
    let elements: Vec<f32> = (0..count).map(|n| ((n * 37 + seed * 11) % 101) as f32 / 250.0 - 0.2).collect();
    Value::Array(Array::new(dims, &elements).expect("as many as the dimensions say"))
}

/// Four chains of small products.
fn chains() -> String {
    let mut text = "HloModule m\nENTRY e {\n  x = f32[64,64] parameter(0)\n  y = f32[64,64] parameter(1)\n".to_owned();
    for chain in 0..4 {
        let mut last = "x".to_owned();
        for n in 0..5 {
            let dims = if (chain + n) % 2 == 0 { "0" } else { "1" };
            let other = if (chain / 2 + n) % 2 == 0 { "x" } else { "y" };
            writeln!(
                text,
                "  p{chain}.{n} = f32[64,64] dot({last}, {other}), lhs_contracting_dims={{{dims}}}, rhs_contracting_dims={{0}}"
            )
            .unwrap();
            last = format!("p{chain}.{n}");
        }
    }
    let shapes = ["f32[64,64]"; 4].join(", ");
    writeln!(text, "  ROOT r = ({shapes}) tuple(p0.4, p1.4, p2.4, p3.4)\n}}").unwrap();
    text
}

#[test]
fn chains_of_products_run_beside_each_other() {
    assert!(agrees(&chains(), &[vec![floats(&[64, 64], 1), floats(&[64, 64], 2)]], 1e-4) > 0);
}

#[test]
fn devices_that_share_threads_take_no_more_memory_for_steps_beside_each_other() {
    let module = parse(&chains());
    let bytes = |replicas| compile(&module, replicas, 3).1.compiled().report.temp_bytes;
    assert!(2 * bytes(2) <= bytes(1), "{} for each of two, {} for one alone", bytes(2), bytes(1));
}

/// A loop of so many turns over a vector of eight, as text: its computations, and the instruction.
fn spinning(name: &str, turns: usize, factor: f32) -> (String, String) {
    let state = "(s32[], f32[8])";
    let text = format!(
        "cond_{name} {{\n  p = {state} parameter(0)\n  n = s32[] get-tuple-element(p), index=0\n  \
         most = s32[] constant({turns})\n  ROOT go = pred[] compare(n, most), direction=LT\n}}\n\
         body_{name} {{\n  p = {state} parameter(0)\n  n = s32[] get-tuple-element(p), index=0\n  \
         v = f32[8] get-tuple-element(p), index=1\n  one = s32[] constant(1)\n  next = s32[] add(n, one)\n  \
         f = f32[] constant({factor})\n  fs = f32[8] broadcast(f), dimensions={{}}\n  w = f32[8] multiply(v, fs)\n  \
         s = f32[8] sine(w)\n  u = f32[8] add(s, v)\n  ROOT t = {state} tuple(next, u)\n}}\n"
    );
    let call = format!("{state} while(start), condition=cond_{name}, body=body_{name}");
    (text, call)
}

#[test]
fn loops_run_beside_each_other() {
    let ((a, call_a), (b, call_b)) = (spinning("a", 5000, 0.5), spinning("b", 4000, -0.25));
    let text = format!(
        "HloModule m\n{a}{b}ENTRY e {{\n  x = f32[8] parameter(0)\n  zero = s32[] constant(0)\n  \
         start = (s32[], f32[8]) tuple(zero, x)\n  one = {call_a}\n  two = {call_b}\n  \
         l = f32[8] get-tuple-element(one), index=1\n  r = f32[8] get-tuple-element(two), index=1\n  \
         ROOT t = (f32[8], f32[8]) tuple(l, r)\n}}\n"
    );
    assert!(agrees(&text, &[vec![floats(&[8], 1)]], 1e-3) > 0);
    // The limit of steps holds for each of them.
    let module = parse(&text);
    let limited = ExecuteOptions { max_steps: Some(3000), ..ExecuteOptions::default() };
    let (client, compiled) = compile(&module, 1, 3);
    let fault = execute(&client, &compiled, &[vec![floats(&[8], 1)]], &limited).expect_err("they take longer");
    assert_eq!(fault.diagnostic().code, &codes::TOO_MANY_STEPS);
}

/// A program of small products, reversals and sums that use each other's results at random: memory is used again and
/// again.
fn generated(seed: u64) -> String {
    let mut choices = Choices::from_seed(seed);
    let mut text = "HloModule m\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  \
        ROOT c = f32[] add(a, b)\n}\nENTRY e {\n  x = f32[48,48] parameter(0)\n  zero = f32[] constant(0)\n  \
        part = f32[] constant(0.03)\n  few = f32[48,48] broadcast(part), dimensions={}\n"
        .to_owned();
    let mut values = vec!["x".to_owned()];
    for n in 0..40 {
        let near = values.len().saturating_sub(8);
        let mut pick = || values[near + choices.below(values.len() - near)].clone();
        let (a, b) = (pick(), pick());
        match choices.below(4) {
            0 | 1 => writeln!(
                text,
                "  d{n} = f32[48,48] dot({a}, {b}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n  \
                 m{n} = f32[48,48] multiply(d{n}, few)\n  t{n} = f32[48,48] tanh(m{n})"
            ),
            2 => writeln!(text, "  r{n} = f32[48,48] reverse({a}), dimensions={{0}}\n  t{n} = f32[48,48] negate(r{n})"),
            _ => writeln!(
                text,
                "  sum{n} = f32[48] reduce({a}, zero), dimensions={{1}}, to_apply=add\n  \
                 b{n} = f32[48,48] broadcast(sum{n}), dimensions={{0}}\n  m{n} = f32[48,48] multiply(b{n}, few)\n  \
                 t{n} = f32[48,48] subtract({b}, m{n})"
            ),
        }
        .unwrap();
        values.push(format!("t{n}"));
    }
    let last = &values[values.len() - 4..];
    writeln!(text, "  ROOT r = ({}) tuple({})\n}}", ["f32[48,48]"; 4].join(", "), last.join(", ")).unwrap();
    text
}

#[test]
fn generated_programs_do_not_depend_on_threads() {
    let forks = (0..12).filter(|&seed| agrees(&generated(seed), &[vec![floats(&[48, 48], 3)]], 1e-2) > 0).count();
    assert!(forks > 3, "{forks} programs fork");
}

#[test]
fn collectives_of_every_kind_are_waited_for_when_they_are_needed() {
    let groups = "replica_groups={{0,1,2,3}}";
    let text = format!(
        "HloModule m, replica_count=4\nadd {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  \
         ROOT c = f32[] add(a, b)\n}}\nENTRY e {{\n  x = f32[64,32] parameter(0)\n  id = u32[] replica-id()\n  \
         f = f32[] convert(id)\n  fs = f32[64,32] broadcast(f), dimensions={{}}\n  y = f32[64,32] add(x, fs)\n  \
         sum = f32[64,32] all-reduce(y), {groups}, to_apply=add\n  \
         scattered = f32[64,8] reduce-scatter(y), {groups}, dimensions={{1}}, to_apply=add\n  \
         rows = f32[16,32] reduce-scatter(y), {groups}, dimensions={{0}}, to_apply=add\n  \
         moved = f32[64,32] collective-permute(y), source_target_pairs={{{{0,1}},{{1,2}},{{2,0}}}}\n  \
         exchanged = f32[64,32] all-to-all(y), {groups}, dimensions={{1}}\n  \
         part0 = f32[16,32] slice(y), slice={{[0:16], [0:32]}}\n  part1 = f32[16,32] slice(y), slice={{[16:32], [0:32]}}\n  \
         part2 = f32[16,32] slice(y), slice={{[32:48], [0:32]}}\n  part3 = f32[16,32] slice(y), slice={{[48:64], [0:32]}}\n  \
         each = (f32[16,32], f32[16,32], f32[16,32], f32[16,32]) all-to-all(part0, part1, part2, part3), {groups}\n  \
         first = f32[16,32] get-tuple-element(each), index=0\n  last = f32[16,32] get-tuple-element(each), index=3\n  \
         other = f32[64,64] dot(y, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}\n  \
         square = f32[64,64] dot(other, other), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n  \
         all = f32[256,32] all-gather(sum), {groups}, dimensions={{0}}\n  \
         ROOT t = (f32[64,32], f32[64,8], f32[16,32], f32[64,32], f32[64,32], f32[16,32], f32[16,32], f32[64,64], \
         f32[256,32]) tuple(sum, scattered, rows, moved, exchanged, first, last, square, all)\n}}\n"
    );
    let arguments: Vec<Vec<Value>> = (0..4).map(|d| vec![floats(&[64, 32], d)]).collect();
    agrees(&text, &arguments, 1e-5);
    let (_, compiled) = compile(&parse(&text), 4, 2);
    assert!(
        compiled.compiled().report.fallback.keys().all(|k| k == "replica-id"),
        "{:?}",
        compiled.compiled().report.fallback
    );
}

#[test]
fn what_all_devices_get_alike_is_there_once_for_all_of_them() {
    let text = "HloModule m, replica_count=4
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
cond {
  p = (s32[], f32[40,8]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  most = s32[] constant(9)
  ROOT go = pred[] compare(n, most), direction=LT
}
body {
  p = (s32[], f32[40,8]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  w = f32[40,8] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(n, one)
  r = f32[40,8] reverse(w), dimensions={0}
  g = f32[40,8] all-reduce(r), replica_groups={{0,2},{3,1}}, to_apply=add
  f = f32[] constant(0.25)
  fs = f32[40,8] broadcast(f), dimensions={}
  s = f32[40,8] multiply(g, fs)
  d = f32[40,8] subtract(w, s)
  ROOT t = (s32[], f32[40,8]) tuple(next, d)
}
ENTRY e {
  x = f32[40,8] parameter(0)
  id = u32[] replica-id()
  f = f32[] convert(id)
  fs = f32[40,8] broadcast(f), dimensions={}
  y = f32[40,8] add(x, fs)
  zero = s32[] constant(0)
  start = (s32[], f32[40,8]) tuple(zero, y)
  end = (s32[], f32[40,8]) while(start), condition=cond, body=body
  w = f32[40,8] get-tuple-element(end), index=1
  rows = f32[80,8] all-gather(w), replica_groups={{1,0},{2,3}}, dimensions={0}
  ROOT p = f32[40,80] dot(w, rows), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}";
    let arguments: Vec<Vec<Value>> = (0..4).map(|d| vec![floats(&[40, 8], d)]).collect();
    agrees(text, &arguments, 1e-4);
    let (_, compiled) = compile(&parse(text), 4, 2);
    assert_eq!(
        compiled.compiled().report.native.get("array in common"),
        Some(&2),
        "{:?}",
        compiled.compiled().report.native
    );
}

#[test]
fn a_device_that_fails_while_others_wait_for_it_ends_the_run() {
    let (spin, _) = spinning("a", 1_000_000_000, 0.5);
    let text = format!(
        "HloModule m, replica_count=2\n{spin}add {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  \
         ROOT c = f32[] add(a, b)\n}}\nENTRY e {{\n  x = f32[8] parameter(0)\n  begin = s32[] parameter(1)\n  \
         start = (s32[], f32[8]) tuple(begin, x)\n  sum = f32[8] all-reduce(x), replica_groups={{{{0,1}}}}, to_apply=add\n  \
         spun = (s32[], f32[8]) while(start), condition=cond_a, body=body_a\n  \
         v = f32[8] get-tuple-element(spun), index=1\n  twice = f32[8] all-reduce(v), replica_groups={{{{0,1}}}}, to_apply=add\n  \
         ROOT t = (f32[8], f32[8]) tuple(sum, twice)\n}}\n"
    );
    let begin = |n: i32| Value::Array(Array::scalar(hloom_ir::element_type::ElementType::S32, n).expect("a scalar"));
    let arguments = vec![vec![floats(&[8], 1), begin(0)], vec![floats(&[8], 2), begin(1_000_000_000)]];
    let limited = ExecuteOptions { max_steps: Some(100_000), ..ExecuteOptions::default() };
    let (client, compiled) = compile(&parse(&text), 2, 2);
    let fault = execute(&client, &compiled, &arguments, &limited).expect_err("one of them spins");
    assert_eq!(fault.diagnostic().code, &codes::TOO_MANY_STEPS);
}
