//! CHLO: operations that broadcast, and functions that HLO has as one operation or not at all.

use super::{Translate, Translator};
use crate::mlir::{Attr, OpKind};
use hloom_ir::attributes::{ComparisonDirection, ComparisonType, DotDimensionNumbers, PrecisionConfig};
use hloom_ir::diagnostic::codes::mlir as codes;
use hloom_ir::entity::InstructionId;
use hloom_ir::layout::DimVec;
use hloom_ir::op::{BinaryOp, RaggedDot, Scan, UnaryOp};
use hloom_ir::{ArrayShape, ElementType, Op, Shape};

impl Translator<'_, '_> {
    pub(super) fn chlo(&mut self) -> Translate<()> {
        use OpKind as K;
        let kind = self.m.kind(self.at);
        if let Some(op) = broadcast_op(kind) {
            let (x, y) = self.broadcast_operands()?;
            let shape = self.result_shape(0)?;
            let id = self.emit(Op::Binary(op), [x, y].as_slice(), shape)?;
            return self.bind(id);
        }
        match kind {
            K::ChloAcos => self.unary(UnaryOp::Acos),
            K::ChloAcosh => self.unary(UnaryOp::Acosh),
            K::ChloAsin => self.unary(UnaryOp::Asin),
            K::ChloAsinh => self.unary(UnaryOp::Asinh),
            K::ChloAtanh => self.unary(UnaryOp::Atanh),
            K::ChloCosh => self.unary(UnaryOp::Cosh),
            K::ChloSinh => self.unary(UnaryOp::Sinh),
            K::ChloErf => self.unary(UnaryOp::Erf),
            K::ChloMulhi => self.binary(BinaryOp::Mulhi),
            K::ChloAtan => self.function_of(Self::atan),
            K::ChloSquare => self.function_of(Self::square),
            K::ChloConj => self.function_of(Self::conj),
            K::ChloIsInf | K::ChloIsPosInf | K::ChloIsNegInf => self.is_inf(kind),
            K::ChloErfc => self.widened(Self::erfc),
            K::ChloErfInv => self.widened(Self::erf_inv),
            K::ChloLgamma => self.widened(Self::lgamma),
            K::ChloDigamma => self.widened(Self::digamma),
            K::ChloBesselI1e => self.widened(Self::bessel_i1e),
            K::ChloPolygamma => self.widened2(Self::polygamma),
            K::ChloZeta => self.widened2(Self::zeta),
            K::ChloNextAfter => {
                let (x, y) = (self.operand(0)?, self.operand(1)?);
                let id = self.next_after(x, y)?;
                self.bind(id)
            }
            K::ChloBroadcastNextAfter => {
                let (x, y) = self.broadcast_operands()?;
                let id = self.next_after(x, y)?;
                self.bind(id)
            }
            K::ChloBroadcastPolygamma => self.broadcast_widened2(Self::polygamma),
            K::ChloBroadcastZeta => self.broadcast_widened2(Self::zeta),
            K::ChloBroadcastCompare => self.broadcast_compare(),
            K::ChloBroadcastSelect => self.broadcast_select(),
            K::ChloConstantLike => self.constant_like(),
            K::ChloTopK => {
                let x = self.operand(0)?;
                let size = self.shape(x).as_array().and_then(|a| a.dims().last().copied()).unwrap_or(0);
                let k = self.int("k")?.min(size);
                let id = self.top_k(x, k)?;
                self.bind_tuple(id)
            }
            K::ChloRaggedDot => self.ragged_dot(),
            K::ChloScan => self.scan(),
            _ => Err(self.error(&codes::NO_HLO_FORM, format!("{} has no counterpart in HLO", self.op_name()))),
        }
    }

    /// A function of one operand.
    fn function_of(&mut self, f: fn(&mut Self, InstructionId) -> Translate<InstructionId>) -> Translate<()> {
        self.expect_operands(1)?;
        let x = self.operand(0)?;
        let id = f(self, x)?;
        self.bind(id)
    }

