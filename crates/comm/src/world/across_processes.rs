//! The transport among the devices of several processes.
//!
//! Devices of one process meet in its [`Rendezvous`]; a collective among them alone is done there. Of one that takes other
//! processes the last to come here makes an operation of the engine, and all who came wait for that.

use super::WorldState;
use super::engine_state::RunListener;
use super::message::OperationKey;
use super::operation::{Operation, OperationStatus};
use crate::collective::{Collective, ParticipantMemory};
use crate::communicator::{CollectiveRequest, Communicator};
use crate::rendezvous::{Arrival, JoinError, JoinRequest, Rendezvous, Whereabouts};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

/// The devices of a run over several processes.
#[derive(Debug)]
pub(crate) struct AcrossProcesses {
    world: Arc<WorldState>,
    rank: usize,
    run: u64,
    /// The process of each device.
    owners: Vec<usize>,
    time_limit: Duration,
    local: Arc<LocalDevices>,
}

/// The devices of this process.
#[derive(Debug)]
struct LocalDevices {
    rendezvous: Rendezvous<Brought>,
    /// Devices that left a collective before it took place.
    gone: RwLock<Vec<usize>>,
}

/// What a device brings to a meeting or takes away.
#[derive(Clone, Debug)]
enum Brought {
    Memory(ParticipantMemory, Arc<Collective>),
    /// What it waits for now.
    Operation(OperationKey, Arc<OperationStatus>),
    Nothing,
}

impl RunListener for LocalDevices {
    fn finished(&self, device: usize) {
        self.rendezvous.finish(device);
    }
    fn failed(&self) {
        self.rendezvous.cancel();
    }
}

impl AcrossProcesses {
    pub(crate) fn open(
        world: Arc<WorldState>,
        rank: usize,
        run: u64,
        owners: Vec<usize>,
        time_limit: Duration,
    ) -> Arc<dyn Communicator> {
        let local = Arc::new(LocalDevices {
            rendezvous: Rendezvous::new(owners.len(), time_limit),
            gone: RwLock::new(Vec::new()),
        });
        let as_listener: Arc<dyn RunListener> = local.clone();
        let listener: Weak<dyn RunListener> = Arc::downgrade(&as_listener);
        world.lock().open(run, listener);
        Arc::new(AcrossProcesses { world, rank, run, owners, time_limit, local })
    }

    fn owner(&self, device: usize) -> usize {
        self.owners.get(device).copied().unwrap_or(self.rank)
    }

    fn left(&self, device: usize) {
        self.local.gone.write().unwrap_or_else(PoisonError::into_inner).push(device);
    }

    /// What those are doing who did not come.
    fn elsewhere(&self, devices: Vec<usize>) -> Vec<(usize, Whereabouts)> {
        devices.into_iter().map(|d| (d, Whereabouts::Elsewhere { rank: self.owner(d) })).collect()
    }

    /// A run that was cancelled from elsewhere says why.
    fn explain(&self, error: JoinError) -> JoinError {
        match error {
            JoinError::Cancelled | JoinError::Absent(_) => self.world.lock().failure(self.run).unwrap_or(error),
            error => error,
        }
    }

    /// Does what the devices here have come for, or begins it.
    ///
    /// # Safety
    /// The memory must be what the participants promised of it.
    unsafe fn all_are_here(
        &self,
        request: &CollectiveRequest<'_>,
        key: OperationKey,
        brought: Vec<Brought>,
    ) -> Result<Vec<Brought>, JoinError> {
        let &CollectiveRequest { participants, what, collective, parallel, .. } = request;
        let gone = self.local.gone.read().unwrap_or_else(PoisonError::into_inner);
        if participants.iter().any(|d| gone.contains(d)) {
            return Err(JoinError::Cancelled);
        }
        let count = brought.len();
        let memory = |b| match b {
            Brought::Memory(memory, own) if collective.is_like(&own, &memory) => Some(memory),
            _ => None,
        };
        let memory: Vec<ParticipantMemory> = brought.into_iter().filter_map(memory).collect();
        if memory.len() != count || !collective.fits(participants.len()) {
            return Err(JoinError::Unfit);
        }
        if count == participants.len() {
            // SAFETY: the caller's promise.
            unsafe { collective.run(&memory, parallel) };
            return Ok(vec![Brought::Nothing; count]);
        }
        let status = Arc::new(OperationStatus { name: request.name.to_owned(), ..Default::default() });
        let process_of = |device: usize| self.owner(device);
        let (what, participants) = (what.to_owned(), participants.to_vec());
        // SAFETY: the caller's promise; who leaves before it is done is told whether its memory may still be used.
        let mut operation =
            unsafe { Operation::new(what, participants, &process_of, self.rank, collective.clone(), memory) };
        operation.status = status.clone();
        // SAFETY: as for the operation.
        unsafe { self.world.lock().begin(key, operation) };
        self.world.wake();
        Ok(vec![Brought::Operation(key, status); count])
    }

