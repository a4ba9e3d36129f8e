//! Writing: from a [`Module`] to bytes.

mod instruction;
mod literal;
mod module;
mod op;
mod order;
mod shape;
mod sharding;

use super::messages::LiteralProto;
use super::wire::{Fields, write_bytes};
use hloom_ir::diagnostic::codes::proto as codes;
use hloom_ir::diagnostic::{Diagnostic, Part};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::sharding::Sharding;
use prost::Message;

/// What to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Container {
    /// An `HloModuleProto`: what a runtime takes as a program.
    Module,
    /// An `HloProto` with it inside: what XLA dumps to files.
    Proto,
    /// An `HloModuleProtoWithConfig`: what a runtime shows of a program that it has compiled.
    WithConfig,
}

/// A literal by itself.
pub(super) fn write_literal(value: &hloom_ir::literal::Literal) -> LiteralProto {
    literal::literal(value)
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
        Container::WithConfig => {
            let mut config = Vec::new();
            // The layout of the entry is the program shape that the module carries.
            let shape = Fields::new(&bytes).flatten().find(|f| f.number == 4).and_then(|f| f.value.bytes());
            if let Some(shape) = shape {
                write_bytes(&mut config, 1, shape);
            }
            let count = |n: i64| u64::try_from(n).unwrap_or(1);
            prost::encoding::uint64::encode(4, &count(module.config.replica_count), &mut config);
            prost::encoding::uint64::encode(5, &count(module.config.num_partitions), &mut config);
            let mut proto = Vec::with_capacity(bytes.len() + config.len() + 16);
            write_bytes(&mut proto, 1, &bytes);
            write_bytes(&mut proto, 2, &config);
            proto
        }
    })
}

/// An `OpSharding`.
pub fn write_sharding(of: &Sharding) -> Vec<u8> {
    sharding::sharding(of).encode_to_vec()
}

/// A `ShapeProto`.
pub fn write_shape(of: &hloom_ir::Shape) -> Vec<u8> {
    shape::shape(of).encode_to_vec()
}

fn cannot_encode(instruction: InstructionId, part: Part, message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(&codes::CANNOT_ENCODE, message).at_instruction(instruction, part)
}
