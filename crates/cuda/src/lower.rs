//! From a planned module to a program: a place for every array, and a thunk for every instruction that does something.
//!
//! What all machines share (control flow, copies, the evaluator's part) is [`hloom_runtime::lowering`]'s; here are kernels,
//! library calls, collectives, scratch memory, and what it takes for the whole to be one graph.

use crate::collective::{Collective, Reducer};
use crate::convolution::Convolution;
use crate::fft::Fft;
use crate::gemm::Gemm;
use crate::hand_written;
use crate::kernels::{KernelSource, Made, Request};
use crate::scratch;
use crate::solver::Solver;
use crate::thunk::{GraphNeed, KernelCall, ListId, Thunk, ThunkKind, ThunkProgram, While};
use hloom_analysis::devices::DeviceGrid;
use hloom_analysis::trip_count::counted;
use hloom_compiler::{CompileOptions, CompileReport};
use hloom_ir::entity::InstructionId;
use hloom_ir::op::Op;
use hloom_plan::Plan;
use hloom_plan::positions::Position;
use hloom_runtime::lowering::{Lowering, LoweringState, SharedThunk};
use hloom_runtime::placement::{
    AllocationSource, Location, argument_leaves, peak_bytes, sources, working_instructions,
};
use hloom_runtime::planned_values::PlannedValues;
use hloom_value::ExecutionError;
use rustc_hash::FxHashMap;
use std::time::Instant;

/// Where temporaries and scratch memory begin: what vector accesses and the libraries like best.
const ALIGNMENT: usize = 256;

/// Makes the program of a planned module with the kernels of `source`.
pub(crate) fn lower(
    plan: &Plan<'_>,
    options: &CompileOptions,
    source: KernelSource,
    report: &mut CompileReport,
) -> Result<ThunkProgram, ExecutionError> {
    let begun = Instant::now();
    let module = plan.dataflow.module();
    let entry = module.entry().ok_or_else(|| ExecutionError::bug("a verified module has no entry"))?;
    let mut lowering = CudaLowering {
        state: LoweringState::new(PlannedValues::new(plan)?, options.grid, options.fill_constants, report),
        table: Vec::new(),
        lists: vec![Vec::new()],
        requests: Vec::new(),
        scratch: plan.allocations.len() as u32,
        scratch_bytes: FxHashMap::default(),
    };
    let leaves = argument_leaves(plan).into_iter().enumerate();
    let argument_slots = leaves.filter_map(|(n, p)| Some((n, lowering.state.values.slot(p)?))).collect();
    lowering.computation(0, entry)?;
    let results = lowering.state.values.results(entry)?;
    lowering.state.stage("thunks", begun);
    let begun = Instant::now();
    let made = source.make(module, &lowering.requests);
    lowering.state.stage("kernels", begun);
    lowering.resolve(&made)?;
    let (mut allocations, planned_bytes) = sources(plan, ALIGNMENT)?;
    let (places, temporary_bytes) =
        scratch::place(plan, &allocations, &lowering.scratch_bytes, (planned_bytes, ALIGNMENT));
    allocations.push(match places.is_empty() {
        true => AllocationSource::Unused,
        false => AllocationSource::Temporary { offset: 0 },
    });
    lowering.move_scratch(&places);
    if temporary_bytes == usize::MAX {
        return Err(ExecutionError::out_of_memory(temporary_bytes));
    }
    let CudaLowering { lists, table, state, .. } = lowering;
    let (slots, evaluates) = (state.values.slots(), state.evaluates);
    let is_unused = |l: &Location| matches!(allocations.get(l.allocation as usize), Some(AllocationSource::Unused));
    if table.iter().any(is_unused) || results.iter().any(|r| is_unused(&r.location)) {
        return Err(ExecutionError::bug("an array has no memory of its own"));
    }
    report.native_instructions = working_instructions(module).saturating_sub(report.fallback_steps());
    report.temp_bytes = temporary_bytes;
    report.peak_bytes = peak_bytes(plan, temporary_bytes);
    let whole = graph_need(&lists, options.grid);
    Ok(ThunkProgram {
        lists,
        table,
        allocations,
        temporary_bytes,
        results,
        slots,
        argument_slots,
        made,
        evaluates,
        graph: whole,
    })
}

