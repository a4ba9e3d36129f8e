//! Call inlining: the body of what is called takes the place of the call.
//!
//! Callees come before callers, so that what is inlined has no calls left in it. A program can be written whose calls,
//! inlined, are exponentially large: when the module has grown enough, the calls that are left stay. So do those that the
//! front end says are to stay (`inlineable="false"`).

use crate::facts::pinned;
use crate::pass::{Context, Pass};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::order::computations;

/// The pass.
pub static PASS: Pass = Pass {
    name: "inline-calls",
    statement: "puts the body of a called computation in place of the call",
    keeps_schedule: false,
    run,
};

fn run(module: &mut Module, _: &Context<'_>) -> Result<usize, Diagnostic> {
    Ok(inline(module, |op| match op {
        Op::Call { to_apply, .. } => Some(*to_apply),
        _ => None,
    }))
}

/// Puts the body of `callee(op)` in place of every instruction for which there is one; returns how many. The bodies
/// stay, for dead code elimination to remove.
pub(crate) fn inline(module: &mut Module, callee: impl Fn(&Op) -> Option<ComputationId>) -> usize {
    // As much as the module has, and a little for small ones.
    let mut budget = 100_000 + 8 * module.instruction_count();
    let pinned = pinned(module);
    let mut changes = 0;
    for c in computations(module) {
        let is_to_stay = |i: InstructionId| module[i].common.frontend_attribute("inlineable") == Some("false");
        let is_call = |&i: &InstructionId| callee(&module[i].op).is_some() && !is_to_stay(i);
        let calls: Vec<InstructionId> = module[c].instructions().iter().copied().filter(is_call).collect();
        let mut inlined = Vec::new();
        for i in calls {
            let Some(body) = callee(&module[i].op) else { continue };
            let size = module[body].instructions().len();
            if size > budget || pinned[i] {
                continue;
            }
            budget -= size;
            let operands = module[i].operands().to_vec();
            let Some(value) = module.inline_computation(c, body, &operands) else { continue };
            if module.replace_all_uses(i, value).is_ok() {
                inlined.push(i);
            }
        }
        // Before the callers are looked at: they are not to copy calls that are gone.
        if !inlined.is_empty() {
            let removed = module.remove_instructions(&inlined);
            debug_assert!(removed.is_ok(), "{removed:?}");
        }
        changes += inlined.len();
    }
    changes
}
