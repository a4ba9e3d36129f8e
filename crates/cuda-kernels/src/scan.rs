//! Prefix scans along any axis in one pass over memory: sums, products, maxima, minima and log-sum-exps.
//!
//! An array is `[outer][length][inner]` and the middle axis is scanned. Rows (inner 1) are scanned by a warp each where
//! there are many, and else in tiles by blocks that look back at what the tiles before them have published; columns by
//! blocks that walk down.

mod columns;
mod look_back;

use serde::{Deserialize, Serialize};

use crate::attention::Unsupported;
use crate::launch::{Architecture, KernelArgument, KernelSequence, Launch, PtxKernel, Scratch};
use crate::number::Number;
use crate::ptx::{Class, Double, Float, PtxBuilder, Reg, at, def, emit};

/// What is accumulated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ScanOperation {
    /// The sum.
    Sum,
    /// The product.
    Product,
    /// The largest; NaN if there is one.
    Max,
    /// The smallest; NaN if there is one.
    Min,
    /// The logarithm of the sum of exponentials.
    LogSumExp,
}

/// What is scanned. Operand 0 is the array, result 0 has its shape.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ScanShape {
    /// The elements' type.
    pub element: Number,
    /// What is accumulated.
    pub operation: ScanOperation,
    /// Elements of the axes before the scanned one.
    pub outer: u64,
    /// Elements of the scanned axis.
    pub length: u64,
    /// Elements of the axes after the scanned one.
    pub inner: u64,
    /// From the last element to the first.
    pub reverse: bool,
}

/// Rows from which on each is scanned by a warp.
const WARP_ROWS: u64 = 2048;
/// Warps of a block.
const WARPS: u32 = 8;
/// Vectors of 16 bytes that a lane holds at once.
const CHUNKS: u32 = 4;
/// Rows that a thread holds at once where columns are scanned.
const COLUMN_ROWS: u32 = 16;

/// The kernel that scans.
pub fn prefix_scan(shape: &ScanShape, architecture: Architecture) -> Result<KernelSequence, Unsupported> {
    if architecture.capability < 80 {
        return Err(Unsupported(format!("scans are made for sm_80 and later, not for {architecture}")));
    }
    if shape.operation == ScanOperation::LogSumExp && !matches!(shape.element.class(), Class::F32) {
        return Err(Unsupported(format!("log-sum-exp of {:?}", shape.element)));
    }
    let elements = shape.outer.checked_mul(shape.length).and_then(|n| n.checked_mul(shape.inner));
    if elements.is_none_or(|n| n == 0 || n > 1 << 40) || shape.length > 1 << 31 || shape.inner > 1 << 31 {
        return Err(Unsupported(format!("a scan of {shape:?}")));
    }
    let mut k = PtxBuilder::new("prefix_scan", architecture, 32 * WARPS, 2);
    let [input, output] = [0; 2].map(|_| k.buffer_parameter());
    let state = has_tiles(shape).then(|| k.buffer_parameter());
    let length = k.size32(shape.length as i64);
    let wide_length = def!(k, B64, "cvt.u64.u32", length);
    let scan = Scan { shape, k, input, output, length, wide_length };
    if shape.inner > 1 {
        scan.columns()
    } else if let Some(state) = state {
        scan.tiled_rows(state)
    } else {
        scan.warp_rows()
    }
}

/// Whether rows are scanned in tiles.
fn has_tiles(shape: &ScanShape) -> bool {
    shape.inner <= 1 && shape.outer < WARP_ROWS
}

struct Scan<'a> {
    shape: &'a ScanShape,
    k: PtxBuilder,
    input: Reg,
    output: Reg,
    /// Elements of the scanned axis, in 32 bits and in 64.
    length: Reg,
    wide_length: Reg,
}

