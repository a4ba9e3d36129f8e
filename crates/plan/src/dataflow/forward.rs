//! Carries values along: from operands to what forwards them, from callers to parameters, from roots to callers.
//!
//! Work is done in the order of the flow's post-order and again wherever something changed, until nothing does. The
//! order matters: phis are numbered as they are made.

use super::{Dataflow, NONE, ValueId};
use crate::calls::{AsyncChains, Calls, Context};
use crate::order::Orders;
use crate::positions::{Position, Positions};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::op::Op;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// The values that may arrive at each phi.
pub(super) type Phis = FxHashMap<ValueId, SmallVec<[ValueId; 2]>>;

/// Whether it is a permute that writes slices into its second operand: only the first is then read as a whole.
pub(crate) fn in_place_permute(op: &Op) -> bool {
    matches!(op, Op::CollectivePermute(p) | Op::CollectivePermuteStart(p) if !p.slice_sizes.is_empty())
}

/// A part of a result that holds what a part of an operand holds.
#[derive(Clone, Debug)]
pub(crate) struct Forward {
    /// The operand's part.
    pub(crate) from: Range<Position>,
    /// The result's part.
    pub(crate) to: Range<Position>,
    /// Whether the tables of tuples are the operand's too, and not the instruction's own.
    pub(crate) tables: bool,
}

/// What the instruction hands on from its operands as it is. What comes from computations that it calls is not told here.
pub(crate) fn forwards(positions: &Positions<'_>, id: InstructionId) -> SmallVec<[Forward; 2]> {
    let instruction = &positions.module()[id];
    let here = positions.of(id);
    let first = instruction.operands().first().copied();
    let whole = first.map(|o| positions.of(o));
    let part = |index: &[i64]| first.and_then(|o| positions.part(o, index));
    let own = |index: &[i64]| positions.part(id, index);
    let operands = || instruction.operands().iter().map(|&o| positions.of(o)).collect::<Vec<_>>();
    let one = |from: Option<Range<Position>>, to: Option<Range<Position>>, tables: bool| match (from, to) {
        (Some(from), Some(to)) => smallvec![Forward { from, to, tables }],
        _ => SmallVec::new(),
    };
    match &instruction.op {
        Op::Bitcast | Op::AddDependency | Op::OptBarrier | Op::Domain(_) | Op::AllReduceDone => {
            one(whole, Some(here), true)
        }
        Op::GetTupleElement { index } => one(part(&[*index]), Some(here), true),
        Op::Copy => one(whole.map(|o| o.start + 1..o.end), Some(here.start + 1..here.end), true),
        Op::Tuple => in_turn(operands(), here.start + 1, true),
        Op::CopyStart { .. } => one(whole, own(&[1]), true),
        Op::CopyDone => one(part(&[0]), Some(here), true),
        Op::AsyncStart(_) => own(&[0]).map_or(SmallVec::new(), |i| in_turn(operands(), i.start + 1, false)),
        Op::AsyncUpdate { .. } => {
            let (Some(from), Some(to)) = (part(&[0]), own(&[0])) else { return SmallVec::new() };
            let brought = in_turn(operands().split_off(1), to.start + (from.end - from.start), false);
            let before = Forward { from, to, tables: false };
            [before].into_iter().chain(brought).collect()
        }
        Op::AllGatherDone | Op::CollectivePermuteDone => one(part(&[1]).or(whole), Some(here), false),
        Op::AllGatherStart(_) | Op::CollectivePermuteStart(_) => {
            let Some(inputs) = own(&[0]) else { return SmallVec::new() };
            if !positions.is_tuple(inputs.start) {
                return one(whole, Some(inputs), false);
            }
            let mut operands = operands();
            if in_place_permute(&instruction.op) {
                operands.truncate(1);
            }
            // A single tuple stands for the list of its elements.
            if let [only] = operands.as_mut_slice()
                && positions.is_tuple(only.start)
            {
                only.start += 1;
            }
            in_turn(operands, inputs.start + 1, false)
        }
        Op::Send(_) => one(whole, own(&[0]), true),
        Op::RecvDone(_) => one(part(&[0]), own(&[0]), true),
        _ => SmallVec::new(),
    }
}

/// The parts stand one after another, from `to` on.
fn in_turn(parts: Vec<Range<Position>>, mut to: Position, tables: bool) -> SmallVec<[Forward; 2]> {
    let place = |from: Range<Position>| {
        let start = to;
        to += from.end - from.start;
        Forward { from, to: start..to, tables }
    };
    parts.into_iter().map(place).collect()
}

