//! Decides which copies stay: grows sets of values that share memory as long as no two of a set are needed at once.
//!
//! Each set keeps the stretches of time in which its memory is taken, ordered and apart, so that two sets can be compared
//! in the time of the smaller. Two stretches may meet at one moment: where an instruction may write its result over the
//! operand that it reads last.

use super::moments::{Moment, Moments};
use super::sites::{Edge, Edges, Holder, Site};
use crate::dataflow::{Dataflow, ValueId};
use crate::overwrite::Overwrite;
use crate::positions::Position;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::Op;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

use super::sites::Slot;

/// A copy that stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kept {
    /// Which part of the operand or result, counted in pre-order.
    pub(super) nth: u32,
    /// The memory that it reads.
    pub(super) from: u32,
    /// The memory that it writes.
    pub(super) to: u32,
}

/// The copies of each site, by part.
pub(super) type Cuts = BTreeMap<Site, Vec<Kept>>;

/// Values come first, then the parts of the program's result, then the copies, one for each edge.
type Node = u32;

struct Classes<'a, 'm> {
    dataflow: &'a Dataflow<'m>,
    moments: &'a Moments,
    overwrite: &'a Overwrite<'a, 'm>,
    slots: &'a FxHashSet<Slot>,
    always: &'a [bool],
    values: Node,
    parent: Vec<Node>,
    /// For each set, when its memory is taken and by whom: by the beginning.
    taken: FxHashMap<Node, BTreeMap<Moment, (Moment, Node)>>,
}

pub(super) fn cuts(dataflow: &Dataflow<'_>, moments: &Moments, overwrite: &Overwrite<'_, '_>, found: Edges) -> Cuts {
    let values = dataflow.value_slots() as Node;
    let nodes = values + found.results + found.edges.len() as Node;
    let mut classes = Classes {
        dataflow,
        moments,
        overwrite,
        slots: &found.slots,
        always: &found.always,
        values,
        parent: (0..nodes).collect(),
        taken: FxHashMap::default(),
    };
    let node = |target: Holder| match target {
        Holder::Value(v) => v,
        Holder::Result(nth) => values + nth,
    };
    for nth in 0..found.results {
        classes.taken.insert(values + nth, BTreeMap::from([(moments.last(), (moments.last(), values + nth))]));
    }
    for &(a, b) in &found.tied {
        classes.unite(node(a), node(b));
    }
    for &(value, (from, to)) in &found.carried {
        let set = classes.find(value);
        let taken = classes.taken_of(set);
        let entry = taken.entry(from).or_insert((to, value));
        entry.0 = entry.0.max(to);
    }
    for (at, edge) in found.edges.iter().enumerate() {
        let set = classes.find(node(edge.to));
        let copy = values + found.results + at as Node;
        classes.taken_of(set).insert(edge.copied.0, (edge.copied.1, copy));
    }
    let mut order: Vec<usize> = (0..found.edges.len()).collect();
    // What is done often and to much matters most; in-place operations before what merely hands on.
    let key = |e: &Edge| (std::cmp::Reverse(e.depth), std::cmp::Reverse(e.bytes), matches!(e.site, Site::Root(_)));
    order.sort_by_key(|&e| key(&found.edges[e]));
    let mut kept: Vec<usize> = Vec::new();
    for at in order {
        let edge = &found.edges[at];
        let (from, to) = (classes.find(edge.from), classes.find(node(edge.to)));
        if from != to && classes.conflict(from, to) {
            kept.push(at);
        } else {
            classes.unite(from, to);
        }
    }
    kept.sort_unstable();
    let mut cuts = Cuts::new();
    for at in kept {
        let edge = &found.edges[at];
        let (from, to) = (classes.find(edge.from), classes.find(node(edge.to)));
        cuts.entry(edge.site).or_default().push(Kept { nth: edge.nth, from, to });
    }
    cuts.values_mut().for_each(|kept| kept.sort_by_key(|k| k.nth));
    cuts
}

impl Classes<'_, '_> {
    fn find(&mut self, mut at: Node) -> Node {
        while self.parent[at as usize] != at {
            let up = self.parent[self.parent[at as usize] as usize];
            self.parent[at as usize] = up;
            at = up;
        }
        at
    }

    /// When the memory of a set is taken. Values that nothing was asked about yet are looked at now.
    fn taken_of(&mut self, set: Node) -> &mut BTreeMap<Moment, (Moment, Node)> {
        self.taken.entry(set).or_insert_with(|| match set < self.values {
            true => {
                let needed = self.moments.needed(self.dataflow, self.slots, self.always, set);
                needed.into_iter().map(|(from, to)| (from, (to, set))).collect()
            }
            false => BTreeMap::new(),
        })
    }

    fn unite(&mut self, a: Node, b: Node) {
        let (a, b) = (self.find(a), self.find(b));
        if a == b {
            return;
        }
        let of_a = std::mem::take(self.taken_of(a));
        let of_b = std::mem::take(self.taken_of(b));
        let (into, other, mut most, fewer) =
            if of_a.len() >= of_b.len() { (a, b, of_a, of_b) } else { (b, a, of_b, of_a) };
        for (from, (to, node)) in fewer {
            let entry = most.entry(from).or_insert((to, node));
            entry.0 = entry.0.max(to);
        }
        self.parent[other as usize] = into;
        self.taken.remove(&other);
        self.taken.insert(into, most);
    }

    /// Whether something in one set is needed together with something in the other.
    fn conflict(&mut self, a: Node, b: Node) -> bool {
        self.taken_of(a);
        self.taken_of(b);
        let (Some(a), Some(b)) = (self.taken.get(&a), self.taken.get(&b)) else { return false };
        let (fewer, most) = if a.len() <= b.len() { (a, b) } else { (b, a) };
        for (&from, &(to, node)) in fewer {
            if let Some((&start, &(end, before))) = most.range(..=from).next_back()
                && (end > from || start == from || end == from && !self.may_follow(before, node, from))
            {
                return true;
            }
            if let Some((&start, &(_, after))) = most.range(from + 1..).next()
                && (start < to || start == to && !self.may_follow(node, after, to))
            {
                return true;
            }
        }
        false
    }

    /// Whether `after`, which begins when `before` is needed for the last time, may be written over it.
    fn may_follow(&self, before: Node, after: Node, moment: Moment) -> bool {
        let value = |node: Node| self.dataflow.value(node).filter(|_| node < self.values);
        let (Some(_), Some(made)) = (value(before), value(after)) else { return false };
        let maker = self.dataflow.instruction(made);
        // A copy onto itself would be none, and is not to be planned as one.
        let is_copy = matches!(self.dataflow.module()[maker].op, Op::Copy);
        if made.is_phi || is_copy || self.moments.own(maker) != moment {
            return false;
        }
        let read = self.read_by(maker, before);
        !read.is_empty() && read.iter().all(|&position| self.overwrite.may(position, made.position))
    }

    /// The parts of an instruction's operands that hold a value.
    fn read_by(&self, reader: InstructionId, value: ValueId) -> Vec<Position> {
        let operands = self.dataflow.module()[reader].operands().iter();
        let parts = operands.flat_map(|&o| self.dataflow.positions.of(o));
        parts.filter(|&p| self.dataflow.at(p) == Some(value)).collect()
    }
}
