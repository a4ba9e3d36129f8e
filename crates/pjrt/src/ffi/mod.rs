//! Custom calls: code of the caller that programs call by name, by XLA's foreign function interface.
//!
//! Handlers are known by name, in all clients alike. One that a program needs and nobody has given is asked for once, of
//! the resolver that the Python package sets.

mod abi;
mod attributes;
mod call;

use crate::abi::{Entry, ExecuteContextCreateArgs, ExecuteContextDestroyArgs, ExtensionBase, Handle, slice};
use crate::abi::{c_structs_for_extensions as c_structs, entry};
use crate::status::Status;
use abi::Handler;
use attributes::{Attribute, Attributes};
use call::{Context, Frame};
use hloom_eval::custom_call::{CustomCalls, builtin};
use hloom_ir::Op;
use hloom_ir::diagnostic::{Diagnostic, Part, codes};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_value::{Array, ExecutionError};
use rustc_hash::FxHashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

/// What a caller passes on to the custom calls of a run: pointers by the numbers of their types.
#[derive(Default)]
pub struct ExecuteContext(Mutex<FxHashMap<i64, UserData>>);

#[derive(Clone, Copy)]
struct UserData(*mut c_void);

// SAFETY: it is the caller's, which says that it may be used in the run.
unsafe impl Send for UserData {}
// SAFETY: likewise.
unsafe impl Sync for UserData {}

