//! LLVM's builder for values that are a scalar or a vector, an integer or a float, as it comes: the same code emits the
//! vector loop and the scalar rest.
//!
//! Where a scalar meets a vector it is spread over the lanes. The builder fails only when it is used wrongly (without a
//! position, with types that do not fit), which the callers here never do: such a failure is a bug, hence `expect`.

use crate::machine::Machine;
use hloom_ir::ElementType;
use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::intrinsics::Intrinsic;
use inkwell::module::Module;
use inkwell::types::{AsTypeRef, BasicTypeEnum};
use inkwell::values::{
    AsValueRef, BasicMetadataValueEnum, BasicValue, BasicValueEnum, FunctionValue, InstructionOpcode, IntValue,
    PointerValue, VectorValue,
};
use inkwell::{AddressSpace, FloatPredicate, IntPredicate};
use std::cell::Cell;

/// A scalar or vector.
pub(crate) type Val<'c> = BasicValueEnum<'c>;

/// The types that values have in registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Repr {
    I1,
    I8,
    I16,
    I32,
    I64,
    F16,
    F32,
    F64,
}

impl Repr {
    /// What elements of a type are computed as; f16 and bf16 are f32 there, and exact ones. Floats and integers narrower
    /// than these are carried as the bytes that stand in memory. For complex types, each part.
    pub(crate) fn of(t: ElementType) -> Repr {
        use ElementType::*;
        match t {
            Pred => Repr::I1,
            S1 | S2 | S4 | S8 | U1 | U2 | U4 | U8 => Repr::I8,
            t if t.is_small_float() => Repr::I8,
            S16 | U16 => Repr::I16,
            S32 | U32 => Repr::I32,
            S64 | U64 => Repr::I64,
            F64 | C128 => Repr::F64,
            _ => Repr::F32,
        }
    }
    pub(crate) fn bits(self) -> u32 {
        match self {
            Repr::I1 => 1,
            Repr::I8 => 8,
            Repr::I16 | Repr::F16 => 16,
            Repr::I32 | Repr::F32 => 32,
            Repr::I64 | Repr::F64 => 64,
        }
    }
    /// The integers of as many bits.
    pub(crate) fn as_int(self) -> Repr {
        match self {
            Repr::F16 => Repr::I16,
            Repr::F32 => Repr::I32,
            Repr::F64 => Repr::I64,
            int => int,
        }
    }
}

/// The builder and where it builds.
pub(crate) struct Ir<'c> {
    pub(crate) context: &'c Context,
    pub(crate) module: Module<'c>,
    pub(crate) builder: Builder<'c>,
    /// Whether the machine has the instructions that came with masks.
    pub(crate) has_masks: bool,
    /// Whether this is code for an NVIDIA GPU: values are scalars, and there is no system library to call.
    pub(crate) is_gpu: bool,
    /// Whether this GPU adds several neighbouring floats at once, atomically.
    pub(crate) adds_vectors: bool,
    /// Whether what is computed now is rounded to a few bits in the end, so that f32 need not be exact to the last ones.
    pub(crate) is_rough: Cell<bool>,
    /// The room for rows that are kept, and the function it is in.
    rows: Cell<Option<(FunctionValue<'c>, PointerValue<'c>)>>,
}

fn built<T>(result: Result<T, BuilderError>) -> T {
    result.expect("the builder is positioned and given types that fit")
}

macro_rules! binary {
    ($($name:ident $opcode:ident),* $(,)?) => {$(
        pub(crate) fn $name(&self, a: Val<'c>, b: Val<'c>) -> Val<'c> {
            let (a, b) = self.same_lanes(a, b);
            built(self.builder.build_binop(InstructionOpcode::$opcode, a, b, ""))
        }
    )*};
}

