//! The gradients of K and V: a block owns rows of K and V and walks over tiles of Q and of the output's gradient, of all
//! query heads that share the rows.
//!
//! Scores are computed with keys as rows, so that weights come out of the accumulator as the left factor of the products
//! that follow, and no tile is ever transposed.

use super::backward::{BackwardShape, BackwardTiling, KeyOutputs};
use super::rows::{RowPlanes, StagedRows, StoredRows};
use super::scores::{ScoreArrays, ScoreRules, array_address};
use super::tiles::{
    BlockPlace, BlockThreads, Fragment, Left, Major, PRODUCERS, Product, Ring, RingCursor, TileCopy, TileLayout,
    TileRange, descriptor, fence_registers, head_address, pack_fragments, register_split, visible_tiles, wait_barrier,
    wait_products, zeros,
};
use crate::ptx::{Class, Float, PtxBuilder, Reg, Tuple, at, def, emit};

struct Parameters {
    query: Reg,
    key: Reg,
    value: Reg,
    bias: Option<Reg>,
    mask: Option<Reg>,
    output_gradient: Reg,
    planes: Reg,
    key_gradient: Option<Reg>,
    value_gradient: Option<Reg>,
}

struct SharedPlan {
    key: TileLayout,
    key_offset: u32,
    value: TileLayout,
    value_offset: u32,
    barrier: u32,
    queries: Ring,
    gradients: Ring,
    /// What is known of the rows of each stage's queries.
    rows_offset: u32,
}

struct KeyGradient<'a> {
    shape: &'a BackwardShape,
    consumers: u32,
    tile: u32,
    planes: RowPlanes,
    outputs: KeyOutputs,
}

pub(super) fn write(
    k: &mut PtxBuilder,
    shape: &BackwardShape,
    tiling: BackwardTiling,
    planes: RowPlanes,
    outputs: KeyOutputs,
) {
    let forward = &shape.forward;
    let kernel = KeyGradient { shape, consumers: tiling.key_consumers, tile: tiling.key_tile, planes, outputs };
    let parameters = Parameters {
        query: k.buffer_parameter(),
        key: k.buffer_parameter(),
        value: k.buffer_parameter(),
        bias: forward.bias.map(|_| k.buffer_parameter()),
        mask: forward.mask.map(|_| k.buffer_parameter()),
        output_gradient: k.buffer_parameter(),
        planes: k.buffer_parameter(),
        key_gradient: outputs.key.then(|| k.buffer_parameter()),
        value_gradient: outputs.value.then(|| k.buffer_parameter()),
    };
    let rows = 64 * kernel.consumers;
    let layout = |rows: u32, columns: u32| TileLayout { rows, columns: columns.next_multiple_of(64) };
    let key = layout(rows, forward.head_dim);
    let value = layout(rows, forward.value_dim);
    let key_offset = k.shared(key.bytes(), 1024);
    let value_offset = k.shared(value.bytes(), 1024);
    let mut queries = Ring::new(k, layout(kernel.tile, forward.head_dim), tiling.stages);
    let mut gradients = Ring::new(k, layout(kernel.tile, forward.value_dim), tiling.stages);
    let rows_offset = k.shared(tiling.stages * kernel.stage_rows_bytes(), 16);
    queries.place_barriers(k);
    gradients.place_barriers(k);
    let barrier = k.shared(8, 8);
    let plan = SharedPlan { key, key_offset, value, value_offset, barrier, queries, gradients, rows_offset };

    let block = BlockThreads::new(k);
    block.initialise(k, |k| {
        plan.queries.initialise(k, block.shared, PRODUCERS, 4 * kernel.consumers);
        plan.gradients.initialise(k, block.shared, PRODUCERS, 4 * kernel.consumers);
        emit!(k, "mbarrier.init.shared::cta.b64", at(block.shared, i64::from(barrier)), PRODUCERS);
    });
    let tile_index = def!(k, B32, "mov.u32", "%ctaid.x");
    let place = BlockPlace::of_kv_head(k, forward);
    let first_row = def!(k, B32, "mul.lo.u32", tile_index, rows);
    let band = if forward.skips_masked_tiles() {
        (forward.band.upper.map(|x| -x), forward.band.lower.map(|x| -x))
    } else {
        (None, None)
    };
    let range = visible_tiles(k, band, (first_row, rows), (forward.query_length, kernel.tile));

    let consumer = k.label();
    let end = k.label();
    let (producer_registers, consumer_registers) = register_split(kernel.consumers);
    let is_consumer = def!(k, Pred, "setp.lt.u32", block.group, kernel.consumers);
    k.branch_uniform_if(is_consumer, consumer);
    emit!(k, "setmaxnreg.dec.sync.aligned.u32", producer_registers);
    kernel.produce(k, &parameters, &plan, &place, &block, first_row, range);
    k.branch(end);
    k.place(consumer);
    emit!(k, "setmaxnreg.inc.sync.aligned.u32", consumer_registers);
    kernel.consume(k, &parameters, &plan, &place, &block, first_row, range);
    k.place(end);
}

