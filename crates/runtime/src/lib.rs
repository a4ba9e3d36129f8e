//! The CPU runtime: a [`Client`] of N virtual devices, [`Buffer`]s on them, and [`Executable`]s.
//!
//! Compiling makes of a verified module a list of steps with a place in memory for every value; executing walks it, one
//! thread per device. A step for which there is no native kernel is evaluated by `hloom-eval`, the reference evaluator,
//! and the [`Report`] of the executable says so. Devices meet in `hloom-comm`, through the evaluator's own
//! collectives.
//!
//! Results do not depend on the number of threads.

mod affinity;
mod beside;
pub mod buffer;
pub mod ceiling;
pub mod client;
mod collective;
mod common;
mod comparator;
mod compile;
mod exchange;
pub mod executable;
mod graph;
mod library;
mod linear_algebra;
mod lower;
pub mod memory;
mod native;
mod output_fusion;
pub mod pool;
mod program;
#[cfg(feature = "llvm")]
mod region;
pub mod report;
mod routine;
mod run;
pub mod trace;
mod warm;
mod width;

pub use buffer::Buffer;
pub use client::{Client, ClientOptions};
pub use executable::{CompileOptions, Effort, Executable, ExecuteOptions};
pub use report::Report;
pub use warm::Warming;
