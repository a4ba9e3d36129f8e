//! Scans down columns, which lie side by side.

use super::{COLUMN_ROWS, Scan, WARPS};
use crate::attention::Unsupported;
use crate::launch::KernelSequence;
use crate::ptx::{at, def, emit};

impl Scan<'_> {
    /// Columns: a block has 32 of them side by side (or 32 vectors) and walks down in steps of all its warps' rows.
    pub(super) fn columns(mut self) -> Result<KernelSequence, Unsupported> {
        let element = self.element();
        let length = self.length;
        let across = self.shape.inner.div_ceil(32);
        let totals = self.k.shared(8 * 32 * WARPS, 16);
        let k = &mut self.k;
        let [inner, columns] = [self.shape.inner, across].map(|n| k.size32(n as i64));
        let wide_inner = def!(k, B64, "cvt.u64.u32", inner);
        let plane = def!(k, B64, "mul.lo.s64", self.wide_length, wide_inner);
        let shared = k.shared_base();
        let thread = def!(k, B32, "mov.u32", "%tid.x");
        let lane = def!(k, B32, "and.b32", thread, 31);
        let warp = def!(k, B32, "shr.u32", thread, 5);
        let block = def!(k, B32, "mov.u32", "%ctaid.x");
        let column_block = def!(k, B32, "rem.u32", block, columns);
        let outer = def!(k, B32, "div.u32", block, columns);
        let column = def!(k, B32, "mad.lo.u32", column_block, 32, lane);
        let exists = def!(k, Pred, "setp.lt.u32", column, inner);
        let outer = def!(k, B64, "cvt.u64.u32", outer);
        let wide_column = def!(k, B64, "cvt.u64.u32", column);
        let first = def!(k, B64, "mad.lo.s64", outer, plane, wide_column);
        let bytes = element.bytes();
        let from = def!(k, B64, "mad.lo.s64", first, bytes, self.input);
        let to = def!(k, B64, "mad.lo.s64", first, bytes, self.output);
        let row_bytes = def!(k, B64, "mul.lo.s64", wide_inner, bytes);
        let direction = self.direction();
        let k = &mut self.k;
        let step = def!(k, B64, "mul.lo.s64", row_bytes, direction);
        let slot = def!(k, B32, "mad.lo.u32", thread, 8, shared);
        let lane_slot = def!(k, B32, "mad.lo.u32", lane, 8, shared);
        let row = def!(k, B32, "mul.lo.u32", warp, COLUMN_ROWS);
        let space = format!("shared.{}", element.arithmetic());
        let carry = self.identity();
        let next = self.k.label();
        self.k.place(next);
        // This warp's rows.
        let identity = self.identity();
        let k = &mut self.k;
        let wide_row = def!(k, B64, "cvt.u64.u32", row);
        let offset = if self.shape.reverse {
            let last = def!(k, B64, "sub.s64", self.wide_length, 1);
            let mirrored = def!(k, B64, "sub.s64", last, wide_row);
            def!(k, B64, "mul.lo.s64", mirrored, row_bytes)
        } else {
            def!(k, B64, "mul.lo.s64", wide_row, row_bytes)
        };
        let source = def!(k, B64, "add.s64", from, offset);
        let target = def!(k, B64, "add.s64", to, offset);
        let mut values = Vec::new();
        let mut guards = Vec::new();
        for i in 0..COLUMN_ROWS {
            let value = element.copy(&mut self.k, identity);
            let k = &mut self.k;
            let here = def!(k, B32, "add.s32", row, i);
            let inside = def!(k, Pred, "setp.lt.u32", here, length);
            emit!(k, "and.pred", inside, inside, exists);
            let skip = k.label();
            k.branch_unless(inside, skip);
            element.load(k, value, at(source, 0), "global");
            k.place(skip);
            emit!(k, "add.s64", source, source, step);
            values.push(value);
            guards.push(inside);
        }
        for i in 1..values.len() {
            self.combine(values[i], values[i - 1], values[i]);
        }
        let last = values[values.len() - 1];
        emit!(self.k, &format!("st.{space}"), at(slot, totals.into()), last);
        emit!(self.k, "bar.sync", 0);
        let before = element.copy(&mut self.k, carry);
        for other in 0..WARPS {
            let value = self.k.reg(element.class());
            emit!(self.k, &format!("ld.{space}"), value, at(lane_slot, i64::from(totals + 8 * 32 * other)));
            let later = def!(self.k, Pred, "setp.le.u32", warp, other);
            let skip = self.k.label();
            self.k.branch_uniform_if(later, skip);
            self.combine(before, before, value);
            self.k.place(skip);
            self.combine(carry, carry, value);
        }
        emit!(self.k, "bar.sync", 0);
        for (i, &value) in values.iter().enumerate() {
            self.combine(value, before, value);
            let k = &mut self.k;
            let skip = k.label();
            k.branch_unless(guards[i], skip);
            element.store(k, at(target, 0), value, "global");
            k.place(skip);
            emit!(k, "add.s64", target, target, step);
        }
        let k = &mut self.k;
        emit!(k, "add.s32", row, row, COLUMN_ROWS * WARPS);
        // The first row of the block's step, so that all warps agree.
        let first_row = def!(k, B32, "mul.lo.u32", warp, COLUMN_ROWS);
        let step_row = def!(k, B32, "sub.s32", row, first_row);
        let more = def!(k, Pred, "setp.lt.u32", step_row, length);
        k.branch_uniform_if(more, next);
        let blocks = across * self.shape.outer;
        let blocks = u32::try_from(blocks).map_err(|_| Unsupported(format!("a scan of {blocks} blocks of columns")))?;
        Ok(self.finish([blocks, 1, 1], Vec::new()))
    }
}
