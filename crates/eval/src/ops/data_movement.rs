//! Operations that make arrays of elements that are there already: constants, iota, reshapes, broadcasts, slices, pads.
//!
//! All but constants and iota are one or more strided copies ([`hloom_value::strided`]).

use crate::interpreter::{Device, OperandValues};
use crate::ops::dynamic::resize;
use crate::ops::{arrays, bitcast, elementwise};
use crate::scalar::Scalar;
use hloom_ir::attributes::{PaddingDim, SliceDim};
use hloom_ir::diagnostic::codes;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::op::Op;
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_value::ExecutionError;
use hloom_value::array::{Array, Value, index_count, strides};
use hloom_value::strided::{View, copy};

/// Evaluates one instruction of this family.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    let shape = &module[i].shape;
    let array = match &module[i].op {
        Op::Constant(_) => return constant(device, i),
        Op::Iota { dimension } => iota(array_shape(shape)?, *dimension as usize)?,
        Op::Copy => return operands.into_iter().next().ok_or_else(|| ExecutionError::bug("copy has no operand")),
        Op::Bitcast => return bitcast::evaluate(device, i, operands),
        Op::Reshape { .. } => {
            let [operand] = arrays(operands)?;
            let dims = reshaped_dims(array_shape(shape)?, &operand)?;
            if index_count(&dims) != operand.len() {
                let message = format!("the sizes of {shape} do not follow from those of {}", operand.shape());
                return Err(ExecutionError::new(&codes::eval::UNSUPPORTED, message));
            }
            operand.reshaped(&dims)?
        }
        Op::Broadcast { dimensions } => {
            let [operand] = arrays(operands)?;
            broadcast(&operand, array_shape(shape)?.dims(), dimensions)?
        }
        Op::Transpose { dimensions } => {
            let [operand] = arrays(operands)?;
            transpose(operand, dimensions)?
        }
        Op::Reverse { dimensions } => {
            let [operand] = arrays(operands)?;
            reverse(&operand, dimensions)?
        }
        Op::Concatenate { dimension } => {
            let parts = operands.into_iter().map(Value::into_array).collect::<Result<Vec<_>, _>>()?;
            concatenate(&parts, *dimension as usize)?
        }
        Op::Slice { dims } => {
            let [operand] = arrays(operands)?;
            slice(&operand, dims)?
        }
        Op::DynamicSlice { sizes } => {
            let mut operands = operands.into_iter();
            let operand =
                operands.next().ok_or_else(|| ExecutionError::bug("dynamic-slice has no operand"))?.into_array()?;
            let starts = start_indices(operands, operand.dims(), sizes)?;
            // An array that is smaller now than its bound has nothing beyond its size; what is read there is not defined.
            if operand.dims().iter().zip(sizes).any(|(n, size)| n < size) {
                let grown: DimVec = operand.dims().iter().zip(sizes).map(|(&n, &size)| n.max(size)).collect();
                return dynamic_slice(&resize(&operand, &grown)?, &starts, sizes).map(Value::Array);
            }
            dynamic_slice(&operand, &starts, sizes)?
        }
        Op::DynamicUpdateSlice => {
            let mut operands = operands.into_iter();
            let mut next =
                || operands.next().ok_or_else(|| ExecutionError::bug("dynamic-update-slice lacks an operand"));
            let (operand, update) = (next()?.into_array()?, next()?.into_array()?);
            let starts = start_indices(operands, operand.dims(), update.dims())?;
            if operand.dims().iter().zip(update.dims()).any(|(n, size)| n < size) {
                return Err(ExecutionError::new(
                    &codes::eval::UNSUPPORTED,
                    format!("{} does not fit into {}, whose sizes are dynamic", update.shape(), operand.shape()),
                ));
            }
            dynamic_update_slice(operand, &update, &starts)?
        }
        Op::Pad { padding } => {
            let [operand, value] = arrays(operands)?;
            pad(&operand, &value, padding)?
        }
        other => return Err(ExecutionError::bug(format!("{} does not move data", other.opcode()))),
    };
    Ok(Value::Array(array))
}

/// The array shape of a result.
pub fn array_shape(shape: &Shape) -> Result<&ArrayShape, ExecutionError> {
    shape.as_array_or_buffer().ok_or_else(|| ExecutionError::bug(format!("{shape} is not an array")))
}

fn constant(device: &Device<'_>, i: InstructionId) -> Result<Value, ExecutionError> {
    device.shared.prepared.constants.get(&i).cloned().ok_or_else(|| {
        let instruction = &device.module()[i];
        ExecutionError::new(
            &codes::eval::ELIDED_CONSTANT,
            format!("the value of {} is not in the dump: {} constant({{...}})", instruction.name(), instruction.shape),
        )
        .help("dump with --xla_dump_large_constants, or run with --fill-constants to use made-up values")
    })
}

