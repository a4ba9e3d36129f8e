//! The forward pass: a block owns rows of Q and walks over tiles of K and V.
//!
//! One warpgroup copies tiles, the others multiply; each of these owns 64 rows. While the softmax of a tile is computed,
//! the product of the next tile's scores and the product with the last tile's values run on the tensor cores.

use super::rows::{StagedRows, StoredRows, rescale};
use super::scores::{ScoreArrays, ScoreRules, array_address};
use super::tiles::{
    BlockPlace, BlockThreads, Fragment, Left, Major, PRODUCERS, Product, Ring, RingCursor, SHARED_LIMIT, TileCopy,
    TileLayout, TileRange, fence_registers, head_address, pack_fragments, reduce_quad, register_split, visible_tiles,
    wait_barrier, wait_products, wide, zeros,
};
use super::{AttentionShape, Element, Tiling, Unsupported, transposed_values};
use crate::launch::{Architecture, KernelArgument, KernelSequence, Launch, PtxKernel};
use crate::ptx::{Class, Float, PtxBuilder, Reg, at, def, emit};

pub(super) fn kernels(
    shape: &AttentionShape,
    architecture: Architecture,
    tiling: Tiling,
) -> Result<KernelSequence, Unsupported> {
    let rows = 64 * tiling.consumers;
    let threads = PRODUCERS + 128 * tiling.consumers;
    let name = "attention_forward";
    let mut k = PtxBuilder::new(name, architecture, threads, 1);
    Forward { shape, tiling, rows }.write(&mut k);
    let dynamic_shared_bytes = k.shared_bytes();
    if dynamic_shared_bytes > SHARED_LIMIT {
        return Err(Unsupported(format!("tiles of {dynamic_shared_bytes} bytes do not fit shared memory")));
    }
    let mut arguments: Vec<KernelArgument> = (0..3).map(KernelArgument::Operand).collect();
    for i in 0..u32::from(shape.bias.is_some()) + u32::from(shape.mask.is_some()) {
        arguments.push(KernelArgument::Operand(3 + i));
    }
    arguments.push(KernelArgument::Result(0));
    if shape.statistics {
        arguments.push(KernelArgument::Result(1));
    }
    arguments.extend_from_slice(k.sizes());
    let grid = [shape.query_length.div_ceil(rows), shape.query_heads, shape.batch];
    let launch = Launch { grid, block: [threads, 1, 1], dynamic_shared_bytes, cluster: 1 };
    let kernel = PtxKernel { name: name.to_string(), ptx: k.finish(), launch, arguments };
    match shape.element {
        Element::Bf16 | Element::F16 => Ok(KernelSequence { kernels: vec![kernel], scratch: Vec::new() }),
        Element::F32 => transposed_values::before(kernel, shape, tiling.tile, architecture),
    }
}

struct Forward<'a> {
    shape: &'a AttentionShape,
    tiling: Tiling,
    rows: u32,
}

/// The parameters of the kernel.
struct Parameters {
    query: Reg,
    key: Reg,
    value: Reg,
    bias: Option<Reg>,
    mask: Option<Reg>,
    output: Reg,
    statistics: Option<Reg>,
}

/// Shared memory.
struct SharedPlan {
    query: TileLayout,
    query_offset: u32,
    query_barrier: u32,
    keys: Ring,
    values: Ring,
}

