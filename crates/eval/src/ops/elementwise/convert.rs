//! Conversion of values between all types.
//!
//! Every conversion rounds once, to nearest and ties to even. Floats become integers towards zero, saturating, with NaN
//! as 0; integers wrap; anything but zero is true; a complex number loses its imaginary part where the result is real.

use super::element::{Element, Read, Storage, types, with_type};
use super::integer::Narrow;
use super::kernel::{Kernel1, Loop1, map_bits1};
use crate::scalar::{Function1, Scalar};
use half::{bf16, f16};
use hloom_ir::element_type::ElementType;
use hloom_numerics::int::HloInt;
use hloom_numerics::small_float as small;
use num_complex::Complex;

/// The conversion of elements of one type to another.
pub(super) fn convert(from: ElementType, to: ElementType) -> Option<Kernel1> {
    let scalar = with_type!(from, A => with_type!(to, R => scalar_function::<A, R>()));
    let fast = with_type!(common from, A => with_type!(common to, R => array_function::<A, R>()));
    Some(Kernel1 { result: to, scalar: scalar?, fast })
}

fn scalar_function<A: Read<Value: Source>, R: Target>() -> Option<Function1> {
    Some(|s| Scalar(A::from_scalar(s).convert::<R>().widen()))
}

fn array_function<A: Read<Value: Source>, R: Target>() -> Option<Loop1> {
    Some(|a| map_bits1::<A::Bits, R::Bits>(a, R::TYPE, |bits| A::read(bits).convert::<R>()))
}

/// A value that can become an element of any type.
pub(super) trait Source: Copy {
    fn convert<R: Target>(self) -> R::Bits;
}

/// A type that any value can become an element of.
pub(super) trait Target: Element {
    fn from_i64(x: i64) -> Self::Bits;
    fn from_u64(x: u64) -> Self::Bits;
    fn from_f32(x: f32) -> Self::Bits;
    fn from_f64(x: f64) -> Self::Bits;
    fn from_complex(re: f64, _im: f64) -> Self::Bits {
        Self::from_f64(re)
    }
}

macro_rules! source {
    ($($t:ty => $method:ident($wide:ty);)*) => {$(
        impl Source for $t {
            #[inline(always)]
            fn convert<R: Target>(self) -> R::Bits {
                R::$method(<$wide>::from(self))
            }
        }
    )*};
}
source! {
    bool => from_u64(u64);
    i8 => from_i64(i64); i16 => from_i64(i64); i32 => from_i64(i64); i64 => from_i64(i64);
    u8 => from_u64(u64); u16 => from_u64(u64); u32 => from_u64(u64); u64 => from_u64(u64);
    f32 => from_f32(f32); f64 => from_f64(f64);
}

impl<const BITS: u32, const SIGNED: bool> Source for Narrow<BITS, SIGNED> {
    fn convert<R: Target>(self) -> R::Bits {
        R::from_i64(self.get())
    }
}

impl Source for Complex<f32> {
    fn convert<R: Target>(self) -> R::Bits {
        R::from_complex(self.re.into(), self.im.into())
    }
}

impl Source for Complex<f64> {
    fn convert<R: Target>(self) -> R::Bits {
        R::from_complex(self.re, self.im)
    }
}

impl Target for types::Pred {
    #[inline(always)]
    fn from_i64(x: i64) -> u8 {
        (x != 0).into()
    }
    #[inline(always)]
    fn from_u64(x: u64) -> u8 {
        (x != 0).into()
    }
    #[inline(always)]
    fn from_f32(x: f32) -> u8 {
        (x != 0.0).into()
    }
    #[inline(always)]
    fn from_f64(x: f64) -> u8 {
        (x != 0.0).into()
    }
}

macro_rules! integer_targets {
    ($($t:ident)*) => {$(
        impl Target for types::$t {
            #[inline(always)]
            fn from_i64(x: i64) -> Self::Bits {
                x as Self::Bits
            }
            #[inline(always)]
            fn from_u64(x: u64) -> Self::Bits {
                x as Self::Bits
            }
            #[inline(always)]
            fn from_f32(x: f32) -> Self::Bits {
                x as Self::Value as Self::Bits
            }
            #[inline(always)]
            fn from_f64(x: f64) -> Self::Bits {
                x as Self::Value as Self::Bits
            }
        }
    )*};
}
integer_targets!(S8 S16 S32 S64 U8 U16 U32 U64);

macro_rules! narrow_targets {
    ($($t:ident)*) => {$(
        impl Target for types::$t {
            fn from_i64(x: i64) -> u8 {
                Self::write(Narrow::new(x))
            }
            fn from_u64(x: u64) -> u8 {
                Self::write(Narrow::new(x as i64))
            }
            fn from_f32(x: f32) -> u8 {
                Self::write(Narrow::from_float(x.into()))
            }
            fn from_f64(x: f64) -> u8 {
                Self::write(Narrow::from_float(x))
            }
        }
    )*};
}
narrow_targets!(S1 S2 S4 U1 U2 U4);

