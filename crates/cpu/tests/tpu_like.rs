//! Programs as a TPU compiler leaves them give what their sources give, in the evaluator and on the engine, whose pipeline
//! leaves no mixed precision behind.

mod common;

use common::{execute, parse};
use hloom_compiler::CompileOptions;
use hloom_cpu::{CpuClient, CpuClientOptions};
use hloom_eval::run::DeviceGrid;
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{Agreement, compare, evaluate};
use hloom_fuzz::tpu_like::{TpuLike, arguments, generate_for};
use hloom_ir::infer::MixedPrecision;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify_precision};
use hloom_runtime::{Client, ExecuteOptions};

/// Whether floating-point types are mixed as a source program may not.
fn is_mixed(module: &VerifiedModule) -> bool {
    verify_precision(module.module().clone(), &VerifyOptions::default(), MixedPrecision::Refused).is_err()
}

/// Fails with the program at fault.
fn say(seed: u64, program: &TpuLike, what: &str, why: &str) -> ! {
    panic!("seed {seed}, {what}: {why}\n{}\n{}", program.source, program.dump)
}

/// Makes programs for that many devices and compares what comes of source and dump, in the evaluator and on the engine.
/// Says how often each of `forms` was met, and how many dumps mix precisions.
fn compare_programs<const N: usize>(devices: usize, cases: u64, forms: [&str; N]) -> ([usize; N], usize) {
    let client =
        CpuClient::new(&CpuClientOptions { threads: Some(2), ..CpuClientOptions::default() }).expect("a client");
    let options = CompileOptions::new(DeviceGrid { replicas: 1, partitions: devices });
    let (mut met, mut mixed) = ([0; N], 0);
    for seed in 0..cases {
        let mut choices = Choices::from_seed(seed);
        let program = generate_for(&mut choices, 6, devices as i64);
        let (source, dump) = (parse(&program.source), parse(&program.dump));
        let inputs: Vec<_> = (0..devices).map(|_| arguments(source.module(), &mut choices)).collect();
        let expected = evaluate(&source, &inputs).unwrap_or_else(|d| say(seed, &program, "the source", &d.to_string()));
        let came = evaluate(&dump, &inputs).unwrap_or_else(|d| say(seed, &program, "the evaluator", &d.to_string()));
        compare(&expected, &came, Agreement::Within(0.0))
            .unwrap_or_else(|why| say(seed, &program, "the evaluator", &why));
        for (met, form) in met.iter_mut().zip(forms) {
            *met += program.dump.matches(form).count();
        }
        mixed += usize::from(is_mixed(&dump));

        let compiled = client.compile(&dump, &options).unwrap_or_else(|e| {
            let found: Vec<String> = e.into_diagnostics(dump.module()).iter().map(ToString::to_string).collect();
            say(seed, &program, "the compiler", &found.join("\n"))
        });
        let came = execute(&client, &compiled, &inputs, &ExecuteOptions::default())
            .unwrap_or_else(|e| say(seed, &program, "the engine", &e.into_diagnostic().to_string()));
        compare(&expected, &came, Agreement::Within(0.0)).unwrap_or_else(|why| say(seed, &program, "the engine", &why));
        if is_mixed(&compiled.compiled().module) {
            say(seed, &program, "the pipeline", "it leaves mixed precision");
        }
    }
    (met, mixed)
}

fn cases(few: u64) -> u64 {
    std::env::var("HLOOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(few)
}

#[test]
fn compiled_programs_give_what_their_sources_give() {
    let cases = cases(60);
    let ([bitcasts, slices], mixed) = compare_programs(1, cases, ["} bitcast(", "ConcatBitcast"]);
    let enough = cases as usize / 2;
    assert!(bitcasts > enough && slices > enough / 4 && mixed > enough / 2, "{bitcasts} {slices} {mixed}");
}

#[test]
fn compiled_programs_of_several_devices_give_what_their_sources_give() {
    const FORMS: [&str; 6] = [
        "all-gather-start(",
        "AsyncCollectiveDone",
        "calls=continuation",
        "calls=all-reduce-scatter",
        "body=windowed_dot",
        "collective-permute-done(",
    ];
    let cases = cases(40);
    for devices in [2, 4] {
        let (met, mixed) = compare_programs(devices, cases, FORMS);
        let enough = cases as usize / 10;
        assert!(met.iter().all(|&n| n >= enough) && mixed > enough, "{FORMS:?}: {met:?}, {mixed}");
    }
}
