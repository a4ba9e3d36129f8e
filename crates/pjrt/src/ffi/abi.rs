//! The C structs of XLA's foreign function interface, version 0.3: how custom calls are called.
//!
//! Each begins with its size and a list of extensions, which is always empty here.

use std::ffi::{c_char, c_void};

/// A function that is called with a frame, and returns an error or null.
pub(crate) type Handler = unsafe extern "C" fn(*mut CallFrame) -> *mut Failure;
/// A function that a handler may call.
pub(super) type Service = unsafe extern "C" fn(*mut c_void) -> *mut Failure;

/// Why a call failed.
pub(crate) struct Failure {
    pub(super) code: i32,
    pub(super) message: std::ffi::CString,
}

/// What a handler that goes on after it has returned will come to.
#[derive(Default)]
pub(crate) struct Future {
    pub(super) outcome: std::sync::Mutex<Option<Result<(), Box<Failure>>>>,
    pub(super) is_set: std::sync::Condvar,
}

macro_rules! ffi_structs {
    ($($name:ident { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            #[repr(C)]
            pub(crate) struct $name {
                pub(super) struct_size: usize,
                pub(super) extension_start: *mut c_void,
                $(pub(super) $field: $type),*
            }
        )*
    };
}

ffi_structs! {
    Buffer { dtype: i32, data: *mut c_void, rank: i64, dims: *const i64 }
    Buffers { size: i64, types: *const i32, buffers: *const *const Buffer }
    Attributes { size: i64, types: *const i32, names: *const *const Span, attributes: *const *const c_void }
    Version { major: i32, minor: i32 }
    CallFrame {
        api: *const Api, context: *const c_void, stage: i32, args: Buffers, rets: Buffers, attributes: Attributes,
        future: *const Future,
    }
    // The services, in this order: errors (create, details, destroy), registering a handler, the stream, registering a
    // type, user data, state (set, get), memory (allocate, free), the pool (schedule, threads), futures (create, set,
    // fail), the run, the device.
    Api { version: Version, internal: *const c_void, services: [Service; 18] }
    ErrorCreateArgs { message: *const c_char, code: i32 }
    ErrorArgs { error: *mut Failure, message: *const c_char, code: i32 }
    ContextGetArgs { context: *const c_void, type_id: *const i64, data: *mut c_void }
    StateArgs { context: *const c_void, stage: i32, type_id: *const i64, state: *mut c_void }
    ScheduleArgs { context: *const c_void, task: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void }
    ThreadsArgs { context: *const c_void, num_threads: *mut i64 }
    RunIdArgs { context: *const c_void, run_id: i64 }
    FutureArgs { future: *const Future, error: *mut Failure }
    OrdinalArgs { context: *const c_void, ordinal: i32 }
}

/// Some bytes.
#[repr(C)]
pub(crate) struct Span {
    pub(super) start: *const u8,
    pub(super) len: usize,
}

#[repr(C)]
pub(super) struct Scalar {
    pub(super) dtype: i32,
    pub(super) value: *const c_void,
}

#[repr(C)]
pub(super) struct List {
    pub(super) dtype: i32,
    pub(super) size: usize,
    pub(super) data: *const c_void,
}

/// Kinds of attributes.
pub(super) mod attribute_type {
    pub(in crate::ffi) const ARRAY: i32 = 1;
    pub(in crate::ffi) const DICTIONARY: i32 = 2;
    pub(in crate::ffi) const SCALAR: i32 = 3;
    pub(in crate::ffi) const STRING: i32 = 4;
}

/// The stage of a call that does the work.
pub(super) const EXECUTE: i32 = 3;
/// The only kind of arguments and results.
pub(super) const BUFFER: i32 = 1;
/// The element type of what is no array.
pub(super) const TOKEN: i32 = 17;
/// Bytes of a frame without what is at its end.
pub(super) const FRAME_SIZE: usize = 168;

const _: () = {
    assert!(std::mem::offset_of!(CallFrame, future) == FRAME_SIZE);
    assert!(size_of::<Buffer>() == 48 && size_of::<Buffers>() == 40 && size_of::<Attributes>() == 48);
    assert!(size_of::<Api>() == 192);
};

// SAFETY: never changed, and neither is what it points to.
unsafe impl Sync for Api {}
