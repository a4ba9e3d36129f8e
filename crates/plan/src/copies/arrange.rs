//! An order for modules without a schedule in which few copies are needed.
//!
//! It is a post-order, but for instructions that write over a value (in place, or because their result is what a loop
//! carries on): those wait for everyone who still wants to read it. Where all wait for each other, the one goes first
//! that writes over the least, since that is what will be copied: a row that was read from an array goes before the
//! update of the array. The root comes last.

use super::Order;
use crate::calls::Calls;
use crate::dataflow::{Dataflow, ValueId};
use crate::in_place::InPlace;
use crate::order::Orders;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::op::Op;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Those who read one value within one computation and have not come yet, and those who wait for them.
struct Readers {
    left: u32,
    waiting: Vec<(InstructionId, bool)>,
}

#[derive(Default)]
struct Waits {
    readers: Vec<Readers>,
    by_value: FxHashMap<(ValueId, ComputationId), usize>,
    /// Which lists of readers an instruction is on.
    reads: FxHashMap<InstructionId, Vec<usize>>,
    /// How many lists an instruction waits for.
    waits_for: FxHashMap<InstructionId, u32>,
    /// The bytes of the values that an instruction waits to write over.
    bytes: FxHashMap<InstructionId, i64>,
}

pub(super) fn arrange(dataflow: &Dataflow<'_>, calls: &Calls, orders: &Orders, in_place: &InPlace<'_>) -> Order {
    let module = dataflow.module();
    let mut waits = Waits::default();
    for &computation in module.computations().iter().filter(|&&c| calls.is_global(c)) {
        for &id in module[computation].instructions() {
            for pair in in_place.pairs(id) {
                let operand = module[id].operands().get(pair.operand);
                let part = operand.and_then(|&o| dataflow.positions.part(o, &pair.operand_index));
                if let Some(value) = part.and_then(|p| dataflow.at(p.start)) {
                    waits.add(dataflow, id, value);
                }
            }
            if let Op::While { body, .. } = module[id].op {
                carried(dataflow, body, &mut waits);
            }
        }
    }
    let mut order = super::as_it_stands(module);
    for &computation in module.computations().iter().filter(|&&c| calls.is_global(c)) {
        order[computation.index()] =
            arranged(dataflow, &orders.instructions[computation.index()], computation, &mut waits);
    }
    order
}

/// Whoever makes what a loop carries on waits for the readers of what it carried so far.
fn carried(dataflow: &Dataflow<'_>, body: ComputationId, waits: &mut Waits) {
    let module = dataflow.module();
    let (Some(&parameter), Some(root)) = (module.parameters(body).first(), module.root(body)) else { return };
    for (old, new) in dataflow.positions.of(parameter).zip(dataflow.positions.of(root)) {
        let (Some(old), Some(new)) = (dataflow.at(old), dataflow.at(new)) else { continue };
        let Some(made) = dataflow.value(new).filter(|v| !v.is_phi) else { continue };
        let maker = dataflow.instruction(made);
        if old != new && module[maker].parent() == body && maker != root {
            waits.add(dataflow, maker, old);
        }
    }
}

impl Waits {
    /// Has `writer` wait for the readers of `value` in its computation.
    fn add(&mut self, dataflow: &Dataflow<'_>, writer: InstructionId, value: ValueId) {
        let module = dataflow.module();
        let home = module[writer].parent();
        let list = match self.by_value.get(&(value, home)) {
            Some(&list) => list,
            None => {
                let mut users: Vec<InstructionId> = dataflow.uses_of(value).iter().map(|u| u.user).collect();
                users.retain(|&u| module[u].parent() == home && module.root(home) != Some(u));
                users.sort_unstable();
                users.dedup();
                let list = self.readers.len();
                users.iter().for_each(|&u| self.reads.entry(u).or_default().push(list));
                self.readers.push(Readers { left: users.len() as u32, waiting: Vec::new() });
                self.by_value.insert((value, home), list);
                list
            }
        };
        let is_reader = self.reads.get(&writer).is_some_and(|lists| lists.contains(&list));
        let waiting = &mut self.readers[list].waiting;
        if waiting.iter().rev().take(8).any(|w| w.0 == writer) {
            return;
        }
        waiting.push((writer, is_reader));
        if self.readers[list].left > u32::from(is_reader) {
            *self.waits_for.entry(writer).or_default() += 1;
            let bytes = dataflow.value(value).and_then(|v| dataflow.positions.shape(v.position).byte_size());
            let all = self.bytes.entry(writer).or_default();
            *all = all.saturating_add(bytes.unwrap_or(i64::MAX));
        }
    }

