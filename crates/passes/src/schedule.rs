//! Scheduling: an order for every computation that keeps little memory live at once on the target.

use crate::pass::{Context, Pass};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::module::Module;
use hloom_plan::schedule::{Scheduler, schedule};

/// The pass.
pub static PASS: Pass = Pass {
    name: "schedule",
    statement: "puts instructions into an order that keeps little memory live at once, and calls the module scheduled",
    keeps_schedule: true,
    run,
};

fn run(module: &mut Module, context: &Context<'_>) -> Result<usize, Diagnostic> {
    let was_scheduled = module.is_scheduled;
    let scheduled = schedule(module, Scheduler::Memory, context.target)?;
    Ok(scheduled.reordered + usize::from(!was_scheduled))
}
