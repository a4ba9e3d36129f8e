//! A double of NCCL for tests: ranks that are threads, arrays in the host's memory.
//!
//! It keeps NCCL's rules and says who breaks them: a communicator is complete when all its ranks have come, no two of them
//! on one GPU; ranks enqueue the same collectives in the same order, with the same sizes, types and operations; what is sent
//! is received by a call of the same size, in the order of the calls between two ranks. Nothing is done before it is asked
//! about a few times.

use super::calls::{Call, CollectiveCalls, CommunicatorHandle, DataType, ReductionOp, Refusal, UniqueId};
use crate::driver::Handle;
use hloom_eval::reducer::reducer;
use hloom_ir::element_type::ElementType;
use hloom_ir::op::BinaryOp;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How often a call is under way when it is asked about.
const ASKED: usize = 3;

/// What the ranks share.
#[derive(Debug, Default)]
pub(super) struct World(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    ids: u64,
    cliques: FxHashMap<UniqueId, Clique>,
    /// The clique and rank of each handle.
    handles: Vec<(UniqueId, usize)>,
    pub(super) aborted: usize,
}

/// The ranks of a communicator.
#[derive(Debug, Default)]
struct Clique {
    size: usize,
    /// The GPU of each rank that has come.
    gpus: FxHashMap<usize, usize>,
    /// Groups of calls of each rank that have not been done.
    queues: FxHashMap<usize, VecDeque<Vec<Call<u64>>>>,
    /// How often each rank still hears that it is under way.
    asked: FxHashMap<usize, usize>,
    fault: Option<String>,
}

/// NCCL as a rank on one GPU sees it.
#[derive(Debug)]
pub(super) struct Double {
    pub(super) world: Arc<World>,
    pub(super) gpu: usize,
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many communicators have been made, and how many aborted, counted by rank.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.lock();
        (state.handles.len(), state.aborted)
    }
}

impl CollectiveCalls for Double {
    fn unique_id(&self) -> Result<UniqueId, Refusal> {
        let mut state = self.world.lock();
        state.ids += 1;
        let mut id = [7; 128];
        id[120..].copy_from_slice(&state.ids.to_le_bytes());
        Ok(id)
    }

    fn begin(&self, size: usize, id: &UniqueId, rank: usize) -> Result<CommunicatorHandle, Refusal> {
        let mut state = self.world.lock();
        state.handles.push((*id, rank));
        let handle = state.handles.len();
        let clique = state.cliques.entry(*id).or_insert_with(|| Clique { size, ..Clique::default() });
        if clique.size != size || rank >= size || clique.gpus.insert(rank, self.gpu).is_some() {
            clique.fault = Some(format!("rank {rank} of {size} does not fit"));
        }
        let mut gpus: Vec<usize> = clique.gpus.values().copied().collect();
        gpus.sort_unstable();
        if gpus.windows(2).any(|w| w[0] == w[1]) {
            clique.fault = Some("duplicate GPU".to_owned());
        }
        clique.asked.insert(rank, ASKED);
        Ok(handle)
    }

    unsafe fn enqueue(&self, communicator: CommunicatorHandle, _: Handle, calls: &[Call<u64>]) -> Result<(), Refusal> {
        let mut state = self.world.lock();
        let (id, rank) = state.handles[communicator - 1];
        let clique = state.cliques.get_mut(&id).ok_or_else(|| Refusal("no communicator".to_owned()))?;
        clique.queues.entry(rank).or_default().push_back(calls.to_vec());
        clique.asked.insert(rank, ASKED);
        // What all ranks have come to is done.
        while (0..clique.size).all(|r| clique.queues.get(&r).is_some_and(|q| !q.is_empty())) {
            let groups: Vec<_> = (0..clique.size).filter_map(|r| clique.queues.get_mut(&r)?.pop_front()).collect();
            // SAFETY: all callers promise that their arrays are there.
            if let Err(fault) = unsafe { run(&groups) } {
                clique.fault = Some(fault);
            }
        }
        Ok(())
    }

    fn is_done(&self, communicator: CommunicatorHandle) -> Result<bool, Refusal> {
        let mut state = self.world.lock();
        let (id, rank) = state.handles[communicator - 1];
        let clique = state.cliques.get_mut(&id).ok_or_else(|| Refusal("no communicator".to_owned()))?;
        if let Some(fault) = &clique.fault {
            return Err(Refusal(fault.clone()));
        }
        let waits = clique.gpus.len() < clique.size || clique.queues.get(&rank).is_some_and(|q| !q.is_empty());
        let asked = clique.asked.entry(rank).or_default();
        *asked = asked.saturating_sub(1);
        Ok(!waits && *asked == 0)
    }

