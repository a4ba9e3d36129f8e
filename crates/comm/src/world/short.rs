//! Short all-reduces: what every process brings goes with its head, and every process reduces all of it.
//!
//! Most are over in the time that a message takes, which is that of some hundred instructions. So no operation is made for
//! one that the others come to as well: what a device brings is sent, what the others bring has the head that was sent, and
//! the last of it is followed by the results. One that is not over after some looks goes on as any collective does.

use super::engine::Engine;
use super::group::Group;
use super::message::{HEAD_BYTES, INLINE_BYTES, OperationKey, Payload, head};
use super::operation::{Operation, OperationStatus, Segment, Segments};
use super::peer_set::PeerSet;
use super::staging::StagingBuffer;
use crate::collective::{ArrayGeometry, CollectiveKind, ParticipantMemory};
use crate::communicator::Purpose;
use smallvec::SmallVec;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Where arrays begin in what is kept of other processes' contributions: aligned for any element.
const ALIGNMENT: usize = 16;

/// Whether a collective is a short all-reduce, of one device of each process.
pub(super) fn is_short(purpose: &Purpose, group: &Group) -> bool {
    matches!(purpose.collective.kind, CollectiveKind::AllReduce(_))
        && (1..=INLINE_BYTES).contains(&bytes_of(purpose))
        && group.places.len() == group.processes.len()
}

fn bytes_of(purpose: &Purpose) -> usize {
    purpose.collective.arrays.iter().map(|a| a.bytes).sum()
}

/// What has come of a short all-reduce.
#[derive(Debug, Default)]
pub(super) struct ShortInputs {
    /// The contributions of all processes, one after another; this one's place is empty.
    arrays: StagingBuffer,
    /// From where on one begins to where the next does, and the bytes of one as it travels.
    each: usize,
    bytes: usize,
    /// Whose have come.
    received: PeerSet,
    /// How many have not.
    missing: usize,
}

impl ShortInputs {
    fn of(&self, process: usize) -> usize {
        self.arrays.address() + process * self.each
    }

    /// Makes ready for another one.
    fn begin(&mut self, purpose: &Purpose, group: &Group) {
        self.each = purpose.collective.arrays.iter().map(|a| a.bytes.next_multiple_of(ALIGNMENT)).sum();
        self.arrays.make_room(self.each * group.processes.len());
        self.received.clear();
        (self.bytes, self.missing) = (bytes_of(purpose), group.processes.len() - 1);
    }

    /// Keeps what a process brings; `false` if it is not as it should be, or has come before.
    fn take(&mut self, purpose: &Purpose, group: &Group, rank: usize, mut bytes: &[u8]) -> bool {
        let process = group.processes.iter().position(|p| p.rank == rank && bytes.len() == self.bytes);
        let Some(process) = process.filter(|&p| p != group.me && !self.received.contains(p)) else { return false };
        let mut to = self.of(process);
        for array in &purpose.collective.arrays {
            let Some((one, rest)) = bytes.split_at_checked(array.bytes) else { return false };
            // SAFETY: there is room for all arrays of every process.
            unsafe { std::ptr::copy_nonoverlapping(one.as_ptr(), to as *mut u8, one.len()) };
            (bytes, to) = (rest, to + array.bytes.next_multiple_of(ALIGNMENT));
        }
        self.received.insert(process);
        self.missing -= 1;
        true
    }

    /// Reduces everything.
    ///
    /// # Safety
    /// All must have come, and the memory must be as the collective says.
    unsafe fn reduce(&self, purpose: &Purpose, group: &Group, memory: &ParticipantMemory) {
        let CollectiveKind::AllReduce(reducers) = &purpose.collective.kind else { return };
        let mut at = 0;
        for (n, (reducer, array)) in reducers.iter().zip(&purpose.collective.arrays).enumerate() {
            let of = |p: usize| if p == group.me { memory.operands[n] } else { self.of(p) + at };
            // One device of each process: their order is the group's.
            let from: SmallVec<[usize; 8]> = (0..group.processes.len()).map(of).collect();
            // SAFETY: the caller's promise.
            unsafe { reducer.reduce(&from, &[memory.results[n]], array.bytes / reducer.element_bytes().max(1)) };
            at += array.bytes.next_multiple_of(ALIGNMENT);
        }
    }
}

