//! Writing an assignment of memory spaces into the module: layouts, copies, and the schedule around them.

use super::candidates::{Eviction, Read};
use super::{Decisions, Evicted, Prefetch, slices};
use crate::edit::add;
use crate::policy::FastMemory;
use hloom_ir::diagnostic::codes::passes::BROKEN_MODULE;
use hloom_ir::diagnostic::{Blame, Diagnostic};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::layout::Layout;
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::Op;
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_ir::verify::VerifiedModule;
use hloom_plan::positions::Positions;
use hloom_target::Target;
use rustc_hash::{FxHashMap, FxHashSet};

/// Changes `module`, which is a copy of `verified`, and says how much.
pub(super) fn apply(
    verified: &VerifiedModule,
    module: &mut Module,
    decisions: &Decisions,
    fast: FastMemory,
) -> Result<usize, Diagnostic> {
    let Some(positions) = Positions::new(verified.module()) else { return Ok(0) };
    for &position in &decisions.moved {
        let i = positions.instruction(position);
        let shape = with_space(&module[i].shape, &positions.index(position), fast.memory_space);
        module.instruction_mut(i).shape = shape;
    }
    let mut places: FxHashMap<InstructionId, usize> = FxHashMap::default();
    for &c in verified.module().computations() {
        places.extend(verified.module()[c].instructions().iter().enumerate().map(|(n, &i)| (i, n)));
    }
    let mut insertions: FxHashMap<InstructionId, Vec<InstructionId>> = FxHashMap::default();
    let mut first = None;
    if let Some((source, reads)) = &decisions.first {
        let (start, done) = copy(module, *source, fast.memory_space, Some(0));
        insertions.entry(reads[0].user).or_default().push(done);
        redirect(module, reads, done, &mut insertions);
        first = Some((*source, start));
    }
    let mut starts: FxHashMap<InstructionId, Vec<InstructionId>> = FxHashMap::default();
    for Prefetch { source, before, slices, reads } in &decisions.prefetches {
        let sliced = match slices {
            Some((cut, _)) => slices::fetch(module, *source, fast.memory_space, *cut),
            None => None,
        };
        let done = match sliced {
            Some(sliced) => {
                let later = slices.iter().flat_map(|(_, later)| later);
                for (start, before) in sliced.starts.into_iter().zip([before].into_iter().chain(later)) {
                    starts.entry(*before).or_default().push(start);
                }
                insertions.entry(reads[0].user).or_default().extend(sliced.dones);
                sliced.whole
            }
            None => {
                let (start, done) = copy(module, *source, fast.memory_space, None);
                starts.entry(*before).or_default().push(start);
                done
            }
        };
        insertions.entry(reads[0].user).or_default().push(done);
        redirect(module, reads, done, &mut insertions);
    }
    let after = |i: InstructionId| {
        let old = verified.module()[verified.module()[i].parent()].instructions();
        places.get(&i).and_then(|&at| old.get(at + 1)).copied()
    };
    for Evicted { source, before, reads, results } in &decisions.evicted {
        let (start, done) = copy(module, *source, 0, None);
        redirect(module, reads, done, &mut insertions);
        for result in results {
            if let &Eviction::Element(tuple, operand) = result {
                let _ = module.replace_operand(tuple, operand, done);
            }
        }
        starts.entry(after(*source).unwrap_or(*before)).or_default().push(start);
        insertions.entry(*before).or_default().insert(0, done);
    }
    let mut last = Vec::new();
    for &eviction in &decisions.evictions {
        match eviction {
            Eviction::Element(result, operand) => {
                let Some(&value) = module[result].operands().get(operand) else { continue };
                let (start, done) = copy(module, value, 0, None);
                let _ = module.replace_operand(result, operand, done);
                // The way back begins as soon as the value is there.
                starts.entry(after(value).unwrap_or(result)).or_default().push(start);
                insertions.entry(result).or_default().push(done);
            }
            Eviction::Whole(result) => {
                let (start, done) = copy(module, result, 0, None);
                module.set_root(done);
                last.extend([start, done]);
            }
        }
    }
    for c in verified.module().computations() {
        let old = verified.module()[*c].instructions();
        let mut order = reordered(module, *c, old, first, &starts, &insertions);
        order.extend(last.iter().filter(|&&i| module[i].parent() == *c));
        module.reorder(*c, order.clone()).map_err(|_| not_placed(module, *c, &order))?;
    }
    mark_bodies(module);
    Ok(decisions.moved.len() + decisions.prefetches.len() + usize::from(first.is_some()))
}

/// Has these readers read `copy` instead, by the bitcasts by which they read what it is a copy of.
fn redirect(
    module: &mut Module,
    reads: &[Read],
    copy: InstructionId,
    before: &mut FxHashMap<InstructionId, Vec<InstructionId>>,
) {
    let memory_space = Target::memory_space(&module[copy].shape);
    for read in reads {
        let mut bitcasts = Vec::new();
        let mut at = module[read.user].operands().get(read.operand).copied();
        while let Some(i) = at.filter(|&i| matches!(module[i].op, Op::Bitcast)) {
            bitcasts.push(i);
            at = module[i].operands().first().copied();
        }
        let mut value = copy;
        for &bitcast in bitcasts.iter().rev() {
            let shape = with_space(&module[bitcast].shape, &[], memory_space);
            value = add(module, copy, "bitcast", Op::Bitcast, shape, &[value], Common::default());
            before.entry(read.user).or_default().push(value);
        }
        let _ = module.replace_operand(read.user, read.operand, value);
    }
}

