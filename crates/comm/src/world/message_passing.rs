//! What is asked of a message-passing library: sends and receives that do not wait, and a look at what has come.

use std::fmt::Debug;

/// A send or receive under way; what it is, only the library knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageRequest(pub u64);

/// What has to be complete for a send or receive to be: one request but for very long ones.
#[derive(Clone, Debug, Default)]
pub struct MessageRequests {
    first: Option<MessageRequest>,
    others: Vec<MessageRequest>,
}

impl MessageRequests {
    /// Adds one.
    pub fn push(&mut self, request: MessageRequest) {
        match self.first {
            None => self.first = Some(request),
            Some(_) => self.others.push(request),
        }
    }

    /// One of those that are left.
    pub fn last(&self) -> Option<MessageRequest> {
        self.others.last().copied().or(self.first)
    }

    /// Takes that one away.
    pub fn pop(&mut self) {
        if self.others.pop().is_none() {
            self.first = None;
        }
    }
}

/// What the library says is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransportError(pub String);

/// The tag of announcements; that of nothing else.
pub const ANNOUNCEMENT_TAG: i32 = 1;

/// Messages between the processes of a job. One thread at a time calls it.
pub trait MessagePassing: Debug + Send {
    /// The number of this process.
    fn rank(&self) -> usize;

    /// How many processes there are.
    fn size(&self) -> usize;

    /// The largest tag: 32767 or more.
    fn max_tag(&self) -> i32;

    /// Begins to send bytes, adding what has to be complete to `requests`.
    ///
    /// # Safety
    /// The bytes must be there and stay as they are until the requests are complete.
    unsafe fn send(
        &mut self,
        to: usize,
        tag: i32,
        bytes: *const u8,
        length: usize,
        requests: &mut MessageRequests,
    ) -> Result<(), TransportError>;

    /// Begins to receive so many bytes, adding what has to be complete to `requests`.
    ///
    /// # Safety
    /// The memory must be there until the requests are complete, and nobody may use it meanwhile.
    unsafe fn receive(
        &mut self,
        from: usize,
        tag: i32,
        bytes: *mut u8,
        length: usize,
        requests: &mut MessageRequests,
    ) -> Result<(), TransportError>;

    /// Whether a send or receive is complete; once it is, the request is no more.
    fn is_complete(&mut self, request: MessageRequest) -> Result<bool, TransportError>;

    /// Takes the next announcement that has come from anybody, those of one process in their order: who sent it. Its bytes
    /// take the place of what is in `buffer`, whose memory the library may use for one to come.
    fn next_announcement(&mut self, buffer: &mut Vec<u8>) -> Result<Option<usize>, TransportError>;

    /// Says that this process is done; waits for the others.
    fn finalize(&mut self) -> Result<(), TransportError>;
}
