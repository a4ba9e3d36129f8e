//! The QR decomposition by Householder reflectors, and the product of such reflectors.
//!
//! A reflector is H = 1 − τ v vᵀ, where v's first element is one and not stored; it is chosen as LAPACK chooses it. Those of
//! some columns are made first, and applied to the rest together, as 1 − V T Vᵀ with a triangular T (the compact WY form).

use super::turn::turn;
use super::update::{Columns, Rows, Wanted};
use super::{Scalar, dot, each_matrix, scale, subtract};
use crate::matmul::columns::{self, Lines};
use crate::parallel::Parallel;
use crate::vectors::with_vectors;
use std::ops::Range;

/// Reflectors that are applied together.
const PANEL: usize = 16;

/// The factors Q × R of each matrix of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Qr {
    /// Matrices.
    pub batch: usize,
    /// Rows of each.
    pub rows: usize,
    /// Columns of each.
    pub columns: usize,
}

impl Qr {
    /// Puts R in place of the upper triangles, and below it the reflectors whose product is Q. `taus` gets the τ of each.
    pub fn run<T: Scalar>(&self, matrices: &mut [T], taus: &mut [T], parallel: &dyn Parallel) -> Option<()> {
        let few = self.rows.min(self.columns);
        let fits = matrices.len() == self.batch.checked_mul(self.rows)?.checked_mul(self.columns)?
            && taus.len() == self.batch.checked_mul(few)?;
        fits.then_some(())?;
        let multiplications = self.rows.saturating_mul(self.columns).saturating_mul(few);
        each_matrix(self.batch, multiplications, (matrices, taus), parallel, |_, matrix, taus, parallel| {
            with_vectors!(factor(matrix, self.columns, taus, parallel));
        });
        Some(())
    }
}

/// The first columns of the product of the reflectors stored in each matrix of a batch, as many as it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReflectorProduct {
    /// Matrices.
    pub batch: usize,
    /// Rows of each.
    pub rows: usize,
    /// Columns of each, no more than rows.
    pub columns: usize,
    /// Reflectors stored in each, no more than columns.
    pub reflectors: usize,
}

impl ReflectorProduct {
    /// Puts the products in place of the matrices.
    pub fn run<T: Scalar>(&self, matrices: &mut [T], taus: &[T], parallel: &dyn Parallel) -> Option<()> {
        let fits = matrices.len() == self.batch.checked_mul(self.rows)?.checked_mul(self.columns)?
            && taus.len() == self.batch.checked_mul(self.reflectors)?
            && self.reflectors <= self.columns
            && self.columns <= self.rows;
        fits.then_some(())?;
        let multiplications = self.rows.saturating_mul(self.columns).saturating_mul(self.reflectors);
        // There is nothing to write besides.
        let nothing: &mut [u8] = &mut [];
        each_matrix(self.batch, multiplications, (matrices, nothing), parallel, |m, matrix, _, parallel| {
            let taus = &taus[m * self.reflectors..(m + 1) * self.reflectors];
            with_vectors!(product(matrix, self.columns, taus, parallel));
        });
        Some(())
    }
}

/// Some reflectors that are applied together.
struct Panel<T> {
    /// Each vector with its one and the zeros before it.
    v: Vec<T>,
    /// Their length.
    height: usize,
    /// T, row by row.
    t: Vec<T>,
    /// How many there are.
    count: usize,
}

impl<T: Scalar> Panel<T> {
    /// The reflectors whose vectors are stored in `v`, one after the other, with anything in the places of ones and zeros.
    #[inline(always)]
    fn new(mut v: Vec<T>, height: usize, taus: &[T]) -> Panel<T> {
        let count = taus.len();
        let mut t = vec![T::default(); count * count];
        for (k, &tau) in taus.iter().enumerate() {
            let (before, own) = v.split_at_mut(k * height);
            own[..k].fill(T::default());
            own[k] = T::ONE;
            let own = &own[k..height];
            let mut products = [T::default(); PANEL];
            if k > 0 {
                add_products(own, (&before[k..], height), &mut products[..k]);
            }
            for r in 0..k {
                let mut sum = T::default();
                for (c, &product) in products.iter().enumerate().take(k).skip(r) {
                    sum = sum + t[r * count + c] * product;
                }
                t[r * count + k] = T::default() - tau * sum;
            }
            t[k * count + k] = tau;
        }
        Panel { v, height, t, count }
    }

    /// Multiplies rows of `n` columns, `width` apart, by the product of the reflectors from the left, or by its transpose.
    #[inline(always)]
    fn apply(&self, c: &mut [T], width: usize, n: usize, transposed: bool, parallel: &dyn Parallel) {
        let (height, count) = (self.height, self.count);
        let [mut products, mut weighted] = [(); 2].map(|()| vec![T::default(); count * n]);
        // Each of the three products is subtracted from what is there, so that the second has the sign of the result.
        let columns = Columns { elements: c, row: width, n };
        let rows = Rows::new(&self.v, [height, 1], [count, height]);
        rows.subtract_product(columns, (&mut products, n), Wanted::All, parallel);
        let strides = if transposed { [1, count] } else { [count, 1] };
        let columns = Columns { elements: &products, row: n, n };
        let rows = Rows::new(&self.t, strides, [count, count]);
        rows.subtract_product(columns, (&mut weighted, n), Wanted::All, parallel);
        let columns = Columns { elements: &weighted, row: n, n };
        let rows = Rows::new(&self.v, [1, height], [height, count]);
        rows.subtract_product(columns, (c, width), Wanted::All, parallel);
    }
}

