//! Which allocation, the last added first, has room in time for one more buffer?
//!
//! Programs with thousands of results have thousands of allocations to try for each buffer. A tree over them keeps, for
//! whole stretches of the list, how far the free time at the beginning reaches, from when on the end is free, and the
//! longest free time in between, so that stretches without room are passed over at once.

use crate::live_range::{LiveRange, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// When an allocation is free. Ranges may touch: whether they really may is the caller's to decide.
#[derive(Clone, Debug)]
struct Free {
    /// Free up to here from the beginning.
    lead: Time,
    /// Free from here to the end.
    trail: Time,
    /// Free between uses, by start.
    inner: BTreeMap<Time, Time>,
    /// How many of those there are, by length.
    lengths: BTreeMap<Time, u32>,
}

impl Free {
    fn all() -> Free {
        Free { lead: Time::MAX, trail: 0, inner: BTreeMap::new(), lengths: BTreeMap::new() }
    }

    fn take(&mut self, range: LiveRange) {
        if self.lead == Time::MAX {
            self.lead = range.start;
            self.trail = range.end;
        } else if range.end <= self.lead {
            self.add_inner(range.end, self.lead);
            self.lead = range.start;
        } else if range.start >= self.trail {
            self.add_inner(self.trail, range.start);
            self.trail = range.end;
        } else if let Some((&start, &end)) = self.inner.range(..=range.start).next_back()
            && range.end <= end
        {
            self.remove_inner(start, end);
            self.add_inner(start, range.start);
            self.add_inner(range.end, end);
        }
        self.lead = self.lead.min(range.start);
        self.trail = self.trail.max(range.end);
    }

    fn add_inner(&mut self, start: Time, end: Time) {
        if start < end && self.inner.insert(start, end).is_none() {
            *self.lengths.entry(end - start).or_default() += 1;
        }
    }

    fn remove_inner(&mut self, start: Time, end: Time) {
        self.inner.remove(&start);
        if let Some(count) = self.lengths.get_mut(&(end - start)) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&(end - start));
            }
        }
    }

    fn room(&self) -> Room {
        let longest = self.lengths.last_key_value().map_or(0, |(&length, _)| length);
        Room { lead: self.lead, trail: self.trail, longest }
    }
}

/// The most room that any allocation of a stretch has.
#[derive(Clone, Copy, Debug)]
struct Room {
    lead: Time,
    trail: Time,
    longest: Time,
}

impl Room {
    const NONE: Room = Room { lead: 0, trail: Time::MAX, longest: 0 };

    fn with(self, other: Room) -> Room {
        Room {
            lead: self.lead.max(other.lead),
            trail: self.trail.min(other.trail),
            longest: self.longest.max(other.longest),
        }
    }

    fn may_hold(self, range: LiveRange) -> bool {
        range.end <= self.lead
            || range.start >= self.trail
            || range.end - range.start <= self.longest && self.longest > 0
    }
}

/// Allocations in the order in which they may be reused.
#[derive(Debug, Default)]
pub(crate) struct ReuseList {
    free: Vec<Free>,
    /// A binary tree: node 1 is the whole, the children of n are 2n and 2n+1.
    tree: Vec<Room>,
    leaves: usize,
}

impl ReuseList {
    /// Adds an allocation that is used at `ranges`; returns its place in the list.
    pub(crate) fn add(&mut self, ranges: impl Iterator<Item = LiveRange>) -> usize {
        let mut free = Free::all();
        let mut ranges: Vec<LiveRange> = ranges.collect();
        ranges.sort_unstable();
        ranges.into_iter().for_each(|r| free.take(r));
        self.free.push(free);
        let at = self.free.len() - 1;
        if self.free.len() > self.leaves {
            self.leaves = self.free.len().next_power_of_two().max(1);
            self.tree = vec![Room::NONE; 2 * self.leaves];
            for (i, free) in self.free.iter().enumerate() {
                self.tree[self.leaves + i] = free.room();
            }
            for node in (1..self.leaves).rev() {
                self.tree[node] = self.tree[2 * node].with(self.tree[2 * node + 1]);
            }
        } else {
            self.refresh(at);
        }
        at
    }

