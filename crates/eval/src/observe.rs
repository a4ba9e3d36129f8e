//! Watching a run: what is evaluated, and the values as they come.

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use hloom_value::Value;

/// Is told of every value made. Called from the threads of all devices.
pub trait Observer: Sync {
    /// `instruction` made `value` out of `operands` on `device`. A parameter is told of when its computation is called; it
    /// and a get-tuple-element have no operands here.
    fn made(&self, device: usize, instruction: InstructionId, value: &Value, operands: &[Value]) -> Verdict;
}

/// What an observer wants to happen next.
pub enum Verdict {
    /// Nothing special.
    GoOn,
    /// The run is to end with this.
    Stop(Box<Diagnostic>),
}
