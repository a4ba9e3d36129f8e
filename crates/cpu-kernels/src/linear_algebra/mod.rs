//! Factors of matrices and systems of equations with triangular ones, for batches of dense row-major matrices.
//!
//! A matrix is worked on by blocks of columns or rows: within a block by plain loops over rows, and what a block means for
//! the rest of the matrix is a product of matrices. Small matrices of a batch are worked on side by side. Everything is done
//! in place.

mod cholesky;
mod lanes;
mod lu;
#[cfg(test)]
mod tests;
mod triangular;

pub use cholesky::Cholesky;
pub use lu::Lu;
pub use triangular::TriangularSolve;

use crate::matmul::Matmul;
use crate::number::{Real, Stored};
use crate::parallel::{Parallel, Shared, grain};

/// Columns or rows of a block. What is no larger than one is done without products.
const BLOCK: usize = 48;

/// A number that equations are solved in.
pub trait Scalar:
    Stored<Compute = Self> + Real + PartialOrd + std::ops::Sub<Output = Self> + std::ops::Div<Output = Self>
{
    /// Its size.
    fn abs(self) -> Self;
    /// Its square root.
    fn sqrt(self) -> Self;
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
            const NAN: $t = <$t>::NAN;
        }
    )*};
}

scalar! { f32 f64 }

/// Takes `factor` times `from` from `to`.
#[inline(always)]
fn subtract<T: Scalar>(to: &mut [T], factor: T, from: &[T]) {
    to.iter_mut().zip(from).for_each(|(to, &from)| *to = *to - factor * from);
}

/// The sum of products, in as many sums as vectors have elements.
#[inline(always)]
fn dot<T: Scalar>(x: &[T], y: &[T]) -> T {
    const LANES: usize = 16;
    let mut sums = [T::default(); LANES];
    let (x_chunks, y_chunks) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let rest = x_chunks.remainder().iter().zip(y_chunks.remainder());
    let mut sum = rest.fold(T::default(), |sum, (&x, &y)| sum + x * y);
    if x.len() >= LANES {
        for (x, y) in x_chunks.zip(y_chunks) {
            for ((sum, &x), &y) in sums.iter_mut().zip(x).zip(y) {
                *sum = *sum + x * y;
            }
        }
        let mut half = LANES / 2;
        while half > 0 {
            (0..half).for_each(|i| sums[i] = sums[i] + sums[i + half]);
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

/// A part of a matrix, copied: those rows and columns.
fn part<T: Copy>(matrix: &[T], width: usize, rows: std::ops::Range<usize>, columns: std::ops::Range<usize>) -> Vec<T> {
    let rows = matrix.chunks_exact(width).take(rows.end).skip(rows.start);
    rows.flat_map(|row| row[columns.clone()].iter().copied()).collect()
}

/// Takes the product of parts of the sizes that it names, a dense matrix, from the part of `rows` that begins at `column`
/// in each.
fn subtract_product<T: Scalar>(
    product: &Matmul,
    (lhs, rhs): (&[T], &[T]),
    rows: &mut [T],
    width: usize,
    column: usize,
    parallel: &dyn Parallel,
) {
    let mut all = vec![T::default(); product.m * product.n];
    product.run::<T, T>(lhs, rhs, &mut all, parallel).expect("the parts are of the sizes of the product");
    for (row, product) in rows.chunks_exact_mut(width).zip(all.chunks_exact(product.n)) {
        row[column..].iter_mut().zip(product).for_each(|(x, &p)| *x = *x - p);
    }
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