    fn wait_for_operation(&self, key: OperationKey, status: &OperationStatus) -> Result<(), JoinError> {
        let mut absent = Vec::new();
        let record = self.world.note_wait(&status.name, self.time_limit);
        let ended = self.world.poll(self.run, self.time_limit, |engine| {
            if status.is_done.load(Ordering::Acquire) {
                return Some(Ok(()));
            }
            if let Some(error) = status.error.lock().unwrap_or_else(PoisonError::into_inner).clone() {
                return Some(Err(error));
            }
            let now = engine.absent(&key);
            if now != absent {
                record.is_for(now.iter().map(|&d| self.owner(d)).collect());
                absent = now;
            }
            // Whoever is done sends nothing any more: what it sent before would be here.
            let finished = engine.finished_among(self.run, &absent);
            (!finished.is_empty()).then_some(Err(JoinError::Absent(finished)))
        });
        match ended {
            Ok(result) => result,
            Err(stop) => Err(stop.error(self.elsewhere(absent))),
        }
    }
}

impl Communicator for AcrossProcesses {
    unsafe fn start(&self, device: usize, request: &CollectiveRequest<'_>) -> Result<Arrival, JoinError> {
        let participants = request.participants;
        if participants.iter().any(|&d| d >= self.owners.len()) || !participants.contains(&device) {
            return Err(JoinError::NotAParticipant);
        }
        let here: Vec<usize> = participants.iter().copied().filter(|&d| self.owner(d) == self.rank).collect();
        let visit = self.local.rendezvous.next_visit(device, request.key);
        let key = OperationKey { run: self.run, key: request.key, visit, first: participants[0] };
        let meeting = JoinRequest { key: request.key, participants: &here, what: request.what };
        let brings = Brought::Memory(request.memory.clone(), request.collective.clone());
        // SAFETY: each participant here promised that its addresses lead to such arrays, which it leaves alone until it has
        // waited; who is gone is not among them.
        let finish = |brought| unsafe { self.all_are_here(request, key, brought) };
        let arrived = self.local.rendezvous.arrive(device, &meeting, brings, finish);
        let result = arrived.and_then(|arrived| arrived).map_err(|error| self.explain(error));
        if result.is_err() {
            self.left(device);
        }
        result
    }

    fn is_done(&self, arrival: &Arrival) -> bool {
        let is_done = |brought: &Brought| match brought {
            Brought::Operation(_, status) => status.is_done.load(Ordering::Acquire),
            _ => true,
        };
        self.local.rendezvous.look(arrival, is_done).unwrap_or(false)
    }

    fn wait(&self, device: usize, arrival: Arrival) -> Result<(), JoinError> {
        let result = match self.local.rendezvous.wait_for(device, &arrival) {
            Ok(Brought::Operation(key, status)) => self.wait_for_operation(key, &status),
            Ok(_) => Ok(()),
            Err(error) => Err(self.explain(error)),
        };
        if result.is_err() {
            self.left(device);
        }
        result
    }

    fn send(&self, channel: i64, from: usize, to: usize, message: Vec<u8>) -> Result<(), JoinError> {
        if to >= self.owners.len() {
            return Err(JoinError::NotAParticipant);
        }
        self.world.lock().post(self.owner(to), (self.run, channel, from, to), message);
        self.world.wake();
        Ok(())
    }

    fn receive(&self, channel: i64, from: usize, to: usize, _: &str) -> Result<Vec<u8>, JoinError> {
        if from >= self.owners.len() {
            return Err(JoinError::NotAParticipant);
        }
        let mailbox = (self.run, channel, from, to);
        let taken = self.world.poll(self.run, self.time_limit, |engine| {
            if let Some(message) = engine.take(&mailbox) {
                return Some(Ok(message));
            }
            let finished = engine.finished_among(self.run, &[from]);
            (!finished.is_empty() && !engine.is_coming(&mailbox)).then_some(Err(JoinError::Absent(finished)))
        });
        taken.unwrap_or_else(|stop| Err(stop.error(self.elsewhere(vec![from]))))
    }

    fn finish(&self, device: usize) {
        self.local.rendezvous.finish(device);
        if self.owners.iter().any(|&o| o != self.rank) {
            self.world.lock().tell_finished(self.run, device);
            self.world.wake();
        }
    }

    fn cancel(&self, device: usize, why: &str) {
        self.world.lock().tell_failed(self.run, Some(device), why);
        self.world.wake();
    }

    fn abandon(&self, device: usize) -> bool {
        self.left(device);
        !self.world.lock().touches_memory(self.run)
    }
}

impl Drop for AcrossProcesses {
    fn drop(&mut self) {
        self.world.lock().close(self.run);
    }
}
