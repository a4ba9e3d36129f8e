//! What order a sort's comparator stands for.
//!
//! Known are comparisons of one key of both sides, by less or greater, of integers or of floats: as they are, in total
//! order, or in the form that JAX writes, where zeros are made one zero and NaNs one NaN before they are compared.

use hloom_ir::attributes::{ComparisonDirection, ComparisonType};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::{ConstantValue, Op};
use hloom_kernels::sort::{FloatOrder, KeyType};

/// An order by one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    /// Which array has the keys.
    pub(crate) key: usize,
    pub(crate) key_type: KeyType,
    pub(crate) float_order: FloatOrder,
    pub(crate) descending: bool,
    /// Whether it is one only among keys that are no NaN.
    pub(crate) without_nan: bool,
}

/// The order that a comparator stands for, if it is a known one.
pub(crate) fn order_of(module: &Module, comparator: ComputationId) -> Option<Order> {
    let root = module.root(comparator)?;
    let (Op::Compare { direction, kind }, &[a, b]) = (&module[root].op, module[root].operands()) else { return None };
    let (a, b) = (Side::of(module, a)?, Side::of(module, b)?);
    // Parameters 2k and 2k + 1 are the two sides of array k.
    let swapped = a.parameter == b.parameter + 1;
    if !(swapped || b.parameter == a.parameter + 1) || a.parameter.min(b.parameter) % 2 != 0 || a.cleaned != b.cleaned {
        return None;
    }
    let descending = match direction {
        ComparisonDirection::Lt => swapped,
        ComparisonDirection::Gt => !swapped,
        _ => return None,
    };
    let element_type = a.element_type;
    let total = *kind == Some(ComparisonType::TotalOrder);
    let float_order = match (total, a.cleaned) {
        (true, (false, false)) => FloatOrder::Total,
        (true, (true, true)) | (false, (false, false)) => FloatOrder::Numeric,
        _ if !element_type.is_float() => FloatOrder::Numeric,
        _ => return None,
    };
    let key_type = key_type(element_type)?;
    let without_nan = element_type.is_float() && !total;
    Some(Order { key: a.parameter.min(b.parameter) / 2, key_type, float_order, descending, without_nan })
}

fn key_type(element_type: ElementType) -> Option<KeyType> {
    Some(match element_type {
        ElementType::U8 | ElementType::Pred => KeyType::U8,
        ElementType::U16 => KeyType::U16,
        ElementType::U32 => KeyType::U32,
        ElementType::U64 => KeyType::U64,
        ElementType::S8 => KeyType::S8,
        ElementType::S16 => KeyType::S16,
        ElementType::S32 => KeyType::S32,
        ElementType::S64 => KeyType::S64,
        ElementType::F16 => KeyType::F16,
        ElementType::Bf16 => KeyType::Bf16,
        ElementType::F32 => KeyType::F32,
        ElementType::F64 => KeyType::F64,
        _ => return None,
    })
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
                    if matches!(module[narrow].shape.element_type(), Some(ElementType::Bf16 | ElementType::F16))
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
    let wide = hloom_eval::Array::from_literal(array).ok()?;
    if !array.element_type().is_float() {
        return None;
    }
    let wide = hloom_eval::ops::elementwise::convert(wide, ElementType::F64).ok()?;
    wide.as_slice::<f64>()?.first().copied()
}
