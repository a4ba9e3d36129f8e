//! Laws that the evaluator must obey, on random programs and on random shapes.
//!
//! The first half runs generated modules: whatever they are, running them again, or after printing and reading, gives the
//! same. The second half states laws of single operations: a program makes both sides of an equation, and the two results
//! must be equal, bit by bit.

use hloom_eval::run::{DeviceGrid, Options as RunOptions, run};
use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_formats::proto::{self, Container};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{Agreement, compare_arrays, evaluate, inputs, same_results};
use hloom_fuzz::generate::{Options, generate};
use hloom_ir::diagnostic::codes::eval as codes;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_value::{Array, Value};
use std::fmt::Display;

const MODULES: u64 = 60;
const SHAPES: u64 = 25;

fn verified(module: Module) -> VerifiedModule {
    verify(module, &VerifyOptions::default()).unwrap_or_else(|e| panic!("{:?}", e.diagnostics))
}

fn print(module: &Module) -> String {
    hlo_text::print(module, &PrintOptions { elide_constants: false })
}

fn read(text: &str) -> Module {
    let read = hlo_text::read(text.as_bytes());
    read.module.unwrap_or_else(|| panic!("{:?}\n{text}", read.diagnostics))
}

/// Checks a law on generated programs for one device and for four replicas.
fn for_generated(law: impl Fn(&VerifiedModule, &[Vec<Value>]) -> Result<(), String>) {
    for replicas in [1, 4] {
        let options = Options { replicas, ..Options::runnable() };
        for seed in 0..MODULES {
            let mut choices = Choices::from_seed(seed);
            let module = verified(generate(&mut choices, &options));
            let arguments = inputs(module.module(), replicas as usize, &mut choices).expect("arguments can be made");
            if let Err(error) = law(&module, &arguments) {
                panic!("seed {seed}, {replicas} replicas: {error}\n{}", print(module.module()));
            }
        }
    }
}

#[test]
fn generated_programs_run() {
    for_generated(|module, arguments| evaluate(module, arguments).map(|_| ()).map_err(|e| format!("{e}")));
}

/// Programs with everything in them may be refused at run time, but never by a panic or a bug.
#[test]
fn any_generated_program_ends_without_a_bug() {
    let options = Options::default();
    for seed in 0..MODULES {
        let mut choices = Choices::from_seed(seed);
        let module = verified(generate(&mut choices, &options));
        let devices = (options.replicas * options.partitions) as usize;
        let Ok(arguments) = inputs(module.module(), devices, &mut choices) else { continue };
        let grid = DeviceGrid { replicas: options.replicas as usize, partitions: options.partitions as usize };
        let limits = RunOptions { max_steps: Some(1_000_000), fill_constants: true, ..RunOptions::default() };
        if let Err(fault) = run(&module, grid, arguments, &limits) {
            let diagnostic = fault.into_diagnostic();
            assert_ne!(diagnostic.code, &codes::INTERNAL, "seed {seed}: {diagnostic}\n{}", print(module.module()));
        }
    }
}

#[test]
fn a_program_gives_the_same_again() {
    for_generated(|module, arguments| same_results(module, module, arguments));
}

#[test]
fn a_printed_program_gives_the_same() {
    for_generated(|module, arguments| same_results(module, &verified(read(&print(module.module()))), arguments));
}

#[test]
fn a_program_gives_the_same_through_a_proto() {
    for_generated(|module, arguments| {
        let bytes = proto::write(module.module(), Container::Module).map_err(|e| format!("{e:?}"))?;
        let mut again = proto::read(&bytes).map_err(|e| format!("{e:?}"))?;
        // A proto has no field for the counts of devices.
        again.config.replica_count = module.module().config.replica_count;
        again.config.num_partitions = module.module().config.num_partitions;
        same_results(module, &verified(again), arguments)
    });
}

