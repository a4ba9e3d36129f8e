//! Arrays between the caller's memory and the devices.
//!
//! Everything is copied, at once: the caller's memory is free again when a function returns. Elements smaller than a byte
//! take a byte each on both sides.

use crate::abi::{
    AsyncHostToDeviceTransferManagerAddMetadataArgs, AsyncHostToDeviceTransferManagerBufferCountArgs,
    AsyncHostToDeviceTransferManagerBufferSizeArgs, AsyncHostToDeviceTransferManagerDestroyArgs,
    AsyncHostToDeviceTransferManagerDeviceArgs, AsyncHostToDeviceTransferManagerRetrieveBufferArgs,
    AsyncHostToDeviceTransferManagerSetBufferErrorArgs, AsyncHostToDeviceTransferManagerTransferDataArgs,
    AsyncHostToDeviceTransferManagerTransferLiteralArgs, BufferCopyRawToHostArgs, BufferMemoryLayout,
    BufferToHostBufferArgs, ClientBufferFromHostBufferArgs, ClientCreateBuffersForAsyncHostToDeviceArgs,
    ClientCreateUninitializedBufferArgs, ClientCreateViewOfDeviceBufferArgs, ClientDmaMapArgs, ClientDmaUnmapArgs,
    Handle, slice,
};
use crate::buffer::{Buffer, Promise, host_bytes};
use crate::client::Client;
use crate::device::Device;
use crate::element_type;
use crate::event::Event;
use crate::memory::Memory;
use crate::promised::outcome;
use crate::status::Status;
use hloom_ir::ElementType;
use hloom_ir::layout::{Layout, is_permutation};
use hloom_ir::shape::ArrayShape;
use hloom_runtime::Buffer as Data;
use hloom_runtime::memory::ALIGNMENT;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// The shape that a caller names, with the layout of an array on a device, row-major where none is named. Sizes are
/// checked, and their product.
pub(crate) fn shape(
    type_: i32,
    dims: *const i64,
    rank: usize,
    layout: *const BufferMemoryLayout,
) -> Result<ArrayShape, Status> {
    let element_type = element_type::from_number(type_)?;
    // SAFETY: the caller's list.
    let dims = unsafe { slice(dims, rank) };
    if dims.len() != rank {
        return Err(Status::invalid("the sizes of the array are a null pointer"));
    }
    let shape = ArrayShape::new(element_type, dims.iter().copied());
    if dims.iter().any(|&d| d < 0) || shape.byte_size().is_none() {
        return Err(Status::invalid(format!("there are no arrays of sizes {dims:?}")));
    }
    let strides = layout_strides(&shape, layout)?;
    let mut order: Vec<i64> = (0..rank as i64).rev().collect();
    match tiled_order(layout) {
        Some(named) => order = named.to_vec(),
        // The dimension that comes last is the faster of two that are equally so.
        None => order.sort_by_key(|&d| strides[d as usize]),
    }
    let shape = shape.with_layout(Layout::new(order));
    match is_dense(&shape, &strides) || shape.byte_size() == Some(0) {
        true => Ok(shape),
        false => Err(Status::unimplemented(format!("arrays with gaps between elements (strides {strides:?})"))),
    }
}

/// The order of dimensions that a layout names, fastest first, if it is said that way.
fn tiled_order<'l>(layout: *const BufferMemoryLayout) -> Option<&'l [i64]> {
    // SAFETY: the caller's layout, or null.
    let layout = unsafe { layout.as_ref() }.filter(|l| l.type_ != 1)?;
    // SAFETY: the arm that the layout names, and the caller's list.
    Some(unsafe { slice(layout.of.tiled.minor_to_major, layout.of.tiled.minor_to_major_size) })
}

/// The device and the kind of memory that a caller names, in one way or the other.
pub(crate) fn place(client: &Client, device: Handle<Device>, memory: Handle<Memory>) -> Result<(usize, usize), Status> {
    let (device, kind) = match memory.is_null() {
        false => memory.get().map(|m| (m.device, m.kind))?,
        true => (device.get()?.description.id as usize, 0),
    };
    match client.local.contains(&device) {
        true => Ok((device, kind)),
        false => Err(Status::invalid(format!("device {device} is not one of this process"))),
    }
}

/// The distances in bytes between elements in the order of the array's layout, without gaps.
fn dense_strides(shape: &ArrayShape) -> Vec<i64> {
    let mut strides = vec![0; shape.rank()];
    let mut stride = shape.element_type.bytes() as i64;
    for &d in &shape.entry_layout().minor_to_major {
        strides[d as usize] = stride;
        stride = stride.saturating_mul(shape.dims()[d as usize].max(1));
    }
    strides
}

