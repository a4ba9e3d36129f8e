//! Integer semantics of HLO, where they differ from those of Rust or of the machine.
//!
//! [`HloInt`] has them for the types Rust has; [`NarrowInt`] for those of 1, 2 and 4 bits, carried
//! as `i64`. All arithmetic wraps.
//!
//! Invariants: nothing here panics, whatever the operands; a narrow result is in the range of its
//! type if the operands are.

/// The low `bits` bits of `value` as a two's complement number. `bits` of 64 or more changes
/// nothing, 0 gives 0.
#[inline]
pub const fn wrap_signed(value: i64, bits: u32) -> i64 {
    match bits {
        0 => 0,
        1..=63 => {
            let unused = 64 - bits;
            (value << unused) >> unused
        }
        _ => value,
    }
}

/// The low `bits` bits of `value`. `bits` of 64 or more changes nothing, 0 gives 0.
#[inline]
pub const fn wrap_unsigned(value: u64, bits: u32) -> u64 {
    match bits {
        0..=63 => value & ((1 << bits) - 1),
        _ => value,
    }
}

/// A float to a signed integer of `bits` bits: towards zero, saturating; NaN is 0.
#[inline]
pub fn float_to_signed(value: f64, bits: u32) -> i64 {
    let bits = bits.clamp(1, 64);
    let max = i64::MAX >> (64 - bits);
    (value as i64).clamp(!max, max)
}

/// A float to an unsigned integer of `bits` bits: towards zero, saturating; NaN is 0.
#[inline]
pub fn float_to_unsigned(value: f64, bits: u32) -> u64 {
    let bits = bits.clamp(1, 64);
    (value as u64).min(u64::MAX >> (64 - bits))
}

/// Integer operations as HLO defines them.
pub trait HloInt: Copy + Ord {
    /// Width in bits.
    const BITS: u32;
    /// Quotient towards zero. By zero: all bits set; the least value by −1: itself.
    fn divide(self, rhs: Self) -> Self;
    /// Remainder with the sign of the dividend. By zero: the dividend; by −1: 0.
    fn remainder(self, rhs: Self) -> Self;
    /// Shift left. The amount is read as unsigned; at or beyond the width gives 0.
    fn shift_left(self, amount: Self) -> Self;
    /// Shift right filling with zeros. The amount is read as unsigned; at or beyond the width
    /// gives 0.
    fn shift_right_logical(self, amount: Self) -> Self;
    /// Shift right filling with the top bit (of unsigned types too). The amount is read as
    /// unsigned; at or beyond the width gives the top bit everywhere.
    fn shift_right_arithmetic(self, amount: Self) -> Self;
    /// Wrapping power. `x^0` is 1; a negative exponent gives ±1 for bases 1 and −1 and 0 for every
    /// other base, 0 among them.
    fn power(self, exponent: Self) -> Self;
    /// The upper half of the double-width product.
    fn multiply_high(self, rhs: Self) -> Self;
    /// Number of set bits.
    fn population_count(self) -> Self;
    /// Number of zeros above the top set bit; the width for 0.
    fn count_leading_zeros(self) -> Self;
    /// From a float: towards zero, saturating; NaN is 0.
    fn from_float(value: f64) -> Self;
}

macro_rules! hlo_int {
    ($($int:ty, $signed:ty, $unsigned:ty, $wide:ty;)*) => {$(
        impl HloInt for $int {
            const BITS: u32 = <$int>::BITS;

            #[inline]
            fn divide(self, rhs: Self) -> Self {
                if rhs == 0 { !0 } else { self.wrapping_div(rhs) }
            }

            #[inline]
            fn remainder(self, rhs: Self) -> Self {
                if rhs == 0 { self } else { self.wrapping_rem(rhs) }
            }

            #[inline]
            fn shift_left(self, amount: Self) -> Self {
                match shift_amount(amount as $unsigned as u64, Self::BITS) {
                    Some(amount) => self << amount,
                    None => 0,
                }
            }

            #[inline]
            fn shift_right_logical(self, amount: Self) -> Self {
                match shift_amount(amount as $unsigned as u64, Self::BITS) {
                    Some(amount) => (self as $unsigned >> amount) as Self,
                    None => 0,
                }
            }

            #[inline]
            fn shift_right_arithmetic(self, amount: Self) -> Self {
                let amount = shift_amount(amount as $unsigned as u64, Self::BITS);
                (self as $signed >> amount.unwrap_or(Self::BITS - 1)) as Self
            }

            fn power(self, exponent: Self) -> Self {
                #[allow(unused_comparisons)]
                if exponent < 0 {
                    return match self {
                        1 => 1,
                        minus_one if minus_one.wrapping_neg() == 1 && exponent & 1 == 1 => minus_one,
                        minus_one if minus_one.wrapping_neg() == 1 => 1,
                        _ => 0,
                    };
                }
                let (mut base, mut rest, mut result) = (self, exponent, 1 as Self);
                while rest != 0 {
                    if rest & 1 == 1 {
                        result = result.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    rest >>= 1;
                }
                result
            }

            #[inline]
            fn multiply_high(self, rhs: Self) -> Self {
                ((self as $wide * rhs as $wide) >> Self::BITS) as Self
            }

            #[inline]
            fn population_count(self) -> Self {
                self.count_ones() as Self
            }

            #[inline]
            fn count_leading_zeros(self) -> Self {
                self.leading_zeros() as Self
            }

            #[inline]
            fn from_float(value: f64) -> Self {
                value as Self
            }
        }
    )*};
}

hlo_int! {
    i8, i8, u8, i16;
    i16, i16, u16, i32;
    i32, i32, u32, i64;
    i64, i64, u64, i128;
    u8, i8, u8, u16;
    u16, i16, u16, u32;
    u32, i32, u32, u64;
    u64, i64, u64, u128;
}

/// The amount if it is below the width.
#[inline]
fn shift_amount(amount: u64, bits: u32) -> Option<u32> {
    u32::try_from(amount).ok().filter(|&a| a < bits)
}

/// An integer type of 1 to 32 bits, whose values are carried as `i64`: sign-extended where signed,
/// zero-extended where not. Each operation is that of [`HloInt`] at this width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NarrowInt {
    bits: u32,
    signed: bool,
}

