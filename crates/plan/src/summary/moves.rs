//! What may be computed at another moment, or once more, without changing what the program computes.
//!
//! Only plain operations on arrays are moved, and only within their computation: nothing that talks to other devices or to
//! the outside, nothing that calls, nothing with control dependencies, nothing that writes in place, and nothing of a
//! computation that runs asynchronously. So a "no" may be wrong, a "yes" is not.

use crate::Plan;
use crate::dataflow::ValueId;
use crate::live_range::Time;
use crate::order::flow_callees;
use hloom_analysis::effects::only_computes;
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::order::computations_by_calls;
use smallvec::SmallVec;

/// Answers for one plan.
pub(super) struct Moves<'p, 'm> {
    plan: &'p Plan<'m>,
    /// Computations that do plain things only, by index: what a fusion may contain to be moved.
    plain: Vec<bool>,
    /// Instructions with control dependencies, by index.
    tied: Vec<bool>,
}

impl<'p, 'm> Moves<'p, 'm> {
    pub(super) fn new(plan: &'p Plan<'m>) -> Moves<'p, 'm> {
        let module = plan.dataflow.module();
        let mut tied = vec![false; module.instruction_slots()];
        let mut callees = vec![Vec::new(); module.computation_slots()];
        for &computation in module.computations() {
            for &id in module[computation].instructions() {
                callees[computation.index()].extend(module[id].op.called_computations());
                for earlier in module[id].common.control_predecessors() {
                    tied[id.index()] = true;
                    tied[earlier.index()] = true;
                }
            }
        }
        let mut moves = Moves { plan, plain: vec![true; module.computation_slots()], tied };
        for computation in computations_by_calls(module, &callees) {
            let all = module[computation].instructions().iter().all(|&id| {
                let op = &module[id].op;
                let inside =
                    matches!(op, Op::Parameter { .. } | Op::Constant(_) | Op::DynamicUpdateSlice | Op::Scatter(_));
                inside || is_forward(op) || moves.is_plain(op)
            });
            moves.plain[computation.index()] = all;
        }
        moves
    }

    fn module(&self) -> &'m Module {
        self.plan.dataflow.module()
    }

    fn calls_plain(&self, op: &Op) -> bool {
        op.called_computations().iter().all(|c| self.plain[c.index()])
    }

    fn is_plain(&self, op: &Op) -> bool {
        match op {
            Op::Fusion(fusion) => self.plain[fusion.calls.index()],
            Op::Copy
            | Op::RaggedDot(_)
            | Op::ScaledDot(_)
            | Op::Map { .. }
            | Op::SelectAndScatter { .. }
            | Op::BatchNormInference { .. } => self.calls_plain(op),
            op => only_computes(op) && self.calls_plain(op),
        }
    }

    /// The value that a movable instruction makes.
    pub(super) fn made_by(&self, id: InstructionId) -> Option<ValueId> {
        let module = self.module();
        let instruction = &module[id];
        let home = instruction.parent();
        let operands = instruction.operands().iter();
        let movable = self.is_plain(&instruction.op)
            && !self.tied[id.index()]
            && module.root(home) != Some(id)
            && self.plan.schedule.around(home).is_none()
            && instruction.shape.as_tuple().is_none()
            && operands.clone().all(|&o| module[o].shape.as_tuple().is_none());
        let value = self.plan.dataflow.at(self.plan.dataflow.positions.whole(id)).filter(|_| movable)?;
        self.is_alone(value).then_some(value)
    }

    /// Whether nothing else is the same memory by necessity.
    pub(super) fn is_alone(&self, value: ValueId) -> bool {
        self.plan.buffers.values(self.plan.buffers.of(value)).len() == 1
    }

    /// The values that an instruction reads, each once.
    pub(super) fn read_by(&self, id: InstructionId) -> Vec<ValueId> {
        let dataflow = &self.plan.dataflow;
        let operands = self.module()[id].operands().iter();
        let mut values: Vec<ValueId> = operands.filter_map(|&o| dataflow.at(dataflow.positions.whole(o))).collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    /// The times at which a value is needed by instructions of the computation that makes it, and by which; what those
    /// call runs before them, and needs it too. What only passes it on does not need it.
    pub(super) fn needs(&self, value: ValueId) -> SmallVec<[Need; 4]> {
        let module = self.module();
        let Plan { dataflow, schedule, .. } = self.plan;
        let Some(definition) = dataflow.value(value) else { return SmallVec::new() };
        let home = module[dataflow.instruction(definition)].parent();
        let mut needs = SmallVec::new();
        for usage in dataflow.uses_of(value) {
            let user = usage.user;
            let op = &module[user].op;
            if module[user].parent() != home || is_forward(op) && module.root(home) != Some(user) {
                continue;
            }
            let Some(time) = schedule.time(user) else { continue };
            let starts = flow_callees(module, user).into_iter().filter_map(|c| schedule.span(c)).map(|s| s.0);
            // What was started goes on reading until it is done: at least as long as the value lives.
            let last = if starts_something(op) { self.plan.live.of(value).map_or(time, |r| r.end) } else { time };
            needs.push(Need { user, first: starts.min().unwrap_or(time), last });
        }
        needs
    }
}

/// That a value is needed, by whom and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) user: InstructionId,
    pub(super) first: Time,
    pub(super) last: Time,
}

/// Whether it goes on after its step, until something else waits for it.
fn starts_something(op: &Op) -> bool {
    matches!(
        op,
        Op::AsyncStart(_)
            | Op::AllReduceStart(_)
            | Op::AllGatherStart(_)
            | Op::CollectivePermuteStart(_)
            | Op::CopyStart { .. }
            | Op::Send(_)
            | Op::Recv(_)
    )
}

/// Whether it only passes on what it is given.
fn is_forward(op: &Op) -> bool {
    matches!(op, Op::Tuple | Op::GetTupleElement { .. } | Op::Bitcast)
}
