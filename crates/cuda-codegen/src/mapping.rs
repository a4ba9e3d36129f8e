//! Which thread computes what: lanes, threads of a row, rows of a block, parts of rows.
//!
//! The machine is a memory with processors around it. A thread loads 16 bytes at once where it can, neighbouring threads
//! read neighbouring bytes, there are enough threads to keep the memory busy, and what is read once stays in registers as
//! long as it fits.

use hloom_cuda_kernels::Architecture;
use hloom_ir::ElementType;
use hloom_ir::op::{BinaryOp, UnaryOp};
use hloom_llvm::nvptx::{GridBody, LoopGrid, PartialRows, RowGrid, TileGrid};
use hloom_loops::affine::{Affine, ItemId, Term, VarId};
use hloom_loops::graph::ScalarOp;
use hloom_loops::program::{Item, LoadSource, LoopProgram};
use hloom_loops::row_passes::RowPasses;

/// Threads of a block that walk no rows.
pub(crate) const BLOCK: u32 = 256;
/// The widest access to memory, in bytes.
const ACCESS: i64 = 16;
/// With fewer threads than this the memory is not kept busy: 132 processors with 1024 threads each.
const ENOUGH_THREADS: i64 = 132 * 1024;
/// Bytes that a thread has under way at once.
const UNDER_WAY: i64 = 32;
/// Code that is written out for several groups of points of a thread is not longer than this, in instructions.
const MAX_AT_ONCE: i64 = 128;
/// Code of a thread that takes longer than its loads and stores, in instructions.
const HEAVY: i64 = 256;
/// Elements of rows that a thread of many has under way, so that the memory is busy.
const ENOUGH_AT_ONCE: i64 = 8;
/// Elements of a row that a thread may hold in registers.
const MAX_HELD: i64 = 32;
/// The most code that is written out for one thread, in instructions.
const MAX_CODE: usize = 8_000;
const MAX_THREADS: i64 = 1024;

/// The bytes of an element in memory.
fn bytes(t: ElementType) -> i64 {
    t.bytes() as i64
}

/// The greatest power of two up to `most` that divides `n`.
fn power_of_two_in(n: i64, most: i64) -> i64 {
    let mut power = 1;
    while power * 2 <= most && n % (power * 2) == 0 {
        power *= 2;
    }
    power
}

/// The least power of two that is at least `n`.
fn power_of_two_above(n: i64) -> i64 {
    (n.max(1) as u64).checked_next_power_of_two().map_or(1 << 62, |n| n.min(1 << 62) as i64)
}

/// Division of sizes, rounded up.
pub(crate) trait CeilDiv {
    fn ceil_div(self, by: i64) -> i64;
}

impl CeilDiv for i64 {
    fn ceil_div(self, by: i64) -> i64 {
        let by = by.max(1);
        self / by + i64::from(self % by != 0)
    }
}

/// The accesses of a program that move along `var` from neighbour to neighbour, by the size of their elements.
fn widths_along(program: &LoopProgram, var: VarId) -> Vec<i64> {
    let moves = |offset: &Affine| offset.factor(Term::Var(var)) == 1;
    let mut widths: Vec<i64> =
        program.stores.iter().filter(|s| moves(&s.offset)).map(|s| bytes(s.element_type)).collect();
    for data in &program.items {
        if let Item::Load { offset, .. } = &data.item
            && moves(offset)
        {
            widths.push(bytes(data.element_type));
        }
    }
    widths
}

/// How many neighbours along `var` a thread takes.
fn lanes_along(program: &LoopProgram, var: VarId) -> i64 {
    let Some(widest) = widths_along(program, var).into_iter().max() else { return 1 };
    power_of_two_in(program.extents[var as usize], (ACCESS / widest).max(1))
}

