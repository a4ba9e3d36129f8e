//! What an assignment comes to: for each memory space how much it takes and why, and when most of it is in use.
//!
//! Bytes here are those that values really take, padding included; where values share a place it counts once.

mod advice;
mod level;
mod moves;

pub use advice::{Advice, Change, advise};

use crate::Plan;
use crate::assign::Allocation;
use crate::dataflow::ValueId;
use crate::live_range::{LiveRange, Time, plain_bytes};
use hloom_target::Target;
use level::{Stay, stays};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// One memory space.
#[derive(Clone, Debug, Default)]
pub struct SpaceSummary {
    /// Its memory space.
    pub memory_space: i64,
    /// What the target calls it; empty where it does not know it.
    pub name: String,
    /// How large it is, where that is known.
    pub capacity: Option<i64>,
    /// Bytes of all its allocations.
    pub total: i128,
    /// Bytes of parameters that nothing may be written to.
    pub parameters: i128,
    /// Bytes of results, parameters that are aliased with them included.
    pub results: i128,
    /// Bytes of constants.
    pub constants: i128,
    /// Bytes that each thread has of its own.
    pub thread_local: i128,
    /// Bytes needed during the run only.
    pub temporaries: i128,
    /// Bytes that temporaries were packed into; tables of tuples are not among them.
    pub heap: i64,
    /// The least that [`SpaceSummary::heap`] could be by this schedule, however it is packed.
    pub heap_lower_bound: i64,
    /// The values that layouts and tables fill up most, as far as there are any, the most first.
    pub padded: Vec<InUse>,
    /// The moment at which most is in use, if values with times are here.
    pub peak: Option<SpacePeak>,
}

/// So many of the values with padding are told.
const MOST_PADDED: usize = 10;

/// The moment at which most of a memory space is in use.
#[derive(Clone, Debug, Default)]
pub struct SpacePeak {
    /// The time in the schedule.
    pub time: Time,
    /// Bytes in use.
    pub bytes: i128,
    /// How many of those hold no data: what layouts and tables fill up.
    pub padding: i128,
    /// What is in use, largest first.
    pub values: Vec<InUse>,
}

/// A place in use, and the value that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InUse {
    /// The value; of several that share the place, the last to come.
    pub value: ValueId,
    /// Bytes that it takes.
    pub bytes: i64,
    /// Bytes of its data.
    pub data: i64,
}

impl InUse {
    /// Bytes that hold no data.
    pub fn padding(&self) -> i64 {
        self.bytes - self.data.min(self.bytes)
    }
}

/// An allocation that several values use in turn or side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sharing {
    /// Its number.
    pub allocation: usize,
    /// How many values lie in it.
    pub values: usize,
    /// What they would take if none shared a place with another.
    pub apart: i128,
}

/// The allocations that save most by sharing, the most first; those that save nothing are left out.
pub fn sharings(plan: &Plan<'_>) -> Vec<Sharing> {
    let saved = |s: &Sharing| s.apart - i128::from(plan.allocations[s.allocation].size);
    let mut sharings: Vec<Sharing> = plan
        .allocations
        .iter()
        .enumerate()
        .map(|(allocation, a)| {
            // Values of one buffer are versions of the same thing: each buffer would have its place once.
            let mut buffers: Vec<(u32, i64)> = a.places.iter().map(|p| (plan.buffers.of(p.value), p.size)).collect();
            buffers.sort_unstable();
            buffers.dedup_by_key(|b| b.0);
            Sharing { allocation, values: a.places.len(), apart: buffers.iter().map(|b| i128::from(b.1)).sum() }
        })
        .filter(|s| saved(s) > 0)
        .collect();
    sharings.sort_by_key(|s| (std::cmp::Reverse(saved(s)), s.allocation));
    sharings
}

/// How much of a memory space is in use at each time of the schedule.
#[derive(Clone, Debug)]
pub struct SpaceLevel {
    /// Its memory space.
    pub memory_space: i64,
    /// Bytes in use, by time.
    pub bytes: Vec<i128>,
}

/// How much of each memory space is in use at each time of the schedule, by memory space.
pub fn levels(plan: &Plan<'_>) -> Vec<SpaceLevel> {
    let mut changes: BTreeMap<i64, Vec<i128>> = BTreeMap::new();
    let end = plan.schedule.end() as usize;
    for stay in stays(plan) {
        let change = changes.entry(stay.memory_space).or_insert_with(|| vec![0; end + 2]);
        change[(stay.start as usize).min(end)] += i128::from(stay.bytes);
        change[(stay.end as usize).min(end) + 1] -= i128::from(stay.bytes);
    }
    let summed = |(memory_space, mut bytes): (i64, Vec<i128>)| {
        for time in 1..bytes.len() {
            bytes[time] += bytes[time - 1];
        }
        bytes.truncate(end.max(1));
        SpaceLevel { memory_space, bytes }
    };
    changes.into_iter().map(summed).collect()
}

