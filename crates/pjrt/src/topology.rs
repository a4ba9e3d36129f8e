//! Topologies: which devices there are, without the devices.

use crate::abi::{
    Deleter, Handle, NamedValues, TopologyDescriptionAttributesArgs, TopologyDescriptionCreateArgs,
    TopologyDescriptionDeserializeArgs, TopologyDescriptionDestroyArgs, TopologyDescriptionFingerprintArgs,
    TopologyDescriptionGetDeviceDescriptionsArgs, TopologyDescriptionGetMemorySpaceKindIdsArgs,
    TopologyDescriptionMakeCanonicalShapeForMemorySpaceArgs, TopologyDescriptionPlatformNameArgs,
    TopologyDescriptionPlatformVersionArgs, TopologyDescriptionSerializeArgs, read_options, slice,
};
use crate::client::Options;
use crate::device::DeviceDescription;
use crate::status::Status;
use std::ffi::c_void;
use std::hash::{Hash, Hasher};

/// Devices, described.
pub struct TopologyDescription {
    platform_name: String,
    descriptions: Vec<DeviceDescription>,
    handles: Vec<Handle<DeviceDescription>>,
    attributes: NamedValues,
}

// SAFETY: the handles are to what is kept beside them, and never changed.
unsafe impl Send for TopologyDescription {}
// SAFETY: likewise.
unsafe impl Sync for TopologyDescription {}

/// The version of the platform.
const VERSION: &str = concat!("hloom ", env!("CARGO_PKG_VERSION"));

impl TopologyDescription {
    /// Devices, given the process of each.
    pub fn new(platform_name: &str, processes: &[usize]) -> TopologyDescription {
        let describe = |(id, &process): (usize, &usize)| DeviceDescription::new(id, platform_name, process);
        let descriptions: Vec<_> = processes.iter().enumerate().map(describe).collect();
        let handles = descriptions.iter().map(Handle::lend).collect();
        let platform_name = platform_name.to_owned();
        TopologyDescription { platform_name, descriptions, handles, attributes: NamedValues::default() }
    }

    /// The version of the platform.
    pub fn version(&self) -> &'static str {
        VERSION
    }

    /// A number that is the same for the same devices only.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = rustc_hash::FxHasher::default();
        (VERSION, &self.platform_name, self.descriptions.len()).hash(&mut hasher);
        hasher.finish()
    }
}

/// Gives bytes to a caller, who calls the function with the third to free them.
pub(crate) fn give_bytes(bytes: Vec<u8>) -> (*const u8, usize, *mut c_void, Option<Deleter>) {
    unsafe extern "C" fn free(bytes: *mut c_void) {
        // SAFETY: it was made below, and is freed once.
        drop(unsafe { Box::from_raw(bytes.cast::<Vec<u8>>()) });
    }
    let kept = Box::new(bytes);
    (kept.as_ptr(), kept.len(), Box::into_raw(kept).cast(), Some(free))
}

pub(crate) fn create(args: &mut TopologyDescriptionCreateArgs) -> Result<(), Status> {
    // SAFETY: the caller's options.
    let options = Options::new(&unsafe { read_options(args.create_options, args.num_options) })?;
    args.topology = Handle::give(TopologyDescription::new(&options.platform_name, &vec![0; options.devices]));
    Ok(())
}

pub(crate) fn destroy(args: &mut TopologyDescriptionDestroyArgs) -> Result<(), Status> {
    drop(args.topology.take());
    Ok(())
}

pub(crate) fn platform_name(args: &mut TopologyDescriptionPlatformNameArgs) -> Result<(), Status> {
    let name = &args.topology.get()?.platform_name;
    (args.platform_name, args.platform_name_size) = (name.as_ptr(), name.len());
    Ok(())
}

pub(crate) fn platform_version(args: &mut TopologyDescriptionPlatformVersionArgs) -> Result<(), Status> {
    let version = args.topology.get()?.version();
    (args.platform_version, args.platform_version_size) = (version.as_ptr(), version.len());
    Ok(())
}

