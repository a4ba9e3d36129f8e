//! The CUDA backend: from a scheduled module to thunks over PTX kernels and library calls, and the client that runs them.
//!
//! [`CudaBackend`] needs no GPU: it makes PTX, plans memory and prints. [`CudaClient`] loads the driver and the libraries
//! when they are first needed (`library`), assembles the PTX to machine code (`cubin`), and runs the thunks on one stream,
//! as a CUDA graph once a program has run (`executor`, `graph`). Several devices are virtual ones on one GPU: their thunks
//! run side by side where they do not meet (`lanes`), and what they exchange are copies and kernels. Or each has a GPU, of
//! this process (`spread`) or of others, and they meet by NCCL (`exchange`, `nccl`).
//!
//! An instruction without a kernel is evaluated on the host by `hloom-eval`, and the report says so.

mod backend;
mod canonicalize;
mod canonicalize_convolutions;
mod canonicalize_sorts;
pub mod check;
mod client;
mod code;
mod collective;
mod common_kernels;
mod conditional;
mod convolution;
mod cubin;
mod cublaslt;
mod cudnn;
mod cufft;
mod cusolver;
mod driver;
mod enqueue;
mod exchange;
mod executable;
mod executor;
mod expand_cholesky;
mod expand_depthwise;
mod fft;
mod gemm;
mod gpu;
mod graph;
mod hand_written;
mod kernels;
mod lanes;
mod library;
mod library_call;
mod lower;
mod memory;
mod nccl;
mod prewarm;
mod scratch;
mod solver;
mod spread;
mod thunk;
mod thunk_display;
mod workers;

pub use backend::{CudaBackend, PASSES};
pub use client::{CudaClient, CudaClientOptions};
pub use code::CudaCode;
