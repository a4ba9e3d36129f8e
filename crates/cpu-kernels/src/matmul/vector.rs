//! Products with few rows, or few columns: as fast as the larger operand can be read, so it is read once, as it lies.

use super::combine::combine;
use super::{Matmul, cast};
use crate::number::Stored;
use crate::parallel::{Parallel, Shared, grain};
use crate::tiles::scratch;
use crate::vectors::with_vectors;
#[cfg(target_arch = "x86_64")]
use std::any::TypeId;

/// More rows than this are worth packing the operands for.
pub(super) const FEW: usize = 4;
/// The same of columns, which are otherwise computed a whole vector at a time.
pub(super) const FEW_COLUMNS: usize = 8;

/// Sums that are kept at once: they stay in the first cache.
const SUMS: usize = 4096;
/// Sums of one dot product that are kept side by side.
const LANES: usize = 64;

/// Whether the larger operand, the right one, can be read as it lies.
pub(super) fn can_read(matmul: &Matmul) -> bool {
    matmul.rhs_column == 1 || matmul.rhs_row == 1 || matmul.n == 1
}

/// Columns whose sums are kept at once, of so many rows.
pub(super) fn columns(rows: usize) -> usize {
    SUMS / rows.clamp(1, FEW_COLUMNS)
}

impl Matmul {
    /// Whether whole rows of the right operand, as they lie, are summed up; otherwise its columns are read.
    pub(super) fn sums_rows(&self) -> bool {
        self.rhs_column == 1 && self.n > 1
    }
}

/// Multiplies; the result is written `transposed`, if so.
pub(super) fn run<S: Stored, O: Stored<Compute = S::Compute>>(
    matmul: &Matmul,
    lhs: &[S],
    rhs: &[S],
    output: &Shared<'_, O>,
    transposed: bool,
    parallel: &dyn Parallel,
) {
    let (m, n) = (matmul.m, matmul.n);
    // Columns that are read one by one can be shared among any number of threads.
    let width = match matmul.sums_rows() {
        true => columns(m),
        false => n.div_ceil(4 * parallel.threads()).clamp(1, columns(m)),
    };
    let blocks = n.div_ceil(width);
    let work = m.saturating_mul(n.min(width)).saturating_mul(matmul.k).max(1);
    parallel.each(matmul.groups() * blocks, grain::STREAMED.div_ceil(work), &|begin, end| {
        let mut rows = vec![S::Compute::default(); m * matmul.k];
        let mut sums = vec![S::Compute::default(); m * n.min(width)];
        let mut packed = None;
        for at in begin..end {
            let (group, first) = (at / blocks, at % blocks * width);
            let columns = width.min(n - first);
            let (left, right) = matmul.offsets(group);
            if packed != Some(group) {
                load_rows(matmul, &lhs[left..], matmul.k, &mut rows);
                packed = Some(group);
            }
            let sums = &mut sums[..m * columns];
            multiply(matmul, &rows, &rhs[right + first * matmul.rhs_column..], sums);
            // One row lies the same way as one column.
            if transposed && m > 1 {
                let to = (group * n + first) * m;
                // SAFETY: these columns of this group are this thread's.
                let to = unsafe { output.slice(to, to + m * columns) };
                for (j, to) in to.chunks_exact_mut(m).enumerate() {
                    for (i, to) in to.iter_mut().enumerate() {
                        *to = O::store(sums[i * columns + j]);
                    }
                }
                continue;
            }
            for (row, sums) in sums.chunks_exact(columns).enumerate() {
                let to = (group * m + row) * n + first;
                // SAFETY: these columns of this group are this thread's.
                O::store_all(sums, unsafe { output.slice(to, to + columns) });
            }
        }
    });
}

/// The rows of the left operand, each dense, so far apart.
pub(super) fn load_rows<S: Stored>(matmul: &Matmul, lhs: &[S], apart: usize, rows: &mut [S::Compute]) {
    for (i, row) in rows.chunks_exact_mut(apart.max(1)).enumerate() {
        let row = &mut row[..matmul.k];
        let from = &lhs[i * matmul.lhs_row..];
        if matmul.lhs_column == 1 {
            S::load_all(&from[..matmul.k], row);
        } else {
            row.iter_mut().enumerate().for_each(|(k, to)| *to = from[k * matmul.lhs_column].load());
        }
    }
}

/// Sets `sums`, a dense matrix, to the product of the rows and the first columns of `rhs`.
fn multiply<S: Stored>(matmul: &Matmul, rows: &[S::Compute], rhs: &[S], sums: &mut [S::Compute]) {
    let (m, k) = (matmul.m, matmul.k);
    let n = sums.len() / m;
    if matmul.sums_rows() {
        combine(rows, rhs, [m, n, k], matmul.rhs_row, sums);
        return;
    }
    if let (Some(columns), 1) = (crate::number::same(rhs), matmul.rhs_row) {
        for (i, sums) in sums.chunks_exact_mut(n).enumerate() {
            dots(&rows[i * k..][..k], columns, matmul.rhs_column, sums);
        }
        return;
    }
    scratch::with_two::<S::Compute, _>(k, 0, |wide, _| {
        for j in 0..n {
            let column = &rhs[j * matmul.rhs_column..];
            // SAFETY: there is room for `k` numbers, which are set here.
            let wide = unsafe {
                std::ptr::write_bytes(wide, 0, k);
                std::slice::from_raw_parts_mut(wide, k)
            };
            if matmul.rhs_row == 1 {
                S::load_all(&column[..k], wide);
            } else {
                wide.iter_mut().enumerate().for_each(|(i, to)| *to = column[i * matmul.rhs_row].load());
            }
            for i in 0..m {
                dots(&rows[i * k..][..k], wide, k, &mut sums[i * n + j..][..1]);
            }
        }
    });
}

