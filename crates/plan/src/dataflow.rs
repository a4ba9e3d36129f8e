//! Values: which instruction makes the data at each position.
//!
//! A value is made at one position, its definition, and may be found at others: tuples carry it, loops pass it on. At
//! each position there is one value. Where several may arrive (a loop's parameter, the result of a conditional) a *phi*
//! is made, unless all that arrive turn out to be the same. Values are numbered as XLA numbers them: computation by
//! computation, then phis in the order of their making; the numbers of phis that turned out needless stay unused.

mod forward;
mod phi;

pub(crate) use forward::forwards;

use crate::calls::{Calls, Context};
use crate::order::Orders;
use crate::positions::{Position, Positions};
use crate::uses::Slots;
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// The number of a value, as dumps print it.
pub type ValueId = u32;

/// Stands where no value is known yet.
const NONE: ValueId = u32::MAX;

/// A value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value {
    /// Where it is made.
    pub position: Position,
    /// Whether it stands for one of several values.
    pub is_phi: bool,
}

/// A use of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// The instruction that reads it.
    pub user: InstructionId,
    /// Which of its operands it is in.
    pub operand: u32,
    /// At which position of the operand.
    pub position: Position,
}

/// The values of a module.
#[derive(Debug)]
pub struct Dataflow<'m> {
    /// The positions.
    pub positions: Positions<'m>,
    /// The operand slots.
    pub slots: Slots,
    values: Vec<Option<Value>>,
    value_at: Vec<ValueId>,
    found: Lists<Position>,
    uses: Lists<Use>,
}

/// A list for each value, stored one after another.
#[derive(Debug)]
struct Lists<T> {
    start: Vec<u32>,
    items: Vec<T>,
}

impl<T> Lists<T> {
    fn of(&self, id: ValueId) -> &[T] {
        let at = |i: usize| self.start.get(i).map_or(0, |&s| s as usize);
        self.items.get(at(id as usize)..at(id as usize + 1)).unwrap_or(&[])
    }
}

impl<'m> Dataflow<'m> {
    /// The values of the module; `None` if it has more positions than can be numbered.
    pub fn new(module: &'m Module, calls: &Calls, orders: &Orders) -> Option<Dataflow<'m>> {
        let positions = Positions::new(module)?;
        let slots = Slots::new(module, orders);
        let mut dataflow = Dataflow {
            value_at: vec![NONE; positions.len()],
            positions,
            slots,
            values: Vec::new(),
            found: Lists { start: Vec::new(), items: Vec::new() },
            uses: Lists { start: Vec::new(), items: Vec::new() },
        };
        dataflow.define(calls, orders);
        let phis = forward::propagate(&mut dataflow, calls, orders);
        phi::simplify(&mut dataflow, &phis);
        dataflow.collect();
        Some(dataflow)
    }

    /// The module.
    pub fn module(&self) -> &'m Module {
        self.positions.module()
    }

