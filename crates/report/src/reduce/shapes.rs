//! Smaller shapes: every dimension of a size made smaller, wherever it stands.
//!
//! Sizes that belong together are mostly equal, and what does not fit afterwards the verifier refuses. Constants and
//! inputs keep their first elements.

use super::Search;
use super::case::{Case, all_instructions};
use hloom_ir::layout::DimVec;
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::shape::ArrayShape;
use hloom_value::{Array, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Tries every size that occurs, the largest first.
pub(super) fn shrink(search: &mut Search<'_>) {
    for size in sizes(&search.best).into_iter().rev() {
        let mut to: Vec<i64> = vec![1, 2, size / 4, size / 2, size - 1];
        to.retain(|&t| t >= 1 && t < size);
        to.dedup();
        let candidates = to.into_iter().filter_map(|t| resized(&search.best, size, t)).collect();
        search.take_first(candidates);
        if search.stopped() {
            return;
        }
    }
}

fn sizes(case: &Case) -> BTreeSet<i64> {
    let module = &case.module;
    let mut sizes = BTreeSet::new();
    for i in all_instructions(module) {
        for (_, leaf) in module[i].shape.leaves() {
            sizes.extend(leaf.as_array().into_iter().flat_map(|a| a.dims().iter().copied()));
        }
    }
    sizes.retain(|&s| s > 1);
    sizes
}

/// The case with every dimension of size `from` made `to`.
fn resized(case: &Case, from: i64, to: i64) -> Option<Case> {
    let mut case = case.clone();
    let size = |s: i64| if s == from { to } else { s };
    let resize = |a: &ArrayShape| {
        let dynamic: Vec<bool> = a.dynamic_dims().collect();
        let mut shape = match dynamic.iter().any(|&d| d) {
            true => ArrayShape::with_dynamic(a.element_type, a.dims().iter().map(|&d| size(d)), dynamic),
            false => ArrayShape::new(a.element_type, a.dims().iter().map(|&d| size(d))),
        };
        shape.layout = a.layout.clone();
        shape
    };
    let of_list = |list: &mut DimVec| list.iter_mut().for_each(|s| *s = size(*s));
    for i in all_instructions(&case.module) {
        let instruction = case.module.instruction_mut(i);
        instruction.shape = instruction.shape.map_arrays(&mut |a| resize(a));
        match &mut instruction.op {
            Op::Slice { dims } => dims.iter_mut().for_each(|d| d.limit = size(d.limit)),
            Op::DynamicSlice { sizes } => of_list(sizes),
            Op::Gather(gather) => of_list(&mut gather.slice_sizes),
            Op::Fft { length, .. } => of_list(length),
            Op::Convolution(c) => c.window.dims.iter_mut().for_each(|d| d.size = size(d.size)),
            Op::ReduceWindow { window, .. } => window.dims.iter_mut().for_each(|d| d.size = size(d.size)),
            Op::Constant(ConstantValue::Literal(literal)) => {
                let Literal::Array(array) = &**literal else { return None };
                let kept = first_elements(array.bytes(), array.shape(), &resize(array.shape()))?;
                let resized = ArrayLiteral::new(resize(array.shape()), kept).ok()?;
                *literal = Arc::new(Literal::Array(resized));
            }
            _ => {}
        }
    }
    for value in case.inputs.iter_mut().flatten() {
        *value = resized_value(value, &size)?;
    }
    case.prune();
    Some(case)
}

fn resized_value(value: &Value, size: &impl Fn(i64) -> i64) -> Option<Value> {
    Some(match value {
        Value::Array(array) => {
            let new: Vec<i64> = array.dims().iter().map(|&d| size(d)).collect();
            let shape = ArrayShape::new(array.element_type(), array.dims().iter().copied());
            let smaller = ArrayShape::new(array.element_type(), new.iter().copied());
            let bytes = first_elements(array.bytes(), &shape, &smaller)?;
            Value::Array(Array::from_bytes(array.element_type(), &new, &bytes).ok()?)
        }
        Value::Tuple(elements) => Value::Tuple(elements.iter().map(|e| resized_value(e, size)).collect::<Option<_>>()?),
        other => other.clone(),
    })
}

/// Of the elements of an array in row-major order, those of a smaller one in its corner.
fn first_elements(bytes: &[u8], from: &ArrayShape, to: &ArrayShape) -> Option<Vec<u8>> {
    let width = from.element_type.bytes();
    let count = usize::try_from(to.element_count()?).ok()?;
    let mut out = Vec::with_capacity(count.checked_mul(width)?);
    let mut strides = vec![1usize; from.rank()];
    for d in (1..from.rank()).rev() {
        strides[d - 1] = strides[d] * usize::try_from(from.dims()[d]).ok()?;
    }
    for n in 0..count {
        let index = crate::values::unflatten(n, to.dims());
        let at: usize = index.iter().zip(&strides).map(|(&i, s)| i as usize * s).sum();
        out.extend_from_slice(bytes.get(at * width..(at + 1) * width)?);
    }
    Some(out)
}
