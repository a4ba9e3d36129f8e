//! The processes of a job as one world of devices: runs over several processes, and what these tell each other besides.
//!
//! Data travel by a message-passing library only ([`MessagePassing`], which MPI implements). Every process owns some of the
//! devices of a run; those of one process meet in its memory first, and the last of them carries the collective across.

mod across_processes;
mod algorithm;
mod engine;
mod engine_parts;
mod engine_state;
mod group;
mod message;
pub mod message_passing;
mod operation;
mod peer_set;
mod short;
mod staging;
#[cfg(test)]
mod tests;

use crate::collective::ParticipantMemory;
use crate::communicator::{Communicator, Purpose};
use crate::rendezvous::JoinError;
use across_processes::AcrossProcesses;
use engine::Engine;
use group::{DeviceMap, Group};
use message::CONTROL_RUN;
use message_passing::MessagePassing;
use operation::Operation;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

pub(crate) use group::KnownGroup;
pub(crate) use message::{ANNOUNCEMENT_BYTES, OperationKey};
pub(crate) use operation::OperationStatus;

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
    /// Collectives that nobody waits for yet: the communication thread begins them, whoever has the engine just now.
    inbox: Mutex<Vec<(OperationKey, Box<Operation>)>>,
    /// Whether there are any; who only asks need not take the lock.
    has_mail: AtomicBool,
    /// Told when something is under way that the communication thread should see to; its lock is the inbox's.
    begun: Condvar,
    /// Whether it has to be told: it sleeps.
    sleeps: AtomicBool,
    /// Devices that wait, and see to everything meanwhile.
    waiting: AtomicUsize,
    /// Raised when the process is told to end.
    interrupt: Option<&'static AtomicBool>,
    /// What devices wait for, for whoever finds that they do so for too long.
    waits: Mutex<Vec<WaitRecord>>,
    /// Where the devices of runs are, of the last runs.
    maps: Mutex<Vec<Arc<DeviceMap>>>,
    /// How often a thread that waits asks before it lets others have the processor.
    spins: u32,
}

/// A device's wait for other processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The collective: the instruction and where it comes from.
    pub name: String,
    /// When it should be over.
    pub until: Instant,
    /// The processes that it waits for.
    pub ranks: Vec<usize>,
}

/// The same as it is kept.
#[derive(Debug)]
struct WaitRecord {
    number: usize,
    purpose: Arc<Purpose>,
    group: Arc<Group>,
    until: Instant,
    /// Once it is known who is late.
    late: Option<Vec<usize>>,
}

/// Takes note of a wait as long as it lasts.
pub(crate) struct WaitNote<'w> {
    waits: &'w Mutex<Vec<WaitRecord>>,
    number: usize,
}

