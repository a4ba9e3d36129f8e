//! Steps that work element by element.

use super::Generator;
use super::body::Body;
use hloom_ir::attributes::{ComparisonDirection, ComparisonType, ResultAccuracy};
use hloom_ir::element_type::ElementType::{self, Pred, S32};
use hloom_ir::op::{BinaryOp, Op, UnaryOp};
use hloom_ir::shape::{ArrayShape, Shape};

/// Whether `op` can be applied to elements of type `t`.
fn unary_fits(op: UnaryOp, t: ElementType) -> bool {
    use UnaryOp::*;
    match op {
        Abs | Sign => t.is_signed_integer() || t.is_float() || t.is_complex(),
        Negate => t != Pred,
        Not => t == Pred || t.is_integer(),
        CountLeadingZeros | PopulationCount => t.is_integer(),
        Floor | Ceil | RoundNearestAfz | RoundNearestEven | Cbrt | Erf | IsFinite => t.is_float(),
        Real | Imag => t.is_complex(),
        _ => t.is_float() || t.is_complex(),
    }
}

/// The element type of `op`'s result.
fn unary_result(op: UnaryOp, t: ElementType) -> ElementType {
    match op {
        UnaryOp::IsFinite => Pred,
        UnaryOp::Abs | UnaryOp::Real | UnaryOp::Imag => t.component(),
        _ => t,
    }
}

/// Whether `op` can be applied to two arrays of type `t`.
fn binary_fits(op: BinaryOp, t: ElementType) -> bool {
    use BinaryOp::*;
    match op {
        And | Or | Xor => t == Pred || t.is_integer(),
        ShiftLeft | ShiftRightArithmetic | ShiftRightLogical | Mulhi => t.is_integer(),
        Atan2 => t.is_float(),
        Complex => t.complex().is_some(),
        Maximum | Minimum => !t.is_complex(),
        Add | Multiply => true,
        Subtract | Divide | Power => t != Pred,
        Remainder => t != Pred && !t.is_complex(),
    }
}

/// One array in, one out.
pub(super) fn unary(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find(body, |_| true)?;
    let fitting: Vec<_> = UnaryOp::ALL.iter().copied().filter(|&op| unary_fits(op, shape.element_type)).collect();
    let op = *g.choices.pick(&fitting);
    let accuracy =
        if op.takes_result_accuracy() && g.options.annotations { any_accuracy(g) } else { Default::default() };
    let result = shape.with_element_type(unary_result(op, shape.element_type));
    g.add(body, Op::Unary { op, accuracy }, result, [x]);
    Some(())
}

fn any_accuracy(g: &mut Generator<'_, '_>) -> ResultAccuracy {
    match g.choices.below(12) {
        10 => ResultAccuracy::Highest,
        11 => ResultAccuracy::Tolerance {
            atol: 0.5f64.to_bits(),
            rtol: (1.0 / (1 + g.choices.below(9)) as f64).to_bits(),
            ulps: g.choices.between(0, 9),
        },
        _ => ResultAccuracy::Default,
    }
}

/// Two arrays in, one out.
pub(super) fn binary(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (a, shape) = g.find(body, |_| true)?;
    let b = g.value_of(body, &shape);
    let t = shape.element_type;
    let fitting: Vec<_> = BinaryOp::ALL.iter().copied().filter(|&op| binary_fits(op, t)).collect();
    let op = *g.choices.pick(&fitting);
    let result = match (op, t.complex()) {
        (BinaryOp::Complex, Some(complex)) => shape.with_element_type(complex),
        _ => shape,
    };
    g.add(body, Op::Binary(op), result, [a, b]);
    Some(())
}

/// A comparison.
pub(super) fn compare(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    use ComparisonDirection::*;
    let (a, shape) = g.find(body, |_| true)?;
    let b = g.value_of(body, &shape);
    let t = shape.element_type;
    let direction = *if t.is_complex() { g.choices.pick(&[Eq, Ne]) } else { g.choices.pick(ComparisonDirection::ALL) };
    let kind = if t.is_float() {
        *g.choices.pick(&[None, None, Some(ComparisonType::Float), Some(ComparisonType::TotalOrder)])
    } else {
        None
    };
    g.add(body, Op::Compare { direction, kind }, shape.with_element_type(Pred), [a, b]);
    Some(())
}

/// Elements of one or the other array.
pub(super) fn select(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (a, shape) = g.find_static(body, |_| true)?;
    let b = g.value_of(body, &shape);
    let which = ArrayShape::new(Pred, shape.dims().iter().copied());
    let which = g.value_of(body, &which);
    g.add(body, Op::Select, shape, [which, a, b]);
    Some(())
}

/// Elements kept within bounds, which are arrays or scalars.
pub(super) fn clamp(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |a| !a.element_type.is_complex() && a.element_type != Pred)?;
    let bound = if g.choices.chance(50) { ArrayShape::new(shape.element_type, []) } else { shape.clone() };
    let (low, high) = (g.value_of(body, &bound), g.value_of(body, &bound));
    g.add(body, Op::Clamp, shape, [low, x, high]);
    Some(())
}

/// Another element type.
pub(super) fn convert(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find(body, |_| true)?;
    let complex = shape.element_type.is_complex();
    let to = g.type_where(shape.element_type, |t| t.is_complex() || !complex);
    g.add(body, Op::Convert, shape.with_element_type(to), [x]);
    Some(())
}

/// The same bits as another element type: as wide, or narrower with one more dimension.
pub(super) fn bitcast_convert(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let castable = |t: ElementType| t != Pred && !t.is_complex() && t.bits() != 6;
    let (x, shape) = g.find_static(body, |a| castable(a.element_type))?;
    let bits = shape.element_type.bits();
    let to = g.type_where(shape.element_type, |t| castable(t) && t.bits() <= bits);
    let mut dims = shape.dims().to_vec();
    if to.bits() < bits {
        dims.push(i64::from(bits / to.bits()));
    }
    if !g.is_small_enough(&dims) {
        return None;
    }
    g.add(body, Op::BitcastConvert, Shape::array(to, dims), [x]);
    Some(())
}

/// Fewer bits, for a moment.
pub(super) fn reduce_precision(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find(body, |a| a.element_type.is_float() && !a.element_type.is_small_float())?;
    let exponent_bits = g.choices.between(1, 8) as i32;
    let mantissa_bits = g.choices.between(0, 10) as i32;
    g.add(body, Op::ReducePrecision { exponent_bits, mantissa_bits }, shape, [x]);
    Some(())
}

/// A complex array put together and taken apart.
pub(super) fn complex_parts(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (re, shape) = g.find_static(body, |a| a.element_type.complex().is_some())?;
    let im = g.value_of(body, &shape);
    let complex = shape.element_type.complex().filter(|t| g.options.element_types.contains(t))?;
    let z = g.add(body, Op::Binary(BinaryOp::Complex), shape.with_element_type(complex), [re, im]);
    let part = if g.choices.chance(50) { UnaryOp::Real } else { UnaryOp::Imag };
    g.add(body, Op::unary(part), shape, [z]);
    Some(())
}

/// A scalar s32 among the values of `body`, or a small constant.
pub(super) fn index_scalar(g: &mut Generator<'_, '_>, body: &mut Body, limit: i64) -> hloom_ir::entity::InstructionId {
    if g.choices.chance(30)
        && let Some((found, _)) = g.find_static(body, |a| a.is_scalar() && a.element_type == S32)
    {
        return found;
    }
    let value = g.choices.between(0, limit.max(0));
    g.integer(body, S32, value)
}
