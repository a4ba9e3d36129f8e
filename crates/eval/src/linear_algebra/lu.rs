//! Gaussian elimination with partial pivoting: of full matrices, and of tridiagonal ones.

use super::{Matrix, Number};

/// Factors `a` in place into P × L × U: L's ones are not stored. Returns for each row the one it was exchanged with, and
/// the number of the first pivot that is zero, counted from one; zero if none is.
pub fn factor<T: Number>(a: &mut Matrix<T>) -> (Vec<usize>, usize) {
    let mut pivots = Vec::new();
    let mut singular = 0;
    for k in 0..a.rows.min(a.columns) {
        let mut pivot = k;
        for r in k + 1..a.rows {
            if a[(r, k)].size() > a[(pivot, k)].size() {
                pivot = r;
            }
        }
        pivots.push(pivot);
        a.swap_rows(k, pivot);
        let divisor = a[(k, k)];
        if divisor == T::default() {
            singular = if singular == 0 { k + 1 } else { singular };
            continue;
        }
        for r in k + 1..a.rows {
            let (upper, row) = a.two_rows(k, r);
            let factor = row[k] / divisor;
            row[k] = factor;
            for (x, &u) in row[k + 1..].iter_mut().zip(&upper[k + 1..]) {
                *x -= factor * u;
            }
        }
    }
    (pivots, singular)
}

/// A tridiagonal matrix: its rows are below, on and above the diagonal. The first below and the last above are not used.
pub struct Tridiagonal<T> {
    /// Below the diagonal.
    pub below: Vec<T>,
    /// On the diagonal.
    pub diagonal: Vec<T>,
    /// Above the diagonal.
    pub above: Vec<T>,
}

impl<T: Number> Tridiagonal<T> {
    /// Solves for the columns of `b`, in place. The matrix becomes U: its diagonal, what is above it, and, in `below`,
    /// what is above that. Returns the number of the first pivot that is zero, counted from one; then nothing is solved.
    pub fn solve(&mut self, b: &mut Matrix<T>) -> usize {
        let n = self.diagonal.len();
        // Second diagonal above: rows that were exchanged reach there.
        let mut second = Vec::with_capacity(n);
        for k in 0..n.saturating_sub(1) {
            let (pivot, under) = (self.diagonal[k], self.below[k + 1]);
            if under.size() > pivot.size() {
                // Rows k and k + 1 change places, then the new lower one is reduced.
                let factor = pivot / under;
                let (above, diagonal, beyond) = (self.above[k], self.diagonal[k + 1], self.above[k + 1]);
                self.diagonal[k] = under;
                self.above[k] = diagonal;
                second.push(if k + 2 < n { beyond } else { T::default() });
                self.diagonal[k + 1] = above - factor * diagonal;
                if k + 2 < n {
                    self.above[k + 1] = -factor * beyond;
                }
                b.swap_rows(k, k + 1);
                reduce(b, k, factor);
            } else if pivot == T::default() {
                return k + 1;
            } else {
                let factor = under / pivot;
                let above = self.above[k];
                second.push(T::default());
                self.diagonal[k + 1] -= factor * above;
                reduce(b, k, factor);
            }
        }
        if n > 0 && self.diagonal[n - 1] == T::default() {
            return n;
        }
        for k in (0..n).rev() {
            for c in 0..b.columns {
                let mut x = b[(k, c)];
                if k + 1 < n {
                    x -= self.above[k] * b[(k + 1, c)];
                }
                if k + 2 < n {
                    x -= second[k] * b[(k + 2, c)];
                }
                b[(k, c)] = x / self.diagonal[k];
            }
        }
        second.resize(n, T::default());
        self.below = second;
        0
    }
}

/// Takes `factor` times row `k` from the next.
fn reduce<T: Number>(b: &mut Matrix<T>, k: usize, factor: T) {
    let (upper, row) = b.two_rows(k, k + 1);
    for (x, &u) in row.iter_mut().zip(&*upper) {
        *x -= factor * u;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{distance, random, random_complex};
    use super::*;

    fn check<T: Number>(a: Matrix<T>) {
        let mut factors = a.clone();
        let (pivots, singular) = factor(&mut factors);
        let k = a.rows.min(a.columns);
        let lower = Matrix::from_fn(a.rows, k, |r, c| match r.cmp(&c) {
            std::cmp::Ordering::Less => T::default(),
            std::cmp::Ordering::Equal => T::real(1.0),
            std::cmp::Ordering::Greater => factors[(r, c)],
        });
        let upper = Matrix::from_fn(k, a.columns, |r, c| if c < r { T::default() } else { factors[(r, c)] });
        let mut permuted = a;
        pivots.iter().enumerate().for_each(|(k, &p)| permuted.swap_rows(k, p));
        assert_eq!(singular, 0);
        assert!(distance(&lower.times(&upper), &permuted) < 1e-13);
        assert!(lower.elements.iter().all(|x| x.size() <= 2.0), "pivots are the largest");
    }

    #[test]
    fn the_factors_give_the_matrix_back() {
        for (rows, columns) in [(1, 1), (5, 5), (7, 4), (3, 6)] {
            check(random(rows, columns, 1));
            check(random_complex(rows, columns, 2));
        }
    }

    #[test]
    fn a_pivot_that_is_zero_is_named() {
        let mut a = Matrix { rows: 2, columns: 2, elements: vec![1.0, 2.0, 2.0, 4.0] };
        assert_eq!(factor(&mut a).1, 2);
        assert_eq!(factor(&mut Matrix::<f64>::zeroed(2, 2)).1, 1);
    }

    #[test]
    fn tridiagonal_systems_are_solved() {
        for n in 1..7 {
            let rows = random(3, n, 5);
            let at = |r: usize, c: usize| match c as i64 - r as i64 {
                -1 => rows[(0, r)],
                0 => rows[(1, r)],
                1 => rows[(2, r)],
                _ => 0.0,
            };
            let a = Matrix::from_fn(n, n, at);
            let x = random(n, 2, 6);
            let mut b = a.times(&x);
            let mut system = Tridiagonal {
                below: rows.row(0).to_vec(),
                diagonal: rows.row(1).to_vec(),
                above: rows.row(2).to_vec(),
            };
            assert_eq!(system.solve(&mut b), 0);
            assert!(distance(&b, &x) < 1e-10, "{b:?} {x:?}");
        }
    }
}
