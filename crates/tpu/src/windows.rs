//! What code generation would note: windows, estimated cycles and the memory that windows take.
//!
//! Cycles are the cost model's, and so are the windows that they are of: a large product has those that the model's search
//! chose, everything else is cut along its rows into as many as the estimate says.

use crate::backend_config::{BackendConfig, CollectiveAlgorithm, Continuation, WindowNote};
use crate::edit::{array_of, flow_computations};
use crate::stage::{StageContext, staged};
use hloom_cost::dumped::WindowConfig;
use hloom_cost::{CostModel, InstructionCost};
use hloom_ir::attributes::{ConvDimensionNumbers, FusionKind};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::{Convolution, Op};
use hloom_ir::shape::ArrayShape;
use hloom_passes::Pass;
use rustc_hash::FxHashSet;

/// The stage.
pub(crate) static STAGE: Pass = Pass {
    name: "note-windows",
    statement: "notes windows, estimated cycles and used memory on the steps of the program",
    keeps_schedule: true,
    run: |module, context| staged(module, context, note_windows),
};

const LANES: i64 = 128;
const SUBLANES: i64 = 8;

fn note_windows(module: &mut Module, context: &StageContext<'_>) -> Result<usize, Diagnostic> {
    let mut notes = Vec::new();
    {
        let model = CostModel::new(module, context.target)?.with_searched_windows();
        let flow = flow_computations(module);
        let beside: FxHashSet<ComputationId> = flow.iter().flat_map(|&c| run_beside(module, c)).collect();
        for c in flow.into_iter().filter(|c| !beside.contains(c)) {
            for &i in module[c].instructions() {
                if let Some(gathered) = gathered(module, i, context) {
                    notes.push((i, gathered));
                } else if model.is_estimated(i) {
                    // What the machine has no rate for has no estimate.
                    let Ok(cost) = model.instruction(i) else { continue };
                    notes.extend(note(&model, i, &cost).map(|n| (i, n)));
                }
            }
        }
    }
    let changes = notes.len();
    for (i, note) in notes {
        note.set(module, i);
    }
    Ok(changes)
}

/// The computations that a computation starts beside its own steps: copies, which are cut into no windows.
fn run_beside(module: &Module, c: ComputationId) -> impl Iterator<Item = ComputationId> + '_ {
    module[c].instructions().iter().filter_map(|&i| match &module[i].op {
        Op::AsyncStart(start) => Some(start.calls),
        _ => None,
    })
}

fn note(model: &CostModel<'_>, i: InstructionId, cost: &InstructionCost) -> Option<BackendConfig> {
    let module = model.module();
    let array = cut_array(module, i)?;
    let mut config =
        BackendConfig { continuation: continuation(module, i), is_generated: true, ..BackendConfig::default() };
    let windows = match convolution(module, i) {
        Some((inner, convolution)) => {
            config.convolution_emitter = Some("EmitAllBatchInSublanes");
            product_windows(module, inner, convolution, cost)?
        }
        None => loop_windows(array, cost.window_count, matches!(module[i].op, Op::Fusion(_))),
    };
    // The estimate is that of the windows as they are noted.
    let bounds = |list: &[i64]| list.iter().map(|&n| n.max(0) as u64).collect();
    let noted = WindowConfig {
        output: bounds(&windows.output),
        input: bounds(&windows.input),
        kernel: bounds(&windows.kernel),
        iterations: bounds(&windows.iterations),
    };
    let cycles = model.in_windows(i, &noted).ok()?.cycles?.round() as i64;
    config.windows = Some(WindowNote { cycles, ..windows });
    config.used_scoped = vec![(1, cost.held_bytes as i64)];
    Some(config)
}

/// The array whose windows an instruction works on: the largest that it reads or writes, of equals its result.
fn cut_array(module: &Module, i: InstructionId) -> Option<&ArrayShape> {
    let results = module[i].shape.leaves().into_iter().rev().filter_map(|(_, s)| s.as_array());
    let operands = module[i].operands().iter().filter_map(|&o| array_of(module, o));
    operands.chain(results).max_by_key(|a| a.element_count().unwrap_or(0))
}

