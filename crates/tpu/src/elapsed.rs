//! How long steps take, in cycles of the machine, as the scheduler and the assignment of memory spaces see it.
//!
//! Work on one device is the cost model's. What devices do together counts, for both, with the time that its arrays take
//! to pass through main memory: neither decision may lean on an exchange being slow. A step of which nothing is known
//! takes no time here.

use crate::edit::flow_computations;
use crate::stage::StageContext;
use hloom_cost::{CollectiveKind, Communication, CostModel, Placement};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_plan::order::flow_callees;
use hloom_target::Target;
use rustc_hash::FxHashSet;

/// The times of a module's steps.
pub(crate) struct Elapsed<'m> {
    model: CostModel<'m>,
    communication: Communication<'m>,
    /// Bytes that main memory moves in a cycle.
    bytes_per_cycle: f64,
    clock: f64,
    /// Cycles of each step of the program; none inside a fusion.
    cycles: Vec<f64>,
    /// Cycles of all steps of a computation together.
    whole: Vec<f64>,
}

impl<'m> Elapsed<'m> {
    pub(crate) fn new(module: &'m Module, context: &StageContext<'m>) -> Result<Elapsed<'m>, Diagnostic> {
        let model = CostModel::new(module, context.target)?;
        let communication = Communication::new(context.target, context.topology.clone())?;
        let clock = context.target.compute.clock_hz.unwrap_or(1e9);
        let bytes_per_cycle = context.target.reached_bandwidth(0)? / clock;
        let cycles = vec![0.0; module.instruction_slots()];
        let whole = vec![0.0; module.computation_slots()];
        let mut elapsed = Elapsed { model, communication, bytes_per_cycle, clock, cycles, whole };
        let is_flow: FxHashSet<ComputationId> = flow_computations(module).into_iter().collect();
        // Callees come before callers.
        for c in hloom_ir::order::computations(module).into_iter().filter(|c| is_flow.contains(c)) {
            for &i in module[c].instructions() {
                let cycles = elapsed.estimate(i);
                elapsed.cycles[i.index()] = cycles;
                elapsed.whole[c.index()] += cycles;
            }
        }
        Ok(elapsed)
    }

    pub(crate) fn target(&self) -> &'m Target {
        self.model.target()
    }

    /// Bytes that main memory moves in a cycle.
    pub(crate) fn bytes_per_cycle(&self) -> f64 {
        self.bytes_per_cycle
    }

    /// The cycles that a step of the program keeps the device busy.
    pub(crate) fn cycles(&self, i: InstructionId) -> f64 {
        self.cycles[i.index()]
    }

    fn estimate(&self, i: InstructionId) -> f64 {
        let module = self.model.module();
        let op = &module[i].op;
        let callees = flow_callees(module, i);
        if !callees.is_empty() {
            return callees.iter().map(|c| self.whole[c.index()]).sum();
        }
        if self.model.is_outside(i) || op.collective().is_some() && !is_half(op) {
            return self.moved(i) / self.bytes_per_cycle;
        }
        match self.model.instruction(i) {
            Ok(cost) => cost.cycles.unwrap_or(cost.seconds * self.clock),
            Err(_) => 0.0,
        }
    }

    /// The cycles before the first byte of a copy between memories arrives.
    pub(crate) fn latency_of_copies(&self) -> f64 {
        self.target().space(0).map_or(0.0, |s| s.latency_seconds) * self.clock
    }

    /// The cycles that a step takes less if an operand of it lies in that memory.
    pub(crate) fn gain(&self, i: InstructionId, operand: usize, memory_space: i64) -> f64 {
        let mut placement = Placement::default();
        placement.operands.resize(operand, None);
        placement.operands.push(Some(memory_space));
        let cost = self.model.placed(i, &placement);
        cost.map_or(0.0, |c| self.cycles(i) - c.cycles.unwrap_or(c.seconds * self.clock))
    }

    /// The cycles from the start of a collective to its end.
    pub(crate) fn latency(&self, start: InstructionId) -> f64 {
        let module = self.model.module();
        let op = &module[start].op;
        let bytes = module[start].shape.leaves().iter().filter_map(|(_, s)| s.byte_size()).max().unwrap_or(0) as f64;
        let devices: Vec<usize> = (0..self.communication.topology().devices()).collect();
        let group = self.communication.shape_of(&devices);
        match CollectiveKind::of(op) {
            Some(kind) => self.communication.collective(kind, bytes, &group).seconds * self.clock,
            None => bytes / self.bytes_per_cycle,
        }
    }

    /// Bytes of all operands and results.
    fn moved(&self, i: InstructionId) -> f64 {
        let module = self.model.module();
        let shapes = module[i].operands().iter().chain([&i]).map(|&o| &module[o].shape);
        let leaves = shapes.flat_map(|s| s.leaves());
        leaves.filter_map(|(_, s)| self.target().byte_size(s)).map(|b| b as f64).sum()
    }
}

/// Whether it only begins or ends an exchange.
fn is_half(op: &Op) -> bool {
    matches!(op, Op::AllGatherStart(_) | Op::AllReduceStart(_) | Op::CollectivePermuteStart(_))
}
