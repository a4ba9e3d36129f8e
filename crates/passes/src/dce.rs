//! Dead code elimination: instructions whose value nothing uses, and computations that nothing calls.
//!
//! Parameters stay, since callers pass them; so does what acts on the world outside, and what a control dependency of
//! something live names.

use crate::pass::{Context, Pass};
use hloom_analysis::effects::{has_side_effect, instructions_with};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::op::Op;

/// The pass.
pub static PASS: Pass = Pass {
    name: "dce",
    statement: "removes instructions whose value nothing uses and computations that nothing calls",
    keeps_schedule: true,
    run,
};

fn run(module: &mut Module, _: &Context<'_>) -> Result<usize, Diagnostic> {
    Ok(remove_dead_code(module))
}

/// Removes dead instructions and computations; returns how many.
pub fn remove_dead_code(module: &mut Module) -> usize {
    let Some(entry) = module.entry() else { return 0 };
    let (effects, _) = instructions_with(module, has_side_effect);
    let mut is_live: SideTable<InstructionId, bool> = SideTable::with_len(module.instruction_slots(), false);
    let mut is_called: SideTable<ComputationId, bool> = SideTable::with_len(module.computation_slots(), false);
    let mut computations = vec![entry];
    let mut stack: Vec<InstructionId> = Vec::new();
    is_called.set(entry, true);
    while let Some(c) = computations.pop() {
        stack.extend(module.root(c));
        let kept = |&i: &InstructionId| effects[i] || matches!(module[i].op, Op::Parameter { .. });
        stack.extend(module[c].instructions().iter().copied().filter(kept));
        while let Some(i) = stack.pop() {
            if std::mem::replace(is_live.get_mut(i), true) {
                continue;
            }
            stack.extend_from_slice(module[i].operands());
            stack.extend_from_slice(module[i].common.control_predecessors());
            for callee in module[i].op.called_computations() {
                if !std::mem::replace(is_called.get_mut(callee), true) {
                    computations.push(callee);
                }
            }
        }
    }
    let uncalled: Vec<ComputationId> = module.computations().iter().copied().filter(|&c| !is_called[c]).collect();
    if !uncalled.is_empty() {
        module.remove_computations(&uncalled);
    }
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    let dead: Vec<InstructionId> = all.copied().filter(|&i| !is_live[i]).collect();
    if !dead.is_empty() {
        let removed = module.remove_instructions(&dead);
        debug_assert!(removed.is_ok(), "{removed:?}");
    }
    dead.len() + uncalled.len()
}
