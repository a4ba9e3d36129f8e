//! Conversion between types, rounded once; reduce-precision; and the integer arithmetic that machines lack.

use crate::emit::ir::{Ir, Repr, Val, lanes};
use crate::emit::value::V;
use crate::narrow::is_narrow;
use hloom_ir::ElementType;
use inkwell::FloatPredicate::{OGT, OLT, UNE, UNO};
use inkwell::IntPredicate::{EQ, NE, SLT, UGT, ULE};

impl<'c> Ir<'c> {
    /// `a`, of type `from`, as the nearest of type `to`.
    pub(crate) fn convert(&self, a: V<'c>, from: ElementType, to: ElementType) -> V<'c> {
        if from == to {
            return a;
        }
        if is_narrow(from) || is_narrow(to) {
            return self.convert_narrow(a, from, to);
        }
        if to.is_complex() {
            let part = to.component();
            let re = self.convert_real(a.re, from.component(), part);
            let im = match a.im {
                Some(im) => self.convert_real(im, from.component(), part),
                None => self.splat(self.float(Repr::of(part), 0.0), lanes(re)),
            };
            return V::complex(re, im);
        }
        self.convert_real(a.re, from.component(), to).into()
    }

    pub(crate) fn convert_real(&self, x: Val<'c>, from: ElementType, to: ElementType) -> Val<'c> {
        use ElementType::{Bf16, F16, F32, F64, Pred};
        let repr = Repr::of(to);
        let narrow = matches!(to, F16 | Bf16);
        match (from.is_float(), to.is_float()) {
            (true, true) => match (from, to) {
                (F64, F16 | Bf16) => self.round_to(self.odd_f32(x), to),
                (F64, F32) => self.fptrunc(x, Repr::F32),
                (_, F64) => self.fpext(x, Repr::F64),
                _ => self.round_to(x, to),
            },
            (true, false) if to == Pred => self.fcmp(UNE, x, self.float(self.repr(x), 0.0)),
            (true, false) if to.bits() <= 16 => self.small_integer(x, to),
            (true, false) if lanes(x) > 1 => self.large_integer(x, to),
            (true, false) => {
                let name = if to.is_signed_integer() { "llvm.fptosi.sat" } else { "llvm.fptoui.sat" };
                let result = self.ty(repr, lanes(x));
                self.intrinsic(name, &[result, x.get_type()], &[x]).expect("the intrinsic has a result")
            }
            (false, true) if from == Pred => self.select(x, self.float(repr, 1.0), self.float(repr, 0.0)),
            (false, true) => {
                // 16 bits and fewer are exact in f32; what is rounded twice must be rounded to odd first.
                if narrow && from.bits() > 16 {
                    return self.round_to(self.odd_f32(self.odd_f64(x, from)), to);
                }
                let float = self.float_of(x, from, repr);
                // Eight bits are exact in any of them.
                if narrow && from.bits() > 8 { self.round_to(float, to) } else { float }
            }
            (false, false) if to == Pred => self.icmp(NE, x, self.int(self.repr(x), 0)),
            (false, false) if to.bits() < from.bits() => self.trunc(x, repr),
            (false, false) if from.is_signed_integer() => self.sext(x, repr),
            (false, false) => self.zext(x, repr),
        }
    }

    /// A float as an integer of 16 bits or fewer: brought into range first, which is exact, so that a plain conversion to
    /// 32 bits does. (LLVM makes much more of its saturating conversions.)
    pub(crate) fn small_integer(&self, x: Val<'c>, to: ElementType) -> Val<'c> {
        let bits = to.bits() as i32;
        let (low, high) = match to.is_signed_integer() {
            true => (-f64::from(1 << (bits - 1)), f64::from((1 << (bits - 1)) - 1)),
            false => (0.0, f64::from((1 << bits) - 1)),
        };
        let float = self.repr(x);
        // Comparisons with NaN are false: it becomes zero here.
        let number = self.select(self.fcmp(UNO, x, x), self.float(float, 0.0), x);
        let above = self.select(self.fcmp(OLT, number, self.float(float, low)), self.float(float, low), number);
        let inside = self.select(self.fcmp(OGT, above, self.float(float, high)), self.float(float, high), above);
        self.trunc(self.fptosi(inside, Repr::I32), Repr::of(to))
    }

    /// A vector of floats as integers of 32 bits or more, of which LLVM's saturating conversions take one lane after the
    /// other. The greatest integer is no float: what is not below the power of two behind it is not converted.
    fn large_integer(&self, x: Val<'c>, to: ElementType) -> Val<'c> {
        let (float, repr, bits) = (self.repr(x), Repr::of(to), to.bits() as i32);
        let signed = to.is_signed_integer();
        let (low, behind) = if signed { (-2f64.powi(bits - 1), 2f64.powi(bits - 1)) } else { (0.0, 2f64.powi(bits)) };
        let number = self.select(self.fcmp(UNO, x, x), self.float(float, 0.0), x);
        let above = self.select(self.fcmp(OLT, number, self.float(float, low)), self.float(float, low), number);
        let is_inside = self.fcmp(OLT, above, self.float(float, behind));
        let inside = self.select(is_inside, above, self.float(float, 0.0));
        let integer = if signed { self.fptosi(inside, repr) } else { self.fptoui(inside, repr) };
        let greatest = if signed { i64::MAX >> (64 - bits) } else { -1 };
        self.select(is_inside, integer, self.int(repr, greatest))
    }

    fn float_of(&self, x: Val<'c>, from: ElementType, repr: Repr) -> Val<'c> {
        if from.is_signed_integer() { self.sitofp(x, repr) } else { self.uitofp(x, repr) }
    }

    /// An integer as f64: exact, or with the last bit set, so that it is between the same two floats of fewer bits.
    pub(crate) fn odd_f64(&self, x: Val<'c>, from: ElementType) -> Val<'c> {
        let near = self.float_of(x, from, Repr::F64);
        if from.bits() <= 32 {
            return near;
        }
        let int = |n: i64| self.int(Repr::I64, n);
        let rest = self.icmp(NE, self.and(x, int(0x7ff)), int(0));
        let odd = self.or(self.and(x, int(!0x7ff)), self.select(rest, int(0x800), int(0)));
        let is_exact = self.fcmp(OLT, self.call1("llvm.fabs", near), self.float(Repr::F64, 2f64.powi(53)));
        self.select(is_exact, near, self.float_of(odd, from, Repr::F64))
    }

    /// An f64 as f32, towards zero and with the last bit set where that is not exact: rounding the result to fewer bits
    /// is then as good as rounding the argument.
    pub(crate) fn odd_f32(&self, x: Val<'c>) -> Val<'c> {
        let near = self.fptrunc(x, Repr::F32);
        let back = self.fpext(near, Repr::F64);
        let (size, back_size) = (self.call1("llvm.fabs", x), self.call1("llvm.fabs", back));
        let bits = self.bitcast(near, Repr::I32);
        let beyond = self.fcmp(OGT, back_size, size);
        let cut = self.select(beyond, self.sub(bits, self.int(Repr::I32, 1)), bits);
        let inexact = self.or(beyond, self.fcmp(OLT, back_size, size));
        let odd = self.or(cut, self.int(Repr::I32, 1));
        self.bitcast(self.select(inexact, odd, bits), Repr::F32)
    }

    pub(crate) fn reduce_precision(&self, x: Val<'c>, t: ElementType, exponent: i32, mantissa: i32) -> Val<'c> {
        // The format of the type itself: bf16 and f16 values are exact in the f32 they are held in.
        let (from_exponent, from_mantissa): (i64, i64) = match t {
            ElementType::F64 => (11, 52),
            ElementType::F16 => (5, 10),
            ElementType::Bf16 => (8, 7),
            _ => (8, 23),
        };
        let memory = self.bits_of(x, t);
        let repr = self.repr(memory);
        let int = |n: i64| self.int(repr, n);
        let sign_bit = 1i64.wrapping_shl((from_exponent + from_mantissa) as u32);
        let exponent_mask = ((1i64 << from_exponent) - 1) << from_mantissa;
        let sign = self.and(memory, int(sign_bit));
        let magnitude = self.and(memory, int(!sign_bit));
        let (to_exponent, to_mantissa) = (i64::from(exponent.clamp(1, 64)), i64::from(mantissa.clamp(0, 64)));
        let mut rounded = magnitude;
        if to_mantissa < from_mantissa {
            let dropped = from_mantissa - to_mantissa;
            let last = self.and(self.lshr(magnitude, int(dropped)), int(1));
            let half = self.add(magnitude, self.add(last, int((1 << (dropped - 1)) - 1)));
            rounded = self.and(half, int(!((1i64 << dropped) - 1)));
        }
        if to_exponent < from_exponent {
            let bias = (1i64 << (from_exponent - 1)) - 1;
            let range = (1i64 << (to_exponent - 1)) - 1;
            let e = self.lshr(rounded, int(from_mantissa));
            let small = self.select(self.icmp(ULE, e, int(bias - range)), int(0), rounded);
            rounded = self.select(self.icmp(UGT, e, int(bias + range)), int(exponent_mask), small);
        }
        let bits = self.or(sign, rounded);
        let is_nan = self.icmp(UGT, magnitude, int(exponent_mask));
        let bits = self.select(is_nan, memory, bits);
        self.of_memory(self.bitcast(bits, crate::emit::value::memory_repr(t)), t)
    }

    fn bits_of(&self, x: Val<'c>, t: ElementType) -> Val<'c> {
        let memory = self.as_memory(x, t);
        self.bitcast(memory, self.repr(memory).as_int())
    }

    pub(crate) fn multiply_high(&self, x: Val<'c>, y: Val<'c>, signed: bool) -> Val<'c> {
        let repr = self.repr(x);
        let extend = |v| match (repr, signed) {
            (Repr::I8, true) => self.sext(v, Repr::I16),
            (Repr::I8, false) => self.zext(v, Repr::I16),
            (Repr::I16, true) => self.sext(v, Repr::I32),
            (Repr::I16, false) => self.zext(v, Repr::I32),
            (_, true) => self.sext(v, Repr::I64),
            (_, false) => self.zext(v, Repr::I64),
        };
        if repr != Repr::I64 {
            let product = self.mul(extend(x), extend(y));
            let shift = self.int(self.repr(product), i64::from(repr.bits()));
            return self.trunc(self.lshr(product, shift), repr);
        }
        // Schoolbook, from halves of 32 bits.
        let int = |n: i64| self.int(Repr::I64, n);
        let low = |v| self.and(v, int(0xffff_ffff));
        let high = |v| self.lshr(v, int(32));
        let (x0, x1, y0, y1) = (low(x), high(x), low(y), high(y));
        let middle = self.add(self.mul(x1, y0), high(self.mul(x0, y0)));
        let other = self.add(self.mul(x0, y1), low(middle));
        let unsigned = self.add(self.add(self.mul(x1, y1), high(middle)), high(other));
        if !signed {
            return unsigned;
        }
        let correction = |a, b| self.select(self.icmp(SLT, a, int(0)), b, int(0));
        self.sub(self.sub(unsigned, correction(x, y)), correction(y, x))
    }

    /// Wrapping power by squaring; a negative exponent leaves something of 1 and −1 only.
    pub(crate) fn integer_power(&self, x: Val<'c>, y: Val<'c>, signed: bool) -> Val<'c> {
        let repr = self.repr(x);
        let int = |n: i64| self.int(repr, n);
        let (x, y) = self.same_lanes(x, y);
        let (mut base, mut result) = (x, self.splat(int(1), lanes(x)));
        for bit in 0..repr.bits() {
            let is_set = self.icmp(NE, self.and(y, int(1i64.wrapping_shl(bit))), int(0));
            result = self.select(is_set, self.mul(result, base), result);
            base = self.mul(base, base);
        }
        if !signed {
            return result;
        }
        let is_odd = self.icmp(NE, self.and(y, int(1)), int(0));
        let of_minus_one = self.select(is_odd, int(-1), int(1));
        let other = self.select(self.icmp(EQ, x, int(-1)), of_minus_one, int(0));
        let negative = self.select(self.icmp(EQ, x, int(1)), int(1), other);
        self.select(self.icmp(SLT, y, int(0)), negative, result)
    }
}
