//! Tiles in shared memory: how they are laid out for `wgmma`, copied from global memory, handed from the warps that copy
//! to the warps that multiply, and multiplied.
//!
//! A tile of rows is kept as slices of 64 elements (128 bytes) a row, one slice after the other, each with the 128-byte
//! swizzle: of the 16-byte pieces of row `r`, piece `c` lies at `c ^ (r & 7)`. The same tile serves as a matrix whose rows
//! are contracted over (`Major::Rows`) and as one whose columns are (`Major::Columns`), so nothing is ever transposed.

use crate::ptx::{Class, PtxBuilder, Reg, Tuple, at, def, emit};

/// Elements of a slice.
pub(super) const SLICE: u32 = 64;
/// Bytes of a row of a slice.
pub(super) const SLICE_BYTES: u32 = 128;

/// Where a tile lies.
#[derive(Clone, Copy)]
pub(super) struct TileLayout {
    /// Rows of the tile.
    pub rows: u32,
    /// Elements of a row, a multiple of [`SLICE`].
    pub columns: u32,
}

impl TileLayout {
    pub(super) fn slice_bytes(self) -> u32 {
        self.rows * SLICE_BYTES
    }

    pub(super) fn bytes(self) -> u32 {
        self.slice_bytes() * (self.columns / SLICE)
    }
}

/// Which dimension of a tile a product contracts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Major {
    /// The columns, which are adjacent.
    Columns,
    /// The rows.
    Rows,
}

/// The descriptor of a tile at shared address `base`, for products that contract its columns or its rows.
pub(super) fn descriptor(k: &mut PtxBuilder, base: Reg, layout: TileLayout, contracted: Major) -> Reg {
    // The 128-byte swizzle in bits 62 and 63, 1024 bytes from 8 rows to the next 8 in bits 32 to 45, and in bits 16 to
    // 29 the way from slice to slice, which matters only where a product spans several of them side by side.
    let leading = match contracted {
        Major::Columns => 1,
        Major::Rows => u64::from(layout.slice_bytes()) >> 4,
    };
    let constant = (1u64 << 62) | ((1024u64 >> 4) << 32) | (leading << 16);
    let shifted = def!(k, B32, "shr.u32", base, 4);
    let masked = def!(k, B32, "and.b32", shifted, 0x3fff);
    let wide = def!(k, B64, "cvt.u64.u32", masked);
    def!(k, B64, "or.b64", wide, format_args!("0x{constant:X}"))
}

/// How far (in units of 16 bytes) step `step` of 16 contracted elements is from the first.
pub(super) fn step_offset(layout: TileLayout, contracted: Major, step: u32) -> u32 {
    match contracted {
        Major::Columns => ((step / 4) * layout.slice_bytes() + (step % 4) * 32) >> 4,
        Major::Rows => (step * 16 * SLICE_BYTES) >> 4,
    }
}

/// The left factor of a product.
#[derive(Clone, Copy)]
pub(super) enum Left<'a> {
    /// In shared memory, contracted over its columns: descriptor and layout.
    Shared(Reg, TileLayout),
    /// In registers, four for each step.
    Registers(&'a [Reg]),
}

/// Starts `accumulator (+)= left · right` over `steps` steps of 16, with `right` a tile in shared memory that gives
/// `width` columns. `accumulates` says whether what the accumulator holds is kept.
pub(super) struct Product<'a> {
    pub element: &'static str,
    pub accumulator: &'a [Reg],
    pub left: Left<'a>,
    pub right: Reg,
    pub right_layout: TileLayout,
    pub contracted: Major,
    pub width: u32,
    pub steps: u32,
    pub accumulates: bool,
}

