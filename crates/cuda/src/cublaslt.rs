//! Matrix products by cuBLASLt: its functions, and products made ready to be enqueued.

use crate::driver::{DevicePointer, Handle};
use crate::gemm::{BatchDim, ComputeType, Gemm, GemmTypes, Matrix};
use crate::gpu::{Event, Gpu, WORKSPACE_BYTES};
use crate::library::functions;
use crate::memory::Block;
use hloom_ir::diagnostic::{Blame, codes};
use hloom_ir::element_type::ElementType;
use hloom_value::ExecutionError;
use rustc_hash::FxHashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

functions! {
    /// The functions of cuBLASLt.
    Functions of "cuBLASLt" in ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"] {
        create = "cublasLtCreate" (*mut Handle);
        descriptor_create = "cublasLtMatmulDescCreate" (*mut Handle, i32, i32);
        descriptor_set = "cublasLtMatmulDescSetAttribute" (Handle, i32, *const c_void, usize);
        layout_create = "cublasLtMatrixLayoutCreate" (*mut Handle, i32, u64, u64, i64);
        layout_set = "cublasLtMatrixLayoutSetAttribute" (Handle, i32, *const c_void, usize);
        preference_create = "cublasLtMatmulPreferenceCreate" (*mut Handle);
        preference_set = "cublasLtMatmulPreferenceSetAttribute" (Handle, i32, *const c_void, usize);
        preference_destroy = "cublasLtMatmulPreferenceDestroy" (Handle);
        heuristic = "cublasLtMatmulAlgoGetHeuristic" (
            Handle, Handle, Handle, Handle, Handle, Handle, Handle, i32, *mut Heuristic, *mut i32,
        );
        matmul = "cublasLtMatmul" (
            Handle, Handle, *const c_void, DevicePointer, Handle, DevicePointer, Handle, *const c_void, DevicePointer,
            Handle, DevicePointer, Handle, *const [u64; 8], DevicePointer, usize, Handle,
        );
    }
}

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Heuristic {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    state: i32,
    waves: f32,
    reserved: [i32; 4],
}

/// How many algorithms are looked at.
const CANDIDATES: usize = 4;
/// Operations from which on a wrong choice costs more than measuring.
const WORTH_MEASURING: u64 = 100_000_000_000;
/// How long the algorithms of one product are measured.
const MEASURING_TIME: Duration = Duration::from_millis(12);

/// cuBLASLt with a handle.
#[derive(Debug)]
pub(crate) struct CublasLt {
    functions: Functions,
    handle: Handle,
    /// The algorithms that were measured to be the fastest.
    chosen: Mutex<FxHashMap<Gemm, [u64; 8]>>,
}

fn check(status: i32, call: &str) -> Result<(), ExecutionError> {
    let name = match status {
        0 => return Ok(()),
        1 => "CUBLAS_STATUS_NOT_INITIALIZED",
        3 => "CUBLAS_STATUS_ALLOC_FAILED",
        7 => "CUBLAS_STATUS_INVALID_VALUE",
        8 => "CUBLAS_STATUS_ARCH_MISMATCH",
        11 => "CUBLAS_STATUS_MAPPING_ERROR",
        13 => "CUBLAS_STATUS_EXECUTION_FAILED",
        14 => "CUBLAS_STATUS_INTERNAL_ERROR",
        15 => "CUBLAS_STATUS_NOT_SUPPORTED",
        _ => "",
    };
    let error = ExecutionError::new(&codes::eval::DEVICE_FAILED, format!("{call} answers {status} {name}"));
    Err(error.blame(if matches!(status, 7 | 15) { Blame::Hloom } else { Blame::Machine }))
}

/// Loads the library and what of it the first product needs, which takes long.
pub(crate) fn prewarm(gpu: &Arc<Gpu>) -> Result<(), ExecutionError> {
    gpu.enter()?;
    for (element_type, compute) in [(ElementType::Bf16, ComputeType::F32), (ElementType::F32, ComputeType::Tf32)] {
        let side = Matrix { sum_is_contiguous: true, leading_dimension: 512, element_type };
        let types = GemmTypes { result: element_type, compute };
        let (m, n, k) = (512, 512, 512);
        PreparedGemm::new(gpu, &Gemm { m, n, k, lhs: side, rhs: side, result_row: n, batch: Vec::new(), types })?;
    }
    Ok(())
}

impl CublasLt {
    /// Opens the library.
    pub(crate) fn open() -> Result<CublasLt, ExecutionError> {
        let functions = Functions::open()?;
        let mut handle = 0;
        // SAFETY: the out parameter is valid.
        check(unsafe { (functions.create)(&mut handle) }, "cublasLtCreate")?;
        Ok(CublasLt { functions, handle, chosen: Mutex::default() })
    }

    fn chosen(&self) -> MutexGuard<'_, FxHashMap<Gemm, [u64; 8]>> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the library was found.
    pub(crate) fn path(&self) -> &str {
        &self.functions.path
    }
}