impl Forward<'_> {
    /// Whether V is read with its keys side by side: products of TF32 contract what is adjacent only.
    fn has_transposed_values(&self) -> bool {
        self.shape.element == Element::F32
    }

    /// The columns of the output that are computed.
    fn value_columns(&self) -> u32 {
        self.shape.value_dim.next_multiple_of(64)
    }

    fn write(&self, k: &mut PtxBuilder) {
        let shape = self.shape;
        let parameters = Parameters {
            query: k.buffer_parameter(),
            key: k.buffer_parameter(),
            value: k.buffer_parameter(),
            bias: shape.bias.map(|_| k.buffer_parameter()),
            mask: shape.mask.map(|_| k.buffer_parameter()),
            output: k.buffer_parameter(),
            statistics: shape.statistics.then(|| k.buffer_parameter()),
        };
        let head_units = (shape.head_dim * shape.element.units()).next_multiple_of(64);
        let value_columns = self.value_columns();
        let query = TileLayout { rows: self.rows, columns: head_units };
        let staged_bytes = if self.has_transposed_values() { 0 } else { self.rows * value_columns * 2 };
        let query_offset = k.shared(query.bytes().max(staged_bytes), 1024);
        let mut keys = Ring::new(k, TileLayout { rows: self.tiling.tile, columns: head_units }, self.tiling.stages);
        let value_tile = match self.has_transposed_values() {
            false => TileLayout { rows: self.tiling.tile, columns: value_columns },
            true => TileLayout { rows: value_columns, columns: self.tiling.tile * shape.element.units() },
        };
        let mut values = Ring::new(k, value_tile, self.tiling.stages);
        keys.place_barriers(k);
        values.place_barriers(k);
        let query_barrier = k.shared(8, 8);
        let plan = SharedPlan { query, query_offset, query_barrier, keys, values };

        let block = BlockThreads::new(k);
        let consumer_warps = 4 * self.tiling.consumers;
        let BlockThreads { shared, thread, group } = block;
        block.initialise(k, |k| {
            plan.keys.initialise(k, shared, PRODUCERS, consumer_warps);
            plan.values.initialise(k, shared, PRODUCERS, consumer_warps);
            emit!(k, "mbarrier.init.shared::cta.b64", at(shared, i64::from(query_barrier)), PRODUCERS);
        });

        let tile_index = def!(k, B32, "mov.u32", "%ctaid.x");
        let place = BlockPlace::of_query_head(k, shape);
        let skips = shape.skips_masked_tiles();
        if skips && shape.band.upper.is_some() {
            // The longest rows first, so that no long block starts last.
            let blocks = def!(k, B32, "mov.u32", "%nctaid.x");
            let last = def!(k, B32, "sub.s32", blocks, 1);
            emit!(k, "sub.s32", tile_index, last, tile_index);
        }
        let first_row = def!(k, B32, "mul.lo.u32", tile_index, self.rows);
        let band = if skips { (shape.band.lower, shape.band.upper) } else { (None, None) };
        let range = visible_tiles(k, band, (first_row, self.rows), (shape.kv_length, self.tiling.tile));

        let consumer = k.label();
        let end = k.label();
        let (producer_registers, consumer_registers) = register_split(self.tiling.consumers);
        let is_consumer = def!(k, Pred, "setp.lt.u32", group, self.tiling.consumers);
        k.branch_uniform_if(is_consumer, consumer);
        emit!(k, "setmaxnreg.dec.sync.aligned.u32", producer_registers);
        self.produce(k, &parameters, &plan, &place, (shared, thread, first_row), range);
        k.branch(end);
        k.place(consumer);
        emit!(k, "setmaxnreg.inc.sync.aligned.u32", consumer_registers);
        self.consume(k, &parameters, &plan, &place, (shared, thread, first_row, group), range);
        k.place(end);
    }

    /// The warps that copy: Q once, then tiles of K and V from the last to the first.
    fn produce(
        &self,
        k: &mut PtxBuilder,
        parameters: &Parameters,
        plan: &SharedPlan,
        place: &BlockPlace,
        (shared, thread, first_row): (Reg, Reg, Reg),
        range: TileRange,
    ) {
        let shape = self.shape;
        let number = def!(k, B32, "sub.s32", thread, 128 * self.tiling.consumers);
        let element = shape.element;
        let head_units = shape.head_dim * element.units();
        let (query_strides, key_strides) = (shape.query.in_units(element), shape.key.in_units(element));
        let query = head_address(k, parameters.query, place.batch, place.query_head, query_strides);
        let query_source = (shape.query_length, 2 * query_strides.row);
        let copy = TileCopy::new(k, (plan.query, head_units), query_source, PRODUCERS, query, number);
        let query_tile = def!(k, B32, "add.s32", shared, plan.query_offset);
        copy.start(k, first_row, query_tile);
        let barrier = at(shared, i64::from(plan.query_barrier));
        emit!(k, "cp.async.mbarrier.arrive.noinc.shared::cta.b64", barrier);

        let key = head_address(k, parameters.key, place.batch, place.kv_head, key_strides);
        let key_source = (shape.kv_length, 2 * key_strides.row);
        let keys = TileCopy::new(k, (plan.keys.layout, head_units), key_source, PRODUCERS, key, number);
        let values = self.value_copy(k, parameters.value, plan, place, number);
        let key_cursor = RingCursor::new(k, plan.keys, shared);
        let value_cursor = RingCursor::new(k, plan.values, shared);
        let left = def!(k, B32, "mov.u32", range.count);
        let last = def!(k, B32, "add.s32", range.first, range.count);
        emit!(k, "sub.s32", last, last, 1);
        let row = def!(k, B32, "mul.lo.u32", last, self.tiling.tile);
        let next = k.label();
        k.place(next);
        for (copy, cursor, by_columns) in
            [(&keys, &key_cursor, false), (&values, &value_cursor, self.has_transposed_values())]
        {
            cursor.wait_free(k);
            let tile = cursor.tile(k);
            match by_columns {
                false => copy.start(k, row, tile),
                true => copy.start_at_column(k, (row, 2 * element.units()), tile),
            }
            cursor.fill(k);
            cursor.advance(k);
        }
        emit!(k, "sub.s32", row, row, self.tiling.tile);
        emit!(k, "sub.s32", left, left, 1);
        let more = def!(k, Pred, "setp.ne.u32", left, 0);
        k.branch_uniform_if(more, next);
        // A block must not end while its copies are under way.
        emit!(k, "cp.async.wait_all");
    }

    /// How tiles of V are copied.
    fn value_copy(
        &self,
        k: &mut PtxBuilder,
        base: Reg,
        plan: &SharedPlan,
        place: &BlockPlace,
        number: Reg,
    ) -> TileCopy {
        let (shape, layout) = (self.shape, plan.values.layout);
        let (strides, columns, length) = match self.has_transposed_values() {
            false => (shape.value, shape.value_dim, shape.kv_length),
            true => {
                let strides = transposed_values::strides(shape, self.tiling.tile).in_units(shape.element);
                (strides, layout.columns, shape.value_dim)
            }
        };
        let value = head_address(k, base, place.batch, place.kv_head, strides);
        TileCopy::new(k, (layout, columns), (length, 2 * strides.row), PRODUCERS, value, number)
    }

    /// The warps that multiply.
    fn consume(
        &self,
        k: &mut PtxBuilder,
        parameters: &Parameters,
        plan: &SharedPlan,
        place: &BlockPlace,
        (shared, thread, first_row, group): (Reg, Reg, Reg, Reg),
        range: TileRange,
    ) {
        let shape = self.shape;
        let element = shape.element.ptx();
        let fragment = Fragment::new(k, thread);
        let group_row = def!(k, B32, "mad.lo.u32", group, 64, first_row);
        let arrays = ScoreArrays {
            bias: shape.bias.zip(parameters.bias).map(|((kind, strides), base)| {
                array_address(k, base, place.batch, place.query_head, strides, kind.bytes())
            }),
            mask: shape
                .mask
                .zip(parameters.mask)
                .map(|(strides, base)| array_address(k, base, place.batch, place.query_head, strides, 1)),
        };
        let bound = (!shape.kv_length.is_multiple_of(self.tiling.tile)).then_some(shape.kv_length);
        let rules = ScoreRules::new(shape, arrays, false, bound);

        let query_base = def!(k, B32, "mad.lo.u32", group, 64 * 128, shared);
        emit!(k, "add.s32", query_base, query_base, plan.query_offset);
        let query = super::tiles::descriptor(k, query_base, plan.query, Major::Columns);
        let key_base = def!(k, B32, "add.s32", shared, plan.keys.tiles);
        let key = super::tiles::descriptor(k, key_base, plan.keys.layout, Major::Columns);
        let value_base = def!(k, B32, "add.s32", shared, plan.values.tiles);
        let contracted = if self.has_transposed_values() { Major::Columns } else { Major::Rows };
        let value = super::tiles::descriptor(k, value_base, plan.values.layout, contracted);
        let key_cursor = RingCursor::new(k, plan.keys, shared);
        let value_cursor = RingCursor::new(k, plan.values, shared);

        let tile = self.tiling.tile;
        let value_columns = self.value_columns();
        let scores = k.regs(Class::F32, (tile / 2) as usize);
        let weights = k.regs(Class::B32, (tile / 4 * shape.element.units()) as usize);
        let output = zeros(k, value_columns / 2);
        let softmax = OnlineSoftmax::new(k, &rules);

        let start_scores = |k: &mut PtxBuilder| {
            key_cursor.wait_full(k);
            fence_registers(k);
            let right = key_cursor.descriptor(k, key);
            let product = Product {
                element,
                accumulator: &scores,
                left: Left::Shared(query, plan.query),
                right,
                right_layout: plan.keys.layout,
                contracted: Major::Columns,
                width: tile,
                steps: plan.query.columns / 16,
                accumulates: false,
            };
            product.start(k);
        };
        let start_output = |k: &mut PtxBuilder| {
            value_cursor.wait_full(k);
            fence_registers(k);
            let right = value_cursor.descriptor(k, value);
            let product = Product {
                element,
                accumulator: &output,
                left: Left::Registers(&weights),
                right,
                right_layout: plan.values.layout,
                contracted,
                width: value_columns,
                steps: tile * shape.element.units() / 16,
                accumulates: true,
            };
            product.start(k);
        };
        let release = |k: &mut PtxBuilder, cursor: &RingCursor| {
            cursor.release(k, fragment.elected);
            cursor.advance(k);
        };

        let left = def!(k, B32, "sub.s32", range.count, 1);
        let column = def!(k, B32, "add.s32", range.first, left);
        emit!(k, "mul.lo.u32", column, column, tile);
        let zero = def!(k, B32, "mov.u32", 0);
        wait_barrier(k, shared, plan.query_barrier, zero);
        emit!(k, "fence.proxy.async.shared::cta");

        start_scores(k);
        wait_products(k, 0);
        release(k, &key_cursor);
        rules.apply(k, &fragment, &scores, group_row, column);
        softmax.step(k, &scores);
        pack_fragments(k, element, &scores, &weights);

        let next = k.label();
        let finished = k.label();
        let none_left = def!(k, Pred, "setp.eq.u32", left, 0);
        k.branch_uniform_if(none_left, finished);
        k.place(next);
        emit!(k, "sub.s32", column, column, tile);
        if self.tiling.overlapped {
            start_scores(k);
            start_output(k);
            wait_products(k, 1);
            release(k, &key_cursor);
            rules.apply(k, &fragment, &scores, group_row, column);
            let corrections = softmax.step(k, &scores);
            wait_products(k, 0);
            release(k, &value_cursor);
            rescale(k, &output, corrections);
        } else {
            start_output(k);
            wait_products(k, 0);
            release(k, &value_cursor);
            start_scores(k);
            wait_products(k, 0);
            release(k, &key_cursor);
            rules.apply(k, &fragment, &scores, group_row, column);
            let corrections = softmax.step(k, &scores);
            rescale(k, &output, corrections);
        }
        pack_fragments(k, element, &scores, &weights);
        emit!(k, "sub.s32", left, left, 1);
        let more = def!(k, Pred, "setp.ne.u32", left, 0);
        k.branch_uniform_if(more, next);
        k.place(finished);
        start_output(k);
        wait_products(k, 0);

        softmax.finish(k, &output);
        let output_strides = shape.output.in_units(shape.element);
        let out = head_address(k, parameters.output, place.batch, place.query_head, output_strides);
        let rows = StoredRows {
            columns: shape.value_dim,
            row_bytes: 2 * output_strides.row,
            length: shape.query_length,
            whole: shape.query_length.is_multiple_of(self.rows),
        };
        match shape.element {
            Element::F32 => rows.store(k, &fragment, &output, out, group_row),
            Element::Bf16 | Element::F16 => {
                let staging_base = def!(k, B32, "add.s32", shared, plan.query_offset);
                let staging = StagedRows { element, rows, slice_bytes: plan.query.slice_bytes() };
                staging.store(k, &fragment, &output, (staging_base, group), out, group_row);
            }
        }
        if let Some(base) = parameters.statistics {
            let heads = k.size32(shape.query_heads.into());
            let head = def!(k, B32, "mad.lo.u32", place.batch, heads, place.query_head);
            let head = wide(k, head);
            let length = k.size32(shape.query_length.into());
            let head_bytes = def!(k, B64, "mul.wide.u32", length, 4);
            let address = def!(k, B64, "mad.lo.s64", head, head_bytes, base);
            let first_column = def!(k, Pred, "setp.eq.u32", fragment.column, 0);
            let row = def!(k, B32, "add.s32", group_row, fragment.row);
            let plane = 4 * u64::from(shape.batch) * u64::from(shape.query_heads) * u64::from(shape.query_length);
            let plane = k.size64(plane);
            for i in 0..2 {
                let here = def!(k, B32, "add.s32", row, 8 * i);
                let inside = def!(k, Pred, "setp.lt.u32", here, length);
                emit!(k, "and.pred", inside, inside, first_column);
                let wide = def!(k, B64, "cvt.u64.u32", here);
                let to = def!(k, B64, "mad.lo.s64", wide, 4, address);
                let sums = def!(k, B64, "add.s64", to, plane);
                k.guarded(inside, true, |k| {
                    emit!(k, "st.global.f32", at(to, 0), softmax.largest[i]);
                    emit!(k, "st.global.f32", at(sums, 0), softmax.sum[i]);
                });
            }
        }
    }
}

