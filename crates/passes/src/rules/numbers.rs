//! Numbers that rules look at and make: constants repeated over an array, and the bounds of integers.

use super::{array, operand};
use hloom_ir::builder::Builder;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, ConstantValue, Op};
use hloom_ir::shape::ArrayShape;

/// A number of any type, exactly.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Number {
    /// Of an integer type, or of pred: 0 or 1.
    Int(i128),
    /// Of f16, bf16, f32 or f64.
    Float(f64),
}

impl Number {
    /// Whether it is that number; a zero of either sign is zero.
    pub(crate) fn is(self, value: i32) -> bool {
        match self {
            Number::Int(n) => n == i128::from(value),
            Number::Float(x) => x == f64::from(value),
        }
    }

    pub(crate) fn int(self) -> Option<i128> {
        match self {
            Number::Int(n) => Some(n),
            Number::Float(_) => None,
        }
    }

    pub(crate) fn float(self) -> Option<f64> {
        match self {
            Number::Float(x) => Some(x),
            Number::Int(_) => None,
        }
    }

    /// Whether it is the zero that leaves every number as it is when added: of floats that is -0.
    pub(crate) fn is_neutral_zero(self) -> bool {
        match self {
            Number::Int(n) => n == 0,
            Number::Float(x) => x == 0.0 && x.is_sign_negative(),
        }
    }
}

/// The number in one element of a literal.
fn number_of(element_type: ElementType, bytes: &[u8]) -> Option<Number> {
    use ElementType::{Bf16, F16, F32, F64, Pred};
    Some(match element_type {
        F64 => Number::Float(f64::from_le_bytes(bytes.try_into().ok()?)),
        F32 => Number::Float(f32::from_le_bytes(bytes.try_into().ok()?).into()),
        F16 => Number::Float(half::f16::from_le_bytes(bytes.try_into().ok()?).into()),
        Bf16 => Number::Float(half::bf16::from_le_bytes(bytes.try_into().ok()?).into()),
        Pred => Number::Int(i128::from(*bytes.first()? != 0)),
        t if t.is_integer() => {
            let negative = t.is_signed_integer() && bytes.last()? & 0x80 != 0;
            let mut wide = [if negative { 0xff } else { 0 }; 16];
            wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
            Number::Int(i128::from_le_bytes(wide))
        }
        _ => return None,
    })
}

/// The number that every element of `i` is: of a constant of one element, or of one that is repeated.
pub(crate) fn splat(module: &Module, i: InstructionId) -> Option<Number> {
    let i = if let Op::Broadcast { .. } = module[i].op { operand(module, i, 0)? } else { i };
    let Op::Constant(ConstantValue::Literal(literal)) = &module[i].op else { return None };
    let array = literal.as_array().filter(|a| a.bytes().len() == a.element_type().bytes())?;
    number_of(array.element_type(), array.bytes())
}

/// The operands of `i`, which has two, with the number that the second is.
pub(crate) fn with_number(module: &Module, i: InstructionId) -> Option<(InstructionId, Number)> {
    let &[x, c] = module[i].operands() else { return None };
    Some((x, splat(module, c)?))
}

/// A scalar of that number, as far as the type has it.
pub(crate) fn scalar(b: &mut Builder<'_>, element_type: ElementType, number: Number) -> Option<InstructionId> {
    use ElementType::{Bf16, F16, F32, F64};
    let literal = match (element_type, number) {
        (F64, Number::Float(x)) => Literal::scalar(x),
        (F32, Number::Float(x)) => Literal::scalar(x as f32),
        (F16, Number::Float(x)) => Literal::scalar(half::f16::from_f64(x)),
        (Bf16, Number::Float(x)) => Literal::scalar(half::bf16::from_f64(x)),
        (t, Number::Int(n)) if t == ElementType::Pred || t.is_integer() => {
            let spare = 128 - t.bits();
            let n = match t {
                ElementType::Pred => i128::from(n != 0),
                t if t.is_signed_integer() => n << spare >> spare,
                _ => ((n as u128) << spare >> spare) as i128,
            };
            let bytes = n.to_le_bytes()[..t.bytes()].to_vec();
            Literal::Array(ArrayLiteral::new(ArrayShape::new(t, []).with_default_layout(), bytes).ok()?)
        }
        _ => return None,
    };
    b.literal(literal).ok()
}

/// An array of those sizes, every element of which is that number.
pub(crate) fn filled(
    b: &mut Builder<'_>,
    element_type: ElementType,
    dims: &[i64],
    number: Number,
) -> Option<InstructionId> {
    let scalar = scalar(b, element_type, number)?;
    if dims.is_empty() { Some(scalar) } else { b.broadcast(scalar, dims.iter().copied(), []).ok() }
}

/// An array like `i`, every element of which is that number.
pub(crate) fn filled_like(module: &mut Module, i: InstructionId, number: Number) -> Option<InstructionId> {
    let like = array(module, i)?;
    let (element_type, dims) = (like.element_type, DimVec::from(like.dims()));
    filled(&mut super::beside(module, i), element_type, &dims, number)
}

/// The least and the greatest number of an integer type.
pub(crate) fn type_bounds(element_type: ElementType) -> Option<(i128, i128)> {
    let bits = element_type.bits();
    match element_type {
        ElementType::Pred => Some((0, 1)),
        t if t.is_signed_integer() => Some((-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)),
        t if t.is_unsigned_integer() => Some((0, (1i128 << bits) - 1)),
        _ => None,
    }
}

/// Of larger constants the elements are not looked at.
const MAX_LOOKED_AT: usize = 16;
/// How far back bounds are looked for.
const DEPTH: usize = 6;

