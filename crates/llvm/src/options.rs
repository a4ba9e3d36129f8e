//! LLVM's command-line options, which are the process's: set for each target while its code is made.
//!
//! Some of what a code generator leaves out can be said by such options only. Threads that make code under the same
//! [`OptionSet`] do so at once; one that needs another waits until nobody is at work, and sets them anew.

use std::ffi::{CStr, c_char};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What code generators are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OptionSet {
    /// As LLVM is by itself.
    #[cfg_attr(not(test), allow(dead_code, reason = "for targets whose code others make better"))]
    Default,
    /// For explicit vector code, in which much of what LLVM looks for is not to be found.
    ExplicitVectors,
}

/// Passes of LLVM that cost time and find nothing to do in explicit vector code: addresses are summed up outside of loops
/// already, loops stand in order, blocks are few and large. (Loop strength reduction alone takes a fifth of all time.) The
/// argument that leaves each out, and the one that does not.
const LEFT_OUT: [(&CStr, &CStr); 13] = [
    (c"-disable-lsr=true", c"-disable-lsr=false"),
    (c"-disable-cgp=true", c"-disable-cgp=false"),
    (c"-disable-constant-hoisting=true", c"-disable-constant-hoisting=false"),
    (c"-disable-partial-libcall-inlining=true", c"-disable-partial-libcall-inlining=false"),
    (c"-disable-machine-sink=true", c"-disable-machine-sink=false"),
    (c"-disable-block-placement=true", c"-disable-block-placement=false"),
    (c"-disable-early-taildup=true", c"-disable-early-taildup=false"),
    (c"-disable-tail-duplicate=true", c"-disable-tail-duplicate=false"),
    (c"-disable-branch-fold=true", c"-disable-branch-fold=false"),
    (c"-disable-ssc=true", c"-disable-ssc=false"),
    (c"-disable-early-ifcvt=true", c"-disable-early-ifcvt=false"),
    (c"-disable-postra-machine-licm=true", c"-disable-postra-machine-licm=false"),
    (c"-enable-misched=false", c"-enable-misched=true"),
];

unsafe extern "C" {
    /// `llvm::cl::ResetAllOptionOccurrences()`: options may be set again. It has no form in LLVM's C interface.
    #[link_name = "_ZN4llvm2cl25ResetAllOptionOccurrencesEv"]
    fn reset_option_occurrences();
}

struct State {
    current: Option<OptionSet>,
    /// How many make code under it.
    active: usize,
}

static STATE: Mutex<State> = Mutex::new(State { current: None, active: 0 });
static IDLE: Condvar = Condvar::new();

/// The options stay as they are as long as this is.
pub(crate) struct OptionsInForce(());

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OptionSet {
    /// Puts the options in force, as soon as nobody makes code under others.
    pub(crate) fn enter(self) -> OptionsInForce {
        let mut state = lock();
        while state.active > 0 && state.current != Some(self) {
            state = IDLE.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.current != Some(self) {
            let argument = |&(out, back): &(&'static CStr, &'static CStr)| match self {
                OptionSet::ExplicitVectors => out.as_ptr(),
                OptionSet::Default => back.as_ptr(),
            };
            let arguments: Vec<*const c_char> =
                std::iter::once(c"hloom".as_ptr()).chain(LEFT_OUT.iter().map(argument)).collect();
            // SAFETY: nobody makes code meanwhile, so nobody reads the options; the list and its strings live while LLVM
            // reads them.
            unsafe {
                reset_option_occurrences();
                llvm_sys::support::LLVMParseCommandLineOptions(
                    arguments.len() as i32,
                    arguments.as_ptr(),
                    std::ptr::null(),
                );
            }
            state.current = Some(self);
        }
        state.active += 1;
        OptionsInForce(())
    }
}

impl Drop for OptionsInForce {
    fn drop(&mut self) {
        let mut state = lock();
        state.active -= 1;
        if state.active == 0 {
            IDLE.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_set_again_and_again_and_threads_wait_for_their_own() {
        let work = |set: OptionSet| {
            for _ in 0..50 {
                let _in_force = set.enter();
                assert_eq!(lock().current, Some(set));
                std::thread::yield_now();
                assert_eq!(lock().current, Some(set));
            }
        };
        std::thread::scope(|scope| {
            for set in [OptionSet::ExplicitVectors, OptionSet::Default, OptionSet::ExplicitVectors] {
                scope.spawn(move || work(set));
            }
        });
    }
}
