//! Calls that one device makes for all: a program over global arrays calls back once, and every device has the results.
//!
//! The device that calls leaves its results here; the others wait for them. All devices of a run come by all calls in the
//! same order, so that the number of times a device has come by a call says which one is meant.

use hloom_ir::entity::InstructionId;
use hloom_value::Value;
use rustc_hash::FxHashMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long a device waits for the one that calls; Python may take its time.
const TIME_LIMIT: Duration = Duration::from_secs(3600);

/// What one device has made for the others in a run.
#[derive(Default)]
pub(super) struct SharedResults {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How often each device has come by each call.
    times: FxHashMap<(InstructionId, usize), u64>,
    /// What calls gave, and how many devices have still to take it.
    results: FxHashMap<(InstructionId, u64), (Result<Value, String>, usize)>,
}

impl SharedResults {
    /// The results of a call that `device` comes by, one of `devices`; `caller` makes it, by `call`.
    pub(super) fn once(
        &self,
        i: InstructionId,
        (device, caller, devices): (usize, usize, usize),
        call: impl FnOnce() -> Result<Value, String>,
    ) -> Result<Value, String> {
        let lock = || self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let time = {
            let mut state = lock();
            let times = state.times.entry((i, device)).or_default();
            *times += 1;
            *times
        };
        if device == caller {
            let made = call();
            if devices > 1 {
                lock().results.insert((i, time), (made.clone(), devices - 1));
                self.changed.notify_all();
            }
            return made;
        }
        let waiting = |state: &mut State| !state.results.contains_key(&(i, time));
        let waited = self.changed.wait_timeout_while(lock(), TIME_LIMIT, waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let Some((value, left)) = state.results.get_mut(&(i, time)) else {
            return Err(format!("device {caller}, which calls for all, has not called"));
        };
        let value = value.clone();
        *left -= 1;
        if *left == 0 {
            state.results.remove(&(i, time));
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_ir::entity::EntityId;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_device_calls_each_time_and_all_have_the_results() {
        let (shared, calls) = (SharedResults::default(), AtomicUsize::new(0));
        let i = InstructionId::from_index(3);
        std::thread::scope(|scope| {
            for device in 0..4 {
                let (shared, calls) = (&shared, &calls);
                scope.spawn(move || {
                    for time in 0..5 {
                        let call = || Err(format!("call {}", calls.fetch_add(1, Ordering::SeqCst)));
                        let made = shared.once(i, (device, 2, 4), call);
                        assert_eq!(made.err(), Some(format!("call {time}")));
                    }
                });
            }
        });
        assert_eq!(calls.load(Ordering::SeqCst), 5);
        assert!(shared.state.lock().unwrap().results.is_empty());
    }
}
