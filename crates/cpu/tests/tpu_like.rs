//! Programs as a TPU compiler leaves them give what their sources give, in the evaluator and on the engine, whose pipeline
//! leaves no mixed precision behind.

mod common;

use common::{execute, parse};
use hloom_compiler::CompileOptions;
use hloom_cpu::{CpuClient, CpuClientOptions};
use hloom_eval::run::DeviceGrid;
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{Agreement, compare, evaluate};
use hloom_fuzz::tpu_like::{TpuLike, arguments, generate};
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

#[test]
fn compiled_programs_give_what_their_sources_give() {
    let cases = std::env::var("HLOOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(60u64);
    let client =
        CpuClient::new(&CpuClientOptions { threads: Some(2), ..CpuClientOptions::default() }).expect("a client");
    let options = CompileOptions::new(DeviceGrid { replicas: 1, partitions: 1 });
    let (mut bitcasts, mut slices, mut mixed) = (0, 0, 0);
    for seed in 0..cases {
        let mut choices = Choices::from_seed(seed);
        let program = generate(&mut choices, 6);
        let (source, dump) = (parse(&program.source), parse(&program.dump));
        let inputs = [arguments(source.module(), &mut choices)];
        let expected = evaluate(&source, &inputs).unwrap_or_else(|d| say(seed, &program, "the source", &d.to_string()));
        let came = evaluate(&dump, &inputs).unwrap_or_else(|d| say(seed, &program, "the evaluator", &d.to_string()));
        compare(&expected, &came, Agreement::Within(0.0))
            .unwrap_or_else(|why| say(seed, &program, "the evaluator", &why));
        bitcasts += program.dump.matches("} bitcast(").count();
        slices += program.dump.matches("ConcatBitcast").count();
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
    let enough = cases as usize / 2;
    assert!(bitcasts > enough && slices > enough / 4 && mixed > enough / 2, "{bitcasts} {slices} {mixed}");
}
