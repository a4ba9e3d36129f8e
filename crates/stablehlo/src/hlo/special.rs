//! The gamma function and its relatives, the Hurwitz zeta function, and the next number.

#![allow(clippy::excessive_precision, reason = "coefficients are given as they were published")]

use super::{Translate, Translator};
use hloom_ir::attributes::ComparisonDirection as Is;
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::{BinaryOp, UnaryOp};
use hloom_ir::{ElementType, Op, Shape};
use std::f64::consts::PI;

/// The constant term of the Lanczos series.
const LANCZOS_BASE: f64 = 0.99999999999980993227684700473478;
/// The parameter g of the series.
const LANCZOS_G: f64 = 7.0;
/// The gamma function by Lanczos, g = 7: the terms after [`LANCZOS_BASE`].
const LANCZOS: &[f64] = &[
    676.520368121885098567009190444019,
    -1259.13921672240287047156078755283,
    771.3234287776530788486528258894,
    -176.61502916214059906584551354,
    12.507343278686904814458936853,
    -0.13857109526572011689554707,
    9.984369578019570859563e-6,
    1.50563273514931155834e-7,
];
/// (2k)! / B(2k), k = 1 … 12, for the Euler-Maclaurin sum.
const BERNOULLI: &[f64] = &[
    12.0,
    -720.0,
    30240.0,
    -1209600.0,
    47900160.0,
    -1.8924375803183791606e9,
    7.47242496e10,
    -2.950130727918164224e12,
    1.1646782814350067249e14,
    -4.5979787224074726105e15,
    1.8152105401943546773e17,
    -7.1661652561756670113e18,
];

impl Translator<'_, '_> {
    /// `x` plus a number.
    fn plus(&mut self, x: InstructionId, number: f64) -> Translate<InstructionId> {
        let number = self.number_like(x, number)?;
        self.add(x, number)
    }

    /// `x` times a number.
    fn times(&mut self, x: InstructionId, number: f64) -> Translate<InstructionId> {
        let number = self.number_like(x, number)?;
        self.mul(x, number)
    }

    /// `z` of the Lanczos series for `x`, and whether the value is to be reflected: below one half the series is taken
    /// at -x, otherwise at x - 1.
    fn lanczos_argument(&mut self, x: InstructionId) -> Translate<(InstructionId, InstructionId)> {
        let reflect = self.cmp_number(Is::Lt, x, 0.5)?;
        let minus = self.un(UnaryOp::Negate, x)?;
        let one = self.number_like(x, 1.0)?;
        let shifted = self.sub(x, one)?;
        Ok((self.sel(reflect, minus, shifted)?, reflect))
    }

    /// log(z + g + 1/2), exact also for small z.
    fn lanczos_log(&mut self, z: InstructionId) -> Translate<InstructionId> {
        let t = LANCZOS_G + 0.5;
        let scale = self.number_like(z, t)?;
        let ratio = self.div(z, scale)?;
        let log = self.un(UnaryOp::LogPlusOne, ratio)?;
        let base = self.number_like(z, t.ln())?;
        self.add(base, log)
    }

