//! Linear algebra and selection libraries: `__cusolver$cholesky`, `TopK` and what approximates it, and the element-wise
//! functions that XLA's builder leaves as calls.

use super::{CustomCalls, config, shaped, unsupported};
use crate::interpreter::{Device, OperandValues};
use crate::ops::dynamic::resize;
use crate::ops::elementwise;
use crate::ops::linear_algebra::cholesky;
use crate::ops::sort::{sort_by, top_k};
use hloom_ir::entity::InstructionId;
use hloom_ir::op::UnaryOp;
use hloom_ir::shape::Shape;
use hloom_value::ExecutionError;
use hloom_value::Value;

pub(super) fn register(calls: &mut CustomCalls) {
    calls.register("__cusolver$cholesky", Box::new(cusolver_cholesky));
    calls.register("TopK", Box::new(top_k_call));
    for target in ["PartialReduce", "ApproxTopK"] {
        calls.register(target, Box::new(best_of_order));
    }
    for (name, op) in [
        ("Acos", UnaryOp::Acos),
        ("Acosh", UnaryOp::Acosh),
        ("Asin", UnaryOp::Asin),
        ("Asinh", UnaryOp::Asinh),
        ("Atanh", UnaryOp::Atanh),
        ("Cosh", UnaryOp::Cosh),
        ("Sinh", UnaryOp::Sinh),
        ("Erf", UnaryOp::Erf),
        ("Tan", UnaryOp::Tan),
    ] {
        let function = move |_: &mut Device<'_>, _: InstructionId, operands: OperandValues| {
            let [a] = crate::ops::arrays(operands)?;
            let to = a.element_type();
            elementwise::unary(op, a, to).map(Value::Array)
        };
        calls.register(format!("xla_builder.math.{name}"), Box::new(function));
    }
}

/// As many elements as the result has, the first in the order of a comparator. Where only approximate ones are asked for,
/// these are exact.
fn best_of_order(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    let config = config(device, i)?;
    let number = |v: &serde_json::Value| v.as_i64().or_else(|| v.as_str()?.parse().ok());
    let called = module[i].op.called_computations();
    let (Some(dimension), &[to_apply]) = (config.get("reduction_dim").and_then(number), &called[..]) else {
        return Err(unsupported(device, i, "it needs a reduction_dim and a comparator"));
    };
    let shape = &module[i].shape;
    let parts = shape.as_tuple().map_or_else(|| vec![shape], |t| t.iter().collect());
    // What follows the arrays is what each slice would begin with, which sorting does not need.
    let arrays = operands.into_iter().take(parts.len()).map(Value::into_array).collect::<Result<Vec<_>, _>>()?;
    let rank = arrays.first().map_or(0, |a| a.rank() as i64);
    let dimension = if dimension < 0 { dimension + rank } else { dimension };
    if !(0..rank).contains(&dimension) {
        return Err(unsupported(device, i, "its reduction_dim is no dimension of its operands"));
    }
    let sorted = sort_by(device, arrays, dimension as usize, to_apply)?;
    let mut values = Vec::with_capacity(parts.len());
    for (array, part) in sorted.iter().zip(&parts) {
        let Some(part) = part.as_array() else { return Err(unsupported(device, i, "its result is no array")) };
        values.push(Value::Array(resize(array, part.dims())?));
    }
    shaped(shape, values)
}

/// The factor, a workspace and an information word per matrix, which is zero: all went well.
fn cusolver_cholesky(
    device: &mut Device<'_>,
    i: InstructionId,
    operands: OperandValues,
) -> Result<Value, ExecutionError> {
    let options = config(device, i)?;
    let lower = options.get("lower").is_some_and(|l| l.as_bool() == Some(true) || l.as_str() == Some("true"));
    let [a] = crate::ops::arrays(operands)?;
    shaped(&device.module()[i].shape, vec![Value::Array(cholesky(a, lower)?)])
}

/// The k largest elements of each row and where they are; k is in the result's shape.
fn top_k_call(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let shape = &device.module()[i].shape;
    let values = shape.as_tuple().and_then(|t| t.first()).and_then(Shape::as_array);
    let k = values.and_then(|v| v.dims().last().copied());
    let k = k.ok_or_else(|| unsupported(device, i, "its result is not a tuple of values and indices"))?;
    let largest = config(device, i).ok().and_then(|c| c.get("largest").and_then(|l| l.as_bool())).unwrap_or(true);
    let [operand] = crate::ops::arrays(operands)?;
    top_k(operand, k, largest)
}
