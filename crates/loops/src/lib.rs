//! What a kernel computes, independent of the machine: index maps, loop nests, reductions and scalar code.
//!
//! [`graph`] takes an instruction (or the body of a fusion) apart into plain data, by which equal kernels are found;
//! [`nests`] decides on the nests of loops, and [`lower`] works out the value of every node at every index that is needed,
//! as a [`program`] of loops. [`peel`] splits index sets at conditions, [`tile`] and [`row_tiles`] block loops,
//! [`row_cache`] keeps rows between passes over them, [`row_passes`] gives all passes the same loops, [`schedule`] chooses lanes and unrolling for the machine's vectors
//! ([`simd`]), and [`units`] shares the work out. A kernel that is wanted is a [`kernel::KernelRequest`]; what one is called
//! with is in [`abi`].
//!
//! Nothing here knows LLVM, threads or buffers: a program of loops prints ([`program::LoopProgram`] is `Display`).

pub mod abi;
pub mod affine;
pub mod arg_reduce;
mod cost;
mod display;
mod function;
pub mod graph;
mod joined_rows;
pub mod kernel;
pub mod lower;
mod lower_data_movement;
pub mod nests;
pub mod peel;
pub mod precision;
pub mod prefix_scan;
pub mod program;
pub mod region;
pub mod row_cache;
pub mod row_passes;
pub mod row_tiles;
mod scalar_op;
pub mod schedule;
pub mod simd;
pub mod small_float;
pub mod tile;
pub mod units;
pub mod unsupported;

pub use kernel::{KernelRequest, supports, supports_members};
pub use simd::Simd;
pub use unsupported::Unsupported;
