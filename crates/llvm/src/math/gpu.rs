//! What GPUs compute otherwise than CPUs: there is no library to call for rare arguments, and there are instructions that
//! are fast and not quite exact.

use crate::emit::ir::{Ir, Repr, Val};
use inkwell::FloatPredicate::{OEQ, OGE, OGT, OLT, UNO};
use inkwell::IntPredicate::{EQ, NE, SGT, SLT, UGE, ULT};
use inkwell::types::FunctionType;

/// The bits of 2/π, after 64 zeros.
const TWO_OVER_PI: [u64; 20] = [
    0x0000000000000000,
    0xa2f9836e4e441529,
    0xfc2757d1f534ddc0,
    0xdb6295993c439041,
    0xfe5163abdebbc561,
    0xb7246e3a424dd2e0,
    0x06492eea09d1921c,
    0xfe1deb1cb129a73e,
    0xe88235f52ebb4484,
    0xe99c7026b45f7e41,
    0x3991d639835339f4,
    0x9c845f8bbdf9283b,
    0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f,
    0x6d367ecf27cb09b7,
    0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea,
    0x6bfb5fb11f8d5d08,
    0x56033046fc7b6bab,
];
/// Above this the exponential is no f32.
const EXP_HIGHEST: f64 = 88.722_839_355_468_75;
/// What log₂e is more than the nearest f32.
const LOG2_E_REST: f64 = std::f64::consts::LOG2_E - std::f32::consts::LOG2_E as f64;

impl<'c> Ir<'c> {
    /// eˣ of an f32, by the instruction for powers of two. The product x·log₂e is rounded, and what it lost makes a factor
    /// close to 1; where a rough result will do, it is left out.
    pub(super) fn exp_gpu(&self, x: Val<'c>) -> Val<'c> {
        if self.is_rough.get() {
            return self.exp2_approximately(self.fmul(x, self.like(x, std::f64::consts::LOG2_E)));
        }
        // Beyond these bounds the result is infinite, or zero.
        let high = self.like(x, EXP_HIGHEST);
        let inside = self.call2("llvm.minimum", self.call2("llvm.maximum", x, self.like(x, -104.0)), high);
        let log = self.like(x, std::f64::consts::LOG2_E);
        let power = self.fmul(inside, log);
        let lost = self.fma(inside, log, self.fneg(power));
        let lost = self.fma(inside, self.like(x, LOG2_E_REST), lost);
        let lost = self.fmul(lost, self.like(x, std::f64::consts::LN_2));
        let near = self.exp2_approximately(power);
        let value = self.fma(near, lost, near);
        self.select(self.fcmp(OGT, x, high), self.like(x, f64::INFINITY), value)
    }

    /// tanh of an f32, to eleven bits.
    pub(super) fn tanh_roughly(&self, x: Val<'c>) -> Val<'c> {
        let float = self.context.f32_type();
        self.assembly("tanh.approx.f32 $0, $1;", "=f,f", float.fn_type(&[float.into()], false), &[x])
    }

    /// One instruction that LLVM has no name for, and its result.
    pub(crate) fn assembly(
        &self,
        text: &str,
        constraints: &str,
        signature: FunctionType<'c>,
        operands: &[Val<'c>],
    ) -> Val<'c> {
        let assembly =
            self.context.create_inline_asm(signature, text.into(), constraints.into(), false, false, None, false);
        let operands: Vec<_> = operands.iter().map(|&o| o.into()).collect();
        let call = self.builder.build_indirect_call(signature, assembly, &operands, "");
        call.expect("the builder is positioned").try_as_basic_value().basic().expect("it has a result")
    }

    /// What is needed to divide f32 by this: a power of two by which they are multiplied first, so that nothing on the way
    /// is too large or too small, the divisor times that, its reciprocal, and one that is exact for zero and infinity. The
    /// assembler's own division is a function that takes longer to assemble than most kernels.
    pub(crate) fn reciprocal(&self, divisor: Val<'c>) -> [Val<'c>; 4] {
        let one = self.float(Repr::F32, 1.0);
        if let Some((constant, _)) = divisor.into_float_value().get_constant()
            && (2f64.powi(-96)..2f64.powi(96)).contains(&constant.abs())
        {
            let reciprocal = self.float(Repr::F32, 1.0 / constant);
            return [one, divisor, reciprocal, reciprocal];
        }
        // 2⁻ⁿ for a divisor of about 2ⁿ: what it makes of a dividend is about the quotient.
        let int = |n: i64| self.int(Repr::I32, n);
        let exponent = self.and(self.bitcast(divisor, Repr::I32), int(0x7f80_0000));
        let exponent = self.call2("llvm.umin", exponent, int(0x7e00_0000));
        let scale = self.bitcast(self.sub(int(0x7f00_0000), exponent), Repr::F32);
        let scaled = self.fmul(divisor, scale);
        let near = self.reciprocal_approximately(scaled);
        let error = self.fma(self.fneg(scaled), near, one);
        [scale, scaled, self.fma(error, near, near), near]
    }

    /// The quotient by a divisor whose reciprocal is known: a product, corrected by what is left of the dividend. Where
    /// nothing can be left (of infinities, by zero) the product is the quotient.
    pub(crate) fn divide_by(&self, x: Val<'c>, [scale, divisor, reciprocal, near]: [Val<'c>; 4]) -> Val<'c> {
        let x = self.fmul(x, scale);
        let product = self.fmul(x, reciprocal);
        let left = self.fma(self.fneg(product), divisor, x);
        let corrected = self.fma(left, reciprocal, product);
        let finite = self.fcmp(OLT, self.fabs(left), self.like(x, f64::INFINITY));
        self.select(finite, corrected, self.fmul(x, near))
    }

