//! The values of a planned program as lowering to thunks sees them, the same for every backend that runs thunks: where each
//! lies, which have a slot because their size is known at run time only, and what the evaluator is told of an instruction.
//!
//! What the plan does not tie together where the run needs it tied is an error here, not a wrong result.

use crate::placement::{Location, locations};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_plan::Plan;
use hloom_plan::dataflow::ValueId;
use hloom_plan::in_place::Pair;
use hloom_plan::positions::Position;
use hloom_value::ExecutionError;
use rustc_hash::FxHashMap;

/// An instruction for the evaluator. Its arrays are the leaves of the operands, then the leaves of the result.
#[derive(Debug)]
pub struct Evaluate {
    /// The shapes of the operands.
    pub operands: Vec<Shape>,
    /// For each leaf of the operands, the slot that it is in if it is in none of the arrays.
    pub operand_slots: Vec<Option<u32>>,
    /// For each leaf of the result, where it goes.
    pub results: Vec<EvaluatedLeaf>,
    /// Whether other devices are met, so that waiting is possible.
    pub waits: bool,
}

/// Where a leaf of an evaluated result goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvaluatedLeaf {
    /// It is where it is to be already.
    InPlace,
    /// To its array.
    Array,
    /// To a slot: its size is known at run time only.
    Slot(u32),
}

/// A leaf of the result.
#[derive(Debug)]
pub struct ResultLeaf {
    /// Its shape, with the layout that it is handed over in.
    pub shape: Shape,
    /// Where it lies at the end.
    pub location: Location,
    /// The slot that it is in, if its size is known at run time only.
    pub slot: Option<u32>,
}

/// Where the values of a plan lie.
#[derive(Debug)]
pub struct PlannedValues<'p, 'm> {
    /// The planned module.
    pub module: &'m Module,
    /// The plan.
    pub plan: &'p Plan<'m>,
    /// Where the value at each position lies.
    pub locations: Vec<Location>,
    /// The slots of values whose sizes are known at run time only.
    slots: FxHashMap<ValueId, u32>,
}

impl<'p, 'm> PlannedValues<'p, 'm> {
    /// The values of `plan`.
    pub fn new(plan: &'p Plan<'m>) -> Result<PlannedValues<'p, 'm>, ExecutionError> {
        let slots = FxHashMap::default();
        Ok(PlannedValues { module: plan.dataflow.module(), plan, locations: locations(plan)?, slots })
    }