impl Product<'_> {
    pub(super) fn start(&self, k: &mut PtxBuilder) {
        debug_assert_eq!(self.accumulator.len() as u32, self.width / 2);
        let yes = def!(k, Pred, "setp.eq.u32", 0, 0);
        let first = if self.accumulates { yes } else { def!(k, Pred, "setp.ne.u32", 0, 0) };
        // Of TF32, a step of 32 bytes has 8 elements, and columns are contracted only.
        let is_narrow = self.element != "tf32";
        let depth = if is_narrow { 16 } else { 8 };
        let opcode = format!("wgmma.mma_async.sync.aligned.m64n{}k{depth}.f32.{e}.{e}", self.width, e = self.element);
        let transposed = i32::from(self.contracted == Major::Rows);
        for step in 0..self.steps {
            let keep = if step == 0 { first } else { yes };
            let right = offset_descriptor(k, self.right, step_offset(self.right_layout, self.contracted, step));
            match self.left {
                Left::Shared(descriptor, layout) => {
                    let left = offset_descriptor(k, descriptor, step_offset(layout, Major::Columns, step));
                    match is_narrow {
                        true => emit!(k, &opcode, Tuple(self.accumulator), left, right, keep, 1, 1, 0, transposed),
                        false => emit!(k, &opcode, Tuple(self.accumulator), left, right, keep, 1, 1),
                    }
                }
                Left::Registers(regs) => {
                    let fragment = Tuple(&regs[4 * step as usize..4 * step as usize + 4]);
                    match is_narrow {
                        true => emit!(k, &opcode, Tuple(self.accumulator), fragment, right, keep, 1, 1, transposed),
                        false => emit!(k, &opcode, Tuple(self.accumulator), fragment, right, keep, 1, 1),
                    }
                }
            }
        }
        emit!(k, "wgmma.commit_group.sync.aligned");
    }
}

fn offset_descriptor(k: &mut PtxBuilder, descriptor: Reg, offset: u32) -> Reg {
    match offset {
        0 => descriptor,
        _ => def!(k, B64, "add.s64", descriptor, offset),
    }
}

/// Waits until at most `pending` of the products that this warpgroup started are still under way.
pub(super) fn wait_products(k: &mut PtxBuilder, pending: u32) {
    emit!(k, "wgmma.wait_group.sync.aligned", pending);
}

/// Orders registers that were just written before the products that use them.
pub(super) fn fence_registers(k: &mut PtxBuilder) {
    emit!(k, "wgmma.fence.sync.aligned");
}

/// A ring of tiles in shared memory, each with a barrier that says it is full and one that says it is free.
#[derive(Clone, Copy)]
pub(super) struct Ring {
    pub layout: TileLayout,
    pub stages: u32,
    /// The offset of the first tile.
    pub tiles: u32,
    /// The offset of the first of the barriers: full ones, then free ones.
    pub barriers: u32,
}

impl Ring {
    pub(super) fn new(k: &mut PtxBuilder, layout: TileLayout, stages: u32) -> Ring {
        let tiles = k.shared(layout.bytes() * stages, 1024);
        Ring { layout, stages, tiles, barriers: 0 }
    }

    /// Takes room for the barriers. Comes after all tiles have theirs, so that tiles stay aligned without gaps.
    pub(super) fn place_barriers(&mut self, k: &mut PtxBuilder) {
        self.barriers = k.shared(16 * self.stages, 8);
    }

    /// Sets the barriers up; for one thread of the block.
    pub(super) fn initialise(&self, k: &mut PtxBuilder, shared: Reg, producers: u32, consumer_warps: u32) {
        for stage in 0..self.stages {
            let full = at(shared, i64::from(self.barriers + 8 * stage));
            let free = at(shared, i64::from(self.barriers + 8 * (self.stages + stage)));
            emit!(k, "mbarrier.init.shared::cta.b64", full, producers);
            emit!(k, "mbarrier.init.shared::cta.b64", free, consumer_warps);
        }
    }
}

/// Where a role stands in a ring: the stage, and the parity of its turn.
#[derive(Clone, Copy)]
pub(super) struct RingCursor {
    ring: Ring,
    stage: Reg,
    parity: Reg,
    shared: Reg,
}

impl RingCursor {
    pub(super) fn new(k: &mut PtxBuilder, ring: Ring, shared: Reg) -> RingCursor {
        let stage = def!(k, B32, "mov.u32", 0);
        let parity = def!(k, B32, "mov.u32", 0);
        RingCursor { ring, stage, parity, shared }
    }

    pub(super) fn advance(&self, k: &mut PtxBuilder) {
        emit!(k, "add.s32", self.stage, self.stage, 1);
        let wraps = def!(k, Pred, "setp.eq.u32", self.stage, self.ring.stages);
        k.guarded(wraps, true, |k| {
            emit!(k, "mov.u32", self.stage, 0);
            emit!(k, "xor.b32", self.parity, self.parity, 1);
        });
    }

