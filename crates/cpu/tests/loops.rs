//! Loops against the evaluator: loops of every kind of state, generated loops, loops without end.

mod common;

use common::{execute, parse};
use hloom_compiler::{CompileOptions, Effort};
use hloom_cpu::{CpuClient, CpuClientOptions};
use hloom_eval::run::{DeviceGrid, Options as RunOptions, run};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{Agreement, compare};
use hloom_ir::diagnostic::codes::eval as codes;
use hloom_runtime::{Client, ExecuteOptions, LoadedExecutable};
use hloom_value::{Array, Value};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const GRID: DeviceGrid = DeviceGrid { replicas: 1, partitions: 1 };

fn compile(text: &str, effort: Effort) -> (CpuClient, Arc<dyn LoadedExecutable>) {
    let client =
        CpuClient::new(&CpuClientOptions { threads: Some(2), ..CpuClientOptions::default() }).expect("a client");
    let options = CompileOptions { fill_constants: true, effort, ..CompileOptions::new(GRID) };
    let compiled = client.compile(&parse(text), &options).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    (client, compiled)
}

/// Compiles `text`, runs it twice and compares with the evaluator; returns how many loops became regions.
fn agrees(text: &str, arguments: &[Array], tolerance: f64) -> usize {
    let arguments: Vec<Value> = arguments.iter().cloned().map(Value::Array).collect();
    let options = RunOptions { fill_constants: true, ..RunOptions::default() };
    let expected =
        run(&parse(text), GRID, vec![arguments.clone()], &options).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let mut regions = 0;
    for effort in [Effort::Full, Effort::Quick] {
        let (client, compiled) = compile(text, effort);
        for _ in 0..2 {
            let results = execute(&client, &compiled, std::slice::from_ref(&arguments), &ExecuteOptions::default());
            let results = results.unwrap_or_else(|e| panic!("{e:?}\n{text}"));
            compare(&results, &expected, Agreement::Within(tolerance)).unwrap_or_else(|e| panic!("{e}\n{text}"));
        }
        regions = compiled.compiled().report.native.get("region").copied().unwrap_or(0);
    }
    regions
}

fn floats(dims: &[i64]) -> Array {
    let count = dims.iter().product::<i64>();
    let elements: Vec<f32> = (0..count).map(|n| ((n * 37) % 101) as f32 / 25.0 - 2.0).collect();
    Array::new(dims, &elements).expect("as many as the dimensions say")
}

/// A loop of `turns` turns over `(s32[], <state>)`; `body` makes `next` from `x` and the number `i` of the turn.
fn counted(state: &str, turns: i32, others: &str, body: &str) -> String {
    format!(
        "HloModule m
        {others}
        body {{
          s = (s32[], {state}) parameter(0)
          i = s32[] get-tuple-element(s), index=0
          x = {state} get-tuple-element(s), index=1
          one = s32[] constant(1)
          j = s32[] add(i, one)
          {body}
          ROOT r = (s32[], {state}) tuple(j, next)
        }}
        condition {{
          s = (s32[], {state}) parameter(0)
          i = s32[] get-tuple-element(s), index=0
          n = s32[] constant({turns})
          ROOT c = pred[] compare(i, n), direction=LT
        }}
        ENTRY e {{
          x = {state} parameter(0)
          zero = s32[] constant(0)
          t = (s32[], {state}) tuple(zero, x)
          w = (s32[], {state}) while(t), condition=condition, body=body
          ROOT r = {state} get-tuple-element(w), index=1
        }}"
    )
}

/// Whether loops can be regions at all.
const NATIVE: bool = cfg!(feature = "llvm");

#[test]
fn a_loop_of_small_kernels_is_one_function() {
    let half = "half = f32[] constant(0.5) h = f32[3] broadcast(half), dimensions={}";
    let text = counted("f32[3]", 100, "", &format!("{half} y = f32[3] multiply(x, h) next = f32[3] add(y, h)"));
    assert_eq!(agrees(&text, &[floats(&[3])], 1e-6), usize::from(NATIVE));
}

#[test]
fn a_loop_of_no_turns_leaves_its_state() {
    let text = counted("f32[3]", 0, "", "next = f32[3] add(x, x)");
    agrees(&text, &[floats(&[3])], 0.0);
}

