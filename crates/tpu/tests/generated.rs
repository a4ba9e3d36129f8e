//! Any program, not only those that machines like these are used for, computes the same after the pipeline: convolutions,
//! sorts, scans, branches, 64-bit and small types, odd sizes and collectives, all from the generator. Every plan is proved
//! by the checker.
//!
//! `HLOOM_CASES` says how many are tried, `HLOOM_FIRST` from which on.
#![allow(clippy::print_stderr, reason = "tests talk to whoever runs them")]

use hloom_eval::{DeviceGrid, Options as EvalOptions, run};
use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::inputs;
use hloom_fuzz::engines::{agree, expected};
use hloom_fuzz::generate::{Options, generate};
use hloom_ir::verify::{VerifyOptions, verify};
use hloom_plan::check::{Assignment, check};
use hloom_target::{Target, Topology};
use hloom_tpu::compile_to_schedule;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn any_program_computes_the_same_after_the_pipeline() {
    let (first, cases) = (number("HLOOM_FIRST", 0), number("HLOOM_CASES", 60));
    let (mut compared, mut failures) = (0, Vec::new());
    for seed in first..first + cases {
        let replicas = if seed % 4 == 3 { 2 } else { 1 };
        match check_program(seed, replicas) {
            Ok(number) => compared += number,
            Err(why) => failures.push(format!("seed {seed}: {why}")),
        }
    }
    assert!(failures.is_empty(), "{} of {cases} fail:\n{}", failures.len(), failures.join("\n"));
    assert!(compared as u64 > cases, "only {compared} results were compared");
}

/// How many results agree; 0 for a program that has none.
fn check_program(seed: u64, replicas: i64) -> Result<usize, String> {
    let mut choices = Choices::from_seed(seed);
    let options = Options { replicas, ..Options::runnable() };
    let Ok(source) = verify(generate(&mut choices, &options), &VerifyOptions::default()) else { return Ok(0) };
    let devices = usize::try_from(replicas).map_err(|e| e.to_string())?;
    let arguments = inputs(source.module(), devices, &mut choices)?;
    let grid = DeviceGrid { replicas: devices, partitions: 1 };
    let Ok(wanted) = expected(&source, grid, &arguments) else { return Ok(0) };
    let mut compared = 0;
    for name in ["tpu-v4", "tpu-v6e"] {
        let target = Target::named(name).map_err(|d| d.to_string())?;
        let topology = Topology::parse(&devices.to_string()).map_err(|d| d.to_string())?;
        let text = || hlo_text::print(source.module(), &PrintOptions { elide_constants: false });
        let failed = |what: String| format!("{name}: {what}\n{}", text());
        let compiled = compile_to_schedule(&source, &target, topology).map_err(|d| failed(format!("{d:?}")))?;
        let options = EvalOptions { max_steps: Some(20_000_000), ..EvalOptions::default() };
        let given = run(&compiled, grid, arguments.clone(), &options);
        let given = given.map_err(|f| failed(f.into_diagnostic().to_string()))?;
        compared += agree(source.module(), &wanted, &given).map_err(failed)?.agree;
        let plan = hloom_plan::plan(&compiled, &target).map_err(|d| failed(format!("{d:?}")))?;
        if let Some(fault) = check(&compiled, &target, &Assignment::from(&plan)).first() {
            return Err(failed(format!("the plan: {fault}")));
        }
    }
    Ok(compared)
}
