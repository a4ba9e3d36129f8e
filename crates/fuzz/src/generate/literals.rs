//! Random literals.
//!
//! The bytes of every element are ones that its type can have: 0 or 1 for pred, sign-extended or zero-extended for types
//! narrower than a byte. Among floats are zeros of both signs, infinities, NaNs, subnormals and the largest numbers.

use crate::choices::Choices;
use hloom_eval::ops::elementwise::convert;
use hloom_ir::element_type::ElementType;
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_value::Array;

/// A random value of that shape. Shapes that have no literals (opaque, buffers, dynamic arrays) give a token.
pub fn literal_of(choices: &mut Choices<'_>, shape: &Shape) -> Literal {
    match shape {
        Shape::Array(a) => array(choices, a),
        Shape::Tuple(t) => Literal::Tuple(t.iter().map(|s| literal_of(choices, s)).collect()),
        Shape::Token | Shape::Opaque | Shape::Buffer(_) => Literal::Token,
    }
}

fn array(choices: &mut Choices<'_>, shape: &ArrayShape) -> Literal {
    let count = shape.element_count().unwrap_or(0);
    let mut bytes = Vec::new();
    for _ in 0..count {
        element(choices, shape.element_type, &mut bytes);
    }
    ArrayLiteral::new(shape.clone(), bytes).map_or(Literal::Token, Literal::Array)
}

/// The integer scalar `value`, cut to the type of `shape`.
pub(super) fn integer_scalar(shape: &Shape, value: i64) -> Literal {
    let Shape::Array(a) = shape else { return Literal::Token };
    let mut bytes = Vec::new();
    integer(a.element_type, value, &mut bytes);
    ArrayLiteral::new(a.clone(), bytes).map_or(Literal::Token, Literal::Array)
}

fn element(choices: &mut Choices<'_>, t: ElementType, bytes: &mut Vec<u8>) {
    if t == ElementType::Pred {
        bytes.push(choices.below(2) as u8);
    } else if t.is_integer() {
        let value = match choices.below(if choices.ordinary_numbers() { 3 } else { 4 }) {
            0 | 1 => choices.between(0, 9),
            2 => choices.between(-128, 127),
            _ => choices.bits() as i64,
        };
        integer(t, value, bytes);
    } else if t.is_complex() {
        element(choices, t.component(), bytes);
        element(choices, t.component(), bytes);
    } else {
        float(choices, t, bytes);
    }
}

/// The low bits of `value`, extended to whole bytes as the type wants it.
fn integer(t: ElementType, value: i64, bytes: &mut Vec<u8>) {
    let spare = 64 - t.bits();
    let value = if t.is_signed_integer() { value << spare >> spare } else { ((value as u64) << spare >> spare) as i64 };
    bytes.extend_from_slice(&value.to_le_bytes()[..t.bytes()]);
}

fn float(choices: &mut Choices<'_>, t: ElementType, bytes: &mut Vec<u8>) {
    let tame = choices.between(-16, 16) as f32 / 4.0;
    if choices.ordinary_numbers() {
        let narrowed = Array::scalar(ElementType::F32, tame).and_then(|number| convert(number, t));
        bytes.extend_from_slice(narrowed.map_or(vec![0; t.bytes()], |n| n.bytes().to_vec()).as_slice());
        return;
    }
    let wild = choices.below(6) == 5;
    let bits = match t {
        ElementType::F32 if !wild => u64::from(tame.to_bits()),
        ElementType::F64 if !wild => f64::from(tame).to_bits(),
        // The upper half of an f32 is the same number as a bf16, for numbers with few digits.
        ElementType::Bf16 if !wild => u64::from(tame.to_bits() >> 16),
        ElementType::F32 => *choices.pick(&[0x8000_0000, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 1, 0x7f7f_ffff]),
        ElementType::F64 => {
            *choices.pick(&[1 << 63, 0x7ff0 << 48, 0xfff0 << 48, 0x7ff8 << 48, 1, 0x7fef_ffff_ffff_ffff])
        }
        _ => choices.bits(),
    };
    let bits = if wild && choices.chance(50) { choices.bits() } else { bits };
    let bits = bits & (u64::MAX >> (64 - t.bits()));
    bytes.extend_from_slice(&bits.to_le_bytes()[..t.bytes()]);
}
