//! Kernels on a processor, whose threads run code with vectors: how long they take on the machine that a description was
//! measured on.
//!
//! - Arithmetic: element by element in additions ([`element`](crate::element)), products at the rate of their type once
//!   they are wide and long enough for it.
//! - Traffic: each cache holds a share of what a kernel touches, and the rest comes from the next one. Arguments and
//!   constants of a program that touches more than a cache holds are not there any more when its next run reads them.
//! - Arithmetic and traffic go on side by side, and get in each other's way where both take as long.
//! - Small kernels stay on one core where handing work to others takes longer than it saves.

use crate::core::CoreCost;
use crate::kernel::{Kernel, KernelKind};
use crate::matmul::Matmul;
use crate::model::InstructionCost;
use hloom_ir::ElementType;
use hloom_ir::diagnostic::Diagnostic;
use hloom_target::{Cache, Target};

/// Of a cache's size, what a kernel that touches as much finds in it: its arrays push each other out.
const HELD: f64 = 0.7;
/// What is more than this does not stay in a cache of a core's own.
const NEAR_BYTES: f64 = 1e6;
/// Finding a place by an index that is computed, in additions.
const LOOKUP: f64 = 32.0;
/// An element that is written where the fastest dimension is another than where it is read, in additions.
const TRANSPOSED: f64 = 6.0;
/// Rows that are too short for vectors are reduced element by element.
const SHORT_ROWS: f64 = 8.0;
/// What is read by parts of rows, several rows at a time, comes slower than what is read from end to end.
const BY_PARTS: f64 = 1.6;
/// Columns that a product computes at once, at least.
const COLUMNS: f64 = 16.0;
/// What a product of so few columns reaches of the rate of one with so many more.
const FEW_COLUMNS: f64 = 0.68;
const MANY_COLUMNS: f64 = 32.0;
/// What a product takes besides its multiplications, in additions: each one of a batch, for its operands are brought into
/// another form, and each row of it.
const PRODUCT: f64 = 18_000.0;
const ROW: f64 = 180.0;
/// Each element of the second operand is brought into that form, in additions; more where its columns lie side by side.
const PACKED: f64 = 3.0;
const PACKED_COLUMN: f64 = 9.0;
/// A row by columns that lie side by side is a sum for each, not for a vector of them.
const SUMMED: f64 = 4.0;
/// A product of fewer rows or columns loads its operands as often as it multiplies them.
const THIN: f64 = 4.0;
/// A multiplication of a convolution that has nothing to reuse, one filter for each channel, in additions.
const BY_CHANNEL: f64 = 11.0;
/// A thin convolution reads each element as often as its window has it.
const WINDOWED: f64 = 1.5;
/// A convolution whose features do not lie side by side brings its operands and its result into another order.
const REORDERED: f64 = 1.5;

/// What a program leaves of the caches to a kernel.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct Residence {
    /// Bytes of the kernel's operands that are arguments or constants of the program.
    pub(crate) outside_bytes: f64,
    /// Bytes that a run of the program touches before it comes to them again.
    pub(crate) footprint: f64,
}

pub(crate) fn cost(kernel: &Kernel, residence: Residence, target: &Target) -> Result<InstructionCost, Diagnostic> {
    if kernel.kind == KernelKind::Free {
        return Ok(InstructionCost::free());
    }
    let c = &target.compute;
    let additions = if kernel.work.has_short_rows { SHORT_ROWS } else { 1.0 } * kernel.work.additions;
    let made = kernel.results.iter().map(|a| a.elements).sum::<f64>();
    let additions = additions + LOOKUP * kernel.work.lookups + TRANSPOSED * kernel.work.transposed.min(made);
    let mut compute = if additions > 0.0 { additions / target.vector_rate(ElementType::F32)? } else { 0.0 };
    for m in &kernel.work.matmuls {
        compute += matmul_seconds(m, target)?;
    }
    let bytes = kernel.bytes_in(0);
    let far = residence.outside_bytes.min(bytes);
    let mut memory = traffic_seconds(bytes - far, bytes, target)?;
    memory += traffic_seconds(far, bytes.max(residence.footprint), target)?;
    memory *= kernel.work.passes.max(1.0);
    let is_by_rows = |m: &Matmul| !m.is_convolution && m.rows.min(m.columns) < 2.0 * THIN;
    if kernel.work.has_columns || kernel.work.matmuls.iter().any(is_by_rows) {
        memory *= BY_PARTS;
    }
    let shared = (compute.powi(4) + memory.powi(4)).sqrt().sqrt();
    let cores = c.cores.unwrap_or(1) as f64;
    let work = if cores > 1.0 && is_shared(kernel) { shared + c.thread_seconds } else { shared * cores };
    let seconds = c.launch_seconds + work;
    InstructionCost::of_kernel(kernel, seconds, compute, memory, target)
}

