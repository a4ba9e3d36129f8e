//! Element-wise operations: what is computed at each position depends on the operands at that position alone.
//!
//! For each operation and type there is one function of elements, chosen once per instruction; from it come the loop over
//! arrays and the function pointer that [`crate::scalar`] programs call. Where the types of float operands and result
//! differ (mixed precision), the widest of them is what is computed in.

mod align;
mod binary;
mod bits;
mod compare;
mod complex;
mod convert;
mod element;
mod float_functions;
mod integer;
mod kernel;
mod unary;

use crate::interpreter::{Device, OperandValues};
use crate::ops::arrays;
use crate::scalar::{Function1, Function2, Function3};
use hloom_ir::attributes::{ComparisonDirection, ComparisonType};
use hloom_ir::diagnostic::codes;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::{BinaryOp, Op, UnaryOp};
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};

pub(crate) use bits::bitcast_convert;

/// Evaluates one instruction of this family.
pub fn evaluate(
    device: &mut Device<'_>,
    i: InstructionId,
    mut operands: OperandValues,
) -> Result<Value, ExecutionError> {
    let module = device.module();
    let instruction = &module[i];
    align::align(&mut operands, instruction.operands().iter().map(|&o| &module[o].shape))?;
    let result = match &instruction.op {
        Op::Select => return select(instruction.shape.element_type(), operands),
        op => {
            let shape = instruction.shape.as_array();
            let to = shape.ok_or_else(|| ExecutionError::bug(format!("{} makes an array", op.opcode())))?.element_type;
            match op {
                Op::Unary { op, .. } => {
                    let [a] = arrays(operands)?;
                    unary(*op, a, to)?
                }
                Op::Binary(op) => {
                    let [a, b] = arrays(operands)?;
                    binary(*op, a, b, to)?
                }
                Op::Compare { direction, kind } => {
                    let [a, b] = arrays(operands)?;
                    compare(*direction, *kind, a, b)?
                }
                Op::Clamp => {
                    let [low, a, high] = arrays(operands)?;
                    clamp(low, a, high, to)?
                }
                Op::Convert => {
                    let [a] = arrays(operands)?;
                    convert(a, to)?
                }
                Op::BitcastConvert => {
                    let [a] = arrays(operands)?;
                    bitcast_convert(a, to)?
                }
                Op::ReducePrecision { exponent_bits, mantissa_bits } => {
                    let [a] = arrays(operands)?;
                    convert(bits::reduce_precision(a, *exponent_bits, *mantissa_bits)?, to)?
                }
                Op::StochasticConvert => {
                    let [a, random] = arrays(operands)?;
                    bits::stochastic_convert(a, random, to)?
                }
                other => return Err(ExecutionError::bug(format!("{} is not element-wise", other.opcode()))),
            }
        }
    };
    Ok(Value::Array(result))
}

/// `op` of each element.
pub fn unary(op: UnaryOp, a: Array, to: ElementType) -> Result<Array, ExecutionError> {
    let from = a.element_type();
    let kernel = unary::unary(op, from).ok_or_else(|| no_type(op.opcode().name(), from))?;
    if kernel.result == to {
        return kernel.apply(a);
    }
    let wide = widest(from, to)?;
    let kernel = unary::unary(op, wide).ok_or_else(|| no_type(op.opcode().name(), wide))?;
    convert(kernel.apply(convert(a, wide)?)?, to)
}

/// `op` of the elements at each position.
pub fn binary(op: BinaryOp, a: Array, b: Array, to: ElementType) -> Result<Array, ExecutionError> {
    let mut from = widest(a.element_type(), b.element_type())?;
    if !to.is_complex() {
        from = widest(from, to)?;
    }
    let kernel = binary::binary(op, from).ok_or_else(|| no_type(op.opcode().name(), from))?;
    convert(kernel.apply(convert(a, from)?, convert(b, from)?)?, to)
}