/// Bounds of the integers that `i` makes, as far as they are seen at once.
pub(crate) fn bounds(module: &Module, i: InstructionId) -> Option<(i128, i128)> {
    bounds_within(module, i, DEPTH)
}

fn bounds_within(module: &Module, i: InstructionId, depth: usize) -> Option<(i128, i128)> {
    let shape = array(module, i)?;
    let whole = type_bounds(shape.element_type)?;
    if depth == 0 {
        return Some(whole);
    }
    let of = |n: usize| operand(module, i, n).and_then(|o| bounds_within(module, o, depth - 1));
    let found = match &module[i].op {
        Op::Constant(ConstantValue::Literal(literal)) => {
            let array = literal.as_array().filter(|a| !a.is_empty() && a.len() <= MAX_LOOKED_AT)?;
            let number = |n: usize| number_of(array.element_type(), array.element(n)).and_then(Number::int);
            let numbers = (0..array.len()).map(number).collect::<Option<Vec<i128>>>()?;
            numbers.iter().min().copied().zip(numbers.iter().max().copied())
        }
        Op::Iota { dimension } => {
            let size = i128::from(*shape.dims().get(usize::try_from(*dimension).ok()?)?);
            Some((0, (size - 1).max(0))).filter(|b| is_within(*b, whole))
        }
        Op::Broadcast { .. }
        | Op::Reshape { .. }
        | Op::Transpose { .. }
        | Op::Reverse { .. }
        | Op::Slice { .. }
        | Op::Copy
        | Op::DynamicSlice { .. } => of(0),
        Op::Convert => of(0).filter(|b| is_within(*b, whole)),
        Op::Clamp => match (of(0), of(2)) {
            (Some(low), Some(high)) if low.1 <= high.0 => Some((low.0, high.1)),
            _ => None,
        },
        Op::Select => match (of(1), of(2)) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            _ => None,
        },
        Op::Binary(op) => match (of(0), of(1)) {
            (Some(a), Some(b)) => binary_bounds(*op, a, b).filter(|b| is_within(*b, whole)),
            _ => None,
        },
        _ => None,
    };
    Some(found.unwrap_or(whole))
}

fn is_within(inner: (i128, i128), outer: (i128, i128)) -> bool {
    outer.0 <= inner.0 && inner.1 <= outer.1
}

fn binary_bounds(op: BinaryOp, a: (i128, i128), b: (i128, i128)) -> Option<(i128, i128)> {
    match op {
        BinaryOp::Add => Some((a.0.checked_add(b.0)?, a.1.checked_add(b.1)?)),
        BinaryOp::Subtract => Some((a.0.checked_sub(b.1)?, a.1.checked_sub(b.0)?)),
        BinaryOp::Multiply if a.0 >= 0 && b.0 >= 0 => Some((a.0.checked_mul(b.0)?, a.1.checked_mul(b.1)?)),
        BinaryOp::Maximum => Some((a.0.max(b.0), a.1.max(b.1))),
        BinaryOp::Minimum => Some((a.0.min(b.0), a.1.min(b.1))),
        BinaryOp::And if a.0 >= 0 && b.0 >= 0 => Some((0, a.1.min(b.1))),
        BinaryOp::Remainder if a.0 >= 0 && b.0 > 0 => Some((0, a.1.min(b.1 - 1))),
        BinaryOp::Divide if a.0 >= 0 && b.0 > 0 => Some((a.0 / b.1, a.1 / b.0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_ir::shape::Shape;

    #[test]
    fn numbers_keep_their_value_in_every_type() {
        let mut module = Module::new("m");
        let mut b = Builder::new(&mut module, "main");
        let mut back = |t, number| {
            let i = scalar(&mut b, t, number).unwrap();
            splat(b.module(), i)
        };
        for t in ElementType::ALL.into_iter().filter(|t| t.is_integer()) {
            let (least, most) = type_bounds(t).unwrap();
            assert_eq!(back(t, Number::Int(least)), Some(Number::Int(least)), "{t}");
            assert_eq!(back(t, Number::Int(most)), Some(Number::Int(most)), "{t}");
            assert_eq!(back(t, Number::Int(most + 1)), Some(Number::Int(least)), "{t} wraps");
        }
        for t in [ElementType::F16, ElementType::Bf16, ElementType::F32, ElementType::F64] {
            assert_eq!(back(t, Number::Float(-2.5)), Some(Number::Float(-2.5)));
            assert!(back(t, Number::Float(-0.0)).unwrap().is_neutral_zero());
            assert!(!back(t, Number::Float(0.0)).unwrap().is_neutral_zero());
        }
    }

    #[test]
    fn bounds_of_counts_and_remainders() {
        let mut module = Module::new("m");
        let mut b = Builder::new(&mut module, "main");
        let count = b.iota(Shape::array(ElementType::S32, [10]), 0).unwrap();
        let x = b.parameter(0, Shape::array(ElementType::U32, [10]), "x").unwrap();
        let seven = filled(&mut b, ElementType::U32, &[10], Number::Int(7)).unwrap();
        let rest = b.remainder(x, seven).unwrap();
        let twice = b.add(count, count).unwrap();
        let wrapped = b.add(x, x).unwrap();
        assert_eq!(bounds(b.module(), count), Some((0, 9)));
        assert_eq!(bounds(b.module(), rest), Some((0, 6)));
        assert_eq!(bounds(b.module(), twice), Some((0, 18)));
        assert_eq!(bounds(b.module(), wrapped), Some((0, i128::from(u32::MAX))));
    }
}
