//! The largest of a stretch of numbers, in logarithmic time.

use std::ops::Range;

/// A binary tree of maxima: the numbers are its leaves, and the children of node n are 2n and 2n + 1.
pub(crate) struct RangeMax {
    nodes: Vec<i128>,
}

impl RangeMax {
    pub(crate) fn new(numbers: &[i128]) -> RangeMax {
        let mut nodes = vec![0; numbers.len()];
        nodes.extend_from_slice(numbers);
        for node in (1..numbers.len()).rev() {
            nodes[node] = nodes[2 * node].max(nodes[2 * node + 1]);
        }
        RangeMax { nodes }
    }

    /// The largest of the numbers in `range`, or 0 if that is larger or there are none.
    pub(crate) fn most(&self, range: Range<usize>) -> i128 {
        let leaves = self.nodes.len() / 2;
        let (mut low, mut high) = (leaves + range.start.min(leaves), leaves + range.end.min(leaves));
        let mut most = 0;
        while low < high {
            if low % 2 == 1 {
                most = most.max(self.nodes[low]);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                most = most.max(self.nodes[high]);
            }
            low /= 2;
            high /= 2;
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::RangeMax;

    #[test]
    fn as_looking_at_each() {
        for len in 0..20usize {
            let numbers: Vec<i128> = (0..len as i128).map(|i| (i * 7919) % 23 - 5).collect();
            let tree = RangeMax::new(&numbers);
            for start in 0..=len {
                for end in start..=len {
                    let expected = numbers[start..end].iter().copied().max().unwrap_or(0).max(0);
                    assert_eq!(tree.most(start..end), expected, "{start}..{end} of {numbers:?}");
                }
            }
        }
    }
}
