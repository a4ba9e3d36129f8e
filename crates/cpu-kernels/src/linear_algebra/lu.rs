//! Gaussian elimination with partial pivoting.

use super::{BLOCK, Scalar, each_matrix, part, subtract, subtract_product, two_rows};
use crate::matmul::Matmul;
use crate::parallel::Parallel;
use crate::vectors::with_vectors;

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
    let mut singular = 0;
    for start in (0..pivots.len()).step_by(BLOCK) {
        let end = pivots.len().min(start + BLOCK);
        for k in start..end {
            let mut pivot = k;
            for r in k + 1..rows {
                if a[r * columns + k].abs() > a[pivot * columns + k].abs() {
                    pivot = r;
                }
            }
            pivots[k] = pivot as i32 + 1;
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
                let factor = row[k] / divisor;
                row[k] = factor;
                subtract(&mut row[k + 1..end], factor, &upper[k + 1..end]);
            }
        }
        if end == columns {
            continue;
        }
        // What is right of the block: first its own rows, then those below.
        for k in start..end {
            for r in k + 1..end {
                let (upper, row) = two_rows(a, columns, k, r);
                let factor = row[k];
                subtract(&mut row[end..], factor, &upper[end..]);
            }
        }
        if end < rows {
            let (m, n, k) = (rows - end, columns - end, end - start);
            let lower = part(a, columns, end..rows, start..end);
            let upper = part(a, columns, start..end, end..columns);
            let product = Matmul { batch: Vec::new(), m, n, k, lhs_row: k, lhs_column: 1, rhs_row: n, rhs_column: 1 };
            let below = &mut a[end * columns..];
            subtract_product(&product, (&lower, &upper), below, columns, end, parallel);
        }
    }
    singular
}
