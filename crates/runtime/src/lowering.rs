//! The part of lowering to thunks that is the same on every machine: the walk over computations, copies, loops, branches,
//! calls, and what is left to the evaluator.
//!
//! A backend brings its thunks and what it does natively ([`Lowering`]). Tuples, their elements and whatever else merely
//! hands values on are no thunks: `plan` says that the value is where it was. What the plan does not tie together where the
//! run needs it tied is an error here, not a wrong result.

use crate::placement::{Location, hands_on};
use crate::planned_values::{Evaluate, PlannedValues};
use hloom_analysis::devices::DeviceGrid;
use hloom_analysis::effects::reaches_outside;
use hloom_compiler::CompileReport;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::op::{ConstantValue, Op};
use hloom_plan::positions::Position;
use hloom_value::ExecutionError;

/// A list of thunks: that of the entry, of a branch, or of a loop's condition or body.
pub type ListId = usize;

/// A thunk that every machine has.
#[derive(Debug)]
pub enum SharedThunk {
    /// Copies the first array to the second.
    Copy {
        /// Their size.
        bytes: usize,
    },
    /// Writes the number of the device's replica or partition.
    DeviceId {
        /// All devices.
        grid: DeviceGrid,
        /// Of the replica, not the partition.
        of_replica: bool,
    },
    /// A loop. Its arrays are the condition's result, then the leaves of the state.
    While {
        /// The thunks of the condition.
        condition: ListId,
        /// The thunks of the body.
        body: ListId,
        /// The bytes of each leaf of the state.
        state: Vec<usize>,
        /// Whether the state alone decides how it goes on, so that a state that stays as it is means a loop without end.
        closed: bool,
    },
    /// Branches, chosen by its array.
    Conditional {
        /// The thunks of each.
        branches: Vec<ListId>,
        /// Whether the array is a truth, which has the first branch for true, and not a number.
        by_truth: bool,
    },
    /// An instruction for the evaluator.
    Evaluate(Box<Evaluate>),
}

/// What lowering knows and notes on every machine.
#[derive(Debug)]
pub struct LoweringState<'p, 'm> {
    /// The planned values.
    pub values: PlannedValues<'p, 'm>,
    /// All devices.
    pub grid: DeviceGrid,
    /// Whether constants that a dump elides are made up.
    pub fill_constants: bool,
    /// Whether any thunk needs the evaluator.
    pub evaluates: bool,
    /// For each list whether anything besides its arrays decides what it does, or it does anything else.
    reaches_outside: Vec<bool>,
    report: &'p mut CompileReport,
}

impl<'p, 'm> LoweringState<'p, 'm> {
    /// The beginning, with the entry's list.
    pub fn new(
        values: PlannedValues<'p, 'm>,
        grid: DeviceGrid,
        fill_constants: bool,
        report: &'p mut CompileReport,
    ) -> LoweringState<'p, 'm> {
        LoweringState { values, grid, fill_constants, evaluates: false, reaches_outside: vec![false], report }
    }

    /// Counts a native thunk.
    pub fn native(&mut self, what: &str) {
        self.native_thunks(what, 1);
    }

    /// Counts native thunks.
    pub fn native_thunks(&mut self, what: &str, number: usize) {
        if number > 0 {
            *self.report.native.entry(what.to_owned()).or_default() += number;
        }
    }

    /// Notes how long a stage took that began then.
    pub fn stage(&mut self, name: &'static str, begun: std::time::Instant) {
        self.report.stages.push((name, begun.elapsed()));
    }

    /// The evaluator's part, noted in the report.
    pub fn for_evaluator_because(&mut self, id: InstructionId, reason: &str) -> Box<Evaluate> {
        let instruction = &self.values.module[id];
        self.report.fall_back(instruction.op.opcode().name(), instruction.name(), reason);
        self.evaluates = true;
        Box::new(self.values.for_evaluator(id))
    }
}