    /// Notes that `id` has come; returns those who have nobody to wait for any more.
    fn came(&mut self, id: InstructionId) -> Vec<InstructionId> {
        let mut free = Vec::new();
        for list in self.reads.remove(&id).unwrap_or_default() {
            let readers = &mut self.readers[list];
            readers.left = readers.left.saturating_sub(1);
            let left = readers.left;
            if left > 1 {
                continue;
            }
            for &(writer, is_reader) in readers.waiting.iter().filter(|w| w.1 == (left == 1)) {
                if left == 0 && is_reader {
                    continue;
                }
                if let Some(count) = self.waits_for.get_mut(&writer) {
                    *count = count.saturating_sub(1);
                    if *count == 0 {
                        free.push(writer);
                    }
                }
            }
        }
        free
    }

    fn must_wait(&self, id: InstructionId) -> bool {
        self.waits_for.get(&id).is_some_and(|&n| n > 0)
    }

    fn bytes_over(&self, id: InstructionId) -> i64 {
        self.bytes.get(&id).copied().unwrap_or(0)
    }
}

fn arranged(
    dataflow: &Dataflow<'_>,
    post_order: &[InstructionId],
    computation: ComputationId,
    waits: &mut Waits,
) -> Vec<InstructionId> {
    let module = dataflow.module();
    let root = module.root(computation);
    let mut rank: FxHashMap<InstructionId, u32> = FxHashMap::default();
    let mut needs: Vec<u32> = Vec::with_capacity(post_order.len());
    let mut followers: Vec<Vec<u32>> = vec![Vec::new(); post_order.len()];
    for (at, &id) in post_order.iter().enumerate() {
        rank.insert(id, at as u32);
    }
    for (at, &id) in post_order.iter().enumerate() {
        let mut first: Vec<u32> = module[id].operands().iter().filter_map(|o| rank.get(o).copied()).collect();
        first.extend(module[id].common.control_predecessors().iter().filter_map(|o| rank.get(o).copied()));
        first.sort_unstable();
        first.dedup();
        needs.push(first.len() as u32);
        first.iter().for_each(|&o| followers[o as usize].push(at as u32));
    }
    let mut ready: BinaryHeap<Reverse<u32>> = BinaryHeap::new();
    // By what would have to be copied; the root is after all others.
    let mut waiting: BinaryHeap<Reverse<(bool, i64, u32)>> = BinaryHeap::new();
    let mut is_done = vec![false; post_order.len()];
    let mut order = Vec::with_capacity(post_order.len());
    let is_last = |id: InstructionId| Some(id) == root;
    for (at, &id) in post_order.iter().enumerate().filter(|&(at, _)| needs[at] == 0) {
        match waits.must_wait(id) || is_last(id) {
            true => waiting.push(Reverse((is_last(id), waits.bytes_over(id), at as u32))),
            false => ready.push(Reverse(at as u32)),
        }
    }
    while let Some(Reverse(at)) = ready.pop().or_else(|| waiting.pop().map(|Reverse((_, _, at))| Reverse(at))) {
        if std::mem::replace(&mut is_done[at as usize], true) {
            continue;
        }
        let id = post_order[at as usize];
        order.push(id);
        for free in waits.came(id) {
            if let Some(&at) = rank.get(&free)
                && needs[at as usize] == 0
                && !is_done[at as usize]
                && !is_last(free)
            {
                ready.push(Reverse(at));
            }
        }
        for &follower in &followers[at as usize] {
            needs[follower as usize] -= 1;
            if needs[follower as usize] == 0 {
                let id = post_order[follower as usize];
                match waits.must_wait(id) || is_last(id) {
                    true => waiting.push(Reverse((is_last(id), waits.bytes_over(id), follower))),
                    false => ready.push(Reverse(follower)),
                }
            }
        }
    }
    order
}
