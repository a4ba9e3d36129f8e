//! Instructions for which there is a kernel written by hand (crate `kernels`): products, convolutions, and the
//! routines of [`crate::library_routine`].
//!
//! Each form here is a kernel's description together with the types and lengths of the arrays it is for, so that a run
//! needs nothing but the addresses.

use crate::library_routine::Routine;
use half::{bf16, f16};
use hloom_cost::{CoreCost, Work};
use hloom_cpu_kernels::convolution::{Axis, Convolution};
use hloom_cpu_kernels::matmul::{BatchDim, Integer, Matmul};
use hloom_cpu_kernels::number::Stored;
use hloom_cpu_kernels::{Epilogue, Parallel};
use hloom_ir::attributes::{DotAlgorithm, PrecisionConfig};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::Instruction;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::ArrayShape;
use hloom_runtime::pool::Pool;
use std::borrow::Cow;

/// The threads of a pool, at most so many of them.
pub(crate) struct Threads<'p> {
    pub(crate) pool: &'p Pool,
    pub(crate) most: usize,
}

impl Parallel for Threads<'_> {
    fn each(&self, units: usize, chunk: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        self.pool.each(units, chunk, self.most, body);
    }

    fn each_in_turn(&self, units: usize, chunk: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        self.pool.each_in_turn(units, chunk, self.most, body);
    }

    fn threads(&self) -> usize {
        self.pool.threads().min(self.most)
    }
}

/// A call of a kernel written by hand. Its arrays are the instruction's operands, then its results.
#[derive(Debug)]
pub(crate) struct LibraryCall {
    kernel: Kernel,
    /// The bytes of each array.
    bytes: Vec<usize>,
}

#[derive(Debug)]
enum Kernel {
    Dot(Matmul, ElementType, ElementType),
    Convolution(Convolution, ElementType),
    /// With what it computes, in additions.
    Routine(Box<Routine>, f64),
}

/// Why there is no routine for an instruction.
#[derive(Debug)]
pub(crate) struct NoRoutine(Cow<'static, str>);

impl From<&'static str> for NoRoutine {
    fn from(why: &'static str) -> NoRoutine {
        NoRoutine(why.into())
    }
}

impl From<String> for NoRoutine {
    fn from(why: String) -> NoRoutine {
        NoRoutine(why.into())
    }
}

impl std::fmt::Display for NoRoutine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl LibraryCall {
    /// The call for an instruction, or why there is none.
    pub(crate) fn new(module: &Module, id: InstructionId) -> Result<LibraryCall, NoRoutine> {
        let instruction = &module[id];
        let kernel = match &instruction.op {
            Op::Dot(_) => product(module, instruction)?,
            Op::Convolution(_) => convolution(module, instruction)?,
            _ => Kernel::Routine(Box::new(Routine::new(module, id)?), Work::of(module, id).additions),
        };
        let all = instruction.operands().iter().copied().chain([id]);
        let leaves = all.flat_map(|i| module[i].shape.leaves().into_iter().map(|(_, shape)| shape.byte_size()));
        let bytes = leaves.map(|n| n.and_then(|n| usize::try_from(n).ok()).ok_or("an array has no size"));
        Ok(LibraryCall { kernel, bytes: bytes.collect::<Result<_, _>>()? })
    }