/// The position of each element along `dimension`.
pub fn iota(shape: &ArrayShape, dimension: usize) -> Result<Array, ExecutionError> {
    let size = shape.dims().get(dimension).copied().ok_or_else(|| ExecutionError::bug("iota has no such dimension"))?;
    let element_type = shape.element_type;
    if shape.dims().contains(&0) {
        return Array::zeroed(element_type, shape.dims());
    }
    let convert = elementwise::convert_function(ElementType::S64, element_type)
        .ok_or_else(|| ExecutionError::bug(format!("s64 cannot become {element_type}")))?;
    let mut line = Array::zeroed(element_type, &[size])?;
    let width = element_type.bytes();
    for (n, element) in line.bytes_mut().chunks_exact_mut(width).enumerate() {
        convert(Scalar(n as u128)).store(element);
    }
    broadcast(&line, shape.dims(), &[dimension as i64])
}

/// The actual sizes of a reshape's result. Where one dimension of the result is dynamic, it takes what is left.
fn reshaped_dims(shape: &ArrayShape, operand: &Array) -> Result<DimVec, ExecutionError> {
    let mut dims: DimVec = shape.dims().into();
    let dynamic: Vec<usize> = (0..shape.rank()).filter(|&d| shape.is_dynamic_dim(d)).collect();
    if let [d] = dynamic[..] {
        let others: DimVec = dims.iter().enumerate().filter(|&(e, _)| e != d).map(|(_, &n)| n).collect();
        let others = index_count(&others) as i64;
        if others > 0 {
            dims[d] = operand.len() as i64 / others;
        }
    }
    Ok(dims)
}

/// `operand`'s dimension `k` becomes dimension `dimensions[k]` of the result; along the others it repeats. A dimension
/// that the operand has takes the operand's actual size.
pub fn broadcast(operand: &Array, dims: &[i64], dimensions: &[i64]) -> Result<Array, ExecutionError> {
    let mut dims: DimVec = dims.into();
    let mut view = View { start: 0, strides: DimVec::from_elem(0, dims.len()) };
    for ((&d, &stride), &size) in dimensions.iter().zip(&operand.strides()).zip(operand.dims()) {
        let d = usize::try_from(d)
            .ok()
            .filter(|&d| d < dims.len())
            .ok_or_else(|| ExecutionError::bug("no such dimension"))?;
        view.strides[d] = stride;
        dims[d] = size;
    }
    let mut result = Array::zeroed(operand.element_type(), &dims)?;
    copy(&dims, operand, &view, &mut result, &View::whole(&dims))?;
    Ok(result)
}

/// Dimension `k` of the result is dimension `dimensions[k]` of `operand`.
pub fn transpose(operand: Array, dimensions: &[i64]) -> Result<Array, ExecutionError> {
    let from = operand.strides();
    let pick = |list: &[i64]| -> Result<DimVec, ExecutionError> {
        let at = |&d: &i64| list.get(d as usize).copied().ok_or_else(|| ExecutionError::bug("no such dimension"));
        dimensions.iter().map(at).collect()
    };
    let dims = pick(operand.dims())?;
    if dimensions.iter().enumerate().all(|(k, &d)| d == k as i64) {
        return Ok(operand);
    }
    // Moving only dimensions of size one changes nothing in memory.
    let moved = dimensions.iter().filter(|&&d| operand.dims()[d as usize] != 1);
    if moved.is_sorted() {
        return operand.reshaped(&dims);
    }
    let mut result = Array::zeroed(operand.element_type(), &dims)?;
    copy(&dims, &operand, &View { start: 0, strides: pick(&from)? }, &mut result, &View::whole(&dims))?;
    Ok(result)
}

/// `operand` mirrored along `dimensions`.
pub fn reverse(operand: &Array, dimensions: &[i64]) -> Result<Array, ExecutionError> {
    if operand.is_empty() {
        return Ok(operand.clone());
    }
    let mut view = View::whole(operand.dims());
    for &d in dimensions {
        let d = d as usize;
        view.start += view.strides[d] * (operand.dims()[d] - 1);
        view.strides[d] = -view.strides[d];
    }
    let mut result = Array::zeroed(operand.element_type(), operand.dims())?;
    copy(operand.dims(), operand, &view, &mut result, &View::whole(operand.dims()))?;
    Ok(result)
}

/// The arrays one after another along `dimension`.
pub fn concatenate(parts: &[Array], dimension: usize) -> Result<Array, ExecutionError> {
    let first = parts.first().ok_or_else(|| ExecutionError::bug("concatenate has no operand"))?;
    let mut dims: DimVec = first.dims().into();
    dims[dimension] = parts.iter().map(|p| p.dims()[dimension]).sum();
    let mut result = Array::zeroed(first.element_type(), &dims)?;
    if result.is_empty() {
        return Ok(result);
    }
    let mut view = View::whole(&dims);
    for part in parts {
        copy(part.dims(), part, &View::whole(part.dims()), &mut result, &view)?;
        view.start += part.dims()[dimension] * view.strides[dimension];
    }
    Ok(result)
}

