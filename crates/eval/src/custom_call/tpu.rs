//! Calls found in scheduled TPU programs: memory read as another array, promises about indices, 64-bit numbers as pairs of
//! 32-bit ones, and the kernels that linear algebra is expanded to.

use super::{CustomCalls, shaped, unsupported};
use crate::interpreter::{Device, OperandValues};
use crate::ops::bitcast::concat_bitcast;
use crate::ops::linear_algebra::{cholesky, inverse_of_triangle};
use crate::padding::CONCAT_BITCAST;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_value::ExecutionError;
use hloom_value::array::{Array, Value};

/// Calls that promise something of indices, or say how they are kept in registers, and give them as they are.
const INDICES: [&str; 3] =
    ["AssumeGatherIndicesInBound", "AssumeScatterIndicesInBound", "GatherScatterIndicesBitpacked"];

pub(super) fn register(calls: &mut CustomCalls) {
    calls.register(CONCAT_BITCAST, Box::new(concat));
    for target in INDICES {
        calls.register(target, Box::new(|_, _, operands| one(operands).map(Value::Array)));
    }
    calls.register("X64SplitLow", Box::new(|device, i, operands| split(device, i, operands, false)));
    calls.register("X64SplitHigh", Box::new(|device, i, operands| split(device, i, operands, true)));
    calls.register("X64Combine", Box::new(combine));
    calls.register("Cholesky", Box::new(factor));
    for (target, lower) in [("InvertDiagBlocksLowerTriangular", true), ("InvertDiagBlocksUpperTriangular", false)] {
        calls.register(
            target,
            Box::new(move |_, _, operands| inverse_of_triangle(one(operands)?, lower).map(Value::Array)),
        );
    }
}

fn one(operands: OperandValues) -> Result<Array, ExecutionError> {
    operands.into_iter().next().ok_or_else(|| ExecutionError::bug("a custom call has no operand"))?.into_array()
}

/// The operands, one after another in memory, read as the result.
fn concat(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    let Some(to) = module[i].shape.as_array() else { return Err(unsupported(device, i, "its result is no array")) };
    let mut parts = Vec::with_capacity(operands.len());
    for (value, &o) in operands.into_iter().zip(module[i].operands()) {
        let Some(from) = module[o].shape.as_array() else {
            return Err(unsupported(device, i, "an operand is no array"));
        };
        parts.push((value.into_array()?, from));
    }
    concat_bitcast(parts, to, 0).map(Value::Array)
}

/// A half of each number: of an integer 32 of its bits, of a float the nearest f32, and what is left of it.
fn split(
    device: &mut Device<'_>,
    i: InstructionId,
    operands: OperandValues,
    high: bool,
) -> Result<Value, ExecutionError> {
    use ElementType::*;
    let whole = one(operands)?;
    let Some(to) = device.module()[i].shape.element_type() else {
        return Err(unsupported(device, i, "its result is no array"));
    };
    let bits = |x: u64| if high { (x >> 32) as u32 } else { x as u32 };
    let half = |x: f64| {
        let nearest = x as f32;
        let rest = if nearest.is_finite() { (x - f64::from(nearest)) as f32 } else { 0.0 };
        if high { nearest } else { rest }
    };
    let halves = match (whole.element_type(), to) {
        (U64 | S64, U32 | S32) => {
            let halves: Vec<u32> = whole.elements::<u64>().iter().map(|&x| bits(x)).collect();
            Array::from_elements(to, whole.dims(), &halves)
        }
        (F64, F32) | (C128, C64) => {
            let halves: Vec<f32> = bytemuck::cast_slice(whole.bytes()).iter().map(|&x| half(x)).collect();
            Array::from_bytes(to, whole.dims(), bytemuck::cast_slice(&halves))
        }
        (from, _) => return Err(unsupported(device, i, &format!("it splits {from} into {to}"))),
    };
    halves.map(Value::Array)
}

/// Numbers out of their low and high halves.
fn combine(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    use ElementType::*;
    let [low, high] = crate::ops::arrays(operands)?;
    let Some(to) = device.module()[i].shape.element_type() else {
        return Err(unsupported(device, i, "its result is no array"));
    };
    let are_integers = [&low, &high].iter().all(|half| matches!(half.element_type(), U32 | S32));
    if low.dims() != high.dims() || low.element_type() != high.element_type() && !are_integers {
        return Err(unsupported(device, i, "its halves differ in shape"));
    }
    let numbers = match (low.element_type(), to) {
        // Of a number with a sign the high half may have it, too.
        (U32 | S32, U64 | S64) => {
            let pairs = low.elements::<u32>().iter().zip(high.elements::<u32>());
            let numbers: Vec<u64> = pairs.map(|(&low, &high)| u64::from(high) << 32 | u64::from(low)).collect();
            Array::from_elements(to, low.dims(), &numbers)
        }
        (F32, F64) | (C64, C128) => {
            let halves = |a: &Array| -> Vec<f64> {
                bytemuck::cast_slice(a.bytes()).iter().map(|&x: &f32| f64::from(x)).collect()
            };
            let numbers: Vec<f64> = halves(&low).iter().zip(halves(&high)).map(|(low, high)| high + low).collect();
            Array::from_bytes(to, low.dims(), bytemuck::cast_slice(&numbers))
        }
        (from, _) => return Err(unsupported(device, i, &format!("it combines {from} into {to}"))),
    };
    numbers.map(Value::Array)
}

/// The lower Cholesky factor; all NaN where there is none, and then what else the result has is zero.
fn factor(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let factor = cholesky(one(operands)?, true)?;
    shaped(&device.module()[i].shape, vec![Value::Array(factor)])
}
