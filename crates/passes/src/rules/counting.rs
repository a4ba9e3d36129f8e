//! Arrays that count, and constants that repeat: each in the simplest form, since both cost nothing to make.

use super::numbers::{Number, filled_like, type_bounds};
use super::{array, beside, dims, inverse, operand};
use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::module::Module;
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::ArrayShape;

/// The pass.
pub static PASS: Pass = Pass {
    name: "simplify-counting",
    statement: "makes one counting array of one that was moved, repeated or converted, and broadcasts of constants that repeat",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[RULES])),
};

/// The rules.
pub static RULES: &[Rule] = &[
    Rule {
        name: "constant-of-one-value",
        statement: "a constant all of whose elements are the same → broadcast of a scalar",
        opcodes: &[Opcode::Constant],
        apply: constant_of_one_value,
    },
    Rule {
        name: "size-of-static",
        statement: "get-dimension-size of an array of static sizes → that size",
        opcodes: &[Opcode::GetDimensionSize],
        apply: size_of_static,
    },
    Rule {
        name: "iota-of-one",
        statement: "iota along a dimension of size 1 → broadcast(0)",
        opcodes: &[Opcode::Iota],
        apply: iota_of_one,
    },
    Rule {
        name: "iota-moved",
        statement: "a broadcast or transpose of iota → iota; a reshape that only adds or drops dimensions of size 1, too",
        opcodes: &[Opcode::Broadcast, Opcode::Transpose, Opcode::Reshape],
        apply: iota_moved,
    },
    Rule {
        name: "iota-converted",
        statement: "convert(iota) → iota, where both types have all of its numbers",
        opcodes: &[Opcode::Convert],
        apply: iota_converted,
    },
];

fn size_of_static(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::GetDimensionSize { dimension } = module[i].op else { return None };
    let shape = array(module, operand(module, i, 0)?).filter(|a| !a.is_dynamic())?;
    let size = *shape.dims().get(usize::try_from(dimension).ok()?)?;
    (array(module, i)?.element_type == ElementType::S32).then_some(())?;
    beside(module, i).constant(i32::try_from(size).ok()?).ok()
}

fn constant_of_one_value(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Constant(ConstantValue::Literal(literal)) = &module[i].op else { return None };
    let array = literal.as_array().filter(|a| a.len() > 1 && !a.shape().is_dynamic())?;
    let (element_type, first) = (array.element_type(), array.element(0));
    array.bytes().chunks_exact(first.len()).all(|e| e == first).then_some(())?;
    let shape = ArrayShape::new(element_type, []).with_default_layout();
    let scalar = Literal::Array(ArrayLiteral::new(shape, first).ok()?);
    let to = DimVec::from(dims(module, i)?);
    let mut b = beside(module, i);
    let scalar = b.literal(scalar).ok()?;
    b.broadcast(scalar, to, []).ok()
}

/// The dimension along which `i` counts, if that is all it does.
fn counts_along(module: &Module, i: InstructionId) -> Option<i64> {
    match module[i].op {
        Op::Iota { dimension } => Some(dimension),
        _ => None,
    }
}

fn iota_of_one(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let along = usize::try_from(counts_along(module, i)?).ok()?;
    (dims(module, i)?.get(along) == Some(&1)).then_some(())?;
    let zero = if array(module, i)?.element_type.is_float() { Number::Float(0.0) } else { Number::Int(0) };
    filled_like(module, i, zero)
}

fn iota_moved(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let x = operand(module, i, 0)?;
    let along = counts_along(module, x)?;
    let to = match &module[i].op {
        Op::Broadcast { dimensions } => *dimensions.get(along as usize)?,
        Op::Transpose { dimensions } => *inverse(dimensions)?.get(along as usize)?,
        Op::Reshape { .. } => {
            let (from, to) = (dims(module, x)?, dims(module, i)?);
            let large = |dims: &[i64]| (0..dims.len()).filter(|&d| dims[d] != 1).collect::<Vec<usize>>();
            let (before, after) = (large(from), large(to));
            let same = before.iter().map(|&d| from[d]).eq(after.iter().map(|&d| to[d]));
            let place = before.iter().position(|&d| d as i64 == along).filter(|_| same)?;
            *after.get(place)? as i64
        }
        _ => return None,
    };
    let shape = array(module, i)?.clone().with_default_layout();
    beside(module, i).iota(shape, to).ok()
}

/// The greatest integer up to which a type has all of them.
fn counts_to(element_type: ElementType) -> Option<i128> {
    use ElementType::{Bf16, F16, F32, F64};
    Some(match element_type {
        F16 => 1 << 11,
        Bf16 => 1 << 8,
        F32 => 1 << 24,
        F64 => 1 << 53,
        t if t.is_integer() => type_bounds(t)?.1,
        _ => return None,
    })
}

fn iota_converted(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let x = operand(module, i, 0)?;
    let along = counts_along(module, x)?;
    let last = i128::from(*dims(module, x)?.get(along as usize)?) - 1;
    let (from, to) = (array(module, x)?.element_type, array(module, i)?.element_type);
    (last <= counts_to(from)? && last <= counts_to(to)?).then_some(())?;
    let shape = array(module, i)?.clone().with_default_layout();
    beside(module, i).iota(shape, along).ok()
}
