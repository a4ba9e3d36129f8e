//! Singular values and vectors, by one-sided Jacobi rotations: columns are turned in pairs until all are at right angles;
//! their lengths are then the singular values. It is slower than other ways, and the most exact.

use super::householder::{product, qr};
use super::{Matrix, Number, norm};

/// How often all pairs are looked at; six times are usual.
const MAX_SWEEPS: usize = 60;

/// `a` = U × diag(values) × V: the values, the largest first, and U and V, which are square if they are wanted `full`.
/// `None` if a number is not finite or nothing converges.
pub fn svd<T: Number>(a: &Matrix<T>, full: bool) -> Option<(Vec<f64>, Matrix<T>, Matrix<T>)> {
    if !a.is_finite() {
        return None;
    }
    if a.rows < a.columns {
        let (values, u, v) = svd(&a.adjoint(), full)?;
        return Some((values, v.adjoint(), u.adjoint()));
    }
    let n = a.columns;
    // Numbers near one: squares of large and small ones must not be lost.
    let scale = a.elements.iter().map(|x| x.size()).fold(0.0, f64::max);
    let scale = if scale == 0.0 { 1.0 } else { scale };
    // Columns as rows, which lie together; V's columns likewise.
    let mut left = Matrix::from_fn(n, a.rows, |r, c| a[(c, r)] / T::real(scale));
    let mut right = Matrix::<T>::identity(n, n);
    let mut turned = true;
    for _ in 0..MAX_SWEEPS {
        turned = false;
        for p in 0..n {
            for q in p + 1..n {
                turned |= rotate(&mut left, &mut right, p, q);
            }
        }
        if !turned {
            break;
        }
    }
    if turned {
        return None;
    }
    let lengths: Vec<f64> = (0..n).map(|c| norm(left.row(c).iter().copied())).collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&x, &y| lengths[y].total_cmp(&lengths[x]));
    let values: Vec<f64> = order.iter().map(|&k| lengths[k] * scale).collect();
    let v = Matrix::from_fn(n, n, |r, c| right[(order[r], c)].conj());
    // Directions of columns that are nothing but rounding errors are any at right angles to the others.
    let largest = order.first().map_or(0.0, |&k| lengths[k]);
    let least = largest * f64::EPSILON * a.rows as f64;
    let rank = order.iter().take_while(|&&k| lengths[k] > least).count();
    let known = Matrix::from_fn(a.rows, rank, |r, c| left[(order[c], r)] / T::real(lengths[order[c]]));
    Some((values, completed(&known, if full { a.rows } else { n }), v))
}

/// Turns the columns `p` and `q` of the matrix, which are rows here, to a right angle; returns whether they were not.
fn rotate<T: Number>(left: &mut Matrix<T>, right: &mut Matrix<T>, p: usize, q: usize) -> bool {
    let (a, b) = left.two_rows(p, q);
    let (a_square, b_square): (f64, f64) = (a.iter().map(|x| x.square()).sum(), b.iter().map(|x| x.square()).sum());
    let dot: T = a.iter().zip(&*b).map(|(x, &y)| x.conj() * y).sum();
    let size = dot.re().hypot(dot.im());
    if size <= 4.0 * f64::EPSILON * a_square.sqrt() * b_square.sqrt() || size < f64::MIN_POSITIVE {
        return false;
    }
    let ratio = (b_square - a_square) / (2.0 * size);
    let tangent = 1.0f64.copysign(ratio) / (ratio.abs() + ratio.hypot(1.0));
    let cosine = 1.0 / tangent.hypot(1.0);
    let sine = cosine * tangent;
    // With this factor their product is real.
    let phase = dot.conj() / T::real(size);
    for matrix in [left, right] {
        let (a, b) = matrix.two_rows(p, q);
        for (x, y) in a.iter_mut().zip(b) {
            let (before, other) = (*x, phase * *y);
            *x = T::real(cosine) * before - T::real(sine) * other;
            *y = T::real(sine) * before + T::real(cosine) * other;
        }
    }
    true
}

/// `columns` columns of length one and at right angles, beginning with those of `known`, which are.
fn completed<T: Number>(known: &Matrix<T>, columns: usize) -> Matrix<T> {
    let mut factors = known.clone();
    let taus = qr(&mut factors);
    let q = product(&factors, &taus, columns);
    Matrix::from_fn(known.rows, columns, |r, c| if c < known.columns { known[(r, c)] } else { q[(r, c)] })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_orthonormal, distance, random, random_complex};
    use super::*;

    fn check<T: Number>(a: &Matrix<T>) {
        let (values, u, v) = svd(a, true).expect("it converges");
        let least = a.rows.min(a.columns);
        assert_eq!(values.len(), least);
        let (_, thin, flat) = svd(a, false).expect("it converges");
        assert_eq!((thin.rows, thin.columns, flat.rows, flat.columns), (a.rows, least, least, a.columns));
        assert_orthonormal(&thin);
        assert!(values.is_sorted_by(|a, b| a >= b) && values.iter().all(|&s| s >= 0.0), "{values:?}");
        assert_orthonormal(&u);
        assert_orthonormal(&v);
        let diagonal = |r: usize, c: usize| T::real(if r == c { values[r] } else { 0.0 });
        let middle = Matrix::from_fn(a.rows, a.columns, diagonal);
        assert!(distance(&u.times(&middle).times(&v), a) < 1e-12);
    }

    #[test]
    fn the_parts_give_the_matrix_back() {
        for (rows, columns) in [(1, 1), (2, 2), (6, 4), (4, 6), (9, 9)] {
            check(&random(rows, columns, 2));
            check(&random_complex(rows, columns, 5));
        }
        check(&Matrix::<f64>::zeroed(3, 2));
        // Of rank one.
        check(&Matrix::from_fn(5, 4, |r, c| (r + 1) as f64 * (c + 2) as f64 * 0.01));
    }

    #[test]
    fn sizes_do_not_matter() {
        let a = random(4, 3, 8);
        let (values, ..) = svd(&a, false).expect("it converges");
        let large = Matrix::from_fn(4, 3, |r, c| a[(r, c)] * 1e200);
        let (larger, ..) = svd(&large, false).expect("it converges");
        assert!(values.iter().zip(&larger).all(|(x, y)| (x - y / 1e200).abs() < 1e-13));
    }
}
