//! Temporaries inside results: memory that the caller gives anyway and that nothing needs yet.
//!
//! XLA puts one buffer at a time into the memory of a result, the largest first, whether or not that lowers the block of
//! temporaries. Here what is needed when that block is fullest goes first, several side by side; the memory of a result
//! that holds such is divided, and nothing joins it as a whole while one of them is needed.

use super::{Allocation, Assigner, Facts, PackedHeap};
use crate::buffers::BufferId;
use crate::dataflow::ValueId;
use crate::live_range::{LiveRange, Time};
use hloom_target::size::round_up;

/// A block of fewer bytes is not worth a second assignment.
const WORTH_BYTES: i64 = 4 << 10;
/// Buffers of less than this part of the block stay where they are, and results with less idle memory are let be: there
/// are at most this many that count, whatever the size of the program.
const PARTS: i64 = 64;

/// What goes inside results first.
pub(super) struct Inside {
    /// The memory space.
    memory_space: i64,
    /// When its block is fullest.
    time: Time,
    /// The least size of a buffer that counts.
    least: i64,
    /// Allocations that hold several things at once, each in its part.
    divided: Vec<usize>,
}

impl Inside {
    /// What should go inside results, where results are idle when the largest block is fullest.
    pub(super) fn new(facts: &Facts<'_, '_>, allocations: &[Allocation], heaps: &[PackedHeap]) -> Option<Inside> {
        let heap = heaps.iter().max_by_key(|h| h.bytes).filter(|h| h.bytes >= WORTH_BYTES)?;
        if facts.target.collectives_stay_inside || facts.target.assigns_by_start(heap.memory_space) {
            return None;
        }
        let is_needed = |value: ValueId| facts.live.of(value).is_some_and(|r| (r.start..=r.end).contains(&heap.time));
        let idle = |a: &Allocation| {
            let may_hold = a.is_live_out && a.memory_space == heap.memory_space && a.is_reusable();
            may_hold && !a.places.iter().any(|place| is_needed(place.value))
        };
        let idle: i128 = allocations.iter().filter(|a| idle(a)).map(|a| i128::from(a.size)).sum();
        let least = heap.bytes / PARTS;
        (idle > i128::from(least)).then(|| Inside {
            memory_space: heap.memory_space,
            time: heap.time,
            least,
            divided: Vec::new(),
        })
    }
}

impl Assigner<'_, '_> {
    /// When a buffer has its turn: where something goes inside results, these are first, then what goes there.
    pub(super) fn turn(&self, buffer: BufferId) -> u8 {
        let Some(inside) = &self.inside else { return 0 };
        if self.facts.buffers.is_live_out(buffer)
            || self.facts.buffers.values(buffer).iter().any(|&v| self.is_parameter(v))
        {
            0
        } else if self.is_wanted(inside, buffer) {
            1
        } else {
            2
        }
    }

    fn is_wanted(&self, inside: &Inside, buffer: BufferId) -> bool {
        self.facts.sizes[buffer as usize] > inside.least
            && !self.facts.buffers.is_live_out(buffer)
            && self.span(buffer).is_some_and(|s| (s.start..=s.end).contains(&inside.time))
    }

    pub(super) fn is_divided(&self, at: usize) -> bool {
        self.inside.as_ref().is_some_and(|inside| inside.divided.contains(&at))
    }

    /// The values in the allocation that are needed at some time of the range.
    pub(super) fn needed_beside(&self, range: LiveRange, at: usize) -> impl Iterator<Item = ValueId> {
        let until = (range.end, u32::MAX, ValueId::MAX);
        let before = self.in_use[at].range(..=until);
        before.filter(move |&&(_, end, _)| end >= range.start).map(|&(.., value)| value)
    }

    /// Puts a buffer that should go there into a part of the smallest result that has room for it.
    pub(super) fn join_inside(&mut self, buffer: BufferId) -> bool {
        let Some(inside) = self.inside.as_ref().filter(|inside| self.is_wanted(inside, buffer)) else { return false };
        let size = self.facts.sizes[buffer as usize];
        let fits = |&at: &usize| {
            let allocation = &self.allocations[at];
            let may_hold = allocation.is_live_out && allocation.is_reusable() && at >= self.presets;
            may_hold && allocation.memory_space == inside.memory_space && allocation.size >= size
        };
        let mut results: Vec<usize> = (0..self.allocations.len()).filter(fits).collect();
        results.sort_by_key(|&at| (self.allocations[at].size, at));
        let Some((at, offset)) = results.into_iter().find_map(|at| Some((at, self.room_inside(buffer, at)?))) else {
            return false;
        };
        self.put(buffer, at, offset);
        if let Some(inside) = self.inside.as_mut().filter(|inside| !inside.divided.contains(&at)) {
            inside.divided.push(at);
        }
        true
    }

    /// The lowest offset in the allocation at which nothing lies while the buffer is needed.
    fn room_inside(&self, buffer: BufferId, at: usize) -> Option<i64> {
        let Facts { buffers, live, sizes, target, .. } = self.facts;
        let allocation = &self.allocations[at];
        let mut taken: Vec<(i64, i64)> = Vec::new();
        for &value in buffers.values(buffer) {
            let beside: Vec<ValueId> = self.needed_beside(live.of(value)?, at).collect();
            let places = allocation.places.iter().filter(|p| beside.contains(&p.value));
            taken.extend(places.map(|p| (p.offset, p.offset + p.size)));
        }
        taken.sort_unstable();
        let mut offset = 0;
        for (start, end) in taken {
            if start - offset >= sizes[buffer as usize] {
                break;
            }
            offset = offset.max(round_up(end, target.alignment(allocation.memory_space))?);
        }
        (allocation.size - offset >= sizes[buffer as usize]).then_some(offset)
    }
}
