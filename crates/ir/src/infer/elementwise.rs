//! Operations on each element: unary and binary ones, comparisons, select, clamp and conversions.

use super::common::{
    Dims, Site, array_text, at_attribute, error, higher_precision, merge_dim, same_dims, same_size, same_type_or_floats,
};
use super::{Inferred, Result1, ShapeError};
use crate::diagnostic::Part;
use crate::diagnostic::codes::infer as codes;
use crate::element_type::ElementType;
use crate::op::{BinaryOp, Op, UnaryOp};
use crate::shape::{ArrayShape, Shape};

pub(super) fn unary<'a>(s: &Site<'a>, op: UnaryOp) -> Result1<'a> {
    use UnaryOp::*;
    let array = s.array(0)?;
    let t = array.element_type;
    let (accepted, wanted) = match op {
        Floor | Cbrt | Ceil | Erf | RoundNearestAfz | RoundNearestEven | IsFinite => (t.is_float(), "floating-point"),
        Acos | Acosh | Asin | Asinh | Atanh | Cosine | Cosh | Exponential | ExponentialMinusOne | Imag | Log
        | LogPlusOne | Logistic | Real | Rsqrt | Sine | Sinh | Sqrt | Tan | Tanh => {
            (t.is_float() || t.is_complex(), "floating-point or complex")
        }
        Abs | Sign => {
            (t.is_signed_integer() || t.is_float() || t.is_complex(), "signed integer, floating-point or complex")
        }
        Negate => (t != ElementType::Pred, "integer, floating-point or complex"),
        CountLeadingZeros | PopulationCount => (t.is_integer(), "integer"),
        Not => (t == ElementType::Pred || t.is_integer(), "pred or integer"),
    };
    if !accepted {
        return Err(s.element_type_error(0, t, wanted));
    }
    Ok(match op {
        IsFinite => Inferred::Typed(array, ElementType::Pred),
        Abs | Real | Imag => Inferred::Typed(array, t.component()),
        _ => Inferred::Like(s.shape(0)?),
    })
}

pub(super) fn binary<'a>(s: &Site<'a>, op: BinaryOp) -> Result1<'a> {
    use BinaryOp::*;
    let (lhs, rhs) = (s.array(0)?, s.array(1)?);
    let t = lhs.element_type;
    if !same_type_or_floats(t, rhs.element_type) {
        return Err(s.element_types_differ(0, 1));
    }
    let (accepted, wanted) = match op {
        Add | Maximum | Minimum | Multiply => (true, ""),
        Subtract | Power | Divide | Remainder => (t != ElementType::Pred, "numeric"),
        Mulhi | ShiftLeft | ShiftRightArithmetic | ShiftRightLogical => (t.is_integer(), "integer"),
        Atan2 => (t.is_float() || t.is_complex(), "floating-point or complex"),
        And | Or | Xor => (t == ElementType::Pred || t.is_integer(), "pred or integer"),
        Complex => (t.complex().is_some() && rhs.element_type == t, "f32 or f64"),
    };
    if !accepted {
        return Err(s.element_type_error(0, t, wanted));
    }
    let combined = combine(s, 0, 1)?;
    Ok(match (op, t.complex(), combined) {
        (Complex, Some(complex), Inferred::Array(a)) => Inferred::Array(a.with_element_type(complex)),
        (Complex, Some(complex), _) => Inferred::Typed(lhs, complex),
        (_, _, combined) => combined,
    })
}

/// What comes of combining operands `i` and `j`, whose element types go together, element by element.
fn combine<'a>(s: &Site<'a>, i: usize, j: usize) -> Result1<'a> {
    let (a, b) = (s.array(i)?, s.array(j)?);
    if a.element_type == b.element_type && a.equal_ignoring_layout(b) {
        return Ok(Inferred::Like(s.shape(i)?));
    }
    if !same_dims(a, b) {
        return Err(s.dimensions_differ(i, j));
    }
    Ok(merge(a, b).inferred(higher_precision(a.element_type, b.element_type)))
}

