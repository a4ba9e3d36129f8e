//! The engine: what is under way between this process and the others, and how it goes on.
//!
//! The message-passing library is called by one thread at a time, under one lock (`MPI_THREAD_SERIALIZED`): by a device that
//! waits, or, when devices compute while collectives are under way, by the communication thread. So a short collective costs
//! no change of threads, and a long one goes on beside the computation.

use super::engine_state::{
    ClosedRuns, InFlight, MailState, Mailbox, NUMBER, RunListener, RunState, SERIES_SHIFT, Then, pack, unpack,
};
use super::message::{CONTROL_RUN, Message, OperationKey, Payload, Subject};
use super::message_passing::{MessagePassing, MessageRequest, TransportError};
use super::operation::{Operation, Segment};
use crate::rendezvous::{JoinError, Whereabouts};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// The tag of announcements.
const ANNOUNCE: i32 = 1;
/// The tags of bytes that follow; every library has tags up to this.
const DATA_TAGS: std::ops::Range<i32> = 2..32_768;
/// Bytes that go with their announcement.
const INLINE: usize = 16 << 10;

#[derive(Debug)]
pub(crate) struct Engine {
    transport: Box<dyn MessagePassing>,
    operations: FxHashMap<OperationKey, Operation>,
    /// Parts of collectives that this process has not come to yet, or not far enough.
    early: FxHashMap<OperationKey, Vec<(usize, u8, String, Payload)>>,
    /// Messages that have come, or are coming (those are taken in order all the same).
    mail: FxHashMap<Mailbox, VecDeque<MailState>>,
    in_flight: Vec<InFlight>,
    next_tag: Vec<i32>,
    next_letter: u64,
    runs: FxHashMap<u64, RunState>,
    /// Runs that are over, by the series that they belong to.
    closed: FxHashMap<u64, ClosedRuns>,
    /// A failure of a process outside any run, or of the library: everything ends.
    broken: Option<JoinError>,
    /// The library has been ended: it must not be called any more.
    ended: bool,
}

impl Engine {
    pub(crate) fn new(transport: Box<dyn MessagePassing>) -> Engine {
        let size = transport.size();
        Engine {
            transport,
            operations: FxHashMap::default(),
            early: FxHashMap::default(),
            mail: FxHashMap::default(),
            in_flight: Vec::new(),
            next_tag: vec![DATA_TAGS.start; size],
            next_letter: 0,
            runs: FxHashMap::default(),
            closed: FxHashMap::default(),
            broken: None,
            ended: false,
        }
    }

    pub(crate) fn rank(&self) -> usize {
        self.transport.rank()
    }

    pub(crate) fn size(&self) -> usize {
        self.transport.size()
    }

    /// Whether anything goes on by itself: a thread should see to it.
    pub(crate) fn is_busy(&self) -> bool {
        !self.in_flight.is_empty() || !self.operations.is_empty()
    }

    /// Whether memory of devices may still be written to or read by what is under way in a run.
    pub(crate) fn touches_memory(&self, run: u64) -> bool {
        self.operations.keys().any(|k| k.run == run)
            || self.in_flight.iter().any(|f| match &f.then {
                Then::Sent(key, ..) | Then::Received(key, ..) => key.run == run,
                _ => false,
            })
    }

    pub(crate) fn open(&mut self, run: u64, listener: std::sync::Weak<dyn RunListener>) {
        let state = self.runs.entry(run).or_default();
        state.listener = Some(listener.clone());
        if let Some(listener) = listener.upgrade() {
            state.finished.iter().for_each(|&d| listener.finished(d));
            if state.failure.is_some() {
                listener.failed();
            }
        }
    }

    pub(crate) fn close(&mut self, run: u64) {
        self.runs.remove(&run);
        self.early.retain(|k, _| k.run != run);
        self.mail.retain(|m, _| m.0 != run);
        // What is under way for a run that has failed may still use these.
        let left: Vec<OperationKey> = self.operations.keys().filter(|k| k.run == run).copied().collect();
        left.iter().for_each(|key| std::mem::forget(self.operations.remove(key)));
        let closed = self.closed.entry(run >> SERIES_SHIFT).or_default();
        closed.others.insert(run & NUMBER);
        while closed.others.remove(&closed.first_open) {
            closed.first_open += 1;
        }
    }

