//! The extension for profilers: which programs ran when, while somebody asks.
//!
//! A profile is an `XSpace` of one plane with a line for each thread that ran programs.

use crate::abi::{Entry, ErrorDestroyArgs, ErrorGetCodeArgs, ErrorMessageArgs, ExtensionBase, Handle};
use crate::abi::{c_structs_for_extensions as c_structs, entry, slice};
use crate::status::{self, Error, Status};
use prost::Message;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Runs that are kept; who traces for hours sees the first.
const MOST_RUNS: usize = 1 << 20;

/// Profilers that are collecting.
static COLLECTING: AtomicUsize = AtomicUsize::new(0);

/// What ran since the first of them began.
static RUNS: Mutex<Vec<Run>> = Mutex::new(Vec::new());

/// One run of a program.
struct Run {
    name: String,
    thread: u64,
    begun_ns: u64,
    ns: u64,
}

fn runs() -> MutexGuard<'static, Vec<Run>> {
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` and notes when, if a profiler is collecting.
pub(crate) fn noted<T>(name: &str, work: impl FnOnce() -> T) -> T {
    if COLLECTING.load(Ordering::Relaxed) == 0 {
        return work();
    }
    let begun_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let begun = Instant::now();
    let result = work();
    let ns = begun.elapsed().as_nanos() as u64;
    let mut runs = runs();
    if runs.len() < MOST_RUNS {
        runs.push(Run { name: name.to_owned(), thread: thread(), begun_ns, ns });
    }
    result
}

/// A number for the thread that asks.
fn thread() -> u64 {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    thread_local! { static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed) as u64; }
    NUMBER.with(|n| *n)
}

/// `XSpace`.
#[derive(Clone, PartialEq, Message)]
struct Space {
    #[prost(message, repeated, tag = "1")]
    planes: Vec<Plane>,
}

/// `XPlane`.
#[derive(Clone, PartialEq, Message)]
struct Plane {
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    lines: Vec<Line>,
    #[prost(btree_map = "int64, message", tag = "4")]
    event_metadata: BTreeMap<i64, EventMetadata>,
}

/// `XLine`.
#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(int64, tag = "3")]
    timestamp_ns: i64,
    #[prost(message, repeated, tag = "4")]
    events: Vec<XEvent>,
}

/// `XEvent`.
#[derive(Clone, PartialEq, Message)]
struct XEvent {
    #[prost(int64, tag = "1")]
    metadata_id: i64,
    #[prost(int64, tag = "2")]
    offset_ps: i64,
    #[prost(int64, tag = "3")]
    duration_ps: i64,
}

/// `XEventMetadata`.
#[derive(Clone, PartialEq, Message)]
struct EventMetadata {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(string, tag = "2")]
    name: String,
}

fn profile(runs: &[Run]) -> Vec<u8> {
    let mut numbers: BTreeMap<&str, i64> = BTreeMap::new();
    let mut lines: BTreeMap<u64, Line> = BTreeMap::new();
    for run in runs {
        let next = numbers.len() as i64 + 1;
        let metadata_id = *numbers.entry(&run.name).or_insert(next);
        let line = lines.entry(run.thread).or_insert_with(|| Line {
            id: run.thread as i64,
            name: format!("programs, thread {}", run.thread),
            timestamp_ns: run.begun_ns as i64,
            events: Vec::new(),
        });
        let offset_ns = run.begun_ns.saturating_sub(line.timestamp_ns as u64);
        line.events.push(XEvent {
            metadata_id,
            offset_ps: offset_ns.saturating_mul(1000) as i64,
            duration_ps: run.ns.saturating_mul(1000) as i64,
        });
    }
    let event_metadata = numbers.into_iter().map(|(name, id)| (id, EventMetadata { id, name: name.to_owned() }));
    let plane = Plane {
        name: "/host:hloom".to_owned(),
        lines: lines.into_values().collect(),
        event_metadata: event_metadata.collect(),
    };
    Space { planes: vec![plane] }.encode_to_vec()
}

/// Somebody's wish to know what runs.
#[derive(Default)]
pub struct Profiler(Mutex<Collected>);

#[derive(Default)]
struct Collected {
    is_collecting: bool,
    profile: Vec<u8>,
}

impl Profiler {
    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        let mut collected = self.lock();
        if std::mem::take(&mut collected.is_collecting) {
            COLLECTING.fetch_sub(1, Ordering::Relaxed);
            collected.profile = profile(&runs());
        }
    }
}

/// A function of the profiler. Callers do not always say how large their arguments are, so all fields are relied on: none
/// was ever added.
macro_rules! whole {
    ($args:ty, $function:path) => {{
        unsafe extern "C" fn entry(args: *mut c_void) -> *mut Error {
            // SAFETY: a caller passes the arguments of this function.
            let Some(args) = (unsafe { args.cast::<$args>().as_mut() }) else { return null_mut() };
            match catch_unwind(AssertUnwindSafe(|| $function(args))) {
                Ok(Ok(())) => null_mut(),
                Ok(Err(status)) => status.into_error(),
                Err(panic) => Status::from_panic(panic.as_ref()).into_error(),
            }
        }
        entry as Entry
    }};
}

c_structs! {
    @plain CreateArgs[32] {
        struct_size: usize = 0, options: *const u8 = 8, options_size: usize = 16, profiler: Handle<Profiler> = 24,
    }
    @plain ProfilerArgs[16] { struct_size: usize = 0, profiler: Handle<Profiler> = 8 }
    @plain CollectArgs[32] {
        struct_size: usize = 0, profiler: Handle<Profiler> = 8, buffer: *mut u8 = 16, buffer_size: usize = 24,
    }
}

fn create(args: &mut CreateArgs) -> Result<(), Status> {
    // SAFETY: the caller's bytes; what they ask for in detail is not looked at.
    let _ = unsafe { slice(args.options, args.options_size) };
    args.profiler = Handle::give(Profiler::default());
    Ok(())
}

fn destroy(args: &mut ProfilerArgs) -> Result<(), Status> {
    if let Some(profiler) = args.profiler.take() {
        profiler.stop();
    }
    Ok(())
}

fn start(args: &mut ProfilerArgs) -> Result<(), Status> {
    let mut collected = args.profiler.get()?.lock();
    if !std::mem::replace(&mut collected.is_collecting, true) && COLLECTING.fetch_add(1, Ordering::Relaxed) == 0 {
        runs().clear();
    }
    Ok(())
}

fn stop(args: &mut ProfilerArgs) -> Result<(), Status> {
    args.profiler.get()?.stop();
    Ok(())
}

/// Gives the profile: a copy where the caller has room for it, or a look at it, which lasts until the profiler is stopped
/// again or destroyed.
fn collect(args: &mut CollectArgs) -> Result<(), Status> {
    let collected = args.profiler.get()?.lock();
    let bytes = &collected.profile;
    if args.buffer.is_null() {
        args.buffer = bytes.as_ptr().cast_mut();
    } else if args.buffer_size >= bytes.len() && !std::ptr::eq(args.buffer, bytes.as_ptr()) {
        // SAFETY: the caller's room of that size.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), args.buffer, bytes.len()) };
    }
    args.buffer_size = bytes.len();
    Ok(())
}

/// The functions of a profiler. Errors are those of the C API, whose structs for them are alike.
#[repr(C)]
struct Functions {
    struct_size: usize,
    private: *mut c_void,
    functions: [Entry; 8],
}

// SAFETY: never changed.
unsafe impl Sync for Functions {}

static FUNCTIONS: Functions = Functions {
    struct_size: size_of::<Functions>(),
    private: null_mut(),
    functions: [
        entry!(ErrorDestroyArgs, status::destroy),
        entry!(ErrorMessageArgs, status::message),
        entry!(ErrorGetCodeArgs, status::get_code),
        whole!(CreateArgs, create),
        whole!(ProfilerArgs, destroy),
        whole!(ProfilerArgs, start),
        whole!(ProfilerArgs, stop),
        whole!(CollectArgs, collect),
    ],
};

/// The extension.
#[repr(C)]
pub struct ProfilerExtension {
    base: ExtensionBase,
    functions: *const Functions,
    context: i64,
}

const _: () = assert!(size_of::<ProfilerExtension>() == 40);

// SAFETY: never changed, and neither is what it points to.
unsafe impl Sync for ProfilerExtension {}

impl ProfilerExtension {
    /// The extension, followed by `next`.
    pub const fn new(next: *const ExtensionBase) -> ProfilerExtension {
        ProfilerExtension {
            base: ExtensionBase { struct_size: size_of::<ProfilerExtension>(), type_: 1, next: next.cast_mut() },
            functions: &raw const FUNCTIONS,
            context: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_program_share_its_name() {
        let run = |name: &str, begun_ns, ns| Run { name: name.to_owned(), thread: 3, begun_ns, ns };
        let bytes = profile(&[run("a", 100, 5), run("b", 110, 1), run("a", 120, 7)]);
        let plane = Space::decode(&bytes[..]).expect("it is an XSpace").planes.remove(0);
        assert_eq!(plane.event_metadata.len(), 2);
        let line = &plane.lines[0];
        assert_eq!((line.timestamp_ns, line.events.len()), (100, 3));
        assert_eq!(line.events[0].metadata_id, line.events[2].metadata_id);
        assert_eq!((line.events[2].offset_ps, line.events[2].duration_ps), (20_000, 7_000));
    }
}
