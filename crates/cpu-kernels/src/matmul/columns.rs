//! Products of dense rows and few columns: both are read along the sums, so that every number of the rows is loaded once,
//! by whole vectors, and multiplied with all columns. For processors with vectors of 512 bits; the others sum up the
//! columns one by one ([`super::vector`]).

use super::vector::load_rows;
use super::{Matmul, collide};
use crate::number::{Stored, same};
use crate::parallel::{Parallel, Shared, grain};

/// More columns fill the vectors of tiles.
const MOST: usize = 12;
/// Columns whose sums are kept at once, of so many rows: with the operands they fill the registers.
const COLUMNS: usize = 8;
const ROWS: usize = 3;
/// Shorter sums are not worth adding up vectors for.
pub(super) const SHORTEST: usize = 128;
/// Numbers of each line that are taken at once: those of the columns stay in the cache.
const DEPTH: usize = 1024;
/// Rows that a thread takes at once.
const BLOCK: usize = 48;

/// Whether a product is best done this way, where the processor can.
pub(super) fn suits(matmul: &Matmul) -> bool {
    let few = (2..=MOST).contains(&matmul.n) && matmul.m >= ROWS;
    few && matmul.k >= SHORTEST && matmul.lhs_column == 1
}

/// Multiplies, if this is the way to; otherwise nothing is done.
pub(super) fn run<S: Stored, O: Stored<Compute = S::Compute>>(
    matmul: &Matmul,
    lhs: &[S],
    rhs: &[S],
    output: &Shared<'_, O>,
    parallel: &dyn Parallel,
) -> Option<()> {
    let Matmul { m, n, k, .. } = *matmul;
    if !suits(matmul) {
        return None;
    }
    let multiply = sums::<S::Compute>()?;
    let lhs: &[S::Compute] = same(lhs)?;
    let columns = matmul.transposed();
    // Columns a whole number of pages apart would push each other out of the cache.
    let line = k.next_multiple_of(16) + 16;
    let line = if collide(line * size_of::<S>()) { line + 32 } else { line };
    let blocks = m.div_ceil(BLOCK);
    let chunk = grain::STREAMED.div_ceil((BLOCK.min(m) * n).saturating_mul(k).max(1));
    parallel.each(matmul.groups() * blocks, chunk, &|begin, end| {
        let mut dense = vec![S::Compute::default(); n * line];
        let mut sums = vec![S::Compute::default(); BLOCK.min(m) * n];
        let mut packed = None;
        for at in begin..end {
            let (group, first) = (at / blocks, at % blocks * BLOCK);
            let rows = BLOCK.min(m - first);
            let (left, right) = matmul.offsets(group);
            if packed != Some(group) {
                load_rows(&columns, &rhs[right..], line, &mut dense);
                packed = Some(group);
            }
            let sums = &mut sums[..rows * n];
            sums.fill(S::Compute::default());
            let lhs = &lhs[left + first * matmul.lhs_row..];
            for depth in (0..k).step_by(DEPTH) {
                let numbers = DEPTH.min(k - depth);
                for row in (0..rows).step_by(ROWS) {
                    let height = ROWS.min(rows - row);
                    let from = &lhs[row * matmul.lhs_row + depth..];
                    assert!((height - 1) * matmul.lhs_row + numbers <= from.len(), "a short operand");
                    for column in (0..n).step_by(COLUMNS) {
                        let width = COLUMNS.min(n - column);
                        let to = &mut sums[row * n + column..];
                        let by = &dense[column * line + depth..];
                        // SAFETY: as many numbers of these rows and columns are there, and room for the sums; there is
                        // a function only if the processor can run it.
                        unsafe {
                            multiply(
                                Lines { at: from.as_ptr(), count: height, line: matmul.lhs_row },
                                Lines { at: by.as_ptr(), count: width, line },
                                numbers,
                                to.as_mut_ptr(),
                                n,
                            );
                        }
                    }
                }
            }
            let to = (group * m + first) * n;
            // SAFETY: these rows of this group are this thread's.
            O::store_all(sums, unsafe { output.slice(to, to + rows * n) });
        }
    });
    Some(())
}

/// Dense lines, so far apart.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "there is no function that reads them"))]
pub(crate) struct Lines<C> {
    pub(crate) at: *const C,
    pub(crate) count: usize,
    pub(crate) line: usize,
}

/// Adds the products of rows and columns to sums, rows of which are so far apart.
pub(crate) type Sums<C> = unsafe fn(Lines<C>, Lines<C>, usize, *mut C, usize);

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn sums<C>() -> Option<Sums<C>> {
    None
}