pub(crate) fn slice(operand: &Array, slices: &[SliceDim]) -> Result<Array, ExecutionError> {
    let mut view = View::whole(operand.dims());
    let sizes = slices.iter().zip(operand.dims()).map(|(s, &size)| {
        let limit = s.limit.min(size);
        div_ceil((limit - s.start).max(0), s.stride.max(1))
    });
    let dims: DimVec = sizes.collect();
    if dims.contains(&0) {
        return Array::zeroed(operand.element_type(), &dims);
    }
    for (d, s) in slices.iter().enumerate() {
        view.start += s.start * view.strides[d];
        // One element along the dimension: the stride, however large, leads nowhere.
        view.strides[d] = view.strides[d].saturating_mul(s.stride);
    }
    let mut result = Array::zeroed(operand.element_type(), &dims)?;
    copy(&dims, operand, &view, &mut result, &View::whole(&dims))?;
    Ok(result)
}

/// `n / by` rounded up, for `n` not negative.
fn div_ceil(n: i64, by: i64) -> i64 {
    n / by + i64::from(n % by != 0)
}

/// The leading part of `array` with those sizes.
pub fn slice_to(array: &Array, sizes: &[i64]) -> Result<Array, ExecutionError> {
    dynamic_slice(array, &DimVec::from_elem(0, sizes.len()), sizes)
}

/// Start indices from the operands of dynamic-slice and dynamic-update-slice (one scalar per dimension, or one vector in
/// old dumps), clamped so that the slice lies inside.
fn start_indices(indices: impl Iterator<Item = Value>, dims: &[i64], sizes: &[i64]) -> Result<DimVec, ExecutionError> {
    let mut starts = DimVec::new();
    for index in indices {
        let index = index.into_array()?;
        match index.rank() {
            0 => starts.push(index.to_i64()?),
            _ => {
                for n in 0..index.len() {
                    starts.push(index.integer_at(n)?);
                }
            }
        }
    }
    if starts.len() != dims.len() || sizes.len() != dims.len() {
        return Err(ExecutionError::bug("there is not one start index for each dimension"));
    }
    for ((start, &size), &dim) in starts.iter_mut().zip(sizes).zip(dims) {
        *start = (*start).min(dim - size).max(0);
    }
    Ok(starts)
}

/// The part of `operand` of those sizes from `starts` on, which must lie inside.
pub fn dynamic_slice(operand: &Array, starts: &[i64], sizes: &[i64]) -> Result<Array, ExecutionError> {
    let mut result = Array::zeroed(operand.element_type(), sizes)?;
    if result.is_empty() {
        return Ok(result);
    }
    let mut view = View::whole(operand.dims());
    view.start = starts.iter().zip(&view.strides).map(|(s, stride)| s * stride).sum();
    copy(sizes, operand, &view, &mut result, &View::whole(sizes))?;
    Ok(result)
}

/// `operand` with `update` written over the part from `starts` on, which must lie inside.
pub fn dynamic_update_slice(mut operand: Array, update: &Array, starts: &[i64]) -> Result<Array, ExecutionError> {
    if update.is_empty() {
        return Ok(operand);
    }
    let mut view = View::whole(operand.dims());
    view.start = starts.iter().zip(&view.strides).map(|(s, stride)| s * stride).sum();
    copy(update.dims(), update, &View::whole(update.dims()), &mut operand, &view)?;
    Ok(operand)
}

/// `operand` with `value` around and between its elements; negative amounts take elements away.
pub fn pad(operand: &Array, value: &Array, padding: &[PaddingDim]) -> Result<Array, ExecutionError> {
    let mut dims = DimVec::new();
    // The part of the operand that is kept, and where it goes.
    let (mut kept, mut from, mut start) = (DimVec::new(), View::whole(operand.dims()), DimVec::new());
    for (d, p) in padding.iter().enumerate() {
        // Amounts may be as large as numbers are, even where nothing of them is left.
        let (size, low) = (i128::from(operand.dims()[d]), i128::from(p.low));
        let step = i128::from(p.interior) + 1;
        let spread = if size == 0 { 0 } else { (size - 1) * step + 1 };
        let total = (spread + low + i128::from(p.high)).max(0);
        // Element k lands at low + k × step, if that is inside.
        let first = if low < 0 { (-low + step - 1) / step } else { 0 };
        let end = if total > low { ((total - low + step - 1) / step).min(size) } else { 0 };
        let fits = |n: i128| i64::try_from(n).map_err(|_| ExecutionError::bug("a padded size cannot be counted"));
        dims.push(fits(total)?);
        kept.push(fits((end - first).max(0))?);
        if end > first {
            from.start = from.start.saturating_add(fits(first)?.saturating_mul(from.strides[d]));
            start.push(fits(low + first * step)?);
        }
    }
    if kept.contains(&0) {
        return broadcast(value, &dims, &[]);
    }
    let mut result = broadcast(value, &dims, &[])?;
    let whole = strides(&dims);
    let to = View {
        start: start.iter().zip(&whole).map(|(s, stride)| s * stride).sum(),
        strides: whole.iter().zip(padding).map(|(s, p)| s.saturating_mul(p.interior.saturating_add(1))).collect(),
    };
    copy(&kept, operand, &from, &mut result, &to)?;
    Ok(result)
}
