//! Where copies may be needed: every place at which a value flows into memory that it must share with others.

use super::moments::{Moment, Moments};
use crate::buffers::is_entry_parameter;
use crate::dataflow::{Dataflow, ValueId};
use crate::in_place::InPlace;
use crate::positions::Position;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;

/// Where a value is read: at a part of an operand, or of a computation's result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Slot {
    Operand(InstructionId, u32, Position),
    Root(ComputationId, Position),
}

/// Where copies can be put: all those of one site happen at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Site {
    /// Before the instruction, for one of its operands.
    Operand(InstructionId, u32),
    /// At the end of the computation, for its result.
    Root(ComputationId),
}

/// A node of the sharing: a value, or a part of the program's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holder {
    Value(ValueId),
    Result(u32),
}

/// A value that flows into shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) site: Site,
    /// Which part of the operand or result, counted in pre-order.
    pub(super) nth: u32,
    pub(super) from: ValueId,
    pub(super) to: Holder,
    /// When what a copy would write is there.
    pub(super) copied: (Moment, Moment),
    pub(super) depth: u32,
    pub(super) bytes: i64,
}

/// All that is known before it is decided which copies stay.
pub(super) struct Edges {
    pub(super) edges: Vec<Edge>,
    pub(super) slots: FxHashSet<Slot>,
    /// Values that are one piece of memory whatever is copied, each with when that memory is needed besides.
    pub(super) tied: Vec<(Holder, Holder)>,
    /// When memory carries a value that is not (yet) read.
    pub(super) carried: Vec<(ValueId, (Moment, Moment))>,
    /// The number of parts of the program's result.
    pub(super) results: u32,
    /// Values that no other may ever be written over, by number.
    pub(super) always: Vec<bool>,
}

struct Collector<'a, 'm> {
    dataflow: &'a Dataflow<'m>,
    moments: &'a Moments,
    found: Edges,
}

pub(super) fn edges(dataflow: &Dataflow<'_>, moments: &Moments, in_place: &InPlace<'_>) -> Edges {
    let found = Edges {
        edges: Vec::new(),
        slots: FxHashSet::default(),
        tied: Vec::new(),
        carried: Vec::new(),
        results: 0,
        always: unwritable(dataflow),
    };
    let mut collector = Collector { dataflow, moments, found };
    let module = dataflow.module();
    for &computation in module.computations().iter().filter(|&&c| moments.runs(c)) {
        for &id in module[computation].instructions() {
            match &module[id].op {
                Op::While { condition, body } => collector.while_loop(id, *condition, *body),
                Op::Conditional { branches } => collector.conditional(id, branches),
                _ => collector.in_place(id, in_place),
            }
        }
    }
    collector.results();
    collector.found
}

/// Constants, and parameters of the entry that are not aliased with a result.
fn unwritable(dataflow: &Dataflow<'_>) -> Vec<bool> {
    let module = dataflow.module();
    let aliased = crate::buffers::aliased_parameters(dataflow);
    let mut always = vec![false; dataflow.value_slots()];
    for (id, value) in dataflow.values() {
        let instruction = dataflow.instruction(value);
        always[id as usize] = match module[instruction].op {
            Op::Constant(_) => true,
            Op::Parameter { .. } => is_entry_parameter(dataflow, instruction) && !aliased[value.position as usize],
            _ => false,
        };
    }
    always
}

/// Whether there is anything to copy: tokens are nothing, and buffers have an identity that a copy would lose.
fn is_copyable(shape: &Shape) -> bool {
    matches!(shape, Shape::Array(_) | Shape::Tuple(_))
}

impl Collector<'_, '_> {
    fn edge(&mut self, site: Site, whole: Range<Position>, position: Position, to: Holder) {
        let shape = self.dataflow.positions.shape(position);
        let Some(from) = self.dataflow.at(position) else { return };
        if to == Holder::Value(from) {
            return;
        }
        if !is_copyable(shape) {
            self.found.tied.push((Holder::Value(from), to));
            return;
        }
        let module = self.dataflow.module();
        let (slot, copied, depth) = match site {
            Site::Operand(user, operand) => (
                Slot::Operand(user, operand, position),
                self.moments.copied_before(module, user),
                self.moments.depth(module[user].parent()),
            ),
            Site::Root(computation) => (
                Slot::Root(computation, position),
                self.moments.copied_at_end(computation),
                self.moments.depth(computation),
            ),
        };
        let bytes = if shape.is_tuple() { 0 } else { shape.byte_size().unwrap_or(i64::MAX) };
        let nth = position - whole.start;
        self.found.slots.insert(slot);
        self.found.edges.push(Edge { site, nth, from, to, copied, depth, bytes });
    }

