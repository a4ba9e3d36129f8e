//! Buffers: arrays on a device, as a caller holds them.
//!
//! A buffer is deleted when its array was given up, by the caller or because a program took it; the handle lives on until
//! it is destroyed. As long as there are external references the memory stays, whatever becomes of the buffer.
//! The array of a program that is still to run comes later: who needs the elements waits for them.

use crate::abi::{
    BufferCopyToDeviceArgs, BufferCopyToMemoryArgs, BufferDecreaseExternalReferenceCountArgs, BufferDeleteArgs,
    BufferDestroyArgs, BufferDeviceArgs, BufferDimensionsArgs, BufferDynamicDimensionIndicesArgs,
    BufferElementTypeArgs, BufferGetMemoryLayoutArgs, BufferIncreaseExternalReferenceCountArgs, BufferIsDeletedArgs,
    BufferIsOnCpuArgs, BufferMemoryArgs, BufferMemoryLayout, BufferMemoryLayoutTiled, BufferOnDeviceSizeInBytesArgs,
    BufferOpaqueDeviceMemoryDataPointerArgs, BufferReadyEventArgs, BufferUnpaddedDimensionsArgs,
    BufferUnsafePointerArgs, Handle, LayoutOf,
};
use crate::client::{Client, Engine};
use crate::element_type;
use crate::event::Event;
use crate::status::{Code, Status};
use hloom_ir::shape::ArrayShape;
use hloom_ir::{ElementType, Shape};
use hloom_runtime::Buffer as Data;
use smallvec::{SmallVec, smallvec};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// An array on a device.
pub struct Buffer {
    pub(crate) client: Client,
    /// The number of its device.
    pub(crate) device: usize,
    /// The kind of its memory.
    pub(crate) memory_kind: usize,
    element_type: i32,
    dims: SmallVec<[i64; 6]>,
    /// Dimensions from the fastest-varying.
    minor_to_major: SmallVec<[i64; 6]>,
    /// When the array is there.
    ready: Event,
    held: Mutex<Held>,
}

/// An array that is there, or that a program is going to make.
#[derive(Clone)]
pub enum Content {
    /// There.
    Here(Data),
    /// Not yet, perhaps never.
    Coming(Arc<Promise>),
}

/// An array that a program is going to make.
pub struct Promise {
    made: OnceLock<Data>,
    ready: Event,
}

impl Promise {
    /// A promise that is kept, or not, together with others.
    pub fn new(ready: &Event) -> Arc<Promise> {
        Arc::new(Promise { made: OnceLock::new(), ready: ready.clone() })
    }

    /// Keeps the promise; the event is the promiser's to set.
    pub fn keep(&self, data: Data) {
        // A promise is kept once, by the run that it was made for.
        let _ = self.made.set(data);
    }

    /// Keeps the promise or says why not, and that it is settled.
    pub fn settle(self: Arc<Self>, data: Result<Data, Status>) {
        let ready = self.ready.clone();
        let outcome = data.map(|data| self.keep(data));
        // Whoever waits for the array may be the only other one to hold it.
        drop(self);
        ready.set(outcome);
    }

    fn broken() -> Status {
        Status::new(Code::Internal, "a program ended without one of its results")
    }
}

impl Content {
    /// The array, once it is there.
    pub fn wait(&self) -> Result<Data, Status> {
        match self {
            Content::Here(data) => Ok(data.clone()),
            Content::Coming(promise) => {
                promise.ready.wait()?;
                promise.made.get().cloned().ok_or_else(Promise::broken)
            }
        }
    }

    /// The array itself, if nobody else holds it, once it is there.
    pub fn take(self) -> Result<Data, Status> {
        match self {
            Content::Here(data) => Ok(data),
            Content::Coming(promise) => {
                promise.ready.wait()?;
                let data = match Arc::try_unwrap(promise) {
                    Ok(own) => own.made.into_inner(),
                    Err(shared) => shared.made.get().cloned(),
                };
                data.ok_or_else(Promise::broken)
            }
        }
    }

    /// The array, if it is there.
    pub fn here(&self) -> Option<&Data> {
        match self {
            Content::Here(data) => Some(data),
            Content::Coming(promise) if promise.ready.has_happened_well() => promise.made.get(),
            Content::Coming(_) => None,
        }
    }
}

struct Held {
    /// The array, unless deleted.
    data: Option<Content>,
    external_references: usize,
    /// What the external references refer to.
    referred: Option<Data>,
}

impl Buffer {
    /// A buffer for an array. Tokens become arrays without elements.
    pub fn new(client: &Client, device: usize, memory_kind: usize, data: Data) -> Buffer {
        let described = describe(data.shape());
        Buffer::with(client, (device, memory_kind), described, Event::done(), Content::Here(data))
    }

    /// A buffer for an array of that shape that is to come.
    pub fn promised(client: &Client, place: (usize, usize), shape: &Shape, promise: Arc<Promise>) -> Buffer {
        let ready = promise.ready.clone();
        Buffer::with(client, place, describe(shape), ready, Content::Coming(promise))
    }

