//! The rounds of propagation, and the worklist of each.
//!
//! Rounds nest: priorities that the user gave, then those of operations, then a worklist until nothing changes. An operation
//! goes back on the list when one of its values changes. Operations are taken in the order of the program at first, then
//! the latest change first.

use super::graph::{Direction, Graph, GraphOp, MeshId, OpClass, OpRef, Origin, TensorSharding, ValueRef};
use super::memo::{Along, Memo, Updates};
use super::projection::TensorProjection;
use super::strategy::{Step, Strategy};
use crate::axes::Axis;
use crate::rules::FactorKind;
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// In which order operations are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// In the order of the program at first, then the latest change first: Shardy's.
    Latest,
    /// In sweeps along the program and back: GSPMD's.
    Sweeps,
}

/// Which rounds there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rounds {
    pub strategy: Strategy,
    /// Element-wise operations before others, and so on.
    pub op_priority: bool,
    /// Dimensions of priority 0 before those of 1, and so on.
    pub user_priority: bool,
    /// The order inside of a round.
    pub order: Order,
}

/// The rounds of operations, each of which allows what those before it do.
const OP_ROUNDS: usize = 5;

/// Carries the shardings of the graph as far as they go.
pub(crate) fn run(graph: &mut Graph, rounds: Rounds) {
    sync_groups(graph);
    if !rounds.user_priority {
        op_rounds(graph, rounds);
        return;
    }
    let later = hold_back_priorities(graph);
    op_rounds(graph, rounds);
    let mut priorities: Vec<u32> = later.iter().flat_map(|(_, s)| s.dims.iter().map(|d| d.priority)).collect();
    priorities.sort_unstable();
    priorities.dedup();
    for priority in priorities.into_iter().filter(|&p| p > 0) {
        for (value, given) in &later {
            release_priority(graph, *value, given, priority);
        }
        op_rounds(graph, rounds);
    }
}

/// Members of a group start with the sharding that one of them has, if no other has another.
fn sync_groups(graph: &mut Graph) {
    for group in 0..graph.groups.len() {
        let members = graph.groups[group].clone();
        let said = |v: &ValueRef| graph.values[v.index()].sharding.clone().filter(|s| !s.says_nothing());
        let mut found: Option<TensorSharding> = None;
        let mut source = None;
        let mut conflict = false;
        for member in &members {
            if let Some(sharding) = said(member) {
                conflict |= found.as_ref().is_some_and(|f| *f != sharding);
                if found.is_none() {
                    (found, source) = (Some(sharding), Some(*member));
                }
            }
        }
        let (Some(sharding), Some(source), false) = (found, source, conflict) else { continue };
        for member in members {
            if graph.values[member.index()].sharding.as_ref() != Some(&sharding) {
                set(graph, member, sharding.clone(), Origin::Group(source));
            }
        }
    }
}

/// Takes dimensions of a later priority out of the shardings: their axes are used by no one meanwhile. Gives back the
/// shardings that had some.
fn hold_back_priorities(graph: &mut Graph) -> Vec<(ValueRef, TensorSharding)> {
    let mut later = Vec::new();
    for (i, value) in graph.values.iter_mut().enumerate() {
        let Some(sharding) = &mut value.sharding else { continue };
        if sharding.dims.iter().all(|d| d.priority == 0) {
            continue;
        }
        later.push((ValueRef(i as u32), sharding.clone()));
        for dim in &mut sharding.dims {
            if dim.priority > 0 {
                sharding.replicated.extend(dim.axes.drain(..));
                dim.closed = true;
                dim.priority = 0;
            }
        }
        sharding.replicated.sort_unstable_by_key(|a| (a.index, a.pre));
    }
    later
}

fn release_priority(graph: &mut Graph, value: ValueRef, given: &TensorSharding, priority: u32) {
    let Some(sharding) = &mut graph.values[value.index()].sharding else { return };
    for (dim, given) in sharding.dims.iter_mut().zip(&given.dims) {
        if given.priority == priority {
            dim.axes.clone_from(&given.axes);
            dim.closed = given.closed;
            sharding.replicated.retain(|a| !given.axes.contains(a));
        }
    }
}

