//! Gaussian elimination of tridiagonal matrices, with rows that change places with the next.

use super::{Scalar, scale, subtract, two_rows};
use crate::parallel::{Parallel, Shared, grain};
use crate::vectors::with_vectors;

/// Systems `a × x = b` for each tridiagonal matrix of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tridiagonal {
    /// Matrices.
    pub batch: usize,
    /// Rows and columns of each.
    pub n: usize,
    /// Columns of `b`.
    pub columns: usize,
}

/// The diagonals of a batch of tridiagonal matrices, each as long as the matrices are high. The first number below the
/// diagonal and the last above it mean nothing.
#[derive(Debug)]
pub struct Diagonals<'a, T> {
    /// Below the diagonal.
    pub below: &'a mut [T],
    /// On the diagonal.
    pub diagonal: &'a mut [T],
    /// Above the diagonal.
    pub above: &'a mut [T],
}

impl Tridiagonal {
    /// Puts the solutions in place of `b`, and U in place of the matrices: its diagonal, what is above it, and, in `below`,
    /// what is above that. `singular` gets for each matrix the first pivot that is zero, counted from one; then nothing is
    /// solved.
    pub fn run<T: Scalar>(
        &self,
        a: &mut Diagonals<'_, T>,
        b: &mut [T],
        singular: &mut [i32],
        parallel: &dyn Parallel,
    ) -> Option<()> {
        let (n, size) = (self.n, self.n.checked_mul(self.columns)?);
        let length = self.batch.checked_mul(n)?;
        let fits = [&*a.below, a.diagonal, a.above].iter().all(|d| d.len() == length)
            && b.len() == self.batch.checked_mul(size)?
            && singular.len() == self.batch
            && i32::try_from(n).is_ok();
        fits.then_some(())?;
        let chunk = grain::STREAMED.div_ceil((size + n).max(1));
        let [below, diagonal, above] = [&mut *a.below, &mut *a.diagonal, &mut *a.above].map(Shared::new);
        let (b, singular) = (Shared::new(b), Shared::new(singular));
        parallel.each(self.batch, chunk, &|begin, end| {
            for m in begin..end {
                // SAFETY: every matrix is one thread's.
                unsafe {
                    let [below, diagonal, above] = [&below, &diagonal, &above].map(|d| d.slice(m * n, (m + 1) * n));
                    let b = b.slice(m * size, (m + 1) * size);
                    singular.write(m, with_vectors!(solve(below, diagonal, above, b, self.columns)) as i32);
                }
            }
        });
        Some(())
    }
}

/// Solves one system; says which pivot is zero.
#[inline(always)]
fn solve<T: Scalar>(below: &mut [T], diagonal: &mut [T], above: &mut [T], b: &mut [T], columns: usize) -> usize {
    let n = diagonal.len();
    for k in 0..n.saturating_sub(1) {
        let (pivot, under) = (diagonal[k], below[k + 1]);
        let exchanged = under.abs() > pivot.abs();
        let factor;
        // What is above the diagonal above the diagonal: rows that were exchanged reach there.
        let mut second = T::default();
        if exchanged {
            factor = pivot / under;
            let beside = diagonal[k + 1];
            diagonal[k] = under;
            diagonal[k + 1] = above[k] - factor * beside;
            above[k] = beside;
            if k + 2 < n {
                second = above[k + 1];
                above[k + 1] = T::default() - factor * second;
            }
        } else if pivot == T::default() {
            return k + 1;
        } else {
            factor = under / pivot;
            diagonal[k + 1] = diagonal[k + 1] - factor * above[k];
        }
        below[k] = second;
        if columns == 1 {
            let (upper, lower) = if exchanged { (b[k + 1], b[k]) } else { (b[k], b[k + 1]) };
            (b[k], b[k + 1]) = (upper, lower - factor * upper);
            continue;
        }
        let (upper, lower) = two_rows(b, columns, k, k + 1);
        if exchanged {
            upper.swap_with_slice(lower);
        }
        subtract(lower, factor, upper);
    }
    let Some(last) = n.checked_sub(1) else { return 0 };
    if diagonal[last] == T::default() {
        return n;
    }
    below[last] = T::default();
    for k in (0..n).rev() {
        // One over the pivot is there long before the unknowns below are.
        let inverse = T::ONE / diagonal[k];
        let (first, second) = (above[k] * inverse, below[k] * inverse);
        if columns == 1 {
            let mut x = b[k] * inverse;
            if k + 2 < n {
                x = x - second * b[k + 2];
            }
            if k + 1 < n {
                x = x - first * b[k + 1];
            }
            b[k] = x;
            continue;
        }
        let (known, rest) = b[k * columns..].split_at_mut(columns);
        scale(known, inverse);
        if k + 2 < n && second != T::default() {
            subtract(known, second, &rest[columns..]);
        }
        if k + 1 < n {
            subtract(known, first, rest);
        }
    }
    0
}
