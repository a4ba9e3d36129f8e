//! How the elements of each type lie in memory, and as what they are computed with.
//!
//! An element is stored in an unsigned integer of its size ([`Storage`]); [`Read::read`] makes of it the value that
//! arithmetic works on, [`Element::write`] stores a value. f16, bf16 and the smaller floats are computed as `f32`, so
//! that storing rounds once.

use super::integer::Narrow;
use crate::scalar::Scalar;
use bytemuck::Pod;
use half::{bf16, f16};
use hloom_ir::element_type::ElementType;
use hloom_numerics::small_float as small;
use num_complex::Complex;

/// The bits of an element in memory.
pub(super) trait Storage: Pod {
    /// The bits, the rest zero.
    fn widen(self) -> u128;
    /// The low bits.
    fn narrow(bits: u128) -> Self;
}

macro_rules! storage {
    ($($t:ty),*) => {$(
        impl Storage for $t {
            #[inline(always)]
            fn widen(self) -> u128 {
                self.into()
            }
            #[inline(always)]
            fn narrow(bits: u128) -> Self {
                bits as $t
            }
        }
    )*};
}
storage!(u8, u16, u32, u64, u128);

/// A way to read elements.
pub(super) trait Read: 'static {
    type Bits: Storage;
    type Value: Copy;
    /// Whether arrays read so get loops of their own; rare types share those that call a function per element.
    const FAST: bool;
    fn read(bits: Self::Bits) -> Self::Value;

    #[inline(always)]
    fn from_scalar(scalar: Scalar) -> Self::Value {
        Self::read(Self::Bits::narrow(scalar.0))
    }
}

/// An element type.
pub(super) trait Element: Read {
    const TYPE: ElementType;
    fn write(value: Self::Value) -> Self::Bits;

    #[inline(always)]
    fn to_scalar(value: Self::Value) -> Scalar {
        Scalar(Self::write(value).widen())
    }
}

/// A float type with its order of all values, NaN among them.
pub(super) trait TotalOrder: Read {
    /// A number that is ordered as the elements are: −NaN, −inf, …, −0, +0, …, +inf, +NaN.
    fn key(bits: Self::Bits) -> i64;
}

/// The elements of `E` read as their place in the total order.
pub(super) struct Total<E>(E);

impl<E: TotalOrder> Read for Total<E> {
    type Bits = E::Bits;
    type Value = i64;
    const FAST: bool = false;
    #[inline(always)]
    fn read(bits: E::Bits) -> i64 {
        E::key(bits)
    }
}

/// The marker types, one per element type.
#[allow(missing_docs, reason = "each is the element type of that name")]
pub(super) mod types {
    macro_rules! markers {
        ($($t:ident)*) => { $(pub(in super::super) struct $t;)* };
    }
    markers!(Pred S1 S2 S4 S8 S16 S32 S64 U1 U2 U4 U8 U16 U32 U64 F16 Bf16 F32 F64 C64 C128);
    markers!(F8e5m2 F8e4m3 F8e4m3fn F8e4m3b11fnuz F8e3m4 F8e5m2fnuz F8e4m3fnuz F8e8m0fnu F4e2m1fn F6e3m2fn F6e2m3fn);
}

macro_rules! element {
    ($t:ident, $fast:literal, $bits:ty, $value:ty, |$b:ident| $read:expr, |$v:ident| $write:expr) => {
        impl Read for types::$t {
            type Bits = $bits;
            type Value = $value;
            const FAST: bool = $fast;
            #[inline(always)]
            fn read($b: $bits) -> $value {
                $read
            }
        }
        impl Element for types::$t {
            const TYPE: ElementType = ElementType::$t;
            #[inline(always)]
            fn write($v: $value) -> $bits {
                $write
            }
        }
    };
}