/// Those columns of `a` from their first row in the diagonal on, one after the other.
#[inline(always)]
fn columns_of<T: Scalar>(a: &[T], width: usize, columns: Range<usize>) -> (Vec<T>, usize) {
    let (start, count) = (columns.start, columns.len());
    let height = a.len() / width - start;
    let mut v = vec![T::default(); count * height];
    turn((&a[start * width + start..], width), [height, count], (&mut v, height));
    (v, height)
}

#[inline(always)]
fn factor<T: Scalar>(a: &mut [T], width: usize, taus: &mut [T], parallel: &dyn Parallel) {
    let few = taus.len();
    for start in (0..few).step_by(PANEL) {
        let end = few.min(start + PANEL);
        let (mut v, height) = columns_of(a, width, start..end);
        for (k, tau) in taus[start..end].iter_mut().enumerate() {
            let (own, later) = v[k * height..].split_at_mut(height);
            let own = &mut own[k..];
            *tau = reflect(own);
            let stored = std::mem::replace(&mut own[0], T::ONE);
            let mut products = [T::default(); PANEL];
            let products = &mut products[..later.len() / height];
            if !later.is_empty() {
                add_products(own, (&later[k..], height), products);
            }
            for (column, &product) in later.chunks_exact_mut(height).zip(&*products) {
                subtract(&mut column[k..], *tau * product, own);
            }
            own[0] = stored;
        }
        turn((&v, height), [end - start, height], (&mut a[start * width + start..], width));
        if end < width {
            let panel = Panel::new(v, height, &taus[start..end]);
            panel.apply(&mut a[start * width + end..], width, width - end, true, parallel);
        }
    }
}

#[inline(always)]
fn product<T: Scalar>(a: &mut [T], width: usize, taus: &[T], parallel: &dyn Parallel) {
    let unit = |a: &mut [T], columns: Range<usize>| {
        for (r, row) in a.chunks_exact_mut(width).enumerate() {
            row[columns.clone()].fill(T::default());
            if columns.contains(&r) {
                row[r] = T::ONE;
            }
        }
    };
    unit(a, taus.len()..width);
    for start in (0..taus.len()).step_by(PANEL).rev() {
        let end = taus.len().min(start + PANEL);
        let (v, height) = columns_of(a, width, start..end);
        let panel = Panel::new(v, height, &taus[start..end]);
        unit(a, start..end);
        panel.apply(&mut a[start * width + start..], width, width - start, false, parallel);
    }
}

/// Makes the reflector of a column that is not empty: its first element becomes what is left of the column, and the rest
/// the rest of v. Returns τ.
#[inline(always)]
fn reflect<T: Scalar>(column: &mut [T]) -> T {
    let Some((&mut first, rest)) = column.split_first_mut() else { return T::default() };
    if rest.iter().all(|&x| x == T::default()) {
        return T::default();
    }
    let length = norm(first, rest);
    let beta = if first.is_negative() { length } else { T::default() - length };
    let divisor = first - beta;
    match divisor.abs() >= T::MIN_POSITIVE {
        true => {
            scale(rest, T::ONE / divisor);
        }
        // One over it may be no number.
        false => {
            for x in rest {
                *x = *x / divisor;
            }
        }
    }
    column[0] = beta;
    (beta - first) / beta
}

/// Adds to each of `to` the sum of products of `x` with one of as many other vectors, which begin so far apart.
#[inline(always)]
fn add_products<T: Scalar>(x: &[T], (others, line): (&[T], usize), to: &mut [T]) {
    /// As many at once as the sums take.
    const AT_ONCE: usize = 8;
    let Some(sums) = columns::sums::<T>() else {
        for (n, to) in to.iter_mut().enumerate() {
            *to = *to + dot(x, &others[n * line..][..x.len()]);
        }
        return;
    };
    for (n, to) in to.chunks_mut(AT_ONCE).enumerate() {
        let others = &others[n * AT_ONCE * line..];
        assert!((to.len() - 1) * line + x.len() <= others.len(), "a short vector");
        let one = Lines { at: x.as_ptr(), line: 0, count: 1 };
        let others = Lines { at: others.as_ptr(), line, count: to.len() };
        // SAFETY: the vectors are there, as asserted, and there are no more of them than may be; where there are such sums
        // the processor has what they need.
        unsafe { sums(one, others, x.len(), to.as_mut_ptr(), to.len()) };
    }
}

/// The length of a vector, even if the squares of its elements are no numbers or lose their digits.
#[inline(always)]
fn norm<T: Scalar>(first: T, rest: &[T]) -> T {
    let mut square = [first * first];
    add_products(rest, (rest, 0), &mut square);
    let [square] = square;
    let is_exact = square.sqrt() > T::MIN_POSITIVE.sqrt() / T::EPSILON && square <= T::MAX;
    if is_exact {
        return square.sqrt();
    }
    let largest = rest.iter().fold(first.abs(), |largest, x| if x.abs() > largest { x.abs() } else { largest });
    let scaled = |x: T| x / largest * (x / largest);
    largest * rest.iter().fold(scaled(first), |sum, &x| sum + scaled(x)).sqrt()
}
