//! From loop programs to LLVM code.
//!
//! [`schedule`] decides in which loop each item is computed and how many lanes each loop has; [`kernel`] writes the
//! loops; [`memory`] the loads and stores, [`register`] those of arrays in registers; [`fold`] the folds;
//! [`region`] puts kernels, loops and branches together in one function.

pub(crate) mod fold;
pub(crate) mod ir;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod precision;
pub(crate) mod region;
pub(crate) mod register;
pub(crate) mod schedule;
pub(crate) mod tile;
pub(crate) mod value;