/// A product with its descriptors and the algorithm chosen for it. What it consists of is never destroyed while the library
/// may use it.
#[derive(Debug)]
pub(crate) struct PreparedGemm {
    descriptor: Handle,
    /// Of the first matrix (our right operand), the second (our left one) and the result.
    layouts: [Handle; 3],
    algorithm: [u64; 8],
    one: [f64; 2],
    zero: [f64; 2],
    /// Bytes from the starts of the left operand, the right one and the result, for each call.
    offsets: Vec<[u64; 3]>,
}

/// `cudaDataType`.
fn data_type(element_type: ElementType) -> Option<i32> {
    Some(match element_type {
        ElementType::F32 => 0,
        ElementType::F64 => 1,
        ElementType::F16 => 2,
        ElementType::S8 => 3,
        ElementType::C64 => 4,
        ElementType::C128 => 5,
        ElementType::S32 => 10,
        ElementType::Bf16 => 14,
        ElementType::F8e4m3fn => 28,
        ElementType::F8e5m2 => 29,
        _ => return None,
    })
}

/// `cublasComputeType_t`, and the `cudaDataType` and the bits of the factor 1.
fn compute_type(gemm: &Gemm) -> (i32, i32, [f64; 2]) {
    let single = f64::from_bits(u64::from(1f32.to_bits()));
    let is_complex = gemm.types.result.is_complex();
    match gemm.types.compute {
        ComputeType::F32 => (68, if is_complex { 4 } else { 0 }, [single, 0.0]),
        ComputeType::Tf32 => (77, if is_complex { 4 } else { 0 }, [single, 0.0]),
        ComputeType::F64 => (70, if is_complex { 5 } else { 1 }, [1.0, 0.0]),
        ComputeType::S32 => (72, 10, [f64::from_bits(1), 0.0]),
    }
}

impl PreparedGemm {
    /// Makes a product ready, with the algorithm that the library thinks best.
    pub(crate) fn new(gpu: &Arc<Gpu>, gemm: &Gemm) -> Result<PreparedGemm, ExecutionError> {
        let library = gpu.cublaslt()?;
        let f = &library.functions;
        let of =
            |t: ElementType| data_type(t).ok_or_else(|| ExecutionError::bug(format!("{t} is no type of cuBLASLt")));
        let (compute, scale, one) = compute_type(gemm);
        let (batch, calls) = gemm.calls();
        let bytes = [gemm.lhs.element_type, gemm.rhs.element_type, gemm.types.result].map(|t| t.bytes() as u64);
        let offsets: Vec<[u64; 3]> = calls.iter().map(|c| [0, 1, 2].map(|n| c[n] * bytes[n])).collect();
        let mut descriptor = 0;
        // SAFETY (all calls of the library here): out parameters are valid, attributes are of the sizes that the
        // documentation names, and handles are those that the library gave.
        unsafe {
            check((f.descriptor_create)(&mut descriptor, compute, scale), "cublasLtMatmulDescCreate")?;
            let set = |attribute: i32, value: i32| {
                let call = (f.descriptor_set)(descriptor, attribute, (&raw const value).cast(), 4);
                check(call, "cublasLtMatmulDescSetAttribute")
            };
            // The matrices are column-major: the first is n by k, the second k by m.
            let first_is_transposed = gemm.rhs.sum_is_contiguous;
            let second_is_transposed = !gemm.lhs.sum_is_contiguous;
            set(3, i32::from(first_is_transposed))?;
            set(4, i32::from(second_is_transposed))?;
            if gemm.lhs.element_type.bits() == 8 && gemm.types.compute == ComputeType::F32 {
                // CUBLASLT_MATMUL_DESC_FAST_ACCUM: as XLA does for products of f8 in default precision.
                let fast = 1i8;
                let call = (f.descriptor_set)(descriptor, 25, (&raw const fast).cast(), 1);
                check(call, "cublasLtMatmulDescSetAttribute")?;
            }
            let layout = |t: ElementType, rows: u64, columns: u64, leading: u64, stride: Option<(u64, u64)>| {
                let mut layout = 0;
                let call = (f.layout_create)(&mut layout, of(t)?, rows, columns, leading as i64);
                check(call, "cublasLtMatrixLayoutCreate")?;
                if let Some((count, stride)) = stride {
                    let (count, stride) = (count as i32, stride as i64);
                    let set = f.layout_set;
                    check(set(layout, 5, (&raw const count).cast(), 4), "cublasLtMatrixLayoutSetAttribute")?;
                    check(set(layout, 6, (&raw const stride).cast(), 8), "cublasLtMatrixLayoutSetAttribute")?;
                }
                Ok::<Handle, ExecutionError>(layout)
            };
            let (m, n, k) = (gemm.m, gemm.n, gemm.k);
            let strides = |of: fn(&BatchDim) -> u64| batch.as_ref().map(|b| (b.size, of(b)));
            let shape =
                |transposed: bool, rows: u64, columns: u64| if transposed { (columns, rows) } else { (rows, columns) };
            let (rows, columns) = shape(first_is_transposed, n, k);
            let first = layout(gemm.rhs.element_type, rows, columns, gemm.rhs.leading_dimension, strides(|b| b.rhs))?;
            let (rows, columns) = shape(second_is_transposed, k, m);
            let second = layout(gemm.lhs.element_type, rows, columns, gemm.lhs.leading_dimension, strides(|b| b.lhs))?;
            let result = layout(gemm.types.result, n, m, gemm.result_row, strides(|b| b.result))?;
            let layouts = [first, second, result];
            let mut preference = 0;
            check((f.preference_create)(&mut preference), "cublasLtMatmulPreferenceCreate")?;
            let limit = WORKSPACE_BYTES;
            let set = f.preference_set;
            check(set(preference, 1, (&raw const limit).cast(), 8), "cublasLtMatmulPreferenceSetAttribute")?;
            // Where each operand may begin: the right one, the left one, and the result twice.
            for (attribute, which) in [(5, 1), (6, 0), (7, 2), (8, 2)] {
                let alignment = offsets.iter().fold(256u64, |a, o| a.min(alignment(o[which]))) as u32;
                let call = set(preference, attribute, (&raw const alignment).cast(), 4);
                check(call, "cublasLtMatmulPreferenceSetAttribute")?;
            }
            let (mut found, mut count) = ([Heuristic::default(); CANDIDATES], 0);
            let call = (f.heuristic)(
                library.handle,
                descriptor,
                first,
                second,
                result,
                result,
                preference,
                CANDIDATES as i32,
                found.as_mut_ptr(),
                &mut count,
            );
            (f.preference_destroy)(preference);
            check(call, "cublasLtMatmulAlgoGetHeuristic")?;
            let found: Vec<[u64; 8]> =
                found.iter().take(count.max(0) as usize).filter(|h| h.state == 0).map(|h| h.algorithm).collect();
            let Some(&algorithm) = found.first() else {
                return Err(ExecutionError::bug(format!("cuBLASLt has no algorithm for {gemm}")));
            };
            let mut prepared = PreparedGemm { descriptor, layouts, algorithm, one, zero: [0.0; 2], offsets };
            if found.len() > 1 && gemm.operations() >= WORTH_MEASURING {
                let known = library.chosen().get(gemm).copied();
                match known {
                    Some(algorithm) => prepared.algorithm = algorithm,
                    None => {
                        prepared.choose(gpu, gemm, &found)?;
                        library.chosen().insert(gemm.clone(), prepared.algorithm);
                    }
                }
            }
            Ok(prepared)
        }
    }

