//! Sums of the rows of a matrix, each times its factors: products of few rows with a matrix whose rows are dense.
//!
//! With vectors of 512 bits some columns of the sums stay in registers while several rows are added to them, and what is
//! loaded of a row serves all sums; for other processors and types four rows are added at a time. The matrix is read once,
//! a band of rows from left to right, so that memory sees as many streams as there are rows in it.

use super::cast;
use crate::number::Stored;
use crate::vectors::with_vectors;

/// `sums`, `m` dense rows of `n`, = the sums of the `k` rows of `rhs`, which begin `stride` apart, each times its factor.
/// There are `k` factors for each row of the sums.
pub(super) fn combine<S: Stored>(
    factors: &[S::Compute],
    rhs: &[S],
    [m, n, k]: [usize; 3],
    stride: usize,
    sums: &mut [S::Compute],
) {
    sums.fill(S::Compute::default());
    #[cfg(target_arch = "x86_64")]
    if wide::combine(factors, rhs, [m, n, k], stride, sums).is_some() {
        return;
    }
    with_vectors!(four_at_a_time(factors, rhs, [m, n, k], stride, sums));
}

/// Adds the rows to the sums, four at a time, so that the sums are touched less often.
#[inline(always)]
fn four_at_a_time<S: Stored>(
    factors: &[S::Compute],
    rhs: &[S],
    [m, n, k]: [usize; 3],
    stride: usize,
    sums: &mut [S::Compute],
) {
    for at in (0..k / 4 * 4).step_by(4) {
        let row = |r: usize| &rhs[(at + r) * stride..][..n];
        let (w, x, y, z) = (row(0), row(1), row(2), row(3));
        for i in 0..m {
            let sums = &mut sums[i * n..][..n];
            let [a, b, c, d] = [0, 1, 2, 3].map(|r| factors[i * k + at + r]);
            for j in 0..n {
                let first = w[j].load() * a + x[j].load() * b;
                let second = y[j].load() * c + z[j].load() * d;
                sums[j] = sums[j] + (first + second);
            }
        }
    }
    for at in k / 4 * 4..k {
        for i in 0..m {
            let a = factors[i * k + at];
            for (sum, x) in sums[i * n..][..n].iter_mut().zip(&rhs[at * stride..][..n]) {
                *sum = *sum + x.load() * a;
            }
        }
    }
}

/// With vectors of 512 bits.
#[cfg(target_arch = "x86_64")]
mod wide {
    use super::cast;
    use crate::matmul::vector::cast_mut;
    use crate::number::Stored;
    use half::{bf16, f16};
    use std::arch::x86_64::*;

    /// Rows of the matrix that are added while sums stay in registers: streams that memory still follows.
    const DEPTH: usize = 16;

    /// Numbers that sums are made of, a vector of them at a time.
    ///
    /// # Safety
    /// All functions want a processor with the instructions; those that take an address, all numbers of the mask there.
    trait Sum: Copy {
        type Vector: Copy;
        const LANES: usize;
        unsafe fn splat(value: Self) -> Self::Vector;
        unsafe fn load(mask: u32, from: *const Self) -> Self::Vector;
        unsafe fn store(mask: u32, to: *mut Self, value: Self::Vector);
        unsafe fn multiply_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    }

    /// What the matrix is of.
    ///
    /// # Safety
    /// As of [`Sum`].
    trait Element<C: Sum>: Copy {
        unsafe fn widen(mask: u32, from: *const Self) -> C::Vector;
    }

    macro_rules! sum {
        ($t:ty, $vector:ty, $lanes:literal, $mask:ty, $splat:ident, $load:ident, $store:ident, $fma:ident) => {
            impl Sum for $t {
                type Vector = $vector;
                const LANES: usize = $lanes;
                #[inline]
                #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
                unsafe fn splat(value: $t) -> $vector {
                    $splat(value)
                }
                #[inline]
                #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
                unsafe fn load(mask: u32, from: *const $t) -> $vector {
                    // SAFETY: the caller's promise.
                    unsafe { $load(mask as $mask, from) }
                }
                #[inline]
                #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
                unsafe fn store(mask: u32, to: *mut $t, value: $vector) {
                    // SAFETY: the caller's promise.
                    unsafe { $store(to, mask as $mask, value) }
                }
                #[inline]
                #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
                unsafe fn multiply_add(a: $vector, b: $vector, c: $vector) -> $vector {
                    $fma(a, b, c)
                }
            }

            impl Element<$t> for $t {
                #[inline]
                #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
                unsafe fn widen(mask: u32, from: *const $t) -> $vector {
                    // SAFETY: the caller's promise.
                    unsafe { <$t as Sum>::load(mask, from) }
                }
            }
        };
    }

    sum!(f32, __m512, 16, __mmask16, _mm512_set1_ps, _mm512_maskz_loadu_ps, _mm512_mask_storeu_ps, _mm512_fmadd_ps);
    sum!(f64, __m512d, 8, __mmask8, _mm512_set1_pd, _mm512_maskz_loadu_pd, _mm512_mask_storeu_pd, _mm512_fmadd_pd);

