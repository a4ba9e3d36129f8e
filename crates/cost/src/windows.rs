//! Cycles of kernels that are cut into windows: each is copied into fast memory, computed on and copied back, and the
//! copies of the next go on behind the arithmetic of this one.
//!
//! The formulas and their constants ([`hloom_target::WindowModel`]) come from a compiler's own estimates: a window takes
//! the longer of its copies, one after another, and its arithmetic; before the first there is its copy in, after the last
//! its copy out. What lies in fast memory already costs a product no copy. Results of elements narrower than 32 bits, and
//! reductions, go once more through fast memory as elements of 32 bits, as slowly as through main memory. Where the windows
//! are known (the compiler wrote them down) they are used; otherwise the best are searched, as the compiler does.

use crate::dumped::WindowConfig;
use crate::kernel::{ArrayUse, Kernel, KernelKind};
use crate::model::InstructionCost;
use crate::product::MatmulWindows;
use crate::work::Elementwise;
use hloom_ir::diagnostic::Diagnostic;
use hloom_target::{Target, WindowModel};

/// Elements of a tile.
pub(crate) const TILE: f64 = 1024.0;
/// Bytes of a tile of elements of 32 bits.
pub(crate) const TILE_BYTES: f64 = 4096.0;
/// Tiles in each window of a large unfused instruction.
const SINGLE_WINDOW_TILES: f64 = 128.0;
/// Tiles in each window of a loop over more than two such windows.
const LOOP_WINDOW_TILES: f64 = 1024.0;
/// Tiles in each window of a transpose.
const TRANSPOSE_WINDOW_TILES: f64 = 384.0;
/// Cycles to make a tile of nothing: a broadcast or a count.
const FILL_TILE: f64 = 0.25;

/// What the formulas need of the machine, in cycles of one of its cores.
pub(crate) struct Machine<'t> {
    pub(crate) target: &'t Target,
    pub(crate) model: WindowModel,
    pub(crate) clock: f64,
    /// Bytes a cycle that copies reach of main memory.
    pub(crate) memory: f64,
    /// Rows and columns of a matrix unit.
    pub(crate) unit: f64,
    /// Cores that share the windows of a kernel.
    pub(crate) cores: f64,
    /// Whether the fast memory that programs use is beside that of the windows, so that results are copied to it, too.
    is_beside: bool,
}

/// Cycles, and what of them the units and the memory are busy.
pub(crate) struct Cycles {
    pub(crate) total: f64,
    pub(crate) compute: f64,
    pub(crate) memory: f64,
    pub(crate) start: f64,
    pub(crate) windows: Option<MatmulWindows>,
    /// How many windows there are, and the bytes of fast memory that they take.
    pub(crate) count: f64,
    pub(crate) held: f64,
}

