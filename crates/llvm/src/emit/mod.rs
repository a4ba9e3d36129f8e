//! From loop programs to LLVM code.
//!
//! [`kernel`] writes the loops as [`hloom_loops::schedule`] has decided; [`memory`] the loads and stores, [`register`] those of
//! arrays in registers; [`reduce`] the reductions; [`region`] puts kernels, loops and branches together in one function.

pub(crate) mod ir;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod reduce;
pub(crate) mod region;
pub(crate) mod register;
pub(crate) mod tile;
pub(crate) mod value;
