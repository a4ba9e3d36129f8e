//! Reshapes, transposes, broadcasts and copies that do nothing, undo each other or are one.

use super::{array, beside, dims, inverse, is_identity, operand};
use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;

/// The pass.
pub static PASS: Pass = Pass {
    name: "simplify-shapes",
    statement: "cancels and joins reshapes, transposes, broadcasts and copies",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[RULES])),
};

/// The rules.
pub static RULES: &[Rule] = &[
    Rule { name: "copy", statement: "copy(x) → x", opcodes: &[Opcode::Copy], apply: copy },
    Rule {
        name: "same-shape",
        statement: "a reshape, transpose or broadcast to the same dimensions in the same order → its operand",
        opcodes: &[Opcode::Reshape, Opcode::Transpose, Opcode::Broadcast],
        apply: same_shape,
    },
    Rule {
        name: "reshape-of-reshape",
        statement: "reshape(reshape(x)) → reshape(x)",
        opcodes: &[Opcode::Reshape],
        apply: reshape_of_reshape,
    },
    Rule {
        name: "reshape-of-splat",
        statement: "reshape(broadcast(scalar)) → broadcast(scalar)",
        opcodes: &[Opcode::Reshape],
        apply: reshape_of_splat,
    },
    Rule {
        name: "transpose-of-transpose",
        statement: "transpose(transpose(x)) → transpose(x)",
        opcodes: &[Opcode::Transpose],
        apply: transpose_of_transpose,
    },
    Rule {
        name: "transpose-as-reshape",
        statement: "a transpose that moves only dimensions of size 1 → reshape",
        opcodes: &[Opcode::Transpose],
        apply: transpose_as_reshape,
    },
    Rule {
        name: "reshape-of-transpose",
        statement: "reshape(transpose(x)), where the reshape drops dimensions of size 1 → transpose(reshape(x))",
        opcodes: &[Opcode::Reshape],
        apply: reshape_of_transpose,
    },
    Rule {
        name: "reshape-of-broadcast",
        statement: "reshape(broadcast(x)), where the reshape drops repeated dimensions of size 1 → broadcast(x)",
        opcodes: &[Opcode::Reshape],
        apply: reshape_of_broadcast,
    },
    Rule {
        name: "transpose-of-broadcast",
        statement: "transpose(broadcast(x)) → broadcast(x), where the dimensions of x keep their order",
        opcodes: &[Opcode::Transpose],
        apply: transpose_of_broadcast,
    },
    Rule {
        name: "broadcast-of-broadcast",
        statement: "broadcast(broadcast(x)) → broadcast(x)",
        opcodes: &[Opcode::Broadcast],
        apply: broadcast_of_broadcast,
    },
    Rule {
        name: "broadcast-as-reshape",
        statement: "a broadcast that only adds dimensions of size 1 → reshape",
        opcodes: &[Opcode::Broadcast],
        apply: broadcast_as_reshape,
    },
    Rule {
        name: "broadcast-of-unit-reshape",
        statement: "broadcast(reshape(x)), where the reshape only adds dimensions of size 1 → broadcast(x)",
        opcodes: &[Opcode::Broadcast],
        apply: broadcast_of_unit_reshape,
    },
];

fn copy(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    operand(module, i, 0)
}

fn same_shape(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let x = operand(module, i, 0)?;
    let in_order = match &module[i].op {
        Op::Reshape { .. } => true,
        Op::Transpose { dimensions } | Op::Broadcast { dimensions } => is_identity(dimensions),
        _ => false,
    };
    (in_order && dims(module, x)? == dims(module, i)?).then_some(x)
}

fn reshape_of_reshape(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let Op::Reshape { .. } = module[inner].op else { return None };
    let (x, to) = (operand(module, inner, 0)?, DimVec::from(dims(module, i)?));
    beside(module, i).reshape(x, to).ok()
}

fn reshape_of_splat(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let Op::Broadcast { .. } = module[inner].op else { return None };
    let x = operand(module, inner, 0)?;
    let to = DimVec::from(dims(module, i)?);
    array(module, x)?.is_scalar().then_some(())?;
    beside(module, i).broadcast(x, to, []).ok()
}

fn transpose_of_transpose(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let (Op::Transpose { dimensions: outer }, Op::Transpose { dimensions: first }) = (&module[i].op, &module[inner].op)
    else {
        return None;
    };
    let both = outer.iter().map(|&d| first.get(d as usize).copied()).collect::<Option<DimVec>>()?;
    let x = operand(module, inner, 0)?;
    if is_identity(&both) { Some(x) } else { beside(module, i).transpose(x, both).ok() }
}

