//! StableHLO: what JAX and other front ends hand to a compiler, read, translated to HLO and back.
//!
//! StableHLO comes as text or as bytecode of MLIR. [`read_bytecode`] gives a [`mlir::Module`], plain data that knows operations, regions, attributes and types but not what they mean; [`to_hlo`] translates it to
//! [`hloom_ir::Module`].

pub mod bytecode;
pub mod hlo;
pub mod mlir;
pub mod text;

pub use bytecode::read_bytecode;
pub use hlo::{Translation, to_hlo, translate, translate_function, translate_part};
