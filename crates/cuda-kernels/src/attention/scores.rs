//! What happens to a tile of scores between the product that gives it and the exponential: soft cap, bias, mask, band, and
//! keys that do not exist.
//!
//! Scores are kept as the product gives them, and the scale goes into the exponent's factor; with a cap or a bias they are
//! scaled first, since these are in the units of the scaled score.

use super::tiles::Fragment;
use super::{AttentionShape, BiasType, PositionFactor, ScoreStrides};
use crate::ptx::{Address, Float, PtxBuilder, Reg, at, def, emit};

/// Below every score that counts, and far enough from the end of the range that its multiples are finite.
const LOWEST: f32 = -1e35;

/// How tiles of scores are adjusted in a kernel.
pub(super) struct ScoreRules {
    /// The columns of row r that are seen run from r + lower to r + upper.
    lower: Option<i64>,
    upper: Option<i64>,
    /// Columns that exist, where others would count.
    column_bound: Option<u32>,
    /// What a score outside the band becomes, in the units that scores are kept in.
    masked: f32,
    /// Multiplies scores before a bias is added.
    prescale: Option<f32>,
    /// What scaled scores are bent to stay within.
    soft_cap: Option<f32>,
    /// The factor of scores in the exponent of two.
    exponent_factor: f32,
    bias: Option<(BiasType, Reg, u64, u64)>,
    /// What the bias is multiplied by, of numbers of rows (`query`) and columns (`key`).
    positions: Option<PositionFactor>,
    mask: Option<(Reg, u64, u64)>,
    rows: u32,
    columns: u32,
}

/// The arrays over scores: addresses of the bias and the mask for the block's batch and head.
#[derive(Clone, Copy, Default)]
pub(super) struct ScoreArrays {
    pub bias: Option<Reg>,
    pub mask: Option<Reg>,
}

/// Loads the parameters for bias and mask and moves them to the batch and the head.
pub(super) fn array_address(
    k: &mut PtxBuilder,
    base: Reg,
    batch: Reg,
    head: Reg,
    strides: ScoreStrides,
    size: u64,
) -> Reg {
    let batch = super::tiles::wide(k, batch);
    let head = super::tiles::wide(k, head);
    let [batch_bytes, head_bytes] = [strides.batch, strides.head].map(|stride| k.size64(size * stride));
    let first = def!(k, B64, "mad.lo.s64", batch, batch_bytes, base);
    def!(k, B64, "mad.lo.s64", head, head_bytes, first)
}

impl BiasType {
    pub(super) fn bytes(self) -> u64 {
        match self {
            BiasType::F32 => 4,
            BiasType::Bf16 | BiasType::F16 => 2,
        }
    }
}

impl ScoreRules {
    /// Rules for tiles whose rows are queries, or keys if `transposed`.
    pub(super) fn new(
        shape: &AttentionShape,
        arrays: ScoreArrays,
        transposed: bool,
        column_bound: Option<u32>,
    ) -> Self {
        let log2e = std::f32::consts::LOG2_E;
        let skips = shape.skips_masked_tiles();
        let scales_first = shape.bias.is_some() || shape.soft_cap.is_some();
        let (prescale, exponent_factor) =
            if scales_first { (Some(shape.scale), log2e) } else { (None, shape.scale * log2e) };
        let masked = match (skips, scales_first) {
            (true, _) => f32::NEG_INFINITY,
            (false, true) => shape.masked_score.max(LOWEST),
            (false, false) => (shape.masked_score / shape.scale).max(LOWEST),
        };
        let strides = |s: ScoreStrides| if transposed { (s.key, s.query) } else { (s.query, s.key) };
        let (lower, upper) = match transposed {
            false => (shape.band.lower, shape.band.upper),
            true => (shape.band.upper.map(|x| -x), shape.band.lower.map(|x| -x)),
        };
        let (rows, columns) = match transposed {
            false => (shape.query_length, shape.kv_length),
            true => (shape.kv_length, shape.query_length),
        };
        ScoreRules {
            lower,
            upper,
            column_bound,
            masked,
            prescale,
            soft_cap: shape.soft_cap,
            exponent_factor,
            bias: shape.bias.zip(arrays.bias).map(|((kind, s), reg)| (kind, reg, strides(s).0, strides(s).1)),
            positions: shape.bias_positions.map(|p| match transposed {
                false => p,
                true => PositionFactor { query: p.key, key: p.query, ..p },
            }),
            mask: shape.mask.zip(arrays.mask).map(|(s, reg)| (reg, strides(s).0, strides(s).1)),
            rows,
            columns,
        }
    }