    /// What it is, for the report.
    pub(crate) fn name(&self) -> &'static str {
        match &self.kernel {
            Kernel::Dot(..) => "dot",
            Kernel::Convolution(..) => "convolution",
            Kernel::Routine(routine, _) => routine.name(),
        }
    }

    /// About how long it takes on such a core.
    pub(crate) fn nanoseconds(&self, core: &CoreCost) -> f64 {
        let bytes = self.bytes.iter().map(|&n| n as f64).sum::<f64>();
        let at_memory_speed = core.launch + bytes * core.far_byte;
        match &self.kernel {
            Kernel::Dot(product, ..) => at_memory_speed.max(product.flops() * core.matmul_flop),
            Kernel::Convolution(convolution, _) => at_memory_speed.max(convolution.flops() * core.matmul_flop),
            Kernel::Routine(_, additions) => at_memory_speed.max(additions * core.addition),
        }
    }

    /// Whether the evaluator may have to do it after all.
    pub(crate) fn may_refuse(&self) -> bool {
        matches!(&self.kernel, Kernel::Routine(routine, _) if routine.may_refuse())
    }

    /// The elements of a row of the result, if it is made row by row.
    pub(crate) fn row(&self) -> Option<usize> {
        match &self.kernel {
            Kernel::Dot(product, from, _) if is_stored(*from) => Some(product.n),
            Kernel::Convolution(convolution, _) => convolution.row(),
            _ => None,
        }
    }

    /// Whether rows of the result can be handed over as they are made, so many at a time.
    pub(crate) fn tiles_by_rows(&self, step: usize) -> bool {
        match &self.kernel {
            Kernel::Dot(product, from, _) if is_stored(*from) => product.tiles_by_rows(step),
            Kernel::Convolution(convolution, _) => convolution.tiles_by_rows(step),
            _ => false,
        }
    }

    /// The bytes of a row of the result.
    pub(crate) fn row_bytes(&self) -> usize {
        let element = match &self.kernel {
            Kernel::Dot(_, _, to) | Kernel::Convolution(_, to) => to.bytes(),
            Kernel::Routine(..) => 0,
        };
        self.row().unwrap_or(0) * element
    }

    /// The bytes of the second operand.
    pub(crate) fn second_bytes(&self) -> usize {
        self.bytes.get(1).copied().unwrap_or(0)
    }

    /// The bytes of the result, if it is one array.
    pub(crate) fn result_bytes(&self) -> usize {
        self.bytes.last().copied().unwrap_or(0)
    }

    /// Runs the kernel; `None` if it cannot be used on these arrays, whose results are then as they were.
    ///
    /// # Safety
    /// The addresses must be those of the instruction's arrays: operands, then results, none of which overlaps another;
    /// only the results of sorts and of linear algebra may be their operands.
    pub(crate) unsafe fn run(&self, arrays: &[*mut u8], parallel: &Threads<'_>) -> Option<()> {
        // SAFETY: the caller's promise.
        unsafe { self.compute(arrays, parallel, None) }
    }

    /// As [`LibraryCall::run`], but each [row](LibraryCall::row) of the result is handed over as soon as it is there, and
    /// kept no longer.
    ///
    /// # Safety
    /// As for [`LibraryCall::run`], but that there need be no result.
    pub(crate) unsafe fn run_with_epilogue(
        &self,
        arrays: &[*mut u8],
        parallel: &Threads<'_>,
        epilogue: &Epilogue<'_>,
    ) -> Option<()> {
        // SAFETY: the caller's promise.
        unsafe { self.compute(arrays, parallel, Some(epilogue)) }
    }

    unsafe fn compute(
        &self,
        arrays: &[*mut u8],
        parallel: &Threads<'_>,
        epilogue: Option<&Epilogue<'_>>,
    ) -> Option<()> {
        use ElementType::{Bf16, F16, F32, F64, S8, S16, S32, U8, U32};
        // SAFETY (all): the caller's promise; the types are those of the arrays, as `new` has found.
        match &self.kernel {
            Kernel::Dot(product, from, to) => unsafe {
                match (from, to) {
                    (F32, Bf16) => self.product::<f32, bf16>(product, arrays, parallel, epilogue),
                    (F32, F16) => self.product::<f32, f16>(product, arrays, parallel, epilogue),
                    (F32, _) => self.product::<f32, f32>(product, arrays, parallel, epilogue),
                    (F64, _) => self.product::<f64, f64>(product, arrays, parallel, epilogue),
                    // Sums that wrap round are the same with and without a sign.
                    (S32 | U32, _) => self.integers::<i32>(product, arrays, parallel),
                    (S16, _) => self.integers::<i16>(product, arrays, parallel),
                    (S8, _) => self.integers::<i8>(product, arrays, parallel),
                    (U8, _) => self.integers::<u8>(product, arrays, parallel),
                    (Bf16, Bf16) => self.product::<bf16, bf16>(product, arrays, parallel, epilogue),
                    (Bf16, _) => self.product::<bf16, f32>(product, arrays, parallel, epilogue),
                    (F16, F16) => self.product::<f16, f16>(product, arrays, parallel, epilogue),
                    _ => self.product::<f16, f32>(product, arrays, parallel, epilogue),
                }
            },
            Kernel::Convolution(convolution, element_type) => unsafe {
                match element_type {
                    F32 => self.convolution::<f32>(convolution, arrays, parallel, epilogue),
                    F64 => self.convolution::<f64>(convolution, arrays, parallel, epilogue),
                    Bf16 => self.convolution::<bf16>(convolution, arrays, parallel, epilogue),
                    _ => self.convolution::<f16>(convolution, arrays, parallel, epilogue),
                }
            },
            Kernel::Routine(routine, _) => unsafe { routine.run(arrays, &self.bytes, parallel) },
        }
    }

    unsafe fn product<S: Stored, O: Stored<Compute = S::Compute>>(
        &self,
        product: &Matmul,
        arrays: &[*mut u8],
        parallel: &Threads<'_>,
        epilogue: Option<&Epilogue<'_>>,
    ) -> Option<()> {
        let (&[lhs, rhs, result], &[m, n, r]) = (arrays, &self.bytes[..]) else { return None };
        // SAFETY (all): the caller's promise.
        let operands: [&[S]; 2] = unsafe { [slice(lhs, m), slice(rhs, n)] };
        match epilogue {
            Some(epilogue) => product.run_with_epilogue::<S, O>(operands, parallel, epilogue),
            None => product.run::<S, O>(operands[0], operands[1], unsafe { slice_mut(result, r) }, parallel),
        }
    }

    unsafe fn integers<S: Integer>(&self, product: &Matmul, arrays: &[*mut u8], parallel: &Threads<'_>) -> Option<()> {
        let (&[lhs, rhs, result], &[m, n, r]) = (arrays, &self.bytes[..]) else { return None };
        // SAFETY: the caller's promise.
        unsafe { product.run_integers::<S>(slice(lhs, m), slice(rhs, n), slice_mut(result, r), parallel) }
    }

    unsafe fn convolution<S: Stored>(
        &self,
        convolution: &Convolution,
        arrays: &[*mut u8],
        parallel: &Threads<'_>,
        epilogue: Option<&Epilogue<'_>>,
    ) -> Option<()> {
        let (&[input, kernel, result], &[m, n, r]) = (arrays, &self.bytes[..]) else { return None };
        // SAFETY (all): the caller's promise.
        let operands: [&[S]; 2] = unsafe { [slice(input, m), slice(kernel, n)] };
        match epilogue {
            Some(epilogue) => convolution.run_with_epilogue::<S>(operands, parallel, epilogue),
            None => convolution.run::<S>(operands[0], operands[1], unsafe { slice_mut(result, r) }, parallel),
        }
    }
}