/// What a fusion that carries an exchange says of its own operands and results; it is kept.
fn continuation(module: &Module, i: InstructionId) -> Option<Continuation> {
    let Op::Fusion(fusion) = &module[i].op else { return None };
    if fusion.kind != FusionKind::Output || fusion.output_operand_aliasing.is_empty() {
        return None;
    }
    let carried = fusion.output_operand_aliasing.iter().map(|a| a.operand + 1).max()?;
    let own = fusion.output_operand_aliasing.iter().filter_map(|a| a.output_index.first().copied()).min()?;
    let last = module[i].operands().len() as i64 - 1;
    Some(Continuation { outputs: (0, own - 1), operands: (carried, last) })
}

/// The convolution in a fusion.
fn convolution(module: &Module, i: InstructionId) -> Option<(InstructionId, &Convolution)> {
    let Op::Fusion(fusion) = &module[i].op else { return None };
    module[fusion.calls].instructions().iter().find_map(|&inner| match &module[inner].op {
        Op::Convolution(c) => Some((inner, &**c)),
        _ => None,
    })
}

fn tiles(size: i64, tile: i64) -> i64 {
    size.div_euclid(tile) + i64::from(size.rem_euclid(tile) > 0)
}

/// The windows of a product, each array's by its dimensions.
fn product_windows(
    module: &Module,
    i: InstructionId,
    convolution: &Convolution,
    cost: &InstructionCost,
) -> Option<WindowNote> {
    let &[x, _] = module[i].operands() else { return None };
    let (lhs, out) = (array_of(module, x)?, array_of(module, i)?);
    let d = &convolution.dims;
    let size = |a: &ArrayShape, dim: i64| a.dims().get(dim as usize).copied().unwrap_or(1);
    let (rows, columns, contracted) =
        (size(out, d.output_batch), size(out, d.output_feature), size(lhs, d.input_feature));
    let spatial: Vec<i64> = d.output_spatial.iter().map(|&s| size(out, s)).collect();
    // Spatial dimensions are rows, one product for each (a batch), or further columns: those that the window spans while
    // the operand has but one element.
    let role = |n: usize| {
        let window = convolution.window.dims.get(n).map_or(1, |w| w.size);
        match d.input_spatial.get(n).map_or(1, |&s| size(lhs, s)) {
            _ if window != spatial[n] || window == 1 => Spatial::Rows,
            1 => Spatial::Columns,
            input if input == window => Spatial::Batch,
            _ => Spatial::Rows,
        }
    };
    let roles: Vec<Spatial> = (0..spatial.len()).map(role).collect();
    let of_rows = |n: usize| if roles[n] == Spatial::Rows { spatial[n] } else { 1 };
    let around: i64 = (0..spatial.len()).map(of_rows).product();
    let more_columns: i64 = (0..spatial.len()).filter(|&n| roles[n] == Spatial::Columns).map(|n| spatial[n]).product();
    // Searched windows count rows and products over all dimensions.
    let (mut batch, mut outer, mut n, mut k) = (rows, around, columns, contracted);
    let mut products = i64::MAX;
    if let Some(w) = cost.windows {
        products = (w.batch.round() as i64).max(1);
        n = columns.min(w.columns as i64 / more_columns.max(1));
        k = contracted.min(w.contracted as i64);
        batch = rows.min(w.inner_rows as i64);
        outer = around.min((w.rows / w.inner_rows).round() as i64).max(1);
    }
    let (n, k) = (n.max(1), k.max(1));
    let mut left = outer;
    let mut spatial_windows = Vec::new();
    for (&s, role) in spatial.iter().zip(&roles).rev() {
        let share = |of: i64| (1..=s).rev().find(|t| of % t == 0).unwrap_or(1);
        let take = match role {
            Spatial::Columns => s,
            Spatial::Batch if products == i64::MAX => s,
            Spatial::Batch => share(products),
            Spatial::Rows => share(left),
        };
        let take = take.max(1);
        spatial_windows.insert(0, take);
        match role {
            Spatial::Rows => left /= take,
            Spatial::Batch if products < i64::MAX => products /= take,
            _ => {}
        }
    }
    let note = WindowNote {
        kernel: spatial.iter().map(|_| 1).chain([tiles(n, SUBLANES), tiles(k, LANES)]).collect(),
        output: output_bounds(out, d, &spatial_windows, batch, n),
        input: spatial_windows.iter().copied().chain([tiles(batch, SUBLANES), tiles(k, LANES)]).collect(),
        cycles: 0,
        iterations: [tiles(columns, n), tiles(rows, batch)]
            .into_iter()
            .chain(spatial.iter().zip(&spatial_windows).map(|(&s, &w)| tiles(s, w)))
            .chain([1, tiles(contracted, k)])
            .collect(),
    };
    Some(note)
}