    /// The logarithm of |Γ(x)|.
    pub(super) fn lgamma(&mut self, x: InstructionId) -> Translate<InstructionId> {
        let (z, reflect) = self.lanczos_argument(x)?;
        let mut series = self.number_like(x, LANCZOS_BASE)?;
        for (i, &c) in LANCZOS.iter().enumerate() {
            let c = self.number_like(x, c)?;
            let index = self.number_like(x, i as f64)?;
            let shifted = self.add(z, index)?;
            let below = self.plus(shifted, 1.0)?;
            let term = self.div(c, below)?;
            series = self.add(series, term)?;
        }
        let g_half = self.number_like(x, LANCZOS_G + 0.5)?;
        let t = self.add(g_half, z)?;
        let log_t = self.lanczos_log(z)?;
        // (z + 1/2) log t - t, without the cancellation for large z.
        let z_half = self.plus(z, 0.5)?;
        let ratio = self.div(t, log_t)?;
        let difference = self.sub(z_half, ratio)?;
        let power = self.mul(difference, log_t)?;
        let log_series = self.un(UnaryOp::Log, series)?;
        let root = self.number_like(x, ((2.0 * PI).ln()) / 2.0)?;
        let partial = self.add(root, power)?;
        let log_y = self.add(partial, log_series)?;

        // Γ(x) Γ(-x) x sin(πx) = -π; the sine is taken of the distance to the nearest whole number.
        let magnitude = self.un(UnaryOp::Abs, x)?;
        let floor = self.un(UnaryOp::Floor, magnitude)?;
        let fraction = self.sub(magnitude, floor)?;
        let beyond_half = self.cmp_number(Is::Gt, fraction, 0.5)?;
        let one = self.number_like(x, 1.0)?;
        let rest = self.sub(one, fraction)?;
        let reduced = self.sel(beyond_half, rest, fraction)?;
        let angle = self.times(reduced, PI)?;
        let sine = self.un(UnaryOp::Sine, angle)?;
        let log_sine = self.un(UnaryOp::Log, sine)?;
        let log_pi = self.number_like(x, PI.ln())?;
        let partial = self.sub(log_pi, log_sine)?;
        let reflected = self.sub(partial, log_y)?;
        let shape = self.retyped(x, ElementType::Pred);
        let finite = self.emit(Op::unary(UnaryOp::IsFinite), [log_sine].as_slice(), shape)?;
        let pole = self.un(UnaryOp::Negate, log_sine)?;
        let reflected = self.sel(finite, reflected, pole)?;
        let result = self.sel(reflect, reflected, log_y)?;
        let infinity = self.number_like(x, f64::INFINITY)?;
        let is_infinite = self.cmp(Is::Eq, magnitude, infinity)?;
        self.sel(is_infinite, infinity, result)
    }

    /// The derivative of the logarithm of Γ.
    pub(super) fn digamma(&mut self, x: InstructionId) -> Translate<InstructionId> {
        let (z, reflect) = self.lanczos_argument(x)?;
        let mut above = self.number_like(x, 0.0)?;
        let mut below = self.number_like(x, LANCZOS_BASE)?;
        for (i, &c) in LANCZOS.iter().enumerate() {
            let c = self.number_like(x, c)?;
            let index = self.number_like(x, i as f64)?;
            let shifted = self.add(z, index)?;
            let at = self.plus(shifted, 1.0)?;
            let square = self.mul(at, at)?;
            let derivative = self.div(c, square)?;
            above = self.sub(above, derivative)?;
            let term = self.div(c, at)?;
            below = self.add(below, term)?;
        }
        let g_half = self.number_like(x, LANCZOS_G + 0.5)?;
        let t = self.add(g_half, z)?;
        let log_t = self.lanczos_log(z)?;
        let ratio = self.div(above, below)?;
        let g = self.number_like(x, LANCZOS_G)?;
        let correction = self.div(g, t)?;
        let sum = self.add(log_t, ratio)?;
        let y = self.sub(sum, correction)?;

        // ψ(1 - x) = ψ(x) + π cot(πx), the cotangent of an argument between -1/2 and 1/2.
        let half_up = self.plus(x, 0.5)?;
        let floor = self.un(UnaryOp::Floor, half_up)?;
        let whole = self.un(UnaryOp::Abs, floor)?;
        let reduced = self.add(x, whole)?;
        let angle = self.times(reduced, PI)?;
        let cosine = self.un(UnaryOp::Cosine, angle)?;
        let sine = self.un(UnaryOp::Sine, angle)?;
        let scaled = self.times(cosine, PI)?;
        let cotangent = self.div(scaled, sine)?;
        let reflected = self.sub(y, cotangent)?;
        let result = self.sel(reflect, reflected, y)?;

        let not_positive = self.cmp_number(Is::Le, x, 0.0)?;
        let floor = self.un(UnaryOp::Floor, x)?;
        let whole = self.cmp(Is::Eq, x, floor)?;
        let pole = self.bin(BinaryOp::And, not_positive, whole)?;
        let nan = self.number_like(x, f64::NAN)?;
        self.sel(pole, nan, result)
    }