struct Flow<'a, 'm> {
    dataflow: &'a mut Dataflow<'m>,
    calls: &'a Calls,
    phis: Phis,
    queue: BinaryHeap<Reverse<(u32, usize)>>,
    queued: Vec<bool>,
    ordinal: &'a [u32],
    /// The parameters of computations of the flow, by index.
    parameters: Vec<Vec<InstructionId>>,
    chains: AsyncChains,
}

/// Fills in every position; returns the phis that were made and not found needless on the way.
pub(super) fn propagate(dataflow: &mut Dataflow<'_>, calls: &Calls, orders: &Orders) -> Phis {
    let module = dataflow.module();
    let queued = vec![false; module.instruction_slots()];
    let (phis, queue) = (Phis::default(), BinaryHeap::new());
    let mut parameters = vec![Vec::new(); module.computation_slots()];
    for &computation in module.computations() {
        if let Context::Flow(_) = calls.context(computation) {
            parameters[computation.index()] = module.parameters(computation);
        }
    }
    let chains = AsyncChains::new(module);
    let mut flow = Flow { dataflow, calls, phis, queue, queued, ordinal: &orders.ordinal, parameters, chains };
    for &id in orders.instructions.iter().flatten() {
        flow.add(id);
    }
    while let Some(Reverse((_, index))) = flow.queue.pop() {
        let id = InstructionId::from_index(index);
        flow.queued[index] = false;
        if flow.update(id) {
            flow.tell(id);
        }
    }
    flow.phis
}

impl Flow<'_, '_> {
    fn add(&mut self, id: InstructionId) {
        if !std::mem::replace(&mut self.queued[id.index()], true) {
            self.queue.push(Reverse((self.ordinal[id.index()], id.index())));
        }
    }

    fn add_parameter(&mut self, computation: ComputationId, number: usize) {
        if let Some(&parameter) = self.parameters[computation.index()].get(number) {
            self.add(parameter);
        }
    }

    /// Has everything that reads `id`, or is called with it, looked at again.
    fn tell(&mut self, id: InstructionId) {
        let module = self.dataflow.module();
        for at in 0..self.dataflow.slots.of(id).len() {
            let slot = self.dataflow.slots.of(id)[at];
            self.add(slot.user);
            match &module[slot.user].op {
                Op::Conditional { branches } => {
                    if let Some(&branch) = (slot.operand as usize).checked_sub(1).and_then(|i| branches.get(i)) {
                        self.add_parameter(branch, 0);
                    }
                }
                Op::While { condition, body } => {
                    self.add_parameter(*body, 0);
                    self.add_parameter(*condition, 0);
                }
                Op::Call { to_apply, .. } => self.add_parameter(*to_apply, slot.operand as usize),
                Op::AsyncStart(start) => self.add_parameter(start.calls, slot.operand as usize),
                // Few computations get operands so: all of their parameters are looked at.
                Op::AsyncUpdate { .. } if slot.operand > 0 => {
                    if let Some(computation) = self.chains.computation(module, slot.user) {
                        (0..self.parameters[computation.index()].len())
                            .for_each(|n| self.add_parameter(computation, n));
                    }
                }
                _ => {}
            }
        }
        let parent = module[id].parent();
        if module.root(parent) != Some(id) {
            return;
        }
        if let Context::Flow(caller) = self.calls.context(parent) {
            self.add(caller);
            for at in 0..self.chains.followers(caller).len() {
                self.add(self.chains.followers(caller)[at]);
            }
            if let Op::While { condition, body } = module[caller].op {
                self.add_parameter(body, 0);
                self.add_parameter(condition, 0);
            }
        }
    }

    /// Works out the values at `id` again; whether any changed.
    fn update(&mut self, id: InstructionId) -> bool {
        let module = self.dataflow.module();
        let positions = &self.dataflow.positions;
        let here = positions.of(id);
        let root = |c: ComputationId| module.root(c).map(|r| positions.of(r));
        match &module[id].op {
            Op::Call { to_apply, .. } => self.copy(root(*to_apply), Some(here)),
            Op::While { body, .. } => {
                let operand = module[id].operands().first().map(|&o| positions.of(o));
                let inputs = [root(*body), operand];
                self.phi(here, &inputs)
            }
            Op::Conditional { branches } => {
                let inputs: Vec<_> = branches.iter().map(|&b| root(b)).collect();
                self.phi(here, &inputs)
            }
            Op::Parameter { number, .. } => self.parameter(id, *number),
            Op::AsyncStart(_) | Op::AsyncUpdate { .. } => {
                let result = self.chains.computation(module, id).and_then(root);
                let output = positions.part(id, &[1]);
                self.copy_leaves(result, output) | self.carry(id)
            }
            // The result may not be part of what a start makes: it is what its computation makes.
            Op::AsyncDone => {
                let result = self.chains.computation(module, id).and_then(root);
                self.copy_leaves(result, Some(here))
            }
            _ => self.carry(id),
        }
    }

