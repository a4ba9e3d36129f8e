//! The orders that are tried for a computation.
//!
//! Depth-first ones follow operands from the results down, in the order in which they stand or those first that need most
//! memory on the way. List schedulers take from what is ready, forwards or from the end, whatever leaves least memory
//! live. Each is also tried with what makes memory put off until it is needed and what frees memory done at once.

use super::graph::{Graph, Lists, Node};
use super::memory::Memory;
use super::simulate::{Live, least_peak, peak};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An order and what it comes to.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) order: Vec<Node>,
    pub(super) peak: i128,
}

/// The order with the least peak that can be found; of equal ones the first tried, which is nearest to how the nodes stand.
pub(super) fn least(graph: Graph, memory: &Memory, topological: Vec<Node>) -> Found {
    let graph = graph.with_wishes(&memory.wishes);
    let standing = graph.topological().unwrap_or(topological);
    let mut search = Search {
        least: least_peak(memory),
        best: Found { peak: peak(memory, &standing), order: standing.clone() },
        graph: &graph,
        memory,
    };
    let by_need = graph.needs.sorted_by({
        let need = needs(&graph, memory, &standing);
        move |n| (Reverse(need[n as usize] - memory.held[n as usize]), n)
    });
    search.improve(&standing);
    let from_left = search.try_order(|g, _| depth_first(&g.needs, &g.needed_by, &standing));
    let neediest_first = search.try_order(|g, _| depth_first(&by_need, &g.needed_by, &standing));
    for order in [&standing, &from_left, &neediest_first] {
        let rank = rank(order);
        search.try_order(|g, m| list(g, m, &rank));
        search.try_order(|g, m| from_the_end(g, m, &rank));
    }
    search.best
}

struct Search<'a> {
    graph: &'a Graph,
    memory: &'a Memory,
    least: i128,
    best: Found,
}

impl Search<'_> {
    /// Tries an order as it is and improved, unless the best cannot be beaten; gives it back, empty where it was not made.
    fn try_order(&mut self, order: impl FnOnce(&Graph, &Memory) -> Vec<Node>) -> Vec<Node> {
        if self.best.peak <= self.least {
            return Vec::new();
        }
        let order = order(self.graph, self.memory);
        self.consider(order.clone());
        self.improve(&order);
        order
    }

    fn improve(&mut self, order: &[Node]) {
        if self.best.peak > self.least {
            self.consider(put_off(self.graph, self.memory, order));
        }
    }

    fn consider(&mut self, order: Vec<Node>) {
        let peak = peak(self.memory, &order);
        if peak < self.best.peak {
            self.best = Found { order, peak };
        }
    }
}

/// The place of each node in an order.
fn rank(order: &[Node]) -> Vec<u32> {
    let mut rank = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &node)| rank[node as usize] = i as u32);
    rank
}

/// What must be live at once to have each node's result, if all that it needs were needed by it alone and the neediest
/// came first.
fn needs(graph: &Graph, memory: &Memory, topological: &[Node]) -> Vec<i128> {
    let mut need = vec![0i128; graph.len()];
    let mut inputs: Vec<(i128, i128)> = Vec::new();
    for &node in topological {
        inputs.clear();
        inputs.extend(graph.needs.of(node).iter().map(|&n| (need[n as usize], memory.held[n as usize])));
        inputs.sort_unstable_by_key(|&(need, held)| Reverse(need - held));
        let (mut waiting, mut most) = (0i128, 0i128);
        for &(need, held) in &inputs {
            most = most.max(waiting + need);
            waiting += held;
        }
        let own = memory.fresh[node as usize].max(memory.inner[node as usize]);
        need[node as usize] = most.max(waiting + own);
    }
    need
}

/// What each node needs comes before it, in the order of the lists, from each node that nothing needs.
fn depth_first(needs: &Lists, needed_by: &Lists, standing: &[Node]) -> Vec<Node> {
    let mut order = Vec::with_capacity(standing.len());
    let mut seen = vec![false; standing.len()];
    let mut stack: Vec<(Node, usize)> = Vec::new();
    for &end in standing.iter().filter(|&&n| needed_by.of(n).is_empty()) {
        seen[end as usize] = true;
        stack.push((end, 0));
        while let Some((node, next)) = stack.last_mut() {
            match needs.of(*node).get(*next) {
                Some(&needed) => {
                    *next += 1;
                    if !std::mem::replace(&mut seen[needed as usize], true) {
                        stack.push((needed, 0));
                    }
                }
                None => {
                    order.push(*node);
                    stack.pop();
                }
            }
        }
    }
    order
}

/// Of what is ready, that which frees most more than it makes; of equal ones the first by rank.
fn list(graph: &Graph, memory: &Memory, rank: &[u32]) -> Vec<Node> {
    let mut live = Live::new(memory);
    let mut freed = live.freed(memory);
    let mut waiting = graph.waiting();
    let gain = |freed: &[i128], node: Node| freed[node as usize] - memory.fresh[node as usize];
    let mut ready: BinaryHeap<(i128, Reverse<u32>, Node)> = BinaryHeap::new();
    for node in (0..graph.len() as Node).filter(|&n| waiting[n as usize] == 0) {
        ready.push((gain(&freed, node), Reverse(rank[node as usize]), node));
    }
    let mut done = vec![false; graph.len()];
    let mut order = Vec::with_capacity(graph.len());
    while let Some((expected, _, node)) = ready.pop() {
        // An entry of a node whose gain grew since is followed by a better one.
        if done[node as usize] || expected != gain(&freed, node) {
            continue;
        }
        done[node as usize] = true;
        order.push(node);
        live.step(memory, node, |buffer, last| {
            freed[last as usize] += i128::from(memory.sizes[buffer as usize]);
            if waiting[last as usize] == 0 {
                ready.push((gain(&freed, last), Reverse(rank[last as usize]), last));
            }
        });
        for &next in graph.needed_by.of(node) {
            waiting[next as usize] -= 1;
            if waiting[next as usize] == 0 {
                ready.push((gain(&freed, next), Reverse(rank[next as usize]), next));
            }
        }
    }
    order
}