/// About how many instructions a point takes.
fn code_of(program: &LoopProgram) -> i64 {
    let of = |data: &hloom_loops::program::ItemData| match &data.item {
        Item::Scalar(ScalarOp::Unary(op), _) => match op {
            UnaryOp::Abs | UnaryOp::Negate | UnaryOp::Not | UnaryOp::Real | UnaryOp::Imag => 1,
            UnaryOp::Exponential | UnaryOp::Sqrt | UnaryOp::Floor | UnaryOp::Ceil => 10,
            UnaryOp::Tanh | UnaryOp::Logistic | UnaryOp::Log | UnaryOp::Rsqrt => 25,
            _ => 60,
        },
        Item::Scalar(ScalarOp::Binary(BinaryOp::Divide | BinaryOp::Remainder), _) => 12,
        Item::Scalar(ScalarOp::Binary(BinaryOp::Power | BinaryOp::Atan2), _) => 100,
        Item::Apply(function, _) => 2 * function.code.len() as i64,
        _ => 1,
    };
    program.items.iter().map(of).sum()
}

/// About how many instructions the reductions of an element take.
fn code_of_reductions(program: &LoopProgram) -> i64 {
    let of = |data: &hloom_loops::program::ItemData| match &data.item {
        Item::Reduce(reduce) => 2 * reduce.function.code.len() as i64,
        _ => 0,
    };
    program.items.iter().map(of).sum()
}

/// How many neighbours along `outer` a thread takes beside all of the `lanes` of the innermost loop, where what is written
/// lies side by side.
fn more_lanes(program: &LoopProgram, outer: VarId, lanes: i64) -> i64 {
    let widest = program.stores.iter().map(|s| bytes(s.element_type)).max().unwrap_or(1);
    let side_by_side = program.stores.iter().all(|s| s.offset.factor(Term::Var(outer)) == lanes);
    match side_by_side {
        true => power_of_two_in(program.extents[outer as usize], (ACCESS / (widest * lanes)).max(1)),
        false => 1,
    }
}

/// Whether all that a program combines with memory is added, in types of which the machine adds several at once.
fn adds_vectors(program: &LoopProgram, architecture: Architecture) -> bool {
    let is_added = |s: &hloom_loops::program::Store| match &s.combine {
        Some(function) => {
            function.single_operation() == Some(BinaryOp::Add)
                && matches!(s.element_type, ElementType::F32 | ElementType::F16 | ElementType::Bf16)
        }
        None => true,
    };
    architecture.capability / 10 == 9 && program.stores.iter().all(is_added)
}

/// A thread for each group of points.
pub(crate) fn loop_grid(program: LoopProgram, architecture: Architecture) -> (u32, LoopGrid) {
    let scans = program.scan().is_some();
    let nest = if scans { &program.nest[..program.nest.len() - 1] } else { &program.nest[..] };
    let combines = program.stores.iter().any(|s| s.combine.is_some());
    let mut lanes = match nest.last() {
        Some(&var) if !scans && (!combines || adds_vectors(&program, architecture)) => lanes_along(&program, var),
        _ => 1,
    };
    if let [.., outer, inner] = *nest
        && !combines
        && lanes == program.extents[inner as usize]
        && !program.items.iter().any(|i| i.item.is_loop())
    {
        lanes *= more_lanes(&program, outer, lanes);
    }
    // Reductions that a thread makes alone take as many accumulators as lanes: they pay where the lanes are loaded together.
    if let Some(&var) = nest.last()
        && program.items.iter().any(|i| i.item.is_loop())
    {
        let together = |data: &hloom_loops::program::ItemData| match &data.item {
            Item::Load { offset, .. } => offset.factor(Term::Var(var)) <= 1,
            _ => true,
        };
        lanes = if program.items.iter().all(together) { lanes.min(4) } else { 1 };
    }
    let code = code_of(&program);
    // What computes much does not wait for memory: narrower accesses, and shorter text.
    let narrow = |lanes: i64| program.stores.iter().any(|s| lanes * bytes(s.element_type) <= 4);
    while lanes > 1 && (code * lanes > MAX_CODE as i64 || !combines && code * lanes > HEAVY && !narrow(lanes)) {
        lanes /= 2;
    }
    let points = program.size_of(nest) / lanes;
    // Several groups a thread where there are enough, so that more is under way at once.
    let mut chunks = 1;
    if !scans && !combines && !program.items.iter().any(|i| i.item.is_loop()) {
        let is_load = |i: &&hloom_loops::program::ItemData| matches!(i.item, Item::Load { .. });
        let loaded: i64 = program.items.iter().filter(is_load).map(|i| (bytes(i.element_type) * lanes).min(16)).sum();
        while chunks * 2 * loaded <= UNDER_WAY
            && points / (chunks * 2) >= 4 * ENOUGH_THREADS
            && code * lanes * chunks * 2 <= MAX_AT_ONCE
        {
            chunks *= 2;
        }
    }
    let blocks = points.ceil_div(i64::from(BLOCK) * chunks).clamp(1, u32::MAX.into()) as u32;
    (blocks, LoopGrid { program, lanes: lanes as u32, chunks: chunks as u32, in_order: 0 })
}

