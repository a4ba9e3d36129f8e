//! The table of functions, in the order of the C API.

use crate::abi::*;
use crate::custom_partitioner::CustomPartitionerExtension;
use crate::ffi::Ffi;
use crate::layouts::Layouts;
use crate::profiler::ProfilerExtension;
use crate::shardings::ShardingsExtension;
use crate::status::{Error, Status};
use crate::{buffer, client, device, event, executable, execute, ffi, memory, promised, status, topology, transfer};
use std::ffi::c_void;
use std::ptr::null;

static PROFILER: ProfilerExtension = ProfilerExtension::new(null());
static PARTITIONERS: CustomPartitionerExtension = CustomPartitionerExtension::new((&raw const PROFILER).cast());
static SHARDINGS: ShardingsExtension = ShardingsExtension::new((&raw const PARTITIONERS).cast());
static LAYOUTS: Layouts = Layouts::new((&raw const SHARDINGS).cast());
static FFI: Ffi = Ffi::new((&raw const LAYOUTS).cast());

/// The plugin.
pub(crate) static API: Api = Api {
    struct_size: size_of::<Api>(),
    extension_start: (&raw const FFI).cast(),
    version: ApiVersion {
        struct_size: 24,
        extension_start: std::ptr::null_mut(),
        major_version: 0,
        minor_version: 112,
    },
    functions: FUNCTION_TABLE,
};

/// What nobody can use here.
unsafe extern "C" fn unimplemented(_: *mut c_void) -> *mut Error {
    Status::unimplemented("hloom does not have this function of the C API").into_error()
}

