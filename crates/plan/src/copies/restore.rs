//! The order in which a module stood, as far as what it has now allows.
//!
//! A module without a schedule is arranged to find out which copies it needs; once control dependencies say what matters
//! of that order, the rest of it goes back to what it was. Copies come right before whoever reads them.

use super::Order;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Puts the instructions of every computation back into `before`, each as early as its operands and control predecessors
/// allow; new ones come with the next old one after them.
pub(super) fn restore(module: &mut Module, before: &Order) {
    let mut rank = vec![usize::MAX; module.instruction_slots()];
    for computation in module.computations().to_vec() {
        let Some(old) = before.get(computation.index()) else { continue };
        old.iter().enumerate().for_each(|(at, id)| rank[id.index()] = at);
        let mut next = usize::MAX;
        for &id in module[computation].instructions().iter().rev() {
            let slot = &mut rank[id.index()];
            if *slot == usize::MAX {
                *slot = next;
            } else {
                next = *slot;
            }
        }
        let order = stable(module, computation, &rank);
        if module[computation].instructions() != order {
            let done = module.reorder(computation, order);
            debug_assert_eq!(done, Ok(()));
        }
    }
}

/// The instructions by rank, each after what it needs; of equal rank in the order in which they stand.
fn stable(module: &Module, computation: ComputationId, rank: &[usize]) -> Vec<InstructionId> {
    let all = module[computation].instructions();
    let mut place: rustc_hash::FxHashMap<InstructionId, usize> = rustc_hash::FxHashMap::default();
    all.iter().enumerate().for_each(|(at, &id)| {
        place.insert(id, at);
    });
    let mut needs = vec![0u32; all.len()];
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
    for (at, &id) in all.iter().enumerate() {
        let first = module[id].operands().iter().chain(module[id].common.control_predecessors());
        for at_first in first.filter_map(|f| place.get(f).copied()) {
            needs[at] += 1;
            followers[at_first].push(at);
        }
    }
    let key = |at: usize| Reverse((rank[all[at].index()], at));
    let mut ready: BinaryHeap<Reverse<(usize, usize)>> = (0..all.len()).filter(|&at| needs[at] == 0).map(key).collect();
    let mut order = Vec::with_capacity(all.len());
    while let Some(Reverse((_, at))) = ready.pop() {
        order.push(all[at]);
        for &follower in &followers[at] {
            needs[follower] -= 1;
            if needs[follower] == 0 {
                ready.push(key(follower));
            }
        }
    }
    order
}
