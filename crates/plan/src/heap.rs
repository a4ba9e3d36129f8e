//! Temporaries of one memory space: which of them lie together, when each place is needed, and the least they can take.
//!
//! The values are played through in time, to find which may take over the memory of an operand that ends where they
//! begin; every beginning, taking over and ending is a tick of a clock. Slices that are joined in place lie together from
//! the first of them on, each in its own part of the place. Where the places lie is for [`crate::pack`].

use crate::buffers::Buffers;
use crate::dataflow::{Dataflow, ValueId};
use crate::live_range::{LiveRanges, Time};
use crate::overwrite::Overwrite;
use crate::pack::Packer;
use crate::side_by_side::SideBySide;
use hloom_ir::op::Op;
use hloom_target::size::round_up;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Where each value lies, and how large the block is.
#[derive(Clone, Debug, Default)]
pub struct Packed {
    /// Bytes of the whole block.
    pub size: i64,
    /// The offset of each value.
    pub offsets: FxHashMap<ValueId, i64>,
}

/// The least that a block can take.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LowerBound {
    /// Bytes needed at once, alignment included.
    pub bytes: i64,
    /// The first time in the schedule at which they are.
    pub time: Time,
}

/// A value of so many bytes at most is small: of those that are kept for a while there is never so much that it counts.
pub(crate) const SMALL: i64 = 32 << 10;
/// How long that while is, in ticks of the clock: each value is two of them.
const WHILE: u64 = 160;

/// What lies together: values that share one place, one after another.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The first value, which asked for the memory.
    pub(crate) owner: ValueId,
    /// How long the owner itself is there.
    pub(crate) own_length: u64,
    /// From the first beginning to the last end of all.
    pub(crate) length: u64,
    pub(crate) size: i64,
    /// When the place is needed, both ends included: stretches in order that do not touch.
    pub(crate) spans: Vec<(u64, u64)>,
    /// Where not all of the place is needed from the first beginning on: its parts, side by side.
    pub(crate) parts: Vec<Stretch>,
    /// The values, each with where it begins in the place.
    members: Vec<(ValueId, i64)>,
}

/// A part of a group's place.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    /// Where it begins in the place. That and its size are multiples of the alignment.
    pub(crate) offset: i64,
    pub(crate) size: i64,
    /// When it is needed, as that of a group.
    pub(crate) spans: Vec<(u64, u64)>,
}

impl Group {
    /// A group of one value.
    #[cfg(test)]
    pub(crate) fn new(owner: ValueId, size: i64, length: u64, spans: Vec<(u64, u64)>) -> Group {
        Group { owner, own_length: length, length, size, spans, parts: Vec::new(), members: vec![(owner, 0)] }
    }

    /// What it takes, and when: where it begins in the place, bytes, and stretches of time.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = (i64, i64, &[(u64, u64)])> {
        let whole = self.parts.is_empty().then_some((0, self.size, self.spans.as_slice()));
        whole.into_iter().chain(self.parts.iter().map(|p| (p.offset, p.size, p.spans.as_slice())))
    }
}

/// Values to be packed into one block.
#[derive(Clone, Debug)]
pub struct Heap {
    pub(crate) groups: Vec<Group>,
    pub(crate) alignment: i64,
    /// The time in the schedule at each tick of the clock.
    ticks: Vec<Time>,
}

impl Heap {
    /// A heap of `values`, with the sizes of their buffers, at that alignment.
    pub fn new(
        dataflow: &Dataflow<'_>,
        buffers: &Buffers,
        live: &LiveRanges,
        overwrite: &Overwrite<'_, '_>,
        values: &[(ValueId, i64)],
        alignment: i64,
    ) -> Heap {
        let side_by_side = SideBySide::new(dataflow, buffers, live, values, alignment);
        let (groups, ticks) = play(dataflow, buffers, live, overwrite, values, &side_by_side);
        Heap { groups, alignment, ticks }
    }

    /// Keeps the places of these values from the first tick to the last, so that nothing else is ever put there.
    pub(crate) fn keep(&mut self, is_kept: impl Fn(ValueId) -> bool) {
        let last = (self.ticks.len() as u64).saturating_sub(1);
        for group in self.groups.iter_mut().filter(|g| is_kept(g.owner)) {
            (group.own_length, group.length) = (last, last);
            group.spans = vec![(0, last)];
            group.parts.clear();
        }
    }

