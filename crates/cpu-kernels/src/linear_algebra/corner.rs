//! Triangles so small that what is solved with them stays in registers.

use super::{Scalar, scale, subtract};

/// Unknowns at most.
pub(super) const CORNER: usize = 16;

/// So many rows of as many columns.
pub(super) type Square<T> = [[T; CORNER]; CORNER];

/// A triangular system of a few unknowns, in the order in which they become known.
pub(super) struct Corner<T> {
    /// How many unknowns there are.
    rows: usize,
    /// What each unknown is multiplied by in the equations of the later ones.
    factors: Square<T>,
    /// One over the diagonal.
    inverses: [T; CORNER],
}

impl<T: Scalar> Corner<T> {
    /// The system whose unknown `k` has the factor `factor(k, r)` in the equation of `r`, later or its own.
    #[inline(always)]
    pub(super) fn new(rows: usize, has_ones: bool, factor: impl Fn(usize, usize) -> T) -> Corner<T> {
        let mut corner = Corner { rows, factors: [[T::default(); CORNER]; CORNER], inverses: [T::ONE; CORNER] };
        for k in 0..rows {
            if !has_ones {
                corner.inverses[k] = T::ONE / factor(k, k);
            }
            for r in k + 1..rows {
                corner.factors[k][r] = factor(k, r);
            }
        }
        corner
    }

    /// Puts the unknowns in place of `x`, a column of which is a system.
    #[inline(always)]
    fn solve(&self, x: &mut Square<T>) {
        for k in 0..CORNER {
            let (known, later) = x.split_at_mut(k + 1);
            let own = &mut known[k];
            scale(own, self.inverses[k]);
            for (x, &factor) in later.iter_mut().zip(&self.factors[k][k + 1..]) {
                subtract(x, factor, own);
            }
        }
    }

    /// Solves for `columns` of the rows of `b`, `width` long. The unknowns are its rows, in this order or in reverse.
    #[inline(always)]
    pub(super) fn solve_rows(&self, b: &mut [T], width: usize, columns: std::ops::Range<usize>, forward: bool) {
        let row = |k: usize| if forward { k } else { self.rows - 1 - k };
        for first in columns.clone().step_by(CORNER) {
            let count = CORNER.min(columns.end - first);
            let mut x = [[T::default(); CORNER]; CORNER];
            if count == CORNER && self.rows == CORNER {
                for (k, x) in x.iter_mut().enumerate() {
                    x.copy_from_slice(&b[row(k) * width + first..][..CORNER]);
                }
                self.solve(&mut x);
                for (k, x) in x.iter().enumerate() {
                    b[row(k) * width + first..][..CORNER].copy_from_slice(x);
                }
                continue;
            }
            for (k, x) in x.iter_mut().enumerate().take(self.rows) {
                x[..count].copy_from_slice(&b[row(k) * width + first..][..count]);
            }
            self.solve(&mut x);
            for (k, x) in x.iter().enumerate().take(self.rows) {
                b[row(k) * width + first..][..count].copy_from_slice(&x[..count]);
            }
        }
    }
}
