//! What went wrong, as the C API tells it: a code and a message.

use crate::abi::{
    ErrorDestroyArgs, ErrorForEachPayloadArgs, ErrorGetCodeArgs, ErrorMessageArgs, ExtensionBase, PayloadVisitor,
};
use hloom_ir::diagnostic::{Blame, Diagnostic, codes};
use hloom_value::ExecutionError;
use std::any::Any;
use std::ffi::c_void;
use std::fmt::Write;

/// The kind of an error; the numbers of the C API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names of the C API")]
pub enum Code {
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    /// The code of a number of the C API; unknown numbers are [`Code::Unknown`].
    pub fn from_number(number: i32) -> Code {
        use Code::*;
        let all = [
            Cancelled,
            Unknown,
            InvalidArgument,
            DeadlineExceeded,
            NotFound,
            AlreadyExists,
            PermissionDenied,
            ResourceExhausted,
            FailedPrecondition,
            Aborted,
            OutOfRange,
            Unimplemented,
            Internal,
            Unavailable,
            DataLoss,
            Unauthenticated,
        ];
        all.into_iter().find(|c| *c as i32 == number).unwrap_or(Unknown)
    }
}

/// Why something could not be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The kind.
    pub code: Code,
    /// What is wrong.
    pub message: String,
}

impl Status {
    /// An error.
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        Status { code, message: message.into() }
    }

    /// The caller did something wrong.
    pub fn invalid(message: impl Into<String>) -> Status {
        Status::new(Code::InvalidArgument, message)
    }

    /// There is no such thing here.
    pub fn unimplemented(message: impl Into<String>) -> Status {
        Status::new(Code::Unimplemented, message)
    }

    /// A panic, which is a bug of ours.
    pub fn from_panic(panic: &(dyn Any + Send)) -> Status {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Status::new(Code::Internal, format!("hloom has a bug: {text}"))
    }

    /// The findings about a program.
    pub fn from_diagnostics(diagnostics: &[Diagnostic]) -> Status {
        let Some(first) = diagnostics.first() else { return Status::new(Code::Internal, "an error without a reason") };
        let mut status = Status::new(code_of(first), text_of(first));
        for other in diagnostics.iter().skip(1).take(4) {
            let _ = write!(status.message, "\n{}", text_of(other));
        }
        status
    }

    /// The error object that a caller gets, and has to destroy.
    pub fn into_error(self) -> *mut Error {
        Box::into_raw(Box::new(Error { table: &ERROR_TABLE, status: self }))
    }
}

impl From<ExecutionError> for Status {
    fn from(fault: ExecutionError) -> Status {
        Status::from_diagnostics(&[fault.into_diagnostic()])
    }
}

impl From<Box<Diagnostic>> for Status {
    fn from(diagnostic: Box<Diagnostic>) -> Status {
        Status::from_diagnostics(&[*diagnostic])
    }
}

fn code_of(diagnostic: &Diagnostic) -> Code {
    let number = diagnostic.code.number;
    let is = |code: &'static hloom_ir::diagnostic::Code| number == code.number;
    if is(&codes::eval::OUT_OF_MEMORY) {
        Code::ResourceExhausted
    } else if is(&codes::eval::CANCELLED) {
        Code::Cancelled
    } else if is(&codes::eval::UNSUPPORTED) || is(&codes::eval::UNKNOWN_CUSTOM_CALL) {
        Code::Unimplemented
    } else if diagnostic.blame == Blame::Hloom {
        Code::Internal
    } else {
        Code::InvalidArgument
    }
}

fn text_of(diagnostic: &Diagnostic) -> String {
    let mut text = format!("{} [{}]", diagnostic.message, diagnostic.code);
    for note in &diagnostic.notes {
        let _ = write!(text, "\n{}", note.message);
    }
    text
}

/// An error of the C API.
#[repr(C)]
pub struct Error {
    table: *const ErrorTable,
    status: Status,
}

/// The functions of an error, for callers that got it from another library.
#[repr(C)]
struct ErrorTable {
    struct_size: usize,
    instance_size: usize,
    extension_start: *mut ExtensionBase,
    destroy: unsafe extern "C" fn(*mut Error),
    message: unsafe extern "C" fn(*const Error, *mut *const u8, *mut usize),
    get_code: unsafe extern "C" fn(*const Error) -> i32,
    for_each_payload: unsafe extern "C" fn(*const Error, PayloadVisitor, *mut c_void),
}

const _: () = assert!(size_of::<ErrorTable>() == 56);

// SAFETY: functions and numbers only.
unsafe impl Sync for ErrorTable {}

static ERROR_TABLE: ErrorTable = ErrorTable {
    struct_size: size_of::<ErrorTable>(),
    instance_size: size_of::<*const ErrorTable>(),
    extension_start: std::ptr::null_mut(),
    destroy: destroy_error,
    message: error_message,
    get_code: error_code,
    for_each_payload: no_payloads,
};

/// # Safety
/// `error` is null or came from [`Status::into_error`] and was not destroyed.
unsafe extern "C" fn destroy_error(error: *mut Error) {
    if !error.is_null() {
        // SAFETY: see above.
        drop(unsafe { Box::from_raw(error) });
    }
}

/// # Safety
/// `error` came from [`Status::into_error`]; the others may be written.
unsafe extern "C" fn error_message(error: *const Error, message: *mut *const u8, size: *mut usize) {
    // SAFETY: see above.
    unsafe {
        if let Some(error) = error.as_ref() {
            *message = error.status.message.as_ptr();
            *size = error.status.message.len();
        }
    }
}

/// # Safety
/// `error` is null or came from [`Status::into_error`].
unsafe extern "C" fn error_code(error: *const Error) -> i32 {
    // SAFETY: see above.
    unsafe { error.as_ref() }.map_or(0, |e| e.status.code as i32)
}

unsafe extern "C" fn no_payloads(_: *const Error, _: PayloadVisitor, _: *mut c_void) {}

pub(crate) fn destroy(args: &mut ErrorDestroyArgs) -> Result<(), Status> {
    // SAFETY: the error is the caller's to destroy.
    unsafe { destroy_error(args.error) };
    Ok(())
}

pub(crate) fn message(args: &mut ErrorMessageArgs) -> Result<(), Status> {
    // SAFETY: the caller's error; results are written to our copy of its arguments.
    unsafe { error_message(args.error, &raw mut args.message, &raw mut args.message_size) };
    Ok(())
}

pub(crate) fn get_code(args: &mut ErrorGetCodeArgs) -> Result<(), Status> {
    // SAFETY: the caller's error.
    args.code = unsafe { error_code(args.error) };
    Ok(())
}

pub(crate) fn for_each_payload(_: &mut ErrorForEachPayloadArgs) -> Result<(), Status> {
    Ok(())
}
