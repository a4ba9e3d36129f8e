//! The extension for custom partitioners: functions of the caller that say how calls by some names are cut.
//!
//! JAX gives them for `custom_partitioning`. They are asked while a program is partitioned, with serialized shapes and
//! shardings, and answer with shardings and with the program of one device. That program is in a form of MLIR that is not
//! kept stable; the Python package sets a function that turns it into text. Functions that are to be told of a sharding
//! (`jax.debug.inspect_array_sharding`) are called then, too.

use crate::abi::{Entry, ExtensionBase, c_structs_for_extensions as c_structs, entry, slice};
use crate::program::BYTECODE;
use crate::status::{Code, Status};
use hloom_formats::proto::{read_sharding, write_shape, write_sharding};
use hloom_ir::Shape;
use hloom_ir::diagnostic::{Blame, Diagnostic, codes::passes as codes};
use hloom_ir::module::Module;
use hloom_ir::sharding::{LeafSharding, Sharding, ShardingKind};
use hloom_spmd::partition::custom::{CallToPartition, CustomPartition, CustomPartitioner};
use rustc_hash::FxHashMap;
use std::ffi::{CStr, c_void};
use std::sync::{LazyLock, PoisonError, RwLock};

/// `JAX_CustomCallPartitioner_string`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Bytes {
    data: *const u8,
    size: usize,
}

impl Bytes {
    const NONE: Bytes = Bytes { data: std::ptr::null(), size: 0 };

    fn of(bytes: &[u8]) -> Bytes {
        Bytes { data: bytes.as_ptr(), size: bytes.len() }
    }

    /// # Safety
    /// What it points to is there.
    unsafe fn to_vec(self) -> Vec<u8> {
        // SAFETY: as the caller promises.
        unsafe { slice(self.data, self.size) }.to_vec()
    }
}

/// `JAX_CustomCallPartitioner_aval`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Value {
    shape: Bytes,
    has_sharding: bool,
    sharding: Bytes,
}

/// `JAX_CustomCallPartitioner_version_and_error`.
#[repr(C)]
struct Header {
    api_version: i64,
    data: *mut c_void,
    cleanup: Option<unsafe extern "C" fn(*mut c_void)>,
    has_error: bool,
    code: i32,
    message: Bytes,
}

/// `JAX_CustomCallPartitioner_Partition_Args`.
#[repr(C)]
struct PartitionArgs {
    header: Header,
    num_args: usize,
    op_args: *const Value,
    op_result: Value,
    backend_config: Bytes,
    mlir_module: Bytes,
    args_sharding: *const Bytes,
    result_sharding: Bytes,
}

const _: () = assert!(size_of::<Header>() == 48 && size_of::<Value>() == 40 && size_of::<PartitionArgs>() == 160);

/// `JAX_CustomCallPartitioner_Callbacks`.
#[repr(C)]
struct Callbacks {
    version: i64,
    private_data: *mut c_void,
    dtor: Option<unsafe extern "C" fn(*mut Callbacks)>,
    partition: Option<unsafe extern "C" fn(*mut Callbacks, *mut PartitionArgs)>,
    infer_sharding: *const c_void,
    propagate_user_sharding: *const c_void,
    can_side_effecting_have_replicated_sharding: bool,
}

c_structs! {
    @plain RegisterArgs[32] {
        struct_size: usize = 0, name: *const u8 = 8, name_size: usize = 16, callbacks: *mut c_void = 24,
    }
    @plain RegisterBatchArgs[24] { struct_size: usize = 0, name: *const u8 = 8, name_size: usize = 16 }
}

/// The extension.
#[repr(C)]
pub struct CustomPartitionerExtension {
    base: ExtensionBase,
    functions: [Entry; 2],
}

const _: () = assert!(size_of::<CustomPartitionerExtension>() == 40);

// SAFETY: never changed, and neither is what it points to.
unsafe impl Sync for CustomPartitionerExtension {}

impl CustomPartitionerExtension {
    /// The extension, followed by `next`.
    pub const fn new(next: *const ExtensionBase) -> CustomPartitionerExtension {
        let struct_size = size_of::<CustomPartitionerExtension>();
        CustomPartitionerExtension {
            base: ExtensionBase { struct_size, type_: 2, next: next.cast_mut() },
            functions: [entry!(RegisterArgs, register), entry!(RegisterBatchArgs, register_batch)],
        }
    }
}

/// A caller's functions; those of callers that give others for the same name later stay, since they may be at work.
#[derive(Clone, Copy)]
struct Registered(*mut Callbacks);

// SAFETY: the caller's functions may be called from any thread, and live as long as the process.
unsafe impl Send for Registered {}
// SAFETY: likewise.
unsafe impl Sync for Registered {}

