//! Which function each unary operation is, for each type.

use super::complex;
use super::element::{Element, Read, types, with_type};
use super::float_functions::{Float, acosh, logistic, rsqrt};
use super::integer::Integer;
use super::kernel::{Kernel1, kernel1};
use hloom_ir::element_type::ElementType;
use hloom_ir::op::UnaryOp;
use hloom_numerics::int::HloInt;
use num_complex::Complex;

/// `op` on elements of a type; `None` if the type does not have it.
pub(super) fn unary(op: UnaryOp, from: ElementType) -> Option<Kernel1> {
    match from {
        ElementType::Pred => match op {
            UnaryOp::Not => Some(kernel1!(fast types::Pred => types::Pred, |x| !x)),
            _ => None,
        },
        ElementType::C64 => match op {
            UnaryOp::Abs => Some(kernel1!(types::C64 => types::F32, |x| complex::abs(wide(x)) as f32)),
            UnaryOp::Real => Some(kernel1!(fast types::C64 => types::F32, |x| x.re)),
            UnaryOp::Imag => Some(kernel1!(fast types::C64 => types::F32, |x| x.im)),
            _ => complex_unary::<types::C64, f32>(op),
        },
        ElementType::C128 => match op {
            UnaryOp::Abs => Some(kernel1!(types::C128 => types::F64, |x| complex::abs(x))),
            UnaryOp::Real => Some(kernel1!(fast types::C128 => types::F64, |x| x.re)),
            UnaryOp::Imag => Some(kernel1!(fast types::C128 => types::F64, |x| x.im)),
            _ => complex_unary::<types::C128, f64>(op),
        },
        _ => {
            with_type!(float from, T => float_unary::<T>(op), with_type!(integer from, T => integer_unary::<T>(op), None))
        }
    }
}

fn integer_unary<E: Element<Value: Integer>>(op: UnaryOp) -> Option<Kernel1> {
    Some(match op {
        UnaryOp::Abs => kernel1!(fast E => E, |x| x.abs()),
        UnaryOp::Negate => kernel1!(fast E => E, |x| x.negate()),
        UnaryOp::Sign => kernel1!(fast E => E, |x| x.sign()),
        UnaryOp::Not => kernel1!(fast E => E, |x| x.not()),
        UnaryOp::PopulationCount => kernel1!(fast E => E, |x| x.population_count()),
        UnaryOp::CountLeadingZeros => kernel1!(fast E => E, |x| x.count_leading_zeros()),
        _ => return None,
    })
}

fn float_unary<E: Element<Value: Float>>(op: UnaryOp) -> Option<Kernel1> {
    Some(match op {
        UnaryOp::Abs => kernel1!(fast E => E, |x| x.abs()),
        UnaryOp::Negate => kernel1!(fast E => E, |x| x.negate()),
        UnaryOp::Sign => kernel1!(fast E => E, |x| x.sign()),
        UnaryOp::Floor => kernel1!(fast E => E, |x| x.floor()),
        UnaryOp::Ceil => kernel1!(fast E => E, |x| x.ceil()),
        UnaryOp::RoundNearestAfz => kernel1!(fast E => E, |x| x.round_away()),
        UnaryOp::RoundNearestEven => kernel1!(fast E => E, |x| x.round_even()),
        UnaryOp::Sqrt => kernel1!(fast E => E, |x| x.sqrt()),
        UnaryOp::Rsqrt => kernel1!(fast E => E, |x| x.in_f64(rsqrt)),
        UnaryOp::IsFinite => kernel1!(fast E => types::Pred, |x| x.is_finite()),
        UnaryOp::Real => kernel1!(fast E => E, |x| x),
        UnaryOp::Imag => kernel1!(E => E, |_x| E::Value::ZERO),
        UnaryOp::Cbrt => kernel1!(E => E, |x| x.in_f64(f64::cbrt)),
        UnaryOp::Exponential => kernel1!(E => E, |x| x.in_f64(f64::exp)),
        UnaryOp::ExponentialMinusOne => kernel1!(E => E, |x| x.in_f64(f64::exp_m1)),
        UnaryOp::Log => kernel1!(E => E, |x| x.in_f64(f64::ln)),
        UnaryOp::LogPlusOne => kernel1!(E => E, |x| x.in_f64(f64::ln_1p)),
        UnaryOp::Logistic => kernel1!(E => E, |x| x.in_f64(logistic)),
        UnaryOp::Erf => kernel1!(E => E, |x| x.in_f64(libm::erf)),
        UnaryOp::Sine => kernel1!(E => E, |x| x.in_f64(f64::sin)),
        UnaryOp::Cosine => kernel1!(E => E, |x| x.in_f64(f64::cos)),
        UnaryOp::Tan => kernel1!(E => E, |x| x.in_f64(f64::tan)),
        UnaryOp::Asin => kernel1!(E => E, |x| x.in_f64(f64::asin)),
        UnaryOp::Acos => kernel1!(E => E, |x| x.in_f64(f64::acos)),
        UnaryOp::Sinh => kernel1!(E => E, |x| x.in_f64(f64::sinh)),
        UnaryOp::Cosh => kernel1!(E => E, |x| x.in_f64(f64::cosh)),
        UnaryOp::Tanh => kernel1!(E => E, |x| x.in_f64(f64::tanh)),
        UnaryOp::Asinh => kernel1!(E => E, |x| x.in_f64(libm::asinh)),
        UnaryOp::Acosh => kernel1!(E => E, |x| x.in_f64(acosh)),
        UnaryOp::Atanh => kernel1!(E => E, |x| x.in_f64(libm::atanh)),
        UnaryOp::Not | UnaryOp::PopulationCount | UnaryOp::CountLeadingZeros => return None,
    })
}

