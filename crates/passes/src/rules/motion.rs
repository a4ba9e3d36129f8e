//! Reshapes and transposes moved behind operations on each element, where they meet others to cancel with, and leave
//! the operations side by side.

use super::{array, beside, dims, operand};
use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::Operands;
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;
use hloom_ir::shape::ArrayShape;

/// The pass.
pub static PASS: Pass = Pass {
    name: "sink-shapes",
    statement: "moves reshapes, transposes and broadcasts behind operations on each element",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[RULES])),
};

/// The rules.
pub static RULES: &[Rule] = &[
    Rule {
        name: "sink-reshape",
        statement: "f(reshape(x), reshape(y)) → reshape(f(x, y)), scalars repeated beside them",
        opcodes: ELEMENTWISE,
        apply: sink_reshape,
    },
    Rule {
        name: "sink-transpose",
        statement: "f(transpose(x), transpose(y)) → transpose(f(x, y)), scalars repeated beside them",
        opcodes: ELEMENTWISE,
        apply: sink_transpose,
    },
    Rule {
        name: "sink-broadcast",
        statement: "f(broadcast(x), broadcast(y)) → broadcast(f(x, y)), where both repeat alike",
        opcodes: ELEMENTWISE,
        apply: sink_broadcast,
    },
];

const ELEMENTWISE: &[Opcode] = &[
    Opcode::Abs,
    Opcode::Add,
    Opcode::And,
    Opcode::Ceil,
    Opcode::Compare,
    Opcode::Convert,
    Opcode::Cosine,
    Opcode::Divide,
    Opcode::Erf,
    Opcode::Exponential,
    Opcode::ExponentialMinusOne,
    Opcode::Floor,
    Opcode::IsFinite,
    Opcode::Log,
    Opcode::LogPlusOne,
    Opcode::Maximum,
    Opcode::Minimum,
    Opcode::Multiply,
    Opcode::Negate,
    Opcode::Not,
    Opcode::Or,
    Opcode::Power,
    Opcode::Remainder,
    Opcode::Rsqrt,
    Opcode::Select,
    Opcode::Sign,
    Opcode::Sine,
    Opcode::Sqrt,
    Opcode::Subtract,
    Opcode::Tanh,
];

/// A scalar that `i` repeats.
fn splat(module: &Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Broadcast { .. } = module[i].op else { return None };
    operand(module, i, 0).filter(|&x| array(module, x).is_some_and(ArrayShape::is_scalar))
}

/// What becomes of the operands of `i` when each that `moved` undoes is undone and each repeated scalar repeated to
/// `inner` instead; `None` if there is another, or nothing to undo.
fn undone(
    module: &mut Module,
    i: InstructionId,
    inner: &[i64],
    undo: impl Fn(&Module, InstructionId) -> Option<InstructionId>,
) -> Option<Operands> {
    let operands = Operands::from_slice(module[i].operands());
    let possible = |&o: &InstructionId| undo(module, o).is_some() || splat(module, o).is_some();
    operands.iter().all(possible).then_some(())?;
    let mut new = Operands::new();
    for o in operands {
        new.push(match undo(module, o) {
            Some(x) => x,
            None => {
                let scalar = splat(module, o)?;
                beside(module, i).broadcast(scalar, inner.iter().copied(), []).ok()?
            }
        });
    }
    Some(new)
}

/// The operation of `i` on other operands of the dimensions `inner`.
fn same_operation(
    module: &mut Module,
    i: InstructionId,
    operands: &[InstructionId],
    inner: &[i64],
) -> Option<InstructionId> {
    let shape = ArrayShape::new(array(module, i)?.element_type, inner.iter().copied()).with_default_layout();
    let op = module[i].op.clone();
    beside(module, i).push_shaped(op, operands, shape).ok()
}

