//! Fourier transforms by cuFFT, and the factor of the inverse ones by cuBLAS.

use crate::driver::{DevicePointer, Handle};
use crate::fft::Fft;
use crate::gpu::Gpu;
use crate::library::functions;
use hloom_ir::attributes::FftType;
use hloom_ir::diagnostic::{Blame, codes};
use hloom_value::ExecutionError;
use std::ffi::c_void;
use std::sync::OnceLock;

functions! {
    /// The functions of cuFFT.
    Cufft of "cuFFT" in ["libcufft.so.12", "libcufft.so.11", "libcufft.so"] {
        plan = "cufftPlanMany" (
            *mut i32, i32, *mut i32, *mut i32, i32, i32, *mut i32, i32, i32, i32, i32,
        );
        set_stream = "cufftSetStream" (i32, Handle);
        complex = "cufftExecC2C" (i32, DevicePointer, DevicePointer, i32);
        from_real = "cufftExecR2C" (i32, DevicePointer, DevicePointer);
        to_real = "cufftExecC2R" (i32, DevicePointer, DevicePointer);
        complex_double = "cufftExecZ2Z" (i32, DevicePointer, DevicePointer, i32);
        from_real_double = "cufftExecD2Z" (i32, DevicePointer, DevicePointer);
        to_real_double = "cufftExecZ2D" (i32, DevicePointer, DevicePointer);
    }
}

functions! {
    /// What is used of cuBLAS.
    CublasFunctions of "cuBLAS" in ["libcublas.so.13", "libcublas.so.12", "libcublas.so"] {
        create = "cublasCreate_v2" (*mut Handle);
        set_stream = "cublasSetStream_v2" (Handle, Handle);
        scale = "cublasSscal_v2_64" (Handle, i64, *const c_void, DevicePointer, i64);
        scale_double = "cublasDscal_v2_64" (Handle, i64, *const c_void, DevicePointer, i64);
        add = "cublasSgeam" (
            Handle, i32, i32, i32, i32, *const c_void, DevicePointer, i32, *const c_void, DevicePointer, i32,
            DevicePointer, i32,
        );
        add_double = "cublasDgeam" (
            Handle, i32, i32, i32, i32, *const c_void, DevicePointer, i32, *const c_void, DevicePointer, i32,
            DevicePointer, i32,
        );
        add_complex = "cublasCgeam" (
            Handle, i32, i32, i32, i32, *const c_void, DevicePointer, i32, *const c_void, DevicePointer, i32,
            DevicePointer, i32,
        );
        add_complex_double = "cublasZgeam" (
            Handle, i32, i32, i32, i32, *const c_void, DevicePointer, i32, *const c_void, DevicePointer, i32,
            DevicePointer, i32,
        );
        solve = "cublasStrsm_v2" (
            Handle, i32, i32, i32, i32, i32, i32, *const c_void, DevicePointer, i32, DevicePointer, i32,
        );
        solve_double = "cublasDtrsm_v2" (
            Handle, i32, i32, i32, i32, i32, i32, *const c_void, DevicePointer, i32, DevicePointer, i32,
        );
        solve_complex = "cublasCtrsm_v2" (
            Handle, i32, i32, i32, i32, i32, i32, *const c_void, DevicePointer, i32, DevicePointer, i32,
        );
        solve_complex_double = "cublasZtrsm_v2" (
            Handle, i32, i32, i32, i32, i32, i32, *const c_void, DevicePointer, i32, DevicePointer, i32,
        );
    }
}

/// cuBLAS with a handle.
#[derive(Debug)]
pub(crate) struct Cublas {
    pub(crate) functions: CublasFunctions,
    pub(crate) handle: Handle,
}

fn check(status: i32, call: &str) -> Result<(), ExecutionError> {
    if status == 0 {
        return Ok(());
    }
    let error = ExecutionError::new(&codes::eval::DEVICE_FAILED, format!("{call} answers {status}"));
    Err(error.blame(Blame::Machine))
}

impl Cublas {
    /// Opens the library.
    pub(crate) fn open() -> Result<Cublas, ExecutionError> {
        let functions = CublasFunctions::open()?;
        let mut handle = 0;
        // SAFETY: the out parameter is valid.
        check(unsafe { (functions.create)(&mut handle) }, "cublasCreate")?;
        Ok(Cublas { functions, handle })
    }

