//! A schedule that hides collectives behind other work: starts early, dones late.
//!
//! The order is made from the end. A done is placed as soon as nothing that reads it is left to place and no other gather
//! is under way; then other work, latest first in the order before; then the start, once that work takes as long as the
//! exchange, or when no other work is left. Parameters come at the very front, the first that was free last.

use crate::elapsed::Elapsed;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};

/// Whether there is anything to hide in a computation.
pub(super) fn has_starts(module: &Module, c: ComputationId) -> bool {
    module[c].instructions().iter().any(|&i| is_start(&module[i].op))
}

fn is_start(op: &Op) -> bool {
    matches!(op, Op::AllGatherStart(_) | Op::CollectivePermuteStart(_))
}

fn is_done(op: &Op) -> bool {
    matches!(op, Op::AllGatherDone | Op::CollectivePermuteDone)
}

/// How many exchanges of a kind may be under way.
fn limit(op: &Op) -> usize {
    match op {
        Op::AllGatherStart(_) | Op::AllGatherDone => 1,
        _ => 5,
    }
}

/// Another order of a scheduled computation.
pub(super) fn order(module: &Module, c: ComputationId, elapsed: &Elapsed<'_>) -> Vec<InstructionId> {
    let before = module[c].instructions();
    let mut from_end = FromEnd::new(module, before);
    while from_end.step(elapsed) {}
    from_end.order.reverse();
    match from_end.order.len() == before.len() {
        true => from_end.order,
        // What needs itself has no order; the verifier finds it.
        false => before.to_vec(),
    }
}

struct FromEnd<'m> {
    module: &'m Module,
    stored: &'m [InstructionId],
    place: FxHashMap<InstructionId, usize>,
    /// How many that need it are still to be placed.
    needed_by: Vec<usize>,
    /// Work that can be placed, by its place before.
    work: BTreeSet<usize>,
    dones: BTreeSet<usize>,
    starts: BTreeSet<usize>,
    parameters: VecDeque<usize>,
    /// Cycles placed so far, and when the done of each exchange under way was.
    now: f64,
    under_way: FxHashMap<usize, f64>,
    order: Vec<InstructionId>,
}

impl<'m> FromEnd<'m> {
    fn new(module: &'m Module, stored: &'m [InstructionId]) -> FromEnd<'m> {
        let place: FxHashMap<InstructionId, usize> = stored.iter().enumerate().map(|(n, &i)| (i, n)).collect();
        let mut needed_by = vec![0; stored.len()];
        for &i in stored {
            for n in needs(module, i, &place) {
                needed_by[n] += 1;
            }
        }
        let mut from_end = FromEnd {
            module,
            stored,
            place,
            needed_by,
            work: BTreeSet::new(),
            dones: BTreeSet::new(),
            starts: BTreeSet::new(),
            parameters: VecDeque::new(),
            now: 0.0,
            under_way: FxHashMap::default(),
            order: Vec::with_capacity(stored.len()),
        };
        for n in (0..stored.len()).rev() {
            if from_end.needed_by[n] == 0 {
                from_end.make_ready(n);
            }
        }
        from_end
    }

    fn make_ready(&mut self, n: usize) {
        match &self.module[self.stored[n]].op {
            Op::Parameter { .. } => self.parameters.push_back(n),
            op if is_done(op) => drop(self.dones.insert(n)),
            op if is_start(op) => drop(self.starts.insert(n)),
            _ => drop(self.work.insert(n)),
        }
    }

    /// Places one more; false when nothing is left.
    fn step(&mut self, elapsed: &Elapsed<'_>) -> bool {
        let Some(n) = self.choose(elapsed) else { return false };
        let i = self.stored[n];
        self.work.remove(&n);
        self.dones.remove(&n);
        self.starts.remove(&n);
        self.order.push(i);
        let op = &self.module[i].op;
        if is_done(op) {
            let start = self.module[i].operands().first().and_then(|s| self.place.get(s));
            self.under_way.extend(start.map(|&s| (s, self.now)));
        } else if is_start(op) {
            self.under_way.remove(&n);
        } else {
            self.now += elapsed.cycles(i);
        }
        for needed in needs(self.module, i, &self.place) {
            self.needed_by[needed] -= 1;
            if self.needed_by[needed] == 0 {
                self.make_ready(needed);
            }
        }
        true
    }

    fn choose(&mut self, elapsed: &Elapsed<'_>) -> Option<usize> {
        // What takes no time stays with what reads it.
        let hidden = |&n: &usize| {
            let since = self.under_way.get(&n).map_or(f64::INFINITY, |&t| self.now - t);
            since >= elapsed.latency(self.stored[n])
        };
        if let Some(&start) = self.starts.iter().rev().find(|n| hidden(n)) {
            return Some(start);
        }
        let free = |&n: &usize| {
            let op = &self.module[self.stored[n]].op;
            let same = self.under_way.keys().filter(|&&s| limit(&self.module[self.stored[s]].op) == limit(op));
            same.count() < limit(op)
        };
        if let Some(&done) = self.dones.iter().rev().find(|n| free(n)) {
            return Some(done);
        }
        if let Some(&work) = self.work.last() {
            return Some(work);
        }
        if let Some(&start) = self.starts.last() {
            return Some(start);
        }
        self.parameters.pop_front()
    }
}

/// What has to come before an instruction, each once.
fn needs(module: &Module, i: InstructionId, place: &FxHashMap<InstructionId, usize>) -> Vec<usize> {
    let all = module[i].operands().iter().chain(module[i].common.control_predecessors());
    let mut places: Vec<usize> = all.filter_map(|o| place.get(o).copied()).collect();
    places.sort_unstable();
    places.dedup();
    places
}
