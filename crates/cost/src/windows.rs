//! Cycles of kernels that are cut into windows: each is copied into fast memory, computed on and copied back, and the
//! copies of the next go on behind the arithmetic of this one.
//!
//! The formulas and their constants ([`hloom_target::WindowModel`]) come from fits to a compiler's own estimates. What
//! lies in fast memory already costs no copy. Where the windows are known (the compiler wrote them down) they are used;
//! otherwise the best are searched, as the compiler does.

use crate::dumped::WindowConfig;
use crate::kernel::{ArrayUse, Kernel, KernelKind};
use crate::matmul::{Matmul, Producer};
use crate::model::InstructionCost;
use crate::window_sizes::{self, RowCuts};
use crate::work::Elementwise;
use hloom_ir::ElementType;
use hloom_ir::diagnostic::Diagnostic;
use hloom_target::{Target, WindowModel};

/// Elements of a tile.
const TILE: f64 = 1024.0;
/// Tiles in each window of a large unfused instruction.
const SINGLE_WINDOW_TILES: f64 = 128.0;
/// Bytes of a tile of elements of 32 bits.
const TILE_BYTES: f64 = 4096.0;
/// How often the window of an array in main memory is held by it.
const SINGLE_COPIES: f64 = 6.0;
/// Cycles for each window of a large product.
const WINDOW: f64 = 400.0;
/// What each tile of an f32 operand costs when it is converted again for another window of columns.
const RECONVERT_TILE: f64 = 2.3;
/// What each tile of the second operand costs when the matrix units take it again for another window of rows.
const REFILL_TILE: f64 = 1.4;
/// What each element-wise operation that is fused with a large product costs on a tile: most of it is hidden.
const FUSED_TILE: f64 = 0.15;
/// The same where it is done again for another window, which the matrix units wait for.
const REPEATED_TILE: f64 = 1.0;
/// Cycles for each piece that is contiguous in main memory, where a window is narrower than the array.
const PIECE: f64 = 3.63;

/// The windows of a product: rows, columns and contracted elements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MatmulWindows {
    /// Rows of a window of the result.
    pub rows: f64,
    /// How many of them are along the innermost dimension that rows are counted over.
    pub inner_rows: f64,
    /// Columns of a window of the result.
    pub columns: f64,
    /// Elements that are summed in a window.
    pub contracted: f64,
}

/// What the formulas need of the machine, in cycles.
pub(crate) struct Machine<'t> {
    target: &'t Target,
    model: WindowModel,
    clock: f64,
    /// Bytes a cycle of main memory.
    memory: f64,
    unit: f64,
}

/// Cycles, and what of them the units and the memory are busy.
struct Cycles {
    total: f64,
    compute: f64,
    memory: f64,
    start: f64,
    windows: Option<MatmulWindows>,
    /// How many windows there are, and the bytes of fast memory that they take.
    count: f64,
    held: f64,
}

