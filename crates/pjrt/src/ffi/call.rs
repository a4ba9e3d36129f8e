//! Calling a handler: arrays in the layouts that the call names, a frame around them, and what the handler may ask for.

use super::abi::{self, Api, Buffers, CallFrame, Failure, Future, Handler, Service, Version};
use super::attributes::Attributes;
use super::{PythonCallback, UserContext};
use crate::status::{Code, Status};
use hloom_ir::Shape;
use hloom_ir::op::CustomCall;
use hloom_ir::shape::ArrayShape;
use hloom_value::{Array, Value};
use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Arc, PoisonError};

/// What a call works on: arguments and results, in their layouts.
pub(super) struct Frame {
    pub(super) arguments: Vec<Option<Array>>,
    pub(super) results: Vec<Option<Array>>,
    /// The sizes of each as the program has them, whatever the layouts.
    argument_dims: Vec<Vec<i64>>,
    result_dims: Vec<Vec<i64>>,
}

/// The dimensions of an array from the slowest-varying, where the layout is another than row-major.
fn order(shape: &ArrayShape) -> Option<Vec<usize>> {
    let layout = shape.layout.as_ref()?;
    (!layout.is_descending()).then(|| layout.minor_to_major.iter().rev().map(|&d| d as usize).collect())
}

impl Frame {
    /// The arguments as the call wants them, and room for results of `shape`. A result that shares memory with an
    /// argument begins with its elements.
    pub(super) fn new(call: &CustomCall, shape: &Shape, operands: &[Value]) -> Result<Frame, Status> {
        let leaves: Vec<&Value> = operands.iter().flat_map(Value::leaves).collect();
        let layouts: Vec<&Shape> = call.operand_layouts.iter().flatten().collect();
        let mut arguments = Vec::with_capacity(leaves.len());
        let mut argument_dims = Vec::with_capacity(leaves.len());
        for (i, leaf) in leaves.into_iter().enumerate() {
            let Ok(array) = leaf.as_array() else {
                arguments.push(None);
                argument_dims.push(Vec::new());
                continue;
            };
            argument_dims.push(array.dims().to_vec());
            let wanted = layouts.get(i).and_then(|s| s.as_array());
            let layout = wanted.and_then(|w| w.layout.as_ref());
            arguments.push(Some(layout.map_or_else(|| Ok(array.clone()), |layout| array.to_memory(layout))?));
        }
        let mut results = Vec::new();
        let mut result_dims = Vec::new();
        for (index, leaf) in shape.leaves() {
            let Some(array) = leaf.as_array() else {
                results.push(None);
                result_dims.push(Vec::new());
                continue;
            };
            result_dims.push(array.dims().to_vec());
            let dims: Vec<i64> = match order(array) {
                Some(order) => order.iter().map(|&d| array.dims()[d]).collect(),
                None => array.dims().to_vec(),
            };
            let mut result = Array::zeroed(array.element_type, &dims)?;
            let alias = call.output_operand_aliasing.iter().find(|a| a.output_index[..] == index[..]);
            let shared = alias.and_then(|a| arguments.get(usize::try_from(a.operand).ok()?)).and_then(Option::as_ref);
            if let Some(shared) = shared.filter(|s| s.bytes().len() == result.bytes().len()) {
                result.bytes_mut().copy_from_slice(shared.bytes());
            }
            results.push(Some(result));
        }
        Ok(Frame { arguments, results, argument_dims, result_dims })
    }

    /// The results as a value of `shape`.
    pub(super) fn into_value(self, shape: &Shape) -> Result<Value, Status> {
        fn assemble(shape: &Shape, results: &mut impl Iterator<Item = Option<Array>>) -> Result<Value, Status> {
            Ok(match shape {
                Shape::Tuple(elements) => {
                    Value::Tuple(elements.iter().map(|e| assemble(e, results)).collect::<Result<_, _>>()?)
                }
                Shape::Array(array) => {
                    let result = results.next().flatten();
                    let result = result.ok_or_else(|| Status::new(Code::Internal, "a result is missing"))?;
                    let elements = order(array).map(|_| Array::from_memory(array, result.bytes())).transpose()?;
                    Value::Array(elements.unwrap_or(result))
                }
                _ => {
                    let _ = results.next();
                    Value::Token
                }
            })
        }
        assemble(shape, &mut self.results.into_iter())
    }

    /// Calls back into Python.
    pub(super) fn call_python(&mut self, function: PythonCallback, number: u64) -> Result<(), Status> {
        // SAFETY: the data are read by the callback only.
        let given: Vec<super::HloomArray> = self.arguments.iter().flatten().map(super::HloomArray::of).collect();
        let made: Vec<super::HloomArray> = self.results.iter_mut().flatten().map(super::HloomArray::of_mut).collect();
        let mut message = vec![0u8; 1 << 14];
        // SAFETY: the pointers are valid during the call, and the lengths are theirs.
        let failed = unsafe {
            function(
                number,
                given.as_ptr(),
                given.len(),
                made.as_ptr(),
                made.len(),
                message.as_mut_ptr(),
                message.len(),
            )
        };
        match failed {
            0 => Ok(()),
            _ => {
                let text = CStr::from_bytes_until_nul(&message).map(CStr::to_string_lossy).unwrap_or_default();
                Err(Status::new(Code::Internal, format!("CpuCallback error calling callback: {text}")))
            }
        }
    }

