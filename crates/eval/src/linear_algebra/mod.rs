//! Linear algebra of single matrices, for real and complex numbers of 64 bits: what HLO's `cholesky` and
//! `triangular-solve` do, and what programs ask LAPACK for by custom calls.
//!
//! Narrower types are widened before and rounded once after. Where LAPACK's answer is determined (pivots, reflectors,
//! signs of factors) it is LAPACK's; eigenvectors and singular vectors are determined up to a factor only. Nothing here
//! panics on numbers of any kind: infinities and NaNs give NaNs, and what does not converge is said.

pub mod eigenvectors;
pub mod householder;
pub mod lu;
pub mod schur;
pub mod svd;
pub mod symmetric;
pub mod triangular;

use bytemuck::Pod;
use hloom_ir::element_type::ElementType;
use num_complex::{Complex, ComplexFloat};
use std::iter::Sum;
use std::ops::{AddAssign, Index, IndexMut, MulAssign, SubAssign};

/// A complex number of two 64-bit floats.
pub type C = Complex<f64>;

/// Real or complex numbers.
pub trait Number:
    ComplexFloat<Real = f64> + From<f64> + AddAssign + SubAssign + MulAssign + Pod + Default + Sum
{
    /// The type of an array of them.
    const TYPE: ElementType;
    /// `self` as a complex number.
    fn complex(self) -> C {
        C::new(self.re(), self.im())
    }
    /// The real number `x`.
    fn real(x: f64) -> Self {
        <Self as From<f64>>::from(x)
    }
    /// A cheap measure of size, by which LAPACK chooses pivots.
    fn size(self) -> f64 {
        self.re().abs() + self.im().abs()
    }
    /// The square of the magnitude.
    fn square(self) -> f64 {
        self.re() * self.re() + self.im() * self.im()
    }
}

impl Number for f64 {
    const TYPE: ElementType = ElementType::F64;
}

impl Number for C {
    const TYPE: ElementType = ElementType::C128;
}

/// A matrix, row by row.
#[derive(Clone, PartialEq, Debug)]
pub struct Matrix<T> {
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
    /// The elements.
    pub elements: Vec<T>,
}

impl<T: Number> Matrix<T> {
    /// All zero.
    pub fn zeroed(rows: usize, columns: usize) -> Matrix<T> {
        Matrix { rows, columns, elements: vec![T::default(); rows * columns] }
    }
    /// Ones on the diagonal.
    pub fn identity(rows: usize, columns: usize) -> Matrix<T> {
        Matrix::from_fn(rows, columns, |r, c| T::real(f64::from(r == c)))
    }
    /// By a function of row and column.
    pub fn from_fn(rows: usize, columns: usize, element: impl Fn(usize, usize) -> T) -> Matrix<T> {
        let elements = (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))).map(|(r, c)| element(r, c));
        Matrix { rows, columns, elements: elements.collect() }
    }
    /// One row.
    pub fn row(&self, r: usize) -> &[T] {
        &self.elements[r * self.columns..(r + 1) * self.columns]
    }
    /// One row.
    pub fn row_mut(&mut self, r: usize) -> &mut [T] {
        &mut self.elements[r * self.columns..(r + 1) * self.columns]
    }
    /// Two different rows, `a` before `b`.
    pub fn two_rows(&mut self, a: usize, b: usize) -> (&mut [T], &mut [T]) {
        let (before, after) = self.elements.split_at_mut(b * self.columns);
        (&mut before[a * self.columns..(a + 1) * self.columns], &mut after[..self.columns])
    }
    /// Exchanges two rows.
    pub fn swap_rows(&mut self, a: usize, b: usize) {
        if a != b {
            let (a, b) = self.two_rows(a.min(b), a.max(b));
            a.swap_with_slice(b);
        }
    }
    /// Rows as columns, conjugated.
    pub fn adjoint(&self) -> Matrix<T> {
        Matrix::from_fn(self.columns, self.rows, |r, c| self[(c, r)].conj())
    }
    /// The matrix product.
    pub fn times(&self, other: &Matrix<T>) -> Matrix<T> {
        let mut product = Matrix::zeroed(self.rows, other.columns);
        for r in 0..self.rows {
            for k in 0..self.columns {
                let factor = self[(r, k)];
                for (sum, &x) in product.row_mut(r).iter_mut().zip(other.row(k)) {
                    *sum += factor * x;
                }
            }
        }
        product
    }
    /// The Hermitian matrix of which one triangle is given; what is imaginary on its diagonal is left out.
    pub fn hermitian(&self, lower: bool) -> Matrix<T> {
        Matrix::from_fn(self.rows, self.rows, |r, c| match (r == c, (c < r) == lower) {
            (true, _) => T::real(self[(r, r)].re()),
            (false, true) => self[(r, c)],
            (false, false) => self[(c, r)].conj(),
        })
    }
    /// Whether all elements are finite.
    pub fn is_finite(&self) -> bool {
        self.elements.iter().all(|x| x.is_finite())
    }
    /// The same in complex numbers.
    pub fn complex(&self) -> Matrix<C> {
        let elements = self.elements.iter().map(|x| x.complex()).collect();
        Matrix { rows: self.rows, columns: self.columns, elements }
    }
}

