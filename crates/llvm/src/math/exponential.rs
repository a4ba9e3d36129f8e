//! exp, log and what is made of them.

use crate::emit::ir::{Ir, Repr, Val};
use inkwell::FloatPredicate::{OEQ, OGE, OGT, OLE, OLT};
use inkwell::IntPredicate::ULT;

/// (eʳ − 1 − r) / r² for |r| up to ln 2 / 2; the error is below 2⁻²⁸ of eʳ in f32 and below 2⁻⁵⁸ in f64.
const EXP_F32: [f64; 5] = [0.5, 0.166665181517601, 0.04166620597243309, 0.008368953131139278, 0.0013950573047623038];
const EXP_F64: [f64; 10] = [
    0.5000000000000013,
    0.166666666666667,
    0.04166666666651436,
    0.00833333333330696,
    0.001388888894732139,
    0.00019841269917925087,
    2.4801489600776535e-05,
    2.7557215806618216e-06,
    2.763141018777096e-07,
    2.511802048937468e-08,
];
/// (ln(1 + f) − f + f²/2) / f³ for 1 + f between √½ and √2.
const LOG_F32: [f64; 9] = [
    0.3333331048488617,
    -0.24999986588954926,
    0.20002226531505585,
    -0.16669251024723053,
    0.14218664169311523,
    -0.12384358793497086,
    0.11872945725917816,
    -0.11789732426404953,
    0.06915336847305298,
];
/// (ln((1 + s)/(1 − s)) − 2s) / s³ by s², for the same range.
const LOG_F64: [f64; 7] = [
    0.6666666666666735,
    0.39999999999407493,
    0.28571428744140187,
    0.22222198378677305,
    0.18183575151061213,
    0.15313756222720398,
    0.1479906065259113,
];
/// erf(x) / x by x² − 1.75, for |x| up to 2, with a zero so that there are as many as of the other.
const ERF_NEAR: [f64; 11] = [
    0.709538459777832,
    -0.14670158922672272,
    0.03486035019159317,
    -0.007262899540364742,
    0.00129702128469944,
    -0.00020012310415040702,
    2.7074507670477033e-05,
    -3.2945265502348775e-06,
    3.614141519392433e-07,
    -2.6990360169065752e-08,
    0.0,
];
/// 1 − erf(x) by x − 2.75, for x from 2 to 3.93; beyond it erf is 1 in f32.
const ERF_FAR: [f64; 11] = [
    0.00010061724606202915,
    -0.0005863342084921896,
    0.0016125959809869528,
    -0.002759158844128251,
    0.0032539640087634325,
    -0.0027623178903013468,
    0.0016767381457611918,
    -0.0006363571737892926,
    4.992261528968811e-05,
    7.627300510648638e-05,
    -2.583521381893661e-05,
];

/// erf(x) / x by x² in f64, for |x| up to 1; the error is below 2⁻⁵⁵.
const ERF_SMALL_F64: [f64; 13] = [
    std::f64::consts::FRAC_2_SQRT_PI,
    -0.3761263890318375,
    0.11283791670954879,
    -0.026866170645076792,
    0.0052239776248180145,
    -0.000854832698083379,
    0.0001205533111164271,
    -1.4925595266831182e-05,
    1.6461000484121361e-06,
    -1.6350312701054618e-07,
    1.4659775274046955e-08,
    -1.1372848856789924e-09,
    5.957176147746114e-11,
];
/// (1 − erf(x))·exp(x²) by (x − 3)/(x + 3) in f64, for x from 1 to 6; beyond it erf is 1.
const ERF_TAIL_F64: [f64; 16] = [
    0.17900115118138996,
    -0.3262335600430372,
    0.24560380171233487,
    -0.15011593650077898,
    0.07166583719747308,
    -0.024392499318915004,
    0.004269136356961225,
    0.0007077464666941425,
    -0.0005970624964924544,
    4.525434558991009e-05,
    6.406279226046039e-05,
    -1.2845780030775907e-05,
    -8.00978093907608e-06,
    2.0135111426447427e-06,
    1.2755818949624478e-06,
    3.381355142042904e-09,
];

