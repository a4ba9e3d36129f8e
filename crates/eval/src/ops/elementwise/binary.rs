//! Which function each binary operation is, for each type.

use super::complex;
use super::element::{Element, Read, types, with_type};
use super::float_functions::Float;
use super::integer::Integer;
use super::kernel::{Kernel2, kernel2};
use super::unary::ComplexValue;
use hloom_ir::element_type::ElementType;
use hloom_ir::op::BinaryOp;
use hloom_numerics::int::HloInt;
use num_complex::Complex;

/// `op` on elements of a type; `None` if the type does not have it.
pub(super) fn binary(op: BinaryOp, from: ElementType) -> Option<Kernel2> {
    match from {
        ElementType::Pred => pred_binary(op),
        ElementType::F32 if op == BinaryOp::Complex => {
            Some(kernel2!(fast types::F32 => types::C64, |x, y| Complex { re: x, im: y }))
        }
        ElementType::F64 if op == BinaryOp::Complex => {
            Some(kernel2!(fast types::F64 => types::C128, |x, y| Complex { re: x, im: y }))
        }
        ElementType::C64 => complex_binary::<types::C64, f32>(op),
        ElementType::C128 => complex_binary::<types::C128, f64>(op),
        _ => {
            with_type!(float from, T => float_binary::<T>(op), with_type!(integer from, T => integer_binary::<T>(op), None))
        }
    }
}

/// Arithmetic of truth values is that of integers, with every result other than zero being true.
fn pred_binary(op: BinaryOp) -> Option<Kernel2> {
    use types::Pred;
    Some(match op {
        BinaryOp::Add | BinaryOp::Maximum | BinaryOp::Or => kernel2!(fast Pred => Pred, |x, y| x | y),
        BinaryOp::Multiply | BinaryOp::Minimum | BinaryOp::And => kernel2!(fast Pred => Pred, |x, y| x & y),
        BinaryOp::Xor => kernel2!(fast Pred => Pred, |x, y| x ^ y),
        _ => return None,
    })
}

fn integer_binary<E: Element<Value: Integer>>(op: BinaryOp) -> Option<Kernel2> {
    Some(match op {
        BinaryOp::Add => kernel2!(fast E => E, |x, y| x.add(y)),
        BinaryOp::Subtract => kernel2!(fast E => E, |x, y| x.subtract(y)),
        BinaryOp::Multiply => kernel2!(fast E => E, |x, y| x.multiply(y)),
        BinaryOp::Mulhi => kernel2!(fast E => E, |x, y| x.multiply_high(y)),
        BinaryOp::Divide => kernel2!(fast E => E, |x, y| x.divide(y)),
        BinaryOp::Remainder => kernel2!(fast E => E, |x, y| x.remainder(y)),
        BinaryOp::Maximum => kernel2!(fast E => E, |x, y| x.max(y)),
        BinaryOp::Minimum => kernel2!(fast E => E, |x, y| x.min(y)),
        BinaryOp::Power => kernel2!(E => E, |x, y| x.power(y)),
        BinaryOp::And => kernel2!(fast E => E, |x, y| x.and(y)),
        BinaryOp::Or => kernel2!(fast E => E, |x, y| x.or(y)),
        BinaryOp::Xor => kernel2!(fast E => E, |x, y| x.xor(y)),
        BinaryOp::ShiftLeft => kernel2!(fast E => E, |x, y| x.shift_left(y)),
        BinaryOp::ShiftRightArithmetic => kernel2!(fast E => E, |x, y| x.shift_right_arithmetic(y)),
        BinaryOp::ShiftRightLogical => kernel2!(fast E => E, |x, y| x.shift_right_logical(y)),
        BinaryOp::Atan2 | BinaryOp::Complex => return None,
    })
}

fn float_binary<E: Element<Value: Float>>(op: BinaryOp) -> Option<Kernel2> {
    Some(match op {
        BinaryOp::Add => kernel2!(fast E => E, |x, y| x.add(y)),
        BinaryOp::Subtract => kernel2!(fast E => E, |x, y| x.subtract(y)),
        BinaryOp::Multiply => kernel2!(fast E => E, |x, y| x.multiply(y)),
        BinaryOp::Divide => kernel2!(fast E => E, |x, y| x.divide(y)),
        BinaryOp::Remainder => kernel2!(E => E, |x, y| x.remainder(y)),
        BinaryOp::Maximum => kernel2!(fast E => E, |x, y| x.maximum(y)),
        BinaryOp::Minimum => kernel2!(fast E => E, |x, y| x.minimum(y)),
        BinaryOp::Power => kernel2!(E => E, |x, y| x.in_f64_2(y, f64::powf)),
        BinaryOp::Atan2 => kernel2!(E => E, |x, y| x.in_f64_2(y, f64::atan2)),
        _ => return None,
    })
}

fn complex_binary<E, F>(op: BinaryOp) -> Option<Kernel2>
where
    E: Element<Value = Complex<F>>,
    Complex<F>: ComplexValue,
    F: Float,
{
    Some(match op {
        BinaryOp::Add => kernel2!(fast E => E, |x, y| Complex { re: x.re.add(y.re), im: x.im.add(y.im) }),
        BinaryOp::Subtract => {
            kernel2!(fast E => E, |x, y| Complex { re: x.re.subtract(y.re), im: x.im.subtract(y.im) })
        }
        BinaryOp::Multiply => kernel2!(fast E => E, |x, y| Complex {
            re: x.re.multiply(y.re).subtract(x.im.multiply(y.im)),
            im: x.re.multiply(y.im).add(x.im.multiply(y.re)),
        }),
        BinaryOp::Divide => kernel2!(E => E, |x, y| x.in_f64_2(y, complex::divide)),
        BinaryOp::Power => kernel2!(E => E, |x, y| x.in_f64_2(y, complex::power)),
        BinaryOp::Atan2 => kernel2!(E => E, |x, y| x.in_f64_2(y, complex::atan2)),
        _ => return None,
    })
}
