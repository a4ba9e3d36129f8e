//! What ran where and when: the record of a run, for a picture of it.

use hloom_ir::entity::InstructionId;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The record of a run. Times count from its making.
#[derive(Debug)]
pub struct Trace {
    begun: Instant,
    events: Mutex<Vec<TraceEvent>>,
}

/// A step, or a thread's part of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceEvent {
    /// The device that it was done for.
    pub device: usize,
    /// The thread that did it, if it was a helper's part of a step.
    pub helper: Option<String>,
    /// The instruction of the compiled program.
    pub instruction: InstructionId,
    /// What it is: a kernel, a loop, ….
    pub kind: &'static str,
    /// When it began.
    pub begin: Duration,
    /// How long it took.
    pub length: Duration,
}

impl Default for Trace {
    fn default() -> Self {
        Trace { begun: Instant::now(), events: Mutex::default() }
    }
}

impl Trace {
    /// The time now.
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Adds what began at `begin` and ends now.
    pub fn add(&self, device: usize, instruction: InstructionId, kind: &'static str, begin: Duration) {
        self.add_timed(device, instruction, kind, begin, self.now().saturating_sub(begin));
    }

    /// Adds what began at `begin` and took so long.
    pub fn add_timed(
        &self,
        device: usize,
        instruction: InstructionId,
        kind: &'static str,
        begin: Duration,
        length: Duration,
    ) {
        let event = TraceEvent { device, helper: None, instruction, kind, begin, length };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// Adds a part of a step that a helper did; nothing, if this is the device's own thread `owner`.
    pub fn add_part(
        &self,
        device: usize,
        owner: std::thread::ThreadId,
        instruction: InstructionId,
        kind: &'static str,
        begin: Duration,
    ) {
        let thread = std::thread::current();
        if thread.id() == owner {
            return;
        }
        let helper = Some(thread.name().unwrap_or("a thread").to_owned());
        let event = TraceEvent { device, helper, instruction, kind, begin, length: self.now().saturating_sub(begin) };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// All that was recorded, by time.
    pub fn into_events(self) -> Vec<TraceEvent> {
        let mut events = self.events.into_inner().unwrap_or_else(PoisonError::into_inner);
        events.sort_by_key(|e| e.begin);
        events
    }
}
