//! Sums of products: dot, ragged-dot, scaled-dot and convolution.
//!
//! All come down to matrix products of arrays brought into a plain form: operands are converted to the type that is
//! computed in ([`compute_type`]), their dimensions put in the order batch, row, column, and the result rounded once.

mod convolution;
mod dot;

use crate::interpreter::{Device, OperandValues};
use crate::matmul::Product;
use crate::ops::data_movement::array_shape;
use crate::ops::{arrays, elementwise};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::Op;
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};
use num_complex::Complex;

pub use convolution::convolution;
pub use dot::dot;

/// Evaluates one instruction of this family.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    let to = array_shape(&module[i].shape)?.element_type;
    let result = match &module[i].op {
        Op::Dot(attributes) => {
            let [lhs, rhs] = arrays(operands)?;
            let [lhs, rhs] = [lhs, rhs].map(|a| dot::as_algorithm_reads(a, attributes.precision.algorithm));
            dot(lhs?, rhs?, &attributes.dims, to)?
        }
        Op::ScaledDot(attributes) => {
            let [lhs, rhs, lhs_scale, rhs_scale] = arrays(operands)?;
            dot(dot::scaled(lhs, lhs_scale)?, dot::scaled(rhs, rhs_scale)?, &attributes.dims, to)?
        }
        Op::RaggedDot(attributes) => {
            let [lhs, rhs, group_sizes] = arrays(operands)?;
            dot::ragged_dot(lhs, rhs, &group_sizes, attributes, to)?
        }
        Op::Convolution(attributes) => {
            let mut operands = operands;
            operands.truncate(2);
            let [input, kernel] = arrays(operands)?;
            convolution(device, input, kernel, attributes, to)?
        }
        other => return Err(ExecutionError::bug(format!("{} is not a contraction", other.opcode()))),
    };
    Ok(Value::Array(result))
}

/// The type in which products of these types are made and summed for a result of type `to`: floats narrower than f32 in
/// f32, integers in the result's type, where sums wrap as they should.
pub fn compute_type(lhs: ElementType, rhs: ElementType, to: ElementType) -> ElementType {
    use ElementType::*;
    let types = [lhs, rhs, to];
    if types.contains(&C128) || (types.contains(&C64) && types.contains(&F64)) {
        C128
    } else if types.contains(&C64) {
        C64
    } else if types.contains(&F64) {
        F64
    } else if types.iter().any(|t| t.is_float()) {
        F32
    } else if to == Pred {
        // A sum of truths that is not zero is true.
        U64
    } else {
        match to {
            S1 | S2 | S4 => S8,
            U1 | U2 | U4 => U8,
            other => other,
        }
    }
}

/// `array` as an array of type `to`.
pub fn converted(array: Array, to: ElementType) -> Result<Array, ExecutionError> {
    elementwise::convert(array, to)
}

/// `groups` products of row-major m × k by k × n matrices that lie one after another.
fn matrix_products(
    groups: usize,
    m: usize,
    n: usize,
    k: usize,
    lhs: &Array,
    rhs: &Array,
) -> Result<Array, ExecutionError> {
    use ElementType::*;
    let mut result = Array::zeroed(lhs.element_type(), &[groups as i64, m as i64, n as i64])?;
    fn all<T: Product>(groups: usize, m: usize, n: usize, k: usize, lhs: &Array, rhs: &Array, result: &mut Array) {
        let (a, b, c) = (lhs.elements::<T>(), rhs.elements::<T>(), result.elements_mut::<T>());
        for g in 0..groups {
            let (a, b) = (&a[g * m * k..(g + 1) * m * k], &b[g * k * n..(g + 1) * k * n]);
            T::product(m, n, k, a, b, &mut c[g * m * n..(g + 1) * m * n]);
        }
    }
    let run = match lhs.element_type() {
        F32 => all::<f32>,
        F64 => all::<f64>,
        C64 => all::<Complex<f32>>,
        C128 => all::<Complex<f64>>,
        S8 => all::<i8>,
        S16 => all::<i16>,
        S32 => all::<i32>,
        S64 => all::<i64>,
        U8 => all::<u8>,
        U16 => all::<u16>,
        U32 => all::<u32>,
        U64 => all::<u64>,
        other => return Err(ExecutionError::bug(format!("products are not made in {other}"))),
    };
    run(groups, m, n, k, lhs, rhs, &mut result);
    Ok(result)
}
