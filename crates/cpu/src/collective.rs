//! Collectives in the memory of the devices: sums, gathers and exchanges without a copy of anything.
//!
//! Each device brings the addresses of its arrays to the meeting; the last to come reads what all have and writes what all
//! get, on as many threads as there are. The others go on meanwhile with what does not touch these arrays, and wait when
//! the list says so. A device that leaves before says so (`RunContext::gone`): nobody touches the memory of one that is gone.

use crate::collective_kernel::CollectiveKernel;
use crate::executor::{ThunkExecutor, waiting};
use crate::thunk::{Evaluate, EvaluatedLeaf, Thunk};
use hloom_analysis::devices::{group_of, plane_of};
use hloom_comm::{Arrival, JoinError, JoinRequest, RendezvousKey};
use hloom_eval::ops::collective::missed;
use hloom_eval::run::DeviceGrid;
use hloom_ir::diagnostic::codes;
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_value::{Array, ExecutionError, Value};
use std::sync::PoisonError;

/// A collective. Its arrays are the operands, then as many results.
#[derive(Debug)]
pub(crate) struct Collective {
    /// What is done with the arrays.
    exchange: CollectiveKernel,
    /// For groups that it cannot serve.
    otherwise: Evaluate,
    /// Whether there is a step that waits for it.
    pub(crate) is_awaited: bool,
}

/// A meeting that a device came to.
#[derive(Debug)]
pub(crate) struct Pending {
    instruction: InstructionId,
    arrival: Arrival,
    group: Vec<usize>,
}

impl Collective {
    /// The collective that an instruction is, if it is one of these.
    pub(crate) fn new(module: &Module, id: InstructionId, otherwise: Evaluate) -> Option<Collective> {
        let count = module[id].operands().len();
        let has_places =
            otherwise.results.len() == count && otherwise.results.iter().all(|&r| r == EvaluatedLeaf::Array);
        if !has_places {
            return None;
        }
        Some(Collective { exchange: CollectiveKernel::new(module, id)?, otherwise, is_awaited: false })
    }
}

/// The devices that meet, in their order.
pub(crate) fn group(op: &Op, grid: DeviceGrid, ordinal: usize) -> Option<Vec<usize>> {
    match op {
        Op::CollectivePermute(permute) => Some(plane_of(permute.channel_id.is_some(), grid, ordinal)),
        _ => group_of(op, grid, ordinal),
    }
}

/// Comes to the meeting of a collective, and waits for it unless a later step does.
pub(crate) fn run(
    executor: &mut ThunkExecutor<'_>,
    step: &Thunk,
    collective: &Collective,
) -> Result<(), ExecutionError> {
    let shared = executor.device.as_ref().ok_or_else(|| ExecutionError::bug("the evaluator is not there"))?.shared;
    let i = step.instruction;
    let instruction = &shared.module[i];
    let group = group(&instruction.op, shared.grid, executor.ordinal).filter(|g| collective.exchange.fits(g.len()));
    let Some(group) = group else { return executor.evaluate(step, &collective.otherwise) };
    let key = match instruction.op.channel_id() {
        Some(channel) => RendezvousKey::Channel(channel),
        None => RendezvousKey::Instruction(i.index()),
    };
    let what = format!("{} of {}", instruction.opcode(), instruction.shape.without_layout());
    let meeting = JoinRequest { key, participants: &group, what: &what };
    let arrays = &executor.addresses[step.arrays.start as usize..step.arrays.end as usize];
    let addresses: Vec<u64> = arrays.iter().map(|&a| a as u64).collect();
    let brings = Value::Array(
        Array::new(&[addresses.len() as i64], &addresses)
            .ok_or_else(|| ExecutionError::bug("a list of addresses is an array"))?,
    );
    let gone = executor.context.gone;
    let (pool, threads) = (executor.client.pool(), executor.context.threads);
    let finish = |brought: Vec<Value>| {
        let gone = gone.read().unwrap_or_else(PoisonError::into_inner);
        if group.iter().any(|d| gone.contains(d)) {
            return Err(ExecutionError::new(&codes::eval::CANCELLED, "the run was cancelled"));
        }
        let mut devices: Vec<Vec<usize>> = Vec::new();
        for value in &brought {
            devices.push(value.as_array()?.elements::<u64>().iter().map(|&a| a as usize).collect());
        }
        let arrays = 2 * collective.otherwise.operands.len();
        if devices.iter().any(|d| d.len() != arrays) {
            return Err(ExecutionError::bug("a device brings too few arrays"));
        }
        // SAFETY: the addresses are those of the instruction's arrays on each device, which none of them uses before it
        // has waited for this to end; who is gone is not among them.
        unsafe { collective.exchange.run(&devices, pool, threads) };
        Ok(vec![Value::Token; brought.len()])
    };
    match shared.rendezvous.arrive(executor.ordinal, &meeting, brings, finish) {
        Ok(Ok(arrival)) => executor.pending.push(Pending { instruction: i, arrival, group }),
        Ok(Err(fault)) => return Err(fault),
        Err(miss) => return Err(left(executor, i, &group, miss)),
    }
    if collective.is_awaited { Ok(()) } else { wait(executor, step) }
}

/// Waits for a collective that the device came to.
pub(crate) fn wait(executor: &mut ThunkExecutor<'_>, step: &Thunk) -> Result<(), ExecutionError> {
    let shared = executor.device.as_ref().ok_or_else(|| ExecutionError::bug("the evaluator is not there"))?.shared;
    // What had to be left to the evaluator is done.
    let Some(n) = executor.pending.iter().position(|p| p.instruction == step.instruction) else { return Ok(()) };
    let (ordinal, arrival) = (executor.ordinal, &executor.pending[n].arrival);
    if shared.rendezvous.try_take(arrival).is_none()
        && let Err(miss) = waiting(&mut executor.permit, || shared.rendezvous.wait_for(ordinal, arrival))
    {
        let group = executor.pending[n].group.clone();
        return Err(left(executor, step.instruction, &group, miss));
    }
    executor.pending.swap_remove(n);
    Ok(())
}

/// Says that the device leaves, and why.
fn left(executor: &ThunkExecutor<'_>, i: InstructionId, group: &[usize], miss: JoinError) -> ExecutionError {
    executor.context.gone.write().unwrap_or_else(PoisonError::into_inner).push(executor.ordinal);
    match &executor.device {
        Some(device) => missed(device, i, group, miss),
        None => ExecutionError::bug("the evaluator is not there"),
    }
}
