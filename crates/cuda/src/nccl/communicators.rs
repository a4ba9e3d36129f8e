//! The communicators of a GPU: one for each group that it has met in, and how a group comes to a collective.

use super::calls::{Call, CollectiveCalls, CommunicatorHandle, Refusal, UniqueId};
use crate::driver::Handle;
use hloom_comm::{
    ArrayGeometry, Collective, CollectiveKind, CollectiveRequest, Communicator, GroupSize, JoinError,
    ParticipantMemory, Purpose, RendezvousKey, Serial,
};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The channel that unique ids travel on, which no program uses.
const IDS: i64 = i64::MIN + 1;
/// How long communicators may take to be ended.
const ABORT: Duration = Duration::from_secs(5);
/// How long to ask again and again before the thread sleeps in between.
const SPIN: Duration = Duration::from_micros(200);

/// A GPU in communicators: what it is known by, and a number that changes when its communicators are given up. So the
/// members of a group, who tell each other theirs, agree on whether there is a communicator of them.
type Seat = [u8; 24];

/// All communicators of a GPU.
#[derive(Debug)]
pub(crate) struct Communicators {
    calls: Arc<dyn CollectiveCalls>,
    gpu: [u8; 16],
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    generation: u64,
    made: FxHashMap<Vec<Seat>, CommunicatorHandle>,
}

/// A collective that a group comes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meeting<'m> {
    pub(crate) key: RendezvousKey,
    /// The devices, in the group's order.
    pub(crate) group: &'m [usize],
    /// What is done there, in words; all must say the same.
    pub(crate) what: &'m Arc<str>,
    /// The instruction and where it comes from.
    pub(crate) name: &'m Arc<str>,
}

/// How long NCCL is waited for.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'l> {
    pub(crate) time_limit: Duration,
    /// Why nobody waits any longer, if so.
    pub(crate) stopped: &'l dyn Fn() -> Option<JoinError>,
}

