//! The processes of a job as one world of devices: runs over several processes, and what these tell each other besides.
//!
//! Data travel by a message-passing library only ([`MessagePassing`], which MPI implements). Every process owns some of the
//! devices of a run; those of one process meet in its memory first, and the last of them carries the collective across.

mod across_processes;
mod engine;
mod engine_state;
mod message;
pub mod message_passing;
mod operation;
mod staging;
#[cfg(test)]
mod tests;

use crate::communicator::Communicator;
use crate::rendezvous::JoinError;
use across_processes::AcrossProcesses;
use engine::Engine;
use message::CONTROL_RUN;
use message_passing::MessagePassing;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// All processes of a job, as one of them sees it.
#[derive(Debug)]
pub struct World {
    shared: Arc<WorldState>,
    rank: usize,
    size: usize,
}

/// What the threads of this process share.
#[derive(Debug)]
pub(crate) struct WorldState {
    engine: Mutex<Engine>,
    /// Told when something is under way that a thread should see to.
    begun: Condvar,
    /// Devices that wait, and see to everything meanwhile.
    waiting: AtomicUsize,
    /// Raised when the process is told to end.
    interrupt: Option<&'static AtomicBool>,
    /// What devices wait for, for whoever finds that they do so for too long.
    waits: Mutex<Vec<Wait>>,
}

/// A device's wait for other processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    number: usize,
    /// The collective: the instruction and where it comes from.
    pub name: String,
    /// When it should be over.
    pub until: Instant,
    /// The processes that it waits for.
    pub ranks: Vec<usize>,
}

/// Takes note of a wait as long as it lasts.
pub(crate) struct WaitNote<'w> {
    waits: &'w Mutex<Vec<Wait>>,
    number: usize,
}

impl WaitNote<'_> {
    /// Says whom it is for.
    pub(crate) fn is_for(&self, mut ranks: Vec<usize>) {
        ranks.dedup();
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wait) = waits.iter_mut().find(|w| w.number == self.number) {
            wait.ranks = ranks;
        }
    }
}

impl Drop for WaitNote<'_> {
    fn drop(&mut self) {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).retain(|w| w.number != self.number);
    }
}

/// How often the communication thread looks when nothing is under way: others may have failed.
const IDLE: Duration = Duration::from_millis(50);
/// How long a thread that waits asks again and again before it lets go of its processor now and then.
const EAGER: Duration = Duration::from_millis(2);
/// How long what was sent may take to go out before the job ends.
const FLUSH: Duration = Duration::from_secs(30);

/// Who did not say anything within the time limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SilentRanks {
    /// Their numbers.
    pub ranks: Vec<usize>,
    /// Why nobody waits any longer.
    pub why: JoinError,
}

impl World {
    /// The world of a job whose processes the library joins. `interrupt` is raised when the process is told to end.
    pub fn new(transport: Box<dyn MessagePassing>, interrupt: Option<&'static AtomicBool>) -> World {
        let (rank, size) = (transport.rank(), transport.size());
        let shared = Arc::new(WorldState {
            engine: Mutex::new(Engine::new(transport)),
            begun: Condvar::new(),
            waiting: AtomicUsize::new(0),
            interrupt,
            waits: Mutex::default(),
        });
        let weak = Arc::downgrade(&shared);
        // Without this thread everything still goes on, but only while a device waits.
        let _ = std::thread::Builder::new().name("communication".into()).spawn(move || communicate(&weak));
        World { shared, rank, size }
    }

    /// The number of this process.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many processes there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The process of each of so many devices: every process owns as many as another, or one more, in order.
    pub fn owners(&self, devices: usize) -> Vec<usize> {
        let owner = |d: usize| (0..self.size).rev().find(|&r| r * devices / self.size <= d).unwrap_or(0);
        (0..devices).map(owner).collect()
    }

    /// The run of that number in a series. Processes that run programs together number these alike, from 0 and each once;
    /// those that also run programs with others number them in another series.
    pub fn run_in_series(series: u32, number: u64) -> u64 {
        (u64::from(series & 0x7f_ffff) << engine_state::SERIES_SHIFT)
            | (number & ((1 << engine_state::SERIES_SHIFT) - 1))
    }

    /// How the devices of a run meet, device `d` being in the process `owners[d]`.
    pub fn communicator(&self, run: u64, owners: Vec<usize>, time_limit: Duration) -> Arc<dyn Communicator> {
        AcrossProcesses::open(self.shared.clone(), self.rank, run, owners, time_limit)
    }

    /// Sends bytes to a process, outside of runs.
    pub fn send(&self, to: usize, channel: i64, message: Vec<u8>) {
        self.shared.lock().post(to, (CONTROL_RUN, channel, self.rank, to), message);
        self.shared.begun.notify_all();
    }

    /// Takes the next message that a process sent to this one on a channel.
    pub fn receive(&self, from: usize, channel: i64, time_limit: Duration) -> Result<Vec<u8>, SilentRanks> {
        let mailbox = (CONTROL_RUN, channel, from, self.rank);
        let silent = |why| SilentRanks { ranks: vec![from], why };
        let taken = self.shared.poll(CONTROL_RUN, time_limit, |engine| engine.take(&mailbox).map(Ok));
        taken.map_err(|stop| silent(stop.error(Vec::new())))?.map_err(silent)
    }

