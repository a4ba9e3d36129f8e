//! What an assignment comes to: for each memory space how much it takes and why, and when most of it is in use.
//!
//! Bytes here are those that values really take, padding included; where values share a place it counts once.

use crate::Plan;
use crate::assign::Allocation;
use crate::dataflow::ValueId;
use crate::live_range::{LiveRange, Time, plain_bytes};
use hloom_target::Target;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// One memory space.
#[derive(Clone, Debug, Default)]
pub struct SpaceSummary {
    /// Its colour.
    pub colour: i64,
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
    /// The moment at which most is in use, if values with times are here.
    pub peak: Option<SpacePeak>,
}

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

/// A place, and from when to when it is in use without a break.
struct Stay {
    colour: i64,
    start: Time,
    end: Time,
    bytes: i64,
    place: (usize, i64),
}

/// Sums an assignment up, by memory space.
pub fn summarise(plan: &Plan<'_>, target: &Target) -> Vec<SpaceSummary> {
    let mut spaces: BTreeMap<i64, SpaceSummary> = BTreeMap::new();
    for allocation in &plan.allocations {
        let space = spaces.entry(allocation.colour).or_default();
        let bytes = i128::from(allocation.size);
        space.total += bytes;
        *kind(space, allocation) += bytes;
    }
    let stays = stays(plan);
    for (&colour, space) in &mut spaces {
        let known = target.space(colour);
        space.colour = colour;
        space.name = known.map_or(String::new(), |s| s.name.clone());
        space.capacity = known.and_then(|s| s.bytes);
        space.peak = peak(plan, stays.iter().filter(|s| s.colour == colour));
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

/// The places in use, each stretch of time once however many values take turns in it.
fn stays(plan: &Plan<'_>) -> Vec<Stay> {
    let mut stays: Vec<Stay> = Vec::new();
    for (number, allocation) in plan.allocations.iter().enumerate() {
        let with_range = |p: &crate::assign::Place| Some((p.offset, plan.live.of(p.value)?, p.size));
        let mut places: Vec<_> = allocation.places.iter().filter_map(with_range).collect();
        places.sort_unstable();
        let first_here = stays.len();
        for (offset, range, bytes) in places {
            match stays[first_here..].last_mut() {
                Some(last) if last.place.1 == offset && range.start <= last.end => {
                    last.end = last.end.max(range.end);
                    last.bytes = last.bytes.max(bytes);
                }
                _ => stays.push(Stay {
                    colour: allocation.colour,
                    start: range.start,
                    end: range.end,
                    bytes,
                    place: (number, offset),
                }),
            }
        }
    }
    stays
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
            let position = plan.dataflow.value(value)?.position;
            Some(InUse { value, bytes: stay.bytes, data: plain_bytes(plan.dataflow.positions.shape(position)) })
        })
        .collect();
    values.sort_by_key(|v| (std::cmp::Reverse(v.bytes), v.value));
    peak.padding = values.iter().map(|v| i128::from(v.bytes - v.data.min(v.bytes))).sum();
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