/// More launches than this are no graph: making it would take longer than it saves.
const MAX_LAUNCHES: u64 = 20_000;

/// What it takes for the whole program to be one graph.
fn graph_need(lists: &[Vec<Thunk>], grid: DeviceGrid) -> GraphNeed {
    let mut conditional = false;
    for thunk in lists.iter().flatten() {
        match &thunk.kind {
            // cuSOLVER looks at what it has computed on the way.
            ThunkKind::Evaluate(_) | ThunkKind::Solver(_) => return GraphNeed::Never,
            ThunkKind::While(While { trip_count: None, .. }) | ThunkKind::Conditional { .. } => conditional = true,
            _ => {}
        }
    }
    // Devices that go different ways would need bodies of their own.
    if conditional && grid.devices() > 1 || launches(lists, 0).saturating_mul(grid.devices() as u64) > MAX_LAUNCHES {
        return GraphNeed::Never;
    }
    if conditional { GraphNeed::ConditionalNodes } else { GraphNeed::Nothing }
}

/// About how many launches a list is, with those of loops that are written out. Lists nest as the program's calls do, which
/// are bounded.
fn launches(lists: &[Vec<Thunk>], list: ListId) -> u64 {
    let each = |thunk: &Thunk| match &thunk.kind {
        ThunkKind::While(repeat) => {
            launches(lists, repeat.body).saturating_add(1).saturating_mul(repeat.trip_count.unwrap_or(2))
        }
        ThunkKind::Conditional { branches, .. } => branches.iter().map(|&b| launches(lists, b)).sum(),
        _ => 1,
    };
    lists.get(list).into_iter().flatten().map(each).fold(0, u64::saturating_add)
}

struct CudaLowering<'p, 'm> {
    state: LoweringState<'p, 'm>,
    table: Vec<Location>,
    lists: Vec<Vec<Thunk>>,
    /// Kernels to be made.
    requests: Vec<Request>,
    /// The allocation that scratch memory is in; where in it each instruction's begins is found at the end.
    scratch: u32,
    /// How much of it an instruction needs.
    scratch_bytes: FxHashMap<InstructionId, usize>,
}

impl<'p, 'm: 'p> Lowering<'p, 'm> for CudaLowering<'p, 'm> {
    fn state(&mut self) -> &mut LoweringState<'p, 'm> {
        &mut self.state
    }

    fn add_list(&mut self) -> ListId {
        self.lists.push(Vec::new());
        self.lists.len() - 1
    }

    fn push_shared(&mut self, list: ListId, id: InstructionId, arrays: Vec<Position>, thunk: SharedThunk) {
        let kind = match thunk {
            SharedThunk::Copy { bytes } => ThunkKind::Copy { bytes },
            SharedThunk::DeviceId { grid, of_replica } => ThunkKind::DeviceId { grid, of_replica },
            SharedThunk::While { condition, body, state, closed } => {
                let trip_count = counted(self.state.values.module, id);
                ThunkKind::While(While { condition, body, trip_count, state, closed })
            }
            SharedThunk::Conditional { branches, by_truth } => ThunkKind::Conditional { branches, by_truth },
            SharedThunk::Evaluate(evaluate) => ThunkKind::Evaluate(evaluate),
        };
        self.push(list, id, arrays, kind);
    }

    fn native_instruction(&mut self, list: ListId, id: InstructionId) -> Result<(), ExecutionError> {
        let module = self.state.values.module;
        match &module[id].op {
            Op::AllReduce(_)
            | Op::AllGather(_)
            | Op::ReduceScatter(_)
            | Op::AllToAll { .. }
            | Op::CollectiveBroadcast { .. }
            | Op::CollectivePermute(_) => self.collective(list, id),
            Op::Dot(_) => match Gemm::new(module, id) {
                Ok(gemm) => self.library(list, id, "gemm", ThunkKind::Gemm(Box::new(gemm))),
                Err(why) => self.evaluate(list, id, &why.to_string()),
            },
            Op::Convolution(_) => match Convolution::new(module, id) {
                Ok((convolution, orders)) if Convolution::is_in_order(&orders) => {
                    self.library(list, id, "convolution", ThunkKind::Convolution(Box::new(convolution)));
                }
                Ok(_) => self.evaluate(list, id, "its dimensions are in another order than cuDNN's"),
                Err(why) => self.evaluate(list, id, &why),
            },
            Op::Fft { .. } => match Fft::new(module, id) {
                Ok(fft) => {
                    let copied = fft.destroys_operand().then_some(fft.operand_bytes);
                    self.library(list, id, "fft", ThunkKind::Fft(Box::new(fft)));
                    if let Some(mut thunk) = self.lists[list].pop() {
                        self.add_scratch(&mut thunk, 0, copied);
                        self.lists[list].push(thunk);
                    }
                }
                Err(why) => self.evaluate(list, id, &why),
            },
            Op::TriangularSolve { .. } | Op::Cholesky { .. } | Op::CustomCall(_) => match Solver::new(module, id) {
                Some(Ok(solver)) => self.library(list, id, "solver", ThunkKind::Solver(Box::new(solver))),
                Some(Err(why)) => self.evaluate(list, id, &why),
                None => self.kernel(list, id),
            },
            _ => self.kernel(list, id),
        }
        Ok(())
    }
}

