//! Functions of real numbers as vector code: no calls in loops, but for arguments that hardly occur.
//!
//! f32 results are within 2 units in the last place, f64 results mostly too; the tests measure it. f16 and bf16 are
//! computed in f32. The polynomials are minimax fits of what the comments beside them say. Functions that are rare in
//! f32 are computed in f64, which makes their last bit right almost always. Special values follow IEEE 754, and NaN
//! stays NaN.

mod complex;
mod exponential;
mod gpu;
mod lanes;
mod trigonometric;

use crate::emit::ir::{Ir, Repr, Val};
use hloom_ir::op::{BinaryOp, UnaryOp};
use inkwell::FloatPredicate::{OEQ, OGE, OLT, UNE};
use inkwell::IntPredicate::SLT;

impl<'c> Ir<'c> {
    /// `op` of floats; those of f16 and bf16 are rounded by the caller.
    pub(crate) fn function(&self, op: UnaryOp, x: Val<'c>) -> Val<'c> {
        match op {
            UnaryOp::Exponential => self.exp(x),
            UnaryOp::ExponentialMinusOne => self.exp_m1(x),
            UnaryOp::Log => self.ln(x),
            UnaryOp::LogPlusOne => self.ln_1p(x),
            UnaryOp::Logistic => self.logistic(x),
            UnaryOp::Tanh => self.tanh(x),
            UnaryOp::Erf => self.erf(x),
            UnaryOp::Sine => self.sine(x, false),
            UnaryOp::Cosine => self.sine(x, true),
            _ => self.in_f64(x, |x| match op {
                UnaryOp::Tan => self.tan(x),
                UnaryOp::Asin => self.atan2(x, self.co_sine(x)),
                UnaryOp::Acos => self.atan2(self.co_sine(x), x),
                UnaryOp::Sinh => self.sinh(x),
                UnaryOp::Cosh => self.cosh(x),
                UnaryOp::Asinh => self.asinh(x),
                UnaryOp::Acosh => self.acosh(x),
                UnaryOp::Atanh => self.atanh(x),
                _ => self.cbrt(x),
            }),
        }
    }

    /// `op` of two floats.
    pub(crate) fn function2(&self, op: BinaryOp, x: Val<'c>, y: Val<'c>) -> Val<'c> {
        let (x, y) = self.same_lanes(x, y);
        let is_double = self.repr(x) == Repr::F64;
        match op {
            BinaryOp::Power if is_double && !self.is_gpu => self.by_lanes("pow", x, y),
            BinaryOp::Power => self.in_f64_2(x, y, |x, y| self.power(x, y)),
            _ => self.in_f64_2(x, y, |y, x| self.atan2(y, x)),
        }
    }

