//! Kernels for NVIDIA GPUs as PTX text, and what a launch of one is ([`launch`]).
//!
//! Nothing here knows HLO, LLVM or the CUDA driver: a kernel is told sizes and types and is text, so that it is made and
//! tested on machines without a GPU.

pub mod launch;

pub use launch::{Architecture, KernelArgument, KernelSequence, Launch, PtxKernel, Scratch};
