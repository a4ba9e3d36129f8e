//! Linear algebra on GPUs, `__cusolver$cholesky` and `__cublas$triangularSolve`, and the element-wise functions that XLA's
//! builder leaves as calls.

use super::{CustomCalls, config, shaped, unsupported};
use crate::interpreter::{Device, OperandValues};
use crate::linear_algebra::triangular::TriangularSystem;
use crate::ops::elementwise;
use crate::ops::linear_algebra::{cholesky, triangular_solve};
use hloom_ir::attributes::TransposeA;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::UnaryOp;
use hloom_value::ExecutionError;
use hloom_value::Value;

pub(super) fn register(calls: &mut CustomCalls) {
    calls.register("__cusolver$cholesky", Box::new(cusolver_cholesky));
    calls.register("__cublas$triangularSolve", Box::new(cublas_triangular_solve));
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

/// The solution, and a workspace.
fn cublas_triangular_solve(
    device: &mut Device<'_>,
    i: InstructionId,
    operands: OperandValues,
) -> Result<Value, ExecutionError> {
    let options = config(device, i)?;
    let is = |key: &str| options.get(key).is_some_and(|v| v.as_bool() == Some(true) || v.as_str() == Some("true"));
    let transpose_a = match options.get("transpose_a").and_then(|t| t.as_str()).unwrap_or("NO_TRANSPOSE") {
        "NO_TRANSPOSE" | "TRANSPOSE_INVALID" => TransposeA::None,
        "TRANSPOSE" => TransposeA::Transpose,
        "ADJOINT" => TransposeA::Adjoint,
        other => return Err(unsupported(device, i, &format!("transpose_a cannot be {other}"))),
    };
    let (left_side, lower, unit_diagonal) = (is("left_side"), is("lower"), is("unit_diagonal"));
    let [a, b] = crate::ops::arrays(operands)?;
    let ([leading @ .., n, columns], [batch @ .., rows, width]) = (a.dims(), b.dims()) else {
        return Err(unsupported(device, i, "its operands are not matrices"));
    };
    if n != columns || leading != batch || n != if left_side { rows } else { width } {
        return Err(unsupported(device, i, "rows and columns of its operands do not go together"));
    }
    let system = TriangularSystem { left_side, lower, unit_diagonal, transpose_a };
    shaped(&device.module()[i].shape, vec![Value::Array(triangular_solve(a, b, system)?)])
}
