//! Runs that the caller does not wait for.
//!
//! Each client has one thread that takes runs in the order in which they were given, so that every device runs programs
//! in that order and those of several devices meet. A caller that is far ahead waits until some are over: runs that wait
//! hold memory. Nothing that is run here calls Python: a caller that holds Python's lock may wait for a run.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A run to be made.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// Runs that may wait.
const MOST_WAITING: usize = 64;

/// The stack of the thread; the evaluator's calls nest, and address space is cheap.
const STACK_BYTES: usize = 256 << 20;

/// The thread of a client, which starts with the first run, and the runs that wait for it.
#[derive(Default)]
pub(crate) struct Dispatcher(Arc<Queue>);

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Runs that are not over, looked at without a lock.
    unfinished: AtomicUsize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Task>,
    started: bool,
    /// Nobody will give a run any more.
    closed: bool,
    /// The thread has nothing to do, and sleeps.
    sleeping: bool,
    /// Callers that wait until some runs are over.
    held_up: usize,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        loop {
            let task = {
                let mut state = self.lock();
                loop {
                    if let Some(task) = state.waiting.pop_front() {
                        if state.held_up > 0 {
                            self.changed.notify_all();
                        }
                        break task;
                    }
                    if state.closed {
                        return;
                    }
                    state.sleeping = true;
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    state.sleeping = false;
                }
            };
            // A run tells of its own panics; what is left must not end the thread.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(task));
            self.unfinished.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Dispatcher {
    /// Whether no run is waiting or under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.unfinished.load(Ordering::Acquire) == 0
    }

    /// Takes a run. Gives it back if there can be no thread for it.
    pub(crate) fn submit(&self, task: Task) -> Result<(), Task> {
        let mut state = self.0.lock();
        if !state.started {
            let queue = self.0.clone();
            let thread = std::thread::Builder::new().name("hloom dispatch".into()).stack_size(STACK_BYTES);
            if thread.spawn(move || queue.serve()).is_err() {
                return Err(task);
            }
            state.started = true;
        }
        while state.waiting.len() >= MOST_WAITING {
            state.held_up += 1;
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.held_up -= 1;
        }
        self.0.unfinished.fetch_add(1, Ordering::AcqRel);
        state.waiting.push_back(task);
        let sleeping = state.sleeping;
        drop(state);
        if sleeping {
            self.0.changed.notify_all();
        }
        Ok(())
    }
}

/// The thread ends by itself when it has done what it was given; nobody waits for it.
impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn runs_are_made_in_order_and_a_panic_ends_only_its_own() {
        let dispatcher = Dispatcher::default();
        let (send, receive) = channel();
        for n in 0..200 {
            let send = send.clone();
            let task: Task = Box::new(move || {
                send.send(n).unwrap();
                assert!(n != 7, "a run that fails");
            });
            assert!(dispatcher.submit(task).is_ok());
        }
        let order: Vec<i32> = (0..200).map(|_| receive.recv().unwrap()).collect();
        assert_eq!(order, (0..200).collect::<Vec<_>>());
    }
}
