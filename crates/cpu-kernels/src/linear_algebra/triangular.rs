//! Systems of equations with triangular matrices.

use super::lanes::{self, LANES, Lanes};
use super::{BLOCK, Scalar, dot, each_matrix, part, subtract, subtract_product, two_rows};
use crate::matmul::Matmul;
use crate::parallel::Parallel;
use crate::vectors::with_vectors;

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
        let groups = if self.others > 0 { lanes::groups(self.batch, self.n) } else { 0 };
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
        let (row, column) = self.strides();
        for step in (0..n).step_by(BLOCK) {
            let width = BLOCK.min(n - step);
            let start = if forward { step } else { n - step - width };
            if step > 0 {
                // What is known of the others.
                let (known, block) = match forward {
                    true => b.split_at_mut(start * m),
                    false => {
                        let (block, known) = b.split_at_mut((start + width) * m);
                        (known, &mut block[start * m..])
                    }
                };
                let first = if forward { 0 } else { start + width };
                let product = Matmul {
                    batch: Vec::new(),
                    m: width,
                    n: m,
                    k: step,
                    lhs_row: row,
                    lhs_column: column,
                    rhs_row: m,
                    rhs_column: 1,
                };
                let coefficients = &a[start * row + first * column..];
                let block = &mut block[..width * m];
                subtract_product(&product, (coefficients, known), block, m, 0, parallel);
            }
            for k in 0..width {
                let r = if forward { start + k } else { start + width - 1 - k };
                let known = if forward { start..r } else { r + 1..start + width };
                for c in known {
                    let (above, below) = two_rows(b, m, r.min(c), r.max(c));
                    let (to, from) = if c < r { (below, above) } else { (above, below) };
                    subtract(to, a[r * row + c * column], from);
                }
                if !self.unit_diagonal {
                    let divisor = a[r * n + r];
                    b[r * m..(r + 1) * m].iter_mut().for_each(|x| *x = *x / divisor);
                }
            }
        }
    }

    /// The systems with the triangular matrix on the right: each row of `b` is one, with the transposed matrix on the left.
    #[inline(always)]
    fn rows<T: Scalar>(&self, a: &[T], b: &mut [T], parallel: &dyn Parallel) {
        let (n, m, forward) = (self.n, self.others, !self.is_forward());
        if n <= BLOCK || m < 8 {
            b.chunks_exact_mut(n.max(1)).for_each(|x| self.vector(a, x, !self.transposed, forward));
            return;
        }
        let (row, column) = self.strides();
        for step in (0..n).step_by(BLOCK) {
            let width = BLOCK.min(n - step);
            let start = if forward { step } else { n - step - width };
            if step > 0 {
                let first = if forward { 0 } else { start + width };
                let known = part(b, n, 0..m, first..first + step);
                let product = Matmul {
                    batch: Vec::new(),
                    m,
                    n: width,
                    k: step,
                    lhs_row: step,
                    lhs_column: 1,
                    rhs_row: row,
                    rhs_column: column,
                };
                let coefficients = &a[first * row + start * column..];
                subtract_product(&product, (&known, coefficients), b, n, start, parallel);
            }
            let block = part(a, n, start..start + width, start..start + width);
            let inner = TriangularSolve { n: width, ..*self };
            for x in b.chunks_exact_mut(n) {
                inner.vector(&block, &mut x[start..start + width], !self.transposed, forward);
            }
        }
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
        let gathered = |i: usize| lanes::gather(b, n * others, at(i / others, i % others));
        let mut x: Vec<Lanes<T>> = (0..n * others).map(gathered).collect();
        for k in 0..n {
            let r = if forward { k } else { n - 1 - k };
            let known = if forward { 0..r } else { r + 1..n };
            for c in known {
                let factor = lanes::gather(a, n * n, r * row + c * column);
                let (above, below) = two_rows(&mut x, others, r.min(c), r.max(c));
                let (to, from) = if c < r { (below, above) } else { (above, below) };
                to.iter_mut().zip(from).for_each(|(to, from)| lanes::subtract(to, &factor, from));
            }
            if !self.unit_diagonal {
                let divisor = lanes::gather(a, n * n, r * n + r);
                x[r * others..(r + 1) * others].iter_mut().for_each(|x| lanes::divide(x, &divisor));
            }
        }
        for (lane, b) in b.chunks_exact_mut(n * others).enumerate() {
            x.iter().enumerate().for_each(|(i, x)| b[at(i / others, i % others)] = x[lane]);
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
