//! What goes into the branches of a conditional and what comes out: only what is used, and only what depends on the branch.
//!
//! Looked at are conditionals whose branches belong to them alone.

use hloom_analysis::effects::only_computes;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::shape::Shape;

/// Makes less of what `i` takes and gives; returns the number of changes.
pub(super) fn simplify(module: &mut Module, i: InstructionId) -> usize {
    let passed_by = pass_by(module, i);
    remove_unused_elements(module, i);
    let dropped = drop_results(module, i).unwrap_or(0);
    passed_by + dropped + drop_arguments(module, i)
}

/// Removes what takes elements of `tuple` that nothing uses. That alone is no change: it may be found again.
fn remove_unused_elements(module: &mut Module, tuple: InstructionId) {
    let parent = module[tuple].parent();
    let is_unused = |&u: &InstructionId| {
        element_of(module, u, tuple).is_some() && module[u].users().is_empty() && module.root(parent) != Some(u)
    };
    let unused: Vec<InstructionId> = module[tuple].users().iter().copied().filter(is_unused).collect();
    if !unused.is_empty() {
        // Refused where a control dependency names one of them; then all stay.
        let _left = module.remove_instructions(&unused);
    }
}

/// Removes what only went into the elements of a result that are no longer made.
fn remove_unused(module: &mut Module, mut candidates: Vec<InstructionId>) {
    let mut dead = Vec::new();
    while let Some(i) = candidates.pop() {
        let unused = module[i].users().is_empty() && module.root(module[i].parent()) != Some(i);
        if unused && (only_computes(&module[i].op) || matches!(module[i].op, Op::GetTupleElement { .. })) {
            dead.push(i);
            candidates.extend(module.release_operands(i));
        }
    }
    dead.sort_unstable();
    dead.dedup();
    if !dead.is_empty() {
        let _left = module.remove_instructions(&dead);
    }
}

/// The number of the element of `tuple` that `i` takes.
fn element_of(module: &Module, i: InstructionId, tuple: InstructionId) -> Option<usize> {
    match module[i].op {
        Op::GetTupleElement { index } if module[i].operands() == [tuple] => usize::try_from(index).ok(),
        _ => None,
    }
}

/// What element `n` of the conditional's result is outside of it, if no branch changes it.
fn outside(module: &Module, i: InstructionId, n: usize) -> Option<InstructionId> {
    let Op::Conditional { branches } = &module[i].op else { return None };
    let mut value = None;
    for (&branch, &argument) in branches.iter().zip(module[i].operands().get(1..)?) {
        let root = module.root(branch)?;
        let &[parameter] = module.parameters(branch).as_slice() else { return None };
        let Op::Tuple = module[root].op else { return None };
        let &result = module[root].operands().get(n)?;
        let given = if result == parameter {
            argument
        } else {
            let place = element_of(module, result, parameter)?;
            let Op::Tuple = module[argument].op else { return None };
            *module[argument].operands().get(place)?
        };
        if value.is_some_and(|v| v != given) {
            return None;
        }
        value = Some(given);
    }
    value
}

/// What every branch gives back as it was given is used from outside.
fn pass_by(module: &mut Module, i: InstructionId) -> usize {
    let mut changes = 0;
    for user in module[i].users().to_vec() {
        let used = !module[user].users().is_empty() || module.root(module[user].parent()) == Some(user);
        let Some(n) = element_of(module, user, i).filter(|_| used) else { continue };
        let value = outside(module, i, n).or_else(|| same_constant(module, i, n));
        if let Some(value) = value
            && module[value].shape == module[user].shape
            && module.replace_all_uses(user, value).is_ok()
        {
            changes += 1;
        }
    }
    changes
}

/// A constant that element `n` is in every branch, made anew outside.
fn same_constant(module: &mut Module, i: InstructionId, n: usize) -> Option<InstructionId> {
    let Op::Conditional { branches } = &module[i].op else { return None };
    let element = |branch| {
        let root = module.root(branch)?;
        let Op::Tuple = module[root].op else { return None };
        module[root].operands().get(n).copied()
    };
    let first = element(*branches.first()?)?;
    let Op::Constant(ConstantValue::Literal(value)) = &module[first].op else { return None };
    let is_same = |&b| {
        element(b)
            .is_some_and(|e| matches!(&module[e].op, Op::Constant(ConstantValue::Literal(other)) if other == value))
    };
    branches.iter().all(is_same).then_some(())?;
    let new = NewInstruction {
        name: "constant".into(),
        op: module[first].op.clone(),
        shape: module[first].shape.clone(),
        operands: Operands::new(),
        common: Common::default(),
    };
    let home = module[i].parent();
    if let Some(root) = module.root(home) {
        module.set_root(root);
    }
    Some(module.add_instruction(home, new))
}

