//! A schedule that keeps little memory live: of what can run next, always what frees most.
//!
//! The order of preference is the bytes that an instruction frees less those it makes, then how many read it, then what
//! became ready last. Parameters and constants take no memory that an order could save. Instructions that the world
//! outside can see keep their order.

use crate::edit::array_of;
use hloom_analysis::effects::has_side_effect;
use hloom_ir::diagnostic::codes::verify::CYCLE;
use hloom_ir::diagnostic::{Diagnostic, Part};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::order::PostOrder;
use hloom_target::Target;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// The order of one computation.
pub(super) fn order(
    module: &Module,
    c: ComputationId,
    target: &Target,
    post_order: &mut PostOrder<'_>,
) -> Result<Vec<InstructionId>, Diagnostic> {
    let stored = module[c].instructions();
    let mut scheduler = Scheduler::new(module, c, target, &post_order.instructions(c));
    let mut order = Vec::with_capacity(stored.len());
    for n in 0..stored.len() {
        if scheduler.waiting_for[n] == 0 {
            scheduler.make_ready(n);
        }
    }
    while let Some(&key) = scheduler.ready.last() {
        scheduler.ready.remove(&key);
        order.push(stored[key.3]);
        scheduler.run(key.3);
    }
    if order.len() == stored.len() {
        return Ok(order);
    }
    let scheduled: rustc_hash::FxHashSet<InstructionId> = order.iter().copied().collect();
    let left = stored.iter().copied().find(|i| !scheduled.contains(i)).unwrap_or(stored[0]);
    let message = format!("`{}` cannot be scheduled: it needs its own result", module[left].name());
    Err(Diagnostic::error(&CYCLE, message).at_instruction(left, Part::Whole))
}

/// What is freed less what is made, how many read it, when it became ready, which it is.
type Key = (i64, usize, usize, usize);

struct Scheduler<'m> {
    module: &'m Module,
    stored: &'m [InstructionId],
    successors: Vec<Vec<usize>>,
    waiting_for: Vec<usize>,
    /// For each instruction the instructions whose memory it reads.
    reads: Vec<Vec<usize>>,
    /// For each instruction those that read its memory, and how many of them have not run.
    readers: Vec<Vec<usize>>,
    readers_left: Vec<usize>,
    made: Vec<i64>,
    ready: BTreeSet<Key>,
    key: Vec<Option<Key>>,
    clock: usize,
}

impl<'m> Scheduler<'m> {
    fn new(module: &'m Module, c: ComputationId, target: &Target, post_order: &[InstructionId]) -> Scheduler<'m> {
        let stored = module[c].instructions();
        let place: FxHashMap<InstructionId, usize> = stored.iter().enumerate().map(|(n, &i)| (i, n)).collect();
        let len = stored.len();
        let mut scheduler = Scheduler {
            module,
            stored,
            successors: vec![Vec::new(); len],
            waiting_for: vec![0; len],
            reads: vec![Vec::new(); len],
            readers: vec![Vec::new(); len],
            readers_left: vec![0; len],
            made: vec![0; len],
            ready: BTreeSet::new(),
            key: vec![None; len],
            clock: 0,
        };
        // What an instruction hands on, seen through those that only name it anew.
        let mut memory: Vec<Vec<usize>> = vec![Vec::new(); len];
        let mut last_seen: Option<usize> = None;
        for &i in post_order {
            let n = place[&i];
            let needs = module[i].operands().iter().chain(module[i].common.control_predecessors());
            let mut before: Vec<usize> = needs.filter_map(|o| place.get(o).copied()).collect();
            let mut reads: Vec<usize> = module[i].operands().iter().flat_map(|o| memory[place[o]].clone()).collect();
            reads.sort_unstable();
            reads.dedup();
            before.sort_unstable();
            before.dedup();
            scheduler.waiting_for[n] = before.len();
            for b in before {
                scheduler.successors[b].push(n);
            }
            memory[n] = if forwards(&module[i].op) { reads.clone() } else { vec![n] };
            for &r in &reads {
                scheduler.readers[r].push(n);
                scheduler.readers_left[r] += 1;
            }
            if module.root(c) == Some(i) {
                // Results stay.
                memory[n].iter().chain(&reads).for_each(|&r| scheduler.readers_left[r] += 1);
            }
            scheduler.reads[n] = reads;
            scheduler.made[n] = made(module, i, target);
        }
        for (n, &i) in stored.iter().enumerate() {
            let is_ordered = has_side_effect(&module[i].op) || matches!(module[i].op, Op::Rng { .. });
            if is_ordered && let Some(last) = last_seen.replace(n) {
                scheduler.successors[last].push(n);
                scheduler.waiting_for[n] += 1;
            }
        }
        scheduler
    }

    fn make_ready(&mut self, n: usize) {
        let freed: i64 = self.reads[n].iter().filter(|&&r| self.readers_left[r] == 1).map(|&r| self.made[r]).sum();
        self.clock += 1;
        let key = (freed - self.made[n], self.module[self.stored[n]].users().len(), self.clock, n);
        self.key[n] = Some(key);
        self.ready.insert(key);
    }

    fn run(&mut self, n: usize) {
        self.key[n] = None;
        for r in self.reads[n].clone() {
            self.readers_left[r] -= 1;
            if self.readers_left[r] == 1 {
                // Whoever is left to read it frees it now.
                for reader in self.readers[r].clone() {
                    if let Some(key) = self.key[reader] {
                        self.ready.remove(&key);
                        self.make_ready(reader);
                    }
                }
            }
        }
        for s in std::mem::take(&mut self.successors[n]) {
            self.waiting_for[s] -= 1;
            if self.waiting_for[s] == 0 {
                self.make_ready(s);
            }
        }
    }
}

/// Whether it names memory that another instruction made.
fn forwards(op: &Op) -> bool {
    matches!(
        op,
        Op::Bitcast
            | Op::GetTupleElement { .. }
            | Op::Tuple
            | Op::CopyDone
            | Op::AllGatherDone
            | Op::CollectivePermuteDone
            | Op::AllGatherStart(_)
            | Op::OptBarrier
            | Op::AddDependency
    )
}

/// The bytes that an instruction makes.
fn made(module: &Module, i: InstructionId, target: &Target) -> i64 {
    match &module[i].op {
        Op::Parameter { .. } | Op::Constant(_) => 0,
        // What it gathers is new, what it gathers from is not.
        Op::AllGatherStart(_) => module[i].shape.at(&[1]).and_then(|s| target.byte_size(s)).unwrap_or(0),
        op if forwards(op) => 0,
        _ => match array_of(module, i) {
            Some(_) => target.byte_size(&module[i].shape).unwrap_or(0),
            None => module[i].shape.leaves().iter().filter_map(|(_, s)| target.byte_size(s)).sum(),
        },
    }
}