    /// Gives what this process says to all, and what all say to this one. Everyone must call it with the same channel.
    pub fn exchange(&self, channel: i64, message: &[u8], time_limit: Duration) -> Result<Vec<Vec<u8>>, SilentRanks> {
        let begun = Instant::now();
        (0..self.size).for_each(|to| self.send(to, channel, message.to_vec()));
        let mut all = Vec::with_capacity(self.size);
        let mut silent: Option<SilentRanks> = None;
        for from in 0..self.size {
            // Whoever is late is waited for once; of the others it is only asked whether they are there.
            let left = if silent.is_some() { Duration::ZERO } else { time_limit.saturating_sub(begun.elapsed()) };
            match self.receive(from, channel, left) {
                Ok(message) => all.push(message),
                Err(s) => silent.get_or_insert(SilentRanks { ranks: Vec::new(), why: s.why }).ranks.push(from),
            }
        }
        silent.map_or(Ok(all), Err)
    }

    /// What devices here wait for just now, the longest wait first. It can be asked whatever the library does: some libraries
    /// never return from a call when a process that they read from has died.
    pub fn waits(&self) -> Vec<Wait> {
        self.shared.waits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends this process at once, without a word to the library.
    pub fn leave(code: i32) -> ! {
        // SAFETY: nothing of the process is used any more.
        unsafe { libc::_exit(code) }
    }

    /// Tells all other processes that this one has failed.
    pub fn fail(&self, why: &str) {
        self.shared.lock().tell_failed(CONTROL_RUN, None, why);
    }

    /// Lets what was sent go out, for at most so long.
    pub fn flush(&self, time_limit: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time_limit {
            let mut engine = self.shared.lock();
            engine.flush();
            if !engine.is_busy() {
                return;
            }
            drop(engine);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the job in good order, together with all others. What was sent goes out first, if it does so before long.
    pub fn finalize(&self) -> Result<(), JoinError> {
        self.flush(FLUSH);
        self.shared.lock().finalize().map_err(|error| JoinError::Transport(error.0))
    }
}

/// Why nobody waits any longer.
pub(crate) enum Stop {
    TimedOut(Duration),
    Interrupted,
    Failed(JoinError),
}

impl Stop {
    pub(crate) fn error(self, absent: Vec<(usize, crate::Whereabouts)>) -> JoinError {
        match self {
            Stop::TimedOut(limit) => JoinError::TimedOut(limit, absent),
            Stop::Interrupted => JoinError::Interrupted(absent),
            Stop::Failed(why) => why,
        }
    }
}

impl WorldState {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note_wait(&self, name: &str, time_limit: Duration) -> WaitNote<'_> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let wait = Wait { number, name: name.to_owned(), until: Instant::now() + time_limit, ranks: Vec::new() };
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).push(wait);
        WaitNote { waits: &self.waits, number }
    }

    pub(crate) fn wake(&self) {
        self.begun.notify_all();
    }

    /// Sees to what is under way until `ready` gives something, or there is no use in waiting.
    pub(crate) fn poll<T>(
        &self,
        run: u64,
        time_limit: Duration,
        mut ready: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Result<T, Stop> {
        let begun = Instant::now();
        let _waiting = Waiting::new(&self.waiting);
        let mut last_change = begun;
        loop {
            let mut engine = self.lock();
            let changed = engine.progress();
            if let Some(value) = ready(&mut engine) {
                return Ok(value);
            }
            if let Some(why) = engine.failure(run) {
                return Err(Stop::Failed(why));
            }
            drop(engine);
            let now = Instant::now();
            if now - begun >= time_limit {
                return Err(Stop::TimedOut(time_limit));
            }
            if self.interrupt.is_some_and(|i| i.load(Ordering::Relaxed)) {
                return Err(Stop::Interrupted);
            }
            if changed {
                last_change = now;
            }
            match now - last_change < EAGER {
                true => std::thread::yield_now(),
                false => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }
}

/// Counts a thread that waits.
struct Waiting<'w>(&'w AtomicUsize);

impl<'w> Waiting<'w> {
    fn new(count: &'w AtomicUsize) -> Waiting<'w> {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the communication thread does, as long as the world is there.
fn communicate(world: &Weak<WorldState>) {
    while let Some(world) = world.upgrade() {
        // A device that waits sees to everything.
        let is_waited = world.waiting.load(Ordering::Relaxed) > 0;
        let mut engine = world.lock();
        let changed = !is_waited && engine.progress();
        if !engine.is_busy() || is_waited {
            drop(world.begun.wait_timeout(engine, IDLE).unwrap_or_else(PoisonError::into_inner));
        } else {
            drop(engine);
            match changed {
                true => std::thread::yield_now(),
                false => std::thread::sleep(Duration::from_micros(20)),
            }
        }
    }
}
