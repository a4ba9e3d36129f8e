//! Which values show in a few bits only: machines with instructions that are fast and not quite exact may use them there.

use crate::affine::ItemId;
use crate::graph::ScalarOp;
use crate::program::{Item, LoopProgram};
use hloom_ir::ElementType;
use hloom_ir::op::{BinaryOp, UnaryOp};

/// For each item whether it shows in bf16 values only, through operations that do not enlarge a relative error.
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
