//! The functions of complex numbers, in f64; c64 values are widened before and rounded after.
//!
//! Where C and XLA differ in the special values (the sign of a zero imaginary part, what survives beside a NaN), these
//! are XLA's: a NaN part makes the magnitude NaN, and functions that are real on the real axis give an imaginary part of
//! +0 there. The inverse functions follow Kahan's branch cuts.

use num_complex::Complex;

type C = Complex<f64>;

const ZERO: C = C { re: 0.0, im: 0.0 };
const ONE: C = C { re: 1.0, im: 0.0 };

fn c(re: f64, im: f64) -> C {
    C { re, im }
}

/// `i·z`, without arithmetic.
fn times_i(z: C) -> C {
    c(-z.im, z.re)
}

/// `−i·z`, without arithmetic.
fn times_minus_i(z: C) -> C {
    c(z.im, -z.re)
}

/// The magnitude. Unlike that of `hypot`, it is NaN if a part is.
pub(super) fn abs(z: C) -> f64 {
    if z.re.is_nan() || z.im.is_nan() { f64::NAN } else { z.re.hypot(z.im) }
}

pub(super) fn sign(z: C) -> C {
    let h = abs(z);
    if h == 0.0 { z } else { c(z.re / h, z.im / h) }
}

/// The quotient: by Smith's method, with the infinities of C's Annex G where that gives no number.
pub(super) fn divide(a: C, b: C) -> C {
    let quotient = if b.re.abs() < b.im.abs() {
        let ratio = b.re / b.im;
        let denominator = b.im + ratio * b.re;
        c((ratio * a.re + a.im) / denominator, (ratio * a.im - a.re) / denominator)
    } else {
        let ratio = b.im / b.re;
        let denominator = b.re + ratio * b.im;
        c((a.re + ratio * a.im) / denominator, (a.im - ratio * a.re) / denominator)
    };
    if !(quotient.re.is_nan() && quotient.im.is_nan()) {
        return quotient;
    }
    // 1 for an infinity, 0 for anything else, with the sign it had.
    let unit = |x: f64| if x.is_infinite() { 1f64 } else { 0.0 }.copysign(x);
    let is_infinite = |z: C| z.re.is_infinite() || z.im.is_infinite();
    let is_finite = |z: C| z.re.is_finite() && z.im.is_finite();
    if b.re == 0.0 && b.im == 0.0 && !(a.re.is_nan() && a.im.is_nan()) {
        let infinity = f64::INFINITY.copysign(b.re);
        c(infinity * a.re, infinity * a.im)
    } else if is_infinite(a) && is_finite(b) {
        let (re, im) = (unit(a.re), unit(a.im));
        c(f64::INFINITY * (re * b.re + im * b.im), f64::INFINITY * (im * b.re - re * b.im))
    } else if is_finite(a) && is_infinite(b) {
        let (re, im) = (unit(b.re), unit(b.im));
        c(0.0 * (a.re * re + a.im * im), 0.0 * (a.im * re - a.re * im))
    } else {
        quotient
    }
}

pub(super) fn ln(z: C) -> C {
    let h = abs(z);
    // Near the unit circle the logarithm of the magnitude is lost to rounding; (|z|² − 1) is not.
    let re = if (0.5..2.0).contains(&h) {
        let (great, small) = (z.re.abs().max(z.im.abs()), z.re.abs().min(z.im.abs()));
        0.5 * ((great - 1.0) * (great + 1.0) + small * small).ln_1p()
    } else {
        h.ln()
    };
    c(re, z.im.atan2(z.re))
}

pub(super) fn ln_1p(z: C) -> C {
    let h = abs(c(1.0 + z.re, z.im));
    let re = if (0.5..2.0).contains(&h) { 0.5 * (z.re * (2.0 + z.re) + z.im * z.im).ln_1p() } else { h.ln() };
    c(re, z.im.atan2(1.0 + z.re))
}

