//! Steps that combine elements: reductions, windows, sorts.

use super::Generator;
use super::body::Body;
use super::shapes::{all_dims, without};
use hloom_ir::attributes::{ComparisonDirection, Window, WindowDim};
use hloom_ir::element_type::ElementType;
use hloom_ir::element_type::ElementType::{Pred, S32};
use hloom_ir::entity::ComputationId;
use hloom_ir::layout::DimVec;
use hloom_ir::op::{BinaryOp, Op, Scan};
use hloom_ir::shape::{ArrayShape, Shape};

/// One array reduced.
pub(super) fn reduce(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |_| true)?;
    let t = shape.element_type;
    let over = g.choices.subset(shape.rank());
    let op = g.combiner(t);
    let to_apply = g.scalar_computation(op, t);
    let init = g.value_of(body, &ArrayShape::new(t, []));
    let dimensions = over.iter().map(|&d| d as i64).collect();
    let result = Shape::array(t, without(shape.dims(), &over));
    g.add(body, Op::Reduce { dimensions, to_apply }, result, [x, init]);
    Some(())
}

/// Two arrays reduced together: the larger keys win, with their companions.
pub(super) fn reduce_many(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (keys, shape) = g.find_static(body, |a| !a.element_type.is_complex() && a.rank() > 0)?;
    let companion = ArrayShape::new(S32, shape.dims().iter().copied());
    let values = g.value_of(body, &companion);
    let (t, over) = (shape.element_type, g.choices.subset(shape.rank()));
    let to_apply = larger_pair(g, t);
    let key_init = g.value_of(body, &ArrayShape::new(t, []));
    let value_init = g.value_of(body, &ArrayShape::new(S32, []));
    let dims = without(shape.dims(), &over);
    let result = Shape::tuple([Shape::array(t, dims.clone()), Shape::array(S32, dims)]);
    let dimensions = over.iter().map(|&d| d as i64).collect();
    let pair = g.add(body, Op::Reduce { dimensions, to_apply }, result, [keys, values, key_init, value_init]);
    let part = Shape::array(t, without(shape.dims(), &over));
    g.add(body, Op::GetTupleElement { index: 0 }, part, [pair]);
    Some(())
}

/// `(a, i), (b, j)` to the one with the larger key.
fn larger_pair(g: &mut Generator<'_, '_>, t: ElementType) -> ComputationId {
    let mut body = Body::new(&mut g.module, "larger");
    let (key, value) = (Shape::scalar(t), Shape::scalar(S32));
    let a = g.parameter(&mut body, key.clone());
    let i = g.parameter(&mut body, value.clone());
    let b = g.parameter(&mut body, key.clone());
    let j = g.parameter(&mut body, value.clone());
    let op = Op::Compare { direction: ComparisonDirection::Ge, kind: None };
    let first = g.add(&mut body, op, Shape::scalar(Pred), [a, b]);
    let larger = g.add(&mut body, Op::Select, key.clone(), [first, a, b]);
    let its = g.add(&mut body, Op::Select, value.clone(), [first, i, j]);
    let root = g.add(&mut body, Op::Tuple, Shape::tuple([key, value]), [larger, its]);
    g.module.set_root(root);
    body.computation
}

/// A window dimension of at most that size.
pub(super) fn any_window_dim(g: &mut Generator<'_, '_>, size: i64, dilated: bool) -> WindowDim {
    let mut dim = WindowDim::of_size(g.choices.between(1, size.max(1)));
    if g.choices.chance(40) {
        dim.stride = g.choices.between(1, 3);
    }
    if g.choices.chance(40) {
        (dim.padding_low, dim.padding_high) = (g.choices.between(0, 2), g.choices.between(0, 2));
    }
    if dilated && g.choices.chance(20) {
        dim.base_dilation = g.choices.between(1, 2);
        dim.window_dilation = g.choices.between(1, 2);
    }
    dim
}

/// How often each dimension of the window fits; `None` if it does not fit at all.
pub(super) fn window_result(dims: &[i64], window: &Window) -> Option<DimVec> {
    dims.iter()
        .zip(&window.dims)
        .map(|(&size, w)| {
            let base = if size == 0 { 0 } else { (size - 1) * w.base_dilation + 1 };
            let room = base + w.padding_low + w.padding_high - ((w.size - 1) * w.window_dilation + 1);
            (room >= 0).then(|| room / w.stride + 1)
        })
        .collect()
}

/// A reduction of every window.
pub(super) fn reduce_window(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |a| a.element_count() != Some(0))?;
    let t = shape.element_type;
    let window = Window { dims: shape.dims().iter().map(|&size| any_window_dim(g, size.min(3), true)).collect() };
    let result = window_result(shape.dims(), &window)?;
    if !g.is_small_enough(&result) {
        return None;
    }
    let op = g.combiner(t);
    let to_apply = g.scalar_computation(op, t);
    let init = g.value_of(body, &ArrayShape::new(t, []));
    g.add(body, Op::ReduceWindow { window: Box::new(window), to_apply }, Shape::array(t, result), [x, init]);
    Some(())
}

