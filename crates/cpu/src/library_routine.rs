//! Instructions that are routines of the crate `kernels`, besides products and convolutions: sorts, the first few in
//! order, Fourier transforms, the gradient of pooling, transposes, concatenations of many arrays, and
//! [`crate::linear_algebra`].

use crate::general_selection::GeneralSelection;
use crate::library_call::{NoRoutine, Threads, array, size, slice, slice_mut};
use crate::linear_algebra::LinearAlgebra;
use half::{bf16, f16};
use hloom_cpu_kernels::concatenate::Concatenate;
use hloom_cpu_kernels::fft::{FftKind, Transform};
use hloom_cpu_kernels::number::Stored;
use hloom_cpu_kernels::order::{FloatOrder, KeyType, Order};
use hloom_cpu_kernels::select_and_scatter::{Keep, SelectAndScatter, WindowDim};
use hloom_cpu_kernels::sort::{Column, Key, Sort};
use hloom_cpu_kernels::top_k::TopK;
use hloom_cpu_kernels::transpose::Transpose;
use hloom_eval::comparator::{self, keys_of};
use hloom_ir::attributes::{ComparisonDirection, ComparisonType, FftType};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::instruction::Instruction;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, Op};

/// A routine with all it has to know but the arrays.
#[derive(Debug)]
pub(crate) enum Routine {
    /// With the bytes of each array's elements, and the arrays in which a NaN makes the comparison no order: they have
    /// to be looked at first.
    Sort(Sort, Vec<usize>, Vec<(usize, ElementType)>),
    TopK(TopK),
    Fft(Box<Transform>),
    SelectAndScatter(SelectAndScatter, ElementType),
    GeneralSelection(Box<GeneralSelection>),
    LinearAlgebra(LinearAlgebra),
    Transpose(Transpose),
    Concatenate(Concatenate),
}

impl Routine {
    /// The routine for an instruction, or why there is none.
    pub(crate) fn new(module: &Module, id: InstructionId) -> Result<Routine, NoRoutine> {
        let instruction = &module[id];
        match &instruction.op {
            Op::Sort { .. } => sort(module, instruction),
            Op::TopK { .. } => top_k(module, instruction),
            Op::Fft { .. } => fft(module, instruction),
            Op::SelectAndScatter { .. } => select_and_scatter(module, instruction).or_else(|_| {
                GeneralSelection::new(module, id).map(|selection| Routine::GeneralSelection(Box::new(selection)))
            }),
            Op::Transpose { dimensions } => transpose(module, instruction, dimensions),
            Op::Concatenate { dimension } => concatenate(module, instruction, *dimension),
            Op::Cholesky { .. } | Op::TriangularSolve { .. } | Op::CustomCall(_) => {
                LinearAlgebra::new(module, instruction).map(Routine::LinearAlgebra)
            }
            other => Err(format!("there is no kernel for {}", other.opcode()).into()),
        }
    }