impl Scan<'_> {
    fn element(&self) -> Number {
        self.shape.element
    }

    /// Elements of a vector of 16 bytes.
    fn vector(&self) -> u32 {
        16 / self.element().bytes()
    }

    /// Vectors that a lane holds at once.
    fn chunks(&self) -> u32 {
        if self.element().bytes() == 1 { 2 } else { CHUNKS }
    }

    /// Elements that a warp scans at once.
    fn span(&self) -> u32 {
        32 * self.vector() * self.chunks()
    }

    /// Whether every row starts at a multiple of 16 bytes and has whole vectors.
    fn aligned(&self) -> bool {
        self.shape.length.is_multiple_of(u64::from(self.vector()))
    }

    fn finish(self, grid: [u32; 3], scratch: Vec<Scratch>) -> KernelSequence {
        let mut arguments = vec![KernelArgument::Operand(0), KernelArgument::Result(0)];
        arguments.extend((0..scratch.len() as u32).map(KernelArgument::Scratch));
        arguments.extend_from_slice(self.k.sizes());
        let dynamic_shared_bytes = self.k.shared_bytes();
        let launch = Launch { grid, block: [32 * WARPS, 1, 1], dynamic_shared_bytes, cluster: 1 };
        let kernel = PtxKernel { name: "prefix_scan".into(), ptx: self.k.finish(), launch, arguments };
        KernelSequence { kernels: vec![kernel], scratch }
    }

    /// `target = left ∘ right`, with `left` from earlier places.
    fn combine(&mut self, target: Reg, left: Reg, right: Reg) {
        combine(&mut self.k, self.shape, target, left, right);
    }

    fn identity(&mut self) -> Reg {
        let class = self.element().class();
        let result = self.k.reg(class);
        let k = &mut self.k;
        let element = self.shape.element;
        let bits = 8 * element.bytes().min(8);
        match (class, self.shape.operation) {
            (Class::F32, operation) => emit!(k, "mov.f32", result, Float(float_identity(operation))),
            (Class::F64, operation) => emit!(k, "mov.f64", result, Double(float_identity(operation).into())),
            (_, operation) => {
                let lowest: i128 = if element.is_signed() { -(1i128 << (bits - 1)) } else { 0 };
                let highest: i128 = if element.is_signed() { (1i128 << (bits - 1)) - 1 } else { (1i128 << bits) - 1 };
                let value = match operation {
                    ScanOperation::Sum | ScanOperation::LogSumExp => 0,
                    ScanOperation::Product => 1,
                    ScanOperation::Max => lowest,
                    ScanOperation::Min => highest,
                };
                emit!(k, &format!("mov.{}", element.arithmetic()), result, value);
            }
        }
        result
    }

    /// The values of a warp's span that starts at place `start` of the row at `row` (both the thread's own): those of
    /// chunk c are adjacent, and the lanes' of a chunk follow each other. Places past the end hold the identity.
    fn load_span(&mut self, row: Reg, start: Reg, lane: Reg) -> Vec<Vec<Reg>> {
        let (vector, chunks, length) = (self.vector(), self.chunks(), self.wide_length);
        let element = self.element();
        let identity = self.identity();
        let values: Vec<Vec<Reg>> =
            (0..chunks).map(|_| (0..vector).map(|_| element.copy(&mut self.k, identity)).collect()).collect();
        let first = def!(self.k, B32, "mad.lo.u32", lane, vector, start);
        let (partial, done) = (self.k.label(), self.k.label());
        if self.aligned() {
            let k = &mut self.k;
            let span = 32 * vector * chunks;
            let end = def!(k, B64, "cvt.u64.u32", start);
            let end = def!(k, B64, "add.s64", end, span);
            let past = def!(k, Pred, "setp.gt.u64", end, length);
            k.branch_uniform_if(past, partial);
            let address = self.place(row, first, vector);
            for (chunk, regs) in values.iter().enumerate() {
                let offset = self.chunk_offset(chunk);
                let loaded = element.load_vector(&mut self.k, address, offset);
                for (i, &reg) in regs.iter().enumerate() {
                    let source = if self.shape.reverse { loaded[vector as usize - 1 - i] } else { loaded[i] };
                    element.assign(&mut self.k, reg, source);
                }
            }
            self.k.branch(done);
            self.k.place(partial);
        }
        let address = self.place(row, first, 1);
        for (chunk, regs) in values.iter().enumerate() {
            for (i, &reg) in regs.iter().enumerate() {
                let skip = self.element_guard(first, chunk, i);
                let from = at(address, self.element_offset(chunk, i));
                element.load(&mut self.k, reg, from, "global");
                self.k.place(skip);
            }
        }
        self.k.place(done);
        values
    }

    fn store_span(&mut self, row: Reg, start: Reg, lane: Reg, values: &[Vec<Reg>]) {
        let (vector, chunks, length) = (self.vector(), self.chunks(), self.wide_length);
        let element = self.element();
        let first = def!(self.k, B32, "mad.lo.u32", lane, vector, start);
        let (partial, done) = (self.k.label(), self.k.label());
        if self.aligned() {
            let k = &mut self.k;
            let span = 32 * vector * chunks;
            let end = def!(k, B64, "cvt.u64.u32", start);
            let end = def!(k, B64, "add.s64", end, span);
            let past = def!(k, Pred, "setp.gt.u64", end, length);
            k.branch_uniform_if(past, partial);
            let address = self.place(row, first, vector);
            for (chunk, regs) in values.iter().enumerate() {
                let mut ordered = regs.clone();
                if self.shape.reverse {
                    ordered.reverse();
                }
                let offset = self.chunk_offset(chunk);
                element.store_vector(&mut self.k, address, offset, &ordered);
            }
            self.k.branch(done);
            self.k.place(partial);
        }
        let address = self.place(row, first, 1);
        for (chunk, regs) in values.iter().enumerate() {
            for (i, &reg) in regs.iter().enumerate() {
                let skip = self.element_guard(first, chunk, i);
                let to = at(address, self.element_offset(chunk, i));
                element.store(&mut self.k, to, reg, "global");
                self.k.place(skip);
            }
        }
        self.k.place(done);
    }

    /// A label that is jumped to where element `i` of a chunk lies past the end of the row.
    fn element_guard(&mut self, first: Reg, chunk: usize, i: usize) -> crate::ptx::Label {
        let k = &mut self.k;
        let skip = k.label();
        let position = def!(k, B32, "add.s32", first, chunk as u32 * 32 * (16 / self.shape.element.bytes()) + i as u32);
        let past = def!(k, Pred, "setp.ge.u32", position, self.length);
        k.branch_if(past, skip);
        skip
    }

    /// The address of `count` elements from logical place `first` of the row.
    fn place(&mut self, row: Reg, first: Reg, count: u32) -> Reg {
        let bytes = self.element().bytes();
        let k = &mut self.k;
        if self.shape.reverse {
            let last = def!(k, B64, "cvt.u64.u32", first);
            let whole = def!(k, B64, "sub.s64", self.wide_length, count);
            let position = def!(k, B64, "sub.s64", whole, last);
            def!(k, B64, "mad.lo.s64", position, bytes, row)
        } else {
            let position = def!(k, B64, "cvt.u64.u32", first);
            def!(k, B64, "mad.lo.s64", position, bytes, row)
        }
    }

    fn direction(&self) -> i64 {
        if self.shape.reverse { -1 } else { 1 }
    }

    fn chunk_offset(&self, chunk: usize) -> i64 {
        self.direction() * chunk as i64 * 32 * 16
    }

    fn element_offset(&self, chunk: usize, i: usize) -> i64 {
        self.chunk_offset(chunk) + self.direction() * i as i64 * i64::from(self.element().bytes())
    }

    /// Scans a warp's span in place, and gives its total (in every lane).
    fn scan_span(&mut self, values: &[Vec<Reg>], lane: Reg) -> Reg {
        let element = self.element();
        let mut total: Option<Reg> = None;
        // The chunks' own scans first: they do not depend on each other.
        let mut prefixes = Vec::new();
        let mut totals = Vec::new();
        for regs in values {
            for pair in regs.windows(2) {
                self.combine(pair[1], pair[0], pair[1]);
            }
            let last = regs[regs.len() - 1];
            let inclusive = element.copy(&mut self.k, last);
            for distance in [1, 2, 4, 8, 16] {
                let other = element.shuffle(&mut self.k, "up", inclusive, distance);
                let has = def!(self.k, Pred, "setp.ge.u32", lane, distance);
                let skip = self.k.label();
                self.k.branch_unless(has, skip);
                self.combine(inclusive, other, inclusive);
                self.k.place(skip);
            }
            prefixes.push(element.shuffle(&mut self.k, "up", inclusive, 1));
            totals.push(element.shuffle(&mut self.k, "idx", inclusive, 31));
        }
        let first_lane = def!(self.k, Pred, "setp.eq.u32", lane, 0);
        for (chunk, regs) in values.iter().enumerate() {
            // What comes before this lane's part: the lanes before it, and the chunks before this one.
            let skip = self.k.label();
            let prefix = prefixes[chunk];
            match total {
                Some(total) => {
                    let lanes = self.k.label();
                    self.k.branch_unless(first_lane, lanes);
                    element.assign(&mut self.k, prefix, total);
                    self.k.branch(skip);
                    self.k.place(lanes);
                    self.combine(prefix, total, prefix);
                    self.k.place(skip);
                    for &reg in regs {
                        self.combine(reg, prefix, reg);
                    }
                }
                None => {
                    self.k.branch_if(first_lane, skip);
                    for &reg in regs {
                        self.combine(reg, prefix, reg);
                    }
                    self.k.place(skip);
                }
            }
            total = Some(match total {
                None => totals[chunk],
                Some(before) => {
                    let next = self.k.reg(element.class());
                    self.combine(next, before, totals[chunk]);
                    next
                }
            });
        }
        total.unwrap_or(prefixes[0])
    }

    /// Row number (64 bits) to the addresses of the row in operand and result.
    fn row_addresses(&mut self, row: Reg) -> (Reg, Reg) {
        let element_bytes = self.element().bytes();
        let k = &mut self.k;
        let bytes = def!(k, B64, "mul.lo.s64", self.wide_length, element_bytes);
        let from = def!(k, B64, "mad.lo.s64", row, bytes, self.input);
        let to = def!(k, B64, "mad.lo.s64", row, bytes, self.output);
        (from, to)
    }

    /// A warp for each row.
    fn warp_rows(mut self) -> Result<KernelSequence, Unsupported> {
        let element = self.element();
        let span = self.span();
        let k = &mut self.k;
        let thread = def!(k, B32, "mov.u32", "%tid.x");
        let lane = def!(k, B32, "and.b32", thread, 31);
        let warp = def!(k, B32, "shr.u32", thread, 5);
        let block = def!(k, B32, "mov.u32", "%ctaid.x");
        let row = def!(k, B32, "mad.lo.u32", block, WARPS, warp);
        let end = k.label();
        let rows = k.size64(self.shape.outer);
        let wide_row = def!(k, B64, "cvt.u64.u32", row);
        let past = def!(k, Pred, "setp.ge.u64", wide_row, rows);
        k.branch_uniform_if(past, end);
        let (from, to) = self.row_addresses(wide_row);
        let start = def!(self.k, B32, "mov.u32", 0);
        let carry = self.identity();
        let next = self.k.label();
        self.k.place(next);
        let values = self.load_span(from, start, lane);
        let total = self.scan_span(&values, lane);
        for &reg in values.iter().flatten() {
            self.combine(reg, carry, reg);
        }
        self.store_span(to, start, lane, &values);
        let sum = element.copy(&mut self.k, carry);
        self.combine(carry, sum, total);
        let k = &mut self.k;
        emit!(k, "add.s32", start, start, span);
        let more = def!(k, Pred, "setp.lt.u32", start, self.length);
        k.branch_uniform_if(more, next);
        k.place(end);
        let blocks = self.shape.outer.div_ceil(WARPS.into());
        let blocks = u32::try_from(blocks).ok().filter(|&n| n < 1 << 31);
        let blocks = blocks.ok_or_else(|| Unsupported(format!("a scan of {} rows", self.shape.outer)))?;
        Ok(self.finish([blocks, 1, 1], Vec::new()))
    }

    /// Tiles of rows, whose blocks look back. The first scratch word counts tiles out; the rest is a word of state and a
    /// value for each tile.
    fn tiled_rows(mut self, state: Reg) -> Result<KernelSequence, Unsupported> {
        let element = self.element();
        let span = self.span();
        let tile = span * WARPS;
        let tiles_per_row = self.shape.length.div_ceil(tile.into());
        let tiles = tiles_per_row * self.shape.outer;
        let grid = u32::try_from(tiles).map_err(|_| Unsupported(format!("a scan in {tiles} tiles")))?;
        let totals = self.k.shared(8 * WARPS, 16);
        let carry_at = self.k.shared(8, 8);
        let ticket_at = self.k.shared(4, 4);
        let k = &mut self.k;
        let shared = k.shared_base();
        let thread = def!(k, B32, "mov.u32", "%tid.x");
        let lane = def!(k, B32, "and.b32", thread, 31);
        let warp = def!(k, B32, "shr.u32", thread, 5);
        // Tiles are numbered as blocks start, so that those before this one are running or done.
        let first = def!(k, Pred, "setp.eq.u32", thread, 0);
        let ticketed = k.label();
        k.branch_unless(first, ticketed);
        let ticket = def!(k, B32, "atom.global.add.u32", at(state, 0), 1);
        emit!(k, "st.shared.u32", at(shared, ticket_at.into()), ticket);
        k.place(ticketed);
        emit!(k, "bar.sync", 0);
        let number = def!(k, B32, "ld.shared.u32", at(shared, ticket_at.into()));
        let per_row = k.size32(tiles_per_row as i64);
        let row = def!(k, B32, "div.u32", number, per_row);
        let in_row = def!(k, B32, "rem.u32", number, per_row);
        let row = def!(k, B64, "cvt.u64.u32", row);
        let (from, to) = self.row_addresses(row);
        let k = &mut self.k;
        let tile_start = def!(k, B32, "mul.lo.u32", in_row, tile);
        let start = def!(k, B32, "mad.lo.u32", warp, span, tile_start);
        let values = self.load_span(from, start, lane);
        let total = self.scan_span(&values, lane);
        // The totals of the warps before this one.
        let k = &mut self.k;
        let slot = def!(k, B32, "mad.lo.u32", warp, 8, shared);
        let space = format!("shared.{}", element.arithmetic());
        let keep = k.label();
        let first_lane = def!(k, Pred, "setp.ne.u32", lane, 0);
        k.branch_if(first_lane, keep);
        emit!(k, &format!("st.{space}"), at(slot, totals.into()), total);
        k.place(keep);
        emit!(k, "bar.sync", 0);
        let before = self.identity();
        let whole = self.identity();
        for other in 0..WARPS {
            let value = self.k.reg(element.class());
            emit!(self.k, &format!("ld.{space}"), value, at(shared, i64::from(totals + 8 * other)));
            let earlier = def!(self.k, Pred, "setp.le.u32", warp, other);
            let skip = self.k.label();
            self.k.branch_uniform_if(earlier, skip);
            self.combine(before, before, value);
            self.k.place(skip);
            self.combine(whole, whole, value);
        }
        // The first warp publishes the tile's total, finds what comes before the tile, and publishes both together.
        let have_carry = self.k.label();
        let other_warp = def!(self.k, Pred, "setp.ne.u32", warp, 0);
        self.k.branch_uniform_if(other_warp, have_carry);
        let carry = self.look_back(state, number, in_row, whole, lane);
        let k = &mut self.k;
        emit!(k, &format!("st.{space}"), at(shared, carry_at.into()), carry);
        k.place(have_carry);
        emit!(k, "bar.sync", 0);
        let carry = k.reg(element.class());
        emit!(k, &format!("ld.{space}"), carry, at(shared, carry_at.into()));
        self.combine(carry, carry, before);
        for &reg in values.iter().flatten() {
            self.combine(reg, carry, reg);
        }
        self.store_span(to, start, lane, &values);
        let scratch = Scratch { bytes: 16 * (tiles + 1), zeroed: true };
        Ok(self.finish([grid, 1, 1], vec![scratch]))
    }
}

