//! Orders for modules that have none yet: plain topological order, and one that keeps little memory live at once.
//!
//! Computations are ordered one by one, callees first, so that a caller knows what each call takes. Several orders are
//! made for each and run through a simulation of the bytes live at every step, and the best is kept. Every order has operands and control predecessors before what needs them,
//! and keeps what talks to the world outside (sends, receives, feeds, random numbers) in the order in which it stands.
//! The result follows from the module alone, and costs little more than sorting.

mod graph;
mod memory;
mod orders;
mod simulate;

use crate::in_place::InPlace;
use crate::order::flow_callees;
use crate::positions::Positions;
use graph::Graph;
use hloom_analysis::effects::{has_side_effect, instructions_with};
use hloom_ir::diagnostic::codes::plan::TOO_LARGE;
use hloom_ir::diagnostic::codes::verify::CYCLE;
use hloom_ir::diagnostic::{Diagnostic, Part};
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::order::computations_by_calls;
use hloom_target::Target;
use memory::Model;

/// How a module is scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheduler {
    /// In the order in which it stands, as far as dependencies allow.
    Topological,
    /// With as little memory live at once as can be found.
    Memory,
}

/// What a schedule comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scheduled {
    /// The most bytes of main memory that are live at once, temporaries and results; parameters, constants and the
    /// filling between values aside.
    pub peak: i128,
    /// The same in topological order.
    pub topological_peak: i128,
    /// How many computations stand in another order than before.
    pub reordered: usize,
}

/// Orders the instructions of every computation and marks the module as scheduled. Sizes are those of values on `target`.
/// Fails, and leaves the module as it was, where instructions need one another.
pub fn schedule(module: &mut Module, scheduler: Scheduler, target: &Target) -> Result<Scheduled, Diagnostic> {
    let (orders, scheduled) = orders_of(module, scheduler, target)?;
    for (computation, order) in orders {
        // An order has every instruction once, so it is not refused.
        let _ = module.reorder(computation, order);
    }
    module.is_scheduled = true;
    Ok(scheduled)
}

type Orders = Vec<(ComputationId, Vec<InstructionId>)>;

fn orders_of(module: &Module, scheduler: Scheduler, target: &Target) -> Result<(Orders, Scheduled), Diagnostic> {
    let Some(positions) = Positions::new(module) else {
        return Err(Diagnostic::error(&TOO_LARGE, "the module's results have more than 2^32 parts".to_owned()));
    };
    let callees_first = callees_first(module);
    let in_place = InPlace::new(module, &callees_first);
    let is_step = steps(module);
    // What others can see keeps its order, and so do draws of random numbers: each changes what the next one gets.
    let (effects, _) = instructions_with(module, |op| has_side_effect(op) || matches!(op, Op::Rng { .. }));
    let mut model = Model::new(&positions, &in_place, target);
    let mut local = vec![0; module.instruction_slots()];
    let mut orders = Vec::new();
    // The peak of each computation, in the order chosen and in topological order.
    let mut peaks = vec![(0i128, 0i128); module.computation_slots()];
    for &computation in &callees_first {
        let stored = module[computation].instructions();
        let graph = Graph::new(module, computation, &mut local, &effects);
        let topological = graph.topological().map_err(|at| cycle(module, stored[at as usize]))?;
        let mut chosen = topological.clone();
        if is_step[computation.index()] {
            let mut memory = model.computation(computation, &topological);
            let inner = |of: fn(&(i128, i128)) -> i128| -> Vec<i128> {
                let called = |&id: &InstructionId| flow_callees(module, id);
                let most = |id| called(id).iter().map(|c| of(&peaks[c.index()])).max().unwrap_or(0);
                stored.iter().map(most).collect()
            };
            memory.inner = inner(|p| p.1);
            let topological_peak = simulate::peak(&memory, &topological);
            memory.inner = inner(|p| p.0);
            let mut peak = simulate::peak(&memory, &topological);
            if scheduler == Scheduler::Memory {
                let found = orders::least(graph, &memory, topological);
                (peak, chosen) = (found.peak, found.order);
            }
            peaks[computation.index()] = (peak, topological_peak);
        }
        let order: Vec<InstructionId> = parameters_first(module, stored, &chosen);
        if order != stored {
            orders.push((computation, order));
        }
    }
    let (peak, topological_peak) = module.entry().map_or((0, 0), |e| peaks[e.index()]);
    let reordered = orders.len();
    Ok((orders, Scheduled { peak, topological_peak, reordered }))
}

fn cycle(module: &Module, at: InstructionId) -> Diagnostic {
    let message = format!("`{}` cannot be scheduled: it needs its own result", module[at].name());
    Diagnostic::error(&CYCLE, message).at_instruction(at, Part::Whole)
}

fn callees_first(module: &Module) -> Vec<ComputationId> {
    let mut callees: Vec<Vec<ComputationId>> = vec![Vec::new(); module.computation_slots()];
    for &computation in module.computations() {
        for &id in module[computation].instructions() {
            callees[computation.index()].extend(module[id].op.called_computations());
        }
    }
    computations_by_calls(module, &callees)
}

/// Which computations run as steps of the program: only there does the order decide what is live.
fn steps(module: &Module) -> Vec<bool> {
    let mut is_step = vec![false; module.computation_slots()];
    if let Some(entry) = module.entry() {
        is_step[entry.index()] = true;
    }
    for &computation in module.computations() {
        for &id in module[computation].instructions() {
            flow_callees(module, id).iter().for_each(|c| is_step[c.index()] = true);
        }
    }
    is_step
}

/// Parameters cost nothing where they stand: they come first, as a reader expects.
fn parameters_first(module: &Module, stored: &[InstructionId], order: &[u32]) -> Vec<InstructionId> {
    let is_first = |id: &InstructionId| {
        matches!(module[*id].op, Op::Parameter { .. }) && module[*id].common.control_predecessors().is_empty()
    };
    let rest = order.iter().map(|&i| stored[i as usize]).filter(|id| !is_first(id));
    stored.iter().copied().filter(is_first).chain(rest).collect()
}
