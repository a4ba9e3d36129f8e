//! Defusing: a dump of another machine's program made plain again, to be optimised for this one.
//!
//! The bodies of fusions take the place of the fusions; operations that were started and waited for are done where they
//! were started; copies between memories are the value itself. Control dependencies, which carried the other machine's
//! schedule, are kept only between operations that reach outside the device.

use crate::inline::inline;
use crate::mixed_precision::builder;
use crate::pass::{Context, Pass};
use hloom_analysis::effects::{instructions_with, reaches_outside};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;

/// The pass.
pub static PASS: Pass = Pass {
    name: "defuse",
    statement: "undoes fusions, asynchronous pairs and copies between memories",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(defuse(module)) as Result<usize, Diagnostic>,
};

fn defuse(module: &mut Module) -> usize {
    let mut changes = drop_control_dependencies(module);
    changes += finish_at_once(module);
    changes += inline(module, |op| match op {
        Op::Fusion(fusion) => Some(fusion.calls),
        _ => None,
    });
    changes + join_threads(module)
}

/// Drops control dependencies but those between operations that reach outside.
fn drop_control_dependencies(module: &mut Module) -> usize {
    let all = || module.computations().iter().flat_map(|&c| module[c].instructions()).copied();
    let waiting: Vec<InstructionId> = all().filter(|&i| !module[i].common.control_predecessors().is_empty()).collect();
    if waiting.is_empty() {
        return 0;
    }
    let (outside, _) = instructions_with(module, reaches_outside);
    let mut changes = 0;
    for i in waiting {
        let keeps = outside[i];
        let predecessors = &mut module.instruction_mut(i).common.rare_mut().control_predecessors;
        let before = predecessors.len();
        predecessors.retain(|&p| keeps && outside[p]);
        changes += usize::from(predecessors.len() != before);
    }
    changes
}

/// Does what is started where it is started.
fn finish_at_once(module: &mut Module) -> usize {
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    let is_start = |op: &Op| {
        matches!(
            op,
            Op::AsyncStart(_)
                | Op::CopyStart { .. }
                | Op::AllReduceStart(_)
                | Op::AllGatherStart(_)
                | Op::CollectivePermuteStart(_)
        )
    };
    let starts: Vec<InstructionId> = all.copied().filter(|&i| is_start(&module[i].op)).collect();
    let pinned = crate::facts::pinned(module);
    let mut dead = Vec::new();
    for start in starts {
        let Some(chain) = chain(module, start) else { continue };
        if pinned[start] && matches!(module[start].op, Op::AsyncStart(_)) || chain.iter().any(|&i| pinned[i]) {
            continue;
        }
        let Some(value) = plain_value(module, start, &chain) else { continue };
        let Some(&done) = chain.last() else { continue };
        if module[value].shape.equal_ignoring_layout(&module[done].shape)
            && module.replace_all_uses(done, value).is_ok()
        {
            dead.extend(chain);
            if value != start {
                dead.push(start);
            }
        }
    }
    // A start that was made plain in place has its updates and its done no longer; all go at once.
    if !dead.is_empty() {
        dead.retain(|&i| !pinned[i]);
        let removed = module.remove_instructions(&dead);
        debug_assert!(removed.is_ok(), "{removed:?}");
    }
    dead.len()
}

/// The updates of a start and its done, each the only user of the one before; `None` if the pair goes other ways.
fn chain(module: &Module, start: InstructionId) -> Option<Vec<InstructionId>> {
    let mut chain = Vec::new();
    let mut last = start;
    loop {
        let &[user] = module[last].users() else { return None };
        chain.push(user);
        match module[user].op {
            Op::AsyncUpdate { .. } => last = user,
            Op::AsyncDone | Op::CopyDone | Op::AllReduceDone | Op::AllGatherDone | Op::CollectivePermuteDone => {
                return Some(chain);
            }
            _ => return None,
        }
    }
}