/// Whether elements at these distances lie as the array's layout says, without gaps; dimensions of one element do not
/// count.
fn is_dense(shape: &ArrayShape, strides: &[i64]) -> bool {
    shape
        .dims()
        .iter()
        .zip(strides)
        .zip(dense_strides(shape))
        .all(|((&size, &given), dense)| size == 1 || given == dense)
}

/// Visits all elements in row-major order with the offset of each in two memories of those strides.
fn for_each_offset(dims: &[i64], one: &[i64], other: &[i64], mut visit: impl FnMut(isize, isize)) {
    if dims.contains(&0) {
        return;
    }
    let mut index = vec![0i64; dims.len()];
    let mut offsets = (0i64, 0i64);
    loop {
        visit(offsets.0 as isize, offsets.1 as isize);
        let mut d = dims.len();
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            index[d] += 1;
            offsets = (offsets.0 + one[d], offsets.1 + other[d]);
            if index[d] < dims[d] {
                break;
            }
            offsets = (offsets.0 - one[d] * dims[d], offsets.1 - other[d] * dims[d]);
            index[d] = 0;
        }
    }
}

/// Elements smaller than a byte as they are kept: their bits in the low part, the sign spread over the rest.
fn normalise(element_type: ElementType, bytes: &mut [u8]) {
    let bits = element_type.bits();
    if element_type == ElementType::Pred {
        bytes.iter_mut().for_each(|b| *b = u8::from(*b != 0));
    } else if bits < 8 && element_type.is_signed_integer() {
        bytes.iter_mut().for_each(|b| *b = (((*b << (8 - bits)) as i8) >> (8 - bits)) as u8);
    } else if bits < 8 {
        bytes.iter_mut().for_each(|b| *b &= (1 << bits) - 1);
    }
}

/// A copy, in the layout of `shape`, of the array at `data` with the given distances between elements; row-major where none
/// are given.
///
/// # Safety
/// All elements can be read.
unsafe fn copy_in(
    client: &Client,
    device: usize,
    shape: ArrayShape,
    data: *const u8,
    strides: &[i64],
) -> Result<Data, Status> {
    let (element_type, width) = (shape.element_type, shape.element_type.bytes());
    let row_major = dense_strides(&shape.without_layout());
    let strides = if strides.is_empty() { row_major } else { strides.to_vec() };
    let dense = is_dense(&shape, &strides);
    let (dims, own) = (shape.dims().to_vec(), dense_strides(&shape));
    let mut fill = |bytes: &mut [u8]| {
        if bytes.is_empty() || data.is_null() {
            bytes.fill(0);
        } else if dense {
            // SAFETY: the elements lie one after the other, and there are as many as here.
            unsafe { std::ptr::copy_nonoverlapping(data, bytes.as_mut_ptr(), bytes.len()) };
        } else {
            for_each_offset(&dims, &strides, &own, |from, to| {
                // Offsets without gaps are not negative.
                if let Some(to) = bytes.get_mut(to as usize..to as usize + width) {
                    // SAFETY: there is an element at this offset, as the caller of this function promises.
                    unsafe { std::ptr::copy_nonoverlapping(data.offset(from), to.as_mut_ptr(), width) };
                }
            });
        }
        if element_type == ElementType::Pred || element_type.bits() < 8 {
            normalise(element_type, bytes);
        }
    };
    Ok(client.runtime.allocate(device, shape, &mut fill)?)
}

pub(crate) fn from_host(args: &mut ClientBufferFromHostBufferArgs) -> Result<(), Status> {
    let client = args.client.get()?;
    let shape = shape(args.type_, args.dims, args.num_dims, args.device_layout)?;
    let (device, kind) = place(client, args.device, args.memory)?;
    // SAFETY: the caller's list.
    let strides = unsafe { slice(args.byte_strides, args.num_byte_strides) };
    if !strides.is_empty() && strides.len() != shape.rank() {
        return Err(Status::invalid(format!("{} strides are given for {} dimensions", strides.len(), shape.rank())));
    }
    if args.data.is_null() && shape.byte_size() != Some(0) {
        return Err(Status::invalid("the data are a null pointer"));
    }
    // SAFETY: the caller's array has that shape and those strides.
    let data = unsafe { copy_in(client, device, shape, args.data.cast(), strides)? };
    args.buffer = Handle::give(Buffer::new(client, device, kind, data));
    args.done_with_host_buffer = Event::done().give();
    Ok(())
}

