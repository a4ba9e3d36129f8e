//! Runs by the reference evaluator.

use super::super::watch::Watch;
use super::super::{Result, progress};
use super::{Run, Timed, instruction_at, interrupted};
use hloom::arrays::Inputs;
use hloom::eval::run::{Prepared, run_prepared};
use hloom::eval::{DeviceGrid, Options};
use hloom::value::Value;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// Runs the program once.
pub(super) fn execute(
    run: &Run<'_>,
    grid: DeviceGrid,
    inputs: Inputs,
    watch: Option<&Watch<'_>>,
) -> Result<Vec<Value>> {
    let prepared = Prepared::new(&run.verified.module, run.args.fill_constants).map_err(|f| run.failed(f))?;
    execute_prepared(run, &prepared, grid, inputs, watch)
}

fn execute_prepared(
    run: &Run<'_>,
    prepared: &Prepared,
    grid: DeviceGrid,
    inputs: Inputs,
    watch: Option<&Watch<'_>>,
) -> Result<Vec<Value>> {
    let at = AtomicU32::new(u32::MAX);
    let options = Options {
        max_steps: run.args.max_steps,
        fill_constants: run.args.fill_constants,
        time_limit: run.args.time_limit.map(Duration::from_secs),
        observer: watch.and_then(Watch::observer),
        cancel: Some(interrupted()),
        progress: Some(&at),
        ..Options::default()
    };
    let work = || run_prepared(&run.verified.module, prepared, grid, inputs, &options);
    progress::follow("running", || instruction_at(run.module(), &at), work).map_err(|fault| run.failed(fault))
}

/// Times `count` runs after one to warm up.
pub(super) fn bench(run: &Run<'_>, grid: DeviceGrid, inputs: &Inputs, count: u32) -> Result<Timed> {
    let begun = Instant::now();
    let prepared = Prepared::new(&run.verified.module, run.args.fill_constants).map_err(|f| run.failed(f))?;
    let compile = begun.elapsed();
    let mut results = execute_prepared(run, &prepared, grid, inputs.clone(), None)?;
    let mut runs = Vec::new();
    for _ in 0..count {
        let fresh = inputs.clone();
        let begun = Instant::now();
        results = execute_prepared(run, &prepared, grid, fresh, None)?;
        runs.push(begun.elapsed());
    }
    Ok(Timed { compile, runs, temp_bytes: 0, results })
}
