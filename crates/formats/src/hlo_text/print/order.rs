//! The order in which instructions and computations are printed.
//!
//! Both orders are post-orders: what something needs is printed before it. Every instruction and computation is
//! printed exactly once, whatever the module looks like; what only a cycle leads to comes last.

use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::order::{PostOrder, computations_by_calls};

/// Works out orders; keeps its tables from one computation to the next.
pub(super) struct Order<'m> {
    module: &'m Module,
    post_order: PostOrder<'m>,
    /// Computations whose order is not part of a schedule, by index.
    unscheduled: Vec<bool>,
}

impl<'m> Order<'m> {
    pub(super) fn new(module: &'m Module) -> Order<'m> {
        // A schedule does not reach into fusions: they run as one.
        let mut unscheduled = vec![!module.is_scheduled; module.computation_slots()];
        if module.is_scheduled {
            for &computation in module.computations() {
                for &id in module[computation].instructions() {
                    if let Op::Fusion(fusion) = &module[id].op
                        && let Some(flag) = unscheduled.get_mut(fusion.calls.index())
                    {
                        *flag = true;
                    }
                }
            }
        }
        Order { module, post_order: PostOrder::new(module), unscheduled }
    }

    /// Instructions in the order of the schedule, or in post-order.
    pub(super) fn instructions(&mut self, computation: ComputationId) -> Vec<InstructionId> {
        if self.unscheduled.get(computation.index()).copied().unwrap_or(true) {
            return self.post_order.instructions(computation);
        }
        self.module[computation].instructions().to_vec()
    }
}

/// Computations in post-order of calls, from each one that nothing calls, in the order in which they stand. The calls
/// of a computation count in the order in which its instructions are printed (`instructions`, by the computation's
/// index), so that what was printed and read back prints the same again.
pub(super) fn computations(module: &Module, instructions: &[Vec<InstructionId>]) -> Vec<ComputationId> {
    let mut calls: Vec<Vec<ComputationId>> = vec![Vec::new(); module.computation_slots()];
    for (order, calls) in instructions.iter().zip(&mut calls) {
        calls.extend(order.iter().flat_map(|&id| module[id].op.called_computations()));
    }
    computations_by_calls(module, &calls)
}