impl<'t> Machine<'t> {
    pub(crate) fn new(target: &'t Target, model: WindowModel) -> Result<Machine<'t>, Diagnostic> {
        let clock = target.clock()?;
        let unit = target.compute.matrix_unit.unwrap_or(128) as f64;
        let cores = target.compute.cores.unwrap_or(1).max(1) as f64;
        let memory = target.bandwidth(0)? * model.stream / clock / cores;
        let is_beside = target.space(1).is_none();
        Ok(Machine { target, model, clock, memory, unit, cores, is_beside })
    }

    /// What a kernel costs, with the windows that are known of it.
    pub(crate) fn cost(&self, kernel: &Kernel, known: Option<&WindowConfig>) -> Result<InstructionCost, Diagnostic> {
        let cycles = match kernel.kind {
            KernelKind::Free | KernelKind::Scalar => return Ok(InstructionCost::free()),
            KernelKind::Single | KernelKind::Loop | KernelKind::Sliding | KernelKind::Copy => {
                self.elementwise(kernel, known)
            }
            KernelKind::Relayout => self.transpose(kernel, known),
            KernelKind::Matmul => match self.product(kernel, known)? {
                Some(cycles) => cycles,
                None => self.elementwise(kernel, known),
            },
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

    /// Work on elements without products, and copies that keep rows: copies and arithmetic of different windows overlap.
    fn elementwise(&self, kernel: &Kernel, known: Option<&WindowConfig>) -> Cycles {
        let m = &self.model;
        let w = kernel.work.elementwise;
        let is_computing = w.simple + w.narrow + w.transcendental + w.convert + w.reduced > 0.0;
        let taken = kernel.operands.iter().chain(&kernel.results).map(|a| a.tiles * a.share());
        let tiles = taken.fold(0.0, f64::max);
        let count = known.map_or_else(|| self.loop_windows(kernel, tiles), WindowConfig::count);
        let copied = in_memory(&kernel.operands).sum::<f64>() + self.written(kernel);
        // Copies alone take what is in fast memory as it is.
        let fast: f64 = kernel.operands.iter().filter(|a| a.space != 0 && is_computing).map(|a| a.bytes).sum();
        let again = match kernel.results.iter().any(|a| self.is_taken(a, tiles * TILE)) {
            true => 0.0,
            false => self.converted_tiles(&kernel.results).max((w.reduced / TILE).min(tiles)) * TILE_BYTES,
        };
        let memory = (copied + again + fast / m.fast_stream) / self.memory;
        // Where nothing is copied or converted, and no operand is cut, there is no pipeline of windows.
        let results = kernel.results.iter().map(|a| a.elements).fold(0.0, f64::max);
        let is_spread = !is_computing && w.moved <= 0.0 && kernel.operands.iter().all(|a| a.elements < results);
        let is_moving = matches!(kernel.kind, KernelKind::Copy | KernelKind::Sliding);
        let is_plain = (is_moving || is_spread) && copied + again <= 0.0;
        let start = match kernel.kind {
            KernelKind::Sliding if is_plain => 0.0,
            _ if is_plain => m.window_step,
            _ => m.window_start + m.window_step,
        };
        let filled = kernel.results.iter().map(|a| a.tiles * a.share()).sum::<f64>() * FILL_TILE;
        let compute = if is_computing { self.units(&w) } else { filled.max(self.units(&w)) };
        let each = start + memory / count;
        let total = each + compute / count + (self.rounds(count) - 1.0) * each.max(compute / count);
        Cycles { total, compute, memory, start: start * count, windows: None, count, held: self.held(kernel, count) }
    }

    /// How many windows a loop takes, of the largest of whose arrays there are so many tiles.
    fn loop_windows(&self, kernel: &Kernel, tiles: f64) -> f64 {
        let m = &self.model;
        let count = match kernel.kind {
            KernelKind::Single if kernel.bytes() > m.single_limit => (tiles / SINGLE_WINDOW_TILES).ceil(),
            KernelKind::Single => 1.0,
            _ if tiles > 2.0 * LOOP_WINDOW_TILES => {
                (kernel.bytes() / m.window_bytes).max(tiles / LOOP_WINDOW_TILES).ceil()
            }
            _ => (kernel.bytes() / m.window_bytes).ceil(),
        };
        // Every core has a window, where there are enough tiles.
        count.max(self.cores.min(tiles.ceil())).max(1.0)
    }

    /// How many windows one core takes after another.
    pub(crate) fn rounds(&self, count: f64) -> f64 {
        (count / self.cores).ceil().max(1.0)
    }

    /// Cycles of vector units for work on elements.
    pub(crate) fn units(&self, w: &Elementwise) -> f64 {
        let m = &self.model;
        let plain = m.simple * w.simple + m.narrow * w.narrow + m.displace * w.moved;
        (plain + m.transcendental * w.transcendental + m.convert * w.convert + m.reduce * w.reduced) / TILE
    }

    /// The same beside the matrix units, which take operands from where they are, and where a reduction is not spread over
    /// windows.
    pub(crate) fn units_beside(&self, w: &Elementwise) -> f64 {
        let reduced = (self.model.matmul_reduce - self.model.reduce) * w.reduced / TILE;
        self.units(&Elementwise { moved: 0.0, ..*w }) + reduced
    }

    /// A copy that moves the fastest dimension: tiles are read, turned and written as elements of 32 bits.
    fn transpose(&self, kernel: &Kernel, known: Option<&WindowConfig>) -> Cycles {
        let m = &self.model;
        let tiles = kernel.operands.iter().chain(&kernel.results).map(|a| a.tiles).fold(0.0, f64::max);
        let (count, cores) = match known {
            // As many windows as each core takes.
            Some(config) => {
                let each: f64 = config.output.iter().map(|&n| n.max(1) as f64).product();
                (config.count(), (tiles / (config.count() * each)).round().clamp(1.0, self.cores))
            }
            None => {
                ((tiles / TRANSPOSE_WINDOW_TILES / self.cores).ceil().max(1.0), self.cores.min(tiles.ceil()).max(1.0))
            }
        };
        let is_copied = |a: &&ArrayUse| a.space == 0 || self.is_beside;
        let wide = |a: &ArrayUse| a.whole * 32.0 / f64::from(a.element_type.bits().max(8));
        let bytes = |arrays: &[ArrayUse]| arrays.iter().filter(is_copied).map(wide).sum::<f64>();
        let (read, written) = (bytes(&kernel.operands), bytes(&kernel.results));
        let ways = f64::from(u8::from(read > 0.0)) + f64::from(u8::from(written > 0.0));
        let memory = (read + written) / self.memory;
        let start = m.transpose_start + ways * m.window_start;
        let total = count * start + memory / cores;
        let held = self.held(kernel, count);
        Cycles { total, compute: 0.0, memory, start: start * count, windows: None, count, held }
    }

    /// Bytes of results that are copied from the windows' memory; an update in place is read first.
    pub(crate) fn written(&self, kernel: &Kernel) -> f64 {
        let copied = kernel.results.iter().filter(|a| a.elements > 1.0 && (a.space == 0 || self.is_beside));
        copied.map(|a| if a.is_whole() { a.bytes } else { 2.0 * a.bytes }).sum()
    }

    /// Whether a result takes all of so many elements as they are made: they have 32 bits, fill registers, and go to where
    /// results go.
    pub(crate) fn is_taken(&self, a: &ArrayUse, elements: f64) -> bool {
        let is_whole = a.bytes > 0.0 && a.elements.max(a.tiles * TILE) > 0.9 * elements;
        is_whole && !self.is_converted(a)
    }

    /// Tiles of the largest result that does not.
    fn converted_tiles(&self, results: &[ArrayUse]) -> f64 {
        results.iter().filter(|a| self.is_converted(a)).map(|a| a.tiles * a.share()).fold(0.0, f64::max)
    }

    fn is_converted(&self, a: &ArrayUse) -> bool {
        a.element_type.bits() < 32 || !a.has_full_tiles || self.is_beside && a.space != 0
    }

    /// The bytes that windows of equal size take: where a core has several, two of each array, so that one is copied while
    /// the other is in use, and three times as many for an operation that is not fused.
    fn held(&self, kernel: &Kernel, count: f64) -> f64 {
        let each = match kernel.kind {
            _ if self.rounds(count) <= 1.0 => 1.0,
            KernelKind::Single => 6.0,
            _ => 2.0,
        };
        kernel.bytes_in(0) / count * each
    }
}

/// Bytes of the arrays in main memory; scalars are read by the scalar unit.
pub(crate) fn in_memory(arrays: &[ArrayUse]) -> impl Iterator<Item = f64> + '_ {
    arrays.iter().filter(|a| a.space == 0 && a.elements > 1.0).map(|a| a.bytes)
}
