//! Kernels for NVIDIA GPUs as PTX text, and what a launch of one is ([`launch`]).
//!
//! Nothing here knows HLO, LLVM or the CUDA driver: a kernel is told sizes and types and is text ([`ptx`]), so that it is
//! made and tested on machines without a GPU; [`emulate`] runs such text on the host.

pub mod attention;
pub mod common;
pub mod emulate;
pub mod launch;
pub mod number;
pub mod order;
pub mod ptx;
pub mod scan;
pub mod sort;
pub mod top_k;

pub use launch::{Architecture, KernelArgument, KernelSequence, Launch, PtxKernel, Scratch};
