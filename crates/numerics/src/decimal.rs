//! Correctly rounded decimal digits of binary floating-point values.
//!
//! [`round_digits`] does exact integer arithmetic in 128 bits and therefore covers the range that
//! constants of real programs live in; outside of it, it says so and the caller takes the standard
//! library's slower way, [`digits_by_std`]. Both round to nearest, ties to even, as C's printf.
//!
//! Invariant: an answer is exact or not given at all.

use std::fmt::Write;

const POW5_U64: [u64; 28] = {
    let mut table = [1u64; 28];
    let mut i = 1;
    while i < 28 {
        table[i] = table[i - 1] * 5;
        i += 1;
    }
    table
};

/// The most significant digits [`round_digits`] gives.
pub const MAX_FAST_DIGITS: usize = 17;

const POW5: [u128; 56] = powers(5);
const POW10: [u128; 39] = powers(10);

const fn powers<const N: usize>(base: u128) -> [u128; N] {
    let mut table = [1u128; N];
    let mut i = 1;
    while i < N {
        table[i] = table[i - 1] * base;
        i += 1;
    }
    table
}

const POW10_OFFSET: i32 = 30;

/// Powers of ten from 1e-30, each a little too great, so that a value not below one is surely not
/// below the true power.
const ABOVE_POW10: [f64; 61] = {
    let mut table = [1.0 + 1e-14; 61];
    let mut i = 1;
    let mut power = 1.0;
    while i <= 30 {
        power *= 10.0;
        table[30 + i] = power * (1.0 + 1e-14);
        table[30 - i] = (1.0 + 1e-14) / power;
        i += 1;
    }
    table
};

/// A positive value `significand × 2^exponent`, with the unit in the last place being `2^exponent`.
#[derive(Clone, Copy, Debug)]
pub struct Binary {
    /// Integer significand, not zero.
    pub significand: u64,
    /// Power of two.
    pub exponent: i32,
    /// Whether the next value below is only half a unit away (significand a power of two, exponent
    /// not the smallest of the type).
    pub narrow_below: bool,
}

impl Binary {
    /// The parts of a positive finite `f32`.
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits() & 0x7fff_ffff;
        Self::from_fields((bits & 0x7f_ffff) as u64, (bits >> 23) as i32, 23, 127)
    }

    /// The parts of a positive finite `f64`.
    pub fn from_f64(value: f64) -> Self {
        let bits = value.to_bits() & !(1 << 63);
        Self::from_fields(bits & ((1 << 52) - 1), (bits >> 52) as i32, 52, 1023)
    }

    /// The value for estimates; infinite or zero beyond the range of the normal `f64`.
    #[inline]
    fn approximate(self) -> f64 {
        let scale = match self.exponent + 1023 {
            field @ 1..=2046 => f64::from_bits((field as u64) << 52),
            ..=0 => 0.0,
            _ => f64::INFINITY,
        };
        self.significand as f64 * scale
    }

    fn from_fields(fraction: u64, field: i32, mantissa_bits: u32, bias: i32) -> Self {
        let hidden = if field == 0 { 0 } else { 1 << mantissa_bits };
        Self {
            significand: fraction | hidden,
            exponent: field.max(1) - bias - mantissa_bits as i32,
            narrow_below: fraction == 0 && field > 1,
        }
    }

    /// The same value with an odd significand. Loses what [`Digits::reads_back`] needs, and lets
    /// more values take the fast path.
    pub fn reduced(self) -> Self {
        let zeros = self.significand.trailing_zeros();
        Self { significand: self.significand >> zeros, exponent: self.exponent + zeros as i32, narrow_below: false }
    }
}

/// The value `digits × 10^(exponent - count + 1)` with `count` significant digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digits {
    /// The digits as an integer of exactly `count` digits.
    pub digits: u64,
    /// The power of ten of the first digit.
    pub exponent: i32,
    /// Whether the nearest value of the binary type to these digits is the one they came from.
    pub reads_back: bool,
}

