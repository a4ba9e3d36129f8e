//! How much of a memory space is in use at each moment, and the most of any stretch of time.
//!
//! A place counts once, however many values take turns in it. A step with a value that takes over an operand's place
//! counts that place once too.

use crate::Plan;
use crate::live_range::Time;
use crate::range_max::RangeMax;

/// A place, and from when to when it is in use without a break.
pub(super) struct Stay {
    pub(super) memory_space: i64,
    pub(super) start: Time,
    pub(super) end: Time,
    pub(super) bytes: i64,
    /// The allocation's number and the offset in it.
    pub(super) place: (usize, i64),
}

/// The places in use, each stretch of time once however many values take turns in it.
pub(super) fn stays(plan: &Plan<'_>) -> Vec<Stay> {
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
                    memory_space: allocation.memory_space,
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

/// The bytes of one memory space in use at each time.
pub(super) struct Level {
    pub(super) memory_space: i64,
    /// The bytes at each time, and what of them begins just then.
    at: Vec<i128>,
    begins: Vec<i128>,
    /// The most of any stretch of `at`.
    most: RangeMax,
}

/// A change of what is in use: from a time to another, both included, so many bytes more or less.
pub(super) type Edit = (Time, Time, i128);

impl Level {
    /// What the stays of that memory space come to, over the times up to `end`.
    pub(super) fn new(stays: &[Stay], memory_space: i64, end: Time) -> Level {
        let length = end as usize + 2;
        let (mut at, mut begins) = (vec![0i128; length], vec![0i128; length]);
        for stay in stays.iter().filter(|s| s.memory_space == memory_space) {
            let bytes = i128::from(stay.bytes);
            at[stay.start as usize] += bytes;
            at[stay.end.min(end) as usize + 1] -= bytes;
            begins[stay.start as usize] += bytes;
        }
        for t in 1..length {
            at[t] += at[t - 1];
        }
        at.truncate(length - 1);
        let most = RangeMax::new(&at);
        Level { memory_space, at, begins, most }
    }

    /// The most at any time.
    pub(super) fn peak(&self) -> i128 {
        self.most.most(0..self.at.len())
    }

    /// What is in use from before a time until into it.
    pub(super) fn across(&self, time: Time) -> i128 {
        let time = time as usize;
        self.at.get(time).copied().unwrap_or(0) - self.begins.get(time).copied().unwrap_or(0)
    }

    /// The most from one time to another, both included; 0 if there is none between.
    fn most(&self, from: Time, to: Time) -> i128 {
        self.most.most(from as usize..to as usize + 1)
    }

    /// The peak if the edits are made; the time `without`, if any, is left out.
    pub(super) fn peak_with(&self, edits: &[Edit], without: Option<Time>) -> i128 {
        let end = self.at.len() as Time;
        let mut changes: Vec<(Time, i128)> = vec![(0, 0), (end, 0)];
        for &(from, to, bytes) in edits.iter().filter(|e| e.0 <= e.1) {
            changes.extend([(from.min(end), bytes), (to.saturating_add(1).min(end), -bytes)]);
        }
        if let Some(time) = without {
            changes.extend([(time, 0), (time.saturating_add(1).min(end), 0)]);
        }
        changes.sort_unstable();
        let (mut more, mut peak) = (0, 0);
        for pair in changes.windows(2) {
            let ((from, bytes), (until, _)) = (pair[0], pair[1]);
            more += bytes;
            if from < until && without != Some(from) {
                peak = peak.max(self.most(from, until - 1) + more);
            }
        }
        peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stay(start: Time, end: Time, bytes: i64) -> Stay {
        Stay { memory_space: 0, start, end, bytes, place: (0, 0) }
    }

    #[test]
    fn peaks_with_edits_are_those_of_a_plain_sum() {
        let stays = [stay(0, 9, 5), stay(2, 4, 7), stay(4, 6, 1), stay(6, 6, 9), stay(8, 10, 3)];
        let level = Level::new(&stays, 0, 10);
        assert_eq!((level.peak(), level.across(4), level.across(6)), (15, 12, 6));
        let plain = |t: Time| stays.iter().filter(|s| s.start <= t && t <= s.end).map(|s| i128::from(s.bytes)).sum();
        let all: Vec<Edit> = (0..=10).flat_map(|a| (a..=10).map(move |b| (a, b, i128::from(a) - 4))).collect();
        for pair in all.windows(2) {
            for without in [None, Some(2), Some(6), Some(10)] {
                let edited = |t: Time| -> i128 {
                    let more: i128 = pair.iter().filter(|e| e.0 <= t && t <= e.1).map(|e| e.2).sum();
                    let there: i128 = plain(t);
                    there + more
                };
                let expected = (0..=10).filter(|&t| Some(t) != without).map(edited).max();
                assert_eq!(Some(level.peak_with(pair, without)), expected, "{pair:?} without {without:?}");
            }
        }
    }
}
