//! How much of an array each of its readers and its maker touch, and how often they run.
//!
//! Who slices an array reads the slice, and who updates one in place writes the update: the state of a loop that each
//! iteration takes one part of is no more worth its place than that part.

use crate::edit::flow_computations;
use hloom_analysis::trip_count::trip_count;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use hloom_plan::order::flow_callees;
use hloom_target::Target;

/// What goes through memory when a module runs.
pub(super) struct Traffic<'m> {
    module: &'m Module,
    target: &'m Target,
    /// How often each computation runs.
    runs: Vec<f64>,
}

impl<'m> Traffic<'m> {
    pub(super) fn new(module: &'m Module, target: &'m Target) -> Traffic<'m> {
        let mut runs = vec![0.0; module.computation_slots()];
        if let Some(entry) = module.entry() {
            runs[entry.index()] = 1.0;
        }
        // Callers come before callees.
        for c in flow_computations(module) {
            for &i in module[c].instructions() {
                let callees = flow_callees(module, i);
                let times = match module[i].op {
                    Op::While { .. } => trip_count(module, i).map_or(target.assumed_trips as f64, |n| n as f64),
                    Op::Conditional { .. } => 1.0 / callees.len().max(1) as f64,
                    _ => 1.0,
                };
                for callee in callees {
                    runs[callee.index()] += runs[c.index()] * times;
                }
            }
        }
        Traffic { module, target, runs }
    }

    /// How often the instructions of a computation run.
    pub(super) fn runs(&self, c: ComputationId) -> f64 {
        self.runs[c.index()]
    }

    /// Bytes that `user` reads each time of its operand `n`.
    pub(super) fn read(&self, user: InstructionId, n: usize) -> i64 {
        let module = self.module;
        let Some(&operand) = module[user].operands().get(n) else { return 0 };
        let whole = self.bytes(&module[operand].shape);
        match &module[user].op {
            Op::Fusion(fusion) => match module.parameters(fusion.calls).get(n) {
                Some(&parameter) => {
                    let parts = |&u: &InstructionId| self.part_read(u, parameter);
                    let parts: Option<i64> = module[parameter].users().iter().map(parts).sum();
                    parts.map_or(whole, |p| p.min(whole))
                }
                None => whole,
            },
            _ if n == 0 => self.part_read(user, operand).unwrap_or(whole),
            _ => whole,
        }
    }

    /// Bytes that an instruction reads of what it takes a part of; `None` if it reads all of it.
    fn part_read(&self, user: InstructionId, of: InstructionId) -> Option<i64> {
        let module = self.module;
        let others = module[user].operands().get(1..).unwrap_or(&[]);
        if module[user].operands().first() != Some(&of) || others.contains(&of) {
            return None;
        }
        match &module[user].op {
            Op::DynamicSlice { .. } | Op::Slice { .. } | Op::Gather(_) => Some(self.bytes(&module[user].shape)),
            Op::DynamicUpdateSlice => Some(0),
            _ => None,
        }
    }

    /// Bytes that `maker` writes each time of the part of its result at `index`.
    pub(super) fn written(&self, maker: InstructionId, index: &[i64]) -> i64 {
        let module = self.module;
        let inner = match &module[maker].op {
            Op::Fusion(fusion) => module.root(fusion.calls).and_then(|root| match (&module[root].op, index) {
                (Op::Tuple, &[n]) => module[root].operands().get(usize::try_from(n).ok()?).copied(),
                _ => Some(root),
            }),
            _ => Some(maker),
        };
        let update = inner.filter(|&i| matches!(module[i].op, Op::DynamicUpdateSlice));
        match update.and_then(|i| module[i].operands().get(1)) {
            Some(&part) => self.bytes(&module[part].shape),
            None => module[maker].shape.at(index).map_or(0, |s| self.bytes(s)),
        }
    }

    fn bytes(&self, shape: &Shape) -> i64 {
        self.target.byte_size(shape).unwrap_or(0)
    }
}
