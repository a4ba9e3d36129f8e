//! StableHLO: what JAX and other front ends hand to a compiler, read, translated to HLO and back.
//!
//! StableHLO comes as text or as bytecode of MLIR. [`read_bytecode`] and [`read_text`] both give a [`mlir::Module`], plain data that knows operations, regions, attributes and types but not what they mean; [`to_hlo`] translates it to
//! [`hloom_ir::Module`], and [`from_hlo`] writes one as StableHLO text. Programs that check themselves with
//! `check.expect_*` operations are taken apart by [`mod@check`] into runs and comparisons.

pub mod bytecode;
pub mod check;
pub mod hlo;
pub mod mlir;
pub mod text;
pub mod write;

pub use bytecode::read_bytecode;
pub use hlo::{Translation, to_hlo, translate};
pub use text::{read_split_text, read_text};
pub use write::from_hlo;
