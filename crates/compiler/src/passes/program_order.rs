//! The order in which the instructions stand, as the schedule.

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::module::Module;
use hloom_passes::{Context, Pass};

/// The pass.
pub(super) static PASS: Pass = Pass {
    name: "schedule-program-order",
    statement: "takes the order in which instructions stand for the schedule; copy insertion leaves one that can run",
    keeps_schedule: true,
    run,
};

fn run(module: &mut Module, _: &Context<'_>) -> Result<usize, Diagnostic> {
    Ok(usize::from(!std::mem::replace(&mut module.is_scheduled, true)))
}
