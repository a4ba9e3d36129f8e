//! LAPACK's routines for one matrix, by the numerical core in [`crate::linear_algebra`].

use super::{Entry, Given, Part};
use crate::linear_algebra::lu::{self, Tridiagonal};
use crate::linear_algebra::triangular::{TriangularSystem, cholesky};
use crate::linear_algebra::{C, Matrix, Number, eigenvectors, householder, schur, svd, symmetric};
use hloom_ir::attributes::TransposeA;

/// A real and a complex routine that are one.
macro_rules! entry {
    ($real:literal, $complex:literal, $ranks:expr, $fits:ident, $routine:ident) => {
        Entry { names: [$real, $complex], ranks: &$ranks, fits: $fits, real: $routine::<f64>, complex: $routine::<C> }
    };
}

/// All calls.
pub(super) static ENTRIES: &[Entry] = &[
    entry!("getrf", "getrf", [2], any, getrf),
    entry!("potrf", "potrf", [2], square, potrf),
    entry!("trsm", "trsm", [2, 2], side_fits, trsm),
    entry!("geqrf", "geqrf", [2], any, geqrf),
    entry!("geqp3", "geqp3", [2, 1], order_fits, geqp3),
    entry!("orgqr", "ungqr", [2, 1], reflectors_fit, orgqr),
    entry!("ormqr", "unmqr", [2, 1, 2], product_fits, ormqr),
    entry!("syevd", "heevd", [2], square, syevd),
    entry!("gesdd", "gesdd", [2], any, gesdd),
    entry!("gesvd", "gesvd", [2], any, gesdd),
    entry!("gehrd", "gehrd", [2], square, gehrd),
    entry!("sytrd", "hetrd", [2], square, sytrd),
    entry!("gtsv", "gtsv", [1, 1, 1, 2], lines_fit, gtsv),
    Entry { names: ["geev", "geev"], ranks: &[2], fits: square, real: geev_real, complex: geev_complex },
    Entry { names: ["gees", "gees"], ranks: &[2], fits: square, real: gees_real, complex: gees_complex },
];

/// Calls of cuSOLVER, cuSPARSE and their like for AMD's machines that are not LAPACK's.
pub(super) static GPU_ENTRIES: &[(&str, Entry)] = &[
    ("solver_gesvdj", entry!("gesvdj", "gesvdj", [2], any, gesvdj)),
    ("solver_gesvdp", entry!("gesvdp", "gesvdp", [2], any, gesvdj)),
    ("solver_gesvd", entry!("gesvd", "gesvd", [2], any, gesvd)),
    ("solver_gesdd", entry!("gesdd", "gesdd", [2], any, gesvd)),
    ("sparse_gtsv2", entry!("gtsv2", "gtsv2", [1, 1, 1, 2], lines_fit, gtsv2)),
    (
        "solver_geev",
        Entry { names: ["geev", "geev"], ranks: &[2], fits: square, real: gpu_geev_real, complex: gpu_geev_complex },
    ),
];

/// Calls that JAX leaves in programs for TPUs.
pub(super) static TPU_ENTRIES: &[(&str, Entry)] = &[
    ("Qr", entry!("geqrf", "geqrf", [2], any, geqrf)),
    ("ProductOfElementaryHouseholderReflectors", entry!("orgqr", "ungqr", [2, 1], reflectors_fit, orgqr)),
    ("LuDecomposition", entry!("getrf", "getrf", [2], any, lu_decomposition)),
    ("Eigh", entry!("syevd", "heevd", [2], square, eigh)),
];

/// Any sizes will do.
fn any(_: &[(usize, usize)]) -> bool {
    true
}

fn square(sizes: &[(usize, usize)]) -> bool {
    matches!(sizes, [(rows, columns)] if rows == columns)
}

/// A square matrix, as large as the other is high or wide.
fn side_fits(sizes: &[(usize, usize)]) -> bool {
    matches!(sizes, [(rows, columns), other] if rows == columns && (*rows == other.0 || *rows == other.1))
}

fn order_fits(sizes: &[(usize, usize)]) -> bool {
    matches!(sizes, [(_, columns), (count, _)] if columns == count)
}

/// No more reflectors than there are rows and columns.
fn reflectors_fit(sizes: &[(usize, usize)]) -> bool {
    matches!(sizes, [(rows, columns), (count, _), ..] if count <= rows && count <= columns)
}

fn product_fits(sizes: &[(usize, usize)]) -> bool {
    reflectors_fit(sizes) && matches!(sizes, [(rows, _), _, other] if *rows == other.0 || *rows == other.1)
}