    fn barrier(&self, k: &mut PtxBuilder) -> Reg {
        def!(k, B32, "mad.lo.u32", self.stage, 8, self.shared)
    }

    /// The shared address of this stage's tile.
    pub(super) fn tile(&self, k: &mut PtxBuilder) -> Reg {
        let start = def!(k, B32, "add.s32", self.shared, self.ring.tiles);
        def!(k, B32, "mad.lo.u32", self.stage, self.ring.layout.bytes(), start)
    }

    /// `base` plus as many times `bytes` as there are stages before this one.
    pub(super) fn offset(&self, k: &mut PtxBuilder, bytes: u32, base: Reg) -> Reg {
        def!(k, B32, "mad.lo.u32", self.stage, bytes, base)
    }

    /// The descriptor of this stage's tile, from that of the first.
    pub(super) fn descriptor(&self, k: &mut PtxBuilder, first: Reg) -> Reg {
        let units = def!(k, B32, "mul.lo.u32", self.stage, self.ring.layout.bytes() >> 4);
        let wide = def!(k, B64, "cvt.u64.u32", units);
        def!(k, B64, "add.s64", first, wide)
    }

    /// Waits, as a consumer, until the tile is full.
    pub(super) fn wait_full(&self, k: &mut PtxBuilder) {
        let barrier = self.barrier(k);
        wait_barrier(k, barrier, self.ring.barriers, self.parity);
        // The tile was written by ordinary copies and is read by the tensor cores.
        emit!(k, "fence.proxy.async.shared::cta");
    }

    /// Says, as a consumer, that this warp has done with the tile. `elected` holds in one thread of the warp.
    pub(super) fn release(&self, k: &mut PtxBuilder, elected: Reg) {
        let barrier = self.barrier(k);
        let free = at(barrier, i64::from(self.ring.barriers + 8 * self.ring.stages));
        k.guarded(elected, true, |k| emit!(k, "mbarrier.arrive.shared::cta.b64", "_", free));
    }

    /// Waits, as a producer, until the tile may be overwritten.
    pub(super) fn wait_free(&self, k: &mut PtxBuilder) {
        let barrier = self.barrier(k);
        let turned = def!(k, B32, "xor.b32", self.parity, 1);
        wait_barrier(k, barrier, self.ring.barriers + 8 * self.ring.stages, turned);
    }

    /// Says, as a producer, that the tile is full once the copies this thread has started are done.
    pub(super) fn fill(&self, k: &mut PtxBuilder) {
        let barrier = self.barrier(k);
        emit!(k, "cp.async.mbarrier.arrive.noinc.shared::cta.b64", at(barrier, i64::from(self.ring.barriers)));
    }
}

/// Waits until the barrier at `base + offset` has passed the phase of that parity.
pub(super) fn wait_barrier(k: &mut PtxBuilder, base: Reg, offset: u32, parity: Reg) {
    let again = k.label();
    k.place(again);
    let done = def!(k, Pred, "mbarrier.try_wait.parity.shared::cta.b64", at(base, i64::from(offset)), parity);
    k.branch_uniform_unless(done, again);
}

/// Copies tiles of rows from global memory: what a thread of the warps that copy needs to know of one array.
pub(super) struct TileCopy {
    pub layout: TileLayout,
    /// Elements of a row that exist; the rest is zero.
    pub columns: u32,
    /// Rows that exist in all, where that is no whole number of tiles; those after are zero.
    length: Option<Reg>,
    /// Bytes from the rows of one pass to those of the next.
    pass_bytes: Reg,
    /// Bytes from row to row.
    row_bytes: Reg,
    /// Threads that copy.
    pub threads: u32,
    /// The address of row 0 of the head, moved to this thread's row and piece.
    pub source: Reg,
    /// This thread's offset in a tile.
    pub target: Reg,
    /// This thread's row in a tile.
    pub row: Reg,
    /// This thread's first element in a slice.
    pub column: Reg,
}