    /// Enqueues a multiplication of so many real numbers by a factor.
    fn scale(
        &self,
        gpu: &Gpu,
        at: DevicePointer,
        count: i64,
        factor: f64,
        is_double: bool,
    ) -> Result<(), ExecutionError> {
        let f = &self.functions;
        // SAFETY: so many numbers are there, and the factor is of their type.
        unsafe {
            check((f.set_stream)(self.handle, gpu.stream()), "cublasSetStream")?;
            match is_double {
                true => check((f.scale_double)(self.handle, count, (&raw const factor).cast(), at, 1), "cublasDscal"),
                false => {
                    let factor = factor as f32;
                    check((f.scale)(self.handle, count, (&raw const factor).cast(), at, 1), "cublasSscal")
                }
            }
        }
    }
}

/// Transforms with the plan made for them.
#[derive(Debug)]
pub(crate) struct PreparedFft {
    fft: Fft,
    /// Made before the first run: for some lengths cuFFT compiles code.
    plan: OnceLock<i32>,
}

impl PreparedFft {
    /// Makes transforms ready.
    pub(crate) fn new(gpu: &Gpu, fft: &Fft) -> Result<PreparedFft, ExecutionError> {
        gpu.cufft()?;
        if fft.factor().is_some() {
            gpu.cublas()?;
        }
        Ok(PreparedFft { fft: fft.clone(), plan: OnceLock::new() })
    }

    /// The plan, made if it is not there. Whoever enqueues holds the GPU's lock: nobody else makes one.
    pub(crate) fn plan(&self, gpu: &Gpu) -> Result<i32, ExecutionError> {
        if let Some(&plan) = self.plan.get() {
            return Ok(plan);
        }
        let (library, fft) = (gpu.cufft()?, &self.fft);
        let kind = match (fft.kind, fft.is_double) {
            (FftType::Fft | FftType::Ifft, false) => 0x29,
            (FftType::Rfft, false) => 0x2a,
            (FftType::Irfft, false) => 0x2c,
            (FftType::Fft | FftType::Ifft, true) => 0x69,
            (FftType::Rfft, true) => 0x6a,
            (FftType::Irfft, true) => 0x6c,
        };
        let (mut plan, mut length) = (0, fft.length.clone());
        let none = std::ptr::null_mut();
        // SAFETY: the out parameter is valid; without strides arrays are dense, one after another.
        let call = unsafe {
            let rank = length.len() as i32;
            (library.plan)(&mut plan, rank, length.as_mut_ptr(), none, 1, 0, none, 1, 0, kind, fft.batch)
        };
        check(call, "cufftPlanMany")?;
        Ok(*self.plan.get_or_init(|| plan))
    }

    /// Enqueues the transforms of what is at `from`, or of a copy in the scratch memory.
    pub(crate) fn enqueue(
        &self,
        gpu: &Gpu,
        from: DevicePointer,
        to: DevicePointer,
        scratch: Option<DevicePointer>,
    ) -> Result<(), ExecutionError> {
        let (f, fft, plan) = (gpu.cufft()?, &self.fft, self.plan(gpu)?);
        let mut from = from;
        if let Some(scratch) = scratch {
            gpu.copy(scratch, from, fft.operand_bytes)?;
            from = scratch;
        }
        // SAFETY: the arrays are those that the plan was made for.
        let call = unsafe {
            check((f.set_stream)(plan, gpu.stream()), "cufftSetStream")?;
            match (fft.kind, fft.is_double) {
                (FftType::Fft, false) => (f.complex)(plan, from, to, -1),
                (FftType::Ifft, false) => (f.complex)(plan, from, to, 1),
                (FftType::Rfft, false) => (f.from_real)(plan, from, to),
                (FftType::Irfft, false) => (f.to_real)(plan, from, to),
                (FftType::Fft, true) => (f.complex_double)(plan, from, to, -1),
                (FftType::Ifft, true) => (f.complex_double)(plan, from, to, 1),
                (FftType::Rfft, true) => (f.from_real_double)(plan, from, to),
                (FftType::Irfft, true) => (f.to_real_double)(plan, from, to),
            }
        };
        check(call, "cufftExec")?;
        match fft.factor() {
            Some(factor) => gpu.cublas()?.scale(gpu, to, fft.result_reals, factor, fft.is_double),
            None => Ok(()),
        }
    }
}