fn lines_fit(sizes: &[(usize, usize)]) -> bool {
    matches!(sizes, [(n, _), (m, _), (k, _), (rows, _)] if n == m && m == k && k == rows)
}

/// The operands as an array of a known length.
fn operands<T: Number, const N: usize>(given: Given<'_, T>) -> [Matrix<T>; N] {
    let mut operands = given.operands.into_iter();
    std::array::from_fn(|_| operands.next().unwrap_or_else(|| Matrix::zeroed(0, 0)))
}

/// `count` numbers that say that there is no answer.
fn nothing<T: Number>(count: usize) -> Part {
    Part::of(vec![T::real(f64::NAN); count])
}

/// That all went well.
fn well() -> Part {
    Part::integers([0])
}

/// That something did not converge.
fn failed() -> Part {
    Part::integers([1])
}

/// Factors, pivots counted from one, and which pivot is zero.
fn getrf<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let [mut a] = operands(given);
    let (pivots, singular) = lu::factor(&mut a);
    vec![Part::of(a.elements), Part::integers(pivots.into_iter().map(|p| p + 1)), Part::integers([singular])]
}

/// Factors, pivots counted from zero, and the order of rows that they make.
fn lu_decomposition<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let [mut a] = operands(given);
    let (pivots, _) = lu::factor(&mut a);
    let mut order: Vec<usize> = (0..a.rows).collect();
    for (row, &pivot) in pivots.iter().enumerate() {
        order.swap(row, pivot);
    }
    vec![Part::of(a.elements), Part::integers(pivots), Part::integers(order)]
}

/// The factor in its triangle; the other triangle stays as it is.
fn potrf<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let lower = given.attributes.is_lower();
    let [mut a] = operands(given);
    match cholesky(&a, lower) {
        Ok(factor) => {
            for r in 0..a.rows {
                for c in 0..a.columns {
                    if r == c || (c < r) == lower {
                        a[(r, c)] = factor[(r, c)];
                    }
                }
            }
            vec![Part::of(a.elements), well()]
        }
        Err(order) => vec![Part::of(a.elements), Part::integers([order])],
    }
}

fn trsm<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let system = TriangularSystem {
        left_side: given.attributes.is("side", b'L'),
        lower: given.attributes.is_lower(),
        unit_diagonal: given.attributes.is("diag", b'U'),
        transpose_a: match given.attributes.get("trans_x").and_then(|t| u8::try_from(t).ok()) {
            Some(b'T') => TransposeA::Transpose,
            Some(b'C') => TransposeA::Adjoint,
            _ => TransposeA::None,
        },
    };
    let [a, mut b] = operands(given);
    if a.rows == if system.left_side { b.rows } else { b.columns } {
        system.solve(&a, &mut b);
    }
    vec![Part::of(b.elements)]
}

fn geqrf<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let [mut a] = operands(given);
    let taus = householder::qr(&mut a);
    vec![Part::of(a.elements), Part::of(taus)]
}

/// Columns whose entry is not zero come first; afterwards the entries say which column came where, counted from one.
fn geqp3<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let [mut a, order] = operands(given);
    let fixed: Vec<bool> = order.elements.iter().map(|x| x.re() != 0.0).collect();
    let (taus, order) = householder::qr_pivoted(&mut a, &fixed);
    vec![Part::of(a.elements), Part::integers(order.into_iter().map(|c| c + 1)), Part::of(taus)]
}

fn orgqr<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let [a, taus] = operands(given);
    vec![Part::of(householder::product(&a, &taus.elements, a.columns).elements)]
}

fn ormqr<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let left = given.attributes.get("left") == Some(1);
    let adjoint = given.attributes.get("transpose") == Some(1);
    let [a, taus, mut c] = operands(given);
    if a.rows == if left { c.rows } else { c.columns } {
        householder::multiply(&a, &taus.elements, &mut c, left, adjoint);
    }
    vec![Part::of(c.elements)]
}

fn syevd<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let lower = given.attributes.is_lower();
    let [a] = operands(given);
    match symmetric::eigen(&a, lower) {
        Some((values, vectors)) => vec![Part::of(vectors.elements), Part::of(values), well()],
        None => vec![nothing::<T>(a.elements.len()), nothing::<f64>(a.rows), failed()],
    }
}

/// Vectors and values; the first of its attributes, which have no names, says that the lower triangle is read.
fn eigh<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let lower = given.attributes.get("0") != Some(0);
    let [a] = operands(given);
    match symmetric::eigen(&a, lower) {
        Some((values, vectors)) => vec![Part::of(vectors.elements), Part::of(values)],
        None => vec![nothing::<T>(a.elements.len()), nothing::<f64>(a.rows)],
    }
}

