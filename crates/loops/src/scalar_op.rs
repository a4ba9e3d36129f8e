//! Which scalar operations kernels compute, on elements of which types.

use crate::graph::ScalarOp;
use crate::unsupported::Unsupported;
use hloom_ir::ElementType;
use hloom_ir::op::{BinaryOp, UnaryOp};

/// Whether kernels compute `op` on elements of those types.
pub(crate) fn check(op: ScalarOp, types: &[ElementType], to: ElementType) -> Result<(), Unsupported> {
    use ElementType::Pred;
    let fail = || {
        let from: Vec<&str> = types.iter().map(|t| t.name()).collect();
        Err(Unsupported::new(format!("{} from {} to {to}", name(op), from.join(", "))))
    };
    let fits = match (op, types) {
        (ScalarOp::Convert, &[from]) => !from.is_complex() || to.is_complex() || !to.is_integer() && to != Pred,
        (ScalarOp::BitcastConvert, &[from]) => {
            from.bits() == to.bits() && from != Pred && to != Pred && !from.is_complex() && !to.is_complex()
        }
        (ScalarOp::ReducePrecision { .. }, &[from]) => from == to && from.is_float(),
        (ScalarOp::Select, &[Pred, a, b]) => a == to && b == to,
        (ScalarOp::Clamp, &[a, b, c]) => a == to && b == to && c == to && !to.is_complex(),
        (ScalarOp::Compare { .. }, &[a, b]) => a == b && to == Pred,
        (ScalarOp::Unary(op), &[from]) => fits_unary(op, from, to),
        (ScalarOp::Binary(op), &[a, b]) => a == b && fits_binary(op, a, to),
        _ => false,
    };
    if fits { Ok(()) } else { fail() }
}

fn name(op: ScalarOp) -> &'static str {
    match op {
        ScalarOp::Unary(op) => op.opcode().name(),
        ScalarOp::Binary(op) => op.opcode().name(),
        ScalarOp::Compare { .. } => "compare",
        ScalarOp::Select => "select",
        ScalarOp::Clamp => "clamp",
        ScalarOp::Convert => "convert",
        ScalarOp::BitcastConvert => "bitcast-convert",
        ScalarOp::ReducePrecision { .. } => "reduce-precision",
    }
}

fn fits_unary(op: UnaryOp, from: ElementType, to: ElementType) -> bool {
    use UnaryOp::*;
    match op {
        IsFinite => from.is_float() && to == ElementType::Pred,
        Not => (from.is_integer() || from == ElementType::Pred) && from == to,
        PopulationCount | CountLeadingZeros => from.is_integer() && from == to,
        Real | Imag => from.component() == to && from.component().is_float(),
        Abs if from.is_complex() => to == from.component(),
        Abs | Negate => from == to && from != ElementType::Pred,
        _ if from.is_complex() => from == to && has_complex_function(op),
        Sign => from == to && from != ElementType::Pred,
        _ => from.is_float() && from == to,
    }
}

fn fits_binary(op: BinaryOp, from: ElementType, to: ElementType) -> bool {
    use BinaryOp::*;
    match op {
        Complex => from.complex() == Some(to),
        _ if from != to => false,
        Add | Multiply | Maximum | Minimum if from == ElementType::Pred => true,
        And | Or | Xor => from.is_integer() || from == ElementType::Pred,
        _ if from == ElementType::Pred => false,
        ShiftLeft | ShiftRightArithmetic | ShiftRightLogical | Mulhi => from.is_integer(),
        Add | Subtract | Multiply => true,
        Atan2 => from.is_float(),
        Divide => true,
        Power | Maximum | Minimum | Remainder => !from.is_complex(),
    }
}

/// Whether kernels compute `op` on complex numbers.
fn has_complex_function(op: UnaryOp) -> bool {
    use UnaryOp::*;
    matches!(
        op,
        Exponential | ExponentialMinusOne | Log | LogPlusOne | Logistic | Sine | Cosine | Tan | Tanh | Sqrt | Sign
    )
}
