//! Groups put together that run over the same elements: one loop with several results.
//!
//! Two groups go together if one uses the other's result element by element, or if both read the same value; what they
//! read in common is then read once. Whether that leaves an order of all groups is seen from numbers: every group has one,
//! larger than those of the groups it reads. Two groups can be one if everything they read has a smaller number than
//! everything that reads them.

use super::cost::{elements, plain_array};
use super::groups::{Facts, Group, moves_rows};
use super::horizontal;
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// More results than this are not made in one loop.
const MAX_RESULTS: usize = 8;
const MAX_MEMBERS: usize = 128;
/// Of the users of a value, as many are looked at.
const MAX_USERS: usize = 16;
/// Folds over no more elements than this are no matter.
const LITTLE: i64 = 1 << 14;

/// Puts groups of a computation together; returns them with what of each is needed outside.
pub(super) fn merge(
    module: &Module,
    computation: ComputationId,
    groups: Vec<Group>,
    order: &[InstructionId],
    facts: &Facts,
    makers: &mut Makers,
) -> Vec<Group> {
    let mut merger = Merger::new(module, groups, order, makers);
    for &value in order {
        merger.merge_users(value, &facts.position);
    }
    horizontal::merge(&mut merger, module.entry() == Some(computation), &facts.position);
    merger.finish(module.root(computation))
}

/// Where each instruction is made.
pub(super) struct Makers {
    /// The nodes that compute an instruction: more than one if it is made again.
    nodes_of: SideTable<InstructionId, SmallVec<[Node; 1]>>,
    /// The node in whose results it is.
    made_by: SideTable<InstructionId, Option<Node>>,
}

impl Makers {
    /// Nothing is known yet.
    pub(super) fn new(module: &Module) -> Makers {
        let slots = module.instruction_slots();
        Makers { nodes_of: SideTable::with_len(slots, SmallVec::new()), made_by: SideTable::with_len(slots, None) }
    }
}

/// A node: a group, or an instruction in none.
pub(super) type Node = u32;

pub(super) struct Merger<'m> {
    pub(super) module: &'m Module,
    pub(super) groups: Vec<Group>,
    /// The instructions that are nodes by themselves, numbered from behind the groups.
    singles: Vec<InstructionId>,
    /// The node that a node has become part of.
    pub(super) part_of: Vec<Node>,
    /// Every node's number is larger than those of the nodes it reads.
    pub(super) number: Vec<f64>,
    /// Pairs that could not be put together: they are not tried for each value that they share.
    apart: FxHashSet<(Node, Node)>,
    pub(super) nodes_of: &'m mut SideTable<InstructionId, SmallVec<[Node; 1]>>,
    made_by: &'m mut SideTable<InstructionId, Option<Node>>,
}