    /// The same, with the places of small values needed a while longer than they are.
    pub(crate) fn apart(&self) -> Heap {
        let mut heap = self.clone();
        for group in heap.groups.iter_mut().filter(|g| g.size <= SMALL) {
            if let Some(last) = group.spans.last_mut() {
                last.1 = last.1.saturating_add(WHILE);
                group.length = group.length.saturating_add(WHILE);
                group.parts.clear();
            }
        }
        heap
    }

    /// Packs the values. `None` when the block would be too large.
    pub fn pack(&self, packer: Packer) -> Option<Packed> {
        let placed = crate::pack::pack(&self.groups, self.alignment, packer, || Some(self.lower_bound()?.bytes))?;
        let mut packed = Packed { size: placed.size, offsets: FxHashMap::default() };
        for (group, &offset) in self.groups.iter().zip(&placed.offsets) {
            packed.offsets.extend(group.members.iter().map(|&(value, within)| (value, offset + within)));
        }
        Some(packed)
    }

    /// What no packing can go below: the most that is live at once. All that is live at a moment lies side by side, each
    /// value up to where the next may begin; only the last one needs no filling up to the alignment, and that is at best
    /// the one that would need most. `None` where that does not fit in 2^63 bytes.
    pub fn lower_bound(&self) -> Option<LowerBound> {
        let mut events: Vec<(u64, bool, i64)> = Vec::new();
        for (_, size, spans) in self.groups.iter().flat_map(Group::stretches).filter(|s| s.1 > 0) {
            events.extend(spans.iter().flat_map(|&(start, end)| [(start, true, size), (end, false, size)]));
        }
        events.sort_unstable();
        let mut fillings: BTreeMap<i64, u32> = BTreeMap::new();
        let (mut now, mut most) = (0i64, LowerBound::default());
        for (tick, begins, size) in events {
            let whole = round_up(size, self.alignment)?;
            let filling = whole - size;
            if begins {
                now = now.checked_add(whole)?;
                *fillings.entry(filling).or_default() += 1;
                let bytes = now - fillings.last_key_value().map_or(0, |(&f, _)| f);
                if bytes > most.bytes {
                    let time = usize::try_from(tick).ok().and_then(|t| self.ticks.get(t).copied());
                    most = LowerBound { bytes, time: time.unwrap_or(0) };
                }
            } else {
                now -= whole;
                if let Some(count) = fillings.get_mut(&filling) {
                    *count -= 1;
                    if *count == 0 {
                        fillings.remove(&filling);
                    }
                }
            }
        }
        Some(most)
    }
}