impl<T> Index<(usize, usize)> for Matrix<T> {
    type Output = T;
    fn index(&self, (r, c): (usize, usize)) -> &T {
        &self.elements[r * self.columns + c]
    }
}

impl<T> IndexMut<(usize, usize)> for Matrix<T> {
    fn index_mut(&mut self, (r, c): (usize, usize)) -> &mut T {
        &mut self.elements[r * self.columns + c]
    }
}

/// Euclid's norm, of numbers of any size.
pub fn norm<T: Number>(x: impl Iterator<Item = T> + Clone) -> f64 {
    let largest = x.clone().map(|x| x.re().abs().max(x.im().abs())).fold(0.0, f64::max);
    if largest == 0.0 || !largest.is_finite() {
        // A NaN is no maximum: the sum tells.
        return x.map(|x| x.square()).sum::<f64>().sqrt();
    }
    x.map(|x| (x / T::real(largest)).square()).sum::<f64>().sqrt() * largest
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Numbers without pattern between -1 and 1.
    pub(crate) fn random(rows: usize, columns: usize, seed: u64) -> Matrix<f64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        };
        Matrix { rows, columns, elements: (0..rows * columns).map(|_| next()).collect() }
    }

    /// The same with imaginary parts.
    pub(crate) fn random_complex(rows: usize, columns: usize, seed: u64) -> Matrix<C> {
        let (re, im) = (random(rows, columns, seed), random(rows, columns, seed + 1));
        Matrix::from_fn(rows, columns, |r, c| C::new(re[(r, c)], im[(r, c)]))
    }

    /// The largest difference of two matrices.
    pub(crate) fn distance<T: Number>(a: &Matrix<T>, b: &Matrix<T>) -> f64 {
        assert_eq!((a.rows, a.columns), (b.rows, b.columns));
        a.elements.iter().zip(&b.elements).map(|(&a, &b)| (a - b).size()).fold(0.0, f64::max)
    }

    /// Asserts that the columns are of length one and at right angles.
    pub(crate) fn assert_orthonormal<T: Number>(q: &Matrix<T>) {
        assert!(distance(&q.adjoint().times(q), &Matrix::identity(q.columns, q.columns)) < 1e-12);
    }

    #[test]
    fn norms_do_not_overflow() {
        assert!((norm([3e200, 4e200].into_iter()) / 5e200 - 1.0).abs() < 1e-15);
        assert!((norm([3e-200, 4e-200].into_iter()) / 5e-200 - 1.0).abs() < 1e-15);
        assert!(norm([1.0, f64::NAN].into_iter()).is_nan() && norm([0.0f64].into_iter()) == 0.0);
        assert_eq!(norm([C::new(3.0, 0.0), C::new(0.0, 4.0)].into_iter()), 5.0);
    }
}