    fn is_closed(&self, run: u64) -> bool {
        let closed = self.closed.get(&(run >> SERIES_SHIFT));
        closed.is_some_and(|c| run & NUMBER < c.first_open || c.others.contains(&(run & NUMBER)))
    }

    /// Why a run, or everything, cannot go on.
    pub(crate) fn failure(&self, run: u64) -> Option<JoinError> {
        self.broken.clone().or_else(|| self.runs.get(&run).and_then(|r| r.failure.clone()))
    }

    /// Of the devices, those that are done with their program in a run.
    pub(crate) fn finished_among(&self, run: u64, devices: &[usize]) -> Vec<(usize, Whereabouts)> {
        // A run that has failed ends for that reason.
        let finished = self.runs.get(&run).filter(|r| r.failure.is_none()).map(|r| &r.finished);
        let is_done = |d: &&usize| finished.is_some_and(|f| f.contains(d));
        devices.iter().filter(is_done).map(|&d| (d, Whereabouts::Finished)).collect()
    }

    /// Whom an operation waits for.
    pub(crate) fn absent(&self, key: &OperationKey) -> Vec<usize> {
        self.operations.get(key).map_or_else(Vec::new, Operation::absent)
    }

    /// Begins a collective that all devices of this process have come to.
    ///
    /// # Safety
    /// Its memory must stay until it is done, or until [`Engine::touches_memory`] says no.
    pub(crate) unsafe fn begin(&mut self, key: OperationKey, operation: Operation) {
        self.operations.insert(key, operation);
        self.send_stage(key, 0);
        for (rank, stage, what, payload) in self.early.remove(&key).unwrap_or_default() {
            self.part(rank, key, stage, what, payload);
        }
        self.advance(key);
    }

    /// Sends a message to a device or, in the run [`CONTROL_RUN`], to a process.
    pub(crate) fn post(&mut self, rank: usize, mailbox: Mailbox, message: Vec<u8>) {
        let (run, channel, from, to) = mailbox;
        if rank == self.rank() {
            self.mail.entry(mailbox).or_default().push_back(MailState::Here(message));
            return;
        }
        let subject = Subject::Mail { run, channel, from, to };
        if message.len() <= INLINE {
            return self.announce(rank, &Message { subject, payload: Payload::Inline(message) });
        }
        let tag = self.tag(rank);
        self.announce(rank, &Message { subject, payload: Payload::Follows { tag, length: message.len() } });
        let (bytes, length) = (message.as_ptr(), message.len());
        // SAFETY: the message is kept until it is sent; moving the vector does not move its bytes.
        self.transmit(|t, r| unsafe { t.send(rank, tag, bytes, length, r) }, message, Then::Nothing);
    }

    /// The next message in a mailbox, if it has come.
    pub(crate) fn take(&mut self, mailbox: &Mailbox) -> Option<Vec<u8>> {
        let queue = self.mail.get_mut(mailbox)?;
        match queue.pop_front()? {
            MailState::Here(message) => Some(message),
            coming => {
                queue.push_front(coming);
                None
            }
        }
    }

    /// Whether a message is there or on its way.
    pub(crate) fn is_coming(&self, mailbox: &Mailbox) -> bool {
        self.mail.get(mailbox).is_some_and(|queue| !queue.is_empty())
    }

    /// Tells all other processes that a device is done.
    pub(crate) fn tell_finished(&mut self, run: u64, device: usize) {
        self.tell_all(&Message { subject: Subject::Finished { run, device }, payload: Payload::Inline(Vec::new()) });
    }

    /// Tells all other processes that a run cannot go on, unless they know.
    pub(crate) fn tell_failed(&mut self, run: u64, device: Option<usize>, why: &str) {
        if self.failure(run).is_some() {
            return;
        }
        self.fail(run, JoinError::Cancelled);
        let subject = Subject::Failed { run, device, why: why.to_owned() };
        self.tell_all(&Message { subject, payload: Payload::Inline(Vec::new()) });
    }

    fn tell_all(&mut self, message: &Message) {
        let own = self.rank();
        for rank in (0..self.size()).filter(|&r| r != own) {
            self.announce(rank, message);
        }
    }

    fn fail(&mut self, run: u64, why: JoinError) {
        if run == CONTROL_RUN {
            self.broken.get_or_insert(why);
            let listeners = self.runs.values().filter_map(|r| r.listener.as_ref()?.upgrade());
            listeners.for_each(|l| l.failed());
            return;
        }
        let state = self.runs.entry(run).or_default();
        state.failure.get_or_insert(why);
        if let Some(listener) = state.listener.as_ref().and_then(std::sync::Weak::upgrade) {
            listener.failed();
        }
    }

