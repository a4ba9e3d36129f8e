//! The Schur form of any square matrix: reflectors to Hessenberg form, then QR steps. Complex matrices become triangular;
//! real ones keep blocks of two for pairs of complex eigenvalues, as LAPACK leaves them: with equal numbers on the diagonal
//! and numbers of opposite signs beside it.

use super::householder::{hessenberg, hessenberg_product};
use super::{C, Matrix, Number};

/// How many steps an eigenvalue may take; a few are usual.
const MAX_STEPS: usize = 120;
/// After so many steps another shift is tried, for matrices that the usual one only turns round.
const STEPS_ALIKE: usize = 10;

/// A Schur form: `vectors` × `form` × `vectors`ᴴ is the matrix.
pub struct Schur<T> {
    /// Triangular, but for blocks of two if real.
    pub form: Matrix<T>,
    /// Unitary.
    pub vectors: Matrix<T>,
}

/// `a` in Hessenberg form with zeros below it, and the transformation.
fn start<T: Number>(a: &Matrix<T>) -> Option<Schur<T>> {
    if !a.is_finite() {
        return None;
    }
    let n = a.rows;
    let mut form = a.clone();
    let taus = hessenberg(&mut form, 0, n);
    let vectors = hessenberg_product(&form, &taus);
    let form = Matrix::from_fn(n, n, |r, c| if r > c + 1 { T::default() } else { form[(r, c)] });
    Some(Schur { form, vectors })
}

/// The first row of the block that ends at `last`: what is left of it is small enough to be zero, and made zero.
fn block_start<T: Number>(h: &mut Matrix<T>, last: usize, scale: f64) -> usize {
    for k in (1..=last).rev() {
        let around = h[(k - 1, k - 1)].size() + h[(k, k)].size();
        let around = if around == 0.0 { scale } else { around };
        if h[(k, k - 1)].size() <= f64::EPSILON * around {
            h[(k, k - 1)] = T::default();
            return k;
        }
    }
    0
}

/// A rotation of two directions that follow each other: (c, s; −s̄, c).
#[derive(Clone, Copy)]
struct Rotation<T> {
    c: f64,
    s: T,
}

impl<T: Number> Rotation<T> {
    /// The one that takes (x, y) to (r, 0).
    fn of(x: T, y: T) -> Rotation<T> {
        let (x_size, y_size) = (x.re().hypot(x.im()), y.re().hypot(y.im()));
        if y_size == 0.0 {
            return Rotation { c: 1.0, s: T::default() };
        }
        if x_size == 0.0 {
            return Rotation { c: 0.0, s: y.conj() / T::real(y_size) };
        }
        let whole = x_size.hypot(y_size);
        Rotation { c: x_size / whole, s: x / T::real(x_size) * y.conj() / T::real(whole) }
    }

    /// Turns rows `k` and `k + 1`, in the columns from `from` on.
    fn rows(self, a: &mut Matrix<T>, k: usize, from: usize) {
        let (upper, lower) = a.two_rows(k, k + 1);
        for (x, y) in upper[from..].iter_mut().zip(&mut lower[from..]) {
            let (a, b) = (*x, *y);
            *x = T::real(self.c) * a + self.s * b;
            *y = T::real(self.c) * b - self.s.conj() * a;
        }
    }

    /// Turns columns `k` and `k + 1` back, in the rows before `to`.
    fn columns(self, a: &mut Matrix<T>, k: usize, to: usize) {
        for r in 0..to {
            let (x, y) = (a[(r, k)], a[(r, k + 1)]);
            a[(r, k)] = T::real(self.c) * x + self.s.conj() * y;
            a[(r, k + 1)] = T::real(self.c) * y - self.s * x;
        }
    }
}

/// The Schur form of a complex matrix. `None` if a number is not finite or nothing converges.
pub fn complex(a: &Matrix<C>) -> Option<Schur<C>> {
    let n = a.rows;
    let mut schur = start(a)?;
    let Schur { form: h, vectors } = &mut schur;
    let scale = h.elements.iter().map(|x| x.size()).fold(f64::MIN_POSITIVE, f64::max);
    let (mut last, mut steps) = (n.saturating_sub(1), 0);
    while last > 0 {
        let first = block_start(h, last, scale);
        if first == last {
            (last, steps) = (last - 1, 0);
            continue;
        }
        steps += 1;
        if steps > MAX_STEPS {
            return None;
        }
        let shift = match steps % STEPS_ALIKE {
            0 => h[(last, last)] + C::from(h[(last, last - 1)].re.abs()),
            _ => nearest_eigenvalue(h, last),
        };
        for k in first..last {
            let turn = match k == first {
                true => Rotation::of(h[(k, k)] - shift, h[(k + 1, k)]),
                false => Rotation::of(h[(k, k - 1)], h[(k + 1, k - 1)]),
            };
            turn.rows(h, k, k.saturating_sub(1));
            turn.columns(h, k, (k + 3).min(last + 1));
            turn.columns(vectors, k, n);
            if k > first {
                h[(k + 1, k - 1)] = C::default();
            }
        }
    }
    Some(schur)
}

