//! Elements of a byte that no machine computes with: floats of 8, 6 and 4 bits, and integers of 4, 2 and 1.
//!
//! They are carried as the bytes that stand in memory, so that moving them is moving bytes. Each operation on floats is
//! done in f32 and rounded once, each on integers in 8 bits and wrapped, as in the evaluator. What happens to NaN,
//! infinities and zeros in a format that lacks them is told by `hloom_numerics`.

use crate::emit::ir::{Ir, Repr, Val};
use crate::emit::value::V;
use hloom_ir::ElementType;
use hloom_ir::op::{BinaryOp, UnaryOp};
use hloom_loops::graph::ScalarOp;
use hloom_loops::small_float::format;
use hloom_numerics::small_float::{Format, NanKind};
use inkwell::IntPredicate::{EQ, SLT, UGE, UGT, ULT};

const F32_MANTISSA_BITS: i64 = 23;
const F32_BIAS: i64 = 127;
const F32_INFINITY: i64 = 0x7f80_0000;
const F32_QUIET_NAN: i64 = 0x7fc0_0000;

/// Whether elements of the type are carried as the bytes in memory, not as something that machines compute with.
pub(crate) fn is_narrow(t: ElementType) -> bool {
    t.is_small_float() || t.is_sub_byte()
}

/// The type in which elements of a narrow type are computed: every value of the one is a value of the other.
fn wide_type(t: ElementType) -> ElementType {
    match t {
        t if t.is_small_float() => ElementType::F32,
        t if !t.is_sub_byte() => t,
        t if t.is_signed_integer() => ElementType::S8,
        _ => ElementType::U8,
    }
}