/// A thread for each point of the loops whose order does not count; it walks the others in order. `None` if there are so
/// many points that it would take long, or if each comes alone.
pub(crate) fn ordered_grid(program: &LoopProgram) -> Option<(u32, LoopGrid)> {
    let mut program = program.clone();
    // Along a loop that moves what is written, and does nothing else about it, no point meets another.
    let depends = |item: ItemId, var: VarId| program.item(item).vars.contains(&var);
    let is_even = |var: VarId| {
        program.stores.iter().all(|s| {
            let mut items = s.offset.terms.iter().filter_map(|t| match t.0 {
                Term::Item(i) => Some(i),
                Term::Var(_) => None,
            });
            s.offset.factor(Term::Var(var)) != 0
                && !items.any(|i| depends(i, var))
                && !s.condition.is_some_and(|c| depends(c, var))
        })
    };
    let (apart, rest) = program.nest.split_at(program.apart.min(program.nest.len()));
    let (free, ordered): (Vec<VarId>, Vec<VarId>) =
        rest.iter().copied().partition(|&v| !program.overlapping && is_even(v));
    if !(2..=MAX_IN_ORDER).contains(&program.size_of(&ordered)) {
        return None;
    }
    let threads: Vec<VarId> = apart.iter().chain(&free).copied().collect();
    let blocks = program.size_of(&threads).ceil_div(i64::from(BLOCK)).clamp(1, u32::MAX.into()) as u32;
    program.nest = threads.into_iter().chain(ordered.iter().copied()).collect();
    Some((blocks, LoopGrid { program, lanes: 1, chunks: 1, in_order: ordered.len() as u32 }))
}

/// The most points that a thread walks in order: more than these take longer than launching them does.
const MAX_IN_ORDER: i64 = 32;