/// The window of a convolution's result by the dimensions of the array, the slowest first and the last two in tiles.
fn output_bounds(out: &ArrayShape, d: &ConvDimensionNumbers, spatial: &[i64], batch: i64, n: i64) -> Vec<i64> {
    let of = |dim: i64| match d.output_spatial.iter().position(|&s| s == dim) {
        Some(at) => spatial.get(at).copied().unwrap_or(1),
        None if dim == d.output_feature => n,
        None => batch,
    };
    let fastest_first = out.minor_to_major();
    let tile = |at: usize| [LANES, SUBLANES].get(at).copied().unwrap_or(1);
    fastest_first.iter().enumerate().rev().map(|(at, &dim)| tiles(of(dim), tile(at))).collect()
}

/// What a spatial dimension of a convolution is to the product that it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spatial {
    Rows,
    Columns,
    Batch,
}

/// So many windows of an operation on elements. Those of a single operation are cut by powers of two.
fn loop_windows(array: &ArrayShape, count: f64, is_fused: bool) -> WindowNote {
    let sizes: Vec<i64> = array
        .minor_to_major()
        .iter()
        .rev()
        .filter_map(|&d| array.dims().get(usize::try_from(d).ok()?).copied())
        .collect();
    let mut counts = sizes.clone();
    if let Some(last) = counts.last_mut() {
        *last = tiles(*last, LANES);
    }
    if let Some(second) = counts.len().checked_sub(2).and_then(|n| counts.get_mut(n)) {
        *second = tiles(*second, SUBLANES);
    }
    let total: i64 = counts.iter().product::<i64>().max(1);
    // The most minor dimensions as whole as they fit.
    let mut left = tiles(total, count.max(1.0) as i64).max(1);
    let mut window = vec![1; counts.len()];
    for (w, &c) in window.iter_mut().zip(&counts).rev() {
        let c = c.max(1);
        *w = match is_fused {
            true => left.min(c),
            false if left % c == 0 => c,
            // No power of two divides an odd number.
            false if c % 2 != 0 => left.min(c),
            false => largest_power(c, left),
        };
        left = (left / *w).max(1);
    }
    let iterations = counts.iter().zip(&window).map(|(&c, &w)| tiles(c, w)).collect();
    WindowNote { output: window, iterations, ..WindowNote::default() }
}

/// The largest power of two that divides `n` and is at most `limit`.
fn largest_power(n: i64, limit: i64) -> i64 {
    let mut power = 1;
    while n % (power * 2) == 0 && power * 2 <= limit {
        power *= 2;
    }
    power
}

/// The note on a plain all-gather: which routine it is, and of how many bytes.
fn gathered(module: &Module, i: InstructionId, context: &StageContext<'_>) -> Option<BackendConfig> {
    if !matches!(module[i].op, Op::AllGather(_)) {
        return None;
    }
    let whole = context.target.byte_size(&module[i].shape)?;
    let shard = context.target.byte_size(&module[*module[i].operands().first()?].shape)?;
    let debug = format!(
        "\ngroup_size = {}\nper_stride_size = {shard} bytes\nshard_size = {shard} bytes",
        if shard > 0 { whole / shard } else { 1 }
    );
    let barrier = barrier(module, i)?;
    Some(BackendConfig {
        barrier: Some(barrier),
        collective_algorithm: Some(CollectiveAlgorithm { emitter: "2DAllGatherNonMajorDim", debug }),
        used_scoped: vec![(1, 0)],
        is_generated: true,
        ..BackendConfig::default()
    })
}

/// The barrier that was noted on a collective.
fn barrier(module: &Module, i: InstructionId) -> Option<i64> {
    let text = std::str::from_utf8(module[i].common.backend_config.as_deref()?).ok()?;
    let (_, rest) = text.split_once("\"barrier_type\":\"CUSTOM\",\"id\":\"")?;
    rest.split('"').next()?.parse().ok()
}
