//! The CUDA driver: its functions, and their answers as errors.

use crate::library::functions;
use hloom_ir::diagnostic::{Blame, codes};
use hloom_value::ExecutionError;
use std::ffi::{CStr, c_char, c_void};

/// What the driver and the libraries call their objects by.
pub(crate) type Handle = usize;

/// An address in the memory of a device.
pub(crate) type DevicePointer = u64;

functions! {
    /// The functions of the driver.
    Driver of "the CUDA driver" in ["libcuda.so.1", "libcuda.so"] {
        init = "cuInit" (u32);
        driver_version = "cuDriverGetVersion" (*mut i32);
        device_count = "cuDeviceGetCount" (*mut i32);
        device_get = "cuDeviceGet" (*mut i32, i32);
        device_name = "cuDeviceGetName" (*mut c_char, i32, i32);
        device_attribute = "cuDeviceGetAttribute" (*mut i32, i32, i32);
        device_uuid = "cuDeviceGetUuid_v2" | "cuDeviceGetUuid" (*mut [u8; 16], i32);
        device_memory = "cuDeviceTotalMem_v2" | "cuDeviceTotalMem" (*mut usize, i32);
        context_retain = "cuDevicePrimaryCtxRetain" (*mut Handle, i32);
        context_set = "cuCtxSetCurrent" (Handle);
        allocate = "cuMemAlloc_v2" (*mut DevicePointer, usize);
        free = "cuMemFree_v2" (DevicePointer);
        memory_info = "cuMemGetInfo_v2" (*mut usize, *mut usize);
        allocate_host = "cuMemHostAlloc" (*mut *mut u8, usize, u32);
        copy_to_device = "cuMemcpyHtoDAsync_v2" (DevicePointer, *const u8, usize, Handle);
        copy_to_host = "cuMemcpyDtoHAsync_v2" (*mut u8, DevicePointer, usize, Handle);
        copy = "cuMemcpyDtoDAsync_v2" (DevicePointer, DevicePointer, usize, Handle);
        copy_2d = "cuMemcpy2DAsync_v2" (*const Copy2d, Handle);
        fill_bytes = "cuMemsetD8Async" (DevicePointer, u8, usize, Handle);
        fill_words = "cuMemsetD32Async" (DevicePointer, u32, usize, Handle);
        module_load = "cuModuleLoadData" (*mut Handle, *const c_void);
        module_unload = "cuModuleUnload" (Handle);
        module_function = "cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
        function_attribute = "cuFuncSetAttribute" (Handle, i32, i32);
        launch = "cuLaunchKernel" (
            Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *mut *mut c_void, *mut *mut c_void,
        );
        launch_ex = "cuLaunchKernelEx" (*const LaunchConfig, Handle, *mut *mut c_void, *mut *mut c_void);
        stream_create = "cuStreamCreate" (*mut Handle, u32);
        stream_synchronize = "cuStreamSynchronize" (Handle);
        stream_wait = "cuStreamWaitEvent" (Handle, Handle, u32);
        event_create = "cuEventCreate" (*mut Handle, u32);
        event_destroy = "cuEventDestroy_v2" (Handle);
        event_record = "cuEventRecord" (Handle, Handle);
        event_query = "cuEventQuery" (Handle);
        event_elapsed = "cuEventElapsedTime" (*mut f32, Handle, Handle);
        capture_begin = "cuStreamBeginCapture_v2" (Handle, i32);
        capture_end = "cuStreamEndCapture" (Handle, *mut Handle);
        graph_instantiate = "cuGraphInstantiateWithFlags" (*mut Handle, Handle, u64);
        graph_update = "cuGraphExecUpdate_v2" (Handle, Handle, *mut GraphUpdate);
        graph_launch = "cuGraphLaunch" (Handle, Handle);
        graph_destroy = "cuGraphDestroy" (Handle);
        graph_exec_destroy = "cuGraphExecDestroy" (Handle);
        error_name = "cuGetErrorName" (i32, *mut *const c_char);
        error_text = "cuGetErrorString" (i32, *mut *const c_char);
    }
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Copy2d {
    pub(crate) from_x: usize,
    pub(crate) from_y: usize,
    pub(crate) from_kind: i32,
    pub(crate) from_host: usize,
    pub(crate) from: DevicePointer,
    pub(crate) from_array: Handle,
    pub(crate) from_pitch: usize,
    pub(crate) to_x: usize,
    pub(crate) to_y: usize,
    pub(crate) to_kind: i32,
    pub(crate) to_host: usize,
    pub(crate) to: DevicePointer,
    pub(crate) to_array: Handle,
    pub(crate) to_pitch: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `CU_MEMORYTYPE_DEVICE`.
pub(crate) const DEVICE_MEMORY: i32 = 2;

/// `CUlaunchConfig`.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: Handle,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) attribute_count: u32,
}

/// `CUlaunchAttribute`: a number, and a value in 64 bytes.
#[repr(C)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: i32,
    pub(crate) padding: u32,
    pub(crate) value: [u32; 16],
}

/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
pub(crate) const CLUSTER_DIMENSION: i32 = 4;

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct GraphUpdate {
    pub(crate) result: i32,
    pub(crate) node: Handle,
    pub(crate) from: Handle,
}

/// `CUDA_ERROR_NOT_READY`.
pub(crate) const NOT_READY: i32 = 600;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: i32 = 2;

impl Driver {
    /// The answer of a call as a result.
    pub(crate) fn check(&self, status: i32, call: &str) -> Result<(), ExecutionError> {
        if status == 0 {
            return Ok(());
        }
        let text = |function: unsafe extern "C" fn(i32, *mut *const c_char) -> i32| {
            let mut text: *const c_char = std::ptr::null();
            // SAFETY: the driver gives a text that it keeps, or none.
            unsafe {
                if function(status, &mut text) != 0 || text.is_null() {
                    return String::new();
                }
                CStr::from_ptr(text).to_string_lossy().into_owned()
            }
        };
        let (name, why) = (text(self.error_name), text(self.error_text));
        let error = ExecutionError::new(&codes::eval::DEVICE_FAILED, format!("{call} answers {status} {name}: {why}"));
        Err(error.blame(if is_ours(status) { Blame::Hloom } else { Blame::Machine }))
    }
}

/// Whether an answer says that the context is beyond use: every later call in it gets the same answer.
pub(crate) fn is_fatal(status: i32) -> bool {
    matches!(status, 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719)
}

/// Whether an answer says that a kernel, or a call of ours, is wrong: bad values, handles or PTX, accesses outside of memory,
/// instructions that there are none.
fn is_ours(status: i32) -> bool {
    matches!(status, 1 | 200 | 218 | 400 | 500 | 700 | 701 | 714..=719 | 900..=908)
}