    /// What is carried round a loop is one piece of memory: in its condition, in its body, and after it.
    fn while_loop(&mut self, id: InstructionId, condition: ComputationId, body: ComputationId) {
        let module = self.dataflow.module();
        let positions = &self.dataflow.positions;
        let parameter = |c: ComputationId| module.parameters(c).first().map(|&p| positions.of(p));
        let (Some(&init), Some(root)) = (module[id].operands().first(), module.root(body)) else { return };
        let (Some(in_condition), Some(in_body)) = (parameter(condition), parameter(body)) else { return };
        let (init, root, result) = (positions.of(init), positions.of(root), positions.of(id));
        for (nth, position) in result.clone().enumerate() {
            let nth = nth as u32;
            let value = |range: &Range<Position>| self.dataflow.at(range.start + nth);
            let (Some(here), Some(carried)) = (self.dataflow.at(position), value(&in_body)) else { continue };
            let is_merged = |v: ValueId, at: Position| self.dataflow.value(v).is_some_and(|v| v.position == at);
            if !is_merged(here, position) {
                continue;
            }
            let others = [value(&in_condition), Some(carried)];
            for other in others.into_iter().flatten() {
                self.found.tied.push((Holder::Value(here), Holder::Value(other)));
            }
            // The condition must leave for the body what it found, whoever reads it.
            let through = (self.moments.begin(condition), self.moments.begin(body));
            self.found.carried.push((carried, through));
            self.edge(Site::Operand(id, 0), init.clone(), init.start + nth, Holder::Value(here));
            self.edge(Site::Root(body), root.clone(), root.start + nth, Holder::Value(here));
        }
    }

    fn conditional(&mut self, id: InstructionId, branches: &[ComputationId]) {
        let module = self.dataflow.module();
        let result = self.dataflow.positions.of(id);
        for (nth, position) in result.enumerate() {
            let Some(here) = self.dataflow.at(position) else { continue };
            if self.dataflow.value(here).is_none_or(|v| v.position != position) {
                continue;
            }
            for &branch in branches {
                let Some(root) = module.root(branch) else { continue };
                let root = self.dataflow.positions.of(root);
                self.edge(Site::Root(branch), root.clone(), root.start + nth as u32, Holder::Value(here));
            }
        }
    }

    fn in_place(&mut self, id: InstructionId, in_place: &InPlace<'_>) {
        let module = self.dataflow.module();
        let mut written: FxHashMap<(usize, Position), ValueId> = FxHashMap::default();
        for pair in in_place.pairs(id) {
            let Some(&operand) = module[id].operands().get(pair.operand) else { continue };
            let part = self.dataflow.positions.part(operand, &pair.operand_index);
            let output = self.dataflow.positions.part(id, &pair.output_index);
            let (Some(part), Some(output)) = (part, output) else { continue };
            let Some(to) = self.dataflow.at(output.start) else { continue };
            let whole = self.dataflow.positions.of(operand);
            // Results that are written into the same part are the same memory.
            if let Some(&other) = written.get(&(pair.operand, part.start)) {
                self.found.tied.push((Holder::Value(other), Holder::Value(to)));
                continue;
            }
            written.insert((pair.operand, part.start), to);
            if let Op::AsyncUpdate { .. } = module[id].op {
                // What has been started cannot be moved.
                if let Some(from) = self.dataflow.at(part.start) {
                    self.found.tied.push((Holder::Value(from), Holder::Value(to)));
                }
                continue;
            }
            self.edge(Site::Operand(id, pair.operand as u32), whole, part.start, Holder::Value(to));
        }
    }

    /// Each part of the program's result is memory of its own, or that of the parameter it is aliased with.
    fn results(&mut self) {
        let module = self.dataflow.module();
        let Some(entry) = module.entry() else { return };
        let Some(root) = module.root(entry) else { return };
        let positions = &self.dataflow.positions;
        let whole = positions.of(root);
        self.found.results = whole.end - whole.start;
        let parameters = module.parameters(entry);
        for alias in &module.config.input_output_alias {
            let parameter = usize::try_from(alias.parameter).ok().and_then(|n| parameters.get(n));
            let from = parameter.and_then(|&p| positions.part(p, &alias.parameter_index));
            let to = positions.part(root, &alias.output_index);
            if let (Some(from), Some(to)) = (from, to)
                && let Some(value) = self.dataflow.at(from.start)
            {
                let result = Holder::Result(to.start - whole.start);
                self.found.tied.push((Holder::Value(value), result));
            }
        }
        for position in whole.clone() {
            self.edge(Site::Root(entry), whole.clone(), position, Holder::Result(position - whole.start));
        }
    }
}
