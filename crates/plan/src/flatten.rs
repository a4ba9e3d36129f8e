//! Gives every computation of the flow one caller, by copying it for each further one.
//!
//! Each value has one place in memory, so what runs as a step of the program (while, conditional, call, async) must not be
//! called from two places; nor should the body of a fusion be. What is merely applied to elements stays shared. Copies
//! are named as XLA names them: `f.clone`, and `x.clone` within it.

use crate::calls::is_flow;
use hloom_ir::diagnostic::codes::plan::TOO_LARGE;
use hloom_ir::diagnostic::{Diagnostic, Part};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use std::collections::VecDeque;

/// Copies of copies grow without bound (`f` calls `g` twice, `g` calls `h` twice …): more new instructions than this, or
/// than [`MAX_GROWTH`] times the module, are refused.
const MAX_NEW: usize = 1 << 22;
const MAX_GROWTH: usize = 256;

/// Copies computations until each of the flow has one caller; returns how many copies were made. Where it fails the
/// module is left half done.
pub fn flatten_call_graph(module: &mut Module) -> Result<usize, Diagnostic> {
    let mut claimed = applied_to_elements(module);
    if let Some(entry) = module.entry() {
        claimed[entry.index()] = true;
    }
    let limit = MAX_NEW.min(module.instruction_count().saturating_mul(MAX_GROWTH));
    let mut spent = 0usize;
    let mut copies = 0;
    // The entry first, so that what it reaches keeps its computations; what is left over comes after.
    let mut roots = module.computations().to_vec();
    roots.sort_by_key(|c| Some(*c) != module.entry());
    let mut visited = vec![false; module.computation_slots()];
    for root in roots {
        // In the order in which they are met, so that the first caller keeps what is there.
        let mut queue = VecDeque::from([root]);
        while let Some(computation) = queue.pop_front() {
            visited.resize(module.computation_slots(), false);
            claimed.resize(module.computation_slots(), false);
            if std::mem::replace(&mut visited[computation.index()], true) {
                continue;
            }
            for id in module[computation].instructions().to_vec() {
                if !owns_callees(&module[id].op) {
                    continue;
                }
                for (nth, callee) in module[id].op.called_computations().into_iter().enumerate() {
                    claimed.resize(module.computation_slots(), false);
                    if !std::mem::replace(&mut claimed[callee.index()], true) {
                        queue.push_back(callee);
                        continue;
                    }
                    spent += module[callee].instructions().len();
                    if spent > limit {
                        return Err(too_many(module, id, callee));
                    }
                    let copy = clone_named(module, callee);
                    copies += 1;
                    claimed.resize(module.computation_slots(), false);
                    claimed[copy.index()] = true;
                    let mut slots = module.instruction_mut(id).op.called_computations_mut();
                    if let Some(slot) = slots.get_mut(nth) {
                        **slot = copy;
                    }
                    queue.push_back(copy);
                }
            }
        }
    }
    Ok(copies)
}

/// Whether what it calls may be called by nothing else.
fn owns_callees(op: &Op) -> bool {
    is_flow(op) || matches!(op, Op::Fusion(_))
}

/// The computations that are applied to elements somewhere, by index: they may be shared, but are not to be taken as steps.
fn applied_to_elements(module: &Module) -> Vec<bool> {
    let mut applied = vec![false; module.computation_slots()];
    for &computation in module.computations() {
        for &id in module[computation].instructions() {
            if !owns_callees(&module[id].op) {
                module[id].op.called_computations().iter().for_each(|c| applied[c.index()] = true);
            }
        }
    }
    applied
}

fn clone_named(module: &mut Module, computation: ComputationId) -> ComputationId {
    let name = with_suffix(module[computation].name());
    let originals = module[computation].instructions().to_vec();
    let copy = module.clone_computation(computation, &name);
    let copies = module[copy].instructions().to_vec();
    for (original, copy) in originals.into_iter().zip(copies) {
        let name = with_suffix(module[original].name());
        module.rename(copy, &name);
    }
    copy
}

/// `x` becomes `x.clone`, `x.clone` becomes `x.clone2`, `x.clone2` becomes `x.clone3`.
fn with_suffix(name: &str) -> String {
    const SUFFIX: &str = ".clone";
    match name.rfind(SUFFIX).map(|at| (&name[..at], &name[at + SUFFIX.len()..])) {
        Some((_, "")) => format!("{name}2"),
        Some((stem, number)) => match number.parse::<u32>() {
            Ok(n) => format!("{stem}{SUFFIX}{}", u64::from(n) + 1),
            Err(_) => format!("{name}{SUFFIX}"),
        },
        None => format!("{name}{SUFFIX}"),
    }
}

fn too_many(module: &Module, caller: InstructionId, callee: ComputationId) -> Diagnostic {
    let message = format!(
        "to give each caller a copy of `{}` and of what it calls takes too many instructions",
        module[callee].name()
    );
    Diagnostic::error(&TOO_LARGE, message).at_instruction(caller, Part::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_count_up() {
        let cases =
            [("f", "f.clone"), ("f.clone", "f.clone2"), ("f.clone9", "f.clone10"), ("f.clone.1", "f.clone.1.clone")];
        for (name, copy) in cases {
            assert_eq!(with_suffix(name), copy);
        }
    }
}