fn transpose_as_reshape(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Transpose { dimensions } = &module[i].op else { return None };
    let x = operand(module, i, 0)?;
    let from = dims(module, x)?;
    let large = dimensions.iter().filter(|&&d| from.get(d as usize).is_none_or(|&n| n != 1));
    large.is_sorted().then_some(())?;
    let to = DimVec::from(dims(module, i)?);
    beside(module, i).reshape(x, to).ok()
}

/// The sizes other than 1.
fn large(dims: &[i64]) -> DimVec {
    dims.iter().copied().filter(|&n| n != 1).collect()
}

fn reshape_of_transpose(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let Op::Transpose { dimensions } = &module[inner].op else { return None };
    let x = operand(module, inner, 0)?;
    let (from, to) = (dims(module, x)?, DimVec::from(dims(module, i)?));
    // Only what drops all of them, so that there is nothing left to do afterwards.
    (large(from).len() < from.len() && large(&to) == to && large(dims(module, inner)?) == to).then_some(())?;
    let kept: DimVec = (0..from.len() as i64).filter(|&d| from[d as usize] != 1).collect();
    let position = |d: &i64| kept.iter().position(|k| k == d).map(|p| p as i64);
    let order: DimVec = dimensions.iter().filter_map(position).collect();
    let narrow = large(from);
    let mut b = beside(module, i);
    let x = b.reshape(x, narrow).ok()?;
    b.transpose(x, order).ok()
}

fn reshape_of_broadcast(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let Op::Broadcast { dimensions } = &module[inner].op else { return None };
    let x = operand(module, inner, 0)?;
    let (wide, to) = (dims(module, inner)?, DimVec::from(dims(module, i)?));
    // The dimensions that are left: all but the repeated ones of size 1.
    let left: DimVec = (0..wide.len() as i64).filter(|d| wide[*d as usize] != 1 || dimensions.contains(d)).collect();
    let sizes: DimVec = left.iter().map(|&d| wide[d as usize]).collect();
    (sizes == to).then_some(())?;
    let moved = dimensions.iter().map(|d| left.iter().position(|l| l == d).map(|p| p as i64));
    let moved = moved.collect::<Option<DimVec>>()?;
    beside(module, i).broadcast(x, to, moved).ok()
}

fn transpose_of_broadcast(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let (Op::Transpose { dimensions: order }, Op::Broadcast { dimensions }) = (&module[i].op, &module[inner].op) else {
        return None;
    };
    let to_position = inverse(order)?;
    let moved = dimensions.iter().map(|&d| to_position.get(d as usize).copied()).collect::<Option<DimVec>>()?;
    moved.is_sorted().then_some(())?;
    let (x, to) = (operand(module, inner, 0)?, DimVec::from(dims(module, i)?));
    beside(module, i).broadcast(x, to, moved).ok()
}

fn broadcast_of_broadcast(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let (Op::Broadcast { dimensions: outer }, Op::Broadcast { dimensions: first }) = (&module[i].op, &module[inner].op)
    else {
        return None;
    };
    let both = first.iter().map(|&d| outer.get(d as usize).copied()).collect::<Option<DimVec>>()?;
    let (x, to) = (operand(module, inner, 0)?, DimVec::from(dims(module, i)?));
    beside(module, i).broadcast(x, to, both).ok()
}

fn broadcast_as_reshape(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Broadcast { dimensions } = &module[i].op else { return None };
    let x = operand(module, i, 0)?;
    let in_order = dimensions.is_sorted();
    let same_count = array(module, x)?.element_count()? == array(module, i)?.element_count()?;
    // An empty array has no order to keep, but need not have the same dimensions either.
    let empty = array(module, x)?.element_count()? == 0;
    (in_order && same_count && !empty).then_some(())?;
    let to = DimVec::from(dims(module, i)?);
    beside(module, i).reshape(x, to).ok()
}

fn broadcast_of_unit_reshape(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let inner = operand(module, i, 0)?;
    let (Op::Broadcast { dimensions }, Op::Reshape { .. }) = (&module[i].op, &module[inner].op) else { return None };
    let x = operand(module, inner, 0)?;
    let (from, unit) = (dims(module, x)?, dims(module, inner)?);
    // The dimensions of x, in order, among those of the reshape; all that lie between have size 1.
    let mut kept = DimVec::new();
    for (&size, &to) in unit.iter().zip(dimensions) {
        match from.get(kept.len()) {
            Some(&wanted) if wanted == size => kept.push(to),
            _ if size != 1 => return None,
            _ => {}
        }
    }
    (kept.len() == from.len() && from.len() < unit.len()).then_some(())?;
    let to = DimVec::from(dims(module, i)?);
    beside(module, i).broadcast(x, to, kept).ok()
}
