//! A scheduled module as what a device does one after another: kernels, movements that are started and waited for, loops
//! and calls. What takes no time is left out.
//!
//! Everything that can be wrong with the input is found here: calls without a cost, loops without a trip count,
//! estimates that are missing, memories that the target lacks.

use crate::options::{CycleSource, Options};
use hloom_analysis::trip_count::trip_count;
use hloom_cost::custom_call::is_estimated_as_attention;
use hloom_cost::dumped::estimated_cycles;
use hloom_cost::{Bound, CollectiveKind, CostModel, InstructionCost, carried_chain};
use hloom_ir::diagnostic::codes::simulate::{NO_DUMPED_CYCLES, UNKNOWN_COST, UNKNOWN_TRIP_COUNT};
use hloom_ir::diagnostic::{Blame, Diagnostic, Part};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use hloom_target::Target;
use rustc_hash::FxHashMap;

/// One thing that a device does.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) instruction: InstructionId,
    pub(crate) action: Action,
}

/// What it does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Runs a kernel.
    Compute(InstructionCost),
    /// Starts a movement and goes on.
    Start(Movement),
    /// Waits for the movement that this instruction started; for the oldest there is, where nobody can tell which.
    Wait(Option<InstructionId>),
    /// Starts a movement and waits for it.
    Exchange(Movement),
    /// Runs a computation.
    Call(ComputationId),
    /// Runs a body so many times, and a condition before each and once more. A round takes at least so many seconds, for
    /// which the next waits for what it makes.
    Loop { condition: ComputationId, body: ComputationId, trips: u64, least_round: f64 },
}

/// Data on their way, beside the kernels.
#[derive(Clone, Debug)]
pub(crate) enum Movement {
    /// Between memories of a device.
    Copy { bytes: f64 },
    /// Between the devices of each replica group of the instruction.
    Collective { of: InstructionId, kind: CollectiveKind, bytes: f64 },
    /// From device to device.
    Permute { of: InstructionId, bytes: f64 },
    /// To or from another device that is not named.
    Send { bytes: f64 },
    /// A kernel on another thread of the device.
    Kernel(InstructionCost),
}

/// The steps of every computation that runs as such.
pub(crate) struct Program {
    bodies: Vec<Option<Vec<Step>>>,
    pub(crate) entry: ComputationId,
    /// How often each computation runs in one run of the program.
    pub(crate) runs: Vec<f64>,
    /// What someone may want to know.
    pub(crate) warnings: Vec<Diagnostic>,
}

impl Program {
    /// The steps of a computation.
    pub(crate) fn steps(&self, computation: ComputationId) -> &[Step] {
        self.bodies.get(computation.index()).and_then(Option::as_ref).map_or(&[], Vec::as_slice)
    }

    /// The steps of the module, or everything that is wrong with it.
    pub(crate) fn new(module: &Module, model: &CostModel<'_>, options: &Options) -> Result<Program, Vec<Diagnostic>> {
        let Some(entry) = module.entry() else { return Err(Vec::new()) };
        let mut maker =
            Maker { module, model, options, errors: Vec::new(), unestimated: Vec::new(), attention: Vec::new() };
        let mut bodies: Vec<Option<Vec<Step>>> = vec![None; module.computation_slots()];
        let mut pending = vec![(entry, false)];
        while let Some((computation, is_repeated)) = pending.pop() {
            if bodies[computation.index()].is_some() {
                continue;
            }
            let steps = maker.steps(computation, is_repeated);
            for step in &steps {
                match &step.action {
                    Action::Call(callee) => pending.push((*callee, is_repeated)),
                    Action::Loop { condition, body, .. } => pending.extend([(*condition, true), (*body, true)]),
                    _ => {}
                }
            }
            bodies[computation.index()] = Some(steps);
        }
        maker.missing_estimates();
        if !maker.errors.is_empty() {
            return Err(maker.errors);
        }
        let runs = runs(&bodies, entry, module);
        Ok(Program { bodies, entry, runs, warnings: maker.taken_for_attention() })
    }
}

