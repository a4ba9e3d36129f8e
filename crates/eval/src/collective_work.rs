//! Collective instructions as their transport sees them: rows of bytes, groups and reducers.

use crate::fold::Fold;
use crate::reducer::reducer;
use hloom_comm::{ArrayGeometry, Collective, CollectiveKind, GroupSize, Reducer, RendezvousKey};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::ArrayShape;

/// Where devices meet for an instruction.
pub fn key_of(module: &Module, i: InstructionId) -> RendezvousKey {
    match module[i].op.channel_id() {
        Some(channel) => RendezvousKey::Channel(channel),
        None => RendezvousKey::Instruction(i.index()),
    }
}

/// What they meet for, in words. Devices at the same key must do the same; a name is not part of that, since branches may
/// differ in it.
pub fn purpose_of(module: &Module, i: InstructionId) -> String {
    format!("{} of {}", module[i].opcode(), module[i].shape.without_layout())
}

/// What a device calls it: the instruction and its source line.
pub fn name_of(module: &Module, i: InstructionId) -> String {
    let name = module[i].name();
    match module[i].common.metadata.as_deref() {
        Some(m) if !m.source_file.is_empty() => format!("{name} ({}:{})", m.source_file, m.source_line),
        _ => name.to_owned(),
    }
}

/// The work of a collective on operands of these shapes that gives results of those; `None` if it takes more than moving
/// and reducing bytes (a function of the program, sizes known at run time only).
pub fn work_of(module: &Module, op: &Op, operands: &[ArrayShape], results: &[ArrayShape]) -> Option<Collective> {
    if operands.len() != results.len() {
        return None;
    }
    let (kind, dimension) = match op {
        Op::AllReduce(r) | Op::AllReduceStart(r) => {
            (CollectiveKind::AllReduce(reducers(module, r.to_apply, operands)?), None)
        }
        Op::CollectiveReduce(r) => (CollectiveKind::AllReduce(reducers(module, r.to_apply, operands)?), None),
        Op::ReduceScatter(r) => {
            (CollectiveKind::ReduceScatter(reducers(module, r.to_apply, operands)?), Some(r.dimension))
        }
        Op::AllGather(g) | Op::AllGatherStart(g) => (CollectiveKind::AllGather, Some(g.dimension)),
        Op::AllToAll { split_dimension: Some(dimension), .. } => (CollectiveKind::AllToAllBlocks, Some(*dimension)),
        Op::AllToAll { .. } => (CollectiveKind::AllToAllArrays, None),
        Op::CollectiveBroadcast { has_dynamic_root: false, .. } => (CollectiveKind::Broadcast(0), None),
        Op::CollectivePermute(p) | Op::CollectivePermuteStart(p) if p.slice_sizes.is_empty() => {
            let pair = |&(s, t): &(i64, i64)| Some((usize::try_from(s).ok()?, usize::try_from(t).ok()?));
            (CollectiveKind::Permute(p.source_target_pairs.iter().map(pair).collect::<Option<_>>()?), None)
        }
        _ => return None,
    };
    let arrays = operands.iter().zip(results).map(|(from, to)| geometry(&kind, from, to, dimension));
    let arrays = arrays.collect::<Option<_>>()?;
    Some(Collective { kind, arrays })
}

/// The reducers of operands by a function that is one operation.
fn reducers(module: &Module, function: ComputationId, operands: &[ArrayShape]) -> Option<Vec<Box<dyn Reducer>>> {
    let op = Fold::known_operation(module, function)?;
    operands.iter().map(|o| reducer(op, o.element_type)).collect()
}

/// An operand of which every participant gets the bytes as they are.
pub fn whole(element_type: ElementType, dims: &[i64]) -> Option<ArrayGeometry> {
    let bytes = ArrayShape::new(element_type, dims.iter().copied()).byte_size()?;
    Some(ArrayGeometry { bytes: usize::try_from(bytes).ok()?, rows: 1, group: GroupSize::Any })
}

fn geometry(
    kind: &CollectiveKind,
    from: &ArrayShape,
    to: &ArrayShape,
    dimension: Option<i64>,
) -> Option<ArrayGeometry> {
    let whole = whole(from.element_type, from.dims())?;
    if to.element_type != from.element_type {
        return None;
    }
    let Some(dimension) = dimension else { return (to.dims() == from.dims()).then_some(whole) };
    let dimension = usize::try_from(dimension).ok()?;
    let (size, other) = (*from.dims().get(dimension)?, *to.dims().get(dimension)?);
    let rows = usize::try_from(from.dims()[..dimension].iter().product::<i64>()).ok()?;
    let same = |n: usize| n == dimension || from.dims().get(n) == to.dims().get(n);
    if from.rank() != to.rank() || !(0..from.rank()).all(same) {
        return None;
    }
    let times = |many: i64, few: i64| (few > 0 && many % few == 0).then(|| usize::try_from(many / few).ok()).flatten();
    let group = match kind {
        // Nothing is gathered from any number of devices.
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter(_) if (size, other) == (0, 0) => GroupSize::Any,
        CollectiveKind::AllGather => GroupSize::Exactly(times(other, size)?),
        CollectiveKind::ReduceScatter(_) => GroupSize::Exactly(times(size, other)?),
        _ => GroupSize::Dividing(usize::try_from(size).ok().filter(|_| size == other)?),
    };
    Some(ArrayGeometry { rows, group, ..whole })
}
