//! Bitcasts between types of different width, written out in shifts: the narrow side has one more dimension, its last, in
//! which the low bits come first.

use super::numbers::{Number, filled};
use super::{array, beside, dims, operand};
use crate::rewrite::Rule;
use hloom_ir::element_type::ElementType::{self, U1, U2, U4, U8, U16, U32, U64};
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op};
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::ArrayShape;

/// The rules.
pub(super) static RULES: &[Rule] = &[Rule {
    name: "bitcast-between-widths",
    statement: "bitcast-convert to a narrower type → the bits shifted and cut; to a wider type → the parts shifted and joined",
    opcodes: &[Opcode::BitcastConvert],
    apply: bitcast,
}];

/// The integers of as many bits.
fn bits_of(t: ElementType) -> Option<ElementType> {
    (t != ElementType::Pred && !t.is_complex()).then_some(())?;
    [U1, U2, U4, U8, U16, U32, U64].into_iter().find(|u| u.bits() == t.bits())
}

fn bitcast(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::BitcastConvert = module[i].op else { return None };
    let x = operand(module, i, 0)?;
    let (from, to) = (array(module, x)?.element_type, array(module, i)?.element_type);
    let (from_bits, to_bits) = (bits_of(from)?, bits_of(to)?);
    (from.bits() != to.bits()).then_some(())?;
    let (from_dims, to_dims) = (DimVec::from(dims(module, x)?), DimVec::from(dims(module, i)?));
    let (wide, parts) = if from.bits() > to.bits() { (from_bits, &to_dims) } else { (to_bits, &from_dims) };
    let narrow = from.bits().min(to.bits());
    let last = parts.len().checked_sub(1)?;
    let mut b = beside(module, i);
    let as_type = |b: &mut hloom_ir::builder::Builder<'_>, x, t, dims: &DimVec| {
        let shape = ArrayShape::new(t, dims.iter().copied()).with_default_layout();
        if b.shape(x).element_type() == Some(t) { Some(x) } else { b.push_shaped(Op::BitcastConvert, &[x], shape).ok() }
    };
    let x = as_type(&mut b, x, from_bits, &from_dims)?;
    let places = b.iota(ArrayShape::new(wide, parts.iter().copied()).with_default_layout(), last as i64).ok()?;
    let width = filled(&mut b, wide, parts, Number::Int(narrow.into()))?;
    let shifts = b.multiply(places, width).ok()?;
    let result = if from.bits() > to.bits() {
        let whole = b.broadcast(x, parts.iter().copied(), 0..last as i64).ok()?;
        let shifted = b.shift_right_logical(whole, shifts).ok()?;
        b.convert(shifted, to_bits).ok()?
    } else {
        let widened = b.convert(x, wide).ok()?;
        let shifted = b.shift_left(widened, shifts).ok()?;
        let zero = b.literal(Literal::zero(wide)).ok()?;
        let or = b.reducer(BinaryOp::Or, wide).ok()?;
        b.reduce(shifted, zero, [last as i64], or).ok()?
    };
    as_type(&mut b, result, to, &to_dims)
}
