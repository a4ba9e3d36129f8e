//! The floats that kernels read and write, and those they compute in.

use half::{bf16, f16};

/// A float to compute in.
pub trait Real:
    Copy + Default + Send + Sync + 'static + PartialEq + std::ops::Mul<Output = Self> + std::ops::Add<Output = Self>
{
    /// One.
    const ONE: Self;
}

impl Real for f32 {
    const ONE: f32 = 1.0;
}

impl Real for f64 {
    const ONE: f64 = 1.0;
}

/// A float in memory.
pub trait Stored: Copy + Default + Send + Sync + 'static {
    /// What is computed in: at least as wide.
    type Compute: Real;
    /// Whether the two are the same type.
    const IS_COMPUTE: bool;
    /// The value, exactly.
    fn load(self) -> Self::Compute;
    /// The nearest value.
    fn store(value: Self::Compute) -> Self;
}

macro_rules! stored {
    ($($t:ty, $compute:ty, $same:expr, $load:expr, $store:expr;)*) => {$(
        impl Stored for $t {
            type Compute = $compute;
            const IS_COMPUTE: bool = $same;
            #[inline(always)]
            fn load(self) -> $compute {
                $load(self)
            }
            #[inline(always)]
            fn store(value: $compute) -> $t {
                $store(value)
            }
        }
    )*};
}

stored! {
    f32, f32, true, |x| x, |x| x;
    f64, f64, true, |x| x, |x| x;
    bf16, f32, false, widen, narrow;
    f16, f32, false, f16::to_f32, f16::from_f32;
}

/// Exact, and plain enough to become vector code.
#[inline(always)]
fn widen(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// To nearest, ties to even; a NaN stays one.
#[inline(always)]
fn narrow(x: f32) -> bf16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let nan = (bits >> 16) | 0x40;
    bf16::from_bits(if x.is_nan() { nan } else { rounded } as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_is_rounded_as_half_does() {
        for high in 0..=u16::MAX {
            for low in [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let x = f32::from_bits((u32::from(high) << 16) | low);
                assert_eq!(narrow(x).to_bits(), bf16::from_f32(x).to_bits(), "{x:e}");
            }
            // Which NaN comes out is nobody's concern.
            let (ours, theirs) = (widen(bf16::from_bits(high)), bf16::from_bits(high).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{high:x}");
        }
    }
}
