//! Convolutions by cuDNN: its functions, and convolutions made ready to be enqueued.

use crate::convolution::{Axis, Convolution, Kind};
use crate::driver::{DevicePointer, Handle};
use crate::gpu::Gpu;
use crate::library::functions;
use hloom_ir::diagnostic::{Blame, codes};
use hloom_ir::element_type::ElementType;
use hloom_value::ExecutionError;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

functions! {
    /// The functions of cuDNN.
    Functions of "cuDNN" in ["libcudnn.so.9", "libcudnn.so"] {
        create = "cudnnCreate" (*mut Handle);
        set_stream = "cudnnSetStream" (Handle, Handle);
        tensor_create = "cudnnCreateTensorDescriptor" (*mut Handle);
        tensor_set = "cudnnSetTensorNdDescriptor" (Handle, i32, i32, *const i32, *const i32);
        filter_create = "cudnnCreateFilterDescriptor" (*mut Handle);
        filter_set = "cudnnSetFilterNdDescriptor" (Handle, i32, i32, i32, *const i32);
        convolution_create = "cudnnCreateConvolutionDescriptor" (*mut Handle);
        convolution_set = "cudnnSetConvolutionNdDescriptor" (
            Handle, i32, *const i32, *const i32, *const i32, i32, i32,
        );
        convolution_groups = "cudnnSetConvolutionGroupCount" (Handle, i32);
        convolution_math = "cudnnSetConvolutionMathType" (Handle, i32);
        forward_algorithms = "cudnnGetConvolutionForwardAlgorithm_v7" (
            Handle, Handle, Handle, Handle, Handle, i32, *mut i32, *mut Choice,
        );
        image_algorithms = "cudnnGetConvolutionBackwardDataAlgorithm_v7" (
            Handle, Handle, Handle, Handle, Handle, i32, *mut i32, *mut Choice,
        );
        filter_algorithms = "cudnnGetConvolutionBackwardFilterAlgorithm_v7" (
            Handle, Handle, Handle, Handle, Handle, i32, *mut i32, *mut Choice,
        );
        forward = "cudnnConvolutionForward" (
            Handle, *const c_void, Handle, DevicePointer, Handle, DevicePointer, Handle, i32, DevicePointer, usize,
            *const c_void, Handle, DevicePointer,
        );
        image_gradient = "cudnnConvolutionBackwardData" (
            Handle, *const c_void, Handle, DevicePointer, Handle, DevicePointer, Handle, i32, DevicePointer, usize,
            *const c_void, Handle, DevicePointer,
        );
        filter_gradient = "cudnnConvolutionBackwardFilter" (
            Handle, *const c_void, Handle, DevicePointer, Handle, DevicePointer, Handle, i32, DevicePointer, usize,
            *const c_void, Handle, DevicePointer,
        );
    }
}

/// `cudnnConvolutionFwdAlgoPerf_t` and its like: what is known of an algorithm.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Choice {
    algorithm: i32,
    status: i32,
    time: f32,
    memory: usize,
    determinism: i32,
    math: i32,
    reserved: [i32; 3],
}

/// The most memory that an algorithm may work in.
const MAX_WORKSPACE: usize = 1 << 30;

/// cuDNN with a handle.
#[derive(Debug)]
pub(crate) struct Cudnn {
    functions: Functions,
    /// One thread at a time may use it.
    handle: Mutex<Handle>,
}

fn check(status: i32, call: &str) -> Result<(), ExecutionError> {
    if status == 0 {
        return Ok(());
    }
    // 2xxx are bad parameters, 3xxx what is not supported: we asked for the wrong thing.
    let blame = if (2000..4000).contains(&status) { Blame::Hloom } else { Blame::Machine };
    Err(ExecutionError::new(&codes::eval::DEVICE_FAILED, format!("{call} answers {status}")).blame(blame))
}

/// Loads the library and what of it the choice of an algorithm needs, which takes long.
pub(crate) fn prewarm(gpu: &Gpu) -> Result<(), ExecutionError> {
    gpu.enter()?;
    let axis = Axis { image: 16, filter: 3, output: 16, padding: 1, stride: 1, dilation: 1 };
    let convolution = Convolution {
        kind: Kind::Forward,
        element_type: ElementType::Bf16,
        allows_tf32: true,
        batch: 1,
        input_features: 64,
        output_features: 64,
        groups: 1,
        axes: vec![axis; 2],
    };
    PreparedConvolution::new(gpu, &convolution).map(drop)
}

