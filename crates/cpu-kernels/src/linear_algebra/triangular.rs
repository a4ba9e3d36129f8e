//! Systems of equations with triangular matrices.

use super::corner::{CORNER, Corner};
use super::lanes::{self, LANES, Lanes};
use super::turn::turn;
use super::update::{Columns, Rows, Wanted};
use super::{BLOCK, SMALL, Scalar, dot, each_matrix, subtract, two_rows};
use crate::parallel::Parallel;
use crate::vectors::with_vectors;
use std::ops::Range;

/// Fewer others leave vectors along them nearly empty.
const FEW_OTHERS: usize = 5;

/// Systems `op(a) × x = b`, or `x × op(a) = b`, for each pair of matrices of a batch; `op(a)` is the matrix or its
/// transpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TriangularSolve {
    /// Matrices.
    pub batch: usize,
    /// Rows and columns of the triangular ones.
    pub n: usize,
    /// Columns of the others if the triangular ones stand on the left, otherwise rows.
    pub others: usize,
    /// Whether the triangular matrix stands on the left.
    pub left: bool,
    /// Which triangle is given.
    pub lower: bool,
    /// Whether the diagonal is of ones, whatever is stored there.
    pub unit_diagonal: bool,
    /// Whether the matrix is transposed first.
    pub transposed: bool,
}

impl TriangularSolve {
    /// Puts the solutions in place of `b`.
    pub fn run<T: Scalar>(&self, a: &[T], b: &mut [T], parallel: &dyn Parallel) -> Option<()> {
        let size = self.n.checked_mul(self.n)?;
        let fits = a.len() == self.batch.checked_mul(size)?
            && b.len() == self.batch.checked_mul(self.n)?.checked_mul(self.others)?;
        fits.then_some(())?;
        let multiplications = size.saturating_mul(self.others) / 2;
        // There is nothing to write besides.
        let nothing: &mut [u8] = &mut [];
        // Vectors along several others are full enough.
        let groups = if (1..FEW_OTHERS).contains(&self.others) { lanes::groups(self.batch, self.n) } else { 0 };
        let (a, b) = (a.split_at(groups * LANES * size), b.split_at_mut(groups * LANES * self.n * self.others));
        each_matrix(groups, LANES * multiplications, (b.0, &mut *nothing), parallel, |group, b, _, _| {
            let a = &a.0[group * LANES * size..][..LANES * size];
            with_vectors!(self.lanes(a, b));
        });
        each_matrix(self.batch - groups * LANES, multiplications, (b.1, nothing), parallel, |m, b, _, parallel| {
            let a = &a.1[m * size..(m + 1) * size];
            with_vectors!(if self.left { self.columns(a, b, parallel) } else { self.rows(a, b, parallel) });
        });
        Some(())
    }

    /// Whether the first unknown is known first, when the triangular matrix stands on the left.
    fn is_forward(&self) -> bool {
        self.lower != self.transposed
    }

    /// From one row of `op(a)` to the next, and from one column.
    fn strides(&self) -> (usize, usize) {
        if self.transposed { (1, self.n) } else { (self.n, 1) }
    }

    /// The systems with the triangular matrix on the left: `b` has `n` rows.
    #[inline(always)]
    fn columns<T: Scalar>(&self, a: &[T], b: &mut [T], parallel: &dyn Parallel) {
        let (n, m, forward) = (self.n, self.others, self.is_forward());
        if m == 1 {
            return self.vector(a, b, self.transposed, forward);
        }
        if n <= SMALL {
            return self.substitute(a, b);
        }
        let (row, column) = self.strides();
        // The first of so many rows, of which those before `step` are known; and those after them.
        let place = |step: usize, count: usize| if forward { step } else { n - step - count };
        for step in (0..n).step_by(BLOCK) {
            let block = BLOCK.min(n - step);
            for inner in (step..step + block).step_by(CORNER) {
                let count = CORNER.min(step + block - inner);
                let start = place(inner, count);
                let corner = Corner::new(count, self.unit_diagonal, |k, r| match forward {
                    true => a[(start + r) * row + (start + k) * column],
                    false => a[(start + count - 1 - r) * row + (start + count - 1 - k) * column],
                });
                corner.solve_rows(&mut b[start * m..(start + count) * m], m, 0..m, forward);
                let later = step + block - inner - count;
                let rows = place(inner + count, later);
                self.subtract_known(a, b, start..start + count, rows..rows + later, &crate::Serial);
            }
            let (known, later) = (place(step, block), n - step - block);
            let rows = place(step + block, later);
            self.subtract_known(a, b, known..known + block, rows..rows + later, parallel);
        }
    }