    /// Calls a handler.
    pub(super) fn call(
        &mut self,
        handler: Handler,
        attributes: &Attributes,
        context: &Context<'_>,
    ) -> Result<(), Status> {
        let arguments: Vec<abi::Buffer> = self
            .arguments
            .iter()
            .zip(&self.argument_dims)
            .map(|(a, dims)| buffer(a.as_ref().map(|a| (a.element_type(), a.bytes().as_ptr().cast_mut())), dims))
            .collect();
        let results: Vec<abi::Buffer> = self
            .results
            .iter_mut()
            .zip(&self.result_dims)
            .map(|(a, dims)| buffer(a.as_mut().map(|a| (a.element_type(), a.bytes_mut().as_mut_ptr())), dims))
            .collect();
        let pointers = |list: &[abi::Buffer]| list.iter().map(std::ptr::from_ref).collect::<Vec<_>>();
        let (argument_pointers, result_pointers) = (pointers(&arguments), pointers(&results));
        let types = vec![abi::BUFFER; arguments.len().max(results.len())];
        let list = |pointers: &[*const abi::Buffer]| Buffers {
            struct_size: size_of::<Buffers>(),
            extension_start: null_mut(),
            size: pointers.len() as i64,
            types: types.as_ptr(),
            buffers: pointers.as_ptr(),
        };
        let mut frame = CallFrame {
            struct_size: abi::FRAME_SIZE,
            extension_start: null_mut(),
            api: &raw const API,
            context: std::ptr::from_ref(context).cast(),
            stage: abi::EXECUTE,
            args: list(&argument_pointers),
            rets: list(&result_pointers),
            attributes: attributes.encoded(),
            future: null(),
        };
        // SAFETY: a handler of the caller's; everything that the frame points to lives until it returns.
        let failure = unsafe { handler(&raw mut frame) };
        let failure = match failure.is_null() {
            // SAFETY: a future is made by `future_create`, and ours once returned.
            true if !frame.future.is_null() => match unsafe { wait_for(frame.future) } {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            },
            true => return Ok(()),
            // SAFETY: failures are made by `error_create`, and ours once returned.
            false => unsafe { Box::from_raw(failure) },
        };
        Err(Status::new(Code::from_number(failure.code), failure.message.to_string_lossy()))
    }
}

fn buffer(array: Option<(hloom_ir::ElementType, *mut u8)>, dims: &[i64]) -> abi::Buffer {
    abi::Buffer {
        struct_size: size_of::<abi::Buffer>(),
        extension_start: null_mut(),
        dtype: array.map_or(abi::TOKEN, |(ty, _)| ty.proto_number()),
        data: array.map_or(null_mut(), |(_, data)| data.cast()),
        rank: dims.len() as i64,
        dims: dims.as_ptr(),
    }
}

/// What a handler may ask about the run it is part of.
pub(super) struct Context<'r> {
    pub(super) user: &'r UserContext,
    pub(super) ordinal: i32,
}

static API: Api = Api {
    struct_size: size_of::<Api>(),
    extension_start: null_mut(),
    version: Version { struct_size: 24, extension_start: null_mut(), major: 0, minor: 3 },
    internal: null(),
    services: [
        error_create as Service,
        error_details,
        error_destroy,
        unsupported,
        unsupported,
        unsupported,
        context_get,
        unsupported,
        state_get,
        unsupported,
        unsupported,
        schedule,
        threads,
        future_create,
        future_set,
        future_fail,
        run_id,
        ordinal,
    ],
};

fn failure(code: Code, message: &str) -> *mut Failure {
    let message = CString::new(message).unwrap_or_default();
    Box::into_raw(Box::new(Failure { code: code as i32, message }))
}

unsafe extern "C" fn unsupported(_: *mut c_void) -> *mut Failure {
    failure(Code::Unimplemented, "hloom does not have this service for custom calls")
}

/// # Safety
/// As all services: `args` are those of this service.
unsafe extern "C" fn error_create(args: *mut c_void) -> *mut Failure {
    // SAFETY: see above; the message ends with a zero.
    unsafe {
        let args = &*args.cast::<abi::ErrorCreateArgs>();
        let message = if args.message.is_null() { CString::default() } else { CStr::from_ptr(args.message).to_owned() };
        Box::into_raw(Box::new(Failure { code: args.code, message }))
    }
}

/// # Safety
/// See [`error_create`].
unsafe extern "C" fn error_details(args: *mut c_void) -> *mut Failure {
    // SAFETY: see above; the error is one of ours.
    unsafe {
        let args = &mut *args.cast::<abi::ErrorArgs>();
        if let Some(error) = args.error.as_ref() {
            (args.message, args.code) = (error.message.as_ptr(), error.code);
        }
    }
    null_mut()
}

