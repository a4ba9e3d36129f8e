//! Orders in which groups are placed.

use crate::heap::Group;
use crate::range_max::RangeMax;
use std::cmp::Reverse;

/// The groups' numbers in the order of `key`.
pub(super) fn sorted<K: Ord>(groups: &[&Group], key: impl Fn(&Group) -> K) -> Vec<u32> {
    let mut order: Vec<u32> = (0..groups.len() as u32).collect();
    order.sort_by_cached_key(|&g| key(groups[g as usize]));
    order
}

/// Orders worth trying besides those of the reference, the most promising first.
pub(super) fn all(groups: &[&Group], load: &Load) -> Vec<Vec<u32>> {
    let size = |g: &Group| Reverse(g.size);
    let length = |g: &Group| Reverse(g.length);
    let area = |g: &Group| Reverse(i128::from(g.size) * i128::from(g.length + 1));
    let start = |g: &Group| g.spans.first().map_or(0, |s| s.0);
    let end = |g: &Group| Reverse(g.spans.last().map_or(0, |s| s.1));
    let busiest = |g: &Group| Reverse(load.most(g));
    vec![
        sorted(groups, |g| (busiest(g), length(g), size(g), g.owner)),
        sorted(groups, |g| (busiest(g), area(g), g.owner)),
        sorted(groups, |g| (busiest(g), size(g), length(g), g.owner)),
        sorted(groups, |g| (area(g), g.owner)),
        sorted(groups, |g| (size(g), length(g), g.owner)),
        sorted(groups, |g| (length(g), size(g), g.owner)),
        sorted(groups, |g| (size(g), start(g), g.owner)),
        sorted(groups, |g| (start(g), size(g), g.owner)),
        sorted(groups, |g| (end(g), size(g), g.owner)),
        sorted(groups, |g| (start(g), length(g), g.owner)),
    ]
}

/// How many bytes are needed at each moment, and the most in a stretch of time.
pub(super) struct Load {
    /// The ticks at which the most of their neighbourhood are there: the last before an end that follows a beginning.
    ticks: Vec<u64>,
    /// What is needed at them.
    loads: RangeMax,
}

impl Load {
    pub(super) fn new(groups: &[Group]) -> Load {
        let mut events: Vec<(u64, bool, i64)> = Vec::new();
        for group in groups {
            events.extend(group.spans.iter().flat_map(|s| [(s.0, false, group.size), (s.1, true, group.size)]));
        }
        events.sort_unstable();
        let (mut ticks, mut loads) = (Vec::new(), Vec::new());
        let (mut now, mut begun) = (0i128, false);
        for (tick, is_end, size) in events {
            if is_end && begun {
                ticks.push(tick);
                loads.push(now);
            }
            begun = !is_end;
            now += if is_end { -i128::from(size) } else { i128::from(size) };
        }
        Load { ticks, loads: RangeMax::new(&loads) }
    }

    /// The most that is needed at any moment at which the group is there.
    pub(super) fn most(&self, group: &Group) -> i128 {
        let at = |t: u64| self.ticks.partition_point(|&tick| tick < t);
        let until = |t: u64| self.ticks.partition_point(|&tick| tick <= t);
        group.spans.iter().map(|&(start, end)| self.loads.most(at(start)..until(end))).max().unwrap_or(0)
    }
}
