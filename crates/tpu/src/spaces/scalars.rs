//! Single numbers that are computed from single numbers belong to the scalar unit, in its own memory.
//!
//! They move there if everything that reads them can: arithmetic on single numbers, fusions, and operations that take
//! them for addresses.

use crate::edit::{array_of, flow_computations};
use crate::stage::staged;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_passes::Pass;

/// The stage.
pub(crate) static STAGE: Pass = Pass {
    name: "scalar-memory",
    statement: "puts numbers that the scalar unit computes into its memory",
    keeps_schedule: true,
    run: |module, context| {
        staged(module, context, |module, context| {
            let has_memory = context.target.space(SCALAR_MEMORY).is_some();
            Ok(if has_memory { move_scalars(module) } else { 0 }) as Result<usize, Diagnostic>
        })
    },
};

const SCALAR_MEMORY: i64 = 6;

fn move_scalars(module: &mut Module) -> usize {
    let mut changes = 0;
    for c in flow_computations(module) {
        for i in module[c].instructions().to_vec() {
            if !is_scalar_arithmetic(module, i) || module.root(c) == Some(i) {
                continue;
            }
            let reads_there = |&user: &InstructionId| {
                is_scalar_arithmetic(module, user)
                    || matches!(module[user].op, Op::Fusion(_) | Op::DynamicSlice { .. } | Op::DynamicUpdateSlice)
            };
            if module[i].users().iter().all(reads_there) {
                let shape = super::apply::with_space(&module[i].shape, &[], SCALAR_MEMORY);
                module.instruction_mut(i).shape = shape;
                changes += 1;
            }
        }
    }
    super::apply::mark_bodies(module);
    changes
}

fn is_scalar_arithmetic(module: &Module, i: InstructionId) -> bool {
    let is_scalar =
        |i: InstructionId| array_of(module, i).is_some_and(|a| a.is_scalar() && a.element_type.bits() <= 32);
    module[i].op.is_elementwise() && is_scalar(i) && module[i].operands().iter().all(|&o| is_scalar(o))
}
