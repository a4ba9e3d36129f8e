//! Who reads each instruction, slot by slot, in the order of XLA's lists of users as far as a text tells it.
//!
//! The order is that in which users were made: post-order comes nearest. The elements of a tuple are made in the order of
//! their indices, and when one is taken away the last takes its place.

use crate::order::Orders;
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;

/// An operand slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The instruction that reads.
    pub user: InstructionId,
    /// Which of its operands.
    pub operand: u32,
}

/// For each instruction the slots that hold it.
#[derive(Debug)]
pub struct Slots {
    start: Vec<u32>,
    all: Vec<Slot>,
    deep_start: Vec<u32>,
    deep: Vec<Slot>,
}

/// Whether it reads no more of an operand than the table of a tuple, or nothing at all.
fn is_shallow(op: &Op) -> bool {
    matches!(op, Op::GetTupleElement { .. } | Op::Tuple | Op::Domain(_) | Op::Copy)
}

impl Slots {
    /// The slots of `module`.
    pub fn new(module: &Module, orders: &Orders) -> Slots {
        let mut counts = vec![0u32; module.instruction_slots() + 1];
        let users = || orders.instructions.iter().flatten().copied();
        for user in users() {
            for operand in module[user].operands() {
                counts[operand.index() + 1] += 1;
            }
        }
        for i in 1..counts.len() {
            counts[i] += counts[i - 1];
        }
        let empty = Slot { user: InstructionId::from_index(0), operand: 0 };
        let mut all = vec![empty; counts.last().copied().unwrap_or(0) as usize];
        let mut next = counts.clone();
        for user in users() {
            for (i, operand) in module[user].operands().iter().enumerate() {
                let at = &mut next[operand.index()];
                all[*at as usize] = Slot { user, operand: i as u32 };
                *at += 1;
            }
        }
        for id in users() {
            let slots = counts[id.index()] as usize..counts[id.index() + 1] as usize;
            order_elements(module, id, &mut all[slots]);
        }
        let mut deep = Vec::new();
        let mut deep_start = vec![0u32; counts.len()];
        for i in 0..counts.len().saturating_sub(1) {
            deep_start[i] = deep.len() as u32;
            for slot in &all[counts[i] as usize..counts[i + 1] as usize] {
                let user = slot.user;
                if !is_shallow(&module[user].op) || module.root(module[user].parent()) == Some(user) {
                    deep.push(*slot);
                }
            }
        }
        if let Some(last) = deep_start.last_mut() {
            *last = deep.len() as u32;
        }
        Slots { start: counts, all, deep_start, deep }
    }

    /// Every slot that holds the instruction.
    pub fn of(&self, id: InstructionId) -> &[Slot] {
        &self.all[self.start[id.index()] as usize..self.start[id.index() + 1] as usize]
    }

    /// Those that may read parts of a tuple: element-takers and tuple-makers are left out, unless they are roots.
    pub fn deep(&self, id: InstructionId) -> &[Slot] {
        &self.deep[self.deep_start[id.index()] as usize..self.deep_start[id.index() + 1] as usize]
    }
}

/// Where only element-takers read a tuple, each index once, they stand by index; the slot of one that is missing is taken
/// by the last.
fn order_elements(module: &Module, id: InstructionId, slots: &mut [Slot]) {
    let Some(elements) = module[id].shape.as_tuple() else { return };
    let mut by_index: Vec<Option<Slot>> = vec![None; elements.len()];
    for slot in slots.iter() {
        let Op::GetTupleElement { index } = module[slot.user].op else { return };
        let Some(place) = usize::try_from(index).ok().and_then(|i| by_index.get_mut(i)) else { return };
        if place.replace(*slot).is_some() {
            return;
        }
    }
    let mut at = 0;
    while at < by_index.len() {
        match by_index[at] {
            Some(_) => at += 1,
            None => {
                by_index.swap_remove(at);
            }
        }
    }
    for (slot, ordered) in slots.iter_mut().zip(by_index.into_iter().flatten()) {
        *slot = ordered;
    }
}