/// A comparison of the elements at each position.
pub fn compare(
    direction: ComparisonDirection,
    kind: Option<ComparisonType>,
    a: Array,
    b: Array,
) -> Result<Array, ExecutionError> {
    let from = widest(a.element_type(), b.element_type())?;
    let kernel = compare::compare(direction, kind, from).ok_or_else(|| no_type("this comparison", from))?;
    kernel.apply(convert(a, from)?, convert(b, from)?)
}

/// Each element between two bounds, which may be scalars.
pub fn clamp(low: Array, a: Array, high: Array, to: ElementType) -> Result<Array, ExecutionError> {
    let from = widest(widest(low.element_type(), a.element_type())?, widest(high.element_type(), to)?)?;
    let kernel = compare::clamp(from).ok_or_else(|| no_type("clamp", from))?;
    convert((kernel.array)(convert(low, from)?, convert(a, from)?, convert(high, from)?)?, to)
}

/// Each element as the nearest of another type.
pub fn convert(a: Array, to: ElementType) -> Result<Array, ExecutionError> {
    let from = a.element_type();
    if from == to {
        return Ok(a);
    }
    convert::convert(from, to).ok_or_else(|| no_type("convert", from))?.apply(a)
}

fn select(to: Option<ElementType>, operands: OperandValues) -> Result<Value, ExecutionError> {
    let [which, on_true, on_false] = <[Value; 3]>::try_from(operands.into_vec())
        .map_err(|given| ExecutionError::bug(format!("select takes 3 operands, not {}", given.len())))?;
    let to_result_type = |v| match (v, to) {
        (Value::Array(a), Some(to)) => Ok(Value::Array(convert(a, to)?)),
        (v, _) => Ok(v),
    };
    compare::select(which.into_array()?, to_result_type(on_true)?, to_result_type(on_false)?)
}

/// The type that mixed operands are computed in: a float (or complex) type that holds the values of both.
fn widest(a: ElementType, b: ElementType) -> Result<ElementType, ExecutionError> {
    if a == b {
        return Ok(a);
    }
    if a.is_complex() && b.is_complex() {
        return Ok(ElementType::C128);
    }
    // The parts and the magnitude of complex numbers.
    if a.is_complex() && b.is_float() {
        return Ok(if b == ElementType::F64 { ElementType::C128 } else { a });
    }
    if !a.is_float() || !b.is_float() {
        return Err(ExecutionError::bug(format!("{a} and {b} cannot be mixed")));
    }
    Ok(if a == ElementType::F64 || b == ElementType::F64 { ElementType::F64 } else { ElementType::F32 })
}

fn no_type(operation: &str, t: ElementType) -> ExecutionError {
    ExecutionError::new(&codes::eval::UNSUPPORTED, format!("{operation} is not defined for {t}"))
}

/// `op` on one element of type `from`; `None` if the type does not have it.
pub fn unary_function(op: UnaryOp, from: ElementType) -> Option<Function1> {
    Some(unary::unary(op, from)?.scalar)
}
/// `op` on two elements of type `from`.
pub fn binary_function(op: BinaryOp, from: ElementType) -> Option<Function2> {
    Some(binary::binary(op, from)?.scalar)
}
/// A comparison of two elements of type `from`.
pub fn compare_function(
    direction: ComparisonDirection,
    kind: Option<ComparisonType>,
    from: ElementType,
) -> Option<Function2> {
    Some(compare::compare(direction, kind, from)?.scalar)
}
/// Conversion of one element.
pub fn convert_function(from: ElementType, to: ElementType) -> Option<Function1> {
    Some(convert::convert(from, to)?.scalar)
}
/// The same bits as an element of another type of as many bits.
pub fn convert_bits_function(from: ElementType, to: ElementType) -> Option<Function1> {
    bits::bitcast_convert_scalar(from, to)
}
/// The second or third by the first.
pub fn select_function() -> Function3 {
    |p, a, b| if p.0 != 0 { a } else { b }
}
/// The second between the first and the third.
pub fn clamp_function(from: ElementType) -> Option<Function3> {
    Some(compare::clamp(from)?.scalar)
}