    /// The `n`-th derivative of digamma.
    pub(super) fn polygamma(&mut self, n: InstructionId, x: InstructionId) -> Translate<InstructionId> {
        let n_plus = self.plus(n, 1.0)?;
        // (-1)^(n + 1) n! ζ(n + 1, x)
        let half = self.times(n, 0.5)?;
        let floor = self.un(UnaryOp::Floor, half)?;
        let twice = self.times(floor, 2.0)?;
        let even = self.cmp(Is::Eq, n, twice)?;
        let one = self.number_like(x, 1.0)?;
        let minus_one = self.number_like(x, -1.0)?;
        let sign = self.sel(even, minus_one, one)?;
        let log_factorial = self.lgamma(n_plus)?;
        let factorial = self.un(UnaryOp::Exponential, log_factorial)?;
        let zeta = self.zeta(n_plus, x)?;
        let signed = self.mul(sign, factorial)?;
        let general = self.mul(signed, zeta)?;
        let digamma = self.digamma(x)?;
        let is_zero = self.cmp_number(Is::Eq, n, 0.0)?;
        let result = self.sel(is_zero, digamma, general)?;
        let floor = self.un(UnaryOp::Floor, n)?;
        let broken = self.cmp(Is::Ne, n, floor)?;
        let negative = self.cmp_number(Is::Lt, n, 0.0)?;
        let bad = self.bin(BinaryOp::Or, broken, negative)?;
        let nan = self.number_like(x, f64::NAN)?;
        self.sel(bad, nan, result)
    }

    /// Hurwitz' zeta function: the sum of (q + k)^-x, ten terms directly and the rest by Euler and Maclaurin.
    pub(super) fn zeta(&mut self, x: InstructionId, q: InstructionId) -> Translate<InstructionId> {
        const TERMS: usize = 9;
        let minus_x = self.un(UnaryOp::Negate, x)?;
        let mut a = q;
        let mut power = self.bin(BinaryOp::Power, q, minus_x)?;
        let mut sum = power;
        for _ in 0..TERMS {
            a = self.plus(a, 1.0)?;
            power = self.bin(BinaryOp::Power, a, minus_x)?;
            sum = self.add(sum, power)?;
        }
        a = self.plus(a, 1.0)?;
        power = self.bin(BinaryOp::Power, a, minus_x)?;
        // The integral of what is left.
        let one = self.number_like(x, 1.0)?;
        let below = self.sub(x, one)?;
        let scaled = self.mul(power, a)?;
        let integral = self.div(scaled, below)?;
        let with_integral = self.add(sum, integral)?;
        // x/a (1/A1 + (x+1)(x+2)/a² (1/A2 + (x+3)(x+4)/a² (…))), from the inside.
        let square = self.mul(a, a)?;
        let inverse_square = self.div(one, square)?;
        let last = BERNOULLI.len() - 1;
        let mut inner = self.number_like(x, 0.0)?;
        for k in (1..=last).rev() {
            let coefficient = self.number_like(x, 1.0 / BERNOULLI[k])?;
            let total = self.add(inner, coefficient)?;
            let low = self.plus(x, (2 * k - 1) as f64)?;
            let high = self.plus(x, (2 * k) as f64)?;
            let product = self.mul(low, high)?;
            let factor = self.mul(product, inverse_square)?;
            inner = self.mul(factor, total)?;
        }
        let first = self.number_like(x, 1.0 / BERNOULLI[0])?;
        let inner = self.add(inner, first)?;
        let ratio = self.div(x, a)?;
        let tail = self.mul(ratio, inner)?;
        let tail = self.plus(tail, 0.5)?;
        let tail = self.mul(power, tail)?;
        let full = self.add(with_integral, tail)?;
        // When a term no longer counts, neither does the rest.
        let epsilon = if self.is_f64(x) { f64::EPSILON } else { f64::from(f32::EPSILON) };
        let small = self.un(UnaryOp::Abs, power)?;
        let magnitude = self.un(UnaryOp::Abs, sum)?;
        let limit = self.times(magnitude, epsilon)?;
        let done = self.cmp(Is::Lt, small, limit)?;
        let mut result = self.sel(done, sum, full)?;

        // Poles and what is not defined.
        let nan = self.number_like(x, f64::NAN)?;
        let infinity = self.number_like(x, f64::INFINITY)?;
        let floor_x = self.un(UnaryOp::Floor, x)?;
        let floor_q = self.un(UnaryOp::Floor, q)?;
        let half = self.times(x, 0.5)?;
        let floor_half = self.un(UnaryOp::Floor, half)?;
        let twice = self.times(floor_half, 2.0)?;
        let even = self.cmp(Is::Eq, x, twice)?;
        let q_low = self.cmp_number(Is::Le, q, 0.0)?;
        let q_whole = self.cmp(Is::Eq, q, floor_q)?;
        let pole = self.bin(BinaryOp::And, q_low, q_whole)?;
        let x_broken = self.cmp(Is::Ne, x, floor_x)?;
        let outside = self.bin(BinaryOp::And, q_low, x_broken)?;
        result = self.sel(outside, nan, result)?;
        let at_pole = self.sel(even, infinity, nan)?;
        result = self.sel(pole, at_pole, result)?;
        let low_x = self.cmp_number(Is::Lt, x, 1.0)?;
        result = self.sel(low_x, nan, result)?;
        let x_one = self.cmp_number(Is::Eq, x, 1.0)?;
        self.sel(x_one, infinity, result)
    }