#[test]
fn elements_are_moved_within_and_between_registers() {
    let reverse = "next = f32[5] reverse(x), dimensions={0}";
    agrees(&counted("f32[5]", 3, "", reverse), &[floats(&[5])], 0.0);
    let rotate = "a = f32[1] slice(x), slice={[0:1]} b = f32[6] slice(x), slice={[1:7]}
        next = f32[7] concatenate(b, a), dimensions={0}";
    agrees(&counted("f32[7]", 10, "", rotate), &[floats(&[7])], 0.0);
    let transpose = "y = f32[3,3] transpose(x), dimensions={1,0} next = f32[3,3] add(x, y)";
    agrees(&counted("f32[3,3]", 4, "", transpose), &[floats(&[3, 3])], 0.0);
    let sum = "z = f32[] constant(0) t = f32[] reduce(x, z), dimensions={0}, to_apply=add
        b = f32[6] broadcast(t), dimensions={} c = f32[] constant(0.1) d = f32[6] broadcast(c), dimensions={}
        y = f32[6] multiply(b, d) next = f32[6] subtract(x, y)";
    let add = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }";
    agrees(&counted("f32[6]", 9, add, sum), &[floats(&[6])], 1e-5);
}

#[test]
fn what_is_picked_at_run_time_is_in_memory() {
    let text = counted(
        "f32[5]",
        5,
        "",
        "a = f32[1] dynamic-slice(x, i), dynamic_slice_sizes={1}
        b = f32[1] add(a, a)
        next = f32[5] dynamic-update-slice(x, b, i)",
    );
    agrees(&text, &[floats(&[5])], 0.0);
}

#[test]
fn branches_within_a_loop_agree() {
    let branches = "
        up { x = f32[4] parameter(0) ROOT y = f32[4] add(x, x) }
        same { ROOT x = f32[4] parameter(0) }
        down { x = f32[4] parameter(0) h = f32[] constant(0.25) b = f32[4] broadcast(h), dimensions={}
          ROOT y = f32[4] multiply(x, b) }";
    let by_number = "m = s32[] constant(5) n = s32[] remainder(i, m) two = s32[] constant(1) k = s32[] subtract(n, two)
        next = f32[4] conditional(k, x, x, x), branch_computations={up, same, down}";
    agrees(&counted("f32[4]", 23, branches, by_number), &[floats(&[4])], 0.0);
    let by_truth = "m = s32[] constant(3) n = s32[] remainder(i, m) z = s32[] constant(0)
        p = pred[] compare(n, z), direction=EQ
        next = f32[4] conditional(p, x, x), true_computation=up, false_computation=down";
    agrees(&counted("f32[4]", 23, branches, by_truth), &[floats(&[4])], 0.0);
}

#[test]
fn loops_within_loops_agree() {
    let inner = "
        inner_body { s = (s32[], f32[3]) parameter(0)
          k = s32[] get-tuple-element(s), index=0 y = f32[3] get-tuple-element(s), index=1
          one = s32[] constant(1) l = s32[] add(k, one)
          h = f32[] constant(0.75) b = f32[3] broadcast(h), dimensions={} z = f32[3] multiply(y, b)
          ROOT r = (s32[], f32[3]) tuple(l, z) }
        inner_condition { s = (s32[], f32[3]) parameter(0)
          k = s32[] get-tuple-element(s), index=0 n = s32[] constant(4)
          ROOT c = pred[] compare(k, n), direction=LT }";
    let body = "t = (s32[], f32[3]) tuple(i, x)
        w = (s32[], f32[3]) while(t), condition=inner_condition, body=inner_body
        z = f32[3] get-tuple-element(w), index=1
        f = f32[] convert(i) b = f32[3] broadcast(f), dimensions={}
        next = f32[3] add(z, b)";
    assert_eq!(agrees(&counted("f32[3]", 6, inner, body), &[floats(&[3])], 1e-6), usize::from(NATIVE));
}

#[test]
fn large_and_foreign_steps_are_done_for_a_loop() {
    // A sort, and an addition that is worth several threads, between small kernels.
    let less = "less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }
        add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }";
    let body = "y = f32[40] sort(x), dimensions={0}, to_apply=less
        big = f32[40,50000] broadcast(y), dimensions={0}
        fives = f32[40,50000] iota(), iota_dimension=1
        wide = f32[40,50000] multiply(big, fives)
        e = f32[40,50000] exponential(wide)
        z = f32[] constant(0) t = f32[40] reduce(e, z), dimensions={1}, to_apply=add
        u = f32[40] log(t)
        c = f32[] constant(0.0001) d = f32[40] broadcast(c), dimensions={}
        v = f32[40] multiply(u, d)
        m = f32[40] reverse(y), dimensions={0}
        k = f32[40] negate(m)
        next = f32[40] minimum(k, v)";
    agrees(&counted("f32[40]", 3, less, body), &[floats(&[40])], 1e-4);
}

