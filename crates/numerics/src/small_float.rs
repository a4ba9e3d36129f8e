//! Floating-point formats of at most sixteen bits, described as data.
//!
//! A [`Format`] says how the bits of a type are laid out; [`Format::encode`] and
//! [`Format::decode`] work for all of them. The newtypes (`F8E5M2`, …) are bytes tagged with
//! their format.
//!
//! Invariants: encoding rounds the `f64` once, to nearest, ties to even; decoding is
//! exact; what happens to NaN, infinity, overflow and zero in a format that lacks them is that of
//! XLA's own types and is stated at [`Format::encode`]. Equality and hashing of the newtypes are
//! those of the bits; compare values through `to_f32`.

use half::{bf16, f16};

/// Which codes of a format are NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NanKind {
    /// All exponent bits set and a nonzero mantissa: the only kind with payloads.
    Ieee,
    /// All bits but the sign set.
    AllOnes,
    /// The code that would be negative zero, which the format therefore lacks.
    NegativeZero,
    /// No NaN at all.
    None,
}

/// The layout of a floating-point format: sign (where signed), exponent, mantissa, from the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    /// The name as it stands in HLO text.
    pub name: &'static str,
    /// Number of exponent bits.
    pub exponent_bits: u32,
    /// Number of explicit mantissa bits.
    pub mantissa_bits: u32,
    /// What is taken from the exponent field to give the exponent.
    pub bias: i32,
    /// Whether there are infinities (all exponent bits set, mantissa zero).
    pub has_infinity: bool,
    /// Which codes are NaN.
    pub nan: NanKind,
    /// Whether there is a sign bit.
    pub signed: bool,
    /// Whether exponent field 0 holds zero and the subnormals; if not, it is one more normal
    /// exponent and the format has no zero.
    pub has_zero: bool,
    /// Significant digits with which XLA prints the type (`%.Ng`).
    pub print_digits: usize,
}

const F64_MANTISSA_BITS: u32 = 52;
const F64_BIAS: i32 = 1023;

impl Format {
    /// Width of a code in bits.
    pub const fn bits(&self) -> u32 {
        self.signed as u32 + self.exponent_bits + self.mantissa_bits
    }

    /// All bits of a code.
    pub const fn mask(&self) -> u16 {
        ((1u32 << self.bits()) - 1) as u16
    }

    /// The sign bit, or 0 where there is none.
    pub const fn sign_mask(&self) -> u16 {
        if self.signed { 1 << (self.exponent_bits + self.mantissa_bits) } else { 0 }
    }

    /// The mantissa bits.
    pub const fn mantissa_mask(&self) -> u16 {
        (1 << self.mantissa_bits) - 1
    }

    /// All bits but the sign.
    const fn magnitude_mask(&self) -> u16 {
        self.mask() ^ self.sign_mask()
    }

    /// The exponent bits.
    const fn exponent_mask(&self) -> u16 {
        self.magnitude_mask() ^ self.mantissa_mask()
    }

    /// The code of the greatest finite value.
    pub const fn max_code(&self) -> u16 {
        match self.nan {
            // The whole top exponent is taken by infinity and NaN.
            NanKind::Ieee => self.exponent_mask() - 1,
            NanKind::AllOnes => self.magnitude_mask() - 1,
            NanKind::NegativeZero | NanKind::None => self.magnitude_mask(),
        }
    }

    /// The code of the least (most negative, or smallest where unsigned) finite value.
    pub const fn lowest_code(&self) -> u16 {
        if self.signed { self.sign_mask() | self.max_code() } else { 0 }
    }

    /// The code of the smallest positive normal value.
    pub const fn min_positive_code(&self) -> u16 {
        if self.has_zero { 1 << self.mantissa_bits } else { 0 }
    }

    /// The code of the smallest positive value, which is subnormal where the format has subnormals.
    pub const fn min_subnormal_code(&self) -> u16 {
        self.has_zero as u16
    }

