//! Matrix products against the definition.

use super::{BatchDim, Matmul};
use crate::number::Stored;
use crate::{Epilogue, Parallel, Serial};
use half::{bf16, f16};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::Mutex;

/// A product of dense matrices, each as it is or transposed.
fn matmul() -> impl Strategy<Value = Matmul> {
    let sizes = prop_oneof![
        (1..20usize, 1..40usize, 0..20usize),
        (1..80usize, 1..100usize, 500..600usize),
        // Few rows or columns, which have kernels of their own.
        (1..9usize, 1..200usize, 1..70usize),
        (1..200usize, 1..9usize, 1..70usize),
    ];
    (sizes, prop::collection::vec(1..3usize, 0..3), any::<[bool; 2]>()).prop_map(|((m, n, k), batch, transposed)| {
        let (lhs_row, lhs_column) = if transposed[0] { (1, m) } else { (k, 1) };
        let (rhs_row, rhs_column) = if transposed[1] { (1, k) } else { (n, 1) };
        let mut dims = Vec::new();
        let (mut lhs, mut rhs) = (m * k, k * n);
        for &size in batch.iter().rev() {
            dims.insert(0, BatchDim { size, lhs, rhs });
            (lhs, rhs) = (lhs * size, rhs * size);
        }
        Matmul { batch: dims, m, n, k, lhs_row, lhs_column, rhs_row, rhs_column }
    })
}