/// The elements in `bytes` bytes from `address`.
///
/// # Safety
/// They must be there for as long as the slice is used, aligned, and nobody may write them meanwhile.
pub(crate) unsafe fn slice<'a, T>(address: *mut u8, bytes: usize) -> &'a [T] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(address.cast(), bytes / size_of::<T>()) }
}

/// As [`slice()`], to write.
///
/// # Safety
/// As for [`slice()`], and nobody may read them meanwhile.
pub(crate) unsafe fn slice_mut<'a, T>(address: *mut u8, bytes: usize) -> &'a mut [T] {
    if bytes == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(address.cast(), bytes / size_of::<T>()) }
}

/// Types that the kernels compute with.
fn is_stored(element_type: ElementType) -> bool {
    matches!(element_type, ElementType::F32 | ElementType::F64 | ElementType::Bf16 | ElementType::F16)
}

pub(crate) fn array(module: &Module, id: InstructionId) -> Result<&ArrayShape, NoRoutine> {
    module[id].shape.as_array().ok_or_else(|| "an operand is no array".into())
}

/// The strides of a row-major array, in elements.
fn strides(shape: &ArrayShape) -> Vec<usize> {
    hloom_value::array::strides(shape.dims()).iter().map(|&s| s as usize).collect()
}

pub(crate) fn size(shape: &ArrayShape, dim: i64) -> Result<usize, NoRoutine> {
    let size = usize::try_from(dim).ok().and_then(|d| shape.dims().get(d));
    size.and_then(|&n| usize::try_from(n).ok()).ok_or_else(|| "it has no such dimension".into())
}