impl<'m> Merger<'m> {
    fn new(module: &'m Module, groups: Vec<Group>, order: &[InstructionId], makers: &'m mut Makers) -> Merger<'m> {
        let Makers { nodes_of, made_by } = makers;
        for (n, group) in groups.iter().enumerate() {
            group.members.iter().for_each(|&m| nodes_of.get_mut(m).push(n as Node));
            group.results.iter().for_each(|&r| made_by.set(r, Some(n as Node)));
        }
        let mut singles = Vec::new();
        for &i in order {
            if nodes_of[i].is_empty() {
                let node = (groups.len() + singles.len()) as Node;
                nodes_of.get_mut(i).push(node);
                made_by.set(i, Some(node));
                singles.push(i);
            }
        }
        let nodes = (groups.len() + singles.len()) as Node;
        let mut merger = Merger {
            module,
            groups,
            singles,
            part_of: (0..nodes).collect(),
            number: vec![0.0; nodes as usize],
            apart: FxHashSet::default(),
            nodes_of,
            made_by,
        };
        // In this order a node's result comes after the results of all nodes that it reads.
        for &i in order {
            if let Some(node) = merger.made_by[i] {
                merger.number[node as usize] = merger.largest_read(&[node]) + 1.0;
            }
        }
        merger
    }

    /// The node that `node` is part of.
    fn whole(&mut self, mut node: Node) -> Node {
        while self.part_of[node as usize] != node {
            let up = self.part_of[self.part_of[node as usize] as usize];
            self.part_of[node as usize] = up;
            node = up;
        }
        node
    }

    fn members(&self, node: Node) -> SmallVec<[InstructionId; 8]> {
        match self.groups.get(node as usize) {
            Some(group) => group.members.iter().copied().collect(),
            None => self.singles.get(node as usize - self.groups.len()).copied().into_iter().collect(),
        }
    }

    /// The largest number of what `nodes` read from other nodes.
    fn largest_read(&mut self, nodes: &[Node]) -> f64 {
        let module = self.module;
        let mut largest = 0f64;
        for &node in nodes {
            for member in self.members(node) {
                let waits_for = module[member].common.control_predecessors();
                for &operand in module[member].operands().iter().chain(waits_for) {
                    let inside = self.nodes_of[operand].iter().any(|n| nodes.contains(n));
                    if inside {
                        continue;
                    }
                    if let Some(maker) = self.made_by[operand] {
                        let maker = self.whole(maker);
                        if !nodes.contains(&maker) {
                            largest = largest.max(self.number[maker as usize]);
                        }
                    }
                }
            }
        }
        largest
    }

    /// The smallest number of what reads `nodes` from other nodes.
    fn smallest_reader(&mut self, nodes: &[Node]) -> f64 {
        let module = self.module;
        let mut smallest = f64::INFINITY;
        for &node in nodes {
            let results = self.groups[node as usize].results.clone();
            for user in results.iter().flat_map(|&r| module[r].users()) {
                for reader in self.nodes_of[*user].clone() {
                    let reader = self.whole(reader);
                    if !nodes.contains(&reader) {
                        smallest = smallest.min(self.number[reader as usize]);
                    }
                }
            }
        }
        smallest
    }

    /// Tries to put together the groups that read `value`, and with them the one that makes it.
    fn merge_users(&mut self, value: InstructionId, position: &SideTable<InstructionId, u32>) {
        let module = self.module;
        if elements(module, value) <= 1 {
            return;
        }
        let mut readers: SmallVec<[Node; 8]> = SmallVec::new();
        if let Some(maker) = self.made_by[value] {
            let maker = self.whole(maker);
            let element_by_element = module[value].users().iter().take(MAX_USERS).any(|&u| {
                module[u].op.is_elementwise()
                    && plain_array(module, u).map(|a| a.dims()) == plain_array(module, value).map(|a| a.dims())
            });
            // A transpose that its users have left to itself stays so.
            if element_by_element && !moves_rows(module, value) && self.loop_of(maker).is_some() {
                readers.push(maker);
            }
        }
        for user in module[value].users().iter().take(MAX_USERS) {
            for node in self.nodes_of[*user].clone() {
                let node = self.whole(node);
                if !readers.contains(&node) && self.loop_of(node).is_some() {
                    readers.push(node);
                }
            }
        }
        if readers.len() < 2 {
            return;
        }
        // By their loops: the first of each takes in the others.
        let mut first: FxHashMap<Loop, Node> = FxHashMap::default();
        for node in readers {
            let node = self.whole(node);
            let Some(key) = self.loop_of(node) else { continue };
            match first.get(&key) {
                Some(&other) if other != node => {
                    let into = self.whole(other);
                    if into != node {
                        self.try_merge(into, node, position);
                    }
                }
                Some(_) => {}
                None => drop(first.insert(key, node)),
            }
        }
    }

    /// Whether `reader` reads a result of `maker` other than element by element: it would be made again for each element.
    fn reads_elsewhere(&self, maker: Node, reader: Node) -> bool {
        let module = self.module;
        let read_elsewhere = |&r: &InstructionId| {
            let mut readers = module[r].users().iter().filter(|&&u| self.nodes_of[u].contains(&reader));
            let dims = |i: InstructionId| plain_array(module, i).map(|a| a.dims());
            readers.any(|&u| !module[u].op.is_elementwise() || dims(u) != dims(r))
        };
        self.groups[maker as usize].results.iter().any(read_elsewhere)
    }

    /// Whether two groups fold along other dimensions, and much: what is best for one loop is bad for the other.
    fn folds_otherwise(&self, a: Node, b: Node) -> bool {
        let module = self.module;
        let fold_of = |node: Node| {
            self.groups[node as usize].members.iter().find_map(|&m| match &module[m].op {
                Op::Reduce { dimensions, .. } => {
                    let over = plain_array(module, *module[m].operands().first()?)?;
                    (over.element_count()? > LITTLE).then(|| (over.dims(), &dimensions[..]))
                }
                _ => None,
            })
        };
        matches!((fold_of(a), fold_of(b)), (Some(x), Some(y)) if x != y)
    }

    /// Makes one of two groups, if an order of all is left; says whether it did.
    pub(super) fn try_merge(&mut self, a: Node, b: Node, position: &SideTable<InstructionId, u32>) -> bool {
        let (x, y) = (&self.groups[a as usize], &self.groups[b as usize]);
        let too_large =
            x.results.len() + y.results.len() > MAX_RESULTS || x.members.len() + y.members.len() > MAX_MEMBERS;
        if too_large || self.apart.contains(&(a, b)) {
            return false;
        }
        if self.reads_elsewhere(a, b) || self.reads_elsewhere(b, a) || self.folds_otherwise(a, b) {
            self.apart.insert((a, b));
            return false;
        }
        let (low, high) = (self.largest_read(&[a, b]), self.smallest_reader(&[a, b]));
        let high = if high.is_finite() { high } else { low + 2.0 };
        let between = low + (high - low) / 2.0;
        if between <= low || between >= high {
            self.apart.insert((a, b));
            return false;
        }
        let moved = std::mem::take(&mut self.groups[b as usize]);
        for &m in &moved.members {
            let nodes = self.nodes_of.get_mut(m);
            nodes.retain(|n| *n != b);
            if !nodes.contains(&a) {
                nodes.push(a);
            }
        }
        moved.results.iter().for_each(|&r| self.made_by.set(r, Some(a)));
        let group = &mut self.groups[a as usize];
        group.members.extend(moved.members);
        group.members.sort_by_key(|&m| position[m]);
        group.members.dedup();
        group.results.extend(moved.results);
        self.part_of[b as usize] = a;
        self.number[a as usize] = between;
        true
    }

    /// What the loop of a group runs over, if it can have other results beside its own.
    pub(super) fn loop_of(&self, node: Node) -> Option<Loop> {
        let module = self.module;
        let group = self.groups.get(node as usize)?;
        let &result = group.results.first()?;
        match &module[result].op {
            Op::DynamicUpdateSlice | Op::Scatter(_) | Op::ReduceWindow { .. } | Op::Concatenate { .. } => None,
            Op::Reduce { dimensions, .. } => {
                let over = plain_array(module, *module[result].operands().first()?)?;
                plain_array(module, result)?;
                Some(Loop { dims: over.dims().into(), reduced: dimensions.iter().copied().collect() })
            }
            _ => {
                let array = plain_array(module, result)?;
                (elements(module, result) > 1).then(|| Loop { dims: array.dims().into(), reduced: SmallVec::new() })
            }
        }
    }

    /// All groups, with those results that something outside needs.
    fn finish(mut self, root: Option<InstructionId>) -> Vec<Group> {
        let module = self.module;
        let mut groups = std::mem::take(&mut self.groups);
        for (n, group) in groups.iter_mut().enumerate() {
            let outside = |user: &InstructionId| self.nodes_of[*user].iter().any(|&node| node != n as Node);
            group.results.retain(|&r| root == Some(r) || module[r].users().iter().any(outside));
        }
        groups
    }
}

/// What a loop runs over.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Loop {
    pub(super) dims: SmallVec<[i64; 4]>,
    /// Which of the dimensions are reduced.
    reduced: SmallVec<[i64; 4]>,
}
