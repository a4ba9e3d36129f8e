//! The registry of custom calls: code outside the program that a program asks for by name.

use crate::array::Value;
use crate::fault::Fault;
use crate::interpreter::{Device, OperandValues};
use hloom_ir::entity::InstructionId;
use rustc_hash::FxHashMap;

/// What provides a custom call: given the device, the instruction and the operands, it makes the result.
pub type Handler = Box<dyn Fn(&mut Device<'_>, InstructionId, OperandValues) -> Result<Value, Fault> + Send + Sync>;

/// Custom calls by target name.
#[derive(Default)]
pub struct CustomCalls {
    handlers: FxHashMap<Box<str>, Handler>,
}

impl CustomCalls {
    /// Provides `target`, in place of what was registered under that name before.
    pub fn register(&mut self, target: impl Into<Box<str>>, handler: Handler) {
        self.handlers.insert(target.into(), handler);
    }

    /// What provides `target`.
    pub fn get(&self, target: &str) -> Option<&Handler> {
        self.handlers.get(target)
    }
}

/// The calls found in XLA's dumps that hloom provides.
pub fn builtin() -> CustomCalls {
    CustomCalls::default()
}