/// A view of the caller's memory: a copy, so that the caller has it back at once. Memory that could not be used as it is
/// is refused all the same: callers ask for a copy then, or say that there is to be none.
pub(crate) fn create_view(args: &mut ClientCreateViewOfDeviceBufferArgs) -> Result<(), Status> {
    let client = args.client.get()?;
    let shape = shape(args.element_type, args.dims, args.num_dims, args.layout)?;
    let (device, kind) = place(client, args.device, args.memory)?;
    if args.device_buffer_ptr.is_null() && shape.byte_size() != Some(0) {
        return Err(Status::invalid("the memory is a null pointer"));
    }
    let address = args.device_buffer_ptr as usize;
    if !address.is_multiple_of(ALIGNMENT) && shape.byte_size() != Some(0) {
        return Err(Status::invalid(format!("the memory at {address:#x} is not aligned to {ALIGNMENT} bytes")));
    }
    let strides = dense_strides(&shape);
    // SAFETY: the caller's array has that shape.
    let data = unsafe { copy_in(client, device, shape, args.device_buffer_ptr.cast(), &strides)? };
    args.buffer = Handle::give(Buffer::new(client, device, kind, data));
    if let Some(callback) = args.on_delete_callback {
        // SAFETY: the caller's function with the caller's argument.
        unsafe { callback(args.device_buffer_ptr, args.on_delete_callback_arg) };
    }
    Ok(())
}

pub(crate) fn create_uninitialized(args: &mut ClientCreateUninitializedBufferArgs) -> Result<(), Status> {
    let client = args.client.get()?;
    let shape = shape(args.shape_element_type, args.shape_dims, args.shape_num_dims, args.shape_layout)?;
    let (device, kind) = place(client, args.device, args.memory)?;
    let data = client.runtime.allocate(device, shape, &mut |bytes| bytes.fill(0))?;
    args.buffer = Handle::give(Buffer::new(client, device, kind, data));
    Ok(())
}

/// The distances in bytes between elements of an array of that layout; those of the shape's own when nothing is said.
fn layout_strides(shape: &ArrayShape, layout: *const BufferMemoryLayout) -> Result<Vec<i64>, Status> {
    // Its size is not looked at: callers leave that field as it was in memory.
    // SAFETY: the caller's layout, or null; there has been no shorter form of the struct.
    let Some(layout) = (unsafe { layout.as_ref() }) else { return Ok(dense_strides(shape)) };
    let unfit = || Status::invalid("the layout does not fit the array");
    if layout.type_ == 1 {
        // SAFETY: the arm that the layout names, and the caller's list.
        let strides = unsafe { slice(layout.of.strides.byte_strides, layout.of.strides.num_byte_strides) };
        return if strides.len() == shape.rank() { Ok(strides.to_vec()) } else { Err(unfit()) };
    }
    // SAFETY: the arm that the layout names.
    if unsafe { layout.of.tiled }.num_tiles > 0 {
        return Err(Status::unimplemented("arrays in tiles cannot be copied"));
    }
    let order = tiled_order(layout).unwrap_or_default();
    if !is_permutation(order, shape.rank()) {
        return Err(unfit());
    }
    Ok(dense_strides(&shape.clone().with_layout(Layout::new(order.iter().copied()))))
}

pub(crate) fn to_host(args: &mut BufferToHostBufferArgs) -> Result<(), Status> {
    let buffer = args.src.get()?;
    let data = buffer.data()?;
    let size = if data.shape().as_array().is_some() { data.byte_size() } else { 0 };
    if args.dst.is_null() {
        args.dst_size = size;
        return Ok(());
    }
    if args.dst_size < size {
        let message = format!("{size} bytes do not fit in the {} that are given", args.dst_size);
        return Err(Status::invalid(message));
    }
    let to = args.dst.cast::<u8>();
    match data.shape().as_array() {
        Some(shape) if size > 0 => {
            let strides = layout_strides(shape, args.host_layout)?;
            if is_dense(shape, &strides) {
                // SAFETY: the caller's memory has room for all.
                data.read(unsafe { std::slice::from_raw_parts_mut(to, size) })?;
            } else {
                let bytes = host_bytes(&data)?;
                let width = shape.element_type.bytes();
                for_each_offset(shape.dims(), &dense_strides(shape), &strides, |from, offset| {
                    // Offsets without gaps are not negative.
                    if let Some(from) = bytes.get(from as usize..from as usize + width) {
                        // SAFETY: the caller's memory has room for an array of the layout that it names.
                        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.offset(offset), width) };
                    }
                });
            }
        }
        _ => {}
    }
    args.event = Event::done().give();
    Ok(())
}

