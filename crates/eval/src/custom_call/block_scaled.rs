//! Block-scaled numbers, `__op$quantize`, `__op$dequantize` and `__op$block_scaled_dot`: elements of few bits in blocks
//! along the last dimension, with a scale for each block.

use super::gemm::largest_finite;
use super::{CustomCalls, shaped, unsupported};
use crate::interpreter::{Device, OperandValues};
use crate::ops::contraction::dot;
use crate::ops::data_movement::broadcast;
use crate::ops::elementwise::{binary, convert, unary};
use hloom_ir::attributes::DotDimensionNumbers;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::op::{BinaryOp, UnaryOp};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};

pub(super) fn register(calls: &mut CustomCalls) {
    calls.register("__op$quantize", Box::new(quantize));
    calls.register("__op$dequantize", Box::new(dequantize));
    calls.register("__op$block_scaled_dot", Box::new(block_scaled_dot));
}

/// How many elements have a scale together, where an array of `dims` has scales of `scales`.
fn block_size(dims: &[i64], scales: &[i64]) -> Option<i64> {
    let ((&length, outer), (&blocks, scale_outer)) = (dims.split_last()?, scales.split_last()?);
    (outer == scale_outer && blocks > 0 && length % blocks == 0).then(|| length / blocks)
}

/// Each scale for all elements of its block.
fn spread(scales: Array, dims: &[i64]) -> Result<Option<Array>, ExecutionError> {
    let Some(block) = block_size(dims, scales.dims()) else { return Ok(None) };
    let blocked: DimVec = scales.dims().iter().copied().chain([block]).collect();
    let along: DimVec = (0..scales.rank() as i64).collect();
    broadcast(&scales, &blocked, &along)?.reshaped(dims).map(Some)
}

/// Elements times the scales of their blocks.
fn scaled(array: Array, scales: Array, to: ElementType) -> Result<Option<Array>, ExecutionError> {
    let Some(scales) = spread(convert(scales, to)?, array.dims())? else { return Ok(None) };
    binary(BinaryOp::Multiply, convert(array, to)?, scales, to).map(Some)
}

/// The largest magnitude of each block becomes the largest power of two of the narrow type; that ratio is the scale.
fn quantize(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let shape = &device.module()[i].shape;
    let [input] = crate::ops::arrays(operands)?;
    let parts: Option<Vec<&ArrayShape>> = shape.as_tuple().map(|t| t.iter().filter_map(Shape::as_array).collect());
    let Some([narrow, scale]) = parts.as_deref() else {
        return Err(unsupported(device, i, "its result is not a tuple of numbers and scales"));
    };
    let block = block_size(input.dims(), scale.dims()).filter(|_| narrow.dims() == input.dims());
    let block = block.ok_or_else(|| unsupported(device, i, "its scales do not divide its operand into blocks"))?;
    if !narrow.element_type.is_small_float() {
        return Err(unsupported(device, i, &format!("it makes numbers of type {}", narrow.element_type)));
    }
    let of = input.element_type();
    let magnitudes = convert(unary(UnaryOp::Abs, input.clone(), of)?, ElementType::F64)?;
    let power = largest_finite(narrow.element_type)?.log2().floor().exp2();
    let ratios = magnitudes.elements::<f64>().chunks_exact(block.max(1) as usize);
    let ratios: Vec<f64> = ratios.map(|b| b.iter().copied().fold(0.0, f64::max) / power).collect();
    let ratios = Array::from_elements(ElementType::F64, scale.dims(), &ratios)?;
    let scales = convert(convert(ratios, of)?, scale.element_type)?;
    let spread = spread(convert(scales.clone(), of)?, input.dims())?;
    let spread = spread.ok_or_else(|| ExecutionError::bug("blocks were counted before"))?;
    let numbers = convert(binary(BinaryOp::Divide, input, spread, of)?, narrow.element_type)?;
    shaped(shape, vec![Value::Array(numbers), Value::Array(scales)])
}

fn dequantize(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let [array, scales] = crate::ops::arrays(operands)?;
    let to = device.module()[i].shape.element_type();
    let to = to.ok_or_else(|| unsupported(device, i, "its result is no array"))?;
    let result = scaled(array, scales, to)?;
    let result = result.ok_or_else(|| unsupported(device, i, "its scales do not divide its operand into blocks"))?;
    Ok(Value::Array(result))
}

/// Products of rows of both sides, which may be in batches, after their elements are scaled; the right side may have no
/// scales.
fn block_scaled_dot(
    device: &mut Device<'_>,
    i: InstructionId,
    operands: OperandValues,
) -> Result<Value, ExecutionError> {
    let to = device.module()[i].shape.element_type();
    let to = to.ok_or_else(|| unsupported(device, i, "its result is no array"))?;
    let mut arrays = operands.into_iter().map(Value::into_array);
    let mut next = || arrays.next().transpose();
    let (Some(lhs), Some(rhs), Some(lhs_scales)) = (next()?, next()?, next()?) else {
        return Err(unsupported(device, i, "it needs two operands and a scale"));
    };
    let rhs_scales = next()?;
    let compute = ElementType::F32;
    let blocks = || unsupported(device, i, "its scales do not divide its operands into blocks");
    let lhs = scaled(lhs, lhs_scales, compute)?.ok_or_else(blocks)?;
    let rhs = match rhs_scales {
        Some(scales) => scaled(rhs, scales, compute)?.ok_or_else(blocks)?,
        None => convert(rhs, compute)?,
    };
    let rank = lhs.rank();
    if rank < 2 || rhs.rank() != rank || lhs.dims()[rank - 1] != rhs.dims()[rank - 1] {
        return Err(unsupported(device, i, "the last dimensions of its operands differ"));
    }
    let batch: DimVec = (0..rank as i64 - 2).collect();
    if batch.iter().any(|&d| lhs.dims()[d as usize] != rhs.dims()[d as usize]) {
        return Err(unsupported(device, i, "its operands are batches of different sizes"));
    }
    let last: DimVec = [rank as i64 - 1].into_iter().collect();
    let dims = DotDimensionNumbers {
        lhs_contracting: last.clone(),
        rhs_contracting: last,
        lhs_batch: batch.clone(),
        rhs_batch: batch,
    };
    Ok(Value::Array(convert(dot(lhs, rhs, &dims, compute)?, to)?))
}
