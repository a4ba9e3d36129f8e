//! Whether a program may gain from concurrent thunks, asked before its memory is planned.
//!
//! Where small values take each other's places, steps that have nothing to do with each other wait for one another. Memory
//! in which they do not is only asked for if the module, by a rough estimate of its instructions' times, has small ones
//! that could run beside each other.

use hloom_analysis::cost::{Cost, ModuleCost, cost, known_trip_count};
use hloom_cost::{CoreCost, element};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::op::{Op, UnaryOp};
use hloom_ir::verify::VerifiedModule;
use rustc_hash::FxHashMap;

/// Whether concurrent thunks on so many threads may pay.
pub(crate) fn may_fork(module: &VerifiedModule, threads: usize, core: &CoreCost) -> bool {
    if threads < 2 {
        return false;
    }
    let cost = cost(module);
    let module = module.module();
    let times = SideTable::with_len(module.computation_slots(), None);
    let mut estimate = Estimate { module, cost: &cost, core, times };
    let Some(entry) = module.entry() else { return false };
    let mut pending = vec![entry];
    let mut seen = SideTable::with_len(module.computation_slots(), false);
    while let Some(computation) = pending.pop() {
        if std::mem::replace(seen.get_mut(computation), true) {
            continue;
        }
        if estimate.gains(computation, threads) {
            return true;
        }
        for &i in module[computation].instructions() {
            match &module[i].op {
                Op::While { body, .. } => pending.push(*body),
                Op::Conditional { branches } => pending.extend(branches.iter()),
                Op::Call { to_apply, .. } => pending.push(*to_apply),
                _ => {}
            }
        }
    }
    false
}

/// How deep computations are looked into.
const MAX_DEPTH: usize = 64;

struct Estimate<'e> {
    module: &'e Module,
    cost: &'e ModuleCost,
    core: &'e CoreCost,
    /// The nanoseconds of a run of each computation whose instructions could all be a part of a task.
    times: SideTable<ComputationId, Option<Option<f64>>>,
}

impl Estimate<'_> {
    fn nanoseconds(&self, cost: Cost) -> f64 {
        let exponential = element::unary(UnaryOp::Exponential, ElementType::F32);
        let additions = cost.flops as f64 + exponential * cost.transcendentals as f64;
        additions * self.core.addition + cost.bytes as f64 * self.core.far_byte
    }

    /// Nanoseconds on one thread; `None` for what runs alone.
    fn time(&mut self, i: InstructionId, depth: usize) -> Option<f64> {
        let instruction = &self.module[i];
        let own = self.nanoseconds(self.cost.own(i));
        let time = match &instruction.op {
            Op::Fusion(fusion) => own + self.of(fusion.calls, depth + 1)?,
            Op::While { condition, body } => {
                let iteration = self.of(*condition, depth + 1)? + self.of(*body, depth + 1)?;
                return Some(iteration * known_trip_count(instruction).map_or(self.core.assumed_trips, |n| n as f64));
            }
            Op::Conditional { branches } => {
                let times = branches.iter().map(|&b| self.of(b, depth + 1)).collect::<Option<Vec<_>>>()?;
                return Some(times.into_iter().fold(0.0, f64::max));
            }
            Op::CustomCall(_) | Op::CollectivePermute(_) => return None,
            op if op.collective().is_some() => return None,
            _ => own,
        };
        (!self.core.is_shared(time)).then_some(time)
    }

    fn of(&mut self, computation: ComputationId, depth: usize) -> Option<f64> {
        if depth > MAX_DEPTH {
            return None;
        }
        if let Some(known) = self.times[computation] {
            return known;
        }
        let module = self.module;
        let all = module[computation].instructions().iter();
        let sum = all.map(|&i| self.time(i, depth)).try_fold(0.0, |sum, time| Some(sum + time?));
        self.times.set(computation, Some(sum));
        sum
    }

    /// Whether a part of a computation has enough that could run beside each other.
    fn gains(&mut self, computation: ComputationId, threads: usize) -> bool {
        let module = self.module;
        // When each would end, by the number of the part that it is in: what was before has ended.
        let mut ends: FxHashMap<InstructionId, (u32, f64)> = FxHashMap::default();
        let (mut part, mut total, mut longest) = (0u32, 0.0f64, 0.0f64);
        for &i in module[computation].instructions() {
            match self.time(i, 0) {
                Some(time) => {
                    let ended = |o| ends.get(o).filter(|e| e.0 == part).map_or(0.0, |e| e.1);
                    let begin = module[i].operands().iter().map(ended).fold(0.0, f64::max);
                    ends.insert(i, (part, begin + time));
                    longest = longest.max(begin + time);
                    total += time;
                    if self.core.is_shared(total - longest.max(total / threads as f64)) {
                        return true;
                    }
                }
                None => (part, total, longest) = (part + 1, 0.0, 0.0),
            }
        }
        false
    }
}
