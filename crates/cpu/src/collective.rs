//! Collectives in the memory of the devices: sums, gathers and exchanges without a copy of anything.
//!
//! Each device brings the addresses of its arrays to the communicator, goes on with what does not touch these arrays, and
//! waits when the list says so. A device that leaves before says so: nobody touches the memory of one that is gone.

use crate::executor::{ThunkExecutor, waiting};
use crate::thunk::{Evaluate, EvaluatedLeaf, Thunk};
use hloom_analysis::devices::{group_of, plane_of};
use hloom_comm::{
    Addresses, Arrival, Collective, CollectiveRequest, JoinError, Parallel, ParticipantMemory, Purpose, RendezvousKey,
};
use hloom_eval::collective_work::{key_of, name_of, purpose_of, work_of};
use hloom_eval::ops::collective::missed;
use hloom_eval::run::DeviceGrid;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::ArrayShape;
use hloom_runtime::pool::Pool;
use hloom_value::ExecutionError;
use std::sync::{Arc, OnceLock};

/// A collective. Its arrays are the operands, then as many results.
#[derive(Debug)]
pub(crate) struct CollectiveThunk {
    /// What devices meet for, and where.
    purpose: Arc<Purpose>,
    key: RendezvousKey,
    /// A device and those it meets: mostly the only one of this process.
    group: OnceLock<(usize, Arc<[usize]>)>,
    /// For groups that it cannot serve.
    otherwise: Evaluate,
    /// Whether there is a step that waits for it.
    pub(crate) is_awaited: bool,
}

/// A collective that a device came to.
#[derive(Debug)]
pub(crate) struct Pending {
    instruction: InstructionId,
    arrival: Arrival,
    group: Arc<[usize]>,
}

impl CollectiveThunk {
    /// The collective that an instruction is, if it is one of these.
    pub(crate) fn new(module: &Module, id: InstructionId, otherwise: Evaluate) -> Option<CollectiveThunk> {
        let count = module[id].operands().len();
        let has_places =
            otherwise.results.len() == count && otherwise.results.iter().all(|&r| r == EvaluatedLeaf::Array);
        if !has_places {
            return None;
        }
        Some(CollectiveThunk {
            purpose: Purpose::new(purpose_of(module, id).into(), name_of(module, id).into(), work(module, id)?),
            key: key_of(module, id),
            group: OnceLock::new(),
            otherwise,
            is_awaited: false,
        })
    }

    /// The devices that a device meets, if there is such a group and the collective can serve it.
    fn group(&self, op: &Op, grid: DeviceGrid, ordinal: usize) -> Option<Arc<[usize]>> {
        match self.group.get() {
            Some((of, group)) if *of == ordinal => Some(group.clone()),
            _ => {
                let group: Arc<[usize]> =
                    group(op, grid, ordinal).filter(|g| self.purpose.collective.fits(g.len()))?.into();
                // Who is first is remembered.
                let _ = self.group.set((ordinal, group.clone()));
                Some(group)
            }
        }
    }
}

/// The work of a collective on the arrays that the program says, if it is one of those that need no evaluator.
pub(crate) fn work(module: &Module, id: InstructionId) -> Option<Collective> {
    let instruction = &module[id];
    let operand = |&o: &InstructionId| module[o].shape.as_array().cloned();
    let operands = instruction.operands().iter().map(operand).collect::<Option<Vec<ArrayShape>>>()?;
    let results = instruction.shape.leaves();
    let results = results.iter().map(|(_, s)| s.as_array().cloned()).collect::<Option<Vec<ArrayShape>>>()?;
    let has_elements = |a: &ArrayShape| a.byte_size().is_some_and(|n| n > 0);
    let work = operands.iter().all(has_elements).then(|| work_of(module, &instruction.op, &operands, &results));
    work.flatten()
}

/// The devices that meet, in their order.
pub(crate) fn group(op: &Op, grid: DeviceGrid, ordinal: usize) -> Option<Vec<usize>> {
    match op {
        Op::CollectivePermute(permute) => Some(plane_of(permute.channel_id.is_some(), grid, ordinal)),
        _ => group_of(op, grid, ordinal),
    }
}

/// The threads of a run.
struct PoolThreads<'p> {
    pool: &'p Pool,
    most: usize,
}

impl Parallel for PoolThreads<'_> {
    fn each(&self, units: usize, chunk: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        self.pool.each(units, chunk, self.most, body);
    }
}

/// Comes to the meeting of a collective, and waits for it unless a later step does.
pub(crate) fn run(
    executor: &mut ThunkExecutor<'_>,
    step: &Thunk,
    collective: &CollectiveThunk,
) -> Result<(), ExecutionError> {
    let shared = executor.device.as_ref().ok_or_else(|| ExecutionError::bug("the evaluator is not there"))?.shared;
    let i = step.instruction;
    let group = collective.group(&shared.module[i].op, shared.grid, executor.ordinal);
    let Some(group) = group else { return executor.evaluate(step, &collective.otherwise) };
    let arrays = &executor.addresses[step.arrays.start as usize..step.arrays.end as usize];
    let addresses = |arrays: &[*mut u8]| arrays.iter().map(|&a| a as usize).collect::<Addresses>();
    let count = collective.purpose.collective.arrays.len();
    if arrays.len() != 2 * count {
        return Err(ExecutionError::bug("a collective has too few arrays"));
    }
    let request = CollectiveRequest {
        key: collective.key,
        participants: &group,
        purpose: &collective.purpose,
        memory: ParticipantMemory { operands: addresses(&arrays[..count]), results: addresses(&arrays[count..]) },
        parallel: &PoolThreads { pool: executor.client.pool(), most: executor.context.threads },
        waits: !collective.is_awaited,
    };
    // SAFETY: the addresses are those of the instruction's arrays, which no step uses before the one that waits; a device
    // that leaves earlier abandons them.
    match unsafe { shared.communicator.start(executor.ordinal, &request) } {
        Ok(arrival) => executor.pending.push(Pending { instruction: i, arrival, group }),
        Err(miss) => return Err(left(executor, i, &group, miss)),
    }
    if collective.is_awaited { Ok(()) } else { wait(executor, step) }
}

/// Waits for a collective that the device came to.
pub(crate) fn wait(executor: &mut ThunkExecutor<'_>, step: &Thunk) -> Result<(), ExecutionError> {
    let shared = executor.device.as_ref().ok_or_else(|| ExecutionError::bug("the evaluator is not there"))?.shared;
    // What had to be left to the evaluator is done.
    let Some(n) = executor.pending.iter().position(|p| p.instruction == step.instruction) else { return Ok(()) };
    let Pending { arrival, group, .. } = executor.pending.swap_remove(n);
    let (ordinal, communicator) = (executor.ordinal, &shared.communicator);
    let met = match communicator.is_done(&arrival) {
        true => communicator.wait(ordinal, arrival),
        false => waiting(&mut executor.permit, || communicator.wait(ordinal, arrival)),
    };
    met.map_err(|miss| left(executor, step.instruction, &group, miss))
}

/// Says that the device leaves, and why.
fn left(executor: &mut ThunkExecutor<'_>, i: InstructionId, group: &[usize], miss: JoinError) -> ExecutionError {
    executor.abandon();
    match &executor.device {
        Some(device) => missed(device, i, group, miss),
        None => ExecutionError::bug("the evaluator is not there"),
    }
}
