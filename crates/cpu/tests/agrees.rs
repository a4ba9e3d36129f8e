//! The runtime against the evaluator: generated programs, programs of every kind of step, and one thread against many.

mod common;

use common::{execute, parse};
use hloom_compiler::{CompileOptions, ExcessPrecision};
use hloom_cpu::{CpuClient, CpuClientOptions};
use hloom_eval::run::{DeviceGrid, Options as RunOptions, run};
use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{Agreement, compare, inputs};
use hloom_fuzz::engines::{Compared, agree, expected};
use hloom_fuzz::generate::{Options, generate};
use hloom_ir::diagnostic::codes::eval as codes;
use hloom_ir::module::Module;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_runtime::{Client, ExecuteOptions, LoadedExecutable};
use hloom_value::{Array, Value};
use std::sync::Arc;

const MODULES: u64 = 150;

fn verified(module: Module) -> VerifiedModule {
    verify(module, &VerifyOptions::default()).unwrap_or_else(|e| panic!("{:?}", e.diagnostics))
}

fn print(module: &Module) -> String {
    hlo_text::print(module, &PrintOptions { elide_constants: false })
}

fn client(threads: usize) -> CpuClient {
    CpuClient::new(&CpuClientOptions { threads: Some(threads), ..CpuClientOptions::default() }).expect("a client")
}

fn compile(client: &CpuClient, module: &VerifiedModule, grid: DeviceGrid) -> Arc<dyn LoadedExecutable> {
    let options =
        CompileOptions { fill_constants: true, excess_precision: ExcessPrecision::Never, ..CompileOptions::new(grid) };
    client.compile(module, &options).unwrap_or_else(|e| panic!("{e:?}\n{}", print(module.module())))
}

fn grid(replicas: usize) -> DeviceGrid {
    DeviceGrid { replicas, partitions: 1 }
}

fn evaluated(module: &VerifiedModule, devices: DeviceGrid, arguments: &[Vec<Value>]) -> Vec<Value> {
    let options = RunOptions { fill_constants: true, ..RunOptions::default() };
    run(module, devices, arguments.to_vec(), &options).unwrap_or_else(|e| panic!("{e:?}"))
}

/// Compiles and runs `text` twice on fresh arguments and compares with the evaluator; returns what was compiled.
fn agrees(text: &str, arguments: &[Array], tolerance: f64) -> Arc<dyn LoadedExecutable> {
    let module = parse(text);
    let client = client(2);
    let compiled = compile(&client, &module, grid(1));
    let arguments = vec![arguments.iter().cloned().map(Value::Array).collect::<Vec<_>>()];
    let expected = evaluated(&module, grid(1), &arguments);
    for _ in 0..2 {
        let results = execute(&client, &compiled, &arguments, &ExecuteOptions::default())
            .unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        compare(&results, &expected, Agreement::Within(tolerance)).unwrap_or_else(|e| panic!("{e}\n{text}"));
    }
    compiled
}

fn floats(dims: &[i64]) -> Array {
    let count = dims.iter().product::<i64>();
    let elements: Vec<f32> = (0..count).map(|n| ((n * 37) % 101) as f32 / 25.0 - 2.0).collect();
    Array::new(dims, &elements).expect("as many as the dimensions say")
}

#[test]
fn generated_programs_agree_with_the_evaluator() {
    let (mut native, mut compared) = (0usize, Compared::default());
    let mut left: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    for replicas in [1, 4] {
        let options = Options { replicas, ..Options::runnable() };
        for seed in 0..MODULES {
            // One program in three has numbers of all kinds, of whose results fewer can be compared.
            let choices = Choices::from_seed(seed);
            let mut choices = if seed % 3 == 0 { choices } else { choices.with_ordinary_numbers() };
            let module = verified(generate(&mut choices, &options));
            let arguments = inputs(module.module(), replicas as usize, &mut choices).expect("arguments can be made");
            let grid = grid(replicas as usize);
            let expected = expected(&module, grid, &arguments).unwrap_or_else(|e| panic!("{e:?}"));
            let client = client(3);
            let compiled = compile(&client, &module, grid);
            let report = &compiled.compiled().report;
            native += report.native_instructions;
            for (opcode, fallback) in &report.fallback {
                *left.entry(format!("{opcode}: {}", fallback.reason)).or_default() += fallback.instructions.len();
            }
            let results =
                execute(&client, &compiled, &arguments, &ExecuteOptions::default()).map_err(|e| format!("{e:?}"));
            match results.and_then(|r| agree(module.module(), &expected, &r)) {
                Ok(one) => (compared.agree, compared.open) = (compared.agree + one.agree, compared.open + one.open),
                Err(e) => panic!("seed {seed}, {replicas} replicas: {e}\n{}", print(module.module())),
            }
        }
    }
    let evaluated: usize = left.values().sum();
    assert!(
        native > 99 * evaluated,
        "{native} instructions are native, {evaluated} are left to the evaluator: {left:#?}"
    );
    assert!(compared.agree > 2 * compared.open, "too few results could be compared: {compared:?}");
}