impl TileCopy {
    /// `head` is the address of row 0, `thread` the number of this thread among those that copy.
    pub(super) fn new(
        k: &mut PtxBuilder,
        (layout, columns): (TileLayout, u32),
        (length, row_bytes): (u32, u64),
        threads: u32,
        head: Reg,
        thread: Reg,
    ) -> TileCopy {
        let row = def!(k, B32, "shr.u32", thread, 3);
        let piece = def!(k, B32, "and.b32", thread, 7);
        let column = def!(k, B32, "shl.b32", piece, 3);
        let low = def!(k, B32, "and.b32", row, 7);
        let swizzled = def!(k, B32, "xor.b32", piece, low);
        let shifted = def!(k, B32, "shl.b32", swizzled, 4);
        let target = def!(k, B32, "mad.lo.u32", row, SLICE_BYTES, shifted);
        let row_bytes = k.size64(row_bytes);
        let wide_row = wide(k, row);
        let moved = def!(k, B64, "mad.lo.s64", wide_row, row_bytes, head);
        let pass_bytes = def!(k, B64, "mul.lo.s64", row_bytes, threads / 8);
        let length = (!length.is_multiple_of(layout.rows)).then(|| k.size32(length.into()));
        let piece_offset = def!(k, B64, "mul.wide.u32", piece, 16);
        let source = def!(k, B64, "add.s64", moved, piece_offset);
        TileCopy { layout, columns, length, pass_bytes, row_bytes, threads, source, target, row, column }
    }

    /// Starts the copies of the tile whose first row is `first_row`, into shared memory at `tile`.
    pub(super) fn start(&self, k: &mut PtxBuilder, first_row: Reg, tile: Reg) {
        let wide_row = wide(k, first_row);
        let source = def!(k, B64, "mad.lo.s64", wide_row, self.row_bytes, self.source);
        let row = def!(k, B32, "add.s32", first_row, self.row);
        self.start_from(k, (source, row), tile);
    }

    /// Starts the copies of the tile that begins in row 0 at the column that lies so many times `bytes` behind the first.
    pub(super) fn start_at_column(&self, k: &mut PtxBuilder, (column, bytes): (Reg, u32), tile: Reg) {
        let source = def!(k, B64, "mad.wide.u32", column, bytes, self.source);
        self.start_from(k, (source, self.row), tile);
    }

    /// Starts the copies of a tile of which this thread's first row is `row`, and its first piece is at `source`.
    fn start_from(&self, k: &mut PtxBuilder, (source, row): (Reg, Reg), tile: Reg) {
        let target = def!(k, B32, "add.s32", tile, self.target);
        let rows_at_once = self.threads / 8;
        let mut pass_source = source;
        for pass in 0..self.layout.rows / rows_at_once {
            if pass > 0 {
                pass_source = def!(k, B64, "add.s64", pass_source, self.pass_bytes);
            }
            let row_bytes = self.length.map(|length| {
                let here = def!(k, B32, "add.s32", row, pass * rows_at_once);
                let inside = def!(k, Pred, "setp.lt.u32", here, length);
                def!(k, B32, "selp.b32", 16, 0, inside)
            });
            for slice in 0..self.layout.columns / SLICE {
                let from = at(pass_source, i64::from(slice * 128));
                let to = at(target, i64::from(slice * self.layout.slice_bytes() + pass * rows_at_once * SLICE_BYTES));
                let partial = (slice + 1) * SLICE > self.columns;
                match (row_bytes, partial) {
                    (None, false) => emit!(k, "cp.async.cg.shared.global", to, from, 16),
                    (Some(bytes), false) => emit!(k, "cp.async.cg.shared.global", to, from, 16, bytes),
                    (bytes, true) => {
                        let left = self.columns.saturating_sub(slice * SLICE);
                        let inside = def!(k, Pred, "setp.lt.u32", self.column, left);
                        let bytes = match bytes {
                            Some(bytes) => def!(k, B32, "selp.b32", bytes, 0, inside),
                            None => def!(k, B32, "selp.b32", 16, 0, inside),
                        };
                        emit!(k, "cp.async.cg.shared.global", to, from, 16, bytes);
                    }
                }
            }
        }
    }
}