/// How often each computation runs: calls form no circle, so callers are done before what they call.
fn runs(bodies: &[Option<Vec<Step>>], entry: ComputationId, module: &Module) -> Vec<f64> {
    let mut callees: Vec<Vec<ComputationId>> = vec![Vec::new(); module.computation_slots()];
    let mut times: Vec<Vec<(ComputationId, f64)>> = vec![Vec::new(); module.computation_slots()];
    for (n, steps) in bodies.iter().enumerate() {
        for step in steps.iter().flatten() {
            match &step.action {
                Action::Call(callee) => times[n].push((*callee, 1.0)),
                Action::Loop { condition, body, trips, .. } => {
                    times[n].extend([(*body, *trips as f64), (*condition, *trips as f64 + 1.0)]);
                }
                _ => {}
            }
        }
        callees[n].extend(times[n].iter().map(|t| t.0));
    }
    let mut runs = vec![0.0; module.computation_slots()];
    runs[entry.index()] = 1.0;
    for computation in hloom_ir::order::computations_by_calls(module, &callees).into_iter().rev() {
        for &(callee, n) in &times[computation.index()] {
            runs[callee.index()] += runs[computation.index()] * n;
        }
    }
    runs
}

struct Maker<'m, 'o> {
    module: &'m Module,
    model: &'o CostModel<'m>,
    options: &'o Options,
    errors: Vec<Diagnostic>,
    unestimated: Vec<InstructionId>,
    /// Calls that were taken for attention: the first of each target, and how many.
    attention: Vec<(InstructionId, Box<str>, usize)>,
}

/// So many errors of one kind are told.
const MOST_ERRORS: usize = 8;

impl Maker<'_, '_> {
    /// The steps of a computation; of one that is in a loop where it `is_repeated`.
    fn steps(&mut self, computation: ComputationId, is_repeated: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        // The collectives that were started inside of fusions, by channel and chain.
        let mut chains: FxHashMap<(Option<i64>, String), InstructionId> = FxHashMap::default();
        for &id in self.module[computation].instructions() {
            match self.action(id, &mut chains) {
                Ok(Some(Action::Compute(cost))) if is_repeated => {
                    steps.push(Step { instruction: id, action: Action::Compute(self.repeated(cost)) });
                }
                Ok(Some(action)) => steps.push(Step { instruction: id, action }),
                Ok(None) => {}
                Err(fault) if self.errors.len() < MOST_ERRORS => self.errors.push(fault),
                Err(_) => {}
            }
        }
        steps
    }

    fn action(
        &mut self,
        id: InstructionId,
        chains: &mut FxHashMap<(Option<i64>, String), InstructionId>,
    ) -> Result<Option<Action>, Diagnostic> {
        let module = self.module;
        let instruction = &module[id];
        let operand = instruction.operands().first().copied();
        Ok(Some(match &instruction.op {
            Op::While { condition, body } => {
                let trips = self.trips(id)?;
                let least_round = carried_chain(module, *body) * self.target().compute.operation_seconds;
                Action::Loop { condition: *condition, body: *body, trips, least_round }
            }
            Op::Call { to_apply, .. } => Action::Call(*to_apply),
            Op::Conditional { branches } => match self.longest(branches) {
                Some(branch) => Action::Call(branch),
                None => return Ok(None),
            },
            Op::CopyStart { .. } => Action::Start(Movement::Copy { bytes: self.operand_bytes(id) }),
            Op::AllGatherStart(_) | Op::AllReduceStart(_) => Action::Start(self.collective(id)),
            Op::CollectivePermuteStart(_) => Action::Start(Movement::Permute { of: id, bytes: self.operand_bytes(id) }),
            Op::AsyncStart(start) => Action::Start(self.wrapped(start.calls)?),
            Op::Send(_) => Action::Start(Movement::Send { bytes: self.operand_bytes(id) }),
            Op::CopyDone
            | Op::AllGatherDone
            | Op::AllReduceDone
            | Op::CollectivePermuteDone
            | Op::AsyncDone
            | Op::SendDone(_) => Action::Wait(operand.and_then(|o| self.start_of(o))),
            Op::CollectivePermute(_) => Action::Exchange(Movement::Permute { of: id, bytes: self.operand_bytes(id) }),
            op if op.collective().is_some() => Action::Exchange(self.collective(id)),
            Op::Fusion(fusion) => match self.fused_collective(fusion.calls) {
                Some(CollectivePart::Start(of, chain)) => {
                    chains.insert(chain, id);
                    Action::Start(self.collective(of))
                }
                Some(CollectivePart::Done(chain)) => Action::Wait(chains.get(&chain).copied()),
                Some(CollectivePart::Whole(of)) if fusion.kind == hloom_ir::attributes::FusionKind::Custom => {
                    Action::Exchange(self.collective_as(of, fusion.calls))
                }
                _ => return self.kernel(id),
            },
            _ => return self.kernel(id),
        }))
    }

