//! Layout assignment: in which order the dimensions of values between operations lie.
//!
//! Every array is row-major, so an order of dimensions in memory is written as the order of the dimensions themselves, and
//! a change of it as a transpose. Products take operands in any order that they can read in strides (see
//! [`crate::rules::dot`]), operations on each element let transposes pass ([`crate::rules::motion`]), reductions too
//! ([`crate::rules::reductions`]). What is left to decide is in which order convolutions work ([`convolutions`]): their
//! dimension numbers can name any, so a transpose before or after one costs nothing, and a transpose is put there where
//! the kernels are much faster in the other order. What parameters and results of the program look like stays as it is.

mod convolutions;

use crate::pass::{Context, Pass};
use crate::rewrite::rewrite;
use hloom_ir::module::Module;

/// The pass.
pub static PASS: Pass = Pass {
    name: "layout-assignment",
    statement: "chooses the order of dimensions of convolutions: transposes around them go into their dimension numbers, or come from there where that pays",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[convolutions::RULES])),
};