#[test]
fn a_fusion_is_a_call() {
    let mut fusions = 0;
    for seed in 0..MODULES {
        let mut choices = Choices::from_seed(seed);
        let module = verified(generate(&mut choices, &Options::runnable()));
        let arguments = inputs(module.module(), 1, &mut choices).expect("arguments can be made");
        let mut with_calls = module.module().clone();
        let all: Vec<_> =
            with_calls.computations().iter().flat_map(|&c| with_calls[c].instructions().to_vec()).collect();
        for i in all {
            if let Op::Fusion(fusion) = &with_calls[i].op {
                let to_apply = fusion.calls;
                with_calls.instruction_mut(i).op = Op::Call { to_apply, is_composite: false };
                fusions += 1;
            }
        }
        let same = same_results(&module, &verified(with_calls), &arguments);
        same.unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", print(module.module())));
    }
    assert!(fusions > 10, "there were only {fusions} fusions");
}

/// A list as in HLO text.
fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|i| i.to_string()).collect::<Vec<_>>().join(",")
}

fn dims(choices: &mut Choices<'_>, rank: usize) -> Vec<i64> {
    (0..rank).map(|_| choices.between(1, 4)).collect()
}

fn permutation(choices: &mut Choices<'_>, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    choices.shuffle(&mut order);
    order
}

/// Runs programs for random shapes; the first two results of each must be equal on every device.
fn equation(replicas: usize, program: impl Fn(&mut Choices<'_>) -> String) {
    for seed in 0..SHAPES {
        let mut choices = Choices::from_seed(seed);
        let header = format!("HloModule law, replica_count={replicas}\n\n");
        let text = header + &program(&mut choices);
        let module = verified(read(&text));
        let arguments = inputs(module.module(), replicas, &mut choices).expect("arguments can be made");
        let results = evaluate(&module, &arguments).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        for result in &results {
            let [a, b] = result.leaves()[..] else { panic!("an equation has two sides\n{text}") };
            let (a, b) = (a.as_array().expect("an array"), b.as_array().expect("an array"));
            compare_arrays(a, b, Agreement::Exact).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        }
    }
}

const TYPES: [&str; 6] = ["pred", "u8", "bf16", "s32", "f64", "c128"];

#[test]
fn a_transpose_is_undone_by_its_inverse() {
    equation(1, |c| {
        let t = *c.pick(&TYPES);
        let d = dims(c, 4);
        let order = permutation(c, 4);
        let mut inverse = vec![0; 4];
        order.iter().enumerate().for_each(|(k, &o)| inverse[o] = k);
        let moved = list(order.iter().map(|&o| d[o]));
        let (d, order, inverse) = (list(d), list(order), list(inverse));
        format!(
            "ENTRY e {{
  x = {t}[{d}] parameter(0)
  y = {t}[{moved}] transpose(x), dimensions={{{order}}}
  z = {t}[{d}] transpose(y), dimensions={{{inverse}}}
  ROOT r = ({t}[{d}], {t}[{d}]) tuple(x, z)
}}"
        )
    });
}

#[test]
fn a_reverse_is_undone_by_itself() {
    equation(1, |c| {
        let t = *c.pick(&TYPES);
        let along = list(c.subset(3));
        let d = list(dims(c, 3));
        format!(
            "ENTRY e {{
  x = {t}[{d}] parameter(0)
  y = {t}[{d}] reverse(x), dimensions={{{along}}}
  z = {t}[{d}] reverse(y), dimensions={{{along}}}
  ROOT r = ({t}[{d}], {t}[{d}]) tuple(x, z)
}}"
        )
    });
}

#[test]
fn a_reshape_is_undone_by_a_reshape() {
    equation(1, |c| {
        let t = *c.pick(&TYPES);
        let d = dims(c, 3);
        let (flat, d) = (d.iter().product::<i64>(), list(d));
        format!(
            "ENTRY e {{
  x = {t}[{d}] parameter(0)
  y = {t}[{flat}] reshape(x)
  z = {t}[{d}] reshape(y)
  ROOT r = ({t}[{d}], {t}[{d}]) tuple(x, z)
}}"
        )
    });
}

