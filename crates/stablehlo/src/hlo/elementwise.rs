//! Operations on each element, constants and conversions.

use super::{Translate, Translator};
use crate::mlir::Attr;
use hloom_ir::attributes::{ComparisonDirection, ComparisonType, ResultAccuracy};
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::{BinaryOp, UnaryOp};
use hloom_ir::{ElementType, Op, Shape};

impl Translator<'_, '_> {
    pub(super) fn unary(&mut self, op: UnaryOp) -> Translate<()> {
        let accuracy = if op.takes_result_accuracy() { self.accuracy()? } else { ResultAccuracy::Default };
        self.plain(1, Op::Unary { op, accuracy })
    }

    /// HLO has no cube root of complex numbers: it is their power of a third.
    pub(super) fn cbrt(&mut self) -> Translate<()> {
        let x = self.operand(0)?;
        if self.shape(x).element_type().is_some_and(|e| !e.is_complex()) {
            return self.unary(UnaryOp::Cbrt);
        }
        self.expect_operands(1)?;
        let third = self.number_like(x, 1.0 / 3.0)?;
        let id = self.bin(BinaryOp::Power, x, third)?;
        self.bind(id)
    }

    /// Real and imag take real numbers too, where they are the identity and zero.
    pub(super) fn real_or_imag(&mut self, op: UnaryOp) -> Translate<()> {
        let x = self.operand(0)?;
        if self.shape(x).element_type().is_some_and(|e| !e.is_complex()) {
            let id = if op == UnaryOp::Real { x } else { self.number_like(x, 0.0)? };
            return self.bind(id);
        }
        self.plain(1, Op::unary(op))
    }

    fn accuracy(&self) -> Translate<ResultAccuracy> {
        let Some(id) = self.m.find(self.at, "result_accuracy") else { return Ok(ResultAccuracy::Default) };
        let mode = self.m.field(id, "mode").and_then(|m| self.m.as_str(m)).unwrap_or("DEFAULT");
        let number = |name| match self.m.field(id, name).map(|f| self.m.attr(f)) {
            Some(Attr::Float(x, _)) => *x,
            Some(Attr::Integer(n, _)) => *n as f64,
            _ => 0.0,
        };
        Ok(match mode {
            "HIGHEST" => ResultAccuracy::Highest,
            "TOLERANCE" => ResultAccuracy::Tolerance {
                atol: number("atol").to_bits(),
                rtol: number("rtol").to_bits(),
                ulps: self.m.field(id, "ulps").and_then(|u| self.m.as_int(u)).unwrap_or(0),
            },
            _ => ResultAccuracy::Default,
        })
    }

    /// The smaller or larger of two complex numbers, which HLO does not know: by their real parts, then by the others.
    fn complex_extremum(&mut self, op: BinaryOp) -> Translate<()> {
        self.expect_operands(2)?;
        let (x, y) = (self.operand(0)?, self.operand(1)?);
        let direction = if op == BinaryOp::Maximum { ComparisonDirection::Gt } else { ComparisonDirection::Lt };
        let (x_re, x_im) = self.parts(x)?;
        let (y_re, y_im) = self.parts(y)?;
        let first = self.cmp(direction, x_re, y_re)?;
        let same = self.cmp(ComparisonDirection::Eq, x_re, y_re)?;
        let second = self.cmp(direction, x_im, y_im)?;
        let tie = self.bin(BinaryOp::And, same, second)?;
        let chosen = self.bin(BinaryOp::Or, first, tie)?;
        let id = self.sel(chosen, x, y)?;
        self.bind(id)
    }

    pub(super) fn binary(&mut self, op: BinaryOp) -> Translate<()> {
        if matches!(op, BinaryOp::Maximum | BinaryOp::Minimum) {
            let x = self.operand(0)?;
            if self.shape(x).element_type().is_some_and(ElementType::is_complex) {
                return self.complex_extremum(op);
            }
        }
        self.plain(2, Op::Binary(op))
    }

