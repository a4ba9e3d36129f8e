//! Dot with all its dimension numbers, and its ragged and scaled forms.

use super::{compute_type, converted, matrix_products};
use crate::ops::data_movement::{broadcast, concatenate, dynamic_slice, dynamic_update_slice, transpose};
use crate::ops::elementwise;
use hloom_ir::attributes::{DotAlgorithm, DotDimensionNumbers};
use hloom_ir::element_type::ElementType;
use hloom_ir::layout::DimVec;
use hloom_ir::op::{BinaryOp, RaggedDot};
use hloom_value::ExecutionError;
use hloom_value::array::{Array, index_count};

/// The dimensions of `array` that are in none of the lists.
fn rest(array: &Array, lists: [&[i64]; 2]) -> DimVec {
    (0..array.rank() as i64).filter(|d| !lists.iter().any(|l| l.contains(d))).collect()
}

fn sizes(array: &Array, dimensions: &[i64]) -> DimVec {
    dimensions.iter().map(|&d| array.dims()[d as usize]).collect()
}

/// The dot product: batch dimensions first, then the rest of the left, then the rest of the right.
pub fn dot(lhs: Array, rhs: Array, dims: &DotDimensionNumbers, to: ElementType) -> Result<Array, ExecutionError> {
    let compute = compute_type(lhs.element_type(), rhs.element_type(), to);
    let lhs_rest = rest(&lhs, [&dims.lhs_batch, &dims.lhs_contracting]);
    let rhs_rest = rest(&rhs, [&dims.rhs_batch, &dims.rhs_contracting]);
    let batch = sizes(&lhs, &dims.lhs_batch);
    let (rows, columns) = (sizes(&lhs, &lhs_rest), sizes(&rhs, &rhs_rest));
    let result_dims: DimVec = [&batch[..], &rows, &columns].concat().into();
    if result_dims.contains(&0) {
        return Array::zeroed(to, &result_dims);
    }
    let k = index_count(&sizes(&lhs, &dims.lhs_contracting));
    let lhs_order: DimVec = [&dims.lhs_batch[..], &lhs_rest, &dims.lhs_contracting].concat().into();
    let rhs_order: DimVec = [&dims.rhs_batch[..], &dims.rhs_contracting, &rhs_rest].concat().into();
    let lhs = transpose(converted(lhs, compute)?, &lhs_order)?;
    let rhs = transpose(converted(rhs, compute)?, &rhs_order)?;
    let [groups, m, n] = [&batch, &rows, &columns].map(|sizes| index_count(sizes));
    let result = matrix_products(groups, m, n, k, &lhs, &rhs)?;
    converted(result.reshaped(&result_dims)?, to)
}

/// An operand as `algorithm` reads it: rounded to the type that its products are made of. The forms that split an operand
/// into several narrow ones (x3, x6, x9) exist to give nearly the full precision, so they read it as it is; so does tf32,
/// which CPUs do not have.
pub(super) fn as_algorithm_reads(array: Array, algorithm: DotAlgorithm) -> Result<Array, ExecutionError> {
    let narrow = match algorithm {
        DotAlgorithm::Bf16Bf16Bf16 | DotAlgorithm::Bf16Bf16F32 => ElementType::Bf16,
        DotAlgorithm::F16F16F16 | DotAlgorithm::F16F16F32 => ElementType::F16,
        _ => return Ok(array),
    };
    match array.element_type() {
        ElementType::F32 | ElementType::F64 => converted(array, narrow),
        _ => Ok(array),
    }
}