#[test]
fn small_products_within_a_loop_are_written_out() {
    let body = "w = f32[24,24] iota(), iota_dimension=1 c = f32[] constant(0.003)
        d = f32[24,24] broadcast(c), dimensions={} v = f32[24,24] multiply(w, d)
        y = f32[24] dot(v, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        z = f32[24] dot(y, v), lhs_contracting_dims={0}, rhs_contracting_dims={0}
        next = f32[24] tanh(z)";
    let text = counted("f32[24]", 20, "", body);
    assert_eq!(agrees(&text, &[floats(&[24])], 1e-4), usize::from(NATIVE));
    let (_, compiled) = compile(&text, Effort::Full);
    assert_eq!(compiled.compiled().report.native.get("dot"), None);
}

const FOR_EVER: &str = "
    body { s = (f32[3], s32[]) parameter(0)
      x = f32[3] get-tuple-element(s), index=0 i = s32[] get-tuple-element(s), index=1
      y = f32[3] STEP
      ROOT r = (f32[3], s32[]) tuple(y, i) }
    condition { s = (f32[3], s32[]) parameter(0) i = s32[] get-tuple-element(s), index=1
      n = s32[] constant(7) ROOT c = pred[] compare(i, n), direction=LT }
    ENTRY e { x = f32[3] parameter(0) i = s32[] parameter(1) t = (f32[3], s32[]) tuple(x, i)
      w = (f32[3], s32[]) while(t), condition=condition, body=body
      ROOT r = f32[3] get-tuple-element(w), index=0 }";

fn for_ever(step: &str) -> String {
    format!("HloModule m\n{}", FOR_EVER.replace("STEP", step))
}

fn start() -> [Array; 2] {
    [floats(&[3]), Array::new(&[], &[0i32]).expect("one")]
}

#[test]
fn a_loop_whose_state_stays_as_it_is_ends() {
    // In every turn the state comes nearer to a value that it then keeps.
    let clamped = for_ever("clamp(x, x, x)");
    agrees(&clamped, &start(), 0.0);
    let rounded = for_ever("round-nearest-afz(x)");
    agrees(&rounded, &start(), 0.0);
}

#[test]
fn a_loop_without_end_can_be_stopped() {
    let (client, compiled) = compile(&for_ever("negate(x)"), Effort::Full);
    let arguments = [start().map(Value::Array).to_vec()];
    let options = ExecuteOptions { max_steps: Some(1_000_000), ..ExecuteOptions::default() };
    let fault = execute(&client, &compiled, &arguments, &options).expect_err("it has no end");
    assert_eq!(fault.diagnostic().code, &codes::TOO_MANY_STEPS);
    let cancel = AtomicBool::new(false);
    let options = ExecuteOptions { cancel: Some(&cancel), ..ExecuteOptions::default() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            cancel.store(true, Ordering::Relaxed);
        });
        let fault = execute(&client, &compiled, &arguments, &options).expect_err("it was cancelled");
        assert_eq!(fault.diagnostic().code, &codes::CANCELLED);
    });
}

/// A loop made by chance: leaves of several types and sizes, each turn of operations on some of them.
struct Generated<'c, 'b> {
    choices: &'c mut Choices<'b>,
    text: String,
    names: usize,
}

const TYPES: [&str; 6] = ["f32", "f64", "s32", "u8", "bf16", "s64"];
const SIZES: [i64; 7] = [1, 2, 3, 4, 5, 9, 16];