/// The place of a thread in its warpgroup: warp, lane, and which element of an accumulator is its first.
#[derive(Clone, Copy)]
pub(super) struct Fragment {
    /// The first of the two rows (the other is 8 below) within the warpgroup's 64.
    pub row: Reg,
    /// The first of the two columns within each 8.
    pub column: Reg,
    pub lane: Reg,
    pub warp: Reg,
    /// Holds in the first thread of the warp.
    pub elected: Reg,
}

impl Fragment {
    pub(super) fn new(k: &mut PtxBuilder, thread: Reg) -> Fragment {
        let lane = def!(k, B32, "and.b32", thread, 31);
        let in_group = def!(k, B32, "and.b32", thread, 127);
        let warp = def!(k, B32, "shr.u32", in_group, 5);
        let quad = def!(k, B32, "shr.u32", lane, 2);
        let row = def!(k, B32, "mad.lo.u32", warp, 16, quad);
        let within = def!(k, B32, "and.b32", lane, 3);
        let column = def!(k, B32, "shl.b32", within, 1);
        let elected = def!(k, Pred, "setp.eq.u32", lane, 0);
        Fragment { row, column, lane, warp, elected }
    }
}

/// Packs pairs of accumulated columns to the left factor of a product: 4 registers for each 16 columns. Of TF32 there are 4
/// for each 8, in which even columns come before odd ones: the rows of the other factor have to lie in that order.
pub(super) fn pack_fragments(k: &mut PtxBuilder, element: &str, sums: &[Reg], packed: &[Reg]) {
    if element == "tf32" {
        for (i, &target) in packed.iter().enumerate() {
            emit!(k, "cvt.rna.tf32.f32", target, sums[i - i % 4 + [0, 2, 1, 3][i % 4]]);
        }
        return;
    }
    let opcode = format!("cvt.rn.{element}x2.f32");
    for (i, &target) in packed.iter().enumerate() {
        emit!(k, &opcode, target, sums[2 * i + 1], sums[2 * i]);
    }
}

/// Reduces over the four threads that share a row.
pub(super) fn reduce_quad(k: &mut PtxBuilder, opcode: &str, value: Reg) {
    for distance in [1, 2] {
        let bits = def!(k, B32, "mov.b32", value);
        let other = def!(k, B32, "shfl.sync.bfly.b32", bits, distance, 31, -1);
        let float = def!(k, F32, "mov.b32", other);
        emit!(k, opcode, value, value, float);
    }
}

/// A register of each, `count` of them, all zero.
pub(super) fn zeros(k: &mut PtxBuilder, count: u32) -> Vec<Reg> {
    (0..count).map(|_| def!(k, F32, "mov.f32", crate::ptx::Float(0.0))).collect()
}

/// The address of a head's first row in an array: `base + batch · strides.batch + head · strides.head`, in elements of
/// two bytes.
pub(super) fn head_address(k: &mut PtxBuilder, base: Reg, batch: Reg, head: Reg, strides: super::HeadStrides) -> Reg {
    let batch = wide(k, batch);
    let head = wide(k, head);
    let [batch_bytes, head_bytes] = [strides.batch, strides.head].map(|stride| k.size64(2 * stride));
    let first = def!(k, B64, "mad.lo.s64", batch, batch_bytes, base);
    def!(k, B64, "mad.lo.s64", head, head_bytes, first)
}

/// An unsigned number of 32 bits in 64.
pub(super) fn wide(k: &mut PtxBuilder, value: Reg) -> Reg {
    match value.class {
        Class::B64 => value,
        _ => def!(k, B64, "cvt.u64.u32", value),
    }
}

/// Threads that copy.
pub(super) const PRODUCERS: u32 = 128;

/// The shared memory that a block of an H100 or H200 can have.
pub(super) const SHARED_LIMIT: u32 = 227 * 1024;

/// Registers a thread for the warps that copy and for those that multiply, so that all fit.
pub(super) fn register_split(consumers: u32) -> (u32, u32) {
    match consumers {
        1 => (56, 240),
        2 => (40, 232),
        _ => (32, 160),
    }
}

/// What the block is: which batch, which head, which rows.
pub(super) struct BlockPlace {
    pub batch: Reg,
    pub query_head: Reg,
    pub kv_head: Reg,
}

