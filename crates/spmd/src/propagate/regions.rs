//! Constants of manual regions apart from those outside.
//!
//! A value is either inside a manual region or not, and what is made of it is on the same side. Constants, and what is made
//! of nothing else, belong where they are used: one that is used on several sides becomes one for each.

use super::manual::ManualAxes;
use super::prepare::failed;
use hloom_ir::Op;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::{Module, NewInstruction};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The manual axes around a value; none outside of manual regions.
type Side = Option<Arc<[u32]>>;

/// An operand of an instruction, and the side on which it is used.
struct Use {
    user: InstructionId,
    operand: usize,
    side: Side,
}

fn enters(op: &Op) -> bool {
    matches!(op, Op::CustomCall(call) if &*call.target == "SPMDFullToShardShape")
}

fn leaves(op: &Op) -> bool {
    matches!(op, Op::CustomCall(call) if &*call.target == "SPMDShardToFullShape")
}

/// Gives each side of manual regions its own copies of the constants that several use.
pub(crate) fn separate(module: &mut Module, computations: &[ComputationId]) -> Result<(), Vec<Diagnostic>> {
    let all = computations.iter().flat_map(|&c| module[c].instructions());
    if !all.into_iter().any(|&i| enters(&module[i].op)) {
        return Ok(());
    }
    let known = ManualAxes::from_operands(module, computations);
    let mut is_free = vec![false; module.instruction_slots()];
    for &c in computations {
        for &i in module[c].instructions() {
            let instruction = &module[i];
            let of_free = || instruction.operands().iter().all(|x| is_free[x.index()]);
            let keeps = |op: &Op| op.is_elementwise() || matches!(op, Op::Broadcast { .. } | Op::Reshape { .. });
            is_free[i.index()] = match &instruction.op {
                Op::Constant(_) | Op::Iota { .. } => true,
                op => keeps(op) && instruction.common.sharding.is_none() && of_free(),
            };
        }
        separate_in(module, c, &known, &is_free)?;
    }
    Ok(())
}

fn separate_in(
    module: &mut Module,
    c: ComputationId,
    known: &ManualAxes,
    is_free: &[bool],
) -> Result<(), Vec<Diagnostic>> {
    let mut uses: FxHashMap<InstructionId, Vec<Use>> = FxHashMap::default();
    let mut order = Vec::new();
    let root = module.root(c);
    // Users come first this way: when it is an instruction's turn, all its uses are known.
    for i in module[c].instructions().to_vec().into_iter().rev() {
        let mut own = known.side(i);
        if is_free[i.index()] {
            let mut here = uses.remove(&i).unwrap_or_default();
            // What is said of a constant itself comes first, then the first of its users in the program.
            if own.is_none() && root != Some(i) {
                own = here.last().and_then(|u| u.side.clone());
            }
            here.retain(|u| u.side != own);
            while let Some(side) = here.last().map(|u| u.side.clone()) {
                let copy = copy_of(module, c, i);
                order.push(copy);
                for u in here.extract_if(.., |u| u.side == side) {
                    module.replace_operand(u.user, u.operand, copy).map_err(failed)?;
                }
                note_uses(module, copy, &side, is_free, &mut uses);
            }
        }
        order.push(i);
        // At the edges of a region operands are on the other side, which they mostly say themselves.
        if !enters(&module[i].op) && !leaves(&module[i].op) {
            note_uses(module, i, &own, is_free, &mut uses);
        }
    }
    order.reverse();
    module.reorder(c, order).map_err(failed)
}

fn note_uses(
    module: &Module,
    user: InstructionId,
    side: &Side,
    is_free: &[bool],
    uses: &mut FxHashMap<InstructionId, Vec<Use>>,
) {
    for (operand, &x) in module[user].operands().iter().enumerate() {
        if is_free[x.index()] {
            uses.entry(x).or_default().push(Use { user, operand, side: side.clone() });
        }
    }
}

/// A copy that nothing is said of.
fn copy_of(module: &mut Module, c: ComputationId, i: InstructionId) -> InstructionId {
    let mut common = module[i].common.clone();
    common.sharding = None;
    let new = NewInstruction {
        name: module[i].name().into(),
        op: module[i].op.clone(),
        operands: module[i].operands().iter().copied().collect(),
        shape: module[i].shape.clone(),
        common,
    };
    module.add_instruction(c, new)
}