    fn announce(&mut self, rank: usize, message: &Message) {
        let bytes = message.encode();
        let (address, length) = (bytes.as_ptr(), bytes.len());
        // SAFETY: the bytes are kept until they are sent; moving the vector does not move them.
        self.transmit(|t, r| unsafe { t.send(rank, ANNOUNCE, address, length, r) }, bytes, Then::Nothing);
    }

    fn tag(&mut self, rank: usize) -> i32 {
        let tag = self.next_tag[rank];
        self.next_tag[rank] = if tag + 1 < DATA_TAGS.end { tag + 1 } else { DATA_TAGS.start };
        tag
    }

    fn transmit(
        &mut self,
        begin: impl FnOnce(&mut dyn MessagePassing, &mut Vec<MessageRequest>) -> Result<(), TransportError>,
        buffer: Vec<u8>,
        then: Then,
    ) {
        let mut requests = Vec::with_capacity(1);
        match begin(&mut *self.transport, &mut requests) {
            Ok(()) => self.in_flight.push(InFlight { requests, buffer, then }),
            Err(error) => {
                // What has begun may still use the buffer.
                std::mem::forget(buffer);
                self.fail(CONTROL_RUN, JoinError::Transport(error.0));
            }
        }
    }

    fn send_stage(&mut self, key: OperationKey, stage: u8) {
        let Some(operation) = self.operations.get(&key) else { return };
        let what = operation.what.clone();
        let messages: Vec<(usize, usize, Vec<Segment>)> =
            operation.peers().map(|p| (p, operation.processes[p].rank, operation.outgoing(stage, p))).collect();
        for (peer, rank, segments) in messages {
            let length: usize = segments.iter().map(|s| s.length).sum();
            if length == 0 {
                continue;
            }
            let subject = Subject::Part { key, stage, what: what.clone() };
            if length <= INLINE {
                // SAFETY: the operation's memory is there.
                let bytes = unsafe { pack(&segments) };
                self.announce(rank, &Message { subject, payload: Payload::Inline(bytes) });
                continue;
            }
            let tag = self.tag(rank);
            self.announce(rank, &Message { subject, payload: Payload::Follows { tag, length } });
            if let [Segment { address, length }] = segments[..] {
                if let Some(operation) = self.operations.get_mut(&key) {
                    operation.sending[usize::from(stage)].insert(peer);
                }
                let then = Then::Sent(key, stage, peer);
                // SAFETY: the operation's memory stays until it is done, which it is not before this is sent.
                self.transmit(|t, r| unsafe { t.send(rank, tag, address as *const u8, length, r) }, Vec::new(), then);
            } else {
                // SAFETY: the operation's memory is there.
                let bytes = unsafe { pack(&segments) };
                let address = bytes.as_ptr();
                // SAFETY: the bytes are kept until they are sent; moving the vector does not move them.
                self.transmit(|t, r| unsafe { t.send(rank, tag, address, length, r) }, bytes, Then::Nothing);
            }
        }
    }