/// Sets each of `sums` to the dot product of `lhs` and a line of `rhs`; lines are dense, and begin `line` apart.
fn dots<C: crate::number::Real>(lhs: &[C], rhs: &[C], line: usize, sums: &mut [C]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        if let (Some(left), Some(right), Some(sums)) = (cast::<C, f32>(lhs), cast::<C, f32>(rhs), cast_mut(sums)) {
            // SAFETY: the processor has the instructions.
            return unsafe { wide::dots_f32(left, right, line, sums) };
        }
        if let (Some(left), Some(right), Some(sums)) = (cast::<C, f64>(lhs), cast::<C, f64>(rhs), cast_mut(sums)) {
            // SAFETY: the processor has the instructions.
            return unsafe { wide::dots_f64(left, right, line, sums) };
        }
    }
    for (j, sum) in sums.iter_mut().enumerate() {
        let column = &rhs[j * line..][..lhs.len()];
        *sum = with_vectors!(dot(lhs, column));
    }
}

/// The slice as one of `T`, if it is that.
#[cfg(target_arch = "x86_64")]
pub(super) fn cast_mut<S: 'static, T: 'static>(slice: &mut [S]) -> Option<&mut [T]> {
    // SAFETY: the types are the same.
    (TypeId::of::<S>() == TypeId::of::<T>())
        .then(|| unsafe { std::slice::from_raw_parts_mut(slice.as_mut_ptr().cast(), slice.len()) })
}

/// The same with vectors of 512 bits.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    /// Lines whose sums are made at once: what is loaded of the vector serves all of them, and their last additions, each
    /// of which waits for the one before, are made side by side.
    const LINES: usize = 4;

    macro_rules! dots {
        ($name:ident, $some:ident, $t:ty, $lanes:literal, $mask:ty, $zero:ident, $load:ident, $part:ident, $fma:ident, $add:ident, $total:ident) => {
            #[target_feature(enable = "avx512f")]
            pub(super) fn $name(vector: &[$t], matrix: &[$t], line: usize, sums: &mut [$t]) {
                let (many, rest) = sums.as_chunks_mut::<LINES>();
                let whole = many.len() * LINES;
                for (at, sums) in many.iter_mut().enumerate() {
                    *sums = $some::<LINES>(vector, &matrix[at * LINES * line..], line);
                }
                for (at, sum) in rest.iter_mut().enumerate() {
                    [*sum] = $some::<1>(vector, &matrix[(whole + at) * line..], line);
                }
            }

            #[target_feature(enable = "avx512f")]
            #[inline]
            #[allow(clippy::needless_range_loop, reason = "the loops are unrolled, and the indices constants")]
            fn $some<const N: usize>(vector: &[$t], matrix: &[$t], line: usize) -> [$t; N] {
                const STEP: usize = 4 * $lanes;
                let n = vector.len();
                let mut lines = [matrix.as_ptr(); N];
                for l in 0..N {
                    lines[l] = matrix[l * line..][..n].as_ptr();
                }
                let mut sums = [[$zero(); 4]; N];
                let mut at = 0;
                while at + STEP <= n {
                    for v in 0..4 {
                        // SAFETY: the numbers of a vector from here on are in the slice.
                        let a = unsafe { $load(vector.as_ptr().add(at + $lanes * v)) };
                        for l in 0..N {
                            // SAFETY: and in the lines, which are as long.
                            let b = unsafe { $load(lines[l].add(at + $lanes * v)) };
                            sums[l][v] = $fma(a, b, sums[l][v]);
                        }
                    }
                    at += STEP;
                }
                while at < n {
                    let mask = ((1u32 << (n - at).min($lanes)) - 1) as $mask;
                    // SAFETY: the numbers in the mask are in the slice.
                    let a = unsafe { $part(mask, vector.as_ptr().add(at)) };
                    for l in 0..N {
                        // SAFETY: and in the lines.
                        let b = unsafe { $part(mask, lines[l].add(at)) };
                        sums[l][0] = $fma(a, b, sums[l][0]);
                    }
                    at += $lanes;
                }
                let mut totals = [0.0; N];
                for l in 0..N {
                    totals[l] = $total($add($add(sums[l][0], sums[l][1]), $add(sums[l][2], sums[l][3])));
                }
                totals
            }
        };
    }

    dots!(
        dots_f32,
        some_f32,
        f32,
        16,
        __mmask16,
        _mm512_setzero_ps,
        _mm512_loadu_ps,
        _mm512_maskz_loadu_ps,
        _mm512_fmadd_ps,
        _mm512_add_ps,
        _mm512_reduce_add_ps
    );
    dots!(
        dots_f64,
        some_f64,
        f64,
        8,
        __mmask8,
        _mm512_setzero_pd,
        _mm512_loadu_pd,
        _mm512_maskz_loadu_pd,
        _mm512_fmadd_pd,
        _mm512_add_pd,
        _mm512_reduce_add_pd
    );
}

/// The same for any processor.
#[inline(always)]
fn dot<C: crate::number::Real>(lhs: &[C], rhs: &[C]) -> C {
    let mut sums = [C::default(); LANES];
    let (left, left_rest) = lhs.as_chunks::<LANES>();
    let (right, right_rest) = rhs.as_chunks::<LANES>();
    for (left, right) in left.iter().zip(right) {
        for ((sum, &a), &b) in sums.iter_mut().zip(left).zip(right) {
            *sum = *sum + a * b;
        }
    }
    for ((sum, &a), &b) in sums.iter_mut().zip(left_rest).zip(right_rest) {
        *sum = *sum + a * b;
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            sums[i] = sums[i] + sums[i + width];
        }
    }
    sums[0]
}

const _: () = assert!(LANES.is_power_of_two());