#[test]
fn one_thread_and_many_give_the_same_bits() {
    for seed in 0..MODULES {
        let mut choices = Choices::from_seed(seed);
        let module = verified(generate(&mut choices, &Options::runnable()));
        let arguments = inputs(module.module(), 1, &mut choices).expect("arguments can be made");
        let results = [1, 4].map(|threads| {
            let client = client(threads);
            let compiled = compile(&client, &module, grid(1));
            execute(&client, &compiled, &arguments, &ExecuteOptions::default())
                .unwrap_or_else(|e| panic!("seed {seed}: {e:?}"))
        });
        compare(&results[0], &results[1], Agreement::Exact)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", print(module.module())));
    }
}

/// A sum of one product keeps the sign of a zero; where a window may see padding, it is a sum that begins with zero. What is
/// divided by it shows which.
#[test]
fn zeros_have_the_same_signs() {
    let zeros = |dims: &[i64]| {
        let count = dims.iter().product::<i64>() as usize;
        let elements: Vec<f32> = [0.0, 1.0, -0.0, -3.0].into_iter().cycle().take(count).collect();
        Array::new(dims, &elements).expect("as many as the dimensions say")
    };
    for (shape, window) in
        [("f32[1,8,1]", "size=1"), ("f32[1,12,1]", "size=1 pad=2_2"), ("f32[1,15,1]", "size=1 lhs_dilate=2")]
    {
        let text = format!(
            "HloModule m\nENTRY e {{ x = f32[1,8,1] parameter(0)\n k = f32[1,1,1] parameter(1)\n one = f32[] constant(1)\n \
             c = {shape} convolution(x, k), window={{{window}}}, dim_labels=b0f_0io->b0f\n \
             ones = {shape} broadcast(one), dimensions={{}}\n ROOT y = {shape} divide(ones, c) }}"
        );
        agrees(&text, &[zeros(&[1, 8, 1]), Array::new(&[1, 1, 1], &[-2.0f32]).expect("one")], 1e-6);
    }
    let text = "HloModule m\nENTRY e { x = f32[8,1] parameter(0)\n y = f32[1,8] parameter(1)\n one = f32[] constant(1)\n \
                c = f32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n \
                ones = f32[8,8] broadcast(one), dimensions={}\n ROOT q = f32[8,8] divide(ones, c) }";
    agrees(text, &[zeros(&[8, 1]), zeros(&[1, 8])], 1e-6);
}

