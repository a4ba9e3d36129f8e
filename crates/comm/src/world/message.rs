//! What processes tell each other besides data: which part of which collective comes, who is done, who has failed.
//!
//! Every message is announced under one tag, in order between two processes, in at most [`ANNOUNCEMENT_BYTES`]. Short ones
//! carry their bytes with them; the bytes of long ones follow under a tag of their own, straight from and into the arrays.
//! A part of a collective has a head of fixed length: what the collective does is a number there, whose words are told once.

use super::operation::Segment;
use crate::rendezvous::RendezvousKey;
use std::borrow::Cow;
use std::hash::{Hash, Hasher};

/// The bytes of an announcement at most: what libraries send without asking the receiver first.
pub(crate) const ANNOUNCEMENT_BYTES: usize = 4000;
/// The bytes of the head of a part of a collective.
pub(crate) const HEAD_BYTES: usize = 64;
/// The bytes of a part of a collective that go with its head.
pub(crate) const INLINE_BYTES: usize = ANNOUNCEMENT_BYTES - HEAD_BYTES;
/// The bytes of a text in an announcement at most.
const TEXT_BYTES: usize = 1024;

/// Which meeting of a collective, in which run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OperationKey {
    pub(crate) run: u64,
    pub(crate) key: RendezvousKey,
    pub(crate) visit: u64,
    /// The first of the participants: groups of one collective are apart.
    pub(crate) first: usize,
    /// Which piece of a long one.
    pub(crate) piece: u32,
}

impl Hash for OperationKey {
    /// What tells operations apart that are under way at once, in one word.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (_, id) = key_number(self.key);
        let low = id ^ self.visit << 20 ^ u64::from(self.piece) << 40;
        state.write_u64(low ^ self.run.rotate_left(48) ^ (self.first as u64).rotate_left(30));
    }
}

impl OperationKey {
    /// A number that says which bytes of a collective these are, the same in every process.
    pub(crate) fn number(&self, stage: u8, length: usize) -> u64 {
        let (is_channel, id) = key_number(self.key);
        let of_part = [u64::from(self.piece), stage.into(), length as u64];
        let parts = [self.run, u64::from(is_channel), id, self.visit, self.first as u64].into_iter().chain(of_part);
        let mix = |hash: u64, part: u64| {
            let mixed = (hash ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ (mixed >> 29)
        };
        parts.fold(0, mix)
    }
}

fn key_number(key: RendezvousKey) -> (u8, u64) {
    match key {
        RendezvousKey::Channel(channel) => (1, channel as u64),
        RendezvousKey::Instruction(index) => (0, index as u64),
    }
}

/// What a message is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Subject<'m> {
    /// A part of a collective, and the number of what it does.
    Part { key: OperationKey, stage: u8, fingerprint: u64 },
    /// What collectives of a number do. It comes before the first part of such a one.
    Purpose { fingerprint: u64, what: Cow<'m, str> },
    /// A message from one device to another, or, in the run [`CONTROL_RUN`], from one process to another.
    Mail { run: u64, channel: i64, from: usize, to: usize },
    /// A device is done with its program in all runs of a series below a number, and in some others.
    Finished { series: u64, device: usize, below: u64, others: Vec<u64> },
    /// A device has failed, or a process.
    Failed { run: u64, device: Option<usize>, why: Cow<'m, str> },
}

/// The run that stands for none: what processes tell each other before, between and after runs.
pub(crate) const CONTROL_RUN: u64 = u64::MAX;

/// The bytes that belong to a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Payload<'m> {
    Inline(Cow<'m, [u8]>),
    /// They follow under this tag.
    Follows {
        tag: i32,
        length: usize,
    },
}

impl Payload<'_> {
    pub(crate) const NOTHING: Payload<'static> = Payload::Inline(Cow::Borrowed(&[]));

    pub(crate) fn into_owned(self) -> Payload<'static> {
        match self {
            Payload::Inline(bytes) => Payload::Inline(Cow::Owned(bytes.into_owned())),
            Payload::Follows { tag, length } => Payload::Follows { tag, length },
        }
    }
}

/// An announcement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message<'m> {
    pub(crate) subject: Subject<'m>,
    pub(crate) payload: Payload<'m>,
}

/// As much of a text as an announcement takes: a long one is told from another by a number at its end.
fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= TEXT_BYTES {
        return Cow::Borrowed(text);
    }
    let number = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let end = (0..=TEXT_BYTES - 32).rev().find(|&n| text.is_char_boundary(n)).unwrap_or(0);
    Cow::Owned(format!("{}… ({number:016x})", &text[..end]))
}

