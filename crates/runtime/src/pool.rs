//! Threads that help with loops.
//!
//! A pool has so many *permits* as threads may compute at once. A device's thread holds one while it computes and gives
//! it up while it waits for another device, so that any number of virtual devices never keeps more threads busy than
//! there are permits; helpers join a loop only with a permit of their own. What a loop computes does not depend on who
//! computes which part of it.

use crate::affinity::{self, Processors, Sleeper};
use crate::float_mode::FloatMode;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};

/// A loop over `0..units`, of which each call gets a part.
type Body<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// How often a thread looks again before it goes to sleep: some ten microseconds, less than it takes to be woken.
const SPINS: usize = 4000;

/// The threads, and the permits to use them.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// There may be a loop to join.
    work: Condvar,
    /// A permit may be free.
    permit: Condvar,
    permits: usize,
    /// Loops that were offered so far, so that idle helpers can watch without the lock.
    offered: AtomicUsize,
    closing: AtomicBool,
    /// Where each helper sleeps.
    sleepers: Vec<Sleeper>,
    processors: Processors,
}

#[derive(Debug, Default)]
struct State {
    computing: usize,
    /// Threads that wait for a permit: only for them is it worth to ask the system to wake somebody.
    waiting: usize,
    loops: VecDeque<Arc<Loop>>,
}

/// A loop being worked on.
struct Loop {
    body: *const Body<'static>,
    chunk: usize,
    /// One for each thread that may take part. It begins with its own, the same in every loop, so that it finds in its
    /// caches what it made in the loop before, and goes on with what is left of the others'.
    ranges: Box<[UnitRange]>,
    /// Helpers that may still join.
    places: AtomicUsize,
    /// Helpers at work.
    helping: AtomicUsize,
    /// How the owner's floats are, and so the helpers'.
    float_mode: FloatMode,
    /// Whose loop it is, and whether that thread sleeps until nobody helps any more.
    owner: Thread,
    owner_sleeps: AtomicBool,
    panicked: AtomicBool,
}

/// Units that are still to do. Threads write to several at once: each is a line of the caches.
#[derive(Debug)]
#[repr(align(64))]
struct UnitRange {
    next: AtomicUsize,
    end: usize,
}

impl UnitRange {
    /// `count` ranges of whole chunks that together are `0..units`.
    fn all(units: usize, chunk: usize, count: usize) -> Box<[UnitRange]> {
        let parts = units.div_ceil(chunk);
        let bound = |n: usize| if n == count { units } else { parts * n / count * chunk };
        (0..count).map(|n| UnitRange { next: AtomicUsize::new(bound(n)), end: bound(n + 1) }).collect()
    }

    fn is_empty(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.end
    }
}

// SAFETY: `body` is `Sync`, and alive while the loop is offered or anybody is helping: the caller waits for that.
unsafe impl Send for Loop {}
// SAFETY: as above.
unsafe impl Sync for Loop {}

impl std::fmt::Debug for Loop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loop").field("ranges", &self.ranges).finish_non_exhaustive()
    }
}

impl Loop {
    /// Does parts until none is left, those of the thread's own range first.
    fn work(&self, thread: usize) {
        // SAFETY: the caller of `Pool::each` keeps the body alive until nobody helps any more.
        let body = unsafe { &*self.body };
        let (before, own) = self.ranges.split_at(thread % self.ranges.len());
        for range in own.iter().chain(before) {
            loop {
                let begin = range.next.fetch_add(self.chunk, Ordering::Relaxed);
                if begin >= range.end {
                    break;
                }
                body(begin, (begin + self.chunk).min(range.end));
            }
        }
    }

