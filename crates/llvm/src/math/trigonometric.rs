//! sin, cos, tan and atan2.

use crate::emit::ir::{Ir, Repr, Val};
use inkwell::FloatPredicate::{OEQ, OGT, UNO};
use inkwell::IntPredicate::{NE, SLT, ULT};

/// (sin r − r) / r³ and (cos r − 1 + r²/2) / r⁴ by r², for |r| up to π/4.
const SIN_F32: [f64; 3] = [-0.16666655242443085, 0.008332173340022564, -0.00019516657630447298];
const COS_F32: [f64; 3] = [0.04166664555668831, -0.001388736185617745, 2.4437733372906223e-05];
const SIN_F64: [f64; 6] = [
    -0.16666666666666632,
    0.008333333333322314,
    -0.00019841269829724744,
    2.755731366192045e-06,
    -2.5050753245480697e-08,
    1.5896503945092237e-10,
];
const COS_F64: [f64; 6] = [
    0.0416666666666666,
    -0.001388888888887399,
    2.480158728939494e-05,
    -2.75573143260334e-07,
    2.0875719559037347e-09,
    -1.1359448697374219e-11,
];
/// (atan t − t) / t³ by t², for t up to tan(π/8).
const ATAN: [f64; 11] = [
    -0.333333333333332,
    0.1999999999995324,
    -0.14285714280159437,
    0.11111110781489097,
    -0.09090897697755498,
    0.07692059089323801,
    -0.06663090584364662,
    0.058477864610372375,
    -0.05038819619252891,
    0.03805169716193844,
    -0.017892548449962836,
];
/// π/2 in three parts.
const HALF_PI: [f64; 3] = [std::f64::consts::FRAC_PI_2, 6.123233995736766e-17, -1.4973849048591833e-33];
/// Up to here the three parts suffice; beyond it the system's functions are called.
const LARGE: f64 = 1e9;

/// Added to a number of less than 2⁵¹, it leaves the nearest integer in the last bits.
const TO_INTEGER: f64 = 1.5 * (1u64 << 52) as f64;

/// x = n·π/2 + r, in f64.
struct Quadrant<'c> {
    r: Val<'c>,
    /// An integer of 64 bits, of which the last two are those of n.
    n: Val<'c>,
}