impl Cudnn {
    /// Opens the library.
    pub(crate) fn open() -> Result<Cudnn, ExecutionError> {
        let functions = Functions::open()?;
        let mut handle = 0;
        // SAFETY: the out parameter is valid.
        check(unsafe { (functions.create)(&mut handle) }, "cudnnCreate")?;
        Ok(Cudnn { functions, handle: Mutex::new(handle) })
    }

    fn handle(&self) -> MutexGuard<'_, Handle> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A convolution with its descriptors and the algorithm chosen for it.
#[derive(Debug)]
pub(crate) struct PreparedConvolution {
    kind: Kind,
    image: Handle,
    filter: Handle,
    output: Handle,
    descriptor: Handle,
    algorithm: i32,
    /// Bytes that it works in.
    pub(crate) workspace_bytes: usize,
    is_double: bool,
}

impl PreparedConvolution {
    /// Makes a convolution ready, with the algorithm that the library thinks best.
    pub(crate) fn new(gpu: &Gpu, convolution: &Convolution) -> Result<PreparedConvolution, ExecutionError> {
        let library = gpu.cudnn()?;
        let f = &library.functions;
        let data_type = match convolution.element_type {
            ElementType::F32 => 0,
            ElementType::F64 => 1,
            ElementType::F16 => 2,
            ElementType::Bf16 => 9,
            other => return Err(ExecutionError::bug(format!("{other} is no type of cuDNN"))),
        };
        let is_double = convolution.element_type == ElementType::F64;
        // cuDNN wants at least two spatial dimensions.
        let mut axes = convolution.axes.clone();
        while axes.len() < 2 {
            axes.insert(0, Axis { image: 1, filter: 1, output: 1, padding: 0, stride: 1, dilation: 1 });
        }
        let c = convolution;
        let ints = |list: &[i64]| -> Result<Vec<i32>, ExecutionError> {
            let each = list.iter().map(|&n| i32::try_from(n));
            each.collect::<Result<_, _>>().map_err(|_| ExecutionError::bug("a convolution is too large for cuDNN"))
        };
        let of = |of: fn(&Axis) -> i64| axes.iter().map(of).collect::<Vec<i64>>();
        let math = match c.element_type {
            // CUDNN_FMA_MATH, CUDNN_DEFAULT_MATH (TF32 where it may be), CUDNN_TENSOR_OP_MATH.
            ElementType::F32 if !c.allows_tf32 => 3,
            ElementType::F32 | ElementType::F64 => 0,
            _ => 1,
        };
        // SAFETY (all): out parameters are valid, and lists as long as is said.
        unsafe {
            let image = |features: i64, spatial: Vec<i64>| {
                let mut descriptor = 0;
                check((f.tensor_create)(&mut descriptor), "cudnnCreateTensorDescriptor")?;
                // Sizes and strides are named features first; in memory these are last.
                let mut strides = vec![0; spatial.len()];
                let mut stride = features;
                for (n, size) in spatial.iter().enumerate().rev() {
                    strides[n] = stride;
                    stride *= size;
                }
                let sizes = ints(&[&[c.batch, features][..], &spatial].concat())?;
                let strides = ints(&[&[stride, 1][..], &strides].concat())?;
                let (rank, sizes, strides) = (sizes.len() as i32, sizes.as_ptr(), strides.as_ptr());
                check((f.tensor_set)(descriptor, data_type, rank, sizes, strides), "cudnnSetTensorNdDescriptor")?;
                Ok::<Handle, ExecutionError>(descriptor)
            };
            let (input, output) =
                (image(c.input_features, of(|a| a.image))?, image(c.output_features, of(|a| a.output))?);
            let mut filter = 0;
            check((f.filter_create)(&mut filter), "cudnnCreateFilterDescriptor")?;
            let sizes = [&[c.output_features, c.input_features / c.groups][..], &of(|a| a.filter)].concat();
            let sizes = ints(&sizes)?;
            // CUDNN_TENSOR_NHWC.
            let call = (f.filter_set)(filter, data_type, 1, sizes.len() as i32, sizes.as_ptr());
            check(call, "cudnnSetFilterNdDescriptor")?;
            let mut descriptor = 0;
            check((f.convolution_create)(&mut descriptor), "cudnnCreateConvolutionDescriptor")?;
            let (padding, strides, dilations) =
                (ints(&of(|a| a.padding))?, ints(&of(|a| a.stride))?, ints(&of(|a| a.dilation))?);
            // CUDNN_CROSS_CORRELATION, and the type that sums are made in.
            let call = (f.convolution_set)(
                descriptor,
                axes.len() as i32,
                padding.as_ptr(),
                strides.as_ptr(),
                dilations.as_ptr(),
                1,
                i32::from(is_double),
            );
            check(call, "cudnnSetConvolutionNdDescriptor")?;
            check((f.convolution_groups)(descriptor, c.groups as i32), "cudnnSetConvolutionGroupCount")?;
            check((f.convolution_math)(descriptor, math), "cudnnSetConvolutionMathType")?;
            let (mut choices, mut count) = ([Choice::default(); 8], 0);
            let handle = library.handle();
            let ask = |choices: *mut Choice, count: *mut i32| match c.kind {
                Kind::Forward => (f.forward_algorithms)(*handle, input, filter, descriptor, output, 8, count, choices),
                Kind::ImageGradient => {
                    (f.image_algorithms)(*handle, filter, output, descriptor, input, 8, count, choices)
                }
                Kind::FilterGradient => {
                    (f.filter_algorithms)(*handle, input, output, descriptor, filter, 8, count, choices)
                }
            };
            check(ask(choices.as_mut_ptr(), &mut count), "cudnnGetConvolutionAlgorithm")?;
            let found = choices.iter().take(count.max(0) as usize);
            let best = found.into_iter().find(|a| a.status == 0 && a.memory <= MAX_WORKSPACE);
            let best = best.ok_or_else(|| ExecutionError::bug(format!("cuDNN has no algorithm for {c}")))?;
            check((f.convolution_math)(descriptor, best.math), "cudnnSetConvolutionMathType")?;
            Ok(PreparedConvolution {
                kind: c.kind,
                image: input,
                filter,
                output,
                descriptor,
                algorithm: best.algorithm,
                workspace_bytes: best.memory,
                is_double,
            })
        }
    }

