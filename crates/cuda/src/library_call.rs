//! Calls of NVIDIA's libraries, made ready once for all runs of a program.

use crate::cublaslt::PreparedGemm;
use crate::cudnn::PreparedConvolution;
use crate::cufft::PreparedFft;
use crate::cusolver::PreparedSolver;
use crate::gpu::Gpu;
use crate::thunk::{Thunk, ThunkKind};
use hloom_value::ExecutionError;
use std::sync::Arc;

/// A call of a library, made ready.
#[derive(Debug)]
pub(crate) enum LibraryCall {
    /// By cuBLASLt.
    Gemm(PreparedGemm),
    /// By cuDNN.
    Convolution(PreparedConvolution),
    /// By cuFFT.
    Fft(PreparedFft),
    /// By cuSOLVER and cuBLAS.
    Solver(PreparedSolver),
}

impl LibraryCall {
    /// Makes the call of a thunk ready, if it is one.
    pub(crate) fn new(gpu: &Arc<Gpu>, thunk: &Thunk) -> Result<Option<LibraryCall>, ExecutionError> {
        let call = match &thunk.kind {
            ThunkKind::Gemm(gemm) => PreparedGemm::new(gpu, gemm).map(LibraryCall::Gemm),
            ThunkKind::Convolution(c) => PreparedConvolution::new(gpu, c).map(LibraryCall::Convolution),
            ThunkKind::Fft(fft) => PreparedFft::new(gpu, fft).map(LibraryCall::Fft),
            ThunkKind::Solver(solver) => PreparedSolver::new(gpu, solver).map(LibraryCall::Solver),
            _ => return Ok(None),
        };
        call.map(Some).map_err(|error| error.at(thunk.instruction))
    }

    /// Makes what is left for the first run: nothing of that kind can be made while a graph is captured.
    pub(crate) fn before_run(&self, gpu: &Gpu) -> Result<(), ExecutionError> {
        match self {
            LibraryCall::Fft(fft) => fft.plan(gpu).map(|_| ()),
            LibraryCall::Gemm(_) | LibraryCall::Convolution(_) | LibraryCall::Solver(_) => Ok(()),
        }
    }

    /// Bytes that it works in, beside what all calls of its library share.
    pub(crate) fn workspace_bytes(&self) -> usize {
        match self {
            LibraryCall::Gemm(_) | LibraryCall::Fft(_) => 0,
            LibraryCall::Convolution(c) => c.workspace_bytes,
            LibraryCall::Solver(s) => s.workspace_bytes(),
        }
    }
}
