//! What is asked of a message-passing library: sends and receives that do not wait, and a look at what has come.

use std::fmt::Debug;

/// A send or receive under way; what it is, only the library knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageRequest(pub u64);

/// What the library says is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransportError(pub String);

/// Messages between the processes of a job. One thread at a time calls it.
pub trait MessagePassing: Debug + Send {
    /// The number of this process.
    fn rank(&self) -> usize;

    /// How many processes there are.
    fn size(&self) -> usize;

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
        requests: &mut Vec<MessageRequest>,
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
        requests: &mut Vec<MessageRequest>,
    ) -> Result<(), TransportError>;

    /// Whether a send or receive is complete; once it is, the request is no more.
    fn is_complete(&mut self, request: MessageRequest) -> Result<bool, TransportError>;

    /// Who has sent a message with this tag that nobody receives yet, and how long it is.
    fn probe(&mut self, tag: i32) -> Result<Option<(usize, usize)>, TransportError>;

    /// Says that this process is done; waits for the others.
    fn finalize(&mut self) -> Result<(), TransportError>;
}