    /// The code of the default NaN of that sign, where there is one.
    pub const fn nan_code(&self, negative: bool) -> Option<u16> {
        let sign = if negative { self.sign_mask() } else { 0 };
        match self.nan {
            NanKind::Ieee => Some(sign | self.exponent_mask() | (1 << (self.mantissa_bits.saturating_sub(1)))),
            NanKind::AllOnes => Some(sign | self.magnitude_mask()),
            NanKind::NegativeZero => Some(self.sign_mask()),
            NanKind::None => None,
        }
    }

    /// The code of the infinity of that sign, where there is one.
    pub const fn infinity_code(&self, negative: bool) -> Option<u16> {
        if self.has_infinity {
            let sign = if negative { self.sign_mask() } else { 0 };
            Some(sign | self.exponent_mask())
        } else {
            None
        }
    }

    /// How many mantissa bits of a NaN are its payload: all where NaNs are as in IEEE 754, else 0.
    pub const fn nan_payload_bits(&self) -> u32 {
        match self.nan {
            NanKind::Ieee => self.mantissa_bits,
            _ => 0,
        }
    }

    /// Whether the code is a NaN. Bits above the format's width do not matter.
    pub const fn is_nan(&self, code: u16) -> bool {
        let magnitude = code & self.magnitude_mask();
        match self.nan {
            NanKind::Ieee => magnitude > self.exponent_mask(),
            NanKind::AllOnes => magnitude == self.magnitude_mask(),
            NanKind::NegativeZero => code & self.mask() == self.sign_mask(),
            NanKind::None => false,
        }
    }

    /// Whether the code is an infinity.
    pub const fn is_infinite(&self, code: u16) -> bool {
        self.has_infinity && code & self.magnitude_mask() == self.exponent_mask()
    }

    /// The bits of the `f64` that a code stands for. Every finite code of these formats is a
    /// normal `f64`; a NaN keeps its sign bit and loses its payload.
    pub const fn decode_bits(&self, code: u16) -> u64 {
        let sign = if code & self.sign_mask() != 0 { 1u64 << 63 } else { 0 };
        if self.is_nan(code) {
            return sign | 0x7ff8_0000_0000_0000;
        }
        if self.is_infinite(code) {
            return sign | 0x7ff0_0000_0000_0000;
        }
        let magnitude = code & self.magnitude_mask();
        let field = (magnitude >> self.mantissa_bits) as i32;
        let mantissa = (magnitude & self.mantissa_mask()) as u64;
        let (exponent, fraction) = if field == 0 && self.has_zero {
            if mantissa == 0 {
                return sign;
            }
            // Normalise the subnormal: its top set bit becomes the hidden one.
            let top = 63 - mantissa.leading_zeros();
            let exponent = 1 - self.bias - self.mantissa_bits as i32 + top as i32;
            let fraction = (mantissa ^ (1 << top)) << (F64_MANTISSA_BITS - top);
            (exponent, fraction)
        } else {
            let fraction = mantissa << (F64_MANTISSA_BITS - self.mantissa_bits);
            (field - self.bias, fraction)
        };
        sign | (((exponent + F64_BIAS) as u64) << F64_MANTISSA_BITS) | fraction
    }

    /// The value of a code.
    pub const fn decode(&self, code: u16) -> f64 {
        f64::from_bits(self.decode_bits(code))
    }

