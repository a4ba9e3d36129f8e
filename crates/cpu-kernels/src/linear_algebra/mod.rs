//! Factors of matrices and systems of equations with triangular and tridiagonal ones, for batches of dense row-major matrices.
//!
//! A matrix is worked on by blocks of columns or rows: within a block by triangles so small that they stay in registers
//! ([`corner`]), and what a block means for the rest of a matrix is a product that is taken from it where it lies
//! ([`update`]). Small matrices of a batch are worked on side by side. Everything is done in place.

mod cholesky;
mod corner;
mod lanes;
mod lu;
mod qr;
#[cfg(test)]
mod tests;
mod triangular;
mod tridiagonal;
mod turn;
mod update;

pub use cholesky::Cholesky;
pub use lu::Lu;
pub use qr::{Qr, ReflectorProduct};
pub use triangular::TriangularSolve;
pub use tridiagonal::{Diagonals, Tridiagonal};

use crate::number::{Real, Stored};
use crate::parallel::{Parallel, Shared, grain};

/// So few rows or columns are worked on where they are: to lay out a corner takes longer than to solve it.
const SMALL: usize = 8;

/// Columns or rows of a block, of which what is left of the matrix is read and written once.
const BLOCK: usize = 64;

/// A number that equations are solved in.
pub trait Scalar:
    Stored<Compute = Self> + Real + PartialOrd + std::ops::Sub<Output = Self> + std::ops::Div<Output = Self>
{
    /// Its size.
    fn abs(self) -> Self;
    /// Its square root.
    fn sqrt(self) -> Self;
    /// Whether it has a minus sign.
    fn is_negative(self) -> bool;
    /// One.
    const ONE: Self;
    /// What the next number above one is larger by.
    const EPSILON: Self;
    /// The least number with all its digits.
    const MIN_POSITIVE: Self;
    /// The largest number.
    const MAX: Self;
    /// That there is no number.
    const NAN: Self;
}

macro_rules! scalar {
    ($($t:ty)*) => {$(
        impl Scalar for $t {
            #[inline(always)]
            fn abs(self) -> $t {
                self.abs()
            }
            #[inline(always)]
            fn sqrt(self) -> $t {
                self.sqrt()
            }
            #[inline(always)]
            fn is_negative(self) -> bool {
                self.is_sign_negative()
            }
            const ONE: $t = 1.0;
            const EPSILON: $t = <$t>::EPSILON;
            const MIN_POSITIVE: $t = <$t>::MIN_POSITIVE;
            const MAX: $t = <$t>::MAX;
            const NAN: $t = <$t>::NAN;
        }
    )*};
}

scalar! { f32 f64 }

/// Takes `factor` times `from` from `to`.
#[inline(always)]
fn subtract<T: Scalar>(to: &mut [T], factor: T, from: &[T]) {
    // A loop: the function of an iterator would not be inlined everywhere (see [`crate::vectors`]).
    for (to, &from) in to.iter_mut().zip(from) {
        *to = *to - factor * from;
    }
}

/// Multiplies all by `factor`.
#[inline(always)]
fn scale<T: Scalar>(all: &mut [T], factor: T) {
    for x in all {
        *x = *x * factor;
    }
}

/// The sum of products, in as many sums as vectors have elements.
#[inline(always)]
fn dot<T: Scalar>(x: &[T], y: &[T]) -> T {
    const LANES: usize = 16;
    let mut sums = [T::default(); LANES];
    let (x_chunks, y_chunks) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let mut sum = T::default();
    for (&x, &y) in x_chunks.remainder().iter().zip(y_chunks.remainder()) {
        sum = sum + x * y;
    }
    if x.len() >= LANES {
        for (x, y) in x_chunks.zip(y_chunks) {
            for ((sum, &x), &y) in sums.iter_mut().zip(x).zip(y) {
                *sum = *sum + x * y;
            }
        }
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                sums[i] = sums[i] + sums[i + half];
            }
            half /= 2;
        }
        sum = sum + sums[0];
    }
    sum
}

/// Two different rows of a matrix with that many columns, the first above the second.
#[inline(always)]
fn two_rows<T>(matrix: &mut [T], columns: usize, above: usize, below: usize) -> (&mut [T], &mut [T]) {
    let (first, second) = matrix.split_at_mut(below * columns);
    (&mut first[above * columns..][..columns], &mut second[..columns])
}

/// Calls `work` with the parts of `a` and `b` that belong to each matrix of a batch: by many threads if there are many
/// small matrices, and with all threads for one after the other if they are large.
fn each_matrix<T: Scalar, U: Copy + Send>(
    batch: usize,
    multiplications: usize,
    (a, b): (&mut [T], &mut [U]),
    parallel: &dyn Parallel,
    work: impl Fn(usize, &mut [T], &mut [U], &dyn Parallel) + Sync,
) {
    let (of_a, of_b) = (a.len() / batch.max(1), b.len() / batch.max(1));
    let (a, b) = (Shared::new(a), Shared::new(b));
    // SAFETY: every matrix is asked for by one thread only.
    let one = |n: usize, parallel: &dyn Parallel| unsafe {
        work(n, a.slice(n * of_a, (n + 1) * of_a), b.slice(n * of_b, (n + 1) * of_b), parallel);
    };
    if batch == 1 || multiplications >= grain::MULTIPLICATIONS {
        (0..batch).for_each(|n| one(n, parallel));
    } else {
        let chunk = grain::MULTIPLICATIONS / multiplications.max(64);
        parallel.each(batch, chunk, &|from, to| (from..to).for_each(|n| one(n, &crate::Serial)));
    }
}
