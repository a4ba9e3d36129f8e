//! Writing: from a [`Module`] to bytes.

mod instruction;
mod literal;
mod module;
mod op;
mod order;
mod shape;
mod sharding;

use super::wire::write_bytes;
use hloom_ir::diagnostic::codes::proto as codes;
use hloom_ir::diagnostic::{Diagnostic, Part};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;

/// What to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Container {
    /// An `HloModuleProto`: what a runtime takes as a program.
    Module,
    /// An `HloProto` with it inside: what XLA dumps to files.
    Proto,
}

/// Writes the module. Ids are given anew, computations and instructions are put in an order in which what is used
/// comes first; a scheduled module keeps its order and its schedule.
pub fn write(module: &Module, container: Container) -> Result<Vec<u8>, Vec<Diagnostic>> {
    let mut errors = Vec::new();
    let bytes = module::module(module, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(match container {
        Container::Module => bytes,
        Container::Proto => {
            let mut proto = Vec::with_capacity(bytes.len() + 8);
            write_bytes(&mut proto, 1, &bytes);
            proto
        }
    })
}

fn cannot_encode(instruction: InstructionId, part: Part, message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(&codes::CANNOT_ENCODE, message).at_instruction(instruction, part)
}
