//! Copies to fast memory ahead of their readers: when they start, whom they serve, and whether they come in slices.

use super::candidates::{Candidate, Read};
use super::slices::{self, Cut};
use super::{Assigner, Prefetch};
use hloom_ir::entity::InstructionId;
use hloom_ir::op::Op;
use rustc_hash::FxHashSet;

/// How much longer than its copy the work that hides a prefetch should be, and has to be.
const PREFERRED_OVERLAP: f64 = 2.0;
const LEAST_OVERLAP: f64 = 1.0;

/// The least array that a copy is made of.
const LEAST_BYTES: i64 = 4096;

impl Assigner<'_, '_> {
    /// Has the buffer copied for its readers, as far as that is possible.
    pub(super) fn prefetch(&mut self, candidate: &Candidate) {
        let Some(source) = candidate.source else { return };
        let copy = candidate.bytes as f64 / self.elapsed.bytes_per_cycle();
        if candidate.crosses_loops {
            return self.prefetch_for_loop(candidate, source, copy);
        }
        // What is so small costs more in semaphores and tables than it saves.
        if candidate.bytes < LEAST_BYTES {
            return;
        }
        if !candidate.handed_on.is_empty() {
            return self.prefetch_chain(candidate, source, copy);
        }
        let mut at = 0;
        while let Some(read) = candidate.reads.get(at) {
            at += 1;
            let Some(start) = self.start_of_copy(source, read, copy) else { continue };
            let mut reads = vec![*read];
            let mut end = read.time;
            let slices = match self.fits(self.time(start), end, candidate.bytes) {
                true => {
                    self.take(self.time(start), end, candidate.bytes);
                    None
                }
                false => match self.take_in_slices(candidate, source, start, read) {
                    None => continue,
                    slices => slices,
                },
            };
            // The copy serves later readers too, if it can wait for them.
            while let Some(next) = candidate.reads.get(at) {
                let most = self.most;
                let timeline = self.timeline(candidate.home);
                let waits = timeline.between(timeline.place[&read.user], timeline.place[&next.user]);
                if waits > most || end < next.time && !self.fits(end + 1, next.time, candidate.bytes) {
                    break;
                }
                if end < next.time {
                    self.take(end + 1, next.time, candidate.bytes);
                }
                reads.push(*next);
                end = next.time;
                at += 1;
            }
            // The copy reads it once for the first of them.
            self.decisions.saved += reads[1..].iter().map(|r| r.bytes).sum::<f64>();
            self.decisions.prefetches.push(Prefetch { source, before: start, slices, reads });
        }
    }

    /// Takes memory for a copy from `start` on that is made in slices, as far as that fits: how it is cut, and where the
    /// slices after the first start. They are as far from each other in time as the last one is from the reader.
    fn take_in_slices(
        &mut self,
        candidate: &Candidate,
        source: InstructionId,
        start: InstructionId,
        read: &Read,
    ) -> Option<(Cut, Vec<InstructionId>)> {
        let array = self.module[source].shape.as_array()?;
        let cut = slices::cut(array, self.elapsed.target(), self.memory_space)?;
        if self.elapsed.gain(read.user, read.operand, self.memory_space) <= 0.0 {
            return None;
        }
        let bytes = candidate.bytes / cut.count as i64;
        let copy = self.elapsed.latency_of_copies() + bytes as f64 / self.elapsed.bytes_per_cycle();
        let timeline = self.timeline(candidate.home);
        let (from, to) = (*timeline.place.get(&start)?, *timeline.place.get(&read.user)?);
        let (begin, hidden) = (timeline.before[from], timeline.between(from, to));
        let step = |n: usize| {
            let due = begin + hidden * n as f64 / cut.count as f64;
            timeline.before.partition_point(|&b| b <= due).clamp(from + 1, to) - 1
        };
        let steps: Vec<usize> = (1..cut.count).map(step).collect();
        // They are copied one after another, each with a latency of its own.
        let end = [from].iter().chain(&steps).fold(begin, |now, &n| now.max(timeline.before[n]) + copy);
        // Where one step hides all of it, nothing is gained.
        if end > timeline.before[to] || steps.iter().all(|&n| n == from) {
            return None;
        }
        let later: Vec<InstructionId> = steps.into_iter().map(|n| timeline.steps[n]).collect();
        let starts = [start].into_iter().chain(later.iter().copied());
        let mut taken: Vec<u32> = Vec::new();
        for time in starts.map(|i| self.time(i)).collect::<Vec<_>>() {
            if !self.fits(time, read.time, bytes) {
                taken.into_iter().for_each(|time| self.take(time, read.time, -bytes));
                return None;
            }
            self.take(time, read.time, bytes);
            taken.push(time);
        }
        Some((cut, later))
    }