/// Turns MLIR's bytecode into text, which it hands to [`hloom_take_text`] with the last argument; not 0 if it cannot.
type Converter = unsafe extern "C" fn(*const u8, usize, *mut c_void) -> i32;

#[derive(Default)]
struct Registry {
    partitioners: FxHashMap<String, Registered>,
    converter: Option<Converter>,
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);

fn registry<T>(f: impl FnOnce(&Registry) -> T) -> T {
    f(&REGISTRY.read().unwrap_or_else(PoisonError::into_inner))
}

fn change<T>(f: impl FnOnce(&mut Registry) -> T) -> T {
    f(&mut REGISTRY.write().unwrap_or_else(PoisonError::into_inner))
}

fn name(start: *const u8, size: usize) -> String {
    // SAFETY: the caller's name.
    String::from_utf8_lossy(unsafe { slice(start, size) }).into_owned()
}

fn register(args: &mut RegisterArgs) -> Result<(), Status> {
    if args.callbacks.is_null() {
        return Err(Status::invalid("a custom partitioner without functions"));
    }
    let name = name(args.name, args.name_size);
    change(|r| r.partitioners.insert(name, Registered(args.callbacks.cast())));
    Ok(())
}

/// Calls whose first dimensions are done one by one say themselves how many these are: there is nothing to remember.
fn register_batch(_: &mut RegisterBatchArgs) -> Result<(), Status> {
    Ok(())
}

/// Sets the function that turns MLIR's bytecode into text.
#[unsafe(no_mangle)]
pub extern "C" fn hloom_set_mlir_converter(function: Option<Converter>) {
    change(|r| r.converter = function);
}

/// Takes the text that a converter made; `to` is what it was given.
///
/// # Safety
/// `to` is the last argument of a converter that is being called, and there are `size` bytes at `text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hloom_take_text(to: *mut c_void, text: *const u8, size: usize) {
    // SAFETY: as the caller promises.
    if let Some(to) = unsafe { to.cast::<Vec<u8>>().as_mut() } {
        // SAFETY: likewise.
        to.extend_from_slice(unsafe { slice(text, size) });
    }
}

/// The partitioners that callers have given.
pub(crate) struct RegisteredPartitioners;

fn failed(message: impl Into<String>) -> Diagnostic {
    Diagnostic::error(&codes::CANNOT_PARTITION, message)
}

fn encode(kinds: &[ShardingKind], shape: &Shape) -> Vec<u8> {
    let leaf = |kind: &ShardingKind| LeafSharding::from(kind.clone().canonical());
    match (shape, kinds) {
        (Shape::Tuple(_), kinds) => write_sharding(&Sharding::Tuple(kinds.iter().map(leaf).collect())),
        (_, [kind, ..]) => write_sharding(&Sharding::Leaf(Box::new(leaf(kind)))),
        (_, []) => Vec::new(),
    }
}

/// By this name programs ask for the sharding of an array: the call's `backend_config` is an [`Inspector`].
const INSPECT_SHARDING: &str = "InspectSharding";

/// `JAX_InspectSharding_Callback`.
#[repr(C)]
struct Inspector {
    call: Option<unsafe extern "C" fn(*mut c_void, *mut InspectArgs)>,
    data: *mut c_void,
}

/// `JAX_InspectSharding_Callback_Args`.
#[repr(C)]
struct InspectArgs {
    sharding: Bytes,
    error: *const std::ffi::c_char,
    error_data: *mut c_void,
    free_error: Option<unsafe extern "C" fn(*mut InspectArgs)>,
}

/// Tells the caller how the operand of the call lies.
fn inspect_sharding(call: &CallToPartition<'_>) -> Result<(), Diagnostic> {
    let Some((shape, kind)) = call.operands.first() else { return Ok(()) };
    if call.backend_config.len() != size_of::<Inspector>() {
        return Err(failed(format!("{INSPECT_SHARDING} without a function to call")));
    }
    // SAFETY: JAX writes the struct into the call's config, and keeps what it points to while the program is compiled.
    let inspector = unsafe { call.backend_config.as_ptr().cast::<Inspector>().read_unaligned() };
    let Some(function) = inspector.call else { return Ok(()) };
    let sharding = encode(std::slice::from_ref(kind), shape);
    let mut args = InspectArgs {
        sharding: Bytes::of(&sharding),
        error: std::ptr::null(),
        error_data: std::ptr::null_mut(),
        free_error: None,
    };
    // SAFETY: its arguments, which live until it returns; the text of an error ends in a zero, and is there until freed.
    let error = unsafe {
        function(inspector.data, &raw mut args);
        let error = (!args.error.is_null()).then(|| CStr::from_ptr(args.error).to_string_lossy().into_owned());
        if let Some(free) = args.free_error {
            free(&raw mut args);
        }
        error
    };
    error.map_or(Ok(()), |text| Err(failed(format!("the function that is told of a sharding failed: {text}"))))
}