    /// The code nearest to a value, ties to the even significand (which is the greater value where
    /// there are no mantissa bits). What a format lacks:
    ///
    /// * overflow and infinity become infinity, else NaN, else the greatest finite value;
    /// * NaN keeps its sign, not its payload; without NaN it becomes a zero of the opposite sign
    ///   (XLA's types do so);
    /// * without negative zero, whatever rounds to zero becomes zero;
    /// * without a sign, negative values and −0 become NaN;
    /// * without zero, zero becomes NaN, yet a positive value never rounds below the smallest.
    #[inline]
    pub const fn encode(&self, value: f64) -> u16 {
        let bits = value.to_bits();
        let negative = bits >> 63 != 0;
        let magnitude = bits & !(1 << 63);
        let sign = if negative { self.sign_mask() } else { 0 };
        if magnitude > 0x7ff0_0000_0000_0000 {
            return match self.nan_code(negative) {
                Some(code) => code,
                None => sign ^ self.sign_mask(),
            };
        }
        let lacks_value = (negative && !self.signed) || (magnitude == 0 && !self.has_zero);
        if lacks_value || magnitude == 0x7ff0_0000_0000_0000 {
            return self.overflow(negative);
        }
        let code = self.round(magnitude);
        if code > self.max_code() as u64 {
            return self.overflow(negative);
        }
        if code == 0 && matches!(self.nan, NanKind::NegativeZero) {
            return 0;
        }
        sign | code as u16
    }

    /// As [`Format::encode`], from an `f32`. The one difference is XLA's: in a format without zero
    /// a subnormal `f32` above the smallest value becomes the next one, however near it is.
    #[inline]
    pub const fn encode_f32(&self, value: f32) -> u16 {
        let bits = value.to_bits();
        if !self.has_zero && bits > 0x40_0000 && bits < 0x80_0000 {
            return 1;
        }
        // Widening may lose the sign of a NaN in a constant, so it is carried over.
        let wide = (value as f64).to_bits() & !(1 << 63);
        let sign = ((bits >> 31) as u64) << 63;
        self.encode(f64::from_bits(sign | wide))
    }

    /// The code for a value beyond the format's range.
    const fn overflow(&self, negative: bool) -> u16 {
        if let Some(code) = self.infinity_code(negative) {
            return code;
        }
        if let Some(code) = self.nan_code(negative) {
            return code;
        }
        if negative { self.lowest_code() } else { self.max_code() }
    }

    /// Rounds a finite, non-negative `f64` (as bits) to a magnitude code, as if the exponent field
    /// had no upper limit.
    #[inline]
    const fn round(&self, bits: u64) -> u64 {
        let exponent = (bits >> F64_MANTISSA_BITS) as i32 - F64_BIAS;
        let fraction = bits & ((1 << F64_MANTISSA_BITS) - 1);
        // The field that stands for `least`, the smallest normal exponent.
        let first_field = self.has_zero as i32;
        let least = first_field - self.bias;
        let drop = F64_MANTISSA_BITS - self.mantissa_bits;
        let (scaled, shift) = if exponent >= least {
            // Exponent and fraction side by side: a carry out of the fraction moves the exponent.
            let field = (exponent - least + first_field) as u64;
            ((field << F64_MANTISSA_BITS) | fraction, drop)
        } else if self.has_zero {
            // An `f64` subnormal is also given a hidden bit here, which does not matter: it is
            // far below half of the smallest value of any of these formats.
            let shift = drop + (least - exponent) as u32;
            ((1 << F64_MANTISSA_BITS) | fraction, shift)
        } else {
            return 0;
        };
        if shift > F64_MANTISSA_BITS + 1 {
            return 0;
        }
        let kept = scaled >> shift;
        let rest = scaled & ((1 << shift) - 1);
        let half = 1u64 << (shift - 1);
        // Without mantissa bits what is kept is the hidden bit, which is odd: ties go up.
        let odd = kept & 1 == 1 || self.mantissa_bits == 0;
        kept + (rest > half || (rest == half && odd)) as u64
    }
}

/// The format of `f16`.
pub const F16_FORMAT: Format = ieee("f16", 5, 10, 5);

/// The format of `bf16`. Every finite code is exact in `f64`.
pub const BF16_FORMAT: Format = ieee("bf16", 8, 7, 4);

/// `f16` nearest to an `f64`, rounded once. (Going through `f32` would round twice.)
#[inline]
pub fn f16_from_f64(value: f64) -> f16 {
    f16::from_bits(F16_FORMAT.encode(value))
}