/// Lowers a planned module to the thunks of a machine.
pub trait Lowering<'p, 'm: 'p> {
    /// What every machine has.
    fn state(&mut self) -> &mut LoweringState<'p, 'm>;

    /// Adds an empty list; the entry's is the first.
    fn add_list(&mut self) -> ListId;

    /// Adds a thunk that every machine has.
    fn push_shared(&mut self, list: ListId, id: InstructionId, arrays: Vec<Position>, thunk: SharedThunk);

    /// Adds the thunks of an instruction that is the machine's own business.
    fn native_instruction(&mut self, list: ListId, id: InstructionId) -> Result<(), ExecutionError>;

    /// Adds the thunks of `computation` to a list.
    fn computation(&mut self, list: ListId, computation: ComputationId) -> Result<(), ExecutionError> {
        let module = self.state().values.module;
        for &id in module[computation].instructions() {
            self.instruction(list, id)?;
        }
        Ok(())
    }

    /// The thunks of `computation` as a list of their own.
    fn new_list(&mut self, computation: ComputationId) -> Result<ListId, ExecutionError> {
        let list = self.add_list();
        self.state().reaches_outside.push(false);
        self.computation(list, computation)?;
        Ok(list)
    }

    /// Adds the thunks of an instruction.
    fn instruction(&mut self, list: ListId, id: InstructionId) -> Result<(), ExecutionError> {
        let state = self.state();
        let instruction = &state.values.module[id];
        state.reaches_outside[list] |= reaches_outside(&instruction.op);
        let is_parameter = matches!(instruction.op, Op::Parameter { .. });
        if !is_parameter && !hands_on(&instruction.op) && state.values.uses_slots(id) {
            self.evaluate(list, id, "it has a size that is known at run time only");
            return Ok(());
        }
        match &instruction.op {
            Op::Parameter { .. } => {}
            Op::Constant(ConstantValue::Elided) if !state.fill_constants => {
                self.evaluate(list, id, "its value is not known");
            }
            Op::Constant(_) => {}
            Op::Copy | Op::Reshape { .. } if instruction.shape.is_array() => self.copy(list, id),
            Op::CopyStart { .. } => self.copy(list, id),
            Op::ReplicaId | Op::PartitionId => {
                let of_replica = matches!(instruction.op, Op::ReplicaId);
                let (arrays, grid) = (state.values.arrays(id), state.grid);
                state.native("device id");
                self.push_shared(list, id, arrays, SharedThunk::DeviceId { grid, of_replica });
            }
            &Op::While { condition, body } => self.while_loop(list, id, condition, body)?,
            Op::Conditional { branches } => self.conditional(list, id, branches)?,
            Op::Call { to_apply, .. } => self.call(list, id, *to_apply, &[])?,
            Op::AsyncStart(start) => self.call(list, id, start.calls, &[1])?,
            op => {
                // What hands values on makes none; all else is done, for its value or its effect.
                if !hands_on(op) || state.values.leaves(id).any(|p| state.values.makes(p)) {
                    self.native_instruction(list, id)?;
                }
            }
        }
        Ok(())
    }

    /// A loop, whose condition and body are lists of their own.
    fn while_loop(
        &mut self,
        list: ListId,
        id: InstructionId,
        condition: ComputationId,
        body: ComputationId,
    ) -> Result<(), ExecutionError> {
        let values = &self.state().values;
        let module = values.module;
        let parameter = |c| module.parameters(c).first().copied();
        let (Some(in_body), Some(in_condition)) = (parameter(body), parameter(condition)) else {
            return Err(ExecutionError::bug("a loop without parameters"));
        };
        let (Some(next), Some(truth)) = (module.root(body), module.root(condition)) else {
            return Err(ExecutionError::bug("a loop without a root"));
        };
        let init = module[id].operands()[0];
        for (from, to) in [(init, id), (id, in_body), (id, in_condition), (next, id)] {
            values.must_be_tied(id, from, to)?;
        }
        let (condition, body) = (self.new_list(condition)?, self.new_list(body)?);
        let state = self.state();
        let positions = &state.values.plan.dataflow.positions;
        let bytes = state.values.leaves(id).map(|p| state.values.bytes(p)).collect();
        let arrays = [positions.whole(truth)].into_iter().chain(state.values.leaves(id)).collect();
        let closed = ![condition, body].iter().any(|&l| state.reaches_outside[l]);
        state.reaches_outside[list] |= !closed;
        state.native("while");
        self.push_shared(list, id, arrays, SharedThunk::While { condition, body, state: bytes, closed });
        Ok(())
    }

    /// Branches, each a list of its own.
    fn conditional(
        &mut self,
        list: ListId,
        id: InstructionId,
        branches: &[ComputationId],
    ) -> Result<(), ExecutionError> {
        let values = &self.state().values;
        let module = values.module;
        let operands = module[id].operands();
        for (&branch, &operand) in branches.iter().zip(operands.iter().skip(1)) {
            let (Some(&parameter), Some(root)) = (module.parameters(branch).first(), module.root(branch)) else {
                return Err(ExecutionError::bug("a branch without a parameter"));
            };
            values.must_be_tied(id, operand, parameter)?;
            values.must_be_tied(id, root, id)?;
        }
        let by_truth = module[operands[0]].shape.is_scalar_of(ElementType::Pred);
        let branches = branches.iter().map(|&b| self.new_list(b)).collect::<Result<Vec<_>, _>>()?;
        let state = self.state();
        let selector = state.values.plan.dataflow.positions.whole(operands[0]);
        state.reaches_outside[list] |= branches.iter().any(|&b| state.reaches_outside[b]);
        state.native("conditional");
        self.push_shared(list, id, vec![selector], SharedThunk::Conditional { branches, by_truth });
        Ok(())
    }

    /// Runs a computation as a part of the list; its result is the part `index` of the instruction's.
    fn call(
        &mut self,
        list: ListId,
        id: InstructionId,
        computation: ComputationId,
        index: &[i64],
    ) -> Result<(), ExecutionError> {
        let values = &self.state().values;
        let module = values.module;
        for (&operand, parameter) in module[id].operands().iter().zip(module.parameters(computation)) {
            values.must_be_tied(id, operand, parameter)?;
        }
        self.computation(list, computation)?;
        let root = module.root(computation).ok_or_else(|| ExecutionError::bug("a computation without a root"))?;
        let values = &self.state().values;
        let positions = &values.plan.dataflow.positions;
        let part = positions.part(id, index).ok_or_else(|| ExecutionError::bug("a start without a result"))?;
        let to: Vec<Position> = part.filter(|&p| !positions.is_tuple(p)).collect();
        let from: Vec<Position> = values.leaves(root).collect();
        self.tie(list, id, from, to);
        Ok(())
    }

    /// Copies the operand to the (first leaf of the) result.
    fn copy(&mut self, list: ListId, id: InstructionId) {
        let state = self.state();
        let from: Vec<Position> = state.values.leaves(state.values.module[id].operands()[0]).collect();
        let to: Vec<Position> = state.values.leaves(id).collect();
        state.native("copy");
        self.tie(list, id, from, to);
    }

    /// Copies each leaf to where it is wanted, unless it is there.
    fn tie(&mut self, list: ListId, id: InstructionId, from: Vec<Position>, to: Vec<Position>) {
        for (from, to) in from.into_iter().zip(to) {
            let values = &self.state().values;
            let (source, target) = (values.location(from), values.location(to));
            if source != target && source != Location::NOWHERE && target != Location::NOWHERE {
                let bytes = values.bytes(from);
                self.push_shared(list, id, vec![from, to], SharedThunk::Copy { bytes });
            }
        }
    }

    /// Leaves an instruction to the evaluator.
    fn evaluate(&mut self, list: ListId, id: InstructionId, reason: &str) {
        let state = self.state();
        let (evaluate, arrays) = (state.for_evaluator_because(id, reason), state.values.arrays(id));
        self.push_shared(list, id, arrays, SharedThunk::Evaluate(evaluate));
    }
}
