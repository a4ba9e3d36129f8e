//! Products on a machine that cuts them into windows: cycles of given windows, and the search for the best.
//!
//! Windows are taken along columns outermost, then rows, then what is summed. Every step computes one window while the
//! operands of the next are copied in, where they change, and the result before it is copied out: it takes the longer of
//! the arithmetic and all copies. What is fused with a product runs on the vector units beside the matrix units.

use crate::dumped::WindowConfig;
use crate::kernel::{ArrayUse, Kernel};
use crate::matmul::{Matmul, Part, Producer};
use crate::window_sizes::{self, LANES, RowCuts, SUBLANES};
use crate::windows::{Cycles, Machine, TILE, TILE_BYTES, in_memory};
use hloom_ir::ElementType;
use hloom_ir::diagnostic::Diagnostic;

/// Features of an input that are so few are packed with the positions of the window, which are filled up to 8 each.
const PACKED_FEATURES: f64 = 4.0;
/// What a packed position takes.
const PACKED_POSITION: f64 = 16.0;
/// The same of units of this size, for each position there is.
const SMALL_UNIT: f64 = 128.0;
const SMALL_PACKED_POSITION: f64 = 36.0;
/// Rows of images that are packed are filled up to a tile of narrow elements.
const PACKED_ROWS: f64 = 16.0;
/// How many cuts of rows are tried beyond the fewest that fit.
const ROW_CUTS: usize = 8;

/// The windows of a product: rows, columns and contracted elements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MatmulWindows {
    /// How many products of the batch are in a window.
    pub batch: f64,
    /// Rows of a window of the result.
    pub rows: f64,
    /// How many of them are along the innermost dimension that rows are counted over.
    pub inner_rows: f64,
    /// Columns of a window of the result.
    pub columns: f64,
    /// Elements that are summed in a window.
    pub contracted: f64,
}

/// How many windows a product takes along each of its dimensions, and how large they are.
#[derive(Clone, Copy)]
struct WindowCounts {
    batch: f64,
    rows: f64,
    columns: f64,
    contracted: f64,
    windows: MatmulWindows,
}

/// What a product reads and writes in main memory, by side.
struct Sides {
    lhs: f64,
    rhs: f64,
    others: f64,
    written: f64,
    /// Whether a result of 32 bits takes what the matrix units make, so that nothing is converted.
    is_wide: bool,
    /// Bytes in main memory for each element of a side: of all arrays that it is made of.
    lhs_held: f64,
    rhs_held: f64,
    result_held: f64,
    /// Cycles of the matrix units for the whole.
    fed: f64,
    /// The same for products in front of each side, which are made again with every window.
    lhs_fed: f64,
    rhs_fed: f64,
    /// Cycles of the vector units in front of each side and behind the product.
    lhs_work: f64,
    rhs_work: f64,
    behind: f64,
    result_tiles: f64,
    start: f64,
}

