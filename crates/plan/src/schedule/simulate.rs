//! The bytes live at every step of an order.

use super::graph::Node;
use super::memory::{Buffer, Memory};

/// What is live while an order is followed.
pub(super) struct Live {
    /// How many nodes are still to come that need each buffer.
    pub(super) remaining: Vec<u32>,
    /// The nodes that are still to come for each buffer, all numbers combined by exclusive or: the last one alone.
    last: Vec<Node>,
}

impl Live {
    pub(super) fn new(memory: &Memory) -> Live {
        let buffers = 0..memory.sizes.len() as Buffer;
        Live {
            remaining: buffers.clone().map(|b| memory.touched_by.of(b).len() as u32).collect(),
            last: buffers.map(|b| memory.touched_by.of(b).iter().fold(0, |all, &node| all ^ node)).collect(),
        }
    }

    /// Takes a step; tells the buffers that only one more node needs, with that node.
    pub(super) fn step(&mut self, memory: &Memory, node: Node, mut one_left: impl FnMut(Buffer, Node)) {
        for &buffer in memory.touches.of(node) {
            let at = buffer as usize;
            self.remaining[at] -= 1;
            self.last[at] ^= node;
            if self.remaining[at] == 1 && !memory.kept[at] {
                one_left(buffer, self.last[at]);
            }
        }
    }

    /// The bytes that end with each node, by what is known before the first step: those that nothing else needs.
    pub(super) fn freed(&self, memory: &Memory) -> Vec<i128> {
        let mut freed = vec![0; memory.fresh.len()];
        for (b, &size) in memory.sizes.iter().enumerate() {
            if self.remaining[b] == 1 && !memory.kept[b] {
                freed[self.last[b] as usize] += i128::from(size);
            }
        }
        freed
    }
}

/// The most bytes live at once when the nodes run in that order.
pub(super) fn peak(memory: &Memory, order: &[Node]) -> i128 {
    let mut live = Live::new(memory);
    let (mut now, mut most) = (0i128, 0i128);
    for &node in order {
        let fresh = memory.fresh[node as usize];
        // A result may be written over an operand of its size that nothing else needs.
        let mut ending = memory.overwrites.of(node).iter();
        let in_place = ending.any(|&b| live.remaining[b as usize] == 1 && !memory.kept[b as usize]);
        let made = if in_place { 0 } else { fresh };
        most = most.max(now + made.max(memory.inner[node as usize]));
        now += fresh;
        live.step(memory, node, |_, _| {});
        for &buffer in memory.touches.of(node) {
            if live.remaining[buffer as usize] == 0 && !memory.kept[buffer as usize] {
                now -= i128::from(memory.sizes[buffer as usize]);
            }
        }
    }
    most
}

/// What no order can go below: whatever an instruction makes and reads is live when it runs.
pub(super) fn least_peak(memory: &Memory) -> i128 {
    let mut most = 0;
    for node in 0..memory.fresh.len() as Node {
        let size = |&b: &Buffer| i128::from(memory.sizes[b as usize]);
        let all: i128 = memory.touches.of(node).iter().map(size).sum();
        let in_place = memory.overwrites.of(node).iter().map(size).max().unwrap_or(0);
        let called = all - memory.fresh[node as usize] + memory.inner[node as usize];
        most = most.max(all - in_place).max(called);
    }
    most
}