    /// The quotient of f32 that are neither large nor small, and not zero below.
    pub(super) fn divide_bounded_gpu(&self, x: Val<'c>, y: Val<'c>) -> Val<'c> {
        let reciprocal = self.reciprocal_approximately(y);
        let product = self.fmul(x, reciprocal);
        let left = self.fma(self.fneg(product), y, x);
        self.fma(left, reciprocal, product)
    }

    fn reciprocal_approximately(&self, x: Val<'c>) -> Val<'c> {
        self.intrinsic("llvm.nvvm.rcp.approx.ftz.f", &[], &[x]).expect("the intrinsic has a result")
    }

    /// The square root of an f32, by that of its reciprocal, corrected by what is left of the square.
    pub(super) fn sqrt_gpu(&self, x: Val<'c>) -> Val<'c> {
        // Below this what is left of a square would be no number.
        let is_small = self.fcmp(OLT, x, self.like(x, 2f64.powi(-96)));
        let scaled = self.fmul(x, self.select(is_small, self.like(x, 2f64.powi(60)), self.like(x, 1.0)));
        let inverse = self.rsqrt_gpu(scaled);
        let root = self.fmul(scaled, inverse);
        let left = self.fma(self.fneg(root), root, scaled);
        let root = self.fma(left, self.fmul(inverse, self.like(x, 0.5)), root);
        let root = self.fmul(root, self.select(is_small, self.like(x, 2f64.powi(-30)), self.like(x, 1.0)));
        // Of zeros and of infinity it is what it is of.
        let is_end = self.or(self.fcmp(OEQ, x, self.like(x, 0.0)), self.fcmp(OEQ, x, self.like(x, f64::INFINITY)));
        self.select(is_end, x, root)
    }

    /// The reciprocal of the square root of an f32, to two units in the last place.
    pub(super) fn rsqrt_gpu(&self, x: Val<'c>) -> Val<'c> {
        self.intrinsic("llvm.nvvm.rsqrt.approx.f", &[], &[x]).expect("the intrinsic has a result")
    }

    fn exp2_approximately(&self, x: Val<'c>) -> Val<'c> {
        self.intrinsic("llvm.nvvm.ex2.approx.f", &[], &[x]).expect("the intrinsic has a result")
    }

    /// The quotient of f32, to two units in the last place.
    pub(crate) fn divide_roughly(&self, x: Val<'c>, y: Val<'c>) -> Val<'c> {
        let float = self.context.f32_type();
        let signature = float.fn_type(&[float.into(), float.into()], false);
        self.assembly("div.full.f32 $0, $1, $2;", "=f,f,f", signature, &[x, y])
    }

    /// The nearest bf16 to an f32, as an f32.
    pub(crate) fn round_to_bf16_gpu(&self, x: Val<'c>) -> Val<'c> {
        let rounded = self.intrinsic("llvm.nvvm.f2bf16.rn", &[], &[x]).expect("the intrinsic has a result");
        let bits = self.zext(self.bits_as(rounded, Repr::I16), Repr::I32);
        self.bitcast(self.shl(bits, self.int(Repr::I32, 16)), Repr::F32)
    }

    /// Calls a function of two f64 that is written once: what is rare is not to make code long wherever it could happen.
    fn rare_function(
        &self,
        name: &str,
        x: Val<'c>,
        y: Val<'c>,
        body: impl FnOnce(Val<'c>, Val<'c>) -> Val<'c>,
    ) -> Val<'c> {
        let double = self.context.f64_type();
        let function = self.module.get_function(name).unwrap_or_else(|| {
            let signature = double.fn_type(&[double.into(), double.into()], false);
            let function = self.module.add_function(name, signature, Some(inkwell::module::Linkage::Internal));
            let here = self.builder.get_insert_block().expect("the builder is positioned");
            self.builder.position_at_end(self.context.append_basic_block(function, "entry"));
            let argument = |n: u32| function.get_nth_param(n).expect("it has two parameters");
            let result = body(argument(0), argument(1));
            self.builder.build_return(Some(&result)).expect("the builder is positioned");
            self.builder.position_at_end(here);
            function
        });
        let call = self.builder.build_call(function, &[x.into(), y.into()], "").expect("the builder is positioned");
        call.try_as_basic_value().basic().expect("it has a result")
    }

    /// x = n·π/2 + r for finite x of at least 2²⁹: r, and the last two bits of n.
    pub(super) fn large_quadrant(&self, x: Val<'c>) -> Vec<Val<'c>> {
        let r = self.rare_function("quadrant_angle", x, x, |x, _| self.payne_hanek(x)[0]);
        let n = self.rare_function("quadrant_number", x, x, |x, _| self.uitofp(self.payne_hanek(x)[1], Repr::F64));
        vec![r, self.fptosi(n, Repr::I64)]
    }

    /// r and the number of the quadrant. x is a whole multiple of a power of two; its product with those bits of 2/π that
    /// count gives n and the fraction exactly.
    fn payne_hanek(&self, x: Val<'c>) -> [Val<'c>; 2] {
        let int = |n: i64| self.int(Repr::I64, n);
        let bits = self.bitcast(x, Repr::I64);
        let exponent = self.sub(self.and(self.lshr(bits, int(52)), int(0x7ff)), int(1023));
        let mantissa = self.or(self.and(bits, int((1 << 52) - 1)), int(1 << 52));
        // Bits that make multiples of 4 are left out.
        let first = self.add(exponent, int(10));
        let (word, shift) = (self.lshr(first, int(6)), self.and(first, int(63)));
        let table = self.quadrant_table();
        let at = |n: i64| {
            let offset = self.shl(self.add(word, int(n)), int(3)).into_int_value();
            self.load(self.ty(Repr::I64, 1), self.offset(table, offset), 8)
        };
        let words: Vec<Val<'c>> = (0..4).map(at).collect();
        let funnel = |high: Val<'c>, low: Val<'c>| {
            self.intrinsic("llvm.fshl", &[high.get_type()], &[high, low, shift]).expect("the intrinsic has a result")
        };
        let parts: Vec<Val<'c>> = words.windows(2).map(|w| funnel(w[0], w[1])).collect();
        let high = |part: Val<'c>| self.multiply_high(mantissa, part, false);
        let low = |part: Val<'c>| self.mul(mantissa, part);
        let second = self.add(low(parts[1]), high(parts[2]));
        let carry = self.zext(self.icmp(ULT, second, low(parts[1])), Repr::I64);
        let top = self.add(self.add(low(parts[0]), high(parts[1])), carry);
        let quadrant = self.lshr(top, int(62));
        let fraction = self.or(self.shl(top, int(2)), self.lshr(second, int(62)));
        let rest = self.shl(second, int(2));
        // To the nearest quadrant: the fraction may be negative then.
        let up = self.zext(self.icmp(SLT, fraction, int(0)), Repr::I64);
        let n = self.add(quadrant, up);
        let whole = self.fmul(self.sitofp(fraction, Repr::F64), self.float(Repr::F64, 2f64.powi(-64)));
        let tail = self.fmul(self.uitofp(rest, Repr::F64), self.float(Repr::F64, 2f64.powi(-128)));
        let r = self.fmul(self.fadd(whole, tail), self.float(Repr::F64, std::f64::consts::FRAC_PI_2));
        let negative = self.icmp(SLT, bits, int(0));
        let r = self.select(negative, self.fneg(r), r);
        let n = self.select(negative, self.sub(int(0), n), n);
        [r, self.and(n, int(3))]
    }

    fn quadrant_table(&self) -> inkwell::values::PointerValue<'c> {
        let name = "two_over_pi";
        if let Some(table) = self.module.get_global(name) {
            return table.as_pointer_value();
        }
        let long = self.context.i64_type();
        let words: Vec<_> = TWO_OVER_PI.iter().map(|&w| long.const_int(w, false)).collect();
        let array = long.const_array(&words);
        let global = self.module.add_global(array.get_type(), Some(inkwell::AddressSpace::from(1u16)), name);
        global.set_initializer(&array);
        global.set_constant(true);
        global.set_linkage(inkwell::module::Linkage::Internal);
        global.as_pointer_value()
    }

    /// What is left of x after whole multiples of y, bit by bit.
    pub(super) fn long_remainder(&self, x: Val<'c>, y: Val<'c>) -> Val<'c> {
        self.rare_function("long_remainder", x, y, |x, y| self.write_long_remainder(x, y))
    }

    fn write_long_remainder(&self, x: Val<'c>, y: Val<'c>) -> Val<'c> {
        let int = |n: i64| self.int(Repr::I64, n);
        let (size, divisor) = (self.fabs(x), self.fabs(y));
        // The mantissa with its first bit at 52, and the exponent that goes with it, of normal and subnormal numbers.
        let apart = |v: Val<'c>| {
            let bits = self.bitcast(v, Repr::I64);
            let mantissa = self.and(bits, int((1 << 52) - 1));
            let exponent = self.lshr(bits, int(52));
            let normal = self.icmp(NE, exponent, int(0));
            let mantissa = self.select(normal, self.or(mantissa, int(1 << 52)), mantissa);
            let exponent = self.select(normal, exponent, int(1));
            let defined = self.int(Repr::I1, 0);
            let zeros = self.intrinsic("llvm.ctlz", &[mantissa.get_type()], &[mantissa, defined]);
            let moved = self.sub(zeros.expect("the intrinsic has a result"), int(11));
            let moved = self.select(self.icmp(EQ, mantissa, int(0)), int(0), moved);
            (self.shl(mantissa, moved), self.sub(exponent, moved))
        };
        let ((mx, ex), (my, ey)) = (apart(size), apart(divisor));
        let function = self.builder.get_insert_block().and_then(|b| b.get_parent()).expect("the builder is positioned");
        let before = self.builder.get_insert_block().expect("the builder is positioned");
        let again = self.context.append_basic_block(function, "subtract");
        let after = self.context.append_basic_block(function, "subtracted");
        let position = "the builder is positioned";
        self.builder.build_unconditional_branch(again).expect(position);
        self.builder.position_at_end(again);
        let left = self.builder.build_phi(self.ty(Repr::I64, 1), "").expect(position);
        let exponent = self.builder.build_phi(self.ty(Repr::I64, 1), "").expect(position);
        let (m, e) = (left.as_basic_value(), exponent.as_basic_value());
        let reduced = self.select(self.icmp(UGE, m, my), self.sub(m, my), m);
        let more = self.icmp(SGT, e, ey);
        let next = self.select(more, self.shl(reduced, int(1)), reduced);
        let next_exponent = self.sub(e, int(1));
        self.builder.build_conditional_branch(more.into_int_value(), again, after).expect(position);
        left.add_incoming(&[(&mx, before), (&next, again)]);
        exponent.add_incoming(&[(&ex, before), (&next_exponent, again)]);
        self.builder.position_at_end(after);
        let value = self.scale(self.uitofp(next, Repr::F64), self.sub(ey, int(1075)));
        let value = self.copysign(value, x);
        // What is smaller than the divisor stays; by zero, or of an infinity, there is no remainder.
        let value = self.select(self.fcmp(OLT, size, divisor), x, value);
        let infinity = self.like(x, f64::INFINITY);
        let none = self.or(self.fcmp(OEQ, divisor, self.like(x, 0.0)), self.fcmp(OGE, size, infinity));
        let none = self.or(none, self.fcmp(UNO, x, y));
        self.select(none, self.like(x, f64::NAN), value)
    }
}
