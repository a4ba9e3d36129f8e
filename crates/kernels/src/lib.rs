//! Kernels that are written by hand because a generic loop would lose: sorting and convolutions.
//!
//! Nothing here knows HLO. A kernel is told sizes and strides, in elements, and gets slices; it checks that the slices
//! are long enough for what it was told, so its interface is safe. Work is shared through [`Parallel`], which the caller
//! brings; how it is cut depends on the sizes alone, so that results do not depend on the number of threads.

pub mod convolution;
pub mod number;
pub mod parallel;
pub mod sort;

pub use parallel::{Parallel, Serial};
