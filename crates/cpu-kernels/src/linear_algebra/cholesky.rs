//! The Cholesky decomposition.

use super::corner::{CORNER, Corner};
use super::lanes::{self, LANES, Lanes};
use super::turn::turn;
use super::update::{Columns, Rows, Wanted};
use super::{BLOCK, Scalar, each_matrix, scale, subtract};
use crate::parallel::Parallel;
use crate::vectors::with_vectors;
use std::ops::Range;

/// The triangular factor of each symmetric matrix of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cholesky {
    /// Matrices.
    pub batch: usize,
    /// Rows and columns of each.
    pub n: usize,
    /// Whether the lower triangle is read and written; otherwise the upper one.
    pub lower: bool,
}

impl Cholesky {
    /// Puts the factors in place of the triangles, and leaves the other triangles as they are. `failed` gets zero for each
    /// matrix, or, if it is not positive definite, how many of its rows and columns are too many, counted from one; such a
    /// matrix is left as it is.
    pub fn run<T: Scalar>(&self, matrices: &mut [T], failed: &mut [i32], parallel: &dyn Parallel) -> Option<()> {
        let n = self.n;
        let fits = matrices.len() == self.batch.checked_mul(n)?.checked_mul(n)?
            && failed.len() == self.batch
            && i32::try_from(n).is_ok();
        fits.then_some(())?;
        let multiplications = n.saturating_mul(n).saturating_mul(n) / 6;
        let at = |r: usize, c: usize| if self.lower { c * n + r } else { r * n + c };
        let groups = lanes::groups(self.batch, n);
        let (grouped, matrices) = matrices.split_at_mut(groups * LANES * n * n);
        let (grouped_failed, failed) = failed.split_at_mut(groups * LANES);
        each_matrix(groups, LANES * multiplications, (grouped, grouped_failed), parallel, |_, matrices, failed, _| {
            with_vectors!(factorize_lanes(matrices, failed, n, at));
        });
        let single = self.batch - groups * LANES;
        each_matrix(single, multiplications, (matrices, failed), parallel, |_, matrix, failed, parallel| {
            // The upper triangle, row by row; the matrix stays until it is known that there is a factor.
            let mut factor = matrix.to_vec();
            if self.lower {
                turn((matrix, n), [n, n], (&mut factor, n));
            }
            let outcome = with_vectors!(factorize(&mut factor, n, parallel));
            failed[0] = outcome.err().map_or(0, |row| row as i32 + 1);
            if outcome.is_ok() {
                self.put_back(&factor, matrix);
            }
        });
        Some(())
    }

    /// Puts the upper triangle that is the factor in place of the matrix's own.
    fn put_back<T: Scalar>(&self, factor: &[T], matrix: &mut [T]) {
        let n = self.n;
        for start in (0..n).step_by(CORNER) {
            let end = n.min(start + CORNER);
            for r in start..end {
                match self.lower {
                    true => (start..=r).for_each(|c| matrix[r * n + c] = factor[c * n + r]),
                    false => matrix[r * n + r..(r + 1) * n].copy_from_slice(&factor[r * n + r..(r + 1) * n]),
                }
            }
            if self.lower {
                let (from, to) = (&factor[start * n..], &mut matrix[end * n..]);
                turn(
                    (from.get(end..).unwrap_or_default(), n),
                    [end - start, n - end],
                    (to.get_mut(start..).unwrap_or_default(), n),
                );
            }
        }
    }
}

/// Factors the upper triangle of `a` in place, or says which row is one too many. Below the diagonal there may be anything.
#[inline(always)]
fn factorize<T: Scalar>(a: &mut [T], n: usize, parallel: &dyn Parallel) -> Result<(), usize> {
    for start in (0..n).step_by(BLOCK) {
        let end = n.min(start + BLOCK);
        for first in (start..end).step_by(CORNER) {
            let last = end.min(first + CORNER);
            let corner = factorize_corner(a, n, first..last)?;
            corner.solve_rows(&mut a[first * n..last * n], n, last..n, true);
            subtract_rows(a, n, first..last, last..end, &crate::Serial);
        }
        subtract_rows(a, n, start..end, end..n, parallel);
    }
    Ok(())
}