/// What is left of the operand, singular values, U and V; as much of these as the results have room for.
fn gesdd<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let size = |n: usize| given.results.get(n).map_or(0, |dims| dims.iter().product());
    let columns = |n: usize| given.results.get(n).and_then(|dims| dims.get(1)).copied().unwrap_or(0);
    let (u_size, u_columns, v_size) = (size(2), columns(2), size(3));
    let [a] = operands(given);
    let full = u_columns > a.columns || v_size > a.rows.saturating_mul(a.columns);
    let Some((values, u, v)) = svd::svd(&a, full) else {
        let count = a.rows.min(a.columns);
        return vec![Part::of(a.elements), nothing::<f64>(count), nothing::<T>(u_size), nothing::<T>(v_size), failed()];
    };
    let u = (0..u.rows).flat_map(|r| u.row(r).iter().copied().take(u_columns)).collect::<Vec<T>>();
    let v = v.elements.into_iter().take(v_size);
    vec![Part::of(a.elements), Part::of(values), Part::of(u), Part::of(v), well()]
}

/// As [`gesdd`], where U and V are not wanted if their results are single numbers; `transposed` says that V comes first.
fn gesvd<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let swapped = given.attributes.get("transposed") == Some(1);
    let [u_dims, v_dims] = [2, 3].map(|n| given.results.get(n).cloned().unwrap_or_default());
    if u_dims.len() < 2 || v_dims.len() < 2 {
        let [a] = operands(given);
        let found = svd::svd(&a, false);
        let info = if found.is_some() { well() } else { failed() };
        let values = found.map_or_else(|| nothing::<f64>(a.rows.min(a.columns)), |(values, ..)| Part::of(values));
        let unused = || Part::of([T::real(0.0)]);
        return vec![Part::of(a.elements), values, unused(), unused(), info];
    }
    if !swapped {
        return gesdd(given);
    }
    let results: Vec<Vec<usize>> = [0, 1, 3, 2, 4].iter().filter_map(|&n| given.results.get(n).cloned()).collect();
    let mut parts = gesdd(Given { results: &results, ..given });
    if parts.len() > 3 {
        parts.swap(2, 3);
    }
    parts
}

/// As [`gesdd`], with the columns of V where that has the rows of its adjoint.
fn gesvdj<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let columns = |n: usize| given.results.get(n).and_then(|dims| dims.get(1)).copied().unwrap_or(0);
    let (u_columns, v_columns) = (columns(2), columns(3));
    let [a] = operands(given);
    let (m, n) = (a.rows, a.columns);
    let Some((values, u, v)) = svd::svd(&a, true) else {
        let [values, u, v] = [m.min(n), m * u_columns.min(m), n * v_columns.min(n)];
        return vec![Part::of(a.elements), nothing::<f64>(values), nothing::<T>(u), nothing::<T>(v), failed()];
    };
    let first = |matrix: &Matrix<T>, columns: usize| {
        let rows = (0..matrix.rows).flat_map(|r| matrix.row(r).iter().copied().take(columns));
        Part::of(rows.collect::<Vec<T>>())
    };
    let (u, v) = (first(&u, u_columns), first(&v.adjoint(), v_columns));
    vec![Part::of(a.elements), Part::of(values), u, v, well()]
}

fn gehrd<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let bound = |name: &str| given.attributes.get(name).and_then(|n| usize::try_from(n).ok());
    let (low, high) = (bound("low"), bound("high"));
    let [mut a] = operands(given);
    // LAPACK counts from one.
    let (low, high) = (low.unwrap_or(1).saturating_sub(1), high.unwrap_or(a.rows));
    let taus = householder::hessenberg(&mut a, low, high);
    vec![Part::of(a.elements), Part::of(taus), well()]
}

fn sytrd<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let lower = given.attributes.is_lower();
    let [mut a] = operands(given);
    let form = householder::tridiagonal(&mut a, lower);
    vec![Part::of(a.elements), Part::of(form.diagonal), Part::of(form.beside), Part::of(form.taus), well()]
}

fn gtsv<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let [below, diagonal, above, mut b] = operands(given);
    let mut system = Tridiagonal { below: below.elements, diagonal: diagonal.elements, above: above.elements };
    let singular = system.solve(&mut b);
    let factors = [system.below, system.diagonal, system.above, b.elements];
    factors.into_iter().map(Part::of).chain([Part::integers([singular])]).collect()
}

