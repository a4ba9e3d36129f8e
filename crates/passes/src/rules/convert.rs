//! Conversions that do nothing, or that are one.

use super::{array, beside, operand};
use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;

/// The pass.
pub static PASS: Pass = Pass {
    name: "simplify-converts",
    statement: "drops conversions to the same type and joins those that lose nothing with the next",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[RULES])),
};

/// The rules.
pub static RULES: &[Rule] = &[
    Rule {
        name: "same-type",
        statement: "convert(x) to the type of x → x",
        opcodes: &[Opcode::Convert],
        apply: same_type,
    },
    Rule {
        name: "convert-of-exact-convert",
        statement: "convert(convert(x)), where the inner one loses nothing → convert(x)",
        opcodes: &[Opcode::Convert],
        apply: convert_of_exact_convert,
    },
    Rule {
        name: "bitcast-convert-of-bitcast-convert",
        statement: "bitcast-convert(bitcast-convert(x)) → bitcast-convert(x), which is x where it is of that type",
        opcodes: &[Opcode::BitcastConvert],
        apply: bitcast_convert_twice,
    },
    Rule {
        name: "precision-kept",
        statement: "reduce-precision to no less than the type has → its operand",
        opcodes: &[Opcode::ReducePrecision],
        apply: precision_kept,
    },
];

fn same_type(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let x = operand(module, i, 0)?;
    (array(module, x)?.element_type == array(module, i)?.element_type).then_some(x)
}

fn convert_of_exact_convert(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let Op::Convert = module[inner].op else { return None };
    let x = operand(module, inner, 0)?;
    let (from, between) = (array(module, x)?.element_type, array(module, inner)?.element_type);
    let to = array(module, i)?.element_type;
    is_exact(from, between).then_some(())?;
    // A float that an integer type lacks becomes the nearest integer it has, an integer the one with the same low bits.
    let saturates = between.is_float() && !from.is_float() && !to.is_float();
    (!saturates || is_exact(from, to)).then_some(())?;
    if from == to { Some(x) } else { beside(module, i).convert(x, to).ok() }
}

fn bitcast_convert_twice(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let is_same = |a: InstructionId| {
        let (a, b) = (array(module, a)?, array(module, i)?);
        a.same_dims_and_type(b).then_some(())
    };
    if is_same(inner).is_some() {
        return Some(inner);
    }
    let Op::BitcastConvert = module[inner].op else { return None };
    let x = operand(module, inner, 0)?;
    if is_same(x).is_some() {
        return Some(x);
    }
    // Between types of one width the elements stay where they are.
    let width = |i: InstructionId| array(module, i).map(|a| a.element_type.bits());
    (width(x) == width(i) && width(x) == width(inner)).then_some(())?;
    let shape = array(module, i)?.clone().with_default_layout();
    beside(module, i).push_shaped(Op::BitcastConvert, &[x], shape).ok()
}

/// What a program asks of bf16 and f16 that they do anyway, once all of it is decided that may keep more digits.
pub(crate) static OF_SMALL: &[Rule] = &[Rule {
    name: "small-precision-kept",
    statement: "reduce-precision of bf16 or f16 to no less than the type has → its operand",
    opcodes: &[Opcode::ReducePrecision],
    apply: |module, i| {
        precision_kept_by(module, i, |t| match t {
            ElementType::F16 => Some((5, 10)),
            ElementType::Bf16 => Some((8, 7)),
            _ => None,
        })
    },
}];

fn precision_kept(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    precision_kept_by(module, i, |t| match t {
        ElementType::F32 => Some((8, 23)),
        ElementType::F64 => Some((11, 52)),
        _ => None,
    })
}

fn precision_kept_by(
    module: &Module,
    i: InstructionId,
    bits: fn(ElementType) -> Option<(i32, i32)>,
) -> Option<InstructionId> {
    let Op::ReducePrecision { exponent_bits, mantissa_bits } = module[i].op else { return None };
    let x = operand(module, i, 0)?;
    let (exponent, mantissa) = bits(array(module, i)?.element_type)?;
    let same = array(module, x)?.element_type == array(module, i)?.element_type;
    (same && exponent_bits >= exponent && mantissa_bits >= mantissa).then_some(x)
}

/// Whether every value of `from` is a value of `to`.
pub(super) fn is_exact(from: ElementType, to: ElementType) -> bool {
    use ElementType::{Bf16, F16, F32, F64, Pred};
    // Bits of a float's significand, with the leading one.
    let digits = |t: ElementType| match t {
        F16 => Some(11),
        Bf16 => Some(8),
        F32 => Some(24),
        F64 => Some(53),
        _ => None,
    };
    let is_integer = |t: ElementType| t.is_signed_integer() || t.is_unsigned_integer();
    match (from, to) {
        // The one bit of a signed integer is -1.
        (Pred, _) => is_integer(to) && !(to.is_signed_integer() && to.bits() == 1) || digits(to).is_some(),
        (F16, F32 | F64) | (Bf16, F32 | F64) | (F32, F64) => true,
        _ if is_integer(from) && is_integer(to) => {
            let (a, b) = (from.bits(), to.bits());
            match (from.is_signed_integer(), to.is_signed_integer()) {
                (true, true) | (false, false) => a <= b,
                (false, true) => a < b,
                (true, false) => false,
            }
        }
        _ if is_integer(from) => digits(to).is_some_and(|d| from.bits() <= d),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_exact() {
        use ElementType::*;
        for (from, to) in [(Pred, F32), (S8, S16), (U8, S16), (S8, F32), (Bf16, F32), (F16, F64), (U16, F32)] {
            assert!(is_exact(from, to), "{from:?} to {to:?}");
        }
        for (from, to) in
            [(S32, F32), (S8, U8), (U8, S8), (F32, Bf16), (F16, Bf16), (Bf16, F16), (F32, S64), (S32, Pred), (Pred, S1)]
        {
            assert!(!is_exact(from, to), "{from:?} to {to:?}");
        }
    }
}