/// Whether the compiler has threads share a kernel: by the times that it goes by, which are those of the description that
/// comes with it, whatever the machine.
fn is_shared(kernel: &Kernel) -> bool {
    let core = CoreCost::default();
    let bytes = kernel.bytes_in(0);
    let byte = if bytes > NEAR_BYTES { core.far_byte } else { core.near_byte };
    let work = &kernel.work;
    core.is_shared(work.additions * core.addition + bytes * byte + work.matmul_flops() * core.matmul_flop)
}

/// Seconds for so many bytes of data of which `touched` are used in turn.
fn traffic_seconds(bytes: f64, touched: f64, target: &Target) -> Result<f64, Diagnostic> {
    let cores = target.compute.cores.unwrap_or(1) as f64;
    let size = |c: &Cache| c.bytes as f64 * if c.is_shared { 1.0 } else { cores };
    let main = target.reached_bandwidth(0)?;
    let (mut seconds, mut held) = (0.0, 0.0);
    for cache in &target.compute.caches {
        let Some(bandwidth) = cache.bandwidth else { continue };
        let share = (HELD * size(cache) / touched.max(1.0)).clamp(held, 1.0);
        seconds += (share - held) * bytes / bandwidth.max(main);
        held = share;
    }
    Ok(seconds + (1.0 - held) * bytes / main)
}

fn matmul_seconds(m: &Matmul, target: &Target) -> Result<f64, Diagnostic> {
    let plain = m.flops / target.reached_matmul_rate(m.lhs_type, m.is_highest)?;
    let additions = |n: f64| -> Result<f64, Diagnostic> { Ok(n / target.vector_rate(ElementType::F32)?) };
    let columns = m.columns / m.groups;
    let reordered = if m.has_features_apart { REORDERED } else { 1.0 };
    if m.groups > 1.0 && columns < THIN {
        return additions(BY_CHANNEL * reordered * m.flops / 2.0);
    }
    if is_thin(m) {
        // Nothing to reuse: code like any other, two operations at a time, as wide as the sum is computed in.
        let wide = if m.lhs_type.bits() < 32 { ElementType::F32 } else { m.lhs_type };
        let summed = if m.is_rhs_by_columns && m.rows < THIN { SUMMED } else { 1.0 };
        let multiplied = (summed * m.flops / (2.0 * target.vector_rate(wide)?)).max(plain);
        let waits = if m.rows.max(columns) < COLUMNS { m.contracted } else { 0.0 };
        if m.is_convolution {
            return Ok(WINDOWED * multiplied);
        }
        let results = if columns < THIN { m.rows * columns } else { 0.0 };
        return Ok(multiplied + additions(ROW * (waits + results) * m.batch)?);
    }
    let filled = m.flops * (columns / COLUMNS).ceil() * COLUMNS / columns;
    let reached = FEW_COLUMNS + (1.0 - FEW_COLUMNS) * ((columns - COLUMNS) / MANY_COLUMNS).clamp(0.0, 1.0);
    let full = filled / reached / target.reached_matmul_rate(m.lhs_type, m.is_highest)?;
    // A convolution's filters are few.
    let packed = match (m.is_convolution, m.is_rhs_by_columns) {
        (true, _) => 0.0,
        (_, false) => PACKED,
        (_, true) => PACKED_COLUMN,
    };
    let starts = PRODUCT + ROW * m.rows + packed * m.columns * m.contracted;
    Ok(full * reordered + additions(starts * m.batch)?)
}

/// Whether so few rows are multiplied with so few columns that nothing of them is used again.
fn is_thin(m: &Matmul) -> bool {
    m.rows.min(m.columns / m.groups) < THIN
}
