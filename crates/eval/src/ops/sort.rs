//! Sort by any comparator, and top-k.
//!
//! The sort is a merge sort of our own: it is stable, and it ends with some permutation even if the program's comparator
//! is no order at all, which the standard library's may answer with a panic.

use crate::fold::Fold;
use crate::interpreter::{Device, OperandValues};
use crate::ops::arrays;
use crate::ops::data_movement::transpose;
use crate::ops::elementwise;
use crate::ops::reduction::same_sizes;
use crate::scalar::Scalar;
use hloom_ir::attributes::{ComparisonDirection, ComparisonType};
use hloom_ir::diagnostic::codes;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::layout::DimVec;
use hloom_ir::op::Op;
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};

/// Evaluates one instruction of this family.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    match &module[i].op {
        Op::Sort { dimension, to_apply, .. } => {
            let is_tuple = module[i].shape.is_tuple();
            let arrays = operands.into_iter().map(Value::into_array).collect::<Result<Vec<_>, _>>()?;
            let sorted = sort_by(device, arrays, *dimension as usize, *to_apply)?;
            let mut values = sorted.into_iter().map(Value::Array);
            if is_tuple {
                return Ok(Value::Tuple(values.collect()));
            }
            values.next().ok_or_else(|| ExecutionError::bug("sort has no operand"))
        }
        Op::TopK { k, largest, .. } => {
            let [operand] = arrays(operands)?;
            top_k(operand, *k, *largest)
        }
        other => Err(ExecutionError::bug(format!("{} does not sort", other.opcode()))),
    }
}

/// Sorts all arrays together along `dimension`, in the order that the comparator `to_apply` gives.
pub fn sort_by(
    device: &mut Device<'_>,
    arrays: Vec<Array>,
    dimension: usize,
    to_apply: ComputationId,
) -> Result<Vec<Array>, ExecutionError> {
    let keys = arrays.len();
    sort_by_keys(device, arrays, keys, dimension, to_apply)
}

/// Sorts all arrays together along `dimension`, in the order that the comparator `to_apply` gives to the first `keys`.
pub fn sort_by_keys(
    device: &mut Device<'_>,
    arrays: Vec<Array>,
    keys: usize,
    dimension: usize,
    to_apply: ComputationId,
) -> Result<Vec<Array>, ExecutionError> {
    let types: Vec<ElementType> = arrays.iter().take(keys).flat_map(|a| [a.element_type(); 2]).collect();
    same_sizes(&arrays)?;
    let mut less = Fold::new(device, to_apply, &types, &[ElementType::Pred])?;
    let mut arguments = vec![Scalar::default(); types.len()];
    sort_rows(arrays, dimension, |rows, a, b| {
        for (pair, row) in arguments.chunks_exact_mut(2).zip(rows) {
            pair[0] = Scalar::load(row, a);
            pair[1] = Scalar::load(row, b);
        }
        Ok(less.apply(device, &arguments)?[0].0 != 0)
    })
}

/// Sorts all arrays together along `dimension` by the bits of the first, as a radix sort does: zeros of both signs are
/// equal, and NaNs stand beyond the infinity of their sign.
pub fn radix_sort(arrays: Vec<Array>, dimension: usize, descending: bool) -> Result<Vec<Array>, ExecutionError> {
    same_sizes(&arrays)?;
    let element_type = arrays.first().ok_or_else(|| ExecutionError::bug("sort has no operand"))?.element_type();
    let direction = if descending { ComparisonDirection::Gt } else { ComparisonDirection::Lt };
    let kind = element_type.is_float().then_some(ComparisonType::TotalOrder);
    let before = elementwise::compare_function(direction, kind, element_type);
    let equal = elementwise::compare_function(ComparisonDirection::Eq, None, element_type);
    let (Some(before), Some(equal)) = (before, equal) else {
        return Err(ExecutionError::new(&codes::eval::UNSUPPORTED, format!("{element_type} has no order")));
    };
    sort_rows(arrays, dimension, |rows, a, b| {
        let (a, b) = (Scalar::load(&rows[0], a), Scalar::load(&rows[0], b));
        Ok(before(a, b).0 != 0 && equal(a, b).0 == 0)
    })
}