/// What a start's done gives, made at once: a new value, or the start itself turned into the plain operation. What is
/// started takes the operands that the updates in its chain bring, too.
fn plain_value(module: &mut Module, start: InstructionId, chain: &[InstructionId]) -> Option<InstructionId> {
    let mut operands = module[start].operands().to_vec();
    let updates = chain.iter().filter(|&&i| matches!(module[i].op, Op::AsyncUpdate { .. }));
    operands.extend(updates.flat_map(|&i| module[i].operands().iter().skip(1)));
    let result = |shape: &Shape| shape.at(&[1]).cloned();
    let (op, shape) = match &module[start].op {
        Op::AsyncStart(async_start) => {
            let (parent, callee) = (module[start].parent(), async_start.calls);
            let root = module.inline_computation(parent, callee, &operands)?;
            return finish_transfers(module, root);
        }
        Op::CopyStart { .. } => return operands.first().copied(),
        Op::AllReduceStart(a) => {
            // An older form gives the operands as well.
            let with_operands = operands.len() == 1 && module[start].shape.is_tuple();
            let shape = if with_operands { result(&module[start].shape)? } else { module[start].shape.clone() };
            (Op::AllReduce(a.clone()), shape)
        }
        Op::AllGatherStart(a) => (Op::AllGather(a.clone()), result(&module[start].shape)?),
        Op::CollectivePermuteStart(p) if operands.len() == 1 && p.slice_sizes.is_empty() => {
            (Op::CollectivePermute(p.clone()), result(&module[start].shape)?)
        }
        _ => return None,
    };
    let instruction = module.instruction_mut(start);
    instruction.op = op;
    instruction.shape = shape;
    // What was said of the parts of the start's result says nothing of the plain one.
    instruction.common.sharding = None;
    if let Some(rare) = &mut instruction.common.rare {
        rare.origin = None;
    }
    Some(start)
}

/// Finishes the sends and recvs of a group that was finished as a whole, whose states `root` is a tuple of.
fn finish_transfers(module: &mut Module, root: InstructionId) -> Option<InstructionId> {
    let is_open = |&i: &InstructionId| matches!(module[i].op, Op::Send(_) | Op::Recv(_));
    if !matches!(module[root].op, Op::Tuple) || !module[root].operands().iter().any(is_open) {
        return Some(root);
    }
    let states = module[root].operands().to_vec();
    let (mut finished, mut said) = (Vec::with_capacity(states.len()), Vec::new());
    let mut b = builder(module, module[root].parent());
    for state in states {
        let (op, common) = (b.module()[state].op.clone(), b.module()[state].common.clone());
        let done = match op {
            Op::Send(transfer) => b.push(Op::SendDone(transfer), &[state]).ok()?,
            Op::Recv(transfer) => b.push(Op::RecvDone(transfer), &[state]).ok()?,
            _ => {
                finished.push(state);
                continue;
            }
        };
        said.push((done, common));
        let (data, token) = match b.shape(done).is_tuple() {
            true => (b.get_tuple_element(done, 0).ok()?, b.get_tuple_element(done, 1).ok()?),
            false => (b.module()[state].operands().first().copied()?, done),
        };
        let flag = b.constant(0u32).ok()?;
        finished.push(b.tuple(&[data, flag, token]).ok()?);
    }
    let whole = b.tuple(&finished).ok()?;
    for (done, common) in said {
        module.instruction_mut(done).common = common;
    }
    Some(whole)
}

/// Runs everything on the one thread that is left when nothing is started any more.
fn join_threads(module: &mut Module) -> usize {
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    if all.copied().any(|i| matches!(module[i].op, Op::AsyncStart(_))) {
        return 0;
    }
    let mut changes = 0;
    for c in module.computations().to_vec() {
        changes += usize::from(module.computation_mut(c).execution_thread.take().is_some());
    }
    changes
}
