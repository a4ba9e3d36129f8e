//! What the engine keeps: mailboxes, runs, and bytes on their way.

use super::message::{OperationKey, Payload};
use super::message_passing::MessageRequests;
use super::operation::{Segment, Segments};
use super::staging::StagingBuffer;
use crate::rendezvous::JoinError;
use std::collections::BTreeSet;
use std::sync::Arc;

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

/// Runs of a series: all below a number, and some others.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunSet {
    pub(crate) below: u64,
    pub(crate) others: BTreeSet<u64>,
}

impl RunSet {
    pub(crate) fn insert(&mut self, number: u64) {
        if number != self.below {
            self.others.insert(number);
            return;
        }
        self.below += 1;
        while self.others.remove(&self.below) {
            self.below += 1;
        }
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        number < self.below || self.others.contains(&number)
    }
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
    pub(crate) failure: Option<JoinError>,
}

impl std::fmt::Debug for RunState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunState").field("failure", &self.failure).finish_non_exhaustive()
    }
}

/// A part of a collective that was announced before this process was ready for it.
#[derive(Debug)]
pub(crate) struct EarlyPart {
    pub(crate) rank: usize,
    pub(crate) stage: u8,
    pub(crate) fingerprint: u64,
    pub(crate) payload: Payload<'static>,
}

/// A part of a collective that is being received or was announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TagNote {
    pub(crate) key: OperationKey,
    pub(crate) stage: u8,
    pub(crate) is_received: bool,
}

/// Bytes on their way.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) requests: MessageRequests,
    pub(crate) bytes: Bytes,
    pub(crate) then: Then,
}

/// Keeps what is sent, or takes what comes.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// They are those of an operation.
    OfOperation,
    Announcement(Vec<u8>),
    Mail(Vec<u8>),
    /// Pieces of arrays put together, for all to whom they are sent.
    Packed(Arc<StagingBuffer>),
}

/// What follows when bytes have gone or come.
#[derive(Debug)]
pub(crate) enum Then {
    Nothing,
    /// The arrays of an operation have been sent to a process in a stage.
    Sent(OperationKey, u8, usize),
    /// Bytes from a process have come, to these places or, where there are none, where they belong.
    Received(OperationKey, u8, usize, Segments),
    Mail(Mailbox, u64),
}

/// Puts the bytes of segments together.
///
/// # Safety
/// The segments must be there.
pub(crate) unsafe fn pack(segments: &[Segment]) -> StagingBuffer {
    let packed = StagingBuffer::new(segments.iter().map(|s| s.length).sum());
    let mut to = packed.address();
    for s in segments {
        // SAFETY: the caller's promise; the buffer is as long as all of them, and nobody else's.
        unsafe { std::ptr::copy_nonoverlapping(s.address as *const u8, to as *mut u8, s.length) };
        to += s.length;
    }
    packed
}

/// Puts bytes where they belong.
///
/// # Safety
/// The segments must be there, nobody else's, and so many bytes must lie at `from`.
pub(crate) unsafe fn unpack(mut from: *const u8, segments: &[Segment]) {
    for s in segments {
        // SAFETY: the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(from, s.address as *mut u8, s.length);
            from = from.add(s.length);
        }
    }
}
