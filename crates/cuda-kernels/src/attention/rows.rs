//! Rows of accumulators on their way to global memory, and what the gradient needs to know of each row of Q.

use super::backward::BackwardShape;
use super::scores::{ScoreArrays, ScoreRules};
use super::tiles::{Fragment, SLICE_BYTES, wide};
use crate::ptx::{Class, Float, PtxBuilder, Reg, Tuple, at, def, emit};

/// Multiplies the rows of an accumulator, each by its factor.
pub(super) fn rescale(k: &mut PtxBuilder, sums: &[Reg], factors: [Reg; 2]) {
    for (i, &sum) in sums.iter().enumerate() {
        emit!(k, "mul.f32", sum, sum, factors[i % 4 / 2]);
    }
}

/// Rows of an accumulator in global memory.
#[derive(Clone, Copy)]
pub(super) struct StoredRows {
    /// Elements of a row that exist.
    pub columns: u32,
    pub row_bytes: u64,
    /// Rows that exist.
    pub length: u32,
    /// Whether all rows of all blocks exist.
    pub whole: bool,
}

impl StoredRows {
    /// Stores the 64 rows of a warpgroup as f32, which start at row `group_row` of the head at `target`: of each row four
    /// threads write 32 bytes at once.
    pub(super) fn store(&self, k: &mut PtxBuilder, fragment: &Fragment, sums: &[Reg], target: Reg, group_row: Reg) {
        let row = def!(k, B32, "add.s32", group_row, fragment.row);
        let first = def!(k, B64, "mad.wide.u32", fragment.column, 4, target);
        let row_bytes = k.size64(self.row_bytes);
        let length = (!self.whole).then(|| k.size32(self.length.into()));
        for below in [0, 1] {
            let here = def!(k, B32, "add.s32", row, 8 * below);
            let row_wide = wide(k, here);
            let address = def!(k, B64, "mad.lo.s64", row_wide, row_bytes, first);
            let exists = length.map(|length| def!(k, Pred, "setp.lt.u32", here, length));
            for block in 0..self.columns as usize / 8 {
                let pair = Tuple(&sums[4 * block + 2 * below..][..2]);
                let to = at(address, 32 * block as i64);
                match exists {
                    Some(exists) => k.guarded(exists, true, |k| emit!(k, "st.global.v2.f32", to, pair)),
                    None => emit!(k, "st.global.v2.f32", to, pair),
                }
            }
        }
    }
}

/// Rows of an accumulator on their way to global memory, through shared memory so that whole lines are written.
pub(super) struct StagedRows {
    pub element: &'static str,
    pub rows: StoredRows,
    /// Bytes from slice to slice of the staging tile.
    pub slice_bytes: u32,
}

