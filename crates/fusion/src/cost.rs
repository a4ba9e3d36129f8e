//! What may be fused, what it costs to compute a value again, and how often a use does that.

use super::short_rows::repeats_short_row;
use hloom_cost::element;
use hloom_ir::attributes::Window;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, ConstantValue, Op, UnaryOp};
use hloom_ir::shape::ArrayShape;
use hloom_passes::FusionLimits;

/// What an instruction can be in a fusion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// It stays outside.
    None,
    /// It costs nothing to make wherever it is needed: a scalar constant, a counting array, a repeated scalar.
    Free,
    /// A value made element by element, or elements taken from elsewhere.
    Value,
    /// A reduction: it may end a fusion, or be followed by operations on each element of its result.
    Reduce,
    /// It may only be the last in a fusion.
    Last,
}

/// The array that `i` makes, if kernels can handle it: of static size.
pub(super) fn plain_array(module: &Module, i: InstructionId) -> Option<&ArrayShape> {
    module[i].shape.as_array().filter(|array| !array.is_dynamic())
}

/// The number of elements of `i`; 1 for what is no array.
pub(super) fn elements(module: &Module, i: InstructionId) -> i64 {
    module[i].shape.as_array().and_then(ArrayShape::element_count).unwrap_or(1)
}

/// What `i` can be in a fusion.
pub(super) fn role(module: &Module, i: InstructionId, limits: FusionLimits) -> Role {
    let instruction = &module[i];
    let all_plain = || instruction.operands().iter().all(|&o| plain_array(module, o).is_some());
    if matches!(instruction.op, Op::Reduce { .. }) && instruction.shape.is_tuple() {
        return if all_plain() { Role::Last } else { Role::None };
    }
    if plain_array(module, i).is_none() || !all_plain() || is_rare_complex(module, i) {
        return Role::None;
    }
    match &instruction.op {
        Op::Constant(ConstantValue::Literal(_)) if elements(module, i) == 1 => Role::Free,
        Op::Iota { .. } => Role::Free,
        Op::Broadcast { .. } if instruction.operands().iter().all(|&o| elements(module, o) == 1) => Role::Free,
        Op::BitcastConvert => {
            let same_rank = instruction.operands().iter().all(|&o| elements(module, o) == elements(module, i));
            if same_rank { Role::Value } else { Role::None }
        }
        op if op.is_elementwise() => Role::Value,
        Op::Reshape { .. }
        | Op::Broadcast { .. }
        | Op::Transpose { .. }
        | Op::Reverse { .. }
        | Op::Slice { .. }
        | Op::DynamicSlice { .. }
        | Op::Pad { .. }
        | Op::Gather(_) => Role::Value,
        Op::Concatenate { .. } if instruction.operands().len() <= MAX_CONCATENATED => Role::Value,
        Op::Reduce { .. } => Role::Reduce,
        Op::ReduceWindow { window, .. } if is_long_scan(module, i, window, limits) => Role::None,
        Op::DynamicUpdateSlice | Op::ReduceWindow { .. } => Role::Last,
        Op::Scatter(_) if limits.scatters => Role::Last,
        _ => Role::None,
    }
}

/// Whether `i` is a pad that moves elements apart.
fn is_apart(module: &Module, i: InstructionId) -> bool {
    matches!(&module[i].op, Op::Pad { padding } if padding.iter().any(|d| d.interior > 0))
}

/// Whether `i` puts arrays together whose elements were moved apart.
fn interleaves(module: &Module, i: InstructionId) -> bool {
    module[i].operands().iter().any(|&o| is_apart(module, o))
}

/// Whether windows reach from each element to an end of a dimension that is long.
fn is_long_scan(module: &Module, i: InstructionId, window: &Window, limits: FusionLimits) -> bool {
    let Some(array) = plain_array(module, i) else { return false };
    window.dims.iter().zip(array.dims()).any(|(w, &size)| {
        let padding = (w.padding_low, w.padding_high);
        size > limits.scanned && w.size == size && [(size - 1, 0), (0, size - 1)].contains(&padding)
    })
}

