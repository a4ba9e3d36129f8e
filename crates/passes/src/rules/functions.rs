//! Functions that operations apply to elements: which they are, and applying one to whole arrays instead.

use super::{array, beside};
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, ConstantValue, Op};
use hloom_ir::shape::ArrayShape;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// Functions longer than this are left as they are.
const MAX_FUNCTION: usize = 256;

/// The results of applying `function`, which is one of scalars, to arrays of the dimensions `to` beside `i`; one for each
/// element of its result. `None` if it does more than arithmetic, or wants other types.
pub(crate) fn applied(
    module: &mut Module,
    i: InstructionId,
    function: ComputationId,
    arguments: &[InstructionId],
    to: &[i64],
) -> Option<SmallVec<[InstructionId; 2]>> {
    let root = module.root(function)?;
    applied_up_to(module, i, root, arguments, to)
}

/// As [`applied`], of the part of a function that leads to one of its instructions.
pub(crate) fn applied_up_to(
    module: &mut Module,
    i: InstructionId,
    root: InstructionId,
    arguments: &[InstructionId],
    to: &[i64],
) -> Option<SmallVec<[InstructionId; 2]>> {
    let body = needed(module, root)?;
    let is_tuple = |f: InstructionId| f == root && matches!(module[f].op, Op::Tuple);
    if !body.iter().all(|&f| is_tuple(f) || is_scalar_step(module, f)) {
        return None;
    }
    let mut values: FxHashMap<InstructionId, InstructionId> = FxHashMap::default();
    for f in body {
        if matches!(module[f].op, Op::Tuple) {
            continue;
        }
        let (op, element_type) = (module[f].op.clone(), array(module, f)?.element_type);
        let read = module[f].operands().iter().map(|o| values.get(o).copied()).collect::<Option<Vec<_>>>()?;
        let mut b = beside(module, i);
        let value = match op {
            Op::Parameter { number, .. } => {
                let argument = *arguments.get(usize::try_from(number).ok()?)?;
                (b.shape(argument).as_array()?.element_type == element_type).then_some(argument)?
            }
            Op::Constant(_) => {
                let scalar = b.push_shaped(op, &[], ArrayShape::new(element_type, []).with_default_layout()).ok()?;
                if to.is_empty() { scalar } else { b.broadcast(scalar, to.iter().copied(), []).ok()? }
            }
            _ => {
                let shape = ArrayShape::new(element_type, to.iter().copied()).with_default_layout();
                b.push_shaped(op, &read, shape).ok()?
            }
        };
        values.insert(f, value);
    }
    let results = if matches!(module[root].op, Op::Tuple) { module[root].operands() } else { &[root] };
    results.iter().map(|r| values.get(r).copied()).collect()
}

/// What the root of a function needs, each after what it reads: rules may have left other things in the function that are
/// dead, without operands. `None` if there are more than [`MAX_FUNCTION`].
pub(crate) fn needed(module: &Module, root: InstructionId) -> Option<Vec<InstructionId>> {
    let mut order = Vec::new();
    let mut seen = FxHashSet::default();
    let mut stack = vec![(root, false)];
    while let Some((f, entered)) = stack.pop() {
        if entered {
            order.push(f);
        } else if seen.insert(f) {
            (seen.len() <= MAX_FUNCTION).then_some(())?;
            stack.push((f, true));
            stack.extend(module[f].operands().iter().rev().map(|&o| (o, false)));
        }
    }
    Some(order)
}

/// Whether an instruction of a function of scalars can be one of arrays.
fn is_scalar_step(module: &Module, f: InstructionId) -> bool {
    let is_scalar = array(module, f).is_some_and(ArrayShape::is_scalar);
    is_scalar
        && match &module[f].op {
            Op::Parameter { .. } | Op::Constant(ConstantValue::Literal(_)) => true,
            // Of arrays it may have another rank.
            Op::BitcastConvert => false,
            op => op.is_elementwise(),
        }
}

/// The operation that a function applies to its two parameters, if that is all it does and their order does not matter.
pub(crate) fn reducer(module: &Module, function: ComputationId) -> Option<BinaryOp> {
    use BinaryOp::{Add, And, Maximum, Minimum, Multiply, Or, Xor};
    let root = module.root(function)?;
    let Op::Binary(op) = module[root].op else { return None };
    let &[x, y] = module[root].operands() else { return None };
    let is_parameter = |i: InstructionId| {
        matches!(module[i].op, Op::Parameter { .. })
            && module[i].shape.element_type() == module[root].shape.element_type()
    };
    let simple = matches!(op, Add | And | Maximum | Minimum | Multiply | Or | Xor);
    (simple && x != y && is_parameter(x) && is_parameter(y)).then_some(op)
}

/// Which of its parameters a function gives back, if it does nothing else.
pub(crate) fn parameter_given_back(module: &Module, function: ComputationId) -> Option<i64> {
    match module[module.root(function)?].op {
        Op::Parameter { number, .. } => Some(number),
        _ => None,
    }
}
