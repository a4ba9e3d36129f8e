//! Gaussian elimination with partial pivoting.

use super::corner::{CORNER, Corner};
use super::update::{Columns, Rows, Wanted};
use super::{BLOCK, SMALL, Scalar, each_matrix, subtract, two_rows};
use crate::parallel::Parallel;
use crate::vectors::with_vectors;
use std::ops::Range;

/// The factors P × L × U of each matrix of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lu {
    /// Matrices.
    pub batch: usize,
    /// Rows of each.
    pub rows: usize,
    /// Columns of each.
    pub columns: usize,
}

impl Lu {
    /// Puts L, whose ones are not stored, and U in place of the matrices. `pivots` gets for each row the one it was
    /// exchanged with, `singular` for each matrix the first pivot that is zero, both counted from one.
    pub fn run<T: Scalar>(
        &self,
        matrices: &mut [T],
        pivots: &mut [i32],
        singular: &mut [i32],
        parallel: &dyn Parallel,
    ) -> Option<()> {
        let few = self.rows.min(self.columns);
        let fits = matrices.len() == self.batch.checked_mul(self.rows)?.checked_mul(self.columns)?
            && pivots.len() == self.batch * few
            && singular.len() == self.batch
            && i32::try_from(self.rows).is_ok();
        fits.then_some(())?;
        // Pivots and the word of each matrix, side by side.
        let mut words = vec![0i32; self.batch * (few + 1)];
        let multiplications = self.rows.saturating_mul(self.columns).saturating_mul(few) / 3;
        each_matrix(self.batch, multiplications, (matrices, &mut words), parallel, |_, matrix, words, parallel| {
            if let Some((singular, pivots)) = words.split_first_mut() {
                *singular = with_vectors!(factor(matrix, self.columns, pivots, parallel));
            }
        });
        for (n, words) in words.chunks_exact(few + 1).enumerate() {
            singular[n] = words[0];
            pivots[n * few..(n + 1) * few].copy_from_slice(&words[1..]);
        }
        Some(())
    }
}

#[inline(always)]
fn factor<T: Scalar>(a: &mut [T], columns: usize, pivots: &mut [i32], parallel: &dyn Parallel) -> i32 {
    let rows = a.len() / columns.max(1);
    if rows.max(columns) <= SMALL {
        return eliminate_small(a, columns, pivots);
    }
    let mut singular = 0;
    for start in (0..pivots.len()).step_by(BLOCK) {
        let end = pivots.len().min(start + BLOCK);
        for first in (start..end).step_by(CORNER) {
            let last = end.min(first + CORNER);
            let zero = eliminate(a, columns, first, &mut pivots[first..last]);
            singular = if singular == 0 { zero } else { singular };
            solve(a, columns, first..last, last..end);
            subtract_known(a, columns, first..last, last..rows, last..end, &crate::Serial);
        }
        // What is right of the block: first its own rows, then those below.
        for first in (start..end).step_by(CORNER) {
            let last = end.min(first + CORNER);
            solve(a, columns, first..last, end..columns);
            subtract_known(a, columns, first..last, last..end, end..columns, &crate::Serial);
        }
        subtract_known(a, columns, start..end, end..rows, end..columns, parallel);
    }
    singular
}

/// Eliminates all columns of a small matrix. Says which pivot is zero.
#[inline(always)]
fn eliminate_small<T: Scalar>(a: &mut [T], columns: usize, pivots: &mut [i32]) -> i32 {
    let rows = a.len() / columns.max(1);
    let mut singular = 0;
    for (k, to) in pivots.iter_mut().enumerate() {
        let mut pivot = k;
        for r in k + 1..rows {
            if a[r * columns + k].abs() > a[pivot * columns + k].abs() {
                pivot = r;
            }
        }
        *to = pivot as i32 + 1;
        if pivot != k {
            let (x, y) = two_rows(a, columns, k, pivot);
            x.swap_with_slice(y);
        }
        let divisor = a[k * columns + k];
        if divisor == T::default() {
            singular = if singular == 0 { k as i32 + 1 } else { singular };
            continue;
        }
        for r in k + 1..rows {
            let (upper, row) = two_rows(a, columns, k, r);
            row[k] = row[k] / divisor;
            let factor = row[k];
            subtract(&mut row[k + 1..], factor, &upper[k + 1..]);
        }
    }
    singular
}

/// Eliminates a few columns from `first` on, as many as there are pivots, in the rows from the first in the diagonal on.
/// Rows change places as a whole. Says which pivot is zero.
#[inline(always)]
fn eliminate<T: Scalar>(a: &mut [T], columns: usize, first: usize, pivots: &mut [i32]) -> i32 {
    let count = pivots.len();
    // The columns by themselves: each row is a vector.
    let mut panel = vec![[T::default(); CORNER]; a.len() / columns - first];
    for (to, row) in panel.iter_mut().zip(a.chunks_exact(columns).skip(first)) {
        to[..count].copy_from_slice(&row[first..first + count]);
    }
    let mut singular = 0;
    for (k, to) in pivots.iter_mut().enumerate() {
        let mut pivot = k;
        for r in k + 1..panel.len() {
            if panel[r][k].abs() > panel[pivot][k].abs() {
                pivot = r;
            }
        }
        *to = (first + pivot) as i32 + 1;
        if pivot != k {
            panel.swap(k, pivot);
            let (x, y) = two_rows(a, columns, first + k, first + pivot);
            x.swap_with_slice(y);
        }
        let (above, below) = panel.split_at_mut(k + 1);
        let mut upper = above[k];
        let divisor = upper[k];
        if divisor == T::default() {
            singular = if singular == 0 { (first + k) as i32 + 1 } else { singular };
            continue;
        }
        upper[..=k].fill(T::default());
        // One over a very small number is none.
        let inverse = if divisor.abs() >= T::MIN_POSITIVE { Some(T::ONE / divisor) } else { None };
        for row in below {
            let factor = inverse.map_or_else(|| row[k] / divisor, |inverse| row[k] * inverse);
            subtract(row, factor, &upper);
            row[k] = factor;
        }
    }
    for (from, row) in panel.iter().zip(a.chunks_exact_mut(columns).skip(first)) {
        row[first..first + count].copy_from_slice(&from[..count]);
    }
    singular
}

/// Solves with the lower triangle of a few rows, which has ones in its diagonal, for other columns of these rows.
#[inline(always)]
fn solve<T: Scalar>(a: &mut [T], columns: usize, rows: Range<usize>, others: Range<usize>) {
    if others.is_empty() {
        return;
    }
    let corner = Corner::new(rows.len(), true, |k, r| a[(rows.start + r) * columns + rows.start + k]);
    corner.solve_rows(&mut a[rows.start * columns..rows.end * columns], columns, others, true);
}

/// What rows that are known mean for columns of those below.
#[inline(always)]
fn subtract_known<T: Scalar>(
    a: &mut [T],
    columns: usize,
    known: Range<usize>,
    below: Range<usize>,
    others: Range<usize>,
    parallel: &dyn Parallel,
) {
    if below.is_empty() || others.is_empty() {
        return;
    }
    let factors = &a[below.start * columns + known.start..];
    let rows = Rows::new(factors, [columns, 1], [below.len(), known.len()]);
    let (above, to) = a.split_at_mut(below.start * columns);
    let elements = &above[known.start * columns + others.start..];
    let right = Columns { elements, row: columns, n: others.len() };
    rows.subtract_product(right, (&mut to[others.start..], columns), Wanted::All, parallel);
}