#[test]
fn a_slice_of_a_concatenation_is_a_part() {
    equation(1, |c| {
        let t = *c.pick(&TYPES);
        let (rows, a, b, end) = (c.between(1, 3), c.between(0, 4), c.between(1, 4), c.between(0, 4));
        let (b_end, all) = (a + b, a + b + end);
        format!(
            "ENTRY e {{
  x = {t}[{rows},{a}] parameter(0)
  y = {t}[{rows},{b}] parameter(1)
  z = {t}[{rows},{end}] parameter(2)
  joined = {t}[{rows},{all}] concatenate(x, y, z), dimensions={{1}}
  part = {t}[{rows},{b}] slice(joined), slice={{[0:{rows}], [{a}:{b_end}]}}
  ROOT r = ({t}[{rows},{b}], {t}[{rows},{b}]) tuple(y, part)
}}"
        )
    });
}

#[test]
fn a_pad_is_undone_by_a_slice_and_by_a_negative_pad() {
    equation(1, |c| {
        let t = *c.pick(&TYPES);
        let (n, low, high, interior) = (c.between(1, 5), c.between(0, 3), c.between(0, 3), c.between(0, 2));
        let (step, last) = (interior + 1, low + (n - 1) * (interior + 1) + 1);
        let all = last + high;
        let (minus_low, minus_high) = (-low, -high);
        format!(
            "ENTRY e {{
  x = {t}[{n}] parameter(0)
  v = {t}[] parameter(1)
  padded = {t}[{all}] pad(x, v), padding={low}_{high}_{interior}
  cut = {t}[{}] pad(padded, v), padding={minus_low}_{minus_high}
  y = {t}[{n}] slice(cut), slice={{[0:{}:{step}]}}
  direct = {t}[{n}] slice(padded), slice={{[{low}:{last}:{step}]}}
  both = {t}[{}] concatenate(y, direct), dimensions={{0}}
  twice = {t}[{}] concatenate(x, x), dimensions={{0}}
  ROOT r = ({t}[{}], {t}[{}]) tuple(twice, both)
}}",
            last - low,
            last - low,
            2 * n,
            2 * n,
            2 * n,
            2 * n
        )
    });
}

#[test]
fn a_gather_of_one_window_is_a_dynamic_slice() {
    equation(1, |c| {
        let t = *c.pick(&TYPES);
        let (rows, columns) = (c.between(1, 5), c.between(1, 5));
        let (h, w) = (c.between(1, rows), c.between(1, columns));
        format!(
            "ENTRY e {{
  x = {t}[{rows},{columns}] parameter(0)
  i = s32[] parameter(1)
  j = s32[] parameter(2)
  y = {t}[{h},{w}] dynamic-slice(x, i, j), dynamic_slice_sizes={{{h},{w}}}
  i1 = s32[1] reshape(i)
  j1 = s32[1] reshape(j)
  at = s32[2] concatenate(i1, j1), dimensions={{0}}
  z = {t}[{h},{w}] gather(x, at), offset_dims={{0,1}}, collapsed_slice_dims={{}}, start_index_map={{0,1}}, index_vector_dim=0, slice_sizes={{{h},{w}}}
  ROOT r = ({t}[{h},{w}], {t}[{h},{w}]) tuple(y, z)
}}"
        )
    });
}

const ADD: &str = "add {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b)
}

";

#[test]
fn a_dot_is_a_sum_of_products() {
    equation(1, |c| {
        let (b, m, n, k) = (c.between(1, 3), c.between(1, 4), c.between(1, 4), c.between(0, 5));
        format!(
            "{ADD}ENTRY e {{
  x = s32[{m},{b},{k}] parameter(0)
  y = s32[{b},{k},{n}] parameter(1)
  d = s32[{b},{m},{n}] dot(x, y), lhs_batch_dims={{1}}, lhs_contracting_dims={{2}}, rhs_batch_dims={{0}}, rhs_contracting_dims={{1}}
  x4 = s32[{b},{m},{n},{k}] broadcast(x), dimensions={{1,0,3}}
  y4 = s32[{b},{m},{n},{k}] broadcast(y), dimensions={{0,3,2}}
  products = s32[{b},{m},{n},{k}] multiply(x4, y4)
  zero = s32[] constant(0)
  s = s32[{b},{m},{n}] reduce(products, zero), dimensions={{3}}, to_apply=add
  ROOT r = (s32[{b},{m},{n}], s32[{b},{m},{n}]) tuple(d, s)
}}"
        )
    });
}

