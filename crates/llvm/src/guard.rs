//! The gate through which threads come to LLVM, and which is shut when the process ends.
//!
//! A process that ends destroys LLVM's tables while its other threads run on: one that is compiling then reads what is
//! gone, and the process dies by a signal. So the end waits for what is being compiled, which takes milliseconds, and
//! whoever comes later waits until the process is no more.
//!
//! LLVM makes many tables when it first needs them, and what was made last is destroyed first. So the gate can be put
//! before the tables only after a use: an end in the middle of the very first one is to be avoided by whoever begins it
//! in a thread of its own.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Once, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::time::{Duration, Instant};

static GATE: RwLock<()> = RwLock::new(());
/// The process ends: nobody is let in any more.
static ENDING: AtomicBool = AtomicBool::new(false);

/// How long the end of a process waits. A thread whose tables are gone may never come to an end.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// LLVM's tables are there as long as this is. A thread has one at a time.
pub(crate) struct Pass {
    _inside: RwLockReadGuard<'static, ()>,
}

/// Waits for ever if the process is ending.
pub(crate) fn enter() -> Pass {
    while ENDING.load(Ordering::Relaxed) {
        std::thread::park();
    }
    Pass { _inside: GATE.read().unwrap_or_else(PoisonError::into_inner) }
}

impl Pass {
    /// Code was made: the gate is put before the tables that are there now. That is done again after the second time,
    /// the fourth and so on, as other code needs other tables.
    pub(crate) fn used(&self) {
        static TIMES: AtomicUsize = AtomicUsize::new(0);
        if (TIMES.fetch_add(1, Ordering::Relaxed) + 1).is_power_of_two() {
            // If there is no room for it, the process ends as it would have without.
            // SAFETY: the function does not unwind, and is there until the library it is in is gone, which glibc knows of.
            unsafe { libc::atexit(shut) };
        }
    }
}

extern "C" fn shut() {
    static SHUT: Once = Once::new();
    SHUT.call_once(|| {
        ENDING.store(true, Ordering::Relaxed);
        let begin = Instant::now();
        while begin.elapsed() < LONGEST_WAIT {
            match GATE.try_write() {
                Ok(shut) => return std::mem::forget(shut),
                Err(TryLockError::Poisoned(shut)) => return std::mem::forget(shut),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    });
}