    fn is_done(&self) -> bool {
        self.ranges.iter().all(UnitRange::is_empty)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What helper `n` does, from 1 on: the owners of loops are 0.
    fn help(&self, n: usize) {
        let sleeper = &self.sleepers[n - 1];
        let mut seen = 0;
        let mut state = self.lock();
        while !self.closing.load(Ordering::Relaxed) {
            let open = |l: &&Arc<Loop>| !l.is_done() && l.places.load(Ordering::Relaxed) > 0;
            let joined = match state.computing < self.permits {
                true => state.loops.iter().find(open).cloned(),
                false => None,
            };
            if let Some(job) = joined {
                job.places.fetch_sub(1, Ordering::Relaxed);
                // Under the lock: whoever takes the loop off the list sees that somebody helps.
                job.helping.fetch_add(1, Ordering::Relaxed);
                state.computing += 1;
                drop(state);
                let work = || {
                    let _float_mode = job.float_mode.enter();
                    job.work(n);
                };
                if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
                    job.panicked.store(true, Ordering::Relaxed);
                }
                // Either the owner sees that nobody helps, or it is seen to sleep.
                if job.helping.fetch_sub(1, Ordering::SeqCst) == 1 && job.owner_sleeps.load(Ordering::SeqCst) {
                    job.owner.unpark();
                }
                state = self.lock();
                state.computing -= 1;
                if state.waiting > 0 {
                    self.permit.notify_one();
                }
                continue;
            }
            drop(state);
            let news = (0..SPINS).any(|_| {
                std::hint::spin_loop();
                self.offered.load(Ordering::Relaxed) != seen
            });
            state = self.lock();
            let offered = self.offered.load(Ordering::Relaxed);
            if !news && offered == seen && !self.closing.load(Ordering::Relaxed) {
                sleeper.sleeps();
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                sleeper.wakes(&self.processors);
            }
            seen = self.offered.load(Ordering::Relaxed);
        }
    }
}

impl Pool {
    /// A pool in which at most `threads` compute at once, at least one.
    pub fn new(threads: usize) -> Pool {
        let permits = threads.max(1);
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            permit: Condvar::new(),
            permits,
            offered: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            sleepers: (1..permits).map(|_| Sleeper::default()).collect(),
            processors: Processors::of_this_thread(),
        });
        // A thread that cannot be had is one helper less, no more.
        let helpers = (1..permits).filter_map(|n| {
            let shared = shared.clone();
            let help = move || shared.help(n);
            std::thread::Builder::new().name(format!("helper {n}")).spawn(help).ok()
        });
        let helpers = helpers.collect();
        Pool { shared, helpers }
    }

    /// As many threads as the machine has for this process: processors it may run on, and its control group's share.
    pub fn available_threads() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// How many may compute at once.
    pub fn threads(&self) -> usize {
        self.shared.permits
    }

    /// Waits for a permit to compute.
    pub fn enter(&self) -> Permit<'_> {
        let mut state = self.shared.lock();
        while state.computing >= self.shared.permits {
            state.waiting += 1;
            state = self.shared.permit.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.computing += 1;
        Permit { pool: self }
    }

    /// Calls `body` for parts of `0..units` that together are all of it, each of `chunk` units or less, on this thread
    /// and on at most `threads - 1` others that have nothing else to do. Returns when all is done. Each thread begins with
    /// a range of its own.
    pub fn each(&self, units: usize, chunk: usize, threads: usize, body: &Body<'_>) {
        self.in_ranges(units, chunk, threads, threads, body);
    }

    /// The same with threads that take one part after the other, in turn.
    pub fn each_in_turn(&self, units: usize, chunk: usize, threads: usize, body: &Body<'_>) {
        self.in_ranges(units, chunk, threads, 1, body);
    }

    fn in_ranges(&self, units: usize, chunk: usize, threads: usize, ranges: usize, body: &Body<'_>) {
        let chunk = chunk.max(1);
        let parts = units.div_ceil(chunk);
        let places = (threads.min(self.threads()).min(parts)).saturating_sub(1);
        if places == 0 {
            if units > 0 {
                body(0, units);
            }
            return;
        }
        let body: *const Body<'_> = body;
        // SAFETY: only the lifetime is changed. This function does not return before `wait_for_helpers`, after which
        // nobody uses the body.
        let body: *const Body<'static> = unsafe { std::mem::transmute(body) };
        let job = Arc::new(Loop {
            float_mode: FloatMode::current(),
            body,
            chunk,
            ranges: UnitRange::all(units, chunk, ranges.min(places + 1)),
            places: AtomicUsize::new(places),
            helping: AtomicUsize::new(0),
            owner: std::thread::current(),
            owner_sleeps: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        });
        self.shared.lock().loops.push_back(job.clone());
        self.shared.offered.fetch_add(1, Ordering::Relaxed);
        let here = affinity::processor();
        for sleeper in &self.shared.sleepers {
            sleeper.keep_off(here, &self.shared.processors);
        }
        if places == 1 {
            self.shared.work.notify_one();
        } else {
            self.shared.work.notify_all();
        }
        // Also if the body panics the helpers must be done before it is gone.
        let finish = Finish { shared: &self.shared, job: &job };
        job.work(0);
        drop(finish);
        assert!(!job.panicked.load(Ordering::Relaxed), "a helper panicked");
    }
}

