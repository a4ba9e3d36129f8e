//! Reflectors, and what is made with them: QR with and without pivoting, Hessenberg and tridiagonal forms.
//!
//! A reflector is H = 1 − τ v vᴴ with v's first element one, which is not stored. It is chosen as LAPACK chooses it: Hᴴ
//! takes a column to a real multiple of the first unit vector, of the sign opposite to that of the column's first element.

use super::{Matrix, Number, norm};

/// The reflector of the column (`first`, `rest`): what the first element becomes, and τ. `rest` becomes v's.
fn reflector<T: Number>(first: T, rest: &mut [T]) -> (f64, T) {
    let length = norm(rest.iter().copied());
    if length == 0.0 && first.im() == 0.0 {
        return (first.re(), T::default());
    }
    let whole = first.re().hypot(first.im()).hypot(length);
    let beta = if first.re().is_sign_negative() { whole } else { -whole };
    let divisor = first - T::real(beta);
    rest.iter_mut().for_each(|x| *x = *x / divisor);
    (beta, (T::real(beta) - first) / T::real(beta))
}

/// `a` ← (1 − τ v vᴴ) × `a` for the rows from `from` on and the columns of `columns`; v's elements as given.
fn apply_left<T: Number>(a: &mut Matrix<T>, v: &[T], tau: T, from: usize, columns: std::ops::Range<usize>) {
    if tau == T::default() || columns.is_empty() {
        return;
    }
    let mut products = vec![T::default(); columns.len()];
    for (k, &v) in v.iter().enumerate() {
        for (sum, &x) in products.iter_mut().zip(&a.row(from + k)[columns.clone()]) {
            *sum += v.conj() * x;
        }
    }
    for (k, &v) in v.iter().enumerate() {
        let factor = tau * v;
        for (x, &product) in a.row_mut(from + k)[columns.clone()].iter_mut().zip(&products) {
            *x -= factor * product;
        }
    }
}

/// `a` ← `a` × (1 − τ v vᴴ) for the columns from `from` on and the rows of `rows`.
fn apply_right<T: Number>(a: &mut Matrix<T>, v: &[T], tau: T, from: usize, rows: std::ops::Range<usize>) {
    if tau == T::default() {
        return;
    }
    for r in rows {
        let row = &mut a.row_mut(r)[from..from + v.len()];
        let product: T = row.iter().zip(v).map(|(&x, &v)| x * v).sum();
        let factor = tau * product;
        row.iter_mut().zip(v).for_each(|(x, v)| *x -= factor * v.conj());
    }
}

/// Makes the reflector of column `c` from row `from` to before row `to`, and stores it there. Returns v, with its one, and
/// τ.
fn reflect_column<T: Number>(a: &mut Matrix<T>, c: usize, from: usize, to: usize) -> (Vec<T>, T) {
    let mut v: Vec<T> = (from..to).map(|r| a[(r, c)]).collect();
    let Some((&mut first, rest)) = v.split_first_mut() else { return (v, T::default()) };
    let (beta, tau) = reflector(first, rest);
    v[0] = T::real(beta);
    v.iter().enumerate().for_each(|(k, &x)| a[(from + k, c)] = x);
    v[0] = T::real(1.0);
    (v, tau)
}

/// Factors `a` in place: R in and above the diagonal, reflectors below it. Returns each τ; Q is the product of the
/// reflectors.
pub fn qr<T: Number>(a: &mut Matrix<T>) -> Vec<T> {
    let (rows, columns) = (a.rows, a.columns);
    let step = |k: usize| {
        let (v, tau) = reflect_column(a, k, k, rows);
        apply_left(a, &v, tau.conj(), k, k + 1..columns);
        tau
    };
    (0..rows.min(columns)).map(step).collect()
}

/// The same with the columns in another order: the longest of what is left comes next. Columns that `fixed` names come
/// first. Returns τs, and for each place which column came there.
pub fn qr_pivoted<T: Number>(a: &mut Matrix<T>, fixed: &[bool]) -> (Vec<T>, Vec<usize>) {
    let (rows, columns) = (a.rows, a.columns);
    let mut order: Vec<usize> = (0..columns).collect();
    let swap = |a: &mut Matrix<T>, order: &mut Vec<usize>, x: usize, y: usize| {
        order.swap(x, y);
        (0..rows).for_each(|r| a.elements.swap(r * columns + x, r * columns + y));
    };
    let mut first_free = 0;
    for c in 0..columns {
        if fixed.get(c) == Some(&true) {
            swap(a, &mut order, c, first_free);
            first_free += 1;
        }
    }
    let mut taus = Vec::new();
    for k in 0..rows.min(columns) {
        if k >= first_free {
            let length = |a: &Matrix<T>, c: usize| norm((k..rows).map(|r| a[(r, c)]));
            let mut longest = (k, length(a, k));
            for c in k + 1..columns {
                let length = length(a, c);
                // Lengths that are the same but for rounding are in the order of columns.
                if length > longest.1 * (1.0 + 4.0 * f64::EPSILON) {
                    longest = (c, length);
                }
            }
            swap(a, &mut order, k, longest.0);
        }
        let (v, tau) = reflect_column(a, k, k, rows);
        apply_left(a, &v, tau.conj(), k, k + 1..columns);
        taus.push(tau);
    }
    (taus, order)
}