/// The dimensions of two arrays that fit each other.
fn merge(a: &ArrayShape, b: &ArrayShape) -> Dims {
    let mut dims = Dims::default();
    for (d, (&x, &y)) in a.dims().iter().zip(b.dims()).enumerate() {
        let x = (x, a.is_dynamic_dim(d));
        let (size, dynamic) = merge_dim(x, (y, b.is_dynamic_dim(d))).unwrap_or(x);
        dims.push(size, dynamic);
    }
    dims
}

pub(super) fn compare<'a>(s: &Site<'a>) -> Result1<'a> {
    let (lhs, rhs) = (s.array(0)?, s.array(1)?);
    if !same_type_or_floats(lhs.element_type, rhs.element_type) {
        return Err(s.element_types_differ(0, 1));
    }
    Ok(match combine(s, 0, 1)? {
        Inferred::Array(a) => Inferred::Array(a.with_element_type(ElementType::Pred)),
        _ => Inferred::Typed(lhs, ElementType::Pred),
    })
}

pub(super) fn select<'a>(s: &Site<'a>) -> Result1<'a> {
    let (pred, on_true, on_false) = (s.array(0)?, s.array(1)?, s.array(2)?);
    if pred.element_type != ElementType::Pred {
        return Err(s.element_type_error(0, pred.element_type, "pred"));
    }
    if !same_type_or_floats(on_true.element_type, on_false.element_type) {
        return Err(s.element_types_differ(1, 2));
    }
    let chosen = combine(s, 1, 2)?;
    if pred.is_scalar() {
        return Ok(chosen);
    }
    if !same_dims(pred, on_true) {
        return Err(s.dimensions_differ(0, 1));
    }
    if !pred.is_dynamic() {
        return Ok(chosen);
    }
    let chosen = match chosen {
        Inferred::Array(a) => a,
        _ => on_true.clone(),
    };
    Ok(merge(pred, &chosen).inferred(chosen.element_type))
}

pub(super) fn clamp<'a>(s: &Site<'a>) -> Result1<'a> {
    let operand = s.array(1)?;
    for bound in [0, 2] {
        let array = s.array(bound)?;
        if !same_type_or_floats(array.element_type, operand.element_type) {
            return Err(s.element_types_differ(1, bound));
        }
        if !array.is_scalar() && !same_dims(array, operand) {
            return Err(s.dimensions_differ(1, bound));
        }
    }
    Ok(Inferred::Like(s.shape(1)?))
}

pub(super) fn convert<'a>(s: &Site<'a>) -> Result1<'a> {
    let (operand, declared) = (s.array(0)?, s.declared_array()?);
    if !same_dims(operand, declared) {
        return Err(keeps_dimensions(s, operand, declared));
    }
    Ok(Inferred::Typed(operand, declared.element_type))
}

fn keeps_dimensions(s: &Site<'_>, operand: &ArrayShape, declared: &ArrayShape) -> ShapeError {
    let message = format!(
        "{} keeps the dimensions of its operand {}, but the result is {}",
        s.name(),
        array_text(operand),
        array_text(declared)
    );
    error(&codes::SHAPE_MISMATCH, Part::Shape, message)
}

pub(super) fn bitcast_convert<'a>(s: &Site<'a>) -> Result1<'a> {
    let (operand, declared) = (s.array(0)?, s.declared_array()?);
    let (from, to) = (operand.element_type, declared.element_type);
    if from.is_complex() != to.is_complex() {
        let message = format!("{} cannot turn {from} into {to}: only one of them is complex", s.name());
        return Err(error(&codes::ELEMENT_TYPE, Part::Shape, message));
    }
    if from.bits() == to.bits() {
        if !same_dims(operand, declared) {
            return Err(keeps_dimensions(s, operand, declared));
        }
        return Ok(Inferred::Typed(operand, to));
    }
    let (wide, narrow) = (from.bits().max(to.bits()), from.bits().min(to.bits()));
    if wide % narrow != 0 {
        let message = format!("{} cannot turn {from} into {to}: {narrow} bits do not divide {wide}", s.name());
        return Err(error(&codes::ELEMENT_TYPE, Part::Shape, message));
    }
    let ratio = i64::from(wide / narrow);
    let mut dims = Dims::default();
    if from.bits() > to.bits() {
        dims = Dims::of(operand);
        dims.push(ratio, false);
    } else {
        let Some((&last, rest)) = operand.dims().split_last().filter(|(last, _)| same_size(**last, ratio)) else {
            let message = format!(
                "{} joins {ratio} elements of {from} into one {to}, so the last dimension must be {ratio}: {}",
                s.name(),
                array_text(operand)
            );
            return Err(error(&codes::DIMENSIONS_DIFFER, Part::Operand(0), message));
        };
        debug_assert!(same_size(last, ratio));
        for d in 0..rest.len() {
            dims.push_from(operand, d);
        }
    }
    let result = dims.array(to);
    if !same_dims(&result, declared) {
        return Err(s.mismatch(format_args!("{}, not {}", array_text(&result), array_text(declared))));
    }
    Ok(Inferred::Array(result))
}

