//! The gradient of Q: a block owns rows of Q and of the output's gradient and walks over tiles of K and V.
//!
//! With weights P and the product D of the output's gradient with V, the gradient of scores is P · (D − the row's mean
//! gradient), and that of Q its product with K.

use super::backward::{BackwardShape, BackwardTiling};
use super::rows::{RowPlanes, StagedRows, StoredRows};
use super::scores::{ScoreArrays, ScoreRules, array_address};
use super::tiles::{
    BlockPlace, BlockThreads, Fragment, Left, Major, PRODUCERS, Product, Ring, RingCursor, TileCopy, TileLayout,
    TileRange, descriptor, fence_registers, head_address, pack_fragments, register_split, visible_tiles, wait_barrier,
    wait_products, zeros,
};
use crate::ptx::{Class, Float, PtxBuilder, Reg, at, def, emit};

struct Parameters {
    query: Reg,
    key: Reg,
    value: Reg,
    bias: Option<Reg>,
    mask: Option<Reg>,
    output_gradient: Reg,
    planes: Reg,
    query_gradient: Reg,
}

struct SharedPlan {
    query: TileLayout,
    query_offset: u32,
    gradient: TileLayout,
    gradient_offset: u32,
    barrier: u32,
    keys: Ring,
    values: Ring,
}

struct QueryGradient<'a> {
    shape: &'a BackwardShape,
    consumers: u32,
    tile: u32,
    planes: RowPlanes,
}