    /// A function of one operand, in f32 for the smaller types.
    fn widened(&mut self, f: fn(&mut Self, InstructionId) -> Translate<InstructionId>) -> Translate<()> {
        self.expect_operands(1)?;
        let x = self.operand(0)?;
        let narrow = self.float_type(x)?;
        let wide = wide_type(narrow);
        let x = self.converted(x, wide)?;
        let y = f(self, x)?;
        let id = self.converted(y, narrow)?;
        self.bind(id)
    }

    /// A function of two operands, in f32 for the smaller types.
    fn widened2(
        &mut self,
        f: fn(&mut Self, InstructionId, InstructionId) -> Translate<InstructionId>,
    ) -> Translate<()> {
        self.expect_operands(2)?;
        let (x, y) = (self.operand(0)?, self.operand(1)?);
        self.widened_pair(x, y, f)
    }

    fn broadcast_widened2(
        &mut self,
        f: fn(&mut Self, InstructionId, InstructionId) -> Translate<InstructionId>,
    ) -> Translate<()> {
        let (x, y) = self.broadcast_operands()?;
        self.widened_pair(x, y, f)
    }

    fn widened_pair(
        &mut self,
        x: InstructionId,
        y: InstructionId,
        f: fn(&mut Self, InstructionId, InstructionId) -> Translate<InstructionId>,
    ) -> Translate<()> {
        let narrow = self.float_type(x)?;
        let wide = wide_type(narrow);
        let (x, y) = (self.converted(x, wide)?, self.converted(y, wide)?);
        let z = f(self, x, y)?;
        let id = self.converted(z, narrow)?;
        self.bind(id)
    }

    fn float_type(&self, x: InstructionId) -> Translate<ElementType> {
        match self.shape(x).element_type() {
            Some(t) if t.is_float() => Ok(t),
            _ => Err(self.error(&codes::BAD_OPERANDS, format!("{} takes real numbers", self.op_name()))),
        }
    }

    fn is_inf(&mut self, kind: OpKind) -> Translate<()> {
        self.expect_operands(1)?;
        let mut x = self.operand(0)?;
        let value = match kind {
            OpKind::ChloIsNegInf => f64::NEG_INFINITY,
            _ => f64::INFINITY,
        };
        if kind == OpKind::ChloIsInf {
            x = self.un(UnaryOp::Abs, x)?;
        }
        let infinity = self.number_like(x, value)?;
        let id = self.cmp(ComparisonDirection::Eq, x, infinity)?;
        self.bind(id)
    }

    /// Both operands in the shape of the result.
    fn broadcast_operands(&mut self) -> Translate<(InstructionId, InstructionId)> {
        self.expect_operands(2)?;
        let (x, y) = (self.operand(0)?, self.operand(1)?);
        let dims = self.common_dims(&[x, y])?;
        let named = self.ints("broadcast_dimensions")?;
        Ok((self.spread(x, &dims, &named)?, self.spread(y, &dims, &named)?))
    }

    /// The sizes to which arrays are broadcast together: each dimension the largest, aligned at the end.
    fn common_dims(&self, arrays: &[InstructionId]) -> Translate<DimVec> {
        let named = self.ints("broadcast_dimensions")?;
        let shapes = arrays.iter().map(|&a| self.shape(a).as_array());
        let shapes: Option<Vec<&ArrayShape>> = shapes.collect();
        let shapes = shapes.ok_or_else(|| self.error(&codes::BAD_OPERANDS, "only arrays are broadcast"))?;
        let rank = shapes.iter().map(|s| s.rank()).max().unwrap_or(0);
        let mut dims: DimVec = smallvec::smallvec![1; rank];
        for shape in shapes {
            for (i, &n) in shape.dims().iter().enumerate() {
                let d = placement(i, shape.rank(), rank, &named);
                let Some(slot) = dims.get_mut(d) else {
                    return Err(self.bad_attribute("broadcast_dimensions", "a list of the result's dimensions"));
                };
                *slot = if *slot == 1 { n } else { *slot };
            }
        }
        Ok(dims)
    }

