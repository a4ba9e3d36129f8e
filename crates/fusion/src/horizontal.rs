//! Horizontal fusion: tiny groups that have nothing in common are one kernel, since to call a kernel for each takes as
//! long as what it does.
//!
//! Those that run over the same elements become one loop; in the entry what is left (single numbers, short reductions,
//! loops over different elements) becomes kernels of several loops, one after another. In the entry only what is one of
//! its kind is taken: equal kernels are compiled once, and to compile one takes as long as a hundred thousand calls. In
//! loops and branches kernels are mostly not called but written out, each where it stands, so that equal ones are no
//! reason there, nor are calls.
//!
//! Groups are tried in the order of their numbers, each with the last one that is still open, so that it takes time in
//! proportion to the groups; whether an order of all is left is `multi_output`'s question.

use super::cost::elements;
use super::multi_output::{Loop, Merger, Node};
use hloom_ir::entity::{InstructionId, SideTable};
use hloom_ir::op::Op;
use hloom_passes::cse::hash_op;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

/// Loops over so many elements are over sooner than they are begun.
const TINY: i64 = 256;
/// What a tiny group reads and makes on the way, in elements of each.
const LITTLE: i64 = 1024;

/// Puts tiny groups of a computation together.
pub(super) fn merge(merger: &mut Merger<'_>, is_entry: bool, position: &SideTable<InstructionId, u32>) {
    let mut tiny = wholes(merger);
    if is_entry {
        tiny.retain(|&node| is_tiny(merger, node));
        tiny = without_equals(merger, tiny);
    }
    // Those that can run one after another are near each other.
    tiny.sort_by(|&a, &b| merger.number[a as usize].total_cmp(&merger.number[b as usize]));
    merge_loops(merger, &tiny, position);
    if is_entry {
        merge_kernels(merger, &tiny, position);
    }
}

/// Makes one loop of those that run over the same elements. Not of those that reduce, which have loops of their own.
fn merge_loops(merger: &mut Merger<'_>, groups: &[Node], position: &SideTable<InstructionId, u32>) {
    let mut open: FxHashMap<Loop, Node> = FxHashMap::default();
    for &node in groups {
        let Some(key) = merger.loop_of(node) else { continue };
        let count = key.dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
        if count.is_none_or(|n| n > TINY) || reduces(merger, node) {
            continue;
        }
        let joined = open.get(&key).is_some_and(|&other| merger.try_merge(other, node, position));
        if !joined {
            open.insert(key, node);
        }
    }
}

/// Makes one kernel of several loops.
fn merge_kernels(merger: &mut Merger<'_>, groups: &[Node], position: &SideTable<InstructionId, u32>) {
    let mut open: Option<Node> = None;
    for &node in groups {
        if merger.part_of[node as usize] != node {
            continue;
        }
        let joined = open.is_some_and(|o| !is_read_by(merger, o, node) && merger.try_merge(o, node, position));
        if !joined {
            open = Some(node);
        }
    }
}

/// Those groups of which there is only one of the kind.
fn without_equals(merger: &Merger<'_>, mut groups: Vec<Node>) -> Vec<Node> {
    let kinds: Vec<u64> = groups.iter().map(|&node| kind(merger, node)).collect();
    let mut count: FxHashMap<u64, u32> = FxHashMap::default();
    kinds.iter().for_each(|&kind| *count.entry(kind).or_default() += 1);
    let mut kinds = kinds.into_iter();
    groups.retain(|_| kinds.next().is_some_and(|kind| count[&kind] == 1));
    groups
}

/// The groups that are not part of another.
fn wholes(merger: &Merger<'_>) -> Vec<Node> {
    let is_whole =
        |&node: &Node| merger.part_of[node as usize] == node && !merger.groups[node as usize].results.is_empty();
    (0..merger.groups.len() as Node).filter(is_whole).collect()
}

fn reduces(merger: &Merger<'_>, node: Node) -> bool {
    let reduces = |&m: &InstructionId| matches!(merger.module[m].op, Op::Reduce { .. } | Op::ReduceWindow { .. });
    merger.groups[node as usize].members.iter().any(reduces)
}

/// Whether a group is tiny, and its kernel can have other loops beside its own.
fn is_tiny(merger: &Merger<'_>, node: Node) -> bool {
    let module = merger.module;
    let group = &merger.groups[node as usize];
    let is_plain = |&r: &InstructionId| {
        let is_single = elements(module, r) == 1 && module[r].shape.is_array();
        let changes_in_place = matches!(module[r].op, Op::DynamicUpdateSlice | Op::Scatter(_));
        !changes_in_place && (is_single || merger.loop_of(node).is_some()) && elements(module, r) <= TINY
    };
    let is_little = |&m: &InstructionId| {
        let read = module[m].operands().iter().map(|&o| elements(module, o)).max().unwrap_or(0);
        read.max(elements(module, m)) <= LITTLE && !matches!(module[m].op, Op::DynamicUpdateSlice | Op::Scatter(_))
    };
    group.results.iter().all(is_plain) && group.members.iter().all(is_little)
}

/// A number that is the same for groups that do the same.
fn kind(merger: &Merger<'_>, node: Node) -> u64 {
    let module = merger.module;
    let mut hasher = FxHasher::default();
    // What is read from outside is known by when it was first read.
    let mut names: FxHashMap<InstructionId, usize> = FxHashMap::default();
    for &member in &merger.groups[node as usize].members {
        hash_op(&module[member].op, &mut hasher);
        module[member].shape.as_array().map(|a| (a.dims(), a.element_type)).hash(&mut hasher);
        for &operand in module[member].operands() {
            let next = names.len();
            names.entry(operand).or_insert(next).hash(&mut hasher);
        }
        let next = names.len();
        names.entry(member).or_insert(next).hash(&mut hasher);
    }
    hasher.finish()
}

/// Whether `reader` reads what `maker` makes, directly. Groups are in order: it is not the other way round.
fn is_read_by(merger: &Merger<'_>, maker: Node, reader: Node) -> bool {
    let users = merger.groups[maker as usize].results.iter().flat_map(|&r| merger.module[r].users());
    users.into_iter().any(|&u| merger.nodes_of[u].contains(&reader))
}