    /// The number after `x` in the direction of `y`, by the bits.
    pub(super) fn next_after(&mut self, x: InstructionId, y: InstructionId) -> Translate<InstructionId> {
        let element = self.shape(x).element_type();
        let whole = match element {
            Some(ElementType::F64) => ElementType::S64,
            Some(ElementType::F32) => ElementType::S32,
            Some(ElementType::F16 | ElementType::Bf16) => ElementType::S16,
            _ => return Err(self.error(&codes::BAD_OPERANDS, "next_after takes numbers of 16, 32 or 64 bits")),
        };
        let bits_shape = self.retyped(x, whole);
        let float_shape = self.shape(x).clone();
        let x_bits = self.emit(Op::BitcastConvert, [x].as_slice(), bits_shape.clone())?;
        let y_bits = self.emit(Op::BitcastConvert, [y].as_slice(), bits_shape)?;
        let sign_mask = self.whole_like(x_bits, i64::MIN >> (64 - 8 * whole.bytes() as u32))?;
        let magnitude_mask = self.un(UnaryOp::Not, sign_mask)?;
        let x_magnitude = self.bin(BinaryOp::And, x_bits, magnitude_mask)?;
        let y_magnitude = self.bin(BinaryOp::And, y_bits, magnitude_mask)?;
        let zero = self.whole_like(x_bits, 0)?;
        let one = self.whole_like(x_bits, 1)?;
        let x_is_zero = self.cmp(Is::Eq, x_magnitude, zero)?;
        let y_is_zero = self.cmp(Is::Eq, y_magnitude, zero)?;
        let x_sign = self.bin(BinaryOp::And, x_bits, sign_mask)?;
        let y_sign = self.bin(BinaryOp::And, y_bits, sign_mask)?;
        // From zero: y itself if it is a zero too, otherwise the smallest number with its sign.
        let smallest = self.bin(BinaryOp::Or, y_sign, one)?;
        let from_zero = self.sel(y_is_zero, y_bits, smallest)?;
        // Otherwise towards zero if the signs differ or x is larger, else away from it.
        let signs_differ = self.cmp(Is::Ne, x_sign, y_sign)?;
        let larger = self.cmp(Is::Gt, x_magnitude, y_magnitude)?;
        let inward = self.bin(BinaryOp::Or, larger, signs_differ)?;
        let minus_one = self.whole_like(x_bits, -1)?;
        let step = self.sel(inward, minus_one, one)?;
        let moved = self.add(x_bits, step)?;
        let next = self.sel(x_is_zero, from_zero, moved)?;
        let same = self.cmp(Is::Eq, x_bits, y_bits)?;
        let next = self.sel(same, y_bits, next)?;
        let next = self.emit(Op::BitcastConvert, [next].as_slice(), float_shape)?;
        let x_nan = self.cmp(Is::Ne, x, x)?;
        let y_nan = self.cmp(Is::Ne, y, y)?;
        let any_nan = self.bin(BinaryOp::Or, x_nan, y_nan)?;
        let nan = self.number_like(x, f64::NAN)?;
        self.sel(any_nan, nan, next)
    }

    /// A whole number in the shape of `like`.
    fn whole_like(&mut self, like: InstructionId, value: i64) -> Translate<InstructionId> {
        let shape: Shape = self.shape(like).clone();
        let element = shape.element_type().unwrap_or(ElementType::S32);
        let scalar = self.whole(element, value)?;
        self.splat(scalar, shape)
    }
}
