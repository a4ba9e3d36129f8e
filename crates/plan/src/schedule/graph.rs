//! What must come before what in one computation.
//!
//! Instructions have numbers by their place in the computation's list. An edge leads from what comes first to what needs
//! it: operands, control predecessors, and the order in which what has effects stands. Wishes are weaker: they are edges
//! that are kept as far as they contradict nothing.

use hloom_ir::entity::{ComputationId, EntityId, InstructionId, SideTable};
use hloom_ir::module::Module;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The number of an instruction within its computation.
pub(super) type Node = u32;

/// A list of numbers for each of the numbers up to some count, stored one after another.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    start: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    /// From pairs of an owner and an item; an owner's items stay in the order of the pairs.
    pub(super) fn new(owners: usize, pairs: &[(u32, u32)]) -> Lists {
        let mut start = vec![0u32; owners + 1];
        for &(owner, _) in pairs {
            start[owner as usize + 1] += 1;
        }
        for i in 0..owners {
            start[i + 1] += start[i];
        }
        let mut next = start.clone();
        let mut items = vec![0; pairs.len()];
        for &(owner, item) in pairs {
            let at = &mut next[owner as usize];
            items[*at as usize] = item;
            *at += 1;
        }
        Lists { start, items }
    }

    /// The items of an owner.
    pub(super) fn of(&self, owner: u32) -> &[u32] {
        &self.items[self.start[owner as usize] as usize..self.start[owner as usize + 1] as usize]
    }

    fn of_mut(&mut self, owner: u32) -> &mut [u32] {
        &mut self.items[self.start[owner as usize] as usize..self.start[owner as usize + 1] as usize]
    }

    /// The owners of each item.
    pub(super) fn inverse(&self, items: usize) -> Lists {
        let pairs: Vec<(u32, u32)> = self.pairs().map(|(owner, item)| (item, owner)).collect();
        Lists::new(items, &pairs)
    }

    /// The same with the items of each owner in the order of `key`.
    pub(super) fn sorted_by<K: Ord>(&self, key: impl Fn(u32) -> K) -> Lists {
        let mut sorted = self.clone();
        for owner in 0..self.start.len() as u32 - 1 {
            sorted.of_mut(owner).sort_by_key(|&item| key(item));
        }
        sorted
    }

    fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        (0..self.start.len() as u32 - 1).flat_map(|owner| self.of(owner).iter().map(move |&item| (owner, item)))
    }
}

/// The dependencies of a computation.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    /// What each node needs, each once; operands from left to right first.
    pub(super) needs: Lists,
    /// What needs each node.
    pub(super) needed_by: Lists,
    len: usize,
}

impl Graph {
    /// The dependencies of `computation`. `local` is a table over the module's instructions to work in.
    pub(super) fn new(
        module: &Module,
        computation: ComputationId,
        local: &mut [u32],
        effects: &SideTable<InstructionId, bool>,
    ) -> Graph {
        let stored = module[computation].instructions();
        for (i, id) in stored.iter().enumerate() {
            local[id.index()] = i as Node;
        }
        let mut pairs: Vec<(Node, Node)> = Vec::new();
        let mut listed_for = vec![Node::MAX; stored.len()];
        let mut last_effect: Option<InstructionId> = None;
        for (i, id) in stored.iter().enumerate() {
            let node = i as Node;
            let previous = last_effect.filter(|_| effects[*id]);
            let instruction = &module[*id];
            let control = instruction.common.control_predecessors();
            for needed in instruction.operands().iter().chain(control).copied().chain(previous) {
                let needed = local[needed.index()];
                if std::mem::replace(&mut listed_for[needed as usize], node) != node {
                    pairs.push((node, needed));
                }
            }
            if effects[*id] {
                last_effect = Some(*id);
            }
        }
        Graph::from_pairs(stored.len(), &pairs)
    }

    fn from_pairs(len: usize, pairs: &[(Node, Node)]) -> Graph {
        let needs = Lists::new(len, pairs);
        let needed_by = needs.inverse(len);
        Graph { needs, needed_by, len }
    }

    /// The number of nodes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many others each node waits for.
    pub(super) fn waiting(&self) -> Vec<u32> {
        (0..self.len as Node).map(|n| self.needs.of(n).len() as u32).collect()
    }

    /// The order that is nearest to the one in which the nodes stand; a node in or behind a cycle if there is one.
    pub(super) fn topological(&self) -> Result<Vec<Node>, Node> {
        let mut waiting = self.waiting();
        let mut ready: BinaryHeap<Reverse<Node>> =
            (0..self.len as Node).filter(|&n| waiting[n as usize] == 0).map(Reverse).collect();
        let mut order = Vec::with_capacity(self.len);
        while let Some(Reverse(node)) = ready.pop() {
            order.push(node);
            for &next in self.needed_by.of(node) {
                waiting[next as usize] -= 1;
                if waiting[next as usize] == 0 {
                    ready.push(Reverse(next));
                }
            }
        }
        match (0..self.len as Node).find(|&n| waiting[n as usize] > 0) {
            Some(stuck) => Err(stuck),
            None => Ok(order),
        }
    }

    /// The graph with as many of the wishes as can be had together: one order is made that goes against a wish only when
    /// nothing else is ready, and those that it fulfils are kept. A wish is a node and what should come before it.
    pub(super) fn with_wishes(self, wishes: &[(Node, Node)]) -> Graph {
        if wishes.is_empty() {
            return self;
        }
        let wished = Lists::new(self.len, wishes);
        let wished_by = wished.inverse(self.len);
        let mut waiting = self.waiting();
        let mut wishing: Vec<u32> = (0..self.len as Node).map(|n| wished.of(n).len() as u32).collect();
        let mut place = vec![u32::MAX; self.len];
        let mut ready: BinaryHeap<Reverse<Node>> = BinaryHeap::new();
        let mut reluctant: BinaryHeap<Reverse<Node>> = BinaryHeap::new();
        for node in (0..self.len as Node).filter(|&n| waiting[n as usize] == 0) {
            let queue = if wishing[node as usize] == 0 { &mut ready } else { &mut reluctant };
            queue.push(Reverse(node));
        }
        let mut next_place = 0;
        while let Some(Reverse(node)) = ready.pop().or_else(|| reluctant.pop()) {
            if place[node as usize] != u32::MAX {
                continue;
            }
            place[node as usize] = next_place;
            next_place += 1;
            for &next in self.needed_by.of(node) {
                waiting[next as usize] -= 1;
                if waiting[next as usize] == 0 {
                    let queue = if wishing[next as usize] == 0 { &mut ready } else { &mut reluctant };
                    queue.push(Reverse(next));
                }
            }
            for &next in wished_by.of(node) {
                wishing[next as usize] -= 1;
                if wishing[next as usize] == 0 && waiting[next as usize] == 0 {
                    ready.push(Reverse(next));
                }
            }
        }
        let mut pairs: Vec<(Node, Node)> = self.needs.pairs().collect();
        pairs.extend(wishes.iter().filter(|&&(node, before)| place[before as usize] < place[node as usize]));
        Graph::from_pairs(self.len, &pairs)
    }
}