impl StagedRows {
    /// Stores the 64 rows of warpgroup `group`, which start at row `group_row` of the head at `target`. They go through
    /// the rows of the tile at `base` that are the group's own, and that it does not need any more.
    pub(super) fn store(
        &self,
        k: &mut PtxBuilder,
        fragment: &Fragment,
        sums: &[Reg],
        (base, group): (Reg, Reg),
        target: Reg,
        group_row: Reg,
    ) {
        let StoredRows { columns, row_bytes, length, whole } = self.rows;
        // All four warps have read what lies there.
        let id = def!(k, B32, "add.s32", group, 1);
        emit!(k, "bar.sync", id, 128);
        let warp_number = def!(k, B32, "mad.lo.u32", group, 4, fragment.warp);
        let warp_base = def!(k, B32, "mad.lo.u32", warp_number, 16 * SLICE_BYTES, base);
        let quad = def!(k, B32, "shr.u32", fragment.lane, 2);
        let swizzle = def!(k, B32, "shl.b32", quad, 4);
        let row_base = def!(k, B32, "mad.lo.u32", quad, SLICE_BYTES, warp_base);
        let pair = def!(k, B32, "shl.b32", fragment.column, 1);
        let with_pair = def!(k, B32, "add.s32", row_base, pair);
        let start = def!(k, B32, "add.s32", with_pair, swizzle);
        let opcode = format!("cvt.rn.{}x2.f32", self.element);
        for block in 0..sums.len() / 4 {
            let piece = block as u32;
            let address = def!(k, B32, "xor.b32", start, (piece % 8) * 16);
            for half in 0..2 {
                let i = 4 * block + 2 * half;
                let packed = k.define(Class::B32, &opcode, &[&sums[i + 1], &sums[i]]);
                let to = at(address, i64::from((piece / 8) * self.slice_bytes + half as u32 * 8 * SLICE_BYTES));
                emit!(k, "st.shared.b32", to, packed);
            }
        }
        emit!(k, "bar.warp.sync", -1);
        let row_in_pass = def!(k, B32, "shr.u32", fragment.lane, 3);
        let piece = def!(k, B32, "and.b32", fragment.lane, 7);
        let first = def!(k, B32, "mad.lo.u32", fragment.warp, 16, group_row);
        let row = def!(k, B32, "add.s32", first, row_in_pass);
        let row_wide = wide(k, row);
        let row_bytes = k.size64(row_bytes);
        let length = (!whole).then(|| k.size32(length.into()));
        let row_address = def!(k, B64, "mad.lo.s64", row_wide, row_bytes, target);
        let piece_offset = def!(k, B64, "mul.wide.u32", piece, 16);
        let mut address = def!(k, B64, "add.s64", row_address, piece_offset);
        let pass_bytes = def!(k, B64, "shl.b64", row_bytes, 2);
        let column = def!(k, B32, "shl.b32", piece, 3);
        let read_base = def!(k, B32, "mad.lo.u32", row_in_pass, SLICE_BYTES, warp_base);
        for pass in 0..4u32 {
            if pass > 0 {
                address = def!(k, B64, "add.s64", address, pass_bytes);
            }
            let low = def!(k, B32, "add.s32", row_in_pass, 4 * (pass % 2));
            let swizzled = def!(k, B32, "xor.b32", piece, low);
            let from = def!(k, B32, "mad.lo.u32", swizzled, 16, read_base);
            let here = def!(k, B32, "add.s32", row, 4 * pass);
            for slice in 0..sums.len() as u32 / 32 {
                let values = k.regs(Class::B32, 4);
                let source = at(from, i64::from(pass * 4 * SLICE_BYTES + slice * self.slice_bytes));
                emit!(k, "ld.shared.v4.b32", Tuple(&values), source);
                let to = at(address, i64::from(slice * 128));
                let mut guards = Vec::new();
                if let Some(length) = length {
                    guards.push(def!(k, Pred, "setp.lt.u32", here, length));
                }
                if (slice + 1) * 64 > columns {
                    guards.push(def!(k, Pred, "setp.lt.u32", column, columns.saturating_sub(slice * 64)));
                }
                if let [first, second] = guards[..] {
                    emit!(k, "and.pred", first, first, second);
                }
                let store = |k: &mut PtxBuilder| emit!(k, "st.global.v4.b32", to, Tuple(&values));
                match guards.first() {
                    Some(&guard) => k.guarded(guard, true, store),
                    None => store(k),
                }
            }
        }
    }
}

/// What the gradients need of each row of Q, in planes of f32 over `[batch][head][padded query]`. Rows that do not exist
/// get values that make their weights 0.
///
/// - The shift: what is added to a score times the exponent's factor so that two to that power is the weight. Where scores
///   can be huge, the largest score instead, to be subtracted from a score before the factor.
/// - The mean gradient: the sum over a row of output times gradient.
/// - Where scores can be huge: the inverse of the sum of exponentials, negative for a row of which every key is masked.
#[derive(Clone, Copy)]
pub(super) struct RowPlanes {
    pub huge_scores: bool,
    /// Rows of a head.
    pub padded: u32,
    heads: u64,
}

