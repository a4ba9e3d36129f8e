//! Arrays and values on the host, and execution errors: what the evaluator, the runtimes and the edges share.
//!
//! An [`Array`] is its elements in row-major order, a [`Value`] is what an instruction makes, and an [`ExecutionError`]
//! says why an operation could not be carried out. Nothing here knows how a program is run.

#![deny(unsafe_code)]

pub mod array;
pub mod buffer;
pub mod error;
pub mod memory;
mod message;
pub mod strided;

pub use array::{Array, Value};
pub use error::ExecutionError;