impl<'c> Ir<'c> {
    /// An operation other than a choice or a conversion, of which at least one operand is of a narrow type.
    pub(crate) fn narrow_op(&self, op: ScalarOp, a: &[V<'c>], from: &[ElementType], to: ElementType) -> V<'c> {
        match op {
            ScalarOp::BitcastConvert if is_narrow(to) => self.wrapped(a[0].re, to).into(),
            ScalarOp::BitcastConvert => a[0],
            ScalarOp::ReducePrecision { exponent_bits, mantissa_bits } => {
                // f16 holds all of them but one: what is subnormal there counts as such.
                let wide = if from[0] == ElementType::F8e8m0fnu { ElementType::F32 } else { ElementType::F16 };
                let x = self.convert(a[0], from[0], wide);
                let reduced = self.reduce_precision(x.re, wide, exponent_bits, mantissa_bits);
                self.convert(reduced.into(), wide, to)
            }
            _ if from[0].is_integer() && from[0].is_sub_byte() => self.narrow_integer_op(op, a, from, to),
            _ => {
                let values: Vec<V<'c>> = a.iter().zip(from).map(|(&v, &t)| self.convert(v, t, wide_type(t))).collect();
                let types: Vec<ElementType> = from.iter().map(|&t| wide_type(t)).collect();
                let result = self.scalar_op(op, &values, &types, wide_type(to));
                self.convert(result, wide_type(to), to)
            }
        }
    }

    fn narrow_integer_op(&self, op: ScalarOp, a: &[V<'c>], from: &[ElementType], to: ElementType) -> V<'c> {
        let t = from[0];
        let bits = i64::from(t.bits());
        let int = |n: i64| self.int(Repr::I8, n);
        let unsigned = |x: Val<'c>| self.and(x, int((1 << bits) - 1));
        let x = a[0].re;
        let result = match op {
            ScalarOp::Unary(UnaryOp::PopulationCount) => self.call1("llvm.ctpop", unsigned(x)),
            ScalarOp::Unary(UnaryOp::CountLeadingZeros) => {
                let defined = self.int(Repr::I1, 0);
                let x = unsigned(x);
                let zeros = self.intrinsic("llvm.ctlz", &[x.get_type()], &[x, defined]);
                self.sub(zeros.expect("the intrinsic has a result"), int(8 - bits))
            }
            ScalarOp::Binary(BinaryOp::Mulhi) => {
                // The whole product has at most eight bits.
                let product = self.mul(x, a[1].re);
                if t.is_signed_integer() { self.ashr(product, int(bits)) } else { self.lshr(product, int(bits)) }
            }
            _ => {
                let x = match op {
                    ScalarOp::Binary(BinaryOp::ShiftRightLogical) => unsigned(x),
                    ScalarOp::Binary(BinaryOp::ShiftRightArithmetic) => self.sign_extended(x, t),
                    _ => x,
                };
                let mut values = a.to_vec();
                values[0] = x.into();
                let types: Vec<ElementType> = from.iter().map(|&t| wide_type(t)).collect();
                self.scalar_op(op, &values, &types, wide_type(to)).re
            }
        };
        // What is one of the operands stays as it is: a reduction may start from beyond the range of the type.
        let is_choice = matches!(
            op,
            ScalarOp::Clamp
                | ScalarOp::Compare { .. }
                | ScalarOp::Binary(
                    BinaryOp::Maximum | BinaryOp::Minimum | BinaryOp::And | BinaryOp::Or | BinaryOp::Xor
                )
        );
        if is_choice { result.into() } else { self.wrapped(result, to).into() }
    }

    /// The low bits of a byte as an element of the type lies in memory.
    fn wrapped(&self, x: Val<'c>, t: ElementType) -> Val<'c> {
        match t {
            t if !t.is_sub_byte() => x,
            t if t.is_signed_integer() => self.sign_extended(x, t),
            t => self.and(x, self.int(Repr::I8, (1 << t.bits()) - 1)),
        }
    }

    fn sign_extended(&self, x: Val<'c>, t: ElementType) -> Val<'c> {
        let unused = self.int(Repr::I8, 8 - i64::from(t.bits()));
        self.ashr(self.shl(x, unused), unused)
    }

    /// `a`, of type `from`, as the nearest of type `to`, where one of the types is narrow.
    pub(crate) fn convert_narrow(&self, a: V<'c>, from: ElementType, to: ElementType) -> V<'c> {
        use ElementType::{F32, F64, Pred};
        let (a, from) = match format(from) {
            Some(format) => (self.decoded(a.re, &format).into(), F32),
            None => (a, wide_type(from)),
        };
        if !is_narrow(to) {
            return self.convert(a, from, to);
        }
        let Some(format) = format(to) else {
            // The real part, if it is complex.
            let (x, from) = (a.re, from.component());
            return match from {
                Pred => self.wrapped(self.zext(x, Repr::I8), to).into(),
                from if from.is_float() => self.small_integer(x, to).into(),
                _ => self.wrapped(self.trunc(x, Repr::I8), to).into(),
            };
        };
        // Whatever f32 does not hold exactly is rounded to odd first; of complex numbers the evaluator takes f64.
        let code = match from {
            F64 | ElementType::C128 => self.encoded(self.odd_f32(a.re), &format, true),
            ElementType::C64 => self.encoded(a.re, &format, true),
            from if from.is_integer() && from.bits() > 16 => {
                self.encoded(self.odd_f32(self.odd_f64(a.re, from)), &format, true)
            }
            from => self.encoded(self.convert_real(a.re, from, F32), &format, false),
        };
        code.into()
    }

    /// The f32 that a code of the format stands for.
    fn decoded(&self, code: Val<'c>, format: &Format) -> Val<'c> {
        let int = |n: i64| self.int(Repr::I32, n);
        let mantissa_bits = i64::from(format.mantissa_bits);
        let (bias, sign_bit) = (i64::from(format.bias), i64::from(format.sign_mask()));
        let magnitude_mask = i64::from(format.mask()) & !sign_bit;
        let code = self.and(self.zext(code, Repr::I32), int(i64::from(format.mask())));
        let magnitude = self.and(code, int(magnitude_mask));
        let normal = self.add(
            self.shl(magnitude, int(F32_MANTISSA_BITS - mantissa_bits)),
            int((F32_BIAS - bias) << F32_MANTISSA_BITS),
        );
        let mut bits = if format.has_zero {
            let unit = 2f64.powi((1 - bias - mantissa_bits) as i32);
            let subnormal = self.fmul(self.sitofp(magnitude, Repr::F32), self.float(Repr::F32, unit));
            let is_subnormal = self.icmp(ULT, magnitude, int(1 << mantissa_bits));
            self.select(is_subnormal, self.bitcast(subnormal, Repr::I32), normal)
        } else {
            // The least is half of the least normal f32.
            self.select(self.icmp(EQ, magnitude, int(0)), int(1 << (F32_MANTISSA_BITS - 1)), normal)
        };
        if let Some(infinity) = format.infinity_code(false) {
            bits = self.select(self.icmp(EQ, magnitude, int(infinity.into())), int(F32_INFINITY), bits);
        }
        let is_nan = match format.nan {
            NanKind::Ieee => {
                let infinity = format.infinity_code(false).map_or(magnitude_mask, i64::from);
                Some(self.icmp(UGT, magnitude, int(infinity)))
            }
            NanKind::AllOnes => Some(self.icmp(EQ, magnitude, int(magnitude_mask))),
            NanKind::NegativeZero => Some(self.icmp(EQ, code, int(sign_bit))),
            NanKind::None => None,
        };
        if let Some(is_nan) = is_nan {
            bits = self.select(is_nan, int(F32_QUIET_NAN), bits);
        }
        if format.signed {
            let sign = self.shl(self.and(code, int(sign_bit)), int(32 - i64::from(format.bits())));
            bits = self.or(bits, sign);
        }
        self.bitcast(bits, Repr::F32)
    }

    /// The code nearest to an f32. In a format without zero the subnormal f32 are rounded to nearest if they come from
    /// `wider` numbers, and up if they are f32 themselves.
    fn encoded(&self, x: Val<'c>, format: &Format, wider: bool) -> Val<'c> {
        let int = |n: i64| self.int(Repr::I32, n);
        let mantissa_bits = i64::from(format.mantissa_bits);
        let bias = i64::from(format.bias);
        let bits = self.bitcast(x, Repr::I32);
        let magnitude = self.and(bits, int(0x7fff_ffff));
        let negative = self.icmp(SLT, bits, int(0));
        let by_sign = |of: &dyn Fn(bool) -> u16| match (of(false), of(true)) {
            (positive, negative) if positive == negative => int(positive.into()),
            (plus, minus) => self.select(negative, int(minus.into()), int(plus.into())),
        };
        let code = if format.has_zero {
            let dropped = F32_MANTISSA_BITS - mantissa_bits;
            let odd = self.and(self.lshr(magnitude, int(dropped)), int(1));
            let rounded = self.add(magnitude, self.add(odd, int((1 << (dropped - 1)) - 1)));
            let normal = self.sub(self.lshr(rounded, int(dropped)), int((F32_BIAS - bias) << mantissa_bits));
            // A sum whose last bit is worth as much as the last bit of a subnormal code is rounded as that must be.
            let unit = (1 - bias - mantissa_bits + F32_MANTISSA_BITS) as i32;
            let sum = self.fadd(self.bitcast(magnitude, Repr::F32), self.float(Repr::F32, 2f64.powi(unit)));
            let subnormal =
                self.sub(self.bitcast(sum, Repr::I32), int((i64::from(unit) + F32_BIAS) << F32_MANTISSA_BITS));
            let least = int((F32_BIAS + 1 - bias) << F32_MANTISSA_BITS);
            self.select(self.icmp(ULT, magnitude, least), subnormal, normal)
        } else {
            let second = int(if wider { 0x60_0000 } else { 0x40_0001 });
            let subnormal = self.zext(self.icmp(UGE, magnitude, second), Repr::I32);
            let normal = self.lshr(self.add(magnitude, int(1 << (F32_MANTISSA_BITS - 1))), int(F32_MANTISSA_BITS));
            self.select(self.icmp(ULT, magnitude, int(1 << F32_MANTISSA_BITS)), subnormal, normal)
        };
        let mut signed = self.or(code, by_sign(&|negative| if negative { format.sign_mask() } else { 0 }));
        if format.nan == NanKind::NegativeZero {
            signed = self.select(self.icmp(EQ, code, int(0)), int(0), signed);
        }
        let beyond = by_sign(&|negative| {
            let finite = if negative { format.lowest_code() } else { format.max_code() };
            format.infinity_code(negative).or(format.nan_code(negative)).unwrap_or(finite)
        });
        let mut is_beyond = self.icmp(UGT, code, int(format.max_code().into()));
        if !format.signed {
            is_beyond = self.or(is_beyond, negative);
        }
        if !format.has_zero {
            is_beyond = self.or(is_beyond, self.icmp(EQ, magnitude, int(0)));
        }
        let number = self.select(is_beyond, beyond, signed);
        // Without NaN it is a zero of the opposite sign.
        let nan =
            by_sign(&|negative| format.nan_code(negative).unwrap_or(if negative { 0 } else { format.sign_mask() }));
        let is_nan = self.icmp(UGT, magnitude, int(F32_INFINITY));
        self.trunc(self.select(is_nan, nan, number), Repr::I8)
    }
}
