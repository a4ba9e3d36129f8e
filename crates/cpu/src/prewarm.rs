//! Making the compiler of kernels ready while something else is waited for: the reading of a program, of its arguments.

use crate::kernel;
use hloom_compiler::Effort;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The making ready, in a thread of its own. It is waited for when this is dropped, and when the thread that began it
/// ends, though this be kept for ever: a process that ends in the middle of it may die by a signal.
#[derive(Debug)]
pub struct Prewarm(Arc<Mutex<Option<JoinHandle<()>>>>);

thread_local! {
    /// What this thread has begun.
    static BEGUN_HERE: RefCell<Option<Prewarm>> = const { RefCell::new(None) };
}

impl Prewarm {
    /// Begins, unless this process has begun before.
    pub fn begin(effort: Effort) -> Prewarm {
        static BEGUN: AtomicBool = AtomicBool::new(false);
        if BEGUN.swap(true, Ordering::Relaxed) {
            return Prewarm(Arc::default());
        }
        // Without a thread the first program takes longer to compile, no more.
        let thread = std::thread::Builder::new().name("prewarm".into()).spawn(move || kernel::prewarm(effort));
        let prewarm = Prewarm(Arc::new(Mutex::new(thread.ok())));
        // A thread that is ending already keeps nothing.
        let _ = BEGUN_HERE.try_with(|here| *here.borrow_mut() = Some(Prewarm(prewarm.0.clone())));
        prewarm
    }
}

impl Drop for Prewarm {
    fn drop(&mut self) {
        let mut thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // A panic there is no concern of ours: what cannot be compiled is said when it is wanted.
            let _ = thread.join();
        }
    }
}
