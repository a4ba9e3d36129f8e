//! Eigenvalues and eigenvectors of Hermitian matrices: reflectors to tridiagonal form, then QL steps with implicit shifts.

use super::householder::{hessenberg_product, tridiagonal};
use super::{Matrix, Number};

/// How many steps an eigenvalue may take; two or three are usual.
const MAX_STEPS: usize = 60;

/// The eigenvalues of the Hermitian matrix of which one triangle of `a` is read, the least first, and the eigenvectors as
/// columns. `None` if a number is not finite or nothing converges.
pub fn eigen<T: Number>(a: &Matrix<T>, lower: bool) -> Option<(Vec<f64>, Matrix<T>)> {
    let n = a.rows;
    let mut form = a.hermitian(lower);
    if !form.is_finite() {
        return None;
    }
    let tridiagonal = tridiagonal(&mut form, true);
    let q = hessenberg_product(&form, &tridiagonal.taus);
    // Vectors as rows: a rotation then works on what lies together.
    let mut vectors = Matrix::from_fn(n, n, |r, c| q[(c, r)]);
    let mut values = tridiagonal.diagonal;
    let mut beside = tridiagonal.beside;
    beside.push(0.0);
    for l in 0..n {
        let mut steps = 0;
        loop {
            let is_small = |m: usize| beside[m].abs() <= f64::EPSILON * (values[m].abs() + values[m + 1].abs());
            let m = (l..n - 1).find(|&m| is_small(m) || beside[m] == 0.0).unwrap_or(n - 1);
            if m == l {
                break;
            }
            steps += 1;
            if steps > MAX_STEPS {
                return None;
            }
            ql_step(&mut values, &mut beside, &mut vectors, l, m);
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&x, &y| values[x].total_cmp(&values[y]));
    let sorted = order.iter().map(|&k| values[k]).collect();
    Some((sorted, Matrix::from_fn(n, n, |r, c| vectors[(order[c], r)])))
}

/// One step on the rows from `l` to `m`, between which nothing beside the diagonal is small: a shift by Wilkinson, and
/// rotations from the bottom to the top that chase what it makes outside of the diagonals.
fn ql_step<T: Number>(d: &mut [f64], e: &mut [f64], vectors: &mut Matrix<T>, l: usize, m: usize) {
    let ratio = (d[l + 1] - d[l]) / (2.0 * e[l]);
    let shift = e[l] / (ratio + ratio.hypot(1.0).copysign(ratio));
    let mut g = d[m] - d[l] + shift;
    let (mut sine, mut cosine, mut moved) = (1.0, 1.0, 0.0);
    for i in (l..m).rev() {
        let (f, b) = (sine * e[i], cosine * e[i]);
        let r = f64::hypot(f, g);
        e[i + 1] = r;
        if r == 0.0 {
            // The matrix falls into two here.
            d[i + 1] -= moved;
            e[m] = 0.0;
            return;
        }
        (sine, cosine) = (f / r, g / r);
        let left = d[i + 1] - moved;
        let turned = (d[i] - left) * sine + 2.0 * cosine * b;
        moved = sine * turned;
        d[i + 1] = left + moved;
        g = cosine * turned - b;
        let (lower, upper) = vectors.two_rows(i, i + 1);
        for (x, y) in lower.iter_mut().zip(upper) {
            let (a, b) = (*x, *y);
            *y = T::real(sine) * a + T::real(cosine) * b;
            *x = T::real(cosine) * a - T::real(sine) * b;
        }
    }
    d[l] -= moved;
    e[l] = g;
    e[m] = 0.0;
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_orthonormal, distance, random, random_complex};
    use super::*;

    fn check<T: Number>(a: &Matrix<T>) {
        for lower in [true, false] {
            let whole = a.hermitian(lower);
            let (values, vectors) = eigen(a, lower).expect("it converges");
            assert!(values.is_sorted());
            assert_orthonormal(&vectors);
            let scaled = Matrix::from_fn(a.rows, a.rows, |r, c| vectors[(r, c)] * T::real(values[c]));
            assert!(distance(&scaled, &whole.times(&vectors)) < 1e-12 * a.rows as f64, "{values:?}");
        }
    }

    #[test]
    fn vectors_are_scaled_by_their_values() {
        for n in [1, 2, 3, 8, 25] {
            check(&random(n, n, 1));
            check(&random_complex(n, n, 7));
        }
        check(&Matrix::<f64>::zeroed(4, 4));
        check(&Matrix::<f64>::identity(4, 4));
        // All alike but one direction: many equal eigenvalues.
        check(&Matrix::from_fn(6, 6, |r, c| f64::from(r == c) + 1.0));
    }

    #[test]
    fn what_is_not_finite_has_no_eigenvalues() {
        assert_eq!(eigen(&Matrix { rows: 1, columns: 1, elements: vec![f64::NAN] }, true), None);
        assert_eq!(eigen(&Matrix::<f64>::zeroed(0, 0), true).map(|(v, _)| v.len()), Some(0));
    }
}