/// Reflector `k` of those stored in `a` below the diagonal, with its one; `down` rows further down.
fn stored<T: Number>(a: &Matrix<T>, k: usize, down: usize) -> Vec<T> {
    let rest = (k + down + 1..a.rows).map(|r| a[(r, k)]);
    std::iter::once(T::real(1.0)).chain(rest).collect()
}

/// The first columns of the product of the reflectors stored in `a`, as many as `a` has; or `columns` of them.
pub fn product<T: Number>(a: &Matrix<T>, taus: &[T], columns: usize) -> Matrix<T> {
    let mut q = Matrix::identity(a.rows, columns);
    for (k, &tau) in taus.iter().enumerate().rev() {
        apply_left(&mut q, &stored(a, k, 0), tau, k, k..columns);
    }
    q
}

/// Multiplies `c` by the product Q of the reflectors stored in `a`, or by Qᴴ, from the left or from the right.
pub fn multiply<T: Number>(a: &Matrix<T>, taus: &[T], c: &mut Matrix<T>, left: bool, adjoint: bool) {
    let (rows, columns) = (c.rows, c.columns);
    let mut order: Vec<usize> = (0..taus.len()).collect();
    if left != adjoint {
        order.reverse();
    }
    for k in order {
        let tau = if adjoint { taus[k].conj() } else { taus[k] };
        match left {
            true => apply_left(c, &stored(a, k, 0), tau, k, 0..columns),
            false => apply_right(c, &stored(a, k, 0), tau, k, 0..rows),
        }
    }
}

/// Brings the rows and columns from `low` to before `high` of `a` into Hessenberg form, in place: reflectors are stored
/// below what remains. Returns each τ.
pub fn hessenberg<T: Number>(a: &mut Matrix<T>, low: usize, high: usize) -> Vec<T> {
    let n = a.rows;
    let mut taus = vec![T::default(); n.saturating_sub(1)];
    let high = high.min(n);
    for (k, tau) in taus.iter_mut().enumerate().take(high.saturating_sub(1)).skip(low) {
        let v;
        (v, *tau) = reflect_column(a, k, k + 1, high);
        apply_right(a, &v, *tau, k + 1, 0..high);
        apply_left(a, &v, tau.conj(), k + 1, k + 1..n);
    }
    taus
}

/// The product of the reflectors that [`hessenberg`] stored in `a`.
pub fn hessenberg_product<T: Number>(a: &Matrix<T>, taus: &[T]) -> Matrix<T> {
    let n = a.rows;
    let mut q = Matrix::identity(n, n);
    for (k, &tau) in taus.iter().enumerate().rev() {
        apply_left(&mut q, &stored(a, k, 1), tau, k + 1, k + 1..n);
    }
    q
}

/// A Hermitian matrix in tridiagonal form, which is real.
pub struct TridiagonalForm<T> {
    /// On the diagonal.
    pub diagonal: Vec<f64>,
    /// Beside the diagonal.
    pub beside: Vec<f64>,
    /// Each reflector's τ.
    pub taus: Vec<T>,
}

