//! Small floats where the program made them wide although nothing is gained by it.
//!
//! A widened value has nothing that the narrow one has not. Products of two bf16 (or f16) numbers are exact in f32, in which
//! sums are made: a product of widened operands is the product of the narrow ones with a wide result, in half the memory
//! and by faster instructions. So that the two meet, widening comes after what only moves elements. A value that is
//! narrowed again without having been changed was never rounded. Roundings that the program asks for are all kept:
//! which of them matter not is decided within kernels, not here.

use super::convert::is_exact;
use super::{array, beside, dims, operand};
use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_ir::attributes::DotAlgorithm;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::Operands;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::ArrayShape;

/// The pass.
pub static PASS: Pass = Pass {
    name: "bf16-normalization",
    statement: "multiplies bf16 and f16 numbers as such that were widened first, moves them before they are widened, and drops widenings that are undone",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[RULES])),
};

/// The rules.
pub static RULES: &[Rule] = &[
    Rule {
        name: "dot-of-widened",
        statement: "dot(convert(x), convert(y)) of bf16 or f16 made f32 → dot(x, y) with a result of f32",
        opcodes: &[Opcode::Dot],
        apply: dot_of_widened,
    },
    Rule {
        name: "move-of-widened",
        statement: "transpose, reshape, slice, … of convert(x) to a wider type → convert(transpose(x))",
        opcodes: &[
            Opcode::Transpose,
            Opcode::Reshape,
            Opcode::Broadcast,
            Opcode::Slice,
            Opcode::DynamicSlice,
            Opcode::Reverse,
            Opcode::Concatenate,
        ],
        apply: move_of_widened,
    },
    Rule {
        name: "narrowed-choice",
        statement: "convert(max(convert(x), convert(y))) to the type of x and y → max(x, y); also min, select, abs, negate",
        opcodes: &[Opcode::Convert],
        apply: narrowed_choice,
    },
];

/// Products of fewer multiplications in a loop are left as they are.
const SMALL_IN_LOOP: i64 = 1 << 14;

/// The float from which `i` was widened to another.
fn narrow(module: &Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Convert = module[i].op else { return None };
    let x = operand(module, i, 0)?;
    let (from, to) = (array(module, x)?.element_type, array(module, i)?.element_type);
    (from.is_float() && to.is_float() && from != to && is_exact(from, to)).then_some(x)
}

fn dot_of_widened(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Dot(dot) = &module[i].op else { return None };
    let dot = dot.clone();
    (dot.precision.algorithm == DotAlgorithm::Unset).then_some(())?;
    let &[lhs, rhs] = module[i].operands() else { return None };
    let (x, y) = (narrow(module, lhs)?, narrow(module, rhs)?);
    let of = |i: InstructionId| array(module, i).map(|a| a.element_type);
    let from = of(x)?;
    let is_small = matches!(from, ElementType::Bf16 | ElementType::F16);
    let is_f32 = [of(lhs)?, of(rhs)?, of(i)?].iter().all(|&t| t == ElementType::F32);
    (is_small && of(y)? == from && is_f32).then_some(())?;
    // Small ones in loops become sums of products, which are made of f32.
    let mut summed = dot.dims.lhs_contracting.iter().map(|&d| dims(module, x)?.get(usize::try_from(d).ok()?).copied());
    let summed = summed.try_fold(1i64, |n, size| Some(n.saturating_mul(size?)))?;
    let work = summed.saturating_mul(array(module, i)?.element_count()?);
    (work >= SMALL_IN_LOOP || Some(module[i].parent()) == module.entry()).then_some(())?;
    let shape = array(module, i)?.clone();
    beside(module, i).push_shaped(Op::Dot(dot), &[x, y], shape).ok()
}

fn move_of_widened(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    // Of a dynamic slice the indices stay; of a concatenation all parts must have been of one type.
    let moved = match &module[i].op {
        Op::Concatenate { .. } => module[i].operands().len(),
        _ => 1,
    };
    let first = narrow(module, operand(module, i, 0)?)?;
    let from = array(module, first)?.element_type;
    // Repeated scalars are made where they are needed.
    (!array(module, first)?.is_scalar()).then_some(())?;
    let mut operands = Operands::from_slice(module[i].operands());
    for o in operands.iter_mut().take(moved) {
        // What others need wide as well is wide already.
        let x = narrow(module, *o).filter(|_| module[*o].users() == [i])?;
        (array(module, x)?.element_type == from).then_some(())?;
        *o = x;
    }
    let (op, to) = (module[i].op.clone(), array(module, i)?.element_type);
    let shape = ArrayShape::new(from, dims(module, i)?.iter().copied()).with_default_layout();
    let mut b = beside(module, i);
    let value = b.push_shaped(op, &operands, shape).ok()?;
    b.convert(value, to).ok()
}

fn narrowed_choice(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let to = array(module, i)?.element_type;
    let chosen = operand(module, i, 0)?;
    let first = match module[chosen].opcode() {
        Opcode::Select => 1,
        Opcode::Maximum | Opcode::Minimum | Opcode::Abs | Opcode::Negate => 0,
        _ => return None,
    };
    let mut operands = Operands::from_slice(module[chosen].operands());
    for o in operands.iter_mut().skip(first) {
        *o = narrow(module, *o).filter(|&x| array(module, x).is_some_and(|a| a.element_type == to))?;
    }
    let op = module[chosen].op.clone();
    let shape = ArrayShape::new(to, dims(module, i)?.iter().copied()).with_default_layout();
    beside(module, i).push_shaped(op, &operands, shape).ok()
}
