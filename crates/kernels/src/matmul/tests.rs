//! Matrix products against the definition.

use super::{BatchDim, Matmul};
use crate::Serial;
use crate::number::Stored;
use half::{bf16, f16};
use proptest::prelude::*;

/// A product of dense matrices, each as it is or transposed.
fn matmul() -> impl Strategy<Value = Matmul> {
    let sizes = prop_oneof![(1..20usize, 1..40usize, 0..20usize), (1..80usize, 1..100usize, 500..600usize)];
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

#[test]
fn large_products_are_cut_into_tiles() {
    let (m, n, k) = (900, 130, 70);
    let product = Matmul { batch: vec![], m, n, k, lhs_row: k, lhs_column: 1, rhs_row: n, rhs_column: 1 };
    assert!(product.tile().0 < m);
    agrees::<f32, f32>(&product, |x| x as f32, f64::from, f64::from, 1e-5);
    agrees::<bf16, f32>(&product, bf16::from_f64, f64::from, f64::from, 1e-5);
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
