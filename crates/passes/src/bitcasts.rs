//! Reshapes in memory as bitcasts: the elements of a row-major array stay where they are. So do the bytes of elements
//! that are taken apart or put together by a bitcast-convert.
//!
//! The last step before memory is planned, since only there the difference counts: a reshape makes a value, a bitcast is
//! another name for one. Within fusions reshapes stay.

use crate::facts::flow_computations;
use crate::pass::{Context, Pass};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::Layout;
use hloom_ir::module::Module;
use hloom_ir::op::Op;

/// The pass.
pub static PASS: Pass = Pass {
    name: "bitcast-reshapes",
    statement: "makes bitcasts of reshapes and bitcast-converts of row-major arrays, which then take no memory of their own",
    keeps_schedule: true,
    run: |module: &mut Module, _: &Context<'_>| Ok(bitcast(module)) as Result<usize, Diagnostic>,
};

fn bitcast(module: &mut Module) -> usize {
    let mut changes = 0;
    for c in flow_computations(module) {
        for i in module[c].instructions().to_vec() {
            let operand = module[i].operands().first().copied();
            let stays = match module[i].op {
                Op::Reshape { .. } => true,
                Op::BitcastConvert => operand.is_some_and(|o| has_whole_bytes(module, o) && has_whole_bytes(module, i)),
                _ => false,
            };
            if stays && [Some(i), operand].into_iter().all(|v| v.is_some_and(|v| is_row_major(module, v))) {
                module.instruction_mut(i).op = Op::Bitcast;
                changes += 1;
            }
        }
    }
    changes
}

/// Whether elements lie in memory just as their bits are numbered.
fn has_whole_bytes(module: &Module, i: InstructionId) -> bool {
    let element_type = module[i].shape.element_type();
    element_type.is_some_and(|t| t != ElementType::Pred && !t.is_complex() && t.bits().is_multiple_of(8))
}

fn is_row_major(module: &Module, i: InstructionId) -> bool {
    let Some(array) = module[i].shape.as_array() else { return false };
    !array.is_dynamic() && array.layout.as_ref().is_none_or(|l| *l == Layout::descending(array.rank()))
}