    fn kernel(&mut self, id: InstructionId) -> Result<Option<Action>, Diagnostic> {
        let module = self.module;
        let mut cost = self.model.instruction(id)?;
        if let Op::CustomCall(call) = &module[id].op
            && is_estimated_as_attention(&call.target)
            && !self.options.costs.iter().any(|(name, _)| **name == *call.target || name == module[id].name())
        {
            let known = self.attention.iter_mut().find(|(_, target, _)| target == &call.target);
            match known {
                Some((_, _, count)) => *count += 1,
                None => self.attention.push((id, call.target.clone(), 1)),
            }
        }
        if self.options.cycles == CycleSource::Dump {
            match estimated_cycles(&module[id]) {
                Some(cycles) => {
                    let seconds = cycles as f64 / self.model.target().clock()?;
                    let scale = if cost.seconds > 0.0 { seconds / cost.seconds } else { 1.0 };
                    cost.compute_seconds *= scale;
                    cost.memory_seconds *= scale;
                    cost.latency_seconds *= scale;
                    (cost.seconds, cost.cycles) = (seconds, Some(cycles as f64));
                }
                None if self.model.is_estimated(id) => self.unestimated.push(id),
                None => {}
            }
        }
        Ok((cost.seconds > 0.0).then_some(Action::Compute(cost)))
    }

    /// A kernel in a loop, where starting it may cost less.
    fn repeated(&self, cost: InstructionCost) -> InstructionCost {
        let compute = &self.target().compute;
        let Some(launch) = compute.loop_launch_seconds else { return cost };
        let saved = compute.launch_seconds - launch;
        let (seconds, latency_seconds) = (cost.seconds - saved, cost.latency_seconds - saved);
        InstructionCost { seconds, latency_seconds, cycles: compute.clock_hz.map(|hz| seconds * hz), ..cost }
    }

    /// Warnings of calls whose cost is that of attention, by their name.
    fn taken_for_attention(&self) -> Vec<Diagnostic> {
        let warning = |(id, target, count): &(InstructionId, Box<str>, usize)| {
            let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
            let message = format!("`{target}`, which is called {times}, is taken for attention");
            Diagnostic::warning(&UNKNOWN_COST, message)
                .at_instruction(*id, Part::Attribute("custom_call_target"))
                .help(format!("`--cost {target}=…` says what it costs"))
        };
        self.attention.iter().map(warning).collect()
    }

    fn missing_estimates(&mut self) {
        let Some(&first) = self.unestimated.first() else { return };
        let others = self.unestimated.len() - 1;
        let more = if others > 0 { format!(", nor do {others} others") } else { String::new() };
        let name = self.module[first].name();
        let message = format!("`{name}` does work and carries no `estimated_cycles`{more}");
        self.errors.push(
            Diagnostic::error(&NO_DUMPED_CYCLES, message)
                .at_instruction(first, Part::Whole)
                .help("`--cycles model` computes them"),
        );
    }

    fn trips(&self, id: InstructionId) -> Result<u64, Diagnostic> {
        let name = self.module[id].name();
        let given = self.options.trip_counts.iter().find(|(n, _)| n == name).map(|(_, trips)| *trips);
        given.or_else(|| trip_count(self.module, id)).ok_or_else(|| {
            Diagnostic::error(&UNKNOWN_TRIP_COUNT, format!("how often the loop `{name}` runs is not known"))
                .at_instruction(id, Part::Whole)
                .blame(Blame::Data)
                .help(format!("say it with `--trip-count {name}=N`"))
        })
    }

    /// The branch whose own instructions take longest; what they call is not looked at.
    fn longest(&self, branches: &[ComputationId]) -> Option<ComputationId> {
        let seconds = |c: &ComputationId| {
            let own = |&id: &InstructionId| self.model.instruction(id).map_or(0.0, |cost| cost.seconds);
            self.module[*c].instructions().iter().map(own).sum::<f64>()
        };
        branches.iter().copied().max_by(|a, b| seconds(a).total_cmp(&seconds(b)))
    }

    /// What an async-start's computation is: a collective, a copy, or a kernel.
    fn wrapped(&self, computation: ComputationId) -> Result<Movement, Diagnostic> {
        let Some(root) = self.module.root(computation) else { return Ok(Movement::Copy { bytes: 0.0 }) };
        Ok(match &self.module[root].op {
            op if op.collective().is_some() => self.collective(root),
            Op::CollectivePermute(_) => Movement::Permute { of: root, bytes: self.operand_bytes(root) },
            Op::Copy | Op::Slice { .. } | Op::DynamicSlice { .. } | Op::DynamicUpdateSlice | Op::Bitcast => {
                let moved = match self.module[root].op {
                    Op::DynamicUpdateSlice => self.module[root].operands().get(1).map_or(0.0, |&u| self.bytes(u)),
                    _ => self.bytes(root),
                };
                Movement::Copy { bytes: moved }
            }
            _ => {
                let mut sum = InstructionCost::free();
                for &id in self.module[computation].instructions() {
                    let cost = self.model.instruction(id)?;
                    sum.seconds += cost.seconds;
                    sum.compute_seconds += cost.compute_seconds;
                    sum.memory_seconds += cost.memory_seconds;
                    sum.latency_seconds += cost.latency_seconds;
                    sum.flops += cost.flops;
                    sum.matmul_flops += cost.matmul_flops;
                    sum.bytes += cost.bytes;
                }
                Movement::Kernel(sum)
            }
        })
    }

