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
use hloom_ir::order::computations;
use std::collections::VecDeque;

/// Copies of copies grow exponentially (`f` calls `g` twice, `g` calls `h` twice …): more new instructions than this, and
/// than [`MAX_GROWTH`] times the module, are refused before the first copy is made.
const MAX_NEW: u64 = 1 << 20;
const MAX_GROWTH: u64 = 8;

/// Copies computations until each of the flow has one caller; returns how many copies were made.
pub fn flatten_call_graph(module: &mut Module) -> Result<usize, Diagnostic> {
    check_growth(module)?;
    let mut claimed = applied_to_elements(module);
    if let Some(entry) = module.entry() {
        claimed[entry.index()] = true;
    }
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

/// Refuses a module whose copies would be too many: each computation is there once for every way to it, and the ways are
/// counted from callers to callees. The call through which most instructions come is named.
fn check_growth(module: &Module) -> Result<(), Diagnostic> {
    let order = computations(module);
    let mut ways = vec![0u64; module.computation_slots()];
    let (mut copied, mut worst) = (0u64, None::<(u64, InstructionId, ComputationId)>);
    for &caller in order.iter().rev() {
        // What nobody calls is reached once, the entry among it.
        let here = ways[caller.index()].max(1);
        let size = module[caller].instructions().len() as u64;
        copied = copied.saturating_add((here - 1).saturating_mul(size));
        for &id in module[caller].instructions() {
            if !owns_callees(&module[id].op) {
                continue;
            }
            for callee in module[id].op.called_computations() {
                ways[callee.index()] = ways[callee.index()].saturating_add(here);
                let through = here.saturating_mul(module[callee].instructions().len() as u64);
                if worst.is_none_or(|(most, ..)| through > most) {
                    worst = Some((through, id, callee));
                }
            }
        }
    }
    let limit = MAX_NEW.max(MAX_GROWTH.saturating_mul(module.instruction_count() as u64));
    match worst {
        Some((_, call, callee)) if copied > limit => {
            let message = format!(
                "to give each caller a copy of `{}` and of what it calls takes {copied} more instructions, and {limit} are \
                 allowed",
                module[callee].name()
            );
            let error = Diagnostic::error(&TOO_LARGE, message).at_instruction(call, Part::Whole);
            Err(error.help("the evaluator runs the program without copies: `hloom run --engine eval`"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `f0`, and as many functions more, each of which calls the one before twice.
    fn doubling(calls: usize) -> Module {
        let mut text = String::from("HloModule m\n\nf0 {\n x = f32[] parameter(0)\n ROOT y = f32[] negate(x)\n}\n");
        for n in 1..=calls {
            let before = n - 1;
            text += &format!(
                "\nf{n} {{\n x = f32[] parameter(0)\n a = f32[] call(x), to_apply=f{before}\n \
                 ROOT b = f32[] call(a), to_apply=f{before}\n}}\n"
            );
        }
        text += &format!("\nENTRY e {{\n x = f32[] parameter(0)\n ROOT r = f32[] call(x), to_apply=f{calls}\n}}\n");
        hloom_formats::hlo_text::read(text.as_bytes()).module.unwrap()
    }

    #[test]
    fn copies_that_double_and_double_are_refused_before_they_are_made() {
        let mut module = doubling(10);
        assert_eq!(flatten_call_graph(&mut module).unwrap(), (1..=10).map(|n| (1 << n) - 1).sum::<usize>());
        for calls in [20, 40, 1000] {
            let mut module = doubling(calls);
            let before = module.instruction_count();
            let refused = flatten_call_graph(&mut module).unwrap_err();
            assert!(refused.message.contains("more instructions"), "{}", refused.message);
            assert_eq!(module.instruction_count(), before);
        }
    }

    #[test]
    fn suffixes_count_up() {
        let cases =
            [("f", "f.clone"), ("f.clone", "f.clone2"), ("f.clone9", "f.clone10"), ("f.clone.1", "f.clone.1.clone")];
        for (name, copy) in cases {
            assert_eq!(with_suffix(name), copy);
        }
    }
}
