//! Operations on the bits of elements: bitcast-convert, reduce-precision and stochastic-convert.

use super::convert::convert;
use super::kernel::{by_width, map_bits1, same_sizes};
use crate::scalar::{Function1, Scalar};
use hloom_ir::diagnostic::codes;
use hloom_ir::element_type::ElementType;
use hloom_ir::layout::DimVec;
use hloom_value::Array;
use hloom_value::ExecutionError;

/// The bits of each element as elements of another type. Where the types differ in width, the narrower side has one
/// more dimension, its last, in which the low bits come first.
pub(crate) fn bitcast_convert(a: Array, to: ElementType) -> Result<Array, ExecutionError> {
    let from = a.element_type();
    let (narrow, wide) = (from.bits().min(to.bits()), from.bits().max(to.bits()));
    let ratio = i64::from(wide / narrow);
    let mut dims: DimVec = a.dims().into();
    if from.bits() > to.bits() {
        dims.push(ratio);
    } else if from.bits() < to.bits() && dims.pop() != Some(ratio) {
        return Err(ExecutionError::bug(format!("the last dimension of {} must be {ratio} to become {to}", a.shape())));
    }
    if !is_partial(from) && !is_partial(to) {
        return a.reinterpreted(to, &dims);
    }
    let mut r = Array::zeroed(to, &dims)?;
    let (wide_bytes, count) = (from.bytes().max(to.bytes()), ratio as usize);
    if from.bits() >= to.bits() {
        let parts = r.bytes_mut().chunks_exact_mut(to.bytes() * count);
        for (x, parts) in a.bytes().chunks_exact(wide_bytes).zip(parts) {
            let bits = load(x);
            for (k, part) in parts.chunks_exact_mut(to.bytes()).enumerate() {
                Scalar(canonical(bits >> (k as u32 * narrow), to)).store(part);
            }
        }
    } else {
        let wholes = r.bytes_mut().chunks_exact_mut(wide_bytes);
        for (parts, whole) in a.bytes().chunks_exact(from.bytes() * count).zip(wholes) {
            let parts = parts.chunks_exact(from.bytes()).enumerate();
            let bits = parts.fold(0, |bits, (k, x)| bits | (load(x) & mask(narrow)) << (k as u32 * narrow));
            Scalar(canonical(bits, to)).store(whole);
        }
    }
    Ok(r)
}

/// The same for one element, where the widths are equal.
pub(super) fn bitcast_convert_scalar(from: ElementType, to: ElementType) -> Option<Function1> {
    use ElementType::*;
    if from.bits() != to.bits() {
        return None;
    }
    Some(match to {
        Pred => |s| Scalar(canonical(s.0, Pred)),
        S1 => |s| Scalar(canonical(s.0, S1)),
        S2 => |s| Scalar(canonical(s.0, S2)),
        S4 => |s| Scalar(canonical(s.0, S4)),
        U1 => |s| Scalar(canonical(s.0, U1)),
        U2 => |s| Scalar(canonical(s.0, U2)),
        U4 | F4e2m1fn => |s| Scalar(canonical(s.0, U4)),
        _ => |s| s,
    })
}

/// Whether not every byte is an element of the type.
fn is_partial(t: ElementType) -> bool {
    t == ElementType::Pred || t.is_sub_byte()
}

fn mask(bits: u32) -> u128 {
    u128::MAX >> (128 - bits)
}

fn load(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |bits, &b| bits << 8 | u128::from(b))
}

/// The low bits as an element of `to` lies in memory: signed types narrower than a byte are sign-extended.
fn canonical(bits: u128, to: ElementType) -> u128 {
    let low = bits & mask(to.bits());
    match to {
        ElementType::Pred => (low != 0).into(),
        _ if to.is_sub_byte() && to.is_signed_integer() && low >> (to.bits() - 1) == 1 => {
            low | (0xff & !mask(to.bits()))
        }
        _ => low,
    }
}

/// The float format that `reduce_precision` works in.
#[derive(Clone, Copy)]
struct Layout {
    exponent_bits: u32,
    mantissa_bits: u32,
}