impl Communicators {
    /// Those of the GPU that is known by `gpu`: none yet.
    pub(crate) fn new(calls: Arc<dyn CollectiveCalls>, gpu: [u8; 16]) -> Communicators {
        // Another process, or another client of this one, has other communicators on the same GPU.
        let begun = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        let generation = begun ^ u64::from(std::process::id()).rotate_right(16);
        Communicators { calls, gpu, state: Mutex::new(State { generation, made: FxHashMap::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes to a collective: the communicator of the group, made if need be. When it returns, all others have come for
    /// the same.
    pub(crate) fn enter(
        &self,
        communicator: &dyn Communicator,
        device: usize,
        meeting: &Meeting<'_>,
        limits: Limits<'_>,
    ) -> Result<CommunicatorHandle, JoinError> {
        let group = meeting.group;
        let rank = group.iter().position(|&d| d == device).ok_or(JoinError::NotAParticipant)?;
        let mut own: Seat = [0; 24];
        own[..16].copy_from_slice(&self.gpu);
        own[16..].copy_from_slice(&self.lock().generation.to_le_bytes());
        let seats = gather(communicator, device, meeting, own)?;
        if let Some(&made) = self.lock().made.get(&seats) {
            return Ok(made);
        }
        let mut of_gpu: FxHashMap<&[u8], usize> = FxHashMap::default();
        for (seat, &member) in seats.iter().zip(group) {
            if let Some(other) = of_gpu.insert(&seat[..16], member) {
                let message = format!("devices {other} and {member} are on one GPU, and NCCL takes a GPU for each");
                return Err(JoinError::Transport(message));
            }
        }
        let id = self.unique_id(communicator, device, meeting)?;
        let made = self.calls.begin(group.len(), &id, rank).map_err(refused)?;
        if let Err(why) = self.settle(made, limits) {
            self.abort(vec![made]);
            return Err(why);
        }
        self.lock().made.insert(seats, made);
        Ok(made)
    }

    /// What the ranks of a new communicator know each other by: the first makes it and sends it to the others.
    fn unique_id(
        &self,
        communicator: &dyn Communicator,
        device: usize,
        meeting: &Meeting<'_>,
    ) -> Result<UniqueId, JoinError> {
        let (first, others) = meeting.group.split_first().ok_or(JoinError::NotAParticipant)?;
        if device != *first {
            let id = communicator.receive(IDS, *first, device, meeting.what)?;
            return UniqueId::try_from(&id[..]).map_err(|_| JoinError::Unfit);
        }
        let id = self.calls.unique_id().map_err(refused)?;
        others.iter().try_for_each(|&other| communicator.send(IDS, device, other, id.to_vec()))?;
        Ok(id)
    }

    /// Puts calls on a stream, all at once.
    ///
    /// # Safety
    /// As for [`CollectiveCalls::enqueue`].
    pub(crate) unsafe fn enqueue(
        &self,
        communicator: CommunicatorHandle,
        stream: Handle,
        calls: &[Call<u64>],
        limits: Limits<'_>,
    ) -> Result<(), JoinError> {
        // SAFETY: the caller's promise.
        unsafe { self.calls.enqueue(communicator, stream, calls) }.map_err(refused)?;
        self.settle(communicator, limits)
    }

    /// Fails if something has gone wrong with a communicator.
    pub(crate) fn check(&self, communicator: CommunicatorHandle) -> Result<(), JoinError> {
        self.calls.is_done(communicator).map(|_| ()).map_err(refused)
    }

    /// Waits until the host's part of what was begun is done.
    fn settle(&self, communicator: CommunicatorHandle, limits: Limits<'_>) -> Result<(), JoinError> {
        let begun = Instant::now();
        while !self.calls.is_done(communicator).map_err(refused)? {
            if let Some(why) = (limits.stopped)() {
                return Err(why);
            }
            let waited = begun.elapsed();
            if waited > limits.time_limit {
                return Err(not_done(limits.time_limit));
            }
            match waited < SPIN {
                true => std::hint::spin_loop(),
                false => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        Ok(())
    }

    /// Gives all communicators up, with what is under way in them; later collectives make new ones.
    pub(crate) fn give_up(&self) {
        let made = {
            let mut state = self.lock();
            state.generation = state.generation.wrapping_add(1);
            std::mem::take(&mut state.made)
        };
        self.abort(made.into_values().collect());
    }

    /// Ends communicators, in a thread that is left behind if that takes too long.
    fn abort(&self, communicators: Vec<CommunicatorHandle>) {
        if communicators.is_empty() {
            return;
        }
        let (calls, (done, ended)) = (self.calls.clone(), std::sync::mpsc::channel());
        let work = move || {
            communicators.into_iter().for_each(|c| calls.abort(c));
            let _ = done.send(());
        };
        // Without a thread they stay as they are: the process is about to end with an error.
        if std::thread::Builder::new().name("abort".into()).spawn(work).is_ok() {
            let _ = ended.recv_timeout(ABORT);
        }
    }
}

fn refused(refusal: Refusal) -> JoinError {
    JoinError::Transport(refusal.0)
}

/// That NCCL takes too long.
pub(crate) fn not_done(limit: Duration) -> JoinError {
    JoinError::Transport(format!("NCCL is not done after {:.0} s", limit.as_secs_f64()))
}

/// Meets the group on the host: the seats of all, in its order.
fn gather(
    communicator: &dyn Communicator,
    device: usize,
    meeting: &Meeting<'_>,
    own: Seat,
) -> Result<Vec<Seat>, JoinError> {
    let &Meeting { key, group, what, name } = meeting;
    let arrays = vec![ArrayGeometry { bytes: own.len(), rows: 1, group: GroupSize::Any }];
    let collective = Collective { kind: CollectiveKind::AllGather, arrays };
    let purpose = Purpose::new(what.clone(), name.clone(), collective);
    let (own, mut seats) = (Box::new(own), vec![Seat::default(); group.len()]);
    let memory = ParticipantMemory {
        operands: [own.as_ptr() as usize].into_iter().collect(),
        results: [seats.as_mut_ptr() as usize].into_iter().collect(),
    };
    let request =
        CollectiveRequest { key, participants: group, purpose: &purpose, memory, parallel: &Serial, waits: true };
    // SAFETY: the arrays are as long as the collective says, and nothing touches them before the wait has ended; where it
    // fails and they may still be written to, they are kept for ever.
    let met = unsafe { communicator.start(device, &request) };
    match met.and_then(|arrival| communicator.wait(device, arrival)) {
        Ok(()) => Ok(seats),
        Err(miss) => {
            if !communicator.abandon(device) {
                std::mem::forget((own, seats));
            }
            Err(miss)
        }
    }
}