    /// Enqueues the convolution of the arrays at these addresses: the operands and the result.
    pub(crate) fn enqueue(
        &self,
        gpu: &Gpu,
        [lhs, rhs, result]: [DevicePointer; 3],
        workspace: DevicePointer,
    ) -> Result<(), ExecutionError> {
        let library = gpu.cudnn()?;
        let (f, own) = (&library.functions, library.handle());
        let handle = *own;
        let one = if self.is_double { 1f64.to_bits() } else { u64::from(1f32.to_bits()) };
        let zero = 0u64;
        let (one, zero) = ((&raw const one).cast(), (&raw const zero).cast());
        let (d, a, bytes) = (self.descriptor, self.algorithm, self.workspace_bytes);
        // SAFETY: the descriptors are those of the arrays, and the workspace is as large as was asked for.
        let status = unsafe {
            check((f.set_stream)(handle, gpu.stream()), "cudnnSetStream")?;
            match self.kind {
                Kind::Forward => (f.forward)(
                    handle,
                    one,
                    self.image,
                    lhs,
                    self.filter,
                    rhs,
                    d,
                    a,
                    workspace,
                    bytes,
                    zero,
                    self.output,
                    result,
                ),
                Kind::ImageGradient => (f.image_gradient)(
                    handle,
                    one,
                    self.filter,
                    rhs,
                    self.output,
                    lhs,
                    d,
                    a,
                    workspace,
                    bytes,
                    zero,
                    self.image,
                    result,
                ),
                Kind::FilterGradient => (f.filter_gradient)(
                    handle,
                    one,
                    self.image,
                    lhs,
                    self.output,
                    rhs,
                    d,
                    a,
                    workspace,
                    bytes,
                    zero,
                    self.filter,
                    result,
                ),
            }
        };
        check(status, "cudnnConvolution")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_an_algorithm_lies_where_the_library_puts_it() {
        assert_eq!((size_of::<Choice>(), std::mem::offset_of!(Choice, memory)), (48, 16));
    }
}