/// From the end: of what nothing still to be placed needs, that before which least is live; of equal ones the last by rank.
fn from_the_end(graph: &Graph, memory: &Memory, rank: &[u32]) -> Vec<Node> {
    let mut waiting: Vec<u32> = (0..graph.len() as Node).map(|n| graph.needed_by.of(n).len() as u32).collect();
    let mut is_live = memory.kept.clone();
    let mut growth = vec![0i128; graph.len()];
    for node in 0..graph.len() as Node {
        for &buffer in memory.touches.of(node) {
            let size = i128::from(memory.sizes[buffer as usize]);
            let is_made = memory.maker[buffer as usize] == node;
            growth[node as usize] += match (is_made, is_live[buffer as usize]) {
                (true, true) => -size,
                (false, false) => size,
                _ => 0,
            };
        }
    }
    let mut ready: BinaryHeap<(Reverse<i128>, u32, Node)> = BinaryHeap::new();
    for node in (0..graph.len() as Node).filter(|&n| waiting[n as usize] == 0) {
        ready.push((Reverse(growth[node as usize]), rank[node as usize], node));
    }
    let mut done = vec![false; graph.len()];
    let mut order = Vec::with_capacity(graph.len());
    while let Some((Reverse(expected), _, node)) = ready.pop() {
        if done[node as usize] || expected != growth[node as usize] {
            continue;
        }
        done[node as usize] = true;
        order.push(node);
        for &buffer in memory.touches.of(node) {
            if std::mem::replace(&mut is_live[buffer as usize], true) {
                continue;
            }
            // Whoever else needs it finds it live already; its maker ends it.
            for &other in memory.touched_by.of(buffer) {
                growth[other as usize] -= i128::from(memory.sizes[buffer as usize]);
                if waiting[other as usize] == 0 && !done[other as usize] {
                    ready.push((Reverse(growth[other as usize]), rank[other as usize], other));
                }
            }
        }
        for &next in graph.needs.of(node) {
            waiting[next as usize] -= 1;
            if waiting[next as usize] == 0 {
                ready.push((Reverse(growth[next as usize]), rank[next as usize], next));
            }
        }
    }
    order.reverse();
    order
}

/// Follows an order, but puts off what makes more memory than it frees until something needs it, and does at once what
/// frees as much as it makes.
fn put_off(graph: &Graph, memory: &Memory, order: &[Node]) -> Vec<Node> {
    let mut ends = vec![0i128; graph.len()];
    let mut live = Live::new(memory);
    for &node in order {
        live.step(memory, node, |_, _| {});
        for &buffer in memory.touches.of(node) {
            if live.remaining[buffer as usize] == 0 && !memory.kept[buffer as usize] {
                ends[node as usize] += i128::from(memory.sizes[buffer as usize]);
            }
        }
    }
    let live = Live::new(memory);
    let mut placing = Placing {
        freed: live.freed(memory),
        live,
        waiting: graph.waiting(),
        done: vec![false; graph.len()],
        order: Vec::with_capacity(graph.len()),
        wins: Vec::new(),
        graph,
        memory,
    };
    for &node in order.iter().filter(|&&n| ends[n as usize] >= memory.fresh[n as usize]).chain(order) {
        placing.with_needs(node);
    }
    placing.order
}

struct Placing<'a> {
    graph: &'a Graph,
    memory: &'a Memory,
    live: Live,
    /// Bytes that end with each node as things stand.
    freed: Vec<i128>,
    waiting: Vec<u32>,
    done: Vec<bool>,
    order: Vec<Node>,
    /// Nodes that may have become worth doing at once.
    wins: Vec<Node>,
}

impl Placing<'_> {
    /// Places a node after all that it needs.
    fn with_needs(&mut self, node: Node) {
        if self.done[node as usize] {
            return;
        }
        let mut stack: Vec<(Node, usize)> = vec![(node, 0)];
        while let Some((node, next)) = stack.last_mut() {
            match self.graph.needs.of(*node).get(*next) {
                Some(&needed) => {
                    *next += 1;
                    if !self.done[needed as usize] {
                        stack.push((needed, 0));
                    }
                }
                None => {
                    let node = *node;
                    stack.pop();
                    self.place(node);
                }
            }
        }
    }

    /// Places a node that waits for nothing, and whatever is then worth doing at once.
    fn place(&mut self, node: Node) {
        self.wins.push(node);
        let mut is_wanted = true;
        while let Some(node) = self.wins.pop() {
            let pays = self.freed[node as usize] >= self.memory.fresh[node as usize];
            let wanted = std::mem::replace(&mut is_wanted, false);
            if self.done[node as usize] || self.waiting[node as usize] > 0 || !(wanted || pays) {
                continue;
            }
            self.done[node as usize] = true;
            self.order.push(node);
            let (freed, wins, sizes) = (&mut self.freed, &mut self.wins, &self.memory.sizes);
            self.live.step(self.memory, node, |buffer, last| {
                freed[last as usize] += i128::from(sizes[buffer as usize]);
                wins.push(last);
            });
            for &next in self.graph.needed_by.of(node) {
                self.waiting[next as usize] -= 1;
                if self.waiting[next as usize] == 0 {
                    self.wins.push(next);
                }
            }
        }
    }
}
