//! What the pipeline for TPU-like machines makes of a program gives what the program gives, on one device and on several,
//! in the evaluator and on the CPU engine.
//!
//! Most programs are the sources of `hloom_fuzz::tpu_like`: small integers, which stay exact wherever values are kept in
//! bf16. `HLOOM_CASES` says how many are tried.

use hloom::Engine;
use hloom::compiler::CompileOptions;
use hloom::eval::DeviceGrid;
use hloom::execute::run_on;
use hloom::ir::module::Module;
use hloom::target::{Description, Target, Topology};
use hloom::tpu::compile_to_schedule;
use hloom::value::{Array, Value};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{Agreement, compare, evaluate};
use hloom_fuzz::tpu_like::{arguments, generate_for};

#[test]
fn what_the_pipeline_makes_gives_what_the_source_gives() {
    let cases = std::env::var("HLOOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(10u64);
    let client = Engine::Cpu.client(None).unwrap_or_else(|d| panic!("{d:?}"));
    let (mut convolutions, mut collectives) = (0, 0);
    for seed in 0..cases {
        for (devices, name) in [(1, "tpu-v6e"), (2, "tpu-v5e"), (4, "tpu-v6e")] {
            let mut choices = Choices::from_seed(seed);
            let text = generate_for(&mut choices, 6, devices).source;
            let source = hloom::parse(&text).unwrap_or_else(|e| panic!("{e}"));
            let inputs: Vec<_> = (0..devices).map(|_| arguments(source.module(), &mut choices)).collect();
            let expected = evaluate(&source, &inputs).unwrap_or_else(|d| panic!("{d}\n{text}"));

            let target = Target::named(name).unwrap_or_else(|d| panic!("{d}"));
            let topology = Topology::parse(&devices.to_string()).unwrap_or_else(|d| panic!("{d}"));
            let scheduled =
                compile_to_schedule(&source, &target, topology).unwrap_or_else(|d| panic!("{name}: {d:?}\n{text}"));
            let printed = hloom::formats::hlo_text::print(scheduled.module(), &Default::default());
            convolutions += printed.matches(" convolution(").count();
            collectives += printed.matches("channel_id=").count();
            let came = evaluate(&scheduled, &inputs).unwrap_or_else(|d| panic!("{name}, eval: {d}\n{printed}"));
            compare(&expected, &came, Agreement::ByNorm)
                .unwrap_or_else(|why| panic!("{name}, eval, seed {seed}: {why}\n{text}\n{printed}"));

            let grid = DeviceGrid { replicas: 1, partitions: devices as usize };
            let came = run_on(&*client, &scheduled, &CompileOptions::new(grid), inputs);
            let came = came.unwrap_or_else(|d| panic!("{name}, cpu: {d:?}\n{printed}"));
            compare(&expected, &came, Agreement::ByNorm)
                .unwrap_or_else(|why| panic!("{name}, cpu, seed {seed}: {why}\n{text}\n{printed}"));
        }
    }
    assert!(convolutions as u64 > cases && collectives as u64 > cases, "{convolutions} {collectives}");
}

/// Small integers for the first two parameters, and for each of the others a matrix that takes one of its columns for each
/// row, at equal distances: what is computed of them is exact.
fn selections(module: &Module, choices: &mut Choices<'_>) -> Vec<Value> {
    let mut all = arguments(module, choices);
    for value in all.iter_mut().skip(2) {
        let shape = value.as_array().unwrap_or_else(|e| panic!("{e:?}")).shape();
        let &[rows, columns] = shape.dims() else { panic!("{shape} is no matrix") };
        let element = |n: i64| if n % columns == n / columns * columns / rows { 1.0 } else { 0.0 };
        let numbers: Vec<f32> = (0..rows * columns).map(element).collect();
        *value = Value::Array(Array::new(&[rows, columns], &numbers).unwrap_or_else(|| panic!("{rows} x {columns}")));
    }
    all
}

#[test]
fn what_is_fetched_in_slices_is_what_the_source_reads() {
    let text = include_str!("../../tpu/tests/programs/fetched_in_slices.hlo");
    let source = hloom::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let inputs = vec![selections(source.module(), &mut Choices::from_seed(1))];
    let expected = evaluate(&source, &inputs).unwrap_or_else(|d| panic!("{d}"));
    let client = Engine::Cpu.client(None).unwrap_or_else(|d| panic!("{d:?}"));
    for name in ["tpu-v5e", "tpu-v6e"] {
        let mut description = Description::named(name).unwrap_or_else(|d| panic!("{d}"));
        for (key, value) in [("memory.1.reserved", 0), ("memory.1.bytes", 22 << 20)] {
            description.set(key, &value.to_string()).unwrap_or_else(|d| panic!("{d}"));
        }
        let target = description.target().unwrap_or_else(|d| panic!("{d}"));
        let topology = Topology::parse("1").unwrap_or_else(|d| panic!("{d}"));
        let scheduled = compile_to_schedule(&source, &target, topology).unwrap_or_else(|d| panic!("{name}: {d:?}"));
        let printed = hloom::formats::hlo_text::print(scheduled.module(), &Default::default());
        assert_eq!(printed.matches(" slice-start(").count(), 4, "{name}: {printed}");
        let came = evaluate(&scheduled, &inputs).unwrap_or_else(|d| panic!("{name}, eval: {d}\n{printed}"));
        compare(&expected, &came, Agreement::Exact).unwrap_or_else(|why| panic!("{name}, eval: {why}\n{printed}"));
        let grid = DeviceGrid { replicas: 1, partitions: 1 };
        let came = run_on(&*client, &scheduled, &CompileOptions::new(grid), inputs.clone());
        let came = came.unwrap_or_else(|d| panic!("{name}, cpu: {d:?}\n{printed}"));
        compare(&expected, &came, Agreement::Exact).unwrap_or_else(|why| panic!("{name}, cpu: {why}\n{printed}"));
    }
}