impl Machine<'_> {
    /// A product with what is fused with it; `None` if there is none.
    pub(crate) fn product(&self, kernel: &Kernel, known: Option<&WindowConfig>) -> Result<Option<Cycles>, Diagnostic> {
        // Windows are those of the last, which the others are made for.
        let Some((last, inner)) = kernel.work.matmuls.split_last() else { return Ok(None) };
        let rate = |p: &Matmul| Ok(self.target.matmul_rate(p.lhs_type, p.is_highest)? / self.clock / self.cores);
        let mut sides = self.sides(kernel, last, rate(last)?);
        for (n, p) in inner.iter().enumerate() {
            // What is asked for in two places is made once.
            if inner[n + 1..].iter().chain([last]).any(|other| other == p) {
                continue;
            }
            let fed = self.fed(p, rate(p)?);
            match last.rhs.has_product && !last.lhs.has_product {
                true => sides.rhs_fed += fed,
                false => sides.lhs_fed += fed,
            }
            sides.start += self.model.matmul_start + self.model.window_start;
        }
        let counts = known.and_then(|config| WindowCounts::of(config, last));
        Ok(Some(match counts {
            Some(counts) => self.windowed(&sides, counts),
            None => self.search(&sides, last),
        }))
    }

    /// Cycles of a core's matrix units, with every dimension filled up to what they take.
    fn fed(&self, p: &Matmul, rate: f64) -> f64 {
        let m = &self.model;
        if p.groups > 1.0 && p.inputs <= 1.0 {
            // Each feature by itself: the vector units multiply.
            return m.matmul_tap * p.fed * p.rows * up(p.columns, LANES) / TILE;
        }
        let is_bytes = p.lhs_type.bits() == 8;
        let group = if is_bytes { m.matmul_bytes } else { 1.0 };
        let is_packed = p.has_taps && p.inputs <= PACKED_FEATURES;
        // Where a window slides over rows, its positions are lined up; where zeros are between them, each is by itself.
        let contracted = match p.has_taps {
            true if is_packed && self.unit > SMALL_UNIT => p.taps * PACKED_POSITION,
            true if is_packed => p.fed / p.inputs * SMALL_PACKED_POSITION,
            true if p.has_holes => p.fed / p.inputs * up(p.inputs, self.unit),
            true => p.fed,
            false => up(p.fed, self.unit * group),
        };
        let images =
            if is_packed && self.unit > SMALL_UNIT { up(p.inner_rows, PACKED_ROWS) / p.inner_rows } else { 1.0 };
        let streamed = |n: f64| up(n, SUBLANES).max(m.matmul_rows * group);
        let (rows, columns) = match p.has_rows_fastest() {
            true => (up(p.rows, self.unit), streamed(p.columns)),
            false if p.is_rhs_across => (streamed(p.rows * images), up(p.columns, self.unit)),
            false => (streamed(p.rows * images), p.columns / p.features * up(p.features, self.unit)),
        };
        let is_small = p.columns <= self.unit / 4.0 || p.fed <= self.unit / 4.0;
        // The large units work on two small products at once.
        let is_halved = self.unit > SMALL_UNIT && is_small && !p.has_taps && !p.is_lhs_across && !p.has_rows_fastest();
        let units = 2.0 * p.batch * rows * columns * contracted / rate * if is_halved { 0.5 } else { 1.0 };
        units + m.matmul_weights * p.batch * columns * contracted / TILE
    }

    fn sides(&self, kernel: &Kernel, p: &Matmul, rate: f64) -> Sides {
        let m = &self.model;
        let all: f64 = in_memory(&kernel.operands).sum();
        let (lhs_elements, rhs_elements) = (p.rows * p.contracted * p.batch, p.columns * p.contracted * p.batch);
        let lhs = side(kernel, &p.lhs, lhs_elements * bytes_of(p.lhs_type), 0);
        let rhs = side(kernel, &p.rhs, rhs_elements * bytes_of(p.rhs_type), 1);
        let elements = p.batch * p.rows * p.columns;
        let mut behind = kernel.work.elementwise;
        behind -= p.lhs.work;
        behind -= p.rhs.work;
        let group = if p.lhs_type.bits() == 8 { m.matmul_bytes } else { 1.0 };
        let written = self.written(kernel);
        Sides {
            lhs,
            rhs,
            others: (all - lhs - rhs).max(0.0),
            written,
            is_wide: kernel.results.iter().any(|a| self.is_taken(a, elements)),
            lhs_held: lhs / lhs_elements,
            rhs_held: rhs / rhs_elements,
            result_held: written / elements,
            fed: self.fed(p, rate),
            lhs_fed: 0.0,
            rhs_fed: 0.0,
            lhs_work: self.units_beside(&p.lhs.work),
            rhs_work: self.units_beside(&p.rhs.work),
            behind: self.units_beside(&behind),
            result_tiles: p.batch * (p.rows / SUBLANES).ceil() * (p.columns / LANES).ceil(),
            start: m.matmul_start * group,
        }
    }

    /// The cycles of the best windows that fit.
    fn search(&self, sides: &Sides, p: &Matmul) -> Cycles {
        let cuts = RowCuts::new(p);
        let (columns, contracted) = (window_sizes::columns(p), window_sizes::contracted(p));
        let mut best: Option<Cycles> = None;
        for batch in window_sizes::divisors(p.batch.max(1.0) as u64) {
            let each = p.batch / batch as f64;
            for &columns in &columns {
                for &contracted in &contracted {
                    // Products are cut themselves where one by itself is too large.
                    let is_whole = columns >= p.columns && contracted >= p.contracted;
                    if each > 1.0 && !is_whole {
                        continue;
                    }
                    let room = sides.most_rows(columns, contracted, self.model.scoped_bytes / each);
                    for cut in cuts.no_larger(room).take(ROW_CUTS) {
                        if each > 1.0 && cut.count > 1.0 {
                            break;
                        }
                        let (rows, inner_rows) = (cut.rows, cut.inner);
                        let windows = MatmulWindows { batch: each, rows, inner_rows, columns, contracted };
                        let counts = WindowCounts {
                            batch: batch as f64,
                            rows: cut.count,
                            columns: (p.columns / columns).ceil(),
                            contracted: (p.contracted / contracted).ceil(),
                            windows,
                        };
                        if counts.total() < self.cores && best.is_some() {
                            continue;
                        }
                        let found = self.windowed(sides, counts);
                        if best.as_ref().is_none_or(|b| found.total < b.total) {
                            best = Some(found);
                        }
                    }
                }
            }
        }
        best.unwrap_or_else(|| self.windowed(sides, WindowCounts::smallest(p)))
    }

    /// The cycles of these windows.
    fn windowed(&self, s: &Sides, n: WindowCounts) -> Cycles {
        let m = &self.model;
        let results = n.batch * n.rows * n.columns;
        let count = results * n.contracted;
        let copy = |bytes: f64, parts: f64| {
            if bytes > 0.0 { m.operand_start + bytes / parts / self.memory } else { 0.0 }
        };
        let (lhs_windows, rhs_windows) = (n.batch * n.rows * n.contracted, n.batch * n.columns * n.contracted);
        let (lhs, rhs) = (copy(s.lhs, lhs_windows), copy(s.rhs, rhs_windows));
        let others = s.others / results / self.memory;
        let vector = s.lhs_work / lhs_windows + s.rhs_work / rhs_windows + s.behind / results;
        let inner = s.lhs_fed / lhs_windows + s.rhs_fed / rhs_windows;
        let compute = s.start + inner + (s.fed / count).max(vector);
        let tiles = s.result_tiles / results;
        let converted = if s.is_wide { 0.0 } else { tiles * TILE_BYTES };
        let out = match s.is_wide && s.written <= 0.0 {
            true => 0.0,
            false => m.window_start + (converted + s.written / results) / self.memory,
        };
        let summed = if n.contracted > 1.0 { m.matmul_accumulate * tiles } else { 0.0 };
        // Cores share the windows along the outermost dimension that has several.
        let share = |n: f64| (n / self.cores).ceil();
        let (mut batch, mut columns, mut rows, mut contracted) = (n.batch, n.columns, n.rows, n.contracted);
        match self.cores > 1.0 {
            true if batch > 1.0 => batch = share(batch),
            true if columns > 1.0 => columns = share(columns),
            true if rows > 1.0 => rows = share(rows),
            true => contracted = share(contracted),
            false => {}
        }
        let is_cut = n.contracted > 1.0;
        let when = |is_fetched: bool, cycles: f64| if is_fetched { cycles } else { 0.0 };
        let along = batch * columns * rows * (contracted - 1.0) * compute.max(lhs + rhs);
        let next_rows = compute.max(lhs + when(is_cut, rhs) + others + out);
        let next_columns = compute.max(rhs + when(is_cut || n.rows > 1.0, lhs) + others + out);
        let next_batch = compute.max(lhs + rhs + others + out);
        let steps = along
            + batch * columns * (rows - 1.0) * next_rows
            + batch * (columns - 1.0) * next_columns
            + (batch - 1.0) * next_batch;
        let total = lhs + rhs + others + compute + out + summed + steps;
        let memory = (lhs + rhs) * count + (others + out) * results;
        let start = s.start + m.window_start;
        Cycles { total, compute: compute * count, memory, start, windows: Some(n.windows), count, held: s.held(n) }
    }
}