pub(super) fn exp(z: C) -> C {
    let (sin, cos) = z.im.sin_cos();
    let e = z.re.exp();
    // Two factors where the whole one overflows but its product need not.
    let (e, again) = if e == f64::INFINITY { ((z.re * 0.5).exp(), (z.re * 0.5).exp()) } else { (e, 1.0) };
    c(e * cos * again, if z.im == 0.0 { 0.0 } else { e * sin * again })
}

pub(super) fn exp_m1(z: C) -> C {
    let (sin, cos) = z.im.sin_cos();
    let half_sin = (z.im * 0.5).sin();
    let e = z.re.exp_m1();
    c(e * cos - 2.0 * half_sin * half_sin, if z.im == 0.0 { 0.0 } else { (e + 1.0) * sin })
}

pub(super) fn logistic(z: C) -> C {
    let e = exp(c(-z.re, -z.im));
    divide(ONE, c(1.0 + e.re, e.im))
}

pub(super) fn sin(z: C) -> C {
    let (sin, cos) = z.re.sin_cos();
    c(sin * z.im.cosh(), cos * z.im.sinh())
}

pub(super) fn cos(z: C) -> C {
    let (sin, cos) = z.re.sin_cos();
    c(cos * z.im.cosh(), -(sin * z.im.sinh()))
}

pub(super) fn sinh(z: C) -> C {
    let (sin, cos) = z.im.sin_cos();
    c(z.re.sinh() * cos, if z.im == 0.0 { z.im } else { z.re.cosh() * sin })
}

pub(super) fn cosh(z: C) -> C {
    let (sin, cos) = z.im.sin_cos();
    c(z.re.cosh() * cos, if z.im == 0.0 || z.re == 0.0 { z.re * z.im } else { z.re.sinh() * sin })
}

pub(super) fn tanh(z: C) -> C {
    let (sin, cos) = z.im.sin_cos();
    let im_is_zero = z.im == 0.0 || (z.re.is_infinite() && sin.is_nan());
    let (re, im) = if sin.is_nan() && !z.re.is_infinite() {
        (f64::NAN, f64::NAN)
    } else if z.re.abs() > 20.0 {
        // tanh is 1 to the last bit, and the squares below would overflow.
        (1f64.copysign(z.re), 4.0 * sin * cos * (-2.0 * z.re.abs()).exp())
    } else {
        let (sinh, cosh) = (z.re.sinh(), z.re.cosh());
        let denominator = sinh * sinh + cos * cos;
        (sinh * cosh / denominator, sin * cos / denominator)
    };
    c(re, if im_is_zero { 0.0 } else { im })
}

pub(super) fn tan(z: C) -> C {
    times_minus_i(tanh(times_i(z)))
}

/// The root in the right half plane; the imaginary part has the sign of the argument's.
pub(super) fn sqrt(z: C) -> C {
    let C { re: a, im: b } = z;
    if a == 0.0 && b == 0.0 {
        return ZERO;
    }
    if b.is_infinite() {
        return c(f64::INFINITY, b);
    }
    if a == f64::INFINITY {
        return c(a, if b.is_nan() { b } else { 0f64.copysign(b) });
    }
    if a == f64::NEG_INFINITY {
        return c(if b.is_nan() { b } else { 0.0 }, f64::INFINITY.copysign(b));
    }
    if a.is_nan() || b.is_nan() {
        return c(f64::NAN, f64::NAN);
    }
    // Scaled by a power of four, so that nothing overflows and nothing is lost below the normal range.
    let magnitude = a.abs().max(b.abs());
    let (scale, root) = if magnitude > 1e300 {
        (0.0625, 4.0)
    } else if magnitude < 1e-290 {
        (2f64.powi(200), 2f64.powi(-100))
    } else {
        (1.0, 1.0)
    };
    let (a, b) = (a * scale, b * scale);
    let t = ((a.abs() + a.hypot(b)) * 0.5).sqrt();
    let (re, im) = if a >= 0.0 { (t, b / (2.0 * t)) } else { (b.abs() / (2.0 * t), t.copysign(b)) };
    c(re * root, im * root)
}

