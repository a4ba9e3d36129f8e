//! From a graph to the kernels that compute it, and the memory between them.
//!
//! Nests without large reductions are one kernel, each with blocks of its own. Passes over the same rows are one kernel, in
//! two steps where rows are few. What fits neither is cut: a reduction is computed first and put into memory.

use crate::mapping::{BLOCK, CeilDiv, loop_grid, nest_body, ordered_grid, row_mapping, wants_cutting, wants_rows};
use hloom_cuda_kernels::{Architecture, Scratch};
use hloom_ir::ElementType;
use hloom_llvm::nvptx::{GridBody, GridKernel};
use hloom_loops::affine::{Affine, ItemId, Term, VarId};
use hloom_loops::graph::{Graph, Node, NodeOp, ValueRef};
use hloom_loops::nests::programs;
use hloom_loops::program::{Item, ItemData, LoadSource, LoopProgram, Store};
use hloom_loops::row_passes::RowPasses;
use hloom_loops::unsupported::Unsupported;
use smallvec::{SmallVec, smallvec};

/// A kernel and the number of its blocks.
#[derive(Debug)]
pub(crate) struct PlannedKernel {
    pub(crate) kernel: GridKernel,
    pub(crate) blocks: u32,
}

/// The kernels of a graph.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) kernels: Vec<PlannedKernel>,
    /// Memory beside the operands and results, whose buffers come after those.
    pub(crate) scratch: Vec<Scratch>,
}

/// Reductions of fewer elements are made by single threads.
const LEAST_ROW: i64 = 8;
/// Constants of more bytes are not for the text of a kernel.
const MAX_CONSTANT: usize = 1 << 16;
/// The most nests in one kernel.
const MAX_PARTS: usize = 64;
/// And the most items of them together.
const MAX_PART_ITEMS: usize = 4000;

/// Plans the kernels of a graph.
pub(crate) fn plan(graph: &Graph, in_place: bool, architecture: Architecture) -> Result<Plan, Unsupported> {
    check(graph)?;
    let first_scratch = graph.inputs + graph.outputs.len() as u32;
    let mut planner = Planner { plan: Plan::default(), first_scratch, is_wide: is_wide(graph), architecture };
    let mut work = vec![(with_whole_sectors(graph), in_place)];
    while let Some((graph, in_place)) = work.pop() {
        if let Some((first, rest)) = planner.graph(&graph, in_place)? {
            // The part that comes first is taken from the list first.
            work.push((rest, in_place));
            work.push((first, false));
        }
    }
    Ok(planner.plan)
}

/// Bytes that memory is written in: fewer at a time are read before, to be written back with them.
const SECTOR: i64 = 32;

/// The graph with concatenations of short pieces as values of each element, not as parts that are written one after another:
/// these would leave gaps between what they write.
fn with_whole_sectors(graph: &Graph) -> Graph {
    let mut graph = graph.clone();
    for n in 0..graph.outputs.len() {
        let output = graph.outputs[n];
        let node = graph.node(output);
        let NodeOp::Concatenate { dimension } = node.op else { continue };
        let inner = node.dims[dimension + 1..].iter().product::<i64>() * node.types[0].bytes() as i64;
        let is_short = |&part: &ValueRef| graph.dims(part)[dimension] * inner < SECTOR;
        if node.operands.iter().all(is_short) {
            let (types, dims) = (node.types.clone(), node.dims.clone());
            graph.nodes.push(Node { op: NodeOp::Reshape, operands: smallvec![output], types, dims });
            graph.outputs[n] = ValueRef { node: graph.nodes.len() as u32 - 1, result: 0 };
        }
    }
    graph
}

fn check(graph: &Graph) -> Result<(), Unsupported> {
    for node in &graph.nodes {
        if let NodeOp::Constant(data) = &node.op
            && data.bytes().len() > MAX_CONSTANT
            && node.dims.iter().product::<i64>() > 1
        {
            return Err(Unsupported::new("a large constant inside of a fusion"));
        }
    }
    Ok(())
}

/// Whether an array has more elements than 32 bits count.
fn is_wide(graph: &Graph) -> bool {
    let elements = |node: &Node| node.dims.iter().fold(1i64, |a, &b| a.saturating_mul(b));
    graph.nodes.iter().any(|n| elements(n) >= i64::from(i32::MAX) - (1 << 20))
}