/// The largest score and the sum of exponentials of each of a thread's two rows so far.
struct OnlineSoftmax {
    largest: [Reg; 2],
    sum: [Reg; 2],
    /// The factor of scores in the exponent of two, and its negative.
    factor: Reg,
    negative_factor: Reg,
    /// Whether scores can be so far from 0 that a difference must be taken before the factor is applied.
    huge_scores: bool,
}

impl OnlineSoftmax {
    fn new(k: &mut PtxBuilder, rules: &ScoreRules) -> Self {
        let largest = [0, 1].map(|_| def!(k, F32, "mov.f32", Float(f32::NEG_INFINITY)));
        let sum = [0, 1].map(|_| def!(k, F32, "mov.f32", Float(0.0)));
        let factor = rules.exponent_factor(k);
        let negative_factor = def!(k, F32, "neg.f32", factor);
        OnlineSoftmax { largest, sum, factor, negative_factor, huge_scores: rules.has_huge_scores() }
    }

    /// Makes exponentials of scores, and gives what earlier results of each row are to be multiplied by.
    fn step(&self, k: &mut PtxBuilder, scores: &[Reg]) -> [Reg; 2] {
        [0, 1].map(|row| {
            let mine: Vec<Reg> = scores.iter().enumerate().filter(|(i, _)| i % 4 / 2 == row).map(|(_, r)| *r).collect();
            let largest = def!(k, F32, "max.f32", mine[0], mine[1]);
            for &score in &mine[2..] {
                emit!(k, "max.f32", largest, largest, score);
            }
            reduce_quad(k, "max.f32", largest);
            emit!(k, "max.f32", largest, largest, self.largest[row]);
            // A row that has seen no key yet must not subtract infinities.
            let unseen = def!(k, Pred, "setp.eq.f32", largest, Float(f32::NEG_INFINITY));
            let shift = def!(k, F32, "selp.f32", Float(0.0), largest, unseen);
            let difference = def!(k, F32, "sub.f32", self.largest[row], shift);
            let exponent = def!(k, F32, "mul.f32", difference, self.factor);
            let correction = def!(k, F32, "ex2.approx.ftz.f32", exponent);
            emit!(k, "mov.f32", self.largest[row], largest);
            let subtracted = def!(k, F32, "mul.f32", shift, self.negative_factor);
            emit!(k, "mul.f32", self.sum[row], self.sum[row], correction);
            let mut partial: Vec<Reg> = Vec::new();
            for (i, &score) in mine.iter().enumerate() {
                if self.huge_scores {
                    emit!(k, "sub.f32", score, score, shift);
                    emit!(k, "mul.f32", score, score, self.factor);
                } else {
                    emit!(k, "fma.rn.f32", score, score, self.factor, subtracted);
                }
                emit!(k, "ex2.approx.ftz.f32", score, score);
                if i < 2 {
                    partial.push(def!(k, F32, "mov.f32", score));
                } else {
                    emit!(k, "add.f32", partial[i % 2], partial[i % 2], score);
                }
            }
            let both = def!(k, F32, "add.f32", partial[0], partial[1]);
            emit!(k, "add.f32", self.sum[row], self.sum[row], both);
            correction
        })
    }

    /// Divides the output by the sums.
    fn finish(&self, k: &mut PtxBuilder, output: &[Reg]) {
        let inverse = self.sum.map(|sum| {
            reduce_quad(k, "add.f32", sum);
            def!(k, F32, "rcp.approx.ftz.f32", sum)
        });
        rescale(k, output, inverse);
    }
}
