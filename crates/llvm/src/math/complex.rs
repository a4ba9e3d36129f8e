//! Quotients and functions of complex numbers. Those of c64 are computed in f64, and the special values are the
//! evaluator's.

use crate::emit::ir::{Ir, Repr, Val};
use crate::emit::value::V;
use hloom_ir::op::UnaryOp;
use inkwell::FloatPredicate::{OEQ, OGE, OGT, OLT, ONE, UNO};

impl<'c> Ir<'c> {
    /// The quotient, with the infinities of C's Annex G where the plain formula gives no number.
    pub(crate) fn complex_quotient(&self, a: V<'c>, b: V<'c>) -> V<'c> {
        let repr = self.repr(a.re);
        let (a, b) = (self.wide_parts(a), self.wide_parts(b));
        let (re, im) = self.quotient_of_parts(a, b, repr != Repr::F64);
        V::complex(self.fptrunc(re, repr), self.fptrunc(im, repr))
    }

    /// The parts as f64, in as many lanes.
    fn wide_parts(&self, v: V<'c>) -> (Val<'c>, Val<'c>) {
        let (re, im) = self.same_lanes(v.re, v.im.unwrap_or(v.re));
        (self.fpext(re, Repr::F64), self.fpext(im, Repr::F64))
    }

    /// The quotient of f64 parts; `from_f32` if no square of theirs can leave the range of f64.
    fn quotient_of_parts(
        &self,
        (ar, ai): (Val<'c>, Val<'c>),
        (br, bi): (Val<'c>, Val<'c>),
        from_f32: bool,
    ) -> (Val<'c>, Val<'c>) {
        let (re, im) = match from_f32 {
            true => {
                let square = self.fma(br, br, self.fmul(bi, bi));
                let re = self.fma(ar, br, self.fmul(ai, bi));
                let im = self.fma(ai, br, self.fneg(self.fmul(ar, bi)));
                (self.fdiv(re, square), self.fdiv(im, square))
            }
            // Smith's method.
            false => {
                let swapped = self.fcmp(OLT, self.fabs(br), self.fabs(bi));
                let (great, small) = (self.select(swapped, bi, br), self.select(swapped, br, bi));
                let (x, y) = (self.select(swapped, ai, ar), self.select(swapped, ar, ai));
                let ratio = self.fdiv(small, great);
                let denominator = self.fadd(great, self.fmul(ratio, small));
                let part = self.fmul(ratio, x);
                let difference = self.select(swapped, self.fsub(part, y), self.fsub(y, part));
                let sum = self.fadd(x, self.fmul(ratio, y));
                (self.fdiv(sum, denominator), self.fdiv(difference, denominator))
            }
        };
        let lost = self.and(self.fcmp(UNO, re, re), self.fcmp(UNO, im, im));
        let both = self.rarely_all(self.any(lost), &[re, im], || {
            let (re, im) = self.special_quotient((ar, ai), (br, bi), lost, (re, im));
            vec![re, im]
        });
        (both[0], both[1])
    }

    /// A function of complex numbers.
    pub(crate) fn complex_function(&self, op: UnaryOp, z: V<'c>) -> V<'c> {
        let repr = self.repr(z.re);
        let (a, b) = self.wide_parts(z);
        let (re, im) = match op {
            UnaryOp::Exponential => self.complex_exp(a, b),
            UnaryOp::ExponentialMinusOne => {
                let (sin, cos) = (self.sine(b, false), self.sine(b, true));
                let half = self.sine(self.fmul(b, self.like(b, 0.5)), false);
                let e = self.exp_m1(a);
                let re = self.fsub(self.fmul(e, cos), self.fmul(self.like(a, 2.0), self.fmul(half, half)));
                let im = self.fmul(self.fadd(e, self.like(a, 1.0)), sin);
                (re, self.zero_where(self.is_zero(b), im))
            }
            UnaryOp::Log => {
                let (x, y) = (self.fabs(a), self.fabs(b));
                let (great, small) = (self.call2("llvm.maximum", x, y), self.call2("llvm.minimum", x, y));
                let one = self.like(a, 1.0);
                let over = self.fmul(self.fsub(great, one), self.fadd(great, one));
                (self.log_of_length(a, b, self.fma(small, small, over)), self.atan2(b, a))
            }
            UnaryOp::LogPlusOne => {
                let next = self.fadd(a, self.like(a, 1.0));
                let over = self.fma(a, self.fadd(a, self.like(a, 2.0)), self.fmul(b, b));
                (self.log_of_length(next, b, over), self.atan2(b, next))
            }
            UnaryOp::Logistic => {
                let (re, im) = self.complex_exp(self.fneg(a), self.fneg(b));
                let one = (self.splat_like(a, 1.0), self.splat_like(a, 0.0));
                self.quotient_of_parts(one, (self.fadd(re, self.like(a, 1.0)), im), false)
            }
            UnaryOp::Sine => {
                let (sin, cos) = (self.sine(a, false), self.sine(a, true));
                (self.fmul(sin, self.cosh(b)), self.fmul(cos, self.sinh(b)))
            }
            UnaryOp::Cosine => {
                let (sin, cos) = (self.sine(a, false), self.sine(a, true));
                (self.fmul(cos, self.cosh(b)), self.fneg(self.fmul(sin, self.sinh(b))))
            }
            // tan z = −i·tanh(i·z).
            UnaryOp::Tan => {
                let (re, im) = self.complex_tanh(self.fneg(b), a);
                (im, self.fneg(re))
            }
            UnaryOp::Tanh => self.complex_tanh(a, b),
            UnaryOp::Sqrt => self.complex_sqrt(a, b),
            _ => {
                let length = self.length(a, b);
                let zero = self.is_zero(length);
                (self.select(zero, a, self.fdiv(a, length)), self.select(zero, b, self.fdiv(b, length)))
            }
        };
        V::complex(self.fptrunc(re, repr), self.fptrunc(im, repr))
    }

    fn is_zero(&self, x: Val<'c>) -> Val<'c> {
        self.fcmp(OEQ, x, self.like(x, 0.0))
    }
    fn zero_where(&self, condition: Val<'c>, x: Val<'c>) -> Val<'c> {
        self.select(condition, self.like(x, 0.0), x)
    }
    fn splat_like(&self, x: Val<'c>, value: f64) -> Val<'c> {
        self.splat(self.like(x, value), crate::emit::ir::lanes(x))
    }

    /// The magnitude; NaN if a part is.
    fn length(&self, a: Val<'c>, b: Val<'c>) -> Val<'c> {
        let length = self.hypot(a, b);
        self.select(self.fcmp(UNO, a, b), self.like(a, f64::NAN), length)
    }

    /// ln √(a² + b²), where `over` is a² + b² − 1: near the unit circle only that says something.
    fn log_of_length(&self, a: Val<'c>, b: Val<'c>, over: Val<'c>) -> Val<'c> {
        let length = self.length(a, b);
        let near = self.and(self.fcmp(OGE, length, self.like(a, 0.5)), self.fcmp(OLT, length, self.like(a, 2.0)));
        let by_square = self.fmul(self.like(a, 0.5), self.ln_1p(over));
        self.select(near, by_square, self.ln(length))
    }

    fn complex_exp(&self, a: Val<'c>, b: Val<'c>) -> (Val<'c>, Val<'c>) {
        let (sin, cos) = (self.sine(b, false), self.sine(b, true));
        // Two factors where the whole one overflows but its product need not.
        let e = self.exp(a);
        let infinite = self.fcmp(OEQ, e, self.like(a, f64::INFINITY));
        let half = self.exp(self.fmul(a, self.like(a, 0.5)));
        let (e, again) = (self.select(infinite, half, e), self.select(infinite, half, self.like(a, 1.0)));
        let im = self.fmul(self.fmul(e, sin), again);
        (self.fmul(self.fmul(e, cos), again), self.zero_where(self.is_zero(b), im))
    }

    fn complex_tanh(&self, a: Val<'c>, b: Val<'c>) -> (Val<'c>, Val<'c>) {
        let (sin, cos) = (self.sine(b, false), self.sine(b, true));
        let size = self.fabs(a);
        let far = self.fcmp(OGT, size, self.like(a, 20.0));
        // Beyond 20 tanh is 1 to the last bit, and squares would overflow.
        let near = self.select(far, self.like(a, 20.0), size);
        let e = self.exp_m1(near);
        let one = self.like(a, 1.0);
        let half = self.like(a, 0.5);
        let inverse = self.fdiv(e, self.fadd(e, one));
        let sinh = self.copysign(self.fmul(half, self.fadd(e, inverse)), a);
        let cosh = self.fmul(half, self.fadd(self.fadd(e, one), self.fsub(one, inverse)));
        let denominator = self.fma(sinh, sinh, self.fmul(cos, cos));
        let product = self.fmul(sin, cos);
        let decayed = self.exp(self.fmul(self.like(a, -2.0), size));
        let re = self.select(far, self.copysign(one, a), self.fdiv(self.fmul(sinh, cosh), denominator));
        let tail = self.fmul(self.fmul(self.like(a, 4.0), product), decayed);
        let im = self.select(far, tail, self.fdiv(product, denominator));
        let infinite = self.fcmp(OEQ, size, self.like(a, f64::INFINITY));
        let no_angle = self.fcmp(UNO, sin, sin);
        let lost = self.and(no_angle, self.not(infinite));
        let nan = self.like(a, f64::NAN);
        let (re, im) = (self.select(lost, nan, re), self.select(lost, nan, im));
        let zero = self.or(self.is_zero(b), self.and(infinite, no_angle));
        (re, self.zero_where(zero, im))
    }

    /// The root in the right half plane.
    fn complex_sqrt(&self, a: Val<'c>, b: Val<'c>) -> (Val<'c>, Val<'c>) {
        let (x, y) = (self.fabs(a), self.fabs(b));
        let magnitude = self.call2("llvm.maximum", x, y);
        // Scaled by a power of four, so that nothing overflows and nothing is lost below the normal range.
        let (huge, tiny) =
            (self.fcmp(OGT, magnitude, self.like(a, 1e300)), self.fcmp(OLT, magnitude, self.like(a, 1e-290)));
        let choose = |up: f64, down: f64| {
            self.select(huge, self.like(a, down), self.select(tiny, self.like(a, up), self.like(a, 1.0)))
        };
        let (scale, root) = (choose(2f64.powi(200), 0.0625), choose(2f64.powi(-100), 4.0));
        let (sa, sb) = (self.fmul(a, scale), self.fmul(b, scale));
        let sum = self.fadd(self.fabs(sa), self.hypot(sa, sb));
        let t = self.sqrt(self.fmul(sum, self.like(a, 0.5)));
        let other = self.fdiv(sb, self.fadd(t, t));
        let right = self.fcmp(OGE, a, self.like(a, 0.0));
        let re = self.fmul(self.select(right, t, self.fabs(other)), root);
        let im = self.fmul(self.select(right, other, self.copysign(t, b)), root);
        let infinity = self.like(a, f64::INFINITY);
        let usual = self.and(self.fcmp(OGT, magnitude, self.like(a, 0.0)), self.fcmp(OLT, magnitude, infinity));
        let both = self.rarely_all(self.any(self.not(usual)), &[re, im], || {
            let (zero, nan) = (self.like(a, 0.0), self.like(a, f64::NAN));
            let no_number = self.fcmp(UNO, a, b);
            let (re, im) = (self.select(no_number, nan, re), self.select(no_number, nan, im));
            let b_nan = self.fcmp(UNO, b, b);
            // ±∞ of the real part leave a zero, signed as the imaginary part is, on the other axis.
            let down = self.fcmp(OEQ, a, self.fneg(infinity));
            let (re, im) =
                (self.select(down, self.select(b_nan, b, zero), re), self.select(down, self.copysign(infinity, b), im));
            let up = self.fcmp(OEQ, a, infinity);
            let (re, im) = (self.select(up, a, re), self.select(up, self.select(b_nan, b, self.copysign(zero, b)), im));
            let aside = self.fcmp(OEQ, y, infinity);
            let (re, im) = (self.select(aside, infinity, re), self.select(aside, b, im));
            let nothing = self.is_zero(magnitude);
            vec![self.select(nothing, zero, re), self.select(nothing, zero, im)]
        });
        (both[0], both[1])
    }

    /// The quotient where it is `lost` in NaNs although it is zero or infinite.
    fn special_quotient(
        &self,
        (ar, ai): (Val<'c>, Val<'c>),
        (br, bi): (Val<'c>, Val<'c>),
        lost: Val<'c>,
        (re, im): (Val<'c>, Val<'c>),
    ) -> (Val<'c>, Val<'c>) {
        let (zero, infinity) = (self.like(ar, 0.0), self.like(ar, f64::INFINITY));
        let is_infinite = |x| self.fcmp(OEQ, self.fabs(x), infinity);
        let is_finite = |x| self.fcmp(ONE, self.fabs(x), infinity);
        // 1 for an infinity, 0 for anything else, with the sign it had.
        let unit = |x| self.copysign(self.select(is_infinite(x), self.like(x, 1.0), zero), x);
        let product = |a, b, c, d| self.fadd(self.fmul(a, b), self.fmul(c, d));
        let difference = |a, b, c, d| self.fsub(self.fmul(a, b), self.fmul(c, d));
        let signed = self.copysign(infinity, br);
        let nothing = self.and(self.fcmp(UNO, ar, ar), self.fcmp(UNO, ai, ai));
        let by_zero = self.and(self.fcmp(OEQ, br, zero), self.fcmp(OEQ, bi, zero));
        let by_zero = self.and(by_zero, self.not(nothing));
        let from_infinity = self.and(self.or(is_infinite(ar), is_infinite(ai)), self.and(is_finite(br), is_finite(bi)));
        let by_infinity = self.and(self.and(is_finite(ar), is_finite(ai)), self.or(is_infinite(br), is_infinite(bi)));
        let (ua, ub, va, vb) = (unit(ar), unit(ai), unit(br), unit(bi));
        let choose = |of_zero, of_infinity, to_zero, usual| {
            let value = self.select(by_infinity, to_zero, usual);
            let value = self.select(from_infinity, of_infinity, value);
            self.select(lost, self.select(by_zero, of_zero, value), usual)
        };
        let new_re = choose(
            self.fmul(signed, ar),
            self.fmul(infinity, product(ua, br, ub, bi)),
            self.fmul(zero, product(ar, va, ai, vb)),
            re,
        );
        let new_im = choose(
            self.fmul(signed, ai),
            self.fmul(infinity, difference(ub, br, ua, bi)),
            self.fmul(zero, difference(ai, va, ar, vb)),
            im,
        );
        (new_re, new_im)
    }
}
