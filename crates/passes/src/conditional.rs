//! Conditionals whose branch is known or does not matter, those whose branches are so cheap that both are taken, and what
//! goes into branches and comes out of them in vain.

mod values;

use crate::cse::same_function;
use crate::dce::remove_dead_code;
use crate::facts::{call_counts, pinned};
use crate::pass::{Context, Pass};
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::builder::Builder;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::layout::DimVec;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, ConstantValue, Op};
use hloom_ir::order::computations;
use hloom_ir::shape::Shape;

/// The pass.
pub static PASS: Pass = Pass {
    name: "simplify-conditionals",
    statement: "takes the branch that is known, both where they are cheap, to select between them, and drops what branches need not take or give",
    keeps_schedule: false,
    run: |module: &mut Module, context: &Context<'_>| {
        Ok(simplify(module, context.info.speculated_elements())) as Result<usize, Diagnostic>
    },
};

fn simplify(module: &mut Module, most: i64) -> usize {
    let pinned = pinned(module);
    let callers = call_counts(module);
    let mut done = 0;
    for c in computations(module) {
        let mut replaced = Vec::new();
        let is_conditional = |&&i: &&InstructionId| matches!(module[i].op, Op::Conditional { .. }) && !pinned[i];
        let found: Vec<InstructionId> = module[c].instructions().iter().filter(is_conditional).copied().collect();
        for i in found {
            let value = known_branch(module, i).or_else(|| same_branches(module, i));
            let value = value.or_else(|| select_result(module, i, most));
            if let Some(value) = value {
                if module.replace_all_uses(i, value).is_ok() {
                    replaced.push(i);
                }
            } else if module[i].op.called_computations().iter().all(|&b| callers[b] == 1) {
                done += values::simplify(module, i);
            }
        }
        // At once: what has effects would stay as dead code, and have them a second time.
        if !replaced.is_empty() {
            let removed = module.remove_instructions(&replaced);
            debug_assert!(removed.is_ok(), "{removed:?}");
            done += replaced.len();
        }
    }
    if done > 0 {
        remove_dead_code(module);
    }
    done
}

/// The result of the branch that a constant chooses.
fn known_branch(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Conditional { branches } = &module[i].op else { return None };
    let chooser = *module[i].operands().first()?;
    let Op::Constant(ConstantValue::Literal(literal)) = &module[chooser].op else { return None };
    let array = literal.as_array()?;
    let number = match array.element_type() {
        ElementType::Pred => usize::from(array.bytes().first()? == &0),
        // A number that no branch has means the last.
        ElementType::S32 => {
            let number = i32::from_le_bytes(array.bytes().try_into().ok()?);
            usize::try_from(number).ok().filter(|&n| n < branches.len()).unwrap_or(branches.len() - 1)
        }
        _ => return None,
    };
    let branch = *branches.get(number)?;
    let argument = *module[i].operands().get(1 + number)?;
    let home = module[i].parent();
    module.inline_computation(home, branch, &[argument])
}

/// The result of any branch, where all do the same with the same.
fn same_branches(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::Conditional { branches } = &module[i].op else { return None };
    let (&first, others) = branches.split_first()?;
    let arguments = module[i].operands().get(1..)?;
    let &argument = arguments.first()?;
    let same = arguments.iter().all(|&a| a == argument) && others.iter().all(|&b| same_function(module, first, b));
    same.then_some(())?;
    let home = module[i].parent();
    module.inline_computation(home, first, &[argument])
}

/// Branches longer than this are not both taken.
const MAX_BRANCH: usize = 12;

/// Both branches, and of their results the one that is chosen, if they make arrays of at most so many elements.
fn select_result(module: &mut Module, i: InstructionId, most: i64) -> Option<InstructionId> {
    let Op::Conditional { branches } = &module[i].op else { return None };
    let &[on_true, on_false] = branches.as_slice() else { return None };
    let &[chooser, for_true, for_false] = module[i].operands() else { return None };
    // A number that no branch has means the last.
    let by_number = module[chooser].shape.is_scalar_of(ElementType::S32);
    (by_number || module[chooser].shape.is_scalar_of(ElementType::Pred)).then_some(())?;
    (is_cheap(module, on_true, most) && is_cheap(module, on_false, most)).then_some(())?;
    let small = |shape: &Shape| {
        shape.as_array().is_some_and(|a| !a.is_dynamic() && a.element_count().is_some_and(|n| n <= most))
    };
    let shape = module[i].shape.clone();
    match &shape {
        Shape::Tuple(parts) => parts.iter().all(small),
        other => small(other),
    }
    .then_some(())?;
    let home = module[i].parent();
    let x = module.inline_computation(home, on_true, &[for_true])?;
    let y = module.inline_computation(home, on_false, &[for_false])?;
    let mut b = Builder::resume(module, home);
    let chooser = match by_number {
        true => {
            let first = b.constant(0i32).ok()?;
            b.compare(ComparisonDirection::Eq, chooser, first).ok()?
        }
        false => chooser,
    };
    let Shape::Tuple(parts) = &shape else { return choose(&mut b, chooser, x, y) };
    let mut chosen = Vec::with_capacity(parts.len());
    for n in 0..parts.len() as i64 {
        let (p, q) = (b.get_tuple_element(x, n).ok()?, b.get_tuple_element(y, n).ok()?);
        chosen.push(choose(&mut b, chooser, p, q)?);
    }
    b.tuple(&chosen).ok()
}

fn choose(b: &mut Builder<'_>, chooser: InstructionId, x: InstructionId, y: InstructionId) -> Option<InstructionId> {
    let dims = DimVec::from(b.shape(x).as_array()?.dims());
    let chooser = if dims.is_empty() { chooser } else { b.broadcast(chooser, dims, []).ok()? };
    b.select(chooser, x, y).ok()
}

/// Whether a branch is a few cheap operations on small arrays, without effects and without faults.
fn is_cheap(module: &Module, branch: ComputationId, most: i64) -> bool {
    let list = module[branch].instructions();
    let small = |i: InstructionId| match &module[i].shape {
        Shape::Array(a) => !a.is_dynamic() && a.element_count().is_some_and(|n| n <= most),
        Shape::Tuple(_) => true,
        _ => false,
    };
    let cheap = |&i: &InstructionId| match &module[i].op {
        Op::Parameter { .. } | Op::GetTupleElement { .. } | Op::Tuple => true,
        Op::Binary(op) => !matches!(op, BinaryOp::Power | BinaryOp::Atan2) && small(i),
        Op::Constant(ConstantValue::Literal(_))
        | Op::Unary { .. }
        | Op::Compare { .. }
        | Op::Select
        | Op::Clamp
        | Op::Convert
        | Op::Iota { .. }
        | Op::Broadcast { .. }
        | Op::Reshape { .. }
        | Op::Copy
        | Op::Slice { .. } => small(i),
        _ => false,
    };
    list.len() <= MAX_BRANCH && list.iter().all(cheap)
}
