//! Products of bf16 matrices with the processor's instruction for them: two products and a sum in f32 per lane, twice
//! the work of f32 for the same number of instructions.
//!
//! Operands are packed as pairs along the summed dimension: the left one twelve rows at a time, the right one two
//! vectors of columns at a time.

#[cfg(target_arch = "x86_64")]
use super::Matmul;

/// Rows that are computed at once.
const ROWS: usize = 12;
/// Columns that are computed at once: two vectors of f32.
const COLUMNS: usize = 32;
/// Pairs along the summed dimension that are packed at once.
const PAIRS: usize = 256;

/// Adds the product to `sums`, a dense `m × n` matrix. `false`, and nothing is done, if the processor cannot.
#[cfg(target_arch = "x86_64")]
pub(super) fn multiply(matmul: &Matmul, [m, n]: [usize; 2], lhs: &[u16], rhs: &[u16], sums: &mut [f32]) -> bool {
    if !(is_x86_feature_detected!("avx512bf16") && is_x86_feature_detected!("avx512f")) {
        return false;
    }
    let (panels_m, panels_n) = (m.div_ceil(ROWS), n.div_ceil(COLUMNS));
    let (mut packed_lhs, mut packed_rhs) = (Vec::new(), Vec::new());
    for first in (0..matmul.k).step_by(2 * PAIRS) {
        let depth = (2 * PAIRS).min(matmul.k - first);
        let pairs = depth.div_ceil(2);
        let from = &lhs[first * matmul.lhs_column..];
        pack::<ROWS>(from, m, depth, matmul.lhs_row, matmul.lhs_column, &mut packed_lhs);
        let from = &rhs[first * matmul.rhs_row..];
        pack::<COLUMNS>(from, n, depth, matmul.rhs_column, matmul.rhs_row, &mut packed_rhs);
        for panel_n in 0..panels_n {
            let right = &packed_rhs[panel_n * pairs..][..pairs];
            let columns = COLUMNS.min(n - panel_n * COLUMNS);
            for panel_m in 0..panels_m {
                let left = &packed_lhs[panel_m * pairs..][..pairs];
                let mut block = [[0f32; COLUMNS]; ROWS];
                // SAFETY: the processor has the instructions.
                unsafe { kernel(left, right, &mut block) };
                for (row, block) in block.iter().enumerate().take(m - panel_m * ROWS) {
                    let to = &mut sums[(panel_m * ROWS + row) * n + panel_n * COLUMNS..][..columns];
                    to.iter_mut().zip(block).for_each(|(to, sum)| *to += sum);
                }
            }
        }
    }
    true
}

/// `false`: there is no such instruction.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn multiply(_: &super::Matmul, _: [usize; 2], _: &[u16], _: &[u16], _: &mut [f32]) -> bool {
    false
}

/// Two neighbours along the summed dimension, the first one below.
type Pair = u32;

/// Packs `lines` lines (rows of the left operand, columns of the right) of `depth` values: panels of `WIDTH` lines, in
/// each the pairs of all lines one after the other. What is missing is zero.
#[cfg(target_arch = "x86_64")]
fn pack<const WIDTH: usize>(
    from: &[u16],
    lines: usize,
    depth: usize,
    line_stride: usize,
    depth_stride: usize,
    packed: &mut Vec<[Pair; WIDTH]>,
) {
    let pairs = depth.div_ceil(2);
    packed.clear();
    packed.resize(lines.div_ceil(WIDTH) * pairs, [0; WIDTH]);
    let pair = |low: u16, high: u16| Pair::from(low) | (Pair::from(high) << 16);
    for (panel, packed) in packed.chunks_exact_mut(pairs).enumerate() {
        let width = WIDTH.min(lines - panel * WIDTH);
        let from = &from[panel * WIDTH * line_stride..];
        if depth_stride == 1 {
            for line in 0..width {
                let values = &from[line * line_stride..][..depth];
                for (to, values) in packed.iter_mut().zip(values.chunks(2)) {
                    to[line] = pair(values[0], values.get(1).copied().unwrap_or(0));
                }
            }
            continue;
        }
        for (i, to) in packed.iter_mut().enumerate() {
            let low = &from[2 * i * depth_stride..];
            let high = if 2 * i + 1 < depth { &from[(2 * i + 1) * depth_stride..] } else { &[] };
            if line_stride == 1 && width == WIDTH && !high.is_empty() {
                for ((to, &low), &high) in to.iter_mut().zip(&low[..WIDTH]).zip(&high[..WIDTH]) {
                    *to = pair(low, high);
                }
                continue;
            }
            for (line, to) in to.iter_mut().enumerate().take(width) {
                let at = line * line_stride;
                *to = pair(low[at], high.get(at).copied().unwrap_or(0));
            }
        }
    }
}

/// The product of two panels.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
fn kernel(lhs: &[[Pair; ROWS]], rhs: &[[Pair; COLUMNS]], block: &mut [[f32; COLUMNS]; ROWS]) {
    use std::arch::x86_64::*;
    // SAFETY: both are vectors of 512 bits.
    let pairs = |bits: __m512i| unsafe { std::mem::transmute::<__m512i, __m512bh>(bits) };
    let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
    for (left, right) in lhs.iter().zip(rhs) {
        // SAFETY: the sixteen pairs are there.
        let halves =
            unsafe { [_mm512_loadu_si512(right.as_ptr().cast()), _mm512_loadu_si512(right[16..].as_ptr().cast())] };
        for (sums, &left) in sums.iter_mut().zip(left) {
            let left = pairs(_mm512_set1_epi32(left as i32));
            for (sum, half) in sums.iter_mut().zip(halves) {
                *sum = _mm512_dpbf16_ps(*sum, left, pairs(half));
            }
        }
    }
    for (sums, block) in sums.iter().zip(block) {
        let (low, high) = block.split_at_mut(16);
        // SAFETY: there is room for sixteen numbers in each half.
        unsafe {
            _mm512_storeu_ps(low.as_mut_ptr(), sums[0]);
            _mm512_storeu_ps(high.as_mut_ptr(), sums[1]);
        }
    }
}
