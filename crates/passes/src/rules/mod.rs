//! Rules for single instructions, one file per family; the passes that are lists of them.

pub mod all_reduce;
pub mod arithmetic;
pub mod bf16;
mod bits;
pub mod collectives;
pub mod convert;
mod convolution;
mod convolution_call;
pub mod counting;
mod custom_call;
pub mod dot;
pub mod expand;
mod factor_call;
pub(crate) mod functions;
pub mod gathers;
pub mod logic;
pub mod motion;
pub(crate) mod numbers;
mod pooling;
mod random;
pub mod reductions;
mod scan;
mod scatter_loop;
pub mod shape;
pub mod slices;
pub mod sorts;
pub mod tuple;
pub mod windows;

use crate::pass::{Context, Pass};
use crate::rewrite::rewrite;
use hloom_ir::builder::Builder;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::shape::ArrayShape;

/// The pass that applies all rules that make less of a program, together.
pub static PASS: Pass = Pass {
    name: "simplify",
    statement: "all the passes named simplify-… that are rules for single instructions, at once",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| {
        let all = [
            tuple::RULES,
            convert::RULES,
            counting::RULES,
            shape::RULES,
            slices::RULES,
            gathers::RULES,
            reductions::RULES,
            windows::RULES,
            arithmetic::RULES,
            logic::RULES,
            collectives::RULES,
        ];
        Ok(rewrite(module, &all))
    },
};

/// The array that `i` makes.
pub fn array(module: &Module, i: InstructionId) -> Option<&ArrayShape> {
    module[i].shape.as_array()
}

/// The sizes of the array that `i` makes.
pub(crate) fn dims(module: &Module, i: InstructionId) -> Option<&[i64]> {
    array(module, i).map(ArrayShape::dims)
}

/// Operand `n` of `i`.
pub fn operand(module: &Module, i: InstructionId, n: usize) -> Option<InstructionId> {
    module[i].operands().get(n).copied()
}

/// A builder of instructions beside `i`.
pub fn beside(module: &mut Module, i: InstructionId) -> Builder<'_> {
    let parent = module[i].parent();
    Builder::resume(module, parent)
}

/// Whether `order` is 0, 1, 2, …
pub(crate) fn is_identity(order: &[i64]) -> bool {
    order.iter().enumerate().all(|(k, &d)| d == k as i64)
}

/// The order that undoes `order`.
pub(crate) fn inverse(order: &[i64]) -> Option<DimVec> {
    let mut inverse = DimVec::from_elem(0, order.len());
    for (k, &d) in order.iter().enumerate() {
        *inverse.get_mut(usize::try_from(d).ok()?)? = k as i64;
    }
    Some(inverse)
}