    /// Says that the allocation at that place is used at one more range.
    pub(crate) fn take(&mut self, at: usize, range: LiveRange) {
        if let Some(free) = self.free.get_mut(at) {
            free.take(range);
            self.refresh(at);
        }
    }

    fn refresh(&mut self, at: usize) {
        let mut node = self.leaves + at;
        self.tree[node] = self.free[at].room();
        while node > 1 {
            node /= 2;
            self.tree[node] = self.tree[2 * node].with(self.tree[2 * node + 1]);
        }
    }

    /// The last place before `before` that may have room for `range`.
    pub(crate) fn last_with_room(&self, range: LiveRange, before: usize) -> Option<usize> {
        // Nodes still to look at, the ones further back in the list on top.
        let mut stack = vec![(1usize, 0usize, self.leaves)];
        while let Some((node, from, length)) = stack.pop() {
            if from >= before || !self.tree.get(node).is_some_and(|r| r.may_hold(range)) {
                continue;
            }
            if length == 1 {
                return Some(from);
            }
            let half = length / 2;
            stack.push((2 * node, from, half));
            stack.push((2 * node + 1, from + half, half));
        }
        None
    }

    /// The number of allocations in the list.
    pub(crate) fn len(&self) -> usize {
        self.free.len()
    }
}

/// Allocations to reuse where buffers come in the order in which they begin: time only goes forward, and what has ended is
/// free, by memory space and size.
#[derive(Debug, Default)]
pub(crate) struct ReusePool {
    lent: BinaryHeap<Reverse<(Time, usize)>>,
    free: BTreeMap<i64, BTreeSet<(i64, usize)>>,
}

impl ReusePool {
    /// Says that an allocation is needed until then.
    pub(crate) fn lend(&mut self, at: usize, until: Time) {
        self.lent.push(Reverse((until, at)));
    }

    /// Frees what ended by then; `kind` tells the memory space and the size of an allocation.
    pub(crate) fn advance(&mut self, now: Time, kind: impl Fn(usize) -> (i64, i64)) {
        while let Some(&Reverse((until, at))) = self.lent.peek()
            && until <= now
        {
            self.lent.pop();
            let (memory_space, size) = kind(at);
            self.free.entry(memory_space).or_default().insert((size, at));
        }
    }

    /// The first free allocation, by size and number, that is not before `place`.
    pub(crate) fn at_least(&self, memory_space: i64, place: (i64, usize)) -> Option<(i64, usize)> {
        self.free.get(&memory_space)?.range(place..).next().copied()
    }

    /// Says that the allocation is not free any more.
    pub(crate) fn take(&mut self, memory_space: i64, place: (i64, usize)) {
        if let Some(free) = self.free.get_mut(&memory_space) {
            free.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: Time, end: Time) -> LiveRange {
        LiveRange { start, end }
    }

    #[test]
    fn finds_the_last_allocation_with_room() {
        let mut list = ReuseList::default();
        for (start, end) in [(0, 10), (20, 30), (5, 30), (0, 30)] {
            list.add([range(start, end)].into_iter());
        }
        assert_eq!(list.last_with_room(range(0, 4), 4), Some(2));
        assert_eq!(list.last_with_room(range(0, 4), 2), Some(1));
        assert_eq!(list.last_with_room(range(12, 15), 4), Some(1));
        assert_eq!(list.last_with_room(range(12, 15), 1), Some(0));
        assert_eq!(list.last_with_room(range(0, 25), 4), None);
        list.take(1, range(12, 15));
        assert_eq!(list.last_with_room(range(16, 18), 2), Some(1));
        assert_eq!(list.last_with_room(range(13, 19), 2), Some(0));
    }
}