    /// What it is, for the report.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Routine::Sort(..) => "sort",
            Routine::TopK(_) => "topk",
            Routine::Fft(_) => "fft",
            Routine::SelectAndScatter(..) | Routine::GeneralSelection(_) => "select-and-scatter",
            Routine::Transpose(_) => "transpose",
            Routine::Concatenate(_) => "concatenate",
            Routine::LinearAlgebra(algebra) => algebra.name(),
        }
    }

    /// Whether the evaluator may have to do it after all.
    pub(crate) fn may_refuse(&self) -> bool {
        matches!(self, Routine::Sort(_, _, looked_at) if !looked_at.is_empty())
    }

    /// Runs it; `None` if it cannot be used on these arrays, whose results are then as they were.
    ///
    /// # Safety
    /// The addresses must be those of the instruction's arrays, `bytes` long: operands, then results, none of which
    /// overlaps another; only the results of sorts and of linear algebra may be their operands.
    pub(crate) unsafe fn run(&self, arrays: &[*mut u8], bytes: &[usize], parallel: &Threads<'_>) -> Option<()> {
        // SAFETY (all): the caller's promise; the types are those of the arrays, as `new` has found.
        match self {
            Routine::Sort(sort, widths, looked_at) => unsafe {
                run_sort(sort, widths, looked_at, arrays, bytes, parallel)
            },
            Routine::TopK(top_k) => unsafe {
                let (&[from, values, places], &[m, n, p]) = (arrays, bytes) else { return None };
                top_k.run(slice(from, m), slice_mut(values, n), slice_mut(places, p), parallel)
            },
            Routine::Fft(transform) => unsafe {
                let (&[from, to], &[m, n]) = (arrays, bytes) else { return None };
                transform.run(slice(from, m), slice_mut(to, n), parallel)
            },
            Routine::Transpose(transpose) => unsafe {
                let (&[from, to], &[m, n]) = (arrays, bytes) else { return None };
                transpose.run(slice(from, m), slice_mut(to, n), parallel)
            },
            Routine::Concatenate(concatenate) => unsafe {
                let ((&to, from), (&n, sizes)) = (arrays.split_last()?, bytes.split_last()?);
                let from: Vec<&[u8]> = from.iter().zip(sizes).map(|(&from, &m)| slice(from, m)).collect();
                concatenate.run(&from, slice_mut(to, n), parallel)
            },
            Routine::SelectAndScatter(selection, element_type) => unsafe {
                match element_type {
                    ElementType::F32 => run_selection::<f32>(selection, arrays, bytes, parallel),
                    ElementType::F64 => run_selection::<f64>(selection, arrays, bytes, parallel),
                    ElementType::Bf16 => run_selection::<bf16>(selection, arrays, bytes, parallel),
                    _ => run_selection::<f16>(selection, arrays, bytes, parallel),
                }
            },
            Routine::GeneralSelection(selection) => unsafe { selection.run(arrays, bytes) },
            Routine::LinearAlgebra(algebra) => unsafe { algebra.run(arrays, bytes, parallel) },
        }
    }
}

fn transpose(module: &Module, instruction: &Instruction, order: &[i64]) -> Result<Routine, NoRoutine> {
    let &[operand] = instruction.operands() else { return Err("it is no transpose of one operand".into()) };
    let from = array(module, operand)?;
    let is_static = !from.is_dynamic();
    let list = |list: &[i64]| list.iter().map(|&n| usize::try_from(n).ok()).collect::<Option<Vec<_>>>();
    let found = list(from.dims()).zip(list(order)).filter(|_| is_static);
    let found = found.and_then(|(sizes, order)| Transpose::new(&sizes, &order, from.element_type.bytes()));
    found.map(Routine::Transpose).ok_or_else(|| "there is no kernel for this transpose".into())
}

fn concatenate(module: &Module, instruction: &Instruction, dimension: i64) -> Result<Routine, NoRoutine> {
    let result = instruction.shape.as_array().filter(|a| !a.is_dynamic()).ok_or("its result is no array")?;
    let dimension = usize::try_from(dimension).ok().filter(|&d| d < result.rank()).ok_or("it has no such dimension")?;
    let run = |&o: &InstructionId| {
        let bytes = count(&array(module, o)?.dims()[dimension..])?.checked_mul(result.element_type.bytes());
        bytes.ok_or_else(|| NoRoutine::from("it is too large"))
    };
    let runs = instruction.operands().iter().map(run).collect::<Result<Vec<usize>, _>>()?;
    let found = Concatenate::new(count(&result.dims()[..dimension])?, runs);
    found.map(Routine::Concatenate).ok_or_else(|| "it is too large".into())
}