const FUNCTION_TABLE: [Entry; FUNCTIONS] = [
    entry!(ErrorDestroyArgs, status::destroy),
    entry!(ErrorMessageArgs, status::message),
    entry!(ErrorGetCodeArgs, status::get_code),
    entry!(PluginInitializeArgs, client::plugin_initialize),
    entry!(PluginAttributesArgs, client::attributes),
    entry!(EventDestroyArgs, event::destroy),
    entry!(EventIsReadyArgs, event::is_ready),
    entry!(EventErrorArgs, event::error),
    entry!(EventAwaitArgs, event::wait),
    entry!(EventOnReadyArgs, event::on_ready),
    entry!(ClientCreateArgs, client::create),
    entry!(ClientDestroyArgs, client::destroy),
    entry!(ClientPlatformNameArgs, client::platform_name),
    entry!(ClientProcessIndexArgs, client::process_index),
    entry!(ClientPlatformVersionArgs, client::platform_version),
    entry!(ClientDevicesArgs, client::devices),
    entry!(ClientAddressableDevicesArgs, client::addressable_devices),
    entry!(ClientLookupDeviceArgs, client::lookup_device),
    entry!(ClientLookupAddressableDeviceArgs, client::lookup_addressable_device),
    entry!(ClientAddressableMemoriesArgs, client::addressable_memories),
    entry!(ClientCompileArgs, executable::compile),
    entry!(ClientDefaultDeviceAssignmentArgs, client::default_device_assignment),
    entry!(ClientBufferFromHostBufferArgs, transfer::from_host),
    entry!(DeviceDescriptionIdArgs, device::description_id),
    entry!(DeviceDescriptionProcessIndexArgs, device::description_process_index),
    entry!(DeviceDescriptionAttributesArgs, device::description_attributes),
    entry!(DeviceDescriptionKindArgs, device::description_kind),
    entry!(DeviceDescriptionDebugStringArgs, device::description_debug_string),
    entry!(DeviceDescriptionToStringArgs, device::description_to_string),
    entry!(DeviceGetDescriptionArgs, device::get_description),
    entry!(DeviceIsAddressableArgs, device::is_addressable),
    entry!(DeviceLocalHardwareIdArgs, device::local_hardware_id),
    entry!(DeviceAddressableMemoriesArgs, device::addressable_memories),
    entry!(DeviceDefaultMemoryArgs, device::default_memory),
    entry!(DeviceMemoryStatsArgs, device::memory_stats),
    entry!(MemoryIdArgs, memory::id),
    entry!(MemoryKindArgs, memory::kind),
    entry!(MemoryDebugStringArgs, memory::debug_string),
    entry!(MemoryToStringArgs, memory::to_string),
    entry!(MemoryAddressableByDevicesArgs, memory::addressable_by_devices),
    entry!(ExecutableDestroyArgs, executable::destroy),
    entry!(ExecutableNameArgs, executable::name),
    entry!(ExecutableNumReplicasArgs, executable::num_replicas),
    entry!(ExecutableNumPartitionsArgs, executable::num_partitions),
    entry!(ExecutableNumOutputsArgs, executable::num_outputs),
    entry!(ExecutableSizeOfGeneratedCodeInBytesArgs, executable::code_size),
    entry!(ExecutableGetCostAnalysisArgs, executable::cost_analysis),
    entry!(ExecutableOutputMemoryKindsArgs, executable::output_memory_kinds),
    entry!(ExecutableOptimizedProgramArgs, executable::optimized_program),
    entry!(ExecutableSerializeArgs, executable::serialize),
    entry!(LoadedExecutableDestroyArgs, executable::destroy_loaded),
    entry!(LoadedExecutableGetExecutableArgs, executable::get_executable),
    entry!(LoadedExecutableAddressableDevicesArgs, executable::addressable_devices),
    entry!(LoadedExecutableDeleteArgs, executable::delete),
    entry!(LoadedExecutableIsDeletedArgs, executable::is_deleted),
    entry!(LoadedExecutableExecuteArgs, execute::execute),
    entry!(ExecutableDeserializeAndLoadArgs, executable::deserialize),
    entry!(LoadedExecutableFingerprintArgs, executable::loaded_fingerprint),
    entry!(BufferDestroyArgs, buffer::destroy),
    entry!(BufferElementTypeArgs, buffer::get_element_type),
    entry!(BufferDimensionsArgs, buffer::dimensions),
    entry!(BufferUnpaddedDimensionsArgs, buffer::unpadded_dimensions),
    entry!(BufferDynamicDimensionIndicesArgs, buffer::dynamic_dimension_indices),
    entry!(BufferGetMemoryLayoutArgs, buffer::memory_layout),
    entry!(BufferOnDeviceSizeInBytesArgs, buffer::on_device_size_in_bytes),
    entry!(BufferDeviceArgs, buffer::device),
    entry!(BufferMemoryArgs, buffer::memory),
    entry!(BufferDeleteArgs, buffer::delete),
    entry!(BufferIsDeletedArgs, buffer::is_deleted),
    entry!(BufferCopyToDeviceArgs, buffer::copy_to_device),
    entry!(BufferToHostBufferArgs, transfer::to_host),
    entry!(BufferIsOnCpuArgs, buffer::is_on_cpu),
    entry!(BufferReadyEventArgs, buffer::ready_event),
    entry!(BufferUnsafePointerArgs, buffer::unsafe_pointer),
    entry!(BufferIncreaseExternalReferenceCountArgs, buffer::increase_references),
    entry!(BufferDecreaseExternalReferenceCountArgs, buffer::decrease_references),
    entry!(BufferOpaqueDeviceMemoryDataPointerArgs, buffer::opaque_pointer),
    unimplemented, // CopyToDeviceStream_Destroy
    unimplemented, // CopyToDeviceStream_AddChunk
    unimplemented, // CopyToDeviceStream_TotalBytes
    unimplemented, // CopyToDeviceStream_GranuleSize
    unimplemented, // CopyToDeviceStream_CurrentBytes
    entry!(TopologyDescriptionCreateArgs, topology::create),
    entry!(TopologyDescriptionDestroyArgs, topology::destroy),
    entry!(TopologyDescriptionPlatformNameArgs, topology::platform_name),
    entry!(TopologyDescriptionPlatformVersionArgs, topology::platform_version),
    entry!(TopologyDescriptionGetDeviceDescriptionsArgs, topology::device_descriptions),
    entry!(TopologyDescriptionSerializeArgs, topology::serialize),
    entry!(TopologyDescriptionAttributesArgs, topology::attributes),
    entry!(CompileArgs, executable::compile_for_topology),
    entry!(ExecutableOutputElementTypesArgs, executable::output_element_types),
    entry!(ExecutableOutputDimensionsArgs, executable::output_dimensions),
    entry!(BufferCopyToMemoryArgs, buffer::copy_to_memory),
    entry!(ClientCreateViewOfDeviceBufferArgs, transfer::create_view),
    entry!(ExecutableFingerprintArgs, executable::fingerprint),
    entry!(ClientTopologyDescriptionArgs, client::topology),
    entry!(ExecutableGetCompiledMemoryStatsArgs, executable::memory_stats),
    entry!(MemoryKindIdArgs, memory::kind_id),
    entry!(ExecuteContextCreateArgs, ffi::create_context),
    entry!(ExecuteContextDestroyArgs, ffi::destroy_context),
    entry!(BufferCopyRawToHostArgs, transfer::copy_raw_to_host),
    entry!(AsyncHostToDeviceTransferManagerDestroyArgs, transfer::destroy_manager),
    entry!(AsyncHostToDeviceTransferManagerTransferDataArgs, transfer::transfer_data),
    entry!(ClientCreateBuffersForAsyncHostToDeviceArgs, transfer::create_manager),
    entry!(AsyncHostToDeviceTransferManagerRetrieveBufferArgs, transfer::retrieve_buffer),
    entry!(AsyncHostToDeviceTransferManagerDeviceArgs, transfer::manager_device),
    entry!(AsyncHostToDeviceTransferManagerBufferCountArgs, transfer::manager_count),
    entry!(AsyncHostToDeviceTransferManagerBufferSizeArgs, transfer::manager_size),
    entry!(AsyncHostToDeviceTransferManagerSetBufferErrorArgs, transfer::set_buffer_error),
    entry!(AsyncHostToDeviceTransferManagerAddMetadataArgs, transfer::add_metadata),
    entry!(ClientDmaMapArgs, transfer::dma_map),
    entry!(ClientDmaUnmapArgs, transfer::dma_unmap),
    entry!(ClientCreateUninitializedBufferArgs, transfer::create_uninitialized),
    entry!(ClientUpdateGlobalProcessInfoArgs, client::update_global_process_info),
    entry!(TopologyDescriptionDeserializeArgs, topology::deserialize),
    entry!(ClientCreateAliasBufferArgs, promised::create_alias_buffer),
    entry!(ClientFulfillAliasBufferArgs, promised::fulfill_alias_buffer),
    entry!(LoadedExecutableGetDeviceAssignmentArgs, executable::device_assignment),
    entry!(ClientCreateErrorBufferArgs, promised::create_error_buffer),
    entry!(AsyncHostToDeviceTransferManagerTransferLiteralArgs, transfer::transfer_literal),
    entry!(BufferCopyRawToHostFutureArgs, promised::copy_raw_to_host_future),
    entry!(DevicePoisonExecutionArgs, promised::poison_execution),
    entry!(DeviceCreateAsyncTrackingEventArgs, device::create_async_tracking_event),
    entry!(AsyncTrackingEventDestroyArgs, device::destroy_async_tracking_event),
    entry!(ExecutableGetCompileOptionsArgs, executable::compile_options),
    entry!(BufferDonateWithControlDependencyArgs, promised::donate_with_dependency),
    entry!(EventCreateArgs, event::create),
    entry!(EventSetArgs, event::set),
    entry!(DeviceGetAttributesArgs, device::get_attributes),
    entry!(ClientLoadArgs, executable::load),
    entry!(LoadedExecutableAddressableDeviceLogicalIdsArgs, executable::logical_ids),
    entry!(BufferBitcastArgs, promised::bitcast),
    entry!(ErrorForEachPayloadArgs, status::for_each_payload),
    entry!(TopologyDescriptionFingerprintArgs, topology::fingerprint),
    entry!(ExecutableParameterMemoryKindsArgs, executable::parameter_memory_kinds),
    entry!(DeviceClearMemoryStatsArgs, device::clear_memory_stats),
    entry!(TopologyDescriptionMakeCanonicalShapeForMemorySpaceArgs, topology::canonical_shape),
    entry!(TopologyDescriptionGetMemorySpaceKindIdsArgs, topology::memory_space_kind_ids),
];
