//! Gather and scatter.
//!
//! Both are made from the same plan: which dimensions of the operand a slice covers, how the indices are laid out, and
//! where the slice's dimensions stand among those of the result (or of the updates).

use super::Generator;
use super::body::Body;
use super::shapes::without;
use hloom_ir::attributes::{GatherDimensionNumbers, ScatterDimensionNumbers};
use hloom_ir::element_type::ElementType::{S32, S64};
use hloom_ir::layout::DimVec;
use hloom_ir::op::{Gather, Op, Scatter};
use hloom_ir::shape::{ArrayShape, Shape};

struct Plan {
    slice_sizes: DimVec,
    collapsed: Vec<usize>,
    operand_batching: DimVec,
    indices_batching: DimVec,
    index_map: DimVec,
    indices: Vec<i64>,
    index_vector_dim: i64,
    offset_dims: DimVec,
    result: DimVec,
}

fn plan(g: &mut Generator<'_, '_>, dims: &[i64]) -> Option<Plan> {
    let rank = dims.len();
    let mut slice_sizes: DimVec = dims.iter().map(|&size| g.choices.between(size.min(1), size)).collect();
    let mut batch_dims: Vec<i64> = (0..g.choices.below(3)).map(|_| g.any_size(4)).collect();
    // One dimension may be walked together with one of the indices.
    let batching = (!batch_dims.is_empty() && rank > 0 && g.choices.chance(25)).then(|| g.choices.below(rank));
    if let Some(d) = batching {
        batch_dims[0] = dims[d];
        slice_sizes[d] = dims[d].min(1);
        if dims[d] == 0 {
            return None;
        }
    }
    let mut collapsed: Vec<usize> = g.choices.subset(rank);
    collapsed.retain(|&d| slice_sizes[d] == 1 && Some(d) != batching);
    let mut index_map: DimVec = (0..rank as i64).filter(|&d| Some(d as usize) != batching).collect();
    g.choices.shuffle(&mut index_map);
    index_map.truncate(g.choices.between(0, index_map.len() as i64) as usize);
    // A single index may stand without a dimension of its own.
    let (indices, index_vector_dim) = if index_map.len() == 1 && g.choices.chance(30) {
        (batch_dims.clone(), batch_dims.len())
    } else {
        let at = g.choices.below(batch_dims.len() + 1);
        let mut indices = batch_dims.clone();
        indices.insert(at, index_map.len() as i64);
        (indices, at)
    };
    // The batching dimension is the first of the indices' batch dimensions, wherever the vector stands.
    let batching_position = if index_vector_dim == 0 && indices.len() > batch_dims.len() { 1 } else { 0 };
    let mut gone = collapsed.clone();
    gone.extend(batching);
    let offsets = without(&slice_sizes, &gone);
    // Offset dimensions stand anywhere among the result's, in order.
    let total = offsets.len() + batch_dims.len();
    let mut positions: Vec<usize> = (0..total).collect();
    g.choices.shuffle(&mut positions);
    positions.truncate(offsets.len());
    positions.sort_unstable();
    let (mut offset, mut batch) = (offsets.iter(), batch_dims.iter());
    let result: DimVec =
        (0..total).filter_map(|d| if positions.contains(&d) { offset.next() } else { batch.next() }).copied().collect();
    if !g.is_small_enough(&result) || !g.is_small_enough(&indices) {
        return None;
    }
    Some(Plan {
        slice_sizes,
        collapsed,
        operand_batching: batching.iter().map(|&d| d as i64).collect(),
        indices_batching: batching.iter().map(|_| batching_position).collect(),
        index_map,
        indices,
        index_vector_dim: index_vector_dim as i64,
        offset_dims: positions.iter().map(|&d| d as i64).collect(),
        result,
    })
}

/// Slices taken from an array.
pub(super) fn gather(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |a| a.rank() < 5)?;
    let plan = plan(g, shape.dims())?;
    let indices = ArrayShape::new(*g.choices.pick(&[S32, S64]), plan.indices);
    let indices = g.value_of(body, &indices);
    let op = Gather {
        dims: GatherDimensionNumbers {
            offset_dims: plan.offset_dims,
            collapsed_slice_dims: plan.collapsed.iter().map(|&d| d as i64).collect(),
            start_index_map: plan.index_map,
            operand_batching_dims: plan.operand_batching,
            start_indices_batching_dims: plan.indices_batching,
            index_vector_dim: plan.index_vector_dim,
        },
        slice_sizes: plan.slice_sizes,
        indices_are_sorted: !g.options.runnable && g.choices.chance(20),
    };
    g.add(body, Op::Gather(Box::new(op)), Shape::array(shape.element_type, plan.result), [x, indices]);
    Some(())
}

/// Slices combined into an array.
pub(super) fn scatter(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |a| a.rank() < 5)?;
    let plan = plan(g, shape.dims())?;
    let t = shape.element_type;
    let indices = ArrayShape::new(*g.choices.pick(&[S32, S64]), plan.indices);
    let indices = g.value_of(body, &indices);
    let updates = g.value_of(body, &ArrayShape::new(t, plan.result));
    let combiner = g.combiner(t);
    let op = Scatter {
        dims: ScatterDimensionNumbers {
            update_window_dims: plan.offset_dims,
            inserted_window_dims: plan.collapsed.iter().map(|&d| d as i64).collect(),
            scatter_dims_to_operand_dims: plan.index_map,
            input_batching_dims: plan.operand_batching,
            scatter_indices_batching_dims: plan.indices_batching,
            index_vector_dim: plan.index_vector_dim,
        },
        indices_are_sorted: !g.options.runnable && g.choices.chance(20),
        unique_indices: !g.options.runnable && g.choices.chance(20),
        to_apply: g.scalar_computation(combiner, t),
    };
    g.add(body, Op::Scatter(Box::new(op)), shape, [x, indices, updates]);
    Some(())
}
