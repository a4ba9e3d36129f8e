//! Watching a run: what is evaluated, and the values as they come.

use crate::array::Value;
use hloom_ir::entity::InstructionId;

/// Is told of every value made. Called from the threads of all devices.
pub trait Observer: Sync {
    /// Whether it wants to see the value of this instruction; values not wanted cost nothing.
    fn made(&self, device: usize, instruction: InstructionId, value: &Value, operands: &[Value]);
}
