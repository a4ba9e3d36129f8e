//! Bitcasts between numbers and single bits.
//!
//! A truth value is one bit in StableHLO and a byte in HLO, so that bits are taken out of numbers, and put together to
//! numbers, by shifts. The first bit is the lowest, as in memory.

use super::{Translate, Translator};
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::BinaryOp;
use hloom_ir::{ArrayShape, ElementType, Op, Shape};

impl Translator<'_, '_> {
    pub(super) fn bitcast_convert(&mut self) -> Translate<()> {
        let x = self.operand(0)?;
        let result = self.result_shape(0)?;
        let from = self.shape(x).element_type();
        match (from, result.element_type()) {
            (Some(ElementType::Pred), Some(to)) if to != ElementType::Pred => {
                let id = self.number_of_bits(x, to, result)?;
                self.bind(id)
            }
            (Some(from), Some(ElementType::Pred)) if from != ElementType::Pred => {
                let id = self.bits_of_number(x, from, result)?;
                self.bind(id)
            }
            _ => self.plain(1, Op::BitcastConvert),
        }
    }

    /// The bits of each number, in a last dimension.
    fn bits_of_number(&mut self, x: InstructionId, from: ElementType, result: Shape) -> Translate<InstructionId> {
        let (same, wide) = self.unsigned(from)?;
        let number = self.emit(Op::BitcastConvert, [x].as_slice(), self.retyped(x, same))?;
        let number = self.converted(number, wide)?;
        let Some(dims) = result.as_array().map(|a| a.dims().to_vec()) else { return Err(self.no_bits()) };
        let rank = self.shape(x).as_array().map_or(0, ArrayShape::rank) as i64;
        if dims.len() as i64 != rank + 1 || dims.last() != Some(&i64::from(from.bits())) {
            return Err(self.no_bits());
        }
        let shape: Shape = ArrayShape::new(wide, dims).with_default_layout().into();
        let all = self.broadcast_to(number, shape.clone(), &(0..rank).collect::<Vec<_>>())?;
        let place = self.emit(Op::Iota { dimension: rank }, [].as_slice(), shape.clone())?;
        let shifted = self.bin(BinaryOp::ShiftRightLogical, all, place)?;
        let one = self.whole(wide, 1)?;
        let one = self.splat(one, shape.clone())?;
        let bit = self.bin(BinaryOp::And, shifted, one)?;
        self.cmp(ComparisonDirection::Eq, bit, one)
    }

    /// The numbers whose bits stand in the last dimension.
    fn number_of_bits(&mut self, x: InstructionId, to: ElementType, result: Shape) -> Translate<InstructionId> {
        let (same, wide) = self.unsigned(to)?;
        let Some(dims) = self.shape(x).as_array().map(|a| a.dims().to_vec()) else { return Err(self.no_bits()) };
        let Some((_, kept)) = dims.split_last().filter(|(n, _)| **n == i64::from(to.bits())) else {
            return Err(self.no_bits());
        };
        let last = kept.len() as i64;
        let shape: Shape = ArrayShape::new(wide, dims.iter().copied()).with_default_layout().into();
        let bits = self.converted(x, wide)?;
        let place = self.emit(Op::Iota { dimension: last }, [].as_slice(), shape)?;
        let shifted = self.bin(BinaryOp::ShiftLeft, bits, place)?;
        let zero = self.whole(wide, 0)?;
        let to_apply = self.named_reducer(BinaryOp::Or, wide)?;
        let joined = ArrayShape::new(wide, kept.iter().copied()).with_default_layout();
        let reduce = Op::Reduce { dimensions: [last].as_slice().into(), to_apply };
        let number = self.emit(reduce, [shifted, zero].as_slice(), joined.into())?;
        let number = self.converted(number, same)?;
        self.emit(Op::BitcastConvert, [number].as_slice(), result)
    }

    /// The unsigned type of as many bits, and the one in which they are shifted.
    fn unsigned(&self, element: ElementType) -> Translate<(ElementType, ElementType)> {
        use ElementType::*;
        Ok(match element.bits() {
            1 if element != Pred => (U1, U8),
            2 => (U2, U8),
            4 => (U4, U8),
            8 => (U8, U8),
            16 => (U16, U16),
            32 => (U32, U32),
            64 if !element.is_complex() => (U64, U64),
            _ => return Err(self.no_bits()),
        })
    }

    fn no_bits(&self) -> Box<hloom_ir::diagnostic::Diagnostic> {
        self.error(&codes::BAD_OPERANDS, "the bits of the operand do not make up the result")
    }
}
