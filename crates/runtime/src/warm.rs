//! Making the compiler of kernels ready while something else is waited for: the reading of a program, of its arguments.

use crate::executable::Effort;
use crate::native;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A thread that makes the compiler ready. It is waited for when this is dropped.
#[derive(Debug)]
pub struct Warming {
    thread: Option<JoinHandle<()>>,
}

impl Warming {
    /// Begins, unless this process has begun before.
    pub fn begin(effort: Effort) -> Warming {
        static BEGUN: AtomicBool = AtomicBool::new(false);
        if BEGUN.swap(true, Ordering::Relaxed) {
            return Warming { thread: None };
        }
        // Without a thread the first program takes longer to compile, no more.
        let thread = std::thread::Builder::new().name("warm-up".into()).spawn(move || native::warm_up(effort));
        Warming { thread: thread.ok() }
    }
}

impl Drop for Warming {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic there is no concern of ours: what cannot be compiled is said when it is wanted.
            let _ = thread.join();
        }
    }
}