impl ExecuteContext {
    /// What a run gets of it: the caller may destroy the context as soon as the run is given.
    pub fn snapshot(&self) -> UserContext {
        UserContext(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// The pointers that a caller passes on to the custom calls of one run.
#[derive(Clone, Default)]
pub struct UserContext(FxHashMap<i64, UserData>);

impl UserContext {
    /// What was given for a type.
    pub fn get(&self, type_id: i64) -> Option<*mut c_void> {
        self.0.get(&type_id).map(|d| d.0)
    }
}

c_structs! {
    TypeRegisterArgs[48] {
        type_name: *const u8 = 16, type_name_size: usize = 24, type_id: i64 = 32, type_info: *mut c_void = 40,
    }
    UserDataAddArgs[40] { context: Handle<ExecuteContext> = 16, type_id: i64 = 24, data: *mut c_void = 32 }
    @plain RegisterHandlerArgs[52] {
        struct_size: usize = 0, target_name: *const u8 = 8, target_name_size: usize = 16, handler: *mut c_void = 24,
        platform_name: *const u8 = 32, platform_name_size: usize = 40, traits: u32 = 48,
    }
}

/// The extension.
#[repr(C)]
pub struct Ffi {
    base: ExtensionBase,
    functions: [Entry; 3],
}

const _: () = assert!(size_of::<Ffi>() == 48);

// SAFETY: never changed, and neither is what it points to.
unsafe impl Sync for Ffi {}

impl Ffi {
    /// The extension, followed by `next`.
    pub const fn new(next: *const ExtensionBase) -> Ffi {
        Ffi {
            base: ExtensionBase { struct_size: size_of::<Ffi>(), type_: 5, next: next.cast_mut() },
            functions: [
                entry!(TypeRegisterArgs, register_type),
                entry!(UserDataAddArgs, add_user_data),
                entry!(RegisterHandlerArgs, register_handler),
            ],
        }
    }
}

/// Types get numbers of their own, unless they bring one.
fn register_type(args: &mut TypeRegisterArgs) -> Result<(), Status> {
    static NEXT: AtomicI64 = AtomicI64::new(1 << 40);
    if args.type_id == 0 {
        args.type_id = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn add_user_data(args: &mut UserDataAddArgs) -> Result<(), Status> {
    let context = args.context.get()?;
    let mut data = context.0.lock().unwrap_or_else(PoisonError::into_inner);
    data.insert(args.type_id, UserData(args.data));
    Ok(())
}

fn register_handler(args: &mut RegisterHandlerArgs) -> Result<(), Status> {
    // SAFETY: the caller's name.
    let name = unsafe { slice(args.target_name, args.target_name_size) };
    register(name, args.handler)
}

/// The target by which programs of the Python package call back.
const PYTHON_CALLBACK: &str = "hloom_python_callback";

/// An array as the Python package sees it.
#[repr(C)]
pub struct HloomArray {
    data: *mut c_void,
    size: usize,
}

impl HloomArray {
    fn of(array: &Array) -> HloomArray {
        HloomArray { data: array.bytes().as_ptr().cast_mut().cast(), size: array.bytes().len() }
    }

    fn of_mut(array: &mut Array) -> HloomArray {
        HloomArray { data: array.bytes_mut().as_mut_ptr().cast(), size: array.bytes().len() }
    }
}

/// Runs a function of Python: its number, arguments, results, and room for what went wrong.
pub type PythonCallback =
    unsafe extern "C" fn(u64, *const HloomArray, usize, *const HloomArray, usize, *mut u8, usize) -> i32;

/// Is asked for a handler that is not known, and registers it if it knows it.
pub type Resolver = unsafe extern "C" fn(*const u8, usize);

#[derive(Default)]
struct Registry {
    handlers: FxHashMap<String, Handler>,
    python: Option<PythonCallback>,
    resolver: Option<Resolver>,
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);

fn registry<T>(look: impl FnOnce(&Registry) -> T) -> T {
    look(&REGISTRY.read().unwrap_or_else(PoisonError::into_inner))
}

fn change_registry(change: impl FnOnce(&mut Registry)) {
    change(&mut REGISTRY.write().unwrap_or_else(PoisonError::into_inner));
}

fn register(name: &[u8], handler: *mut c_void) -> Result<(), Status> {
    if handler.is_null() {
        return Err(Status::invalid("the handler is a null pointer"));
    }
    // SAFETY: the caller says that it is a function of this type.
    let handler = unsafe { std::mem::transmute::<*mut c_void, Handler>(handler) };
    let name = String::from_utf8_lossy(name).into_owned();
    change_registry(|r| {
        r.handlers.insert(name, handler);
    });
    Ok(())
}

/// Registers the handler of a custom call, for the Python package.
///
/// # Safety
/// `name` is `size` bytes, and `handler` a handler of XLA's foreign function interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hloom_register_custom_call(name: *const u8, size: usize, handler: *mut c_void) {
    // SAFETY: as the caller promises.
    let _ = register(unsafe { slice(name, size) }, handler);
}

/// Sets what runs functions of Python.
#[unsafe(no_mangle)]
pub extern "C" fn hloom_set_python_callback(function: Option<PythonCallback>) {
    change_registry(|r| r.python = function);
}

/// Sets what is asked for unknown handlers.
#[unsafe(no_mangle)]
pub extern "C" fn hloom_set_resolver(function: Option<Resolver>) {
    change_registry(|r| r.resolver = function);
}

fn handler(name: &str) -> Option<Handler> {
    registry(|r| r.handlers.get(name).copied())
}

/// The targets of a program's custom calls that handlers provide, each once. Those that are not known are asked for.
pub(crate) fn targets(module: &Module) -> Vec<String> {
    let mut targets: Vec<String> = Vec::new();
    for &computation in module.computations() {
        for &i in module[computation].instructions() {
            if let Op::CustomCall(call) = &module[i].op
                && !targets.iter().any(|t| **t == *call.target)
            {
                targets.push(call.target.to_string());
            }
        }
    }
    let resolver = registry(|r| r.resolver);
    for target in &targets {
        if handler(target).is_none()
            && let Some(resolve) = resolver
        {
            // SAFETY: the function that the Python package gave; no lock is held.
            unsafe { resolve(target.as_ptr(), target.len()) };
        }
    }
    targets.retain(|t| t == PYTHON_CALLBACK || handler(t).is_some());
    targets
}

/// Refuses a program that needs the result of a custom call that neither a handler nor hloom provides: before it runs,
/// where the caller still waits for it.
pub(crate) fn all_provided(module: &Module, targets: &[String]) -> Result<(), Diagnostic> {
    let builtin = builtin();
    for &computation in module.computations() {
        for &i in module[computation].instructions() {
            let Op::CustomCall(call) = &module[i].op else { continue };
            let is_needed = !module[i].users().is_empty() || module.root(computation) == Some(i);
            if is_needed && builtin.get(&call.target).is_none() && !targets.iter().any(|t| **t == *call.target) {
                let message = format!("{} calls \"{}\", which nobody provides", module[i].name(), call.target);
                let missing = Diagnostic::error(&codes::eval::UNKNOWN_CUSTOM_CALL, message);
                return Err(missing
                    .at_instruction(i, Part::Whole)
                    .help("register a handler of that name with jax.ffi.register_ffi_target"));
            }
        }
    }
    Ok(())
}

/// The custom calls of a program that handlers provide.
pub struct ProgramCalls {
    targets: Vec<String>,
    /// What each call is given beside its operands, or what is wrong with it.
    attributes: FxHashMap<InstructionId, Result<Attributes, Status>>,
}

impl ProgramCalls {
    /// The calls of these targets in a compiled module.
    pub(crate) fn new(targets: Vec<String>, compiled: &Module) -> ProgramCalls {
        let mut attributes = FxHashMap::default();
        for &computation in compiled.computations() {
            for &i in compiled[computation].instructions() {
                if let Op::CustomCall(call) = &compiled[i].op
                    && targets.iter().any(|t| **t == *call.target)
                {
                    let config = compiled[i].common.backend_config.as_deref().unwrap_or_default();
                    attributes.insert(i, Attributes::read(config));
                }
            }
        }
        ProgramCalls { targets, attributes }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }
}

/// Whether a call of that target means nothing in another process.
pub(crate) fn is_bound_to_process(target: &str) -> bool {
    target == PYTHON_CALLBACK || target.contains("python_cpu_callback")
}

pub(crate) fn create_context(args: &mut ExecuteContextCreateArgs) -> Result<(), Status> {
    args.context = Handle::give(ExecuteContext::default());
    Ok(())
}

pub(crate) fn destroy_context(args: &mut ExecuteContextDestroyArgs) -> Result<(), Status> {
    drop(args.context.take());
    Ok(())
}

/// What provides the custom calls of a program in one run.
pub(crate) fn custom_calls(of: &Arc<ProgramCalls>, context: &UserContext) -> CustomCalls {
    let mut calls = CustomCalls::default();
    for target in &of.targets {
        let of = of.clone();
        let name = target.clone();
        let user = context.clone();
        calls.register(
            target.as_str(),
            Box::new(move |device, i, operands| {
                let instruction = &device.module()[i];
                let Op::CustomCall(call) = &instruction.op else {
                    return Err(ExecutionError::bug("not a custom call"));
                };
                let context = Context { user: &user, ordinal: device.ordinal as i32 };
                let attributes = of.attributes.get(&i);
                let attributes = attributes.ok_or_else(|| ExecutionError::bug("a call that the program has not"))?;
                let attributes = attributes
                    .as_ref()
                    .map_err(|s| ExecutionError::new(&codes::eval::CUSTOM_CALL_FAILED, s.message.clone()))?;
                let number = |wanted: &str| match attributes.get(wanted) {
                    Some(Attribute::Scalar(_, bytes)) => {
                        bytes.get(..8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
                    }
                    _ => None,
                };
                let run = || {
                    let mut frame = Frame::new(call, &instruction.shape, &operands)?;
                    if name == PYTHON_CALLBACK {
                        let python = registry(|r| r.python).zip(number("number"));
                        let (python, number) = python.ok_or_else(|| Status::invalid("there is no Python to call"))?;
                        frame.call_python(python, number)?;
                    } else {
                        let handler = handler(&name).ok_or_else(|| Status::invalid("the handler is gone"))?;
                        frame.call(handler, attributes, &context)?;
                    }
                    frame.into_value(&instruction.shape)
                };
                run().map_err(|status: Status| {
                    ExecutionError::new(&codes::eval::CUSTOM_CALL_FAILED, format!("{name}: {}", status.message))
                })
            }),
        );
    }
    calls
}
