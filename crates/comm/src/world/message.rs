//! What processes tell each other besides data: which part of which collective comes, who is done, who has failed.
//!
//! Every message is announced under one tag, in order between two processes. Short ones carry their bytes with them; the
//! bytes of long ones follow under a tag of their own, straight from and into the arrays.

use crate::rendezvous::RendezvousKey;

/// Which meeting of a collective, in which run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct OperationKey {
    pub(crate) run: u64,
    pub(crate) key: RendezvousKey,
    pub(crate) visit: u64,
    /// The first of the participants: groups of one collective are apart.
    pub(crate) first: usize,
}

/// What a message is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    /// A part of a collective.
    Part { key: OperationKey, stage: u8, what: String },
    /// A message from one device to another, or, in the run [`CONTROL_RUN`], from one process to another.
    Mail { run: u64, channel: i64, from: usize, to: usize },
    /// A device is done with its program.
    Finished { run: u64, device: usize },
    /// A device has failed, or a process.
    Failed { run: u64, device: Option<usize>, why: String },
}

/// The run that stands for none: what processes tell each other before, between and after runs.
pub(crate) const CONTROL_RUN: u64 = u64::MAX;

/// The bytes that belong to a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Payload {
    Inline(Vec<u8>),
    /// They follow under this tag.
    Follows {
        tag: i32,
        length: usize,
    },
}

/// An announcement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) subject: Subject,
    pub(crate) payload: Payload,
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Vec::with_capacity(96);
        let number = |w: &mut Vec<u8>, n: u64| w.extend(n.to_le_bytes());
        let text = |w: &mut Vec<u8>, t: &str| {
            number(w, t.len() as u64);
            w.extend(t.as_bytes());
        };
        match &self.subject {
            Subject::Part { key, stage, what } => {
                let (is_channel, id) = match key.key {
                    RendezvousKey::Channel(channel) => (1, channel as u64),
                    RendezvousKey::Instruction(index) => (0, index as u64),
                };
                w.extend([0, *stage, is_channel]);
                [key.run, id, key.visit, key.first as u64].into_iter().for_each(|n| number(&mut w, n));
                text(&mut w, what);
            }
            Subject::Mail { run, channel, from, to } => {
                w.push(1);
                [*run, *channel as u64, *from as u64, *to as u64].into_iter().for_each(|n| number(&mut w, n));
            }
            Subject::Finished { run, device } => {
                w.push(2);
                [*run, *device as u64].into_iter().for_each(|n| number(&mut w, n));
            }
            Subject::Failed { run, device, why } => {
                w.push(3);
                [*run, device.map_or(u64::MAX, |d| d as u64)].into_iter().for_each(|n| number(&mut w, n));
                text(&mut w, why);
            }
        }
        match &self.payload {
            Payload::Inline(bytes) => {
                w.push(0);
                w.extend(bytes);
            }
            Payload::Follows { tag, length } => {
                w.push(1);
                number(&mut w, *tag as u64);
                number(&mut w, *length as u64);
            }
        }
        w
    }

    /// The message that the bytes are, if they are one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Message> {
        let mut r = Reader(bytes);
        let subject = match r.byte()? {
            0 => {
                let (stage, is_channel) = (r.byte()?, r.byte()? == 1);
                let (run, id, visit, first) = (r.number()?, r.number()?, r.number()?, r.number()? as usize);
                let key = match is_channel {
                    true => RendezvousKey::Channel(id as i64),
                    false => RendezvousKey::Instruction(id as usize),
                };
                Subject::Part { key: OperationKey { run, key, visit, first }, stage, what: r.text()? }
            }
            1 => {
                let (run, channel) = (r.number()?, r.number()? as i64);
                Subject::Mail { run, channel, from: r.number()? as usize, to: r.number()? as usize }
            }
            2 => Subject::Finished { run: r.number()?, device: r.number()? as usize },
            3 => {
                let (run, device) = (r.number()?, r.number()?);
                let device = (device != u64::MAX).then_some(device as usize);
                Subject::Failed { run, device, why: r.text()? }
            }
            _ => return None,
        };
        let payload = match r.byte()? {
            0 => Payload::Inline(r.0.to_vec()),
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
    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_broken_ones_do_not() {
        let key = OperationKey { run: 3, key: RendezvousKey::Channel(-7), visit: 9, first: 2 };
        let subjects = [
            Subject::Part { key, stage: 1, what: "all-reduce of f32[4]".into() },
            Subject::Mail { run: CONTROL_RUN, channel: -1, from: 1, to: 0 },
            Subject::Finished { run: 0, device: 5 },
            Subject::Failed { run: 1, device: None, why: "no memory".into() },
        ];
        for subject in subjects {
            let follows = Message { subject: subject.clone(), payload: Payload::Follows { tag: 17, length: 1 << 33 } };
            let bytes = follows.encode();
            assert_eq!(Message::decode(&bytes), Some(follows));
            assert!((0..bytes.len()).all(|end| Message::decode(&bytes[..end]).is_none()));
            let inline = Message { subject, payload: Payload::Inline(vec![1, 2, 3]) };
            assert_eq!(Message::decode(&inline.encode()), Some(inline));
        }
    }
}
