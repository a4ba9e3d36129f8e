//! How many pairs of a window's element and an output's element meet an element of the input, in one dimension.
//!
//! Output `o` and window element `k` meet at `o·stride + k·window_dilation − padding_low` of the input spread out by
//! `base_dilation`; that counts if it is inside and not one of the holes. One of the two is walked, the other counted by
//! arithmetic; where both are too long to walk, every pair counts.

use hloom_ir::attributes::WindowDim;

/// The most elements that are walked.
const WALK: u64 = 1 << 16;

/// Pairs of a window element and an output element that meet an element of an input of that size.
pub fn window_positions(window: &WindowDim, input: u64, output: u64) -> u64 {
    let size = u64::try_from(window.size).unwrap_or(0);
    let (walked, step, counted, stride) = if size <= output {
        (size, window.window_dilation, output, window.stride)
    } else {
        (output, window.stride, size, window.window_dilation)
    };
    if input == 0 || size == 0 || output == 0 {
        return 0;
    }
    let spread = window.base_dilation;
    if walked > WALK || stride <= 0 || spread <= 0 {
        return size.saturating_mul(output);
    }
    let last = i128::from(input - 1) * i128::from(spread);
    let one = |i: u64| {
        let base = i128::from(i) * i128::from(step) - i128::from(window.padding_low);
        multiples(base, i128::from(stride), i128::from(counted), i128::from(spread), last)
    };
    (0..walked).map(one).fold(0, u64::saturating_add)
}

/// How many `n` in `0..count` have `base + n·stride` within `0..=last` and divisible by `divisor`.
fn multiples(base: i128, stride: i128, count: i128, divisor: i128, last: i128) -> u64 {
    let (gcd, inverse) = gcd_and_inverse(stride, divisor);
    if base.rem_euclid(gcd) != 0 {
        return 0;
    }
    // Solutions of base + n·stride ≡ 0 (mod divisor) repeat with this period, from this first one.
    let period = divisor / gcd;
    let first = ((-base).div_euclid(gcd).rem_euclid(period) * inverse).rem_euclid(period);
    let lowest = div_ceiling(-base, stride).max(0);
    let highest = (last - base).div_euclid(stride).min(count - 1);
    let begin = lowest + (first - lowest).rem_euclid(period);
    if begin > highest { 0 } else { u64::try_from((highest - begin) / period + 1).unwrap_or(u64::MAX) }
}

fn div_ceiling(a: i128, b: i128) -> i128 {
    -(-a).div_euclid(b)
}

/// The greatest common divisor of `a` and `b`, and the inverse of `a / gcd` modulo `b / gcd`.
fn gcd_and_inverse(a: i128, b: i128) -> (i128, i128) {
    let (mut old, mut new) = ((a, 1), (b, 0));
    while new.0 != 0 {
        let quotient = old.0 / new.0;
        (old, new) = (new, (old.0 - quotient * new.0, old.1 - quotient * new.1));
    }
    (old.0, old.1.rem_euclid((b / old.0).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, pair by pair.
    fn by_definition(w: &WindowDim, input: u64, output: u64) -> u64 {
        let mut n = 0;
        for k in 0..w.size {
            for o in 0..output as i64 {
                let at = o * w.stride + k * w.window_dilation - w.padding_low;
                let inside = at >= 0 && at <= (input as i64 - 1) * w.base_dilation;
                n += u64::from(inside && at % w.base_dilation == 0);
            }
        }
        n
    }

    #[test]
    fn agrees_with_the_definition() {
        let mut checked = 0;
        for size in [1, 2, 3, 7] {
            for stride in 1..4 {
                for padding_low in [-2, 0, 1, 5] {
                    for window_dilation in 1..4 {
                        for base_dilation in 1..5 {
                            let w = WindowDim {
                                stride,
                                padding_low,
                                window_dilation,
                                base_dilation,
                                ..WindowDim::of_size(size)
                            };
                            for (input, output) in [(1, 1), (5, 3), (4, 9), (10, 6)] {
                                assert_eq!(
                                    window_positions(&w, input, output),
                                    by_definition(&w, input, output),
                                    "{w:?}"
                                );
                                checked += 1;
                            }
                        }
                    }
                }
            }
        }
        assert_eq!(checked, 4 * 3 * 4 * 3 * 4 * 4);
    }

    #[test]
    fn absurd_sizes_take_no_time() {
        let w = WindowDim {
            padding_low: i64::MIN,
            stride: i64::MAX,
            base_dilation: i64::MAX,
            ..WindowDim::of_size(i64::MAX)
        };
        assert_eq!(window_positions(&w, u64::MAX, u64::MAX), u64::MAX);
        let w = WindowDim { padding_low: i64::MIN, stride: i64::MAX, base_dilation: i64::MAX, ..WindowDim::of_size(3) };
        assert!(window_positions(&w, u64::MAX, 1 << 60) < u64::MAX);
    }
}
