//! What the threads of a block exchange: accumulators through shared memory, single values by shuffles.

use super::rows::WARP;
use crate::emit::ir::{Ir, Repr, Val};
use crate::emit::value::V;
use inkwell::values::PointerValue;

/// Puts accumulators into shared memory.
pub(super) fn put<'c>(ir: &Ir<'c>, state: &[V<'c>], shared: &[PointerValue<'c>], place: Val<'c>) {
    for (part, &base) in state.iter().flat_map(|v| v.parts()).zip(shared) {
        let part = if ir.repr(part) == Repr::I1 { ir.zext(part, Repr::I8) } else { part };
        let bytes = ir.repr(part).bits() / 8;
        let offset = ir.mul(ir.zext(place, Repr::I64), ir.i64(bytes.into()).into()).into_int_value();
        ir.store(ir.offset(base, offset), part, bytes);
    }
}

/// Accumulators like `state` from shared memory.
pub(super) fn get<'c>(ir: &Ir<'c>, state: &[V<'c>], shared: &[PointerValue<'c>], place: Val<'c>) -> Vec<V<'c>> {
    let mut shared = shared.iter();
    let mut one = |like: Val<'c>| {
        let repr = ir.repr(like);
        let memory = if repr == Repr::I1 { Repr::I8 } else { repr };
        let bytes = memory.bits() / 8;
        let base = *shared.next().expect("there is room for each part");
        let offset = ir.mul(ir.zext(place, Repr::I64), ir.i64(bytes.into()).into()).into_int_value();
        let value = ir.load(ir.ty(memory, 1), ir.offset(base, offset), bytes);
        if repr == Repr::I1 { ir.trunc(value, Repr::I1) } else { value }
    };
    let mut read = Vec::new();
    for v in state {
        let re = one(v.re);
        read.push(V { re, im: v.im.map(&mut one) });
    }
    read
}

impl<'c> Ir<'c> {
    /// The value that the thread has whose number in the warp differs in the bits of `distance`.
    pub(super) fn shuffle_xor(&self, value: Val<'c>, distance: Val<'c>) -> Val<'c> {
        let repr = self.repr(value);
        let word = |v: Val<'c>| {
            let int = |n: i64| self.int(Repr::I32, n);
            let arguments = [int(-1), v, distance, int(i64::from(WARP) - 1)];
            self.intrinsic("llvm.nvvm.shfl.sync.bfly.i32", &[], &arguments).expect("the intrinsic has a result")
        };
        match repr.bits() {
            32 => self.bitcast(word(self.bitcast(value, Repr::I32)), repr),
            64 => {
                let bits = self.bitcast(value, Repr::I64);
                let high = word(self.trunc(self.lshr(bits, self.i64(32).into()), Repr::I32));
                let low = word(self.trunc(bits, Repr::I32));
                let wide = self.shl(self.zext(high, Repr::I64), self.i64(32).into());
                self.bitcast(self.or(wide, self.zext(low, Repr::I64)), repr)
            }
            _ => {
                let bits = self.bitcast(value, repr.as_int());
                let narrow = self.trunc(word(self.zext(bits, Repr::I32)), repr.as_int());
                self.bitcast(narrow, repr)
            }
        }
    }
}