unsafe fn run_sort(
    sort: &Sort,
    widths: &[usize],
    looked_at: &[(usize, ElementType)],
    arrays: &[*mut u8],
    bytes: &[usize],
    parallel: &Threads<'_>,
) -> Option<()> {
    let (operands, results) = arrays.split_at_checked(widths.len())?;
    for &(column, element_type) in looked_at {
        // SAFETY: the caller's promise.
        if unsafe { has_nan(element_type, *operands.get(column)?, *bytes.get(column)?) } {
            return None;
        }
    }
    let mut columns = Vec::with_capacity(widths.len());
    for (((&from, &to), &bytes), &element_bytes) in operands.iter().zip(results).zip(bytes).zip(widths) {
        if from != to {
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        }
        // SAFETY: the caller's promise.
        let data = unsafe { slice_mut::<u8>(to, bytes) };
        columns.push(Column { data, element_bytes });
    }
    sort.run(&mut columns, parallel)
}

unsafe fn run_selection<S: Stored>(
    selection: &SelectAndScatter,
    arrays: &[*mut u8],
    bytes: &[usize],
    parallel: &Threads<'_>,
) -> Option<()>
where
    S::Compute: PartialOrd,
{
    let (&[operand, source, init, to], &[m, n, i, r]) = (arrays, bytes) else { return None };
    // SAFETY: the caller's promise.
    unsafe {
        let init = *slice::<S>(init, i).first()?;
        selection.run(slice::<S>(operand, m), slice(source, n), init, slice_mut(to, r), parallel)
    }
}

/// Whether there is a NaN among floats.
///
/// # Safety
/// As for [`slice()`].
unsafe fn has_nan(element_type: ElementType, address: *mut u8, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(format) = hloom_loops::small_float::format(element_type) {
            return slice::<u8>(address, bytes).iter().any(|&code| format.is_nan(code.into()));
        }
        match element_type {
            ElementType::F32 => slice::<f32>(address, bytes).iter().any(|x| x.is_nan()),
            ElementType::F64 => slice::<f64>(address, bytes).iter().any(|x| x.is_nan()),
            ElementType::Bf16 => slice::<bf16>(address, bytes).iter().any(|x| x.is_nan()),
            _ => slice::<f16>(address, bytes).iter().any(|x| x.is_nan()),
        }
    }
}

/// The number of elements of an array with those sizes.
pub(crate) fn count(dims: &[i64]) -> Result<usize, NoRoutine> {
    let product = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
    product.ok_or_else(|| "it is too large".into())
}

/// A key of the kernel.
fn key(key: &comparator::Key) -> Option<Key> {
    let float_order = if key.total { FloatOrder::Total } else { FloatOrder::Numeric };
    let order = Order { key_type: key_type(key.element_type)?, float_order, descending: key.descending };
    Some(Key { column: key.column, order })
}

/// The type of keys of an element type, if they have an order.
fn key_type(element_type: ElementType) -> Option<KeyType> {
    Some(match element_type {
        // Narrower integers are stored in bytes, with their sign.
        ElementType::U8 | ElementType::Pred | ElementType::U4 | ElementType::U2 | ElementType::U1 => KeyType::U8,
        ElementType::U16 => KeyType::U16,
        ElementType::U32 => KeyType::U32,
        ElementType::U64 => KeyType::U64,
        ElementType::S8 | ElementType::S4 | ElementType::S2 | ElementType::S1 => KeyType::S8,
        ElementType::S16 => KeyType::S16,
        ElementType::S32 => KeyType::S32,
        ElementType::S64 => KeyType::S64,
        ElementType::F16 => KeyType::F16,
        ElementType::Bf16 => KeyType::Bf16,
        ElementType::F32 => KeyType::F32,
        ElementType::F64 => KeyType::F64,
        other => KeyType::Small(hloom_loops::small_float::format(other)?),
    })
}

