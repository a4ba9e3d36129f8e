//! The argument structs of the C API, version 0.112.
//!
//! Each line is a struct with the number of bytes up to the end of its last field, and its fields with their offsets. The
//! standard header (size, extensions) is left out. Those of functions that nobody can use here are missing.

use super::{
    BufferMemoryLayout, Deleter, ExtensionBase, Handle, LogicalDeviceIds, NamedValue, OnDelete, OnReady,
    PayloadVisitor, c_structs,
};
use crate::buffer::Buffer;
use crate::client::Client;
use crate::device::{Device, DeviceDescription};
use crate::event::Event;
use crate::executable::{Executable, LoadedExecutable};
use crate::ffi::ExecuteContext;
use crate::memory::Memory;
use crate::promised::Alias;
use crate::status::Error;
use crate::topology::TopologyDescription;
use crate::transfer::AsyncHostToDeviceTransferManager;
use std::ffi::c_void;

c_structs! {
    ErrorDestroyArgs[24] { error: *mut Error = 16 }
    ErrorMessageArgs[40] { error: *mut Error = 16, message: *const u8 = 24, message_size: usize = 32 }
    ErrorGetCodeArgs[28] { error: *mut Error = 16, code: i32 = 24 }
    ErrorForEachPayloadArgs[40] {
        error: *mut Error = 16, visitor: Option<PayloadVisitor> = 24, user_arg: *mut c_void = 32,
    }
    PluginInitializeArgs[16] {}
    PluginAttributesArgs[32] { attributes: *mut NamedValue = 16, num_attributes: usize = 24 }
    EventDestroyArgs[24] { event: Handle<Event> = 16 }
    EventIsReadyArgs[25] { event: Handle<Event> = 16, is_ready: u8 = 24 }
    EventErrorArgs[24] { event: Handle<Event> = 16 }
    EventAwaitArgs[24] { event: Handle<Event> = 16 }
    EventOnReadyArgs[40] { event: Handle<Event> = 16, callback: Option<OnReady> = 24, user_arg: *mut c_void = 32 }
    EventCreateArgs[24] { event: Handle<Event> = 16 }
    EventSetArgs[48] {
        event: Handle<Event> = 16, error_code: i32 = 24, error_message: *const u8 = 32,
        error_message_size: usize = 40,
    }
    ClientCreateArgs[88] {
        create_options: *mut NamedValue = 16, num_options: usize = 24, kv_get_callback: *mut c_void = 32,
        kv_get_user_arg: *mut c_void = 40, kv_put_callback: *mut c_void = 48, kv_put_user_arg: *mut c_void = 56,
        client: Handle<Client> = 64, kv_try_get_callback: *mut c_void = 72, kv_try_get_user_arg: *mut c_void = 80,
    }
    ClientDestroyArgs[24] { client: Handle<Client> = 16 }
    ClientPlatformNameArgs[40] {
        client: Handle<Client> = 16, platform_name: *const u8 = 24, platform_name_size: usize = 32,
    }
    ClientProcessIndexArgs[28] { client: Handle<Client> = 16, process_index: i32 = 24 }
    ClientPlatformVersionArgs[40] {
        client: Handle<Client> = 16, platform_version: *const u8 = 24, platform_version_size: usize = 32,
    }
    ClientTopologyDescriptionArgs[32] { client: Handle<Client> = 16, topology: Handle<TopologyDescription> = 24 }
    ClientDevicesArgs[40] { client: Handle<Client> = 16, devices: *mut Handle<Device> = 24, num_devices: usize = 32 }
    ClientAddressableDevicesArgs[40] {
        client: Handle<Client> = 16, addressable_devices: *mut Handle<Device> = 24,
        num_addressable_devices: usize = 32,
    }
    ClientLookupDeviceArgs[40] { client: Handle<Client> = 16, id: i32 = 24, device: Handle<Device> = 32 }
    ClientLookupAddressableDeviceArgs[40] {
        client: Handle<Client> = 16, local_hardware_id: i32 = 24, addressable_device: Handle<Device> = 32,
    }
    ClientUpdateGlobalProcessInfoArgs[40] {
        client: Handle<Client> = 16, process_infos: *mut c_void = 24, num_process_infos: usize = 32,
    }
    ClientAddressableMemoriesArgs[40] {
        client: Handle<Client> = 16, addressable_memories: *mut Handle<Memory> = 24,
        num_addressable_memories: usize = 32,
    }
    Program[48] { code: *const u8 = 16, code_size: usize = 24, format: *const u8 = 32, format_size: usize = 40 }
    ClientCompileArgs[56] {
        client: Handle<Client> = 16, program: *mut Program = 24, compile_options: *const u8 = 32,
        compile_options_size: usize = 40, executable: Handle<LoadedExecutable> = 48,
    }
    ClientDefaultDeviceAssignmentArgs[48] {
        client: Handle<Client> = 16, num_replicas: i32 = 24, num_partitions: i32 = 28,
        default_assignment_size: usize = 32, default_assignment: *mut i32 = 40,
    }
    AsyncHostToDeviceTransferManagerDestroyArgs[24] {
        transfer_manager: Handle<AsyncHostToDeviceTransferManager> = 16,
    }
    AsyncHostToDeviceTransferManagerTransferDataArgs[72] {
        transfer_manager: Handle<AsyncHostToDeviceTransferManager> = 16, buffer_index: i32 = 24,
        data: *mut c_void = 32, offset: i64 = 40, transfer_size: i64 = 48, is_last_transfer: u8 = 56,
        done_with_h2d_transfer: Handle<Event> = 64,
    }
    AsyncHostToDeviceTransferManagerRetrieveBufferArgs[40] {
        transfer_manager: Handle<AsyncHostToDeviceTransferManager> = 16, buffer_index: i32 = 24,
        buffer_out: Handle<Buffer> = 32,
    }
    AsyncHostToDeviceTransferManagerDeviceArgs[32] {
        transfer_manager: Handle<AsyncHostToDeviceTransferManager> = 16, device_out: Handle<Device> = 24,
    }
    AsyncHostToDeviceTransferManagerBufferCountArgs[32] {
        transfer_manager: Handle<AsyncHostToDeviceTransferManager> = 16, buffer_count: usize = 24,
    }
    AsyncHostToDeviceTransferManagerBufferSizeArgs[40] {
        transfer_manager: Handle<AsyncHostToDeviceTransferManager> = 16, buffer_index: i32 = 24,
        buffer_size: usize = 32,
    }
    AsyncHostToDeviceTransferManagerSetBufferErrorArgs[48] {
        transfer_manager: Handle<AsyncHostToDeviceTransferManager> = 16, buffer_index: i32 = 24,
        error_code: i32 = 28, error_message: *const u8 = 32, error_message_size: usize = 40,
    }
    AsyncHostToDeviceTransferManagerAddMetadataArgs[40] {
        transfer_manager: Handle<AsyncHostToDeviceTransferManager> = 16, transfer_metadata: *mut NamedValue = 24,
        num_metadata: usize = 32,
    }
    ClientCreateUninitializedBufferArgs[80] {
        client: Handle<Client> = 16, shape_dims: *const i64 = 24, shape_num_dims: usize = 32,
        shape_element_type: i32 = 40, shape_layout: *mut BufferMemoryLayout = 48, device: Handle<Device> = 56,
        memory: Handle<Memory> = 64, buffer: Handle<Buffer> = 72,
    }
    ClientBufferFromHostBufferArgs[120] {
        client: Handle<Client> = 16, data: *mut c_void = 24, type_: i32 = 32, dims: *const i64 = 40,
        num_dims: usize = 48, byte_strides: *const i64 = 56, num_byte_strides: usize = 64,
        host_buffer_semantics: i32 = 72, device: Handle<Device> = 80, memory: Handle<Memory> = 88,
        device_layout: *mut BufferMemoryLayout = 96, done_with_host_buffer: Handle<Event> = 104,
        buffer: Handle<Buffer> = 112,
    }
    ClientCreateViewOfDeviceBufferArgs[112] {
        client: Handle<Client> = 16, device_buffer_ptr: *mut c_void = 24, dims: *const i64 = 32,
        num_dims: usize = 40, element_type: i32 = 48, layout: *mut BufferMemoryLayout = 56,
        device: Handle<Device> = 64, on_delete_callback: Option<OnDelete> = 72,
        on_delete_callback_arg: *mut c_void = 80, stream: isize = 88, buffer: Handle<Buffer> = 96,
        memory: Handle<Memory> = 104,
    }
    ShapeSpec[36] { dims: *const i64 = 16, num_dims: usize = 24, element_type: i32 = 32 }
    ClientCreateBuffersForAsyncHostToDeviceArgs[72] {
        client: Handle<Client> = 16, shape_specs: *mut ShapeSpec = 24, num_shape_specs: usize = 32,
        device_layouts: *mut *mut BufferMemoryLayout = 40, num_device_layouts: usize = 48,
        memory: Handle<Memory> = 56, transfer_manager: Handle<AsyncHostToDeviceTransferManager> = 64,
    }
    DeviceDescriptionIdArgs[28] { device_description: Handle<DeviceDescription> = 16, id: i32 = 24 }
    DeviceDescriptionProcessIndexArgs[28] {
        device_description: Handle<DeviceDescription> = 16, process_index: i32 = 24,
    }
    DeviceDescriptionAttributesArgs[40] {
        device_description: Handle<DeviceDescription> = 16, num_attributes: usize = 24,
        attributes: *mut NamedValue = 32,
    }
    DeviceDescriptionKindArgs[40] {
        device_description: Handle<DeviceDescription> = 16, device_kind: *const u8 = 24,
        device_kind_size: usize = 32,
    }
    DeviceDescriptionDebugStringArgs[40] {
        device_description: Handle<DeviceDescription> = 16, debug_string: *const u8 = 24,
        debug_string_size: usize = 32,
    }
    DeviceDescriptionToStringArgs[40] {
        device_description: Handle<DeviceDescription> = 16, to_string: *const u8 = 24, to_string_size: usize = 32,
    }
    DeviceGetDescriptionArgs[32] { device: Handle<Device> = 16, device_description: Handle<DeviceDescription> = 24 }
    DeviceIsAddressableArgs[25] { device: Handle<Device> = 16, is_addressable: u8 = 24 }
    DeviceLocalHardwareIdArgs[28] { device: Handle<Device> = 16, local_hardware_id: i32 = 24 }
    DeviceAddressableMemoriesArgs[40] {
        device: Handle<Device> = 16, memories: *mut Handle<Memory> = 24, num_memories: usize = 32,
    }
    DeviceDefaultMemoryArgs[32] { device: Handle<Device> = 16, memory: Handle<Memory> = 24 }
    DeviceMemoryStatsArgs[185] {
        device: Handle<Device> = 16, bytes_in_use: i64 = 24, peak_bytes_in_use: i64 = 32,
        peak_bytes_in_use_is_set: u8 = 40, num_allocs: i64 = 48, num_allocs_is_set: u8 = 56,
        largest_alloc_size: i64 = 64, largest_alloc_size_is_set: u8 = 72, bytes_limit: i64 = 80,
        bytes_limit_is_set: u8 = 88, bytes_reserved: i64 = 96, bytes_reserved_is_set: u8 = 104,
        peak_bytes_reserved: i64 = 112, peak_bytes_reserved_is_set: u8 = 120, bytes_reservable_limit: i64 = 128,
        bytes_reservable_limit_is_set: u8 = 136, largest_free_block_bytes: i64 = 144,
        largest_free_block_bytes_is_set: u8 = 152, pool_bytes: i64 = 160, pool_bytes_is_set: u8 = 168,
        peak_pool_bytes: i64 = 176, peak_pool_bytes_is_set: u8 = 184,
    }
    DeviceClearMemoryStatsArgs[24] { device: Handle<Device> = 16 }
    DeviceGetAttributesArgs[56] {
        device: Handle<Device> = 16, attributes: *mut NamedValue = 24, num_attributes: usize = 32,
        device_attributes: *mut c_void = 40, attributes_deleter: Option<Deleter> = 48,
    }
    DeviceCreateAsyncTrackingEventArgs[48] {
        device: Handle<Device> = 16, description: *const u8 = 24, description_size: usize = 32,
        event: *mut c_void = 40,
    }
    AsyncTrackingEventDestroyArgs[24] { event: *mut c_void = 16 }
    MemoryIdArgs[28] { memory: Handle<Memory> = 16, id: i32 = 24 }
    MemoryKindArgs[40] { memory: Handle<Memory> = 16, kind: *const u8 = 24, kind_size: usize = 32 }
    MemoryKindIdArgs[28] { memory: Handle<Memory> = 16, kind_id: i32 = 24 }
    MemoryDebugStringArgs[40] {
        memory: Handle<Memory> = 16, debug_string: *const u8 = 24, debug_string_size: usize = 32,
    }
    MemoryToStringArgs[40] { memory: Handle<Memory> = 16, to_string: *const u8 = 24, to_string_size: usize = 32 }
    MemoryAddressableByDevicesArgs[40] {
        memory: Handle<Memory> = 16, devices: *mut Handle<Device> = 24, num_devices: usize = 32,
    }
    ExecuteContextCreateArgs[24] { context: Handle<ExecuteContext> = 16 }
    ExecuteContextDestroyArgs[24] { context: Handle<ExecuteContext> = 16 }
    ExecutableDestroyArgs[24] { executable: Handle<Executable> = 16 }
    LoadedExecutableDestroyArgs[24] { executable: Handle<LoadedExecutable> = 16 }
    LoadedExecutableGetExecutableArgs[32] {
        loaded_executable: Handle<LoadedExecutable> = 16, executable: Handle<Executable> = 24,
    }
    LoadedExecutableGetDeviceAssignmentArgs[56] {
        executable: Handle<LoadedExecutable> = 16, serialized_bytes: *const u8 = 24,
        serialized_bytes_size: usize = 32, serialized_device_assignment: *mut c_void = 40,
        serialized_device_assignment_deleter: Option<Deleter> = 48,
    }
    ExecutableNameArgs[40] {
        executable: Handle<Executable> = 16, executable_name: *const u8 = 24, executable_name_size: usize = 32,
    }
    ExecutableNumReplicasArgs[32] { executable: Handle<Executable> = 16, num_replicas: usize = 24 }
    ExecutableNumPartitionsArgs[32] { executable: Handle<Executable> = 16, num_partitions: usize = 24 }
    LoadedExecutableAddressableDevicesArgs[40] {
        executable: Handle<LoadedExecutable> = 16, addressable_devices: *mut Handle<Device> = 24,
        num_addressable_devices: usize = 32,
    }
    LoadedExecutableAddressableDeviceLogicalIdsArgs[40] {
        executable: Handle<LoadedExecutable> = 16, addressable_device_logical_ids: *mut LogicalDeviceIds = 24,
        num_addressable_device_logical_ids: usize = 32,
    }
    ExecutableOptimizedProgramArgs[32] { executable: Handle<Executable> = 16, program: *mut Program = 24 }
    LoadedExecutableDeleteArgs[24] { executable: Handle<LoadedExecutable> = 16 }
    LoadedExecutableIsDeletedArgs[25] { executable: Handle<LoadedExecutable> = 16, is_deleted: u8 = 24 }
    ExecuteOptions[144] {
        send_callbacks: *mut c_void = 16, recv_callbacks: *mut c_void = 24, num_send_ops: usize = 32,
        num_recv_ops: usize = 40, launch_id: i32 = 48, non_donatable_input_indices: *const i64 = 56,
        num_non_donatable_input_indices: usize = 64, context: Handle<ExecuteContext> = 72,
        call_location: *const u8 = 80, num_tasks: usize = 88, task_ids: *mut i32 = 96,
        incarnation_ids: *mut i64 = 104, multi_slice_config: *mut c_void = 112,
        use_major_to_minor_data_layout_for_callbacks: u8 = 120, hlo_output_callbacks: *mut c_void = 128,
        num_hlo_output_callbacks: usize = 136,
    }
    LoadedExecutableExecuteArgs[80] {
        executable: Handle<LoadedExecutable> = 16, options: *mut ExecuteOptions = 24,
        argument_lists: *const *mut Handle<Buffer> = 32, num_devices: usize = 40, num_args: usize = 48,
        output_lists: *const *mut Handle<Buffer> = 56, device_complete_events: *mut Handle<Event> = 64,
        execute_device: Handle<Device> = 72,
    }
    ExecutableNumOutputsArgs[32] { executable: Handle<Executable> = 16, num_outputs: usize = 24 }
    ExecutableSizeOfGeneratedCodeInBytesArgs[32] { executable: Handle<Executable> = 16, size_in_bytes: i64 = 24 }
    ExecutableFingerprintArgs[40] {
        executable: Handle<Executable> = 16, executable_fingerprint: *const u8 = 24,
        executable_fingerprint_size: usize = 32,
    }
    ExecutableGetCostAnalysisArgs[40] {
        executable: Handle<Executable> = 16, num_properties: usize = 24, properties: *mut NamedValue = 32,
    }
    ExecutableGetCompiledMemoryStatsArgs[144] {
        executable: Handle<Executable> = 16, generated_code_size_in_bytes: i64 = 24,
        argument_size_in_bytes: i64 = 32, output_size_in_bytes: i64 = 40, alias_size_in_bytes: i64 = 48,
        temp_size_in_bytes: i64 = 56, host_generated_code_size_in_bytes: i64 = 64,
        host_argument_size_in_bytes: i64 = 72, host_output_size_in_bytes: i64 = 80,
        host_alias_size_in_bytes: i64 = 88, host_temp_size_in_bytes: i64 = 96, peak_memory_in_bytes: i64 = 104,
        total_size_in_bytes: i64 = 112, total_allocation_bytes: i64 = 120, indefinite_allocations: i64 = 128,
        peak_unpadded_heap_bytes: i64 = 136,
    }
    ExecutableOutputElementTypesArgs[40] {
        executable: Handle<Executable> = 16, output_types: *mut i32 = 24, num_output_types: usize = 32,
    }
    ExecutableOutputDimensionsArgs[48] {
        executable: Handle<Executable> = 16, num_outputs: usize = 24, dims: *const i64 = 32,
        dim_sizes: *mut usize = 40,
    }
    ExecutableParameterMemoryKindsArgs[48] {
        executable: Handle<Executable> = 16, num_parameters: usize = 24, memory_kinds: *mut *const u8 = 32,
        memory_kind_sizes: *mut usize = 40,
    }
    ExecutableOutputMemoryKindsArgs[48] {
        executable: Handle<Executable> = 16, num_outputs: usize = 24, memory_kinds: *mut *const u8 = 32,
        memory_kind_sizes: *mut usize = 40,
    }
    ExecutableSerializeArgs[56] {
        executable: Handle<Executable> = 16, serialized_bytes: *const u8 = 24, serialized_bytes_size: usize = 32,
        serialized_executable: *mut c_void = 40, serialized_executable_deleter: Option<Deleter> = 48,
    }
    ExecutableDeserializeAndLoadArgs[72] {
        client: Handle<Client> = 16, serialized_executable: *const u8 = 24, serialized_executable_size: usize = 32,
        loaded_executable: Handle<LoadedExecutable> = 40, overridden_serialized_compile_options: *const u8 = 48,
        overridden_serialized_compile_options_size: usize = 56, load_options: *mut c_void = 64,
    }
    LoadedExecutableFingerprintArgs[40] {
        executable: Handle<LoadedExecutable> = 16, executable_fingerprint: *const u8 = 24,
        executable_fingerprint_size: usize = 32,
    }
    BufferDestroyArgs[24] { buffer: Handle<Buffer> = 16 }
    BufferElementTypeArgs[28] { buffer: Handle<Buffer> = 16, type_: i32 = 24 }
    BufferDimensionsArgs[40] { buffer: Handle<Buffer> = 16, dims: *const i64 = 24, num_dims: usize = 32 }
    BufferUnpaddedDimensionsArgs[40] {
        buffer: Handle<Buffer> = 16, unpadded_dims: *mut i64 = 24, num_dims: usize = 32,
    }
    BufferDynamicDimensionIndicesArgs[40] {
        buffer: Handle<Buffer> = 16, dynamic_dim_indices: *mut usize = 24, num_dynamic_dims: usize = 32,
    }
    BufferGetMemoryLayoutArgs[104] { buffer: Handle<Buffer> = 16, layout: BufferMemoryLayout = 24 }
    BufferToHostBufferArgs[56] {
        src: Handle<Buffer> = 16, host_layout: *mut BufferMemoryLayout = 24, dst: *mut c_void = 32,
        dst_size: usize = 40, event: Handle<Event> = 48,
    }
    BufferOnDeviceSizeInBytesArgs[32] { buffer: Handle<Buffer> = 16, on_device_size_in_bytes: usize = 24 }
    BufferDeleteArgs[24] { buffer: Handle<Buffer> = 16 }
    BufferIsDeletedArgs[25] { buffer: Handle<Buffer> = 16, is_deleted: u8 = 24 }
    BufferCopyRawToHostArgs[56] {
        buffer: Handle<Buffer> = 16, dst: *mut c_void = 24, offset: i64 = 32, transfer_size: i64 = 40,
        event: Handle<Event> = 48,
    }
    BufferCopyToDeviceArgs[40] {
        buffer: Handle<Buffer> = 16, dst_device: Handle<Device> = 24, dst_buffer: Handle<Buffer> = 32,
    }
    BufferCopyToMemoryArgs[40] {
        buffer: Handle<Buffer> = 16, dst_memory: Handle<Memory> = 24, dst_buffer: Handle<Buffer> = 32,
    }
    BufferIsOnCpuArgs[25] { buffer: Handle<Buffer> = 16, is_on_cpu: u8 = 24 }
    BufferDeviceArgs[32] { buffer: Handle<Buffer> = 16, device: Handle<Device> = 24 }
    BufferMemoryArgs[32] { buffer: Handle<Buffer> = 16, memory: Handle<Memory> = 24 }
    BufferReadyEventArgs[32] { buffer: Handle<Buffer> = 16, event: Handle<Event> = 24 }
    BufferUnsafePointerArgs[32] { buffer: Handle<Buffer> = 16, buffer_pointer: usize = 24 }
    BufferIncreaseExternalReferenceCountArgs[24] { buffer: Handle<Buffer> = 16 }
    BufferDecreaseExternalReferenceCountArgs[24] { buffer: Handle<Buffer> = 16 }
    BufferOpaqueDeviceMemoryDataPointerArgs[32] { buffer: Handle<Buffer> = 16, device_memory_ptr: *mut c_void = 24 }
    TopologyDescriptionCreateArgs[56] {
        topology_name: *const u8 = 16, topology_name_size: usize = 24, create_options: *mut NamedValue = 32,
        num_options: usize = 40, topology: Handle<TopologyDescription> = 48,
    }
    TopologyDescriptionDestroyArgs[24] { topology: Handle<TopologyDescription> = 16 }
    TopologyDescriptionPlatformVersionArgs[40] {
        topology: Handle<TopologyDescription> = 16, platform_version: *const u8 = 24,
        platform_version_size: usize = 32,
    }
    TopologyDescriptionPlatformNameArgs[40] {
        topology: Handle<TopologyDescription> = 16, platform_name: *const u8 = 24, platform_name_size: usize = 32,
    }
    TopologyDescriptionGetDeviceDescriptionsArgs[40] {
        topology: Handle<TopologyDescription> = 16, descriptions: *mut Handle<DeviceDescription> = 24,
        num_descriptions: usize = 32,
    }
    TopologyDescriptionSerializeArgs[56] {
        topology: Handle<TopologyDescription> = 16, serialized_bytes: *const u8 = 24,
        serialized_bytes_size: usize = 32, serialized_topology: *mut c_void = 40,
        serialized_topology_deleter: Option<Deleter> = 48,
    }
    TopologyDescriptionDeserializeArgs[40] {
        serialized_topology: *const u8 = 16, serialized_topology_size: usize = 24,
        topology: Handle<TopologyDescription> = 32,
    }
    TopologyDescriptionAttributesArgs[40] {
        topology: Handle<TopologyDescription> = 16, attributes: *mut NamedValue = 24, num_attributes: usize = 32,
    }
    TopologyDescriptionFingerprintArgs[32] { topology: Handle<TopologyDescription> = 16, fingerprint: u64 = 24 }
    TopologyDescriptionGetMemorySpaceKindIdsArgs[40] {
        topology: Handle<TopologyDescription> = 16, memory_space_kind_ids: *mut i32 = 24,
        num_memory_space_kind_ids: usize = 32,
    }
    CompileArgs[64] {
        topology: Handle<TopologyDescription> = 16, program: *mut Program = 24, compile_options: *const u8 = 32,
        compile_options_size: usize = 40, client: Handle<Client> = 48, executable: Handle<Executable> = 56,
    }
    ClientCreateErrorBufferArgs[112] {
        client: Handle<Client> = 16, error_code: i32 = 24, error_message: *const u8 = 32,
        error_message_size: usize = 40, shape_dims: *const i64 = 48, shape_num_dims: usize = 56,
        shape_element_type: i32 = 64, shape_layout: *const BufferMemoryLayout = 72, memory: Handle<Memory> = 80,
        buffer: Handle<Buffer> = 88, payload: *const NamedValue = 96, num_payload: usize = 104,
    }
    ClientCreateAliasBufferArgs[80] {
        client: Handle<Client> = 16, memory: Handle<Memory> = 24, shape_dims: *const i64 = 32,
        shape_num_dims: usize = 40, shape_element_type: i32 = 48, shape_layout: *const BufferMemoryLayout = 56,
        alias_buffer: Handle<Buffer> = 64, fulfill_alias_buffer_cb: Handle<Alias> = 72,
    }
    ClientFulfillAliasBufferArgs[64] {
        client: Handle<Client> = 16, buffer: Handle<Buffer> = 24, status_code: i32 = 32, error_message: *const u8 = 40,
        error_message_size: usize = 48, fulfill_alias_buffer_cb: Handle<Alias> = 56,
    }
    BufferBitcastArgs[64] {
        buffer: Handle<Buffer> = 16, element_type: i32 = 24, dims: *const i64 = 32, num_dims: usize = 40,
        device_layout: *const BufferMemoryLayout = 48, out_buffer: Handle<Buffer> = 56,
    }
    @plain DonateCallbackArgs[40] {
        struct_size: usize = 0, callback_data: *mut c_void = 8, error_code: i32 = 16, error_message: *const u8 = 24,
        error_message_size: usize = 32,
    }
    BufferDonateWithControlDependencyArgs[48] {
        buffer: Handle<Buffer> = 16, callback_data: *mut c_void = 24,
        dependency_ready_callback: Option<unsafe extern "C" fn(*mut DonateCallbackArgs)> = 32,
        out_buffer: Handle<Buffer> = 40,
    }
    @plain RawToHostCallbackArgs[48] {
        struct_size: usize = 0, callback_data: *mut c_void = 8, error_code: i32 = 16, error_message: *const u8 = 24,
        error_message_size: usize = 32, dst: *mut c_void = 40,
    }
    BufferCopyRawToHostFutureArgs[64] {
        buffer: Handle<Buffer> = 16, offset: i64 = 24, transfer_size: i64 = 32, event: Handle<Event> = 40,
        callback_data: *mut c_void = 48,
        future_ready_callback: Option<unsafe extern "C" fn(*mut RawToHostCallbackArgs)> = 56,
    }
    DevicePoisonExecutionArgs[72] {
        device: Handle<Device> = 16, launch_id: i32 = 24, error_code: i32 = 28, error_message: *const u8 = 32,
        error_message_size: usize = 40, poisoned: u8 = 48, payload: *const NamedValue = 56, num_payload: usize = 64,
    }
    AsyncHostToDeviceTransferManagerTransferLiteralArgs[80] {
        transfer_manager: Handle<AsyncHostToDeviceTransferManager> = 16, buffer_index: i32 = 24, data: *mut c_void = 32,
        shape_dims: *const i64 = 40, shape_num_dims: usize = 48, shape_element_type: i32 = 56,
        shape_layout: *const BufferMemoryLayout = 64, done_with_h2d_transfer: Handle<Event> = 72,
    }
    ClientDmaMapArgs[40] { client: Handle<Client> = 16, data: *mut c_void = 24, size: usize = 32 }
    ClientDmaUnmapArgs[32] { client: Handle<Client> = 16, data: *mut c_void = 24 }
    ClientLoadArgs[56] {
        client: Handle<Client> = 16, executable: Handle<Executable> = 24, compile_options: *const u8 = 32,
        compile_options_size: usize = 40, loaded_executable: Handle<LoadedExecutable> = 48,
    }
    ExecutableGetCompileOptionsArgs[56] {
        executable: Handle<Executable> = 16, serialized_bytes: *const u8 = 24, serialized_bytes_size: usize = 32,
        serialized_compile_options: *mut c_void = 40, serialized_compile_options_deleter: Option<Deleter> = 48,
    }
    TopologyDescriptionMakeCanonicalShapeForMemorySpaceArgs[88] {
        topology: Handle<TopologyDescription> = 16, memory_space_kind_id: i32 = 24, dims: *const i64 = 32,
        num_dims: usize = 40, element_type: i32 = 48, layout: *const BufferMemoryLayout = 56,
        serialized_shape: *const u8 = 64, serialized_shape_size: usize = 72,
        serialized_shape_deleter: Option<Deleter> = 80,
    }
}