struct Planner {
    plan: Plan,
    first_scratch: u32,
    is_wide: bool,
    architecture: Architecture,
}

impl Planner {
    /// Plans a graph, or cuts it in two, of which the first comes first.
    fn graph(&mut self, graph: &Graph, in_place: bool) -> Result<Option<(Graph, Graph)>, Unsupported> {
        let mut plain = Vec::new();
        let mut changing = Vec::new();
        for program in programs(graph, in_place)? {
            match program.is_sequential {
                true => changing.push(program),
                false => plain.push(program),
            }
        }
        let mut rows = Vec::new();
        while let Some((passes, rest)) = RowPasses::of(&plain, LEAST_ROW) {
            if !wants_rows(&passes) {
                break;
            }
            if wants_cutting(&passes) {
                break;
            }
            plain = rest.iter().map(|&n| plain[n].clone()).collect();
            rows.push(passes);
        }
        let large =
            |p: &LoopProgram| p.items.iter().any(|i| matches!(&i.item, Item::Reduce(r) if p.size_of(&r.vars) >= LARGE));
        let nested = |passes: &RowPasses| {
            let p = &passes.program;
            p.items.iter().any(
                |i| matches!(&i.item, Item::Reduce(r) if r.vars[..] != *passes.along() && p.size_of(&r.vars) >= LARGE),
            )
        };
        if (plain.iter().chain(&changing).any(large) || rows.iter().any(nested))
            && let Some(cut) = self.cut_reduction(graph, LARGE)
        {
            return Ok(Some(cut));
        }
        if plain.iter().any(repeats_reduction)
            && let Some(cut) = self.cut_reduction(graph, LEAST_ROW)
        {
            return Ok(Some(cut));
        }
        for passes in rows {
            self.rows(passes)?;
        }
        self.loops(plain);
        for program in changing {
            self.scatter(program, in_place)?;
        }
        Ok(None)
    }

    /// Puts the first reduction of a graph that has so many elements into memory, if it is not all that there is.
    fn cut_reduction(&mut self, graph: &Graph, least: i64) -> Option<(Graph, Graph)> {
        let reachable = reachable(graph);
        let is_large = |node: &Node| match &node.op {
            NodeOp::Reduce { dimensions, .. } => {
                let from = graph.dims(*node.operands.first()?);
                Some(dimensions.iter().fold(1i64, |n, &d| n.saturating_mul(from[d as usize])) >= least)
            }
            _ => Some(false),
        };
        let number = (0..graph.nodes.len()).find(|&n| reachable[n] && is_large(&graph.nodes[n]) == Some(true))?;
        let node = &graph.nodes[number];
        let results: Vec<ValueRef> =
            (0..node.types.len() as u32).map(|result| ValueRef { node: number as u32, result }).collect();
        if graph.outputs.iter().all(|o| results.contains(o)) {
            return None;
        }
        let mut first = graph.clone();
        first.outputs = results.clone();
        first.inputs = self.first_scratch + self.plan.scratch.len() as u32;
        let mut rest = graph.clone();
        // Parameters stand before what reads them: the node itself becomes the first, others go to the end and are put in
        // front by renumbering.
        let parameters: Vec<Node> = node
            .types
            .iter()
            .map(|&t| {
                let elements = node.dims.iter().fold(1i64, |a, &b| a.saturating_mul(b));
                let buffer = self.scratch(elements.saturating_mul(t.bytes() as i64));
                Node {
                    op: NodeOp::Parameter(buffer),
                    operands: SmallVec::new(),
                    types: smallvec![t],
                    dims: node.dims.clone(),
                }
            })
            .collect();
        let count = parameters.len() as u32;
        let renumber = |v: ValueRef| match v.node as usize {
            n if n == number => ValueRef { node: v.result, result: 0 },
            _ => ValueRef { node: v.node + count, result: v.result },
        };
        for node in &mut rest.nodes {
            node.operands.iter_mut().for_each(|o| *o = renumber(*o));
        }
        rest.outputs.iter_mut().for_each(|o| *o = renumber(*o));
        rest.nodes.splice(0..0, parameters);
        Some((first, rest))
    }

    fn scratch(&mut self, bytes: i64) -> u32 {
        self.plan.scratch.push(Scratch { bytes: bytes.max(0) as u64, zeroed: false });
        self.first_scratch + self.plan.scratch.len() as u32 - 1
    }

