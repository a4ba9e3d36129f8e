//! The seam between the language and the machines: the trait [`Backend`], the pipeline, and [`CompiledModule`].
//!
//! [`compile`] is the one way from a verified module to a compiled one, for the command, the Rust API and the plugin alike:
//! the backend's pipeline of named passes, then its code. It needs no device, no thread pool and no state of the process,
//! so a laptop compiles for a pod. What a stage made can be printed ([`Emit`]), and read back where it is HLO. A compiled
//! module is saved and loaded by [`mod@file`].
//!
//! A failure here is an error, never another way to run the program: the fault is the program's, or it is a bug of ours and
//! says so.

pub mod backend;
pub mod compiled;
pub mod emit;
pub mod error;
pub mod file;
pub mod options;
pub mod passes;
pub mod report;

pub use backend::{Backend, compile, optimize_for};
pub use compiled::{Code, CompiledModule};
pub use emit::{Emit, emit, emit_compiled};
pub use error::CompileError;
pub use options::{CompileOptions, Effort, ExcessPrecision};
pub use passes::registry;
pub use report::{CompileReport, Fallback};
