//! Matrix products over row-major slices: by the `gemm` kernels for f32, f64 and complex types, by plain loops for
//! integers.
//!
//! Holds the evaluator's only unsafe code: the call of a kernel that takes pointers. The bounds it needs are checked just
//! before.

use bytemuck::Pod;
use num_complex::Complex;
use std::ops::Mul;

/// Element types that a matrix product can be made of.
pub trait Product: Pod {
    /// `c = a × b` for row-major `a` (m × k), `b` (k × n) and `c` (m × n).
    fn product(m: usize, n: usize, k: usize, a: &[Self], b: &[Self], c: &mut [Self]);
}

macro_rules! by_gemm {
    ($($t:ty, $zero:expr, $one:expr;)+) => {$(
        impl Product for $t {
            fn product(m: usize, n: usize, k: usize, a: &[Self], b: &[Self], c: &mut [Self]) {
                product(m, n, k, a, b, c, $zero, $one);
            }
        }
    )+};
}

by_gemm! {
    f32, 0.0, 1.0;
    f64, 0.0, 1.0;
    Complex<f32>, Complex::new(0.0, 0.0), Complex::new(1.0, 0.0);
    Complex<f64>, Complex::new(0.0, 0.0), Complex::new(1.0, 0.0);
}

#[allow(unsafe_code, reason = "the kernels take pointers")]
#[allow(clippy::too_many_arguments, reason = "a matrix product has these")]
fn product<T: Pod + Mul<Output = T>>(m: usize, n: usize, k: usize, a: &[T], b: &[T], c: &mut [T], zero: T, one: T) {
    assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n, "the matrices do not fit each other");
    if k == 0 {
        c.fill(zero);
        return;
    }
    // A sum of one product is that product: added to zero it would lose the sign of a zero.
    if k == 1 {
        for (&x, row) in a.iter().zip(c.chunks_exact_mut(n.max(1))) {
            row.iter_mut().zip(b).for_each(|(sum, &y)| *sum = x * y);
        }
        return;
    }
    // SAFETY: the assertion above makes every element that the strides can reach lie inside its slice, `c` is borrowed
    // exclusively and so overlaps neither `a` nor `b`, and with `read_dst` false `c` is only written.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            n as isize,
            false,
            a.as_ptr(),
            1,
            k as isize,
            b.as_ptr(),
            1,
            n as isize,
            zero,
            one,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

macro_rules! by_loops {
    ($($t:ty),+) => {$(
        impl Product for $t {
            fn product(_m: usize, n: usize, k: usize, a: &[Self], b: &[Self], c: &mut [Self]) {
                c.fill(0);
                if n == 0 || k == 0 {
                    return;
                }
                for (row, out) in a.chunks_exact(k).zip(c.chunks_exact_mut(n)) {
                    for (&x, line) in row.iter().zip(b.chunks_exact(n)) {
                        for (o, &y) in out.iter_mut().zip(line) {
                            *o = o.wrapping_add(x.wrapping_mul(y));
                        }
                    }
                }
            }
        }
    )+};
}

by_loops!(i8, i16, i32, i64, u8, u16, u32, u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_product_keeps_the_sign_of_its_zero() {
        let mut c = [1.0f32; 4];
        f32::product(2, 2, 1, &[0.0, 1.0], &[-2.0, 3.0], &mut c);
        assert_eq!(c.map(f32::to_bits), [-0.0f32, 0.0, -2.0, 3.0].map(f32::to_bits));
    }

    #[test]
    fn kernels_agree_with_loops() {
        for (m, n, k) in [(1, 1, 1), (3, 5, 7), (17, 33, 65), (4, 0, 3), (4, 3, 0), (64, 64, 64)] {
            // Small integers: exact in every type.
            let a: Vec<i64> = (0..m * k).map(|i| (i as i64 * 7) % 11 - 5).collect();
            let b: Vec<i64> = (0..k * n).map(|i| (i as i64 * 5) % 13 - 6).collect();
            let mut expected = vec![0i64; m * n];
            i64::product(m, n, k, &a, &b, &mut expected);
            let floats = |v: &[i64]| v.iter().map(|&x| x as f32).collect::<Vec<_>>();
            let mut c = vec![f32::NAN; m * n];
            f32::product(m, n, k, &floats(&a), &floats(&b), &mut c);
            assert_eq!(c, floats(&expected), "{m}×{k} by {k}×{n}");
            let complex = |v: &[i64]| v.iter().map(|&x| Complex::new(x as f64, 0.0)).collect::<Vec<_>>();
            let mut c = vec![Complex::new(f64::NAN, 0.0); m * n];
            Complex::<f64>::product(m, n, k, &complex(&a), &complex(&b), &mut c);
            assert_eq!(c, complex(&expected), "{m}×{k} by {k}×{n}");
        }
    }
}
