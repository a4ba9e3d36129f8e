//! Factors and solutions, put together again.

use super::*;
use crate::Serial;

/// Numbers between -1 and 1 that look random.
fn random(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// The product of an `m × k` and a `k × n` matrix.
fn times(x: &[f64], y: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    let sum = |r: usize, c: usize| (0..k).map(|i| x[r * k + i] * y[i * n + c]).sum();
    (0..m * n).map(|i| sum(i / n, i % n)).collect()
}

fn distance(x: &[f64], y: &[f64]) -> f64 {
    assert_eq!(x.len(), y.len());
    x.iter().zip(y).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
}

const SIZES: [(usize, usize); 7] = [(1, 1), (3, 3), (5, 2), (4, 9), (48, 48), (100, 131), (131, 100)];

#[test]
fn lower_times_upper_is_the_matrix_with_its_rows_exchanged() {
    for (rows, columns) in SIZES {
        let (batch, few) = (3, rows.min(columns));
        let matrices = random(batch * rows * columns, 1);
        let mut factors = matrices.clone();
        let (mut pivots, mut singular) = (vec![0; batch * few], vec![0; batch]);
        let lu = Lu { batch, rows, columns };
        lu.run(&mut factors, &mut pivots, &mut singular, &Serial).expect("the sizes fit");
        assert_eq!(singular, [0; 3]);
        for n in 0..batch {
            let factors = &factors[n * rows * columns..][..rows * columns];
            let mut matrix = matrices[n * rows * columns..][..rows * columns].to_vec();
            for (k, &pivot) in pivots[n * few..][..few].iter().enumerate() {
                let pivot = pivot as usize - 1;
                (0..columns).for_each(|c| matrix.swap(k * columns + c, pivot * columns + c));
            }
            let at = |r: usize, c: usize| factors[r * columns + c];
            let lower: Vec<f64> = (0..rows * few)
                .map(|i| match (i / few).cmp(&(i % few)) {
                    std::cmp::Ordering::Less => 0.0,
                    std::cmp::Ordering::Equal => 1.0,
                    std::cmp::Ordering::Greater => at(i / few, i % few),
                })
                .collect();
            assert!(lower.iter().all(|x| x.abs() <= 1.0), "pivots are the largest");
            let above = |i: usize| i % columns >= i / columns;
            let upper: Vec<f64> = (0..few * columns).map(|i| if above(i) { factors[i] } else { 0.0 }).collect();
            let product = times(&lower, &upper, rows, few, columns);
            assert!(distance(&product, &matrix) < 1e-11, "{rows} × {columns}");
        }
    }
}

#[test]
fn a_pivot_of_zero_is_named() {
    let (mut matrix, mut pivots, mut singular) = ([1.0f32, 2.0, 2.0, 4.0], [0; 2], [0]);
    let lu = Lu { batch: 1, rows: 2, columns: 2 };
    lu.run(&mut matrix, &mut pivots, &mut singular, &Serial).expect("the sizes fit");
    assert_eq!((pivots, singular), ([2, 2], [2]));
    assert!(lu.run(&mut matrix, &mut pivots[..1], &mut singular, &Serial).is_none(), "too few pivots");
}

#[test]
fn a_factor_times_its_transpose_is_the_matrix() {
    for n in [1, 2, 7, 48, 49, 150] {
        let x = random(n * n, 2);
        let transposed: Vec<f64> = (0..n * n).map(|i| x[i % n * n + i / n]).collect();
        let mut matrix = times(&x, &transposed, n, n, n);
        (0..n).for_each(|k| matrix[k * n + k] += 1.0);
        for lower in [true, false] {
            let (mut factor, mut failed) = (matrix.clone(), [7]);
            Cholesky { batch: 1, n, lower }.run(&mut factor, &mut failed, &Serial).expect("the sizes fit");
            let inside = |i: usize| if lower { i % n <= i / n } else { i % n >= i / n };
            for i in 0..n * n {
                assert!(inside(i) || factor[i] == matrix[i], "the other triangle stays");
            }
            let at = |r: usize, c: usize| if inside(r * n + c) { factor[r * n + c] } else { 0.0 };
            let l: Vec<f64> = (0..n * n).map(|i| if lower { at(i / n, i % n) } else { at(i % n, i / n) }).collect();
            let lt: Vec<f64> = (0..n * n).map(|i| l[i % n * n + i / n]).collect();
            assert_eq!(failed, [0]);
            assert!(distance(&times(&l, &lt, n, n, n), &matrix) < 1e-10 * n as f64, "{n}");
        }
    }
}

#[test]
fn a_matrix_that_is_not_positive_stays_as_it_is() {
    let given = [4.0f64, 0.0, 2.0, -1.0];
    let (mut matrix, mut failed) = (given, [0]);
    Cholesky { batch: 1, n: 2, lower: true }.run(&mut matrix, &mut failed, &Serial).expect("the sizes fit");
    assert_eq!((matrix, failed), (given, [2]));
}

#[test]
fn small_factors_are_the_same_side_by_side() {
    for n in [2, 5, 16, 32, 33] {
        let batch = 37;
        let mut matrices: Vec<f64> = Vec::new();
        for m in 0..batch {
            let x = random(n * n, 5 + m as u64);
            let transposed: Vec<f64> = (0..n * n).map(|i| x[i % n * n + i / n]).collect();
            let mut matrix = times(&x, &transposed, n, n, n);
            // Some have no factor.
            (0..n).for_each(|k| matrix[k * n + k] += if m % 7 == 3 && k > 0 { -9.0 * n as f64 } else { 1.0 });
            matrices.extend(matrix);
        }
        for lower in [true, false] {
            let (mut factors, mut failed) = (matrices.clone(), vec![7; batch]);
            Cholesky { batch, n, lower }.run(&mut factors, &mut failed, &Serial).expect("the sizes fit");
            let (mut alone, mut alone_failed) = (matrices.clone(), vec![7; batch]);
            for (matrix, failed) in alone.chunks_exact_mut(n * n).zip(alone_failed.chunks_exact_mut(1)) {
                Cholesky { batch: 1, n, lower }.run(matrix, failed, &Serial).expect("the sizes fit");
            }
            assert_eq!(failed, alone_failed, "{n}");
            assert!(distance(&factors, &alone) < 1e-11, "{n}");
            assert!(failed.contains(&0) && failed.iter().any(|&f| f > 0));
        }
    }
}

#[test]
fn solutions_solve_their_systems() {
    let sizes = [(2, 1, 1), (2, 3, 1), (2, 5, 4), (2, 60, 1), (2, 60, 3), (2, 60, 20), (2, 130, 17)];
    for (batch, n, others) in sizes.into_iter().chain([(19, 2, 1), (35, 7, 3), (16, 32, 5)]) {
        for case in 0..16 {
            let has = |bit: i32| case & (1 << bit) != 0;
            let (left, lower, unit_diagonal, transposed) = (has(0), has(1), has(2), has(3));
            let solve = TriangularSolve { batch, n, others, left, lower, unit_diagonal, transposed };
            let mut a = random(batch * n * n, 3);
            a.iter_mut().for_each(|x| *x /= n as f64);
            for matrix in a.chunks_exact_mut(n * n) {
                (0..n).for_each(|k| matrix[k * n + k] += 2.0);
            }
            let x = random(batch * n * others, 4);
            let mut b = Vec::new();
            for (a, x) in a.chunks_exact(n * n).zip(x.chunks_exact(n * others)) {
                let given = |r: usize, c: usize| match r == c {
                    true if unit_diagonal => 1.0,
                    false if (c < r) != lower => 0.0,
                    _ => a[r * n + c],
                };
                let op = |r: usize, c: usize| if transposed { given(c, r) } else { given(r, c) };
                let op: Vec<f64> = (0..n * n).map(|i| op(i / n, i % n)).collect();
                b.extend(if left { times(&op, x, n, n, others) } else { times(x, &op, others, n, n) });
            }
            solve.run(&a, &mut b, &Serial).expect("the sizes fit");
            assert!(distance(&b, &x) < 1e-12, "{solve:?}: {:e}", distance(&b, &x));
        }
    }
}

#[test]
fn many_systems_of_nothing_are_solved() {
    let (left, lower, unit_diagonal, transposed) = (true, true, false, false);
    let solve = TriangularSolve { batch: 40, n: 4, others: 0, left, lower, unit_diagonal, transposed };
    solve.run(&[1.0f32; 640], &mut [], &Serial).expect("the sizes fit");
}

#[test]
fn reflectors_and_what_is_left_of_the_columns_are_the_matrix() {
    let sizes = SIZES.into_iter().chain([(8, 8), (300, 40), (17, 16), (1, 5)]);
    for (rows, columns) in sizes {
        let (batch, few) = (2, rows.min(columns));
        let matrices = random(batch * rows * columns, 6);
        let (mut factors, mut taus) = (matrices.clone(), vec![0.0; batch * few]);
        Qr { batch, rows, columns }.run(&mut factors, &mut taus, &Serial).expect("the sizes fit");
        for n in 0..batch {
            let at = |i: usize| factors[n * rows * columns + i];
            let upper: Vec<f64> =
                (0..few * columns).map(|i| if i % columns >= i / columns { at(i) } else { 0.0 }).collect();
            // All of Q, as the reflectors and columns of nothing.
            let mut q: Vec<f64> = (0..rows * rows)
                .map(|i| if i % rows < few { at(i / rows * columns + i % rows) } else { f64::NAN })
                .collect();
            let product = ReflectorProduct { batch: 1, rows, columns: rows, reflectors: few };
            product.run(&mut q, &taus[n * few..][..few], &Serial).expect("the sizes fit");
            let turned: Vec<f64> = (0..rows * rows).map(|i| q[i % rows * rows + i / rows]).collect();
            let unit: Vec<f64> = (0..rows * rows).map(|i| f64::from(i % rows == i / rows)).collect();
            assert!(distance(&times(&turned, &q, rows, rows, rows), &unit) < 1e-12, "{rows} × {columns}");
            let first: Vec<f64> = (0..rows * few).map(|i| q[i / few * rows + i % few]).collect();
            let matrix = &matrices[n * rows * columns..][..rows * columns];
            assert!(distance(&times(&first, &upper, rows, few, columns), matrix) < 1e-12, "{rows} × {columns}");
        }
    }
    assert!(Qr { batch: 1, rows: 2, columns: 2 }.run(&mut [0.0; 4], &mut [0.0; 1], &Serial).is_none(), "too few taus");
}

#[test]
fn columns_whose_squares_are_no_numbers_have_reflectors() {
    for size in [1e-200, 1.0, 1e200] {
        let (mut column, mut tau) = ([3.0 * size, 4.0 * size], [0.0]);
        Qr { batch: 1, rows: 2, columns: 1 }.run(&mut column, &mut tau, &Serial).expect("the sizes fit");
        let [length, rest] = [column[0] / size, column[1]];
        assert!((length + 5.0).abs() < 1e-12 && (rest - 0.5).abs() < 1e-12 && (tau[0] - 1.6).abs() < 1e-12, "{size}");
    }
    let (mut nothing, mut tau) = ([7.0f32, 0.0], [1.0]);
    Qr { batch: 1, rows: 2, columns: 1 }.run(&mut nothing, &mut tau, &Serial).expect("the sizes fit");
    assert_eq!((nothing, tau), ([7.0, 0.0], [0.0]), "nothing is to be taken away");
}

#[test]
fn solutions_solve_tridiagonal_systems() {
    for (n, columns) in [(1, 1), (2, 1), (3, 4), (50, 1), (50, 20)] {
        let batch = 3;
        // Nothing makes the diagonal large: rows change places.
        let [mut below, mut diagonal, mut above] = [7, 8, 9].map(|seed| random(batch * n, seed));
        let x = random(batch * n * columns, 10);
        let mut b = Vec::new();
        for m in 0..batch {
            let at = |i: usize| match (i / n, i % n) {
                (r, c) if r == c => diagonal[m * n + r],
                (r, c) if r == c + 1 => below[m * n + r],
                (r, c) if r + 1 == c => above[m * n + r],
                _ => 0.0,
            };
            let matrix: Vec<f64> = (0..n * n).map(at).collect();
            b.extend(times(&matrix, &x[m * n * columns..][..n * columns], n, n, columns));
        }
        let mut a = Diagonals { below: &mut below, diagonal: &mut diagonal, above: &mut above };
        let mut singular = [7; 3];
        Tridiagonal { batch, n, columns }.run(&mut a, &mut b, &mut singular, &Serial).expect("the sizes fit");
        assert_eq!(singular, [0; 3]);
        assert!(distance(&b, &x) < 1e-10, "{n} × {columns}: {:e}", distance(&b, &x));
    }
    let mut a = Diagonals { below: &mut [0.0, 0.0], diagonal: &mut [1.0, 0.0], above: &mut [1.0, 0.0] };
    let (mut b, mut singular) = ([1.0, 1.0], [0]);
    Tridiagonal { batch: 1, n: 2, columns: 1 }.run(&mut a, &mut b, &mut singular, &Serial).expect("the sizes fit");
    assert_eq!((b, singular), ([1.0, 1.0], [2]), "a pivot of zero is named");
}
