//! 64-bit integers as pairs of 32-bit ones, which is what the vector units have.
//!
//! Arrays of s64 and u64 are worked on as their low and high halves, both u32. What comes from elsewhere (parameters,
//! tuples, operations that are not known here) is split by the calls `X64SplitLow` and `X64SplitHigh`, and what goes there
//! is put together by `X64Combine`. Single numbers are the scalar unit's and stay whole, so that loops still count as they
//! did. f64 stays whole as well: two f32 do not hold as many bits.

use crate::edit::{add, array_of, flow_computations, remove_dead};
use crate::stage::staged;
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::layout::DimVec;
use hloom_ir::literal::Literal;
use hloom_ir::module::Module;
use hloom_ir::op::{BinaryOp, ConstantValue, CustomCall, Op, UnaryOp};
use hloom_ir::order::PostOrder;
use hloom_ir::shape::ArrayShape;
use hloom_passes::Pass;
use rustc_hash::FxHashMap;

/// The stage.
pub(crate) static STAGE: Pass = Pass {
    name: "split-64-bit",
    statement: "works on arrays of 64-bit integers as pairs of 32-bit ones",
    keeps_schedule: false,
    run: |module, context| {
        staged(module, context, |module, context| {
            let mut changes = 0;
            for c in flow_computations(module) {
                let order = PostOrder::new(module).instructions(c);
                if order.iter().any(|&i| is_long(module, i)) {
                    let mut splitter = Splitter { module, pairs: FxHashMap::default() };
                    changes += order.iter().filter(|&&i| splitter.rewrite(i).is_some()).count();
                }
            }
            if changes > 0 {
                remove_dead(module, context.target)?;
            }
            Ok(changes) as Result<usize, Diagnostic>
        })
    },
};

/// Whether it is an array of 64-bit integers of more than one element.
fn is_long(module: &Module, i: InstructionId) -> bool {
    array_of(module, i).is_some_and(|a| {
        matches!(a.element_type, ElementType::S64 | ElementType::U64)
            && !a.is_dynamic()
            && a.element_count().is_some_and(|n| n > 1)
    })
}

/// The halves of a value.
#[derive(Clone, Copy, Debug)]
struct Pair {
    low: InstructionId,
    high: InstructionId,
}

struct Splitter<'m> {
    module: &'m mut Module,
    pairs: FxHashMap<InstructionId, Pair>,
}

