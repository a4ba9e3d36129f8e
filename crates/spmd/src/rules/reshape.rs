//! The rule of a reshape: both shapes are walked from the major side, and what divides both is one factor.

use super::Rule;
use super::ops::Shapes;

/// Elements in the same order under another shape; no rule for none at all.
pub(crate) fn reshape(s: Shapes<'_>) -> Option<Rule> {
    let (from, to) = (s.operand(0), s.result(0));
    let count = |dims: &[i64]| dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d)).filter(|&n| n > 0);
    if count(from)? != count(to)? {
        return None;
    }
    let mut b = s.builder();
    let (mut i, mut o) = (0, 0);
    // The product of the dimensions that were begun, and of the factors that were made, on each side.
    let (mut dims_in, mut dims_out) = (1i64, 1i64);
    let (mut done_in, mut done_out) = (1i64, 1i64);
    while i < from.len() || o < to.len() {
        if from.get(i) == Some(&1) {
            b.pass(&[Some(i)], &[], 1);
            i += 1;
            continue;
        }
        if to.get(o) == Some(&1) {
            b.pass(&[], &[Some(o)], 1);
            o += 1;
            continue;
        }
        if i < from.len() && dims_in == done_in {
            dims_in *= from[i];
        }
        if o < to.len() && dims_out == done_out {
            dims_out *= to[o];
        }
        let (left_in, left_out) = (dims_in / done_in, dims_out / done_out);
        let common = gcd(left_in, left_out);
        // The next factor of the side that is behind: up to where the other is, if that can be.
        let catch_up = |left: i64, behind: i64, ahead: i64| {
            if ahead % behind == 0 && left % (ahead / behind) == 0 {
                ahead / behind
            } else if left > common {
                left / common
            } else {
                left
            }
        };
        if done_in == done_out {
            if common > 1 {
                b.pass(&[Some(i)], &[Some(o)], common);
                done_in *= common;
                done_out *= common;
            } else {
                b.pass(&[Some(i)], &[], left_in);
                done_in *= left_in;
                b.pass(&[], &[Some(o)], left_out);
                done_out *= left_out;
            }
        } else if done_in < done_out {
            let factor = catch_up(left_in, done_in, done_out);
            b.pass(&[Some(i)], &[], factor);
            done_in *= factor;
        } else {
            let factor = catch_up(left_out, done_out, done_in);
            b.pass(&[], &[Some(o)], factor);
            done_out *= factor;
        }
        if i < from.len() && dims_in == done_in {
            i += 1;
        }
        if o < to.len() && dims_out == done_out {
            o += 1;
        }
    }
    Some(b.build())
}

/// The greatest number that divides both.
pub(crate) fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.max(0), b.max(0));
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