/// Results that nothing takes are not made.
fn drop_results(module: &mut Module, i: InstructionId) -> Option<usize> {
    let Op::Conditional { branches } = module[i].op.clone() else { return None };
    let parts = module[i].shape.as_tuple()?.to_vec();
    (module.root(module[i].parent()) != Some(i)).then_some(())?;
    let mut used = vec![false; parts.len()];
    for &user in module[i].users() {
        *used.get_mut(element_of(module, user, i)?)? = true;
    }
    let kept: Vec<usize> = (0..parts.len()).filter(|&n| used[n]).collect();
    (!kept.is_empty() && kept.len() < parts.len()).then_some(())?;
    let roots = branches.iter().map(|&b| module.root(b)).collect::<Option<Vec<InstructionId>>>()?;
    roots.iter().all(|&r| matches!(module[r].op, Op::Tuple)).then_some(())?;
    let shape = Shape::tuple(kept.iter().map(|&n| parts[n].clone()));
    for root in roots {
        let before = module[root].operands().to_vec();
        let operands = kept.iter().map(|&n| before.get(n).copied()).collect::<Option<Operands>>()?;
        narrow_tuple(module, root, operands, &shape);
        remove_unused(module, before);
    }
    module.instruction_mut(i).shape = shape;
    forget_parts(module, i);
    renumber(module, i, &kept);
    Some(parts.len() - kept.len())
}

/// Gives a tuple fewer elements.
fn narrow_tuple(module: &mut Module, tuple: InstructionId, operands: Operands, shape: &Shape) {
    let _same_computation = module.set_operands(tuple, operands);
    module.instruction_mut(tuple).shape = shape.clone();
    forget_parts(module, tuple);
}

/// What was said of each part of a result says nothing of fewer parts.
fn forget_parts(module: &mut Module, i: InstructionId) {
    let common = &mut module.instruction_mut(i).common;
    common.sharding = None;
    if let Some(rare) = &mut common.rare {
        rare.origin = None;
    }
}

/// Lets the users of `tuple`, of which only the elements `kept` are left, take them by their new numbers.
fn renumber(module: &mut Module, tuple: InstructionId, kept: &[usize]) {
    for user in module[tuple].users().to_vec() {
        let place = element_of(module, user, tuple).and_then(|n| kept.binary_search(&n).ok());
        if let (Some(place), Op::GetTupleElement { index }) = (place, &mut module.instruction_mut(user).op) {
            *index = place as i64;
        }
    }
}

/// Arguments that a branch does not look at are not given to it.
fn drop_arguments(module: &mut Module, i: InstructionId) -> usize {
    let Op::Conditional { branches } = module[i].op.clone() else { return 0 };
    branches.iter().enumerate().filter_map(|(n, &branch)| drop_argument(module, i, n, branch)).sum()
}

fn drop_argument(module: &mut Module, i: InstructionId, number: usize, branch: ComputationId) -> Option<usize> {
    let &argument = module[i].operands().get(1 + number)?;
    let &[parameter] = module.parameters(branch).as_slice() else { return None };
    remove_unused_elements(module, parameter);
    let Op::Tuple = module[argument].op else { return None };
    let parts = module[parameter].shape.as_tuple()?.to_vec();
    (module.root(branch) != Some(parameter)).then_some(())?;
    let mut used = vec![false; parts.len()];
    for &user in module[parameter].users() {
        *used.get_mut(element_of(module, user, parameter)?)? = true;
    }
    let kept: Vec<usize> = (0..parts.len()).filter(|&n| used[n]).collect();
    (kept.len() < parts.len()).then_some(())?;
    let operands = kept.iter().map(|&n| module[argument].operands().get(n).copied()).collect::<Option<Operands>>()?;
    let shape = Shape::tuple(kept.iter().map(|&n| parts[n].clone()));
    let new = NewInstruction {
        name: "tuple".into(),
        op: Op::Tuple,
        shape: Shape::tuple(operands.iter().map(|&o| module[o].shape.clone())),
        operands,
        common: Common::default(),
    };
    let home = module[i].parent();
    if let Some(root) = module.root(home) {
        module.set_root(root);
    }
    let fewer = module.add_instruction(home, new);
    let _same_computation = module.replace_operand(i, 1 + number, fewer);
    module.instruction_mut(parameter).shape = shape;
    forget_parts(module, parameter);
    if let Op::Parameter { replication, .. } = &mut module.instruction_mut(parameter).op {
        *replication = None;
    }
    renumber(module, parameter, &kept);
    Some(parts.len() - kept.len())
}
