//! The parts of collectives: sent, announced, received, and what follows.
//!
//! Both sides know the tag under which the bytes of a part come: receives are begun together with the collective, before
//! anything is announced. The announcement says what the other came for; a part counts when both are there.

use super::engine::{Engine, FIRST_PART_TAG};
use super::engine_state::{Bytes, EarlyPart, TagNote, Then, pack};
use super::message::{INLINE_BYTES, Message, OperationKey, Payload, Subject, write_part};
use super::message_passing::{MessagePassing, MessageRequests};
use super::operation::{Operation, Segment, Segments};
use super::staging::StagingBuffer;
use crate::communicator::Purpose;
use crate::rendezvous::JoinError;
use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Pieces of a collective that are under way at once.
const PIECES_AT_ONCE: usize = 3;

fn length_of(segments: &[Segment]) -> usize {
    segments.iter().map(|s| s.length).sum()
}

impl Engine {
    /// Whom an operation waits for.
    pub(crate) fn absent(&self, key: &OperationKey) -> Vec<usize> {
        let pieces = self.operations.iter().filter(|(k, _)| OperationKey { piece: key.piece, ..**k } == *key);
        let first = pieces.min_by_key(|(k, _)| k.piece);
        first.map_or_else(Vec::new, |(_, operation)| operation.absent())
    }

    /// Begins a collective that all devices of this process have come to.
    ///
    /// # Safety
    /// Its memory must stay until it is done, or until [`Engine::touches_memory`] says no.
    pub(crate) unsafe fn begin(&mut self, key: OperationKey, mut operation: Box<Operation>) {
        // SAFETY: the caller's promise.
        unsafe { operation.prepare() };
        let pieces = (1..operation.pieces.min(PIECES_AT_ONCE)).map(|n| operation.other_piece(n)).collect::<Vec<_>>();
        self.begin_piece(key, operation);
        for operation in pieces {
            self.begin_piece(key, operation);
        }
    }

    fn begin_piece(&mut self, key: OperationKey, operation: Box<Operation>) {
        let key = OperationKey { piece: operation.piece as u32, ..key };
        self.operations.insert(key, operation);
        self.receive_stage(key, 0);
        self.send_stage(key, 0);
        self.take_early(key);
        self.advance(key);
    }

    pub(super) fn take_early(&mut self, key: OperationKey) {
        if self.early.is_empty() {
            return;
        }
        for EarlyPart { rank, stage, fingerprint, payload } in self.early.remove(&key).unwrap_or_default() {
            self.part(rank, key, stage, fingerprint, payload);
        }
    }

    /// The tag of a part's bytes.
    fn part_tag(&self, key: &OperationKey, stage: u8, length: usize) -> i32 {
        let count = (self.transport.max_tag() - FIRST_PART_TAG) as u64;
        FIRST_PART_TAG + (key.number(stage, length) % count) as i32
    }

    /// Begins to receive what comes in a stage, from those from whom it may.
    fn receive_stage(&mut self, key: OperationKey, stage: u8) {
        let Some(operation) = self.operations.get_mut(&key) else { return };
        let at = usize::from(stage);
        let mut receives = Vec::new();
        for peer in operation.peers() {
            let wanted = operation.missing[at].contains(peer) && !operation.posted[at].contains(peer);
            if !wanted || !operation.may_receive(stage, peer) {
                continue;
            }
            let segments = operation.incoming(stage, peer);
            let length = length_of(&segments);
            if length > INLINE_BYTES {
                operation.posted[at].insert(peer);
                receives.push((peer, operation.group.processes[peer].rank, segments, length));
            }
        }
        for (peer, rank, segments, length) in receives {
            let tag = self.part_tag(&key, stage, length);
            if !self.is_own_tag(rank, tag, TagNote { key, stage, is_received: true }) {
                return;
            }
            let (address, bytes, segments) = match segments[..] {
                [Segment { address, .. }] => (address, Bytes::OfOperation, Segments::new()),
                _ => {
                    let buffer = StagingBuffer::new(length);
                    (buffer.address(), Bytes::Packed(Arc::new(buffer)), segments)
                }
            };
            // SAFETY: the operation's memory stays until it is done, which it is not before this has come; a buffer is kept
            // until then.
            let receive = |t: &mut dyn MessagePassing, r: &mut MessageRequests| unsafe {
                t.receive(rank, tag, address as *mut u8, length, r)
            };
            self.transmit(receive, bytes, Then::Received(key, stage, peer, segments));
        }
    }

