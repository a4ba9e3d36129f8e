//! Small edits that several stages make.

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::instruction::Common;
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::Op;
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_plan::order::flow_callees;
use hloom_target::Target;

/// The array that an instruction makes, if it makes one.
pub(crate) fn array_of(module: &Module, i: InstructionId) -> Option<&ArrayShape> {
    module[i].shape.as_array()
}

/// Adds an instruction to the computation that `beside` is in. The order of the list is no schedule afterwards.
pub(crate) fn add(
    module: &mut Module,
    beside: InstructionId,
    name: &str,
    op: Op,
    shape: impl Into<Shape>,
    operands: &[InstructionId],
    common: Common,
) -> InstructionId {
    let home = module[beside].parent();
    // The last instruction would become the root of a computation that has none set.
    if let Some(root) = module.root(home) {
        module.set_root(root);
    }
    let new = NewInstruction { name: name.into(), op, shape: shape.into(), operands: operands.into(), common };
    module.add_instruction(home, new)
}

/// The computations whose instructions are steps of the program: the entry, and what loops, branches and calls run.
/// Callers come before callees.
pub(crate) fn flow_computations(module: &Module) -> Vec<ComputationId> {
    let mut seen = vec![false; module.computation_slots()];
    let mut order: Vec<ComputationId> = module.entry().into_iter().collect();
    let mut at = 0;
    while let Some(&c) = order.get(at) {
        at += 1;
        for &i in module[c].instructions() {
            for callee in flow_callees(module, i) {
                if !std::mem::replace(&mut seen[callee.index()], true) {
                    order.push(callee);
                }
            }
        }
    }
    order
}

/// Removes what nothing uses and nobody sees, and computations that nothing calls.
pub(crate) fn remove_dead(module: &mut Module, target: &Target) -> Result<usize, Diagnostic> {
    (hloom_passes::dce::PASS.run)(module, &hloom_passes::Context { info: target })
}
