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