    /// The same for few unknowns.
    #[inline(always)]
    fn substitute<T: Scalar>(&self, a: &[T], b: &mut [T]) {
        let (n, m, forward) = (self.n, self.others, self.is_forward());
        let (row, column) = self.strides();
        for k in 0..n {
            let r = if forward { k } else { n - 1 - k };
            for c in if forward { 0..r } else { r + 1..n } {
                let (above, below) = two_rows(b, m, r.min(c), r.max(c));
                let (to, from) = if c < r { (below, above) } else { (above, below) };
                subtract(to, a[r * row + c * column], from);
            }
            if !self.unit_diagonal {
                let divisor = a[r * n + r];
                for x in &mut b[r * m..(r + 1) * m] {
                    *x = *x / divisor;
                }
            }
        }
    }

    /// What rows that are known mean for rows above or below.
    #[inline(always)]
    fn subtract_known<T: Scalar>(
        &self,
        a: &[T],
        b: &mut [T],
        known: Range<usize>,
        later: Range<usize>,
        parallel: &dyn Parallel,
    ) {
        if later.is_empty() {
            return;
        }
        let (m, (row, column)) = (self.others, self.strides());
        let rows = Rows::new(&a[later.start * row + known.start * column..], [row, column], [later.len(), known.len()]);
        let (known, to) = match known.start < later.start {
            true => {
                let (above, below) = b.split_at_mut(later.start * m);
                (&above[known.start * m..], below)
            }
            false => {
                let (above, below) = b.split_at_mut(known.start * m);
                (&*below, &mut above[later.start * m..])
            }
        };
        rows.subtract_product(Columns { elements: known, row: m, n: m }, (to, m), Wanted::All, parallel);
    }

    /// The systems with the triangular matrix on the right: each row of `b` is one, with the transposed matrix on the left.
    #[inline(always)]
    fn rows<T: Scalar>(&self, a: &[T], b: &mut [T], parallel: &dyn Parallel) {
        let (n, m) = (self.n, self.others);
        let turned = TriangularSolve { left: true, transposed: !self.transposed, ..*self };
        if m == 1 {
            return turned.columns(a, b, parallel);
        }
        let mut columns = vec![T::default(); n * m];
        turn((b, n), [m, n], (&mut columns, m));
        turned.columns(a, &mut columns, parallel);
        turn((&columns, m), [n, m], (b, n));
    }

    /// The systems of a group of small matrices.
    #[inline(always)]
    fn lanes<T: Scalar>(&self, a: &[T], b: &mut [T]) {
        let (n, others) = (self.n, self.others);
        // On the right each row is a system with the transposed matrix on the left.
        let ((row, column), forward) = match (self.strides(), self.left) {
            (strides, true) => (strides, self.is_forward()),
            ((row, column), false) => ((column, row), !self.is_forward()),
        };
        let at = |unknown: usize, other: usize| if self.left { unknown * others + other } else { other * n + unknown };
        let mut x: Vec<Lanes<T>> = vec![[T::default(); LANES]; n * others];
        for unknown in 0..n {
            for other in 0..others {
                x[unknown * others + other] = lanes::gather(b, n * others, at(unknown, other));
            }
        }
        for k in 0..n {
            let r = if forward { k } else { n - 1 - k };
            let known = if forward { 0..r } else { r + 1..n };
            for c in known {
                let factor = lanes::gather(a, n * n, r * row + c * column);
                let (above, below) = two_rows(&mut x, others, r.min(c), r.max(c));
                let (to, from) = if c < r { (below, above) } else { (above, below) };
                for (to, from) in to.iter_mut().zip(from) {
                    lanes::subtract(to, &factor, from);
                }
            }
            if !self.unit_diagonal {
                let divisor = lanes::gather(a, n * n, r * n + r);
                for x in &mut x[r * others..(r + 1) * others] {
                    lanes::divide(x, &divisor);
                }
            }
        }
        for (lane, b) in b.chunks_exact_mut(n * others).enumerate() {
            for unknown in 0..n {
                for other in 0..others {
                    b[at(unknown, other)] = x[unknown * others + other][lane];
                }
            }
        }
    }

    /// One system `op(a) × x = b`, with `a` as it is or transposed.
    #[inline(always)]
    fn vector<T: Scalar>(&self, a: &[T], x: &mut [T], transposed: bool, forward: bool) {
        let n = self.n;
        for k in 0..n {
            let r = if forward { k } else { n - 1 - k };
            let row = &a[r * n..(r + 1) * n];
            let (before, rest) = x.split_at_mut(r);
            let Some((own, after)) = rest.split_first_mut() else { return };
            if !transposed {
                let known = if forward { dot(&row[..r], before) } else { dot(&row[r + 1..], after) };
                *own = *own - known;
            }
            if !self.unit_diagonal {
                *own = *own / row[r];
            }
            if transposed {
                match forward {
                    true => subtract(after, *own, &row[r + 1..]),
                    false => subtract(before, *own, &row[..r]),
                }
            }
        }
    }
}