impl<'t> Machine<'t> {
    pub(crate) fn new(target: &'t Target, model: WindowModel) -> Result<Machine<'t>, Diagnostic> {
        let clock = target.clock()?;
        let unit = target.compute.matrix_unit.unwrap_or(128) as f64;
        Ok(Machine { target, model, clock, memory: target.bandwidth(0)? / clock, unit })
    }

    /// What a kernel costs, with the windows that are known of it.
    pub(crate) fn cost(&self, kernel: &Kernel, known: Option<&WindowConfig>) -> Result<InstructionCost, Diagnostic> {
        let cycles = match kernel.kind {
            KernelKind::Free | KernelKind::Scalar => return Ok(InstructionCost::free()),
            KernelKind::Single => self.single(kernel, known),
            KernelKind::Loop => self.fused_loop(kernel, known),
            KernelKind::Relayout => self.relayout(kernel),
            KernelKind::Copy => self.copy(kernel),
            KernelKind::Matmul => self.matmul(kernel, known)?,
        };
        Ok(InstructionCost {
            seconds: cycles.total / self.clock,
            cycles: Some(cycles.total),
            compute_seconds: cycles.compute / self.clock,
            memory_seconds: cycles.memory / self.clock,
            latency_seconds: cycles.start / self.clock,
            peak_seconds: InstructionCost::at_peak(&kernel.work, self.target)?,
            flops: kernel.work.flops(),
            matmul_flops: kernel.work.matmul_flops(),
            bytes: kernel.bytes_in(0),
            windows: cycles.windows,
            window_count: cycles.count,
            held_bytes: cycles.held,
        })
    }

    /// One instruction on its own: its windows are not overlapped.
    fn single(&self, kernel: &Kernel, known: Option<&WindowConfig>) -> Cycles {
        let m = &self.model;
        let all = || kernel.operands.iter().chain(&kernel.results);
        let tiles = all().map(|a| a.tiles).fold(0.0, f64::max);
        let stream = self.memory * m.single_stream;
        let is_narrow = all().any(|a| a.element_type.bits() < 32);
        let windows = match known {
            Some(config) => config.count(),
            None if kernel.bytes() <= m.single_limit => 1.0,
            None => (tiles / SINGLE_WINDOW_TILES).ceil(),
        };
        // Windows and reductions go through the vector units as slowly as tiles come from main memory, wherever they lie.
        let streamed = tiles * TILE_BYTES / stream;
        if windows <= 1.0 {
            let memory = kernel.bytes_in(0) / stream;
            let compute = match kernel.work.elementwise.reduced > 0.0 {
                true => streamed,
                false => tiles * if is_narrow { m.single_narrow_tile } else { m.single_tile },
            };
            return Cycles {
                total: m.single_first + memory + compute,
                compute,
                memory,
                start: m.single_first,
                windows: None,
                count: 1.0,
                held: kernel.bytes_in(0),
            };
        }
        let narrow_results = |a: &&ArrayUse| a.space == 0 && a.element_type.bits() < 32;
        let read: f64 = in_memory(&kernel.operands).sum::<f64>();
        let written: f64 = kernel.results.iter().filter(narrow_results).map(|a| a.bytes).sum();
        let (memory, compute) = ((read + written) / stream, streamed);
        let start = windows * m.single_start;
        let held = SINGLE_COPIES * kernel.bytes_in(0) / windows;
        Cycles { total: start + memory + compute, compute, memory, start, windows: None, count: windows, held }
    }

    /// A fusion without products: copies and arithmetic of different windows overlap.
    fn fused_loop(&self, kernel: &Kernel, known: Option<&WindowConfig>) -> Cycles {
        let m = &self.model;
        let w = kernel.work.elementwise;
        let units = w.simple + m.loop_convert * w.convert + m.loop_transcendental * w.transcendental;
        let compute = (m.loop_simple * units + m.loop_reduce * w.reduced) / TILE;
        let memory = kernel.bytes_in(0) / (self.memory * m.loop_stream);
        let windows = (kernel.bytes() / m.window_bytes).max(1.0);
        let count = known.map_or(windows.ceil(), WindowConfig::count);
        let start = m.loop_start + m.loop_window * (count - 1.0).max(0.0);
        let total = start + compute.max(memory) + compute.min(memory) / windows;
        Cycles { total, compute, memory, start, windows: None, count, held: self.held(kernel, count) }
    }

    fn relayout(&self, kernel: &Kernel) -> Cycles {
        let m = &self.model;
        let memory = kernel.bytes_in(0) / (self.memory * m.relayout_stream);
        let compute = m.relayout_tile * kernel.results.iter().map(|a| a.tiles).sum::<f64>();
        let (start, count) = (m.relayout_start, (kernel.bytes() / m.window_bytes).ceil().max(1.0));
        let held = self.held(kernel, count);
        Cycles { total: start + memory + compute, compute, memory, start, windows: None, count, held }
    }

    /// One stream through memory: nothing is computed.
    fn copy(&self, kernel: &Kernel) -> Cycles {
        let m = &self.model;
        let memory = kernel.bytes_in(0) / (self.memory * m.loop_stream);
        let (start, count) = (m.loop_start, (kernel.bytes() / m.window_bytes).ceil().max(1.0));
        let held = self.held(kernel, count);
        Cycles { total: start + memory, compute: 0.0, memory, start, windows: None, count, held }
    }

    fn matmul(&self, kernel: &Kernel, known: Option<&WindowConfig>) -> Result<Cycles, Diagnostic> {
        let Some((first, further)) = kernel.work.matmuls.split_first() else {
            return Ok(self.fused_loop(kernel, known));
        };
        let rate = self.target.matmul_rate(first.lhs_type, first.is_highest)? / self.clock;
        let mut cycles = None;
        if kernel.bytes() > self.model.search_from {
            let sides = Sides::new(kernel, first);
            let counts = known.and_then(|config| WindowCounts::of(config, kernel, first));
            cycles = match counts {
                Some(counts) => Some(self.windowed(&sides, first, rate, counts)),
                None => self.search(&sides, first, rate),
            };
        }
        let mut cycles = cycles.unwrap_or_else(|| self.closed_form(kernel, first, rate));
        // The further products of a fusion run with everything in fast memory.
        let more: f64 = further.iter().map(|m| m.flops).sum::<f64>() / (rate * self.model.matmul_share);
        cycles.total += more;
        cycles.compute += more;
        Ok(cycles)
    }

    /// Multiplications and additions with every dimension filled up to what the matrix units take.
    fn padded_flops(&self, p: &Matmul) -> f64 {
        2.0 * p.batch * up(p.rows, 8.0) * up(p.columns, self.unit) * up(p.contracted, self.unit)
    }

    /// A product that takes few windows.
    fn closed_form(&self, kernel: &Kernel, p: &Matmul, rate: f64) -> Cycles {
        let m = &self.model;
        let windows = (kernel.bytes() / m.window_bytes).max(1.0);
        let result_tiles = p.batch * (p.rows / 8.0).ceil() * (p.columns / 128.0).ceil();
        let is_narrow = p.result_type != ElementType::F32;
        let is_f32 = |t: ElementType| if t == ElementType::F32 { 1.0 } else { 0.0 };
        let f32_tiles = p.batch * p.contracted * (is_f32(p.lhs_type) * p.rows + is_f32(p.rhs_type) * p.columns) / TILE;
        let w = kernel.work.elementwise;
        let fused = (w.simple + 3.0 * w.transcendental + w.convert + 2.0 * w.reduced) / TILE;
        let mut compute = self.padded_flops(p) / (rate * m.matmul_share) + m.matmul_fill;
        compute += if is_narrow { m.matmul_narrow_tile * result_tiles } else { 0.0 };
        compute += m.matmul_elementwise * fused;
        compute += 0.2 * m.matmul_accumulate * result_tiles * (windows - 1.0).min(16.0);
        compute += if windows > 1.0 { m.matmul_convert * f32_tiles } else { 0.0 };
        let read: f64 = in_memory(&kernel.operands).sum();
        let written: f64 = in_memory(&kernel.results).sum();
        let copied = read / (self.memory * m.matmul_operand_stream);
        let back = written / (self.memory * m.matmul_result_stream);
        let start = if read > 4096.0 { m.matmul_operand_start } else { 0.0 }
            + if is_narrow || written > 0.0 { m.matmul_result_start } else { 0.0 };
        let total = start + compute.max(copied) + compute.min(copied) / windows + back;
        let count = windows.ceil();
        Cycles { total, compute, memory: copied + back, start, windows: None, count, held: self.held(kernel, count) }
    }

    /// The bytes that windows of equal size take: two of each array, so that one is copied while the other is in use.
    fn held(&self, kernel: &Kernel, count: f64) -> f64 {
        kernel.bytes_in(0) / count * if count > 1.0 { 2.0 } else { 1.0 }
    }

    /// A product that takes many windows: the cycles of the best that fit.
    fn search(&self, sides: &Sides, p: &Matmul, rate: f64) -> Option<Cycles> {
        let row_cuts = RowCuts::new(p);
        let mut best: Option<Cycles> = None;
        for columns in window_sizes::columns(p) {
            for contracted in window_sizes::contracted(p) {
                // Fewer windows of rows never cost more.
                let room = sides.most_rows(columns, contracted, self.model.scoped_bytes);
                let Some(cut) = row_cuts.fewest(room) else { continue };
                let windows = MatmulWindows { rows: cut.rows, inner_rows: cut.inner, columns, contracted };
                let counts = WindowCounts {
                    rows: cut.count,
                    columns: (p.columns / columns).ceil(),
                    contracted: (p.contracted / contracted).ceil(),
                    windows,
                };
                let found = self.windowed(sides, p, rate, counts);
                if best.as_ref().is_none_or(|b| found.total < b.total) {
                    best = Some(found);
                }
            }
        }
        best
    }

    /// The cycles of a product that is cut so.
    fn windowed(&self, s: &Sides, p: &Matmul, rate: f64, n: WindowCounts) -> Cycles {
        let m = &self.model;
        let stream = self.memory * m.search_stream;
        let is_cut = n.contracted > 1.0;
        let pieces =
            |bytes: f64| if is_cut { 1.0 + PIECE * stream / (n.windows.contracted * 8.0 * bytes) } else { 1.0 };
        let lhs_times = if n.contracted > 1.0 || n.rows > 1.0 { n.columns } else { 1.0 };
        let rhs_times = if n.contracted > 1.0 { n.rows } else { 1.0 };
        let lhs = s.lhs * lhs_times * pieces(s.lhs_bytes);
        let rhs = s.rhs * rhs_times * pieces(s.rhs_bytes);
        let copied = (lhs + rhs + s.others) / stream;
        let result_tiles = p.batch * p.rows * p.columns / TILE;
        let count = n.rows * n.columns * n.contracted;
        let mut compute = self.padded_flops(p) / rate + WINDOW * p.batch * count;
        compute += if p.result_type == ElementType::F32 { 0.0 } else { m.search_narrow_tile * result_tiles };
        if p.lhs_type == ElementType::F32 && n.columns > 1.0 {
            compute += RECONVERT_TILE * p.batch * p.rows * p.contracted / TILE * n.columns;
        }
        if n.rows > 1.0 {
            compute += REFILL_TILE * p.batch * p.columns * p.contracted / TILE * n.rows;
        }
        compute += FUSED_TILE * s.behind + in_front(s.lhs_work, lhs_times) + in_front(s.rhs_work, rhs_times);
        let back = s.result / stream;
        let total = m.search_start + compute.max(copied) + compute.min(copied) / count + back;
        let (start, held) = (m.search_start, s.held(n.windows));
        Cycles { total, compute, memory: copied + back, start, windows: Some(n.windows), count, held }
    }
}

/// Cycles for work in front of an operand, which is done with every window of it: on so many tiles, so many times.
fn in_front(tiles: f64, times: f64) -> f64 {
    tiles * if times > 1.0 { REPEATED_TILE * times } else { FUSED_TILE }
}

/// How many windows a product takes along each of its dimensions, and how large they are.
struct WindowCounts {
    rows: f64,
    columns: f64,
    contracted: f64,
    windows: MatmulWindows,
}

impl WindowCounts {
    /// The windows that a compiler wrote down: how many along columns, along rows and batches, and along what is summed.
    /// `None` where they are not those of the product's result.
    fn of(config: &WindowConfig, kernel: &Kernel, p: &Matmul) -> Option<WindowCounts> {
        let tiles: f64 = config.output.iter().map(|&n| n.max(1) as f64).product();
        let [columns, around @ .., contracted] = &*config.iterations else { return None };
        let (columns, contracted) = ((*columns).max(1) as f64, (*contracted).max(1) as f64);
        let around: f64 = around.iter().map(|&n| n.max(1) as f64).product();
        // Windows at the edges are not full, so together they are a little more than the result.
        let covered = tiles * columns * around / kernel.results.first()?.tiles.max(1.0);
        let rows = (around / p.batch).max(1.0);
        let is_possible = rows <= p.rows && columns <= p.columns && contracted <= p.contracted;
        let windows = MatmulWindows {
            rows: p.rows / rows,
            inner_rows: p.inner_rows.min(p.rows / rows),
            columns: p.columns / columns,
            contracted: p.contracted / contracted,
        };
        (is_possible && (0.99..2.0).contains(&covered)).then_some(WindowCounts { rows, columns, contracted, windows })
    }
}

/// What a product reads and writes in main memory, by side.
struct Sides {
    lhs: f64,
    rhs: f64,
    others: f64,
    result: f64,
    /// Bytes of an element of each side.
    lhs_bytes: f64,
    rhs_bytes: f64,
    /// Bytes in main memory for each element of it: of all arrays that it is made of, none where they are in fast memory.
    lhs_held: f64,
    rhs_held: f64,
    /// Tiles of element-wise work on each side and behind the product.
    lhs_work: f64,
    rhs_work: f64,
    behind: f64,
}

impl Sides {
    fn new(kernel: &Kernel, p: &Matmul) -> Sides {
        let all: f64 = in_memory(&kernel.operands).sum();
        let (lhs_bytes, rhs_bytes) = (bytes_of(p.lhs_type), bytes_of(p.rhs_type));
        let lhs_elements = p.rows * p.contracted * p.batch;
        let rhs_elements = p.columns * p.contracted * p.batch;
        let lhs = side(kernel, &p.lhs, lhs_elements * lhs_bytes, 0);
        let rhs = side(kernel, &p.rhs, rhs_elements * rhs_bytes, 1);
        let result: f64 = in_memory(&kernel.results).sum();
        let units = |w: &Elementwise| (w.simple + 3.0 * w.transcendental + w.convert) / TILE;
        let (lhs_work, rhs_work) = (units(&p.lhs.work), units(&p.rhs.work));
        Sides {
            lhs,
            rhs,
            others: (all - lhs - rhs).max(0.0),
            result,
            lhs_bytes,
            rhs_bytes,
            lhs_held: lhs / lhs_elements,
            rhs_held: rhs / rhs_elements,
            lhs_work,
            rhs_work,
            behind: (units(&kernel.work.elementwise) - lhs_work - rhs_work).max(0.0),
        }
    }