#[test]
fn a_convolution_with_ones_is_a_sum_over_windows() {
    equation(1, |c| {
        let (n, k, stride) = (c.between(1, 7), c.between(1, 4), c.between(1, 3));
        let (low, high, base, window) = (c.between(-1, 3), c.between(0, 3), c.between(1, 3), c.between(1, 2));
        let (spread, reach) = ((n - 1) * base + 1, (k - 1) * window + 1);
        let padded = spread + low + high;
        let out = if padded < reach { 0 } else { (padded - reach) / stride + 1 };
        let shape = format!("size={k} stride={stride} pad={low}_{high} lhs_dilate={base} rhs_dilate={window}");
        format!(
            "{ADD}ENTRY e {{
  x = s32[1,{n},1] parameter(0)
  one = s32[] constant(1)
  kernel = s32[{k},1,1] broadcast(one), dimensions={{}}
  y = s32[1,{out},1] convolution(x, kernel), window={{{shape}}}, dim_labels=b0f_0io->b0f
  flat = s32[{n}] reshape(x)
  zero = s32[] constant(0)
  sums = s32[{out}] reduce-window(flat, zero), window={{{shape}}}, to_apply=add
  z = s32[1,{out},1] reshape(sums)
  ROOT r = (s32[1,{out},1], s32[1,{out},1]) tuple(y, z)
}}"
        )
    });
}

#[test]
fn a_reduction_does_not_depend_on_the_order_of_dimensions() {
    equation(1, |c| {
        let d = dims(c, 3);
        let order = permutation(c, 3);
        let along = c.subset(3);
        let kept: Vec<usize> = (0..3).filter(|k| !along.contains(k)).collect();
        // Where the kept dimensions end up, and in which order they are there.
        let moved_along: Vec<usize> = (0..3).filter(|&k| along.contains(&order[k])).collect();
        let moved_kept: Vec<usize> = order.iter().copied().filter(|k| kept.contains(k)).collect();
        let back: Vec<usize> =
            kept.iter().map(|k| moved_kept.iter().position(|m| m == k).expect("it is among them")).collect();
        let size = |ks: &[usize]| list(ks.iter().map(|&k| d[k]));
        let (x, moved, result, other) = (list(&d), size(&order), size(&kept), size(&moved_kept));
        let (order, along, moved_along, back) = (list(order), list(along), list(moved_along), list(back));
        format!(
            "{ADD}ENTRY e {{
  x = s32[{x}] parameter(0)
  zero = s32[] constant(0)
  a = s32[{result}] reduce(x, zero), dimensions={{{along}}}, to_apply=add
  y = s32[{moved}] transpose(x), dimensions={{{order}}}
  b = s32[{other}] reduce(y, zero), dimensions={{{moved_along}}}, to_apply=add
  c = s32[{result}] transpose(b), dimensions={{{back}}}
  ROOT r = (s32[{result}], s32[{result}]) tuple(a, c)
}}"
        )
    });
}

#[test]
fn an_all_reduce_is_a_reduce_scatter_and_an_all_gather() {
    equation(4, |c| {
        let (n, rows) = (4 * c.between(1, 3), c.between(1, 3));
        let groups = *c.pick(&["{}", "{{0,1,2,3}}", "{{3,1,0,2}}", "[1,4]<=[4]", "[1,4]<=[2,2]T(1,0)"]);
        let part = n / 4;
        format!(
            "{ADD}ENTRY e {{
  x = s32[{rows},{n}] parameter(0)
  a = s32[{rows},{n}] all-reduce(x), replica_groups={groups}, to_apply=add
  s = s32[{rows},{part}] reduce-scatter(x), replica_groups={groups}, dimensions={{1}}, to_apply=add
  b = s32[{rows},{n}] all-gather(s), replica_groups={groups}, dimensions={{1}}
  ROOT r = (s32[{rows},{n}], s32[{rows},{n}]) tuple(a, b)
}}"
        )
    });
}

