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

/// Something that will have happened. Clones are the same event. Without a state it has happened, and well.
#[derive(Clone)]
pub struct Event(Option<Arc<State>>);

/// What stands for every event that had happened before anybody asked.
static DONE: Event = Event::done();

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
    /// Threads that sleep until it happens.
    sleeping: usize,
    waiting: Vec<(OnReady, UserArg)>,
}

struct UserArg(*mut c_void);

// SAFETY: it is the caller's, which says that its callback may be called from any thread.
unsafe impl Send for UserArg {}

impl Event {
    /// An event that has happened.
    pub const fn done() -> Event {
        Event(None)
    }

    /// One that has not happened yet.
    pub fn coming() -> Event {
        Event(Some(Arc::default()))
    }

    /// One that came to nothing.
    pub fn failed(status: Status) -> Event {
        let event = Event::coming();
        event.set(Err(status));
        event
    }

    /// Gives it to the caller. What has happened already is one handle for all, which lives forever.
    pub fn give(&self) -> Handle<Event> {
        match self.has_happened_well() {
            true => Handle::lend(&DONE),
            false => Handle::give(self.clone()),
        }
    }

    /// Makes it happen; whether it had not before.
    pub fn set(&self, outcome: Result<(), Status>) -> bool {
        let Some(state) = &self.0 else { return false };
        let (waiting, sleeping) = {
            let mut inner = state.lock();
            if inner.outcome.is_some() {
                return false;
            }
            inner.outcome = Some(outcome.clone());
            if outcome.is_ok() {
                state.done.store(true, Ordering::Release);
            }
            (std::mem::take(&mut inner.waiting), inner.sleeping)
        };
        if sleeping > 0 {
            state.happened.notify_all();
        }
        for (callback, user_arg) in waiting {
            tell(callback, user_arg.0, &outcome);
        }
        true
    }

    /// Whether it has happened, and well.
    pub fn has_happened_well(&self) -> bool {
        self.0.as_ref().is_none_or(|state| state.done.load(Ordering::Acquire))
    }

    /// What came of it, if it has happened.
    pub fn outcome(&self) -> Option<Result<(), Status>> {
        match &self.0 {
            Some(state) if !state.done.load(Ordering::Acquire) => state.lock().outcome.clone(),
            _ => Some(Ok(())),
        }
    }

    /// Waits for it.
    pub fn wait(&self) -> Result<(), Status> {
        let Some(state) = self.0.as_ref().filter(|_| !self.has_happened_well()) else { return Ok(()) };
        let mut inner = state.lock();
        loop {
            match &inner.outcome {
                Some(outcome) => return outcome.clone(),
                None => {
                    inner.sleeping += 1;
                    inner = state.happened.wait(inner).unwrap_or_else(PoisonError::into_inner);
                    inner.sleeping -= 1;
                }
            }
        }
    }

    /// Has `callback` told of the outcome: at once if there is one.
    fn on_ready(&self, callback: OnReady, user_arg: *mut c_void) {
        let mut outcome = Ok(());
        if let Some(state) = self.0.as_ref().filter(|_| !self.has_happened_well()) {
            let mut inner = state.lock();
            match &inner.outcome {
                None => {
                    inner.waiting.push((callback, UserArg(user_arg)));
                    return;
                }
                Some(known) => outcome = known.clone(),
            }
        }
        tell(callback, user_arg, &outcome);
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(callback: OnReady, user_arg: *mut c_void, outcome: &Result<(), Status>) {
    let error = outcome.as_ref().map_or_else(|status| status.clone().into_error(), |()| std::ptr::null_mut());
    // SAFETY: the caller's function with the caller's argument; the error becomes its own.
    unsafe { callback(error, user_arg) };
}

pub(crate) fn destroy(args: &mut EventDestroyArgs) -> Result<(), Status> {
    if !std::ptr::eq(args.event.as_ptr(), &raw const DONE) {
        drop(args.event.take());
    }
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
    // The callback may destroy the handle.
    let event = args.event.get()?.clone();
    event.on_ready(callback, args.user_arg);
    Ok(())
}

pub(crate) fn create(args: &mut EventCreateArgs) -> Result<(), Status> {
    args.event = Handle::give(Event::coming());
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
