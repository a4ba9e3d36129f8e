//! To be written.

use crate::array::Value;
use crate::fault::Fault;
use crate::interpreter::{Device, OperandValues};
use hloom_ir::diagnostic::codes;
use hloom_ir::entity::InstructionId;

/// Evaluates one instruction of this family.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, _operands: OperandValues) -> Result<Value, Fault> {
    Err(Fault::new(&codes::eval::UNSUPPORTED, format!("{} is not there yet", device.module()[i].opcode())))
}

use crate::scalar::{Function1, Function2, Function3};
use hloom_ir::attributes::{ComparisonDirection, ComparisonType};
use hloom_ir::element_type::ElementType;
use hloom_ir::op::{BinaryOp, UnaryOp};

/// `op` on one element of type `from`; `None` if the type does not have it.
pub fn unary_function(_op: UnaryOp, _from: ElementType) -> Option<Function1> {
    None
}
/// `op` on two elements of type `from`.
pub fn binary_function(_op: BinaryOp, _from: ElementType) -> Option<Function2> {
    None
}
/// A comparison of two elements of type `from`.
pub fn compare_function(
    _direction: ComparisonDirection,
    _kind: Option<ComparisonType>,
    _from: ElementType,
) -> Option<Function2> {
    None
}
/// Conversion of one element.
pub fn convert_function(_from: ElementType, _to: ElementType) -> Option<Function1> {
    None
}
/// The same bits as an element of another type of as many bits.
pub fn convert_bits_function(_from: ElementType, _to: ElementType) -> Option<Function1> {
    None
}
/// The second or third by the first.
pub fn select_function() -> Function3 {
    |p, a, b| if p.0 != 0 { a } else { b }
}
/// The second between the first and the third.
pub fn clamp_function(_from: ElementType) -> Option<Function3> {
    None
}