/// The function for the type, if the processor has one.
#[cfg(target_arch = "x86_64")]
pub(crate) fn sums<C: 'static>() -> Option<Sums<C>> {
    use std::any::TypeId;
    if !is_x86_feature_detected!("avx512f") {
        return None;
    }
    // SAFETY (both): the types are the same.
    if TypeId::of::<C>() == TypeId::of::<f32>() {
        return Some(unsafe { std::mem::transmute::<Sums<f32>, Sums<C>>(x86::f32s::run) });
    }
    (TypeId::of::<C>() == TypeId::of::<f64>())
        .then(|| unsafe { std::mem::transmute::<Sums<f64>, Sums<C>>(x86::f64s::run) })
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    /// Calls `$call` with the block of so many rows and columns.
    macro_rules! cases {
        ($rows:expr, $columns:expr, $call:expr) => {
            cases!(@ $rows, $columns, $call, 1 1, 1 2, 1 3, 1 4, 1 5, 1 6, 1 7, 1 8, 2 1, 2 2, 2 3, 2 4, 2 5, 2 6, 2 7,
                2 8, 3 1, 3 2, 3 3, 3 4, 3 5, 3 6, 3 7, 3 8)
        };
        (@ $rows:expr, $columns:expr, $call:expr, $($r:literal $c:literal),*) => {{
            let call = $call;
            match ($rows, $columns) {
                $(($r, $c) => call(block::<$r, $c>),)*
                (rows, columns) => unreachable!("a block of {rows} by {columns}"),
            }
        }};
    }

    macro_rules! sums {
        ($name:ident, $t:ty, $lanes:literal, $mask:ty, $zero:ident, $load:ident, $part:ident, $multiply_add:ident, $total:ident) => {
            pub(super) mod $name {
                use super::super::Lines;
                use std::arch::x86_64::*;

                #[target_feature(enable = "avx512f")]
                unsafe fn block<const R: usize, const C: usize>(
                    rows: Lines<$t>,
                    columns: Lines<$t>,
                    numbers: usize,
                    to: *mut $t,
                    to_row: usize,
                ) {
                    let mut sums = [[$zero(); C]; R];
                    let mut at = 0;
                    while at < numbers {
                        let whole = numbers - at >= $lanes;
                        let mask = if whole { <$mask>::MAX } else { ((1u32 << (numbers - at)) - 1) as $mask };
                        // SAFETY: the numbers in the mask are there.
                        let load = |from: *const $t| unsafe {
                            if whole { $load(from.add(at)) } else { $part(mask, from.add(at)) }
                        };
                        let mut left = [$zero(); R];
                        for r in 0..R {
                            left[r] = load(rows.at.wrapping_add(r * rows.line));
                        }
                        for c in 0..C {
                            let right = load(columns.at.wrapping_add(c * columns.line));
                            for r in 0..R {
                                sums[r][c] = $multiply_add(left[r], right, sums[r][c]);
                            }
                        }
                        at += $lanes;
                    }
                    for r in 0..R {
                        for c in 0..C {
                            // SAFETY: there is room for the sums.
                            unsafe { *to.add(r * to_row + c) += $total(sums[r][c]) };
                        }
                    }
                }

                /// # Safety
                /// There are at most three rows and eight columns, all of their numbers are there, and the processor has
                /// AVX-512.
                #[target_feature(enable = "avx512f")]
                pub(in super::super) unsafe fn run(
                    rows: Lines<$t>,
                    columns: Lines<$t>,
                    numbers: usize,
                    to: *mut $t,
                    to_row: usize,
                ) {
                    // SAFETY (all): the caller's promise.
                    cases!(rows.count, columns.count, |block: super::super::Sums<$t>| unsafe {
                        block(rows, columns, numbers, to, to_row)
                    });
                }
            }
        };
    }

    sums!(
        f32s,
        f32,
        16,
        __mmask16,
        _mm512_setzero_ps,
        _mm512_loadu_ps,
        _mm512_maskz_loadu_ps,
        _mm512_fmadd_ps,
        _mm512_reduce_add_ps
    );
    sums!(
        f64s,
        f64,
        8,
        __mmask8,
        _mm512_setzero_pd,
        _mm512_loadu_pd,
        _mm512_maskz_loadu_pd,
        _mm512_fmadd_pd,
        _mm512_reduce_add_pd
    );
}
