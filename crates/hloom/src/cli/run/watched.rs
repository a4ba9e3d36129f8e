//! Runs in which every value is watched where it is made: in the evaluator.

use super::super::interrupt::interrupted;
use super::super::watch::Watch;
use super::super::{Result, progress};
use super::{Run, instruction_at};
use hloom::arrays::Inputs;
use hloom::eval::{DeviceGrid, Options};
use hloom::value::Value;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Runs the program once.
pub(super) fn execute(run: &Run<'_>, grid: DeviceGrid, inputs: Inputs, watch: &Watch<'_>) -> Result<Vec<Value>> {
    let at = AtomicU32::new(u32::MAX);
    let options = Options {
        max_steps: run.args.max_steps,
        fill_constants: run.args.fill_constants,
        time_limit: run.args.time_limit.map(Duration::from_secs),
        observer: watch.observer(),
        cancel: Some(interrupted()),
        progress: Some(&at),
        ..Options::default()
    };
    let work = || hloom::eval::run(&run.verified.module, grid, inputs, &options);
    progress::follow("running", || instruction_at(run.module(), &at), work).map_err(|fault| run.failed(fault))
}