fn sort(module: &Module, instruction: &Instruction) -> Result<Routine, NoRoutine> {
    let Op::Sort { dimension, to_apply, .. } = &instruction.op else { return Err("it is no sort".into()) };
    let keys = keys_of(module, *to_apply).ok_or("its comparison is none that the kernel knows")?;
    let operands = instruction.operands();
    let shapes = operands.iter().map(|&o| array(module, o)).collect::<Result<Vec<_>, _>>()?;
    let shape = shapes.first().ok_or("it has no keys")?;
    let dimension = usize::try_from(*dimension).ok().filter(|&d| d < shape.rank()).ok_or("it has no such dimension")?;
    let sort = Sort {
        outer: count(&shape.dims()[..dimension])?,
        len: size(shape, dimension as i64)?,
        inner: count(&shape.dims()[dimension + 1..])?,
        keys: keys.iter().map(key).collect::<Option<_>>().ok_or("its type has no order")?,
    };
    if keys.iter().any(|k| shapes.get(k.column).is_none_or(|s| s.element_type != k.element_type)) {
        return Err("its keys are compared in another type than they have".into());
    }
    let looked_at = keys.iter().filter(|k| k.without_nan);
    let looked_at = looked_at.map(|k| Some((k.column, shapes.get(k.column)?.element_type))).collect::<Option<_>>();
    let widths = shapes.iter().map(|s| s.element_type.bytes()).collect();
    Ok(Routine::Sort(sort, widths, looked_at.ok_or("it has no such keys")?))
}

fn top_k(module: &Module, instruction: &Instruction) -> Result<Routine, NoRoutine> {
    let (Op::TopK { k, largest, .. }, &[operand]) = (&instruction.op, instruction.operands()) else {
        return Err("it is no choice from one array".into());
    };
    let shape = array(module, operand)?;
    let (&last, outer) = shape.dims().split_last().ok_or("it has no dimension")?;
    let key_type = key_type(shape.element_type).ok_or("its type has no order")?;
    let order = Order { key_type, float_order: FloatOrder::Total, descending: *largest };
    let (len, k) = (count(&[last])?, count(&[(*k).clamp(0, last)])?);
    let leaves = instruction.shape.leaves();
    if leaves.len() != 2 || leaves[1].1.element_type() != Some(ElementType::S32) {
        return Err("it gives other results".into());
    }
    Ok(Routine::TopK(TopK { rows: count(outer)?, len, k, order }))
}

fn fft(module: &Module, instruction: &Instruction) -> Result<Routine, NoRoutine> {
    let (Op::Fft { kind, length }, &[operand]) = (&instruction.op, instruction.operands()) else {
        return Err("it is no transform of one array".into());
    };
    let kind = match kind {
        FftType::Fft => FftKind::Forward,
        FftType::Ifft => FftKind::Inverse,
        FftType::Rfft => FftKind::RealForward,
        FftType::Irfft => FftKind::RealInverse,
    };
    let from = array(module, operand)?;
    let to = instruction.shape.as_array().ok_or("its result is no array")?;
    // The array of real numbers has the lengths; its spectrum is stored by half.
    let whole = if kind == FftKind::RealForward { from } else { to };
    let first = whole.rank().checked_sub(length.len()).ok_or("it has too many lengths")?;
    if whole.dims()[first..] != length[..] || length.is_empty() {
        return Err("its lengths are not those of the array".into());
    }
    let half = length.last().map(|n| n / 2 + 1);
    let stored = match kind {
        FftKind::RealForward => to.dims().last().copied() == half,
        FftKind::RealInverse => from.dims().last().copied() == half,
        _ => true,
    };
    if !stored {
        return Err("its spectrum is stored otherwise".into());
    }
    let batch = count(&whole.dims()[..first])?;
    let lengths = length.iter().map(|&n| count(&[n])).collect::<Result<Vec<_>, _>>()?;
    let is_double = match whole.element_type.component() {
        ElementType::F32 => false,
        ElementType::F64 => true,
        other => return Err(format!("there is no transform of {other}").into()),
    };
    let transform = Transform::new(kind, is_double, batch, &lengths).ok_or("there is nothing to transform")?;
    Ok(Routine::Fft(Box::new(transform)))
}

