//! How a tile learns what comes before it: it publishes its own total, and looks back at what others have published.

use super::Scan;
use crate::ptx::{Class, PtxBuilder, Reg, Tuple, at, def, emit};

impl Scan<'_> {
    /// Publishes the tile's total, and gives what comes before the tile in its row. For one warp, all lanes.
    pub(super) fn look_back(&mut self, state: Reg, number: Reg, in_row: Reg, whole: Reg, lane: Reg) -> Reg {
        const PARTIAL: u32 = 1;
        const COMPLETE: u32 = 2;
        let element = self.element();
        let carry = self.identity();
        let k = &mut self.k;
        let wide = def!(k, B64, "cvt.u64.u32", number);
        let slot = def!(k, B64, "mad.lo.s64", wide, 16, state);
        let first_tile = def!(k, Pred, "setp.eq.u32", in_row, 0);
        let done = k.label();
        let status = def!(k, B32, "selp.b32", COMPLETE, PARTIAL, first_tile);
        self.publish(slot, status, whole, lane);
        let k = &mut self.k;
        k.branch_uniform_if(first_tile, done);

        // A window of 32 tiles before this one, the nearest in lane 0.
        let distance = def!(k, B32, "add.s32", lane, 1);
        let again = k.label();
        k.place(again);
        // Lanes past the row's first tile see a complete tile of nothing.
        let exists = def!(k, Pred, "setp.le.u32", distance, in_row);
        let back = def!(k, B64, "cvt.u64.u32", distance);
        let negative = def!(k, B64, "mul.lo.s64", back, -16);
        let address = def!(k, B64, "add.s64", slot, negative);
        let wait = k.label();
        k.place(wait);
        let status = def!(k, B32, "mov.u32", COMPLETE);
        let words = k.regs(Class::B64, 2);
        emit!(k, "mov.u64", words[0], u64::from(COMPLETE));
        emit!(k, "mov.u64", words[1], 0);
        k.guarded(exists, true, |k| emit!(k, "ld.relaxed.gpu.global.v2.b64", Tuple(&words), at(address, 16)));
        emit!(k, "cvt.u32.u64", status, words[0]);
        let empty = def!(k, Pred, "setp.eq.u32", status, 0);
        let any_empty = def!(k, Pred, "vote.sync.any.pred", empty, -1);
        k.branch_uniform_if(any_empty, wait);
        let value = match element.class() {
            Class::B64 => words[1],
            Class::F64 => def!(k, F64, "mov.b64", words[1]),
            class => {
                let bits = def!(k, B32, "cvt.u32.u64", words[1]);
                match class {
                    Class::F32 => def!(k, F32, "mov.b32", bits),
                    _ => bits,
                }
            }
        };
        let nothing = self.identity();
        let k = &mut self.k;
        let select = |k: &mut PtxBuilder, take: Reg, value: Reg, other: Reg| {
            let result = k.reg(element.class());
            let ty = match element.class() {
                Class::F32 => "f32",
                Class::F64 => "f64",
                Class::B64 => "b64",
                _ => "b32",
            };
            emit!(k, &format!("selp.{ty}"), result, value, other, take);
            result
        };
        let value = select(k, exists, value, nothing);
        // Tiles beyond the nearest complete one do not count.
        let complete = def!(k, Pred, "setp.eq.u32", status, COMPLETE);
        let ballot = def!(k, B32, "vote.sync.ballot.b32", complete, -1);
        let below = def!(k, B32, "mov.u32", "%lanemask_lt");
        let nearer = def!(k, B32, "and.b32", ballot, below);
        let counts = def!(k, Pred, "setp.eq.u32", nearer, 0);
        let value = select(k, counts, value, nothing);
        // Lane 0 is nearest: what lies further away comes first.
        for distance in [1u32, 2, 4, 8, 16] {
            let other = element.shuffle(&mut self.k, "bfly", value, distance);
            let upper = def!(self.k, B32, "and.b32", lane, distance);
            let is_upper = def!(self.k, Pred, "setp.ne.u32", upper, 0);
            let k = &mut self.k;
            let earlier = select(k, is_upper, value, other);
            let later = select(k, is_upper, other, value);
            self.combine(value, earlier, later);
        }
        self.combine(carry, value, carry);
        let k = &mut self.k;
        emit!(k, "add.s32", distance, distance, 32);
        let found = def!(k, Pred, "setp.ne.u32", ballot, 0);
        k.branch_uniform_unless(found, again);
        let inclusive = self.k.reg(element.class());
        self.combine(inclusive, carry, whole);
        let status = def!(self.k, B32, "mov.u32", COMPLETE);
        self.publish(slot, status, inclusive, lane);
        self.k.place(done);
        carry
    }

    /// Writes a tile's state and value at once, so that no one sees one without the other.
    fn publish(&mut self, slot: Reg, status: Reg, value: Reg, lane: Reg) {
        let k = &mut self.k;
        let first = def!(k, Pred, "setp.eq.u32", lane, 0);
        let wide_status = def!(k, B64, "cvt.u64.u32", status);
        let bits = match self.shape.element.class() {
            Class::B64 => value,
            Class::F64 => def!(k, B64, "mov.b64", value),
            Class::F32 => {
                let bits = def!(k, B32, "mov.b32", value);
                def!(k, B64, "cvt.u64.u32", bits)
            }
            _ => def!(k, B64, "cvt.u64.u32", value),
        };
        k.guarded(first, true, |k| {
            emit!(k, "st.relaxed.gpu.global.v2.b64", at(slot, 16), Tuple(&[wide_status, bits]));
        });
    }
}