/// Whether `i` makes or reads complex numbers in a way for which it is left to itself: kernels know what programs do with
/// these.
fn is_rare_complex(module: &Module, i: InstructionId) -> bool {
    let is_complex = |&i: &InstructionId| module[i].shape.element_type().is_some_and(ElementType::is_complex);
    if !is_complex(&i) && !module[i].operands().iter().any(is_complex) {
        return false;
    }
    let is_known = match &module[i].op {
        Op::Binary(op) => {
            use BinaryOp::*;
            matches!(op, Add | Subtract | Multiply | Divide | Complex)
        }
        Op::Unary { op, .. } => {
            use UnaryOp::*;
            matches!(op, Real | Imag | Abs | Negate | Exponential | Sqrt | Sine | Cosine | Log)
        }
        Op::Convert => is_complex(&i),
        Op::Compare { .. } | Op::Select | Op::Constant(_) => true,
        Op::Reshape { .. } | Op::Broadcast { .. } | Op::Transpose { .. } | Op::Reverse { .. } => true,
        Op::Slice { .. } | Op::Pad { .. } | Op::Concatenate { .. } | Op::DynamicSlice { .. } => true,
        Op::Reduce { to_apply, .. } => {
            let sum = |r: InstructionId| matches!(module[r].op, Op::Binary(BinaryOp::Add));
            module.root(*to_apply).is_some_and(sum)
        }
        _ => false,
    };
    !is_known
}

/// A concatenation of more than this asks too many questions for each element.
const MAX_CONCATENATED: usize = 8;

/// What it costs to make one element of `i`, in additions, its operands aside.
pub(super) fn own_cost(module: &Module, i: InstructionId) -> f64 {
    let (operands, element_type) = (module[i].operands().len(), module[i].shape.element_type());
    let cost = element_type.and_then(|t| element::instruction(&module[i].op, operands, t));
    // A reduction is never made twice.
    cost.unwrap_or(f64::INFINITY)
}

/// How often each element of `value` is made if it is made where `user` reads it. What changes with the outer loops
/// only is made once for all of the inner ones, so that repeating along inner dimensions is free. `None` if `user` must
/// find it in memory.
pub(super) fn times_made(
    module: &Module,
    value: InstructionId,
    user: InstructionId,
    limits: FusionLimits,
) -> Option<f64> {
    let count = |i: InstructionId| elements(module, i).max(1) as f64;
    let position = module[user].operands().iter().position(|&o| o == value)?;
    match &module[user].op {
        Op::DynamicUpdateSlice | Op::Scatter(_) if position == 0 => None,
        // Made once, before the loops.
        _ if count(value) == 1.0 => Some(1.0),
        Op::Broadcast { .. } if repeats_short_row(module, value) => None,
        Op::Broadcast { dimensions } => {
            let from = module[value].shape.as_array()?.dims();
            let to = module[user].shape.as_array()?.dims();
            let innermost = dimensions.iter().zip(from).filter(|&(_, &n)| n > 1).map(|(&d, _)| d).max()?;
            let repeated = to.iter().enumerate().filter(|(d, _)| !dimensions.contains(&(*d as i64)));
            Some(repeated.filter(|&(d, _)| (d as i64) < innermost).map(|(_, &n)| n as f64).product())
        }
        Op::Gather(_) if position == 0 => Some((count(user) / count(value)).max(1.0)),
        // Where single elements are taken, each index is asked for once.
        Op::Gather(gather) if gather.slice_sizes.iter().all(|&n| n == 1) => Some(1.0),
        Op::Gather(_) => Some(2.0),
        // Every element of an update's window asks for the update's place.
        Op::Scatter(scatter) if position == 1 && !scatter.dims.update_window_dims.is_empty() => Some(2.0),
        // Between elements that are moved apart the value is made as well, and not used. What was interleaved already is
        // not interleaved again: each of both would make all that the other does.
        Op::Pad { .. } if is_apart(module, user) => match limits.skips_padding && !interleaves(module, value) {
            true => Some(1.0),
            false => Some((count(user) / count(value)).max(1.0)),
        },
        Op::ReduceWindow { window, .. } => Some(window.dims.iter().map(|d| d.size.max(1) as f64).product()),
        _ => Some(1.0),
    }
}