    fn spread(&mut self, x: InstructionId, dims: &[i64], named: &[i64]) -> Translate<InstructionId> {
        let Some(from) = self.shape(x).as_array() else {
            return Err(self.error(&codes::BAD_OPERANDS, "only arrays are broadcast"));
        };
        if from.dims() == dims {
            return Ok(x);
        }
        let rank = from.rank();
        let dimensions: Vec<i64> = (0..rank).map(|i| placement(i, rank, dims.len(), named) as i64).collect();
        let shape = ArrayShape::new(from.element_type, dims.iter().copied()).with_default_layout();
        self.broadcast_to(x, shape.into(), &dimensions)
    }

    fn broadcast_compare(&mut self) -> Translate<()> {
        let (x, y) = self.broadcast_operands()?;
        let Some(direction) = ComparisonDirection::from_text(self.text("comparison_direction")?) else {
            return Err(self.bad_attribute("comparison_direction", "one of EQ, NE, GE, GT, LE, LT"));
        };
        let kind = self.text_opt("compare_type").and_then(ComparisonType::from_text);
        let kind = kind.filter(|&k| k == ComparisonType::TotalOrder);
        let shape = self.retyped(x, ElementType::Pred);
        let id = self.emit(Op::Compare { direction, kind }, [x, y].as_slice(), shape)?;
        self.bind(id)
    }

    fn broadcast_select(&mut self) -> Translate<()> {
        self.expect_operands(3)?;
        let (p, x, y) = (self.operand(0)?, self.operand(1)?, self.operand(2)?);
        let dims = self.common_dims(&[p, x, y])?;
        let scalar = self.shape(p).as_array().is_some_and(ArrayShape::is_scalar);
        let p = if scalar { p } else { self.spread(p, &dims, &[])? };
        let (x, y) = (self.spread(x, &dims, &[])?, self.spread(y, &dims, &[])?);
        let id = self.sel(p, x, y)?;
        self.bind(id)
    }

    fn constant_like(&mut self) -> Translate<()> {
        let x = self.operand(0)?;
        let value = match self.attr("value").map(|id| self.m.attr(id)) {
            Some(Attr::Float(v, _)) => *v,
            Some(Attr::Integer(v, _)) => *v as f64,
            Some(Attr::Bool(b)) => f64::from(u8::from(*b)),
            _ => return Err(self.bad_attribute("value", "a number")),
        };
        let id = self.number_like(x, value)?;
        self.bind(id)
    }

    fn ragged_dot(&mut self) -> Translate<()> {
        let dims = DotDimensionNumbers {
            lhs_contracting: self.ints("lhs_contracting_dimensions")?,
            rhs_contracting: self.ints("rhs_contracting_dimensions")?,
            lhs_batch: self.ints("lhs_batching_dimensions")?,
            rhs_batch: self.ints("rhs_batching_dimensions")?,
        };
        let dot = RaggedDot {
            dims,
            lhs_ragged: self.ints("lhs_ragged_dimensions")?,
            rhs_group: self.ints("rhs_group_dimensions")?,
            precision: PrecisionConfig { operand_precision: self.precision()?, ..PrecisionConfig::default() },
        };
        self.plain(3, Op::RaggedDot(Box::new(dot)))
    }

    /// A scan: its body takes a slice of each input and the carries, and gives outputs and carries.
    fn scan(&mut self) -> Translate<()> {
        let region = self.region(0)?;
        let to_apply = self.scalar_function(region)?;
        let operands = self.operands()?;
        let carries = self.int_or("num_carries", operands.len() as i64 / 2)?;
        let is_associative = match self.attr("is_associative") {
            Some(_) => Some(self.flag("is_associative")?),
            None => None,
        };
        let scan = Scan {
            dimension: self.int_or("dimension", 0)?,
            num_carries: carries,
            is_reverse: self.flag("is_reverse")?,
            is_associative,
            to_apply,
        };
        self.emit_results(Op::Scan(Box::new(scan)), operands)
    }

    fn atan(&mut self, x: InstructionId) -> Translate<InstructionId> {
        if !self.shape(x).element_type().is_some_and(ElementType::is_complex) {
            let one = self.number_like(x, 1.0)?;
            return self.bin(BinaryOp::Atan2, x, one);
        }
        // atan z = -i atanh(i z)
        let (re, im) = self.parts(x)?;
        let minus = self.un(UnaryOp::Negate, im)?;
        let turned = self.complex(minus, re)?;
        let y = self.un(UnaryOp::Atanh, turned)?;
        let (re, im) = self.parts(y)?;
        let minus = self.un(UnaryOp::Negate, re)?;
        self.complex(im, minus)
    }