    impl Element<f32> for bf16 {
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        unsafe fn widen(mask: u32, from: *const bf16) -> __m512 {
            // SAFETY: the caller's promise.
            let bits = unsafe { _mm256_maskz_loadu_epi16(mask as __mmask16, from.cast()) };
            // A bf16 is the upper half of an f32.
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits)))
        }
    }

    impl Element<f32> for f16 {
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        unsafe fn widen(mask: u32, from: *const f16) -> __m512 {
            // SAFETY: the caller's promise.
            _mm512_cvtph_ps(unsafe { _mm256_maskz_loadu_epi16(mask as __mmask16, from.cast()) })
        }
    }

    /// Adds the rows, if the processor has the instructions and `S` is one of the types.
    pub(super) fn combine<S: Stored>(
        factors: &[S::Compute],
        rhs: &[S],
        sizes: [usize; 3],
        stride: usize,
        sums: &mut [S::Compute],
    ) -> Option<()> {
        let has_all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl");
        has_all.then_some(())?;
        if let (Some(factors), Some(rhs)) = (cast::<S::Compute, f64>(factors), cast::<S, f64>(rhs)) {
            // SAFETY: the processor has the instructions.
            return unsafe { some_rows(factors, rhs, sizes, stride, cast_mut(sums)?) };
        }
        let (factors, sums) = (cast::<S::Compute, f32>(factors)?, cast_mut::<S::Compute, f32>(sums)?);
        if let Some(rhs) = cast::<S, f32>(rhs) {
            // SAFETY: the processor has the instructions.
            unsafe { some_rows(factors, rhs, sizes, stride, sums) }
        } else if let Some(rhs) = cast::<S, bf16>(rhs) {
            // SAFETY: the processor has the instructions.
            unsafe { some_rows(factors, rhs, sizes, stride, sums) }
        } else {
            // SAFETY: the processor has the instructions.
            unsafe { some_rows(factors, cast::<S, f16>(rhs)?, sizes, stride, sums) }
        }
    }

    /// For each number of rows code of its own, whose sums fit into the registers.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn some_rows<C: Sum, T: Element<C>>(
        factors: &[C],
        rhs: &[T],
        [m, n, k]: [usize; 3],
        stride: usize,
        sums: &mut [C],
    ) -> Option<()> {
        match m {
            1 => rows::<C, T, 1, 4>(factors, rhs, [n, k], stride, sums),
            2 => rows::<C, T, 2, 4>(factors, rhs, [n, k], stride, sums),
            3 => rows::<C, T, 3, 4>(factors, rhs, [n, k], stride, sums),
            4 => rows::<C, T, 4, 4>(factors, rhs, [n, k], stride, sums),
            5 => rows::<C, T, 5, 2>(factors, rhs, [n, k], stride, sums),
            6 => rows::<C, T, 6, 2>(factors, rhs, [n, k], stride, sums),
            7 => rows::<C, T, 7, 2>(factors, rhs, [n, k], stride, sums),
            8 => rows::<C, T, 8, 2>(factors, rhs, [n, k], stride, sums),
            _ => return None,
        }
        Some(())
    }

    /// `M` rows of sums, `V` vectors of each at a time.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn rows<C: Sum, T: Element<C>, const M: usize, const V: usize>(
        factors: &[C],
        rhs: &[T],
        [n, k]: [usize; 2],
        stride: usize,
        sums: &mut [C],
    ) {
        for at in (0..k).step_by(DEPTH) {
            let depth = DEPTH.min(k - at);
            let band = &rhs[at * stride..];
            let factors: [&[C]; M] = std::array::from_fn(|i| &factors[i * k + at..][..depth]);
            let mut first = 0;
            while first < n {
                let (width, rest) = (V * C::LANES, n - first);
                if rest >= width {
                    piece::<C, T, M, V>(&factors, &band[first..], stride, C::LANES, &mut sums[first..], n);
                    first += width;
                } else {
                    let lanes = rest.min(C::LANES);
                    piece::<C, T, M, 1>(&factors, &band[first..], stride, lanes, &mut sums[first..], n);
                    first += lanes;
                }
            }
        }
    }

    /// Adds rows to `V` vectors of the columns, so many numbers of each; rows of sums are `apart`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[allow(clippy::needless_range_loop, reason = "the loops are unrolled, and the indices constants")]
    fn piece<C: Sum, T: Element<C>, const M: usize, const V: usize>(
        factors: &[&[C]; M],
        band: &[T],
        stride: usize,
        lanes: usize,
        sums: &mut [C],
        apart: usize,
    ) {
        let depth = factors[0].len();
        let columns = (V - 1) * C::LANES + lanes;
        // The last numbers that are touched are there.
        assert!((depth - 1) * stride + columns <= band.len() && (M - 1) * apart + columns <= sums.len());
        let mask = (1u32 << lanes) - 1;
        let (from, to) = (band.as_ptr(), sums.as_mut_ptr());
        // SAFETY: the processor has the instructions, as this function has them; what is loaded and stored is there, as
        // asserted above.
        unsafe {
            let mut kept = [[C::load(0, to); V]; M];
            for i in 0..M {
                for v in 0..V {
                    kept[i][v] = C::load(mask, to.add(i * apart + v * C::LANES));
                }
            }
            for r in 0..depth {
                let mut row = [kept[0][0]; V];
                for v in 0..V {
                    row[v] = T::widen(mask, from.add(r * stride + v * C::LANES));
                }
                for i in 0..M {
                    let factor = C::splat(factors[i][r]);
                    for v in 0..V {
                        kept[i][v] = C::multiply_add(factor, row[v], kept[i][v]);
                    }
                }
            }
            for i in 0..M {
                for v in 0..V {
                    C::store(mask, to.add(i * apart + v * C::LANES), kept[i][v]);
                }
            }
        }
    }
}
