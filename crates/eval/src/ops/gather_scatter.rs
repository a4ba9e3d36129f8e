//! Gather and scatter: reading and writing slices at computed positions.
//!
//! Both walk the same index space: a batch index picks a vector of start indices, which is spread over the operand's
//! dimensions; a window index runs over the slice. [`Layout`] computes that once for either operation.

use crate::fold::Fold;
use crate::interpreter::{Device, OperandValues};
use crate::ops::arrays;
use crate::ops::data_movement::array_shape;
use crate::ops::reduction::{as_shaped, same_sizes};
use crate::scalar::Scalar;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::op::{Gather, Op, Scatter};
use hloom_value::ExecutionError;
use hloom_value::array::{Array, Value, strides};
use hloom_value::strided::{Indices, View, copy};

/// Evaluates one instruction of this family.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    match &module[i].op {
        Op::Gather(attributes) => {
            let [operand, indices] = arrays(operands)?;
            gather(&operand, &indices, attributes, array_shape(&module[i].shape)?.rank()).map(Value::Array)
        }
        Op::Scatter(attributes) => as_shaped(scatter(device, operands, attributes)?, &module[i].shape),
        other => Err(ExecutionError::bug(format!("{} neither gathers nor scatters", other.opcode()))),
    }
}

/// How start indices and windows lie in the operand.
struct Layout {
    /// The sizes of the batch: the indices' dimensions without the index vector's.
    batch_dims: DimVec,
    /// Where each batch dimension is among the indices' dimensions.
    batch_of_indices: DimVec,
    index_vector_dim: usize,
    /// `start_index_map`, `scatter_dims_to_operand_dims`.
    index_map: DimVec,
    /// Operand dimension → batch dimension it follows, for batching dimensions.
    batching: Vec<(usize, usize)>,
}

impl Layout {
    fn new(
        indices: &Array,
        index_vector_dim: i64,
        index_map: &[i64],
        operand_batching: &[i64],
        indices_batching: &[i64],
    ) -> Layout {
        let index_vector_dim = index_vector_dim as usize;
        let batch_of_indices: DimVec = (0..indices.rank() as i64).filter(|&d| d as usize != index_vector_dim).collect();
        let position = |d: i64| batch_of_indices.iter().position(|&b| b == d);
        let pairs = operand_batching.iter().zip(indices_batching);
        Layout {
            batch_dims: batch_of_indices.iter().map(|&d| indices.dims()[d as usize]).collect(),
            batching: pairs.filter_map(|(&o, &b)| Some((o as usize, position(b)?))).collect(),
            batch_of_indices,
            index_vector_dim,
            index_map: index_map.into(),
        }
    }

    /// The start index in the operand for one batch index, before any clamping.
    fn start(&self, indices: &Array, batch: &[i64], rank: usize) -> Result<DimVec, ExecutionError> {
        let index_strides = indices.strides();
        let base: i64 = self.batch_of_indices.iter().zip(batch).map(|(&d, &b)| index_strides[d as usize] * b).sum();
        let step = index_strides.get(self.index_vector_dim).copied().unwrap_or(0);
        let mut start = DimVec::from_elem(0, rank);
        for (k, &d) in self.index_map.iter().enumerate() {
            start[d as usize] = indices.integer_at((base + k as i64 * step) as usize)?;
        }
        for &(operand_dim, batch_dim) in &self.batching {
            start[operand_dim] = batch[batch_dim];
        }
        Ok(start)
    }
}

fn gather(operand: &Array, indices: &Array, attributes: &Gather, rank: usize) -> Result<Array, ExecutionError> {
    let dims = &attributes.dims;
    let layout = Layout::new(
        indices,
        dims.index_vector_dim,
        &dims.start_index_map,
        &dims.operand_batching_dims,
        &dims.start_indices_batching_dims,
    );
    let dropped = |d: i64| dims.collapsed_slice_dims.contains(&d) || dims.operand_batching_dims.contains(&d);
    // The slice's dimensions that stay, and where they go in the result.
    let window: DimVec = (0..operand.rank() as i64).filter(|&d| !dropped(d)).collect();
    let batch_out: DimVec = (0..rank as i64).filter(|d| !dims.offset_dims.contains(d)).collect();
    let mut result_dims = DimVec::from_elem(0, rank);
    for (&d, &w) in dims.offset_dims.iter().zip(&window) {
        result_dims[d as usize] = attributes.slice_sizes[w as usize].min(operand.dims()[w as usize]);
    }
    for (&d, &size) in batch_out.iter().zip(&layout.batch_dims) {
        result_dims[d as usize] = size;
    }
    let mut result = Array::zeroed(operand.element_type(), &result_dims)?;
    let (operand_strides, result_strides) = (operand.strides(), strides(&result_dims));
    let slice: DimVec = dims.offset_dims.iter().map(|&d| result_dims[d as usize]).collect();
    let mut from = View { start: 0, strides: window.iter().map(|&w| operand_strides[w as usize]).collect() };
    let mut to = View { start: 0, strides: dims.offset_dims.iter().map(|&d| result_strides[d as usize]).collect() };
    if slice.contains(&0) || operand.is_empty() {
        return Ok(result);
    }
    for batch in Indices::new(&layout.batch_dims) {
        let mut start = layout.start(indices, &batch, operand.rank())?;
        // A slice that would reach outside is moved inside.
        for (d, s) in start.iter_mut().enumerate() {
            // A dimension that is dropped may have a slice size of zero; one element is taken all the same.
            *s = (*s).min(operand.dims()[d] - attributes.slice_sizes[d].max(1)).max(0);
        }
        from.start = start.iter().zip(&operand_strides).map(|(s, stride)| s * stride).sum();
        to.start = batch_out.iter().zip(&batch).map(|(&d, b)| result_strides[d as usize] * b).sum();
        copy(&slice, operand, &from, &mut result, &to)?;
    }
    Ok(result)
}

