//! The order in which a proto lists things: what is used comes first.

use hloom_ir::entity::{ComputationId, EntityId, InstructionId, SideTable};
use hloom_ir::module::Module;

/// `items` with whatever each one needs before it, each once. Items whose needs come first already keep their order;
/// on a cycle, something of it comes before what it needs. Linear in the number of items and needs. `seen` says of none
/// of them that it was seen.
fn needs_first<K: EntityId>(items: &[K], seen: &mut SideTable<K, bool>, needs: impl Fn(K, &mut Vec<K>)) -> Vec<K> {
    let mut order = Vec::with_capacity(items.len());
    let mut found = Vec::new();
    // Items to look at; the flag says that their needs have been.
    let mut stack = Vec::new();
    for &item in items {
        stack.push((item, false));
        while let Some((item, ready)) = stack.pop() {
            if ready {
                order.push(item);
                continue;
            }
            if std::mem::replace(seen.get_mut(item), true) {
                continue;
            }
            stack.push((item, true));
            needs(item, &mut found);
            stack.extend(found.drain(..).rev().filter(|&n| !seen[n]).map(|n| (n, false)));
        }
    }
    order
}

/// All computations, callees before callers.
pub(super) fn computations(module: &Module) -> Vec<ComputationId> {
    let mut seen = SideTable::with_len(module.computation_slots(), false);
    needs_first(module.computations(), &mut seen, |c, callees| {
        for &i in module[c].instructions() {
            callees.extend(module[i].op.called_computations());
        }
    })
}

/// For every instruction of the module its place in its computation, and the instructions of each computation in that
/// order, operands and control predecessors before users.
pub(super) struct Places {
    local: SideTable<InstructionId, u32>,
    /// One table for all computations, which have no instruction in common.
    seen: SideTable<InstructionId, bool>,
}

impl Places {
    pub(super) fn new(module: &Module) -> Places {
        let slots = module.instruction_slots();
        Places { local: SideTable::with_len(slots, 0), seen: SideTable::with_len(slots, false) }
    }

    pub(super) fn order(&mut self, module: &Module, computation: ComputationId) -> Vec<InstructionId> {
        let list = module[computation].instructions();
        let sorted = {
            // A place of 0 is the first, or not given yet: the list is sorted if every need has a lower one.
            let mut sorted = true;
            for (place, &i) in list.iter().enumerate() {
                let earlier = |&n: &InstructionId| {
                    let at = self.local[n] as usize;
                    at < place && list.get(at) == Some(&n)
                };
                let instruction = &module[i];
                sorted &= instruction.operands().iter().all(earlier);
                sorted &= instruction.common.control_predecessors().iter().all(earlier);
                self.local.set(i, place as u32);
            }
            sorted
        };
        if sorted {
            return list.to_vec();
        }
        let order = needs_first(list, &mut self.seen, |i, needs| {
            needs.extend(module[i].common.control_predecessors());
            needs.extend(module[i].operands());
        });
        for (place, &i) in order.iter().enumerate() {
            self.local.set(i, place as u32);
        }
        order
    }

    /// The place of an instruction in its computation, which has been ordered.
    pub(super) fn of(&self, instruction: InstructionId) -> u32 {
        self.local[instruction]
    }
}
