//! The transport among the devices of several processes.
//!
//! Devices of one process meet in its [`Rendezvous`]; a collective among them alone is done there. Of one that takes other
//! processes the last to come here makes an operation of the engine, and all who came wait for that.

use super::WorldState;
use super::engine_state::RunListener;
use super::group::{DeviceMap, Group, KnownGroup};
use super::message::OperationKey;
use super::operation::{Operation, OperationStatus};
use super::short::is_short;
use crate::collective::ParticipantMemory;
use crate::communicator::{CollectiveRequest, Communicator, Purpose};
use crate::rendezvous::{Arrival, JoinError, JoinRequest, Rendezvous, Whereabouts};
use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

/// The devices of a run over several processes.
#[derive(Debug)]
pub(crate) struct AcrossProcesses {
    world: Arc<WorldState>,
    run: u64,
    map: Arc<DeviceMap>,
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
    Memory(ParticipantMemory, Arc<Purpose>),
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
        run: u64,
        map: Arc<DeviceMap>,
        time_limit: Duration,
    ) -> Arc<dyn Communicator> {
        let local = Arc::new(LocalDevices {
            rendezvous: Rendezvous::new(map.owners.len(), time_limit),
            gone: RwLock::new(Vec::new()),
        });
        let as_listener: Arc<dyn RunListener> = local.clone();
        let listener: Weak<dyn RunListener> = Arc::downgrade(&as_listener);
        world.lock().open(run, listener);
        Arc::new(AcrossProcesses { world, run, map, time_limit, local })
    }

    /// The group of a collective, which mostly was the same before.
    fn group<'g>(&self, request: &CollectiveRequest<'g>) -> Cow<'g, KnownGroup> {
        let purpose: &'g Purpose = request.purpose;
        match purpose.group.get() {
            Some(known) if Arc::ptr_eq(&known.map, &self.map) && known.group.participants == request.participants => {
                Cow::Borrowed(known)
            }
            _ => {
                let group = self.map.group(request.participants);
                let known = KnownGroup { map: self.map.clone(), is_short: is_short(purpose, &group), group };
                // Who is first is remembered.
                let _ = purpose.group.set(known.clone());
                Cow::Owned(known)
            }
        }
    }

    fn owner(&self, device: usize) -> usize {
        self.map.owner(device)
    }

    fn devices(&self) -> usize {
        self.map.owners.len()
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
        group: &Arc<Group>,
        key: OperationKey,
        brought: Vec<Brought>,
    ) -> Result<Vec<Brought>, JoinError> {
        let &CollectiveRequest { participants, purpose, parallel, .. } = request;
        let collective = &purpose.collective;
        let gone = self.local.gone.read().unwrap_or_else(PoisonError::into_inner);
        if participants.iter().any(|d| gone.contains(d)) {
            return Err(JoinError::Cancelled);
        }
        let count = brought.len();
        let memory = |b| match b {
            Brought::Memory(memory, own) if collective.is_like(&own.collective, &memory) => Some(memory),
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
        // Devices that wait for each other here do not wait at once for what the last of them begins.
        // SAFETY: the caller's promise; who leaves before it is done is told whether its memory may still be used.
        let status = unsafe { self.begin(purpose, group, key, memory.into()) };
        Ok(vec![Brought::Operation(key, status); count])
    }

    /// Leaves what other processes take part in to be begun.
    ///
    /// # Safety
    /// The memory must be what the participants promised of it.
    unsafe fn begin(
        &self,
        purpose: &Arc<Purpose>,
        group: &Arc<Group>,
        key: OperationKey,
        memory: Arc<[ParticipantMemory]>,
    ) -> Arc<OperationStatus> {
        // SAFETY: the caller's promise.
        let operation = unsafe { Operation::new(purpose, group, memory) };
        let status = operation.status.clone();
        // SAFETY: the caller's promise.
        unsafe { self.world.begin(key, operation) };
        status
    }

    /// Begins a collective to which one device of this process comes.
    ///
    /// # Safety
    /// As for [`Communicator::start`].
    unsafe fn start_alone(
        &self,
        device: usize,
        request: &CollectiveRequest<'_>,
        known: &KnownGroup,
    ) -> Result<Arrival, JoinError> {
        let gone = self.local.gone.read().unwrap_or_else(PoisonError::into_inner);
        if gone.contains(&device) {
            return Err(JoinError::Cancelled);
        }
        drop(gone);
        let (purpose, group, memory) = (request.purpose, &known.group, &request.memory);
        let collective = &purpose.collective;
        if !collective.is_like(collective, memory) || !collective.fits(request.participants.len()) {
            return Err(JoinError::Unfit);
        }
        let visit = self.local.rendezvous.visit(device, request.key)?;
        let first = request.participants[0];
        let key = OperationKey { run: self.run, key: request.key, visit, first, piece: 0 };
        // SAFETY: the device promised that its addresses lead to such arrays, which it leaves alone until it has waited.
        let status = unsafe {
            match request.waits {
                true => self.world.begin_awaited(key, known, purpose, memory, self.time_limit),
                false => Some(self.begin(purpose, group, key, Arc::new([memory.clone()]))),
            }
        };
        let place = request.participants.iter().position(|&p| p == device).unwrap_or(0);
        let is_over = status.is_none();
        Ok(Arrival { key: (request.key, visit, first), place, operation: status.map(|status| (key, status)), is_over })
    }

    fn wait_for_operation(&self, key: OperationKey, status: &Arc<OperationStatus>) -> Result<(), JoinError> {
        if status.is_done.load(Ordering::Acquire) {
            return Ok(());
        }
        let (mut absent, begun) = (Vec::new(), Instant::now());
        let record = self.world.note_wait(&status.purpose, &status.group, begun + self.time_limit);
        let ended = self.world.poll(self.run, begun, self.time_limit, |engine, closer| {
            if status.is_done.load(Ordering::Acquire) {
                return Some(Ok(()));
            }
            if !closer {
                return None;
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
        if participants.iter().any(|&d| d >= self.devices()) || !participants.contains(&device) {
            return Err(JoinError::NotAParticipant);
        }
        let known = self.group(request);
        let group = &known.group;
        if group.here.len() == 1 && participants.len() > 1 {
            // SAFETY: the caller's promise.
            let result = unsafe { self.start_alone(device, request, &known) }.map_err(|error| self.explain(error));
            if result.is_err() {
                self.left(device);
            }
            return result;
        }
        let visit = self.local.rendezvous.next_visit(device, request.key);
        let key = OperationKey { run: self.run, key: request.key, visit, first: participants[0], piece: 0 };
        let meeting = JoinRequest { key: request.key, participants: &group.here, what: &request.purpose.what };
        let brings = Brought::Memory(request.memory.clone(), request.purpose.clone());
        // SAFETY: each participant here promised that its addresses lead to such arrays, which it leaves alone until it has
        // waited; who is gone is not among them.
        let finish = |brought| unsafe { self.all_are_here(request, group, key, brought) };
        let arrived = self.local.rendezvous.arrive(device, &meeting, brings, finish);
        let result = arrived.and_then(|arrived| arrived).map_err(|error| self.explain(error));
        if result.is_err() {
            self.left(device);
        }
        result
    }

    fn is_done(&self, arrival: &Arrival) -> bool {
        if arrival.is_over {
            return true;
        }
        if let Some((_, status)) = &arrival.operation {
            return status.is_done.load(Ordering::Acquire);
        }
        let is_done = |brought: &Brought| match brought {
            Brought::Operation(_, status) => status.is_done.load(Ordering::Acquire),
            _ => true,
        };
        self.local.rendezvous.look(arrival, is_done).unwrap_or(false)
    }

    fn wait(&self, device: usize, arrival: Arrival) -> Result<(), JoinError> {
        let met = match &arrival.operation {
            _ if arrival.is_over => return Ok(()),
            Some((key, status)) => Ok(Brought::Operation(*key, status.clone())),
            None => self.local.rendezvous.wait_for(device, &arrival),
        };
        let result = match met {
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
        if to >= self.devices() {
            return Err(JoinError::NotAParticipant);
        }
        self.world.lock().post(self.owner(to), (self.run, channel, from, to), message);
        self.world.wake();
        Ok(())
    }

    fn receive(&self, channel: i64, from: usize, to: usize, _: &str) -> Result<Vec<u8>, JoinError> {
        if from >= self.devices() {
            return Err(JoinError::NotAParticipant);
        }
        let mailbox = (self.run, channel, from, to);
        let taken = self.world.poll(self.run, Instant::now(), self.time_limit, |engine, _| {
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
        if self.map.owners.iter().any(|&o| o != self.map.rank) {
            self.world.lock().has_finished(self.run, device);
        }
    }

    fn cancel(&self, device: usize, why: &str) {
        self.world.lock().tell_failed(self.run, Some(device), why);
        self.world.wake();
    }

    fn abandon(&self, device: usize) -> bool {
        self.left(device);
        !self.world.touches_memory(self.run)
    }
}

impl Drop for AcrossProcesses {
    fn drop(&mut self) {
        self.world.lock().close(self.run);
    }
}