    /// Has a parameter copied before the loop that reads it, for as long as the loop runs.
    fn prefetch_for_loop(&mut self, candidate: &Candidate, source: InstructionId, copy: f64) {
        let module = self.module;
        let users: FxHashSet<InstructionId> = module[source].users().iter().copied().collect();
        let mut reads: Vec<Read> = Vec::new();
        for user in users {
            let operands = module[user].operands().iter().enumerate().filter(|&(_, &o)| o == source);
            reads.extend(operands.map(|(operand, _)| Read { time: self.time(user), user, operand, bytes: 0.0 }));
        }
        reads.sort_by_key(|r| (r.time, r.operand));
        let Some(&read) = reads.first() else { return };
        // What runs again and again is worth waiting for once.
        let before = self.start_of_copy(source, &read, copy);
        let before = before.filter(|&b| self.fits(self.time(b), read.time, candidate.bytes)).unwrap_or(read.user);
        self.prefetch_whole(candidate, source, before, reads);
    }

    /// Has the buffer copied for its first reader, who hands it on to the others.
    fn prefetch_chain(&mut self, candidate: &Candidate, source: InstructionId, copy: f64) {
        let Some(&read) = candidate.reads.first() else { return };
        if candidate.positions.is_none() {
            return;
        }
        let Some(before) = self.start_of_copy(source, &read, copy) else { return };
        self.prefetch_whole(candidate, source, before, vec![read]);
    }

    /// Has the buffer copied before an instruction, for `reads` and whoever it is handed on to, if it fits from then on.
    fn prefetch_whole(
        &mut self,
        candidate: &Candidate,
        source: InstructionId,
        before: InstructionId,
        reads: Vec<Read>,
    ) {
        let begin = self.time(before);
        if self.fits(begin, candidate.end, candidate.bytes) {
            self.take(begin, candidate.end, candidate.bytes);
            self.decisions.saved += candidate.saved;
            self.decisions.moved.extend(&candidate.handed_on);
            self.decisions.prefetches.push(Prefetch { source, before, slices: None, reads });
        }
    }

    /// The instruction before which a copy for `read` starts, so early that it is hidden.
    fn start_of_copy(&mut self, source: InstructionId, read: &Read, copy: f64) -> Option<InstructionId> {
        let home = self.module[read.user].parent();
        let is_parameter = matches!(self.module[source].op, Op::Parameter { .. });
        let most = self.most;
        let timeline = self.timeline(home);
        let to = *timeline.place.get(&read.user)?;
        let made = timeline.place.get(&source).copied();
        // The first step after the making of the source, and after the parameters.
        let first = if is_parameter { 0 } else { made? + 1 };
        let mut chosen = None;
        let mut from = to;
        while from > first {
            from -= 1;
            let hidden = timeline.between(from, to);
            if hidden > most {
                break;
            }
            if hidden < LEAST_OVERLAP * copy || timeline.before[from + 1] == timeline.before[from] {
                // Nothing is gained by starting before a step that takes no time.
                continue;
            }
            chosen = Some(timeline.steps[from]);
            if hidden >= PREFERRED_OVERLAP * copy {
                break;
            }
        }
        chosen
    }
}
