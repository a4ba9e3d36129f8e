//! What a loop carries: constants are made where they are used, and what never changes or is never needed is not carried.

use super::{Loop, add_element, element_of};
use hloom_analysis::effects::reaches_outside;
use hloom_analysis::unchanged::Unchanged;
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::instruction::Operands;
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::{ConstantValue, Op};
use rustc_hash::FxHashSet;

/// Takes what loops of any form never change from before them; returns how many uses changed.
pub(super) fn use_unchanged(module: &mut Module) -> usize {
    let unchanged = Unchanged::new(module);
    let mut changes = 0;
    let all: Vec<ComputationId> = module.computations().to_vec();
    for c in all {
        for user in module[c].instructions().to_vec() {
            let Op::GetTupleElement { index } = module[user].op else { continue };
            let (Some(&w), Ok(n)) = (module[user].operands().first(), usize::try_from(index)) else { continue };
            if !unchanged.is(w, n) || !is_used(module, user) {
                continue;
            }
            let Some(&init) = module[w].operands().first() else { continue };
            let before = match module[init].op {
                Op::Tuple => module[init].operands().get(n).copied(),
                _ => Some(add_element(module, init, n, module[user].shape.clone())),
            };
            if let Some(before) = before
                && module[before].shape == module[user].shape
                && module.replace_all_uses(user, before).is_ok()
            {
                changes += 1;
            }
        }
    }
    changes
}

/// Makes the loop carry less; returns the number of changes.
pub(super) fn simplify(
    module: &mut Module,
    plain: &mut Loop,
    pinned: &SideTable<InstructionId, bool>,
    closed: &SideTable<ComputationId, bool>,
) -> usize {
    let mut changes = 0;
    for n in 0..plain.width(module) {
        if plain.is_invariant(module, n) {
            changes += use_initial_value(module, plain, n);
        }
    }
    let needed = needed(module, plain, pinned, closed);
    let kept: Vec<usize> = (0..needed.len()).filter(|&n| needed[n]).collect();
    if kept.len() < needed.len() && plain.carry(module, &kept, &[]).is_some() {
        changes += needed.len() - kept.len();
    }
    changes
}

/// Value `n` never changes: after the loop it is what it was before, and if it is a constant, so it is in the loop.
fn use_initial_value(module: &mut Module, plain: &Loop, n: usize) -> usize {
    let Some(&initial) = module[plain.init].operands().get(n) else { return 0 };
    let mut changes = 0;
    for user in module[plain.id].users().to_vec() {
        if element_of(module, user, plain.id) == Some(n)
            && is_used(module, user)
            && module.replace_all_uses(user, initial).is_ok()
        {
            changes += 1;
        }
    }
    if !is_free(module, initial) {
        return changes;
    }
    for (parameter, home) in [(plain.body_parameter, plain.body), (plain.condition_parameter, plain.condition)] {
        for user in module[parameter].users().to_vec() {
            // The tuple at the end of the body goes on to carry it, for now.
            let needed = |&u: &InstructionId| u != plain.body_root;
            if element_of(module, user, parameter) != Some(n) || !module[user].users().iter().any(needed) {
                continue;
            }
            let copy = copy_free(module, initial, home);
            let _same_computation = module.replace_all_uses(user, copy);
            let carried = |&o: &InstructionId| o == copy;
            if let Some(at) = module[plain.body_root].operands().iter().position(carried) {
                let _same_computation = module.replace_operand(plain.body_root, at, user);
            }
            changes += 1;
        }
    }
    changes
}

fn is_used(module: &Module, i: InstructionId) -> bool {
    !module[i].users().is_empty() || module.root(module[i].parent()) == Some(i)
}

/// Whether `i` is cheap to make anywhere: a constant, a counting array, or a repeated constant.
fn is_free(module: &Module, i: InstructionId) -> bool {
    match &module[i].op {
        Op::Constant(ConstantValue::Literal(_)) => module[i].shape.is_array(),
        Op::Iota { .. } => true,
        Op::Broadcast { .. } => {
            module[i].operands().iter().all(|&o| matches!(module[o].op, Op::Constant(ConstantValue::Literal(_))))
        }
        _ => false,
    }
}

/// A copy of `i`, which is free, in another computation.
fn copy_free(module: &mut Module, i: InstructionId, home: ComputationId) -> InstructionId {
    let operands: Operands = module[i].operands().to_vec().into_iter().map(|o| copy_free(module, o, home)).collect();
    if let Some(root) = module.root(home) {
        module.set_root(root);
    }
    let original = &module[i];
    let mut common = original.common.clone();
    common.rare = None;
    let new = NewInstruction {
        name: original.name().into(),
        op: original.op.clone(),
        shape: original.shape.clone(),
        operands,
        common,
    };
    module.add_instruction(home, new)
}

/// Which values the loop needs: those used after it or by its condition, and what these are made of.
fn needed(
    module: &Module,
    plain: &Loop,
    pinned: &SideTable<InstructionId, bool>,
    closed: &SideTable<ComputationId, bool>,
) -> Vec<bool> {
    let mut needed = vec![false; plain.width(module)];
    let mut work: Vec<usize> = Vec::new();
    let mut need = |n: usize, work: &mut Vec<usize>| {
        if let Some(flag) = needed.get_mut(n)
            && !std::mem::replace(flag, true)
        {
            work.push(n);
        }
    };
    let parent = module[plain.id].parent();
    let whole = module.root(parent) == Some(plain.id);
    for &user in module[plain.id].users() {
        match element_of(module, user, plain.id) {
            // What others wait for stays, although nothing reads it.
            Some(n) if is_used(module, user) || pinned[user] => need(n, &mut work),
            Some(_) => {}
            None => (0..plain.width(module)).for_each(|n| need(n, &mut work)),
        }
    }
    if whole {
        (0..plain.width(module)).for_each(|n| need(n, &mut work));
    }
    let mut stack: Vec<InstructionId> = module.root(plain.condition).into_iter().collect();
    // What the body or the condition does to the world outside is needed, whatever it is for.
    for &c in &[plain.body, plain.condition] {
        let acts = |&&i: &&InstructionId| {
            reaches_outside(&module[i].op)
                || matches!(
                    module[i].op,
                    Op::While { .. } | Op::Conditional { .. } | Op::Call { .. } | Op::AsyncStart(_)
                ) && !module[i].op.called_computations().iter().all(|&c| closed[c])
        };
        stack.extend(module[c].instructions().iter().filter(acts));
    }
    let mut seen: FxHashSet<InstructionId> = FxHashSet::default();
    loop {
        while let Some(i) = stack.pop() {
            if !seen.insert(i) {
                continue;
            }
            for parameter in [plain.body_parameter, plain.condition_parameter] {
                if let Some(n) = element_of(module, i, parameter) {
                    need(n, &mut work);
                }
            }
            stack.extend_from_slice(module[i].operands());
            stack.extend_from_slice(module[i].common.control_predecessors());
        }
        let Some(n) = work.pop() else { break };
        stack.extend(module[plain.body_root].operands().get(n));
    }
    needed
}