fn sink_reshape(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let find = |&o: &InstructionId| matches!(module[o].op, Op::Reshape { .. });
    let first = module[i].operands().iter().copied().find(find)?;
    let inner = DimVec::from(dims(module, operand(module, first, 0)?)?);
    let undo = |module: &Module, o: InstructionId| {
        let Op::Reshape { .. } = module[o].op else { return None };
        operand(module, o, 0).filter(|&x| dims(module, x) == Some(&inner))
    };
    let operands = undone(module, i, &inner, undo)?;
    let value = same_operation(module, i, &operands, &inner)?;
    let to = DimVec::from(dims(module, i)?);
    beside(module, i).reshape(value, to).ok()
}

fn sink_transpose(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let find = |&o: &InstructionId| matches!(module[o].op, Op::Transpose { .. });
    let first = module[i].operands().iter().copied().find(find)?;
    let Op::Transpose { dimensions } = &module[first].op else { return None };
    let order = dimensions.clone();
    let inner = DimVec::from(dims(module, operand(module, first, 0)?)?);
    // A transpose that others need as well stays, and then nothing is won; unless all of them come together again.
    let undo = |module: &Module, o: InstructionId| match &module[o].op {
        Op::Transpose { dimensions }
            if *dimensions == order && (module[o].users().len() == 1 || ends_in_one(module, o, &order)) =>
        {
            operand(module, o, 0)
        }
        _ => None,
    };
    let operands = undone(module, i, &inner, undo)?;
    let value = same_operation(module, i, &operands, &inner)?;
    beside(module, i).transpose(value, order).ok()
}

/// As many operations between a transpose and where its users come together again are looked at.
const MAX_BETWEEN: usize = 24;

/// Whether all that is made of `transpose` by operations on each element, with nothing but scalars and transposes of the
/// same order beside it, is made for one of these operations.
fn ends_in_one(module: &Module, transpose: InstructionId, order: &[i64]) -> bool {
    let mut found: Vec<InstructionId> = Vec::new();
    let mut next = vec![transpose];
    while let Some(i) = next.pop() {
        for &user in module[i].users() {
            if found.contains(&user) || !ELEMENTWISE.contains(&module[user].opcode()) {
                continue;
            }
            if found.len() == MAX_BETWEEN {
                return false;
            }
            found.push(user);
            next.push(user);
        }
    }
    // What needs anything else beside it stays where it is, and so does all that is made of it.
    loop {
        let count = found.len();
        let is_alike =
            |o: InstructionId| matches!(&module[o].op, Op::Transpose { dimensions } if **dimensions == *order);
        let known =
            |o: InstructionId, found: &[InstructionId]| found.contains(&o) || splat(module, o).is_some() || is_alike(o);
        let kept: Vec<InstructionId> =
            found.iter().copied().filter(|&i| module[i].operands().iter().all(|&o| known(o, &found))).collect();
        found = kept;
        if found.len() == count {
            break;
        }
    }
    let is_outside = |&u: &InstructionId| !found.contains(&u);
    let leaves = |&&i: &&InstructionId| module[i].users().is_empty() || module[i].users().iter().any(is_outside);
    !module[transpose].users().iter().any(is_outside) && found.iter().filter(leaves).count() == 1
}

fn sink_broadcast(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    // The one with the most dimensions decides: scalars go with any.
    let of_broadcast = |o: InstructionId| match &module[o].op {
        Op::Broadcast { dimensions } => Some(dimensions.clone()),
        _ => None,
    };
    let all = module[i].operands().iter().map(|&o| of_broadcast(o)).collect::<Option<Vec<DimVec>>>()?;
    let dimensions = all.into_iter().max_by_key(|d| d.len())?;
    let to = DimVec::from(dims(module, i)?);
    let inner = dimensions.iter().map(|&d| to.get(d as usize).copied()).collect::<Option<DimVec>>()?;
    let undo = |module: &Module, o: InstructionId| match &module[o].op {
        Op::Broadcast { dimensions: d } if *d == dimensions => operand(module, o, 0),
        _ => None,
    };
    let operands = undone(module, i, &inner, undo)?;
    let value = same_operation(module, i, &operands, &inner)?;
    beside(module, i).broadcast(value, to, dimensions).ok()
}