    /// Whether nothing else comes from a process under a tag just now. It is announced and received in any order: who comes
    /// first takes note, who comes second takes the note away.
    fn is_own_tag(&mut self, rank: usize, tag: i32, note: TagNote) -> bool {
        match self.tags.remove(&(rank, tag)) {
            None => {
                self.tags.insert((rank, tag), note);
                true
            }
            Some(other) if other == (TagNote { is_received: !note.is_received, ..note }) => true,
            Some(_) => {
                let why = format!("two messages of rank {rank} have the same tag ({tag}): run the program again");
                self.fail_operation(note.key, JoinError::Transport(why));
                false
            }
        }
    }

    fn send_stage(&mut self, key: OperationKey, stage: u8) {
        let Some(operation) = self.operations.get(&key) else { return };
        let (purpose, peers) = (operation.purpose.clone(), operation.peers());
        let fingerprint = purpose.fingerprint;
        // What goes to several is put together once.
        let mut packed: Option<(Segments, Arc<StagingBuffer>)> = None;
        for peer in peers {
            let Some(operation) = self.operations.get(&key) else { return };
            let (rank, segments) = (operation.group.processes[peer].rank, operation.outgoing(stage, peer));
            let length = length_of(&segments);
            if length == 0 {
                continue;
            }
            self.tell_purpose(rank, &purpose);
            if length <= INLINE_BYTES {
                let mut bytes = self.spare_buffer();
                // SAFETY: the operation's memory is there.
                unsafe { write_part(&mut bytes, &key, stage, fingerprint, &segments) };
                self.send_announcement(rank, bytes);
                continue;
            }
            let tag = self.part_tag(&key, stage, length);
            let subject = Subject::Part { key, stage, fingerprint };
            self.announce(rank, &Message { subject, payload: Payload::Follows { tag, length } });
            let (address, bytes, then) = if let [Segment { address, .. }] = segments[..] {
                if let Some(operation) = self.operations.get_mut(&key) {
                    operation.sending[usize::from(stage)].insert(peer);
                }
                (address, Bytes::OfOperation, Then::Sent(key, stage, peer))
            } else {
                let buffer = match &packed {
                    Some((same, buffer)) if *same == segments => buffer.clone(),
                    _ => {
                        // SAFETY: the operation's memory is there.
                        let buffer = Arc::new(unsafe { pack(&segments) });
                        packed = Some((segments, buffer.clone()));
                        buffer
                    }
                };
                (buffer.address(), Bytes::Packed(buffer), Then::Nothing)
            };
            // SAFETY: the operation's memory stays until it is done, which it is not before this is sent; what was put
            // together is kept until then.
            let send = |t: &mut dyn MessagePassing, r: &mut MessageRequests| unsafe {
                t.send(rank, tag, address as *const u8, length, r)
            };
            self.transmit(send, bytes, then);
        }
    }

