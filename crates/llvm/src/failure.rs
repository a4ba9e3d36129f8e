//! LLVM's failures as errors of ours. Left alone, LLVM ends the process: with `abort` for what it calls fatal, with
//! `exit` for code that it cannot make.
//!
//! What is fatal unwinds from LLVM's handler to [`emit`]. LLVM's frames have no destructors to run then, so whatever
//! they held is lost: the caller must never touch the module, its context and the target machine again, nor free them.

use inkwell::memory_buffer::MemoryBuffer;
use inkwell::targets::FileType;
use llvm_sys::prelude::{LLVMBool, LLVMContextRef, LLVMDiagnosticInfoRef, LLVMMemoryBufferRef, LLVMModuleRef};
use llvm_sys::target_machine::{LLVMCodeGenFileType, LLVMTargetMachineRef};
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

/// LLVM, or the system under it, could not make code: a bug or a lack of memory, in LLVM's words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LlvmError(pub(crate) String);

impl fmt::Display for LlvmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LlvmError {}

/// What ends the making of code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// LLVM says no; everything is as it was.
    Refused(String),
    /// LLVM was left in the middle: module, context and target machine are to be forgotten.
    Fatal(String),
}

/// The reason that a fatal error unwinds with.
struct Reason(String);

unsafe extern "C-unwind" {
    /// As in `llvm_sys`, whose declaration does not let it unwind.
    fn LLVMTargetMachineEmitToMemoryBuffer(
        machine: LLVMTargetMachineRef,
        module: LLVMModuleRef,
        kind: LLVMCodeGenFileType,
        message: *mut *mut c_char,
        buffer: *mut LLVMMemoryBufferRef,
    ) -> LLVMBool;
    fn LLVMInstallFatalErrorHandler(handler: Option<unsafe extern "C-unwind" fn(*const c_char)>);
}

/// # Safety
/// Only LLVM calls it, with a string.
unsafe extern "C-unwind" fn on_fatal(reason: *const c_char) {
    // SAFETY: LLVM gives a string that ends with a zero.
    let reason = unsafe { text(reason) };
    // Without the panic hook: this is no bug to be reported but a kernel that will do without LLVM.
    resume_unwind(Box::new(Reason(reason)));
}

extern "C" fn on_diagnostic(diagnostic: LLVMDiagnosticInfoRef, errors: *mut c_void) {
    // SAFETY: LLVM gives the diagnostic, and the pointer that `emit` set; it lives until code is made.
    unsafe {
        let severity = llvm_sys::core::LLVMGetDiagInfoSeverity(diagnostic);
        if matches!(severity, llvm_sys::LLVMDiagnosticSeverity::LLVMDSError) {
            let words = llvm_sys::core::LLVMGetDiagInfoDescription(diagnostic);
            (*errors.cast::<RefCell<Vec<String>>>()).borrow_mut().push(text(words));
            llvm_sys::core::LLVMDisposeMessage(words);
        }
    }
}

/// # Safety
/// It must be null or a string that ends with a zero.
unsafe fn text(words: *const c_char) -> String {
    if words.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
}

/// The object code or the assembly of a module.
///
/// # Safety
/// The module must be of the context; all three must be alive and used by this thread alone.
pub(crate) unsafe fn emit(
    machine: LLVMTargetMachineRef,
    context: LLVMContextRef,
    module: LLVMModuleRef,
    kind: FileType,
) -> Result<MemoryBuffer<'static>, Failure> {
    static HANDLED: Once = Once::new();
    // SAFETY: the handler is a function that lives for ever, and is installed once: LLVM takes no second.
    HANDLED.call_once(|| unsafe { LLVMInstallFatalErrorHandler(Some(on_fatal)) });
    let errors: RefCell<Vec<String>> = RefCell::default();
    let there = (&raw const errors).cast_mut().cast::<c_void>();
    let (mut message, mut buffer): (*mut c_char, LLVMMemoryBufferRef) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the caller's promise; `errors` outlives the handler, which is taken back below.
    let made = catch_unwind(AssertUnwindSafe(|| unsafe {
        llvm_sys::core::LLVMContextSetDiagnosticHandler(context, Some(on_diagnostic), there);
        let kind = match kind {
            FileType::Assembly => LLVMCodeGenFileType::LLVMAssemblyFile,
            FileType::Object => LLVMCodeGenFileType::LLVMObjectFile,
        };
        LLVMTargetMachineEmitToMemoryBuffer(machine, module, kind, &mut message, &mut buffer)
    }));
    let failed = match made {
        Ok(failed) => failed != 0,
        Err(panic) => {
            return Err(match panic.downcast::<Reason>() {
                Ok(reason) => Failure::Fatal(reason.0),
                Err(panic) => resume_unwind(panic),
            });
        }
    };
    // SAFETY: the context is whole; message and buffer are LLVM's, and ours from now on.
    unsafe {
        llvm_sys::core::LLVMContextSetDiagnosticHandler(context, None, std::ptr::null_mut());
        let said = text(message);
        if !message.is_null() {
            llvm_sys::core::LLVMDisposeMessage(message);
        }
        let object = (!failed && !buffer.is_null()).then(|| MemoryBuffer::new(buffer));
        match (object, errors.into_inner().into_iter().next()) {
            (Some(object), None) => Ok(object),
            (_, Some(error)) => Err(Failure::Refused(error)),
            (None, None) => Err(Failure::Refused(said)),
        }
    }
}
