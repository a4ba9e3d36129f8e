//! Devices: virtual ones, in this process and in others.

use crate::abi::{
    AsyncTrackingEventDestroyArgs, DeviceAddressableMemoriesArgs, DeviceClearMemoryStatsArgs,
    DeviceCreateAsyncTrackingEventArgs, DeviceDefaultMemoryArgs, DeviceDescriptionAttributesArgs,
    DeviceDescriptionDebugStringArgs, DeviceDescriptionIdArgs, DeviceDescriptionKindArgs,
    DeviceDescriptionProcessIndexArgs, DeviceDescriptionToStringArgs, DeviceGetAttributesArgs,
    DeviceGetDescriptionArgs, DeviceIsAddressableArgs, DeviceLocalHardwareIdArgs, DeviceMemoryStatsArgs, Handle,
    NamedValues,
};
use crate::memory::Memory;
use crate::status::Status;
use std::ffi::c_void;
use std::ptr::null_mut;

/// What there is to say of a device.
pub struct DeviceDescription {
    /// Its number.
    pub id: i32,
    /// The number of its process.
    pub process: i32,
    kind: String,
    debug_string: String,
    to_string: String,
    attributes: NamedValues,
}

impl DeviceDescription {
    /// The device of that number on that platform, in that process.
    pub(crate) fn new(id: usize, platform: &str, process: usize) -> DeviceDescription {
        // Whoever takes us for JAX's CPU knows its devices by these names.
        let (debug_string, to_string) = match platform {
            "cpu" => (format!("cpu:{id}"), format!("CpuDevice(id={id})")),
            _ => (format!("HLOOM_{id}"), format!("HloomDevice(id={id})")),
        };
        DeviceDescription {
            process: i32::try_from(process).unwrap_or(i32::MAX),
            id: i32::try_from(id).unwrap_or(i32::MAX),
            kind: platform.to_owned(),
            debug_string,
            to_string,
            attributes: NamedValues::default(),
        }
    }

    /// The name of its kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }
}

/// A virtual device.
pub struct Device {
    /// What there is to say of it.
    pub description: DeviceDescription,
    /// Its number among the devices of this process, if it is one of them.
    pub local_hardware_id: Option<i32>,
    /// How many devices this process has.
    pub local_devices: usize,
    /// Its memories, in the order of [`crate::memory::KINDS`]; set when the client is complete.
    pub(crate) memories: Vec<Handle<Memory>>,
    pub(crate) runtime: std::sync::Arc<dyn hloom_runtime::Client>,
}

// SAFETY: handles are to memories of the same client, which live as long, and are never changed.
unsafe impl Send for Device {}
// SAFETY: likewise.
unsafe impl Sync for Device {}

pub(crate) fn description_id(args: &mut DeviceDescriptionIdArgs) -> Result<(), Status> {
    args.id = args.device_description.get()?.id;
    Ok(())
}

pub(crate) fn description_process_index(args: &mut DeviceDescriptionProcessIndexArgs) -> Result<(), Status> {
    args.process_index = args.device_description.get()?.process;
    Ok(())
}

pub(crate) fn description_attributes(args: &mut DeviceDescriptionAttributesArgs) -> Result<(), Status> {
    let attributes = &args.device_description.get()?.attributes;
    (args.attributes, args.num_attributes) = (attributes.as_ptr(), attributes.len());
    Ok(())
}

pub(crate) fn description_kind(args: &mut DeviceDescriptionKindArgs) -> Result<(), Status> {
    let kind = &args.device_description.get()?.kind;
    (args.device_kind, args.device_kind_size) = (kind.as_ptr(), kind.len());
    Ok(())
}

pub(crate) fn description_debug_string(args: &mut DeviceDescriptionDebugStringArgs) -> Result<(), Status> {
    let text = &args.device_description.get()?.debug_string;
    (args.debug_string, args.debug_string_size) = (text.as_ptr(), text.len());
    Ok(())
}