/// Takes a loop off the list and waits for those who help with it.
struct Finish<'a> {
    shared: &'a Shared,
    job: &'a Arc<Loop>,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.job.ranges.iter().for_each(|range| range.next.store(range.end, Ordering::Relaxed));
        self.shared.lock().loops.retain(|l| !Arc::ptr_eq(l, self.job));
        // Helpers are within one part of their end, unless the system has something else to do than to run them.
        let helped = |_| {
            std::hint::spin_loop();
            self.job.helping.load(Ordering::Acquire) == 0
        };
        if (0..SPINS).any(helped) {
            return;
        }
        self.job.owner_sleeps.store(true, Ordering::SeqCst);
        while self.job.helping.load(Ordering::SeqCst) > 0 {
            std::thread::park();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let state = self.shared.lock();
        self.shared.closing.store(true, Ordering::Relaxed);
        self.shared.offered.fetch_add(1, Ordering::Relaxed);
        drop(state);
        self.shared.work.notify_all();
        for helper in self.helpers.drain(..) {
            // A helper catches panics; there is nothing to learn from it.
            let _ = helper.join();
        }
    }
}

/// Leave to compute, given up when dropped.
#[derive(Debug)]
pub struct Permit<'p> {
    pool: &'p Pool,
}

impl Permit<'_> {
    /// Does `wait` without the permit, and waits for one again.
    pub fn without<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        self.pool.leave();
        // Also if `wait` panics the permit is there to be given up.
        struct Return<'p>(&'p Pool);
        impl Drop for Return<'_> {
            fn drop(&mut self) {
                std::mem::forget(self.0.enter());
            }
        }
        let back = Return(self.pool);
        let result = wait();
        drop(back);
        result
    }
}

impl Pool {
    fn leave(&self) {
        let mut state = self.shared.lock();
        state.computing -= 1;
        let somebody_waits = state.waiting > 0;
        drop(state);
        if somebody_waits {
            self.shared.permit.notify_one();
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.pool.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn every_unit_is_done_once() {
        let pool = Pool::new(4);
        for units in [0, 1, 2, 7, 100, 1001] {
            for chunk in [1, 3, 64] {
                let done: Vec<AtomicU32> = (0..units).map(|_| AtomicU32::new(0)).collect();
                pool.each(units, chunk, 4, &|begin, end| {
                    for d in &done[begin..end] {
                        d.fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert!(done.iter().all(|d| d.load(Ordering::Relaxed) == 1), "{units} units by {chunk}");
            }
        }
    }

    #[test]
    fn threads_begin_with_ranges_of_their_own() {
        let pool = Pool::new(2);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        // Where each thread began; none goes on before both have.
        let begun: Mutex<Vec<(std::thread::ThreadId, usize)>> = Mutex::default();
        let known = || begun.lock().unwrap();
        pool.each(100, 3, 2, &|begin, _| {
            let here = std::thread::current().id();
            if !known().iter().any(|&(thread, _)| thread == here) {
                known().push((here, begin));
            }
            while known().len() < 2 && std::time::Instant::now() < end {
                std::thread::yield_now();
            }
        });
        let mut begun: Vec<usize> = known().iter().map(|&(_, begin)| begin).collect();
        begun.sort();
        assert_eq!(begun, [0, 51], "the second of two begins in the middle, at a whole chunk");
    }

    #[test]
    fn no_more_threads_compute_than_there_are_permits() {
        let pool = Pool::new(2);
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    let mut permit = pool.enter();
                    for _ in 0..5 {
                        pool.each(8, 1, 8, &|_, _| {
                            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                            std::thread::yield_now();
                            now.fetch_sub(1, Ordering::SeqCst);
                        });
                        permit.without(std::thread::yield_now);
                    }
                });
            }
        });
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)), "{most:?}");
        // A helper gives its permit back a little after its loop is over.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while pool.shared.lock().computing > 0 && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        assert_eq!(pool.shared.lock().computing, 0);
    }

    #[test]
    fn a_panic_in_a_body_reaches_the_caller_and_no_further() {
        let pool = Pool::new(3);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.each(100, 1, 3, &|begin, _| assert!(begin != 50));
        }));
        assert!(result.is_err());
        let sum = AtomicUsize::new(0);
        pool.each(10, 1, 3, &|begin, _| {
            sum.fetch_add(begin, Ordering::Relaxed);
        });
        assert_eq!(sum.load(Ordering::Relaxed), 45);
    }
}