/// Sums an assignment up, by memory space.
pub fn summarise(plan: &Plan<'_>, target: &Target) -> Vec<SpaceSummary> {
    let mut spaces: BTreeMap<i64, SpaceSummary> = BTreeMap::new();
    for allocation in &plan.allocations {
        let space = spaces.entry(allocation.memory_space).or_default();
        let bytes = i128::from(allocation.size);
        space.total += bytes;
        *kind(space, allocation) += bytes;
    }
    let stays = stays(plan);
    for (&memory_space, space) in &mut spaces {
        let known = target.space(memory_space);
        space.memory_space = memory_space;
        space.name = known.map_or(String::new(), |s| s.name.clone());
        space.capacity = known.and_then(|s| s.bytes);
        space.heap = plan.heap_bytes(memory_space);
        space.heap_lower_bound = plan.lower_bound(memory_space);
        space.padded = padded(plan, memory_space);
        space.peak = peak(plan, stays.iter().filter(|s| s.memory_space == memory_space));
    }
    spaces.into_values().collect()
}

fn kind<'a>(space: &'a mut SpaceSummary, allocation: &Allocation) -> &'a mut i128 {
    if allocation.is_constant {
        &mut space.constants
    } else if allocation.is_thread_local {
        &mut space.thread_local
    } else if allocation.is_live_out {
        &mut space.results
    } else if allocation.parameter.is_some() {
        &mut space.parameters
    } else {
        &mut space.temporaries
    }
}

fn in_use(plan: &Plan<'_>, value: ValueId, bytes: i64) -> Option<InUse> {
    let position = plan.dataflow.value(value)?.position;
    Some(InUse { value, bytes, data: plain_bytes(plan.dataflow.positions.shape(position)) })
}

fn padded(plan: &Plan<'_>, memory_space: i64) -> Vec<InUse> {
    let places = plan.allocations.iter().filter(|a| a.memory_space == memory_space).flat_map(|a| &a.places);
    let mut padded: Vec<InUse> = places.filter_map(|p| in_use(plan, p.value, p.size)).collect();
    padded.retain(|v| v.padding() > 0);
    padded.sort_by_key(|v| (std::cmp::Reverse(v.padding()), v.value));
    padded.truncate(MOST_PADDED);
    padded
}

fn peak<'a>(plan: &Plan<'_>, stays: impl Iterator<Item = &'a Stay> + Clone) -> Option<SpacePeak> {
    let mut events: Vec<(Time, bool, i64)> =
        stays.clone().flat_map(|s| [(s.start, true, s.bytes), (s.end.saturating_add(1), false, s.bytes)]).collect();
    // What ended is taken away before what begins is added.
    events.sort_unstable();
    let (mut now, mut peak) = (0i128, None::<SpacePeak>);
    for (time, begins, bytes) in events {
        now += if begins { i128::from(bytes) } else { -i128::from(bytes) };
        if begins && peak.as_ref().is_none_or(|p| now > p.bytes) {
            peak = Some(SpacePeak { time, bytes: now, ..SpacePeak::default() });
        }
    }
    let mut peak = peak?;
    let there: Vec<&Stay> = stays.filter(|s| s.start <= peak.time && peak.time <= s.end).collect();
    let at_place = values_at(plan, peak.time);
    let mut values: Vec<InUse> = there
        .into_iter()
        .filter_map(|stay| {
            let &(_, value) = at_place.get(&stay.place)?;
            in_use(plan, value, stay.bytes)
        })
        .collect();
    values.sort_by_key(|v| (std::cmp::Reverse(v.bytes), v.value));
    peak.padding = values.iter().map(|v| i128::from(v.padding())).sum();
    peak.values = values;
    Some(peak)
}

/// The value at each place that is in use at that time; where one hands over to the next, the next.
fn values_at(plan: &Plan<'_>, time: Time) -> FxHashMap<(usize, i64), (LiveRange, ValueId)> {
    let mut at_place: FxHashMap<(usize, i64), (LiveRange, ValueId)> = FxHashMap::default();
    for (number, allocation) in plan.allocations.iter().enumerate() {
        for place in &allocation.places {
            let Some(range) = plan.live.of(place.value).filter(|r| r.start <= time && time <= r.end) else { continue };
            let here = at_place.entry((number, place.offset)).or_insert((range, place.value));
            *here = (*here).max((range, place.value));
        }
    }
    at_place
}