/// Dimensions as one: their joint size, and the stride along it; `None` if there is no one stride.
fn joined(shape: &ArrayShape, dims: &[i64]) -> Option<(usize, usize)> {
    let strides = strides(shape);
    let mut joint: Option<(usize, usize)> = None;
    for &d in dims.iter().rev() {
        let (size, stride) = (size(shape, d).ok()?, *strides.get(d as usize)?);
        joint = match joint {
            _ if size == 1 && joint.is_some() => joint,
            None | Some((1, _)) => Some((size, stride)),
            Some((n, s)) if stride == s.checked_mul(n)? => Some((n.checked_mul(size)?, s)),
            Some(_) => return None,
        };
    }
    Some(joint.unwrap_or((1, 1)))
}

/// Whether there is a kernel for products of those types.
pub(crate) fn has_product(lhs: ElementType, rhs: ElementType, to: ElementType) -> bool {
    use ElementType::{F32, F64, S8, S16, S32, U8, U32};
    let known = match lhs {
        S32 | U32 => to == lhs,
        S8 | U8 | S16 => to == S32,
        _ => is_stored(lhs) && (to == lhs || to == F32 && lhs != F64 || lhs == F32 && to != F64 && is_stored(to)),
    };
    known && rhs == lhs
}

/// Whether there is a kernel for convolutions of those types.
pub(crate) fn has_convolution(lhs: ElementType, rhs: ElementType, to: ElementType) -> bool {
    is_stored(to) && lhs == to && rhs == to
}

fn product(module: &Module, instruction: &Instruction) -> Result<Kernel, NoRoutine> {
    let (Op::Dot(dot), &[lhs, rhs]) = (&instruction.op, instruction.operands()) else {
        return Err("it is no dot of two operands".into());
    };
    let (lhs, rhs) = (array(module, lhs)?, array(module, rhs)?);
    let result = instruction.shape.as_array().ok_or("its result is no array")?;
    let (from, to) = (lhs.element_type, result.element_type);
    if !has_product(from, rhs.element_type, to) {
        return Err(format!("there is no kernel for {from} by {} to {to}", rhs.element_type).into());
    }
    if rounds_operands(&dot.precision, from) {
        return Err("its algorithm iterations the operands".into());
    }
    let dims = &dot.dims;
    let rest = |shape: &ArrayShape, lists: [&[i64]; 2]| -> Vec<i64> {
        (0..shape.rank() as i64).filter(|d| !lists.iter().any(|l| l.contains(d))).collect()
    };
    let scattered = || "its dimensions are not in one stride".to_owned();
    let (lhs_strides, rhs_strides) = (strides(lhs), strides(rhs));
    let mut batch = Vec::new();
    for (&l, &r) in dims.lhs_batch.iter().zip(&dims.rhs_batch) {
        let rhs = *rhs_strides.get(r as usize).ok_or_else(scattered)?;
        batch.push(BatchDim { size: size(lhs, l)?, lhs: *lhs_strides.get(l as usize).ok_or_else(scattered)?, rhs });
    }
    // Outer rows that do not follow the inner ones in one stride are a batch of their own: the result's order is the
    // same, and the right operand is used again for each.
    let mut rows = rest(lhs, [&dims.lhs_batch, &dims.lhs_contracting]);
    let (m, lhs_row) = loop {
        match joined(lhs, &rows) {
            Some(joint) => break joint,
            None => {
                let outer = rows.remove(0);
                batch.push(BatchDim { size: size(lhs, outer)?, lhs: lhs_strides[outer as usize], rhs: 0 });
            }
        }
    };
    let columns = rest(rhs, [&dims.rhs_batch, &dims.rhs_contracting]);
    let (n, rhs_column) = joined(rhs, &columns).ok_or_else(scattered)?;
    let (k, lhs_column) = joined(lhs, &dims.lhs_contracting).ok_or_else(scattered)?;
    let (_, rhs_row) = joined(rhs, &dims.rhs_contracting).ok_or_else(scattered)?;
    Ok(Kernel::Dot(Matmul { batch, m, n, k, lhs_row, lhs_column, rhs_row, rhs_column }, from, to))
}