pub(crate) fn copy_raw_to_host(args: &mut BufferCopyRawToHostArgs) -> Result<(), Status> {
    let data = args.buffer.get()?.data()?;
    copy_range(&host_bytes(&data)?, args.offset, args.transfer_size, args.dst)?;
    args.event = Event::done().give();
    Ok(())
}

/// Copies a part of `bytes` to the caller's memory.
pub(crate) fn copy_range(bytes: &[u8], offset: i64, size: i64, dst: *mut c_void) -> Result<(), Status> {
    let range = usize::try_from(offset).ok().zip(usize::try_from(size).ok());
    let part = range.and_then(|(at, len)| bytes.get(at..at.checked_add(len)?));
    let part = part.ok_or_else(|| Status::invalid("the bytes are not all within the buffer"))?;
    if dst.is_null() && !part.is_empty() {
        return Err(Status::invalid("there is nowhere to copy to"));
    }
    if !part.is_empty() {
        // SAFETY: the caller's memory has room for what it asks for.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), dst.cast::<u8>(), part.len()) };
    }
    Ok(())
}

/// Arrays that are filled piece by piece.
pub struct AsyncHostToDeviceTransferManager {
    client: Client,
    device: usize,
    kind: usize,
    arrays: Mutex<Vec<Piecewise>>,
}

struct Piecewise {
    shape: ArrayShape,
    bytes: Vec<u8>,
    /// Why there will be no array, if the caller says so.
    error: Option<Status>,
}

pub(crate) fn create_manager(args: &mut ClientCreateBuffersForAsyncHostToDeviceArgs) -> Result<(), Status> {
    let client = args.client.get()?;
    let (device, kind) = place(client, Handle::null(), args.memory)?;
    // SAFETY: the caller's list.
    let specs = unsafe { slice(args.shape_specs, args.num_shape_specs) };
    // SAFETY: the caller's list: one layout for each array, or none.
    let layouts = unsafe { slice(args.device_layouts, args.num_device_layouts) };
    let array = |(n, spec): (usize, &crate::abi::ShapeSpec)| {
        let layout = layouts.get(n).map_or(std::ptr::null(), |&l| l.cast_const());
        let shape = shape(spec.element_type, spec.dims, spec.num_dims, layout)?;
        let len = shape.byte_size().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        Ok(Piecewise { shape, bytes: vec![0; len], error: None })
    };
    let arrays = Mutex::new(specs.iter().enumerate().map(array).collect::<Result<_, Status>>()?);
    args.transfer_manager =
        Handle::give(AsyncHostToDeviceTransferManager { client: client.clone(), device, kind, arrays });
    Ok(())
}

pub(crate) fn destroy_manager(args: &mut AsyncHostToDeviceTransferManagerDestroyArgs) -> Result<(), Status> {
    drop(args.transfer_manager.take());
    Ok(())
}

/// Uses one of the arrays of a manager.
fn with_array<T>(
    manager: &AsyncHostToDeviceTransferManager,
    index: i32,
    use_it: impl FnOnce(&mut Piecewise) -> Result<T, Status>,
) -> Result<T, Status> {
    let mut arrays = manager.arrays.lock().unwrap_or_else(PoisonError::into_inner);
    let array = usize::try_from(index).ok().and_then(|i| arrays.get_mut(i));
    use_it(array.ok_or_else(|| Status::invalid(format!("there is no array {index}")))?)
}

pub(crate) fn transfer_data(args: &mut AsyncHostToDeviceTransferManagerTransferDataArgs) -> Result<(), Status> {
    let (at, len) = (usize::try_from(args.offset), usize::try_from(args.transfer_size));
    // SAFETY: the caller's bytes.
    let from = unsafe { slice(args.data.cast::<u8>(), len.unwrap_or(0)) };
    with_array(args.transfer_manager.get()?, args.buffer_index, |array| {
        let to = at.ok().and_then(|at| array.bytes.get_mut(at..at.checked_add(from.len())?));
        let to = to.ok_or_else(|| Status::invalid("the bytes are not all within the array"))?;
        to.copy_from_slice(from);
        Ok(())
    })?;
    args.done_with_h2d_transfer = Event::done().give();
    Ok(())
}

