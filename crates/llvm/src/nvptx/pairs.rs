//! Neighbouring bf16 values as pairs in one word: one instruction rounds or combines both.
//!
//! Each of a pair is kept as an f32, as all bf16 values are; where the two halves of a word are used together again, LLVM
//! finds that they are that word. Sums, differences and products of bf16 are the same whether they are rounded once, as
//! the machine does, or first to f32.

use super::points::{At, Points};
use crate::emit::ir::{Repr, Val};
use hloom_ir::ElementType;
use hloom_ir::op::{BinaryOp, UnaryOp};
use hloom_loops::affine::ItemId;
use hloom_loops::graph::ScalarOp;
use hloom_loops::program::Item;

impl<'c> Points<'_, 'c> {
    /// Computes a bf16 item at this lane and its neighbour at once; says whether it did. What it is made of is known.
    pub(super) fn compute_pair(&mut self, id: ItemId, at: At) -> bool {
        let program = self.program;
        let data = program.item(id);
        let Item::Scalar(op, operands) = &data.item else { return false };
        if data.element_type != ElementType::Bf16 || !self.lanes.is_multiple_of(2) || !self.varies[id as usize].1 {
            return false;
        }
        let is_rounded = match op {
            ScalarOp::Unary(op) => !matches!(op, UnaryOp::Abs | UnaryOp::Negate | UnaryOp::Sign),
            ScalarOp::Binary(op) => !matches!(op, BinaryOp::Maximum | BinaryOp::Minimum),
            ScalarOp::Convert => program.item(operands[0]).element_type == ElementType::F32,
            _ => false,
        };
        if !is_rounded {
            return false;
        }
        let first = At { lane: at.lane & !1, ..at };
        let lanes = [first, At { lane: first.lane | 1, ..at }];
        for lane in lanes {
            self.compute(operands, lane);
        }
        let ir = self.ir;
        let word = match self.pair_instruction(id) {
            Some(name) => {
                let words: Vec<Val<'c>> = operands
                    .iter()
                    .map(|&o| {
                        let pair = lanes.map(|lane| self.known(o, lane).re);
                        ir.pack(&pair, ElementType::Bf16, false)
                    })
                    .collect();
                ir.pair_op(name, &words)
            }
            None => {
                let pair = lanes.map(|lane| match op {
                    ScalarOp::Convert => self.known(operands[0], lane).re,
                    _ => self.scalar(id, *op, operands, true, lane).re,
                });
                ir.pack(&pair, ElementType::Bf16, true)
            }
        };
        for (lane, value) in lanes.into_iter().zip(ir.unpack(word, ElementType::Bf16, 2)) {
            self.set_value(id, lane, value.into());
        }
        true
    }

    /// The instruction that computes an item on pairs, if there is one.
    pub(super) fn pair_instruction(&self, id: ItemId) -> Option<&'static str> {
        let program = self.program;
        let Item::Scalar(ScalarOp::Binary(op), operands) = &program.item(id).item else { return None };
        let is_bf16 = |&o: &ItemId| program.item(o).element_type == ElementType::Bf16;
        if !self.ir.adds_vectors || !self.lanes.is_multiple_of(2) || !operands.iter().all(is_bf16) {
            return None;
        }
        match op {
            BinaryOp::Add => Some("add"),
            BinaryOp::Subtract => Some("sub"),
            BinaryOp::Multiply => Some("mul"),
            _ => None,
        }
    }
}

impl<'c> crate::emit::ir::Ir<'c> {
    /// An instruction on two pairs of bf16, and its result.
    fn pair_op(&self, name: &str, words: &[Val<'c>]) -> Val<'c> {
        let word = self.context.i32_type();
        let text = format!("{name}.rn.bf16x2 $0, $1, $2;");
        let result = self.assembly(&text, "=r,r,r", word.fn_type(&[word.into(), word.into()], false), words);
        debug_assert_eq!(self.repr(result), Repr::I32);
        result
    }
}