    /// The values that exist, by number.
    pub fn values(&self) -> impl Iterator<Item = (ValueId, Value)> + '_ {
        self.values.iter().enumerate().filter_map(|(i, v)| Some((i as ValueId, (*v)?)))
    }

    /// One more than the largest number.
    pub fn value_slots(&self) -> usize {
        self.values.len()
    }

    /// The value of that number.
    pub fn value(&self, id: ValueId) -> Option<Value> {
        self.values.get(id as usize).copied().flatten()
    }

    /// The instruction that makes a value.
    pub fn instruction(&self, value: Value) -> InstructionId {
        self.positions.instruction(value.position)
    }

    /// The value at a position. Code that no flow reaches may have none.
    pub fn at(&self, position: Position) -> Option<ValueId> {
        self.value_at.get(position as usize).copied().filter(|&v| v != NONE)
    }

    /// Every position at which the value is found, its definition first.
    pub fn positions_of(&self, id: ValueId) -> &[Position] {
        self.found.of(id)
    }

    /// Every use of the value.
    pub fn uses_of(&self, id: ValueId) -> &[Use] {
        self.uses.of(id)
    }

    fn new_value(&mut self, position: Position, is_phi: bool) -> ValueId {
        let id = self.values.len() as ValueId;
        self.values.push(Some(Value { position, is_phi }));
        self.value_at[position as usize] = id;
        id
    }

    /// Makes the values that instructions define.
    fn define(&mut self, calls: &Calls, orders: &Orders) {
        for &computation in &orders.computations {
            for &id in &orders.instructions[computation.index()] {
                let range = self.positions.of(id);
                let first = range.start;
                for position in range {
                    if self.defines(calls, id, position - first, position) {
                        self.new_value(position, false);
                    }
                }
            }
        }
    }

    /// Whether the instruction makes a value of its own at `position`, which is its `nth`.
    fn defines(&self, calls: &Calls, id: InstructionId, nth: u32, position: Position) -> bool {
        let module = self.module();
        let is_tuple = self.positions.is_tuple(position);
        // The first number of the path to it; only for instructions that define some elements and not others.
        let outer = || self.positions.index(position).first().copied();
        let depth = || self.positions.index(position).len();
        match &module[id].op {
            Op::Bitcast
            | Op::GetTupleElement { .. }
            | Op::While { .. }
            | Op::Call { .. }
            | Op::Conditional { .. }
            | Op::AddDependency
            | Op::OptBarrier
            | Op::Domain(_)
            | Op::CopyDone
            | Op::AllReduceDone => false,
            Op::Parameter { .. } => !matches!(calls.context(module[id].parent()), Context::Flow(_)),
            Op::Tuple | Op::Copy => nth == 0,
            Op::CopyStart { .. } => outer() != Some(1),
            Op::AsyncStart(_) | Op::AsyncUpdate { .. } => is_tuple || outer().is_some_and(|i| i > 1),
            Op::AsyncDone => is_tuple,
            Op::AllGatherStart(_) => is_tuple || outer() != Some(0),
            Op::AllGatherDone | Op::CollectivePermuteDone => nth == 0 && is_tuple,
            Op::CollectivePermuteStart(_) => nth == 0 || outer() != Some(0) && depth() <= 2,
            Op::Send(_) => outer() != Some(0),
            Op::RecvDone(_) => outer() != Some(0),
            _ => true,
        }
    }

    /// Lists positions and uses by value.
    fn collect(&mut self) {
        let count = self.values.len();
        let mut start = vec![0u32; count + 1];
        for &v in self.value_at.iter().filter(|&&v| v != NONE) {
            start[v as usize + 1] += 1;
        }
        for i in 0..count {
            start[i + 1] += start[i];
        }
        let mut items = vec![0; start.last().copied().unwrap_or(0) as usize];
        let mut next = start.clone();
        // A definition comes first, wherever it stands.
        for (id, value) in self.values.iter().enumerate() {
            if let Some(value) = value
                && self.value_at[value.position as usize] == id as ValueId
            {
                items[next[id] as usize] = value.position;
                next[id] += 1;
            }
        }
        for (position, &v) in self.value_at.iter().enumerate() {
            let is_definition = |v: Value| v.position == position as Position;
            if v != NONE && !self.values[v as usize].is_some_and(is_definition) {
                let at = &mut next[v as usize];
                items[*at as usize] = position as Position;
                *at += 1;
            }
        }
        self.found = Lists { start, items };
        self.collect_uses();
    }

    fn collect_uses(&mut self) {
        let module = self.module();
        let mut start = Vec::with_capacity(self.values.len() + 1);
        let mut items = Vec::new();
        for id in 0..self.values.len() {
            start.push(items.len() as u32);
            let positions = self.found.of(id as ValueId);
            let roots = Roots::new(self, positions);
            for &position in positions {
                let instruction = self.positions.instruction(position);
                let whole = self.positions.is_whole(position);
                let slots = if whole { self.slots.of(instruction) } else { self.slots.deep(instruction) };
                for slot in slots {
                    let reads = match module[slot.user].op {
                        Op::Tuple | Op::Domain(_) => false,
                        Op::GetTupleElement { .. } | Op::Copy => whole,
                        _ => true,
                    };
                    if reads || roots.contains(slot.user) {
                        items.push(Use { user: slot.user, operand: slot.operand, position });
                    }
                }
            }
        }
        start.push(items.len() as u32);
        self.uses = Lists { start, items };
    }
}

/// The roots of computations among the positions of a value: they count as uses, for whoever called reads on.
enum Roots {
    Few(SmallVec<[InstructionId; 4]>),
    Many(FxHashSet<InstructionId>),
}

impl Roots {
    fn new(dataflow: &Dataflow<'_>, positions: &[Position]) -> Roots {
        let module = dataflow.module();
        let roots = positions.iter().map(|&p| dataflow.positions.instruction(p));
        let roots = roots.filter(|&i| module.root(module[i].parent()) == Some(i));
        let few: SmallVec<[InstructionId; 4]> = roots.collect();
        if few.len() <= 8 { Roots::Few(few) } else { Roots::Many(few.into_iter().collect()) }
    }

    fn contains(&self, id: InstructionId) -> bool {
        match self {
            Roots::Few(few) => few.contains(&id),
            Roots::Many(many) => many.contains(&id),
        }
    }
}
