//! Functions of the system's library, for what is too rare for code of its own: all lanes are handed over in memory.

use crate::emit::ir::{Ir, Repr, Val, lanes};
use inkwell::values::PointerValue;

impl<'c> Ir<'c> {
    /// A function of the system's library applied to each lane of f64 values.
    pub(super) fn by_lanes(&self, name: &str, x: Val<'c>, y: Val<'c>) -> Val<'c> {
        let (x, y) = self.same_lanes(x, y);
        let count = lanes(x);
        let (first, second) = (self.stack_slot(count), self.stack_slot(count));
        self.store(first, x, 8);
        self.store(second, y, 8);
        let name = format!("hloom_{name}");
        let pointer = self.pointer_type();
        let function = self.module.get_function(&name).unwrap_or_else(|| {
            let long = self.context.i64_type();
            let signature = self.context.void_type().fn_type(&[pointer.into(), pointer.into(), long.into()], false);
            self.module.add_function(&name, signature, None)
        });
        let arguments = [first.into(), second.into(), self.i64(count.into()).into()];
        self.builder.build_call(function, &arguments, "").expect("the builder is positioned");
        self.load(x.get_type(), first, 8)
    }

    /// `v`·2ⁿ by the instruction that x86 has for it, where the machine has it and the lanes fill registers.
    pub(super) fn scaled_by_instruction(&self, v: Val<'c>, n: Val<'c>) -> Option<Val<'c>> {
        let (count, repr) = (lanes(v), self.repr(v));
        let width = (512 / repr.bits()).min(count);
        if !self.has_masks || count == 1 || width * repr.bits() < 256 || count % width != 0 {
            return None;
        }
        let (name, mask) = match (repr, width * repr.bits()) {
            (Repr::F32, 512) => ("llvm.x86.avx512.mask.scalef.ps.512", Repr::I16),
            (Repr::F32, 256) => ("llvm.x86.avx512.mask.scalef.ps.256", Repr::I8),
            (Repr::F64, 512) => ("llvm.x86.avx512.mask.scalef.pd.512", Repr::I8),
            (Repr::F64, 256) => ("llvm.x86.avx512.mask.scalef.pd.256", Repr::I8),
            _ => return None,
        };
        let mut scaled: Option<Val<'c>> = None;
        for first in (0..count).step_by(width as usize) {
            let part: Vec<u32> = (first..first + width).collect();
            let of = |v: Val<'c>| if width == count { v } else { self.pick(v, &part) };
            let (v, n) = (of(v), of(n));
            let mut arguments = vec![v, n, v, self.int(mask, -1)];
            if width * repr.bits() == 512 {
                // Rounded as usual.
                arguments.push(self.int(Repr::I32, 4));
            }
            let part = self.intrinsic(name, &[], &arguments)?;
            scaled = Some(scaled.map_or(part, |before| {
                let all: Vec<u32> = (0..first + width).collect();
                let wide = |v: Val<'c>| self.pick(v, &(0..first.max(width)).map(|l| l % lanes(v)).collect::<Vec<_>>());
                let (a, b) = (wide(before), wide(part));
                // Lanes of the part come after those of what was there before.
                self.shuffle(a, b, &all)
            }));
        }
        scaled
    }

    /// Room for so many f64 on the stack.
    fn stack_slot(&self, count: u32) -> PointerValue<'c> {
        self.stack_bytes(8 * count)
    }

    /// Room on the stack, made once at the function's start.
    pub(crate) fn stack_bytes(&self, bytes: u32) -> PointerValue<'c> {
        let here = self.builder.get_insert_block().expect("the builder is positioned");
        let entry = here.get_parent().and_then(|f| f.get_first_basic_block()).unwrap_or(here);
        match entry.get_first_instruction() {
            Some(first) => self.builder.position_before(&first),
            None => self.builder.position_at_end(entry),
        }
        let array = self.context.i8_type().array_type(bytes);
        let slot = self.builder.build_alloca(array, "").expect("the builder is positioned");
        if let Some(instruction) = slot.as_instruction() {
            instruction.set_alignment(64).expect("alignments are powers of two");
        }
        self.builder.position_at_end(here);
        slot
    }

    /// `usual`, or what `other` makes where `condition` is true, behind a branch.
    pub(super) fn rarely(&self, condition: Val<'c>, usual: Val<'c>, other: impl Fn() -> Val<'c>) -> Val<'c> {
        self.rarely_all(condition, &[usual], || vec![other()])[0]
    }

    /// The same for several values.
    pub(super) fn rarely_all(
        &self,
        condition: Val<'c>,
        usual: &[Val<'c>],
        other: impl Fn() -> Vec<Val<'c>>,
    ) -> Vec<Val<'c>> {
        let before = self.builder.get_insert_block().expect("the builder is positioned");
        let function = before.get_parent().expect("blocks stand in functions");
        let rare = self.context.append_basic_block(function, "rare");
        let after = self.context.append_basic_block(function, "usual");
        let jump = self.builder.build_conditional_branch(condition.into_int_value(), rare, after);
        jump.expect("the builder is positioned");
        self.builder.position_at_end(rare);
        let other = other();
        let end = self.builder.get_insert_block().expect("the builder is positioned");
        self.builder.build_unconditional_branch(after).expect("the builder is positioned");
        self.builder.position_at_end(after);
        let merged = |(usual, other): (&Val<'c>, &Val<'c>)| {
            let phi = self.builder.build_phi(usual.get_type(), "").expect("the builder is positioned");
            phi.add_incoming(&[(usual, before), (other, end)]);
            phi.as_basic_value()
        };
        usual.iter().zip(&other).map(merged).collect()
    }
}
