//! Every kernel of this processor against plain loops. Numbers are small integers, so all sums are exact.

use super::micro::{self, Block, Micro};
use std::fmt::Debug;

/// Computes blocks of all sizes, packed and not, and compares with the definition.
fn agrees<U: Copy, C: Copy + PartialEq + Debug>(
    micro: &Micro<U, C>,
    unit: fn(i32) -> U,
    sum: fn(i32) -> C,
    product: fn(i32, i32) -> i32,
) {
    for rows in 1..=micro.rows {
        for columns in 1..=micro.columns {
            for (packed, add, depth) in [(true, false, 5), (false, true, 3), (true, true, 1), (false, false, 0)] {
                let left = |n: usize| (n as i32 * 7) % 11 - 5;
                let right = |n: usize| (n as i32 * 5) % 13 - 6;
                let lhs: Vec<U> = (0..rows * 7 + depth * rows).map(|n| unit(left(n))).collect();
                let rhs: Vec<U> = (0..(depth + 1) * 40).map(|n| unit(right(n))).collect();
                let mut to = vec![sum(3); rows * 50];
                let (lhs_row, lhs_step) = if packed { (1, rows) } else { (7, 1) };
                let block = Block {
                    rows,
                    columns,
                    depth,
                    lhs: lhs.as_ptr(),
                    lhs_row,
                    lhs_step,
                    rhs: rhs.as_ptr(),
                    rhs_step: 40,
                    to: to.as_mut_ptr(),
                    to_row: 50,
                    add,
                };
                // SAFETY: the matrices are as large as the block says.
                unsafe { (micro.run)(&block) };
                for (at, &found) in to.iter().enumerate() {
                    let (row, column) = (at / 50, at % 50);
                    let term = |k: usize| product(left(row * lhs_row + k * lhs_step), right(k * 40 + column));
                    let expected = match column < columns {
                        true => (0..depth).map(term).sum::<i32>() + if add { 3 } else { 0 },
                        // Behind the block nothing changes.
                        false => 3,
                    };
                    assert_eq!(found, sum(expected), "{rows} × {columns} × {depth} at {row}, {column}");
                }
            }
        }
    }
}

/// A pair of a number and the next, as 16-bit integers.
fn integer_pair(n: i32) -> u32 {
    u32::from(n as i16 as u16) | (u32::from((n + 1) as i16 as u16) << 16)
}

fn bf16_pair(n: i32) -> u32 {
    let bits = |n: i32| u32::from(half::bf16::from_f32(n as f32).to_bits());
    bits(n) | (bits(n + 1) << 16)
}

#[test]
fn kernels_of_this_processor() {
    agrees(micro::f32s(), |n| n as f32, |n| n as f32, |a, b| a * b);
    agrees(micro::f64s(), f64::from, f64::from, |a, b| a * b);
    agrees(micro::i32s(), |n| n, |n| n, |a, b| a * b);
    agrees(micro::i16_pairs(), integer_pair, |n| n, |a, b| a * b + (a + 1) * (b + 1));
    if let Some(micro) = micro::bf16_pairs() {
        agrees(micro, bf16_pair, |n| n as f32, |a, b| a * b + (a + 1) * (b + 1));
    }
}

#[test]
fn kernels_of_other_processors() {
    use micro::portable;
    agrees(&portable::f32s::MICRO, |n| n as f32, |n| n as f32, |a, b| a * b);
    agrees(&portable::f64s::MICRO, f64::from, f64::from, |a, b| a * b);
    agrees(&portable::i32s::MICRO, |n| n, |n| n, |a, b| a * b);
    agrees(&portable::i16_pairs::MICRO, integer_pair, |n| n, |a, b| a * b + (a + 1) * (b + 1));
    agrees(micro::i16_plain_pairs(), integer_pair, |n| n, |a, b| a * b + (a + 1) * (b + 1));
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        use micro::avx2;
        agrees(&avx2::f32s::MICRO, |n| n as f32, |n| n as f32, |a, b| a * b);
        agrees(&avx2::f64s::MICRO, f64::from, f64::from, |a, b| a * b);
        agrees(&avx2::i32s::MICRO, |n| n, |n| n, |a, b| a * b);
        agrees(&avx2::i16_pairs::MICRO, integer_pair, |n| n, |a, b| a * b + (a + 1) * (b + 1));
    }
}