fn op_rounds(graph: &mut Graph, rounds: Rounds) {
    let all = if rounds.op_priority { 0..OP_ROUNDS } else { OP_ROUNDS - 1..OP_ROUNDS };
    let mut settled = Settled::new(graph);
    for round in all {
        propagate_results(graph, rounds.strategy, &mut settled);
        worklist(graph, rounds, round, &mut settled);
        propagate_results(graph, rounds.strategy, &mut settled);
    }
}

fn propagate_results(graph: &mut Graph, strategy: Strategy, settled: &mut Settled) {
    for op in graph.results.clone() {
        let along = Along { pass: Direction::Both, other: Direction::Both };
        propagate_op(graph, op, strategy, along, settled);
    }
}

/// Which operations have nothing to hand on: those that handed on nothing when they were last looked at, in the same
/// directions, if no value of theirs has changed since.
struct Settled {
    /// Counts the changes.
    now: u32,
    /// When each value changed last.
    changed: Vec<u32>,
    /// When each operation had nothing to hand on, and in which directions.
    at: Vec<Option<(u32, Along)>>,
    memo: Memo,
}

impl Settled {
    fn new(graph: &Graph) -> Settled {
        let (changed, at) = (vec![0; graph.values.len()], vec![None; graph.ops.len()]);
        Settled { now: 0, changed, at, memo: Memo::new(graph) }
    }
    fn is_settled(&self, graph: &Graph, op: OpRef, along: Along) -> bool {
        let since = |at: u32| {
            let mut values = graph.ops[op.index()].tensors.iter().filter_map(|t| t.value);
            values.all(|v| self.changed[v.index()] <= at)
        };
        along.is_none() || self.at[op.index()].is_some_and(|(at, before)| before == along && since(at))
    }
    fn note(&mut self, op: OpRef, along: Along, changed: &[ValueRef]) {
        if changed.is_empty() {
            self.at[op.index()] = Some((self.now, along));
            return;
        }
        self.now += 1;
        changed.iter().for_each(|v| self.changed[v.index()] = self.now);
    }
}

/// In which direction an operation hands axes on along a factor, in a round.
fn direction(class: OpClass, shared: bool, kind: FactorKind, round: usize) -> Direction {
    let by_uses = |round: usize| if shared && round == 0 { Direction::None } else { Direction::Both };
    let mut allowed = match class {
        OpClass::Barrier(direction) => return direction,
        OpClass::Elementwise | OpClass::PassThrough => by_uses(round),
        OpClass::DynamicSlice => by_uses(round).and(Direction::Forward),
        OpClass::Broadcast | OpClass::Other => Direction::None,
    };
    let late = if class == OpClass::Broadcast { Direction::Backward } else { Direction::Both };
    if round >= 2 && kind == FactorKind::PassThrough {
        allowed = allowed.or(late);
    }
    if round >= 3 {
        allowed = allowed.or(late);
    }
    if round >= 4 { Direction::Both } else { allowed }
}

/// The same where GSPMD is followed: forward most operations go from the beginning.
fn direction_of_tiles(class: OpClass, shared: bool, kind: FactorKind, round: usize) -> Direction {
    let allowed = direction(class, shared, kind, round);
    match (class, kind) {
        (OpClass::Other, FactorKind::PassThrough) | (OpClass::Elementwise | OpClass::PassThrough, _) => {
            allowed.or(Direction::Forward)
        }
        _ => allowed,
    }
}

/// Operations to look at, each at most once.
enum Agenda {
    /// The last that was added first.
    Latest { stack: Vec<OpRef>, is_on: Vec<bool> },
    /// In the order of the program, then back against it, and so on: what is added behind where a sweep has come to is for
    /// the next one.
    Sweeps { now: BTreeSet<u32>, next: BTreeSet<u32>, is_backward: bool, at: u32 },
}

impl Agenda {
    fn new(order: Order, ops: impl DoubleEndedIterator<Item = OpRef>, count: usize) -> Agenda {
        match order {
            Order::Latest => {
                let mut agenda = Agenda::Latest { stack: Vec::with_capacity(count), is_on: vec![false; count] };
                ops.rev().for_each(|op| agenda.push(op));
                agenda
            }
            Order::Sweeps => {
                let now = ops.map(|op| op.0).collect();
                Agenda::Sweeps { now, next: BTreeSet::new(), is_backward: false, at: 0 }
            }
        }
    }

