//! The CPU backend: policy, kernels and thunks; and its client, whose devices are shares of one process.
//!
//! [`CpuBackend`] makes of a scheduled module a list of thunks with a place in memory for every value (`lower`, `thunk`);
//! [`CpuClient`] loads it and executes the thunks, one thread per device (`executor`). An instruction for which there is no
//! kernel is evaluated by `hloom-eval`, and the report says so. Devices meet in `hloom-comm`.
//!
//! Results do not depend on the number of threads.

mod backend;
pub mod client;
mod code;
mod collective;
mod concurrency;
mod concurrent;
mod dependence;
mod executable;
mod executor;
mod features;
mod general_selection;
mod kernel;
mod kernel_choice;
mod library_call;
mod library_routine;
mod linear_algebra;
mod lower;
mod output_fusion;
mod prewarm;
mod region;
mod shared_buffer;
mod thunk;
mod thunk_display;

pub use backend::CpuBackend;
pub use client::{CpuClient, CpuClientOptions};
pub use code::CpuCode;
pub use prewarm::Prewarm;
