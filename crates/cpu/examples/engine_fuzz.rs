//! Generated programs on the CPU engine and on the evaluator, for as long as one likes:
//! `cargo run --release -p hloom-cpu --features llvm --example engine_fuzz -- [--seconds N] [--seed N] [--failures DIR]`.
//!
//! Case `n` is the same in every run. Results that may be anything (`hloom_fuzz::engines`) are counted apart. A program on
//! which the two disagree, or which ends otherwise on one thread than on several, is written to a folder; so is the one
//! being run, for the case that the process does not live to say so.

#![allow(clippy::print_stdout, reason = "it is a command")]

use hloom::execute::run_on;
use hloom_compiler::{CompileOptions, Effort, ExcessPrecision};
use hloom_cpu::{CpuClient, CpuClientOptions};
use hloom_eval::run::DeviceGrid;
use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{Agreement, compare, inputs};
use hloom_fuzz::engines::{Compared, agree, expected};
use hloom_fuzz::generate::{Options, generate};
use hloom_ir::element_type::ElementType::{self, *};
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};

use hloom_value::{ExecutionError, Value};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The types that have kernels; half of the programs have no others.
const USUAL: [ElementType; 14] = [Pred, S8, S16, S32, S64, U8, U16, U32, U64, F16, Bf16, F32, F64, C64];

fn on_engine(
    module: &VerifiedModule,
    grid: DeviceGrid,
    arguments: &[Vec<Value>],
    threads: usize,
    effort: Effort,
) -> Result<Vec<Value>, ExecutionError> {
    let client =
        CpuClient::new(&CpuClientOptions { threads: Some(threads), ..CpuClientOptions::default() }).expect("a client");
    let options = CompileOptions {
        fill_constants: true,
        effort,
        excess_precision: ExcessPrecision::Never,
        ..CompileOptions::new(grid)
    };
    let result = run_on(&client, module, &options, arguments.to_vec());
    result.map_err(|diagnostic| ExecutionError::from_diagnostic(Box::new(diagnostic)))
}

/// Runs case `seed`: how many results were compared, or what is wrong. `write` is given the program.
fn case(seed: u64, write: impl Fn(&str)) -> Result<Compared, String> {
    // A quarter of the programs have numbers of all kinds; of the others nearly all results can be compared.
    let choices = Choices::from_seed(seed);
    let mut choices = if seed.is_multiple_of(4) { choices } else { choices.with_ordinary_numbers() };
    let replicas = [1, 1, 2, 4][(seed / 2 % 4) as usize];
    let element_types = if seed.is_multiple_of(2) { USUAL.to_vec() } else { ElementType::ALL.to_vec() };
    let max_elements = if seed.is_multiple_of(5) { 4096 } else { 256 };
    let options = Options { replicas, element_types, max_elements, layouts: seed % 3 == 1, ..Options::runnable() };
    let generated = generate(&mut choices, &options);
    write(&hlo_text::print(&generated, &PrintOptions { elide_constants: false }));
    let module = verify(generated, &VerifyOptions::default()).map_err(|e| format!("{:?}", e.diagnostics))?;
    let arguments = inputs(module.module(), replicas as usize, &mut choices)?;
    let grid = DeviceGrid { replicas: replicas as usize, partitions: 1 };
    let expected = expected(&module, grid, &arguments);
    let effort = if seed.is_multiple_of(7) { Effort::Quick } else { Effort::Full };
    let given = on_engine(&module, grid, &arguments, 3, effort);
    let (expected, given) = match (expected, given) {
        (Ok(expected), Ok(given)) => (expected, given),
        (Err(_), Err(_)) => return Ok(Compared::default()),
        (Ok(_), Err(fault)) => return Err(format!("only the engine fails: {}", fault.diagnostic().message)),
        (Err(diagnostic), Ok(_)) => return Err(format!("only the evaluator fails: {}", diagnostic.message)),
    };
    let compared = agree(module.module(), &expected, &given)?;
    let alone = on_engine(&module, grid, &arguments, 1, effort).map_err(|f| f.diagnostic().message.clone())?;
    compare(&given, &alone, Agreement::Exact).map_err(|e| format!("one thread and several: {e}"))?;
    Ok(compared)
}

fn main() {
    let (mut seconds, mut seed, mut failures, mut only) = (60u64, 0u64, PathBuf::from("fuzz-failures"), false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_default();
        match &*word {
            "--seconds" => seconds = value.parse().unwrap_or(seconds),
            "--seed" => seed = value.parse().unwrap_or(seed),
            "--only" => (seed, only) = (value.parse().unwrap_or(seed), true),
            _ => failures = value.into(),
        }
    }
    let _ = std::fs::create_dir_all(&failures);
    let current = failures.join("current.hlo");
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut count, mut all, mut kinds) = (0u64, Compared::default(), BTreeMap::<String, u64>::new());
    while Instant::now() < until {
        let write = |text: &str| {
            let _ = std::fs::write(&current, format!("// case {seed}\n{text}"));
        };
        let verdict = catch_unwind(AssertUnwindSafe(|| case(seed, write))).unwrap_or_else(|_| Err("it panics".into()));
        count += 1;
        match verdict {
            Ok(compared) => (all.agree, all.open) = (all.agree + compared.agree, all.open + compared.open),
            Err(why) => {
                println!("case {seed}: {why}");
                let _ = std::fs::copy(&current, failures.join(format!("case-{seed}.hlo")));
                *kinds.entry(why.chars().take(40).collect()).or_default() += 1;
            }
        }
        if only {
            break;
        }
        seed += 1;
    }
    let failures = kinds.values().sum::<u64>();
    println!("{count} cases: {} results agree, {} are open; {failures} failures", all.agree, all.open);
    std::process::exit(i32::from(!kinds.is_empty()));
}