fn not_placed(module: &Module, c: ComputationId, order: &[InstructionId]) -> Diagnostic {
    let strange = |i: &&InstructionId| module[**i].parent() != c;
    let missing = module[c].instructions().iter().find(|i| !order.contains(i));
    let missing = missing.or(order.iter().find(strange)).or(order.last());
    let name = missing.map_or("?", |&i| module[i].name());
    let message = format!("`{name}` has no place in the schedule of `{}`", module[c].name());
    Diagnostic::error(&BROKEN_MODULE, message).blame(Blame::Hloom)
}

/// The order of a computation with its copies: a copy's start before what hides it, its done before its first reader.
fn reordered(
    module: &Module,
    c: ComputationId,
    old: &[InstructionId],
    first: Option<(InstructionId, InstructionId)>,
    starts: &FxHashMap<InstructionId, Vec<InstructionId>>,
    dones: &FxHashMap<InstructionId, Vec<InstructionId>>,
) -> Vec<InstructionId> {
    let mut order = Vec::with_capacity(old.len());
    // Parameters, and parts of them, whose copy starts before their place come with it.
    let mut early: FxHashSet<InstructionId> = FxHashSet::default();
    if let Some((source, start)) = first.filter(|(source, _)| module[*source].parent() == c) {
        place_argument(module, source, &mut early, &mut order);
        order.push(start);
    }
    for &i in old {
        for &start in starts.get(&i).into_iter().flatten() {
            if let Some(&source) = module[start].operands().first() {
                place_argument(module, source, &mut early, &mut order);
            }
            order.push(start);
        }
        order.extend(dones.get(&i).into_iter().flatten());
        if !early.contains(&i) {
            order.push(i);
            // What stands at its place is not brought forward any more.
            if matches!(module[i].op, Op::Parameter { .. } | Op::GetTupleElement { .. }) {
                early.insert(i);
            }
        }
    }
    order
}

/// Appends a parameter, or a part of one with what it is taken from, unless it is `placed` already.
fn place_argument(
    module: &Module,
    source: InstructionId,
    placed: &mut FxHashSet<InstructionId>,
    order: &mut Vec<InstructionId>,
) {
    let mut chain = vec![source];
    let mut at = source;
    while let Op::GetTupleElement { .. } = module[at].op {
        let Some(&whole) = module[at].operands().first() else { return };
        at = whole;
        chain.push(at);
    }
    if matches!(module[at].op, Op::Parameter { .. }) {
        order.extend(chain.into_iter().rev().filter(|&i| placed.insert(i)));
    }
}

/// Adds a copy of `source` to a memory; the order is the caller's to set.
fn copy(
    module: &mut Module,
    source: InstructionId,
    memory_space: i64,
    first: Option<i32>,
) -> (InstructionId, InstructionId) {
    let home = module[source].parent();
    if let Some(root) = module.root(home) {
        module.set_root(root);
    }
    let from = module[source].shape.clone();
    let to = with_space(&from, &[], memory_space);
    let semaphore = Layout { memory_space: 2, ..Layout::default() };
    let word = ArrayShape::new(ElementType::U32, []).with_layout(semaphore).into();
    let start = NewInstruction {
        name: "copy-start".into(),
        op: Op::CopyStart { cross_program_prefetch_index: first },
        shape: Shape::tuple([to.clone(), from, word]),
        operands: Operands::from_slice(&[source]),
        common: Common::default(),
    };
    let start = module.add_instruction(home, start);
    let done = NewInstruction {
        name: "copy-done".into(),
        op: Op::CopyDone,
        shape: to,
        operands: Operands::from_slice(&[start]),
        common: Common::default(),
    };
    (start, module.add_instruction(home, done))
}

/// The shape with the array at `index` in that memory.
pub(super) fn with_space(shape: &Shape, index: &[i64], memory_space: i64) -> Shape {
    match (shape, index.split_first()) {
        (Shape::Tuple(elements), Some((&at, rest))) => {
            let part =
                |(n, e): (usize, &Shape)| if n as i64 == at { with_space(e, rest, memory_space) } else { e.clone() };
            Shape::Tuple(elements.iter().enumerate().map(part).collect())
        }
        (Shape::Array(array), _) => {
            let mut array = (**array).clone();
            let rank = array.rank();
            array.layout.get_or_insert_with(|| Layout::descending(rank)).memory_space = memory_space;
            array.into()
        }
        (other, _) => other.clone(),
    }
}

/// Parameters and results of fusions' bodies lie where the caller has them; what is inside has no place.
pub(super) fn mark_bodies(module: &mut Module) {
    // Callers before callees, so that a nested fusion finds its operands marked.
    let mut order = hloom_ir::order::computations(module);
    order.reverse();
    let mut is_body = vec![false; module.computation_slots()];
    for &c in &order {
        for i in module[c].instructions().to_vec() {
            let Op::Fusion(fusion) = &module[i].op else { continue };
            let (body, inside) = (fusion.calls, is_body[hloom_ir::entity::EntityId::index(c)]);
            is_body[hloom_ir::entity::EntityId::index(body)] = true;
            let operands: Operands = module[i].operands().into();
            for (parameter, operand) in module.parameters(body).into_iter().zip(operands) {
                let is_passed = !inside || matches!(module[operand].op, Op::Parameter { .. });
                let shape = module[operand].shape.clone();
                if is_passed && module[parameter].shape.equal_ignoring_layout(&shape) {
                    module.instruction_mut(parameter).shape = shape;
                }
            }
            if inside {
                continue;
            }
            let Some(root) = module.root(body) else { continue };
            let shape = module[i].shape.clone();
            if let (Op::Tuple, Some(parts)) = (&module[root].op, shape.as_tuple()) {
                let elements: Operands = module[root].operands().into();
                for (element, part) in elements.into_iter().zip(parts) {
                    module.instruction_mut(element).shape = part.clone();
                }
            }
            module.instruction_mut(root).shape = shape;
        }
    }
}