    /// What scores are multiplied by in the exponent of two.
    pub(super) fn exponent_factor(&self, k: &mut PtxBuilder) -> Reg {
        k.size_f32(self.exponent_factor)
    }

    /// What a masked score becomes, in the units that scores are kept in.
    pub(super) fn masked_score(&self, k: &mut PtxBuilder) -> Reg {
        k.size_f32(self.masked)
    }

    /// Whether scores can be finite and so large that rounding of their multiples matters.
    pub(super) fn has_huge_scores(&self) -> bool {
        let banded = self.lower.is_some() || self.upper.is_some() || self.mask.is_some();
        self.bias.is_some() || (banded && self.masked.is_finite())
    }

    /// Adjusts a tile: `row` and `column` are the numbers of the first row of the warpgroup's and of the tile's first
    /// column.
    pub(super) fn apply(&self, k: &mut PtxBuilder, fragment: &Fragment, sums: &[Reg], row: Reg, column: Reg) {
        let width = sums.len() as i64 * 2;
        match (self.prescale, self.soft_cap) {
            (Some(scale), Some(cap)) => soft_cap(k, sums, scale, cap),
            (Some(scale), None) => {
                let scale = k.size_f32(scale);
                for &sum in sums {
                    emit!(k, "mul.f32", sum, sum, scale);
                }
            }
            (None, _) => {}
        }
        self.add_bias(k, fragment, sums, row, column);
        self.apply_mask(k, fragment, sums, row, column);
        // Most tiles lie inside of all limits.
        let done = k.label();
        let mut outside = Vec::new();
        if let Some(upper) = self.upper {
            let reach = k.size32(upper - (width - 1));
            let last = def!(k, B32, "add.s32", row, reach);
            outside.push(def!(k, Pred, "setp.gt.s32", column, last));
        }
        if let Some(lower) = self.lower {
            let reach = k.size32(lower + 63);
            let first = def!(k, B32, "add.s32", row, reach);
            outside.push(def!(k, Pred, "setp.lt.s32", column, first));
        }
        if let Some(bound) = self.column_bound {
            let last = k.size32(i64::from(bound) - width);
            outside.push(def!(k, Pred, "setp.gt.s32", column, last));
        }
        let Some((&first, rest)) = outside.split_first() else { return };
        for &other in rest {
            emit!(k, "or.pred", first, first, other);
        }
        k.branch_uniform_unless(first, done);
        let thread_column = def!(k, B32, "add.s32", column, fragment.column);
        let thread_row = def!(k, B32, "add.s32", row, fragment.row);
        let relative = def!(k, B32, "sub.s32", thread_row, thread_column);
        if let Some(upper) = self.upper {
            let limits = self.limits(k, relative, upper);
            let masked = self.masked_score(k);
            mask_where(k, sums, "setp.lt.s32", limits, masked);
        }
        if let Some(lower) = self.lower {
            let limits = self.limits(k, relative, lower);
            let masked = self.masked_score(k);
            mask_where(k, sums, "setp.gt.s32", limits, masked);
        }
        if let Some(bound) = self.column_bound {
            let last_column = k.size32(i64::from(bound) - 1);
            let last = def!(k, B32, "sub.s32", last_column, thread_column);
            mask_where(k, sums, "setp.lt.s32", [last, last], Float(f32::NEG_INFINITY));
        }
        k.place(done);
    }