/// The eigenvalue of the last two rows and columns that is nearest to the last number.
fn nearest_eigenvalue(h: &Matrix<C>, last: usize) -> C {
    let (a, b, c, d) = (h[(last - 1, last - 1)], h[(last - 1, last)], h[(last, last - 1)], h[(last, last)]);
    let half = (a - d) * 0.5;
    let root = (half * half + b * c).sqrt();
    // The sum without cancelling gives the far one; the near one follows from their product.
    let far = if (half + root).size() > (half - root).size() { half + root } else { half - root };
    if far == C::default() { d } else { d - b * c / far }
}

/// The Schur form of a real matrix. `None` if a number is not finite or nothing converges.
pub fn real(a: &Matrix<f64>) -> Option<Schur<f64>> {
    let n = a.rows;
    let mut schur = start(a)?;
    let scale = schur.form.elements.iter().map(|x| x.size()).fold(f64::MIN_POSITIVE, f64::max);
    // One past the last row of what is left.
    let (mut end, mut steps) = (n, 0);
    while end > 0 {
        let last = end - 1;
        let first = block_start(&mut schur.form, last, scale);
        match last - first {
            0 => (end, steps) = (end - 1, 0),
            1 => {
                standardize(&mut schur, first);
                (end, steps) = (end - 2, 0);
            }
            _ => {
                steps += 1;
                if steps > MAX_STEPS {
                    return None;
                }
                double_step(&mut schur, first, last, steps);
            }
        }
    }
    Some(schur)
}

/// A step with two shifts at once, which together are real: the eigenvalues of the last two rows and columns.
fn double_step(schur: &mut Schur<f64>, first: usize, last: usize, steps: usize) {
    let h = &mut schur.form;
    let (mut sum, mut product) = {
        let (a, b, c, d) = (h[(last - 1, last - 1)], h[(last - 1, last)], h[(last, last - 1)], h[(last, last)]);
        (a + d, a * d - b * c)
    };
    if steps.is_multiple_of(STEPS_ALIKE) {
        let size = h[(last, last - 1)].abs() + h[(last - 1, last - 2)].abs();
        let center = h[(last, last)] + 0.75 * size;
        (sum, product) = (2.0 * center, center * center + 0.4375 * size * size);
    }
    let (a, b, c, d) = (h[(first, first)], h[(first, first + 1)], h[(first + 1, first)], h[(first + 1, first + 1)]);
    let mut column = [a * a + b * c - sum * a + product, c * (a + d - sum), c * h[(first + 2, first + 1)]];
    for k in first..last {
        let size = if k + 2 <= last { 3 } else { 2 };
        if k > first {
            for (j, x) in column.iter_mut().enumerate().take(size) {
                *x = schur.form[(k + j, k - 1)];
            }
        }
        reflect(schur, k, &column[..size], first, last);
    }
}

/// Applies the reflector that takes `column`, at the rows from `k` on, to a multiple of the first direction.
fn reflect(schur: &mut Schur<f64>, k: usize, column: &[f64], first: usize, last: usize) {
    let n = schur.form.rows;
    let length = super::norm(column.iter().copied());
    if length == 0.0 {
        return;
    }
    let alpha = -length.copysign(column[0]);
    let mut v: Vec<f64> = column.to_vec();
    v[0] -= alpha;
    let square: f64 = v.iter().map(|x| x * x).sum();
    if square == 0.0 {
        return;
    }
    let h = &mut schur.form;
    let from = if k > first { k - 1 } else { k };
    for c in from..n {
        let factor = 2.0 * v.iter().enumerate().map(|(j, v)| v * h[(k + j, c)]).sum::<f64>() / square;
        v.iter().enumerate().for_each(|(j, v)| h[(k + j, c)] -= factor * v);
    }
    if k > first {
        (1..v.len()).for_each(|j| h[(k + j, k - 1)] = 0.0);
    }
    let turn_row = |row: &mut [f64]| {
        let part = &mut row[k..k + v.len()];
        let factor = 2.0 * part.iter().zip(&v).map(|(x, v)| x * v).sum::<f64>() / square;
        part.iter_mut().zip(&v).for_each(|(x, v)| *x -= factor * v);
    };
    (0..(k + 4).min(last + 1)).for_each(|r| turn_row(schur.form.row_mut(r)));
    (0..n).for_each(|r| turn_row(schur.vectors.row_mut(r)));
}