impl NarrowInt {
    /// `s1`.
    pub const S1: Self = Self::new(1, true);
    /// `s2`.
    pub const S2: Self = Self::new(2, true);
    /// `s4`.
    pub const S4: Self = Self::new(4, true);
    /// `u1`.
    pub const U1: Self = Self::new(1, false);
    /// `u2`.
    pub const U2: Self = Self::new(2, false);
    /// `u4`.
    pub const U4: Self = Self::new(4, false);

    /// The type of that width, which is brought into 1 to 32.
    pub const fn new(bits: u32, signed: bool) -> Self {
        let bits = match bits {
            0 => 1,
            1..=32 => bits,
            _ => 32,
        };
        Self { bits, signed }
    }

    /// Width in bits.
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// Whether the type is signed.
    pub const fn is_signed(self) -> bool {
        self.signed
    }

    /// The least value.
    pub const fn min(self) -> i64 {
        if self.signed { -1 << (self.bits - 1) } else { 0 }
    }

    /// The greatest value.
    pub const fn max(self) -> i64 {
        (1 << (self.bits - self.signed as u32)) - 1
    }

    /// The value with the same low bits.
    pub const fn wrap(self, value: i64) -> i64 {
        if self.signed { wrap_signed(value, self.bits) } else { wrap_unsigned(value as u64, self.bits) as i64 }
    }

    /// The bits of a value, without extension.
    const fn pattern(self, value: i64) -> u64 {
        wrap_unsigned(value as u64, self.bits)
    }

    /// See [`HloInt::divide`].
    pub fn divide(self, lhs: i64, rhs: i64) -> i64 {
        self.wrap(lhs.divide(rhs))
    }

    /// See [`HloInt::remainder`].
    pub fn remainder(self, lhs: i64, rhs: i64) -> i64 {
        self.wrap(lhs.remainder(rhs))
    }

    /// See [`HloInt::shift_left`].
    pub fn shift_left(self, value: i64, amount: i64) -> i64 {
        match shift_amount(self.pattern(amount), self.bits) {
            Some(amount) => self.wrap(value << amount),
            None => 0,
        }
    }

    /// See [`HloInt::shift_right_logical`].
    pub fn shift_right_logical(self, value: i64, amount: i64) -> i64 {
        match shift_amount(self.pattern(amount), self.bits) {
            Some(amount) => self.wrap((self.pattern(value) >> amount) as i64),
            None => 0,
        }
    }

    /// See [`HloInt::shift_right_arithmetic`].
    pub fn shift_right_arithmetic(self, value: i64, amount: i64) -> i64 {
        let amount = shift_amount(self.pattern(amount), self.bits).unwrap_or(self.bits - 1);
        self.wrap(wrap_signed(value, self.bits) >> amount)
    }

    /// See [`HloInt::power`].
    pub fn power(self, base: i64, exponent: i64) -> i64 {
        self.wrap(base.power(exponent))
    }

    /// See [`HloInt::multiply_high`].
    pub fn multiply_high(self, lhs: i64, rhs: i64) -> i64 {
        self.wrap(lhs.wrapping_mul(rhs) >> self.bits)
    }

    /// See [`HloInt::population_count`]. The count wraps like any value of the type.
    pub fn population_count(self, value: i64) -> i64 {
        self.wrap(self.pattern(value).count_ones() as i64)
    }

    /// See [`HloInt::count_leading_zeros`]. The count wraps like any value of the type.
    pub fn count_leading_zeros(self, value: i64) -> i64 {
        let unused = 64 - self.bits;
        self.wrap((self.pattern(value).leading_zeros() - unused) as i64)
    }

    /// See [`HloInt::from_float`].
    pub fn from_float(self, value: f64) -> i64 {
        if self.signed { float_to_signed(value, self.bits) } else { float_to_unsigned(value, self.bits) as i64 }
    }
}
