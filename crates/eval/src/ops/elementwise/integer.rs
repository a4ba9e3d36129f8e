//! Integers of every width as values to compute with: what [`HloInt`] has and the rest of the arithmetic. All of it
//! wraps.

use hloom_numerics::int::{HloInt, NarrowInt};

/// Integer arithmetic.
pub(super) trait Integer: HloInt {
    fn add(self, rhs: Self) -> Self;
    fn subtract(self, rhs: Self) -> Self;
    fn multiply(self, rhs: Self) -> Self;
    fn negate(self) -> Self;
    /// The magnitude; the least value of a signed type has none and stays.
    fn abs(self) -> Self;
    /// −1, 0 or 1.
    fn sign(self) -> Self;
    fn and(self, rhs: Self) -> Self;
    fn or(self, rhs: Self) -> Self;
    fn xor(self, rhs: Self) -> Self;
    fn not(self) -> Self;
}

macro_rules! integer {
    ($($t:ty, |$x:ident| $abs:expr, $sign:expr;)*) => {$(
        impl Integer for $t {
            #[inline(always)]
            fn add(self, rhs: Self) -> Self {
                self.wrapping_add(rhs)
            }
            #[inline(always)]
            fn subtract(self, rhs: Self) -> Self {
                self.wrapping_sub(rhs)
            }
            #[inline(always)]
            fn multiply(self, rhs: Self) -> Self {
                self.wrapping_mul(rhs)
            }
            #[inline(always)]
            fn negate(self) -> Self {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn abs(self) -> Self {
                let $x = self;
                $abs
            }
            #[inline(always)]
            fn sign(self) -> Self {
                let $x = self;
                $sign
            }
            #[inline(always)]
            fn and(self, rhs: Self) -> Self {
                self & rhs
            }
            #[inline(always)]
            fn or(self, rhs: Self) -> Self {
                self | rhs
            }
            #[inline(always)]
            fn xor(self, rhs: Self) -> Self {
                self ^ rhs
            }
            #[inline(always)]
            fn not(self) -> Self {
                !self
            }
        }
    )*};
}
integer! {
    i8, |x| x.wrapping_abs(), x.signum();
    i16, |x| x.wrapping_abs(), x.signum();
    i32, |x| x.wrapping_abs(), x.signum();
    i64, |x| x.wrapping_abs(), x.signum();
    u8, |x| x, x.min(1);
    u16, |x| x, x.min(1);
    u32, |x| x, x.min(1);
    u64, |x| x, x.min(1);
}

/// A value of an integer type narrower than a byte, always in the range of its type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Narrow<const BITS: u32, const SIGNED: bool>(i8);

impl<const BITS: u32, const SIGNED: bool> Narrow<BITS, SIGNED> {
    const TYPE: NarrowInt = NarrowInt::new(BITS, SIGNED);

    /// The value with the same low bits.
    #[inline]
    pub(super) fn new(value: i64) -> Self {
        Narrow(Self::TYPE.wrap(value) as i8)
    }
    /// The number.
    #[inline]
    pub(super) fn get(self) -> i64 {
        self.0.into()
    }
}

impl<const BITS: u32, const SIGNED: bool> HloInt for Narrow<BITS, SIGNED> {
    const BITS: u32 = BITS;
    fn divide(self, rhs: Self) -> Self {
        Self::new(Self::TYPE.divide(self.get(), rhs.get()))
    }
    fn remainder(self, rhs: Self) -> Self {
        Self::new(Self::TYPE.remainder(self.get(), rhs.get()))
    }
    fn shift_left(self, amount: Self) -> Self {
        Self::new(Self::TYPE.shift_left(self.get(), amount.get()))
    }
    fn shift_right_logical(self, amount: Self) -> Self {
        Self::new(Self::TYPE.shift_right_logical(self.get(), amount.get()))
    }
    fn shift_right_arithmetic(self, amount: Self) -> Self {
        Self::new(Self::TYPE.shift_right_arithmetic(self.get(), amount.get()))
    }
    fn power(self, exponent: Self) -> Self {
        Self::new(Self::TYPE.power(self.get(), exponent.get()))
    }
    fn multiply_high(self, rhs: Self) -> Self {
        Self::new(Self::TYPE.multiply_high(self.get(), rhs.get()))
    }
    fn population_count(self) -> Self {
        Self::new(Self::TYPE.population_count(self.get()))
    }
    fn count_leading_zeros(self) -> Self {
        Self::new(Self::TYPE.count_leading_zeros(self.get()))
    }
    fn from_float(value: f64) -> Self {
        Self::new(Self::TYPE.from_float(value))
    }
}

impl<const BITS: u32, const SIGNED: bool> Integer for Narrow<BITS, SIGNED> {
    fn add(self, rhs: Self) -> Self {
        Self::new(self.get() + rhs.get())
    }
    fn subtract(self, rhs: Self) -> Self {
        Self::new(self.get() - rhs.get())
    }
    fn multiply(self, rhs: Self) -> Self {
        Self::new(self.get() * rhs.get())
    }
    fn negate(self) -> Self {
        Self::new(-self.get())
    }
    fn abs(self) -> Self {
        Self::new(self.get().abs())
    }
    fn sign(self) -> Self {
        Self::new(self.get().signum())
    }
    fn and(self, rhs: Self) -> Self {
        Self::new(self.get() & rhs.get())
    }
    fn or(self, rhs: Self) -> Self {
        Self::new(self.get() | rhs.get())
    }
    fn xor(self, rhs: Self) -> Self {
        Self::new(self.get() ^ rhs.get())
    }
    fn not(self) -> Self {
        Self::new(!self.get())
    }
}