/// Each float as if it were stored in a format with that many exponent and mantissa bits: rounded to nearest, ties to
/// even, then to infinity above the range and to zero below the normal range. NaN is kept.
pub(super) fn reduce_precision(a: Array, exponent_bits: i32, mantissa_bits: i32) -> Result<Array, ExecutionError> {
    use ElementType::*;
    let from = a.element_type();
    let to =
        Layout { exponent_bits: exponent_bits.clamp(1, 64) as u32, mantissa_bits: mantissa_bits.clamp(0, 64) as u32 };
    let layout = |exponent_bits, mantissa_bits| Layout { exponent_bits, mantissa_bits };
    match from {
        F16 => map_bits1::<u16, u16>(a, from, |b| reduce(b.into(), layout(5, 10), to) as u16),
        Bf16 => map_bits1::<u16, u16>(a, from, |b| reduce(b.into(), layout(8, 7), to) as u16),
        F32 => map_bits1::<u32, u32>(a, from, |b| reduce(b.into(), layout(8, 23), to) as u32),
        F64 => map_bits1::<u64, u64>(a, from, |b| reduce(b, layout(11, 52), to)),
        _ if from.is_small_float() => {
            // In f16, which holds all of them but one, as XLA does: what is subnormal there counts as such.
            let wide = if from == F8e8m0fnu { F32 } else { F16 };
            let kernels = (convert(from, wide), convert(wide, from));
            let (Some(widen), Some(narrow)) = kernels else { return Err(no_type("reduce-precision", from)) };
            narrow.apply(reduce_precision(widen.apply(a)?, exponent_bits, mantissa_bits)?)
        }
        _ => Err(no_type("reduce-precision", from)),
    }
}

#[inline]
fn reduce(bits: u64, from: Layout, to: Layout) -> u64 {
    let sign_bit = 1 << (from.exponent_bits + from.mantissa_bits);
    let exponent_mask = ((1 << from.exponent_bits) - 1) << from.mantissa_bits;
    let sign = bits & sign_bit;
    let mut magnitude = bits & (sign_bit - 1);
    if magnitude > exponent_mask {
        return bits;
    }
    if to.mantissa_bits < from.mantissa_bits {
        let dropped = from.mantissa_bits - to.mantissa_bits;
        let last_kept = (magnitude >> dropped) & 1;
        // Just below half a unit, and a whole half where the kept part is odd; a carry moves the exponent, as it should.
        magnitude = (magnitude + (1 << (dropped - 1)) - 1 + last_kept) >> dropped << dropped;
    }
    if to.exponent_bits < from.exponent_bits {
        let bias = (1u64 << (from.exponent_bits - 1)) - 1;
        let range = (1u64 << (to.exponent_bits - 1)) - 1;
        let exponent = magnitude >> from.mantissa_bits;
        if exponent > bias + range {
            magnitude = exponent_mask;
        } else if exponent <= bias - range {
            magnitude = 0;
        }
    }
    sign | magnitude
}

/// Floats to signed integers, rounded up with the probability that the fraction says: where it is greater than the
/// random number, read as a fraction. Saturating; NaN is 0.
pub(super) fn stochastic_convert(a: Array, random: Array, to: ElementType) -> Result<Array, ExecutionError> {
    let from = a.element_type();
    same_sizes(&a, &random)?;
    if !from.is_float() || !random.element_type().is_unsigned_integer() || !to.is_signed_integer() {
        return Err(ExecutionError::new(
            &codes::eval::UNSUPPORTED,
            format!("stochastic-convert of {from} with random numbers of {} to {to}", random.element_type()),
        )
        .note("it converts floats to signed integers by unsigned random numbers"));
    }
    let Some(widen) = convert(from, ElementType::F64) else { return Err(no_type("stochastic-convert", from)) };
    let values = widen.apply(a)?;
    let random_bits = random.element_type().bits();
    let max = i64::MAX >> (64 - to.bits());
    let mut r = Array::zeroed(to, values.dims())?;
    by_width!(random.element_type(), U => by_width!(to, R => {
        use super::element::Storage;
        let operands = values.elements::<f64>().iter().zip(random.elements::<U>());
        for (r, (&x, &u)) in r.elements_mut::<R>().iter_mut().zip(operands) {
            *r = R::narrow(stochastic_round(x, u.widen(), random_bits, max) as u128);
        }
    }));
    Ok(r)
}

fn stochastic_round(x: f64, random: u128, random_bits: u32, max: i64) -> i64 {
    let min = !max;
    if x.is_nan() {
        return 0;
    }
    if x >= max as f64 {
        return max;
    }
    if x <= min as f64 {
        return min;
    }
    let whole = x.abs().trunc();
    let fraction = ((x.abs() - whole) * 2f64.powi(random_bits as i32)) as u128;
    let magnitude = whole as i64 + i64::from(random < fraction);
    if x < 0.0 { -magnitude } else { magnitude.min(max) }
}

fn no_type(op: &str, t: ElementType) -> ExecutionError {
    ExecutionError::bug(format!("{op} does not take {t}"))
}