    fn abort(&self, _: CommunicatorHandle) {
        self.world.lock().aborted += 1;
    }
}

/// Does the groups of all ranks.
///
/// # Safety
/// The arrays must be as long as the calls say.
unsafe fn run(groups: &[Vec<Call<u64>>]) -> Result<(), String> {
    let is_message = |c: &Call<u64>| matches!(c, Call::Send { .. } | Call::Receive { .. });
    let collectives: Vec<Vec<Call<u64>>> =
        groups.iter().map(|g| g.iter().copied().filter(|c| !is_message(c)).collect()).collect();
    let count = collectives.first().map_or(0, Vec::len);
    for ranks in &collectives {
        let alike = ranks.iter().zip(&collectives[0]).all(|(a, b)| a.at(|_| ()) == b.at(|_| ()));
        if ranks.len() != count || !alike {
            return Err("ranks call different collectives".to_owned());
        }
    }
    for n in 0..count {
        let of_ranks: Vec<Call<u64>> = collectives.iter().map(|c| c[n]).collect();
        // SAFETY: the caller's promise.
        unsafe { collective(&of_ranks) };
    }
    let mut sent: FxHashMap<(usize, usize), VecDeque<(u64, usize)>> = FxHashMap::default();
    for (source, group) in groups.iter().enumerate() {
        for call in group {
            if let Call::Send { from, bytes, rank } = *call {
                sent.entry((source, rank)).or_default().push_back((from, bytes));
            }
        }
    }
    for (target, group) in groups.iter().enumerate() {
        for call in group {
            if let Call::Receive { to, bytes, rank } = *call {
                match sent.get_mut(&(rank, target)).and_then(VecDeque::pop_front) {
                    // SAFETY: the caller's promise.
                    Some((from, length)) if length == bytes => unsafe { copy(from, to, bytes) },
                    found => return Err(format!("rank {target} expects {bytes} bytes of {rank}, who has {found:?}")),
                }
            }
        }
    }
    match sent.values().all(VecDeque::is_empty) {
        true => Ok(()),
        false => Err("what was sent is not received".to_owned()),
    }
}

/// Does a collective that all ranks call.
///
/// # Safety
/// As for [`run`].
unsafe fn collective(ranks: &[Call<u64>]) {
    let from_of = |call: &Call<u64>| match *call {
        Call::AllReduce { from, .. }
        | Call::ReduceScatter { from, .. }
        | Call::AllGather { from, .. }
        | Call::Broadcast { from, .. }
        | Call::Send { from, .. } => from,
        Call::Receive { to, .. } => to,
    };
    let from: Vec<u64> = ranks.iter().map(from_of).collect();
    for (rank, call) in ranks.iter().enumerate() {
        // SAFETY (all): the caller's promise.
        unsafe {
            match *call {
                // The first writes for all, since a result may take the place of its operand.
                Call::AllReduce { count, reduction, .. } if rank == 0 => {
                    let to = ranks.iter().map(|c| if let Call::AllReduce { to, .. } = c { *to } else { 0 });
                    reduce(reduction, &from, &to.collect::<Vec<_>>(), count);
                }
                Call::ReduceScatter { to, count, reduction, .. } => {
                    let offset = (rank * count * bytes(reduction.0)) as u64;
                    let from: Vec<u64> = from.iter().map(|a| a + offset).collect();
                    reduce(reduction, &from, &[to], count);
                }
                Call::AllGather { to, bytes, .. } => {
                    from.iter().enumerate().for_each(|(r, &a)| copy(a, to + (r * bytes) as u64, bytes));
                }
                Call::Broadcast { to, bytes, root, .. } => copy(from[root], to, bytes),
                _ => {}
            }
        }
    }
}

/// The type of a number.
fn element_type(t: DataType) -> ElementType {
    use ElementType::{Bf16, F16, F32, F64, S8, S32, S64, U8, U32, U64};
    [S8, U8, S32, U32, S64, U64, F16, F32, F64, Bf16][t.0 as usize]
}

fn bytes(t: DataType) -> usize {
    element_type(t).bytes()
}

/// # Safety
/// As for [`run`].
unsafe fn reduce((t, op): (DataType, ReductionOp), from: &[u64], to: &[u64], count: usize) {
    let op = [BinaryOp::Add, BinaryOp::Multiply, BinaryOp::Maximum, BinaryOp::Minimum][op.0 as usize];
    let reducer = reducer(op, element_type(t)).expect("it is a number");
    let addresses = |list: &[u64]| list.iter().map(|&a| a as usize).collect::<Vec<_>>();
    // SAFETY: the caller's promise.
    unsafe { reducer.reduce(&addresses(from), &addresses(to), count) };
}

/// # Safety
/// As for [`run`].
unsafe fn copy(from: u64, to: u64, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
}
