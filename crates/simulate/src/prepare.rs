//! A schedule for modules that have none.

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::module::Module;
use hloom_plan::copies::insert_copies;
use hloom_plan::flatten::flatten_call_graph;
use hloom_plan::schedule::{Scheduler, schedule};
use hloom_target::Target;

/// What was done to a module before it could be simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prepared {
    /// Whether it was given a schedule.
    pub is_scheduled: bool,
    /// Copies that it was given.
    pub copies: usize,
}

/// Gives a module that has none a schedule that keeps little memory live, after the copies that its memory needs.
/// A module that is scheduled stays as it is.
pub fn prepare(module: &mut Module, target: &Target) -> Result<Prepared, Vec<Diagnostic>> {
    if module.is_scheduled {
        return Ok(Prepared { is_scheduled: false, copies: 0 });
    }
    flatten_call_graph(module).map_err(|fault| vec![fault])?;
    let inserted = insert_copies(module, target)?;
    schedule(module, Scheduler::Memory, target).map_err(|fault| vec![fault])?;
    Ok(Prepared { is_scheduled: true, copies: inserted.copies })
}