pub(crate) fn device_descriptions(args: &mut TopologyDescriptionGetDeviceDescriptionsArgs) -> Result<(), Status> {
    let handles = &args.topology.get()?.handles;
    (args.descriptions, args.num_descriptions) = (handles.as_ptr().cast_mut(), handles.len());
    Ok(())
}

pub(crate) fn attributes(args: &mut TopologyDescriptionAttributesArgs) -> Result<(), Status> {
    let attributes = &args.topology.get()?.attributes;
    (args.attributes, args.num_attributes) = (attributes.as_ptr(), attributes.len());
    Ok(())
}

pub(crate) fn fingerprint(args: &mut TopologyDescriptionFingerprintArgs) -> Result<(), Status> {
    args.fingerprint = args.topology.get()?.fingerprint();
    Ok(())
}

pub(crate) fn serialize(args: &mut TopologyDescriptionSerializeArgs) -> Result<(), Status> {
    let topology = args.topology.get()?;
    let text = format!("hloom-topology {} {}", topology.descriptions.len(), topology.platform_name);
    let (bytes, size, object, deleter) = give_bytes(text.into_bytes());
    (args.serialized_bytes, args.serialized_bytes_size) = (bytes, size);
    (args.serialized_topology, args.serialized_topology_deleter) = (object, deleter);
    Ok(())
}

pub(crate) fn deserialize(args: &mut TopologyDescriptionDeserializeArgs) -> Result<(), Status> {
    // SAFETY: the caller's bytes.
    let bytes = unsafe { slice(args.serialized_topology, args.serialized_topology_size) };
    let text = std::str::from_utf8(bytes).ok().and_then(|t| t.strip_prefix("hloom-topology "));
    let parts = text.and_then(|t| t.split_once(' ')).and_then(|(n, name)| Some((n.parse::<u16>().ok()?, name)));
    let (devices, name) = parts.ok_or_else(|| Status::invalid("the bytes are not a topology of hloom"))?;
    args.topology = Handle::give(TopologyDescription::new(name, &vec![0; usize::from(devices)]));
    Ok(())
}

pub(crate) fn memory_space_kind_ids(args: &mut TopologyDescriptionGetMemorySpaceKindIdsArgs) -> Result<(), Status> {
    static IDS: [i32; crate::memory::KINDS.len()] = [0, 1, 2];
    args.topology.get()?;
    (args.memory_space_kind_ids, args.num_memory_space_kind_ids) = (IDS.as_ptr().cast_mut(), IDS.len());
    Ok(())
}

/// Arrays have the same shape in all memories: row-major, as `ShapeProto`.
pub(crate) fn canonical_shape(
    args: &mut TopologyDescriptionMakeCanonicalShapeForMemorySpaceArgs,
) -> Result<(), Status> {
    args.topology.get()?;
    let shape = crate::transfer::shape(args.element_type, args.dims, args.num_dims, args.layout)?;
    let shape = hloom_ir::Shape::from(shape).with_default_layout();
    let bytes = hloom_formats::proto::write_shape(&shape);
    // All that is given back to be freed is the start, so the length is kept before it.
    let kept: Vec<u8> = (bytes.len() as u64).to_le_bytes().into_iter().chain(bytes.iter().copied()).collect();
    let start = Box::into_raw(kept.into_boxed_slice()).cast::<u8>();
    args.serialized_shape_size = bytes.len();
    args.serialized_shape = start.wrapping_add(8);
    args.serialized_shape_deleter = Some(free_after_length);
    Ok(())
}

/// # Safety
/// `bytes` were made by [`canonical_shape`], and are freed once.
unsafe extern "C" fn free_after_length(bytes: *mut c_void) {
    if bytes.is_null() {
        return;
    }
    // SAFETY: see above: the eight bytes before are the length.
    unsafe {
        let start = bytes.cast::<u8>().sub(8);
        let length = u64::from_le_bytes(start.cast::<[u8; 8]>().read()) as usize;
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, length + 8)));
    }
}
