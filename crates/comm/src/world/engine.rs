//! The engine: what is under way between this process and the others, and how it goes on.
//!
//! The message-passing library is called by one thread at a time, under one lock (`MPI_THREAD_SERIALIZED`): by a device that
//! waits, or, when devices compute while collectives are under way, by the communication thread. So a short collective costs
//! no change of threads, and a long one goes on beside the computation. What becomes of collectives is in `engine_parts`.

use super::engine_state::{
    Bytes, EarlyPart, InFlight, MailState, Mailbox, NUMBER, RunListener, RunSet, RunState, SERIES_SHIFT, TagNote, Then,
};
use super::message::{ANNOUNCEMENT_BYTES, CONTROL_RUN, Message, OperationKey, Payload, Subject};
use super::message_passing::{ANNOUNCEMENT_TAG, MessagePassing, MessageRequests, TransportError};
use super::operation::Operation;
use super::short::ShortInputs;
use crate::rendezvous::{JoinError, Whereabouts};
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;
use std::collections::VecDeque;

/// The tags of messages that follow their announcements.
const MAIL_TAGS: std::ops::Range<i32> = 2..16_384;
/// The first tag of parts of collectives.
pub(super) const FIRST_PART_TAG: i32 = MAIL_TAGS.end;
/// Bytes of a message that go with its announcement.
const INLINE: usize = ANNOUNCEMENT_BYTES - 64;
/// Buffers for announcements that are kept.
const SPARE_BUFFERS: usize = 64;
/// Runs that a message names one by one at most.
const NAMED_RUNS: usize = 256;

#[derive(Debug)]
pub(crate) struct Engine {
    pub(super) transport: Box<dyn MessagePassing>,
    pub(super) operations: FxHashMap<OperationKey, Box<Operation>>,
    pub(super) short_inputs: ShortInputs,
    /// What collectives do of which others have told the number, and to whom this process has told which numbers.
    pub(super) purposes: FxHashMap<u64, String>,
    pub(super) told: FxHashSet<(usize, u64)>,
    /// Parts of collectives that this process has not come to yet, or not far enough.
    pub(super) early: FxHashMap<OperationKey, Vec<EarlyPart>>,
    /// What comes from a process under a tag: bytes that are being received but not announced yet, or the other way round.
    pub(super) tags: FxHashMap<(usize, i32), TagNote>,
    /// Messages that have come, or are coming (those are taken in order all the same).
    mail: FxHashMap<Mailbox, VecDeque<MailState>>,
    in_flight: Vec<InFlight>,
    next_tag: Vec<i32>,
    next_letter: u64,
    runs: FxHashMap<u64, RunState>,
    /// Runs that are over, by the series that they belong to.
    closed: FxHashMap<u64, RunSet>,
    /// The runs that each device has finished, by series: of this process, and of others.
    own_finished: FxHashMap<(u64, usize), RunSet>,
    finished: FxHashMap<(u64, usize), RunSet>,
    /// Devices here of which the others do not know yet that they have finished.
    untold: FxHashSet<(u64, usize)>,
    /// A failure of a process outside any run, or of the library: everything ends.
    broken: Option<JoinError>,
    /// The library has been ended: it must not be called any more.
    ended: bool,
    spare: Vec<Vec<u8>>,
}