impl WindowCounts {
    fn total(&self) -> f64 {
        self.batch * self.rows * self.columns * self.contracted
    }

    /// Windows of a tile.
    fn smallest(p: &Matmul) -> WindowCounts {
        let (rows, columns) = (p.rows.min(SUBLANES), p.columns.min(LANES));
        let contracted = p.contracted.min(LANES);
        let windows = MatmulWindows { batch: 1.0, rows, inner_rows: rows.min(p.inner_rows), columns, contracted };
        WindowCounts {
            batch: p.batch,
            rows: (p.rows / rows).ceil(),
            columns: (p.columns / columns).ceil(),
            contracted: (p.contracted / contracted).ceil(),
            windows,
        }
    }

    /// The windows that a compiler wrote down, by the dimensions of the result. `None` where they are not those of the
    /// product's result.
    fn of(config: &WindowConfig, p: &Matmul) -> Option<WindowCounts> {
        if config.output.len() != p.result_parts.len() {
            return None;
        }
        let (mut batch, mut rows, mut columns) = (1.0, 1.0, 1.0);
        let last = p.result_parts.len();
        for (d, (&(part, size), &window)) in p.result_parts.iter().zip(&config.output).enumerate() {
            let tile = match last - d {
                1 => LANES,
                2 => SUBLANES,
                _ => 1.0,
            };
            let cuts = ((size / tile).ceil() / window.max(1) as f64).ceil().max(1.0);
            match part {
                Part::Batch => batch *= cuts,
                Part::Rows => rows *= cuts,
                Part::Columns => columns *= cuts,
            }
        }
        let contracted = (config.count() / (batch * rows * columns)).round();
        let is_possible = contracted >= 1.0 && contracted <= p.contracted.max(1.0);
        let windows = MatmulWindows {
            batch: p.batch / batch,
            rows: p.rows / rows,
            inner_rows: p.inner_rows.min(p.rows / rows),
            columns: p.columns / columns,
            contracted: p.contracted / contracted,
        };
        is_possible.then_some(WindowCounts { batch, rows, columns, contracted, windows })
    }
}