/// What maps complex values to complex values.
fn complex_unary<E, F>(op: UnaryOp) -> Option<Kernel1>
where
    E: Element<Value = Complex<F>>,
    Complex<F>: ComplexValue,
    F: Float,
{
    Some(match op {
        UnaryOp::Negate => kernel1!(fast E => E, |x| Complex { re: x.re.negate(), im: x.im.negate() }),
        UnaryOp::Sign => kernel1!(E => E, |x| x.in_f64(complex::sign)),
        UnaryOp::Sqrt => kernel1!(E => E, |x| x.in_f64(complex::sqrt)),
        UnaryOp::Rsqrt => kernel1!(E => E, |x| x.in_f64(complex::rsqrt)),
        UnaryOp::Cbrt => kernel1!(E => E, |x| x.in_f64(complex::cbrt)),
        UnaryOp::Exponential => kernel1!(E => E, |x| x.in_f64(complex::exp)),
        UnaryOp::ExponentialMinusOne => kernel1!(E => E, |x| x.in_f64(complex::exp_m1)),
        UnaryOp::Log => kernel1!(E => E, |x| x.in_f64(complex::ln)),
        UnaryOp::LogPlusOne => kernel1!(E => E, |x| x.in_f64(complex::ln_1p)),
        UnaryOp::Logistic => kernel1!(E => E, |x| x.in_f64(complex::logistic)),
        UnaryOp::Sine => kernel1!(E => E, |x| x.in_f64(complex::sin)),
        UnaryOp::Cosine => kernel1!(E => E, |x| x.in_f64(complex::cos)),
        UnaryOp::Tan => kernel1!(E => E, |x| x.in_f64(complex::tan)),
        UnaryOp::Sinh => kernel1!(E => E, |x| x.in_f64(complex::sinh)),
        UnaryOp::Cosh => kernel1!(E => E, |x| x.in_f64(complex::cosh)),
        UnaryOp::Tanh => kernel1!(E => E, |x| x.in_f64(complex::tanh)),
        UnaryOp::Asin => kernel1!(E => E, |x| x.in_f64(complex::asin)),
        UnaryOp::Acos => kernel1!(E => E, |x| x.in_f64(complex::acos)),
        UnaryOp::Asinh => kernel1!(E => E, |x| x.in_f64(complex::asinh)),
        UnaryOp::Acosh => kernel1!(E => E, |x| x.in_f64(complex::acosh)),
        UnaryOp::Atanh => kernel1!(E => E, |x| x.in_f64(complex::atanh)),
        _ => return None,
    })
}

/// A complex number of either precision, to be computed with in f64.
pub(super) trait ComplexValue: Copy {
    /// `f` of the value.
    fn in_f64(self, f: impl Fn(Complex<f64>) -> Complex<f64>) -> Self;
    /// `f` of two values.
    fn in_f64_2(self, rhs: Self, f: impl Fn(Complex<f64>, Complex<f64>) -> Complex<f64>) -> Self;
}

impl ComplexValue for Complex<f32> {
    fn in_f64(self, f: impl Fn(Complex<f64>) -> Complex<f64>) -> Self {
        narrow(f(wide(self)))
    }
    fn in_f64_2(self, rhs: Self, f: impl Fn(Complex<f64>, Complex<f64>) -> Complex<f64>) -> Self {
        narrow(f(wide(self), wide(rhs)))
    }
}

impl ComplexValue for Complex<f64> {
    fn in_f64(self, f: impl Fn(Complex<f64>) -> Complex<f64>) -> Self {
        f(self)
    }
    fn in_f64_2(self, rhs: Self, f: impl Fn(Complex<f64>, Complex<f64>) -> Complex<f64>) -> Self {
        f(self, rhs)
    }
}

fn wide(z: Complex<f32>) -> Complex<f64> {
    Complex { re: z.re.into(), im: z.im.into() }
}

fn narrow(z: Complex<f64>) -> Complex<f32> {
    Complex { re: z.re as f32, im: z.im as f32 }
}
