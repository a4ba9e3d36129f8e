//! What goes on a stream besides library calls: launches of kernels, copies, zeros.

use crate::driver::{CLUSTER_DIMENSION, Copy2d, DEVICE_MEMORY, DevicePointer, Handle, LaunchAttribute, LaunchConfig};
use crate::gpu::Gpu;
use hloom_cuda_kernels::PtxKernel;
use hloom_value::ExecutionError;
use std::ffi::c_void;

/// Enqueues a launch of a kernel with these values for its parameters.
pub(crate) fn launch(
    gpu: &Gpu,
    function: Handle,
    kernel: &PtxKernel,
    mut values: Vec<u64>,
) -> Result<(), ExecutionError> {
    let l = &kernel.launch;
    let ([gx, gy, gz], [bx, by, bz]) = (l.grid, l.block);
    if gx == 0 || gy == 0 || gz == 0 {
        return Ok(());
    }
    let mut parameters: Vec<*mut c_void> = values.iter_mut().map(|v| std::ptr::from_mut(v).cast()).collect();
    let shared = l.dynamic_shared_bytes;
    let (parameters, none) = (parameters.as_mut_ptr(), std::ptr::null_mut());
    // SAFETY (both): the parameters are those of the kernel, which are copied before the call returns.
    let call = if l.cluster > 1 {
        let mut value = [0; 16];
        value[..3].copy_from_slice(&[l.cluster, 1, 1]);
        let attributes = [LaunchAttribute { id: CLUSTER_DIMENSION, padding: 0, value }];
        let config = LaunchConfig {
            grid: l.grid,
            block: l.block,
            shared_bytes: shared,
            stream: gpu.stream(),
            attributes: attributes.as_ptr(),
            attribute_count: 1,
        };
        unsafe { (gpu.driver.launch_ex)(&config, function, parameters, none) }
    } else {
        unsafe { (gpu.driver.launch)(function, gx, gy, gz, bx, by, bz, shared, gpu.stream(), parameters, none) }
    };
    gpu.driver.check(call, &format!("the launch of {}", kernel.name))
}

impl Gpu {
    /// Enqueues a copy of bytes.
    pub(crate) fn copy(&self, to: DevicePointer, from: DevicePointer, bytes: usize) -> Result<(), ExecutionError> {
        if bytes == 0 || to == from {
            return Ok(());
        }
        // SAFETY: both arrays are that long.
        self.driver.check(unsafe { (self.driver.copy)(to, from, bytes, self.stream()) }, "cuMemcpyDtoDAsync")
    }

    /// Enqueues a copy of rows of so many bytes, each at its pitch.
    pub(crate) fn copy_rows(
        &self,
        (to, to_pitch): (DevicePointer, usize),
        (from, from_pitch): (DevicePointer, usize),
        width: usize,
        height: usize,
    ) -> Result<(), ExecutionError> {
        if width == 0 || height == 0 {
            return Ok(());
        }
        let (from_kind, to_kind) = (DEVICE_MEMORY, DEVICE_MEMORY);
        let copy = Copy2d { from_kind, from, from_pitch, to_kind, to, to_pitch, width, height, ..Copy2d::default() };
        // SAFETY: both arrays have so many rows.
        self.driver.check(unsafe { (self.driver.copy_2d)(&copy, self.stream()) }, "cuMemcpy2DAsync")
    }

    /// Enqueues zeros.
    pub(crate) fn zero(&self, at: DevicePointer, bytes: usize) -> Result<(), ExecutionError> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the array is that long.
        self.driver.check(unsafe { (self.driver.fill_bytes)(at, 0, bytes, self.stream()) }, "cuMemsetD8Async")
    }
}
