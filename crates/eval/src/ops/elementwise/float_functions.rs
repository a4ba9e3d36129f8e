//! The functions of real numbers.
//!
//! f64 functions are those of the standard library and, where it lacks one or its formula cancels, of `libm`. f32
//! functions are computed in f64 and rounded, which leaves them within a rounding of exact. Special values follow IEEE
//! 754; a NaN stays a NaN except where the result does not depend on it (`1^NaN`, `NaN^0`).

/// Real arithmetic and functions.
pub(super) trait Float: Copy + PartialOrd {
    const ZERO: Self;
    fn add(self, rhs: Self) -> Self;
    fn subtract(self, rhs: Self) -> Self;
    fn multiply(self, rhs: Self) -> Self;
    fn divide(self, rhs: Self) -> Self;
    /// What is left of a division towards zero, with the sign of the dividend.
    fn remainder(self, rhs: Self) -> Self;
    fn negate(self) -> Self;
    fn abs(self) -> Self;
    fn is_finite(self) -> bool;
    /// −1, 1, or the value itself where it is a zero or NaN.
    fn sign(self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    /// The nearest integer, ties away from zero.
    fn round_away(self) -> Self;
    /// The nearest integer, ties to even.
    fn round_even(self) -> Self;
    fn sqrt(self) -> Self;
    /// The greater; NaN if either is, and +0 is greater than −0.
    fn maximum(self, rhs: Self) -> Self;
    /// The lesser; NaN if either is, and −0 is less than +0.
    fn minimum(self, rhs: Self) -> Self;
    /// `f` of the value, computed in f64.
    fn in_f64(self, f: impl Fn(f64) -> f64) -> Self;
    /// `f` of two values, computed in f64.
    fn in_f64_2(self, rhs: Self, f: impl Fn(f64, f64) -> f64) -> Self;
}

macro_rules! float {
    ($t:ident) => {
        impl Float for $t {
            const ZERO: Self = 0.0;
            #[inline(always)]
            fn add(self, rhs: Self) -> Self {
                self + rhs
            }
            #[inline(always)]
            fn subtract(self, rhs: Self) -> Self {
                self - rhs
            }
            #[inline(always)]
            fn multiply(self, rhs: Self) -> Self {
                self * rhs
            }
            #[inline(always)]
            fn divide(self, rhs: Self) -> Self {
                self / rhs
            }
            #[inline(always)]
            fn remainder(self, rhs: Self) -> Self {
                self % rhs
            }
            #[inline(always)]
            fn negate(self) -> Self {
                -self
            }
            #[inline(always)]
            fn abs(self) -> Self {
                $t::abs(self)
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                $t::is_finite(self)
            }
            #[inline(always)]
            fn sign(self) -> Self {
                if self == 0.0 || self.is_nan() { self } else { (1.0 as $t).copysign(self) }
            }
            #[inline(always)]
            fn floor(self) -> Self {
                $t::floor(self)
            }
            #[inline(always)]
            fn ceil(self) -> Self {
                $t::ceil(self)
            }
            #[inline(always)]
            fn round_away(self) -> Self {
                $t::round(self)
            }
            #[inline(always)]
            fn round_even(self) -> Self {
                $t::round_ties_even(self)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $t::sqrt(self)
            }
            #[inline(always)]
            fn maximum(self, rhs: Self) -> Self {
                // Equal values differ at most in the sign of zero.
                let equal = $t::from_bits(self.to_bits() & rhs.to_bits());
                let other = if self > rhs || self.is_nan() { self } else { rhs };
                if self == rhs { equal } else { other }
            }
            #[inline(always)]
            fn minimum(self, rhs: Self) -> Self {
                let equal = $t::from_bits(self.to_bits() | rhs.to_bits());
                let other = if self < rhs || self.is_nan() { self } else { rhs };
                if self == rhs { equal } else { other }
            }
            #[inline(always)]
            fn in_f64(self, f: impl Fn(f64) -> f64) -> Self {
                f(self as f64) as $t
            }
            #[inline(always)]
            fn in_f64_2(self, rhs: Self, f: impl Fn(f64, f64) -> f64) -> Self {
                f(self as f64, rhs as f64) as $t
            }
        }
    };
}
float!(f32);
float!(f64);

/// `1 / (1 + e⁻ˣ)`.
pub(super) fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `1 / √x`.
pub(super) fn rsqrt(x: f64) -> f64 {
    1.0 / x.sqrt()
}

/// The inverse of cosh. (That of `libm` gives numbers for some arguments below −1.)
pub(super) fn acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}