    fn push(&mut self, name: &str, threads: u32, parts: Vec<(u32, GridBody)>) {
        let blocks = parts.iter().map(|p| p.0).fold(0u32, u32::saturating_add);
        let kernel = GridKernel { name: name.into(), threads, is_wide: self.is_wide, parts };
        self.plan.kernels.push(PlannedKernel { kernel, blocks });
    }

    /// Passes over rows, in one step or two.
    fn rows(&mut self, passes: RowPasses) -> Result<(), Unsupported> {
        let mapping = row_mapping(passes);
        let blocks = u32::try_from(mapping.blocks).map_err(|_| Unsupported::new("more rows than a grid has blocks"))?;
        let mut grid = mapping.grid;
        let name = if grid.by_column { "columns" } else { "rows" };
        if grid.partial.is_none() {
            self.push(name, mapping.threads, vec![(blocks, GridBody::Rows(grid))]);
            return Ok(());
        }
        let second = self.second_step(&mut grid);
        let name = if grid.by_column { "columns_in_part" } else { "rows_in_part" };
        self.push(name, mapping.threads, vec![(blocks, GridBody::Rows(grid))]);
        match RowPasses::of(std::slice::from_ref(&second), 1) {
            Some((passes, _)) => {
                let mut mapping = row_mapping(passes);
                mapping.grid.partial = None;
                let blocks = mapping.grid.passes.rows().ceil_div(
                    i64::from(mapping.grid.rows)
                        * if mapping.grid.by_column { i64::from(mapping.grid.lanes) } else { 1 },
                );
                let blocks = u32::try_from(blocks).map_err(|_| Unsupported::new("more rows than a grid has blocks"))?;
                let threads = mapping.grid.slots * mapping.grid.rows;
                self.push("reduced_parts", threads, vec![(blocks, GridBody::Rows(mapping.grid))]);
            }
            None => self.loops(vec![second]),
        }
        Ok(())
    }

    /// What is left to do when all parts of rows are reduced: the program with the accumulators in place of elements.
    fn second_step(&mut self, grid: &mut hloom_llvm::nvptx::RowGrid) -> LoopProgram {
        let passes = &grid.passes;
        let (rows, by_column) = (passes.rows(), grid.by_column);
        let parts = grid.partial.as_ref().map_or(1, |p| i64::from(p.parts));
        let reductions: Vec<ItemId> = passes.passes().into_iter().flatten().collect();
        let mut program = passes.program.clone();
        let kept: Vec<VarId> = program.nest[..passes.kept].to_vec();
        let part = program.extents.len() as VarId;
        program.extents.push(parts);
        program.nest.truncate(passes.kept);
        let mut row = Affine::default();
        for &v in &kept {
            row = row.times(program.extents[v as usize]).plus(&Affine::term(Term::Var(v)), 1);
        }
        let offset = match by_column {
            true => Affine::term(Term::Var(part)).times(rows).plus(&row, 1),
            false => row.times(parts).plus(&Affine::term(Term::Var(part)), 1),
        };
        // Loads of the accumulators come before all items, which get new numbers.
        let mut loads: Vec<ItemData> = Vec::new();
        let mut inputs: Vec<(ItemId, SmallVec<[ItemId; 1]>)> = Vec::new();
        let mut buffers = Vec::new();
        for &id in &reductions {
            let Item::Reduce(reduce) = &program.item(id).item else { continue };
            let mut of = SmallVec::new();
            for n in 0..reduce.inits.len() {
                let t: ElementType = reduce.function.parameters[n];
                let buffer = self.scratch(rows.saturating_mul(parts).saturating_mul(t.bytes() as i64));
                buffers.push(buffer);
                of.push(loads.len() as ItemId);
                let item = Item::Load { source: LoadSource::Buffer(buffer), offset: offset.clone(), guard: None };
                loads.push(ItemData { item, element_type: t, vars: SmallVec::new() });
            }
            inputs.push((id, of));
        }
        let shift = loads.len() as ItemId;
        for data in &mut program.items {
            data.item.map_operands(|o| o + shift);
        }
        program.rename_stored(|i| i + shift);
        for (id, of) in inputs {
            if let Item::Reduce(reduce) = &mut program.items[id as usize].item {
                reduce.vars = smallvec![part];
                reduce.inputs = of;
                reduce.condition = None;
            }
        }
        program.items.splice(0..0, loads);
        program.remove_dead();
        program.find_vars();
        if let Some(partial) = &mut grid.partial {
            partial.buffers = buffers;
        }
        program
    }

