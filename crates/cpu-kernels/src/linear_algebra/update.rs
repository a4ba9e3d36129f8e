//! What a block of a matrix means for the rest of it: a product that is taken from where it lies.

use super::Scalar;
use crate::parallel::{Parallel, Shared, grain};
use crate::tiles::micro::{self, Block, Micro};
use std::any::Any;

/// Blocks of rows above which columns are laid out for them: rows that are far apart push each other out of the cache.
const FEW_BLOCKS: usize = 2;

/// The innermost loops for a type.
fn micro<T: Scalar>() -> &'static Micro<T, T> {
    let known: [&'static dyn Any; 2] = [micro::f32s(), micro::f64s()];
    known.into_iter().find_map(|micro| micro.downcast_ref()).expect("there are loops for every scalar")
}

/// The rows on the left of products, negated and laid out.
pub(super) struct Rows<T> {
    laid_out: Vec<T>,
    m: usize,
    k: usize,
    /// Rows of a block.
    height: usize,
}

/// Which part of a square result is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    /// The upper triangle; what else is in its tiles is written, too.
    UpperTriangle,
}

/// Columns on the right of a product: how many, and from one row to the next.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a, T> {
    pub(super) elements: &'a [T],
    pub(super) row: usize,
    pub(super) n: usize,
}

impl<T: Scalar> Rows<T> {
    /// Lays out `m` rows of `k` columns with these strides.
    #[inline(always)]
    pub(super) fn new(elements: &[T], [row, column]: [usize; 2], [m, k]: [usize; 2]) -> Rows<T> {
        let height = m.div_ceil(m.div_ceil(micro::<T>().rows).max(1)).max(1);
        assert!(m == 0 || k == 0 || (m - 1) * row + (k - 1) * column < elements.len(), "a short operand");
        let mut laid_out = vec![T::default(); m * k];
        for first in (0..m).step_by(height) {
            let rows = height.min(m - first);
            let block = &mut laid_out[first * k..][..rows * k];
            for (c, line) in block.chunks_exact_mut(rows).enumerate() {
                let from = &elements[first * row + c * column..];
                for (r, to) in line.iter_mut().enumerate() {
                    *to = T::default() - from[r * row];
                }
            }
        }
        Rows { laid_out, m, k, height }
    }

    /// Takes the product with `columns` from `to`, whose rows lie `to_row` apart.
    pub(super) fn subtract_product(
        &self,
        columns: Columns<'_, T>,
        (to, to_row): (&mut [T], usize),
        wanted: Wanted,
        parallel: &dyn Parallel,
    ) {
        let (micro, Columns { elements, row, n }) = (micro::<T>(), columns);
        if self.m == 0 || self.k == 0 || n == 0 {
            return;
        }
        assert!((self.k - 1) * row + n <= elements.len(), "a short operand");
        let is_laid_out = self.m.div_ceil(self.height) > FEW_BLOCKS;
        let to = Shared::new(to);
        let work = self.m.saturating_mul(self.k).saturating_mul(micro.columns);
        parallel.each(n.div_ceil(micro.columns), grain::MULTIPLICATIONS.div_ceil(work), &|begin, end| {
            let mut panel: Vec<T> = Vec::new();
            for first in (begin..end).map(|panel| panel * micro.columns) {
                let width = micro.columns.min(n - first);
                let (rhs, rhs_step) = match is_laid_out {
                    true => {
                        panel.clear();
                        for line in elements[first..].chunks(row).take(self.k) {
                            panel.extend_from_slice(&line[..width]);
                        }
                        (panel.as_ptr(), width)
                    }
                    false => (elements[first..].as_ptr(), row),
                };
                for start in (0..self.m).step_by(self.height) {
                    if wanted == Wanted::UpperTriangle && first + width <= start {
                        break;
                    }
                    let rows = self.height.min(self.m - start);
                    let block = Block {
                        rows,
                        columns: width,
                        depth: self.k,
                        lhs: self.laid_out[start * self.k..].as_ptr(),
                        lhs_row: 1,
                        lhs_step: rows,
                        rhs,
                        rhs_step,
                        to: to.address(start * to_row + first, (rows - 1) * to_row + width),
                        to_row,
                        add: true,
                    };
                    // SAFETY: the operands reach so far, as asserted, and the block of the result is this thread's.
                    unsafe { (micro.run)(&block) };
                }
            }
        });
    }
}