fn float_identity(operation: ScanOperation) -> f32 {
    match operation {
        ScanOperation::Sum => 0.0,
        ScanOperation::Product => 1.0,
        ScanOperation::Max | ScanOperation::LogSumExp => f32::NEG_INFINITY,
        ScanOperation::Min => f32::INFINITY,
    }
}

/// `target = left ∘ right`.
fn combine(k: &mut PtxBuilder, shape: &ScanShape, target: Reg, left: Reg, right: Reg) {
    let element = shape.element;
    let ty = element.arithmetic();
    match (shape.operation, element.class()) {
        (ScanOperation::Sum, _) => emit!(k, &format!("add.{ty}"), target, left, right),
        (ScanOperation::Product, Class::F32 | Class::F64) => emit!(k, &format!("mul.{ty}"), target, left, right),
        (ScanOperation::Product, _) => emit!(k, &format!("mul.lo.{ty}"), target, left, right),
        (ScanOperation::Max, Class::F32) => emit!(k, "max.NaN.f32", target, left, right),
        (ScanOperation::Min, Class::F32) => emit!(k, "min.NaN.f32", target, left, right),
        (ScanOperation::Max | ScanOperation::Min, Class::F64) => {
            // There is no maximum of doubles that keeps NaN.
            let condition = if shape.operation == ScanOperation::Max { "setp.ge.f64" } else { "setp.le.f64" };
            let takes_left = def!(k, Pred, condition, left, right);
            let nan = def!(k, Pred, "setp.nan.f64", left, left);
            emit!(k, "or.pred", takes_left, takes_left, nan);
            emit!(k, "selp.f64", target, left, right, takes_left);
        }
        (ScanOperation::Max, _) => emit!(k, &format!("max.{ty}"), target, left, right),
        (ScanOperation::Min, _) => emit!(k, &format!("min.{ty}"), target, left, right),
        (ScanOperation::LogSumExp, _) => {
            let larger = def!(k, F32, "max.NaN.f32", left, right);
            let smaller = def!(k, F32, "min.NaN.f32", left, right);
            let difference = def!(k, F32, "sub.f32", smaller, larger);
            // Equal infinities have no difference.
            let equal = def!(k, Pred, "setp.eq.f32", smaller, larger);
            let difference = def!(k, F32, "selp.f32", Float(0.0), difference, equal);
            let exponent = def!(k, F32, "mul.f32", difference, Float(std::f32::consts::LOG2_E));
            let exponential = def!(k, F32, "ex2.approx.f32", exponent);
            let sum = def!(k, F32, "add.f32", exponential, Float(1.0));
            let log2 = def!(k, F32, "lg2.approx.f32", sum);
            emit!(k, "fma.rn.f32", target, log2, Float(std::f32::consts::LN_2), larger);
        }
    }
}
