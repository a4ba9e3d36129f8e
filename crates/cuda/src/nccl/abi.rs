//! The C interface of NCCL, as its documentation has it, and the library opened at run time.
//!
//! Communicators do not block (`blocking = 0`): a call that is not done says so, and is asked for again, so that a rank
//! that does not come can be given up.

use super::calls::{Call, CollectiveCalls, CommunicatorHandle, DataType, Refusal, UniqueId};
use crate::driver::Handle;
use crate::library::Library;
use hloom_ir::diagnostic::{Blame, codes};
use hloom_value::ExecutionError;
use std::ffi::{CStr, c_char};

/// `ncclUniqueId`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct Id(UniqueId);

/// `ncclConfig_t` as of version 2.14. Later versions have more at its end; they read as much as `size` says, and take
/// `version` for which fields there are.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: i32,
}

const MAGIC: u32 = 0xcafe_beef;
/// 2.14.0, as `ncclGetVersion` tells it: the first version with communicators that do not block.
const OLDEST: i32 = 21400;
/// `ncclSuccess`.
const SUCCESS: i32 = 0;
/// `ncclInProgress`.
const IN_PROGRESS: i32 = 7;

type Reduce = unsafe extern "C" fn(u64, u64, usize, i32, i32, usize, Handle) -> i32;

/// The functions that are used.
#[derive(Debug)]
struct Functions {
    get_version: unsafe extern "C" fn(*mut i32) -> i32,
    unique_id: unsafe extern "C" fn(*mut Id) -> i32,
    init: unsafe extern "C" fn(*mut usize, i32, Id, i32, *mut Config) -> i32,
    async_error: unsafe extern "C" fn(usize, *mut i32) -> i32,
    abort: unsafe extern "C" fn(usize) -> i32,
    group_start: unsafe extern "C" fn() -> i32,
    group_end: unsafe extern "C" fn() -> i32,
    all_reduce: Reduce,
    reduce_scatter: Reduce,
    all_gather: unsafe extern "C" fn(u64, u64, usize, i32, usize, Handle) -> i32,
    broadcast: unsafe extern "C" fn(u64, u64, usize, i32, i32, usize, Handle) -> i32,
    send: unsafe extern "C" fn(u64, usize, i32, i32, usize, Handle) -> i32,
    receive: unsafe extern "C" fn(u64, usize, i32, i32, usize, Handle) -> i32,
    error_text: unsafe extern "C" fn(i32) -> *const c_char,
    last_error: unsafe extern "C" fn(usize) -> *const c_char,
}

/// NCCL.
#[derive(Debug)]
pub(crate) struct Nccl(Functions);

impl Nccl {
    /// Opens the library, which is never closed.
    pub(crate) fn open() -> Result<Nccl, ExecutionError> {
        Nccl::open_file("libnccl.so.2")
    }

    pub(super) fn open_file(file: &str) -> Result<Nccl, ExecutionError> {
        let library = Library::open("NCCL, which devices on several GPUs meet by,", &[file])?;
        // SAFETY: the types are those of the library's documentation.
        let functions = unsafe {
            Functions {
                get_version: library.function(&["ncclGetVersion"])?,
                unique_id: library.function(&["ncclGetUniqueId"])?,
                init: library.function(&["ncclCommInitRankConfig"])?,
                async_error: library.function(&["ncclCommGetAsyncError"])?,
                abort: library.function(&["ncclCommAbort"])?,
                group_start: library.function(&["ncclGroupStart"])?,
                group_end: library.function(&["ncclGroupEnd"])?,
                all_reduce: library.function(&["ncclAllReduce"])?,
                reduce_scatter: library.function(&["ncclReduceScatter"])?,
                all_gather: library.function(&["ncclAllGather"])?,
                broadcast: library.function(&["ncclBroadcast"])?,
                send: library.function(&["ncclSend"])?,
                receive: library.function(&["ncclRecv"])?,
                error_text: library.function(&["ncclGetErrorString"])?,
                last_error: library.function(&["ncclGetLastError"])?,
            }
        };
        let path = library.path.clone();
        std::mem::forget(library);
        let mut version = 0;
        // SAFETY: the out parameter is valid.
        let answer = unsafe { (functions.get_version)(&mut version) };
        if answer != SUCCESS || version < OLDEST {
            let message = format!("NCCL is too old: {path} is {}, and 2.14 is needed", version_text(version));
            return Err(ExecutionError::new(&codes::eval::LIBRARY_MISSING, message).blame(Blame::Machine));
        }
        Ok(Nccl(functions))
    }

    /// The answer of a call; that it is under way is well.
    fn check(&self, answer: i32, call: &str, communicator: CommunicatorHandle) -> Result<(), Refusal> {
        if matches!(answer, SUCCESS | IN_PROGRESS) {
            return Ok(());
        }
        let text = |text: *const c_char| match text.is_null() {
            true => String::new(),
            // SAFETY: the library gives a text that it keeps.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned(),
        };
        // SAFETY (both): the answer is the library's, and so is the communicator, if there is one.
        let (why, last) = unsafe { (text((self.0.error_text)(answer)), text((self.0.last_error)(communicator))) };
        let last = if last.is_empty() { last } else { format!(" ({last})") };
        Err(Refusal(format!("{call} of NCCL answers {answer}: {why}{last}")))
    }
}