/// Brings the Hermitian matrix, of which one triangle of `a` is read, into tridiagonal form. The triangle is written
/// over: with the form, and the reflectors beyond it. The other triangle stays.
pub fn tridiagonal<T: Number>(a: &mut Matrix<T>, lower: bool) -> TridiagonalForm<T> {
    let n = a.rows;
    let mut whole = a.hermitian(lower);
    let mut taus = vec![T::default(); n.saturating_sub(1)];
    if lower {
        for (k, tau) in taus.iter_mut().enumerate() {
            let v;
            (v, *tau) = reflect_column(&mut whole, k, k + 1, n);
            apply_left(&mut whole, &v, tau.conj(), k + 1, k + 1..n);
            apply_right(&mut whole, &v, *tau, k + 1, k + 1..n);
        }
    } else {
        // From the last column to the first; a reflector's one is its last element.
        for k in (0..n.saturating_sub(1)).rev() {
            let mut v: Vec<T> = (0..=k).map(|r| whole[(r, k + 1)]).collect();
            let Some((&mut last, rest)) = v.split_last_mut() else { continue };
            let (beta, tau) = reflector(last, rest);
            v[k] = T::real(beta);
            v.iter().enumerate().for_each(|(r, &x)| whole[(r, k + 1)] = x);
            v[k] = T::real(1.0);
            apply_left(&mut whole, &v, tau.conj(), 0, 0..k + 1);
            apply_right(&mut whole, &v, tau, 0, 0..k + 1);
            taus[k] = tau;
        }
    }
    for r in 0..n {
        for c in 0..n {
            if r == c || (c < r) == lower {
                a[(r, c)] = if r == c { T::real(whole[(r, c)].re()) } else { whole[(r, c)] };
            }
        }
    }
    let beside = |k: usize| if lower { whole[(k + 1, k)].re() } else { whole[(k, k + 1)].re() };
    TridiagonalForm {
        diagonal: (0..n).map(|k| whole[(k, k)].re()).collect(),
        beside: (0..n.saturating_sub(1)).map(beside).collect(),
        taus,
    }
}

#[cfg(test)]
mod tests {
    use super::super::C;
    use super::super::tests::{assert_orthonormal, distance, random, random_complex};
    use super::*;

    fn check_qr<T: Number>(a: Matrix<T>) {
        let mut factors = a.clone();
        let taus = qr(&mut factors);
        let upper = Matrix::from_fn(a.rows, a.columns, |r, c| if c < r { T::default() } else { factors[(r, c)] });
        let q = product(&factors, &taus, a.rows);
        assert_orthonormal(&q);
        assert!(distance(&q.times(&upper), &a) < 1e-13);
        assert!((0..a.rows.min(a.columns)).all(|k| factors[(k, k)].im() == 0.0));
        for (left, adjoint) in [(true, true), (true, false), (false, true), (false, false)] {
            let by = if adjoint { q.adjoint() } else { q.clone() };
            let mut c = q.clone();
            multiply(&factors, &taus, &mut c, left, adjoint);
            let wanted = if left { by.times(&q) } else { q.times(&by) };
            assert!(distance(&c, &wanted) < 1e-13, "{left} {adjoint}");
        }
        let mut pivoted = a.clone();
        let (taus, order) = qr_pivoted(&mut pivoted, &[]);
        let upper = Matrix::from_fn(a.rows, a.columns, |r, c| if c < r { T::default() } else { pivoted[(r, c)] });
        let permuted = Matrix::from_fn(a.rows, a.columns, |r, c| a[(r, order[c])]);
        assert!(distance(&product(&pivoted, &taus, a.rows).times(&upper), &permuted) < 1e-13);
        let sizes: Vec<f64> = (0..a.rows.min(a.columns)).map(|k| pivoted[(k, k)].size()).collect();
        assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    }

    #[test]
    fn reflectors_factor_matrices_of_every_form() {
        for (rows, columns) in [(1, 1), (4, 4), (6, 3), (3, 5)] {
            check_qr(random(rows, columns, 1));
            check_qr(random_complex(rows, columns, 3));
        }
        check_qr(Matrix::<f64>::zeroed(3, 3));
    }

    #[test]
    fn hessenberg_forms_are_similar() {
        let a = random_complex(6, 6, 9);
        let mut form = a.clone();
        let taus = hessenberg(&mut form, 0, 6);
        let q = hessenberg_product(&form, &taus);
        assert_orthonormal(&q);
        let h = Matrix::from_fn(6, 6, |r, c| if r > c + 1 { C::default() } else { form[(r, c)] });
        assert!(distance(&q.times(&h).times(&q.adjoint()), &a) < 1e-13);
    }

    #[test]
    fn tridiagonal_forms_have_the_same_trace_and_length() {
        let a = random_complex(5, 5, 4);
        for lower in [true, false] {
            let whole = a.hermitian(lower);
            let form = tridiagonal(&mut a.clone(), lower);
            let trace: f64 = (0..5).map(|k| whole[(k, k)].re).sum();
            let length: f64 = whole.elements.iter().map(|x| x.square()).sum();
            let squares = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>();
            assert!((form.diagonal.iter().sum::<f64>() - trace).abs() < 1e-13);
            assert!((squares(&form.diagonal) + 2.0 * squares(&form.beside) - length).abs() < 1e-12);
        }
    }
}
