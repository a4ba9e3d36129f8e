//! Small facts about modules that several passes ask for.

use hloom_ir::entity::{InstructionId, SideTable};
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
