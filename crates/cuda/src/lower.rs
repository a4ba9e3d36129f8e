//! From a planned module to a program: a place for every array, and a thunk for every instruction that does something.
//!
//! Tuples, their elements and whatever else merely hands values on are no thunks: `plan` says that the value is where it
//! was. What the plan does not tie together where the run needs it tied is an error here, not a wrong result.

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
use hloom_analysis::effects::reaches_outside;
use hloom_analysis::trip_count::counted;
use hloom_compiler::{CompileOptions, CompileReport};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::op::{ConstantValue, Op};
use hloom_plan::Plan;
use hloom_plan::positions::Position;
use hloom_runtime::placement::{
    AllocationSource, Location, argument_leaves, hands_on, peak_bytes, sources, working_instructions,
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
    let mut lowering = Lowering {
        values: PlannedValues::new(plan)?,
        table: Vec::new(),
        lists: vec![Vec::new()],
        reaches_outside: vec![false],
        requests: Vec::new(),
        evaluates: false,
        fill_constants: options.fill_constants,
        grid: options.grid,
        scratch: plan.allocations.len() as u32,
        scratch_bytes: FxHashMap::default(),
        report,
    };
    let leaves = argument_leaves(plan).into_iter().enumerate();
    let argument_slots = leaves.filter_map(|(n, p)| Some((n, lowering.values.slot(p)?))).collect();
    lowering.list(entry, 0)?;
    let results = lowering.values.results(entry)?;
    lowering.report.stages.push(("thunks", begun.elapsed()));
    let begun = Instant::now();
    let made = source.make(module, &lowering.requests);
    lowering.report.stages.push(("kernels", begun.elapsed()));
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
    let Lowering { lists, table, evaluates, values, .. } = lowering;
    let slots = values.slots();
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

struct Lowering<'p, 'm> {
    values: PlannedValues<'p, 'm>,
    table: Vec<Location>,
    lists: Vec<Vec<Thunk>>,
    /// For each list whether anything besides its arrays decides what it does, or it does anything else.
    reaches_outside: Vec<bool>,
    /// Kernels to be made.
    requests: Vec<Request>,
    evaluates: bool,
    fill_constants: bool,
    grid: DeviceGrid,
    /// The allocation that scratch memory is in; where in it each instruction's begins is found at the end.
    scratch: u32,
    /// How much of it an instruction needs.
    scratch_bytes: FxHashMap<InstructionId, usize>,
    report: &'p mut CompileReport,
}

impl Lowering<'_, '_> {
    /// Adds the thunks of `computation` to a list.
    fn list(&mut self, computation: ComputationId, list: ListId) -> Result<(), ExecutionError> {
        let module = self.values.module;
        for &id in module[computation].instructions() {
            self.instruction(id, list)?;
        }
        Ok(())
    }

    fn new_list(&mut self, computation: ComputationId) -> Result<ListId, ExecutionError> {
        let list = self.lists.len();
        self.lists.push(Vec::new());
        self.reaches_outside.push(false);
        self.list(computation, list)?;
        Ok(list)
    }

    fn push(&mut self, list: ListId, instruction: InstructionId, arrays: Vec<Position>, kind: ThunkKind) {
        let arrays = arrays.iter().map(|&p| self.values.location(p)).collect();
        self.push_at(list, instruction, arrays, kind);
    }

    fn push_at(&mut self, list: ListId, instruction: InstructionId, arrays: Vec<Location>, kind: ThunkKind) {
        let start = self.table.len() as u32;
        self.table.extend(arrays);
        let arrays = start..self.table.len() as u32;
        self.lists[list].push(Thunk { instruction, arrays, kind });
    }

    fn native(&mut self, what: &str) {
        *self.report.native.entry(what.to_owned()).or_default() += 1;
    }

    /// Copies each leaf to where it is wanted, unless it is there.
    fn tie(&mut self, list: ListId, id: InstructionId, from: Vec<Position>, to: Vec<Position>) {
        for (from, to) in from.into_iter().zip(to) {
            let (source, target) = (self.values.location(from), self.values.location(to));
            if source != target && source != Location::NOWHERE && target != Location::NOWHERE {
                let bytes = self.values.bytes(from);
                self.push(list, id, vec![from, to], ThunkKind::Copy { bytes });
            }
        }
    }

    fn instruction(&mut self, id: InstructionId, list: ListId) -> Result<(), ExecutionError> {
        let module = self.values.module;
        let instruction = &module[id];
        self.reaches_outside[list] |= reaches_outside(&instruction.op);
        if !matches!(instruction.op, Op::Parameter { .. }) && !hands_on(&instruction.op) && self.values.uses_slots(id) {
            self.evaluate(list, id, "it has a size that is known at run time only");
            return Ok(());
        }
        match &instruction.op {
            Op::Parameter { .. } => {}
            Op::Constant(ConstantValue::Elided) if !self.fill_constants => {
                self.evaluate(list, id, "its value is not known");
            }
            Op::Constant(_) => {}
            Op::Copy | Op::Reshape { .. } if instruction.shape.is_array() => self.copy(list, id),
            Op::CopyStart { .. } => self.copy(list, id),
            Op::ReplicaId | Op::PartitionId => {
                let kind = ThunkKind::DeviceId { grid: self.grid, of_replica: matches!(instruction.op, Op::ReplicaId) };
                self.push(list, id, self.values.arrays(id), kind);
                self.native("device id");
            }
            Op::While { condition, body } => self.while_loop(list, id, *condition, *body)?,
            Op::Conditional { branches } => self.conditional(list, id, branches)?,
            Op::Call { to_apply, .. } => self.call(list, id, *to_apply, &[])?,
            Op::AsyncStart(start) => self.call(list, id, start.calls, &[1])?,
            Op::AllReduce(_)
            | Op::AllGather(_)
            | Op::ReduceScatter(_)
            | Op::AllToAll { .. }
            | Op::CollectiveBroadcast { .. }
            | Op::CollectivePermute(_) => self.collective(list, id),
            Op::Dot(_) => match Gemm::new(module, id) {
                Ok(gemm) => {
                    self.native("gemm");
                    self.push(list, id, self.values.arrays(id), ThunkKind::Gemm(Box::new(gemm)));
                }
                Err(why) => self.evaluate(list, id, &why.to_string()),
            },
            Op::Convolution(_) => match Convolution::new(module, id) {
                Ok((convolution, orders)) if Convolution::is_in_order(&orders) => {
                    self.native("convolution");
                    self.push(list, id, self.values.arrays(id), ThunkKind::Convolution(Box::new(convolution)));
                }
                Ok(_) => self.evaluate(list, id, "its dimensions are in another order than cuDNN's"),
                Err(why) => self.evaluate(list, id, &why),
            },
            Op::Fft { .. } => match Fft::new(module, id) {
                Ok(fft) => {
                    self.native("fft");
                    let copied = fft.destroys_operand().then_some(fft.operand_bytes);
                    self.push(list, id, self.values.arrays(id), ThunkKind::Fft(Box::new(fft)));
                    if let Some(mut thunk) = self.lists[list].pop() {
                        self.add_scratch(&mut thunk, 0, copied);
                        self.lists[list].push(thunk);
                    }
                }
                Err(why) => self.evaluate(list, id, &why),
            },
            Op::TriangularSolve { .. } | Op::Cholesky { .. } | Op::CustomCall(_) => match Solver::new(module, id) {
                Some(Ok(solver)) => {
                    self.native("solver");
                    self.push(list, id, self.values.arrays(id), ThunkKind::Solver(Box::new(solver)));
                }
                Some(Err(why)) => self.evaluate(list, id, &why),
                None => self.kernel(list, id),
            },
            op => {
                // What hands values on makes none; all else is done, for its value or its effect.
                if !hands_on(op) || self.values.leaves(id).any(|p| self.values.makes(p)) {
                    self.kernel(list, id);
                }
            }
        }
        Ok(())
    }

    fn while_loop(
        &mut self,
        list: ListId,
        id: InstructionId,
        condition: ComputationId,
        body: ComputationId,
    ) -> Result<(), ExecutionError> {
        let module = self.values.module;
        let parameter = |c| module.parameters(c).first().copied();
        let (Some(in_body), Some(in_condition)) = (parameter(body), parameter(condition)) else {
            return Err(ExecutionError::bug("a loop without parameters"));
        };
        let (Some(next), Some(truth)) = (module.root(body), module.root(condition)) else {
            return Err(ExecutionError::bug("a loop without a root"));
        };
        let init = module[id].operands()[0];
        for (from, to) in [(init, id), (id, in_body), (id, in_condition), (next, id)] {
            self.values.must_be_tied(id, from, to)?;
        }
        let (condition, body) = (self.new_list(condition)?, self.new_list(body)?);
        let positions = &self.values.plan.dataflow.positions;
        let state = self.values.leaves(id).map(|p| self.values.bytes(p)).collect();
        let arrays = [positions.whole(truth)].into_iter().chain(self.values.leaves(id)).collect();
        let closed = ![condition, body].iter().any(|&l| self.reaches_outside[l]);
        let repeat = While { condition, body, trip_count: counted(module, id), state, closed };
        self.push(list, id, arrays, ThunkKind::While(repeat));
        self.reaches_outside[list] |= !closed;
        self.native("while");
        Ok(())
    }

    fn conditional(
        &mut self,
        list: ListId,
        id: InstructionId,
        branches: &[ComputationId],
    ) -> Result<(), ExecutionError> {
        let module = self.values.module;
        let operands = module[id].operands();
        for (&branch, &operand) in branches.iter().zip(operands.iter().skip(1)) {
            let (Some(&parameter), Some(root)) = (module.parameters(branch).first(), module.root(branch)) else {
                return Err(ExecutionError::bug("a branch without a parameter"));
            };
            self.values.must_be_tied(id, operand, parameter)?;
            self.values.must_be_tied(id, root, id)?;
        }
        let by_truth = module[operands[0]].shape.is_scalar_of(ElementType::Pred);
        let branches = branches.iter().map(|&b| self.new_list(b)).collect::<Result<Vec<_>, _>>()?;
        let selector = self.values.plan.dataflow.positions.whole(operands[0]);
        self.reaches_outside[list] |= branches.iter().any(|&b| self.reaches_outside[b]);
        self.push(list, id, vec![selector], ThunkKind::Conditional { branches, by_truth });
        self.native("conditional");
        Ok(())
    }

    fn collective(&mut self, list: ListId, id: InstructionId) {
        let Some(mut collective) = Collective::new(self.values.module, id, self.grid) else {
            return self.evaluate(list, id, "devices exchange arrays in a way that there is no kernel for");
        };
        for (operands, reduction) in collective.reductions() {
            collective.reducers.push(Reducer { operands, sequence: self.requests.len() });
            self.requests.push(Request::Reduction(reduction));
        }
        self.push(list, id, self.values.arrays(id), ThunkKind::Collective(Box::new(collective)));
    }

    /// Asks for a kernel; what has none is left to the evaluator.
    fn kernel(&mut self, list: ListId, id: InstructionId) {
        let in_place = self.values.is_in_place(id);
        let sequence = self.requests.len();
        self.requests.push(Request::Instruction { id, in_place });
        let operands = self.values.module[id].operands().iter().map(|&o| self.values.leaves(o).count() as u32).sum();
        let results = self.values.leaves(id).count() as u32;
        let positions = self.values.arrays(id);
        let mut arrays: Vec<Location> = positions.iter().map(|&p| self.values.location(p)).collect();
        let copied_bytes = match hand_written::works_in_place(self.values.module, id) {
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
            let bytes = self.values.bytes(positions[n]);
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
                        let is_fusion = matches!(self.values.module[id].op, Op::Fusion(_));
                        self.native(if is_fusion { "fusion" } else { "instruction" });
                        let (copied, scratch) = (call.copied_bytes, sequence.scratch.iter().map(|s| s.bytes as usize));
                        self.add_scratch(thunk, copied, scratch);
                    }
                    Err(why) => thunk.kind = self.for_evaluator_because(id, why),
                },
                ThunkKind::Collective(collective) => {
                    let made_of = |r: &Reducer| made.get(r.sequence);
                    let refused = collective.reducers.iter().find_map(|r| made_of(r)?.as_ref().err());
                    match refused {
                        Some(why) => thunk.kind = self.for_evaluator_because(id, why),
                        None => {
                            let reducers = collective.reducers.iter().filter_map(|r| made_of(r)?.as_ref().ok());
                            let scratch = reducers.flat_map(|s| s.scratch.iter().map(|s| s.bytes as usize));
                            let scratch: Vec<usize> = scratch.collect();
                            self.native("collective");
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

    /// Copies the operand to the (first leaf of the) result.
    fn copy(&mut self, list: ListId, id: InstructionId) {
        let from: Vec<Position> = self.values.leaves(self.values.module[id].operands()[0]).collect();
        let to: Vec<Position> = self.values.leaves(id).collect();
        self.tie(list, id, from, to);
        self.native("copy");
    }

    /// Runs a computation as a part of the list; its result is the part `index` of the instruction's.
    fn call(
        &mut self,
        list: ListId,
        id: InstructionId,
        computation: ComputationId,
        index: &[i64],
    ) -> Result<(), ExecutionError> {
        let module = self.values.module;
        for (&operand, parameter) in module[id].operands().iter().zip(module.parameters(computation)) {
            self.values.must_be_tied(id, operand, parameter)?;
        }
        self.list(computation, list)?;
        let root = module.root(computation).ok_or_else(|| ExecutionError::bug("a computation without a root"))?;
        let positions = &self.values.plan.dataflow.positions;
        let part = positions.part(id, index).ok_or_else(|| ExecutionError::bug("a start without a result"))?;
        let to: Vec<Position> = part.filter(|&p| !positions.is_tuple(p)).collect();
        let from: Vec<Position> = self.values.leaves(root).collect();
        self.tie(list, id, from, to);
        Ok(())
    }

    /// Leaves an instruction to the evaluator.
    fn evaluate(&mut self, list: ListId, id: InstructionId, reason: &str) {
        let (kind, arrays) = (self.for_evaluator_because(id, reason), self.values.arrays(id));
        self.push(list, id, arrays, kind);
    }

    /// The evaluator's part, noted in the report.
    fn for_evaluator_because(&mut self, id: InstructionId, reason: &str) -> ThunkKind {
        let module = self.values.module;
        self.report.fall_back(module[id].op.opcode().name(), module[id].name(), reason);
        self.evaluates = true;
        ThunkKind::Evaluate(Box::new(self.values.for_evaluator(id)))
    }
}
