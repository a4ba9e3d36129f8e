//! Events: something that will have happened.
//!
//! A handle is one reference to a shared state, so that a caller may destroy it before the event happens or inside the
//! callback. Callbacks run with no lock held, on the thread that makes the event ready, or at once if it is ready.

use crate::abi::{
    EventAwaitArgs, EventCreateArgs, EventDestroyArgs, EventErrorArgs, EventIsReadyArgs, EventOnReadyArgs,
    EventSetArgs, Handle, OnReady, slice,
};
use crate::status::{Code, Status};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Something that will have happened. Clones are the same event.
#[derive(Clone, Default)]
pub struct Event(Arc<State>);

#[derive(Default)]
struct State {
    /// Whether it has happened well; looked at without a lock.
    done: AtomicBool,
    inner: Mutex<Inner>,
    happened: Condvar,
}

#[derive(Default)]
struct Inner {
    outcome: Option<Result<(), Status>>,
    waiting: Vec<(OnReady, UserArg)>,
}

struct UserArg(*mut c_void);

// SAFETY: it is the caller's, which says that its callback may be called from any thread.
unsafe impl Send for UserArg {}

impl Event {
    /// An event that has happened.
    pub fn done() -> Event {
        let event = Event::default();
        event.set(Ok(()));
        event
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes it happen; whether it had not before.
    pub fn set(&self, outcome: Result<(), Status>) -> bool {
        let waiting = {
            let mut inner = self.lock();
            if inner.outcome.is_some() {
                return false;
            }
            if outcome.is_ok() {
                self.0.done.store(true, Ordering::Release);
            }
            inner.outcome = Some(outcome.clone());
            std::mem::take(&mut inner.waiting)
        };
        self.0.happened.notify_all();
        for (callback, user_arg) in waiting {
            tell(callback, user_arg.0, &outcome);
        }
        true
    }

    /// What came of it, if it has happened.
    pub fn outcome(&self) -> Option<Result<(), Status>> {
        if self.0.done.load(Ordering::Acquire) {
            return Some(Ok(()));
        }
        self.lock().outcome.clone()
    }

    /// Waits for it.
    pub fn wait(&self) -> Result<(), Status> {
        if self.0.done.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut inner = self.lock();
        loop {
            match &inner.outcome {
                Some(outcome) => return outcome.clone(),
                None => inner = self.0.happened.wait(inner).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

fn tell(callback: OnReady, user_arg: *mut c_void, outcome: &Result<(), Status>) {
    let error = outcome.as_ref().map_or_else(|status| status.clone().into_error(), |()| std::ptr::null_mut());
    // SAFETY: the caller's function with the caller's argument; the error becomes its own.
    unsafe { callback(error, user_arg) };
}

pub(crate) fn destroy(args: &mut EventDestroyArgs) -> Result<(), Status> {
    drop(args.event.take());
    Ok(())
}

pub(crate) fn is_ready(args: &mut EventIsReadyArgs) -> Result<(), Status> {
    args.is_ready = u8::from(args.event.get()?.outcome().is_some());
    Ok(())
}

pub(crate) fn error(args: &mut EventErrorArgs) -> Result<(), Status> {
    args.event.get()?.outcome().unwrap_or(Ok(()))
}

pub(crate) fn wait(args: &mut EventAwaitArgs) -> Result<(), Status> {
    args.event.get()?.wait()
}

pub(crate) fn on_ready(args: &mut EventOnReadyArgs) -> Result<(), Status> {
    let callback = args.callback.ok_or_else(|| Status::invalid("there is no callback"))?;
    let event = args.event.get()?.clone();
    let mut inner = event.lock();
    match inner.outcome.clone() {
        None => inner.waiting.push((callback, UserArg(args.user_arg))),
        Some(outcome) => {
            drop(inner);
            tell(callback, args.user_arg, &outcome);
        }
    }
    Ok(())
}

pub(crate) fn create(args: &mut EventCreateArgs) -> Result<(), Status> {
    args.event = Handle::give(Event::default());
    Ok(())
}

pub(crate) fn set(args: &mut EventSetArgs) -> Result<(), Status> {
    let event = args.event.get()?.clone();
    let outcome = match args.error_code {
        0 => Ok(()),
        number => {
            // SAFETY: the caller's text.
            let message = unsafe { slice(args.error_message, args.error_message_size) };
            Err(Status::new(Code::from_number(number), String::from_utf8_lossy(message)))
        }
    };
    match event.set(outcome) {
        true => Ok(()),
        false => Err(Status::new(Code::FailedPrecondition, "the event has happened already")),
    }
}