fn select_and_scatter(module: &Module, instruction: &Instruction) -> Result<Routine, NoRoutine> {
    let (Op::SelectAndScatter { window, select, scatter }, &[operand, source, init]) =
        (&instruction.op, instruction.operands())
    else {
        return Err("it is no selection from windows".into());
    };
    let keep = kept(module, *select).ok_or("what it selects is none that the kernel knows")?;
    if !adds(module, *scatter) {
        return Err("it does not add up".into());
    }
    let (operand, source, init) = (array(module, operand)?, array(module, source)?, array(module, init)?);
    let element_type = operand.element_type;
    let types = [source.element_type, init.element_type, instruction.shape.element_type().unwrap_or(element_type)];
    if !element_type.is_float() || element_type.bytes() < 2 || types.iter().any(|&t| t != element_type) {
        return Err(format!("there is no kernel for {element_type}").into());
    }
    let mut dims = Vec::new();
    for (d, w) in window.dims.iter().enumerate() {
        let positive = |n: i64| usize::try_from(n).ok().filter(|&n| n > 0).ok_or("its window is odd");
        if w.base_dilation != 1 || w.window_reversal {
            return Err("its window is dilated or reversed".into());
        }
        dims.push(WindowDim {
            operand: size(operand, d as i64)?,
            source: size(source, d as i64)?,
            size: positive(w.size)?,
            stride: positive(w.stride)?,
            dilation: positive(w.window_dilation)?,
            padding_low: isize::try_from(w.padding_low).map_err(|_| "its window is odd")?,
        });
    }
    let untouched = |d: &WindowDim| d.size == 1 && d.stride == 1 && d.padding_low == 0 && d.source == d.operand;
    let first = dims.iter().position(|d| !untouched(d)).unwrap_or(dims.len());
    let last = dims.iter().rposition(|d| !untouched(d)).map_or(first, |n| n + 1);
    let outer = count(&operand.dims()[..first])?;
    let inner = count(&operand.dims()[last..])?;
    let selection = SelectAndScatter { outer, dims: dims[first..last].to_vec(), inner, keep };
    Ok(Routine::SelectAndScatter(selection, element_type))
}

/// The numbers of the parameters that the operands of an instruction are.
fn parameters(module: &Module, id: InstructionId) -> Option<[i64; 2]> {
    let number = |o: InstructionId| match module[o].op {
        Op::Parameter { number, .. } => Some(number),
        _ => None,
    };
    match module[id].operands() {
        &[a, b] => Some([number(a)?, number(b)?]),
        _ => None,
    }
}

/// When the first parameter stays selected.
fn kept(module: &Module, select: ComputationId) -> Option<Keep> {
    let root = module.root(select)?;
    let Op::Compare { direction, kind } = &module[root].op else { return None };
    // NaN is in no order.
    if *kind == Some(ComparisonType::TotalOrder) {
        return None;
    }
    Some(match (direction, parameters(module, root)?) {
        (ComparisonDirection::Ge, [0, 1]) | (ComparisonDirection::Le, [1, 0]) => Keep::Ge,
        (ComparisonDirection::Gt, [0, 1]) | (ComparisonDirection::Lt, [1, 0]) => Keep::Gt,
        (ComparisonDirection::Le, [0, 1]) | (ComparisonDirection::Ge, [1, 0]) => Keep::Le,
        (ComparisonDirection::Lt, [0, 1]) | (ComparisonDirection::Gt, [1, 0]) => Keep::Lt,
        _ => return None,
    })
}

/// Whether a function is the sum of its parameters.
fn adds(module: &Module, function: ComputationId) -> bool {
    let sum = module.root(function).filter(|&r| matches!(module[r].op, Op::Binary(BinaryOp::Add)));
    matches!(sum.and_then(|r| parameters(module, r)), Some([0, 1] | [1, 0]))
}
