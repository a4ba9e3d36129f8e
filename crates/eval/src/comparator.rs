//! What order a sort's comparator stands for.
//!
//! Known are comparisons of one key of both sides, or of several of which the next counts where the one before is equal,
//! by less or greater, of integers or of floats: as they are, in total order, or in the form that JAX writes, where zeros
//! are made one zero and NaNs one NaN before they are compared. Optimised programs have the total order written out as
//! that of the bits, read as signed integers, in which those of negative floats are turned round.

use hloom_ir::attributes::{ComparisonDirection, ComparisonType};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, ConstantValue, Op};

/// An order by one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// Which array has the keys.
    pub column: usize,
    /// Their type.
    pub element_type: ElementType,
    /// Whether floats are in IEEE's total order; otherwise zeros are equal, and so are NaNs, which come last.
    pub total: bool,
    /// Whether the largest comes first.
    pub descending: bool,
    /// Whether it is an order only among keys that are no NaN.
    pub without_nan: bool,
}

/// How many keys are looked for.
const MOST_KEYS: usize = 32;

/// What a comparator sorts by, the first counting most, if it is a known order.
pub fn keys_of(module: &Module, comparator: ComputationId) -> Option<Vec<Key>> {
    let mut next = module.root(comparator);
    let mut keys = Vec::new();
    while let Some(at) = next {
        if keys.len() >= MOST_KEYS {
            return None;
        }
        let (first, rest) = split(module, at)?;
        keys.push(Comparison::of(module, first)?.key()?);
        next = rest;
    }
    Some(keys)
}

/// The comparison by the first key, and by what the order is among those that are equal there.
fn split(module: &Module, id: InstructionId) -> Option<(InstructionId, Option<InstructionId>)> {
    let operands = module[id].operands();
    match (&module[id].op, operands) {
        (Op::Compare { .. }, _) => Some((id, None)),
        // a < b, or both are equal and …
        (Op::Binary(BinaryOp::Or), &[a, b]) => [(a, b), (b, a)].into_iter().find_map(|(less, both)| {
            let (Op::Binary(BinaryOp::And), &[c, d]) = (&module[both].op, module[both].operands()) else { return None };
            let rest = [(c, d), (d, c)]
                .into_iter()
                .find(|&(equal, _)| are_equal(module, equal, less, ComparisonDirection::Eq));
            rest.map(|(_, rest)| (less, Some(rest)))
        }),
        (Op::Select, &[test, a, b]) => {
            if are_equal(module, test, b, ComparisonDirection::Eq) {
                return Some((b, Some(a)));
            }
            are_equal(module, test, a, ComparisonDirection::Ne).then_some((a, Some(b)))
        }
        _ => None,
    }
}

/// Whether `test` compares for being equal (or not) what `less` compares for being less or greater.
fn are_equal(module: &Module, test: InstructionId, less: InstructionId, direction: ComparisonDirection) -> bool {
    let (Some(test), Some(less)) = (Comparison::of(module, test), Comparison::of(module, less)) else { return false };
    let same = (test.a == less.a && test.b == less.b) || (test.a == less.b && test.b == less.a);
    test.direction == direction && test.total == less.total && same
}

/// A comparison of the two sides of one key.
#[derive(Clone, Copy)]
struct Comparison {
    direction: ComparisonDirection,
    total: bool,
    a: Side,
    b: Side,
}

impl Comparison {
    fn of(module: &Module, id: InstructionId) -> Option<Comparison> {
        let (Op::Compare { direction, kind }, &[a, b]) = (&module[id].op, module[id].operands()) else { return None };
        let total = *kind == Some(ComparisonType::TotalOrder);
        Some(match (ordered_bits(module, a), ordered_bits(module, b)) {
            (Some(a), Some(b)) => {
                Comparison { direction: *direction, total: true, a: Side::of(module, a)?, b: Side::of(module, b)? }
            }
            _ => Comparison { direction: *direction, total, a: Side::of(module, a)?, b: Side::of(module, b)? },
        })
    }

    fn key(self) -> Option<Key> {
        let (a, b) = (self.a, self.b);
        // Parameters 2k and 2k + 1 are the two sides of array k.
        let swapped = a.parameter == b.parameter + 1;
        let beside = swapped || b.parameter == a.parameter + 1;
        if !beside || a.parameter.min(b.parameter) % 2 != 0 || a.cleaned != b.cleaned {
            return None;
        }
        let descending = match self.direction {
            ComparisonDirection::Lt => swapped,
            ComparisonDirection::Gt => !swapped,
            _ => return None,
        };
        let element_type = a.element_type;
        let total = match (self.total, a.cleaned) {
            (true, (false, false)) => true,
            (true, (true, true)) | (false, (false, false)) => false,
            _ if !element_type.is_float() => false,
            _ => return None,
        };
        let without_nan = element_type.is_float() && !self.total;
        Some(Key { column: a.parameter.min(b.parameter) / 2, element_type, total, descending, without_nan })
    }
}

