//! Operations on single elements, as LLVM code, with the semantics of the evaluator.

use crate::emit::ir::{Ir, Repr, Val, lanes};
use crate::emit::value::V;
use crate::narrow::is_narrow;
use hloom_ir::ElementType;
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::op::{BinaryOp, UnaryOp};
use hloom_loops::graph::{Function, FunctionOp, ScalarOp};
use inkwell::FloatPredicate::{OEQ, OGE, OGT, OLE, OLT, UEQ, UNE, UNO};
use inkwell::IntPredicate::{EQ, NE, SGE, SGT, SLE, SLT, UGE, UGT, ULE, ULT};

impl<'c> Ir<'c> {
    /// `op` of values of the types `from`.
    pub(crate) fn scalar_op(&self, op: ScalarOp, a: &[V<'c>], from: &[ElementType], to: ElementType) -> V<'c> {
        if from.iter().any(|&t| is_narrow(t)) && !matches!(op, ScalarOp::Select | ScalarOp::Convert) {
            return self.narrow_op(op, a, from, to);
        }
        match op {
            ScalarOp::Unary(op) => self.unary(op, a[0], from[0], to),
            ScalarOp::Binary(op) => self.binary(op, a[0], a[1], from[0]),
            ScalarOp::Compare { direction, total } => self.compare(direction, total, a[0], a[1], from[0]).into(),
            ScalarOp::Select => V {
                re: self.select(a[0].re, a[1].re, a[2].re),
                im: a[1].im.zip(a[2].im).map(|(x, y)| self.select(a[0].re, x, y)),
            },
            ScalarOp::Clamp => self.clamp(a[0].re, a[1].re, a[2].re, to).into(),
            ScalarOp::Convert => self.convert(a[0], from[0], to),
            ScalarOp::BitcastConvert => {
                let bits = self.as_memory(a[0].re, from[0]);
                let memory = crate::emit::value::memory_repr(to);
                self.of_memory(self.bitcast(bits, memory), to).into()
            }
            ScalarOp::ReducePrecision { exponent_bits, mantissa_bits } => {
                self.reduce_precision(a[0].re, from[0], exponent_bits, mantissa_bits).into()
            }
        }
    }

    /// A function of the program applied to values of its parameters' types.
    pub(crate) fn apply(&self, function: &Function, arguments: &[V<'c>]) -> Vec<V<'c>> {
        let mut values: Vec<V<'c>> = Vec::with_capacity(function.code.len());
        for step in &function.code {
            let value = match &step.op {
                FunctionOp::Parameter(n) => arguments[*n as usize],
                FunctionOp::Constant(t, bytes) => self.constant(*t, bytes),
                FunctionOp::Scalar(op) => {
                    let operands: Vec<V<'c>> = step.operands.iter().map(|&o| values[o as usize]).collect();
                    let types: Vec<ElementType> =
                        step.operands.iter().map(|&o| function.code[o as usize].element_type).collect();
                    self.scalar_op(*op, &operands, &types, step.element_type)
                }
            };
            values.push(value);
        }
        function.results.iter().map(|&r| values[r as usize]).collect()
    }

    /// A number computed in f32 as the nearest of the type, still held as f32.
    pub(crate) fn round_to(&self, x: Val<'c>, t: ElementType) -> Val<'c> {
        match t {
            ElementType::F16 => self.fpext(self.fptrunc(x, Repr::F16), Repr::F32),
            ElementType::Bf16 if self.is_gpu => self.round_to_bf16_gpu(x),
            ElementType::Bf16 => {
                let quiet = self.or(self.bitcast(x, Repr::I32), self.int(Repr::I32, 0x0040_0000));
                self.high_half(self.select(self.fcmp(UNO, x, x), quiet, self.rounded_bits(x)))
            }
            _ => x,
        }
    }

    /// [`Ir::round_to`] of a sum, difference, product, quotient or root of numbers of the type. If such a result is not
    /// a number, it is the machine's own NaN or that of an operand made quiet: the bits that bf16 has not are zero, and
    /// rounding as if it were a number leaves it as it is.
    fn round_arithmetic(&self, x: Val<'c>, t: ElementType) -> Val<'c> {
        match t {
            ElementType::Bf16 if !self.is_gpu => self.high_half(self.rounded_bits(x)),
            _ => self.round_to(x, t),
        }
    }

    /// The bits of an f32 that is a number, of which the high half is the nearest bf16, the even one of two.
    fn rounded_bits(&self, x: Val<'c>) -> Val<'c> {
        let int = |n: i64| self.int(Repr::I32, n);
        let bits = self.bitcast(x, Repr::I32);
        // A choice, not arithmetic on the bit: machines with masks do with one instruction less, LLVM mends it for
        // others.
        let is_odd = self.icmp(NE, self.and(bits, int(0x1_0000)), int(0));
        self.add(bits, self.select(is_odd, int(0x8000), int(0x7fff)))
    }

    /// The f32 of the high half of 32 bits.
    fn high_half(&self, bits: Val<'c>) -> Val<'c> {
        self.bitcast(self.and(bits, self.int(Repr::I32, 0xffff_0000_u32 as i32 as i64)), Repr::F32)
    }

    fn unary(&self, op: UnaryOp, a: V<'c>, from: ElementType, to: ElementType) -> V<'c> {
        let x = a.re;
        match op {
            UnaryOp::Real => return x.into(),
            UnaryOp::Imag => return a.im.unwrap_or_else(|| self.splat(self.float(self.repr(x), 0.0), lanes(x))).into(),
            UnaryOp::Negate if from.is_complex() => return a.map(|p| self.fneg(p)),
            UnaryOp::Abs if from.is_complex() => return self.hypot(x, a.im.unwrap_or(x)).into(),
            _ if from.is_complex() => return self.complex_function(op, a),
            _ => {}
        }
        if from.is_integer() || from == ElementType::Pred {
            return self.integer_unary(op, x, from).into();
        }
        let repr = self.repr(x);
        let one = || self.float(repr, 1.0);
        let result = match op {
            UnaryOp::Abs => self.call1("llvm.fabs", x),
            UnaryOp::Negate => self.fneg(x),
            UnaryOp::Sign => {
                let unit = self.call2("llvm.copysign", one(), x);
                self.select(self.fcmp(UEQ, x, self.float(repr, 0.0)), x, unit)
            }
            UnaryOp::Floor => self.call1("llvm.floor", x),
            UnaryOp::Ceil => self.call1("llvm.ceil", x),
            UnaryOp::RoundNearestAfz => self.call1("llvm.round", x),
            UnaryOp::RoundNearestEven => self.call1("llvm.roundeven", x),
            UnaryOp::Sqrt => self.sqrt(x),
            UnaryOp::Rsqrt => self.rsqrt(x),
            UnaryOp::IsFinite => {
                return self.fcmp(OLT, self.call1("llvm.fabs", x), self.float(repr, f64::INFINITY)).into();
            }
            _ => self.function(op, x),
        };
        // Of an exact value these are exact.
        match op {
            UnaryOp::Abs | UnaryOp::Negate | UnaryOp::Sign | UnaryOp::Floor | UnaryOp::Ceil => result.into(),
            UnaryOp::RoundNearestAfz | UnaryOp::RoundNearestEven => result.into(),
            UnaryOp::Sqrt | UnaryOp::Rsqrt => self.round_arithmetic(result, to).into(),
            _ => self.round_to(result, to).into(),
        }
    }

    fn integer_unary(&self, op: UnaryOp, x: Val<'c>, t: ElementType) -> Val<'c> {
        let repr = self.repr(x);
        let int = |n: i64| self.int(repr, n);
        match op {
            UnaryOp::Abs if t.is_signed_integer() => {
                let negative = self.icmp(SLT, x, int(0));
                self.select(negative, self.sub(int(0), x), x)
            }
            UnaryOp::Abs => x,
            UnaryOp::Negate => self.sub(int(0), x),
            UnaryOp::Sign => {
                let nonzero = self.zext(self.icmp(NE, x, int(0)), repr);
                match t.is_signed_integer() {
                    true => self.or(self.ashr(x, int(i64::from(repr.bits()) - 1)), nonzero),
                    false => nonzero,
                }
            }
            UnaryOp::PopulationCount => self.call1("llvm.ctpop", x),
            UnaryOp::CountLeadingZeros => {
                let defined = self.int(Repr::I1, 0);
                self.intrinsic("llvm.ctlz", &[x.get_type()], &[x, defined]).expect("the intrinsic has a result")
            }
            _ => self.not(x),
        }
    }

    fn binary(&self, op: BinaryOp, a: V<'c>, b: V<'c>, t: ElementType) -> V<'c> {
        let (x, y) = (a.re, b.re);
        if t.is_complex() {
            return self.complex_binary(op, a, b);
        }
        if !t.is_float() {
            return self.integer_binary(op, x, y, t).into();
        }
        let result = match op {
            BinaryOp::Complex => {
                let (x, y) = self.same_lanes(x, y);
                return V::complex(x, y);
            }
            BinaryOp::Add => self.fadd(x, y),
            BinaryOp::Subtract => self.fsub(x, y),
            BinaryOp::Multiply => self.fmul(x, y),
            BinaryOp::Divide if self.is_rough.get() && self.repr(x) == Repr::F32 => self.divide_roughly(x, y),
            BinaryOp::Divide => self.fdiv(x, y),
            BinaryOp::Maximum => self.call2("llvm.maximum", x, y),
            BinaryOp::Minimum => self.call2("llvm.minimum", x, y),
            BinaryOp::Remainder => self.remainder(x, y),
            _ => self.function2(op, x, y),
        };
        // The greater of two exact values is exact.
        match op {
            BinaryOp::Maximum | BinaryOp::Minimum => result.into(),
            BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Multiply | BinaryOp::Divide => {
                self.round_arithmetic(result, t).into()
            }
            _ => self.round_to(result, t).into(),
        }
    }

    fn complex_binary(&self, op: BinaryOp, a: V<'c>, b: V<'c>) -> V<'c> {
        let (ai, bi) = (a.im.unwrap_or(a.re), b.im.unwrap_or(b.re));
        match op {
            BinaryOp::Add => a.map2(b, |x, y| self.fadd(x, y)),
            BinaryOp::Subtract => a.map2(b, |x, y| self.fsub(x, y)),
            BinaryOp::Multiply => V::complex(
                self.fsub(self.fmul(a.re, b.re), self.fmul(ai, bi)),
                self.fadd(self.fmul(a.re, bi), self.fmul(ai, b.re)),
            ),
            BinaryOp::Divide => self.complex_quotient(a, b),
            _ => a,
        }
    }

    fn integer_binary(&self, op: BinaryOp, x: Val<'c>, y: Val<'c>, t: ElementType) -> Val<'c> {
        let repr = self.repr(x);
        let int = |n: i64| self.int(repr, n);
        let signed = t.is_signed_integer();
        let is_pred = t == ElementType::Pred;
        let bits = i64::from(repr.bits());
        match op {
            BinaryOp::Add | BinaryOp::Maximum if is_pred => self.or(x, y),
            BinaryOp::Multiply | BinaryOp::Minimum if is_pred => self.and(x, y),
            BinaryOp::Add => self.add(x, y),
            BinaryOp::Subtract => self.sub(x, y),
            BinaryOp::Multiply => self.mul(x, y),
            BinaryOp::And => self.and(x, y),
            BinaryOp::Or => self.or(x, y),
            BinaryOp::Xor => self.xor(x, y),
            BinaryOp::Maximum => self.call2(if signed { "llvm.smax" } else { "llvm.umax" }, x, y),
            BinaryOp::Minimum => self.call2(if signed { "llvm.smin" } else { "llvm.umin" }, x, y),
            BinaryOp::Divide | BinaryOp::Remainder => {
                let by_zero = self.icmp(EQ, y, int(0));
                let mut avoid = by_zero;
                if signed {
                    let least = int(i64::MIN >> (64 - bits));
                    let overflows = self.and(self.icmp(EQ, x, least), self.icmp(EQ, y, int(-1)));
                    avoid = self.or(avoid, overflows);
                }
                // Where a division would trap, by one instead: the least value by −1 is itself, and leaves 0.
                let divisor = self.select(avoid, int(1), y);
                match (op, signed) {
                    (BinaryOp::Divide, true) => self.select(by_zero, int(-1), self.sdiv(x, divisor)),
                    (BinaryOp::Divide, false) => self.select(by_zero, int(-1), self.udiv(x, divisor)),
                    (_, true) => self.select(by_zero, x, self.srem(x, divisor)),
                    (_, false) => self.select(by_zero, x, self.urem(x, divisor)),
                }
            }
            BinaryOp::ShiftLeft | BinaryOp::ShiftRightLogical => {
                let inside = self.icmp(ULT, y, int(bits));
                let amount = self.select(inside, y, int(0));
                let shifted = if op == BinaryOp::ShiftLeft { self.shl(x, amount) } else { self.lshr(x, amount) };
                self.select(inside, shifted, int(0))
            }
            BinaryOp::ShiftRightArithmetic => self.ashr(x, self.call2("llvm.umin", y, int(bits - 1))),
            BinaryOp::Mulhi => self.multiply_high(x, y, signed),
            _ => self.integer_power(x, y, signed),
        }
    }

    fn compare(&self, direction: ComparisonDirection, total: bool, a: V<'c>, b: V<'c>, t: ElementType) -> Val<'c> {
        use ComparisonDirection::*;
        let (mut x, mut y) = (a.re, b.re);
        if let (Some(xi), Some(yi)) = (a.im, b.im) {
            return match direction {
                Ne => self.or(self.fcmp(UNE, x, y), self.fcmp(UNE, xi, yi)),
                _ => self.and(self.fcmp(OEQ, x, y), self.fcmp(OEQ, xi, yi)),
            };
        }
        let mut signed = t.is_signed_integer();
        if t.is_float() && total {
            (x, y, signed) = (self.total_order_key(x), self.total_order_key(y), true);
        } else if t.is_float() {
            let predicate = match direction {
                Eq => OEQ,
                Ne => UNE,
                Ge => OGE,
                Gt => OGT,
                Le => OLE,
                Lt => OLT,
            };
            return self.fcmp(predicate, x, y);
        }
        let predicate = match (direction, signed) {
            (Eq, _) => EQ,
            (Ne, _) => NE,
            (Ge, true) => SGE,
            (Gt, true) => SGT,
            (Le, true) => SLE,
            (Lt, true) => SLT,
            (Ge, false) => UGE,
            (Gt, false) => UGT,
            (Le, false) => ULE,
            (Lt, false) => ULT,
        };
        self.icmp(predicate, x, y)
    }

    /// An integer that is ordered as floats are in their total order.
    fn total_order_key(&self, x: Val<'c>) -> Val<'c> {
        let repr = self.repr(x).as_int();
        let bits = self.bitcast(x, repr);
        let width = i64::from(repr.bits());
        let sign = self.ashr(bits, self.int(repr, width - 1));
        self.xor(bits, self.and(sign, self.int(repr, i64::MAX >> (64 - width))))
    }

    fn clamp(&self, low: Val<'c>, x: Val<'c>, high: Val<'c>, t: ElementType) -> Val<'c> {
        if t.is_float() {
            return self.call2("llvm.minimum", self.call2("llvm.maximum", low, x), high);
        }
        let (max, min) = match t.is_signed_integer() {
            true => ("llvm.smax", "llvm.smin"),
            false => ("llvm.umax", "llvm.umin"),
        };
        self.call2(min, self.call2(max, low, x), high)
    }
}