fn number(w: &mut Vec<u8>, n: u64) {
    w.extend(n.to_le_bytes());
}

fn text(w: &mut Vec<u8>, text: &str) {
    let text = shortened(text);
    number(w, text.len() as u64);
    w.extend(text.as_bytes());
}

/// Writes the head of a part of a collective whose bytes go with it, and the bytes.
///
/// # Safety
/// The segments must be there.
pub(crate) unsafe fn write_part(
    w: &mut Vec<u8>,
    key: &OperationKey,
    stage: u8,
    fingerprint: u64,
    segments: &[Segment],
) {
    w.extend(head(key, stage, fingerprint, None));
    for s in segments {
        // SAFETY: the caller's promise.
        w.extend_from_slice(unsafe { std::slice::from_raw_parts(s.address as *const u8, s.length) });
    }
}

/// The head of a part of a collective; `follows` are the tag and the length of its bytes, unless they go with it.
pub(crate) fn head(key: &OperationKey, stage: u8, fingerprint: u64, follows: Option<(i32, usize)>) -> [u8; HEAD_BYTES] {
    let (is_channel, id) = key_number(key.key);
    let (tag, length) = follows.unwrap_or_default();
    let forms = u64::from_le_bytes([0, stage, is_channel, follows.is_some().into(), 0, 0, 0, 0]);
    let first = forms | u64::from(key.piece) << 32;
    let words = [first, key.run, id, key.visit, key.first as u64, fingerprint, tag as u64, length as u64];
    let mut head = [0; HEAD_BYTES];
    for (place, word) in head.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    head
}

/// Reads what [`head`] writes, and what comes after it.
fn part(bytes: &[u8]) -> Option<Message<'_>> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let mut words = [0; HEAD_BYTES / 8];
    for (word, place) in words.iter_mut().zip(head.chunks_exact(8)) {
        *word = u64::from_le_bytes(place.try_into().ok()?);
    }
    let [first, run, id, visit, of_group, fingerprint, tag, length] = words;
    let ([_, stage, is_channel, follows, ..], piece) = (first.to_le_bytes(), (first >> 32) as u32);
    let key = match is_channel {
        1 => RendezvousKey::Channel(id as i64),
        _ => RendezvousKey::Instruction(id as usize),
    };
    let key = OperationKey { run, key, visit, first: of_group as usize, piece };
    let payload = match follows {
        0 => Payload::Inline(Cow::Borrowed(rest)),
        _ => Payload::Follows { tag: i32::try_from(tag).ok()?, length: usize::try_from(length).ok()? },
    };
    Some(Message { subject: Subject::Part { key, stage, fingerprint }, payload })
}

impl<'m> Message<'m> {
    /// Writes the message to the end of `w`.
    pub(crate) fn write(&self, w: &mut Vec<u8>) {
        match &self.subject {
            Subject::Part { key, stage, fingerprint } => {
                let follows = match &self.payload {
                    Payload::Inline(_) => None,
                    Payload::Follows { tag, length } => Some((*tag, *length)),
                };
                w.extend(head(key, *stage, *fingerprint, follows));
                if let Payload::Inline(bytes) = &self.payload {
                    w.extend_from_slice(bytes);
                }
                return;
            }
            Subject::Purpose { fingerprint, what } => {
                w.push(4);
                number(w, *fingerprint);
                text(w, what);
            }
            Subject::Mail { run, channel, from, to } => {
                w.push(1);
                [*run, *channel as u64, *from as u64, *to as u64].into_iter().for_each(|n| number(w, n));
            }
            Subject::Finished { series, device, below, others } => {
                w.push(2);
                let head = [*series, *device as u64, *below, others.len() as u64];
                head.into_iter().chain(others.iter().copied()).for_each(|n| number(w, n));
            }
            Subject::Failed { run, device, why } => {
                w.push(3);
                [*run, device.map_or(u64::MAX, |d| d as u64)].into_iter().for_each(|n| number(w, n));
                text(w, why);
            }
        }
        match &self.payload {
            Payload::Inline(bytes) => {
                w.push(0);
                w.extend_from_slice(bytes);
            }
            Payload::Follows { tag, length } => {
                w.push(1);
                number(w, *tag as u64);
                number(w, *length as u64);
            }
        }
    }