/// Factors those rows and columns of `a`: a triangle, with which the rest of the rows can be solved.
#[inline(always)]
fn factorize_corner<T: Scalar>(a: &mut [T], n: usize, rows: Range<usize>) -> Result<Corner<T>, usize> {
    let (start, count) = (rows.start, rows.len());
    let mut square = [[T::default(); CORNER]; CORNER];
    for (r, row) in square.iter_mut().enumerate().take(count) {
        row[r..count].copy_from_slice(&a[(start + r) * n..][start + r..rows.end]);
    }
    for k in 0..count {
        let (upper, later) = square.split_at_mut(k + 1);
        let upper = &mut upper[k];
        // NaN is not positive either.
        if upper[k].partial_cmp(&T::default()) != Some(std::cmp::Ordering::Greater) {
            return Err(start + k);
        }
        let root = upper[k].sqrt();
        scale(upper, T::ONE / root);
        for (row, r) in later.iter_mut().zip(k + 1..) {
            subtract(row, upper[r], upper);
        }
        upper[k] = root;
        a[(start + k) * n..][start + k..rows.end].copy_from_slice(&upper[k..count]);
    }
    Ok(Corner::new(count, false, |k, r| square[k][r]))
}

/// What rows of the factor mean for those below, of which the triangle alone is wanted.
#[inline(always)]
fn subtract_rows<T: Scalar>(a: &mut [T], n: usize, known: Range<usize>, below: Range<usize>, parallel: &dyn Parallel) {
    if below.is_empty() {
        return;
    }
    let first = below.start;
    let (known_rows, rest) = a.split_at_mut(first * n);
    let known_rows = &known_rows[known.start * n + first..];
    let rows = Rows::new(known_rows, [1, n], [below.len(), known.len()]);
    let columns = Columns { elements: known_rows, row: n, n: n - first };
    rows.subtract_product(columns, (&mut rest[first..], n), Wanted::UpperTriangle, parallel);
}

/// The same for a group of small matrices, whose upper triangle at row and column is `at`.
#[inline(always)]
fn factorize_lanes<T: Scalar>(matrices: &mut [T], failed: &mut [i32], n: usize, at: impl Fn(usize, usize) -> usize) {
    let mut a: Vec<Lanes<T>> = vec![[T::default(); LANES]; n * n];
    for r in 0..n {
        for c in r..n {
            a[r * n + c] = lanes::gather(matrices, n * n, at(r, c));
        }
    }
    failed.fill(0);
    for k in 0..n {
        let pivots = a[k * n + k];
        for (failed, pivot) in failed.iter_mut().zip(&pivots).filter(|(failed, _)| **failed == 0) {
            if pivot.partial_cmp(&T::default()) != Some(std::cmp::Ordering::Greater) {
                *failed = k as i32 + 1;
            }
        }
        let roots = pivots.map(T::sqrt);
        for x in &mut a[k * n + k + 1..(k + 1) * n] {
            lanes::divide(x, &roots);
        }
        a[k * n + k] = roots;
        for r in k + 1..n {
            let (above, below) = a.split_at_mut(r * n);
            let upper = &above[k * n + r..(k + 1) * n];
            for (x, y) in below[r..n].iter_mut().zip(upper) {
                lanes::subtract(x, &upper[0], y);
            }
        }
    }
    for (lane, matrix) in matrices.chunks_exact_mut(n * n).enumerate().filter(|(lane, _)| failed[*lane] == 0) {
        for r in 0..n {
            for c in r..n {
                matrix[at(r, c)] = a[r * n + c][lane];
            }
        }
    }
}
