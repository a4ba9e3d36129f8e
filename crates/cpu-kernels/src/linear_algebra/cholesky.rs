//! The Cholesky decomposition.

use super::lanes::{self, LANES, Lanes};
use super::{BLOCK, Scalar, each_matrix, part, subtract, subtract_product, two_rows};
use crate::matmul::Matmul;
use crate::parallel::Parallel;
use crate::vectors::with_vectors;

/// Rows of the triangle that are brought up to date by one product.
const ROWS: usize = 4 * BLOCK;

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
            let mut factor: Vec<T> = (0..n * n).map(|i| matrix[at(i / n, i % n)]).collect();
            let outcome = with_vectors!(factorize(&mut factor, n, parallel));
            failed[0] = outcome.err().map_or(0, |row| row as i32 + 1);
            if outcome.is_ok() {
                for r in 0..n {
                    (r..n).for_each(|c| matrix[at(r, c)] = factor[r * n + c]);
                }
            }
        });
        Some(())
    }
}

/// Factors the upper triangle of `a` in place, or says which row is one too many.
#[inline(always)]
fn factorize<T: Scalar>(a: &mut [T], n: usize, parallel: &dyn Parallel) -> Result<(), usize> {
    for start in (0..n).step_by(BLOCK) {
        let end = n.min(start + BLOCK);
        for k in start..end {
            let row = &mut a[k * n..(k + 1) * n];
            // NaN is not positive either.
            if row[k].partial_cmp(&T::default()) != Some(std::cmp::Ordering::Greater) {
                return Err(k);
            }
            let root = row[k].sqrt();
            row[k..].iter_mut().for_each(|x| *x = *x / root);
            row[k] = root;
            for r in k + 1..end {
                let (upper, row) = two_rows(a, n, k, r);
                subtract(&mut row[r..], upper[r], &upper[r..]);
            }
        }
        // What the block means for the rows below it, of which the triangle alone is wanted: by some rows at a time.
        let rest = n - end;
        let panel = part(a, n, start..end, end..n);
        for first in (0..rest).step_by(ROWS) {
            let m = ROWS.min(rest - first);
            let product = Matmul {
                batch: Vec::new(),
                m,
                n: rest - first,
                k: end - start,
                lhs_row: 1,
                lhs_column: rest,
                rhs_row: rest,
                rhs_column: 1,
            };
            let (row, from) = (end + first, &panel[first..]);
            let rows = &mut a[row * n..(row + m) * n];
            subtract_product(&product, (from, from), rows, n, row, parallel);
        }
    }
    Ok(())
}

/// The same for a group of small matrices, whose upper triangle at row and column is `at`.
#[inline(always)]
fn factorize_lanes<T: Scalar>(matrices: &mut [T], failed: &mut [i32], n: usize, at: impl Fn(usize, usize) -> usize) {
    let mut a: Vec<Lanes<T>> = vec![[T::default(); LANES]; n * n];
    for r in 0..n {
        (r..n).for_each(|c| a[r * n + c] = lanes::gather(matrices, n * n, at(r, c)));
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
        a[k * n + k + 1..(k + 1) * n].iter_mut().for_each(|x| lanes::divide(x, &roots));
        a[k * n + k] = roots;
        for r in k + 1..n {
            let (above, below) = a.split_at_mut(r * n);
            let upper = &above[k * n + r..(k + 1) * n];
            below[r..n].iter_mut().zip(upper).for_each(|(x, y)| lanes::subtract(x, &upper[0], y));
        }
    }
    for (lane, matrix) in matrices.chunks_exact_mut(n * n).enumerate().filter(|(lane, _)| failed[*lane] == 0) {
        for r in 0..n {
            (r..n).for_each(|c| matrix[at(r, c)] = a[r * n + c][lane]);
        }
    }
}