/// `array` with each element multiplied by the scale of its block. A dimension of the scale divides the array's.
pub(super) fn scaled(array: Array, scale: Array) -> Result<Array, ExecutionError> {
    // A scalar scale is one that is not given.
    if scale.rank() == 0 && array.rank() != 0 && scale.len() == 1 {
        return converted(array, ElementType::F32);
    }
    // Split each dimension into (blocks, block), repeat the scale over the block.
    let mut split = DimVec::new();
    let mut kept = DimVec::new();
    for (d, (&size, &blocks)) in array.dims().iter().zip(scale.dims()).enumerate() {
        if blocks == 0 || size % blocks != 0 {
            return Err(ExecutionError::bug(format!("{blocks} scales do not divide {size} elements")));
        }
        split.extend([blocks, size / blocks]);
        kept.push(2 * d as i64);
    }
    let dims: DimVec = array.dims().into();
    let repeated = broadcast(&converted(scale, ElementType::F32)?, &split, &kept)?.reshaped(&dims)?;
    elementwise::binary(BinaryOp::Multiply, converted(array, ElementType::F32)?, repeated, ElementType::F32)
}

/// The dot product in which one dimension of the left is cut into groups of given sizes. Which dimension that is decides
/// what a group does: rows of the left meet the group's own right; parts of the sum go to results of their own; batches
/// are as before.
pub(super) fn ragged_dot(
    lhs: Array,
    rhs: Array,
    group_sizes: &Array,
    attributes: &RaggedDot,
    to: ElementType,
) -> Result<Array, ExecutionError> {
    let dims = &attributes.dims;
    let [ragged] = attributes.lhs_ragged[..] else {
        return Err(ExecutionError::bug("ragged-dot needs one ragged dimension"));
    };
    if dims.lhs_batch.contains(&ragged) {
        return dot(lhs, rhs, dims, to);
    }
    let groups = group_starts(group_sizes, &lhs, &dims.lhs_batch, ragged)?;
    let batches: Vec<DimVec> = hloom_value::strided::Indices::new(&sizes(&lhs, &dims.lhs_batch)).collect();
    if dims.lhs_contracting.contains(&ragged) {
        contracting_groups(&lhs, &rhs, dims, ragged, &groups, &batches, to)
    } else {
        row_groups(&lhs, &rhs, attributes, ragged, &groups, &batches, to)
    }
}

/// For each batch, where each group starts and ends along the ragged dimension.
fn group_starts(
    group_sizes: &Array,
    lhs: &Array,
    batch: &[i64],
    ragged: i64,
) -> Result<Vec<Vec<(i64, i64)>>, ExecutionError> {
    let limit = lhs.dims()[ragged as usize];
    let count = group_sizes.dims().last().copied().unwrap_or(0) as usize;
    let batches = index_count(&sizes(lhs, batch));
    let mut all = Vec::with_capacity(batches);
    for b in 0..batches {
        let offset = if group_sizes.rank() > 1 { b * count } else { 0 };
        let mut start = 0i64;
        let mut list = Vec::with_capacity(count);
        for g in 0..count {
            let end = start.saturating_add(group_sizes.integer_at(offset + g)?.max(0)).min(limit);
            list.push((start, end));
            start = end;
        }
        all.push(list);
    }
    Ok(all)
}

/// The part of `array` that lies in one batch and in `range` of one dimension; all dimensions are kept.
fn part(
    array: &Array,
    batch_dims: &[i64],
    batch: &[i64],
    dimension: i64,
    range: (i64, i64),
) -> Result<Array, ExecutionError> {
    let mut starts = DimVec::from_elem(0, array.rank());
    let mut part_sizes: DimVec = array.dims().into();
    for (&d, &b) in batch_dims.iter().zip(batch) {
        starts[d as usize] = b;
        part_sizes[d as usize] = 1;
    }
    starts[dimension as usize] = range.0;
    part_sizes[dimension as usize] = range.1 - range.0;
    dynamic_slice(array, &starts, &part_sizes)
}

