//! Reductions of rows in the middle of a fusion: the largest score, or the sum of the weights, of an attention.
//!
//! A reduction ends a loop, since its result is there only when all of a row has been read. But where a window holds whole
//! rows, the rest of the row can follow in the same window, and what is between is never stored. A window of a product
//! holds whole rows of its result if the product sums over so little that the other operand of a whole row lies near, and
//! whole rows of an operand if each makes so few results that the row is worked on once.

use crate::edit::array_of;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;

/// The longest row that a window holds, in elements.
const LONGEST_ROW: i64 = 8192;
/// The most that a product may sum over, or make of a row.
const MOST_BESIDE: i64 = 256;

/// The length of the rows that a reduction takes together, if a window could hold whole ones.
pub(super) fn row(module: &Module, reduction: InstructionId) -> Option<i64> {
    let (Op::Reduce { dimensions, .. }, &[values, _]) = (&module[reduction].op, module[reduction].operands()) else {
        return None;
    };
    let (array, &[dimension]) = (array_of(module, values)?, dimensions.as_slice()) else { return None };
    let size = *array.dims().get(usize::try_from(dimension).ok()?)?;
    let is_minor = array.minor_to_major().iter().take(2).any(|&d| d == dimension);
    (is_minor && (2..=LONGEST_ROW).contains(&size)).then_some(size)
}

/// Whether the windows of a product's result can hold whole rows of it.
pub(super) fn in_result(module: &Module, convolution: InstructionId) -> bool {
    let (Op::Convolution(attributes), Some(&lhs)) = (&module[convolution].op, module[convolution].operands().first())
    else {
        return false;
    };
    let feature = usize::try_from(attributes.dims.input_feature).ok();
    let summed = feature.and_then(|f| array_of(module, lhs)?.dims().get(f).copied());
    summed.is_some_and(|n| n <= MOST_BESIDE)
}

/// Whether the windows of operand `n` of a product can hold whole rows of that length.
pub(super) fn in_operand(module: &Module, convolution: InstructionId, n: usize, row: i64) -> bool {
    let count = |i: InstructionId| array_of(module, i).and_then(|a| a.element_count());
    let operand = module[convolution].operands().get(n).and_then(|&o| count(o));
    match (operand, count(convolution)) {
        (Some(operand), Some(result)) if operand > 0 => result.saturating_mul(row) / operand <= MOST_BESIDE,
        _ => false,
    }
}
