//! Generated programs: the kernel of each instruction against the evaluator, on the values that occur in a run.

mod common;

use common::check_run;
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::inputs;
use hloom_fuzz::generate::{Options, generate};
use hloom_ir::verify::{VerifyOptions, verify};

/// How many programs; more by hand with HLOOM_CASES.
fn cases() -> u64 {
    std::env::var("HLOOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(60)
}

fn first() -> u64 {
    std::env::var("HLOOM_FIRST").ok().and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[test]
fn kernels_agree_with_the_evaluator_on_generated_programs() {
    let mut total = 0;
    for seed in first()..first() + cases() {
        let mut choices = Choices::from_seed(seed);
        let module = generate(&mut choices, &Options::runnable());
        let devices = (module.config.replica_count * module.config.num_partitions).max(1) as usize;
        let Ok(arguments) = inputs(&module, devices, &mut choices) else { continue };
        let Ok(module) = verify(module, &VerifyOptions::default()) else { continue };
        let summary = std::panic::catch_unwind(|| check_run(&module, arguments, None));
        let summary = summary.unwrap_or_else(|e| {
            let why = e.downcast_ref::<String>().cloned().unwrap_or_default();
            panic!("program {seed}: {why}");
        });
        total += summary.checked;
    }
    assert!(total > 100, "only {} kernels were run", total);
}