pub(super) fn write(k: &mut PtxBuilder, shape: &BackwardShape, tiling: BackwardTiling, planes: RowPlanes) {
    let forward = &shape.forward;
    let kernel = QueryGradient { shape, consumers: tiling.query_consumers, tile: tiling.query_tile, planes };
    let parameters = Parameters {
        query: k.buffer_parameter(),
        key: k.buffer_parameter(),
        value: k.buffer_parameter(),
        bias: forward.bias.map(|_| k.buffer_parameter()),
        mask: forward.mask.map(|_| k.buffer_parameter()),
        output_gradient: k.buffer_parameter(),
        planes: k.buffer_parameter(),
        query_gradient: k.buffer_parameter(),
    };
    let rows = 64 * kernel.consumers;
    let layout = |rows: u32, columns: u32| TileLayout { rows, columns: columns.next_multiple_of(64) };
    let query = layout(rows, forward.head_dim);
    let gradient = layout(rows, forward.value_dim);
    let query_offset = k.shared(query.bytes(), 1024);
    let gradient_offset = k.shared(gradient.bytes(), 1024);
    let mut keys = Ring::new(k, layout(kernel.tile, forward.head_dim), tiling.stages);
    let mut values = Ring::new(k, layout(kernel.tile, forward.value_dim), tiling.stages);
    keys.place_barriers(k);
    values.place_barriers(k);
    let barrier = k.shared(8, 8);
    let plan = SharedPlan { query, query_offset, gradient, gradient_offset, barrier, keys, values };

    let block = BlockThreads::new(k);
    block.initialise(k, |k| {
        plan.keys.initialise(k, block.shared, PRODUCERS, 4 * kernel.consumers);
        plan.values.initialise(k, block.shared, PRODUCERS, 4 * kernel.consumers);
        emit!(k, "mbarrier.init.shared::cta.b64", at(block.shared, i64::from(barrier)), PRODUCERS);
    });
    let tile_index = def!(k, B32, "mov.u32", "%ctaid.x");
    let place = BlockPlace::of_query_head(k, forward);
    let skips = forward.skips_masked_tiles();
    if skips && forward.band.upper.is_some() {
        let blocks = def!(k, B32, "mov.u32", "%nctaid.x");
        let last = def!(k, B32, "sub.s32", blocks, 1);
        emit!(k, "sub.s32", tile_index, last, tile_index);
    }
    let first_row = def!(k, B32, "mul.lo.u32", tile_index, rows);
    let band = if skips { (forward.band.lower, forward.band.upper) } else { (None, None) };
    let range = visible_tiles(k, band, (first_row, rows), (forward.kv_length, kernel.tile));

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

impl QueryGradient<'_> {
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
            (parameters.query, forward.query, plan.query, forward.head_dim, plan.query_offset),
            (
                parameters.output_gradient,
                self.shape.output_gradient,
                plan.gradient,
                forward.value_dim,
                plan.gradient_offset,
            ),
        ];
        for (base, strides, layout, columns, offset) in residents {
            let head = head_address(k, base, place.batch, place.query_head, strides);
            let source = (forward.query_length, 2 * strides.row);
            let copy = TileCopy::new(k, (layout, columns), source, PRODUCERS, head, number);
            let tile = def!(k, B32, "add.s32", block.shared, offset);
            copy.start(k, first_row, tile);
        }
        let barrier = at(block.shared, i64::from(plan.barrier));
        emit!(k, "cp.async.mbarrier.arrive.noinc.shared::cta.b64", barrier);

        let key = head_address(k, parameters.key, place.batch, place.kv_head, forward.key);
        let value = head_address(k, parameters.value, place.batch, place.kv_head, forward.value);
        let key_source = (forward.kv_length, 2 * forward.key.row);
        let value_source = (forward.kv_length, 2 * forward.value.row);
        let keys = TileCopy::new(k, (plan.keys.layout, forward.head_dim), key_source, PRODUCERS, key, number);
        let values = TileCopy::new(k, (plan.values.layout, forward.value_dim), value_source, PRODUCERS, value, number);
        let key_cursor = RingCursor::new(k, plan.keys, block.shared);
        let value_cursor = RingCursor::new(k, plan.values, block.shared);
        let left = def!(k, B32, "mov.u32", range.count);
        let row = def!(k, B32, "mul.lo.u32", range.first, self.tile);
        let next = k.label();
        k.place(next);
        for (copy, cursor) in [(&keys, &key_cursor), (&values, &value_cursor)] {
            cursor.wait_free(k);
            let tile = cursor.tile(k);
            copy.start(k, row, tile);
            cursor.fill(k);
            cursor.advance(k);
        }
        emit!(k, "add.s32", row, row, self.tile);
        emit!(k, "sub.s32", left, left, 1);
        let more = def!(k, Pred, "setp.ne.u32", left, 0);
        k.branch_uniform_if(more, next);
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
        let bound = (!forward.kv_length.is_multiple_of(self.tile)).then_some(forward.kv_length);
        let rules = ScoreRules::new(forward, arrays, false, bound);

        let group_offset = def!(k, B32, "mad.lo.u32", block.group, 64 * 128, block.shared);
        let query_base = def!(k, B32, "add.s32", group_offset, plan.query_offset);
        let query = descriptor(k, query_base, plan.query, Major::Columns);
        let gradient_base = def!(k, B32, "add.s32", group_offset, plan.gradient_offset);
        let gradient = descriptor(k, gradient_base, plan.gradient, Major::Columns);
        let key_base = def!(k, B32, "add.s32", block.shared, plan.keys.tiles);
        let key_columns = descriptor(k, key_base, plan.keys.layout, Major::Columns);
        let key_rows = descriptor(k, key_base, plan.keys.layout, Major::Rows);
        let value_base = def!(k, B32, "add.s32", block.shared, plan.values.tiles);
        let value = descriptor(k, value_base, plan.values.layout, Major::Columns);
        let key_cursor = RingCursor::new(k, plan.keys, block.shared);
        let value_cursor = RingCursor::new(k, plan.values, block.shared);

        // What is known of this thread's two rows.
        let planes = self.planes.head_address(k, parameters.planes, place.batch, place.query_head, forward.query_heads);
        let row = def!(k, B32, "add.s32", group_row, fragment.row);
        let row = super::tiles::wide(k, row);
        let mut row_plane = def!(k, B64, "mad.lo.s64", row, 4, planes);
        let plane_bytes = k.size64(self.planes.plane_bytes());
        let mut known = Vec::new();
        for plane in 0..self.planes.count() {
            if plane > 0 {
                row_plane = def!(k, B64, "add.s64", row_plane, plane_bytes);
            }
            known.push([0, 32].map(|below| def!(k, F32, "ld.global.nc.f32", at(row_plane, below))));
        }
        let factor = rules.exponent_factor(k);

        let scores = k.regs(Class::F32, (self.tile / 2) as usize);
        let products = k.regs(Class::F32, (self.tile / 2) as usize);
        let packed = k.regs(Class::B32, (self.tile / 4) as usize);
        let sums = zeros(k, plan.query.columns / 2);
        let left = def!(k, B32, "mov.u32", range.count);
        let column = def!(k, B32, "mul.lo.u32", range.first, self.tile);
        let zero = def!(k, B32, "mov.u32", 0);
        wait_barrier(k, block.shared, plan.barrier, zero);
        emit!(k, "fence.proxy.async.shared::cta");

        let next = k.label();
        k.place(next);
        key_cursor.wait_full(k);
        fence_registers(k);
        let product = |accumulator, left, right, right_layout: TileLayout, contracted, width, steps, accumulates| {
            Product { element, accumulator, left, right, right_layout, contracted, width, steps, accumulates }
        };
        let right = key_cursor.descriptor(k, key_columns);
        let steps = plan.query.columns / 16;
        let resident = Left::Shared(query, plan.query);
        product(&scores, resident, right, plan.keys.layout, Major::Columns, self.tile, steps, false).start(k);
        value_cursor.wait_full(k);
        let right = value_cursor.descriptor(k, value);
        let steps = plan.gradient.columns / 16;
        let resident = Left::Shared(gradient, plan.gradient);
        product(&products, resident, right, plan.values.layout, Major::Columns, self.tile, steps, false).start(k);
        wait_products(k, 1);
        rules.apply(k, &fragment, &scores, group_row, column);
        for (i, &score) in scores.iter().enumerate() {
            let half = i % 4 / 2;
            if self.planes.huge_scores {
                emit!(k, "sub.f32", score, score, known[0][half]);
                emit!(k, "mul.f32", score, score, factor);
                emit!(k, "ex2.approx.ftz.f32", score, score);
                emit!(k, "mul.f32", score, score, known[2][half]);
                emit!(k, "max.f32", score, score, Float(0.0));
            } else {
                emit!(k, "fma.rn.f32", score, score, factor, known[0][half]);
                emit!(k, "ex2.approx.ftz.f32", score, score);
            }
        }
        wait_products(k, 0);
        value_cursor.release(k, fragment.elected);
        value_cursor.advance(k);
        for (i, (&score, &product)) in scores.iter().zip(&products).enumerate() {
            emit!(k, "sub.f32", product, product, known[1][i % 4 / 2]);
            emit!(k, "mul.f32", score, score, product);
        }
        pack_fragments(k, element, &scores, &packed);
        fence_registers(k);
        let right = key_cursor.descriptor(k, key_rows);
        let left_factor = Left::Registers(&packed);
        let width = plan.keys.layout.columns;
        product(&sums, left_factor, right, plan.keys.layout, Major::Rows, width, self.tile / 16, true).start(k);
        wait_products(k, 0);
        key_cursor.release(k, fragment.elected);
        key_cursor.advance(k);
        emit!(k, "add.s32", column, column, self.tile);
        emit!(k, "sub.s32", left, left, 1);
        let more = def!(k, Pred, "setp.ne.u32", left, 0);
        k.branch_uniform_if(more, next);

        let scale = k.size_f32(forward.scale);
        for &sum in &sums {
            emit!(k, "mul.f32", sum, sum, scale);
        }
        let out = head_address(k, parameters.query_gradient, place.batch, place.query_head, self.shape.query_gradient);
        let rows = StoredRows {
            columns: forward.head_dim,
            row_bytes: 2 * self.shape.query_gradient.row,
            length: forward.query_length,
            whole: forward.query_length.is_multiple_of(64 * self.consumers),
        };
        let staging = StagedRows { element, rows, slice_bytes: plan.query.slice_bytes() };
        let staging_base = def!(k, B32, "add.s32", block.shared, plan.query_offset);
        staging.store(k, &fragment, &sums, (staging_base, block.group), out, group_row);
    }
}