/// Tiles for a nest that reads arrays along another loop than it writes.
fn tile_grid(program: &LoopProgram) -> Option<(u32, TileGrid)> {
    let &inner = program.nest.last()?;
    let is_plain = program.stores.iter().all(|s| s.combine.is_none() && s.condition.is_none());
    if !is_plain || program.items.iter().any(|i| i.item.is_loop()) || program.items.len() > MAX_CODE / 64 {
        return None;
    }
    // Loads that neighbours along the innermost loop find far apart, by the loop along which they are neighbours.
    let mut crossing: Vec<(VarId, ItemId, i64)> = Vec::new();
    for (id, data) in program.items.iter().enumerate() {
        let Item::Load { source: LoadSource::Buffer(_), offset, guard: None } = &data.item else { continue };
        if offset.factor(Term::Var(inner)) <= 1 || offset.terms.iter().any(|t| matches!(t.0, Term::Item(_))) {
            continue;
        }
        let next = program.nest.iter().find(|&&v| offset.factor(Term::Var(v)) == 1);
        if let Some(&var) = next.filter(|&&v| program.extents[v as usize] >= 4) {
            crossing.push((var, id as ItemId, bytes(data.element_type)));
        }
    }
    let across = crossing.iter().max_by_key(|c| c.2)?.0;
    crossing.retain(|c| c.0 == across);
    let widest = crossing.iter().map(|c| c.2).max()?;
    let extent = |v: VarId| program.extents[v as usize];
    let area = if widest > 4 { 2048 } else { 4096 };
    let side = if widest == 1 { 128 } else { 64 };
    let tile_across = power_of_two_above(extent(across)).min(if widest > 4 { 32 } else { 64 });
    let tile_inner = (area / tile_across).min(power_of_two_above(extent(inner)).max(side));
    let lanes = lanes_along(program, inner).min(tile_inner);
    let aligned = |id: ItemId| match &program.item(id).item {
        Item::Load { offset, .. } => {
            let others = offset.terms.iter().filter(|t| t.0 != Term::Var(across));
            others.fold(ACCESS, |a, t| power_of_two_in(t.1, a)).min(power_of_two_in(offset.constant, ACCESS))
        }
        _ => 1,
    };
    let together = crossing.iter().map(|c| aligned(c.1)).min()?;
    let lanes_across = power_of_two_in(extent(across), (ACCESS / widest).max(1)).min(together).min(tile_across);
    // Each thread has at least a group to load and one to compute.
    let tile_inner = tile_inner.max(i64::from(BLOCK) * lanes.max(lanes_across) / tile_across);
    let shared = crossing.iter().map(|c| c.2).sum::<i64>() * tile_across * (tile_inner + 4);
    if shared > 44 << 10 {
        return None;
    }
    let tiles = |v: VarId, size: i64| extent(v).ceil_div(size);
    let others = program.nest.iter().filter(|&&v| v != inner && v != across).map(|&v| extent(v)).product::<i64>();
    let blocks = others.saturating_mul(tiles(across, tile_across)).saturating_mul(tiles(inner, tile_inner));
    let grid = TileGrid {
        program: program.clone(),
        across,
        loads: crossing.iter().map(|c| c.1).collect(),
        tile_across: tile_across as u32,
        tile_inner: tile_inner as u32,
        lanes_across: lanes_across as u32,
        lanes: lanes as u32,
    };
    Some((u32::try_from(blocks).ok()?, grid))
}

/// The threads of a nest whose points are independent.
pub(crate) fn nest_body(program: LoopProgram, architecture: Architecture) -> (u32, GridBody) {
    match tile_grid(&program) {
        Some((blocks, grid)) => (blocks, GridBody::Tiles(grid)),
        None => {
            let (blocks, grid) = loop_grid(program, architecture);
            (blocks, GridBody::Loops(grid))
        }
    }
}

/// How rows are walked, and by how many blocks.
pub(crate) struct RowMapping {
    pub(crate) blocks: i64,
    pub(crate) threads: u32,
    pub(crate) grid: RowGrid,
}

/// Whether neighbouring threads had better have neighbouring rows.
fn is_by_column(passes: &RowPasses) -> bool {
    let program = &passes.program;
    let (Some(&along), Some(&kept)) = (passes.along().last(), program.nest[..passes.kept].last()) else { return false };
    let (mut by_row, mut by_column) = (0, 0);
    for data in &program.items {
        let Item::Load { offset, .. } = &data.item else { continue };
        // What is the same for all rows, or for all of a row, is little, and found in a cache.
        let varies = |vars: &[VarId]| data.vars.iter().any(|v| vars.contains(v));
        if !varies(passes.along()) || !varies(&program.nest[..passes.kept]) {
            continue;
        }
        if offset.factor(Term::Var(along)).abs() == 1 {
            by_row += bytes(data.element_type);
        } else if offset.factor(Term::Var(kept)).abs() == 1 {
            by_column += bytes(data.element_type);
        }
    }
    by_column > by_row
}