    /// The columns of the thread's tile, from its first on, at which a side of the band cuts its two rows.
    fn limits(&self, k: &mut PtxBuilder, relative: Reg, side: i64) -> [Reg; 2] {
        let side = k.size32(side);
        let first = def!(k, B32, "add.s32", relative, side);
        [first, def!(k, B32, "add.s32", first, 8)]
    }

    /// The addresses of this thread's first element in both of its rows; rows that do not exist read the last one.
    fn row_addresses(
        &self,
        k: &mut PtxBuilder,
        fragment: &Fragment,
        (base, row_stride, column_stride): (Reg, u64, u64),
        row: Reg,
        column: Reg,
    ) -> Vec<Reg> {
        let thread_column = def!(k, B32, "add.s32", column, fragment.column);
        let along = def!(k, B64, "mul.wide.u32", thread_column, column_stride);
        let moved = def!(k, B64, "add.s64", base, along);
        let row_stride = k.size64(row_stride);
        let last_row = k.size32(i64::from(self.rows) - 1);
        [0, 8]
            .iter()
            .map(|below| {
                let here = def!(k, B32, "add.s32", row, fragment.row);
                let shifted = def!(k, B32, "add.s32", here, below);
                let clamped = def!(k, B32, "min.u32", shifted, last_row);
                let wide = def!(k, B64, "cvt.u64.u32", clamped);
                def!(k, B64, "mad.lo.s64", wide, row_stride, moved)
            })
            .collect()
    }

    /// A predicate for each column pair's elements: whether the column exists.
    fn existing(&self, k: &mut PtxBuilder, fragment: &Fragment, column: Reg) -> Reg {
        let thread_column = def!(k, B32, "add.s32", column, fragment.column);
        let last = k.size32(i64::from(self.columns) - 1);
        def!(k, B32, "sub.s32", last, thread_column)
    }

    /// Adds a slope times positions: the numbers of a thread's elements differ by what is known here, so that each takes
    /// an addition, and the slope is read once.
    fn add_slope(
        &self,
        k: &mut PtxBuilder,
        fragment: &Fragment,
        sums: &[Reg],
        (row, column): (Reg, Reg),
        slope: Reg,
        positions: &PositionFactor,
    ) {
        let scale = k.size_f32(positions.scale);
        let slope = def!(k, F32, "mul.f32", slope, scale);
        let thread_row = def!(k, B32, "add.s32", row, fragment.row);
        let thread_column = def!(k, B32, "add.s32", column, fragment.column);
        let constant = k.size32(positions.constant.into());
        let of_column = def!(k, B32, "mad.lo.s32", thread_column, positions.key, constant);
        let halves = [0, 8].map(|below| {
            let below = def!(k, B32, "add.s32", thread_row, below);
            let sum = def!(k, B32, "mad.lo.s32", below, positions.query, of_column);
            def!(k, F32, "cvt.rn.f32.s32", sum)
        });
        for (i, &sum) in sums.iter().enumerate() {
            let beside = (8 * (i / 4) + i % 2) as f32 * positions.key as f32;
            let place = def!(k, F32, "add.f32", halves[i % 4 / 2], Float(beside));
            if positions.is_absolute {
                emit!(k, "abs.f32", place, place);
            }
            emit!(k, "mul.f32", place, place, slope);
            emit!(k, "add.f32", sum, sum, place);
        }
    }

    fn add_bias(&self, k: &mut PtxBuilder, fragment: &Fragment, sums: &[Reg], row: Reg, column: Reg) {
        let Some((kind, base, row_stride, column_stride)) = self.bias else { return };
        if let Some(positions) = &self.positions {
            let slope = load_number(k, kind, at(base, 0), None);
            return self.add_slope(k, fragment, sums, (row, column), slope, positions);
        }
        let size = kind.bytes();
        let place = (base, size * row_stride, size * column_stride);
        let rows = self.row_addresses(k, fragment, place, row, column);
        let last = self.existing(k, fragment, column);
        for (i, &sum) in sums.iter().enumerate() {
            let position = (8 * (i / 4) + i % 2) as i64;
            let from = at(rows[i % 4 / 2], position * (size * column_stride) as i64);
            let exists = def!(k, Pred, "setp.ge.s32", last, position);
            let value = load_number(k, kind, from, Some(exists));
            emit!(k, "add.f32", sum, sum, value);
            // The lowest finite bias hides a key; its multiple must stay finite.
            let hidden = def!(k, Pred, "setp.eq.f32", sum, Float(f32::NEG_INFINITY));
            let raised = def!(k, F32, "max.NaN.f32", sum, Float(LOWEST));
            emit!(k, "selp.f32", sum, sum, raised, hidden);
        }
    }

