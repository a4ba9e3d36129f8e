//! Buffers whose array comes from somewhere else: later, from another buffer, or never.

use crate::abi::{
    BufferBitcastArgs, BufferCopyRawToHostFutureArgs, BufferDonateWithControlDependencyArgs,
    ClientCreateAliasBufferArgs, ClientCreateErrorBufferArgs, ClientFulfillAliasBufferArgs, DevicePoisonExecutionArgs,
    DonateCallbackArgs, Handle, RawToHostCallbackArgs, read, slice,
};
use crate::buffer::{Buffer, Content, Promise};
use crate::client::Client;
use crate::event::Event;
use crate::status::{Code, Status};
use crate::transfer::{place, shape};
use hloom_ir::Shape;
use std::ffi::c_void;
use std::sync::Arc;

/// The outcome that a caller names by a code and words.
pub(crate) fn outcome(code: i32, message: *const u8, size: usize) -> Result<(), Status> {
    match code {
        0 => Ok(()),
        number => {
            // SAFETY: the caller's text.
            let message = unsafe { slice(message, size) };
            Err(Status::new(Code::from_number(number), String::from_utf8_lossy(message)))
        }
    }
}

pub(crate) fn create_error_buffer(args: &mut ClientCreateErrorBufferArgs) -> Result<(), Status> {
    let client = args.client.get()?;
    let shape = shape(args.shape_element_type, args.shape_dims, args.shape_num_dims, args.shape_layout)?;
    let place = place(client, Handle::null(), args.memory)?;
    let Err(status) = outcome(args.error_code, args.error_message, args.error_message_size) else {
        return Err(Status::invalid("a buffer that holds an error needs one"));
    };
    let promise = Promise::new(&Event::failed(status));
    args.buffer = Handle::give(Buffer::promised(client, place, &shape.into(), promise));
    Ok(())
}

/// A promise that the caller keeps, by naming a buffer.
pub struct Alias(Arc<Promise>);

pub(crate) fn create_alias_buffer(args: &mut ClientCreateAliasBufferArgs) -> Result<(), Status> {
    let client = args.client.get()?;
    let shape = shape(args.shape_element_type, args.shape_dims, args.shape_num_dims, args.shape_layout)?;
    let place = place(client, Handle::null(), args.memory)?;
    let promise = Promise::new(&Event::coming());
    args.alias_buffer = Handle::give(Buffer::promised(client, place, &shape.into(), promise.clone()));
    args.fulfill_alias_buffer_cb = Handle::give(Alias(promise));
    Ok(())
}

/// Keeps the promise, or breaks it. Who asked for the alias gives it back by this, once.
pub(crate) fn fulfill_alias_buffer(args: &mut ClientFulfillAliasBufferArgs) -> Result<(), Status> {
    let client = args.client.get()?;
    let alias = args.fulfill_alias_buffer_cb.take().ok_or_else(|| Status::invalid("there is no alias to fulfill"))?;
    let content = match outcome(args.status_code, args.error_message, args.error_message_size) {
        Ok(()) => args.buffer.get().and_then(|buffer| buffer.content()),
        Err(status) => Err(status),
    };
    settle(client, alias.0, content);
    Ok(())
}

/// Keeps a promise with what another buffer holds, once that is there.
fn settle(client: &Client, promise: Arc<Promise>, content: Result<Content, Status>) {
    match content {
        Ok(content) if content.here().is_none() => {
            let task = Box::new(move || promise.settle(content.take()));
            if let Err(task) = client.dispatcher.submit(task) {
                task();
            }
        }
        content => promise.settle(content.and_then(Content::take)),
    }
}

/// The same array as one of another type and sizes, of as many bytes.
pub(crate) fn bitcast(args: &mut BufferBitcastArgs) -> Result<(), Status> {
    let buffer = args.buffer.get()?;
    let shape = shape(args.element_type, args.dims, args.num_dims, args.device_layout)?;
    let data = buffer.data()?;
    if shape.byte_size() != Some(data.byte_size() as i64) {
        let (given, wanted) = (data.shape(), Shape::from(shape));
        return Err(Status::invalid(format!("{given} is not of as many bytes as {wanted}")));
    }
    let bytes = crate::buffer::host_bytes(&data)?;
    let copy = buffer.client.runtime.allocate(buffer.device, shape, &mut |to| to.copy_from_slice(&bytes))?;
    args.out_buffer = Handle::give(Buffer::new(&buffer.client, buffer.device, buffer.memory_kind, copy));
    Ok(())
}

/// What a caller calls when that is ready on which its buffer is to depend.
struct Dependency {
    client: Client,
    promise: Arc<Promise>,
    content: Content,
}

pub(crate) fn donate_with_dependency(args: &mut BufferDonateWithControlDependencyArgs) -> Result<(), Status> {
    /// # Safety
    /// `args` are those of the callback, whose data were made below and are given back once.
    unsafe extern "C" fn ready(args: *mut DonateCallbackArgs) {
        // SAFETY: see above.
        let Some(args) = (unsafe { read(args) }) else { return };
        if args.callback_data.is_null() {
            return;
        }
        // SAFETY: see above.
        let waiting = unsafe { Box::from_raw(args.callback_data.cast::<Dependency>()) };
        let outcome = outcome(args.error_code, args.error_message, args.error_message_size);
        let Dependency { client, promise, content } = *waiting;
        settle(&client, promise, outcome.map(|()| content));
    }
    let buffer = args.buffer.get()?;
    let content = buffer.donate()?;
    let promise = Promise::new(&Event::coming());
    let given =
        Buffer::promised(&buffer.client, (buffer.device, buffer.memory_kind), &buffer.shape()?, promise.clone());
    let waiting = Dependency { client: buffer.client.clone(), promise, content };
    args.callback_data = Box::into_raw(Box::new(waiting)).cast();
    args.dependency_ready_callback = Some(ready);
    args.out_buffer = Handle::give(given);
    Ok(())
}

/// Bytes of a buffer on their way to a place that the caller names later.
struct RawCopy {
    content: Content,
    offset: i64,
    size: i64,
    event: Event,
}

pub(crate) fn copy_raw_to_host_future(args: &mut BufferCopyRawToHostFutureArgs) -> Result<(), Status> {
    /// # Safety
    /// `args` are those of the callback, whose data were made below and are given back once.
    unsafe extern "C" fn ready(args: *mut RawToHostCallbackArgs) {
        // SAFETY: see above.
        let Some(args) = (unsafe { read(args) }) else { return };
        if args.callback_data.is_null() {
            return;
        }
        // SAFETY: see above.
        let copy = unsafe { Box::from_raw(args.callback_data.cast::<RawCopy>()) };
        let outcome = outcome(args.error_code, args.error_message, args.error_message_size);
        let outcome = outcome.and_then(|()| {
            let data = copy.content.wait()?;
            crate::transfer::copy_range(&crate::buffer::host_bytes(&data)?, copy.offset, copy.size, args.dst)
        });
        copy.event.set(outcome);
    }
    let content = args.buffer.get()?.content()?;
    let event = Event::coming();
    args.event = Handle::give(event.clone());
    let copy = RawCopy { content, offset: args.offset, size: args.transfer_size, event };
    args.callback_data = Box::into_raw(Box::new(copy)).cast::<c_void>();
    args.future_ready_callback = Some(ready);
    Ok(())
}

/// Runs of a device are not told apart by launch here, so there is none to poison.
pub(crate) fn poison_execution(args: &mut DevicePoisonExecutionArgs) -> Result<(), Status> {
    args.device.get()?;
    args.poisoned = 0;
    Ok(())
}