    fn push(&mut self, op: OpRef) {
        match self {
            Agenda::Latest { stack, is_on } => {
                if !std::mem::replace(&mut is_on[op.index()], true) {
                    stack.push(op);
                }
            }
            Agenda::Sweeps { now, next, is_backward, at } => {
                let is_ahead = if *is_backward { op.0 < *at } else { op.0 > *at };
                if is_ahead { now } else { next }.insert(op.0);
            }
        }
    }

    fn pop(&mut self) -> Option<OpRef> {
        match self {
            Agenda::Latest { stack, is_on } => {
                let op = stack.pop()?;
                is_on[op.index()] = false;
                Some(op)
            }
            Agenda::Sweeps { now, next, is_backward, at } => {
                if now.is_empty() {
                    std::mem::swap(now, next);
                    *is_backward = !*is_backward;
                }
                *at = if *is_backward { now.pop_last()? } else { now.pop_first()? };
                Some(OpRef(*at))
            }
        }
    }
}

fn worklist(graph: &mut Graph, rounds: Rounds, round: usize, settled: &mut Settled) {
    let mut is_result = vec![false; graph.ops.len()];
    graph.results.iter().for_each(|op| is_result[op.index()] = true);
    let all = (0..graph.ops.len() as u32).map(OpRef).filter(|op| !is_result[op.index()]);
    let mut agenda = Agenda::new(rounds.order, all, graph.ops.len());
    while let Some(op) = agenda.pop() {
        let node = &graph.ops[op.index()];
        let (class, shared) = (node.class, node.has_shared_operands);
        let along = Along::by(|kind| match rounds.order {
            Order::Latest => direction(class, shared, kind, round),
            Order::Sweeps => direction_of_tiles(class, shared, kind, round),
        });
        let changed = propagate_op(graph, op, rounds.strategy, along, settled);
        for value in changed {
            let value = &graph.values[value.index()];
            let users = value.users.iter().rev().copied();
            value
                .def
                .into_iter()
                .chain(users)
                .filter(|&o| o != op && !is_result[o.index()])
                .for_each(|o| agenda.push(o));
        }
    }
}

/// The mesh that all shardings are over, where they are over one: those over none fit any.
fn common_mesh<'s>(graph: &Graph, shardings: impl Iterator<Item = &'s TensorSharding>) -> Option<MeshId> {
    let mut common: Option<MeshId> = None;
    for sharding in shardings {
        let is_empty = |id: MeshId| graph.mesh_of(id).axes.is_empty() && !graph.is_maximal(id);
        match common {
            None => common = Some(sharding.mesh),
            Some(found)
                if found == sharding.mesh
                    || is_empty(sharding.mesh)
                    || graph.mesh_of(found) == graph.mesh_of(sharding.mesh) => {}
            Some(found) if is_empty(found) => common = Some(sharding.mesh),
            Some(_) => return None,
        }
    }
    common.filter(|&id| !graph.is_maximal(id))
}

/// Hands axes on through one operation; gives the values that changed.
fn propagate_op(
    graph: &mut Graph,
    op: OpRef,
    strategy: Strategy,
    along: Along,
    settled: &mut Settled,
) -> SmallVec<[ValueRef; 4]> {
    let mut changed = SmallVec::new();
    if !settled.is_settled(graph, op, along) {
        hand_on(graph, op, strategy, along, &mut settled.memo, &mut changed);
        settled.note(op, along, &changed);
    }
    changed
}

fn hand_on(
    graph: &mut Graph,
    op: OpRef,
    strategy: Strategy,
    along: Along,
    memo: &mut Memo,
    changed: &mut SmallVec<[ValueRef; 4]>,
) {
    let node = &graph.ops[op.index()];
    let question = memo.question(graph, node, along);
    let known = question.as_ref().and_then(|q| memo.answer(q));
    let updates = known.unwrap_or_else(|| {
        let updates = work_out(graph, node, strategy, along, memo);
        if let Some(question) = question {
            memo.remember(question, &updates);
        }
        updates
    });
    for (i, number) in updates {
        let Some(value) = graph.ops[op.index()].tensors[i as usize].value else { continue };
        let old = memo.of_value(graph, value);
        let Some(new) = memo.sharding(number) else { continue };
        if old == number || old == 0 && new.has_no_axes() {
            continue;
        }
        let first = changed.len();
        changed.push(value);
        set(graph, value, new.clone(), Origin::Through(op));
        let group = graph.values[value.index()].group;
        for member in group.map_or_else(Vec::new, |g| graph.groups[g as usize].clone()) {
            if member != value {
                set(graph, member, new.clone(), Origin::Group(value));
                changed.push(member);
            }
        }
        changed[first..].iter().for_each(|&v| memo.set(v, number));
    }
}

