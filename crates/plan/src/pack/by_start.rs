//! Packing in one sweep through time: each group in the order in which it begins, into the smallest gap there is then.
//!
//! What has ended is given back before a group is placed; gaps that touch are one. A group costs the logarithm of the
//! number of gaps.

use super::Placed;
use crate::heap::Group;
use hloom_target::size::round_up;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Places the groups. `None` when an offset does not fit.
pub(super) fn place(groups: &[Group], alignment: i64) -> Option<Placed> {
    let start = |g: &Group| g.spans.first().map_or(0, |s| s.0);
    let mut order: Vec<usize> = (0..groups.len()).filter(|&g| groups[g].size > 0).collect();
    order.sort_unstable_by_key(|&g| (start(&groups[g]), Reverse(groups[g].size), groups[g].owner));

    let mut gaps = Gaps::new(alignment);
    let mut ends: BinaryHeap<Reverse<(u64, Gap)>> = BinaryHeap::new();
    let mut placed = Placed { size: 0, offsets: vec![0; groups.len()] };
    for g in order {
        let group = &groups[g];
        while let Some(&Reverse((end, taken))) = ends.peek()
            && end <= start(group)
        {
            gaps.give_back(taken);
            ends.pop();
        }
        let (taken, offset) = gaps.take(group.size)?;
        ends.push(Reverse((group.spans.last().map_or(0, |s| s.1), taken)));
        placed.offsets[g] = offset;
        placed.size = placed.size.max(taken.1);
    }
    Some(placed)
}

/// Memory from the first number up to the second.
type Gap = (i64, i64);

/// Memory that nothing takes; the last gap has no end that could be reached.
struct Gaps {
    alignment: i64,
    /// The end of each gap, by its start.
    by_offset: BTreeMap<i64, i64>,
    /// Gaps by what fits into them, of equal ones the lowest first.
    by_size: BTreeSet<(i64, i64)>,
}

impl Gaps {
    fn new(alignment: i64) -> Gaps {
        let mut gaps = Gaps { alignment, by_offset: BTreeMap::new(), by_size: BTreeSet::new() };
        gaps.insert((0, i64::MAX));
        gaps
    }

    /// The bytes of a gap from where something may begin.
    fn room(&self, gap: Gap) -> Option<i64> {
        gap.1.checked_sub(round_up(gap.0, self.alignment)?)
    }

    fn insert(&mut self, gap: Gap) {
        self.by_offset.insert(gap.0, gap.1);
        if let Some(room) = self.room(gap) {
            self.by_size.insert((room, gap.0));
        }
    }

    fn remove(&mut self, gap: Gap) {
        self.by_offset.remove(&gap.0);
        if let Some(room) = self.room(gap) {
            self.by_size.remove(&(room, gap.0));
        }
    }

    /// Takes that many bytes; returns what was taken, from the start of the gap on, and the offset in it.
    fn take(&mut self, size: i64) -> Option<(Gap, i64)> {
        let &(_, start) = self.by_size.range((size, 0)..).next()?;
        let end = *self.by_offset.get(&start)?;
        let offset = round_up(start, self.alignment)?;
        let taken = (start, offset.checked_add(size)?);
        self.remove((start, end));
        if taken.1 < end {
            self.insert((taken.1, end));
        }
        Some((taken, offset))
    }

    fn give_back(&mut self, taken: Gap) {
        let (mut start, mut end) = taken;
        if let Some((&before, &touch)) = self.by_offset.range(..start).next_back()
            && touch == start
        {
            self.remove((before, touch));
            start = before;
        }
        if let Some(&after) = self.by_offset.get(&end) {
            self.remove((end, after));
            end = after;
        }
        self.insert((start, end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(owner: u32, size: i64, start: u64, end: u64) -> Group {
        Group::new(owner, size, end - start, vec![(start, end)])
    }

    #[test]
    fn goes_into_the_smallest_gap_there_is_at_the_time() {
        // 30 and 10 end at 2; then 8 goes into the gap of 10 though that of 30 lies lower, and 20 into that of 30.
        let groups = [
            group(0, 30, 0, 2),
            group(1, 12, 0, 9),
            group(2, 10, 0, 2),
            group(3, 5, 1, 9),
            group(4, 8, 3, 9),
            group(5, 20, 4, 9),
        ];
        let placed = place(&groups, 1).unwrap();
        assert_eq!(placed.offsets, [0, 30, 42, 52, 42, 0]);
        assert_eq!(placed.size, 57);
    }

    #[test]
    fn gaps_that_touch_are_one_and_begin_where_something_may() {
        let groups = [group(0, 3, 0, 2), group(1, 4, 0, 2), group(2, 2, 0, 9), group(3, 11, 3, 9), group(4, 16, 3, 9)];
        let placed = place(&groups, 8).unwrap();
        // The 11 bytes of the first two are one gap again, with what was lost between them.
        assert_eq!(placed.offsets, [8, 0, 16, 0, 24]);
    }
}