/// Whether passes over rows can be cut into parts: one pass, of which nothing but the results is written.
fn can_be_cut(passes: &RowPasses) -> bool {
    let varies = |s: &hloom_loops::program::Store| {
        s.offset.terms.iter().any(|t| matches!(t.0, Term::Var(v) if passes.along().contains(&v)))
    };
    passes.passes().len() == 1 && !passes.program.stores.iter().any(varies)
}

/// The mapping of passes over rows. Where a row is cut into parts, `buffers` are made for the accumulators.
pub(crate) fn row_mapping(passes: RowPasses) -> RowMapping {
    if is_by_column(&passes) { column_mapping(passes) } else { along_rows(passes) }
}

fn along_rows(passes: RowPasses) -> RowMapping {
    let program = &passes.program;
    let (rows, length) = (passes.rows(), passes.length());
    let lanes = passes.along().last().map_or(1, |&v| lanes_along(program, v)).min(8);
    // As few threads as hold a row with half of what they can hold; or with a quarter, if that takes several warps anyway
    // and no more than a block has: what a thread holds is code, which takes its time to assemble.
    let most_held = (MAX_HELD.min(MAX_CODE as i64 / code_of(program).max(1)) / lanes).max(1) * lanes;
    let threads = |held: i64| power_of_two_above(length.ceil_div(held.max(lanes)));
    let mut slots = threads(most_held / 2);
    if slots > 32 && threads(most_held / 4) <= i64::from(BLOCK) {
        slots = threads(most_held / 4);
    }
    // At least 64 bytes of a row side by side, and no more than four groups a thread.
    let groups = length / lanes;
    let least = power_of_two_above(groups).min(power_of_two_above(groups.ceil_div(4)).max(4)).min(32);
    slots = slots.clamp(least, MAX_THREADS);
    // With few rows, more threads for each.
    while slots < 256 && rows * slots < ENOUGH_THREADS && slots * lanes < length {
        slots *= 2;
    }
    let mut chunks = length.ceil_div(slots * lanes);
    if chunks * lanes > most_held.max(lanes) {
        // As few rows under way as can be: what is read again is then still in the second cache. Sixteen elements at once
        // keep the memory busy; of single ones eight, as each takes ten lines of code.
        chunks = (16 / lanes).clamp(1, 8);
        slots = MAX_THREADS;
    }
    // What is read once is not held: more of it at once than keeps the memory busy is code and nothing else.
    let enough_at_once = (ENOUGH_AT_ONCE / lanes).max(1);
    if can_be_cut(&passes) && chunks > enough_at_once && code_of_reductions(program) * chunks * lanes > HEAVY {
        chunks = enough_at_once;
    }
    // Whole warps, whether there are so many rows or not: all of a warp's threads take part in its shuffles.
    let per_block = (i64::from(BLOCK) / slots).max(1);
    let mut grid = RowGrid {
        by_column: false,
        lanes: lanes as u32,
        slots: slots as u32,
        rows: per_block as u32,
        chunks: chunks as u32,
        partial: None,
        passes,
    };
    let mut blocks = rows.ceil_div(per_block);
    let wanted = (ENOUGH_THREADS / (slots * per_block)).max(1);
    if blocks < wanted / 2 && length >= 4096 && can_be_cut(&grid.passes) {
        // Parts of at least 8 elements a thread.
        grid.slots = 256;
        grid.rows = 1;
        let step = 256 * lanes;
        let parts = (wanted * 2 / rows.max(1)).clamp(1, length.ceil_div(step * (8 / lanes).max(1)));
        let part_length = length.ceil_div(parts).ceil_div(step) * step;
        let parts = length.ceil_div(part_length);
        if parts > 1 {
            grid.chunks = part_length.ceil_div(step).min((MAX_HELD / lanes).max(1)) as u32;
            grid.partial = Some(PartialRows { parts: parts as u32, length: part_length, buffers: Vec::new() });
            blocks = rows * parts;
        }
    }
    RowMapping { blocks, threads: grid.slots * grid.rows, grid }
}

