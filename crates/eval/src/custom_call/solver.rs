//! Linear algebra and selection libraries: `__cusolver$cholesky`, `TopK`, and the element-wise functions that XLA's
//! builder leaves as calls.

use super::{CustomCalls, config, shaped, unsupported};
use crate::interpreter::{Device, OperandValues};
use crate::ops::elementwise;
use crate::ops::linear_algebra::cholesky;
use crate::ops::sort::top_k;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::UnaryOp;
use hloom_ir::shape::Shape;
use hloom_value::ExecutionError;
use hloom_value::Value;

pub(super) fn register(calls: &mut CustomCalls) {
    calls.register("__cusolver$cholesky", Box::new(cusolver_cholesky));
    calls.register("TopK", Box::new(top_k_call));
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
