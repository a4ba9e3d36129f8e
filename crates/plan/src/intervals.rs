//! Which of the things placed so far are there at the same time as a new one.
//!
//! All times are known before the first is added: they are numbered, and a binary tree over the numbers keeps each
//! interval at the few nodes that it covers. A question costs the logarithm of the number of times, and what it finds.

use std::collections::BTreeMap;

type Chunk = (i64, i64);

/// Intervals of time, ends included, each with a chunk of memory.
#[derive(Debug)]
pub(crate) struct IntervalIndex {
    times: Vec<u64>,
    leaves: usize,
    covering: Vec<Vec<Chunk>>,
    starting: BTreeMap<u64, Vec<Chunk>>,
}

impl IntervalIndex {
    /// For intervals that begin and end at `times` only.
    pub(crate) fn new(times: impl Iterator<Item = u64>) -> IntervalIndex {
        let mut times: Vec<u64> = times.collect();
        times.sort_unstable();
        times.dedup();
        let leaves = times.len().next_power_of_two();
        IntervalIndex { times, leaves, covering: vec![Vec::new(); 2 * leaves], starting: BTreeMap::new() }
    }

    fn number(&self, time: u64) -> usize {
        self.times.partition_point(|&t| t < time)
    }

    /// Adds an interval.
    pub(crate) fn add(&mut self, (start, end): (u64, u64), chunk: Chunk) {
        self.starting.entry(start).or_default().push(chunk);
        let (mut low, mut high) = (self.number(start) + self.leaves, self.number(end) + self.leaves + 1);
        while low < high {
            if low % 2 == 1 {
                self.covering[low].push(chunk);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                self.covering[high].push(chunk);
            }
            low /= 2;
            high /= 2;
        }
    }

    /// Tells every chunk whose interval has a time in common with this one.
    pub(crate) fn overlapping(&self, (start, end): (u64, u64), mut found: impl FnMut(Chunk)) {
        let mut node = self.number(start) + self.leaves;
        while node > 0 {
            if let Some(chunks) = self.covering.get(node) {
                chunks.iter().copied().for_each(&mut found);
            }
            node /= 2;
        }
        // What begins later, but not after the end; what begins at the start was found above.
        if start < end {
            self.starting.range(start + 1..=end).flat_map(|(_, chunks)| chunks).copied().for_each(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_plain_search_finds() {
        let mut seed = 7u64;
        let mut next = |bound: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % bound
        };
        let intervals: Vec<(u64, u64)> = (0..200)
            .map(|_| {
                let start = next(300);
                (start, start + next(40))
            })
            .collect();
        let mut index = IntervalIndex::new(intervals.iter().flat_map(|&(a, b)| [a, b]));
        for (i, &(start, end)) in intervals.iter().enumerate() {
            let mut found = Vec::new();
            index.overlapping((start, end), |c| found.push(c.0));
            found.sort_unstable();
            found.dedup();
            let plain: Vec<i64> =
                (0..i).filter(|&j| intervals[j].0 <= end && intervals[j].1 >= start).map(|j| j as i64).collect();
            assert_eq!(found, plain, "for {start}-{end}");
            index.add((start, end), (i as i64, i as i64 + 1));
        }
    }
}
