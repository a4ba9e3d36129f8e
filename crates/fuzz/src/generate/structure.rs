//! Steps that make leaves, or move elements without changing them.

use super::Generator;
use super::body::Body;
use super::elementwise::index_scalar;
use super::shapes::all_dims;
use hloom_ir::attributes::{PaddingDim, SliceDim};
use hloom_ir::element_type::ElementType::{Pred, S32};
use hloom_ir::layout::DimVec;
use hloom_ir::op::Op;
use hloom_ir::shape::{ArrayShape, Shape};

/// A constant array.
pub(super) fn constant(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let shape = g.any_shape();
    if shape.element_count()? <= 64 {
        g.constant(body, &shape);
    }
    Some(())
}

/// Rising numbers.
pub(super) fn iota(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let t = g.type_where(S32, |t| t != Pred);
    let shape = g.any_shape_of(t);
    if shape.rank() == 0 {
        return None;
    }
    let dimension = g.choices.below(shape.rank()) as i64;
    g.add(body, Op::Iota { dimension }, shape, []);
    Some(())
}

/// The same elements in other dimensions.
pub(super) fn reshape(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |_| true)?;
    let mut dims = shape.dims().to_vec();
    for _ in 0..g.choices.between(1, 3) {
        let at = g.choices.below(dims.len() + 1);
        match g.choices.below(3) {
            // A dimension of one more, two dimensions as one, or one as two.
            0 if dims.len() < 6 => dims.insert(at, 1),
            1 if at + 1 < dims.len() => {
                let inner = dims.remove(at + 1);
                dims[at] *= inner;
            }
            2 if at < dims.len() && dims[at] > 1 && dims.len() < 6 => {
                if let Some(factor) = (2..dims[at]).find(|f| dims[at] % f == 0) {
                    dims[at] /= factor;
                    dims.insert(at, factor);
                }
            }
            _ => {}
        }
    }
    let result = ArrayShape::new(shape.element_type, dims);
    g.add(body, Op::Reshape { inferred_dimension: None }, result, [x]);
    Some(())
}

/// The same array many times over.
pub(super) fn broadcast(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |a| a.rank() < 5)?;
    let mut dims: Vec<(i64, Option<i64>)> = shape.dims().iter().zip(0..).map(|(&s, d)| (s, Some(d))).collect();
    for _ in 0..g.choices.between(0, 2) {
        let at = g.choices.below(dims.len() + 1);
        let size = g.any_size(8);
        dims.insert(at, (size, None));
    }
    let sizes: Vec<i64> = dims.iter().map(|d| d.0).collect();
    if !g.is_small_enough(&sizes) {
        return None;
    }
    let dimensions = (0..).zip(&dims).filter(|(_, d)| d.1.is_some()).map(|(i, _)| i).collect();
    g.add(body, Op::Broadcast { dimensions }, Shape::array(shape.element_type, sizes), [x]);
    Some(())
}

/// Dimensions in another order.
pub(super) fn transpose(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |a| a.rank() > 1)?;
    let mut dimensions = all_dims(shape.rank());
    g.choices.shuffle(&mut dimensions);
    let dims: DimVec = dimensions.iter().map(|&d| shape.dims()[d as usize]).collect();
    g.add(body, Op::Transpose { dimensions }, Shape::array(shape.element_type, dims), [x]);
    Some(())
}

/// Dimensions from the end to the start.
pub(super) fn reverse(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |a| a.rank() > 0)?;
    let dimensions = g.choices.subset(shape.rank()).into_iter().map(|d| d as i64).collect();
    g.add(body, Op::Reverse { dimensions }, shape, [x]);
    Some(())
}

/// Arrays one after another.
pub(super) fn concatenate(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |a| a.rank() > 0)?;
    let at = g.choices.below(shape.rank());
    let mut operands = vec![x];
    let mut dims = shape.dims().to_vec();
    for _ in 0..g.choices.between(0, 7) {
        let mut part = shape.dims().to_vec();
        if g.choices.chance(50) {
            part[at] = g.any_size(4);
        }
        let mut larger = dims.clone();
        larger[at] += part[at];
        if g.is_small_enough(&larger) {
            let part = ArrayShape::new(shape.element_type, part);
            operands.push(g.value_of(body, &part));
            dims = larger;
        }
    }
    g.add(body, Op::Concatenate { dimension: at as i64 }, Shape::array(shape.element_type, dims), operands);
    Some(())
}