/// Brings the block of rows and columns `k` and `k + 1` into its standard form: triangular if its eigenvalues are real,
/// otherwise with equal numbers on the diagonal.
fn standardize(schur: &mut Schur<f64>, k: usize) {
    let h = &mut schur.form;
    let n = h.rows;
    let (a, b, c, d) = (h[(k, k)], h[(k, k + 1)], h[(k + 1, k)], h[(k + 1, k + 1)]);
    if c == 0.0 {
        return;
    }
    let half = 0.5 * (a - d);
    let discriminant = half * half + b * c;
    let is_real = discriminant >= 0.0;
    let turn = if is_real {
        // The first direction becomes the eigenvector of the eigenvalue that is further from d.
        let root = half + discriminant.sqrt().copysign(half);
        let length = root.hypot(c);
        Rotation { c: root / length, s: c / length }
    } else {
        let angle = 0.5 * (d - a).atan2(b + c);
        Rotation { c: angle.cos(), s: angle.sin() }
    };
    turn.rows(h, k, k);
    turn.columns(h, k, k + 2);
    turn.columns(&mut schur.vectors, k, n);
    if is_real {
        h[(k + 1, k)] = 0.0;
    } else {
        let mean = 0.5 * (h[(k, k)] + h[(k + 1, k + 1)]);
        (h[(k, k)], h[(k + 1, k + 1)]) = (mean, mean);
    }
}

/// The eigenvalues of a real Schur form, in the order of its diagonal; of a pair the one above the real axis first.
pub fn eigenvalues(form: &Matrix<f64>) -> Vec<C> {
    let n = form.rows;
    let mut values: Vec<C> = (0..n).map(|k| C::from(form[(k, k)])).collect();
    for k in 1..n {
        let (b, c) = (form[(k - 1, k)], form[(k, k - 1)]);
        if c != 0.0 {
            // Roots apart: the product may overflow.
            let im = b.abs().sqrt() * c.abs().sqrt();
            (values[k - 1].im, values[k].im) = (im, -im);
        }
    }
    values
}

/// A real Schur form as a complex one: the blocks of two become triangular, with the eigenvalues where they were.
pub fn triangular(real: &Schur<f64>) -> Schur<C> {
    let n = real.form.rows;
    let values = eigenvalues(&real.form);
    let mut schur = Schur { form: real.form.complex(), vectors: real.vectors.complex() };
    for k in 0..n.saturating_sub(1) {
        let below = real.form[(k + 1, k)];
        if below == 0.0 {
            continue;
        }
        // The eigenvector of the first of the pair: (λ − d, c).
        let turn = Rotation::of(values[k] - schur.form[(k + 1, k + 1)], C::from(below));
        // A rotation takes a vector to the first direction; its rows are conjugate to the vector.
        turn.rows(&mut schur.form, k, 0);
        turn.columns(&mut schur.form, k, n);
        turn.columns(&mut schur.vectors, k, n);
        schur.form[(k + 1, k)] = C::default();
        (schur.form[(k, k)], schur.form[(k + 1, k + 1)]) = (values[k], values[k + 1]);
    }
    schur
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_orthonormal, distance, random, random_complex};
    use super::*;

    fn check<T: Number>(a: &Matrix<T>, schur: &Schur<T>) {
        assert_orthonormal(&schur.vectors);
        let back = schur.vectors.times(&schur.form).times(&schur.vectors.adjoint());
        assert!(distance(&back, a) < 1e-11, "{:e}", distance(&back, a));
        let n = a.rows;
        assert!((0..n).all(|r| (0..r.saturating_sub(1)).all(|c| schur.form[(r, c)] == T::default())));
    }

    #[test]
    fn complex_matrices_become_triangular() {
        for n in [0, 1, 2, 3, 7, 20] {
            let a = random_complex(n, n, 3);
            let schur = complex(&a).expect("it converges");
            check(&a, &schur);
            assert!((1..n).all(|k| schur.form[(k, k - 1)] == C::default()));
        }
    }

    fn check_real(a: &Matrix<f64>) {
        let schur = real(a).expect("it converges");
        check(a, &schur);
        for k in 1..a.rows {
            let h = &schur.form;
            let (b, c) = (h[(k - 1, k)], h[(k, k - 1)]);
            assert!(c == 0.0 || (h[(k, k)] == h[(k - 1, k - 1)] && b * c < 0.0), "{h:?}");
            assert!(k < 2 || c == 0.0 || h[(k - 1, k - 2)] == 0.0, "{h:?}");
        }
        check(&a.complex(), &triangular(&schur));
    }

    #[test]
    fn real_matrices_keep_blocks_of_pairs() {
        for n in [0, 1, 2, 3, 4, 7, 20, 40] {
            for seed in 1..6 {
                check_real(&random(n, n, seed));
            }
        }
        check_real(&Matrix::zeroed(3, 3));
        // A cycle: the usual shift only turns it round.
        check_real(&Matrix::from_fn(5, 5, |r, c| f64::from((r + 1) % 5 == c)));
        check_real(&Matrix { rows: 2, columns: 2, elements: vec![0.0, 1.0, -1.0, 0.0] });
        check_real(&Matrix { rows: 2, columns: 2, elements: vec![1.0, 0.0, 2.0, 3.0] });
    }
}
