//! Scheduling: an order for every computation that keeps little memory live at once on the target.

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_passes::{Context, Pass};
use hloom_plan::schedule::{Scheduler, schedule};

/// The pass.
pub(super) static PASS: Pass = Pass {
    name: "schedule",
    statement: "puts instructions into an order that keeps little memory live at once, and calls the module scheduled",
    keeps_schedule: true,
    run,
};

fn run(module: &mut Module, context: &Context<'_>) -> Result<usize, Diagnostic> {
    let was_scheduled = module.is_scheduled;
    let copies = if was_scheduled { 0 } else { copy_identities(module) };
    let scheduled = schedule(module, Scheduler::Memory, context.target())?;
    Ok(scheduled.reordered + copies + usize::from(!was_scheduled))
}

/// Before a module is scheduled its layouts are proposals, and a bitcast to the same dimensions is the identity; after
/// that it means the bytes. One whose layout differs from its operand's becomes the copy that it means.
fn copy_identities(module: &mut Module) -> usize {
    let changes_layout = |i: InstructionId| {
        let to = module[i].shape.as_array();
        let from = module[i].operands().first().and_then(|&o| module[o].shape.as_array());
        let (Some(to), Some(from), Op::Bitcast) = (to, from, &module[i].op) else { return false };
        from.same_dims_and_type(to) && from.minor_to_major() != to.minor_to_major()
    };
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    let identities: Vec<InstructionId> = all.copied().filter(|&i| changes_layout(i)).collect();
    for &i in &identities {
        module.instruction_mut(i).op = Op::Copy;
    }
    identities.len()
}
