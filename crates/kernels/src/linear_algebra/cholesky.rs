//! The Cholesky decomposition.

use super::{BLOCK, Scalar, dot, each_matrix, part, subtract_product};
use crate::matmul::Matmul;
use crate::parallel::{Parallel, Shared};

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
        each_matrix(self.batch, multiplications, (matrices, failed), parallel, &|_, matrix, failed, parallel| {
            // The lower triangle, row by row; the matrix stays until it is known that there is a factor.
            let at = |r: usize, c: usize| if self.lower { r * n + c } else { c * n + r };
            let mut factor: Vec<T> = (0..n * n).map(|i| matrix[at(i / n, i % n)]).collect();
            let outcome = pulp::Arch::new().dispatch(
                #[inline(always)]
                || factorize(&mut factor, n, parallel),
            );
            failed[0] = outcome.err().map_or(0, |row| row as i32 + 1);
            if outcome.is_ok() {
                for r in 0..n {
                    (0..=r).for_each(|c| matrix[at(r, c)] = factor[r * n + c]);
                }
            }
        });
        Some(())
    }
}

/// Factors the lower triangle of `a` in place, or says which row is one too many.
#[inline(always)]
fn factorize<T: Scalar>(a: &mut [T], n: usize, parallel: &dyn Parallel) -> Result<(), usize> {
    for start in (0..n).step_by(BLOCK) {
        let end = n.min(start + BLOCK);
        if start > 0 {
            // What the columns before mean for this block.
            let (m, width) = (n - start, end - start);
            let before = part(a, n, start..n, 0..start);
            let product = Matmul {
                batch: Vec::new(),
                m,
                n: width,
                k: start,
                lhs_row: start,
                lhs_column: 1,
                rhs_row: 1,
                rhs_column: start,
            };
            // It cannot be refused: the sizes are those of the parts.
            let _ = subtract_product(&product, (&before, &before), &mut a[start * n..], n, start, parallel);
        }
        for r in start..end {
            let (above, row) = a.split_at_mut(r * n);
            let row = &mut row[..n];
            reduce(above, row, n, start, r);
            let square = row[r] - dot(&row[start..r], &row[start..r]);
            // NaN is not positive either.
            if square.partial_cmp(&T::default()) != Some(std::cmp::Ordering::Greater) {
                return Err(r);
            }
            row[r] = square.sqrt();
        }
        let (block, below) = a.split_at_mut(end * n);
        let rows = Shared::new(below);
        let chunk = (super::WORTH_SHARING / (BLOCK * BLOCK)).max(1);
        parallel.each(n - end, chunk, &|from, to| {
            pulp::Arch::new().dispatch(
                #[inline(always)]
                || {
                    for r in from..to {
                        // SAFETY: every row is asked for by one thread only.
                        reduce(block, unsafe { rows.slice(r * n, (r + 1) * n) }, n, start, end);
                    }
                },
            );
        });
    }
    Ok(())
}

/// Makes the elements `start..end` of a row of the factor, of which the rows `start..end` are above.
#[inline(always)]
fn reduce<T: Scalar>(above: &[T], row: &mut [T], n: usize, start: usize, end: usize) {
    for c in start..end {
        let upper = &above[c * n..][..n];
        row[c] = (row[c] - dot(&row[start..c], &upper[start..c])) / upper[c];
    }
}