fn agrees<S: Stored, O: Stored<Compute = S::Compute>>(
    product: &Matmul,
    read: fn(f64) -> S,
    value: fn(S) -> f64,
    result: fn(O) -> f64,
    tolerance: f64,
) {
    let groups: usize = product.batch.iter().map(|b| b.size).product();
    let numbers = |n: usize, seed: u32| -> Vec<S> {
        (0..n as u32).map(|i| read(f64::from((i.wrapping_mul(2654435761) ^ seed) >> 24) / 64.0 - 2.0)).collect()
    };
    let lhs = numbers(groups * product.m * product.k, 1);
    let rhs = numbers(groups * product.k * product.n, 0x1234_5678);
    let mut output = vec![O::default(); groups * product.m * product.n];
    product.run(&lhs, &rhs, &mut output, &Serial).expect("dense matrices are long enough");
    for group in 0..groups {
        let (l, r) = product.offsets(group);
        for row in 0..product.m {
            for column in 0..product.n {
                let term = |k: usize| {
                    value(lhs[l + row * product.lhs_row + k * product.lhs_column])
                        * value(rhs[r + k * product.rhs_row + column * product.rhs_column])
                };
                let expected: f64 = (0..product.k).map(term).sum();
                let size: f64 = (0..product.k).map(|k| term(k).abs()).sum();
                let found = result(output[(group * product.m + row) * product.n + column]);
                let error = (found - expected).abs();
                assert!(
                    error <= tolerance * size + 1e-30,
                    "{found} instead of {expected} at {row}, {column} of {product:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn by_the_definition(product in matmul()) {
        agrees::<f64, f64>(&product, |x| x, |x| x, |x| x, 1e-14);
        agrees::<f32, f32>(&product, |x| x as f32, f64::from, f64::from, 1e-5);
        agrees::<bf16, bf16>(&product, bf16::from_f64, f64::from, f64::from, 8e-3);
        agrees::<bf16, f32>(&product, bf16::from_f64, f64::from, f64::from, 1e-5);
        agrees::<f16, f16>(&product, f16::from_f64, f64::from, f64::from, 2e-3);
    }
}

/// As if there were so many threads, one after the other.
struct Threads(usize);

impl Parallel for Threads {
    fn each(&self, units: usize, chunk: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        (0..units).step_by(chunk).for_each(|begin| body(begin, units.min(begin + chunk)));
    }

    fn threads(&self) -> usize {
        self.0
    }
}

#[test]
fn how_a_product_is_cut_does_not_change_it() {
    // Some of them lay out the right operand first; some cut their sums into parts.
    let sizes = [(900, 130, 70), (40, 700, 600), (3, 2000, 100), (700, 2, 300), (500, 500, 31), (800, 150, 300)];
    let long_sums = [(20, 33, 4100), (1, 40, 60_000), (9, 2, 130_000), (64, 64, 2500), (1, 5000, 333), (2, 640, 1030)];
    for (m, n, k) in sizes.into_iter().chain(long_sums) {
        let product = Matmul { batch: vec![], m, n, k, lhs_row: k, lhs_column: 1, rhs_row: n, rhs_column: 1 };
        agrees::<f32, f32>(&product, |x| x as f32, f64::from, f64::from, 1e-5);
        agrees::<bf16, f32>(&product, bf16::from_f64, f64::from, f64::from, 1e-5);
        let lhs: Vec<f32> = (0..m * k).map(|n| (n % 101) as f32 / 7.0).collect();
        let rhs: Vec<f32> = (0..k * n).map(|n| (n % 103) as f32 / 9.0).collect();
        let run = |threads: usize| {
            let mut output = vec![0f32; m * n];
            product.run(&lhs, &rhs, &mut output, &Threads(threads)).expect("dense matrices are long enough");
            output
        };
        let alone = run(1);
        assert!([2, 5, 64].iter().all(|&threads| run(threads) == alone), "{m} × {n} × {k}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn integers_by_the_definition(product in matmul()) {
        let groups: usize = product.batch.iter().map(|b| b.size).product();
        let numbers = |n: usize, seed: u32| -> Vec<i8> {
            (0..n as u32).map(|i| ((i.wrapping_mul(2654435761) ^ seed) >> 24) as i8).collect()
        };
        let lhs = numbers(groups * product.m * product.k, 1);
        let rhs = numbers(groups * product.k * product.n, 0x1234_5678);
        let wide = |v: &[i8]| v.iter().map(|&x| i32::from(x) * 65_537).collect::<Vec<i32>>();
        let (mut small, mut large) = (vec![0i32; groups * product.m * product.n], vec![0i32; groups * product.m * product.n]);
        product.run_integers(&lhs, &rhs, &mut small, &Serial).expect("long enough");
        product.run_integers(&wide(&lhs), &wide(&rhs), &mut large, &Threads(3)).expect("long enough");
        for group in 0..groups {
            let (l, r) = product.offsets(group);
            for at in 0..product.m * product.n {
                let (row, column) = (at / product.n, at % product.n);
                let term = |k: usize| {
                    i32::from(lhs[l + row * product.lhs_row + k * product.lhs_column])
                        * i32::from(rhs[r + k * product.rhs_row + column * product.rhs_column])
                };
                let expected: i32 = (0..product.k).map(term).sum();
                let at = group * product.m * product.n + at;
                prop_assert_eq!(small[at], expected);
                prop_assert_eq!(large[at], expected.wrapping_mul(65_537).wrapping_mul(65_537));
            }
        }
    }
}

#[test]
fn short_slices_are_refused() {
    let product = Matmul { batch: vec![], m: 2, n: 2, k: 2, lhs_row: 2, lhs_column: 1, rhs_row: 2, rhs_column: 1 };
    let mut output = [0f32; 4];
    assert!(product.run(&[1f32; 4], &[1f32; 4], &mut output, &Serial).is_some());
    assert!(product.run(&[1f32; 3], &[1f32; 4], &mut output, &Serial).is_none());
    assert!(product.run(&[1f32; 4], &[1f32; 3], &mut output, &Serial).is_none());
    assert!(product.run(&[1f32; 4], &[1f32; 4], &mut output[..3], &Serial).is_none());
}

/// Checks that each row is handed over once, and is what it is without.
fn tiles_by_rows(product: &Matmul, step: usize, threads: usize) -> bool {
    let groups: usize = product.batch.iter().map(|b| b.size).product();
    let numbers = |n: usize| (0..n).map(|i| (i * 37 % 101) as f32 - 50.0).collect::<Vec<f32>>();
    let (lhs, rhs) = (numbers(groups * product.m * product.k), numbers(groups * product.k * product.n));
    let (rows, n) = (groups * product.m, product.n);
    let mut expected = vec![0f32; rows * n];
    product.run(&lhs, &rhs, &mut expected, &Serial).expect("long enough");
    let found = Mutex::new(vec![None; rows]);
    let call = |handed: Range<usize>, at: *mut u8| {
        let is_whole = |row: usize| row.is_multiple_of(step) || row == rows;
        assert!(is_whole(handed.start) && is_whole(handed.end), "{handed:?} in steps of {step}");
        // SAFETY: so many rows are there.
        let values = unsafe { std::slice::from_raw_parts(at.cast::<f32>(), handed.len() * n) };
        for (row, values) in handed.zip(values.chunks_exact(n)) {
            let before = found.lock().expect("nobody panics")[row].replace(values.to_vec());
            assert!(before.is_none(), "row {row} is handed over twice");
        }
    };
    let epilogue = Epilogue { step, call: &call };
    let done = product.run_with_epilogue::<f32, f32>([&lhs, &rhs], &Threads(threads), &epilogue).is_some();
    let found = found.into_inner().expect("nobody panics");
    assert_eq!(done, product.tiles_by_rows(step));
    match done {
        true => assert_eq!(found.into_iter().flatten().flatten().collect::<Vec<f32>>(), expected),
        false => assert!(found.iter().all(Option::is_none)),
    }
    done
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn rows_are_handed_over_once_each(product in matmul(), step in 1..5usize, threads in 1..8usize) {
        tiles_by_rows(&product, step, threads);
    }
}

#[test]
fn rows_of_a_large_result_are_handed_over() {
    let product =
        Matmul { batch: vec![], m: 4200, n: 1001, k: 256, lhs_row: 256, lhs_column: 1, rhs_row: 1001, rhs_column: 1 };
    for (step, threads) in [(1, 1), (16, 1), (3, 2), (8, 2)] {
        assert!(tiles_by_rows(&product, step, threads), "steps of {step} rows");
    }
}
