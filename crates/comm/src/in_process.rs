//! The transport among the devices of one process: the last to come to a collective does it in the memory of all.

use crate::collective::ParticipantMemory;
use crate::communicator::{CollectiveRequest, Communicator, Purpose};
use crate::rendezvous::{Arrival, JoinError, JoinRequest, Rendezvous};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Devices that are threads of this process.
#[derive(Debug)]
pub struct InProcess {
    rendezvous: Rendezvous<Brought>,
    /// Devices that left a collective before it took place: nobody touches their memory.
    gone: RwLock<Vec<usize>>,
}

/// What a device brings to a meeting or takes away.
#[derive(Debug)]
enum Brought {
    Memory(ParticipantMemory, Arc<Purpose>),
    Message(Vec<u8>),
    Nothing,
}

impl InProcess {
    /// A transport among so many running devices, none of which waits longer than `time_limit` for another that computes.
    pub fn new(devices: usize, time_limit: Duration) -> InProcess {
        InProcess { rendezvous: Rendezvous::new(devices, time_limit), gone: RwLock::new(Vec::new()) }
    }

    fn left(&self, device: usize) {
        // Whoever does a collective now is done with the device's memory before this returns.
        self.gone.write().unwrap_or_else(PoisonError::into_inner).push(device);
    }
}

impl Communicator for InProcess {
    unsafe fn start(&self, device: usize, request: &CollectiveRequest<'_>) -> Result<Arrival, JoinError> {
        let &CollectiveRequest { key, participants, purpose, parallel, .. } = request;
        let (meeting, collective) = (JoinRequest { key, participants, what: &purpose.what }, &purpose.collective);
        let run = |brought: Vec<Brought>| {
            let gone = self.gone.read().unwrap_or_else(PoisonError::into_inner);
            if participants.iter().any(|d| gone.contains(d)) {
                return Err(JoinError::Cancelled);
            }
            let count = brought.len();
            let memory = |b| match b {
                Brought::Memory(memory, own) if collective.is_like(&own.collective, &memory) => Some(memory),
                _ => None,
            };
            let group: Vec<ParticipantMemory> = brought.into_iter().filter_map(memory).collect();
            if group.len() != count || !collective.fits(count) {
                return Err(JoinError::Unfit);
            }
            // SAFETY: each participant promised that its addresses lead to such arrays, which it leaves alone until it has
            // waited; who is gone is not among them.
            unsafe { collective.run(&group, parallel) };
            Ok((0..count).map(|_| Brought::Nothing).collect())
        };
        let brings = Brought::Memory(request.memory.clone(), purpose.clone());
        let arrived = self.rendezvous.arrive(device, &meeting, brings, run);
        let result = arrived.and_then(|arrived| arrived);
        if result.is_err() {
            self.left(device);
        }
        result
    }

    fn is_done(&self, arrival: &Arrival) -> bool {
        self.rendezvous.has_taken_place(arrival)
    }

    fn wait(&self, device: usize, arrival: Arrival) -> Result<(), JoinError> {
        let result = self.rendezvous.wait_for(device, &arrival);
        if result.is_err() {
            self.left(device);
        }
        result.map(|_| ())
    }

    fn send(&self, channel: i64, from: usize, to: usize, message: Vec<u8>) -> Result<(), JoinError> {
        self.rendezvous.post(channel, from, to, Brought::Message(message));
        Ok(())
    }

    fn receive(&self, channel: i64, from: usize, to: usize, what: &str) -> Result<Vec<u8>, JoinError> {
        match self.rendezvous.take(channel, from, to, what)? {
            Brought::Message(message) => Ok(message),
            _ => Err(JoinError::Unfit),
        }
    }

    fn finish(&self, device: usize) {
        self.rendezvous.finish(device);
    }

    fn cancel(&self, _: usize, _: &str) {
        self.rendezvous.cancel();
    }

    fn abandon(&self, device: usize) -> bool {
        self.left(device);
        true
    }
}