fn scatter(
    device: &mut Device<'_>,
    operands: OperandValues,
    attributes: &Scatter,
) -> Result<Vec<Array>, ExecutionError> {
    let mut arrays = operands.into_iter().map(Value::into_array).collect::<Result<Vec<_>, _>>()?;
    let count = arrays.len() / 2;
    if arrays.len() != 2 * count + 1 || count == 0 {
        return Err(ExecutionError::bug("scatter needs as many updates as operands"));
    }
    let updates = arrays.split_off(count + 1);
    let indices = arrays.pop().ok_or_else(|| ExecutionError::bug("scatter has no indices"))?;
    let mut results = arrays;
    results.iter_mut().try_for_each(Array::unshare)?;
    same_sizes(&results)?;
    same_sizes(&updates)?;
    let dims = &attributes.dims;
    let layout = Layout::new(
        &indices,
        dims.index_vector_dim,
        &dims.scatter_dims_to_operand_dims,
        &dims.input_batching_dims,
        &dims.scatter_indices_batching_dims,
    );
    let rank = results[0].rank();
    let inserted = |d: i64| dims.inserted_window_dims.contains(&d) || dims.input_batching_dims.contains(&d);
    let window: DimVec = (0..rank as i64).filter(|&d| !inserted(d)).collect();
    let update_dims: DimVec = updates[0].dims().into();
    let batch_in: DimVec = (0..update_dims.len() as i64).filter(|d| !dims.update_window_dims.contains(d)).collect();
    let slice: DimVec = dims.update_window_dims.iter().map(|&d| update_dims[d as usize]).collect();
    let (operand_dims, operand_strides): (DimVec, DimVec) = (results[0].dims().into(), results[0].strides());
    let update_strides = strides(&update_dims);

    let types: Vec<ElementType> = results.iter().map(Array::element_type).collect();
    let given: Vec<ElementType> = results.iter().chain(&updates).map(Array::element_type).collect();
    let mut combine = Fold::new(device, attributes.to_apply, &given, &types)?;
    let mut arguments = vec![Scalar::default(); 2 * count];
    let batch_sizes: DimVec = batch_in.iter().map(|&d| update_dims[d as usize]).collect();
    for (n, batch) in Indices::new(&batch_sizes).enumerate() {
        let start = layout.start(&indices, &batch, rank)?;
        // An update whose window does not lie inside as a whole is dropped as a whole.
        let mut extent = DimVec::from_elem(1, rank);
        for (&w, &size) in window.iter().zip(&slice) {
            extent[w as usize] = size;
        }
        let fits = (0..rank).all(|d| start[d] >= 0 && start[d].saturating_add(extent[d]) <= operand_dims[d]);
        if !fits {
            continue;
        }
        let base: i64 = start.iter().zip(&operand_strides).map(|(s, stride)| s * stride).sum();
        let update_base: i64 = batch_in.iter().zip(&batch).map(|(&d, b)| update_strides[d as usize] * b).sum();
        for index in Indices::new(&slice) {
            let mut at = base;
            let mut from = update_base;
            for (k, &w) in index.iter().enumerate() {
                at += w * operand_strides[window[k] as usize];
                from += w * update_strides[dims.update_window_dims[k] as usize];
            }
            let (at, from) = (at as usize, from as usize);
            for k in 0..count {
                arguments[k] = Scalar::load(&results[k], at);
                arguments[count + k] = Scalar::load(&updates[k], from);
            }
            for (result, value) in results.iter_mut().zip(combine.apply(device, &arguments)?) {
                let width = result.element_type().bytes();
                value.store(&mut result.bytes_mut()[at * width..(at + 1) * width]);
            }
        }
        if n % 4096 == 0 {
            device.check_cancelled()?;
        }
    }
    Ok(results)
}