    /// Takes up a part of a collective that was announced.
    fn part(&mut self, rank: usize, key: OperationKey, stage: u8, what: String, payload: Payload) {
        if self.is_closed(key.run) {
            return self.discard(rank, payload);
        }
        let early = |engine: &mut Engine, what, payload| {
            engine.early.entry(key).or_default().push((rank, stage, what, payload));
        };
        let Some(operation) = self.operations.get_mut(&key) else { return early(self, what, payload) };
        let disagree = |operation: &Operation, what: String| {
            let places = operation.process(rank).map(|p| operation.processes[p].places[0]);
            JoinError::Disagree { device: places.map_or(key.first, |p| operation.participants[p]), what }
        };
        let length = match &payload {
            Payload::Inline(bytes) => bytes.len(),
            Payload::Follows { length, .. } => *length,
        };
        let peer = operation.process(rank).filter(|_| stage < 2 && operation.what == what);
        let Some(peer) = peer else {
            let error = disagree(operation, what);
            return self.fail_operation(key, error);
        };
        operation.heard[usize::from(stage)].insert(peer);
        if !operation.may_receive(stage, peer) {
            return early(self, what, payload);
        }
        let segments = operation.incoming(stage, peer);
        let expected: usize = segments.iter().map(|s| s.length).sum();
        if length != expected {
            let error = disagree(operation, format!("{what} ({length} bytes instead of {expected})"));
            return self.fail_operation(key, error);
        }
        match payload {
            Payload::Inline(bytes) => {
                // SAFETY: the segments are those of the operation's memory, and as long as the bytes.
                unsafe { unpack(&bytes, &segments) };
                self.received(key, stage, peer);
            }
            Payload::Follows { tag, length } => {
                if let [Segment { address, .. }] = segments[..] {
                    let then = Then::Received(key, stage, peer, Vec::new());
                    // SAFETY: the operation's memory stays until it is done, which it is not before this has come.
                    let begin = |t: &mut dyn MessagePassing, r: &mut Vec<MessageRequest>| unsafe {
                        t.receive(rank, tag, address as *mut u8, length, r)
                    };
                    self.transmit(begin, Vec::new(), then);
                } else {
                    let mut buffer = vec![0; length];
                    let address = buffer.as_mut_ptr();
                    // SAFETY: the buffer is kept until the bytes have come; moving the vector does not move them.
                    let begin = |t: &mut dyn MessagePassing, r: &mut Vec<MessageRequest>| unsafe {
                        t.receive(rank, tag, address, length, r)
                    };
                    self.transmit(begin, buffer, Then::Received(key, stage, peer, segments));
                }
            }
        }
    }

    /// Receives bytes that nobody wants.
    fn discard(&mut self, rank: usize, payload: Payload) {
        let Payload::Follows { tag, length } = payload else { return };
        let mut buffer = vec![0; length];
        let address = buffer.as_mut_ptr();
        // SAFETY: the buffer is kept until the bytes have come; moving the vector does not move them.
        self.transmit(|t, r| unsafe { t.receive(rank, tag, address, length, r) }, buffer, Then::Nothing);
    }

    fn received(&mut self, key: OperationKey, stage: u8, peer: usize) {
        if let Some(operation) = self.operations.get_mut(&key) {
            operation.missing[usize::from(stage)].remove(&peer);
        }
    }

    /// Lets an operation go on with what has come.
    fn advance(&mut self, key: OperationKey) {
        loop {
            let Some(operation) = self.operations.get_mut(&key) else { return };
            // SAFETY: the operation's memory stays until it is done.
            let another_stage = unsafe { operation.advance() };
            if operation.is_done() {
                operation.status.is_done.store(true, Ordering::Release);
                self.operations.remove(&key);
                return;
            }
            if another_stage {
                self.send_stage(key, 1);
            }
            let waiting = self.early.remove(&key).unwrap_or_default();
            let before = waiting.len();
            for (rank, stage, what, payload) in waiting {
                self.part(rank, key, stage, what, payload);
            }
            let after = self.early.get(&key).map_or(0, Vec::len);
            if !another_stage && after == before {
                return;
            }
        }
    }

    fn fail_operation(&mut self, key: OperationKey, error: JoinError) {
        if let Some(operation) = self.operations.get(&key) {
            let mut slot = operation.status.error.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            slot.get_or_insert(error);
        }
    }

    /// Takes what has come and goes on with what can go on; whether anything happened.
    pub(crate) fn progress(&mut self) -> bool {
        let mut changed = false;
        if self.broken.is_some() || self.ended {
            return false;
        }
        loop {
            match self.transport.probe(ANNOUNCE) {
                Ok(Some((rank, length))) => {
                    changed = true;
                    self.read_announcement(rank, length);
                }
                Ok(None) => break,
                Err(error) => {
                    self.fail(CONTROL_RUN, JoinError::Transport(error.0));
                    break;
                }
            }
        }
        let mut n = 0;
        while n < self.in_flight.len() {
            match self.complete(n) {
                Ok(true) => {
                    let done = self.in_flight.swap_remove(n);
                    changed = true;
                    self.follow(done);
                }
                Ok(false) => n += 1,
                Err(error) => {
                    self.fail(CONTROL_RUN, JoinError::Transport(error.0));
                    return true;
                }
            }
        }
        changed
    }

    fn complete(&mut self, n: usize) -> Result<bool, TransportError> {
        let requests = &mut self.in_flight[n].requests;
        while let Some(&request) = requests.last() {
            if !self.transport.is_complete(request)? {
                return Ok(false);
            }
            requests.pop();
        }
        Ok(true)
    }