    /// The bytes of fast memory that such windows take: two of each operand, so that the next is copied behind this one,
    /// and two of a result that is copied back.
    fn held(&self, w: MatmulWindows) -> f64 {
        2.0 * w.contracted * w.columns * self.rhs_held + w.rows * self.row(w.columns, w.contracted)
    }

    /// The most rows of windows that take no more than `bytes`.
    fn most_rows(&self, columns: f64, contracted: f64, bytes: f64) -> f64 {
        (bytes - 2.0 * contracted * columns * self.rhs_held) / self.row(columns, contracted)
    }

    /// The bytes that each row takes in windows of the first operand and of the result.
    fn row(&self, columns: f64, contracted: f64) -> f64 {
        2.0 * contracted * self.lhs_held + 4.0 * columns * if self.result > 0.0 { 2.0 } else { 1.0 }
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

/// Bytes of the arrays in main memory.
fn in_memory(arrays: &[ArrayUse]) -> impl Iterator<Item = f64> + '_ {
    arrays.iter().filter(|a| a.space == 0).map(|a| a.bytes)
}

fn bytes_of(element_type: ElementType) -> f64 {
    f64::from(element_type.bits()) / 8.0
}

fn up(n: f64, granule: f64) -> f64 {
    (n / granule).ceil() * granule
}