impl CudaLowering<'_, '_> {
    fn push(&mut self, list: ListId, instruction: InstructionId, arrays: Vec<Position>, kind: ThunkKind) {
        let arrays = arrays.iter().map(|&p| self.state.values.location(p)).collect();
        self.push_at(list, instruction, arrays, kind);
    }

    fn push_at(&mut self, list: ListId, instruction: InstructionId, arrays: Vec<Location>, kind: ThunkKind) {
        let start = self.table.len() as u32;
        self.table.extend(arrays);
        let arrays = start..self.table.len() as u32;
        self.lists[list].push(Thunk { instruction, arrays, kind });
    }

    /// A call of a library's routine on the arrays of an instruction.
    fn library(&mut self, list: ListId, id: InstructionId, name: &str, kind: ThunkKind) {
        self.state.native(name);
        self.push(list, id, self.state.values.arrays(id), kind);
    }

    fn collective(&mut self, list: ListId, id: InstructionId) {
        let Some(mut collective) = Collective::new(self.state.values.module, id, self.state.grid) else {
            return self.evaluate(list, id, "devices exchange arrays in a way that there is no kernel for");
        };
        for (operands, reduction) in collective.reductions() {
            collective.reducers.push(Reducer { operands, sequence: self.requests.len() });
            self.requests.push(Request::Reduction(reduction));
        }
        self.push(list, id, self.state.values.arrays(id), ThunkKind::Collective(Box::new(collective)));
    }

    /// Asks for a kernel; what has none is left to the evaluator.
    fn kernel(&mut self, list: ListId, id: InstructionId) {
        let in_place = self.state.values.is_in_place(id);
        let sequence = self.requests.len();
        self.requests.push(Request::Instruction { id, in_place });
        let operands =
            self.state.values.module[id].operands().iter().map(|&o| self.state.values.leaves(o).count() as u32).sum();
        let results = self.state.values.leaves(id).count() as u32;
        let positions = self.state.values.arrays(id);
        let mut arrays: Vec<Location> = positions.iter().map(|&p| self.state.values.location(p)).collect();
        let copied_bytes = match hand_written::works_in_place(self.state.values.module, id) {
            true => 0,
            false => self.copy_overwritten(list, id, &positions, &mut arrays, operands as usize),
        };
        let call = KernelCall { sequence, operands, results, copied_bytes };
        self.push_at(list, id, arrays, ThunkKind::Kernels(call));
    }