#[test]
fn products_of_every_form_agree() {
    let cases = [
        ("f32[64,96]", "f32[96,80]", "f32[64,80]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ("f32[96,64]", "f32[80,96]", "f32[64,80]", "lhs_contracting_dims={0}, rhs_contracting_dims={1}"),
        (
            "f32[3,20,30]",
            "f32[3,30,40]",
            "f32[3,20,40]",
            "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}",
        ),
        (
            "f32[20,3,30]",
            "f32[40,3,30]",
            "f32[3,20,40]",
            "lhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_batch_dims={1}, rhs_contracting_dims={2}",
        ),
        ("f32[4,5,6]", "f32[6,7,8]", "f32[4,5,7,8]", "lhs_contracting_dims={2}, rhs_contracting_dims={0}"),
        ("f32[4,5,6]", "f32[5,6,7]", "f32[4,7]", "lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}"),
        ("f32[300]", "f32[300]", "f32[]", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
        ("f32[5,0]", "f32[0,7]", "f32[5,7]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
        ("f32[500,300]", "f32[300,400]", "f32[500,400]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ];
    for (lhs, rhs, result, dims) in cases {
        let types = [("f32", 1e-5), ("f64", 1e-12), ("bf16", 1e-2), ("f16", 1e-3), ("s32", 0.0), ("u32", 0.0)];
        let wider = [("s8", 0.0), ("u8", 0.0), ("s16", 0.0)];
        for (narrow, tolerance) in types.into_iter().chain(wider) {
            let [l, r] = [lhs, rhs].map(|s| s.replace("f32", narrow));
            let o = result.replace("f32", if wider.iter().any(|w| w.0 == narrow) { "s32" } else { narrow });
            let text = format!(
                "HloModule m\nENTRY e {{\n  a = {lhs} parameter(0)\n  b = {rhs} parameter(1)\n  \
                 x = {l} convert(a)\n  y = {r} convert(b)\n  ROOT d = {o} dot(x, y), {dims}\n}}\n"
            );
            let module = parse(&text);
            let entry = module.module().entry().expect("an entry");
            let arguments: Vec<Array> = module
                .module()
                .parameters(entry)
                .iter()
                .map(|&p| floats(module.module()[p].shape.as_array().expect("an array").dims()))
                .collect();
            let compiled = agrees(&text, &arguments, tolerance);
            // A product over nothing is zeros, and no product; nor is one of integers of that type with a vector.
            let is_sum = result == "f32[]" && matches!(narrow, "s32" | "u32");
            let products = (!lhs.contains(",0]") && !is_sum).then_some(&1);
            assert_eq!(
                compiled.compiled().report.native.get("dot"),
                products,
                "{:?}\n{text}",
                compiled.compiled().report
            );
        }
    }
}

#[test]
fn results_may_be_arguments_constants_and_each_other() {
    let text = "HloModule m
        ENTRY e {
          x = f32[3] parameter(0)
          c = f32[2] constant({1, 2})
          y = f32[3] add(x, x)
          t = (f32[3], f32[2]) tuple(y, c)
          ROOT r = (f32[3], f32[2], f32[3], f32[3], (f32[3], f32[2])) tuple(x, c, y, y, t)
        }";
    let compiled = agrees(text, &[floats(&[3])], 0.0);
    assert_eq!(compiled.compiled().report.fallback_steps(), 0);
}

#[test]
fn an_argument_that_is_given_away_becomes_the_result() {
    let text = "HloModule m, input_output_alias={ {}: (0, {}, may-alias) }
        ENTRY e {
          x = f32[1024] parameter(0)
          y = f32[1024] parameter(1)
          ROOT r = f32[1024] add(x, y)
        }";
    let module = parse(text);
    let client = client(1);
    let compiled = compile(&client, &module, grid(1));
    assert_eq!(compiled.compiled().report.fallback_steps(), 0);
    let x = client.upload(0, &floats(&[1024])).expect("there is memory");
    let y = client.upload(0, &floats(&[1024])).expect("there is memory");
    let before = x.host_bytes().map(<[u8]>::to_vec);
    let kept = x.clone();
    let results = compiled.execute(vec![vec![x, y.clone()]], &ExecuteOptions::default()).expect("it runs");
    assert_eq!(kept.host_bytes(), before.as_deref(), "an argument that somebody still holds is left alone");
    assert_ne!(results[0][0].host_bytes(), before.as_deref());
    let address = kept.host_bytes().map(<[u8]>::as_ptr);
    let results = compiled.execute(vec![vec![kept, y]], &ExecuteOptions::default()).expect("it runs");
    assert_eq!(results[0][0].host_bytes().map(<[u8]>::as_ptr), address, "the memory of the last handle is used");
}

#[test]
fn runs_that_end_soon_are_known() {
    let is_short = |text: &str| compile(&client(2), &parse(text), grid(1)).is_short();
    let sum = |n: i64| format!("HloModule m\nENTRY e {{ x = f32[{n}] parameter(0)\n ROOT y = f32[{n}] add(x, x) }}");
    assert!(is_short(&sum(64)) && !is_short(&sum(1 << 20)));
    let factors = |n: i64| {
        format!(
            "HloModule m\nENTRY e {{ x = f32[{n},{n}]{{0,1}} parameter(0)
              ROOT y = (f32[{n},{n}]{{0,1}}, f32[{n}]) custom-call(x), custom_call_target=\"lapack_sgeqrf_ffi\",
                api_version=API_VERSION_TYPED_FFI, operand_layout_constraints={{f32[{n},{n}]{{0,1}}}} }}"
        )
    };
    assert!(is_short(&factors(8)) && !is_short(&factors(64)));
    // A loop that ends with a count, and one that ends when its values say so.
    let repeated = |limit: &str| {
        let text = "HloModule m
            body {
              s = (s32[], f32[8], f32[]) parameter(0)
              i = s32[] get-tuple-element(s), index=0
              x = f32[8] get-tuple-element(s), index=1
              y = f32[] get-tuple-element(s), index=2
              one = s32[] constant(1)
              j = s32[] add(i, one)
              z = f32[8] sine(x)
              h = f32[] multiply(y, y)
              ROOT t = (s32[], f32[8], f32[]) tuple(j, z, h)
            }
            condition {
              s = (s32[], f32[8], f32[]) parameter(0)
              i = s32[] get-tuple-element(s), index=0
              y = f32[] get-tuple-element(s), index=2
              five = s32[] constant(5)
              little = f32[] constant(0.1)
              ROOT more = pred[] LIMIT
            }
            ENTRY e {
              x = f32[8] parameter(0)
              zero = s32[] constant(0)
              half = f32[] parameter(1)
              s = (s32[], f32[8], f32[]) tuple(zero, x, half)
              w = (s32[], f32[8], f32[]) while(s), condition=condition, body=body
              ROOT r = f32[8] get-tuple-element(w), index=1
            }";
        text.replace("LIMIT", limit)
    };
    assert!(is_short(&repeated("compare(i, five), direction=LT")));
    assert!(!is_short(&repeated("compare(y, little), direction=GT")));
}

#[test]
fn wrong_arguments_are_refused() {
    let module = parse("HloModule m\nENTRY e { x = f32[3] parameter(0)\n ROOT y = f32[3] negate(x) }");
    let client = client(1);
    let compiled = compile(&client, &module, grid(1));
    let wrong = client.upload(0, &floats(&[4])).expect("there is memory");
    for arguments in [vec![], vec![vec![]], vec![vec![wrong.clone()]], vec![vec![wrong.clone(), wrong]]] {
        let fault = compiled.execute(arguments, &ExecuteOptions::default()).expect_err("it does not fit");
        assert_eq!(fault.diagnostic().code, &codes::BAD_INPUT);
    }
}

#[test]
fn devices_that_disagree_end_with_an_error_and_not_in_a_wait() {
    let text = "HloModule m, replica_count=2
        sum { a = f32[] parameter(0)
              b = f32[] parameter(1)
              ROOT s = f32[] add(a, b) }
        ENTRY e {
          x = f32[3] parameter(0)
          ROOT y = f32[3] all-reduce(x), replica_groups={{0,1}}, to_apply=sum
        }";
    let module = parse(text);
    let client = client(1);
    let arguments = vec![vec![Value::Array(floats(&[3]))]; 2];
    let compiled = compile(&client, &module, grid(2));
    let expected = evaluated(&module, grid(2), &arguments);
    let results = execute(&client, &compiled, &arguments, &ExecuteOptions::default()).expect("both arrive");
    compare(&results, &expected, Agreement::Exact).expect("the sum of both");
    let limited = ExecuteOptions { max_steps: Some(0), ..ExecuteOptions::default() };
    let fault = execute(&client, &compiled, &arguments, &limited).expect_err("no step is allowed");
    assert_eq!(fault.diagnostic().code, &codes::TOO_MANY_STEPS);
}

#[test]
fn sums_and_gathers_between_devices_need_no_evaluator() {
    let module = parse(
        "HloModule m, replica_count=4\n\
         add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\n\
         add_bf16 {\n  a = bf16[] parameter(0)\n  b = bf16[] parameter(1)\n  ROOT r = bf16[] add(a, b)\n}\n\
         ENTRY e {\n  x = f32[300,70] parameter(0)\n  y = f32[7] parameter(1)\n  h = bf16[300,70] convert(x)\n  \
         sums = (f32[300,70], f32[7]) all-reduce(x, y), replica_groups={{0,2},{1,3}}, to_apply=add\n  \
         half = bf16[300,70] all-reduce(h), replica_groups={{0,1,2,3}}, to_apply=add_bf16\n  \
         rows = f32[1200,70] all-gather(x), replica_groups={{0,1,2,3}}, dimensions={0}\n  \
         columns = f32[300,140] all-gather(x), replica_groups={{0,1},{2,3}}, dimensions={1}\n  \
         a = f32[300,70] get-tuple-element(sums), index=0\n  b = f32[7] get-tuple-element(sums), index=1\n  \
         ROOT t = (f32[300,70], f32[7], bf16[300,70], f32[1200,70], f32[300,140]) tuple(a, b, half, rows, columns)\n}\n",
    );
    let scaled = |dims: &[i64], factor: f32| {
        let elements: Vec<f32> = floats(dims).elements::<f32>().iter().map(|x| x * factor).collect();
        Value::Array(Array::new(dims, &elements).expect("as many"))
    };
    let arguments: Vec<Vec<Value>> =
        (0..4).map(|d| vec![scaled(&[300, 70], d as f32 + 0.5), scaled(&[7], 1.0 - d as f32)]).collect();
    let expected = evaluated(&module, grid(4), &arguments);
    for threads in [1, 3] {
        let client = client(threads);
        let compiled = compile(&client, &module, grid(4));
        assert_eq!(compiled.compiled().report.native.get("collective"), Some(&4), "{:?}", compiled.compiled().report);
        let results = execute(&client, &compiled, &arguments, &ExecuteOptions::default()).expect("it runs");
        compare(&results, &expected, Agreement::Exact).expect("sums are made in the same order");
    }
}