impl RowPlanes {
    /// Planes that are read in tiles of any of these numbers of rows.
    pub(super) fn new(shape: &BackwardShape, tiles: [u32; 2]) -> RowPlanes {
        let forward = &shape.forward;
        let [first, second] = tiles.map(|tile| forward.query_length.next_multiple_of(tile));
        RowPlanes {
            huge_scores: ScoreRules::new(forward, ScoreArrays::default(), false, None).has_huge_scores(),
            // Whole pieces of 16 bytes, which is how they are copied.
            padded: first.max(second).next_multiple_of(4),
            heads: u64::from(forward.batch) * u64::from(forward.query_heads),
        }
    }

    pub(super) fn count(self) -> u32 {
        if self.huge_scores { 3 } else { 2 }
    }

    /// Bytes of a plane.
    pub(super) fn plane_bytes(self) -> u64 {
        4 * self.heads * u64::from(self.padded)
    }

    pub(super) fn bytes(self) -> u64 {
        self.plane_bytes() * u64::from(self.count())
    }

    /// The address of a head's part of the first plane.
    pub(super) fn head_address(self, k: &mut PtxBuilder, base: Reg, batch: Reg, head: Reg, heads: u32) -> Reg {
        let heads = k.size32(heads.into());
        let number = def!(k, B32, "mad.lo.u32", batch, heads, head);
        let number = wide(k, number);
        let head_bytes = k.size64(4 * u64::from(self.padded));
        def!(k, B64, "mad.lo.s64", number, head_bytes, base)
    }
}

/// Threads of a block of the kernel that fills the planes; a warp does a row.
pub(super) const PLANE_THREADS: u32 = 256;

