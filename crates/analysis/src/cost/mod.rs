//! What a module costs to run: floating-point operations, transcendental functions and bytes of memory traffic.
//!
//! The counts follow the customs of the field: a multiply-add is two flops, an element-wise operation one per element,
//! exponentials and the like are counted apart as transcendentals, and every instruction reads its operands and writes
//! its result once, except where it plainly touches less (slices, gathers, updates in place). Inside a fusion nothing
//! goes through memory. A loop counts as often as its `known_trip_count` says, once where it says nothing; of a
//! conditional the most expensive branch counts. All arithmetic saturates: no shape, however absurd, overflows.
//!
//! Each computation is measured once, callees first, so the whole is linear in the size of the module.

mod bytes;
mod flops;
mod positions;
mod trip_count;

use hloom_ir::entity::{ComputationId, EntityId, InstructionId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::verify::VerifiedModule;
use std::ops::{Add, AddAssign, Mul};

pub use bytes::shape_bytes;
pub use positions::window_positions;
pub use trip_count::known_trip_count;

/// What something costs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cost {
    /// Arithmetic operations.
    pub flops: u64,
    /// Exponentials, logarithms, roots and the like.
    pub transcendentals: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

impl Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost {
            flops: self.flops.saturating_add(other.flops),
            transcendentals: self.transcendentals.saturating_add(other.transcendentals),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        *self = *self + other;
    }
}

impl Mul<u64> for Cost {
    type Output = Cost;
    fn mul(self, times: u64) -> Cost {
        Cost {
            flops: self.flops.saturating_mul(times),
            transcendentals: self.transcendentals.saturating_mul(times),
            bytes: self.bytes.saturating_mul(times),
        }
    }
}

impl Cost {
    /// The same with no memory traffic: what it costs inside a fusion.
    fn in_registers(self) -> Cost {
        Cost { bytes: 0, ..self }
    }
}

/// How often a computation runs in one run of the module.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Runs {
    /// Runs in which its values go through memory.
    pub in_memory: u64,
    /// Runs inside fusions.
    pub fused: u64,
}

/// What a module costs.
#[derive(Clone, Debug)]
pub struct ModuleCost {
    own: SideTable<InstructionId, Cost>,
    runs: SideTable<ComputationId, Runs>,
    /// One run of the entry computation.
    pub total: Cost,
    /// Loops that run an unknown number of times; each is counted as if it ran once.
    pub unknown_trip_counts: Vec<InstructionId>,
}

impl ModuleCost {
    /// What one execution of the instruction itself costs. The computations it applies to elements (a reduction's)
    /// are part of that; those it runs as a whole (a loop's body, a fusion's) are not.
    pub fn own(&self, id: InstructionId) -> Cost {
        self.own[id]
    }

    /// How often the computation runs. Computations that are applied to elements do not run as such.
    pub fn runs(&self, id: ComputationId) -> Runs {
        self.runs[id]
    }

    /// What all executions of the instruction together cost, in one run of the module.
    pub fn all_runs(&self, module: &Module, id: InstructionId) -> Cost {
        let runs = self.runs[module.instruction(id).parent()];
        self.own[id] * runs.in_memory + self.own[id].in_registers() * runs.fused
    }
}

/// A computation that an instruction runs as a whole, and how.
struct Run {
    computation: ComputationId,
    times: u64,
    fused: bool,
}

/// What `module` costs to run once on each device.
pub fn cost(module: &VerifiedModule) -> ModuleCost {
    let module = module.module();
    let order = callees_first(module);
    let mut result = ModuleCost {
        own: SideTable::with_len(module.instruction_slots(), Cost::default()),
        runs: SideTable::with_len(module.computation_slots(), Runs::default()),
        total: Cost::default(),
        unknown_trip_counts: Vec::new(),
    };
    let mut whole: SideTable<ComputationId, Cost> = SideTable::with_len(module.computation_slots(), Cost::default());
    let mut fused_bytes = bytes::FusedBytes::default();
    for &computation in &order {
        let mut sum = Cost::default();
        for &id in module.computation(computation).instructions() {
            let own = flops::own(module, id, &whole) + fused_bytes.own(module, id);
            result.own.set(id, own);
            sum += own;
            for run in runs_of(module, id, &whole) {
                let callee = whole[run.computation] * run.times;
                sum += if run.fused { callee.in_registers() } else { callee };
            }
            if matches!(module.instruction(id).op, Op::While { .. })
                && known_trip_count(module.instruction(id)).is_none()
            {
                result.unknown_trip_counts.push(id);
            }
        }
        whole.set(computation, sum);
    }
    if let Some(entry) = module.entry() {
        result.total = whole[entry];
        result.runs.get_mut(entry).in_memory = 1;
    }
    for &caller in order.iter().rev() {
        let runs = result.runs[caller];
        if runs == Runs::default() {
            continue;
        }
        for &id in module.computation(caller).instructions() {
            for run in runs_of(module, id, &whole) {
                let callee = result.runs.get_mut(run.computation);
                let add = |to: &mut u64, n: u64| *to = to.saturating_add(n.saturating_mul(run.times));
                add(&mut callee.fused, runs.fused);
                add(if run.fused { &mut callee.fused } else { &mut callee.in_memory }, runs.in_memory);
            }
        }
    }
    result
}

/// The computations that the instruction runs as a whole. `whole` tells which branch of a conditional costs most.
fn runs_of(module: &Module, id: InstructionId, whole: &SideTable<ComputationId, Cost>) -> Vec<Run> {
    let instruction = module.instruction(id);
    let once = |computation| Run { computation, times: 1, fused: false };
    match &instruction.op {
        Op::Call { to_apply, .. } => vec![once(*to_apply)],
        Op::AsyncStart(start) => vec![once(start.calls)],
        Op::Fusion(fusion) => vec![Run { fused: true, ..once(fusion.calls) }],
        Op::While { condition, body } => {
            let times = known_trip_count(instruction).unwrap_or(1);
            vec![
                Run { times, ..once(*body) },
                // The condition is asked once more than it says yes.
                Run { times: times.saturating_add(1), ..once(*condition) },
            ]
        }
        Op::Conditional { branches } => {
            let price = |c: &ComputationId| {
                let cost = whole[*c];
                (cost.flops.saturating_add(cost.transcendentals), cost.bytes)
            };
            branches.iter().copied().max_by_key(price).map(once).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Every computation of the module once, after all that it calls. Without recursion: calls may nest deeply.
fn callees_first(module: &Module) -> Vec<ComputationId> {
    let mut order = Vec::with_capacity(module.computations().len());
    let mut seen = vec![false; module.computation_slots()];
    let mut stack: Vec<(ComputationId, Vec<ComputationId>)> = Vec::new();
    let callees = |c: ComputationId| -> Vec<ComputationId> {
        let instructions = module.computation(c).instructions();
        instructions.iter().flat_map(|&i| module.instruction(i).op.called_computations()).collect()
    };
    for &start in module.computations() {
        if std::mem::replace(&mut seen[start.index()], true) {
            continue;
        }
        stack.push((start, callees(start)));
        while let Some((computation, pending)) = stack.last_mut() {
            match pending.pop() {
                Some(callee) => {
                    if !std::mem::replace(&mut seen[callee.index()], true) {
                        stack.push((callee, callees(callee)));
                    }
                }
                None => {
                    order.push(*computation);
                    stack.pop();
                }
            }
        }
    }
    order
}

#[cfg(test)]
mod tests;