    /// Copies operands that lie where a result goes to scratch memory, for kernels that read them again after they have
    /// begun to write; the bytes of all copies.
    fn copy_overwritten(
        &mut self,
        list: ListId,
        id: InstructionId,
        positions: &[Position],
        arrays: &mut [Location],
        operands: usize,
    ) -> usize {
        let mut copied_bytes = 0usize;
        for n in 0..operands.min(arrays.len()) {
            let from = arrays[n];
            if from == Location::NOWHERE || !arrays[operands..].contains(&from) {
                continue;
            }
            let bytes = self.state.values.bytes(positions[n]);
            let to = Location { allocation: self.scratch, offset: copied_bytes };
            copied_bytes = copied_bytes.saturating_add(bytes).checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
            self.push_at(list, id, vec![from, to], ThunkKind::Copy { bytes });
            arrays[n] = to;
        }
        self.need_scratch(id, copied_bytes);
        copied_bytes
    }

    /// Gives thunks their kernels and scratch memory; what is refused a kernel is left to the evaluator.
    fn resolve(&mut self, made: &[Made]) -> Result<(), ExecutionError> {
        let mut lists = std::mem::take(&mut self.lists);
        for thunk in lists.iter_mut().flatten() {
            let id = thunk.instruction;
            let missing = || ExecutionError::bug("a kernel was not asked for");
            match &thunk.kind {
                ThunkKind::Kernels(call) => match made.get(call.sequence).ok_or_else(missing)? {
                    Ok(sequence) => {
                        let is_fusion = matches!(self.state.values.module[id].op, Op::Fusion(_));
                        self.state.native(if is_fusion { "fusion" } else { "instruction" });
                        let (copied, scratch) = (call.copied_bytes, sequence.scratch.iter().map(|s| s.bytes as usize));
                        self.add_scratch(thunk, copied, scratch);
                    }
                    Err(why) => thunk.kind = ThunkKind::Evaluate(self.state.for_evaluator_because(id, why)),
                },
                ThunkKind::Collective(collective) => {
                    let made_of = |r: &Reducer| made.get(r.sequence);
                    let refused = collective.reducers.iter().find_map(|r| made_of(r)?.as_ref().err());
                    match refused {
                        Some(why) => thunk.kind = ThunkKind::Evaluate(self.state.for_evaluator_because(id, why)),
                        None => {
                            let reducers = collective.reducers.iter().filter_map(|r| made_of(r)?.as_ref().ok());
                            let scratch = reducers.flat_map(|s| s.scratch.iter().map(|s| s.bytes as usize));
                            let scratch: Vec<usize> = scratch.collect();
                            self.state.native("collective");
                            self.add_scratch(thunk, 0, scratch);
                        }
                    }
                }
                _ => {}
            }
        }
        self.lists = lists;
        Ok(())
    }

    /// Adds scratch memory of so many bytes each to the arrays of a thunk, from an offset on.
    fn add_scratch(&mut self, thunk: &mut Thunk, mut offset: usize, bytes: impl IntoIterator<Item = usize>) {
        let mut places = Vec::new();
        for bytes in bytes {
            places.push(Location { allocation: self.scratch, offset });
            offset = offset.saturating_add(bytes).checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
        }
        if places.is_empty() {
            return;
        }
        let start = self.table.len() as u32;
        self.table.extend_from_within(thunk.arrays.start as usize..thunk.arrays.end as usize);
        self.table.extend(places);
        thunk.arrays = start..self.table.len() as u32;
        self.need_scratch(thunk.instruction, offset);
    }

    fn need_scratch(&mut self, id: InstructionId, bytes: usize) {
        if bytes > 0 {
            let needed = self.scratch_bytes.entry(id).or_default();
            *needed = bytes.max(*needed);
        }
    }

    /// Moves the scratch memory of each instruction to its place.
    fn move_scratch(&mut self, places: &FxHashMap<InstructionId, usize>) {
        for thunk in self.lists.iter().flatten() {
            let place = places.get(&thunk.instruction).copied().unwrap_or(0);
            for location in &mut self.table[thunk.arrays.start as usize..thunk.arrays.end as usize] {
                if location.allocation == self.scratch {
                    location.offset = location.offset.saturating_add(place);
                }
            }
        }
    }
}