/// Sorts all arrays together along `dimension`. `less(rows, a, b)` compares positions `a` and `b` of the arrays given to
/// it, which have the sorted dimension last.
fn sort_rows(
    arrays: Vec<Array>,
    dimension: usize,
    mut less: impl FnMut(&[Array], usize, usize) -> Result<bool, ExecutionError>,
) -> Result<Vec<Array>, ExecutionError> {
    let rank = arrays.first().ok_or_else(|| ExecutionError::bug("sort has no operand"))?.rank();
    if dimension >= rank {
        return Err(ExecutionError::bug("sort has no such dimension"));
    }
    // Swapping the sorted dimension with the last is its own inverse.
    let mut order: DimVec = (0..rank as i64).collect();
    order.swap(dimension, rank - 1);
    let rows = arrays.into_iter().map(|a| transpose(a, &order)).collect::<Result<Vec<_>, _>>()?;
    let length = rows[0].dims()[rank - 1] as usize;
    let mut permutation: Vec<usize> = (0..rows[0].len()).collect();
    let mut scratch = permutation.clone();
    for row in 0..rows[0].len().checked_div(length).unwrap_or(0) {
        let range = row * length..(row + 1) * length;
        merge_sort(&mut permutation[range.clone()], &mut scratch[range], &mut |a, b| less(&rows, a, b))?;
    }
    rows.into_iter().map(|a| transpose(permuted(&a, &permutation)?, &order)).collect()
}

/// The elements of `array` in the order of `positions`.
fn permuted(array: &Array, positions: &[usize]) -> Result<Array, ExecutionError> {
    let mut result = Array::zeroed(array.element_type(), array.dims())?;
    let width = array.element_type().bytes();
    for (to, &from) in result.bytes_mut().chunks_exact_mut(width).zip(positions) {
        to.copy_from_slice(&array.bytes()[from * width..(from + 1) * width]);
    }
    Ok(result)
}

/// Sorts `items` stably, bottom up; `scratch` is as long.
fn merge_sort(
    items: &mut [usize],
    scratch: &mut [usize],
    less: &mut impl FnMut(usize, usize) -> Result<bool, ExecutionError>,
) -> Result<(), ExecutionError> {
    let mut width = 1;
    while width < items.len() {
        for start in (0..items.len()).step_by(2 * width) {
            let middle = (start + width).min(items.len());
            let end = (start + 2 * width).min(items.len());
            let (mut a, mut b) = (start, middle);
            for out in &mut scratch[start..end] {
                // The right one goes first only if it is truly less: equal elements keep their order.
                let right = b < end && (a >= middle || less(items[b], items[a])?);
                let from = if right { &mut b } else { &mut a };
                *out = items[*from];
                *from += 1;
            }
        }
        items.copy_from_slice(scratch);
        width *= 2;
    }
    Ok(())
}

/// The `k` largest (or smallest) elements of each row, in order, and where they were.
pub fn top_k(operand: Array, k: i64, largest: bool) -> Result<Value, ExecutionError> {
    let rank = operand.rank();
    let last = operand.dims().last().copied().ok_or_else(|| ExecutionError::bug("top-k needs a dimension"))?;
    let k = k.clamp(0, last);
    let direction = if largest { ComparisonDirection::Gt } else { ComparisonDirection::Lt };
    let element_type = operand.element_type();
    let kind = element_type.is_float().then_some(ComparisonType::TotalOrder);
    let less = elementwise::compare_function(direction, kind, element_type)
        .ok_or_else(|| ExecutionError::new(&codes::eval::UNSUPPORTED, format!("{element_type} has no order")))?;
    let length = last as usize;
    let mut positions: Vec<usize> = (0..operand.len()).collect();
    let mut scratch = positions.clone();
    let mut dims: DimVec = operand.dims().into();
    dims[rank - 1] = k;
    let mut values = Array::zeroed(element_type, &dims)?;
    let mut indices = Array::zeroed(ElementType::S32, &dims)?;
    let width = element_type.bytes();
    for row in 0..operand.len().checked_div(length).unwrap_or(0) {
        let range = row * length..(row + 1) * length;
        merge_sort(&mut positions[range.clone()], &mut scratch[range], &mut |a, b| {
            Ok(less(Scalar::load(&operand, a), Scalar::load(&operand, b)).0 != 0)
        })?;
        for n in 0..k as usize {
            let (from, to) = (positions[row * length + n], row * k as usize + n);
            values.bytes_mut()[to * width..(to + 1) * width]
                .copy_from_slice(&operand.bytes()[from * width..(from + 1) * width]);
            indices.elements_mut::<i32>()[to] = (from - row * length) as i32;
        }
    }
    Ok(Value::Tuple(vec![Value::Array(values), Value::Array(indices)]))
}