/// Writes the kernel that fills the planes: parameters are the output, its statistics, its gradient and the planes; the
/// grid runs over rows, heads and batches.
pub(super) fn write_planes(k: &mut PtxBuilder, shape: &BackwardShape, planes: RowPlanes) {
    let forward = &shape.forward;
    let [output, statistics, gradient, target] = [0; 4].map(|_| k.buffer_parameter());
    let thread = def!(k, B32, "mov.u32", "%tid.x");
    let warp = def!(k, B32, "shr.u32", thread, 5);
    let lane = def!(k, B32, "and.b32", thread, 31);
    let block = def!(k, B32, "mov.u32", "%ctaid.x");
    let row = def!(k, B32, "mad.lo.u32", block, PLANE_THREADS / 32, warp);
    let head = def!(k, B32, "mov.u32", "%ctaid.y");
    let batch = def!(k, B32, "mov.u32", "%ctaid.z");
    let end = k.label();
    let padded = k.size32(planes.padded.into());
    let past = def!(k, Pred, "setp.ge.u32", row, padded);
    k.branch_uniform_if(past, end);
    let length = k.size32(forward.query_length.into());
    let exists = def!(k, Pred, "setp.lt.u32", row, length);
    let wide_row = wide(k, row);
    let mut loaded: Vec<Vec<Reg>> = Vec::new();
    let inside = def!(k, Pred, "setp.lt.u32", lane, forward.value_dim / 8);
    emit!(k, "and.pred", inside, inside, exists);
    for (base, strides) in [(output, forward.output), (gradient, shape.output_gradient)] {
        let head_base = super::tiles::head_address(k, base, batch, head, strides);
        let row_bytes = k.size64(2 * strides.row);
        let row_base = def!(k, B64, "mad.lo.s64", wide_row, row_bytes, head_base);
        let wide_lane = wide(k, lane);
        let address = def!(k, B64, "mad.lo.s64", wide_lane, 16, row_base);
        let values: Vec<Reg> = (0..4).map(|_| def!(k, B32, "mov.u32", 0)).collect();
        k.guarded(inside, true, |k| emit!(k, "ld.global.nc.v4.b32", Tuple(&values), at(address, 0)));
        loaded.push(values);
    }
    let sum = def!(k, F32, "mov.f32", Float(0.0));
    for (&left, &right) in loaded[0].iter().zip(&loaded[1]) {
        let left = unpack(k, forward.element, left);
        let right = unpack(k, forward.element, right);
        for half in 0..2 {
            emit!(k, "fma.rn.f32", sum, left[half], right[half], sum);
        }
    }
    for distance in [16, 8, 4, 2, 1] {
        let bits = def!(k, B32, "mov.b32", sum);
        let other = def!(k, B32, "shfl.sync.bfly.b32", bits, distance, 31, -1);
        let float = def!(k, F32, "mov.b32", other);
        emit!(k, "add.f32", sum, sum, float);
    }
    let first_lane = def!(k, Pred, "setp.ne.u32", lane, 0);
    k.branch_if(first_lane, end);
    let heads = k.size32(forward.query_heads.into());
    let number = def!(k, B32, "mad.lo.u32", batch, heads, head);
    let number = wide(k, number);
    let wide_length = wide(k, length);
    let source_row = def!(k, B64, "mad.lo.s64", number, wide_length, wide_row);
    let source = def!(k, B64, "mad.lo.s64", source_row, 4, statistics);
    let plane = 4 * u64::from(forward.batch) * u64::from(forward.query_heads) * u64::from(forward.query_length);
    let plane = k.size64(plane);
    let sums = def!(k, B64, "add.s64", source, plane);
    let rules = ScoreRules::new(forward, ScoreArrays::default(), false, None);
    let largest = def!(k, F32, "mov.f32", Float(0.0));
    let exponentials = def!(k, F32, "mov.f32", Float(1.0));
    k.guarded(exists, true, |k| {
        emit!(k, "ld.global.nc.f32", largest, at(source, 0));
        emit!(k, "ld.global.nc.f32", exponentials, at(sums, 0));
    });
    let to = planes.head_address(k, target, batch, head, forward.query_heads);
    let to = def!(k, B64, "mad.lo.s64", wide_row, 4, to);
    let plane_bytes = k.size64(planes.plane_bytes());
    let mean_to = def!(k, B64, "add.s64", to, plane_bytes);
    let shift = if planes.huge_scores {
        let inverse = def!(k, F32, "rcp.approx.ftz.f32", exponentials);
        let negative = def!(k, F32, "neg.f32", inverse);
        let masked_score = rules.masked_score(k);
        let masked = def!(k, Pred, "setp.le.f32", largest, masked_score);
        let signed = def!(k, F32, "selp.f32", negative, inverse, masked);
        let inverse_to = def!(k, B64, "add.s64", mean_to, plane_bytes);
        emit!(k, "st.global.f32", at(inverse_to, 0), signed);
        def!(k, F32, "selp.f32", largest, Float(f32::INFINITY), exists)
    } else {
        let log2 = def!(k, F32, "lg2.approx.ftz.f32", exponentials);
        let factor = rules.exponent_factor(k);
        let exponent = def!(k, F32, "fma.rn.f32", largest, factor, log2);
        let negative = def!(k, F32, "neg.f32", exponent);
        def!(k, F32, "selp.f32", negative, Float(f32::NEG_INFINITY), exists)
    };
    emit!(k, "st.global.f32", at(to, 0), shift);
    emit!(k, "st.global.f32", at(mean_to, 0), sum);
    k.place(end);
}

/// The two floats of a packed pair, the lower first.
fn unpack(k: &mut PtxBuilder, element: super::Element, pair: Reg) -> [Reg; 2] {
    match element {
        // Of f32 there are no gradients, and no pairs.
        super::Element::Bf16 | super::Element::F32 => {
            let low = def!(k, B32, "shl.b32", pair, 16);
            let high = def!(k, B32, "and.b32", pair, "0xFFFF0000");
            [low, high].map(|bits| def!(k, F32, "mov.b32", bits))
        }
        super::Element::F16 => {
            let low = def!(k, B16, "cvt.u16.u32", pair);
            let shifted = def!(k, B32, "shr.u32", pair, 16);
            let high = def!(k, B16, "cvt.u16.u32", shifted);
            [low, high].map(|bits| def!(k, F32, "cvt.f32.f16", bits))
        }
    }
}