    fn apply_mask(&self, k: &mut PtxBuilder, fragment: &Fragment, sums: &[Reg], row: Reg, column: Reg) {
        let Some(place) = self.mask else { return };
        let rows = self.row_addresses(k, fragment, place, row, column);
        let last = self.existing(k, fragment, column);
        let masked = self.masked_score(k);
        for (i, &sum) in sums.iter().enumerate() {
            let position = (8 * (i / 4) + i % 2) as i64;
            let from = at(rows[i % 4 / 2], position * place.2 as i64);
            let exists = def!(k, Pred, "setp.ge.s32", last, position);
            let seen = def!(k, B32, "mov.u32", 0);
            k.guarded(exists, true, |k| emit!(k, "ld.global.nc.u8", seen, from));
            let hidden = def!(k, Pred, "setp.eq.u32", seen, 0);
            emit!(k, "selp.f32", sum, masked, sum, hidden);
        }
    }
}

/// Makes scores cap · tanh(scale · score / cap), as cap − 2 cap / (1 + exp(2 scale / cap · score)): what that loses beside
/// tanh itself is small against the cap, and a weight is the exponential of a difference. `tanh.approx` has eleven bits,
/// too few for scores of tens.
fn soft_cap(k: &mut PtxBuilder, sums: &[Reg], scale: f32, cap: f32) {
    let exponent = k.size_f32(2.0 * std::f32::consts::LOG2_E * scale / cap);
    let [limit, twice] = [cap, -2.0 * cap].map(|value| k.size_f32(value));
    for &sum in sums {
        emit!(k, "mul.f32", sum, sum, exponent);
        emit!(k, "ex2.approx.ftz.f32", sum, sum);
        emit!(k, "add.f32", sum, sum, Float(1.0));
        emit!(k, "rcp.approx.ftz.f32", sum, sum);
        emit!(k, "fma.rn.f32", sum, sum, twice, limit);
    }
}

/// Loads a number; 0 where it does not exist.
fn load_number(k: &mut PtxBuilder, kind: BiasType, from: Address, exists: Option<Reg>) -> Reg {
    let load = |k: &mut PtxBuilder, instruction: &str, to: Reg| match exists {
        Some(exists) => k.guarded(exists, true, |k| emit!(k, instruction, to, from)),
        None => emit!(k, instruction, to, from),
    };
    match kind {
        BiasType::F32 => {
            let value = def!(k, F32, "mov.f32", Float(0.0));
            load(k, "ld.global.nc.f32", value);
            value
        }
        BiasType::Bf16 => {
            let bits = def!(k, B32, "mov.u32", 0);
            load(k, "ld.global.nc.u16", bits);
            let shifted = def!(k, B32, "shl.b32", bits, 16);
            def!(k, F32, "mov.b32", shifted)
        }
        BiasType::F16 => {
            let bits = def!(k, B16, "mov.b16", 0);
            load(k, "ld.global.nc.b16", bits);
            def!(k, F32, "cvt.f32.f16", bits)
        }
    }
}

/// Replaces scores whose column, compared with the row's limit, meets the condition.
fn mask_where(k: &mut PtxBuilder, sums: &[Reg], condition: &str, limits: [Reg; 2], value: impl std::fmt::Display) {
    for (i, &sum) in sums.iter().enumerate() {
        let column = 8 * (i / 4) + i % 2;
        let hidden = def!(k, Pred, condition, limits[i % 4 / 2], column);
        emit!(k, "selp.f32", sum, value, sum, hidden);
    }
}