pub(super) fn rsqrt(z: C) -> C {
    let C { re: a, im: b } = z;
    if a == 0.0 && b == 0.0 {
        return c(f64::INFINITY, f64::NAN);
    }
    if a.is_infinite() || (b.is_infinite() && a.is_nan()) {
        return c(0f64.copysign(a), -0f64.copysign(b));
    }
    if b.is_infinite() {
        return c(0.0, -0f64.copysign(b));
    }
    let root = sqrt(z);
    let h = abs(root);
    c(root.re / h / h, -root.im / h / h)
}

/// The principal third root.
pub(super) fn cbrt(z: C) -> C {
    let h = abs(z).cbrt();
    let (sin, cos) = (z.im.atan2(z.re) / 3.0).sin_cos();
    if h == 0.0 { ZERO } else { c(h * cos, if z.im == 0.0 && z.re > 0.0 { z.im } else { h * sin }) }
}

/// `x` to the power of `y`: `e^(y·ln x)`, 1 where `x` is 1 or `y` is 0.
pub(super) fn power(x: C, y: C) -> C {
    let real_exponent = y.im == 0.0;
    if (y.re == 0.0 && real_exponent) || (x.re == 1.0 && x.im == 0.0) {
        return ONE;
    }
    let h = abs(x);
    if h == 0.0 && real_exponent && y.re > 0.0 {
        return ZERO;
    }
    if x.re == f64::INFINITY && x.im == 0.0 && real_exponent && y.re != 0.0 && !y.re.is_nan() {
        return c(if y.re > 0.0 { f64::INFINITY } else { 0.0 }, 0.0);
    }
    let angle = x.im.atan2(x.re);
    let length = h.powf(y.re) * (-y.im * angle).exp();
    let (sin, cos) = (y.re * angle + y.im * h.ln()).sin_cos();
    c(length * cos, length * sin)
}

/// The angle of the point (x, y): `−i·ln((x + iy) / √(x² + y²))`.
pub(super) fn atan2(y: C, x: C) -> C {
    let length = sqrt(x * x + y * y);
    times_minus_i(ln(divide(x + times_i(y), length)))
}

pub(super) fn asin(z: C) -> C {
    let (minus, plus) = (sqrt(ONE - z), sqrt(ONE + z));
    // Im(conj(√(1−z))·√(1+z)) and Re(√(1−z)·√(1+z)).
    let im = libm::asinh(minus.re * plus.im - minus.im * plus.re);
    c(z.re.atan2(minus.re * plus.re - minus.im * plus.im), im)
}

pub(super) fn acos(z: C) -> C {
    let (minus, plus) = (sqrt(ONE - z), sqrt(ONE + z));
    c(2.0 * minus.re.atan2(plus.re), libm::asinh(plus.re * minus.im - plus.im * minus.re))
}

pub(super) fn asinh(z: C) -> C {
    times_minus_i(asin(times_i(z)))
}

pub(super) fn acosh(z: C) -> C {
    let (minus, plus) = (sqrt(z - ONE), sqrt(z + ONE));
    c(libm::asinh(minus.re * plus.re + minus.im * plus.im), 2.0 * minus.im.atan2(plus.re))
}

pub(super) fn atanh(z: C) -> C {
    let C { re: a, im: b } = z;
    if a.abs() > 1e150 || b.abs() > 1e150 {
        // The squares overflow: atanh z is 1/z ± iπ/2 to the last bit.
        let inverse = divide(ONE, z);
        return c(0f64.copysign(a) + inverse.re, std::f64::consts::FRAC_PI_2.copysign(b));
    }
    let re = 0.25 * (4.0 * a / ((1.0 - a) * (1.0 - a) + b * b)).ln_1p();
    c(re, 0.5 * (2.0 * b).atan2((1.0 - a) * (1.0 + a) - b * b))
}
