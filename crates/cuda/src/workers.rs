//! Threads that stay, for work in which memory is slow to come by: a thread that has assembled a kernel has the memory that
//! the next one takes, and a new thread would have to be given it page by page.
//!
//! Whoever drops the workers waits for them, so that none is inside of a library whose tables are destroyed.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// Threads, begun as they are needed.
#[derive(Debug)]
pub(crate) struct Workers {
    name: &'static str,
    limit: usize,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    is_closed: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of a worker.
    fn work(&self) {
        loop {
            let mut state = self.state();
            let job = loop {
                if let Some(job) = state.jobs.pop_front() {
                    break job;
                }
                if state.is_closed {
                    return;
                }
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            };
            drop(state);
            // One that panics has told so, and whoever waits for it misses its answer; the thread goes on, as the jobs
            // behind it would wait for ever for one that is gone.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }
}

impl Workers {
    /// At most so many threads, at least one.
    pub(crate) fn new(name: &'static str, limit: usize) -> Workers {
        Workers { name, limit: limit.max(1), shared: Arc::default(), threads: Mutex::default() }
    }

    /// How many threads there can be.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Has a job done by one of the threads; by this one, if there can be none.
    pub(crate) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.shared.state();
        state.jobs.push_back(Box::new(job));
        let is_short = state.jobs.len() > state.idle;
        drop(state);
        if is_short && threads.len() < self.limit {
            let shared = self.shared.clone();
            let begun = std::thread::Builder::new().name(self.name.into()).spawn(move || shared.work());
            threads.extend(begun);
        }
        if threads.is_empty() {
            let job = self.shared.state().jobs.pop_front();
            job.into_iter().for_each(|job| job());
        }
        self.shared.changed.notify_one();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.state().is_closed = true;
        self.shared.changed.notify_all();
        for thread in self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // It has nothing to say: panics end with their jobs.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn all_jobs_are_done_by_a_few_threads_before_the_workers_are_gone() {
        let workers = Workers::new("test", 2);
        let (done, results) = mpsc::channel();
        for n in 0..50 {
            let done = done.clone();
            workers.submit(move || done.send((n, std::thread::current().id())).unwrap());
        }
        drop((workers, done));
        let (mut numbers, mut threads): (Vec<i32>, Vec<_>) = results.iter().unzip();
        numbers.sort_unstable();
        threads.sort_unstable_by_key(|id| format!("{id:?}"));
        threads.dedup();
        assert_eq!(numbers, (0..50).collect::<Vec<_>>());
        assert!((1..=2).contains(&threads.len()), "{threads:?}");
    }

    #[test]
    fn jobs_behind_one_that_panics_are_done() {
        let workers = Workers::new("test", 1);
        let (done, results) = mpsc::channel();
        workers.submit(|| panic!("on purpose"));
        workers.submit(move || done.send(1).unwrap());
        assert_eq!(results.recv_timeout(std::time::Duration::from_secs(30)), Ok(1));
    }

    #[test]
    fn a_job_waits_for_no_other_while_there_can_be_threads() {
        let workers = Workers::new("test", 2);
        let (here, there) = mpsc::channel::<()>();
        let (done, results) = mpsc::channel();
        let first = done.clone();
        workers.submit(move || there.recv().map(|()| first.send(1).unwrap()).unwrap());
        workers.submit(move || here.send(()).map(|()| done.send(2).unwrap()).unwrap());
        let mut found: Vec<i32> = results.iter().collect();
        found.sort_unstable();
        assert_eq!(found, [1, 2]);
    }
}