    fn square(&mut self, x: InstructionId) -> Translate<InstructionId> {
        if !self.shape(x).element_type().is_some_and(ElementType::is_complex) {
            return self.bin(BinaryOp::Multiply, x, x);
        }
        let (re, im) = self.parts(x)?;
        let difference = self.bin(BinaryOp::Subtract, re, im)?;
        let sum = self.bin(BinaryOp::Add, re, im)?;
        let real = self.bin(BinaryOp::Multiply, difference, sum)?;
        let product = self.bin(BinaryOp::Multiply, re, im)?;
        let imaginary = self.bin(BinaryOp::Add, product, product)?;
        self.complex(real, imaginary)
    }

    fn conj(&mut self, x: InstructionId) -> Translate<InstructionId> {
        if !self.shape(x).element_type().is_some_and(ElementType::is_complex) {
            return Ok(x);
        }
        let (re, im) = self.parts(x)?;
        let minus = self.un(UnaryOp::Negate, im)?;
        self.complex(re, minus)
    }

    pub(super) fn parts(&mut self, x: InstructionId) -> Translate<(InstructionId, InstructionId)> {
        let element = self.shape(x).element_type().map_or(ElementType::F32, ElementType::component);
        let shape = self.retyped(x, element);
        let re = self.emit(Op::unary(UnaryOp::Real), [x].as_slice(), shape.clone())?;
        let im = self.emit(Op::unary(UnaryOp::Imag), [x].as_slice(), shape)?;
        Ok((re, im))
    }

    fn complex(&mut self, re: InstructionId, im: InstructionId) -> Translate<InstructionId> {
        let element = self.shape(re).element_type().and_then(ElementType::complex).unwrap_or(ElementType::C64);
        let shape: Shape = self.retyped(re, element);
        self.emit(Op::Binary(BinaryOp::Complex), [re, im].as_slice(), shape)
    }
}

/// The type in which a function of numbers of type `t` is computed.
fn wide_type(t: ElementType) -> ElementType {
    if t == ElementType::F64 { t } else { ElementType::F32 }
}

/// Where dimension `i` of an array of `rank` dimensions goes among `result`: where it is said, otherwise aligned at the
/// end.
fn placement(i: usize, rank: usize, result: usize, named: &[i64]) -> usize {
    match named.get(i) {
        Some(&d) if rank < result && named.len() == rank => usize::try_from(d).unwrap_or(usize::MAX),
        _ => i + result - rank,
    }
}

fn broadcast_op(kind: OpKind) -> Option<BinaryOp> {
    use OpKind as K;
    Some(match kind {
        K::ChloBroadcastAdd => BinaryOp::Add,
        K::ChloBroadcastAnd => BinaryOp::And,
        K::ChloBroadcastAtan2 => BinaryOp::Atan2,
        K::ChloBroadcastComplex => BinaryOp::Complex,
        K::ChloBroadcastDivide => BinaryOp::Divide,
        K::ChloBroadcastMaximum => BinaryOp::Maximum,
        K::ChloBroadcastMinimum => BinaryOp::Minimum,
        K::ChloBroadcastMultiply => BinaryOp::Multiply,
        K::ChloBroadcastOr => BinaryOp::Or,
        K::ChloBroadcastPower => BinaryOp::Power,
        K::ChloBroadcastRemainder => BinaryOp::Remainder,
        K::ChloBroadcastShiftLeft => BinaryOp::ShiftLeft,
        K::ChloBroadcastShiftRightArithmetic => BinaryOp::ShiftRightArithmetic,
        K::ChloBroadcastShiftRightLogical => BinaryOp::ShiftRightLogical,
        K::ChloBroadcastSubtract => BinaryOp::Subtract,
        K::ChloBroadcastXor => BinaryOp::Xor,
        _ => return None,
    })
}