pub(super) fn stochastic_convert<'a>(s: &Site<'a>) -> Result1<'a> {
    let (operand, random, declared) = (s.array(0)?, s.array(1)?, s.declared_array()?);
    if !operand.element_type.is_float() {
        return Err(s.element_type_error(0, operand.element_type, "floating-point"));
    }
    let (bits, t) = (operand.element_type.bits(), random.element_type);
    if !t.is_unsigned_integer() || t.bits() != bits {
        return Err(s.element_type_error(1, t, "unsigned integer, as wide as operand 0,"));
    }
    if !same_dims(operand, random) {
        return Err(s.dimensions_differ(0, 1));
    }
    if !same_dims(operand, declared) {
        return Err(keeps_dimensions(s, operand, declared));
    }
    Ok(Inferred::Typed(operand, declared.element_type))
}

pub(super) fn reduce_precision<'a>(s: &Site<'a>, exponent_bits: i32, mantissa_bits: i32) -> Result1<'a> {
    let t = s.array(0)?.element_type;
    if !t.is_float() {
        return Err(s.element_type_error(0, t, "floating-point"));
    }
    if exponent_bits < 1 {
        let message = format!("exponent_bits must be at least 1, but is {exponent_bits}");
        return Err(at_attribute(&codes::ATTRIBUTE_VALUE, "exponent_bits", message));
    }
    if mantissa_bits < 0 {
        let message = format!("mantissa_bits must not be negative, but is {mantissa_bits}");
        return Err(at_attribute(&codes::ATTRIBUTE_VALUE, "mantissa_bits", message));
    }
    Ok(Inferred::Like(s.shape(0)?))
}

/// Refuses operands of different floating-point types, but for operations that may mix them.
pub(super) fn check_mixed_precision(s: &Site<'_>) -> Result<(), ShapeError> {
    if s.operands.len() < 2 {
        return Ok(());
    }
    match s.op {
        Op::Call { .. }
        | Op::Conditional { .. }
        | Op::Convolution(_)
        | Op::Dot(_)
        | Op::RaggedDot(_)
        | Op::ScaledDot(_)
        | Op::AllReduce(_)
        | Op::AllReduceStart(_)
        | Op::AllGather(_)
        | Op::AllGatherStart(_)
        | Op::ReduceScatter(_)
        | Op::CollectiveReduce(_)
        | Op::CollectiveBroadcast { .. }
        | Op::CollectivePermute(_)
        | Op::CollectivePermuteStart(_)
        | Op::AsyncStart(_)
        | Op::AsyncUpdate { .. }
        | Op::CustomCall(_)
        | Op::Fusion(_)
        | Op::Map { .. }
        | Op::Outfeed { .. }
        | Op::Send(_)
        | Op::Reduce { .. }
        | Op::ReduceWindow { .. }
        | Op::Scan(_)
        | Op::Scatter(_)
        | Op::Sort { .. }
        | Op::AfterAll
        | Op::AddDependency
        | Op::Tuple => return Ok(()),
        _ => {}
    }
    let mut first: Option<ElementType> = None;
    for (i, &operand) in s.operands.iter().enumerate() {
        let Shape::Array(array) = &s.module[operand].shape else { continue };
        let t = array.element_type;
        if !t.is_float() || first.is_none_or(|f| f == t) {
            first = first.or(t.is_float().then_some(t));
            continue;
        }
        let other = first.unwrap_or(t);
        let message = format!("{} mixes {other} and {t}; convert one of them first", s.name());
        return Err(error(&codes::MIXED_PRECISION, Part::Operand(i), message));
    }
    Ok(())
}