macro_rules! cast {
    ($($name:ident $opcode:ident),* $(,)?) => {$(
        pub(crate) fn $name(&self, a: Val<'c>, to: Repr) -> Val<'c> {
            let to = self.ty(to, lanes(a));
            if a.get_type() == to {
                return a;
            }
            built(self.builder.build_cast(InstructionOpcode::$opcode, a, to, ""))
        }
    )*};
}

/// The number of lanes; 1 for a scalar.
pub(crate) fn lanes(v: Val<'_>) -> u32 {
    match v {
        Val::VectorValue(v) => v.get_type().get_size(),
        _ => 1,
    }
}

impl<'c> Ir<'c> {
    pub(crate) fn new(context: &'c Context, machine: &Machine) -> Ir<'c> {
        let (module, builder) = (context.create_module("kernels"), context.create_builder());
        let (has_masks, is_gpu) = (machine.simd.has_masks, machine.is_gpu());
        let adds_vectors = is_gpu && machine.cpu.starts_with("sm_9");
        let (is_rough, rows) = (Cell::new(false), Cell::new(None));
        Ir { context, module, builder, has_masks, is_gpu, adds_vectors, is_rough, rows }
    }

    /// The room for rows that are kept: one for each function, since no two of its nests run at once.
    pub(crate) fn rows(&self) -> PointerValue<'c> {
        let function = self.builder.get_insert_block().and_then(|b| b.get_parent());
        match self.rows.get() {
            Some((of, rows)) if Some(of) == function => rows,
            _ => {
                let rows = self.stack_bytes(hloom_loops::row_cache::MAX_BYTES);
                self.rows.set(function.map(|f| (f, rows)));
                rows
            }
        }
    }

    pub(crate) fn ty(&self, repr: Repr, lanes: u32) -> BasicTypeEnum<'c> {
        macro_rules! of {
            ($t:expr) => {{
                let t = $t;
                if lanes == 1 { t.into() } else { t.vec_type(lanes).into() }
            }};
        }
        match repr {
            Repr::I1 => of!(self.context.bool_type()),
            Repr::I8 => of!(self.context.i8_type()),
            Repr::I16 => of!(self.context.i16_type()),
            Repr::I32 => of!(self.context.i32_type()),
            Repr::I64 => of!(self.context.i64_type()),
            Repr::F16 => of!(self.context.f16_type()),
            Repr::F32 => of!(self.context.f32_type()),
            Repr::F64 => of!(self.context.f64_type()),
        }
    }

    /// The type of a value.
    pub(crate) fn repr(&self, v: Val<'c>) -> Repr {
        let scalar = match v.get_type() {
            BasicTypeEnum::VectorType(t) => t.get_element_type(),
            other => other,
        };
        let all = [Repr::I1, Repr::I8, Repr::I16, Repr::I32, Repr::I64, Repr::F16, Repr::F32, Repr::F64];
        all.into_iter().find(|&r| self.ty(r, 1) == scalar).unwrap_or(Repr::I64)
    }

    /// A constant integer.
    pub(crate) fn int(&self, repr: Repr, value: i64) -> Val<'c> {
        self.ty(repr, 1).into_int_type().const_int(value as u64, true).into()
    }
    /// A constant float.
    pub(crate) fn float(&self, repr: Repr, value: f64) -> Val<'c> {
        self.ty(repr, 1).into_float_type().const_float(value).into()
    }
    /// A constant float with exactly those bits.
    pub(crate) fn float_bits(&self, repr: Repr, bits: u64) -> Val<'c> {
        self.bitcast(self.int(repr.as_int(), bits as i64), repr)
    }
    pub(crate) fn i64(&self, value: i64) -> IntValue<'c> {
        self.context.i64_type().const_int(value as u64, true)
    }

    /// `v` in every one of `count` lanes.
    pub(crate) fn splat(&self, v: Val<'c>, count: u32) -> Val<'c> {
        if count == 1 || lanes(v) == count {
            return v;
        }
        match v {
            Val::IntValue(i) if i.is_const() => {
                inkwell::types::VectorType::const_vector(&vec![i; count as usize]).into()
            }
            Val::FloatValue(f) if f.is_const() => {
                inkwell::types::VectorType::const_vector(&vec![f; count as usize]).into()
            }
            // LLVM cannot always put a truth value into a vector of them; a byte it can.
            _ if self.repr(v) == Repr::I1 => {
                let bytes = self.splat(self.zext(v, Repr::I8), count);
                self.icmp(IntPredicate::NE, bytes, self.int(Repr::I8, 0))
            }
            _ => {
                let poison = self.vector_type(v.get_type(), count).get_undef();
                let one = built(self.builder.build_insert_element(poison, v, self.i64(0), ""));
                let mask = self.context.i32_type().vec_type(count).const_zero();
                built(self.builder.build_shuffle_vector(one, poison, mask, "")).into()
            }
        }
    }

    fn vector_type(&self, element: BasicTypeEnum<'c>, count: u32) -> inkwell::types::VectorType<'c> {
        match element {
            BasicTypeEnum::IntType(t) => t.vec_type(count),
            BasicTypeEnum::FloatType(t) => t.vec_type(count),
            BasicTypeEnum::PointerType(t) => t.vec_type(count),
            _ => self.context.i64_type().vec_type(count),
        }
    }

    pub(crate) fn same_lanes(&self, a: Val<'c>, b: Val<'c>) -> (Val<'c>, Val<'c>) {
        let count = lanes(a).max(lanes(b));
        (self.splat(a, count), self.splat(b, count))
    }

    binary!(
        add Add, sub Sub, mul Mul, udiv UDiv, sdiv SDiv, urem URem, srem SRem, and And, or Or, xor Xor, shl Shl,
        lshr LShr, ashr AShr, fadd FAdd, fsub FSub, fmul FMul, divide FDiv,
    );
    cast!(
        trunc Trunc, zext ZExt, sext SExt, fptrunc FPTrunc, fpext FPExt, sitofp SIToFP, fptosi FPToSI, fptoui FPToUI, uitofp UIToFP, bitcast BitCast,
    );

    /// The quotient.
    pub(crate) fn fdiv(&self, a: Val<'c>, b: Val<'c>) -> Val<'c> {
        match self.is_gpu && self.repr(a) == Repr::F32 {
            true => self.divide_by(a, self.reciprocal(b)),
            false => self.divide(a, self.divisor(b)),
        }
    }

    /// A divisor whose lanes are not known to LLVM. Where lanes of both sides are known to be zeros, LLVM 19 takes those
    /// of the quotient for zeros as well (`SimplifyDemandedVectorElts`), which are NaN, and lets a `select` against zeros
    /// fall away.
    fn divisor(&self, b: Val<'c>) -> Val<'c> {
        match b {
            Val::VectorValue(v) if !v.is_const() => self.call1("llvm.arithmetic.fence", b),
            other => other,
        }
    }

    pub(crate) fn fneg(&self, a: Val<'c>) -> Val<'c> {
        match a {
            Val::VectorValue(v) => built(self.builder.build_float_neg(v, "")).into(),
            other => built(self.builder.build_float_neg(other.into_float_value(), "")).into(),
        }
    }
    pub(crate) fn not(&self, a: Val<'c>) -> Val<'c> {
        self.xor(a, self.int(self.repr(a), -1))
    }

    pub(crate) fn icmp(&self, predicate: IntPredicate, a: Val<'c>, b: Val<'c>) -> Val<'c> {
        match self.same_lanes(a, b) {
            (Val::VectorValue(a), Val::VectorValue(b)) => {
                built(self.builder.build_int_compare(predicate, a, b, "")).into()
            }
            (a, b) => {
                built(self.builder.build_int_compare(predicate, a.into_int_value(), b.into_int_value(), "")).into()
            }
        }
    }
    pub(crate) fn fcmp(&self, predicate: FloatPredicate, a: Val<'c>, b: Val<'c>) -> Val<'c> {
        match self.same_lanes(a, b) {
            (Val::VectorValue(a), Val::VectorValue(b)) => {
                built(self.builder.build_float_compare(predicate, a, b, "")).into()
            }
            (a, b) => {
                built(self.builder.build_float_compare(predicate, a.into_float_value(), b.into_float_value(), ""))
                    .into()
            }
        }
    }
    pub(crate) fn select(&self, condition: Val<'c>, a: Val<'c>, b: Val<'c>) -> Val<'c> {
        let (a, b) = self.same_lanes(a, b);
        match condition {
            Val::VectorValue(c) => {
                let count = c.get_type().get_size();
                built(self.builder.build_select(c, self.splat(a, count), self.splat(b, count), ""))
            }
            c => built(self.builder.build_select(c.into_int_value(), a, b, "")),
        }
    }

    /// Calls the intrinsic `name`, overloaded by `types`.
    pub(crate) fn intrinsic(&self, name: &str, types: &[BasicTypeEnum<'c>], arguments: &[Val<'c>]) -> Option<Val<'c>> {
        let intrinsic = Intrinsic::find(name).expect("LLVM has the intrinsics that are named here");
        let function = intrinsic.get_declaration(&self.module, types).expect("the types fit the intrinsic");
        let arguments: Vec<BasicMetadataValueEnum<'c>> = arguments.iter().map(|&a| a.into()).collect();
        built(self.builder.build_call(function, &arguments, "")).try_as_basic_value().basic()
    }
    /// An intrinsic from values of one type to the same type.
    pub(crate) fn call1(&self, name: &str, a: Val<'c>) -> Val<'c> {
        self.intrinsic(name, &[a.get_type()], &[a]).expect("the intrinsic has a result")
    }
    pub(crate) fn call2(&self, name: &str, a: Val<'c>, b: Val<'c>) -> Val<'c> {
        let (a, b) = self.same_lanes(a, b);
        self.intrinsic(name, &[a.get_type()], &[a, b]).expect("the intrinsic has a result")
    }
    /// `a·b + c`, rounded once.
    pub(crate) fn fma(&self, a: Val<'c>, b: Val<'c>, c: Val<'c>) -> Val<'c> {
        let (a, b) = self.same_lanes(a, b);
        let (a, c) = self.same_lanes(a, c);
        let (a, b) = self.same_lanes(a, b);
        self.intrinsic("llvm.fma", &[a.get_type()], &[a, b, c]).expect("the intrinsic has a result")
    }

    pub(crate) fn shuffle(&self, a: Val<'c>, b: Val<'c>, mask: &[u32]) -> Val<'c> {
        let (a, b) = (a.into_vector_value(), b.into_vector_value());
        let i32 = self.context.i32_type();
        let mask: Vec<IntValue<'c>> = mask.iter().map(|&m| i32.const_int(m.into(), false)).collect();
        built(self.builder.build_shuffle_vector(a, b, inkwell::types::VectorType::const_vector(&mask), "")).into()
    }
    /// Lanes of one vector in another order or number; a scalar if there is one.
    pub(crate) fn pick(&self, v: Val<'c>, mask: &[u32]) -> Val<'c> {
        match (v, mask) {
            (Val::VectorValue(vector), &[lane]) => self.extract(vector, lane),
            (Val::VectorValue(_), _) => self.shuffle(v, v, mask),
            _ => v,
        }
    }
    pub(crate) fn extract(&self, v: VectorValue<'c>, lane: u32) -> Val<'c> {
        built(self.builder.build_extract_element(v, self.i64(lane.into()), ""))
    }
    pub(crate) fn insert(&self, v: Val<'c>, element: Val<'c>, lane: u32) -> Val<'c> {
        built(self.builder.build_insert_element(v.into_vector_value(), element, self.i64(lane.into()), "")).into()
    }
    /// 0, 1, 2 … in as many lanes.
    pub(crate) fn lane_numbers(&self, repr: Repr, count: u32) -> Val<'c> {
        let t = self.ty(repr, 1).into_int_type();
        let numbers: Vec<IntValue<'c>> = (0..u64::from(count)).map(|n| t.const_int(n, false)).collect();
        match numbers[..] {
            [one] => one.into(),
            _ => inkwell::types::VectorType::const_vector(&numbers).into(),
        }
    }

    pub(crate) fn pointer_type(&self) -> inkwell::types::PointerType<'c> {
        self.context.ptr_type(AddressSpace::default())
    }
    /// `pointer` moved by a number of bytes.
    pub(crate) fn offset(&self, pointer: PointerValue<'c>, bytes: IntValue<'c>) -> PointerValue<'c> {
        if bytes.get_zero_extended_constant() == Some(0) {
            return pointer;
        }
        // SAFETY: only an address is computed; whether it may be read is the business of the load.
        built(unsafe { self.builder.build_gep(self.context.i8_type(), pointer, &[bytes], "") })
    }
    pub(crate) fn load(&self, t: BasicTypeEnum<'c>, pointer: PointerValue<'c>, align: u32) -> Val<'c> {
        let value = built(self.builder.build_load(t, pointer, ""));
        if let Some(instruction) = value.as_instruction_value() {
            instruction.set_alignment(align).expect("alignments are powers of two");
        }
        value
    }
    pub(crate) fn store(&self, pointer: PointerValue<'c>, value: Val<'c>, align: u32) {
        let store = built(self.builder.build_store(pointer, value));
        store.set_alignment(align).expect("alignments are powers of two");
    }
    /// Writes without reading what was there into a cache first.
    pub(crate) fn store_past_caches(&self, pointer: PointerValue<'c>, value: Val<'c>, align: u32) {
        let store = built(self.builder.build_store(pointer, value));
        store.set_alignment(align).expect("alignments are powers of two");
        let one = self.context.i32_type().const_int(1, false);
        let mark = self.context.metadata_node(&[one.into()]);
        store.set_metadata(mark, self.context.get_kind_id("nontemporal")).expect("it is a node");
    }
    /// Whether an address is a multiple of `bytes`.
    pub(crate) fn is_aligned(&self, pointer: PointerValue<'c>, bytes: i64) -> Val<'c> {
        let address = built(self.builder.build_ptr_to_int(pointer, self.context.i64_type(), ""));
        self.icmp(IntPredicate::EQ, self.and(address.into(), self.i64(bytes - 1).into()), self.i64(0).into())
    }
    pub(crate) fn select_pointer(&self, c: Val<'c>, a: PointerValue<'c>, b: PointerValue<'c>) -> PointerValue<'c> {
        built(self.builder.build_select(c.into_int_value(), a, b, "")).into_pointer_value()
    }
    /// The addresses `pointer + offsets`, where the offsets are a vector of bytes.
    pub(crate) fn pointers(&self, pointer: PointerValue<'c>, offsets: Val<'c>) -> Val<'c> {
        let mut index = [offsets.as_value_ref()];
        let byte = self.context.i8_type().as_type_ref();
        // SAFETY: all values are of this builder's context, and the builder is positioned.
        unsafe {
            let address = llvm_sys::core::LLVMBuildGEP2(
                self.builder.as_mut_ptr(),
                byte,
                pointer.as_value_ref(),
                index.as_mut_ptr(),
                1,
                c"".as_ptr(),
            );
            Val::new(address)
        }
    }
    /// Whether two pointers are the same.
    pub(crate) fn same_pointer(&self, a: PointerValue<'c>, b: PointerValue<'c>) -> Val<'c> {
        let int = |p| built(self.builder.build_ptr_to_int(p, self.context.i64_type(), ""));
        self.icmp(IntPredicate::EQ, int(a).into(), int(b).into())
    }
}
