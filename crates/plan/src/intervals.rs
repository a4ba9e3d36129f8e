//! Which memory is taken while something new is there.
//!
//! All times are known before the first is added: they are numbered, and a binary tree over the numbers keeps each
//! interval at the few nodes that it covers. A node keeps no list but the union of the memory taken: however many values
//! lie side by side, they are one stretch. A question costs the square of a logarithm, and the gaps that it finds.

/// Memory from the first number up to the second.
type Chunk = (i64, i64);

/// Stretches of memory, by their start; they neither overlap nor touch. They are read far more often than changed, and
/// are few where memory is well filled: a plain list.
#[derive(Clone, Debug, Default)]
struct Union(Vec<Chunk>);

impl Union {
    fn add(&mut self, (start, end): Chunk) {
        let first = self.0.partition_point(|c| c.1 < start);
        let last = first + self.0[first..].partition_point(|c| c.0 <= end);
        match self.0.get(first..last) {
            Some(&[(from, _), .., (_, to)]) => {
                self.0[first] = (start.min(from), end.max(to));
                self.0.drain(first + 1..last);
            }
            Some(&[(from, to)]) => self.0[first] = (start.min(from), end.max(to)),
            _ => self.0.insert(first, (start, end)),
        }
    }
}

/// The memory taken over time.
#[derive(Debug)]
pub(crate) struct IntervalIndex {
    times: Vec<u64>,
    leaves: usize,
    /// What is taken during all of a node's time, and added just there.
    covering: Vec<Union>,
    /// What is taken during any of a node's time, and added there or below.
    below: Vec<Union>,
}

impl IntervalIndex {
    /// For intervals that begin and end at `times` only.
    pub(crate) fn new(times: impl Iterator<Item = u64>) -> IntervalIndex {
        let mut times: Vec<u64> = times.collect();
        times.sort_unstable();
        times.dedup();
        let leaves = times.len().next_power_of_two();
        let nodes = vec![Union::default(); 2 * leaves];
        IntervalIndex { times, leaves, covering: nodes.clone(), below: nodes }
    }

    /// The leaves of an interval's first and last time.
    fn ends(&self, (start, end): (u64, u64)) -> (usize, usize) {
        let leaf =
            |time| self.times.partition_point(|&t| t < time).min(self.times.len().saturating_sub(1)) + self.leaves;
        (leaf(start), leaf(end))
    }

    /// The fewest nodes that together are just the interval.
    fn nodes((first, last): (usize, usize)) -> Vec<usize> {
        let (mut low, mut high) = (first, last + 1);
        let mut nodes = Vec::new();
        while low < high {
            if low % 2 == 1 {
                nodes.push(low);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                nodes.push(high);
            }
            low /= 2;
            high /= 2;
        }
        nodes
    }

    /// The nodes above either end, each once.
    fn above((first, last): (usize, usize)) -> Vec<usize> {
        let (mut a, mut b) = (first / 2, last / 2);
        let mut nodes = Vec::new();
        while a > 0 {
            nodes.push(a);
            if a != b {
                nodes.push(b);
            }
            a /= 2;
            b /= 2;
        }
        nodes
    }

    /// Takes memory for a time, both ends included.
    pub(crate) fn add(&mut self, interval: (u64, u64), chunk: Chunk) {
        let ends = self.ends(interval);
        for node in Self::nodes(ends) {
            self.covering[node].add(chunk);
            self.below[node].add(chunk);
        }
        for node in Self::above(ends) {
            self.below[node].add(chunk);
        }
    }

    /// Tells the memory that is taken at any moment of the interval, in stretches that may repeat and overlap; there are
    /// few runs of them that are each in order. Of a run longer than `most` the rest is told as one stretch, gaps and all.
    pub(crate) fn taken(&self, interval: (u64, u64), most: usize, mut found: impl FnMut(Chunk)) {
        let ends = self.ends(interval);
        let inside = Self::nodes(ends).into_iter().map(|n| &self.below[n]);
        let around = Self::above(ends).into_iter().map(|n| &self.covering[n]);
        for Union(run) in inside.chain(around) {
            let told = if run.len() > most { most } else { run.len() };
            run[..told].iter().for_each(|&chunk| found(chunk));
            if let (Some(next), Some(last)) = (run.get(told), run.last()) {
                found((next.0, last.1));
            }
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
        let intervals: Vec<((u64, u64), Chunk)> = (0..300)
            .map(|_| {
                let (start, from) = (next(300), next(50) as i64);
                ((start, start + next(40)), (from, from + 1 + next(4) as i64))
            })
            .collect();
        let mut index = IntervalIndex::new(intervals.iter().flat_map(|&((a, b), _)| [a, b]));
        for (i, &(now, chunk)) in intervals.iter().enumerate() {
            let mut taken = [false; 64];
            index.taken(now, usize::MAX, |(from, to)| (from..to).for_each(|byte| taken[byte as usize] = true));
            let mut plain = [false; 64];
            for &(other, (from, to)) in &intervals[..i] {
                if other.0 <= now.1 && other.1 >= now.0 {
                    (from..to).for_each(|byte| plain[byte as usize] = true);
                }
            }
            assert_eq!(taken, plain, "for {now:?}");
            index.add(now, chunk);
        }
    }

    #[test]
    fn what_is_left_out_counts_as_taken() {
        let mut index = IntervalIndex::new([0, 1].into_iter());
        for start in [0, 10, 20, 30] {
            index.add((0, 1), (start, start + 5));
        }
        let mut told = Vec::new();
        index.taken((0, 1), 2, |chunk| told.push(chunk));
        told.sort_unstable();
        told.dedup();
        assert_eq!(told, [(0, 5), (10, 15), (20, 35)]);
    }

    #[test]
    fn what_lies_side_by_side_is_one_stretch() {
        let mut union = Union::default();
        for chunk in [(0, 4), (8, 12), (4, 8), (20, 30), (25, 40), (10, 11)] {
            union.add(chunk);
        }
        assert_eq!(union.0, [(0, 12), (20, 40)]);
    }
}