    /// The start of an asynchronous chain that an operand of a done belongs to.
    fn start_of(&self, operand: InstructionId) -> Option<InstructionId> {
        let mut id = operand;
        loop {
            match &self.module[id].op {
                Op::AsyncUpdate { .. } => id = *self.module[id].operands().first()?,
                Op::CopyStart { .. }
                | Op::AllGatherStart(_)
                | Op::AllReduceStart(_)
                | Op::CollectivePermuteStart(_)
                | Op::AsyncStart(_)
                | Op::Send(_) => return Some(id),
                _ => return None,
            }
        }
    }

    /// The collective inside of a fused computation, and which part of it the fusion is.
    fn fused_collective(&self, computation: ComputationId) -> Option<CollectivePart> {
        let module = self.module;
        let instructions = module[computation].instructions();
        let of = instructions.iter().copied().find(|&i| module[i].op.collective().is_some())?;
        let chain = module[of].common.frontend_attribute("chain_id").unwrap_or_default().to_owned();
        let chain = (module[of].op.channel_id(), chain);
        let calls = |name: &str| {
            instructions.iter().any(|&i| matches!(&module[i].op, Op::CustomCall(call) if &*call.target == name))
        };
        Some(if calls("AsyncCollectiveStart") {
            CollectivePart::Start(of, chain)
        } else if calls("AsyncCollectiveDone") {
            CollectivePart::Done(chain)
        } else {
            CollectivePart::Whole(of)
        })
    }

    fn collective(&self, of: InstructionId) -> Movement {
        let kind = CollectiveKind::of(&self.module[of].op).unwrap_or(CollectiveKind::Broadcast);
        // A gather's array is what it makes; the start names its operands beside that.
        let bytes = match (&self.module[of].op, &self.module[of].shape) {
            (Op::AllGatherStart(_), Shape::Tuple(parts)) => parts.get(1).map_or(0.0, |s| shape_bytes(s, self.target())),
            (Op::AllGather(_), _) => self.bytes(of),
            _ => self.operand_bytes(of),
        };
        Movement::Collective { of, kind, bytes }
    }

    /// A fusion around an all-reduce that keeps a part of the sum is a reduce-scatter.
    fn collective_as(&self, of: InstructionId, computation: ComputationId) -> Movement {
        let root = self.module.root(computation);
        let keeps_part = root.is_some_and(|r| matches!(self.module[r].op, Op::DynamicSlice { .. }));
        match self.collective(of) {
            Movement::Collective { of, kind: CollectiveKind::AllReduce, bytes } if keeps_part => {
                Movement::Collective { of, kind: CollectiveKind::ReduceScatter, bytes }
            }
            other => other,
        }
    }

    fn target(&self) -> &Target {
        self.model.target()
    }

    fn bytes(&self, id: InstructionId) -> f64 {
        shape_bytes(&self.module[id].shape, self.target())
    }

    fn operand_bytes(&self, id: InstructionId) -> f64 {
        self.module[id].operands().iter().map(|&o| self.bytes(o)).sum()
    }
}

/// Which part of a collective a fusion is.
enum CollectivePart {
    Start(InstructionId, (Option<i64>, String)),
    Done((Option<i64>, String)),
    Whole(InstructionId),
}

/// Bytes of all arrays in a shape, padding included.
fn shape_bytes(shape: &Shape, target: &Target) -> f64 {
    match shape {
        Shape::Array(a) | Shape::Buffer(a) => target.array_bytes(a).map_or(0.0, |b| b as f64),
        Shape::Tuple(_) => {
            let leaves = shape.leaves();
            leaves.iter().filter_map(|(_, s)| Some(target.array_bytes(s.as_array_or_buffer()?)? as f64)).sum()
        }
        Shape::Token | Shape::Opaque => 0.0,
    }
}

/// What a movement is bound by.
pub(crate) fn bound_of(movement: &Movement) -> Bound {
    match movement {
        Movement::Copy { .. } => Bound::Memory,
        Movement::Kernel(cost) => cost.bound(),
        _ => Bound::Network,
    }
}