/// `bf16` nearest to an `f64`, rounded once. (Going through `f32` would round twice.)
#[inline]
pub fn bf16_from_f64(value: f64) -> bf16 {
    bf16::from_bits(BF16_FORMAT.encode(value))
}

const fn ieee(name: &'static str, exponent_bits: u32, mantissa_bits: u32, digits: usize) -> Format {
    Format {
        name,
        exponent_bits,
        mantissa_bits,
        bias: (1 << (exponent_bits - 1)) - 1,
        has_infinity: true,
        nan: NanKind::Ieee,
        signed: true,
        has_zero: true,
        print_digits: digits,
    }
}

/// A format without infinities, with the given bias and kind of NaN.
const fn finite(base: Format, bias: i32, nan: NanKind) -> Format {
    Format { bias, nan, has_infinity: false, ..base }
}

/// What the newtypes have in common, for generic code.
pub trait SmallFloat: Copy + Sized + 'static {
    /// The layout.
    const FORMAT: Format;
    /// From the code.
    fn from_bits(bits: u8) -> Self;
    /// The code.
    fn to_bits(self) -> u8;
    /// The nearest value, see [`Format::encode_f32`].
    fn from_f32(value: f32) -> Self;
    /// The nearest value, rounded once, see [`Format::encode`].
    fn from_f64(value: f64) -> Self;
    /// The value, exactly.
    fn to_f32(self) -> f32;
    /// The value, exactly.
    fn to_f64(self) -> f64;
    /// Whether this is a NaN.
    fn is_nan(self) -> bool {
        Self::FORMAT.is_nan(self.to_bits() as u16)
    }
}