    /// Measures some of the algorithms on memory of the pool, and takes the fastest.
    fn choose(&mut self, gpu: &Arc<Gpu>, gemm: &Gemm, algorithms: &[[u64; 8]]) -> Result<(), ExecutionError> {
        let bytes = gemm.bytes();
        // What does not fit beside the program is not worth it.
        let Ok(blocks) = bytes.iter().map(|&n| Block::new(gpu, n)).collect::<Result<Vec<_>, _>>() else {
            return Ok(());
        };
        let arrays = [0, 1, 2].map(|n| blocks[n].address());
        let begun = Instant::now();
        let mut fastest: Option<(Duration, [u64; 8])> = None;
        for &algorithm in algorithms {
            if begun.elapsed() > MEASURING_TIME && fastest.is_some() {
                break;
            }
            self.algorithm = algorithm;
            // An algorithm that does not run here is none.
            if self.enqueue(gpu, arrays).is_err() {
                continue;
            }
            let (begin, end) = (Event::new(gpu, true)?, Event::new(gpu, true)?);
            begin.record()?;
            self.enqueue(gpu, arrays)?;
            end.record()?;
            gpu.synchronize()?;
            let time = end.since(&begin)?;
            if fastest.is_none_or(|(best, _)| time < best) {
                fastest = Some((time, algorithm));
            }
        }
        self.algorithm = fastest.map_or(algorithms[0], |(_, algorithm)| algorithm);
        Ok(())
    }

    /// Enqueues the product of the arrays at these addresses.
    pub(crate) fn enqueue(&self, gpu: &Gpu, arrays: [DevicePointer; 3]) -> Result<(), ExecutionError> {
        let library = gpu.cublaslt()?;
        let workspace = gpu.workspace()?;
        let [first, second, result] = self.layouts;
        for offset in &self.offsets {
            let [lhs, rhs, to] = [0, 1, 2].map(|n| arrays[n] + offset[n]);
            // SAFETY: the descriptors are those of the arrays, which are as large as the product says.
            let call = unsafe {
                (library.functions.matmul)(
                    library.handle,
                    self.descriptor,
                    self.one.as_ptr().cast(),
                    rhs,
                    first,
                    lhs,
                    second,
                    self.zero.as_ptr().cast(),
                    to,
                    result,
                    to,
                    result,
                    &self.algorithm,
                    workspace,
                    WORKSPACE_BYTES,
                    gpu.stream(),
                )
            };
            check(call, "cublasLtMatmul")?;
        }
        Ok(())
    }
}

/// The largest power of two up to 256 that divides an offset.
fn alignment(offset: u64) -> u64 {
    if offset == 0 { 256 } else { 1 << offset.trailing_zeros().min(8) }
}