impl BlockPlace {
    /// In a grid whose second axis is heads of Q and whose third is batches.
    pub(super) fn of_query_head(k: &mut PtxBuilder, shape: &super::AttentionShape) -> BlockPlace {
        let query_head = def!(k, B32, "mov.u32", "%ctaid.y");
        let batch = def!(k, B32, "mov.u32", "%ctaid.z");
        let shared_by = k.size32((shape.query_heads / shape.kv_heads).into());
        let kv_head = def!(k, B32, "div.u32", query_head, shared_by);
        BlockPlace { batch, query_head, kv_head }
    }

    /// In a grid whose second axis is heads of K and V and whose third is batches; the head of Q is the first of those
    /// that share it.
    pub(super) fn of_kv_head(k: &mut PtxBuilder, shape: &super::AttentionShape) -> BlockPlace {
        let kv_head = def!(k, B32, "mov.u32", "%ctaid.y");
        let batch = def!(k, B32, "mov.u32", "%ctaid.z");
        let shared_by = k.size32((shape.query_heads / shape.kv_heads).into());
        let query_head = def!(k, B32, "mul.lo.u32", kv_head, shared_by);
        BlockPlace { batch, query_head, kv_head }
    }
}

/// Which tiles of keys the block's rows see: from `first`, `count` of them, at least one.
#[derive(Clone, Copy)]
pub(super) struct TileRange {
    pub first: Reg,
    pub count: Reg,
}

/// The tiles of columns that rows `first_row .. first_row + rows` see, of all columns up to `columns`.
pub(super) fn visible_tiles(
    k: &mut PtxBuilder,
    (lower, upper): (Option<i64>, Option<i64>),
    (first_row, rows): (Reg, u32),
    (columns, tile): (u32, u32),
) -> TileRange {
    let end = match upper {
        None => k.size32(columns.div_ceil(tile).into()),
        Some(upper) => {
            let reach = k.size32(i64::from(rows) - 1 + upper);
            let last = def!(k, B32, "add.s32", first_row, reach);
            let last_column = k.size32(i64::from(columns) - 1);
            let clamped = def!(k, B32, "min.s32", last, last_column);
            let positive = def!(k, B32, "max.s32", clamped, 0);
            let index = def!(k, B32, "div.u32", positive, tile);
            def!(k, B32, "add.s32", index, 1)
        }
    };
    let first = match lower {
        None => def!(k, B32, "mov.u32", 0),
        Some(lower) => {
            let lower = k.size32(lower);
            let start = def!(k, B32, "add.s32", first_row, lower);
            let positive = def!(k, B32, "max.s32", start, 0);
            let last_column = k.size32(i64::from(columns) - 1);
            let clamped = def!(k, B32, "min.s32", positive, last_column);
            def!(k, B32, "div.u32", clamped, tile)
        }
    };
    let difference = def!(k, B32, "sub.s32", end, first);
    let count = def!(k, B32, "max.s32", difference, 1);
    TileRange { first, count }
}

/// The threads of a block: the address of its shared memory, the thread's number, and its warpgroup's.
#[derive(Clone, Copy)]
pub(super) struct BlockThreads {
    pub shared: Reg,
    pub thread: Reg,
    pub group: Reg,
}

impl BlockThreads {
    pub(super) fn new(k: &mut PtxBuilder) -> BlockThreads {
        let shared = k.shared_base();
        let thread = def!(k, B32, "mov.u32", "%tid.x");
        let warp = def!(k, B32, "shr.u32", thread, 5);
        // The same in all threads of a warp, which the assembler cannot know of the thread's number.
        let uniform_warp = def!(k, B32, "shfl.sync.idx.b32", warp, 0, 31, -1);
        let group = def!(k, B32, "shr.u32", uniform_warp, 2);
        BlockThreads { shared, thread, group }
    }

    /// Lets one thread set barriers up before any other uses them.
    pub(super) fn initialise(&self, k: &mut PtxBuilder, barriers: impl FnOnce(&mut PtxBuilder)) {
        let first_thread = def!(k, Pred, "setp.eq.u32", self.thread, 0);
        let ready = k.label();
        k.branch_unless(first_thread, ready);
        barriers(k);
        emit!(k, "fence.proxy.async.shared::cta");
        k.place(ready);
        emit!(k, "bar.sync", 0);
    }
}