/// 2.21.5 for 22105; before 2.9 there was a digit less.
fn version_text(version: i32) -> String {
    let major = if version < 10_000 { 1000 } else { 10_000 };
    format!("{}.{}.{}", version / major, version % major / 100, version % 100)
}

impl CollectiveCalls for Nccl {
    fn unique_id(&self) -> Result<UniqueId, Refusal> {
        let mut id = Id([0; 128]);
        // SAFETY: the out parameter is valid.
        let answer = unsafe { (self.0.unique_id)(&mut id) };
        self.check(answer, "ncclGetUniqueId", 0).map(|()| id.0)
    }

    fn begin(&self, size: usize, id: &UniqueId, rank: usize) -> Result<CommunicatorHandle, Refusal> {
        let number = |n: usize| i32::try_from(n).map_err(|_| Refusal(format!("{n} ranks are too many")));
        let mut config = Config { size: size_of::<Config>(), magic: MAGIC, version: OLDEST as u32, blocking: 0 };
        let mut communicator = 0;
        // SAFETY: the out parameter is valid, and the config says its own size; it is copied before the call returns.
        let answer = unsafe { (self.0.init)(&mut communicator, number(size)?, Id(*id), number(rank)?, &mut config) };
        self.check(answer, "ncclCommInitRankConfig", 0).map(|()| communicator)
    }

    unsafe fn enqueue(
        &self,
        communicator: CommunicatorHandle,
        stream: Handle,
        calls: &[Call<u64>],
    ) -> Result<(), Refusal> {
        let (f, bytes_type) = (&self.0, DataType::BYTES.0);
        // SAFETY (all): the caller's promise; a group that was begun is ended in any case.
        unsafe {
            self.check((f.group_start)(), "ncclGroupStart", communicator)?;
            let each = |call: &Call<u64>| {
                let (answer, name) = match *call {
                    Call::AllReduce { from, to, count, reduction: (t, op) } => {
                        ((f.all_reduce)(from, to, count, t.0, op.0, communicator, stream), "ncclAllReduce")
                    }
                    Call::ReduceScatter { from, to, count, reduction: (t, op) } => {
                        ((f.reduce_scatter)(from, to, count, t.0, op.0, communicator, stream), "ncclReduceScatter")
                    }
                    Call::AllGather { from, to, bytes } => {
                        ((f.all_gather)(from, to, bytes, bytes_type, communicator, stream), "ncclAllGather")
                    }
                    Call::Broadcast { from, to, bytes, root } => {
                        ((f.broadcast)(from, to, bytes, bytes_type, root as i32, communicator, stream), "ncclBroadcast")
                    }
                    Call::Send { from, bytes, rank } => {
                        ((f.send)(from, bytes, bytes_type, rank as i32, communicator, stream), "ncclSend")
                    }
                    Call::Receive { to, bytes, rank } => {
                        ((f.receive)(to, bytes, bytes_type, rank as i32, communicator, stream), "ncclRecv")
                    }
                };
                self.check(answer, name, communicator)
            };
            let called = calls.iter().try_for_each(each);
            let ended = self.check((f.group_end)(), "ncclGroupEnd", communicator);
            called.and(ended)
        }
    }

    fn is_done(&self, communicator: CommunicatorHandle) -> Result<bool, Refusal> {
        let mut state = SUCCESS;
        // SAFETY: the communicator is the library's, the out parameter valid.
        let answer = unsafe { (self.0.async_error)(communicator, &mut state) };
        self.check(answer, "ncclCommGetAsyncError", communicator)?;
        self.check(state, "what was begun", communicator).map(|()| state != IN_PROGRESS)
    }

    fn abort(&self, communicator: CommunicatorHandle) {
        // SAFETY: the communicator is the library's, and nobody uses it any more. There is nobody to tell if it fails.
        unsafe { (self.0.abort)(communicator) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_have_the_sizes_that_the_library_reads() {
        assert_eq!((size_of::<Id>(), align_of::<Id>()), (128, 1));
        assert_eq!(size_of::<Config>(), 24);
        assert_eq!(std::mem::offset_of!(Config, blocking), 16);
    }

    #[test]
    fn versions_are_told_as_people_do() {
        assert_eq!([version_text(22105), version_text(2804)], ["2.21.5", "2.8.4"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = Nccl::open_file("libno_such_nccl.so.2").unwrap_err().into_diagnostic();
        assert_eq!(error.blame, Blame::Machine);
        let said = "NCCL, which devices on several GPUs meet by, is not there: none of libno_such_nccl.so.2";
        assert!(error.message.starts_with(said), "{}", error.message);
    }
}