pub(crate) fn retrieve_buffer(args: &mut AsyncHostToDeviceTransferManagerRetrieveBufferArgs) -> Result<(), Status> {
    let manager = args.transfer_manager.get()?;
    let (shape, bytes, error) = with_array(manager, args.buffer_index, |a| {
        Ok((a.shape.clone(), std::mem::take(&mut a.bytes), a.error.clone()))
    })?;
    if let Some(status) = error {
        let promise = Promise::new(&Event::failed(status));
        let place = (manager.device, manager.kind);
        args.buffer_out = Handle::give(Buffer::promised(&manager.client, place, &shape.into(), promise));
        return Ok(());
    }
    if shape.byte_size() != Some(bytes.len() as i64) {
        return Err(Status::invalid("the buffer has been retrieved before"));
    }
    let data = manager.client.runtime.allocate(manager.device, shape, &mut |to| to.copy_from_slice(&bytes))?;
    args.buffer_out = Handle::give(Buffer::new(&manager.client, manager.device, manager.kind, data));
    Ok(())
}

pub(crate) fn manager_device(args: &mut AsyncHostToDeviceTransferManagerDeviceArgs) -> Result<(), Status> {
    let manager = args.transfer_manager.get()?;
    args.device_out = manager.client.device(manager.device);
    Ok(())
}

pub(crate) fn manager_count(args: &mut AsyncHostToDeviceTransferManagerBufferCountArgs) -> Result<(), Status> {
    let manager = args.transfer_manager.get()?;
    args.buffer_count = manager.arrays.lock().unwrap_or_else(PoisonError::into_inner).len();
    Ok(())
}

pub(crate) fn manager_size(args: &mut AsyncHostToDeviceTransferManagerBufferSizeArgs) -> Result<(), Status> {
    let size = |a: &mut Piecewise| Ok(a.shape.byte_size().unwrap_or(0) as usize);
    args.buffer_size = with_array(args.transfer_manager.get()?, args.buffer_index, size)?;
    Ok(())
}

pub(crate) fn set_buffer_error(args: &mut AsyncHostToDeviceTransferManagerSetBufferErrorArgs) -> Result<(), Status> {
    let outcome = outcome(args.error_code, args.error_message, args.error_message_size);
    with_array(args.transfer_manager.get()?, args.buffer_index, |array| {
        array.error = outcome.err();
        Ok(())
    })
}

/// What is said of a transfer besides means nothing here.
pub(crate) fn add_metadata(args: &mut AsyncHostToDeviceTransferManagerAddMetadataArgs) -> Result<(), Status> {
    args.transfer_manager.get().map(|_| ())
}

pub(crate) fn transfer_literal(args: &mut AsyncHostToDeviceTransferManagerTransferLiteralArgs) -> Result<(), Status> {
    let given = shape(args.shape_element_type, args.shape_dims, args.shape_num_dims, args.shape_layout)?;
    let manager = args.transfer_manager.get()?;
    if args.data.is_null() && given.byte_size() != Some(0) {
        return Err(Status::invalid("the data are a null pointer"));
    }
    with_array(manager, args.buffer_index, |array| {
        if !array.shape.equal_ignoring_layout(&given) {
            return Err(Status::invalid("the array is of another shape than the buffer"));
        }
        let (strides, from) = (dense_strides(&given), args.data.cast());
        // SAFETY: the caller's array has that shape and layout.
        let data = unsafe { copy_in(&manager.client, manager.device, array.shape.clone(), from, &strides)? };
        array.bytes.copy_from_slice(&host_bytes(&data)?);
        Ok(())
    })?;
    args.done_with_h2d_transfer = Event::done().give();
    Ok(())
}

/// All memory of the host can be read and written as it is.
pub(crate) fn dma_map(args: &mut ClientDmaMapArgs) -> Result<(), Status> {
    args.client.get().map(|_| ())
}

pub(crate) fn dma_unmap(args: &mut ClientDmaUnmapArgs) -> Result<(), Status> {
    args.client.get().map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{BufferMemoryLayoutTiled, LayoutOf};
    use std::ptr::{null, null_mut};

    #[test]
    fn the_size_in_a_layout_is_not_looked_at() {
        let order = [0i64, 1];
        let tiled = BufferMemoryLayoutTiled {
            struct_size: 0,
            extension_start: null_mut(),
            minor_to_major: order.as_ptr(),
            minor_to_major_size: order.len(),
            tile_dims: null(),
            tile_dim_sizes: null(),
            num_tiles: 0,
        };
        let shape = ArrayShape::new(ElementType::F32, [2, 3]);
        for struct_size in [0, 3, usize::MAX] {
            let layout =
                BufferMemoryLayout { struct_size, extension_start: null_mut(), of: LayoutOf { tiled }, type_: 0 };
            assert_eq!(layout_strides(&shape, &raw const layout).map_err(|s| s.message), Ok(vec![4, 8]));
        }
    }
}
