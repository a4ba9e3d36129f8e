//! What processes tell each other besides data: which part of which collective comes, who is done, who has failed.
//!
//! Every message is announced under one tag, in order between two processes, in at most [`ANNOUNCEMENT_BYTES`]. Short ones
//! carry their bytes with them; the bytes of long ones follow under a tag of their own, straight from and into the arrays.

use super::operation::Segment;
use crate::rendezvous::RendezvousKey;
use std::borrow::Cow;

/// The bytes of an announcement at most: what libraries send without asking the receiver first.
pub(crate) const ANNOUNCEMENT_BYTES: usize = 4000;
/// The bytes of a text in an announcement at most.
const TEXT_BYTES: usize = 1024;

/// Which meeting of a collective, in which run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct OperationKey {
    pub(crate) run: u64,
    pub(crate) key: RendezvousKey,
    pub(crate) visit: u64,
    /// The first of the participants: groups of one collective are apart.
    pub(crate) first: usize,
    /// Which piece of a long one.
    pub(crate) piece: u32,
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
    /// A part of a collective.
    Part { key: OperationKey, stage: u8, what: Cow<'m, str> },
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

/// Whether a text, as it was sent, is this one.
pub(crate) fn is_same_text(sent: &str, own: &str) -> bool {
    sent == own || (own.len() > TEXT_BYTES && sent == shortened(own))
}

/// Whether so many bytes of a collective go with their announcement.
pub(crate) fn is_inline(what: &str, length: usize) -> bool {
    length <= inline_bytes(what)
}

/// How many bytes of a collective may go with their announcement.
pub(crate) fn inline_bytes(what: &str) -> usize {
    // A few numbers, and the text.
    ANNOUNCEMENT_BYTES - 64 - what.len().min(TEXT_BYTES)
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
pub(crate) unsafe fn write_part(w: &mut Vec<u8>, key: &OperationKey, stage: u8, what: &str, segments: &[Segment]) {
    part(w, key, stage, what);
    w.push(0);
    for s in segments {
        // SAFETY: the caller's promise.
        w.extend_from_slice(unsafe { std::slice::from_raw_parts(s.address as *const u8, s.length) });
    }
}

fn part(w: &mut Vec<u8>, key: &OperationKey, stage: u8, what: &str) {
    let (is_channel, id) = key_number(key.key);
    w.extend([0, stage, is_channel]);
    [key.run, id, key.visit, key.first as u64, key.piece.into()].into_iter().for_each(|n| number(w, n));
    text(w, what);
}

impl<'m> Message<'m> {
    /// Writes the message to the end of `w`.
    pub(crate) fn write(&self, w: &mut Vec<u8>) {
        match &self.subject {
            Subject::Part { key, stage, what } => part(w, key, *stage, what),
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
            0 => {
                let (stage, is_channel) = (r.byte()?, r.byte()? == 1);
                let (run, id, visit, first) = (r.number()?, r.number()?, r.number()?, r.number()? as usize);
                let piece = u32::try_from(r.number()?).ok()?;
                let key = match is_channel {
                    true => RendezvousKey::Channel(id as i64),
                    false => RendezvousKey::Instruction(id as usize),
                };
                Subject::Part { key: OperationKey { run, key, visit, first, piece }, stage, what: r.text()? }
            }
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
            Subject::Part { key, stage: 1, what: "all-reduce of f32[4]".into() },
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
    fn long_texts_are_shortened_and_still_told_apart() {
        let (one, other) = ("é".repeat(3000), format!("{}a", "é".repeat(2999)));
        let sent = shortened(&one);
        assert!(sent.len() <= TEXT_BYTES && is_same_text(&sent, &one) && !is_same_text(&sent, &other));
        let key = OperationKey { run: 0, key: RendezvousKey::Instruction(1), visit: 0, first: 0, piece: 0 };
        for what in [&one[..], "sum"] {
            let mut bytes = Vec::new();
            let most = (0..ANNOUNCEMENT_BYTES).rev().find(|&n| is_inline(what, n)).unwrap();
            let array = vec![7u8; most];
            // SAFETY: the array is there.
            unsafe {
                write_part(&mut bytes, &key, 0, what, &[Segment { address: array.as_ptr() as usize, length: most }])
            };
            assert!(bytes.len() <= ANNOUNCEMENT_BYTES);
        }
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
