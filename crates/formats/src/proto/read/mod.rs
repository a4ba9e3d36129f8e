//! Reading: from bytes to a [`Module`].

mod error;
mod instruction;
mod literal;
mod metadata;
mod module;
mod op;
mod shape;
mod sharding;

use super::container;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::proto as codes;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::shape::Shape;
use hloom_ir::sharding::ShardingKind;

/// Reads an `HloModuleProto`, or the one inside an `HloProto` or `HloSnapshot`.
pub fn read(bytes: &[u8]) -> Result<Module, Vec<Diagnostic>> {
    match container::module_bytes(bytes) {
        Some(module) => module::module(module).map_err(|d| vec![d]),
        None => Err(vec![not_a_proto(bytes)]),
    }
}

/// Reads a `ShapeProto`.
pub fn read_shape(bytes: &[u8]) -> Result<Shape, Diagnostic> {
    shape::shape(&error::decode(bytes, "a shape")?)
}

/// A literal by itself; `None` if it has a shape and no elements.
/// The shardings in an `OpSharding`: of an array, or of the leaves of a tuple.
pub fn read_sharding(bytes: &[u8]) -> Result<Vec<ShardingKind>, Diagnostic> {
    sharding::kinds(&error::decode(bytes, "a sharding")?)
}

pub(super) fn decode_literal(bytes: &[u8]) -> Result<Option<Literal>, Diagnostic> {
    literal::literal(&error::decode(bytes, "a literal")?)
}

/// A literal in the form that it has behind a large snapshot; `None` if that form is not one that is read.
pub(super) fn decode_raw_literal(bytes: &[u8]) -> Result<Option<Literal>, Diagnostic> {
    literal::raw_literal(bytes)
}

/// A literal that cannot be used.
pub(super) fn literal_error(message: &str) -> Diagnostic {
    Diagnostic::error(&codes::BAD_LITERAL, message)
}

fn not_a_proto(bytes: &[u8]) -> Diagnostic {
    let diagnostic = Diagnostic::error(&codes::NOT_A_PROTO, "this is neither an HloModuleProto nor an HloProto");
    if bytes.is_empty() {
        return diagnostic.note("there is nothing in it");
    }
    match container::first_fault(bytes) {
        Some(at) => diagnostic.note(format!("as protobuf it makes sense up to byte {at} of {}", bytes.len())),
        None => diagnostic.note("it is protobuf, but has no computations where a module has them"),
    }
}