impl Splitter<'_> {
    /// Puts operations on halves into the place of an instruction; `None` if it stays.
    fn rewrite(&mut self, i: InstructionId) -> Option<()> {
        if !self.module[i].common.control_predecessors().is_empty() {
            return None;
        }
        let made = if is_long(self.module, i) {
            let pair = self.pair_of(i)?;
            let shape = array_of(self.module, i)?.clone();
            let whole = self.call("X64Combine", shape, &[pair.low, pair.high], i);
            self.pairs.insert(whole, pair);
            whole
        } else {
            self.short(i)?
        };
        self.module.replace_all_uses(i, made).ok()
    }

    /// The halves of the result of an instruction.
    fn pair_of(&mut self, i: InstructionId) -> Option<Pair> {
        let operands: Operands = self.module[i].operands().into();
        let is_signed = array_of(self.module, i)?.element_type == ElementType::S64;
        match self.module[i].op.clone() {
            Op::Constant(ConstantValue::Literal(literal)) => self.constant(i, &literal),
            Op::Iota { .. } => {
                let low = self.like(i, self.module[i].op.clone(), &[], i);
                Some(Pair { low, high: self.number(0, i) })
            }
            Op::Convert => self.widened(i, *operands.first()?),
            // Both halves go the same way; indices, predicates and the like stay what they are.
            Op::Broadcast { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Reverse { .. }
            | Op::Slice { .. }
            | Op::Concatenate { .. }
            | Op::DynamicSlice { .. }
            | Op::DynamicUpdateSlice
            | Op::Select
            | Op::Copy
            | Op::Gather(_) => self.moved(i, &operands),
            Op::Unary { op: UnaryOp::Not, .. } => {
                let x = self.halves(*operands.first()?)?;
                let op = self.module[i].op.clone();
                Some(Pair { low: self.like(i, op.clone(), &[x.low], i), high: self.like(i, op, &[x.high], i) })
            }
            Op::Unary { op: UnaryOp::Negate, .. } => {
                let x = self.halves(*operands.first()?)?;
                let zero = self.number(0, i);
                Some(self.subtract(Pair { low: zero, high: zero }, x, i))
            }
            Op::Binary(op) => {
                let (x, y) = (self.halves(*operands.first()?)?, self.halves(*operands.get(1)?)?);
                match op {
                    BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => {
                        Some(Pair { low: self.binary(op, x.low, y.low, i), high: self.binary(op, x.high, y.high, i) })
                    }
                    BinaryOp::Add => Some(self.sum(x, y, i)),
                    BinaryOp::Subtract => Some(self.subtract(x, y, i)),
                    BinaryOp::Multiply => Some(self.multiply(x, y, i)),
                    BinaryOp::Maximum | BinaryOp::Minimum => Some(self.extreme(op, x, y, is_signed, i)),
                    _ => None,
                }
            }
            Op::Clamp => {
                let &[least, x, most] = operands.as_slice() else { return None };
                let (least, x, most) = (self.spread(least, i)?, self.halves(x)?, self.spread(most, i)?);
                let above = self.extreme(BinaryOp::Maximum, x, least, is_signed, i);
                Some(self.extreme(BinaryOp::Minimum, above, most, is_signed, i))
            }
            _ => None,
        }
    }

    /// What takes the place of an instruction that reads 64-bit integers and makes something else.
    fn short(&mut self, i: InstructionId) -> Option<InstructionId> {
        let operands: Operands = self.module[i].operands().into();
        let &first = operands.first()?;
        if !is_long(self.module, first) {
            return None;
        }
        let is_signed = array_of(self.module, first)?.element_type == ElementType::S64;
        let result = array_of(self.module, i)?.clone();
        match self.module[i].op.clone() {
            Op::Compare { direction, kind: None } => {
                let (x, y) = (self.halves(first)?, self.halves(*operands.get(1)?)?);
                Some(self.compare(direction, x, y, is_signed, i))
            }
            Op::Convert if result.element_type == ElementType::Pred => {
                let x = self.halves(first)?;
                let any = self.binary(BinaryOp::Or, x.low, x.high, i);
                let zero = self.number(0, i);
                Some(self.compared(ComparisonDirection::Ne, any, zero, i))
            }
            // The low bits are what a narrower integer keeps.
            Op::Convert if result.element_type.is_integer() && result.element_type.bits() <= 32 => {
                let x = self.halves(first)?;
                Some(self.add("convert", Op::Convert, result, &[x.low], i))
            }
            _ => None,
        }
    }

    /// The halves of an operand: those it was made of, or those it is split into.
    fn halves(&mut self, x: InstructionId) -> Option<Pair> {
        if let Some(&pair) = self.pairs.get(&x) {
            return Some(pair);
        }
        let array = array_of(self.module, x)?;
        if !matches!(array.element_type, ElementType::S64 | ElementType::U64) || array.is_dynamic() {
            return None;
        }
        let half = array.with_element_type(ElementType::U32);
        if let Op::Constant(ConstantValue::Literal(literal)) = &self.module[x].op {
            let pair = self.constant(x, &literal.clone())?;
            self.pairs.insert(x, pair);
            return Some(pair);
        }
        let low = self.call("X64SplitLow", half.clone(), &[x], x);
        let high = self.call("X64SplitHigh", half, &[x], x);
        let pair = Pair { low, high };
        self.pairs.insert(x, pair);
        Some(pair)
    }

    /// The halves of an operand that may be a single number for all elements of the result of `i`.
    fn spread(&mut self, x: InstructionId, i: InstructionId) -> Option<Pair> {
        let pair = self.halves(x)?;
        if !array_of(self.module, x)?.is_scalar() {
            return Some(pair);
        }
        let everywhere = Op::Broadcast { dimensions: DimVec::new() };
        let low = self.like(i, everywhere.clone(), &[pair.low], i);
        Some(Pair { low, high: self.like(i, everywhere, &[pair.high], i) })
    }

    fn constant(&mut self, i: InstructionId, literal: &Literal) -> Option<Pair> {
        let Literal::Array(array) = literal else { return None };
        let shape = array_of(self.module, i)?.with_element_type(ElementType::U32);
        let words: Vec<u64> =
            array.bytes().chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default())).collect();
        let half = |shift: u32| -> Vec<u32> { words.iter().map(|w| (w >> shift) as u32).collect() };
        let mut add = |half: Vec<u32>| {
            let literal = Literal::array(shape.dims().iter().copied(), &half).ok()?;
            Some(self.add("constant", Op::constant(literal), shape.clone(), &[], i))
        };
        Some(Pair { low: add(half(0))?, high: add(half(32))? })
    }

    /// The halves of a narrower integer, or of a 64-bit one of the other sign.
    fn widened(&mut self, i: InstructionId, from: InstructionId) -> Option<Pair> {
        let array = array_of(self.module, from)?.clone();
        if matches!(array.element_type, ElementType::S64 | ElementType::U64) {
            return self.halves(from);
        }
        let is_narrow = array.element_type == ElementType::Pred
            || array.element_type.is_integer() && array.element_type.bits() <= 32;
        if !is_narrow {
            return None;
        }
        if !array.element_type.is_signed_integer() {
            let low = self.like(i, Op::Convert, &[from], i);
            return Some(Pair { low, high: self.number(0, i) });
        }
        let signed = array.with_element_type(ElementType::S32);
        let wide = match array.element_type {
            ElementType::S32 => from,
            _ => self.add("convert", Op::Convert, signed.clone(), &[from], i),
        };
        let bits = self.scalar_of(ElementType::S32, 31, i);
        let bits = self.add("broadcast", Op::Broadcast { dimensions: DimVec::new() }, signed.clone(), &[bits], i);
        let shift = Op::Binary(BinaryOp::ShiftRightArithmetic);
        let sign = self.add("shift-right-arithmetic", shift, signed, &[wide, bits], i);
        let low = self.like(i, Op::BitcastConvert, &[wide], i);
        let high = self.like(i, Op::BitcastConvert, &[sign], i);
        Some(Pair { low, high })
    }

    /// The same operation on both halves of those operands that are of the result's type.
    fn moved(&mut self, i: InstructionId, operands: &[InstructionId]) -> Option<Pair> {
        let element_type = array_of(self.module, i)?.element_type;
        // Positions are read whole.
        let values = match self.module[i].op {
            Op::DynamicSlice { .. } | Op::Gather(_) => 1,
            Op::DynamicUpdateSlice => 2,
            _ => operands.len(),
        };
        let (mut low, mut high) = (Operands::new(), Operands::new());
        for (n, &o) in operands.iter().enumerate() {
            let is_value = n < values && array_of(self.module, o)?.element_type == element_type;
            let pair = if is_value { self.halves(o)? } else { Pair { low: o, high: o } };
            low.push(pair.low);
            high.push(pair.high);
        }
        let op = self.module[i].op.clone();
        Some(Pair { low: self.like(i, op.clone(), &low, i), high: self.like(i, op, &high, i) })
    }

    fn sum(&mut self, x: Pair, y: Pair, at: InstructionId) -> Pair {
        let low = self.binary(BinaryOp::Add, x.low, y.low, at);
        let carries = self.compared(ComparisonDirection::Lt, low, x.low, at);
        let carry = self.like(at, Op::Convert, &[carries], at);
        let high = self.binary(BinaryOp::Add, x.high, y.high, at);
        Pair { low, high: self.binary(BinaryOp::Add, high, carry, at) }
    }

    fn subtract(&mut self, x: Pair, y: Pair, at: InstructionId) -> Pair {
        let low = self.binary(BinaryOp::Subtract, x.low, y.low, at);
        let borrows = self.compared(ComparisonDirection::Lt, x.low, y.low, at);
        let borrow = self.like(at, Op::Convert, &[borrows], at);
        let high = self.binary(BinaryOp::Subtract, x.high, y.high, at);
        Pair { low, high: self.binary(BinaryOp::Subtract, high, borrow, at) }
    }

    /// The low 64 bits of a product, out of products of 16 by 16 bits.
    fn multiply(&mut self, x: Pair, y: Pair, at: InstructionId) -> Pair {
        use BinaryOp::{Add, And, Multiply, Or, ShiftLeft, ShiftRightLogical};
        let (mask, sixteen) = (self.number(0xffff, at), self.number(16, at));
        let mut op = |op, a, b| self.binary(op, a, b, at);
        let (x0, x1) = (op(And, x.low, mask), op(ShiftRightLogical, x.low, sixteen));
        let (y0, y1) = (op(And, y.low, mask), op(ShiftRightLogical, y.low, sixteen));
        let (p00, p01) = (op(Multiply, x0, y0), op(Multiply, x0, y1));
        let (p10, p11) = (op(Multiply, x1, y0), op(Multiply, x1, y1));
        let (a, b, c) = (op(ShiftRightLogical, p00, sixteen), op(And, p01, mask), op(And, p10, mask));
        let middle = op(Add, a, b);
        let middle = op(Add, middle, c);
        let (bottom, top) = (op(And, p00, mask), op(ShiftLeft, middle, sixteen));
        let low = op(Or, bottom, top);
        let mut high = p11;
        for part in [p01, p10, middle] {
            let over = op(ShiftRightLogical, part, sixteen);
            high = op(Add, high, over);
        }
        for (a, b) in [(x.low, y.high), (x.high, y.low)] {
            let cross = op(Multiply, a, b);
            high = op(Add, high, cross);
        }
        Pair { low, high }
    }

    fn extreme(&mut self, op: BinaryOp, x: Pair, y: Pair, is_signed: bool, at: InstructionId) -> Pair {
        let direction = match op {
            BinaryOp::Maximum => ComparisonDirection::Ge,
            _ => ComparisonDirection::Le,
        };
        let takes_first = self.compare(direction, x, y, is_signed, at);
        let low = self.like(at, Op::Select, &[takes_first, x.low, y.low], at);
        Pair { low, high: self.like(at, Op::Select, &[takes_first, x.high, y.high], at) }
    }

    fn compare(
        &mut self,
        direction: ComparisonDirection,
        x: Pair,
        y: Pair,
        is_signed: bool,
        at: InstructionId,
    ) -> InstructionId {
        use ComparisonDirection::{Eq, Ge, Gt, Le, Lt, Ne};
        let same_high = self.compared(Eq, x.high, y.high, at);
        if matches!(direction, Eq | Ne) {
            let low = self.compared(direction, x.low, y.low, at);
            let (high, both) = match direction {
                Eq => (same_high, BinaryOp::And),
                _ => (self.compared(Ne, x.high, y.high, at), BinaryOp::Or),
            };
            return self.predicate(both, low, high, at);
        }
        let strict = match direction {
            Lt | Le => Lt,
            _ => Gt,
        };
        let (a, b) = match is_signed {
            true => (self.signed(x.high, at), self.signed(y.high, at)),
            false => (x.high, y.high),
        };
        let decided = self.compared(strict, a, b, at);
        let low = self.compared(direction, x.low, y.low, at);
        debug_assert!(matches!(direction, Lt | Le | Gt | Ge));
        let undecided = self.predicate(BinaryOp::And, same_high, low, at);
        self.predicate(BinaryOp::Or, decided, undecided, at)
    }

    fn signed(&mut self, x: InstructionId, at: InstructionId) -> InstructionId {
        let shape = self.shape(at, ElementType::S32);
        self.add("bitcast-convert", Op::BitcastConvert, shape, &[x], at)
    }

    fn compared(
        &mut self,
        direction: ComparisonDirection,
        x: InstructionId,
        y: InstructionId,
        at: InstructionId,
    ) -> InstructionId {
        let shape = self.shape(at, ElementType::Pred);
        self.add("compare", Op::Compare { direction, kind: None }, shape, &[x, y], at)
    }

    fn predicate(&mut self, op: BinaryOp, x: InstructionId, y: InstructionId, at: InstructionId) -> InstructionId {
        let shape = self.shape(at, ElementType::Pred);
        let op = Op::Binary(op);
        self.add(op.opcode().name(), op, shape, &[x, y], at)
    }

    fn binary(&mut self, op: BinaryOp, x: InstructionId, y: InstructionId, at: InstructionId) -> InstructionId {
        self.like(at, Op::Binary(op), &[x, y], at)
    }

    /// A number everywhere in an array like the result of `at`.
    fn number(&mut self, value: u32, at: InstructionId) -> InstructionId {
        let scalar = self.scalar_of(ElementType::U32, value, at);
        self.like(at, Op::Broadcast { dimensions: DimVec::new() }, &[scalar], at)
    }

    fn scalar_of(&mut self, element_type: ElementType, value: u32, at: InstructionId) -> InstructionId {
        let literal = match element_type {
            ElementType::S32 => Literal::scalar(value as i32),
            _ => Literal::scalar(value),
        };
        let shape = ArrayShape::new(element_type, []).with_default_layout();
        self.add("constant", Op::constant(literal), shape, &[], at)
    }

    /// The array that `at` makes, of another type. A comparison is of the size of what it compares.
    fn shape(&self, at: InstructionId, element_type: ElementType) -> ArrayShape {
        let array = array_of(self.module, at).cloned().unwrap_or_else(|| ArrayShape::new(element_type, []));
        array.with_element_type(element_type)
    }

    /// An operation whose result is like that of `shape_of`, of u32.
    fn like(
        &mut self,
        shape_of: InstructionId,
        op: Op,
        operands: &[InstructionId],
        at: InstructionId,
    ) -> InstructionId {
        let shape = self.shape(shape_of, ElementType::U32);
        self.add(op.opcode().name(), op, shape, operands, at)
    }

    fn call(
        &mut self,
        target: &str,
        shape: ArrayShape,
        operands: &[InstructionId],
        at: InstructionId,
    ) -> InstructionId {
        self.add("custom-call", Op::CustomCall(Box::new(CustomCall::new(target))), shape, operands, at)
    }

    fn add(
        &mut self,
        name: &str,
        op: Op,
        shape: ArrayShape,
        operands: &[InstructionId],
        at: InstructionId,
    ) -> InstructionId {
        let common = Common { metadata: self.module[at].common.metadata.clone(), ..Common::default() };
        add(self.module, at, name, op, shape, operands, common)
    }
}