pub(crate) fn description_to_string(args: &mut DeviceDescriptionToStringArgs) -> Result<(), Status> {
    let text = &args.device_description.get()?.to_string;
    (args.to_string, args.to_string_size) = (text.as_ptr(), text.len());
    Ok(())
}

pub(crate) fn get_description(args: &mut DeviceGetDescriptionArgs) -> Result<(), Status> {
    args.device_description = Handle::lend(&args.device.get()?.description);
    Ok(())
}

pub(crate) fn is_addressable(args: &mut DeviceIsAddressableArgs) -> Result<(), Status> {
    args.is_addressable = u8::from(args.device.get()?.local_hardware_id.is_some());
    Ok(())
}

pub(crate) fn local_hardware_id(args: &mut DeviceLocalHardwareIdArgs) -> Result<(), Status> {
    args.local_hardware_id = args.device.get()?.local_hardware_id.unwrap_or(-1);
    Ok(())
}

pub(crate) fn addressable_memories(args: &mut DeviceAddressableMemoriesArgs) -> Result<(), Status> {
    let memories = &args.device.get()?.memories;
    (args.memories, args.num_memories) = (memories.as_ptr().cast_mut(), memories.len());
    Ok(())
}

pub(crate) fn default_memory(args: &mut DeviceDefaultMemoryArgs) -> Result<(), Status> {
    args.memory = args.device.get()?.memories.first().copied().unwrap_or(Handle::null());
    Ok(())
}

/// The devices share the memory of the host, so each tells of all that is in use.
pub(crate) fn memory_stats(args: &mut DeviceMemoryStatsArgs) -> Result<(), Status> {
    let device = args.device.get()?;
    let statistics = device.runtime.memory_statistics(device.description.id as usize);
    args.bytes_in_use = statistics.bytes_in_use as i64;
    (args.peak_bytes_in_use, args.peak_bytes_in_use_is_set) = (statistics.peak_bytes_in_use as i64, 1);
    (args.num_allocs, args.num_allocs_is_set) = (statistics.requests as i64, 1);
    // All the memory of the machine may be had, by all devices together; a device can count on its share.
    let limit = hloom_value::memory::total().map_or(0, |bytes| bytes as i64);
    let share = limit / device.local_devices.max(1) as i64;
    (args.bytes_limit, args.bytes_limit_is_set) = (limit, u8::from(limit > 0));
    (args.bytes_reservable_limit, args.bytes_reservable_limit_is_set) = (share, u8::from(limit > 0));
    // What the caller left in the other fields must not be taken for numbers.
    for unknown in [
        &mut args.largest_alloc_size_is_set,
        &mut args.bytes_reserved_is_set,
        &mut args.peak_bytes_reserved_is_set,
        &mut args.largest_free_block_bytes_is_set,
        &mut args.pool_bytes_is_set,
        &mut args.peak_pool_bytes_is_set,
    ] {
        *unknown = 0;
    }
    Ok(())
}

pub(crate) fn clear_memory_stats(args: &mut DeviceClearMemoryStatsArgs) -> Result<(), Status> {
    args.device.get()?;
    Err(Status::unimplemented("what was counted of memory is not forgotten"))
}

pub(crate) fn get_attributes(args: &mut DeviceGetAttributesArgs) -> Result<(), Status> {
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    let attributes = &args.device.get()?.description.attributes;
    (args.attributes, args.num_attributes) = (attributes.as_ptr(), attributes.len());
    args.device_attributes = null_mut();
    args.attributes_deleter = Some(nothing);
    Ok(())
}

pub(crate) fn create_async_tracking_event(args: &mut DeviceCreateAsyncTrackingEventArgs) -> Result<(), Status> {
    args.event = null_mut();
    Ok(())
}

pub(crate) fn destroy_async_tracking_event(_: &mut AsyncTrackingEventDestroyArgs) -> Result<(), Status> {
    Ok(())
}
