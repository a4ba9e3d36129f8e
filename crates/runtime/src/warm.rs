//! Making the compiler of kernels ready while something else is waited for: the reading of a program, of its arguments.

use crate::executable::Effort;
use crate::native;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The making ready, in a thread of its own. It is waited for when this is dropped, and when the thread that began it
/// ends, though this be kept for ever: a process that ends in the middle of it may die by a signal.
#[derive(Debug)]
pub struct Warming(Arc<Mutex<Option<JoinHandle<()>>>>);

thread_local! {
    /// What this thread has begun.
    static BEGUN_HERE: RefCell<Option<Warming>> = const { RefCell::new(None) };
}

impl Warming {
    /// Begins, unless this process has begun before.
    pub fn begin(effort: Effort) -> Warming {
        static BEGUN: AtomicBool = AtomicBool::new(false);
        if BEGUN.swap(true, Ordering::Relaxed) {
            return Warming(Arc::default());
        }
        // Without a thread the first program takes longer to compile, no more.
        let thread = std::thread::Builder::new().name("warm-up".into()).spawn(move || native::warm_up(effort));
        let warming = Warming(Arc::new(Mutex::new(thread.ok())));
        // A thread that is ending already keeps nothing.
        let _ = BEGUN_HERE.try_with(|here| *here.borrow_mut() = Some(Warming(warming.0.clone())));
        warming
    }
}

impl Drop for Warming {
    fn drop(&mut self) {
        let mut thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // A panic there is no concern of ours: what cannot be compiled is said when it is wanted.
            let _ = thread.join();
        }
    }
}
