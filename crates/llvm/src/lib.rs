//! Programs of loops to native kernels, by LLVM 19.
//!
//! A kernel is a function over plain buffers ([`hloom_loops::abi::KernelFn`]): those of the operands' leaf arrays in order, then those of
//! the result's. Arrays are row-major and dense. Its work is cut into units, which are independent: whoever calls it may
//! hand any range of units to any thread. A result may take the place of an operand if the operand is read at the index
//! that is written, and nowhere else.
//!
//! [`emit`] writes a program of loops (`hloom-loops`) as LLVM code with explicit vectors, without any pass over it
//! afterwards; [`library`] has LLVM make machine code of it, in several threads. `hloom-loader` brings that into memory.

mod conversion;
mod elementwise;
mod emit;
mod failure;
mod generator;
mod guard;
mod library;
mod machine;
mod math;
mod narrow;
pub mod nvptx;
mod options;
mod prewarm;

pub use failure::LlvmError;
pub use generator::Effort;
pub use library::{
    KernelFacts, KernelObjects, KernelSymbol, Options, Prepared, Refused, RegionSymbol, assembly, compile, llvm_ir,
    prepare,
};
pub use machine::Machine;
pub use prewarm::prewarm;
