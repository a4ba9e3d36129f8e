//! Control dependencies that keep the sharing of memory right in every order: who reads memory comes before who writes
//! over it.
//!
//! Within each computation, and for each piece of memory that several values share, reads and writes are in the order in
//! which the instructions stand; what happens inside of what an instruction calls happens at that instruction. Each read
//! is tied to the next write, each write to the next.

use crate::buffers::Buffers;
use crate::calls::{Calls, Context};
use crate::dataflow::Dataflow;
use crate::in_place::InPlace;
use crate::order::Orders;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_target::Target;
use rustc_hash::FxHashSet;

/// Adds the dependencies; returns how many.
pub(super) fn keep_order(module: &mut Module, target: &Target) -> Result<usize, Vec<Diagnostic>> {
    let mut pairs = {
        let module = &*module;
        let calls = Calls::new(module, target)?;
        let orders = Orders::new(module, &calls, target);
        let dataflow = Dataflow::new(module, &calls, &orders).ok_or_else(super::too_large)?;
        let in_place = InPlace::new(module, calls.post_order());
        let buffers = Buffers::new(&dataflow, &calls, &in_place);
        let mut pairs = dependencies(&dataflow, &calls, &buffers);
        // Most of what is computed leads to the root anyway.
        let leads = leads_to_root(module);
        pairs.retain(|&(later, earlier)| {
            !(leads[earlier.index()] && module.root(module[later].parent()) == Some(later))
        });
        pairs
    };
    pairs.sort_unstable();
    pairs.dedup();
    let mut added = 0;
    for of_one in pairs.chunk_by(|a, b| a.0 == b.0) {
        let Some(&(later, _)) = of_one.first() else { continue };
        let instruction = &module[later];
        let known: FxHashSet<InstructionId> =
            instruction.operands().iter().chain(instruction.common.control_predecessors()).copied().collect();
        let new: Vec<InstructionId> = of_one.iter().map(|p| p.1).filter(|earlier| !known.contains(earlier)).collect();
        if !new.is_empty() {
            added += new.len();
            module.instruction_mut(later).common.rare_mut().control_predecessors.extend(new);
        }
    }
    Ok(added)
}

/// Something that happens to a piece of memory in a computation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    computation: ComputationId,
    at: u32,
    is_write: bool,
    instruction: InstructionId,
}

fn dependencies(dataflow: &Dataflow<'_>, calls: &Calls, buffers: &Buffers) -> Vec<(InstructionId, InstructionId)> {
    let module = dataflow.module();
    let mut place = vec![0u32; module.instruction_slots()];
    for &computation in module.computations() {
        for (at, &id) in module[computation].instructions().iter().enumerate() {
            place[id.index()] = at as u32;
        }
    }
    let mut pairs = Vec::new();
    let mut events: Vec<Event> = Vec::new();
    for buffer in 0..buffers.len() as u32 {
        let values = buffers.values(buffer);
        if values.len() < 2 {
            continue;
        }
        events.clear();
        let mut note = |mut instruction: InstructionId, is_write: bool| {
            loop {
                let computation = module[instruction].parent();
                events.push(Event { computation, at: place[instruction.index()], is_write, instruction });
                match calls.context(computation) {
                    Context::Flow(caller) => instruction = caller,
                    _ => break,
                }
            }
        };
        for &value in values {
            let Some(made) = dataflow.value(value) else { continue };
            let maker = dataflow.instruction(made);
            if calls.is_global(module[maker].parent()) && !matches!(module[maker].op, Op::Parameter { .. }) {
                note(maker, true);
            }
            for usage in dataflow.uses_of(value).iter().filter(|u| calls.is_global(module[u.user].parent())) {
                note(usage.user, false);
            }
        }
        events.sort_unstable();
        events.dedup();
        for of_one in events.chunk_by(|a, b| a.computation == b.computation) {
            let mut next: Option<InstructionId> = None;
            for event in of_one.iter().rev() {
                if let Some(writer) = next.filter(|&w| w != event.instruction) {
                    pairs.push((writer, event.instruction));
                }
                if event.is_write {
                    next = Some(event.instruction);
                }
            }
        }
    }
    pairs
}

/// Whether the root of its computation reads an instruction, directly or not, by its index.
fn leads_to_root(module: &Module) -> Vec<bool> {
    let mut leads = vec![false; module.instruction_slots()];
    let mut stack: Vec<InstructionId> = module.computations().iter().filter_map(|&c| module.root(c)).collect();
    while let Some(id) = stack.pop() {
        if !std::mem::replace(&mut leads[id.index()], true) {
            stack.extend(module[id].operands());
        }
    }
    leads
}