/// Values sent to the chosen element of every window.
pub(super) fn select_and_scatter(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |a| a.element_count() != Some(0) && !a.element_type.is_complex())?;
    let t = shape.element_type;
    let window = Window { dims: shape.dims().iter().map(|&size| any_window_dim(g, size.min(3), false)).collect() };
    let source = window_result(shape.dims(), &window)?;
    if !g.is_small_enough(&source) {
        return None;
    }
    let source = g.value_of(body, &ArrayShape::new(t, source));
    let init = g.value_of(body, &ArrayShape::new(t, []));
    let select = ordered(g, &[t], ComparisonDirection::Ge);
    let op = g.combiner(t);
    let scatter = g.scalar_computation(op, t);
    let op = Op::SelectAndScatter { window: Box::new(window), select, scatter };
    g.add(body, op, shape, [x, source, init]);
    Some(())
}

/// A computation of two scalars of each type that compares the first two.
fn ordered(g: &mut Generator<'_, '_>, types: &[ElementType], direction: ComparisonDirection) -> ComputationId {
    let mut body = Body::new(&mut g.module, "order");
    for &t in types {
        g.parameter(&mut body, Shape::scalar(t));
        g.parameter(&mut body, Shape::scalar(t));
    }
    let (a, b) = (body.values[0], body.values[1]);
    let root = g.add(&mut body, Op::Compare { direction, kind: None }, Shape::scalar(Pred), [a, b]);
    g.module.set_root(root);
    body.computation
}

/// One or more arrays sorted by the first.
pub(super) fn sort(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (keys, shape) = g.find_static(body, |a| a.rank() > 0 && !a.element_type.is_complex())?;
    let dimension = g.choices.below(shape.rank()) as i64;
    let mut operands = vec![(keys, shape.clone())];
    for _ in 0..g.choices.below(3) {
        let companion = ArrayShape::new(g.any_type(), shape.dims().iter().copied());
        operands.push((g.value_of(body, &companion), companion));
    }
    let types: Vec<_> = operands.iter().map(|o| o.1.element_type).collect();
    let direction = *g.choices.pick(&[ComparisonDirection::Lt, ComparisonDirection::Gt]);
    let to_apply = ordered(g, &types, direction);
    let result = match &operands[..] {
        [(_, one)] => one.clone().into(),
        many => Shape::tuple(many.iter().map(|o| o.1.clone().into())),
    };
    // Equal keys with different companions leave the order open unless the sort is stable.
    let is_stable = (operands.len() > 1 && g.options.runnable) || g.choices.chance(50);
    g.add(body, Op::Sort { dimension, is_stable, to_apply }, result, operands.into_iter().map(|o| o.0));
    Some(())
}

/// The largest or smallest elements of the last dimension.
pub(super) fn top_k(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |a| a.rank() > 0 && a.rank() < 3 && !a.element_type.is_complex())?;
    let mut dims = shape.dims().to_vec();
    let last = dims.last_mut()?;
    let k = g.choices.between(0, *last);
    *last = k;
    let result = Shape::tuple([Shape::array(shape.element_type, dims.clone()), Shape::array(S32, dims)]);
    let (largest, is_stable) = (g.choices.chance(50), g.options.runnable);
    g.add(body, Op::TopK { k, largest, is_stable }, result, [x]);
    Some(())
}

/// A computation applied to every element.
pub(super) fn map(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (a, shape) = g.find_static(body, |_| true)?;
    let b = g.value_of(body, &shape);
    let op = if shape.element_type == Pred { BinaryOp::Xor } else { BinaryOp::Multiply };
    let to_apply = g.scalar_computation(op, shape.element_type);
    let dimensions = all_dims(shape.rank());
    g.add(body, Op::Map { to_apply, dimensions }, shape, [a, b]);
    Some(())
}

/// A running combination along a dimension, and its last value.
pub(super) fn scan(g: &mut Generator<'_, '_>, body: &mut Body) -> Option<()> {
    let (x, shape) = g.find_static(body, |a| a.rank() > 0)?;
    let t = shape.element_type;
    let at = g.choices.below(shape.rank());
    let slice: Shape = Shape::array(t, without(shape.dims(), &[at]));
    let op = Op::Binary(g.combiner(t));
    let mut turn = Body::new(&mut g.module, "scan_turn");
    let element = g.parameter(&mut turn, slice.clone());
    let carry = g.parameter(&mut turn, slice.clone());
    let next = g.add(&mut turn, op, slice.clone(), [element, carry]);
    let root = g.add(&mut turn, Op::Tuple, Shape::tuple([slice.clone(), slice.clone()]), [next, next]);
    g.module.set_root(root);
    let init = ArrayShape::new(t, without(shape.dims(), &[at]));
    let init = g.value_of(body, &init);
    let attributes = Scan {
        dimension: at as i64,
        num_carries: 1,
        is_reverse: g.choices.chance(30),
        is_associative: Some(g.choices.chance(50)),
        to_apply: turn.computation,
    };
    g.add(body, Op::Scan(Box::new(attributes)), Shape::tuple([shape.into(), slice]), [x, init]);
    Some(())
}
