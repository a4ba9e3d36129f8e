//! What the engine keeps: mailboxes, runs, and bytes on their way.

use super::message::OperationKey;
use super::message_passing::MessageRequest;
use super::operation::Segment;
use crate::rendezvous::JoinError;
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;

/// Runs are numbered within their series, in so many bits.
pub(crate) const SERIES_SHIFT: u32 = 40;

/// What a run is told when a device leaves it.
pub(crate) trait RunListener: Send + Sync {
    /// A device of another process is done.
    fn finished(&self, device: usize);
    /// The run cannot go on.
    fn failed(&self);
}

/// A mailbox: run, channel, sender and receiver.
pub(crate) type Mailbox = (u64, i64, usize, usize);

/// The runs of a series that are over: all below the first, and the others.
#[derive(Debug, Default)]
pub(crate) struct ClosedRuns {
    pub(crate) first_open: u64,
    pub(crate) others: BTreeSet<u64>,
}

/// The number of a run within its series.
pub(crate) const NUMBER: u64 = (1 << SERIES_SHIFT) - 1;

/// A message that has come, or is coming.
#[derive(Debug)]
pub(crate) enum MailState {
    Here(Vec<u8>),
    Coming(u64),
}

/// What is known of a run.
#[derive(Default)]
pub(crate) struct RunState {
    pub(crate) listener: Option<std::sync::Weak<dyn RunListener>>,
    pub(crate) finished: FxHashSet<usize>,
    pub(crate) failure: Option<JoinError>,
}

impl std::fmt::Debug for RunState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunState")
            .field("finished", &self.finished)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}

/// Bytes on their way.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) requests: Vec<MessageRequest>,
    /// Keeps what is sent, or takes what comes.
    pub(crate) buffer: Vec<u8>,
    pub(crate) then: Then,
}

/// What follows when bytes have gone or come.
#[derive(Debug)]
pub(crate) enum Then {
    Nothing,
    /// The arrays of an operation have been sent to a process in a stage.
    Sent(OperationKey, u8, usize),
    /// Bytes from a process have come, to these places or, where there are none, where they belong.
    Received(OperationKey, u8, usize, Vec<Segment>),
    Mail(Mailbox, u64),
}

/// # Safety
/// The segments must be there.
pub(crate) unsafe fn pack(segments: &[Segment]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(segments.iter().map(|s| s.length).sum());
    for s in segments {
        // SAFETY: the caller's promise.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(s.address as *const u8, s.length) });
    }
    bytes
}

/// # Safety
/// The segments must be there, nobody else's, and together no longer than the bytes.
pub(crate) unsafe fn unpack(bytes: &[u8], segments: &[Segment]) {
    let mut first = 0;
    for s in segments {
        let part = &bytes[first..first + s.length];
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), s.address as *mut u8, s.length) };
        first += s.length;
    }
}