macro_rules! small_floats {
    ($($(#[$doc:meta])* $name:ident = $format:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(pub u8);

        impl $name {
            /// The layout.
            pub const FORMAT: Format = $format;
            /// The default NaN, where there is one.
            pub const NAN: Option<Self> = match Self::FORMAT.nan_code(false) {
                Some(code) => Some(Self(code as u8)),
                None => None,
            };
            /// Positive infinity, where there is one.
            pub const INFINITY: Option<Self> = match Self::FORMAT.infinity_code(false) {
                Some(code) => Some(Self(code as u8)),
                None => None,
            };
            /// The greatest finite value.
            pub const MAX: Self = Self(Self::FORMAT.max_code() as u8);
            /// The least finite value.
            pub const MIN: Self = Self(Self::FORMAT.lowest_code() as u8);
            /// The smallest positive normal value.
            pub const MIN_POSITIVE: Self = Self(Self::FORMAT.min_positive_code() as u8);
            /// The smallest positive value.
            pub const MIN_SUBNORMAL: Self = Self(Self::FORMAT.min_subnormal_code() as u8);

            /// The nearest value, see [`Format::encode_f32`].
            #[inline]
            pub const fn from_f32(value: f32) -> Self {
                Self(Self::FORMAT.encode_f32(value) as u8)
            }

            /// The nearest value, rounded once, see [`Format::encode`].
            #[inline]
            pub const fn from_f64(value: f64) -> Self {
                Self(Self::FORMAT.encode(value) as u8)
            }

            /// The value, exactly. A NaN keeps its sign bit.
            #[inline]
            pub const fn to_f32(self) -> f32 {
                const VALUES: [f32; 256] = decode_table(&$name::FORMAT);
                static TABLE: [f32; 256] = VALUES;
                TABLE[self.0 as usize]
            }

            /// The value, exactly. A NaN keeps its sign bit.
            #[inline]
            pub const fn to_f64(self) -> f64 {
                Self::FORMAT.decode(self.0 as u16)
            }

            /// Whether this is a NaN.
            #[inline]
            pub const fn is_nan(self) -> bool {
                Self::FORMAT.is_nan(self.0 as u16)
            }

            /// Whether this is an infinity.
            #[inline]
            pub const fn is_infinite(self) -> bool {
                Self::FORMAT.is_infinite(self.0 as u16)
            }

            /// Whether this is neither NaN nor an infinity.
            #[inline]
            pub const fn is_finite(self) -> bool {
                !self.is_nan() && !self.is_infinite()
            }
        }

        impl SmallFloat for $name {
            const FORMAT: Format = $name::FORMAT;
            #[inline]
            fn from_bits(bits: u8) -> Self { Self(bits) }
            #[inline]
            fn to_bits(self) -> u8 { self.0 }
            #[inline]
            fn from_f32(value: f32) -> Self { $name::from_f32(value) }
            #[inline]
            fn from_f64(value: f64) -> Self { $name::from_f64(value) }
            #[inline]
            fn to_f32(self) -> f32 { $name::to_f32(self) }
            #[inline]
            fn to_f64(self) -> f64 { $name::to_f64(self) }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({:#04x} = {})", stringify!($name), self.0, self.to_f32())
            }
        }
    )*};
}

/// The values of all bytes. Every finite value of the eight-bit formats is exact in `f32`.
const fn decode_table(format: &Format) -> [f32; 256] {
    let mut table = [0f32; 256];
    let mut code = 0;
    while code < 256 {
        let wide = format.decode(code as u16);
        table[code] = if wide.is_nan() {
            f32::from_bits(0x7fc0_0000 | (((wide.to_bits() >> 63) as u32) << 31))
        } else {
            wide as f32
        };
        code += 1;
    }
    table
}

small_floats! {
    /// 8 bits: sign, 5 exponent, 2 mantissa, as IEEE 754 would have it.
    F8E5M2 = ieee("f8e5m2", 5, 2, 2);
    /// 8 bits: sign, 4 exponent, 3 mantissa, as IEEE 754 would have it.
    F8E4M3 = ieee("f8e4m3", 4, 3, 3);
    /// 8 bits: sign, 4 exponent, 3 mantissa; no infinity, one NaN of each sign.
    F8E4M3FN = finite(ieee("f8e4m3fn", 4, 3, 3), 7, NanKind::AllOnes);
    /// 8 bits: sign, 4 exponent (bias 11), 3 mantissa; no infinity, one NaN, no −0.
    F8E4M3B11FNUZ = finite(ieee("f8e4m3b11fnuz", 4, 3, 3), 11, NanKind::NegativeZero);
    /// 8 bits: sign, 3 exponent, 4 mantissa, as IEEE 754 would have it.
    F8E3M4 = ieee("f8e3m4", 3, 4, 3);
    /// 8 bits: sign, 5 exponent (bias 16), 2 mantissa; no infinity, one NaN, no −0.
    F8E5M2FNUZ = finite(ieee("f8e5m2fnuz", 5, 2, 2), 16, NanKind::NegativeZero);
    /// 8 bits: sign, 4 exponent (bias 8), 3 mantissa; no infinity, one NaN, no −0.
    F8E4M3FNUZ = finite(ieee("f8e4m3fnuz", 4, 3, 3), 8, NanKind::NegativeZero);
    /// 8 bits, all exponent: the powers of two from 2⁻¹²⁷ to 2¹²⁷ and one NaN.
    F8E8M0FNU = Format {
        signed: false,
        has_zero: false,
        ..finite(ieee("f8e8m0fnu", 8, 0, 2), 127, NanKind::AllOnes)
    };
    /// 4 bits: sign, 2 exponent, 1 mantissa; finite only. The upper half of the byte is ignored.
    F4E2M1FN = finite(ieee("f4e2m1fn", 2, 1, 2), 1, NanKind::None);
    /// 6 bits: sign, 2 exponent, 3 mantissa; finite only. The upper bits of the byte are ignored.
    F6E2M3FN = finite(ieee("f6e2m3fn", 2, 3, 3), 1, NanKind::None);
    /// 6 bits: sign, 3 exponent, 2 mantissa; finite only. The upper bits of the byte are ignored.
    F6E3M2FN = finite(ieee("f6e3m2fn", 3, 2, 2), 3, NanKind::None);
}