impl<'c> Ir<'c> {
    /// Of an argument with the digits of `from`.
    fn quadrant(&self, x: Val<'c>, from: Repr) -> Quadrant<'c> {
        let constant = |v: f64| self.like(x, v);
        let shifted = self.fma(x, constant(std::f64::consts::FRAC_2_PI), constant(TO_INTEGER));
        let n = self.fsub(shifted, constant(TO_INTEGER));
        // No f32 is so near to a multiple of π/2 that the last part would be seen.
        let parts = if from == Repr::F64 { &HALF_PI[..] } else { &HALF_PI[..2] };
        let r = parts.iter().fold(x, |r, &part| self.fma(n, constant(-part), r));
        let n = self.bitcast(shifted, Repr::I64);
        if self.is_gpu {
            let large = self.rarely_all(self.is_large(x), &[r, n], || self.large_quadrant(x));
            return Quadrant { r: large[0], n: large[1] };
        }
        Quadrant { r, n }
    }

    /// sin r and cos r.
    fn sine_and_cosine(&self, r: Val<'c>) -> (Val<'c>, Val<'c>) {
        let (sine, cosine): (&[f64], &[f64]) = match self.repr(r) {
            Repr::F64 => (&SIN_F64, &COS_F64),
            _ => (&SIN_F32, &COS_F32),
        };
        let z = self.fmul(r, r);
        let s = self.fma(self.fmul(z, r), self.polynomial(z, sine), r);
        let half = self.fma(z, self.like(r, -0.5), self.like(r, 1.0));
        (s, self.fma(self.fmul(z, z), self.polynomial(z, cosine), half))
    }

    /// sin x or cos x; for f32 the argument is reduced in f64.
    pub(super) fn sine(&self, x: Val<'c>, cosine: bool) -> Val<'c> {
        let repr = self.repr(x);
        let wide = self.fpext(x, Repr::F64);
        let q = self.quadrant(wide, repr);
        let (s, c) = self.sine_and_cosine(self.fptrunc(q.r, repr));
        let int = repr.as_int();
        let n = self.trunc(q.n, int);
        let odd = self.is_odd(n);
        let value = if cosine { self.select(odd, s, c) } else { self.select(odd, c, s) };
        // The second bit of n, or of n + 1, becomes the sign.
        let n = if cosine { self.add(n, self.int(int, 1)) } else { n };
        let (sign, place) = if repr == Repr::F64 { (i64::MIN, 62) } else { (i64::from(i32::MIN), 30) };
        let sign = self.and(self.shl(n, self.int(int, place)), self.int(int, sign));
        let value = self.bitcast(self.xor(self.bitcast(value, int), sign), repr);
        // sin −0 is −0.
        let value = match cosine {
            false => self.select(self.fcmp(OEQ, x, self.like(x, 0.0)), x, value),
            true => value,
        };
        self.unless_large(x, value, |_| {
            self.fptrunc(self.by_lanes(if cosine { "cos" } else { "sin" }, wide, wide), repr)
        })
    }

    fn is_odd(&self, n: Val<'c>) -> Val<'c> {
        let int = self.repr(n);
        self.icmp(NE, self.and(n, self.int(int, 1)), self.int(int, 0))
    }

    /// tan x, in f64.
    pub(super) fn tan(&self, x: Val<'c>) -> Val<'c> {
        let q = self.quadrant(x, Repr::F64);
        let (s, c) = self.sine_and_cosine(q.r);
        let odd = self.is_odd(q.n);
        let (top, bottom) = (self.select(odd, c, s), self.select(odd, self.fneg(s), c));
        let value = self.fdiv(top, bottom);
        let value = self.select(self.fcmp(OEQ, x, self.like(x, 0.0)), x, value);
        self.unless_large(x, value, |x| self.by_lanes("tan", x, x))
    }

    /// `value`, but what `slowly` makes of `x` if any lane of it is large.
    fn unless_large(&self, x: Val<'c>, value: Val<'c>, slowly: impl Fn(Val<'c>) -> Val<'c>) -> Val<'c> {
        if self.is_gpu {
            return value;
        }
        self.rarely(self.any(self.is_large(x)), value, || slowly(x))
    }

    /// Whether `x` is finite and beyond [`LARGE`]: its bits without the sign are between theirs.
    fn is_large(&self, x: Val<'c>) -> Val<'c> {
        let int = self.repr(x).as_int();
        let (least, infinity) = match int {
            Repr::I64 => (LARGE.to_bits() as i64 + 1, f64::INFINITY.to_bits() as i64),
            _ => (i64::from((LARGE as f32).to_bits()) + 1, i64::from(f32::INFINITY.to_bits())),
        };
        let size = self.bitcast(self.fabs(x), int);
        self.icmp(ULT, self.sub(size, self.int(int, least)), self.int(int, infinity - least))
    }

    /// The angle of the point (x, y), in f64.
    pub(super) fn atan2(&self, y: Val<'c>, x: Val<'c>) -> Val<'c> {
        let constant = |v: f64| self.like(x, v);
        let (wide, high) = (self.fabs(x), self.fabs(y));
        let steep = self.fcmp(OGT, high, wide);
        let (small, great) = (self.select(steep, wide, high), self.select(steep, high, wide));
        // 0/0 counts as 0, ∞/∞ as 1.
        let zero = self.fcmp(OEQ, great, constant(0.0));
        let t = self.fdiv(small, self.select(zero, constant(1.0), great));
        let t = self.select(self.fcmp(OEQ, small, constant(f64::INFINITY)), constant(1.0), t);
        // Above tan(π/8): atan t = π/4 + atan((t − 1)/(t + 1)).
        let upper = self.fcmp(OGT, t, constant(0.41421356237309503));
        let moved = self.fdiv(self.fsub(t, constant(1.0)), self.fadd(t, constant(1.0)));
        let u = self.select(upper, moved, t);
        let z = self.fmul(u, u);
        let angle = self.fma(self.fmul(u, z), self.polynomial(z, &ATAN), u);
        let quarter = self.fadd(constant(std::f64::consts::FRAC_PI_4), self.fadd(angle, constant(HALF_PI[1] / 2.0)));
        let angle = self.select(upper, quarter, angle);
        let turned = self.fadd(self.fsub(constant(HALF_PI[0]), angle), constant(HALF_PI[1]));
        let angle = self.select(steep, turned, angle);
        let left = self.icmp(SLT, self.bitcast(x, Repr::I64), self.int(Repr::I64, 0));
        let behind = self.fadd(self.fsub(constant(std::f64::consts::PI), angle), constant(2.0 * HALF_PI[1]));
        let angle = self.copysign(self.select(left, behind, angle), y);
        self.select(self.fcmp(UNO, x, y), self.fadd(x, y), angle)
    }
}