/// Below this every integer is an f32, from which the conversions are quicker.
const EXACT_IN_F32: u64 = 1 << 24;

/// An f64 that rounds to any float with at most 50 bits of precision as the integer itself would: exact, or between the
/// same two neighbours ("round to odd").
fn exact_enough(x: u64) -> f64 {
    if x >> 53 == 0 { x as f64 } else { ((x & !0x7ff) | (u64::from(x & 0x7ff != 0) << 11)) as f64 }
}

macro_rules! float_targets {
    ($($t:ident, |$f32:ident| $from_f32:expr, |$f64:ident| $from_f64:expr;)*) => {$(
        impl Target for types::$t {
            #[inline]
            fn from_i64(x: i64) -> Self::Bits {
                if x.unsigned_abs() < EXACT_IN_F32 {
                    return Self::from_f32(x as f32);
                }
                Self::from_f64(exact_enough(x.unsigned_abs()) * if x < 0 { -1.0 } else { 1.0 })
            }
            #[inline]
            fn from_u64(x: u64) -> Self::Bits {
                if x < EXACT_IN_F32 { Self::from_f32(x as f32) } else { Self::from_f64(exact_enough(x)) }
            }
            #[inline]
            fn from_f32($f32: f32) -> Self::Bits {
                $from_f32
            }
            #[inline]
            fn from_f64($f64: f64) -> Self::Bits {
                $from_f64
            }
        }
    )*};
}
float_targets! {
    F16, |x| f16::from_f32(x).to_bits(), |x| small::f16_from_f64(x).to_bits();
    Bf16, |x| bf16::from_f32(x).to_bits(), |x| small::bf16_from_f64(x).to_bits();
    F8e5m2, |x| small::F8E5M2::from_f32(x).0, |x| small::F8E5M2::from_f64(x).0;
    F8e4m3, |x| small::F8E4M3::from_f32(x).0, |x| small::F8E4M3::from_f64(x).0;
    F8e4m3fn, |x| small::F8E4M3FN::from_f32(x).0, |x| small::F8E4M3FN::from_f64(x).0;
    F8e4m3b11fnuz, |x| small::F8E4M3B11FNUZ::from_f32(x).0, |x| small::F8E4M3B11FNUZ::from_f64(x).0;
    F8e3m4, |x| small::F8E3M4::from_f32(x).0, |x| small::F8E3M4::from_f64(x).0;
    F8e5m2fnuz, |x| small::F8E5M2FNUZ::from_f32(x).0, |x| small::F8E5M2FNUZ::from_f64(x).0;
    F8e4m3fnuz, |x| small::F8E4M3FNUZ::from_f32(x).0, |x| small::F8E4M3FNUZ::from_f64(x).0;
    F8e8m0fnu, |x| small::F8E8M0FNU::from_f32(x).0, |x| small::F8E8M0FNU::from_f64(x).0;
    F4e2m1fn, |x| small::F4E2M1FN::from_f32(x).0, |x| small::F4E2M1FN::from_f64(x).0;
    F6e3m2fn, |x| small::F6E3M2FN::from_f32(x).0, |x| small::F6E3M2FN::from_f64(x).0;
    F6e2m3fn, |x| small::F6E2M3FN::from_f32(x).0, |x| small::F6E2M3FN::from_f64(x).0;
}

macro_rules! wide_float_targets {
    ($($t:ident $float:ty;)*) => {$(
        impl Target for types::$t {
            #[inline(always)]
            fn from_i64(x: i64) -> Self::Bits {
                (x as $float).to_bits()
            }
            #[inline(always)]
            fn from_u64(x: u64) -> Self::Bits {
                (x as $float).to_bits()
            }
            #[inline(always)]
            fn from_f32(x: f32) -> Self::Bits {
                (x as $float).to_bits()
            }
            #[inline(always)]
            fn from_f64(x: f64) -> Self::Bits {
                (x as $float).to_bits()
            }
        }
    )*};
}
wide_float_targets! { F32 f32; F64 f64; }

macro_rules! complex_targets {
    ($($t:ident $part:ty;)*) => {$(
        impl Target for types::$t {
            fn from_i64(x: i64) -> Self::Bits {
                Self::write(Complex { re: x as $part, im: 0.0 })
            }
            fn from_u64(x: u64) -> Self::Bits {
                Self::write(Complex { re: x as $part, im: 0.0 })
            }
            fn from_f32(x: f32) -> Self::Bits {
                Self::write(Complex { re: x as $part, im: 0.0 })
            }
            fn from_f64(x: f64) -> Self::Bits {
                Self::write(Complex { re: x as $part, im: 0.0 })
            }
            fn from_complex(re: f64, im: f64) -> Self::Bits {
                Self::write(Complex { re: re as $part, im: im as $part })
            }
        }
    )*};
}
complex_targets! { C64 f32; C128 f64; }