element!(Pred, true, u8, bool, |b| b != 0, |v| v.into());
element!(S8, true, u8, i8, |b| b as i8, |v| v as u8);
element!(S16, true, u16, i16, |b| b as i16, |v| v as u16);
element!(S32, true, u32, i32, |b| b as i32, |v| v as u32);
element!(S64, true, u64, i64, |b| b as i64, |v| v as u64);
element!(U8, true, u8, u8, |b| b, |v| v);
element!(U16, true, u16, u16, |b| b, |v| v);
element!(U32, true, u32, u32, |b| b, |v| v);
element!(U64, true, u64, u64, |b| b, |v| v);
element!(S1, false, u8, Narrow<1, true>, |b| Narrow::new(b as i8 as i64), |v| v.get() as u8);
element!(S2, false, u8, Narrow<2, true>, |b| Narrow::new(b as i8 as i64), |v| v.get() as u8);
element!(S4, false, u8, Narrow<4, true>, |b| Narrow::new(b as i8 as i64), |v| v.get() as u8);
element!(U1, false, u8, Narrow<1, false>, |b| Narrow::new(b as i64), |v| v.get() as u8);
element!(U2, false, u8, Narrow<2, false>, |b| Narrow::new(b as i64), |v| v.get() as u8);
element!(U4, false, u8, Narrow<4, false>, |b| Narrow::new(b as i64), |v| v.get() as u8);
element!(F16, true, u16, f32, |b| f16::from_bits(b).to_f32(), |v| f16::from_f32(v).to_bits());
element!(Bf16, true, u16, f32, |b| bf16::from_bits(b).to_f32(), |v| bf16::from_f32(v).to_bits());
element!(F32, true, u32, f32, |b| f32::from_bits(b), |v| v.to_bits());
element!(F64, true, u64, f64, |b| f64::from_bits(b), |v| v.to_bits());
element!(C64, true, u64, Complex<f32>, |b| bytemuck::cast(b), |v| bytemuck::cast(v));
element!(C128, true, u128, Complex<f64>, |b| bytemuck::cast(b), |v| bytemuck::cast(v));

macro_rules! small_floats {
    ($($t:ident $float:ident),*) => {$(
        element!($t, false, u8, f32, |b| small::$float(b).to_f32(), |v| small::$float::from_f32(v).0);
        impl TotalOrder for types::$t {
            #[inline(always)]
            fn key(bits: u8) -> i64 {
                types::F32::key(small::$float(bits).to_f32().to_bits())
            }
        }
    )*};
}
small_floats!(
    F8e5m2 F8E5M2, F8e4m3 F8E4M3, F8e4m3fn F8E4M3FN, F8e4m3b11fnuz F8E4M3B11FNUZ, F8e3m4 F8E3M4,
    F8e5m2fnuz F8E5M2FNUZ, F8e4m3fnuz F8E4M3FNUZ, F8e8m0fnu F8E8M0FNU, F4e2m1fn F4E2M1FN, F6e3m2fn F6E3M2FN,
    F6e2m3fn F6E2M3FN
);

macro_rules! total_order {
    ($($t:ident $signed:ty),*) => {$(
        impl TotalOrder for types::$t {
            #[inline(always)]
            fn key(bits: Self::Bits) -> i64 {
                // Negative floats: the greater the magnitude, the less the value.
                let bits = bits as $signed;
                (bits ^ ((bits >> (<$signed>::BITS - 1)) & <$signed>::MAX)).into()
            }
        }
    )*};
}
total_order!(F16 i16, Bf16 i16, F32 i32, F64 i64);

/// Evaluates `$body` with `$T` standing for the marker type of the element type `$type`, which must be one of a class;
/// `$other` for types that are not.
macro_rules! with_type {
    ($type:expr, $T:ident => $body:expr) => {
        with_type!(@match $type, $T => $body, None,
            Pred S1 S2 S4 S8 S16 S32 S64 U1 U2 U4 U8 U16 U32 U64 F16 Bf16 F32 F64 C64 C128
            F8e5m2 F8e4m3 F8e4m3fn F8e4m3b11fnuz F8e3m4 F8e5m2fnuz F8e4m3fnuz F8e8m0fnu F4e2m1fn F6e3m2fn F6e2m3fn)
    };
    (common $type:expr, $T:ident => $body:expr) => {
        with_type!(@match $type, $T => $body, None, Pred S8 S32 S64 U8 U32 U64 F16 Bf16 F32 F64)
    };
    (integer $type:expr, $T:ident => $body:expr, $other:expr) => {
        with_type!(@match $type, $T => $body, $other, S1 S2 S4 S8 S16 S32 S64 U1 U2 U4 U8 U16 U32 U64)
    };
    (float $type:expr, $T:ident => $body:expr, $other:expr) => {
        with_type!(@match $type, $T => $body, $other, F16 Bf16 F32 F64
            F8e5m2 F8e4m3 F8e4m3fn F8e4m3b11fnuz F8e3m4 F8e5m2fnuz F8e4m3fnuz F8e8m0fnu F4e2m1fn F6e3m2fn F6e2m3fn)
    };
    (@match $type:expr, $T:ident => $body:expr, $other:expr, $($t:ident)*) => {
        match $type {
            $(hloom_ir::element_type::ElementType::$t => {
                type $T = $crate::ops::elementwise::element::types::$t;
                $body
            })*
            #[allow(unreachable_patterns)]
            _ => $other,
        }
    };
}
pub(super) use with_type;
