//! Quotients of complex numbers.

use crate::emit::ir::{Ir, Repr, Val};
use crate::emit::value::V;
use inkwell::FloatPredicate::{OEQ, OLT, ONE, UNO};

impl<'c> Ir<'c> {
    /// The quotient by Smith's method, in f64, with the infinities of C's Annex G where that gives no number.
    pub(crate) fn complex_quotient(&self, a: V<'c>, b: V<'c>) -> V<'c> {
        let repr = self.repr(a.re);
        let wide = |v: V<'c>| (self.fpext(v.re, Repr::F64), self.fpext(v.im.unwrap_or(v.re), Repr::F64));
        let ((ar, ai), (br, bi)) = (wide(a), wide(b));
        let swapped = self.fcmp(OLT, self.fabs(br), self.fabs(bi));
        let (great, small) = (self.select(swapped, bi, br), self.select(swapped, br, bi));
        let (x, y) = (self.select(swapped, ai, ar), self.select(swapped, ar, ai));
        let ratio = self.fdiv(small, great);
        let denominator = self.fadd(great, self.fmul(ratio, small));
        let re = self.fdiv(self.fadd(x, self.fmul(ratio, y)), denominator);
        let part = self.fmul(ratio, x);
        let im = self.fdiv(self.select(swapped, self.fsub(part, y), self.fsub(y, part)), denominator);
        let lost = self.and(self.fcmp(UNO, re, re), self.fcmp(UNO, im, im));
        let (re, im) = self.special_quotient((ar, ai), (br, bi), lost, (re, im));
        V::complex(self.fptrunc(re, repr), self.fptrunc(im, repr))
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
