//! Small facts about modules that several passes ask for.

use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::op::Op;

/// Instructions that a control dependency names, on either side.
pub fn pinned(module: &Module) -> SideTable<InstructionId, bool> {
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
pub fn call_counts(module: &Module) -> SideTable<ComputationId, u32> {
    let mut counts = SideTable::with_len(module.computation_slots(), 0);
    for &i in module.computations().iter().flat_map(|&c| module[c].instructions()) {
        module[i].op.called_computations().iter().for_each(|&callee| *counts.get_mut(callee) += 1);
    }
    counts
}

/// The entry, and what is run by loops, branches and calls from there.
pub fn flow_computations(module: &Module) -> Vec<ComputationId> {
    let mut seen: SideTable<ComputationId, bool> = SideTable::default();
    let mut found: Vec<ComputationId> = module.entry().into_iter().collect();
    let mut next = 0;
    while let Some(&c) = found.get(next) {
        next += 1;
        if std::mem::replace(seen.get_mut(c), true) {
            continue;
        }
        for &i in module[c].instructions() {
            if matches!(module[i].op, Op::While { .. } | Op::Conditional { .. } | Op::Call { .. }) {
                found.extend(module[i].op.called_computations().iter().filter(|&&callee| !seen[callee]));
            }
        }
    }
    let mut once: SideTable<ComputationId, bool> = SideTable::default();
    found.retain(|&c| !std::mem::replace(once.get_mut(c), true));
    found
}