impl KeyGradient<'_> {
    fn stage_rows_bytes(&self) -> u32 {
        self.planes.count() * self.tile * 4
    }

    fn group_heads(&self) -> u32 {
        self.shape.forward.query_heads / self.shape.forward.kv_heads
    }

    #[expect(clippy::too_many_arguments, reason = "both roles are given the same")]
    fn produce(
        &self,
        k: &mut PtxBuilder,
        parameters: &Parameters,
        plan: &SharedPlan,
        place: &BlockPlace,
        block: &BlockThreads,
        first_row: Reg,
        range: TileRange,
    ) {
        let forward = &self.shape.forward;
        let number = def!(k, B32, "sub.s32", block.thread, 128 * self.consumers);
        let residents = [
            (parameters.key, forward.key, plan.key, forward.head_dim, plan.key_offset),
            (parameters.value, forward.value, plan.value, forward.value_dim, plan.value_offset),
        ];
        for (base, strides, layout, columns, offset) in residents {
            let head = head_address(k, base, place.batch, place.kv_head, strides);
            let source = (forward.kv_length, 2 * strides.row);
            let copy = TileCopy::new(k, (layout, columns), source, PRODUCERS, head, number);
            let tile = def!(k, B32, "add.s32", block.shared, offset);
            copy.start(k, first_row, tile);
        }
        let barrier = at(block.shared, i64::from(plan.barrier));
        emit!(k, "cp.async.mbarrier.arrive.noinc.shared::cta.b64", barrier);

        let gradient_strides = self.shape.output_gradient;
        let query = head_address(k, parameters.query, place.batch, place.query_head, forward.query);
        let gradient = head_address(k, parameters.output_gradient, place.batch, place.query_head, gradient_strides);
        let query_source = (forward.query_length, 2 * forward.query.row);
        let gradient_source = (forward.query_length, 2 * gradient_strides.row);
        let queries = TileCopy::new(k, (plan.queries.layout, forward.head_dim), query_source, PRODUCERS, query, number);
        let gradient_columns = (plan.gradients.layout, forward.value_dim);
        let gradients = TileCopy::new(k, gradient_columns, gradient_source, PRODUCERS, gradient, number);
        let query_cursor = RingCursor::new(k, plan.queries, block.shared);
        let gradient_cursor = RingCursor::new(k, plan.gradients, block.shared);
        // The first threads copy what is known of rows, 16 bytes each.
        let pieces = self.tile / 4;
        let planes = self.planes.head_address(k, parameters.planes, place.batch, place.query_head, forward.query_heads);
        let plane = def!(k, B32, "div.u32", number, pieces);
        let piece = def!(k, B32, "rem.u32", number, pieces);
        let copies_rows = def!(k, Pred, "setp.lt.u32", plane, self.planes.count());
        let wide_plane = super::tiles::wide(k, plane);
        let plane_bytes = k.size64(self.planes.plane_bytes());
        let plane_address = def!(k, B64, "mad.lo.s64", wide_plane, plane_bytes, planes);
        let wide_piece = super::tiles::wide(k, piece);
        let rows_source = def!(k, B64, "mad.lo.s64", wide_piece, 16, plane_address);
        let rows_target = def!(k, B32, "mad.lo.u32", number, 16, block.shared);

        let heads = k.size32(self.group_heads().into());
        let heads_left = def!(k, B32, "mov.u32", heads);
        let head_bytes = [2 * forward.query.head, 2 * gradient_strides.head, 4 * u64::from(self.planes.padded)];
        let head_bytes = head_bytes.map(|bytes| k.size64(bytes));
        let next_head = k.label();
        k.place(next_head);
        let left = def!(k, B32, "mov.u32", range.count);
        let row = def!(k, B32, "mul.lo.u32", range.first, self.tile);
        let next = k.label();
        k.place(next);
        query_cursor.wait_free(k);
        let tile = query_cursor.tile(k);
        queries.start(k, row, tile);
        let wide_row = super::tiles::wide(k, row);
        let from = def!(k, B64, "mad.lo.s64", wide_row, 4, rows_source);
        let to = query_cursor.offset(k, self.stage_rows_bytes(), rows_target);
        k.guarded(copies_rows, true, |k| {
            emit!(k, "cp.async.cg.shared.global", at(to, i64::from(plan.rows_offset)), at(from, 0), 16);
        });
        query_cursor.fill(k);
        query_cursor.advance(k);
        gradient_cursor.wait_free(k);
        let tile = gradient_cursor.tile(k);
        gradients.start(k, row, tile);
        gradient_cursor.fill(k);
        gradient_cursor.advance(k);
        emit!(k, "add.s32", row, row, self.tile);
        emit!(k, "sub.s32", left, left, 1);
        let more = def!(k, Pred, "setp.ne.u32", left, 0);
        k.branch_uniform_if(more, next);
        for (source, bytes) in [queries.source, gradients.source, rows_source].into_iter().zip(head_bytes) {
            emit!(k, "add.s64", source, source, bytes);
        }
        emit!(k, "sub.s32", heads_left, heads_left, 1);
        let more = def!(k, Pred, "setp.ne.u32", heads_left, 0);
        k.branch_uniform_if(more, next_head);
        emit!(k, "cp.async.wait_all");
    }

    #[expect(clippy::too_many_arguments, reason = "both roles are given the same")]
    fn consume(
        &self,
        k: &mut PtxBuilder,
        parameters: &Parameters,
        plan: &SharedPlan,
        place: &BlockPlace,
        block: &BlockThreads,
        first_row: Reg,
        range: TileRange,
    ) {
        let forward = &self.shape.forward;
        let element = forward.element.ptx();
        let fragment = Fragment::new(k, block.thread);
        let group_row = def!(k, B32, "mad.lo.u32", block.group, 64, first_row);
        let arrays = ScoreArrays {
            bias: forward.bias.zip(parameters.bias).map(|((kind, strides), base)| {
                array_address(k, base, place.batch, place.query_head, strides, kind.bytes())
            }),
            mask: forward
                .mask
                .zip(parameters.mask)
                .map(|(strides, base)| array_address(k, base, place.batch, place.query_head, strides, 1)),
        };
        let rules = ScoreRules::new(forward, arrays, true, None);

        let group_offset = def!(k, B32, "mad.lo.u32", block.group, 64 * 128, block.shared);
        let key_base = def!(k, B32, "add.s32", group_offset, plan.key_offset);
        let key = descriptor(k, key_base, plan.key, Major::Columns);
        let value_base = def!(k, B32, "add.s32", group_offset, plan.value_offset);
        let value = descriptor(k, value_base, plan.value, Major::Columns);
        let query_base = def!(k, B32, "add.s32", block.shared, plan.queries.tiles);
        let query_columns = descriptor(k, query_base, plan.queries.layout, Major::Columns);
        let query_rows = descriptor(k, query_base, plan.queries.layout, Major::Rows);
        let gradient_base = def!(k, B32, "add.s32", block.shared, plan.gradients.tiles);
        let gradient_columns = descriptor(k, gradient_base, plan.gradients.layout, Major::Columns);
        let gradient_rows = descriptor(k, gradient_base, plan.gradients.layout, Major::Rows);
        let query_cursor = RingCursor::new(k, plan.queries, block.shared);
        let gradient_cursor = RingCursor::new(k, plan.gradients, block.shared);

        let scores = k.regs(Class::F32, (self.tile / 2) as usize);
        let products = k.regs(Class::F32, (self.tile / 2) as usize);
        let weights = k.regs(Class::B32, (self.tile / 4) as usize);
        let changes = k.regs(Class::B32, (self.tile / 4) as usize);
        let key_sums = if self.outputs.key { zeros(k, plan.key.columns / 2) } else { Vec::new() };
        let value_sums = if self.outputs.value { zeros(k, plan.value.columns / 2) } else { Vec::new() };
        let product = |accumulator, left, right, right_layout: TileLayout, contracted, width, steps, accumulates| {
            Product { element, accumulator, left, right, right_layout, contracted, width, steps, accumulates }
        };
        let zero = def!(k, B32, "mov.u32", 0);
        wait_barrier(k, block.shared, plan.barrier, zero);
        emit!(k, "fence.proxy.async.shared::cta");

        let rows_base = def!(k, B32, "mad.lo.u32", fragment.column, 4, block.shared);
        let heads = k.size32(self.group_heads().into());
        let heads_left = def!(k, B32, "mov.u32", heads);
        let factor = rules.exponent_factor(k);
        let next_head = k.label();
        k.place(next_head);
        let left = def!(k, B32, "mov.u32", range.count);
        let column = def!(k, B32, "mul.lo.u32", range.first, self.tile);
        let next = k.label();
        k.place(next);
        query_cursor.wait_full(k);
        fence_registers(k);
        let right = query_cursor.descriptor(k, query_columns);
        let resident = Left::Shared(key, plan.key);
        let steps = plan.key.columns / 16;
        product(&scores, resident, right, plan.queries.layout, Major::Columns, self.tile, steps, false).start(k);
        gradient_cursor.wait_full(k);
        if self.outputs.key {
            let right = gradient_cursor.descriptor(k, gradient_columns);
            let resident = Left::Shared(value, plan.value);
            let steps = plan.value.columns / 16;
            product(&products, resident, right, plan.gradients.layout, Major::Columns, self.tile, steps, false)
                .start(k);
        }
        wait_products(k, u32::from(self.outputs.key));
        let rows = query_cursor.offset(k, self.stage_rows_bytes(), rows_base);
        let known = |k: &mut PtxBuilder, plane: u32, block: usize| {
            let pair = k.regs(Class::F32, 2);
            let offset = plan.rows_offset + plane * self.tile * 4 + 32 * block as u32;
            emit!(k, "ld.shared.v2.f32", Tuple(&pair), at(rows, i64::from(offset)));
            pair
        };
        rules.apply(k, &fragment, &scores, group_row, column);
        for (block, four) in scores.chunks(4).enumerate() {
            let shift = known(k, 0, block);
            let inverse = if self.planes.huge_scores { known(k, 2, block) } else { Vec::new() };
            for (i, &score) in four.iter().enumerate() {
                if self.planes.huge_scores {
                    emit!(k, "sub.f32", score, score, shift[i % 2]);
                    emit!(k, "mul.f32", score, score, factor);
                    emit!(k, "ex2.approx.ftz.f32", score, score);
                    emit!(k, "mul.f32", score, score, inverse[i % 2]);
                } else {
                    emit!(k, "fma.rn.f32", score, score, factor, shift[i % 2]);
                    emit!(k, "ex2.approx.ftz.f32", score, score);
                }
            }
        }
        if self.outputs.value {
            if self.planes.huge_scores {
                let sizes: Vec<Reg> = scores.iter().map(|&score| def!(k, F32, "abs.f32", score)).collect();
                pack_fragments(k, element, &sizes, &weights);
            } else {
                pack_fragments(k, element, &scores, &weights);
            }
            fence_registers(k);
            let right = gradient_cursor.descriptor(k, gradient_rows);
            let left = Left::Registers(&weights);
            let width = plan.value.columns;
            product(&value_sums, left, right, plan.gradients.layout, Major::Rows, width, self.tile / 16, true).start(k);
        }
        if self.outputs.key {
            wait_products(k, u32::from(self.outputs.value));
            for (block, (four, four_products)) in scores.chunks(4).zip(products.chunks(4)).enumerate() {
                let mean = known(k, 1, block);
                for (i, (&score, &product)) in four.iter().zip(four_products).enumerate() {
                    if self.planes.huge_scores {
                        emit!(k, "max.f32", score, score, Float(0.0));
                    }
                    emit!(k, "sub.f32", product, product, mean[i % 2]);
                    emit!(k, "mul.f32", product, product, score);
                }
            }
            pack_fragments(k, element, &products, &changes);
            fence_registers(k);
            let right = query_cursor.descriptor(k, query_rows);
            let left = Left::Registers(&changes);
            let width = plan.key.columns;
            product(&key_sums, left, right, plan.queries.layout, Major::Rows, width, self.tile / 16, true).start(k);
        }
        wait_products(k, 0);
        for cursor in [&query_cursor, &gradient_cursor] {
            cursor.release(k, fragment.elected);
            cursor.advance(k);
        }
        emit!(k, "add.s32", column, column, self.tile);
        emit!(k, "sub.s32", left, left, 1);
        let more = def!(k, Pred, "setp.ne.u32", left, 0);
        k.branch_uniform_if(more, next);
        if let (Some((kind, strides)), Some(base)) = (forward.bias, arrays.bias) {
            let bytes = k.size64(kind.bytes() * strides.head);
            emit!(k, "add.s64", base, base, bytes);
        }
        if let (Some(strides), Some(base)) = (forward.mask, arrays.mask) {
            let bytes = k.size64(strides.head);
            emit!(k, "add.s64", base, base, bytes);
        }
        emit!(k, "sub.s32", heads_left, heads_left, 1);
        let more = def!(k, Pred, "setp.ne.u32", heads_left, 0);
        k.branch_uniform_if(more, next_head);

        let scale = k.size_f32(forward.scale);
        for &sum in &key_sums {
            emit!(k, "mul.f32", sum, sum, scale);
        }
        let results = [
            (parameters.key_gradient, self.shape.key_gradient, &key_sums, plan.key, plan.key_offset, forward.head_dim),
            (
                parameters.value_gradient,
                self.shape.value_gradient,
                &value_sums,
                plan.value,
                plan.value_offset,
                forward.value_dim,
            ),
        ];
        for (base, strides, sums, layout, offset, columns) in results {
            let Some(base) = base else { continue };
            let out = head_address(k, base, place.batch, place.kv_head, strides);
            let rows = StoredRows {
                columns,
                row_bytes: 2 * strides.row,
                length: forward.kv_length,
                whole: forward.kv_length.is_multiple_of(64 * self.consumers),
            };
            let staging = StagedRows { element, rows, slice_bytes: layout.slice_bytes() };
            let staging_base = def!(k, B32, "add.s32", block.shared, offset);
            staging.store(k, &fragment, sums, (staging_base, block.group), out, group_row);
        }
    }
}
