//! Where instructions work besides their operands and results: in what of the temporaries nothing else needs meanwhile.
//!
//! The plan knows values only. Memory that kernels and library calls work in is needed while one instruction runs, so that
//! a gap between the values of that time serves; where none is large enough, it begins after the last of them.

use hloom_ir::entity::InstructionId;
use hloom_plan::Plan;
use hloom_plan::live_range::{LiveRange, Time};
use hloom_runtime::placement::AllocationSource;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Bytes of the block of temporaries that a value has, and when.
#[derive(Clone, Copy, Debug)]
struct Taken {
    live: LiveRange,
    start: usize,
    end: usize,
}

/// The values of a plan that lie in the block of temporaries.
fn taken(plan: &Plan<'_>, sources: &[AllocationSource]) -> Vec<Taken> {
    let always = LiveRange { start: 0, end: Time::MAX };
    let mut taken = Vec::new();
    for (allocation, source) in plan.allocations.iter().zip(sources) {
        let &AllocationSource::Temporary { offset } = source else { continue };
        for place in &allocation.places {
            let start = offset.saturating_add(usize::try_from(place.offset).unwrap_or(usize::MAX));
            let end = start.saturating_add(usize::try_from(place.size).unwrap_or(usize::MAX));
            taken.push(Taken { live: plan.live.of(place.value).unwrap_or(always), start, end });
        }
    }
    taken
}

/// Where in the block of temporaries each instruction works, which wants so many bytes from a multiple of `alignment` on;
/// and how long the block is then, if it had `length` bytes.
pub(crate) fn place(
    plan: &Plan<'_>,
    sources: &[AllocationSource],
    wanted: &FxHashMap<InstructionId, usize>,
    (length, alignment): (usize, usize),
) -> (FxHashMap<InstructionId, usize>, usize) {
    let mut timed: Vec<(Time, InstructionId, usize)> = Vec::new();
    let mut places = FxHashMap::default();
    let mut needed = length;
    for (&id, &bytes) in wanted {
        match plan.schedule.time(id) {
            Some(time) => timed.push((time, id, bytes)),
            None => {
                places.insert(id, length);
                needed = needed.max(length.saturating_add(bytes));
            }
        }
    }
    timed.sort_unstable_by_key(|&(time, id, _)| (time, id));
    let mut values = taken(plan, sources);
    values.sort_unstable_by_key(|t| (t.live.start, t.start));
    let times: Vec<(Time, usize)> = timed.iter().map(|&(time, _, bytes)| (time, bytes)).collect();
    for (&(_, id, bytes), offset) in timed.iter().zip(gaps(&values, &times, alignment)) {
        places.insert(id, offset);
        needed = needed.max(offset.saturating_add(bytes));
    }
    (places, needed)
}

/// For each time, in order, the lowest place where so many bytes are free. `values` are in the order of their making.
fn gaps(values: &[Taken], times: &[(Time, usize)], alignment: usize) -> Vec<usize> {
    let mut live: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let mut ends: BinaryHeap<Reverse<(Time, usize)>> = BinaryHeap::new();
    let mut next = 0;
    let mut found = Vec::with_capacity(times.len());
    for &(time, bytes) in times {
        while let Some(value) = values.get(next).filter(|v| v.live.start <= time) {
            live.insert((value.start, next), value.end);
            ends.push(Reverse((value.live.end, next)));
            next += 1;
        }
        while let Some(&Reverse((_, gone))) = ends.peek().filter(|e| e.0.0 < time) {
            ends.pop();
            live.remove(&(values[gone].start, gone));
        }
        let mut offset = 0usize;
        for (&(start, _), &end) in &live {
            if offset.checked_add(bytes).is_some_and(|after| after <= start) {
                break;
            }
            offset = offset.max(end.checked_next_multiple_of(alignment).unwrap_or(usize::MAX));
        }
        found.push(offset);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(start: Time, end: Time, bytes: std::ops::Range<usize>) -> Taken {
        Taken { live: LiveRange { start, end }, start: bytes.start, end: bytes.end }
    }

    #[test]
    fn the_lowest_gap_of_a_time_that_is_large_enough_is_taken() {
        let values = [value(0, 4, 0..100), value(0, 9, 512..600), value(2, 3, 256..300), value(5, 9, 1024..2048)];
        let times = [(1, 256), (1, 300), (2, 256), (3, 1000), (4, 256), (5, 512), (6, 513), (10, 9999)];
        assert_eq!(gaps(&values, &times, 256), [256, 768, 768, 768, 256, 0, 2048, 0]);
    }

    #[test]
    fn without_values_all_begins_at_the_start() {
        assert_eq!(gaps(&[], &[(0, 1), (7, usize::MAX)], 256), [0, 0]);
    }
}
