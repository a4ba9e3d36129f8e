//! Loops that hand arrays on from one place of their state to another, as a wave equation does: the next wave, and the
//! one of now as the one before. Each place has memory of its own, so that such an array would be copied in every
//! iteration. After as many iterations as there are places on the way, everything may be where it was: so many
//! iterations are made one.
//!
//! Only where it is known how often the loop runs: the iterations that are left over stand before the loop.

use super::{Loop, element_of, loops, trip_count};
use crate::dce::remove_dead_code;
use crate::pass::{Context, Pass};
use hloom_analysis::effects::reaches_outside;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::Op;
use rustc_hash::FxHashMap;

/// The pass.
pub static PASS: Pass = Pass {
    name: "unroll-double-buffers",
    statement: "unrolls a loop whose state swaps buffers, so that they need not be copied",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(unroll_all(module)) as Result<usize, Diagnostic>,
};

/// Arrays of fewer bytes may as well be copied.
const MIN_BYTES: i64 = 4096;
/// At most so many iterations become one, of together so many instructions, in loops of at least so many times as many
/// iterations.
const MAX_FACTOR: usize = 4;
const MAX_INSTRUCTIONS: usize = 400;
const MIN_ITERATIONS: u64 = 4;

fn unroll_all(module: &mut Module) -> usize {
    let mut changes = 0;
    let pinned = crate::facts::pinned(module);
    for w in loops(module) {
        let Some(plain) = Loop::of(module, w) else { continue };
        // What has computations of its own would share them with its copies; and what reaches outside is in an order.
        let stays = |&i: &InstructionId| {
            matches!(module[i].op, Op::While { .. } | Op::Conditional { .. } | Op::Call { .. } | Op::AsyncStart(_))
                || reaches_outside(&module[i].op)
                || pinned[i]
        };
        let factor = rounds_together(module, &plain);
        let body = module[plain.body].instructions();
        let acts = || body.iter().chain(module[plain.condition].instructions()).any(stays);
        if factor < 2 || body.len() * factor > MAX_INSTRUCTIONS || acts() {
            continue;
        }
        let Some(count) = trip_count::trip_count(module, &plain) else { continue };
        if count / factor as u64 >= MIN_ITERATIONS {
            changes += usize::from(unroll(module, &plain, factor, count).is_some());
        }
    }
    if changes > 0 {
        remove_dead_code(module);
    }
    changes
}

/// After how many iterations large arrays that are handed on may be where they were; 1 if there are none, or if
/// something would be lost by that.
fn rounds_together(module: &Module, plain: &Loop) -> usize {
    let next = module[plain.body_root].operands();
    let source = |n: usize| next.get(n).and_then(|&i| element_of(module, i, plain.body_parameter)).filter(|&m| m != n);
    let is_large = |i: InstructionId| module[i].shape.byte_size().is_some_and(|bytes| bytes >= MIN_BYTES);
    let large: Vec<usize> = (0..next.len()).filter(|&n| is_large(next[n])).collect();
    let goes_to: FxHashMap<usize, usize> = large.iter().filter_map(|&n| Some((source(n)?, n))).collect();
    // The places on the way to `n`; those of a circle are as many as the steps round it.
    let places = |n: usize, step: &dyn Fn(usize) -> Option<usize>| {
        let (mut at, mut count) = (n, 1);
        while let (Some(other), true) = (step(at).filter(|&o| o != n), count <= MAX_FACTOR) {
            (at, count) = (other, count + 1);
        }
        count
    };
    let factor = large.iter().map(|&n| places(n, &source)).max().unwrap_or(1);
    // What is read all over must be in memory in between, as what is handed on is. Else it would be made anew for each of
    // those who read it.
    let stays_apart = |&n: &usize| {
        source(n).is_some() || places(n, &|m| goes_to.get(&m).copied()) >= factor || !is_read_all_over(module, plain, n)
    };
    if factor <= MAX_FACTOR && large.iter().all(stays_apart) { factor } else { 1 }
}

/// Whether the body takes elements of value `n` from elsewhere than where it makes an element of another.
fn is_read_all_over(module: &Module, plain: &Loop, n: usize) -> bool {
    let mut readers = module[plain.body_parameter].users().iter();
    let moves = |&u: &InstructionId| {
        matches!(
            module[u].op,
            Op::Slice { .. }
                | Op::Pad { .. }
                | Op::Concatenate { .. }
                | Op::Transpose { .. }
                | Op::Reverse { .. }
                | Op::Reshape { .. }
                | Op::Broadcast { .. }
                | Op::ReduceWindow { .. }
                | Op::Gather(_)
                | Op::DynamicSlice { .. }
        )
    };
    readers.any(|&r| element_of(module, r, plain.body_parameter) == Some(n) && module[r].users().iter().any(moves))
}

/// Makes one of `factor` iterations of a loop of `count` iterations.
fn unroll(module: &mut Module, plain: &Loop, factor: usize, count: u64) -> Option<()> {
    let shape = module[plain.body_parameter].shape.clone();
    let iterations = module.add_computation("iterations");
    let parameter = NewInstruction {
        name: "state".into(),
        op: Op::Parameter { number: 0, replication: None },
        shape,
        operands: Operands::new(),
        common: Common::default(),
    };
    let mut state = module.add_instruction(iterations, parameter);
    for _ in 0..factor {
        state = module.inline_computation(iterations, plain.body, &[state])?;
    }
    module.set_root(state);
    let parent = module[plain.id].parent();
    let mut initial = plain.init;
    for _ in 0..count % factor as u64 {
        initial = module.inline_computation(parent, plain.body, &[initial])?;
    }
    module.set_operands(plain.id, Operands::from_slice(&[initial])).ok()?;
    let instruction = module.instruction_mut(plain.id);
    if let Op::While { body, .. } = &mut instruction.op {
        *body = iterations;
    }
    instruction.common.backend_config = Some(trip_count::config(count / factor as u64));
    Some(())
}
