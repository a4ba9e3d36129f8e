//! What XLA makes of an instruction whatever its text says: parts of a statement that follow from the rest of it are
//! not taken from the text.

use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::{Layout, is_permutation};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::{ArrayShape, Shape};

/// The shape that the instruction has; `shape` is the one that is written or inferred. Attributes that follow from it
/// are set in `op`.
pub(super) fn settle(module: &Module, op: &mut Op, shape: Shape, operands: &[InstructionId]) -> Shape {
    let operand = |n: usize| operands.get(n).map(|&o| &module[o].shape);
    let first_part = |shape: &Shape| shape.as_tuple().and_then(|parts| parts.first()).cloned();
    let settled = match op {
        Op::Map { dimensions, .. } => {
            if let Some(array) = shape.as_array() {
                *dimensions = (0..array.rank() as i64).collect();
            }
            return shape;
        }
        Op::Scan(scan) => {
            scan.is_associative.get_or_insert(false);
            return shape;
        }
        Op::Send(_) => operand(0).map(|data| transfer_of(data.clone())),
        Op::Recv(_) => first_part(&shape).map(transfer_of),
        Op::RecvDone(_) => operand(0).and_then(first_part).map(|data| Shape::tuple([data, Shape::Token])),
        Op::Infeed { .. } => first_part(&shape).map(|data| Shape::tuple([data, Shape::Token])),
        Op::SendDone(_) | Op::Outfeed { .. } | Op::AfterAll => Some(Shape::Token),
        _ => None,
    };
    settled.unwrap_or(shape)
}

/// `shape` with layouts: those of the operands where the operation passes them on, the default one elsewhere.
pub(super) fn lay_out(module: &Module, op: &Op, operands: &[InstructionId], shape: &Shape) -> Shape {
    let operand = |n: usize| operands.get(n).map(|&o| &module[o].shape);
    let source = match op {
        Op::Tuple => Some(Shape::tuple(operands.iter().map(|&o| module[o].shape.clone()))),
        Op::GetTupleElement { index } => operand(0).and_then(|s| s.at(&[*index])).cloned(),
        Op::Call { to_apply, .. } => module.root(*to_apply).map(|r| module[r].shape.clone()),
        Op::Conditional { branches } => branches.first().and_then(|&b| module.root(b)).map(|r| module[r].shape.clone()),
        Op::Clamp => operand(1).cloned(),
        Op::Transpose { dimensions } => operand(0).and_then(|s| transposed(s, dimensions)),
        _ => operand(0).cloned(),
    };
    let keeps_layout =
        matches!(op, Op::Unary { .. } | Op::Binary(_) | Op::Compare { .. } | Op::Select | Op::SetDimensionSize { .. });
    match (source, shape) {
        (Some(source), _) if source.equal_ignoring_layout(shape) => source,
        (Some(Shape::Array(source)), Shape::Array(shape)) if keeps_layout && source.dims() == shape.dims() => {
            let mut layout = source.layout.clone().unwrap_or_else(|| Layout::descending(shape.rank()));
            // Elements are packed as those they were before: of the first choice of select, which itself follows pred.
            let before = if matches!(op, Op::Select) { operand(1) } else { operand(0) };
            let packed = before.and_then(Shape::as_array).filter(|b| b.element_type == shape.element_type);
            layout.element_size_in_bits =
                packed.and_then(|b| b.layout.as_ref()).map_or(0, |layout| layout.element_size_in_bits);
            ArrayShape::clone(shape).with_layout(layout).into()
        }
        (Some(source), Shape::Tuple(parts))
            if matches!(op, Op::BatchNormTraining { .. } | Op::BatchNormGrad { .. }) =>
        {
            // The first result is like the first operand, the others are vectors.
            Shape::tuple(parts.iter().map(|part| match part.equal_ignoring_layout(&source) {
                true => source.clone(),
                false => part.with_default_layout(),
            }))
        }
        _ => shape.with_default_layout(),
    }
}

/// `(data, u32[], token[])`.
fn transfer_of(data: Shape) -> Shape {
    let context = ArrayShape::new(ElementType::U32, []).with_default_layout();
    Shape::tuple([data, context.into(), Shape::Token])
}

/// `shape` without element sizes: a literal is never packed.
pub(super) fn unpacked(shape: Shape) -> Shape {
    fn is_packed(shape: &Shape) -> bool {
        match shape {
            Shape::Array(a) => a.layout.as_ref().is_some_and(|l| l.element_size_in_bits != 0),
            Shape::Tuple(t) => t.iter().any(is_packed),
            _ => false,
        }
    }
    if !is_packed(&shape) {
        return shape;
    }
    shape.map_arrays(&mut |a| {
        let mut a = a.clone();
        if let Some(layout) = &mut a.layout {
            layout.element_size_in_bits = 0;
        }
        a
    })
}

/// `shape` with its dimensions in another order but the same elements in the same places.
fn transposed(shape: &Shape, dimensions: &[i64]) -> Option<Shape> {
    let array = shape.as_array()?;
    let layout = array.layout.as_ref()?;
    if !is_permutation(dimensions, array.rank()) {
        return None;
    }
    let new_place = |old: &i64| dimensions.iter().position(|d| d == old).map(|d| d as i64);
    let minor_to_major = layout.minor_to_major.iter().map(new_place).collect::<Option<_>>()?;
    let old = |d: &i64| *d as usize;
    let sizes = dimensions.iter().map(|d| array.dims()[old(d)]);
    let dynamic = dimensions.iter().map(|d| array.is_dynamic_dim(old(d)));
    let moved = ArrayShape::with_dynamic(array.element_type, sizes, dynamic);
    Some(moved.with_layout(Layout { minor_to_major, ..layout.clone() }).into())
}