impl Engine {
    /// Does a short all-reduce if the others come to it before long; otherwise it is under way after so many looks, and this
    /// is what becomes of it. `note` is called once what the device brings is sent, and what it gives kept meanwhile.
    ///
    /// # Safety
    /// As for [`Engine::begin`].
    pub(super) unsafe fn try_short<N>(
        &mut self,
        key: OperationKey,
        (purpose, group): (&Arc<Purpose>, &Arc<Group>),
        memory: &ParticipantMemory,
        looks: u32,
        note: impl FnOnce() -> N,
    ) -> Option<Arc<OperationStatus>> {
        let head = head(&key, 0, purpose.fingerprint, None);
        // SAFETY: the caller's promise.
        unsafe { self.send_short(&head, purpose, group, memory) };
        let _note = note();
        let mut inputs = std::mem::take(&mut self.short_inputs);
        inputs.begin(purpose, group);
        if !self.early.is_empty()
            && let Entry::Occupied(mut early) = self.early.entry(key)
        {
            early.get_mut().retain(|part| match &part.payload {
                Payload::Inline(bytes) if part.stage == 0 && part.fingerprint == purpose.fingerprint => {
                    !inputs.take(purpose, group, part.rank, bytes)
                }
                _ => true,
            });
            if early.get().is_empty() {
                early.remove();
            }
        }
        let mut looked = 0;
        while inputs.missing > 0 && looked < looks {
            looked += 1;
            self.progress_unless(|rank, bytes| {
                bytes.strip_prefix(&head[..]).is_some_and(|bytes| inputs.take(purpose, group, rank, bytes))
            });
        }
        let status = if inputs.missing == 0 {
            // SAFETY: the caller's promise; all contributions have come.
            unsafe { inputs.reduce(purpose, group, memory) };
            None
        } else {
            // SAFETY: the caller's promise.
            Some(unsafe { self.short_goes_on(key, purpose, group, memory, &inputs) })
        };
        self.short_inputs = inputs;
        status
    }

    /// Sends what a device brings to all others.
    ///
    /// # Safety
    /// The device's operands must be there.
    unsafe fn send_short(
        &mut self,
        head: &[u8; HEAD_BYTES],
        purpose: &Purpose,
        group: &Group,
        memory: &ParticipantMemory,
    ) {
        for &rank in &group.peers {
            self.tell_purpose(rank, purpose);
            let mut bytes = self.spare_buffer();
            bytes.extend_from_slice(head);
            for (&address, array) in memory.operands.iter().zip(&purpose.collective.arrays) {
                // SAFETY: the caller's promise.
                bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(address as *const u8, array.bytes) });
            }
            self.send_announcement(rank, bytes);
        }
    }

    /// Goes on with a short all-reduce whose parts have not all come.
    ///
    /// # Safety
    /// As for [`Engine::begin`].
    #[cold]
    unsafe fn short_goes_on(
        &mut self,
        key: OperationKey,
        purpose: &Arc<Purpose>,
        group: &Arc<Group>,
        memory: &ParticipantMemory,
        inputs: &ShortInputs,
    ) -> Arc<OperationStatus> {
        // SAFETY: the caller's promise.
        let mut operation = unsafe { Operation::new(purpose, group, Arc::new([memory.clone()])) };
        // SAFETY: the caller's promise.
        unsafe { operation.prepare() };
        for process in inputs.received.iter() {
            let mut from = inputs.of(process);
            let one = |array: &ArrayGeometry| {
                let segment = Segment { address: from, length: array.bytes };
                from += array.bytes.next_multiple_of(ALIGNMENT);
                segment
            };
            let segments: Segments = purpose.collective.arrays.iter().map(one).collect();
            // SAFETY: so many bytes have come.
            unsafe { operation.take_whole(process, &segments) };
        }
        let status = operation.status.clone();
        self.operations.insert(key, operation);
        self.take_early(key);
        self.advance(key);
        status
    }
}