    fn in_f64(&self, x: Val<'c>, f: impl Fn(Val<'c>) -> Val<'c>) -> Val<'c> {
        match self.repr(x) {
            Repr::F64 => f(x),
            repr => self.fptrunc(f(self.fpext(x, Repr::F64)), repr),
        }
    }
    fn in_f64_2(&self, x: Val<'c>, y: Val<'c>, f: impl Fn(Val<'c>, Val<'c>) -> Val<'c>) -> Val<'c> {
        match self.repr(x) {
            Repr::F64 => f(x, y),
            repr => self.fptrunc(f(self.fpext(x, Repr::F64), self.fpext(y, Repr::F64)), repr),
        }
    }

    /// A constant of the type of `x`.
    fn like(&self, x: Val<'c>, value: f64) -> Val<'c> {
        self.float(self.repr(x), value)
    }
    fn fabs(&self, x: Val<'c>) -> Val<'c> {
        self.call1("llvm.fabs", x)
    }
    fn copysign(&self, x: Val<'c>, sign: Val<'c>) -> Val<'c> {
        self.call2("llvm.copysign", x, sign)
    }

    /// The quotient of numbers that are neither large nor small, and not zero below.
    fn divide_bounded(&self, x: Val<'c>, y: Val<'c>) -> Val<'c> {
        match self.is_gpu && self.repr(x) == Repr::F32 {
            true => self.divide_bounded_gpu(x, y),
            false => self.fdiv(x, y),
        }
    }

    /// The square root.
    pub(crate) fn sqrt(&self, x: Val<'c>) -> Val<'c> {
        match self.is_gpu && self.repr(x) == Repr::F32 {
            true => self.sqrt_gpu(x),
            false => self.call1("llvm.sqrt", x),
        }
    }

    /// The reciprocal of the square root.
    pub(crate) fn rsqrt(&self, x: Val<'c>) -> Val<'c> {
        match self.is_gpu && self.repr(x) == Repr::F32 {
            true => self.rsqrt_gpu(x),
            false => self.fdiv(self.like(x, 1.0), self.sqrt(x)),
        }
    }

    /// The polynomial with those coefficients, the constant first.
    fn polynomial(&self, x: Val<'c>, coefficients: &[f64]) -> Val<'c> {
        let mut coefficients = coefficients.iter().rev();
        let mut sum = self.like(x, coefficients.next().copied().unwrap_or(0.0));
        for &c in coefficients {
            sum = self.fma(sum, x, self.like(x, c));
        }
        sum
    }

    /// What is left of `x` after whole multiples of `y`, with the sign of `x`; exact, as it always is.
    pub(crate) fn remainder(&self, x: Val<'c>, y: Val<'c>) -> Val<'c> {
        let (x, y) = self.same_lanes(x, y);
        self.in_f64_2(x, y, |x, y| {
            let q = self.call1("llvm.trunc", self.fdiv(x, y));
            // q may be one too many if the quotient was rounded up; what is left is exact either way.
            let left = self.fma(self.fneg(q), y, x);
            let (size, divisor) = (self.fabs(left), self.fabs(y));
            let negative = |v| self.icmp(SLT, self.bitcast(v, Repr::I64), self.int(Repr::I64, 0));
            let beyond = self.and(self.xor(negative(left), negative(x)), self.fcmp(UNE, left, self.like(x, 0.0)));
            let inside = self.select(beyond, self.fsub(divisor, size), size);
            let usual = self.copysign(inside, x);
            let known = self.and(
                self.fcmp(OLT, self.fabs(q), self.like(x, (1u64 << 50) as f64)),
                self.fcmp(OLT, divisor, self.like(x, f64::INFINITY)),
            );
            self.rarely(self.any(self.not(known)), usual, || match self.is_gpu {
                true => self.long_remainder(x, y),
                false => self.by_lanes("fmod", x, y),
            })
        })
    }

    /// `√(1 − x²)`.
    fn co_sine(&self, x: Val<'c>) -> Val<'c> {
        let one = self.like(x, 1.0);
        self.sqrt(self.fmul(self.fsub(one, x), self.fadd(one, x)))
    }

    /// `√(x² + y²)`, without overflow on the way.
    pub(crate) fn hypot(&self, x: Val<'c>, y: Val<'c>) -> Val<'c> {
        let (x, y) = (self.fabs(x), self.fabs(y));
        // A NaN goes on through both, unless the other is infinite.
        let (great, small) = (self.call2("llvm.maximum", x, y), self.call2("llvm.minimum", x, y));
        let zero = self.fcmp(OEQ, great, self.like(x, 0.0));
        let ratio = self.fdiv(small, self.select(zero, self.like(x, 1.0), great));
        let length = self.fmul(great, self.sqrt(self.fma(ratio, ratio, self.like(x, 1.0))));
        let infinity = self.like(x, f64::INFINITY);
        let infinite = self.or(self.fcmp(OEQ, x, infinity), self.fcmp(OEQ, y, infinity));
        self.select(infinite, infinity, length)
    }

    /// `x` to the power of `y`, in f64 for arguments of f32: the error of the logarithm times the exponent is then far
    /// below what the result can show.
    fn power(&self, x: Val<'c>, y: Val<'c>) -> Val<'c> {
        let (zero, one) = (self.like(x, 0.0), self.like(x, 1.0));
        let size = self.fabs(x);
        let power = self.exp(self.fmul(y, self.ln(size)));
        // 0·∞ in the exponent stands for 1^±∞.
        let power = self.select(self.fcmp(OEQ, size, one), self.select(self.fcmp(UNE, y, y), y, one), power);
        let whole = self.fcmp(OEQ, self.call1("llvm.floor", y), y);
        let half = self.fmul(y, self.like(y, 0.5));
        let odd = self.and(whole, self.fcmp(UNE, self.call1("llvm.floor", half), half));
        let negative = self.icmp(inkwell::IntPredicate::SLT, self.bitcast(x, Repr::I64), self.int(Repr::I64, 0));
        let signed = self.select(self.and(negative, odd), self.fneg(power), power);
        let finite = self.and(self.fcmp(OLT, x, zero), self.fcmp(OLT, size, self.like(x, f64::INFINITY)));
        let undefined = self.and(finite, self.not(whole));
        let y_finite = self.fcmp(OLT, self.fabs(y), self.like(y, f64::INFINITY));
        let result = self.select(self.and(undefined, y_finite), self.like(x, f64::NAN), signed);
        let is_one = self.or(self.fcmp(OEQ, y, zero), self.fcmp(OEQ, x, one));
        self.select(is_one, one, result)
    }

    fn cbrt(&self, x: Val<'c>) -> Val<'c> {
        let size = self.fabs(x);
        // Tiny numbers are cubed on the way: they are made larger first, and the root smaller again.
        let tiny = self.fcmp(OLT, size, self.like(x, 1e-290));
        let size = self.select(tiny, self.fmul(size, self.like(x, (1u64 << 60) as f64)), size);
        let guess = self.exp(self.fmul(self.ln(size), self.like(x, 1.0 / 3.0)));
        // One step of Newton's method.
        let square = self.fmul(guess, guess);
        let error = self.fma(square, guess, self.fneg(size));
        let better = self.fsub(guess, self.fdiv(error, self.fmul(self.like(x, 3.0), square)));
        let end = self.or(self.fcmp(OEQ, size, self.like(x, 0.0)), self.fcmp(OGE, size, self.like(x, f64::INFINITY)));
        let better = self.select(tiny, self.fmul(better, self.like(x, 1.0 / (1u64 << 20) as f64)), better);
        self.copysign(self.select(end, size, better), x)
    }
}
