//! Kernels on machines with many cores that are started all at once: the longer of arithmetic and traffic, after a launch.
//!
//! - Arithmetic: products at the rate of their type, spread over cores in blocks where the target says how large those
//!   are (a last wave of few blocks takes as long as a full one); the rest element by element.
//! - Traffic: what fits into the largest cache goes at its speed, the rest at that of main memory. A kernel with few
//!   bytes does not fill the memory's pipelines.

use crate::kernel::{Kernel, KernelKind};
use crate::matmul::Matmul;
use crate::model::InstructionCost;
use hloom_ir::diagnostic::Diagnostic;
use hloom_target::Target;

/// What single elements here and there reach of a memory's bandwidth: of a line that comes along, they use a part.
const SCATTERED_SHARE: f64 = 0.4;

pub(crate) fn cost(kernel: &Kernel, target: &Target) -> Result<InstructionCost, Diagnostic> {
    if kernel.kind == KernelKind::Free {
        return Ok(InstructionCost::free());
    }
    let c = &target.compute;
    let mut compute = 0.0;
    for m in &kernel.work.matmuls {
        compute += matmul_seconds(m, target)?;
    }
    compute += elementwise_seconds(kernel, target)?;
    let bytes = kernel.bytes_in(0);
    let moved = bytes * kernel.work.passes.max(1.0);
    let bandwidth = bandwidth_for(bytes, target)?;
    let fill = c.saturating_bytes;
    let fill = if fill > 0.0 { fill * moved / (moved + fill) } else { 0.0 };
    let line = c.caches.iter().map(|c| c.line_bytes as f64).fold(0.0, f64::max);
    let is_scattered = kernel.work.scattered > 0.0 && kernel.work.run_bytes < line;
    let scattered = if is_scattered { 1.0 / SCATTERED_SHARE } else { 1.0 };
    let memory = (moved * scattered + fill) / bandwidth;
    let seconds = c.launch_seconds + compute.max(memory);
    InstructionCost::of_kernel(kernel, seconds, compute, memory, target)
}

/// What is computed element by element: functions have units and rates of their own.
fn elementwise_seconds(kernel: &Kernel, target: &Target) -> Result<f64, Diagnostic> {
    let mut seconds = 0.0;
    for t in &kernel.work.by_type {
        if t.vector > 0.0 {
            seconds += t.vector / target.vector_rate(t.element_type)?;
        }
        if t.transcendental > 0.0 {
            seconds += t.transcendental / target.transcendental_rate(t.element_type)?;
        }
    }
    Ok(seconds)
}

/// Bytes a second for a kernel that touches so many: those of the largest cache that holds half of them again.
fn bandwidth_for(bytes: f64, target: &Target) -> Result<f64, Diagnostic> {
    let cores = target.compute.cores.unwrap_or(1) as f64;
    let size = |c: &hloom_target::Cache| c.bytes as f64 * if c.is_shared { 1.0 } else { cores };
    let main = target.reached_bandwidth(0)?;
    let held = target.compute.caches.iter().find(|c| c.bandwidth.is_some() && bytes <= 0.5 * size(c));
    Ok(held.and_then(|c| c.bandwidth).map_or(main, |cache| cache.max(main)))
}

fn matmul_seconds(m: &Matmul, target: &Target) -> Result<f64, Diagnostic> {
    let rate = target.reached_matmul_rate(m.lhs_type, m.is_highest)?;
    let plain = m.flops / rate;
    let c = &target.compute;
    let (Some(rows), Some(columns), Some(cores)) = (c.tile_rows, c.tile_columns, c.cores) else {
        return Ok(plain);
    };
    let (rows, columns, cores) = (rows as f64, columns as f64, cores as f64);
    // Smaller blocks spread better and reuse less; the sum may be split, too.
    let blocks = [(rows, columns, 1.0), (rows, columns / 2.0, 0.9), (rows / 2.0, columns / 2.0, 0.75)];
    let split = (m.contracted / 1024.0).floor().clamp(1.0, 16.0);
    let seconds = |&(r, n, share): &(f64, f64, f64), split: f64| {
        let count = (m.rows / r).ceil() * (m.columns / n).ceil() * m.batch * split;
        let waves = (count / cores).ceil();
        let each = 2.0 * r * n * (m.contracted / split) / (rate / cores * share);
        waves * each
    };
    let best = blocks.iter().flat_map(|b| [seconds(b, 1.0), seconds(b, split)]).fold(f64::INFINITY, f64::min);
    // Products that are no matrices to a block (a convolution by its window) are not made worse than their flops.
    let padded = 2.0 * m.batch * m.rows * m.columns * m.contracted;
    Ok(if padded > 0.0 { best * (m.flops / padded).min(1.0) } else { plain })
}