/// The solution alone.
fn gtsv2<T: Number>(given: Given<'_, T>) -> Vec<Part> {
    let [below, diagonal, above, mut b] = operands(given);
    let mut system = Tridiagonal { below: below.elements, diagonal: diagonal.elements, above: above.elements };
    system.solve(&mut b);
    vec![Part::of(b.elements)]
}

/// Complex eigenvalues, and vectors as LAPACK packs them: where two eigenvalues are conjugates of each other, the column of
/// the first has the real part of its vector, and the next column the imaginary part.
fn gpu_geev_real(given: Given<'_, f64>) -> Vec<Part> {
    let [a] = operands(given);
    let (n, size) = (a.rows, a.elements.len());
    let Some(eigen) = eigenvectors::real(&a) else {
        let unknown = [nothing::<f64>(size), nothing::<f64>(size)];
        return [Part::of(a.elements), nothing::<C>(n)].into_iter().chain(unknown).chain([failed()]).collect();
    };
    let packed = |vectors: &Matrix<C>| {
        Matrix::from_fn(n, n, |r, c| match eigen.values[c].im {
            im if im < 0.0 && c > 0 => vectors[(r, c - 1)].im,
            _ => vectors[(r, c)].re,
        })
    };
    let [left, right] = [packed(&eigen.left), packed(&eigen.right)].map(|m| Part::of(m.elements));
    vec![Part::of(a.elements), Part::of(eigen.values.clone()), left, right, well()]
}

fn gpu_geev_complex(given: Given<'_, C>) -> Vec<Part> {
    let [a] = operands(given);
    let (n, size) = (a.rows, a.elements.len());
    let Some(eigen) = eigenvectors::complex(&a) else {
        return vec![Part::of(a.elements), nothing::<C>(n), nothing::<C>(size), nothing::<C>(size), failed()];
    };
    let values = Part::of(eigen.values.clone());
    let [left, right] = vectors(eigen);
    vec![Part::of(a.elements), values, left, right, well()]
}

/// Eigenvectors on the left and on the right; those that are not asked for may be anything.
fn vectors(eigen: eigenvectors::Eigen) -> [Part; 2] {
    [Part::of(eigen.left.elements), Part::of(eigen.right.elements)]
}

/// Real and imaginary parts of the eigenvalues, and complex vectors.
fn geev_real(given: Given<'_, f64>) -> Vec<Part> {
    let [a] = operands(given);
    let (n, size) = (a.rows, a.elements.len());
    let Some(eigen) = eigenvectors::real(&a) else {
        return vec![nothing::<f64>(n), nothing::<f64>(n), nothing::<C>(size), nothing::<C>(size), failed()];
    };
    let re = Part::of(eigen.values.iter().map(|x| x.re));
    let im = Part::of(eigen.values.iter().map(|x| x.im));
    let [left, right] = vectors(eigen);
    vec![re, im, left, right, well()]
}

fn geev_complex(given: Given<'_, C>) -> Vec<Part> {
    let [a] = operands(given);
    let (n, size) = (a.rows, a.elements.len());
    let Some(eigen) = eigenvectors::complex(&a) else {
        return vec![nothing::<C>(n), nothing::<C>(size), nothing::<C>(size), failed()];
    };
    let values = Part::of(eigen.values.clone());
    let [left, right] = vectors(eigen);
    vec![values, left, right, well()]
}

/// The form, the vectors, real and imaginary parts of the eigenvalues, and how many were chosen to come first: none.
fn gees_real(given: Given<'_, f64>) -> Vec<Part> {
    let [a] = operands(given);
    let (n, size) = (a.rows, a.elements.len());
    let Some(schur) = schur::real(&a) else {
        let nothing = [size, size, n, n].map(nothing::<f64>);
        return nothing.into_iter().chain([well(), failed()]).collect();
    };
    let values = schur::eigenvalues(&schur.form);
    let re = Part::of(values.iter().map(|x| x.re));
    let im = Part::of(values.iter().map(|x| x.im));
    vec![Part::of(schur.form.elements), Part::of(schur.vectors.elements), re, im, well(), well()]
}

fn gees_complex(given: Given<'_, C>) -> Vec<Part> {
    let [a] = operands(given);
    let (n, size) = (a.rows, a.elements.len());
    let Some(schur) = schur::complex(&a) else {
        return [size, size, n].map(nothing::<C>).into_iter().chain([well(), failed()]).collect();
    };
    let values: Vec<C> = (0..n).map(|k| schur.form[(k, k)]).collect();
    vec![Part::of(schur.form.elements), Part::of(schur.vectors.elements), Part::of(values), well(), well()]
}
