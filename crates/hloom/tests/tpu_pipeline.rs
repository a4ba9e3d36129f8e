//! What the pipeline for TPU-like machines makes of a program gives what the program gives, on one device and on several,
//! in the evaluator and on the CPU engine.
//!
//! The programs are the sources of `hloom_fuzz::tpu_like`: small integers, which stay exact wherever values are kept in
//! bf16. `HLOOM_CASES` says how many are tried.

use hloom::Engine;
use hloom::compiler::CompileOptions;
use hloom::eval::DeviceGrid;
use hloom::execute::run_on;
use hloom::target::{Target, Topology};
use hloom::tpu::compile_to_schedule;
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