/// Whether operands of that type are to be rounded before they are multiplied.
fn rounds_operands(precision: &PrecisionConfig, element_type: ElementType) -> bool {
    use DotAlgorithm::{Bf16Bf16Bf16, Bf16Bf16F32, F16F16F16, F16F16F32};
    matches!(precision.algorithm, Bf16Bf16Bf16 | Bf16Bf16F32 | F16F16F16 | F16F16F32)
        && matches!(element_type, ElementType::F32 | ElementType::F64)
}

fn convolution(module: &Module, instruction: &Instruction) -> Result<Kernel, NoRoutine> {
    let (Op::Convolution(attributes), &[input, kernel]) = (&instruction.op, instruction.operands()) else {
        return Err("it is no convolution of two operands".into());
    };
    let (input, kernel) = (array(module, input)?, array(module, kernel)?);
    let output = instruction.shape.as_array().ok_or("its result is no array")?;
    let element_type = output.element_type;
    if !has_convolution(input.element_type, kernel.element_type, element_type) {
        return Err(format!("there is no kernel for {} to {element_type}", input.element_type).into());
    }
    if attributes.lhs_sparsity.is_some() || attributes.rhs_sparsity.is_some() {
        return Err("there is no kernel for sparse operands".into());
    }
    let dims = &attributes.dims;
    let stride = |shape: &ArrayShape, d: i64| {
        strides(shape).get(d as usize).copied().ok_or_else(|| "it has no such dimension".to_owned())
    };
    let positive = |n: i64| usize::try_from(n).map_err(|_| "its window is odd".to_owned());
    let mut axes = Vec::new();
    for (n, window) in attributes.window.dims.iter().enumerate() {
        let at = |list: &[i64]| list.get(n).copied().ok_or("it has no such dimension");
        let (i, k, o) = (at(&dims.input_spatial)?, at(&dims.kernel_spatial)?, at(&dims.output_spatial)?);
        axes.push(Axis {
            input: size(input, i)?,
            kernel: size(kernel, k)?,
            output: size(output, o)?,
            stride: positive(window.stride)?,
            padding_low: isize::try_from(window.padding_low).map_err(|_| "its window is odd")?,
            base_dilation: positive(window.base_dilation)?.max(1),
            window_dilation: positive(window.window_dilation)?.max(1),
            reversed: window.window_reversal,
            input_stride: stride(input, i)?,
            kernel_stride: stride(kernel, k)?,
            output_stride: stride(output, o)?,
        });
    }
    let feature_groups = positive(attributes.feature_group_count)?.max(1);
    let batch_groups = positive(attributes.batch_group_count)?.max(1);
    if feature_groups > 1 && batch_groups > 1 {
        return Err("there is no kernel for groups of features and of batches at once".into());
    }
    let groups = feature_groups.max(batch_groups);
    let batch = size(input, dims.input_batch)? / batch_groups;
    let (features, feature_stride) = (size(kernel, dims.kernel_input_feature)?, stride(input, dims.input_feature)?);
    let batch_stride = stride(input, dims.input_batch)?;
    let convolution = Convolution {
        batch,
        input_batch_stride: batch_stride,
        output_batch_stride: stride(output, dims.output_batch)?,
        groups,
        input_group_stride: if batch_groups > 1 { batch * batch_stride } else { features * feature_stride },
        input_features: features,
        input_feature_stride: feature_stride,
        output_features: size(kernel, dims.kernel_output_feature)? / groups,
        output_feature_stride: stride(output, dims.output_feature)?,
        kernel_input_stride: stride(kernel, dims.kernel_input_feature)?,
        kernel_output_stride: stride(kernel, dims.kernel_output_feature)?,
        axes,
    };
    Ok(Kernel::Convolution(convolution, element_type))
}