/// One side of a comparison: a parameter, perhaps cleaned before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Side {
    parameter: usize,
    element_type: ElementType,
    /// Whether zeros are made one, and NaNs.
    cleaned: (bool, bool),
}

impl Side {
    fn of(module: &Module, mut id: InstructionId) -> Option<Side> {
        let mut cleaned = (false, false);
        loop {
            let instruction = &module[id];
            match (&instruction.op, instruction.operands()) {
                (Op::Parameter { number, .. }, _) => {
                    let element_type = instruction.shape.element_type()?;
                    return Some(Side { parameter: usize::try_from(*number).ok()?, element_type, cleaned });
                }
                // To a wider float, which keeps the order.
                (Op::Convert, &[narrow])
                    if module[narrow].shape.element_type().is_some_and(|t| t.is_float() && t.bytes() < 4)
                        && matches!(instruction.shape.element_type(), Some(ElementType::F32)) =>
                {
                    id = narrow;
                }
                (Op::Select, &[truth, constant, value]) => {
                    let (Op::Compare { direction, .. }, &[a, b]) = (&module[truth].op, module[truth].operands()) else {
                        return None;
                    };
                    // The test may be on the parameter itself, or on what was made of it so far.
                    if !leads_to(module, value, a) {
                        return None;
                    }
                    match (direction, constant_of(module, constant)?) {
                        (ComparisonDirection::Eq, zero) if zero == 0.0 && constant_of(module, b) == Some(0.0) => {
                            cleaned.0 = true;
                        }
                        (ComparisonDirection::Ne, nan) if nan.is_nan() && a == b => cleaned.1 = true,
                        _ => return None,
                    }
                    id = value;
                }
                _ => return None,
            }
        }
    }
}

/// The float whose bits, as a signed integer that is in the float's total order, are the value of `id`: those of a negative
/// one with all but the sign turned round.
fn ordered_bits(module: &Module, id: InstructionId) -> Option<InstructionId> {
    let (Op::Select, &[negative, flipped, bits]) = (&module[id].op, module[id].operands()) else { return None };
    let is_bits = matches!(module[bits].op, Op::Bitcast | Op::BitcastConvert);
    let &[float] = module[bits].operands() else { return None };
    let (from, to) = (module[float].shape.element_type()?, module[bits].shape.element_type()?);
    if !is_bits || !from.is_float() || !to.is_signed_integer() || from.bits() != to.bits() {
        return None;
    }
    let (Op::Compare { direction: ComparisonDirection::Lt, .. }, &[a, zero]) =
        (&module[negative].op, module[negative].operands())
    else {
        return None;
    };
    let (Op::Binary(BinaryOp::Xor), &[c, d]) = (&module[flipped].op, module[flipped].operands()) else { return None };
    let most = i64::MAX >> (64 - to.bits());
    let turns = [(c, d), (d, c)].iter().any(|&(x, ones)| x == bits && integer(module, ones) == Some(most));
    (a == bits && integer(module, zero) == Some(0) && turns).then_some(float)
}

/// The value of an integer constant.
fn integer(module: &Module, id: InstructionId) -> Option<i64> {
    let Op::Constant(ConstantValue::Literal(literal)) = &module[id].op else { return None };
    let array = hloom_value::Array::from_literal(literal.as_array()?).ok()?;
    array.element_type().is_integer().then(|| array.to_i64().ok())?
}

/// Whether `from` is `to`, or selects something or else that.
fn leads_to(module: &Module, mut from: InstructionId, to: InstructionId) -> bool {
    while from != to {
        match (&module[from].op, module[from].operands()) {
            (Op::Select, &[_, _, value]) | (Op::Convert, &[value]) => from = value,
            _ => return false,
        }
    }
    true
}

/// The value of a float constant.
fn constant_of(module: &Module, id: InstructionId) -> Option<f64> {
    let Op::Constant(ConstantValue::Literal(literal)) = &module[id].op else { return None };
    let array = literal.as_array()?;
    let wide = hloom_value::Array::from_literal(array).ok()?;
    if !array.element_type().is_float() {
        return None;
    }
    let wide = crate::ops::elementwise::convert(wide, ElementType::F64).ok()?;
    wide.as_slice::<f64>()?.first().copied()
}
