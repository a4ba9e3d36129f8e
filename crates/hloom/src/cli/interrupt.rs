//! Ctrl-C and termination. Whoever works for long looks at a flag, and leaves things in order; a second signal does not wait
//! for that. In the end the process ends by the signal, as whoever sent it expects.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

struct Interrupt {
    raised: Arc<AtomicBool>,
    /// The signal, or 0.
    signal: Arc<AtomicUsize>,
}

static INTERRUPT: OnceLock<Interrupt> = OnceLock::new();

/// Is raised by the first signal.
pub(crate) fn interrupted() -> &'static AtomicBool {
    let interrupt = INTERRUPT.get_or_init(|| {
        let interrupt = Interrupt { raised: Arc::default(), signal: Arc::default() };
        for signal in [SIGINT, SIGTERM] {
            // Without these a signal ends the process at once, which is well enough. The second one comes first: the
            // flag is not raised yet when the first signal asks. Launchers of several processes send more than one.
            if hloom::comm::launched().is_none() {
                let _ = flag::register_conditional_default(signal, interrupt.raised.clone());
            }
            let _ = flag::register(signal, interrupt.raised.clone());
            let _ = flag::register_usize(signal, interrupt.signal.clone(), signal as usize);
        }
        interrupt
    });
    &interrupt.raised
}

/// Ends the process by the signal that was sent to it, if one was. A rank of a job tells by its status why it ended.
pub(crate) fn end_by_signal() {
    let signal = INTERRUPT.get().map_or(0, |i| i.signal.load(Ordering::Relaxed));
    if signal != 0 && hloom::comm::launched().is_none() {
        let _ = low_level::emulate_default_handler(signal as i32);
    }
}