    /// One for an array that is there, of a shape that may be other than that of its elements: a token has none.
    pub fn result(client: &Client, device: usize, shape: &Shape, data: Data) -> Buffer {
        match shape {
            Shape::Token => Buffer::with(client, (device, 0), describe(shape), Event::done(), Content::Here(data)),
            _ => Buffer::new(client, device, 0, data),
        }
    }

    fn with(
        client: &Client,
        (device, memory_kind): (usize, usize),
        (element_type, dims, minor_to_major): (i32, SmallVec<[i64; 6]>, SmallVec<[i64; 6]>),
        ready: Event,
        content: Content,
    ) -> Buffer {
        let held = Mutex::new(Held { data: Some(content), external_references: 0, referred: None });
        Buffer { client: client.clone(), device, memory_kind, element_type, dims, minor_to_major, ready, held }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The array, or what is to become it.
    pub fn content(&self) -> Result<Content, Status> {
        self.held().data.clone().ok_or_else(|| Status::invalid("the buffer has been deleted or donated"))
    }

    /// The array, once it is there.
    pub fn data(&self) -> Result<Data, Status> {
        self.content()?.wait()
    }

    /// Whether it is an array of that type, those sizes and that layout.
    pub fn fits(&self, shape: &Shape) -> bool {
        let same = |a: &ArrayShape| {
            self.element_type == element_type::number(a.element_type)
                && self.dims[..] == *a.dims()
                && self.array(a.element_type).same_order(a)
        };
        match shape {
            Shape::Array(a) if same(a) => true,
            // One of fewer elements than the program has room for.
            _ => matches!(&self.held().data, Some(Content::Here(data)) if data.fits(shape)),
        }
    }

    /// Its shape.
    pub fn shape(&self) -> Result<Shape, Status> {
        match self.element_type {
            element_type::TOKEN => Ok(Shape::Token),
            number => Ok(self.array(element_type::from_number(number)?).into()),
        }
    }

    fn array(&self, element_type: ElementType) -> ArrayShape {
        let layout = hloom_ir::layout::Layout::new(self.minor_to_major.iter().copied());
        ArrayShape::new(element_type, self.dims.iter().copied()).with_layout(layout)
    }

    /// The order of its dimensions, the fastest-varying first.
    pub fn minor_to_major(&self) -> &[i64] {
        &self.minor_to_major
    }

    /// When the array is there.
    pub fn ready(&self) -> &Event {
        &self.ready
    }

    /// Takes the array away, for good.
    pub fn donate(&self) -> Result<Content, Status> {
        let mut held = self.held();
        if held.external_references > 0 {
            return Err(Status::invalid("Donation requested for buffer with external reference"));
        }
        held.data.take().ok_or_else(|| Status::invalid("the buffer has been deleted or donated"))
    }

    /// Whether it could be donated.
    pub fn is_donatable(&self) -> bool {
        self.held().external_references == 0
    }

    /// Whether the array is gone.
    pub fn is_deleted(&self) -> bool {
        self.held().data.is_none()
    }

    /// Its layout as the C API says it.
    fn layout(&self) -> BufferMemoryLayout {
        let tiled = BufferMemoryLayoutTiled {
            struct_size: 56,
            extension_start: null_mut(),
            minor_to_major: self.minor_to_major.as_ptr(),
            minor_to_major_size: self.minor_to_major.len(),
            tile_dims: null_mut(),
            tile_dim_sizes: null_mut(),
            num_tiles: 0,
        };
        BufferMemoryLayout { struct_size: 76, extension_start: null_mut(), of: LayoutOf { tiled }, type_: 0 }
    }

    /// A copy on another device or in another memory.
    fn copy_to(&self, device: usize, memory_kind: usize) -> Result<Buffer, Status> {
        if !self.client.local.contains(&device) {
            return Err(Status::invalid("the device is not one of this process"));
        }
        let (content, client) = (self.content()?, self.client.clone());
        let copy = move || Ok(client.runtime.duplicate(device, &content.wait()?)?);
        if self.ready.has_happened_well() {
            return Ok(Buffer::new(&self.client, device, memory_kind, copy()?));
        }
        let promise = Promise::new(&Event::coming());
        let buffer = Buffer::promised(&self.client, (device, memory_kind), &self.shape()?, promise.clone());
        if let Err(task) = self.client.dispatcher.submit(Box::new(move || promise.settle(copy()))) {
            task();
        }
        Ok(buffer)
    }
}

/// The type, the sizes and the order of dimensions of a shape as the C API has them.
fn describe(shape: &Shape) -> (i32, SmallVec<[i64; 6]>, SmallVec<[i64; 6]>) {
    match shape {
        Shape::Array(a) | Shape::Buffer(a) => {
            let order = a.entry_layout().minor_to_major;
            (element_type::number(a.element_type), a.dims().into(), order.iter().copied().collect())
        }
        Shape::Token => (element_type::TOKEN, SmallVec::new(), SmallVec::new()),
        _ => (element_type::number(ElementType::Pred), smallvec![0], smallvec![0]),
    }
}

pub(crate) fn destroy(args: &mut BufferDestroyArgs) -> Result<(), Status> {
    drop(args.buffer.take());
    Ok(())
}

pub(crate) fn get_element_type(args: &mut BufferElementTypeArgs) -> Result<(), Status> {
    args.type_ = args.buffer.get()?.element_type;
    Ok(())
}

pub(crate) fn dimensions(args: &mut BufferDimensionsArgs) -> Result<(), Status> {
    let dims = &args.buffer.get()?.dims;
    (args.dims, args.num_dims) = (dims.as_ptr(), dims.len());
    Ok(())
}

pub(crate) fn unpadded_dimensions(args: &mut BufferUnpaddedDimensionsArgs) -> Result<(), Status> {
    let dims = &args.buffer.get()?.dims;
    (args.unpadded_dims, args.num_dims) = (dims.as_ptr().cast_mut(), dims.len());
    Ok(())
}

pub(crate) fn dynamic_dimension_indices(args: &mut BufferDynamicDimensionIndicesArgs) -> Result<(), Status> {
    args.buffer.get()?;
    (args.dynamic_dim_indices, args.num_dynamic_dims) = (null_mut(), 0);
    Ok(())
}

pub(crate) fn memory_layout(args: &mut BufferGetMemoryLayoutArgs) -> Result<(), Status> {
    args.layout = args.buffer.get()?.layout();
    Ok(())
}

pub(crate) fn on_device_size_in_bytes(args: &mut BufferOnDeviceSizeInBytesArgs) -> Result<(), Status> {
    args.on_device_size_in_bytes = args.buffer.get()?.data()?.byte_size();
    Ok(())
}

pub(crate) fn device(args: &mut BufferDeviceArgs) -> Result<(), Status> {
    let buffer = args.buffer.get()?;
    args.device = buffer.client.device(buffer.device);
    Ok(())
}

pub(crate) fn memory(args: &mut BufferMemoryArgs) -> Result<(), Status> {
    let buffer = args.buffer.get()?;
    args.memory = buffer.client.memory(buffer.device, buffer.memory_kind);
    Ok(())
}

pub(crate) fn delete(args: &mut BufferDeleteArgs) -> Result<(), Status> {
    drop(args.buffer.get()?.held().data.take());
    Ok(())
}

pub(crate) fn is_deleted(args: &mut BufferIsDeletedArgs) -> Result<(), Status> {
    args.is_deleted = u8::from(args.buffer.get()?.is_deleted());
    Ok(())
}

pub(crate) fn copy_to_device(args: &mut BufferCopyToDeviceArgs) -> Result<(), Status> {
    let device = args.dst_device.get()?.description.id as usize;
    args.dst_buffer = Handle::give(args.buffer.get()?.copy_to(device, 0)?);
    Ok(())
}

pub(crate) fn copy_to_memory(args: &mut BufferCopyToMemoryArgs) -> Result<(), Status> {
    let memory = args.dst_memory.get()?;
    args.dst_buffer = Handle::give(args.buffer.get()?.copy_to(memory.device, memory.kind)?);
    Ok(())
}

pub(crate) fn is_on_cpu(args: &mut BufferIsOnCpuArgs) -> Result<(), Status> {
    // Whoever hears yes reads the memory by its address.
    args.is_on_cpu = u8::from(args.buffer.get()?.client.engine == Engine::Cpu);
    Ok(())
}

pub(crate) fn ready_event(args: &mut BufferReadyEventArgs) -> Result<(), Status> {
    args.event = args.buffer.get()?.ready.give();
    Ok(())
}

pub(crate) fn unsafe_pointer(args: &mut BufferUnsafePointerArgs) -> Result<(), Status> {
    args.buffer_pointer = args.buffer.get()?.data()?.address();
    Ok(())
}

pub(crate) fn opaque_pointer(args: &mut BufferOpaqueDeviceMemoryDataPointerArgs) -> Result<(), Status> {
    args.device_memory_ptr = args.buffer.get()?.data()?.address() as *mut std::ffi::c_void;
    Ok(())
}

pub(crate) fn increase_references(args: &mut BufferIncreaseExternalReferenceCountArgs) -> Result<(), Status> {
    let buffer = args.buffer.get()?;
    let data = buffer.data()?;
    let mut held = buffer.held();
    held.external_references += 1;
    held.referred.get_or_insert(data);
    Ok(())
}

pub(crate) fn decrease_references(args: &mut BufferDecreaseExternalReferenceCountArgs) -> Result<(), Status> {
    let mut held = args.buffer.get()?.held();
    match held.external_references {
        0 => Err(Status::new(Code::FailedPrecondition, "the buffer has no external references")),
        n => {
            held.external_references = n - 1;
            if n == 1 {
                held.referred = None;
            }
            Ok(())
        }
    }
}

/// The bytes of an array: in place where the host can look at them, otherwise copied.
pub(crate) fn host_bytes(data: &Data) -> Result<std::borrow::Cow<'_, [u8]>, Status> {
    Ok(data.to_host()?)
}