impl Sides {
    /// The bytes of fast memory that such windows take: two of each array of which there are several, so that the next is
    /// copied behind this one, and what the matrix units add up where the result is of another type.
    fn held(&self, n: WindowCounts) -> f64 {
        let w = n.windows;
        let twice = |is_cut: bool| if is_cut { 2.0 } else { 1.0 };
        let lhs = w.batch * w.rows * w.contracted * self.lhs_held;
        let rhs = w.batch * w.contracted * w.columns * self.rhs_held;
        let result = w.batch * w.rows * w.columns;
        let summed = if self.is_wide {
            0.0
        } else if n.contracted > 1.0 {
            4.0
        } else {
            0.0
        };
        let is_cut = n.batch * n.rows * n.columns > 1.0;
        lhs * twice(n.batch * n.rows * n.contracted > 1.0)
            + rhs * twice(n.batch * n.columns * n.contracted > 1.0)
            + result * (self.result_held * twice(is_cut) + summed)
    }

    /// The most rows of windows that take no more than `bytes`, if there are several along every dimension.
    fn most_rows(&self, columns: f64, contracted: f64, bytes: f64) -> f64 {
        let row = 2.0 * contracted * self.lhs_held + 4.0 * columns * if self.written > 0.0 { 2.0 } else { 1.0 };
        (bytes - 2.0 * contracted * columns * self.rhs_held) / row
    }
}

/// Bytes in main memory that go into one side of a product. What is much smaller than the operand itself (a vector that
/// is broadcast) is not cut into windows with it.
fn side(kernel: &Kernel, producer: &Producer, operand: f64, own: u32) -> f64 {
    let is_here = |a: &&ArrayUse| match producer.parameters.is_empty() {
        true => a.index == own,
        false => producer.parameters.contains(&a.index),
    };
    let parts = kernel.operands.iter().filter(is_here).filter(|a| a.space == 0 && a.bytes > 0.1 * operand);
    parts.map(|a| a.bytes).sum()
}

fn bytes_of(element_type: ElementType) -> f64 {
    f64::from(element_type.bits()) / 8.0
}

fn up(n: f64, granule: f64) -> f64 {
    (n / granule).ceil() * granule
}