    /// Nests whose points are independent, as few kernels.
    fn loops(&mut self, programs: Vec<LoopProgram>) {
        let mut parts: Vec<(u32, GridBody)> = Vec::new();
        let mut items = 0;
        for program in programs {
            if program.nest.iter().any(|&v| program.extents[v as usize] == 0) {
                continue;
            }
            let count = program.items.len();
            if !parts.is_empty() && (parts.len() >= MAX_PARTS || items + count > MAX_PART_ITEMS) {
                self.push("loops", BLOCK, std::mem::take(&mut parts));
                items = 0;
            }
            items += count;
            parts.push(nest_body(program, self.architecture));
        }
        if !parts.is_empty() {
            self.push("loops", BLOCK, parts);
        }
    }

    /// Updates that are combined with what is there, after what is there has been put there.
    fn scatter(&mut self, mut program: LoopProgram, in_place: bool) -> Result<(), Unsupported> {
        if program.stores.iter().any(|s| s.combine.is_some() && s.element_type == ElementType::C128)
            && !program
                .stores
                .iter()
                .filter_map(|s| s.combine.as_ref())
                .all(|f| f.single_operation() == Some(hloom_ir::op::BinaryOp::Add))
        {
            return Err(Unsupported::new("a scatter of c128 by this function"));
        }
        if let Some(before) = program.before.take() {
            self.loops(vec![*before]);
        }
        if let Some((from, to, bytes)) = program.copy_first.take().filter(|_| !in_place) {
            self.loops(vec![copy(from, to, bytes)]);
        }
        if program.nest.iter().any(|&v| program.extents[v as usize] == 0) || program.stores.is_empty() {
            return Ok(());
        }
        program.is_sequential = false;
        // Of few updates that overwrite each other the last remains.
        if program.stores.iter().all(|s| s.combine.is_none())
            && let Some((blocks, grid)) = ordered_grid(&program)
        {
            self.push("scatter_in_order", BLOCK, vec![(blocks, GridBody::Loops(grid))]);
            return Ok(());
        }
        let (blocks, grid) = loop_grid(program, self.architecture);
        self.push("scatter", BLOCK, vec![(blocks, GridBody::Loops(grid))]);
        Ok(())
    }
}

/// Reductions of that many elements are not made by single threads.
const LARGE: i64 = 256;

/// A reduction that so many points of a nest share is made once, not by each of them.
const REPEATED: i64 = 64;

/// Whether points of a nest would each make a reduction that is the same for many of them.
fn repeats_reduction(program: &LoopProgram) -> bool {
    let repeats = |data: &ItemData| {
        let sharing: Vec<VarId> = program.nest.iter().copied().filter(|v| !data.vars.contains(v)).collect();
        program.size_of(&sharing) >= REPEATED
    };
    let is_row = |data: &&ItemData| matches!(&data.item, Item::Reduce(r) if program.size_of(&r.vars) >= LEAST_ROW);
    program.items.iter().filter(is_row).any(repeats)
}

/// A copy of so many bytes.
fn copy(from: u32, to: u32, bytes: i64) -> LoopProgram {
    let (t, size) = match bytes {
        b if b % 4 == 0 => (ElementType::U32, 4),
        b if b % 2 == 0 => (ElementType::U16, 2),
        _ => (ElementType::U8, 1),
    };
    let along = Affine::term(Term::Var(0));
    let item = Item::Load { source: LoadSource::Buffer(from), offset: along.clone(), guard: None };
    LoopProgram {
        extents: vec![bytes / size],
        nest: smallvec![0],
        items: vec![ItemData { item, element_type: t, vars: smallvec![0] }],
        stores: vec![Store { buffer: to, offset: along, item: 0, element_type: t, combine: None, condition: None }],
        ..LoopProgram::default()
    }
}

/// Which nodes the outputs are made of.
fn reachable(graph: &Graph) -> Vec<bool> {
    let mut reachable = vec![false; graph.nodes.len()];
    for output in &graph.outputs {
        reachable[output.node as usize] = true;
    }
    for n in (0..graph.nodes.len()).rev() {
        if reachable[n] {
            graph.nodes[n].operands.iter().for_each(|o| reachable[o.node as usize] = true);
        }
    }
    reachable
}
