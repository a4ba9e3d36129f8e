//! The Cholesky decomposition, and systems with triangular matrices.

use super::{Matrix, Number};
use hloom_ir::attributes::TransposeA;

/// The triangular factor of a Hermitian matrix of which one triangle is read; the other triangle of the factor is zero. If
/// the matrix is not positive definite: how many rows and columns are too many, counted from one.
pub fn cholesky<T: Number>(a: &Matrix<T>, lower: bool) -> Result<Matrix<T>, usize> {
    let n = a.rows;
    let at = |r: usize, c: usize| if lower { a[(r, c)] } else { a[(c, r)].conj() };
    let mut factor = Matrix::zeroed(n, n);
    for c in 0..n {
        let square: f64 = factor.row(c)[..c].iter().map(|x: &T| x.square()).sum();
        let diagonal = at(c, c).re() - square;
        // NaN is not positive either.
        if diagonal.partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater) {
            return Err(c + 1);
        }
        let root = diagonal.sqrt();
        factor[(c, c)] = T::real(root);
        for r in c + 1..n {
            let (upper, row) = factor.two_rows(c, r);
            let sum: T = row[..c].iter().zip(&upper[..c]).map(|(&x, y)| x * y.conj()).sum();
            row[c] = (at(r, c) - sum) / T::real(root);
        }
    }
    Ok(if lower { factor } else { factor.adjoint() })
}

/// A system with a triangular matrix: op(a) × x = b, or x × op(a) = b.
#[derive(Clone, Copy, Debug)]
pub struct TriangularSystem {
    /// Whether the matrix stands on the left.
    pub left_side: bool,
    /// Which triangle is given.
    pub lower: bool,
    /// Whether the diagonal is of ones, whatever is stored there.
    pub unit_diagonal: bool,
    /// What is done to the matrix first.
    pub transpose_a: TransposeA,
}

impl TriangularSystem {
    /// Solves it for `b`, in place.
    pub fn solve<T: Number>(self, a: &Matrix<T>, b: &mut Matrix<T>) {
        let n = a.rows;
        // op(a), with only the given triangle read.
        let given = |r: usize, c: usize| match (r == c, (c < r) == self.lower) {
            (true, _) if self.unit_diagonal => T::real(1.0),
            (true, _) | (false, true) => a[(r, c)],
            _ => T::default(),
        };
        let op = |r: usize, c: usize| match self.transpose_a {
            TransposeA::None => given(r, c),
            TransposeA::Transpose => given(c, r),
            TransposeA::Adjoint => given(c, r).conj(),
        };
        // x × op(a) = b is op(a)ᵀ × xᵀ = bᵀ: one solver, reading b by columns or by rows.
        let system = |r: usize, c: usize| if self.left_side { op(r, c) } else { op(c, r) };
        let (right_hand_sides, step, stride) =
            if self.left_side { (b.columns, 1, b.columns) } else { (b.rows, b.columns, 1) };
        let is_lower = (self.lower == (self.transpose_a == TransposeA::None)) == self.left_side;
        let x = &mut b.elements;
        for s in 0..right_hand_sides {
            for k in 0..n {
                let r = if is_lower { k } else { n - 1 - k };
                let known = if is_lower { 0..r } else { r + 1..n };
                let sum: T = known.map(|c| system(r, c) * x[s * step + c * stride]).sum();
                let at = s * step + r * stride;
                x[at] = (x[at] - sum) / system(r, r);
            }
        }
    }
}
