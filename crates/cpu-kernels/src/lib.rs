//! Kernels that are written by hand because a generic loop would lose: matrix products, convolutions, sorting, Fourier
//! transforms, the gradient of pooling, linear algebra, transposes,
//! concatenations of many arrays.
//!
//! Nothing here knows HLO. A kernel is told sizes and strides, in elements, and gets slices; it checks that the slices
//! are long enough for what it was told, so its interface is safe. Work is shared through [`Parallel`], which the caller
//! brings; how it is cut depends on the sizes alone, so that results do not depend on the number of threads.

pub mod concatenate;
pub mod convolution;
pub mod fft;
pub mod linear_algebra;
pub mod matmul;
pub mod number;
pub mod order;
pub mod parallel;
pub mod select_and_scatter;
pub mod sort;
mod tiles;
pub mod top_k;
pub mod transpose;
mod vectors;

pub use parallel::{Epilogue, Parallel, Serial};

/// How many elements an array with these sizes and strides reaches over.
fn extent(dims: &[(usize, usize)]) -> Option<usize> {
    if dims.iter().any(|d| d.0 == 0) {
        return Some(0);
    }
    dims.iter().try_fold(1usize, |sum, &(size, stride)| sum.checked_add((size - 1).checked_mul(stride)?))
}
