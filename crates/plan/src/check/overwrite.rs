//! Whether an operation can, in principle, write its result over an operand of the same size: not if it reads elements after
//! it has written others to their place.
//!
//! What a backend knows of its own operations is not known here: where it cannot be told, it may.

use super::memory::Spot;
use crate::backend_config::shared_places;
use hloom_ir::attributes::{FusionKind, WindowDim};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;
use rustc_hash::FxHashSet;

/// Whether `id` may write a result over what it reads at the operands `slots`.
pub(super) fn may_write_over(module: &Module, id: InstructionId, slots: &[usize]) -> bool {
    // The compiler that writes the kernel knows best.
    let config = module[id].common.backend_config.as_deref();
    if let Some(places) = config.and_then(|c| shared_places(c, module[id].operands().len()))
        && slots.iter().all(|slot| places.iter().any(|(operand, _)| operand == slot))
    {
        return true;
    }
    match &module[id].op {
        // Slices are written into the second operand.
        Op::CollectivePermute(p) => !p.slice_sizes.is_empty(),
        Op::Fusion(f) if matches!(f.kind, FusionKind::Loop | FusionKind::Input) => {
            let aliased =
                |slot: &usize| f.output_operand_aliasing.iter().any(|a| usize::try_from(a.operand) == Ok(*slot));
            let keeps = |slot: usize| keeps_elements(module, f.calls, slot) || keeps_rows(module, f.calls, slot);
            slots.iter().all(|slot| aliased(slot) || keeps(*slot))
        }
        // What updates a part of its first operand must not read the others from there.
        Op::DynamicUpdateSlice | Op::Scatter(_) | Op::SetDimensionSize { .. } => {
            !moves_elements(module, id) && slots.len() == 1
        }
        // Windows that end at each element can be made one from the other, along with what has been read.
        Op::ReduceWindow { window, .. } => {
            let ends_there = |w: &WindowDim| w.stride == 1 && w.padding_low.max(w.padding_high) == w.size - 1;
            slots == [0] && window.dims.iter().all(ends_there)
        }
        _ => !moves_elements(module, id),
    }
}

/// Whether an instruction moves nothing, since its result is the memory of its operands one after another, and these lie so
/// in that spot.
pub(super) fn is_made_of(
    module: &Module,
    id: InstructionId,
    mut operands: impl Iterator<Item = Option<Spot>>,
    spot: Spot,
) -> bool {
    let is_name = matches!(&module[id].op, Op::CustomCall(call) if &*call.target == "ConcatBitcast");
    let mut at = spot.start;
    let mut follows = |operand: Option<Spot>| {
        let is_next = operand.is_some_and(|o| o.allocation == spot.allocation && o.start == at);
        at = operand.map_or(at, |o| o.end);
        is_next
    };
    is_name && operands.all(&mut follows) && at == spot.end
}

/// The operands that an instruction updates in place, each with the element of its result that is the same memory, or the
/// whole result.
pub(super) fn in_place(module: &Module, id: InstructionId) -> Vec<(usize, Option<i64>)> {
    let instruction = &module[id];
    let each = |count: usize| match count {
        1 => vec![(0, None)],
        n => (0..n).map(|i| (i, Some(i as i64))).collect(),
    };
    match &instruction.op {
        Op::DynamicUpdateSlice | Op::SetDimensionSize { .. } => vec![(0, None)],
        Op::Scatter(_) => each(instruction.operands().len().saturating_sub(1) / 2),
        Op::AllReduceStart(_) => each(instruction.operands().len()),
        Op::RaggedAllToAll { .. } => vec![(1, None)],
        Op::Fusion(f) => {
            let Some(root) = module.root(f.calls) else { return Vec::new() };
            let operand = |of: InstructionId| match module[updates(module, of)?].op {
                Op::Parameter { number, .. } => usize::try_from(number).ok(),
                _ => None,
            };
            match module[root].op {
                Op::Tuple => {
                    let elements = module[root].operands().iter().enumerate();
                    elements.filter_map(|(i, &e)| Some((operand(e)?, Some(i as i64)))).collect()
                }
                // Several updates at once have several results; which is which is not looked into.
                _ if module[root].shape.is_tuple() => Vec::new(),
                _ => operand(root).map(|o| (o, None)).into_iter().collect(),
            }
        }
        _ => Vec::new(),
    }
}

