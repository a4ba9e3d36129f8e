//! How often a loop runs, where it counts from one constant to another; and loops that run so rarely that they are no
//! loops.

use super::{Loop, element_of};
use crate::rules::array;
use crate::rules::numbers::{splat, type_bounds};
use hloom_analysis::cost::known_trip_count;
use hloom_analysis::effects::has_side_effect;
use hloom_analysis::trip_count::{iterations, mirrored};
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, ConstantValue, Op};
use rustc_hash::FxHashSet;

/// What came of looking at a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Noted {
    /// Nothing new.
    Nothing,
    /// How often it runs is now in its `backend_config`.
    New,
    /// Its body stands in its place.
    Unrolled,
}

/// Loops whose bodies, all iterations together, have at most so many instructions are unrolled.
const MAX_UNROLLED: usize = 48;
/// The same of loops over the bits of arrays of at least so many elements, as the rounds of a generator of random bits: by
/// how much they shift, and which word of a key they take, is then known, and words stay in registers from round to round.
const MAX_UNROLLED_BITWISE: usize = 480;
const MIN_BITWISE_ELEMENTS: i64 = 64;

/// Works out how often the loop runs, and notes it or unrolls it.
pub(super) fn note(module: &mut Module, plain: &Loop) -> Noted {
    let Some(count) = trip_count(module, plain) else { return Noted::Nothing };
    if unroll(module, plain, count) {
        return Noted::Unrolled;
    }
    let common = &mut module.instruction_mut(plain.id).common;
    if common.backend_config.is_some() || known_trip_count(&module[plain.id]) == Some(count) {
        return Noted::Nothing;
    }
    module.instruction_mut(plain.id).common.backend_config = Some(config(count));
    Noted::New
}

/// The configuration of a loop that says how often it runs.
pub(super) fn config(count: u64) -> Box<[u8]> {
    format!("{{\"known_trip_count\":{{\"n\":\"{count}\"}}}}").into_bytes().into()
}

/// How often the body runs, if that can be seen.
pub(super) fn trip_count(module: &Module, plain: &Loop) -> Option<u64> {
    let root = module.root(plain.condition)?;
    if is_false(module, root) {
        return Some(0);
    }
    let Op::Compare { direction, .. } = module[root].op else { return None };
    let &[a, b] = module[root].operands() else { return None };
    let counter = |i: InstructionId| element_of(module, i, plain.condition_parameter);
    let (n, limit, direction) = match (counter(a), counter(b)) {
        (Some(n), None) => (n, b, direction),
        (None, Some(n)) => (n, a, mirrored(direction)),
        _ => return None,
    };
    let limit = integer(module, limit)?;
    let &initial = module[plain.init].operands().get(n)?;
    let start = integer(module, initial)?;
    let step = step(module, plain, n)?;
    let (least, most) = type_bounds(module[initial].shape.element_type()?)?;
    count(direction, start, limit, step, least, most)
}

/// Whether `i` is the constant false.
fn is_false(module: &Module, i: InstructionId) -> bool {
    let Op::Constant(ConstantValue::Literal(literal)) = &module[i].op else { return false };
    literal.as_array().is_some_and(|a| a.element_type() == ElementType::Pred && a.bytes() == [0])
}

/// How often a counter that starts at `start` and moves by `step` passes the comparison with `limit`.
fn count(direction: ComparisonDirection, start: i128, limit: i128, step: i128, least: i128, most: i128) -> Option<u64> {
    let count = i128::from(iterations(direction, start, step, limit)?);
    // A counter that leaves its type on the way comes round again.
    let last = start.checked_add(step.checked_mul(count)?)?;
    (least..=most).contains(&last).then_some(())?;
    u64::try_from(count).ok()
}

/// By how much value `n` of the loop changes each iteration.
fn step(module: &Module, plain: &Loop, n: usize) -> Option<i128> {
    let &next = module[plain.body_root].operands().get(n)?;
    let &[a, b] = module[next].operands() else { return None };
    let is_counter = |i: InstructionId| element_of(module, i, plain.body_parameter) == Some(n);
    match module[next].op {
        Op::Binary(BinaryOp::Add) if is_counter(a) => integer(module, b),
        Op::Binary(BinaryOp::Add) if is_counter(b) => integer(module, a),
        Op::Binary(BinaryOp::Subtract) if is_counter(a) => integer(module, b).map(|step| -step),
        _ => None,
    }
}

