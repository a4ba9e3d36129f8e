//! Weights that a loop multiplies by in every iteration, and whose rows the products sum along: kernels for matrices
//! would bring them into another order each time. They are transposed, for [`super::hoist`] to do that once, before the
//! loop.

use super::{Loop, element_of, trip_count};
use crate::rules::beside;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;

/// Products of so many rows: of one the weights are read as they lie, and of many the order costs little beside the rest.
const ROWS: std::ops::RangeInclusive<i64> = 2..=512;
/// Smaller weights stay near; larger ones should not be in memory twice.
const BYTES: std::ops::RangeInclusive<i64> = 1 << 15..=1 << 26;
/// Loops of fewer iterations are left alone.
const MIN_ITERATIONS: u64 = 8;

/// Transposes the weights of a loop, where it stands that the loop runs for long; says how many.
pub(super) fn transpose_weights(module: &mut Module, plain: &Loop) -> usize {
    if trip_count::trip_count(module, plain).is_none_or(|iterations| iterations < MIN_ITERATIONS) {
        return 0;
    }
    let body = module[plain.body].instructions();
    let found: Vec<InstructionId> = body.iter().copied().filter(|&i| sums_along_rows(module, plain, i)).collect();
    found.into_iter().filter(|&i| transpose(module, i).is_some()).count()
}

/// Whether `i` is a product of a few rows with weights that never change, summed along the weights' rows.
fn sums_along_rows(module: &Module, plain: &Loop, i: InstructionId) -> bool {
    let (Op::Dot(dot), &[_, weights]) = (&module[i].op, module[i].operands()) else { return false };
    let (Some(result), Some(array)) = (module[i].shape.as_array(), module[weights].shape.as_array()) else {
        return false;
    };
    let &[rows, _] = result.dims() else { return false };
    let is_carried = element_of(module, weights, plain.body_parameter).is_some_and(|n| plain.is_invariant(module, n));
    let has_form = array.rank() == 2 && *dot.dims.rhs_contracting == [1] && dot.dims.rhs_batch.is_empty();
    is_carried && has_form && ROWS.contains(&rows) && array.byte_size().is_some_and(|bytes| BYTES.contains(&bytes))
}

fn transpose(module: &mut Module, i: InstructionId) -> Option<()> {
    let (Op::Dot(dot), &[rows, weights]) = (&module[i].op, module[i].operands()) else { return None };
    let mut dot = dot.clone();
    dot.dims.rhs_contracting = [0].into_iter().collect();
    let shape = module[i].shape.as_array()?.clone();
    let mut b = beside(module, i);
    let turned = b.transpose(weights, [1, 0]).ok()?;
    let product = b.push_shaped(Op::Dot(dot), &[rows, turned], shape).ok()?;
    module.replace_all_uses(i, product).ok()
}