fn row_groups(
    lhs: &Array,
    rhs: &Array,
    attributes: &RaggedDot,
    ragged: i64,
    groups: &[Vec<(i64, i64)>],
    batches: &[DimVec],
    to: ElementType,
) -> Result<Array, ExecutionError> {
    let dims = &attributes.dims;
    let [group_dim] = attributes.rhs_group[..] else {
        return Err(ExecutionError::bug("ragged-dot needs one group dimension"));
    };
    // The right of one group has no group dimension: the numbers of those after it shrink by one.
    let shrunk = |list: &[i64]| -> DimVec { list.iter().map(|&d| if d > group_dim { d - 1 } else { d }).collect() };
    let plain = DotDimensionNumbers {
        rhs_contracting: shrunk(&dims.rhs_contracting),
        rhs_batch: shrunk(&dims.rhs_batch),
        ..dims.clone()
    };
    let lhs_rest = rest(lhs, [&dims.lhs_batch, &dims.lhs_contracting]);
    let group_and_batch: DimVec = [&dims.rhs_batch[..], &[group_dim]].concat().into();
    let rhs_rest = rest(rhs, [&group_and_batch, &dims.rhs_contracting]);
    let result_dims: DimVec =
        [sizes(lhs, &dims.lhs_batch).to_vec(), sizes(lhs, &lhs_rest).to_vec(), sizes(rhs, &rhs_rest).to_vec()]
            .concat()
            .into();
    let mut result = Array::zeroed(to, &result_dims)?;
    let ragged_out = dims.lhs_batch.len() + lhs_rest.iter().position(|&d| d == ragged).unwrap_or(0);
    for (batch, list) in batches.iter().zip(groups) {
        for (g, &range) in list.iter().enumerate().filter(|(_, r)| r.0 < r.1) {
            let left = part(lhs, &dims.lhs_batch, batch, ragged, range)?;
            let right = part(rhs, &dims.rhs_batch, batch, group_dim, (g as i64, g as i64 + 1))?;
            let mut right_dims: DimVec = right.dims().into();
            right_dims.remove(group_dim as usize);
            let made = dot(left, right.reshaped(&right_dims)?, &plain, to)?;
            let mut starts = DimVec::from_elem(0, result.rank());
            starts[..batch.len()].copy_from_slice(batch);
            starts[ragged_out] = range.0;
            result = dynamic_update_slice(result, &made, &starts)?;
        }
    }
    Ok(result)
}

fn contracting_groups(
    lhs: &Array,
    rhs: &Array,
    dims: &DotDimensionNumbers,
    ragged: i64,
    groups: &[Vec<(i64, i64)>],
    batches: &[DimVec],
    to: ElementType,
) -> Result<Array, ExecutionError> {
    let position = dims.lhs_contracting.iter().position(|&d| d == ragged).unwrap_or(0);
    let rhs_ragged =
        *dims.rhs_contracting.get(position).ok_or_else(|| ExecutionError::bug("no such contracting dimension"))?;
    let count = groups.first().map_or(0, Vec::len);
    let mut results = Vec::with_capacity(count);
    for g in 0..count {
        let mut whole: Option<Array> = None;
        for (batch, list) in batches.iter().zip(groups) {
            let left = part(lhs, &dims.lhs_batch, batch, ragged, list[g])?;
            let right = part(rhs, &dims.rhs_batch, batch, rhs_ragged, list[g])?;
            let made = dot(left, right, dims, to)?;
            let mut result_dims: DimVec = made.dims().into();
            let mut starts = DimVec::from_elem(0, made.rank());
            for (d, &b) in batch.iter().enumerate() {
                result_dims[d] = lhs.dims()[dims.lhs_batch[d] as usize];
                starts[d] = b;
            }
            let so_far = whole.map_or_else(|| Array::zeroed(to, &result_dims), Ok)?;
            whole = Some(dynamic_update_slice(so_far, &made, &starts)?);
        }
        let whole = whole.ok_or_else(|| ExecutionError::bug("ragged-dot has no batch"))?;
        let with_group: DimVec = [&[1], whole.dims()].concat().into();
        results.push(whole.reshaped(&with_group)?);
    }
    concatenate(&results, 0)
}