#[test]
fn two_all_to_alls_undo_each_other() {
    equation(4, |c| {
        let (n, rows) = (4 * c.between(1, 3), c.between(1, 3));
        format!(
            "ENTRY e {{
  x = f32[{rows},{n}] parameter(0)
  y = f32[{rows},{n}] all-to-all(x), replica_groups={{{{2,0,3,1}}}}, dimensions={{1}}
  z = f32[{rows},{n}] all-to-all(y), replica_groups={{{{2,0,3,1}}}}, dimensions={{1}}
  ROOT r = (f32[{rows},{n}], f32[{rows},{n}]) tuple(x, z)
}}"
        )
    });
}

#[test]
fn a_scan_is_a_loop() {
    equation(1, |c| {
        let n = c.between(1, 6);
        format!(
            "step {{
  x = f32[] parameter(0)
  sum = f32[] parameter(1)
  next = f32[] add(sum, x)
  ROOT r = (f32[], f32[]) tuple(next, next)
}}

more {{
  s = (s32[], f32[], f32[{n}], f32[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({n})
  ROOT p = pred[] compare(i, n), direction=LT
}}

body {{
  s = (s32[], f32[], f32[{n}], f32[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  sum = f32[] get-tuple-element(s), index=1
  x = f32[{n}] get-tuple-element(s), index=2
  y = f32[{n}] get-tuple-element(s), index=3
  here = f32[1] dynamic-slice(x, i), dynamic_slice_sizes={{1}}
  one_here = f32[] reshape(here)
  next = f32[] add(sum, one_here)
  cell = f32[1] reshape(next)
  written = f32[{n}] dynamic-update-slice(y, cell, i)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[], f32[{n}], f32[{n}]) tuple(j, next, x, written)
}}

ENTRY e {{
  x = f32[{n}] parameter(0)
  init = f32[] parameter(1)
  a = (f32[{n}], f32[]) scan(x, init), dimensions={{0}}, num_carries=1, to_apply=step
  left = f32[{n}] get-tuple-element(a), index=0
  zero = s32[] constant(0)
  s = (s32[], f32[], f32[{n}], f32[{n}]) tuple(zero, init, x, x)
  w = (s32[], f32[], f32[{n}], f32[{n}]) while(s), condition=more, body=body
  right = f32[{n}] get-tuple-element(w), index=3
  ROOT r = (f32[{n}], f32[{n}]) tuple(left, right)
}}"
        )
    });
}

/// Sorting gives the elements that were there, each as often, in an order that its comparator agrees with.
#[test]
fn a_sort_is_an_ordered_permutation() {
    for seed in 0..SHAPES {
        let mut c = Choices::from_seed(seed);
        let n = c.between(0, 40);
        let direction = *c.pick(&["LT", "GT"]);
        let text = format!(
            "HloModule law

before {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT p = pred[] compare(a, b), direction={direction}
}}

ENTRY e {{
  x = s32[{n}] parameter(0)
  ROOT y = s32[{n}] sort(x), dimensions={{0}}, to_apply=before
}}"
        );
        let module = verified(read(&text));
        let arguments = inputs(module.module(), 1, &mut c).expect("arguments can be made");
        let given: &Array = arguments[0][0].as_array().expect("an array");
        let mut expected = given.elements::<i32>().to_vec();
        expected.sort_unstable();
        if direction == "GT" {
            expected.reverse();
        }
        let results = evaluate(&module, &arguments).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(results[0].as_array().expect("an array").elements::<i32>(), expected, "seed {seed}");
    }
}