/// Whether every element of a fusion's result needs that parameter's element at the same place only, or the fusion
/// updates the parameter in place.
fn keeps_elements(module: &Module, body: ComputationId, slot: usize) -> bool {
    let (Some(&parameter), Some(root)) = (module.parameters(body).get(slot), module.root(body)) else { return true };
    let mut results = vec![root];
    if let Op::Tuple = module[root].op {
        results.extend(module[root].operands());
    }
    if results.iter().any(|&r| updates(module, r) == Some(parameter)) {
        return true;
    }
    let mut seen: FxHashSet<InstructionId> = FxHashSet::default();
    let mut stack = vec![parameter];
    while let Some(id) = stack.pop() {
        for &user in module[id].users().iter().filter(|&&u| !moves_nothing(module, u)) {
            // Within a fusion a copy into the same layout is nothing.
            let is_nothing = matches!(module[user].op, Op::Copy) && module[user].shape == module[id].shape;
            if moves_elements(module, user) && !is_nothing {
                return false;
            }
            if seen.insert(user) {
                stack.push(user);
            }
        }
        let silent: Vec<InstructionId> =
            module[id].users().iter().copied().filter(|&u| moves_nothing(module, u) && seen.insert(u)).collect();
        stack.extend(silent);
    }
    true
}

/// Whether every row of a fusion's result needs that parameter's row at the same place only: what is reduced goes to the
/// row that it came from, so that rows can be done one after the other.
fn keeps_rows(module: &Module, body: ComputationId, slot: usize) -> bool {
    let (Some(&parameter), Some(root)) = (module.parameters(body).get(slot), module.root(body)) else { return true };
    let sizes = |id: InstructionId| module[id].shape.as_array().map_or(&[][..], |a| a.dims());
    let whole = sizes(parameter);
    let mut seen: FxHashSet<InstructionId> = FxHashSet::from_iter([parameter]);
    let mut stack = vec![parameter];
    while let Some(id) = stack.pop() {
        for &user in module[id].users() {
            let stays = match &module[user].op {
                Op::Reduce { dimensions, .. } => {
                    let row = sizes(id).len() - dimensions.len().min(sizes(id).len());
                    sizes(user) == &whole[..row.min(whole.len())] && dimensions.iter().all(|&d| d as usize >= row)
                }
                Op::Broadcast { dimensions } => {
                    sizes(user) == whole && dimensions.iter().enumerate().all(|(n, &d)| d as usize == n)
                }
                _ => !moves_elements(module, user) && whole.starts_with(sizes(user)),
            };
            if !stays {
                return false;
            }
            if seen.insert(user) {
                stack.push(user);
            }
        }
    }
    sizes(root) == whole
}

fn moves_nothing(module: &Module, id: InstructionId) -> bool {
    matches!(module[id].op, Op::Tuple | Op::GetTupleElement { .. } | Op::Bitcast)
}

/// The parameter that an in-place operation updates, through bitcasts.
fn updates(module: &Module, mut id: InstructionId) -> Option<InstructionId> {
    let first = |id: InstructionId| module[id].operands().first().copied();
    while let Op::Bitcast = module[id].op {
        id = first(id)?;
    }
    if !matches!(module[id].op, Op::DynamicUpdateSlice | Op::Scatter(_)) {
        return None;
    }
    let mut source = first(id)?;
    while let Op::Bitcast = module[source].op {
        source = first(source)?;
    }
    Some(source)
}

fn moves_elements(module: &Module, id: InstructionId) -> bool {
    matches!(
        module[id].opcode(),
        Opcode::Dot
            | Opcode::RaggedDot
            | Opcode::ScaledDot
            | Opcode::Convolution
            | Opcode::Transpose
            | Opcode::Reverse
            | Opcode::Concatenate
            | Opcode::Slice
            | Opcode::DynamicSlice
            | Opcode::Pad
            | Opcode::Gather
            | Opcode::Broadcast
            | Opcode::Reduce
            | Opcode::ReduceWindow
            | Opcode::SelectAndScatter
            | Opcode::Fft
            | Opcode::AllGather
            | Opcode::AllToAll
            | Opcode::ReduceScatter
            | Opcode::Copy
            | Opcode::Reshape
    )
}