/// Plays the values through in time.
fn play(
    dataflow: &Dataflow<'_>,
    buffers: &Buffers,
    live: &LiveRanges,
    overwrite: &Overwrite<'_, '_>,
    values: &[(ValueId, i64)],
    side_by_side: &SideBySide,
) -> (Vec<Group>, Vec<Time>) {
    let mut sorted: Vec<(Time, Time, ValueId, i64)> =
        values.iter().filter_map(|&(v, size)| live.of(v).map(|r| (r.start, r.end, v, size))).collect();
    sorted.sort_unstable();
    let mut freed_at: FxHashMap<Time, Vec<ValueId>> = FxHashMap::default();
    let mut due: FxHashSet<ValueId> = FxHashSet::default();
    let mut times: Vec<Time> = Vec::with_capacity(sorted.len() * 2);
    for &(start, end, value, _) in &sorted {
        freed_at.entry(end).or_default().push(value);
        due.insert(value);
        times.extend([start, end]);
    }
    times.sort_unstable();
    times.dedup();

    let mut clock = 0u64;
    let mut ticks: Vec<Time> = Vec::with_capacity(sorted.len() * 2);
    let mut intervals: FxHashMap<ValueId, (u64, u64)> = FxHashMap::default();
    let mut group_of: FxHashMap<ValueId, usize> = FxHashMap::default();
    let mut first_of_buffer: FxHashMap<u32, ValueId> = FxHashMap::default();
    let mut groups: Vec<Group> = Vec::new();
    let mut next = 0;
    for time in times {
        while let Some(&(start, _, value, size)) = sorted.get(next).filter(|v| v.0 == time) {
            debug_assert_eq!(start, time);
            next += 1;
            let buffer = buffers.of(value);
            let seat = side_by_side.seat(value);
            // What is made of slices has the place that the first of them asked for.
            let head = seat.map_or(value, |s| s.whole);
            let tied_to = match first_of_buffer.get(&buffer) {
                Some(&first) => Some(first),
                None if seat.is_some() => Some(head),
                None if group_of.contains_key(&value) => {
                    first_of_buffer.insert(buffer, value);
                    Some(value)
                }
                None => {
                    let operand = takes_over(dataflow, buffers, live, overwrite, &due, value, time);
                    match operand {
                        Some(operand) => {
                            end(&mut intervals, operand, &mut clock);
                            due.remove(&operand);
                        }
                        None => {
                            first_of_buffer.insert(buffer, value);
                        }
                    }
                    operand
                }
            };
            intervals.insert(value, (clock, u64::MAX));
            clock += 1;
            let group = tied_to.and_then(|t| group_of.get(&t).copied()).unwrap_or_else(|| {
                groups.push(Group {
                    owner: value,
                    own_length: 0,
                    length: 0,
                    size: 0,
                    spans: Vec::new(),
                    parts: Vec::new(),
                    members: Vec::new(),
                });
                groups.len() - 1
            });
            group_of.extend([(value, group), (head, group)]);
            groups[group].size = groups[group].size.max(seat.map_or(size, |s| s.whole_size));
            groups[group].members.push((value, seat.map_or(0, |s| s.offset)));
        }
        for value in freed_at.remove(&time).unwrap_or_default() {
            if due.remove(&value) {
                end(&mut intervals, value, &mut clock);
            }
        }
        ticks.resize(clock as usize, time);
    }
    for group in &mut groups {
        let interval = |value: &ValueId| intervals.get(value).copied().unwrap_or((0, 0));
        let (start, end) = interval(&group.owner);
        group.own_length = end - start;
        group.spans = joined(group.members.iter().map(|(value, _)| interval(value)).collect());
        let (first, last) = (group.spans.first(), group.spans.last());
        group.length = first.zip(last).map_or(0, |(first, last)| last.1 - first.0);
        let (slices, others): (Vec<_>, Vec<_>) =
            group.members.iter().partition(|(value, _)| side_by_side.seat(*value).is_some());
        let others: Vec<(u64, u64)> = others.iter().map(|(value, _)| interval(value)).collect();
        group.parts = slices
            .iter()
            .filter_map(|&(value, offset)| {
                let size = side_by_side.seat(value)?.size;
                Some(Stretch {
                    offset,
                    size,
                    spans: joined(others.iter().copied().chain([interval(&value)]).collect()),
                })
            })
            .collect();
    }
    (groups, ticks)
}

/// The intervals as stretches of time that do not touch.
fn joined(mut intervals: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    intervals.sort_unstable();
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for (start, end) in intervals {
        match spans.last_mut() {
            Some(last) if start <= last.1.saturating_add(1) => last.1 = last.1.max(end),
            _ => spans.push((start, end)),
        }
    }
    spans
}

fn end(intervals: &mut FxHashMap<ValueId, (u64, u64)>, value: ValueId, clock: &mut u64) {
    if let Some(interval) = intervals.get_mut(&value) {
        interval.1 = *clock;
    }
    *clock += 1;
}

/// The operand value whose memory `value` may take over: alone in its buffer, ending now, and not yet taken.
fn takes_over(
    dataflow: &Dataflow<'_>,
    buffers: &Buffers,
    live: &LiveRanges,
    overwrite: &Overwrite<'_, '_>,
    due: &FxHashSet<ValueId>,
    value: ValueId,
    time: Time,
) -> Option<ValueId> {
    let module = dataflow.module();
    if buffers.values(buffers.of(value)).len() != 1 {
        return None;
    }
    let definition = dataflow.value(value)?;
    let user = dataflow.instruction(definition);
    if let Op::Copy = module[user].op {
        return None;
    }
    // Nearly always it is that very operand; an instruction may have thousands of others.
    let is_operand = |operand, maker| operand == maker || module[user].operands().contains(&maker);
    module[user].operands().iter().find_map(|&operand| {
        let whole = dataflow.positions.whole(operand);
        let candidate = dataflow.at(whole)?;
        let made = dataflow.value(candidate)?;
        let fits = buffers.values(buffers.of(candidate)).len() == 1
            && live.of(candidate).is_some_and(|r| r.end == time)
            && due.contains(&candidate)
            // The value must be made by an operand itself, not merely pass through it.
            && is_operand(operand, dataflow.instruction(made))
            && overwrite.may(made.position, definition.position);
        fits.then_some(candidate)
    })
}
