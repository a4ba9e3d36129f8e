//! Which processor a thread is on, and how it gets off that of another.
//!
//! A thread that sleeps is woken where it went to sleep, also if whoever wakes it goes on computing there and the other
//! processors are idle: the system notices only after milliseconds, which may be longer than the work to share. So who
//! wakes a helper that sleeps on its own processor first forbids it that processor, and the helper lifts that when it is
//! awake. Elsewhere than on Linux, and in Miri, nothing is known and nothing done.

use std::sync::atomic::{AtomicI32, Ordering};

/// Where a helper sleeps.
#[derive(Debug)]
pub(crate) struct Sleeper {
    thread: AtomicI32,
    processor: AtomicI32,
}

/// It is awake, or nothing is known.
const NOWHERE: i32 = -1;
/// It was kept off the processor where it slept.
const MOVED: i32 = -2;

impl Default for Sleeper {
    fn default() -> Sleeper {
        Sleeper { thread: AtomicI32::new(0), processor: AtomicI32::new(NOWHERE) }
    }
}

impl Sleeper {
    /// Says, before this thread sleeps, who and where it is.
    pub(crate) fn sleeps(&self) {
        self.thread.store(system::thread(), Ordering::Relaxed);
        self.processor.store(system::processor(), Ordering::Release);
    }

    /// Says that this thread is awake, and lets it run where it may.
    pub(crate) fn wakes(&self, all: &Processors) {
        if self.processor.swap(NOWHERE, Ordering::AcqRel) == MOVED {
            all.allow(0, NOWHERE);
        }
    }

    /// Keeps it off the processor `here` if it sleeps there.
    pub(crate) fn keep_off(&self, here: i32, all: &Processors) {
        let sleeps_here =
            here >= 0 && self.processor.compare_exchange(here, MOVED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if sleeps_here {
            all.allow(self.thread.load(Ordering::Relaxed), here);
        }
    }
}

/// The processor that this thread is on; negative if that is not known.
pub(crate) fn processor() -> i32 {
    system::processor()
}

pub(crate) use system::Processors;

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::mem::size_of;

    /// The processors that threads of this process may run on.
    #[derive(Clone)]
    pub(crate) struct Processors(Option<libc::cpu_set_t>);

    impl std::fmt::Debug for Processors {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{} processors", self.count())
        }
    }

    impl Processors {
        /// Those that this thread may run on.
        pub(crate) fn of_this_thread() -> Processors {
            // SAFETY: a set is plain bits, and the system writes no more of it than its size.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                let known = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) == 0;
                Processors(known.then_some(set))
            }
        }

        fn count(&self) -> i32 {
            // SAFETY: it reads the bits of the set.
            self.0.as_ref().map_or(0, |set| unsafe { libc::CPU_COUNT(set) })
        }

        /// Lets `thread` (0 is the calling one) run on all but `without`. What fails leaves it where it was.
        pub(super) fn allow(&self, thread: i32, without: i32) {
            let Some(mut set) = self.0 else { return };
            if let Ok(processor) = usize::try_from(without) {
                if self.count() < 2 || processor >= libc::CPU_SETSIZE as usize {
                    return;
                }
                // SAFETY: it writes a bit of the set, which has so many.
                unsafe { libc::CPU_CLR(processor, &mut set) };
            }
            // SAFETY: the system reads the set; a thread that is gone, or a set it does not like, it refuses.
            unsafe { libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &set) };
        }
    }

    pub(super) fn thread() -> i32 {
        // SAFETY: it takes nothing and cannot fail.
        unsafe { libc::gettid() }
    }

    pub(super) fn processor() -> i32 {
        // SAFETY: it takes nothing.
        unsafe { libc::sched_getcpu() }
    }
}

#[cfg(any(not(target_os = "linux"), miri))]
mod system {
    #[derive(Clone, Debug)]
    pub(crate) struct Processors;

    impl Processors {
        pub(crate) fn of_this_thread() -> Processors {
            Processors
        }

        pub(super) fn allow(&self, _thread: i32, _without: i32) {}
    }

    pub(super) fn thread() -> i32 {
        0
    }

    pub(super) fn processor() -> i32 {
        super::NOWHERE
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_on_the_same_processor_is_kept_off_it_until_awake() {
        std::thread::spawn(|| {
            let all = Processors::of_this_thread();
            let (before, sleeper) = (format!("{all:?}"), Sleeper::default());
            sleeper.sleeps();
            let here = processor();
            sleeper.keep_off(here + 1, &all);
            assert_eq!(format!("{:?}", Processors::of_this_thread()), before, "it sleeps elsewhere");
            sleeper.keep_off(here, &all);
            let alone = before == "1 processors";
            assert!(alone || processor() != here, "it is still on {here}");
            sleeper.wakes(&all);
            assert_eq!(format!("{:?}", Processors::of_this_thread()), before);
        })
        .join()
        .expect("nothing fails");
    }
}
