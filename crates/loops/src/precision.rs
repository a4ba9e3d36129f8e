//! Which bf16 values a kernel for a GPU rounds to what they can be, and which stay as they were computed, in f32.
//!
//! Rounding each operation of a chain takes longer than the operations. Within a kernel a value that only goes into more
//! arithmetic keeps the precision it has, as XLA allows by default. It is rounded where it can be seen: when it is stored,
//! when its bits are taken, and where a tiny difference could become a large one (comparisons, floor, conversions to
//! integers). Conversions that the program asks for always round.

use crate::affine::ItemId;
use crate::graph::ScalarOp;
use crate::program::{Item, LoadSource, LoopProgram};
use hloom_ir::ElementType;
use hloom_ir::op::{BinaryOp, UnaryOp};

/// For each item whether its value must be one that its type has.
pub fn exact(program: &LoopProgram) -> Vec<bool> {
    let mut exact = vec![false; program.items.len()];
    for store in &program.stores {
        exact[store.item as usize] = true;
    }
    // Users come after what they use.
    for id in (0..program.items.len()).rev() {
        let data = &program.items[id];
        match &data.item {
            // What is kept is as exact as whoever reads it wants it.
            Item::Load { source: LoadSource::Row(n), .. } => {
                exact[program.rows[*n as usize].item as usize] |= exact[id]
            }
            Item::Scalar(op, operands) => {
                if sees_bits(*op, data.element_type) || (hands_on(*op) && exact[id]) {
                    operands.iter().for_each(|&o| exact[o as usize] = true);
                }
            }
            other => other.for_each_operand(|o: ItemId| exact[o as usize] = true),
        }
    }
    exact
}

/// For each item whether it shows in bf16 values only, through operations that do not enlarge a relative error: machines
/// with instructions that are fast and not quite exact may use them there.
pub fn rough(program: &LoopProgram) -> Vec<bool> {
    let mut rough: Vec<bool> = program.items.iter().map(|i| matches!(i.element_type, ElementType::F32)).collect();
    let mut is_used = vec![false; program.items.len()];
    for store in &program.stores {
        rough[store.item as usize] &= store.element_type == ElementType::Bf16;
        is_used[store.item as usize] = true;
    }
    for id in (0..program.items.len()).rev() {
        let data = program.item(id as ItemId);
        let hands_on = match &data.item {
            Item::Scalar(ScalarOp::Convert, _) if data.element_type == ElementType::Bf16 => true,
            Item::Scalar(ScalarOp::Binary(BinaryOp::Multiply | BinaryOp::Divide), _) => rough[id],
            Item::Scalar(ScalarOp::Unary(UnaryOp::Negate | UnaryOp::Abs), _) => rough[id],
            Item::Scalar(ScalarOp::Select, _) | Item::ReduceResult(..) => rough[id],
            Item::Reduce(reduce) => rough[id] && reduce.function.single_operation() == Some(BinaryOp::Add),
            _ => false,
        };
        let is_bf16 = data.element_type == ElementType::Bf16;
        data.item.for_each_operand(|o| {
            rough[o as usize] &= hands_on || is_bf16;
            is_used[o as usize] = true;
        });
        rough[id] = is_bf16 || (rough[id] && is_used[id]);
    }
    rough
}

/// Whether an operation would show that an operand was not rounded by more than a small error.
fn sees_bits(op: ScalarOp, to: ElementType) -> bool {
    match op {
        ScalarOp::Compare { .. } | ScalarOp::BitcastConvert | ScalarOp::ReducePrecision { .. } => true,
        ScalarOp::Convert => !to.is_float(),
        ScalarOp::Unary(op) => matches!(
            op,
            UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::RoundNearestAfz | UnaryOp::RoundNearestEven | UnaryOp::IsFinite
        ),
        ScalarOp::Binary(op) => matches!(op, BinaryOp::Remainder),
        ScalarOp::Select | ScalarOp::Clamp => false,
    }
}

/// Whether the result is one of the operands, or that but for its sign.
pub fn hands_on(op: ScalarOp) -> bool {
    match op {
        ScalarOp::Select | ScalarOp::Clamp => true,
        ScalarOp::Unary(op) => matches!(op, UnaryOp::Negate | UnaryOp::Abs),
        ScalarOp::Binary(op) => matches!(op, BinaryOp::Maximum | BinaryOp::Minimum),
        _ => false,
    }
}

/// The type in which an operation on values of type `t` is computed and left.
pub fn carried(op: ScalarOp, t: ElementType, exact: bool) -> ElementType {
    let is_arithmetic = matches!(op, ScalarOp::Unary(_) | ScalarOp::Binary(_)) || hands_on(op);
    let keeps = is_arithmetic && (!exact || hands_on(op));
    if t == ElementType::Bf16 && keeps { ElementType::F32 } else { t }
}