/// What differs between f32 and f64.
struct Format {
    mantissa: i64,
    bias: i64,
    /// ln 2 in two parts, the first with room for a factor.
    ln2: (f64, f64),
    /// Beyond these the exponential is infinite, or zero.
    exp_range: (f64, f64),
    exp: &'static [f64],
    least_normal: f64,
}

fn format(repr: Repr) -> Format {
    match repr {
        Repr::F64 => Format {
            mantissa: 52,
            bias: 1023,
            ln2: (0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10),
            exp_range: (-746.0, 710.0),
            exp: &EXP_F64,
            least_normal: f64::MIN_POSITIVE,
        },
        _ => Format {
            mantissa: 23,
            bias: 127,
            ln2: (0.693359375, -2.12194440e-4),
            exp_range: (-105.0, 89.0),
            exp: &EXP_F32,
            least_normal: f32::MIN_POSITIVE as f64,
        },
    }
}

/// x = n·ln 2 + r.
struct Reduced<'c> {
    /// n as a float.
    n: Val<'c>,
    /// n as an integer, but for the upper bits.
    shifted: Val<'c>,
    r: Val<'c>,
    /// (eʳ − 1 − r) / r².
    rest: Val<'c>,
}

impl<'c> Ir<'c> {
    fn reduce_exp(&self, x: Val<'c>) -> Reduced<'c> {
        let f = format(self.repr(x));
        let (low, high) = (self.like(x, f.exp_range.0), self.like(x, f.exp_range.1));
        // Comparisons with NaN are false, so it stays.
        let x = self.select(self.fcmp(OGT, x, high), high, x);
        let x = self.select(self.fcmp(OLT, x, low), low, x);
        self.reduce_bounded_exp(x)
    }

    /// For arguments that are known to be in range.
    fn reduce_bounded_exp(&self, x: Val<'c>) -> Reduced<'c> {
        let f = format(self.repr(x));
        let shift = self.exp_shift(x);
        let shifted = self.fma(x, self.like(x, std::f64::consts::LOG2_E), shift);
        let n = self.fsub(shifted, shift);
        let r = self.fma(n, self.like(x, -f.ln2.0), x);
        let r = self.fma(n, self.like(x, -f.ln2.1), r);
        Reduced { n, shifted, r, rest: self.polynomial(r, f.exp) }
    }

    /// Adding 1.5·2ᵐ leaves the nearest integer in the low bits.
    fn exp_shift(&self, x: Val<'c>) -> Val<'c> {
        self.like(x, 1.5 * (1u64 << format(self.repr(x)).mantissa) as f64)
    }

    /// eʳ − 1.
    fn minus_one(&self, reduced: &Reduced<'c>) -> Val<'c> {
        self.fma(self.fmul(reduced.r, reduced.r), reduced.rest, reduced.r)
    }

    /// n as an integer.
    fn exponent(&self, reduced: &Reduced<'c>) -> Val<'c> {
        let int = self.repr(reduced.n).as_int();
        self.sub(self.bitcast(reduced.shifted, int), self.bitcast(self.exp_shift(reduced.n), int))
    }

    /// 2ⁿ for n in the range of normal exponents.
    fn power_of_two(&self, n: Val<'c>, repr: Repr) -> Val<'c> {
        let f = format(repr);
        let int = |v: i64| self.int(repr.as_int(), v);
        self.bitcast(self.shl(self.add(n, int(f.bias)), int(f.mantissa)), repr)
    }

    /// `v`·2ⁿ in two steps: 2ⁿ itself may be too large or too small for a number.
    pub(super) fn scale(&self, v: Val<'c>, n: Val<'c>) -> Val<'c> {
        let repr = self.repr(v);
        let half = self.ashr(n, self.int(repr.as_int(), 1));
        let rest = self.sub(n, half);
        self.fmul(self.fmul(v, self.power_of_two(half, repr)), self.power_of_two(rest, repr))
    }

    pub(crate) fn exp(&self, x: Val<'c>) -> Val<'c> {
        if self.is_gpu && self.repr(x) == Repr::F32 {
            return self.exp_gpu(x);
        }
        let reduced = self.reduce_exp(x);
        let one = self.like(x, 1.0);
        let value = match self.repr(x) {
            Repr::F64 => self.fadd(self.minus_one(&reduced), one),
            _ => self.fma(self.fma(reduced.rest, reduced.r, one), reduced.r, one),
        };
        match self.scaled_by_instruction(value, reduced.n) {
            Some(scaled) => scaled,
            None => self.scale(value, self.exponent(&reduced)),
        }
    }

    pub(super) fn exp_m1(&self, x: Val<'c>) -> Val<'c> {
        let repr = self.repr(x);
        // Beyond 40 the 1 does not count, and below −40 only it does.
        let bound = self.like(x, 40.0);
        let inside = self.select(self.fcmp(OGT, x, bound), bound, x);
        let inside = self.select(self.fcmp(OLT, x, self.fneg(bound)), self.fneg(bound), inside);
        let reduced = self.reduce_exp(inside);
        let power = self.power_of_two(self.exponent(&reduced), repr);
        let near = self.fma(power, self.minus_one(&reduced), self.fsub(power, self.like(x, 1.0)));
        // −0 stays −0.
        let near = self.select(self.fcmp(OEQ, x, self.like(x, 0.0)), x, near);
        self.select(self.fcmp(OGT, x, bound), self.exp(x), near)
    }

    pub(crate) fn ln(&self, x: Val<'c>) -> Val<'c> {
        let repr = self.repr(x);
        let f = format(repr);
        let int = |v: i64| self.int(repr.as_int(), v);
        // Subnormal numbers are made normal first.
        let tiny = self.fcmp(OLT, x, self.like(x, f.least_normal));
        let lift = f.mantissa + 2;
        let normal = self.select(tiny, self.fmul(x, self.like(x, (1u64 << lift) as f64)), x);
        let bits = self.bitcast(normal, repr.as_int());
        // m between √½ and √2: the exponent is counted from there.
        let root = match repr {
            Repr::F64 => std::f64::consts::FRAC_1_SQRT_2.to_bits() as i64,
            _ => i64::from(std::f32::consts::FRAC_1_SQRT_2.to_bits()),
        };
        let above = self.sub(bits, int(root));
        let exponent = self.ashr(above, int(f.mantissa));
        let m = self.bitcast(self.sub(bits, self.shl(exponent, int(f.mantissa))), repr);
        let k = self.sitofp(exponent, repr);
        let k = self.select(tiny, self.fsub(k, self.like(x, lift as f64)), k);
        let g = self.fsub(m, self.like(x, 1.0));
        let half_square = self.fmul(self.fmul(g, g), self.like(x, 0.5));
        let value = match repr {
            Repr::F64 => {
                let s = self.fdiv(g, self.fadd(m, self.like(x, 1.0)));
                let z = self.fmul(s, s);
                let rest = self.fmul(z, self.polynomial(z, &LOG_F64));
                // ln m = g − (g²/2 − s·(g²/2 + rest)), and k·ln 2 joins from small to large.
                let small = self.fma(s, self.fadd(half_square, rest), self.fmul(k, self.like(x, f.ln2.1)));
                self.fma(k, self.like(x, f.ln2.0), self.fsub(g, self.fsub(half_square, small)))
            }
            _ => {
                let cubed = self.fmul(self.fmul(g, g), g);
                let small = self.fma(cubed, self.polynomial(g, &LOG_F32), self.fmul(k, self.like(x, f.ln2.1)));
                let value = self.fadd(g, self.fsub(small, half_square));
                self.fma(k, self.like(x, f.ln2.0), value)
            }
        };
        let infinity = self.like(x, f64::INFINITY);
        let value = self.select(self.fcmp(OEQ, x, infinity), infinity, value);
        let zero = self.like(x, 0.0);
        let value = self.select(self.fcmp(OEQ, x, zero), self.like(x, f64::NEG_INFINITY), value);
        let invalid = self.fcmp(inkwell::FloatPredicate::ULT, x, zero);
        self.select(invalid, self.like(x, f64::NAN), value)
    }

    pub(super) fn ln_1p(&self, x: Val<'c>) -> Val<'c> {
        let one = self.like(x, 1.0);
        let u = self.fadd(x, one);
        // What rounding took from 1 + x.
        let lost = self.fsub(x, self.fsub(u, one));
        let value = self.fadd(self.ln(u), self.fdiv(lost, u));
        // Where u is 0 or ∞, and for −0, there is nothing to add.
        let end = self.or(self.fcmp(OEQ, u, self.like(x, 0.0)), self.fcmp(OEQ, u, self.like(x, f64::INFINITY)));
        let value = self.select(end, self.ln(u), value);
        self.select(self.fcmp(OEQ, x, self.like(x, 0.0)), x, value)
    }

    /// 1 / (1 + e⁻ˣ), from e⁻|ˣ|, which does not overflow.
    pub(super) fn logistic(&self, x: Val<'c>) -> Val<'c> {
        let e = self.exp(self.fneg(self.fabs(x)));
        let one = self.like(x, 1.0);
        let top = self.select(self.fcmp(OGE, x, self.like(x, 0.0)), one, e);
        match self.is_rough.get() && self.repr(x) == Repr::F32 {
            true => self.divide_roughly(top, self.fadd(one, e)),
            false => self.divide_bounded(top, self.fadd(one, e)),
        }
    }

    /// (e²ˣ − 1) / (e²ˣ + 1).
    pub(super) fn tanh(&self, x: Val<'c>) -> Val<'c> {
        if self.is_rough.get() && self.repr(x) == Repr::F32 {
            return self.tanh_roughly(x);
        }
        let size = self.fabs(x);
        // Beyond this it is 1 to the last bit.
        let bound = self.like(x, 20.0);
        let inside = self.select(self.fcmp(OGT, size, bound), bound, size);
        let e = self.exp_m1_near(self.fadd(inside, inside));
        let value = self.divide_bounded(e, self.fadd(e, self.like(x, 2.0)));
        self.copysign(value, x)
    }

    /// eˣ for |x| up to 80, where the result and all on the way are normal numbers.
    fn bounded_exp(&self, x: Val<'c>) -> Val<'c> {
        let repr = self.repr(x);
        let reduced = self.reduce_bounded_exp(x);
        let power = self.power_of_two(self.exponent(&reduced), repr);
        self.fma(power, self.minus_one(&reduced), power)
    }

    /// eˣ − 1 for x from 0 to 40.
    fn exp_m1_near(&self, x: Val<'c>) -> Val<'c> {
        let repr = self.repr(x);
        let reduced = self.reduce_bounded_exp(x);
        let power = self.power_of_two(self.exponent(&reduced), repr);
        self.fma(power, self.minus_one(&reduced), self.fsub(power, self.like(x, 1.0)))
    }

    pub(super) fn erf(&self, x: Val<'c>) -> Val<'c> {
        let size = self.fabs(x);
        if self.repr(x) == Repr::F64 {
            let bound = self.like(x, 6.0);
            let inside = self.select(self.fcmp(OGT, size, bound), bound, size);
            let near = self.fmul(x, self.polynomial(self.fmul(x, x), &ERF_SMALL_F64));
            let three = self.like(x, 3.0);
            let u = self.fdiv(self.fsub(inside, three), self.fadd(inside, three));
            let e = self.bounded_exp(self.fneg(self.fmul(inside, inside)));
            let tail = self.fmul(e, self.polynomial(u, &ERF_TAIL_F64));
            let far = self.copysign(self.fsub(self.like(x, 1.0), tail), x);
            return self.select(self.fcmp(OLE, size, self.like(x, 1.0)), near, far);
        }
        // One polynomial, whose coefficients are chosen lane by lane: choosing costs less than a second one.
        let bound = self.like(x, 3.93);
        let inside = self.select(self.fcmp(OGT, size, bound), bound, size);
        let is_near = self.fcmp(OLE, inside, self.like(x, 2.0));
        let choose = |near: f64, far: f64| self.select(is_near, self.like(x, near), self.like(x, far));
        let square = self.fma(inside, inside, self.like(x, -1.75));
        let at = self.select(is_near, square, self.fsub(inside, self.like(x, 2.75)));
        let coefficients = ERF_NEAR.iter().zip(&ERF_FAR).rev().map(|(&near, &far)| choose(near, far));
        let value = coefficients.reduce(|sum, c| self.fma(sum, at, c)).unwrap_or(at);
        let factor = self.select(is_near, inside, self.like(x, -1.0));
        self.copysign(self.fma(factor, value, choose(0.0, 1.0)), x)
    }

    pub(super) fn sinh(&self, x: Val<'c>) -> Val<'c> {
        let size = self.fabs(x);
        let e = self.exp_m1(size);
        let small = self.fadd(e, self.fdiv(e, self.fadd(e, self.like(x, 1.0))));
        let small = self.fmul(small, self.like(x, 0.5));
        let value = self.select(self.fcmp(OGT, size, self.like(x, 30.0)), self.half_exp(size), small);
        self.copysign(value, x)
    }

    pub(super) fn cosh(&self, x: Val<'c>) -> Val<'c> {
        let size = self.fabs(x);
        let e = self.exp(size);
        let small = self.fmul(self.fadd(e, self.fdiv(self.like(x, 1.0), e)), self.like(x, 0.5));
        self.select(self.fcmp(OGT, size, self.like(x, 30.0)), self.half_exp(size), small)
    }

    /// eˣ / 2 where eˣ itself may be too large.
    fn half_exp(&self, x: Val<'c>) -> Val<'c> {
        let reduced = self.reduce_exp(x);
        let value = self.fadd(self.minus_one(&reduced), self.like(x, 1.0));
        let exponent = self.exponent(&reduced);
        let finite = self.scale(value, self.sub(exponent, self.int(self.repr(x).as_int(), 1)));
        // The reduction is cut at e⁷¹⁰, half of which is still a number.
        self.select(
            self.fcmp(OGT, x, self.like(x, 710.0)),
            self.fmul(self.exp(self.fsub(x, self.like(x, 1.0))), self.like(x, std::f64::consts::E / 2.0)),
            finite,
        )
    }

    pub(super) fn asinh(&self, x: Val<'c>) -> Val<'c> {
        let size = self.fabs(x);
        let one = self.like(x, 1.0);
        let square = self.fmul(size, size);
        let root = self.sqrt(self.fadd(square, one));
        let small = self.ln_1p(self.fadd(size, self.fdiv(square, self.fadd(root, one))));
        let large = self.fadd(self.ln(size), self.like(x, std::f64::consts::LN_2));
        self.copysign(self.select(self.fcmp(OGT, size, self.like(x, 1e9)), large, small), x)
    }

    pub(super) fn acosh(&self, x: Val<'c>) -> Val<'c> {
        let above = self.fsub(x, self.like(x, 1.0));
        let root = self.sqrt(self.fmul(above, self.fadd(above, self.like(x, 2.0))));
        let small = self.ln_1p(self.fadd(above, root));
        let large = self.fadd(self.ln(x), self.like(x, std::f64::consts::LN_2));
        let value = self.select(self.fcmp(OGT, x, self.like(x, 1e9)), large, small);
        self.select(self.fcmp(OLT, x, self.like(x, 1.0)), self.like(x, f64::NAN), value)
    }

    pub(super) fn atanh(&self, x: Val<'c>) -> Val<'c> {
        let size = self.fabs(x);
        let one = self.like(x, 1.0);
        let ratio = self.fdiv(self.fadd(size, size), self.fsub(one, size));
        self.copysign(self.fmul(self.ln_1p(ratio), self.like(x, 0.5)), x)
    }

    /// Whether any lane is set.
    pub(crate) fn any(&self, mask: Val<'c>) -> Val<'c> {
        match mask {
            Val::VectorValue(_) => {
                let reduced = self.intrinsic("llvm.vector.reduce.or", &[mask.get_type()], &[mask]);
                reduced.expect("the intrinsic has a result")
            }
            one => self.icmp(ULT, self.int(Repr::I1, 0), one),
        }
    }
}
