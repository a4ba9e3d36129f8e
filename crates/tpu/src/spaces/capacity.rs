//! How much of a memory is taken at each time.
//!
//! A tree over times that adds to a range and tells the most of a range, each in logarithmic time.

/// Bytes taken at each of a number of times.
pub(super) struct Capacity {
    /// The largest sum below each node, without what was added to the nodes above.
    most: Vec<i64>,
    added: Vec<i64>,
    leaves: usize,
}

impl Capacity {
    pub(super) fn new(times: usize) -> Capacity {
        let leaves = times.max(1).next_power_of_two();
        Capacity { most: vec![0; 2 * leaves], added: vec![0; 2 * leaves], leaves }
    }

    /// Takes `bytes` from time `start` to time `end`, both included.
    pub(super) fn add(&mut self, start: usize, end: usize, bytes: i64) {
        self.walk(1, 0, self.leaves, (start, end + 1), bytes);
    }

    /// The most that is taken at one time from `start` to `end`, both included.
    pub(super) fn most(&self, start: usize, end: usize) -> i64 {
        self.query(1, 0, self.leaves, (start, end + 1))
    }

    // The depth of both is the logarithm of the number of times.
    fn walk(&mut self, node: usize, from: usize, to: usize, range: (usize, usize), bytes: i64) {
        if range.1 <= from || to <= range.0 {
            return;
        }
        if range.0 <= from && to <= range.1 {
            self.added[node] += bytes;
            self.most[node] += bytes;
            return;
        }
        let middle = from.midpoint(to);
        self.walk(2 * node, from, middle, range, bytes);
        self.walk(2 * node + 1, middle, to, range, bytes);
        self.most[node] = self.added[node] + self.most[2 * node].max(self.most[2 * node + 1]);
    }

    fn query(&self, node: usize, from: usize, to: usize, range: (usize, usize)) -> i64 {
        if range.1 <= from || to <= range.0 {
            return 0;
        }
        if range.0 <= from && to <= range.1 {
            return self.most[node];
        }
        let middle = from.midpoint(to);
        let below = self.query(2 * node, from, middle, range).max(self.query(2 * node + 1, middle, to, range));
        self.added[node] + below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_maxima_of_ranges() {
        let mut capacity = Capacity::new(10);
        capacity.add(0, 9, 1);
        capacity.add(3, 5, 10);
        capacity.add(5, 7, 100);
        let most = [(0, 2), (0, 3), (4, 4), (5, 5), (6, 9), (8, 9)].map(|(a, b)| capacity.most(a, b));
        assert_eq!(most, [1, 11, 11, 111, 101, 1]);
        capacity.add(5, 7, -100);
        assert_eq!(capacity.most(0, 9), 11);
    }
}