    pub(super) fn compare(&mut self) -> Translate<()> {
        let direction = self.text("comparison_direction")?;
        let Some(direction) = ComparisonDirection::from_text(direction) else {
            return Err(self.bad_attribute("comparison_direction", "one of EQ, NE, GE, GT, LE, LT"));
        };
        let x = self.operand(0)?;
        let element = self.shape(x).element_type();
        // Only what differs from the element type's own order is said.
        let kind = self.text_opt("compare_type").and_then(ComparisonType::from_text);
        let kind = kind.filter(|&k| k == ComparisonType::TotalOrder && element.is_some_and(ElementType::is_float));
        self.plain(2, Op::Compare { direction, kind })
    }

    pub(super) fn convert(&mut self) -> Translate<()> {
        let x = self.operand(0)?;
        let shape = self.result_shape(0)?;
        // The sizes of the operand say more than a dynamic type.
        let shape = match (&shape, self.shape(x)) {
            (Shape::Array(to), Shape::Array(from)) if to.is_unbounded() => {
                from.with_element_type(to.element_type).into()
            }
            _ => shape,
        };
        let id = self.emit(Op::Convert, [x].as_slice(), shape)?;
        self.bind(id)
    }

    pub(super) fn reduce_precision(&mut self) -> Translate<()> {
        let narrow = |t: &Self, n: i64| {
            i32::try_from(n).map_err(|_| t.error(&codes::BAD_ATTRIBUTE, "a number of bits is out of range"))
        };
        let exponent_bits = narrow(self, self.int("exponent_bits")?)?;
        let mantissa_bits = narrow(self, self.int("mantissa_bits")?)?;
        self.plain(1, Op::ReducePrecision { exponent_bits, mantissa_bits })
    }

    pub(super) fn iota(&mut self) -> Translate<()> {
        let dimension = self.int("iota_dimension")?;
        self.plain(0, Op::Iota { dimension })
    }

    /// A unary operation on `x`, of the same shape.
    pub(super) fn un(&mut self, op: UnaryOp, x: InstructionId) -> Translate<InstructionId> {
        let shape = self.shape(x).clone();
        self.emit(Op::unary(op), [x].as_slice(), shape)
    }

    /// A binary operation on `x` and `y`, of the same shape.
    pub(super) fn bin(&mut self, op: BinaryOp, x: InstructionId, y: InstructionId) -> Translate<InstructionId> {
        let shape = self.shape(x).clone();
        self.emit(Op::Binary(op), [x, y].as_slice(), shape)
    }

    /// Whether the elements of `x` stand in that relation to those of `y`.
    pub(super) fn cmp(
        &mut self,
        direction: ComparisonDirection,
        x: InstructionId,
        y: InstructionId,
    ) -> Translate<InstructionId> {
        let shape = self.retyped(x, ElementType::Pred);
        self.emit(Op::Compare { direction, kind: None }, [x, y].as_slice(), shape)
    }

    /// Elements of `x` where `pred` holds, of `y` elsewhere.
    pub(super) fn sel(&mut self, pred: InstructionId, x: InstructionId, y: InstructionId) -> Translate<InstructionId> {
        let shape = self.shape(x).clone();
        self.emit(Op::Select, [pred, x, y].as_slice(), shape)
    }

    /// The numbers of `x` in another type.
    pub(super) fn converted(&mut self, x: InstructionId, element: ElementType) -> Translate<InstructionId> {
        if self.shape(x).element_type() == Some(element) {
            return Ok(x);
        }
        let shape = self.retyped(x, element);
        self.emit(Op::Convert, [x].as_slice(), shape)
    }

    /// The shape of `x` with another element type.
    pub(super) fn retyped(&self, x: InstructionId, element: ElementType) -> Shape {
        match self.shape(x) {
            Shape::Array(a) => a.with_element_type(element).into(),
            other => other.clone(),
        }
    }
}