    /// The message that the bytes are, if they are one.
    pub(crate) fn read(bytes: &'m [u8]) -> Option<Message<'m>> {
        let mut r = Reader(bytes);
        let subject = match r.byte()? {
            0 => return part(bytes),
            1 => {
                let (run, channel) = (r.number()?, r.number()? as i64);
                Subject::Mail { run, channel, from: r.number()? as usize, to: r.number()? as usize }
            }
            2 => {
                let (series, device, below, count) = (r.number()?, r.number()? as usize, r.number()?, r.number()?);
                let others = (0..count).map(|_| r.number()).collect::<Option<_>>()?;
                Subject::Finished { series, device, below, others }
            }
            3 => {
                let (run, device) = (r.number()?, r.number()?);
                let device = (device != u64::MAX).then_some(device as usize);
                Subject::Failed { run, device, why: r.text()? }
            }
            4 => Subject::Purpose { fingerprint: r.number()?, what: r.text()? },
            _ => return None,
        };
        let payload = match r.byte()? {
            0 => Payload::Inline(Cow::Borrowed(r.0)),
            1 => Payload::Follows { tag: i32::try_from(r.number()?).ok()?, length: r.number()? as usize },
            _ => return None,
        };
        Some(Message { subject, payload })
    }
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }
    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
    fn text(&mut self) -> Option<Cow<'b, str>> {
        let length = usize::try_from(self.number()?).ok()?;
        std::str::from_utf8(self.take(length)?).ok().map(Cow::Borrowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(message: &Message<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        bytes
    }

    #[test]
    fn messages_come_back_and_broken_ones_do_not() {
        let key = OperationKey { run: 3, key: RendezvousKey::Channel(-7), visit: 9, first: 2, piece: 0 };
        let subjects = [
            Subject::Part { key, stage: 1, fingerprint: u64::MAX - 5 },
            Subject::Purpose { fingerprint: 12, what: "all-reduce of f32[4]".into() },
            Subject::Mail { run: CONTROL_RUN, channel: -1, from: 1, to: 0 },
            Subject::Finished { series: 0, device: 5, below: 7, others: vec![9, 12] },
            Subject::Failed { run: 1, device: None, why: "no memory".into() },
        ];
        for subject in subjects {
            let follows = Message { subject: subject.clone(), payload: Payload::Follows { tag: 17, length: 1 << 33 } };
            let bytes = written(&follows);
            assert_eq!(Message::read(&bytes), Some(follows));
            assert!((0..bytes.len()).all(|end| Message::read(&bytes[..end]).is_none()));
            let inline = Message { subject, payload: Payload::Inline(vec![1, 2, 3].into()) };
            assert_eq!(Message::read(&written(&inline)), Some(inline));
        }
    }

    #[test]
    fn announcements_are_as_long_as_they_may_be_and_texts_are_told_apart() {
        let (one, other) = ("é".repeat(3000), format!("{}a", "é".repeat(2999)));
        assert!(shortened(&one).len() <= TEXT_BYTES && shortened(&one) != shortened(&other));
        let purpose = Subject::Purpose { fingerprint: 1, what: one.into() };
        assert!(written(&Message { subject: purpose, payload: Payload::NOTHING }).len() <= ANNOUNCEMENT_BYTES);
        let key = OperationKey { run: 0, key: RendezvousKey::Instruction(1), visit: 0, first: 0, piece: 7 };
        let (mut bytes, array) = (Vec::new(), vec![7u8; INLINE_BYTES]);
        let segment = Segment { address: array.as_ptr() as usize, length: INLINE_BYTES };
        // SAFETY: the array is there.
        unsafe { write_part(&mut bytes, &key, 0, 9, &[segment]) };
        assert_eq!(bytes.len(), ANNOUNCEMENT_BYTES);
        let subject = Subject::Part { key, stage: 0, fingerprint: 9 };
        assert_eq!(Message::read(&bytes), Some(Message { subject, payload: Payload::Inline(array.into()) }));
    }

    #[test]
    fn numbers_of_parts_differ_in_everything() {
        let key = OperationKey { run: 3, key: RendezvousKey::Channel(7), visit: 9, first: 2, piece: 0 };
        let others = [
            OperationKey { run: 4, ..key }.number(0, 64),
            OperationKey { key: RendezvousKey::Instruction(7), ..key }.number(0, 64),
            OperationKey { visit: 10, ..key }.number(0, 64),
            OperationKey { first: 3, ..key }.number(0, 64),
            OperationKey { piece: 3, ..key }.number(0, 64),
            key.number(1, 64),
            key.number(0, 65),
        ];
        assert!(others.iter().all(|&n| n != key.number(0, 64)));
    }
}
