//! The trait [`Communicator`]: how the devices of a run meet, by whatever transport.
//!
//! A collective is told by addresses and sizes ([`CollectiveRequest`]), never by an interpreter's values. A device starts a
//! collective, does something else if it likes, and waits for it; messages (send, recv) are bytes. Every wait ends: with
//! what was waited for, or with a [`JoinError`] that says who is absent and what those are doing instead.

use crate::collective::{Collective, Parallel, ParticipantMemory};
use crate::rendezvous::{Arrival, JoinError, RendezvousKey};
use crate::world::KnownGroup;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

/// What devices meet for: made once, used whenever they do.
#[derive(Debug)]
pub struct Purpose {
    /// What is done there, in words; all must say the same.
    pub what: Arc<str>,
    /// What this process calls it: the instruction and where it comes from.
    pub name: Arc<str>,
    /// What is done there.
    pub collective: Collective,
    /// A number for `what`: processes compare it instead of the words.
    pub(crate) fingerprint: u64,
    /// The group that met for it first, which is the only one.
    pub(crate) group: OnceLock<KnownGroup>,
}

impl Purpose {
    /// To do what is said in words, under a name.
    pub fn new(what: Arc<str>, name: Arc<str>, collective: Collective) -> Arc<Purpose> {
        // FNV-1a: the same in every process.
        let byte = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let fingerprint = what.bytes().fold(0xcbf2_9ce4_8422_2325, byte);
        Arc::new(Purpose { what, name, collective, fingerprint, group: OnceLock::new() })
    }
}

/// A device's part in a collective.
#[derive(Clone)]
pub struct CollectiveRequest<'a> {
    /// Where it meets the others.
    pub key: RendezvousKey,
    /// Who takes part, in the group's order; the device itself is among them.
    pub participants: &'a [usize],
    /// What it comes for.
    pub purpose: &'a Arc<Purpose>,
    /// The device's arrays.
    pub memory: ParticipantMemory,
    /// Threads that may help.
    pub parallel: &'a dyn Parallel,
    /// Whether the device waits for it at once, with nothing else to do meanwhile.
    pub waits: bool,
}

/// How the devices of one run meet.
pub trait Communicator: Debug + Send + Sync {
    /// Comes to a collective without waiting for it.
    ///
    /// # Safety
    /// The addresses must lead to arrays as long as the collective says, of which nobody writes the operands or touches
    /// the results until [`Communicator::wait`] has returned or [`Communicator::abandon`] has said that they are free.
    unsafe fn start(&self, device: usize, request: &CollectiveRequest<'_>) -> Result<Arrival, JoinError>;

    /// Whether a collective that the device came to is over, so that waiting for it takes no time.
    fn is_done(&self, arrival: &Arrival) -> bool;

    /// Waits until the device's results are there.
    fn wait(&self, device: usize, arrival: Arrival) -> Result<(), JoinError>;

    /// Sends a message; who sends does not wait for the receiver.
    fn send(&self, channel: i64, from: usize, to: usize, message: Vec<u8>) -> Result<(), JoinError>;

    /// Takes the next message from `from` on `channel`, waiting for it as long as it may come.
    fn receive(&self, channel: i64, from: usize, to: usize, what: &str) -> Result<Vec<u8>, JoinError>;

    /// Says that a device is done with its program.
    fn finish(&self, device: usize);

    /// Says that a device has failed, and why: nobody waits for it any longer.
    fn cancel(&self, device: usize, why: &str);

    /// Says that a device leaves collectives that it came to and has not waited for. `false` if its memory may be written
    /// to even so: then it must never be given back.
    fn abandon(&self, device: usize) -> bool;
}