    /// Takes up a part of a collective that was announced.
    pub(super) fn part(&mut self, rank: usize, key: OperationKey, stage: u8, fingerprint: u64, payload: Payload<'_>) {
        if self.is_closed(key.run) {
            let is_received = match payload {
                Payload::Follows { tag, .. } => self.tags.remove(&(rank, tag)).is_some_and(|note| note.key == key),
                Payload::Inline(_) => true,
            };
            if !is_received {
                self.discard(rank, &payload);
            }
            return;
        }
        let early = |engine: &mut Engine, payload: Payload<'_>| {
            let part = EarlyPart { rank, stage, fingerprint, payload: payload.into_owned() };
            engine.early.entry(key).or_default().push(part);
        };
        let Some(operation) = self.operations.get_mut(&key) else { return early(self, payload) };
        let is_same = stage < 2 && fingerprint == operation.purpose.fingerprint;
        let Some(peer) = operation.process(rank).filter(|_| is_same) else {
            return self.disagree(rank, key, fingerprint, None);
        };
        let may_receive = operation.may_receive(stage, peer);
        let at = usize::from(stage);
        match payload {
            Payload::Inline(_) if !may_receive => {
                operation.unheard[at].remove(peer);
                early(self, payload);
            }
            Payload::Inline(bytes) => {
                let segments = operation.incoming(stage, peer);
                let (length, expected) = (bytes.len(), length_of(&segments));
                if length != expected {
                    return self.disagree(rank, key, fingerprint, Some((length, expected)));
                }
                // SAFETY: the segments are those of the operation's memory, and as long as the bytes.
                unsafe { super::engine_state::unpack(bytes.as_ptr(), &segments) };
                operation.unheard[at].remove(peer);
                operation.missing[at].remove(peer);
            }
            Payload::Follows { tag, length } => {
                let expected = length_of(&operation.incoming(stage, peer));
                if length != expected {
                    return self.disagree(rank, key, fingerprint, Some((length, expected)));
                }
                operation.unheard[at].remove(peer);
                self.is_own_tag(rank, tag, TagNote { key, stage, is_received: false });
            }
        }
    }

    /// A process has come for something else than this one, or with another number of bytes.
    fn disagree(&mut self, rank: usize, key: OperationKey, fingerprint: u64, lengths: Option<(usize, usize)>) {
        let Some(operation) = self.operations.get(&key) else { return };
        let group = &operation.group;
        let place = operation.process(rank).map(|p| group.processes[p].places[0]);
        let device = place.map_or(key.first, |p| group.participants[p]);
        let mut what = match self.purposes.get(&fingerprint) {
            Some(what) => what.clone(),
            None => format!("what has the number {fingerprint:016x}"),
        };
        if let Some((length, expected)) = lengths {
            what += &format!(" ({length} bytes instead of {expected})");
        }
        self.fail_operation(key, JoinError::Disagree { device, what });
    }

    /// Tells a process what collectives of a number do, unless it knows.
    pub(super) fn tell_purpose(&mut self, rank: usize, purpose: &Purpose) {
        let fingerprint = purpose.fingerprint;
        if !self.told.contains(&(rank, fingerprint)) {
            self.told.insert((rank, fingerprint));
            let subject = Subject::Purpose { fingerprint, what: Cow::Borrowed(&purpose.what) };
            self.announce(rank, &Message { subject, payload: Payload::NOTHING });
        }
    }

    pub(super) fn sent(&mut self, key: OperationKey, stage: u8, peer: usize) {
        if let Some(operation) = self.operations.get_mut(&key) {
            operation.sending[usize::from(stage)].remove(peer);
        }
        self.advance(key);
    }

    pub(super) fn received(&mut self, key: OperationKey, stage: u8, peer: usize) {
        if let Some(operation) = self.operations.get_mut(&key) {
            operation.missing[usize::from(stage)].remove(peer);
            self.advance(key);
        }
    }

    /// Lets an operation go on with what has come.
    pub(super) fn advance(&mut self, key: OperationKey) {
        loop {
            let Some(operation) = self.operations.get_mut(&key) else { return };
            let before = operation.stage;
            // SAFETY: the operation's memory stays until it is done.
            let another_stage = unsafe { operation.advance() };
            if operation.is_done() {
                return self.done(key);
            }
            let in_second = operation.stage == 1;
            if another_stage {
                self.send_stage(key, 1);
            }
            if in_second {
                self.receive_stage(key, 1);
            }
            let waiting = self.early.get(&key).map_or(0, Vec::len);
            if waiting > 0 {
                self.take_early(key);
            }
            let after = self.early.get(&key).map_or(0, Vec::len);
            let stage = self.operations.get(&key).map_or(before, |o| o.stage);
            if stage == before && after == waiting {
                return;
            }
        }
    }

    /// A piece is done: another is begun, or all is.
    fn done(&mut self, key: OperationKey) {
        let Some(operation) = self.operations.remove(&key) else { return };
        if operation.status.pieces_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            operation.status.is_done.store(true, Ordering::Release);
            return;
        }
        let next = operation.piece + PIECES_AT_ONCE;
        if next < operation.pieces {
            let next = operation.other_piece(next);
            drop(operation);
            self.begin_piece(key, next);
        }
    }

    pub(super) fn fail_operation(&mut self, key: OperationKey, error: JoinError) {
        if let Some(operation) = self.operations.get(&key) {
            operation.status.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }
}