    fn follow(&mut self, done: InFlight) {
        match done.then {
            Then::Nothing => {}
            Then::Sent(key, stage, peer) => {
                if let Some(operation) = self.operations.get_mut(&key) {
                    operation.sending[usize::from(stage)].remove(&peer);
                }
                self.advance(key);
            }
            Then::Received(key, stage, peer, segments) => {
                if self.operations.contains_key(&key) {
                    // SAFETY: the segments are those of the operation's memory, which stays until it is done.
                    unsafe { unpack(&done.buffer, &segments) };
                    self.received(key, stage, peer);
                    self.advance(key);
                }
            }
            Then::Mail(mailbox, letter) => {
                let queue = self.mail.get_mut(&mailbox);
                let is_it = |m: &&mut MailState| matches!(m, MailState::Coming(n) if *n == letter);
                if let Some(place) = queue.and_then(|q| q.iter_mut().find(is_it)) {
                    *place = MailState::Here(done.buffer);
                }
            }
        }
    }

    fn read_announcement(&mut self, rank: usize, length: usize) {
        let mut bytes = vec![0; length];
        let mut requests = Vec::new();
        // SAFETY: the buffer is kept until the bytes have come, which is awaited here: they are at hand.
        let begun = unsafe { self.transport.receive(rank, ANNOUNCE, bytes.as_mut_ptr(), length, &mut requests) };
        let mut ended = begun;
        for request in requests {
            while ended.is_ok() {
                match self.transport.is_complete(request) {
                    Ok(true) => break,
                    Ok(false) => std::hint::spin_loop(),
                    Err(error) => ended = Err(error),
                }
            }
        }
        if let Err(error) = ended {
            std::mem::forget(bytes);
            return self.fail(CONTROL_RUN, JoinError::Transport(error.0));
        }
        let Some(Message { subject, payload }) = Message::decode(&bytes) else {
            let why = format!("process {rank} sends what is no message");
            return self.fail(CONTROL_RUN, JoinError::Transport(why));
        };
        match subject {
            Subject::Part { key, stage, what } => {
                self.part(rank, key, stage, what, payload);
                self.advance(key);
            }
            Subject::Mail { run, .. } if self.is_closed(run) && run != CONTROL_RUN => self.discard(rank, payload),
            Subject::Mail { run, channel, from, to } => {
                let mailbox = (run, channel, from, to);
                match payload {
                    Payload::Inline(message) => {
                        self.mail.entry(mailbox).or_default().push_back(MailState::Here(message));
                    }
                    Payload::Follows { tag, length } => {
                        self.next_letter += 1;
                        let letter = self.next_letter;
                        self.mail.entry(mailbox).or_default().push_back(MailState::Coming(letter));
                        let mut buffer = vec![0; length];
                        let address = buffer.as_mut_ptr();
                        // SAFETY: the buffer is kept until the bytes have come; moving the vector does not move them.
                        let begin = |t: &mut dyn MessagePassing, r: &mut Vec<MessageRequest>| unsafe {
                            t.receive(rank, tag, address, length, r)
                        };
                        self.transmit(begin, buffer, Then::Mail(mailbox, letter));
                    }
                }
            }
            Subject::Finished { run, device } => {
                if self.is_closed(run) {
                    return;
                }
                let state = self.runs.entry(run).or_default();
                state.finished.insert(device);
                if let Some(listener) = state.listener.as_ref().and_then(std::sync::Weak::upgrade) {
                    listener.finished(device);
                }
            }
            Subject::Failed { run, device, why } => {
                if run == CONTROL_RUN || !self.is_closed(run) {
                    self.fail(run, JoinError::PeerFailed { rank, device, why });
                }
            }
        }
    }

    /// Lets what was sent go out, also when everything else has ended.
    pub(crate) fn flush(&mut self) {
        let broken = self.broken.take();
        self.progress();
        self.broken = broken.or(self.broken.take());
        let sends = self.in_flight.iter().any(|f| matches!(f.then, Then::Nothing));
        if !sends && self.broken.is_some() {
            // What else is under way never ends; its memory is kept.
            std::mem::forget(std::mem::take(&mut self.in_flight));
        }
    }

    /// Ends the library; everything that was sent must have gone out.
    pub(crate) fn finalize(&mut self) -> Result<(), TransportError> {
        if self.ended {
            return Ok(());
        }
        self.ended = true;
        self.transport.finalize()
    }
}