fn column_mapping(passes: RowPasses) -> RowMapping {
    let program = &passes.program;
    let (rows, length) = (passes.rows(), passes.length());
    let kept = program.nest[passes.kept - 1];
    let mut lanes = lanes_along(program, kept).min(8);
    let width = widths_along(program, kept).into_iter().max().unwrap_or(4);
    let most_held = MAX_HELD.min(MAX_CODE as i64 / code_of(program).max(1)).max(1);
    let cut = can_be_cut(&passes);
    // Groups of lanes side by side: at least 128 bytes, 32 where that is needed to hold all of a column.
    let groups =
        |lanes: i64, segment: i64| (segment / (lanes * width)).clamp(1, 32).min(power_of_two_above(rows / lanes));
    let mut segment = 256;
    let mut slots = (i64::from(BLOCK) / groups(lanes, segment)).max(1).min(power_of_two_above(length));
    let mut chunks = (if lanes > 4 { 2 } else { 4 }).min(length.ceil_div(slots));
    if !cut {
        // Columns are read again unless they are held: narrower groups of more threads.
        (segment, slots) = (128, (512 / groups(lanes, 128)).max(1).min(power_of_two_above(length)));
        chunks = (8 / lanes).max(1).min(length.ceil_div(slots));
        let most_held = most_held.min(16);
        for (l, s) in [(lanes, 256), (lanes, 128), (lanes.min(4), 64)] {
            let most_slots = 512 / groups(l, s);
            let held = length.ceil_div(most_slots);
            if held * l <= most_held {
                (lanes, segment) = (l, s);
                slots = power_of_two_above(length.ceil_div((most_held / l).max(1))).clamp(1, most_slots);
                while slots < most_slots && slots * groups(l, s) < 256 && slots < length {
                    slots *= 2;
                }
                chunks = length.ceil_div(slots);
                break;
            }
        }
    }
    let per_block = groups(lanes, segment);
    let groups = rows / lanes;
    let mut blocks = groups.ceil_div(per_block);
    let mut partial = None;
    let wanted = (ENOUGH_THREADS / (slots * per_block)).max(1);
    if cut && blocks < wanted && length >= 8 * slots * chunks {
        let parts = (wanted * 2 / blocks).clamp(1, length / (4 * slots * chunks));
        let part_length = length.ceil_div(parts).ceil_div(slots) * slots;
        let parts = length.ceil_div(part_length);
        if parts > 1 {
            partial = Some(PartialRows { parts: parts as u32, length: part_length, buffers: Vec::new() });
            blocks *= parts;
        }
    }
    let threads = (slots * per_block) as u32;
    let grid = RowGrid {
        by_column: true,
        lanes: lanes as u32,
        slots: slots as u32,
        rows: per_block as u32,
        chunks: chunks as u32,
        partial,
        passes,
    };
    RowMapping { blocks, threads, grid }
}

/// Whether a warp or a block for each row, or columns of them, is better than a thread for each.
pub(crate) fn wants_rows(passes: &RowPasses) -> bool {
    let length = passes.length();
    if is_by_column(passes) {
        // A thread for each column reads neighbouring columns beside its neighbours already.
        let writes_elements = !can_be_cut(passes);
        return length >= 64 || passes.rows() < ENOUGH_THREADS || writes_elements && length >= 8;
    }
    length >= 8
}

/// Whether rows are so few and so long that each reduction had better be made by many blocks, one after another.
pub(crate) fn wants_cutting(passes: &RowPasses) -> bool {
    const LONG: i64 = 1 << 16;
    let few = if is_by_column(passes) { passes.rows() < 132 * 16 } else { passes.rows() < 66 };
    few && passes.length() >= LONG && !can_be_cut(passes)
}