impl WaitNote<'_> {
    /// Says whom it is for.
    pub(crate) fn is_for(&self, mut ranks: Vec<usize>) {
        ranks.dedup();
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wait) = waits.iter_mut().find(|w| w.number == self.number) {
            wait.late = Some(ranks);
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
/// How long the communication thread stays awake after its work where it has a processor for itself: who begins the next
/// collective need not wake it.
const LINGER: Duration = Duration::from_micros(100);
/// How long a thread that waits asks again and again before it lets go of its processor now and then.
const EAGER: Duration = Duration::from_millis(2);
/// How often a thread that waits asks again and again at first, where it has a processor for itself.
const SPINS: u32 = 200;
/// How many times it asks between two looks at the clock and at who is late.
const LOOKS: u32 = 64;
/// How many times it asks before it lets others have the engine, if nobody else waits here.
const ASKS_AT_ONCE: u32 = 8;
/// How many maps of devices are kept.
const KEPT_MAPS: usize = 16;
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
            inbox: Mutex::default(),
            has_mail: AtomicBool::new(false),
            begun: Condvar::new(),
            sleeps: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            interrupt,
            waits: Mutex::default(),
            maps: Mutex::default(),
            spins: if is_crowded() { 0 } else { SPINS },
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
        let first = |rank: usize| rank * devices / self.size;
        (0..self.size).flat_map(|rank| std::iter::repeat_n(rank, first(rank + 1) - first(rank))).collect()
    }

    /// The run of that number in a series. Processes that run programs together number these alike, from 0 and each once;
    /// those that also run programs with others number them in another series.
    pub fn run_in_series(series: u32, number: u64) -> u64 {
        (u64::from(series & 0x7f_ffff) << engine_state::SERIES_SHIFT)
            | (number & ((1 << engine_state::SERIES_SHIFT) - 1))
    }

    /// How the devices of a run meet, device `d` being in the process `owners[d]`.
    pub fn communicator(&self, run: u64, owners: Vec<usize>, time_limit: Duration) -> Arc<dyn Communicator> {
        AcrossProcesses::open(self.shared.clone(), run, self.shared.map(owners, self.rank), time_limit)
    }

    /// Sends bytes to a process, outside of runs.
    pub fn send(&self, to: usize, channel: i64, message: Vec<u8>) {
        self.shared.lock().post(to, (CONTROL_RUN, channel, self.rank, to), message);
        self.shared.wake();
    }

    /// Takes the next message that a process sent to this one on a channel.
    pub fn receive(&self, from: usize, channel: i64, time_limit: Duration) -> Result<Vec<u8>, SilentRanks> {
        let mailbox = (CONTROL_RUN, channel, from, self.rank);
        let silent = |why| SilentRanks { ranks: vec![from], why };
        let taken =
            self.shared.poll(CONTROL_RUN, Instant::now(), time_limit, |engine, _| engine.take(&mailbox).map(Ok));
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
        let waits = self.shared.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |w: &WaitRecord| Wait {
            name: w.purpose.name.to_string(),
            until: w.until,
            ranks: w.late.clone().unwrap_or_else(|| w.group.peers.clone()),
        };
        waits.iter().map(one).collect()
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

    /// Where the devices are; the same for all runs with these owners.
    fn map(&self, owners: Vec<usize>, rank: usize) -> Arc<DeviceMap> {
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(map) = maps.iter().find(|m| m.owners == owners) {
            return map.clone();
        }
        if maps.len() >= KEPT_MAPS {
            maps.remove(0);
        }
        let map = Arc::new(DeviceMap::new(owners, rank));
        maps.push(map.clone());
        map
    }

    pub(crate) fn note_wait(&self, purpose: &Arc<Purpose>, group: &Arc<Group>, until: Instant) -> WaitNote<'_> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let wait = WaitRecord { number, purpose: purpose.clone(), group: group.clone(), until, late: None };
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).push(wait);
        WaitNote { waits: &self.waits, number }
    }

    /// Wakes the communication thread.
    pub(crate) fn wake(&self) {
        if self.sleeps.load(Ordering::SeqCst) {
            // Under its lock, so that it does not miss this between its last look and its sleep.
            drop(self.lock_inbox());
            self.begun.notify_all();
        }
    }

    fn lock_inbox(&self) -> MutexGuard<'_, Vec<(OperationKey, Box<Operation>)>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a collective to the communication thread, or to a device that waits, to be begun.
    ///
    /// # Safety
    /// As for [`Engine::begin`].
    pub(crate) unsafe fn begin(&self, key: OperationKey, operation: Box<Operation>) {
        let mut inbox = self.lock_inbox();
        inbox.push((key, operation));
        self.has_mail.store(true, Ordering::Release);
        drop(inbox);
        self.wake();
    }

    /// Begins a collective that a device waits for at once, and does it if it is short and the others come before long: what
    /// becomes of it otherwise.
    ///
    /// # Safety
    /// As for [`Engine::begin`].
    pub(crate) unsafe fn begin_awaited(
        &self,
        key: OperationKey,
        known: &KnownGroup,
        purpose: &Arc<Purpose>,
        memory: &ParticipantMemory,
        time_limit: Duration,
    ) -> Option<Arc<OperationStatus>> {
        let mut engine = self.lock();
        // What others wait for with it is not kept back by short ones, one after another.
        self.empty_inbox(&mut engine);
        if !known.is_short {
            // SAFETY (both): the caller's promise.
            let operation = unsafe { Operation::new(purpose, &known.group, Arc::new([memory.clone()])) };
            let status = operation.status.clone();
            unsafe { engine.begin(key, operation) };
            return Some(status);
        }
        let waiting = Waiting::new(&self.waiting);
        let looks = if self.waiting.load(Ordering::Relaxed) == 1 { self.spins } else { 1 };
        let note = || self.note_wait(purpose, &known.group, Instant::now() + time_limit);
        // SAFETY: the caller's promise.
        let status = unsafe { engine.try_short(key, (purpose, &known.group), memory, looks, note) };
        drop(waiting);
        // What is not over the device sees to before long.
        if status.is_none() {
            self.hand_on(engine);
        }
        status
    }

    /// Begins what devices have left to be begun.
    fn empty_inbox(&self, engine: &mut Engine) {
        if !self.has_mail.load(Ordering::Acquire) {
            return;
        }
        let mut inbox = self.lock_inbox();
        self.has_mail.store(false, Ordering::Release);
        let begun = std::mem::take(&mut *inbox);
        drop(inbox);
        for (key, operation) in begun {
            // SAFETY: whoever left it promised that.
            unsafe { engine.begin(key, operation) };
        }
    }

    /// Stays awake for a while: whether something has been left to be begun meanwhile.
    fn lingers(&self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < LINGER && self.waiting.load(Ordering::Relaxed) == 0 {
            if self.has_mail.load(Ordering::Acquire) {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Whether memory of devices may still be written to or read by what is under way in a run.
    pub(crate) fn touches_memory(&self, run: u64) -> bool {
        let engine = self.lock();
        self.lock_inbox().retain(|(key, _)| key.run != run);
        engine.touches_memory(run)
    }

    /// Leaves what is still under way to the communication thread.
    fn hand_on(&self, engine: MutexGuard<'_, Engine>) {
        let is_busy = engine.is_busy();
        drop(engine);
        if is_busy {
            self.wake();
        }
    }

    /// Sees to what is under way until `ready` gives something, or there is no use in waiting, for at most `time_limit` from
    /// when it has `begun`. `ready` is told whether it is time for a closer look: something has happened, or nothing has for
    /// a while.
    pub(crate) fn poll<T>(
        &self,
        run: u64,
        begun: Instant,
        time_limit: Duration,
        mut ready: impl FnMut(&mut Engine, bool) -> Option<T>,
    ) -> Result<T, Stop> {
        let _waiting = Waiting::new(&self.waiting);
        // How often was asked, and how often before the last look at the clock.
        let (mut last_change, mut asked, mut looked) = (begun, 0u32, 0u32);
        loop {
            let mut engine = self.lock();
            self.empty_inbox(&mut engine);
            let mut changed = false;
            // Each thing that has come may be what is waited for.
            while engine.progress() {
                changed = true;
                if let Some(value) = ready(&mut engine, true) {
                    self.hand_on(engine);
                    return Ok(value);
                }
            }
            asked = asked.saturating_add(1);
            // A short collective is over before it would be worth handing the engine on.
            let alone = asked < self.spins && self.waiting.load(Ordering::Relaxed) == 1;
            for _ in 1..if alone && !changed { ASKS_AT_ONCE } else { 1 } {
                std::hint::spin_loop();
                changed = engine.progress();
                asked = asked.saturating_add(1);
                if changed {
                    break;
                }
            }
            let closer = changed || asked - looked >= LOOKS || asked > self.spins;
            if let Some(value) = ready(&mut engine, closer) {
                self.hand_on(engine);
                return Ok(value);
            }
            if !closer {
                drop(engine);
                std::hint::spin_loop();
                continue;
            }
            if let Some(why) = engine.failure(run) {
                return Err(Stop::Failed(why));
            }
            drop(engine);
            looked = asked;
            let now = Instant::now();
            // What has come already is looked at, however late it is.
            if !changed && now - begun >= time_limit {
                return Err(Stop::TimedOut(time_limit));
            }
            if self.interrupt.is_some_and(|i| i.load(Ordering::Relaxed)) {
                return Err(Stop::Interrupted);
            }
            if changed {
                (last_change, asked, looked) = (now, 0, 0);
            }
            if asked > self.spins {
                match now - last_change < EAGER {
                    true => std::thread::yield_now(),
                    false => std::thread::sleep(Duration::from_micros(100)),
                }
            }
        }
    }
}

/// Whether this machine runs more processes of the job than it has processors, as far as the launcher says.
fn is_crowded() -> bool {
    let processors = online_processors().or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    crate::launcher::processes_beside().unwrap_or(1) > processors.unwrap_or(1)
}

/// The processors of the machine, whether this process may use them or not.
pub fn online_processors() -> Option<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.trim().parse::<usize>().ok()? + 1 - first.trim().parse::<usize>().ok()?)
    };
    text.trim().split(',').map(count).sum()
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
    let mut idle = 0u32;
    while let Some(world) = world.upgrade() {
        // A device that waits sees to everything.
        if world.waiting.load(Ordering::Relaxed) == 0 {
            let mut engine = world.lock();
            world.empty_inbox(&mut engine);
            let changed = engine.progress();
            // After what has come there may be more.
            if changed || engine.is_busy() {
                drop(engine);
                idle = if changed { 0 } else { idle.saturating_add(1) };
                match idle {
                    _ if idle < world.spins => std::hint::spin_loop(),
                    0..10_000 => std::thread::yield_now(),
                    _ => std::thread::sleep(Duration::from_micros(20)),
                }
                continue;
            }
        }
        idle = 0;
        if world.spins > 0 && world.waiting.load(Ordering::Relaxed) == 0 && world.lingers() {
            continue;
        }
        world.sleeps.store(true, Ordering::SeqCst);
        // Who has begun something since the last look may not have seen that this thread sleeps.
        if world.waiting.load(Ordering::SeqCst) == 0 && world.lock().is_busy() {
            world.sleeps.store(false, Ordering::SeqCst);
            continue;
        }
        let inbox = world.lock_inbox();
        match inbox.is_empty() {
            true => drop(world.begun.wait_timeout(inbox, IDLE).unwrap_or_else(PoisonError::into_inner)),
            // The engine is never locked under the inbox.
            false => drop(inbox),
        }
        world.sleeps.store(false, Ordering::SeqCst);
        world.lock().tell_finished();
    }
}