impl CustomPartitioner for RegisteredPartitioners {
    fn partition(&self, call: &CallToPartition<'_>) -> Result<Option<CustomPartition>, Diagnostic> {
        if call.target == INSPECT_SHARDING {
            inspect_sharding(call)?;
        }
        let found = registry(|r| r.partitioners.get(call.target).copied());
        let Some(Registered(callbacks)) = found else { return Ok(None) };
        // SAFETY: the caller's struct, which lives as long as the process.
        let Some(partition) = (unsafe { (*callbacks).partition }) else { return Ok(None) };
        let shapes: Vec<Vec<u8>> = call.operands.iter().map(|(shape, _)| write_shape(shape)).collect();
        let shardings: Vec<Vec<u8>> =
            call.operands.iter().map(|(shape, kind)| encode(std::slice::from_ref(kind), shape)).collect();
        let value = |(shape, sharding): (&Vec<u8>, &Vec<u8>)| Value {
            shape: Bytes::of(shape),
            has_sharding: true,
            sharding: Bytes::of(sharding),
        };
        let operands: Vec<Value> = shapes.iter().zip(&shardings).map(value).collect();
        let (result_shape, result_sharding) = (write_shape(call.result), encode(&call.results, call.result));
        let mut args = PartitionArgs {
            header: Header {
                api_version: 0,
                data: std::ptr::null_mut(),
                cleanup: None,
                has_error: false,
                code: 0,
                message: Bytes::NONE,
            },
            num_args: operands.len(),
            op_args: operands.as_ptr(),
            op_result: value((&result_shape, &result_sharding)),
            backend_config: Bytes::of(call.backend_config),
            mlir_module: Bytes::NONE,
            args_sharding: std::ptr::null(),
            result_sharding: Bytes::NONE,
        };
        // SAFETY: its arguments, all of which live until it returns; what it answers lives until it is cleaned up.
        let answer = unsafe {
            partition(callbacks, &mut args);
            let answer = Answer::read(&args);
            if let Some(cleanup) = args.header.cleanup {
                cleanup(args.header.data);
            }
            answer
        };
        answer?.into_partition().map(Some)
    }
}

/// What a partitioner answered, as bytes.
struct Answer {
    program: Vec<u8>,
    operands: Vec<Vec<u8>>,
    result: Vec<u8>,
}

impl Answer {
    /// # Safety
    /// The arguments are those of a partitioner that has returned.
    unsafe fn read(args: &PartitionArgs) -> Result<Answer, Diagnostic> {
        // SAFETY: as the caller promises.
        unsafe {
            if args.header.has_error {
                let status = Status::new(
                    Code::from_number(args.header.code),
                    String::from_utf8_lossy(&args.header.message.to_vec()),
                );
                return Err(failed(format!("the partitioner of the call failed: {}", status.message)));
            }
            let operands = slice(args.args_sharding, args.num_args);
            Ok(Answer {
                program: args.mlir_module.to_vec(),
                operands: operands.iter().map(|s| s.to_vec()).collect(),
                result: args.result_sharding.to_vec(),
            })
        }
    }

    fn into_partition(self) -> Result<CustomPartition, Diagnostic> {
        let mut operands = Vec::new();
        for sharding in &self.operands {
            operands.extend(read_sharding(sharding)?);
        }
        Ok(CustomPartition { program: read_program(&self.program)?, operands, results: read_sharding(&self.result)? })
    }
}

fn read_program(code: &[u8]) -> Result<Module, Diagnostic> {
    let mut text = Vec::new();
    let code = match registry(|r| r.converter).filter(|_| code.starts_with(BYTECODE)) {
        Some(convert) => {
            // SAFETY: the bytes, and a vector that `hloom_take_text` fills, are there until it returns.
            let answer = unsafe { convert(code.as_ptr(), code.len(), (&raw mut text).cast()) };
            if answer != 0 {
                return Err(failed("the program of a custom partitioner cannot be turned into text"));
            }
            &text[..]
        }
        None => code,
    };
    let unread = |found: Box<Diagnostic>| {
        let message = format!("the program of a custom partitioner cannot be read: {}", found.message);
        failed(message).blame(Blame::Hloom)
    };
    let module = match code.starts_with(BYTECODE) {
        true => hloom_stablehlo::read_bytecode(code).map_err(unread)?,
        false => hloom_stablehlo::read_text(code).map_err(unread)?,
    };
    hloom_stablehlo::to_hlo(&module).map_err(unread)
}