/// The first `count` significant digits (1 to 17), correctly rounded, where 128 bits suffice.
pub fn round_digits(value: Binary, count: usize) -> Option<Digits> {
    debug_assert!((1..=MAX_FAST_DIGITS).contains(&count) && value.significand != 0);
    let log2 = value.exponent + 63 - value.significand.leading_zeros() as i32;
    // 1262611 / 2^22 is log10(2) from below by 5e-8, so this is the power of ten or one too small
    // (never too great: for negative arguments the error of the constant is on the side of zero,
    // and smaller than the distance of any power of two in range from a power of ten).
    let mut exponent = (log2 * 1_262_611) >> 22;
    let next = ABOVE_POW10.get((exponent + 1 + POW10_OFFSET) as usize);
    if next.is_some_and(|&next| value.approximate() >= next) {
        exponent += 1;
    }
    let limit = POW10[count] as u64;
    let (mut digits, mut reads_back) = scale(value, count as i32 - 1 - exponent)?;
    if digits >= limit {
        // The estimate was one too small, or rounding carried into one more digit.
        exponent += 1;
        (digits, reads_back) = scale(value, count as i32 - 1 - exponent)?;
    }
    if digits < limit / 10 || digits >= limit {
        return None;
    }
    Some(Digits { digits, exponent, reads_back })
}

/// `value × 10^power` rounded to an integer, and whether that integer reads back as `value`.
#[inline]
fn scale(value: Binary, power: i32) -> Option<(u64, bool)> {
    // The value is `scaled / one`, and a unit in its last place is `ulp / one`.
    if power >= 0 {
        // Nearly always the factors fit 64 bits, which spares the overflow check.
        let (scaled, ulp) = match POW5_U64.get(power as usize) {
            Some(&ulp) => (ulp as u128 * value.significand as u128, ulp as u128),
            None => {
                let ulp = *POW5.get(power as usize)?;
                (ulp.checked_mul(value.significand as u128)?, ulp)
            }
        };
        let up = value.exponent + power;
        if up >= 0 {
            let whole = scaled.checked_shl(up as u32)?;
            if whole >> up != scaled {
                return None;
            }
            return Some((u64::try_from(whole).ok()?, true));
        }
        let shift = up.unsigned_abs();
        if shift > 126 {
            return None;
        }
        let one = 1u128 << shift;
        let whole = u64::try_from(scaled >> shift).ok()?;
        return Some(finish(value, whole, scaled & (one - 1), one, ulp));
    }
    let ten = *POW10.get(power.unsigned_abs() as usize)?;
    let significand = value.significand as u128;
    let shift = value.exponent.unsigned_abs();
    let (scaled, ulp, one) = if value.exponent >= 0 {
        if shift >= significand.leading_zeros() {
            return None;
        }
        (significand << shift, 1u128 << shift, ten)
    } else {
        if shift >= ten.leading_zeros().saturating_sub(1) {
            return None;
        }
        (significand, 1, ten << shift)
    };
    let whole = u64::try_from(scaled / one).ok()?;
    Some(finish(value, whole, scaled % one, one, ulp))
}

/// Rounds `whole + rest / one` to an integer, and says whether that is still nearest to the value
/// among the values of its type, whose distance is `ulp / one`.
#[inline]
fn finish(value: Binary, whole: u64, rest: u128, one: u128, ulp: u128) -> (u64, bool) {
    let to_next = one - rest;
    let round_up = rest > to_next || (rest == to_next && whole & 1 == 1);
    let (digits, error) = if round_up { (whole + 1, to_next) } else { (whole, rest) };
    // Below a power of two the neighbour is half as far away.
    let reach = if value.narrow_below && !round_up {
        // A tie goes to the even significand, which is the power of two.
        error.checked_mul(4).map(|e| e.cmp(&ulp))
    } else {
        error.checked_mul(2).map(|e| e.cmp(&ulp))
    };
    let reads_back = match reach {
        Some(std::cmp::Ordering::Less) => true,
        Some(std::cmp::Ordering::Equal) => value.significand & 1 == 0,
        Some(std::cmp::Ordering::Greater) | None => false,
    };
    (digits, reads_back)
}

/// The first `count` significant digits of any positive finite value, as text (appended to
/// `text`), and the power of ten of the first.
pub fn digits_by_std(value: f64, count: usize, text: &mut String) -> i32 {
    let mut scientific = String::with_capacity(count + 8);
    // Writing to a String cannot fail.
    let _ = write!(scientific, "{:.*e}", count - 1, value);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    text.extend(mantissa.chars().filter(char::is_ascii_digit));
    exponent.parse().unwrap_or(0)
}