/// # Safety
/// See [`error_create`].
unsafe extern "C" fn error_destroy(args: *mut c_void) -> *mut Failure {
    // SAFETY: see above; the error is one of ours, and destroyed once.
    unsafe {
        let error = (*args.cast::<abi::ErrorArgs>()).error;
        if !error.is_null() {
            drop(Box::from_raw(error));
        }
    }
    null_mut()
}

/// # Safety
/// See [`error_create`].
unsafe extern "C" fn context_get(args: *mut c_void) -> *mut Failure {
    // SAFETY: see above; the context is the one of the frame.
    unsafe {
        let args = &mut *args.cast::<abi::ContextGetArgs>();
        let context = args.context.cast::<Context<'_>>().as_ref();
        let type_id = args.type_id.as_ref();
        match context.zip(type_id).and_then(|(c, &id)| c.user.get(id)) {
            Some(data) => {
                args.data = data;
                null_mut()
            }
            None => failure(Code::NotFound, "there is no user data of this type"),
        }
    }
}

/// Handlers without a first stage have no state.
///
/// # Safety
/// See [`error_create`].
unsafe extern "C" fn state_get(args: *mut c_void) -> *mut Failure {
    // SAFETY: see above.
    unsafe { (*args.cast::<abi::StateArgs>()).state = null_mut() };
    null_mut()
}

/// Runs the task here and now.
///
/// # Safety
/// See [`error_create`].
unsafe extern "C" fn schedule(args: *mut c_void) -> *mut Failure {
    // SAFETY: see above; the handler's task with the handler's data.
    unsafe {
        let args = &*args.cast::<abi::ScheduleArgs>();
        if let Some(task) = args.task {
            task(args.data);
        }
    }
    null_mut()
}

/// # Safety
/// See [`error_create`].
unsafe extern "C" fn threads(args: *mut c_void) -> *mut Failure {
    // SAFETY: see above.
    unsafe {
        if let Some(count) = (*args.cast::<abi::ThreadsArgs>()).num_threads.as_mut() {
            *count = 1;
        }
    }
    null_mut()
}

/// A future has two holders: the handler, which sets it, and the frame that it is returned in.
///
/// # Safety
/// See [`error_create`].
unsafe extern "C" fn future_create(args: *mut c_void) -> *mut Failure {
    let future = Arc::new(Future::default());
    // SAFETY: see above. The second holder is counted here, and gives up its part when it sets the future.
    unsafe {
        Arc::increment_strong_count(Arc::as_ptr(&future));
        (*args.cast::<abi::FutureArgs>()).future = Arc::into_raw(future);
    }
    null_mut()
}

/// # Safety
/// See [`error_create`]; the future is set once.
unsafe extern "C" fn future_set(args: *mut c_void) -> *mut Failure {
    // SAFETY: see above.
    unsafe { settle((*args.cast::<abi::FutureArgs>()).future, Ok(())) };
    null_mut()
}

/// # Safety
/// See [`error_create`]; the future is set once, and the error is one of ours.
unsafe extern "C" fn future_fail(args: *mut c_void) -> *mut Failure {
    // SAFETY: see above.
    unsafe {
        let args = &*args.cast::<abi::FutureArgs>();
        settle(args.future, Err(Box::from_raw(args.error)));
    }
    null_mut()
}

/// # Safety
/// `future` was made by [`future_create`], and is not set yet.
unsafe fn settle(future: *const Future, outcome: Result<(), Box<Failure>>) {
    // SAFETY: as the caller says: the handler's part.
    let future = unsafe { Arc::from_raw(future) };
    *future.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    future.is_set.notify_all();
}

/// # Safety
/// `future` was made by [`future_create`], and is returned in one frame.
unsafe fn wait_for(future: *const Future) -> Result<(), Box<Failure>> {
    // SAFETY: as the caller says: the frame's part.
    let future = unsafe { Arc::from_raw(future) };
    let mut outcome = future.outcome.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(outcome) = outcome.take() {
            return outcome;
        }
        outcome = future.is_set.wait(outcome).unwrap_or_else(PoisonError::into_inner);
    }
}

/// # Safety
/// See [`error_create`].
unsafe extern "C" fn run_id(args: *mut c_void) -> *mut Failure {
    // SAFETY: see above.
    unsafe { (*args.cast::<abi::RunIdArgs>()).run_id = 0 };
    null_mut()
}

/// # Safety
/// See [`error_create`].
unsafe extern "C" fn ordinal(args: *mut c_void) -> *mut Failure {
    // SAFETY: see above; the context is the one of the frame.
    unsafe {
        let args = &mut *args.cast::<abi::OrdinalArgs>();
        args.ordinal = args.context.cast::<Context<'_>>().as_ref().map_or(0, |c| c.ordinal);
    }
    null_mut()
}