/// The value of an integer constant.
fn integer(module: &Module, i: InstructionId) -> Option<i128> {
    array(module, i).filter(|a| a.is_scalar() && a.element_type.is_integer())?;
    splat(module, i)?.int()
}

/// Whether anything in these computations, or in what they call, has an effect besides its value.
fn has_effects(module: &Module, computations: &[ComputationId]) -> bool {
    let mut pending = computations.to_vec();
    let mut seen: FxHashSet<ComputationId> = pending.iter().copied().collect();
    while let Some(computation) = pending.pop() {
        for &i in module[computation].instructions() {
            if has_side_effect(&module[i].op) {
                return true;
            }
            pending.extend(module[i].op.called_computations().iter().copied().filter(|&c| seen.insert(c)));
        }
    }
    false
}

/// Whether a body does nothing but work on the bits of integers, element by element, many of them.
fn is_bitwise(module: &Module, body: ComputationId) -> bool {
    use BinaryOp::{Add, And, Or, ShiftLeft, ShiftRightArithmetic, ShiftRightLogical, Subtract, Xor};
    let is_integer = |i: InstructionId| module[i].shape.element_type().is_some_and(ElementType::is_integer);
    let works_on_bits = |&i: &InstructionId| match &module[i].op {
        Op::Binary(Add | Subtract | And | Or | Xor | ShiftLeft | ShiftRightLogical | ShiftRightArithmetic)
        | Op::Convert => is_integer(i),
        Op::Parameter { .. } | Op::Constant(_) | Op::Tuple | Op::GetTupleElement { .. } => true,
        Op::Broadcast { .. } | Op::Reshape { .. } | Op::Slice { .. } => true,
        _ => false,
    };
    let is_many = |&i: &InstructionId| array(module, i).and_then(|a| a.element_count()) >= Some(MIN_BITWISE_ELEMENTS);
    let instructions = module[body].instructions();
    instructions.iter().all(works_on_bits) && instructions.iter().any(is_many)
}

/// Puts the body in place of the loop, as often as it runs, if that is little.
fn unroll(module: &mut Module, plain: &Loop, count: u64) -> bool {
    let length = module[plain.body].instructions().len();
    let Ok(iterations) = usize::try_from(count) else { return false };
    let calls = |&i: &InstructionId| {
        matches!(module[i].op, Op::While { .. } | Op::Conditional { .. } | Op::Call { .. } | Op::AsyncStart(_))
    };
    // What has computations of its own would share them with its copies.
    let copies = iterations > 1 && module[plain.body].instructions().iter().any(calls);
    let most = if is_bitwise(module, plain.body) { MAX_UNROLLED_BITWISE } else { MAX_UNROLLED };
    if copies || iterations > 1 && iterations.saturating_mul(length) > most {
        return false;
    }
    // A loop that does something besides its value stays where it is after its value was replaced, and would do it again.
    if has_effects(module, &[plain.condition, plain.body]) {
        return false;
    }
    let parent = module[plain.id].parent();
    let mut state = plain.init;
    for _ in 0..iterations {
        match module.inline_computation(parent, plain.body, &[state]) {
            Some(next) => state = next,
            None => return false,
        }
    }
    module.replace_all_uses(plain.id, state).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ComparisonDirection::{Eq, Ge, Gt, Le, Lt, Ne};

    #[test]
    fn rounds_of_a_counter() {
        let s8 = |direction, start, limit, step| count(direction, start, limit, step, -128, 127);
        assert_eq!(s8(Lt, 0, 10, 1), Some(10));
        assert_eq!(s8(Lt, 0, 10, 3), Some(4));
        assert_eq!(s8(Le, 0, 9, 3), Some(4));
        assert_eq!(s8(Gt, 5, 0, -1), Some(5));
        assert_eq!(s8(Ge, 5, 0, -2), Some(3));
        assert_eq!(s8(Ne, 0, 6, 2), Some(3));
        assert_eq!(s8(Lt, 3, 3, 1), Some(0));
        assert_eq!(s8(Eq, 3, 4, 1), Some(0));
    }

    #[test]
    fn a_counter_that_comes_round_again_is_not_counted() {
        let s8 = |direction, start, limit, step| count(direction, start, limit, step, -128, 127);
        assert_eq!(s8(Lt, 0, 127, 2), None, "after 126 comes -128, which is below 127");
        assert_eq!(s8(Le, 0, 127, 1), None);
        assert_eq!(s8(Ne, 0, 5, 2), None);
        assert_eq!(s8(Lt, 0, 10, -1), None);
        assert_eq!(s8(Eq, 3, 3, 1), None);
    }
}