/// A part with fixed bounds.
pub(super) fn slice(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |_| true)?;
    let mut dims = Vec::new();
    for &size in shape.dims() {
        let start = g.choices.between(0, size);
        let limit = g.choices.between(start, size);
        let (start, limit) = if g.choices.chance(40) { (start, limit) } else { (0, size) };
        let stride = if g.choices.chance(25) { g.choices.between(1, 3) } else { 1 };
        dims.push(SliceDim { start, limit, stride });
    }
    let sizes: DimVec = dims.iter().map(|d| (d.limit - d.start + d.stride - 1) / d.stride).collect();
    g.add(body, Op::Slice { dims: dims.into() }, Shape::array(shape.element_type, sizes), [x]);
    Some(())
}

/// A part with computed bounds.
pub(super) fn dynamic_slice(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |_| true)?;
    let sizes: DimVec = shape.dims().iter().map(|&size| g.choices.between(size.min(1), size)).collect();
    let mut operands = vec![x];
    operands.extend(shape.dims().iter().map(|&size| index_scalar(g, body, size)));
    g.add(body, Op::DynamicSlice { sizes: sizes.clone() }, Shape::array(shape.element_type, sizes), operands);
    Some(())
}

/// A part replaced, with computed bounds.
pub(super) fn dynamic_update_slice(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |_| true)?;
    let sizes: DimVec = shape.dims().iter().map(|&size| g.choices.between(size.min(1), size)).collect();
    let update = ArrayShape::new(shape.element_type, sizes);
    let mut operands = vec![x, g.value_of(body, &update)];
    operands.extend(shape.dims().iter().map(|&size| index_scalar(g, body, size)));
    g.add(body, Op::DynamicUpdateSlice, shape, operands);
    Some(())
}

/// Elements around and between; negative padding takes some away.
pub(super) fn pad(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |a| a.rank() > 0)?;
    let mut padding = Vec::new();
    for _ in 0..shape.rank() {
        let interior = if g.choices.chance(25) { g.choices.between(0, 2) } else { 0 };
        padding.push(PaddingDim { low: g.choices.between(-1, 2), high: g.choices.between(-1, 2), interior });
    }
    let dims: DimVec = shape
        .dims()
        .iter()
        .zip(&padding)
        .map(|(&size, p)| size + p.low + p.high + p.interior * (size - 1).max(0))
        .collect();
    if !g.is_small_enough(&dims) {
        return None;
    }
    let with = g.value_of(body, &ArrayShape::new(shape.element_type, []));
    g.add(body, Op::Pad { padding: padding.into() }, Shape::array(shape.element_type, dims), [x, with]);
    Some(())
}

/// The same elsewhere.
pub(super) fn copy(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find(body, |_| true)?;
    g.add(body, Op::Copy, shape, [x]);
    Some(())
}

/// A tuple, and elements of it.
pub(super) fn tuple(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let mut parts = Vec::new();
    for _ in 0..g.choices.between(0, 7) {
        parts.push(g.find(body, |_| true)?);
    }
    let shape = Shape::tuple(parts.iter().map(|p| p.1.clone().into()));
    let tuple = g.add(body, Op::Tuple, shape, parts.iter().map(|p| p.0));
    for (index, (_, shape)) in parts.into_iter().enumerate() {
        if g.choices.chance(40) {
            g.add(body, Op::GetTupleElement { index: index as i64 }, shape, [tuple]);
        }
    }
    Some(())
}

/// A tuple in a tuple.
pub(super) fn nested_tuple(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find(body, |_| true)?;
    let inner_shape = Shape::tuple([shape.clone().into()]);
    let inner = g.add(body, Op::Tuple, inner_shape.clone(), [x]);
    let outer_shape = Shape::tuple([shape.clone().into(), inner_shape.clone()]);
    let outer = g.add(body, Op::Tuple, outer_shape, [x, inner]);
    let inner = g.add(body, Op::GetTupleElement { index: 1 }, inner_shape, [outer]);
    g.add(body, Op::GetTupleElement { index: 0 }, shape, [inner]);
    Some(())
}

/// The size of a dimension, asked for or set.
pub(super) fn dimension_size(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find(body, |a| a.rank() > 0)?;
    let at = g.choices.below(shape.rank());
    let dimension = at as i64;
    if !g.options.dynamic || g.choices.chance(50) {
        g.add(body, Op::GetDimensionSize { dimension }, Shape::scalar(S32), [x]);
        return Some(());
    }
    let size = g.choices.between(0, shape.dims()[at]);
    let size = g.integer(body, S32, size);
    let dynamic = (0..shape.rank()).map(|d| d == at || shape.is_dynamic_dim(d));
    let result = ArrayShape::with_dynamic(shape.element_type, shape.dims().iter().copied(), dynamic);
    g.add(body, Op::SetDimensionSize { dimension }, result, [x, size]);
    Some(())
}

/// Something the optimiser must not look through.
pub(super) fn barrier(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find(body, |_| true)?;
    g.add(body, Op::OptBarrier, shape, [x]);
    Some(())
}
