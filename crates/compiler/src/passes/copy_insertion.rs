//! Copies where values that must share memory are needed at the same time.
//!
//! Which those are is the planner's to know ([`hloom_plan::copies`]). In a module without a schedule, control dependencies
//! keep readers before whoever writes over what they read, so it can be scheduled freely afterwards.

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::module::Module;
use hloom_passes::{Context, Pass};

/// The pass.
pub(super) static PASS: Pass = Pass {
    name: "copy-insertion",
    statement: "adds the copies without which loops, branches, in-place operations and results could not share memory",
    keeps_schedule: true,
    run,
};

fn run(module: &mut Module, context: &Context<'_>) -> Result<usize, Diagnostic> {
    let order = |module: &Module| -> Vec<_> {
        module.computations().iter().flat_map(|&c| module[c].instructions()).copied().collect()
    };
    let before = order(module);
    match hloom_plan::copies::insert_copies(module, context.target()) {
        // To be put into an order that can run is a change, though nothing be inserted.
        Ok(inserted) => Ok(inserted.changes().max(usize::from(order(module) != before))),
        // The first is as good as any: it has to be solved before the next can be judged.
        Err(faults) => match faults.into_iter().next() {
            Some(first) => Err(first),
            None => Ok(0),
        },
    }
}
