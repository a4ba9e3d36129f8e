//! Products with few rows: as fast as the right operand can be read, so it is read once, as it lies.

use super::Matmul;
use crate::number::Stored;

/// More rows than this are worth packing the operands for.
pub(super) const FEW_ROWS: usize = 4;

/// Columns whose sums are kept at once: they stay in the first cache.
const COLUMNS: usize = 512;
/// Sums of one dot product that are kept side by side.
const LANES: usize = 64;

/// Sets `sums`, a dense `m × n` matrix, to the product. `false`, and nothing is done, if neither the rows nor the
/// columns of the right operand are dense.
pub(super) fn multiply<S: Stored>(
    matmul: &Matmul,
    [m, n]: [usize; 2],
    lhs: &[S],
    rhs: &[S],
    sums: &mut [S::Compute],
) -> bool {
    let arch = pulp::Arch::new();
    let mut row = Vec::with_capacity(matmul.k);
    for (i, sums) in sums.chunks_exact_mut(n).enumerate().take(m) {
        row.clear();
        row.extend((0..matmul.k).map(|k| lhs[i * matmul.lhs_row + k * matmul.lhs_column].load()));
        if matmul.rhs_column == 1 {
            for (block, sums) in sums.chunks_mut(COLUMNS).enumerate() {
                arch.dispatch(
                    #[inline(always)]
                    || combine(&row, &rhs[block * COLUMNS..], matmul.rhs_row, sums),
                );
            }
        } else if matmul.rhs_row == 1 {
            for (j, sum) in sums.iter_mut().enumerate() {
                let column = &rhs[j * matmul.rhs_column..][..matmul.k];
                *sum = arch.dispatch(
                    #[inline(always)]
                    || dot(&row, column),
                );
            }
        } else {
            return false;
        }
    }
    true
}

/// `sums` = the sum of the rows of the right operand, each times its factor; four rows at a time, so that the sums are
/// touched less often.
#[inline(always)]
fn combine<S: Stored>(factors: &[S::Compute], rhs: &[S], stride: usize, sums: &mut [S::Compute]) {
    let n = sums.len();
    sums.fill(S::Compute::default());
    let (fours, rest) = factors.as_chunks::<4>();
    for (i, &[a, b, c, d]) in fours.iter().enumerate() {
        let rows = |r: usize| &rhs[(4 * i + r) * stride..][..n];
        let (w, x, y, z) = (rows(0), rows(1), rows(2), rows(3));
        for j in 0..n {
            let first = w[j].load() * a + x[j].load() * b;
            let second = y[j].load() * c + z[j].load() * d;
            sums[j] = sums[j] + (first + second);
        }
    }
    let done = fours.len() * 4;
    for (i, &a) in rest.iter().enumerate() {
        for (sum, x) in sums.iter_mut().zip(&rhs[(done + i) * stride..][..n]) {
            *sum = *sum + x.load() * a;
        }
    }
}

/// The dot product of two dense vectors.
#[inline(always)]
fn dot<S: Stored>(lhs: &[S::Compute], rhs: &[S]) -> S::Compute {
    let mut sums = [S::Compute::default(); LANES];
    let (left, left_rest) = lhs.as_chunks::<LANES>();
    let (right, right_rest) = rhs.as_chunks::<LANES>();
    for (left, right) in left.iter().zip(right) {
        for ((sum, &a), b) in sums.iter_mut().zip(left).zip(right) {
            *sum = *sum + a * b.load();
        }
    }
    for ((sum, &a), b) in sums.iter_mut().zip(left_rest).zip(right_rest) {
        *sum = *sum + a * b.load();
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