impl Engine {
    pub(crate) fn new(transport: Box<dyn MessagePassing>) -> Engine {
        let size = transport.size();
        Engine {
            transport,
            operations: FxHashMap::default(),
            short_inputs: ShortInputs::default(),
            purposes: FxHashMap::default(),
            told: FxHashSet::default(),
            early: FxHashMap::default(),
            tags: FxHashMap::default(),
            mail: FxHashMap::default(),
            in_flight: Vec::new(),
            next_tag: vec![MAIL_TAGS.start; size],
            next_letter: 0,
            runs: FxHashMap::default(),
            closed: FxHashMap::default(),
            own_finished: FxHashMap::default(),
            finished: FxHashMap::default(),
            untold: FxHashSet::default(),
            broken: None,
            ended: false,
            spare: Vec::new(),
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
        let (series, number) = (run >> SERIES_SHIFT, run & NUMBER);
        let done = self.finished.iter().filter(|((s, _), runs)| *s == series && runs.contains(number));
        let done: Vec<usize> = done.map(|((_, device), _)| *device).collect();
        let state = self.runs.entry(run).or_default();
        state.listener = Some(listener.clone());
        if done.is_empty() && state.failure.is_none() {
            return;
        }
        if let Some(listener) = listener.upgrade() {
            done.iter().for_each(|&d| listener.finished(d));
            if state.failure.is_some() {
                listener.failed();
            }
        }
    }

    pub(crate) fn close(&mut self, run: u64) {
        self.runs.remove(&run);
        if !self.early.is_empty() {
            self.early.retain(|k, _| k.run != run);
        }
        if !self.mail.is_empty() {
            self.mail.retain(|m, _| m.0 != run);
        }
        if !self.tags.is_empty() {
            // What is being received takes no other memory when it is announced.
            self.tags.retain(|_, note| note.key.run != run || note.is_received);
        }
        if !self.operations.is_empty() {
            // What is under way for a run that has failed may still use these.
            let left: Vec<OperationKey> = self.operations.keys().filter(|k| k.run == run).copied().collect();
            left.iter().for_each(|key| std::mem::forget(self.operations.remove(key)));
        }
        self.closed.entry(run >> SERIES_SHIFT).or_default().insert(run & NUMBER);
    }

    pub(super) fn is_closed(&self, run: u64) -> bool {
        self.closed.get(&(run >> SERIES_SHIFT)).is_some_and(|c| c.contains(run & NUMBER))
    }

    /// Why a run, or everything, cannot go on.
    pub(crate) fn failure(&self, run: u64) -> Option<JoinError> {
        self.broken.clone().or_else(|| self.runs.get(&run).and_then(|r| r.failure.clone()))
    }

    /// Of the devices, those that are done with their program in a run.
    pub(crate) fn finished_among(&self, run: u64, devices: &[usize]) -> Vec<(usize, Whereabouts)> {
        // A run that has failed ends for that reason.
        if self.runs.get(&run).is_none_or(|r| r.failure.is_some()) {
            return Vec::new();
        }
        let (series, number) = (run >> SERIES_SHIFT, run & NUMBER);
        let is_done = |d: &&usize| self.finished.get(&(series, **d)).is_some_and(|runs| runs.contains(number));
        devices.iter().filter(is_done).map(|&d| (d, Whereabouts::Finished)).collect()
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
            return self.announce(rank, &Message { subject, payload: Payload::Inline(Cow::Borrowed(&message)) });
        }
        let tag = self.next_tag[rank];
        self.next_tag[rank] = if tag + 1 < MAIL_TAGS.end { tag + 1 } else { MAIL_TAGS.start };
        self.announce(rank, &Message { subject, payload: Payload::Follows { tag, length: message.len() } });
        let (bytes, length) = (message.as_ptr(), message.len());
        // SAFETY: the message is kept until it is sent; moving the vector does not move its bytes.
        self.transmit(|t, r| unsafe { t.send(rank, tag, bytes, length, r) }, Bytes::Mail(message), Then::Nothing);
    }

