//! XLA's messages, declared by hand for `prost`: the names and field numbers are those of `hlo.proto` and
//! `xla_data.proto`.
//!
//! Enumerations are plain `int32`, so that a number nobody knows yet reaches the reader, which says where it stands.
//! Messages the reader takes apart itself (modules, computations, metadata) are declared as bytes where they occur, or
//! not at all: decoding skips a field that is not declared, and [`super::unknown`] keeps it.

pub(super) mod attributes;
pub(super) mod instruction;
pub(super) mod module;
pub(super) mod shape;
pub(super) mod sharding;

pub(super) use attributes::*;
pub(super) use instruction::*;
pub(super) use module::*;
pub(super) use shape::*;
pub(super) use sharding::*;