/// The shardings that an operation gives its arrays.
fn work_out(graph: &Graph, node: &GraphOp, strategy: Strategy, along: Along, memo: &mut Memo) -> Updates {
    let mut updates = Updates::new();
    let of = |value: Option<ValueRef>| value.and_then(|v| graph.values[v.index()].sharding.as_ref());
    let Some(mesh) = common_mesh(graph, node.tensors.iter().filter_map(|t| of(t.value))) else { return updates };
    if agrees(graph, node) {
        return updates;
    }
    let rule = &*node.rule;
    let mut tensors: SmallVec<[TensorProjection; 3]> = SmallVec::new();
    for (tensor, factors) in node.tensors.iter().zip(&rule.tensors) {
        let sharding = of(tensor.value);
        tensors.push(match (&tensor.view, sharding) {
            (Some(view), Some(sharding)) => TensorProjection::new(&rule.factors, factors, Some(&view.apply(sharding))),
            (Some(view), None) if view.from_outside => {
                let open = view.add(&TensorSharding::fully_open(mesh, factors.len()));
                TensorProjection::new(&rule.factors, factors, Some(&open))
            }
            _ => TensorProjection::new(&rule.factors, factors, sharding),
        });
    }
    let direction = |factor: usize| {
        let f = rule.factors[factor];
        if f.blocked { Direction::None } else { along.of(f.kind) }
    };
    let elementwise = node.class == OpClass::Elementwise;
    let (operands, leading) = (rule.operands, rule.leading);
    let mut step = Step { tensors: &mut tensors, operands, factors: &rule.factors, elementwise, leading };
    let updated = step.run(strategy, direction);
    for (i, _) in updated.into_iter().enumerate().filter(|&(i, updated)| updated && node.tensors[i].value.is_some()) {
        let new = tensors[i].sharding(mesh, &rule.factors, &rule.tensors[i]);
        let new = match &node.tensors[i].view {
            Some(view) => view.revert(&new),
            None => new,
        };
        updates.push((i as u32, memo.number(new)));
    }
    updates
}

/// Whether all arrays of an operation are cut alike along its factors, so that there is nothing to hand on. Asked of what
/// has one factor for each dimension and is not at the edge of a manual computation.
fn agrees(graph: &Graph, op: &GraphOp) -> bool {
    let mut cut: SmallVec<[Option<&[Axis]>; 8]> = SmallVec::from_elem(None, op.rule.factors.len());
    for (tensor, factors) in op.tensors.iter().zip(&op.rule.tensors) {
        let sharding = tensor.value.and_then(|v| graph.values[v.index()].sharding.as_ref());
        for (d, dim) in factors.iter().enumerate() {
            let &[factor] = dim.as_slice() else { return false };
            let axes = sharding.and_then(|s| s.dims.get(d)).map_or(&[][..], |d| &d.axes);
            if *cut[usize::from(factor)].get_or_insert(axes) != axes {
                return false;
            }
        }
    }
    op.tensors.iter().all(|t| t.view.is_none())
}

fn set(graph: &mut Graph, value: ValueRef, sharding: TensorSharding, origin: Origin) {
    debug_assert!(no_axis_twice(&sharding), "{sharding:?}");
    graph.history.push((value, origin, sharding.clone()));
    graph.values[value.index()].sharding = Some(sharding);
}

/// Whether no part of an axis is used twice.
pub(crate) fn no_axis_twice(sharding: &TensorSharding) -> bool {
    let lists = sharding.dims.iter().map(|d| &d.axes).chain([&sharding.replicated, &sharding.unreduced]);
    let all: Vec<Axis> = lists.flatten().copied().collect();
    all.iter().enumerate().all(|(i, a)| all[..i].iter().all(|b| !a.overlaps(*b)))
}
