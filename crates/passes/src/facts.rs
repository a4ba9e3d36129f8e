//! Small facts about modules that several passes ask for.

use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::module::Module;

/// Instructions that a control dependency names, on either side.
pub(crate) fn pinned(module: &Module) -> SideTable<InstructionId, bool> {
    let mut pinned = SideTable::with_default(false);
    for &i in module.computations().iter().flat_map(|&c| module[c].instructions()) {
        let predecessors = module[i].common.control_predecessors();
        if !predecessors.is_empty() {
            pinned.set(i, true);
            predecessors.iter().for_each(|&p| pinned.set(p, true));
        }
    }
    pinned
}

/// How often each computation is called.
pub(crate) fn call_counts(module: &Module) -> SideTable<ComputationId, u32> {
    let mut counts = SideTable::with_len(module.computation_slots(), 0);
    for &i in module.computations().iter().flat_map(|&c| module[c].instructions()) {
        module[i].op.called_computations().iter().for_each(|&callee| *counts.get_mut(callee) += 1);
    }
    counts
}
