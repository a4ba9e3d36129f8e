//! The floats that kernels read and write, and those they compute in.

use crate::vectors::with_vectors;
use half::{bf16, f16};

/// A float to compute in.
pub trait Real:
    Copy + Default + Send + Sync + 'static + PartialEq + std::ops::Mul<Output = Self> + std::ops::Add<Output = Self>
{
}

impl Real for f32 {}

impl Real for f64 {}

/// A float in memory.
pub trait Stored: Copy + Default + Send + Sync + 'static {
    /// What is computed in: at least as wide.
    type Compute: Real + Stored<Compute = Self::Compute>;
    /// Whether the two are the same type.
    const IS_COMPUTE: bool;
    /// The value, exactly.
    fn load(self) -> Self::Compute;
    /// The nearest value.
    fn store(value: Self::Compute) -> Self;

    /// The values of all.
    fn load_all(from: &[Self], to: &mut [Self::Compute]) {
        with_vectors!(to.iter_mut().zip(from).for_each(|(to, from)| *to = from.load()));
    }

    /// The nearest values of all.
    fn store_all(from: &[Self::Compute], to: &mut [Self]) {
        with_vectors!(to.iter_mut().zip(from).for_each(|(to, &from)| *to = Self::store(from)));
    }
}

macro_rules! stored {
    ($($t:ty, $compute:ty, $same:expr, $load:expr, $store:expr $(, $all:item)*;)*) => {$(
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
            $($all)*
        }
    )*};
}

stored! {
    f32, f32, true, |x| x, |x| x;
    f64, f64, true, |x| x, |x| x;
    bf16, f32, false, widen, narrow;
    f16, f32, false, f16::to_f32, f16::from_f32,
    fn load_all(from: &[f16], to: &mut [f32]) {
        use half::slice::HalfFloatSliceExt;
        let many = from.len().min(to.len());
        from[..many].convert_to_f32_slice(&mut to[..many]);
    },
    fn store_all(from: &[f32], to: &mut [f16]) {
        use half::slice::HalfFloatSliceExt;
        let many = from.len().min(to.len());
        to[..many].convert_from_f32_slice(&from[..many]);
    };
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

/// The slice as one of the type to compute in, if it is of that type.
pub(crate) fn same<S: Stored>(slice: &[S]) -> Option<&[S::Compute]> {
    // SAFETY: the types are the same.
    S::IS_COMPUTE.then(|| unsafe { std::slice::from_raw_parts(slice.as_ptr().cast(), slice.len()) })
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
