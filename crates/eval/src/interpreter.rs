//! The interpreter: one device walking the plan of a computation.
//!
//! A device owns its frames; everything shared between devices is read-only or behind the rendezvous. Values are moved
//! into their last use, so an operation that finds itself the only owner works in place, and memory is given back as soon
//! as nothing needs it.

use crate::mixed_precision::{rounded, widen};
use crate::ops;
use crate::run::Shared;
use crate::scalar::{Program, ScalarFunction};
use hloom_ir::diagnostic::codes;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_value::ExecutionError;
use hloom_value::Value;
use smallvec::SmallVec;

/// The values of an instruction's operands.
pub type OperandValues = SmallVec<[Value; 4]>;

/// One virtual device in a run.
pub struct Device<'r> {
    /// What all devices share.
    pub shared: &'r Shared<'r>,
    /// The device's number: replica × partitions + partition.
    pub ordinal: usize,
    /// The state of rng-get-and-update-state, and the count of rng; starts where XLA's starts.
    pub random_state: u128,
    /// Computations being evaluated, one inside the other.
    depth: usize,
    /// Instructions executed.
    steps: u64,
}

/// How deep calls may nest; the stack of a device's thread is made for this.
const MAX_CALL_DEPTH: usize = 2048;

impl<'r> Device<'r> {
    /// The device `ordinal` of a run.
    pub fn new(shared: &'r Shared<'r>, ordinal: usize) -> Device<'r> {
        Device { shared, ordinal, random_state: 0x701_2395, depth: 0, steps: 0 }
    }

    /// The module that runs.
    pub fn module(&self) -> &'r Module {
        self.shared.module
    }

    /// Which replica this device is.
    pub fn replica(&self) -> usize {
        self.shared.grid.replica(self.ordinal)
    }

    /// Which partition this device is.
    pub fn partition(&self) -> usize {
        self.shared.grid.partition(self.ordinal)
    }

    /// Evaluates `computation` on `arguments`.
    pub fn call(&mut self, computation: ComputationId, arguments: Vec<Value>) -> Result<Value, ExecutionError> {
        if self.depth >= MAX_CALL_DEPTH {
            return Err(ExecutionError::new(
                &codes::eval::UNSUPPORTED,
                format!("calls nest more than {MAX_CALL_DEPTH} deep"),
            ));
        }
        self.depth += 1;
        let result = self.entered(computation, arguments).and_then(|arguments| self.evaluate(computation, arguments));
        self.depth -= 1;
        result
    }

    /// Applies `computation` to elements of arrays. That belongs to the instruction that asks for it, which is one step
    /// however many elements there are; one application may still take no more steps than are left.
    pub fn apply(&mut self, computation: ComputationId, arguments: Vec<Value>) -> Result<Value, ExecutionError> {
        let steps = self.steps;
        let result = self.call(computation, arguments);
        self.steps = steps;
        result
    }

    /// The arguments with the floating-point types of the parameters.
    fn entered(&self, computation: ComputationId, arguments: Vec<Value>) -> Result<Vec<Value>, ExecutionError> {
        if !self.shared.prepared.mixed_precision.calls(computation) {
            return Ok(arguments);
        }
        let parameters = self.module().parameters(computation);
        let entered = arguments.into_iter().zip(parameters).map(|(a, p)| rounded(a, &self.module()[p].shape));
        entered.collect()
    }

    fn evaluate(&mut self, computation: ComputationId, arguments: Vec<Value>) -> Result<Value, ExecutionError> {
        let plan = self.shared.prepared.plan.computation(computation);
        if self.shared.observes() {
            for (&p, argument) in self.module().parameters(computation).iter().zip(&arguments) {
                self.shared.observe(self.ordinal, p, argument, &[]).map_err(|fault| fault.at(p))?;
            }
        }
        let mut slots: Vec<Option<Value>> = vec![None; plan.slots];
        for (slot, argument) in plan.parameters.iter().zip(arguments) {
            if let Some(slot) = *slot {
                slots[slot as usize] = Some(argument);
            }
        }
        for step in &plan.steps {
            let uses = &plan.uses[step.uses.start as usize..step.uses.end as usize];
            let i = step.instruction;
            let value = self.step(i, &mut slots, uses).map_err(|fault| fault.at(i))?;
            if !step.unused {
                slots[step.slot as usize] = Some(value);
            }
        }
        let root = plan.root.and_then(|r| slots[r as usize].take());
        root.ok_or_else(|| {
            ExecutionError::bug(format!("computation {} has no result", self.module()[computation].name()))
        })
    }

    fn step(
        &mut self,
        i: InstructionId,
        slots: &mut [Option<Value>],
        uses: &[crate::plan::Use],
    ) -> Result<Value, ExecutionError> {
        self.shared.check_step(self.ordinal, i, self.steps)?;
        self.steps += 1;
        let missing = || ExecutionError::bug("an operand has no value yet");
        if let (Op::GetTupleElement { index }, [tuple]) = (&self.module()[i].op, uses) {
            let Some(Value::Tuple(elements)) = &mut slots[tuple.slot as usize] else { return Err(missing()) };
            let element = usize::try_from(*index).ok().and_then(|n| elements.get_mut(n)).ok_or_else(missing)?;
            let value = if tuple.last { std::mem::replace(element, Value::Token) } else { element.clone() };
            self.shared.observe(self.ordinal, i, &value, &[])?;
            return Ok(value);
        }
        let mut operands = OperandValues::with_capacity(uses.len());
        for u in uses {
            let slot = &mut slots[u.slot as usize];
            operands.push(if u.last { slot.take() } else { slot.clone() }.ok_or_else(missing)?);
        }
        if self.shared.observes() {
            let before = operands.clone();
            let value = self.compute(i, operands)?;
            self.shared.observe(self.ordinal, i, &value, &before)?;
            return Ok(value);
        }
        self.compute(i, operands)
    }

    fn compute(&mut self, i: InstructionId, mut operands: OperandValues) -> Result<Value, ExecutionError> {
        if !self.shared.prepared.mixed_precision.has(i) {
            return ops::evaluate(self, i, operands);
        }
        widen(self.module(), i, &mut operands)?;
        let value = ops::evaluate(self, i, operands)?;
        rounded(value, &self.module()[i].shape)
    }

    /// `computation` as a function of scalars.
    pub fn scalar_function(&self, computation: ComputationId) -> ScalarFunction {
        match Program::compile(self.module(), computation) {
            Some(program) => ScalarFunction::Program(program),
            None => ScalarFunction::Computation(computation),
        }
    }

    /// Fails if the run was ended from outside; long operations ask now and then.
    pub fn check_cancelled(&self) -> Result<(), ExecutionError> {
        self.shared.check_cancelled()
    }
}