    /// How many slots were asked for.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The positions of an instruction's leaves.
    pub fn leaves(&self, id: InstructionId) -> impl Iterator<Item = Position> + use<'_, 'p, 'm> {
        let positions = &self.plan.dataflow.positions;
        positions.of(id).filter(|&p| !positions.is_tuple(p))
    }

    /// The arrays of an instruction: leaves of the operands, then leaves of the result.
    pub fn arrays(&self, id: InstructionId) -> Vec<Position> {
        let all = self.module[id].operands().iter().copied().chain([id]);
        all.flat_map(|i| self.leaves(i).collect::<Vec<_>>()).collect()
    }

    /// Where the value at `position` lies.
    pub fn location(&self, position: Position) -> Location {
        self.locations.get(position as usize).copied().unwrap_or(Location::NOWHERE)
    }

    /// The bytes of the value at `position`.
    pub fn bytes(&self, position: Position) -> usize {
        self.plan.dataflow.positions.shape(position).byte_size().unwrap_or(0) as usize
    }

    /// The slot of the value at `position`, if its size is known at run time only, or nothing is known of it.
    pub fn slot(&mut self, position: Position) -> Option<u32> {
        if !self.is_in_slot(position) {
            return None;
        }
        let value = self.plan.dataflow.at(position)?;
        let next = self.slots.len() as u32;
        Some(*self.slots.entry(value).or_insert(next))
    }

    fn is_in_slot(&self, position: Position) -> bool {
        let shape = self.plan.dataflow.positions.shape(position);
        shape.is_dynamic() || matches!(shape, Shape::Opaque)
    }

    /// Whether an instruction takes or makes a value in a slot.
    pub fn uses_slots(&self, id: InstructionId) -> bool {
        self.arrays(id).into_iter().any(|p| self.is_in_slot(p))
    }

    /// Whether the value at `position` is made there, and is an array with elements.
    pub fn makes(&self, position: Position) -> bool {
        let dataflow = &self.plan.dataflow;
        let value = dataflow.at(position).and_then(|v| dataflow.value(v));
        let is_array = || dataflow.positions.shape(position).as_array_or_buffer().is_some();
        value.is_some_and(|v| v.position == position) && is_array()
    }

    /// Fails unless each leaf of `from` is where that of `to` is.
    pub fn must_be_tied(
        &self,
        id: InstructionId,
        from: InstructionId,
        to: InstructionId,
    ) -> Result<(), ExecutionError> {
        let tied = self.leaves(from).zip(self.leaves(to)).all(|(a, b)| self.location(a) == self.location(b));
        if tied {
            return Ok(());
        }
        Err(ExecutionError::bug(format!("the memory of {} is not carried through", self.module[id].name())))
    }

    /// Whether the instruction updates an operand where it lies.
    pub fn is_in_place(&self, id: InstructionId) -> bool {
        let positions = &self.plan.dataflow.positions;
        let tied = |pair: &Pair| {
            let operand = self.module[id].operands().get(pair.operand);
            let from = operand.and_then(|&o| positions.part(o, &pair.operand_index));
            let to = positions.part(id, &pair.output_index);
            from.zip(to).is_some_and(|(from, to)| self.location(from.start) == self.location(to.start))
        };
        let pairs = self.plan.in_place.pairs(id);
        !pairs.is_empty() && pairs.iter().all(tied)
    }

    /// What the evaluator has to know of an instruction.
    pub fn for_evaluator(&mut self, id: InstructionId) -> Evaluate {
        let module = self.module;
        let op = &module[id].op;
        let meets = op.collective().is_some() || matches!(op, Op::CollectivePermute(_) | Op::CollectivePermuteStart(_));
        let waits = meets || matches!(op, Op::RecvDone(_));
        let operands: Vec<Shape> = module[id].operands().iter().map(|&o| module[o].shape.clone()).collect();
        let leaves: Vec<Position> =
            module[id].operands().iter().flat_map(|&o| self.leaves(o).collect::<Vec<_>>()).collect();
        let operand_slots = leaves.into_iter().map(|p| self.slot(p)).collect();
        // What is received comes at the done, into the memory that the start was given for it.
        let fills = matches!(op, Op::RecvDone(_));
        let leaves: Vec<Position> = self.leaves(id).collect();
        let result = |p: Position| match self.slot(p) {
            Some(slot) => EvaluatedLeaf::Slot(slot),
            None if (fills || self.makes(p)) && self.location(p) != Location::NOWHERE => EvaluatedLeaf::Array,
            None => EvaluatedLeaf::InPlace,
        };
        let results = leaves.into_iter().map(result).collect();
        Evaluate { operands, operand_slots, results, waits }
    }

    /// The leaves of the result of the entry.
    pub fn results(&mut self, entry: ComputationId) -> Result<Vec<ResultLeaf>, ExecutionError> {
        let root = self.module.root(entry).ok_or_else(|| ExecutionError::bug("a computation without a root"))?;
        let leaves: Vec<Position> = self.leaves(root).collect();
        // The header says how results lie in memory; what a custom call with layouts of its own makes is row-major.
        let header = self.module.config.entry_layout.as_ref().map(|program| &program.result);
        let header = header.filter(|wanted| wanted.equal_ignoring_layout(&self.module[root].shape));
        let wanted: Vec<&Shape> = header.iter().flat_map(|shape| shape.leaves()).map(|(_, leaf)| leaf).collect();
        let handed_over = |a: &ArrayShape| a.clone().with_layout(a.entry_layout());
        let leaf = |(n, position): (usize, Position)| {
            let own = self.plan.dataflow.positions.shape(position);
            ResultLeaf {
                shape: wanted.get(n).copied().unwrap_or(own).map_arrays(&mut { handed_over }),
                location: self.location(position),
                slot: self.slot(position),
            }
        };
        Ok(leaves.into_iter().enumerate().map(leaf).collect())
    }
}
