//! Collectives as a start and a wait, so that what does not need the result can be done in between.
//!
//! For machines that move data while they compute. The schedule decides what stands between the two.

use crate::facts::pinned;
use crate::pass::{Context, Pass};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;

/// The pass.
pub static PASS: Pass = Pass {
    name: "start-collectives",
    statement: "makes a start and a done of each all-reduce, all-gather and collective-permute",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(start_all(module)) as Result<usize, Diagnostic>,
};

fn start_all(module: &mut Module) -> usize {
    let pinned = pinned(module);
    let mut dead = Vec::new();
    for c in module.computations().to_vec() {
        for i in module[c].instructions().to_vec() {
            if !pinned[i] && start(module, i).is_some() {
                dead.push(i);
            }
        }
    }
    if !dead.is_empty() {
        let removed = module.remove_instructions(&dead);
        debug_assert!(removed.is_ok(), "{removed:?}");
    }
    dead.len()
}

/// Puts a start and a done in the place of `i`, if it is a collective that has them.
fn start(module: &mut Module, i: InstructionId) -> Option<()> {
    let result = module[i].shape.clone();
    let with_operand = || {
        let &[x] = module[i].operands() else { return None };
        Some(Shape::tuple([module[x].shape.clone(), result.clone()]))
    };
    let (start, done, shape) = match &module[i].op {
        Op::AllReduce(a) => (Op::AllReduceStart(a.clone()), Op::AllReduceDone, result.clone()),
        Op::AllGather(a) => (Op::AllGatherStart(a.clone()), Op::AllGatherDone, with_operand()?),
        Op::CollectivePermute(p) if p.slice_sizes.is_empty() => {
            (Op::CollectivePermuteStart(p.clone()), Op::CollectivePermuteDone, with_operand()?)
        }
        _ => return None,
    };
    let home = module[i].parent();
    if let Some(root) = module.root(home) {
        module.set_root(root);
    }
    let metadata = module[i].common.metadata.clone();
    let common = || Common { metadata: metadata.clone(), ..Common::default() };
    let operands = Operands::from_slice(module[i].operands());
    let new = NewInstruction { name: start.opcode().name().into(), op: start, shape, operands, common: common() };
    let started = module.add_instruction(home, new);
    let new = NewInstruction {
        name: done.opcode().name().into(),
        op: done,
        shape: result,
        operands: Operands::from_slice(&[started]),
        common: common(),
    };
    let finished = module.add_instruction(home, new);
    module.replace_all_uses(i, finished).ok()
}
