//! Eigenvectors of any square matrix, from its Schur form by substitution.

use super::schur::{self, Schur};
use super::{C, Matrix, Number, norm};

/// Eigenvalues with eigenvectors as columns, each of length one and with its largest element real: those v with
/// a × v = λ v, and those u with uᴴ × a = λ uᴴ.
pub struct Eigen {
    /// The eigenvalues.
    pub values: Vec<C>,
    /// The vectors u.
    pub left: Matrix<C>,
    /// The vectors v.
    pub right: Matrix<C>,
}

/// Of a complex matrix. `None` if a number is not finite or nothing converges.
pub fn complex(a: &Matrix<C>) -> Option<Eigen> {
    let schur = schur::complex(a)?;
    let values = (0..a.rows).map(|k| schur.form[(k, k)]).collect();
    Some(vectors(&schur, values))
}

/// Of a real matrix: vectors of real eigenvalues are real, and those of pairs are conjugate, exactly.
pub fn real(a: &Matrix<f64>) -> Option<Eigen> {
    let real = schur::real(a)?;
    let values = schur::eigenvalues(&real.form);
    let mut eigen = vectors(&schur::triangular(&real), values);
    for vectors in [&mut eigen.left, &mut eigen.right] {
        for (c, value) in eigen.values.iter().enumerate() {
            for r in 0..a.rows {
                match value.im {
                    0.0 => vectors[(r, c)].im = 0.0,
                    im if im < 0.0 && c > 0 => vectors[(r, c)] = vectors[(r, c - 1)].conj(),
                    _ => {}
                }
            }
        }
    }
    Some(eigen)
}

fn vectors(schur: &Schur<C>, values: Vec<C>) -> Eigen {
    let n = values.len();
    let form = &schur.form;
    let scale = form.elements.iter().map(|x| x.size()).fold(0.0, f64::max);
    // Eigenvalues that are the same are taken apart by as much as they are uncertain.
    let least = (scale * f64::EPSILON).max(f64::MIN_POSITIVE);
    let apart = |x: C| if x.size() < least { C::from(least) } else { x };
    let (mut left, mut right) = (Matrix::<C>::zeroed(n, n), Matrix::<C>::zeroed(n, n));
    for j in 0..n {
        let mut x = vec![C::default(); n];
        x[j] = C::from(1.0);
        for i in (0..j).rev() {
            let sum: C = (i + 1..=j).map(|k| form[(i, k)] * x[k]).sum();
            x[i] = -sum / apart(form[(i, i)] - values[j]);
            tame(&mut x);
        }
        put(&mut right, j, schur, &x);
        let mut y = vec![C::default(); n];
        y[j] = C::from(1.0);
        for i in j + 1..n {
            let sum: C = (j..i).map(|k| form[(k, i)].conj() * y[k]).sum();
            y[i] = -sum / apart(form[(i, i)] - values[j]).conj();
            tame(&mut y);
        }
        put(&mut left, j, schur, &y);
    }
    Eigen { values, left, right }
}

/// Scales a vector down before it overflows; its length is set in the end.
fn tame(x: &mut [C]) {
    let largest = x.iter().map(|x| x.size()).fold(0.0, f64::max);
    if largest > 1e100 {
        x.iter_mut().for_each(|x| *x /= largest);
    }
}

/// Puts the vector `x` of the Schur form into column `j`, of length one and with its largest element real.
fn put(vectors: &mut Matrix<C>, j: usize, schur: &Schur<C>, x: &[C]) {
    let n = x.len();
    let product = |r: usize| schur.vectors.row(r).iter().zip(x).map(|(&q, &x)| q * x).sum::<C>();
    let v: Vec<C> = (0..n).map(product).collect();
    let length = norm(v.iter().copied());
    let largest = v.iter().copied().fold(C::default(), |most, x| if x.square() > most.square() { x } else { most });
    let phase = if largest == C::default() { C::from(1.0) } else { largest.conj() / largest.norm() };
    for (r, x) in v.iter().enumerate() {
        vectors[(r, j)] = x * phase / length;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{distance, random, random_complex};
    use super::*;

    fn check(a: &Matrix<C>, eigen: &Eigen) {
        let n = a.rows;
        let scaled = |m: &Matrix<C>, conjugate: bool| {
            let value = |c: usize| if conjugate { eigen.values[c].conj() } else { eigen.values[c] };
            Matrix::from_fn(n, n, |r, c| m[(r, c)] * value(c))
        };
        assert!(distance(&a.times(&eigen.right), &scaled(&eigen.right, false)) < 1e-11);
        assert!(distance(&a.adjoint().times(&eigen.left), &scaled(&eigen.left, true)) < 1e-11);
        for vectors in [&eigen.left, &eigen.right] {
            for c in 0..n {
                assert!((norm((0..n).map(|r| vectors[(r, c)])) - 1.0).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn vectors_are_scaled_by_their_values() {
        for n in [1, 2, 3, 6, 15] {
            let a = random_complex(n, n, 4);
            check(&a, &complex(&a).expect("it converges"));
            let a = random(n, n, 11);
            let eigen = real(&a).expect("it converges");
            check(&a.complex(), &eigen);
            for (c, value) in eigen.values.iter().enumerate() {
                assert!(value.im != 0.0 || (0..n).all(|r| eigen.right[(r, c)].im == 0.0));
            }
        }
    }

    #[test]
    fn a_matrix_with_too_few_vectors_has_some_twice() {
        let a = Matrix { rows: 2, columns: 2, elements: vec![1.0, 1.0, 0.0, 1.0] };
        let eigen = real(&a).expect("it converges");
        check(&a.complex(), &eigen);
    }
}
