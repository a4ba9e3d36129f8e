//! From loop programs to LLVM code.
//!
//! [`schedule`] decides in which loop each item is computed and how many lanes each loop has; [`kernel`] writes the
//! loops; [`memory`] the loads and stores; [`fold`] the folds.

pub(crate) mod fold;
pub(crate) mod ir;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod schedule;
pub(crate) mod tile;
pub(crate) mod value;