    fn carry(&mut self, id: InstructionId) -> bool {
        let mut changed = false;
        for Forward { from, to, tables } in forwards(&self.dataflow.positions, id) {
            changed |= if tables { self.copy(Some(from), Some(to)) } else { self.copy_leaves(Some(from), Some(to)) };
        }
        changed
    }

    fn parameter(&mut self, id: InstructionId, number: i64) -> bool {
        let module = self.dataflow.module();
        let positions = &self.dataflow.positions;
        let parent = module[id].parent();
        let Context::Flow(caller) = self.calls.context(parent) else { return false };
        let here = positions.of(id);
        let operand = |i: usize| module[caller].operands().get(i).map(|&o| positions.of(o));
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        match &module[caller].op {
            Op::While { body, .. } => {
                let root = module.root(*body).filter(|&r| r != id).map(|r| positions.of(r));
                let inputs = [operand(0), root];
                self.phi(here, &inputs)
            }
            Op::Conditional { branches } => {
                let branch = branches.iter().position(|&b| b == parent);
                let inputs = [branch.and_then(|b| operand(b + 1))];
                self.phi(here, &inputs)
            }
            Op::AsyncStart(_) if number >= module[caller].operands().len() => {
                let brought = self.chains.operands(module, caller).get(number).map(|&o| positions.of(o));
                self.copy(brought, Some(here))
            }
            _ => self.copy(operand(number), Some(here)),
        }
    }

    fn set(&mut self, position: Position, value: ValueId) -> bool {
        let Some(slot) = self.dataflow.value_at.get_mut(position as usize) else { return false };
        let changed = *slot != value;
        *slot = value;
        changed
    }

    fn copy(&mut self, from: Option<Range<Position>>, to: Option<Range<Position>>) -> bool {
        let (Some(from), Some(to)) = (from, to) else { return false };
        let mut changed = false;
        for (from, to) in from.zip(to) {
            let value = self.dataflow.value_at[from as usize];
            changed |= value != NONE && self.set(to, value);
        }
        changed
    }

    /// As [`Flow::copy`], but for tables of tuples, which the instruction has of its own.
    fn copy_leaves(&mut self, from: Option<Range<Position>>, to: Option<Range<Position>>) -> bool {
        let (Some(from), Some(to)) = (from, to) else { return false };
        let mut changed = false;
        for (from, to) in from.zip(to) {
            let value = self.dataflow.value_at[from as usize];
            let is_leaf = !self.dataflow.positions.is_tuple(from) && !self.dataflow.positions.is_tuple(to);
            changed |= is_leaf && value != NONE && self.set(to, value);
        }
        changed
    }

    /// Merges what arrives at each position of `here`.
    fn phi(&mut self, here: Range<Position>, inputs: &[Option<Range<Position>>]) -> bool {
        let mut changed = false;
        for (nth, position) in here.enumerate() {
            let arriving: SmallVec<[ValueId; 2]> = inputs
                .iter()
                .flatten()
                .filter_map(|input| {
                    let at = input.start as usize + nth;
                    (at < input.end as usize).then(|| self.dataflow.value_at[at]).filter(|&v| v != NONE)
                })
                .collect();
            changed |= self.merge(position, arriving);
        }
        changed
    }

    fn merge(&mut self, position: Position, arriving: SmallVec<[ValueId; 2]>) -> bool {
        let current = self.dataflow.value_at[position as usize];
        let is_own_phi = self.dataflow.value(current).is_some_and(|v| v.is_phi && v.position == position);
        match *arriving {
            [] => false,
            [only] => {
                if current == only {
                    return false;
                }
                if is_own_phi {
                    self.phis.remove(&current);
                    self.dataflow.values[current as usize] = None;
                }
                self.set(position, only)
            }
            _ if !is_own_phi => {
                let phi = self.dataflow.new_value(position, true);
                self.phis.insert(phi, arriving);
                true
            }
            _ => {
                let changed = self.phis.get(&current) != Some(&arriving);
                self.phis.insert(current, arriving);
                changed
            }
        }
    }
}