    /// The next message in a mailbox, if it has come.
    pub(crate) fn take(&mut self, mailbox: &Mailbox) -> Option<Vec<u8>> {
        let queue = self.mail.get_mut(mailbox)?;
        match queue.pop_front()? {
            MailState::Here(message) => {
                if queue.is_empty() {
                    self.mail.remove(mailbox);
                }
                Some(message)
            }
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

    /// Takes note that a device is done; the others are told before long.
    pub(crate) fn has_finished(&mut self, run: u64, device: usize) {
        let of = (run >> SERIES_SHIFT, device);
        self.own_finished.entry(of).or_default().insert(run & NUMBER);
        self.untold.insert(of);
    }

    /// Tells all other processes which devices are done.
    pub(crate) fn tell_finished(&mut self) {
        for (series, device) in std::mem::take(&mut self.untold) {
            let Some(runs) = self.own_finished.get(&(series, device)) else { continue };
            let (below, others) = (runs.below, runs.others.iter().rev().take(NAMED_RUNS).copied().collect());
            let subject = Subject::Finished { series, device, below, others };
            self.tell_all(&Message { subject, payload: Payload::NOTHING });
        }
    }

    /// Tells all other processes that a run cannot go on, unless they know.
    pub(crate) fn tell_failed(&mut self, run: u64, device: Option<usize>, why: &str) {
        if self.failure(run).is_some() {
            return;
        }
        self.fail(run, JoinError::Cancelled);
        let subject = Subject::Failed { run, device, why: Cow::Borrowed(why) };
        self.tell_all(&Message { subject, payload: Payload::NOTHING });
    }

    fn tell_all(&mut self, message: &Message<'_>) {
        let own = self.rank();
        for rank in (0..self.size()).filter(|&r| r != own) {
            self.announce(rank, message);
        }
    }

    pub(super) fn fail(&mut self, run: u64, why: JoinError) {
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

    /// An empty buffer for an announcement.
    pub(super) fn spare_buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| Vec::with_capacity(ANNOUNCEMENT_BYTES))
    }

    fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    pub(super) fn announce(&mut self, rank: usize, message: &Message<'_>) {
        let mut bytes = self.spare_buffer();
        message.write(&mut bytes);
        self.send_announcement(rank, bytes);
    }

    pub(super) fn send_announcement(&mut self, rank: usize, bytes: Vec<u8>) {
        let (address, length) = (bytes.as_ptr(), bytes.len());
        // SAFETY: the bytes are kept until they are sent; moving the vector does not move them.
        let send = |t: &mut dyn MessagePassing, r: &mut MessageRequests| unsafe {
            t.send(rank, ANNOUNCEMENT_TAG, address, length, r)
        };
        self.transmit(send, Bytes::Announcement(bytes), Then::Nothing);
    }

    pub(super) fn transmit(
        &mut self,
        begin: impl FnOnce(&mut dyn MessagePassing, &mut MessageRequests) -> Result<(), TransportError>,
        bytes: Bytes,
        then: Then,
    ) {
        let mut requests = MessageRequests::default();
        if let Err(error) = begin(&mut *self.transport, &mut requests) {
            // What has begun may still use the bytes.
            std::mem::forget(bytes);
            return self.fail(CONTROL_RUN, JoinError::Transport(error.0));
        }
        if let (Bytes::Announcement(_), Some(request)) = (&bytes, requests.last()) {
            // Mostly it is out at once.
            match self.transport.is_complete(request) {
                Ok(true) => requests.pop(),
                Ok(false) => {}
                Err(error) => {
                    std::mem::forget(bytes);
                    return self.fail(CONTROL_RUN, JoinError::Transport(error.0));
                }
            }
        }
        match bytes {
            Bytes::Announcement(buffer) if requests.last().is_none() => self.keep(buffer),
            bytes => self.in_flight.push(InFlight { requests, bytes, then }),
        }
    }

    /// Takes an announcement if one has come, and goes on with what can go on; whether anything happened. Whoever waits for
    /// just this one learns of it before the library is asked for another.
    pub(crate) fn progress(&mut self) -> bool {
        self.progress_unless(|_, _| false)
    }

    /// The same, but for announcements that `taken` takes: it is told who sent one, and its bytes.
    pub(super) fn progress_unless(&mut self, taken: impl FnOnce(usize, &[u8]) -> bool) -> bool {
        let mut changed = false;
        if self.broken.is_some() || self.ended {
            return false;
        }
        let mut buffer = self.spare_buffer();
        match self.transport.next_announcement(&mut buffer) {
            Ok(Some(rank)) => {
                changed = true;
                if !taken(rank, &buffer) {
                    self.read_announcement(rank, &buffer);
                }
            }
            Ok(None) => {}
            Err(error) => self.fail(CONTROL_RUN, JoinError::Transport(error.0)),
        }
        self.keep(buffer);
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
        while let Some(request) = requests.last() {
            if !self.transport.is_complete(request)? {
                return Ok(false);
            }
            requests.pop();
        }
        Ok(true)
    }

    fn follow(&mut self, done: InFlight) {
        match (done.then, done.bytes) {
            (Then::Nothing, Bytes::Announcement(buffer)) => self.keep(buffer),
            (Then::Nothing, _) => {}
            (Then::Sent(key, stage, peer), _) => self.sent(key, stage, peer),
            (Then::Received(key, stage, peer, segments), bytes) => {
                if let (Bytes::Packed(buffer), true) = (&bytes, self.operations.contains_key(&key)) {
                    // SAFETY: the segments are those of the operation's memory, which stays until it is done; the buffer
                    // is as long as all of them.
                    unsafe { super::engine_state::unpack(buffer.address() as *const u8, &segments) };
                }
                self.received(key, stage, peer);
            }
            (Then::Mail(mailbox, letter), Bytes::Mail(message)) => {
                let queue = self.mail.get_mut(&mailbox);
                let is_it = |m: &&mut MailState| matches!(m, MailState::Coming(n) if *n == letter);
                if let Some(place) = queue.and_then(|q| q.iter_mut().find(is_it)) {
                    *place = MailState::Here(message);
                }
            }
            (Then::Mail(..), _) => {}
        }
    }

    /// Receives bytes that nobody wants.
    pub(super) fn discard(&mut self, rank: usize, payload: &Payload<'_>) {
        if let &Payload::Follows { tag, length } = payload {
            self.receive_mail(rank, tag, length, Then::Nothing);
        }
    }

    fn receive_mail(&mut self, rank: usize, tag: i32, length: usize, then: Then) {
        let mut buffer = vec![0; length];
        let address = buffer.as_mut_ptr();
        // SAFETY: the buffer is kept until the bytes have come; moving the vector does not move them.
        let receive =
            |t: &mut dyn MessagePassing, r: &mut MessageRequests| unsafe { t.receive(rank, tag, address, length, r) };
        self.transmit(receive, Bytes::Mail(buffer), then);
    }

    fn read_announcement(&mut self, rank: usize, bytes: &[u8]) {
        let Some(Message { subject, payload }) = Message::read(bytes) else {
            let why = format!("process {rank} sends what is no message");
            return self.fail(CONTROL_RUN, JoinError::Transport(why));
        };
        match subject {
            Subject::Part { key, stage, fingerprint } => {
                self.part(rank, key, stage, fingerprint, payload);
                self.advance(key);
            }
            Subject::Purpose { fingerprint, what } => {
                self.purposes.insert(fingerprint, what.into_owned());
            }
            Subject::Mail { run, .. } if run != CONTROL_RUN && self.is_closed(run) => self.discard(rank, &payload),
            Subject::Mail { run, channel, from, to } => {
                let mailbox = (run, channel, from, to);
                let queue = self.mail.entry(mailbox).or_default();
                match payload {
                    Payload::Inline(message) => queue.push_back(MailState::Here(message.into_owned())),
                    Payload::Follows { tag, length } => {
                        self.next_letter += 1;
                        let letter = self.next_letter;
                        queue.push_back(MailState::Coming(letter));
                        self.receive_mail(rank, tag, length, Then::Mail(mailbox, letter));
                    }
                }
            }
            Subject::Finished { series, device, below, others } => {
                let runs = RunSet { below, others: others.into_iter().collect() };
                for (run, state) in &self.runs {
                    if run >> SERIES_SHIFT == series
                        && runs.contains(run & NUMBER)
                        && let Some(listener) = state.listener.as_ref().and_then(std::sync::Weak::upgrade)
                    {
                        listener.finished(device);
                    }
                }
                self.finished.insert((series, device), runs);
            }
            Subject::Failed { run, device, why } => {
                if run == CONTROL_RUN || !self.is_closed(run) {
                    self.fail(run, JoinError::PeerFailed { rank, device, why: why.into_owned() });
                }
            }
        }
    }

    /// Lets what was sent go out, also when everything else has ended.
    pub(crate) fn flush(&mut self) {
        self.tell_finished();
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