type Leaf = (&'static str, i64);

fn shape((t, n): Leaf) -> String {
    if n == 1 { format!("{t}[]") } else { format!("{t}[{n}]") }
}

impl Generated<'_, '_> {
    fn pick(&mut self, n: usize) -> usize {
        self.choices.below(n)
    }

    fn line(&mut self, leaf: Leaf, what: &str) -> String {
        self.names += 1;
        let name = format!("v{}", self.names);
        writeln!(self.text, "  {name} = {} {what}", shape(leaf)).expect("strings take all");
        name
    }

    /// `value`, which is a `from`, as a `to`.
    fn fit(&mut self, value: &str, from: Leaf, to: Leaf) -> String {
        let (mut value, mut now) = (value.to_owned(), from);
        if now.1 > to.1 && to.1 == 1 {
            let at = self.pick(now.1 as usize);
            value = {
                self.names += 1;
                let name = format!("v{}", self.names);
                let slice = format!("{name} = {}[1] slice({value}), slice={{[{at}:{}]}}", now.0, at + 1);
                writeln!(self.text, "  {slice}").expect("strings take all");
                name
            };
            now.1 = 1;
            value = self.line(now, &format!("reshape({value})"));
        } else if now.1 > to.1 {
            let at = self.pick((now.1 - to.1) as usize);
            value = self.line((now.0, to.1), &format!("slice({value}), slice={{[{at}:{}]}}", at as i64 + to.1));
        } else if now.1 == 1 && to.1 > 1 {
            value = self.line((now.0, to.1), &format!("broadcast({value}), dimensions={{}}"));
        } else if now.1 < to.1 {
            let zero = self.line((now.0, 1), "constant(1)");
            let low = self.pick((to.1 - now.1) as usize) as i64;
            let high = to.1 - now.1 - low;
            value = self.line((now.0, to.1), &format!("pad({value}, {zero}), padding={low}_{high}"));
        }
        now.1 = to.1;
        if now.0 != to.0 {
            value = self.line(to, &format!("convert({value})"));
        }
        value
    }

    /// Some function of values, of the kind of a leaf.
    fn expression(&mut self, values: &[(String, Leaf)], to: Leaf, depth: usize) -> String {
        if depth == 0 {
            let (value, from) = values[self.pick(values.len())].clone();
            return self.fit(&value, from, to);
        }
        let a = self.expression(values, to, depth - 1);
        if to.0.contains('f') && self.pick(4) == 0 {
            let op = ["tanh", "negate", "abs", "floor"][self.pick(4)];
            return self.line(to, &format!("{op}({a})"));
        }
        let b = self.expression(values, to, depth - 1);
        if self.pick(5) == 0 {
            let p = {
                self.names += 1;
                let name = format!("v{}", self.names);
                let p = shape(("pred", to.1));
                writeln!(self.text, "  {name} = {p} compare({a}, {b}), direction=LT").expect("strings take all");
                name
            };
            return self.line(to, &format!("select({p}, {b}, {a})"));
        }
        let op = ["add", "subtract", "maximum", "minimum", "multiply"][self.pick(5)];
        self.line(to, &format!("{op}({a}, {b})"))
    }
}

fn generated(seed: u64) -> (String, Vec<Array>) {
    let mut choices = Choices::from_seed(seed);
    let mut g = Generated { choices: &mut choices, text: String::new(), names: 0 };
    let count = 1 + g.pick(5);
    let leaves: Vec<Leaf> = (0..count).map(|_| (TYPES[g.pick(TYPES.len())], SIZES[g.pick(SIZES.len())])).collect();
    let state = leaves.iter().map(|&l| shape(l)).collect::<Vec<_>>().join(", ");
    let state = format!("(s32[], {state})");
    let turns = g.pick(7);
    writeln!(g.text, "HloModule m\nbody {{\n  s = {state} parameter(0)").expect("strings take all");
    let mut values = Vec::new();
    for (n, &leaf) in [("s32", 1)].iter().chain(&leaves).enumerate() {
        let name = g.line(leaf, &format!("get-tuple-element(s), index={n}"));
        values.push((name, leaf));
    }
    let one = g.line(("s32", 1), "constant(1)");
    let mut results = vec![g.line(("s32", 1), &format!("add({}, {one})", values[0].0))];
    for &leaf in &leaves {
        let depth = g.pick(4);
        let mut new = g.expression(&values, leaf, depth);
        if leaf.0.contains('f') {
            // What grows without bound would differ in the end.
            new = g.line(leaf, &format!("tanh({new})"));
        }
        values.push((new.clone(), leaf));
        results.push(new);
    }
    let results = results.join(", ");
    writeln!(g.text, "  ROOT r = {state} tuple({results})\n}}").expect("strings take all");
    let parameters: Vec<String> =
        leaves.iter().enumerate().map(|(n, &l)| format!("  p{n} = {} parameter({n})", shape(l))).collect();
    let names: Vec<String> = (0..count).map(|n| format!("p{n}")).collect();
    writeln!(
        g.text,
        "condition {{\n  s = {state} parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n  n = s32[] constant({turns})\n  \
         ROOT c = pred[] compare(i, n), direction=LT\n}}\nENTRY e {{\n{}\n  z = s32[] constant(0)\n  \
         t = {state} tuple(z, {})\n  ROOT w = {state} while(t), condition=condition, body=body\n}}",
        parameters.join("\n"),
        names.join(", ")
    )
    .expect("strings take all");
    let text = g.text;
    let module = parse(&text);
    let arguments = hloom_fuzz::differential::inputs(module.module(), 1, &mut choices).expect("arguments can be made");
    let finite = |v: &Value| v.as_array().expect("an array").clone();
    (text, arguments[0].iter().map(finite).collect())
}

#[test]
fn generated_loops_agree_with_the_evaluator() {
    let mut regions = 0;
    for seed in 0..200 {
        let (text, arguments) = generated(seed);
        regions += agrees(&text, &arguments, 2e-2);
    }
    assert!(!NATIVE || regions > 50, "only {regions} loops are regions");
}
