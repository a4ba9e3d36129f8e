//! From a planned module to a program: a place for every array, and a thunk for every instruction that does something.
//!
//! Tuples, their elements and whatever else merely hands values on are no thunks: `plan` says that the value is where it
//! was. What the plan does not tie together where the run needs it tied is an error here, not a wrong result.

use crate::collective::Collective;
use crate::convolution::Convolution;
use crate::fft::Fft;
use crate::gemm::Gemm;
use crate::kernels::{KernelSource, Made, Request};
use crate::thunk::{
    Evaluate, EvaluatedLeaf, GraphNeed, KernelCall, ListId, ResultLeaf, Thunk, ThunkKind, ThunkProgram, While,
};
use hloom_analysis::devices::DeviceGrid;
use hloom_analysis::effects::reaches_outside;
use hloom_analysis::trip_count::counted;
use hloom_compiler::{CompileOptions, CompileReport};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_plan::Plan;
use hloom_plan::dataflow::ValueId;
use hloom_plan::in_place::Pair;
use hloom_plan::positions::Position;
use hloom_runtime::placement::{
    AllocationSource, Location, argument_leaves, hands_on, locations, peak_bytes, sources, working_instructions,
};
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
        module,
        plan,
        locations: locations(plan)?,
        table: Vec::new(),
        lists: vec![Vec::new()],
        reaches_outside: vec![false],
        requests: Vec::new(),
        evaluates: false,
        slots: FxHashMap::default(),
        fill_constants: options.fill_constants,
        grid: options.grid,
        scratch: plan.allocations.len() as u32,
        scratch_bytes: 0,
        report,
    };
    let leaves = argument_leaves(plan).into_iter().enumerate();
    let argument_slots = leaves.filter_map(|(n, p)| Some((n, lowering.slot(p)?))).collect();
    lowering.list(entry, 0)?;
    let results = lowering.results(entry)?;
    lowering.report.stages.push(("thunks", begun.elapsed()));
    let begun = Instant::now();
    let made = source.make(module, &lowering.requests);
    lowering.report.stages.push(("kernels", begun.elapsed()));
    lowering.resolve(&made)?;
    let Lowering { lists, table, evaluates, scratch_bytes, slots, .. } = lowering;
    let (mut allocations, planned_bytes) = sources(plan, ALIGNMENT)?;
    allocations.push(AllocationSource::Temporary { offset: planned_bytes });
    let too_much = || ExecutionError::out_of_memory(usize::MAX);
    let temporary_bytes = planned_bytes.checked_add(scratch_bytes).ok_or_else(too_much)?;
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
        slots: slots.len(),
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
            ThunkKind::Evaluate(_) => return GraphNeed::Never,
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
    module: &'m Module,
    plan: &'p Plan<'m>,
    locations: Vec<Location>,
    table: Vec<Location>,
    lists: Vec<Vec<Thunk>>,
    /// For each list whether anything besides its arrays decides what it does, or it does anything else.
    reaches_outside: Vec<bool>,
    /// Kernels to be made.
    requests: Vec<Request>,
    evaluates: bool,
    /// The slots of values whose sizes are known at run time only.
    slots: FxHashMap<ValueId, u32>,
    fill_constants: bool,
    grid: DeviceGrid,
    /// The allocation that the scratch memory of all thunks is in, one after another.
    scratch: u32,
    scratch_bytes: usize,
    report: &'p mut CompileReport,
}

impl Lowering<'_, '_> {
    /// Adds the thunks of `computation` to a list.
    fn list(&mut self, computation: ComputationId, list: ListId) -> Result<(), ExecutionError> {
        let module = self.module;
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

    /// The positions of an instruction's leaves.
    fn leaves(&self, id: InstructionId) -> impl Iterator<Item = Position> + use<'_> {
        let positions = &self.plan.dataflow.positions;
        positions.of(id).filter(|&p| !positions.is_tuple(p))
    }

    fn location(&self, position: Position) -> Location {
        self.locations.get(position as usize).copied().unwrap_or(Location::NOWHERE)
    }

    /// The slot of the value at `position`, if its size is known at run time only, or nothing is known of it.
    fn slot(&mut self, position: Position) -> Option<u32> {
        let dataflow = &self.plan.dataflow;
        let shape = dataflow.positions.shape(position);
        if !shape.is_dynamic() && !matches!(shape, Shape::Opaque) {
            return None;
        }
        let value = dataflow.at(position)?;
        let next = self.slots.len() as u32;
        Some(*self.slots.entry(value).or_insert(next))
    }

    /// Whether an instruction takes or makes a value in a slot.
    fn uses_slots(&self, id: InstructionId) -> bool {
        let all = self.module[id].operands().iter().copied().chain([id]);
        let positions = &self.plan.dataflow.positions;
        let in_slot = |p: Position| positions.shape(p).is_dynamic() || matches!(positions.shape(p), Shape::Opaque);
        all.into_iter().any(|i| self.leaves(i).any(in_slot))
    }

    /// Whether the value at `position` is made there, and is an array with elements.
    fn makes(&self, position: Position) -> bool {
        let dataflow = &self.plan.dataflow;
        let value = dataflow.at(position).and_then(|v| dataflow.value(v));
        let is_array = || dataflow.positions.shape(position).as_array_or_buffer().is_some();
        value.is_some_and(|v| v.position == position) && is_array()
    }

    fn push(&mut self, list: ListId, instruction: InstructionId, arrays: Vec<Position>, kind: ThunkKind) {
        let arrays = arrays.iter().map(|&p| self.location(p)).collect();
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
            let (source, target) = (self.location(from), self.location(to));
            if source != target && source != Location::NOWHERE && target != Location::NOWHERE {
                let bytes = self.plan.dataflow.positions.shape(from).byte_size().unwrap_or(0) as usize;
                self.push(list, id, vec![from, to], ThunkKind::Copy { bytes });
            }
        }
    }

    /// Fails unless each leaf is where it is wanted.
    fn must_be_tied(&self, id: InstructionId, from: InstructionId, to: InstructionId) -> Result<(), ExecutionError> {
        let tied = self.leaves(from).zip(self.leaves(to)).all(|(a, b)| self.location(a) == self.location(b));
        if tied {
            return Ok(());
        }
        Err(ExecutionError::bug(format!("the memory of {} is not carried through", self.module[id].name())))
    }

    fn instruction(&mut self, id: InstructionId, list: ListId) -> Result<(), ExecutionError> {
        let module = self.module;
        let instruction = &module[id];
        self.reaches_outside[list] |= reaches_outside(&instruction.op);
        if !matches!(instruction.op, Op::Parameter { .. }) && !hands_on(&instruction.op) && self.uses_slots(id) {
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
                self.push(list, id, self.arrays(id), kind);
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
                    self.push(list, id, self.arrays(id), ThunkKind::Gemm(Box::new(gemm)));
                }
                Err(why) => self.evaluate(list, id, &why.to_string()),
            },
            Op::Convolution(_) => match Convolution::new(module, id) {
                Ok((convolution, orders)) if Convolution::is_in_order(&orders) => {
                    self.native("convolution");
                    self.push(list, id, self.arrays(id), ThunkKind::Convolution(Box::new(convolution)));
                }
                Ok(_) => self.evaluate(list, id, "its dimensions are in another order than cuDNN's"),
                Err(why) => self.evaluate(list, id, &why),
            },
            Op::Fft { .. } => match Fft::new(module, id) {
                Ok(fft) => {
                    self.native("fft");
                    let copied = fft.destroys_operand().then_some(fft.operand_bytes);
                    self.push(list, id, self.arrays(id), ThunkKind::Fft(Box::new(fft)));
                    if let Some(mut thunk) = self.lists[list].pop() {
                        self.add_scratch(&mut thunk, 0, copied);
                        self.lists[list].push(thunk);
                    }
                }
                Err(why) => self.evaluate(list, id, &why),
            },
            op => {
                // What hands values on makes none; all else is done, for its value or its effect.
                if !hands_on(op) || self.leaves(id).any(|p| self.makes(p)) {
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
        let module = self.module;
        let parameter = |c| module.parameters(c).first().copied();
        let (Some(in_body), Some(in_condition)) = (parameter(body), parameter(condition)) else {
            return Err(ExecutionError::bug("a loop without parameters"));
        };
        let (Some(next), Some(truth)) = (module.root(body), module.root(condition)) else {
            return Err(ExecutionError::bug("a loop without a root"));
        };
        let init = module[id].operands()[0];
        for (from, to) in [(init, id), (id, in_body), (id, in_condition), (next, id)] {
            self.must_be_tied(id, from, to)?;
        }
        let (condition, body) = (self.new_list(condition)?, self.new_list(body)?);
        let positions = &self.plan.dataflow.positions;
        let bytes = |p: Position| positions.shape(p).byte_size().unwrap_or(0) as usize;
        let state = self.leaves(id).map(bytes).collect();
        let arrays = [positions.whole(truth)].into_iter().chain(self.leaves(id)).collect();
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
        let module = self.module;
        let operands = module[id].operands();
        for (&branch, &operand) in branches.iter().zip(operands.iter().skip(1)) {
            let (Some(&parameter), Some(root)) = (module.parameters(branch).first(), module.root(branch)) else {
                return Err(ExecutionError::bug("a branch without a parameter"));
            };
            self.must_be_tied(id, operand, parameter)?;
            self.must_be_tied(id, root, id)?;
        }
        let by_truth = module[operands[0]].shape.is_scalar_of(ElementType::Pred);
        let branches = branches.iter().map(|&b| self.new_list(b)).collect::<Result<Vec<_>, _>>()?;
        let selector = self.plan.dataflow.positions.whole(operands[0]);
        self.reaches_outside[list] |= branches.iter().any(|&b| self.reaches_outside[b]);
        self.push(list, id, vec![selector], ThunkKind::Conditional { branches, by_truth });
        self.native("conditional");
        Ok(())
    }

    fn collective(&mut self, list: ListId, id: InstructionId) {
        let Some(mut collective) = Collective::new(self.module, id, self.grid) else {
            return self.evaluate(list, id, "devices exchange arrays in a way that there is no kernel for");
        };
        for reduction in collective.reductions() {
            collective.reducers.push(self.requests.len());
            self.requests.push(Request::Reduction(reduction));
        }
        self.push(list, id, self.arrays(id), ThunkKind::Collective(Box::new(collective)));
    }

    /// Asks for a kernel; what has none is left to the evaluator.
    fn kernel(&mut self, list: ListId, id: InstructionId) {
        let positions = &self.plan.dataflow.positions;
        let tied = |pair: &Pair| {
            let operand = self.module[id].operands().get(pair.operand);
            let from = operand.and_then(|&o| positions.part(o, &pair.operand_index));
            let to = positions.part(id, &pair.output_index);
            from.zip(to).is_some_and(|(from, to)| self.location(from.start) == self.location(to.start))
        };
        let pairs = self.plan.in_place.pairs(id);
        let in_place = !pairs.is_empty() && pairs.iter().all(tied);
        let sequence = self.requests.len();
        self.requests.push(Request::Instruction { id, in_place });
        let operands = self.module[id].operands().iter().map(|&o| self.leaves(o).count() as u32).sum();
        let results = self.leaves(id).count() as u32;
        let positions = self.arrays(id);
        let mut arrays: Vec<Location> = positions.iter().map(|&p| self.location(p)).collect();
        let copied_bytes = match self.module[id].op {
            Op::Sort { .. } => self.copy_overwritten(list, id, &positions, &mut arrays, operands as usize),
            _ => 0,
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
            let bytes = self.plan.dataflow.positions.shape(positions[n]).byte_size().unwrap_or(0) as usize;
            let to = Location { allocation: self.scratch, offset: copied_bytes };
            copied_bytes = copied_bytes.saturating_add(bytes).checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
            self.push_at(list, id, vec![from, to], ThunkKind::Copy { bytes });
            arrays[n] = to;
        }
        self.scratch_bytes = self.scratch_bytes.max(copied_bytes);
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
                        let is_fusion = matches!(self.module[id].op, Op::Fusion(_));
                        self.native(if is_fusion { "fusion" } else { "instruction" });
                        let (copied, scratch) = (call.copied_bytes, sequence.scratch.iter().map(|s| s.bytes as usize));
                        self.add_scratch(thunk, copied, scratch);
                    }
                    Err(why) => thunk.kind = self.for_evaluator_because(id, why),
                },
                ThunkKind::Collective(collective) => {
                    let refused = collective.reducers.iter().find_map(|&n| made.get(n)?.as_ref().err());
                    match refused {
                        Some(why) => thunk.kind = self.for_evaluator_because(id, why),
                        None => {
                            let own = Some(collective.scratch_bytes()).filter(|&n| n > 0);
                            let reducers = collective.reducers.iter().filter_map(|&n| made.get(n)?.as_ref().ok());
                            let scratch = reducers.flat_map(|s| s.scratch.iter().map(|s| s.bytes as usize));
                            let scratch: Vec<usize> = own.into_iter().chain(scratch).collect();
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
        self.scratch_bytes = self.scratch_bytes.max(offset);
    }

    /// The arrays of an instruction: leaves of the operands, then leaves of the result.
    fn arrays(&self, id: InstructionId) -> Vec<Position> {
        let all = self.module[id].operands().iter().copied().chain([id]);
        all.flat_map(|i| self.leaves(i).collect::<Vec<_>>()).collect()
    }

    /// Copies the operand to the (first leaf of the) result.
    fn copy(&mut self, list: ListId, id: InstructionId) {
        let from: Vec<Position> = self.leaves(self.module[id].operands()[0]).collect();
        let to: Vec<Position> = self.leaves(id).collect();
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
        let module = self.module;
        for (&operand, parameter) in module[id].operands().iter().zip(module.parameters(computation)) {
            self.must_be_tied(id, operand, parameter)?;
        }
        self.list(computation, list)?;
        let root = module.root(computation).ok_or_else(|| ExecutionError::bug("a computation without a root"))?;
        let positions = &self.plan.dataflow.positions;
        let part = positions.part(id, index).ok_or_else(|| ExecutionError::bug("a start without a result"))?;
        let to: Vec<Position> = part.filter(|&p| !positions.is_tuple(p)).collect();
        let from: Vec<Position> = self.leaves(root).collect();
        self.tie(list, id, from, to);
        Ok(())
    }

    /// Leaves an instruction to the evaluator.
    fn evaluate(&mut self, list: ListId, id: InstructionId, reason: &str) {
        let (kind, arrays) = (self.for_evaluator_because(id, reason), self.arrays(id));
        self.push(list, id, arrays, kind);
    }

    /// The evaluator's part, noted in the report.
    fn for_evaluator_because(&mut self, id: InstructionId, reason: &str) -> ThunkKind {
        let module = self.module;
        self.report.fall_back(module[id].op.opcode().name(), module[id].name(), reason);
        self.evaluates = true;
        ThunkKind::Evaluate(Box::new(self.for_evaluator(id)))
    }

    /// What the evaluator has to know of an instruction.
    fn for_evaluator(&mut self, id: InstructionId) -> Evaluate {
        let module = self.module;
        let op = &module[id].op;
        let meets = op.collective().is_some() || matches!(op, Op::CollectivePermute(_) | Op::CollectivePermuteStart(_));
        let waits = meets || matches!(op, Op::RecvDone(_));
        let operands: Vec<Shape> = module[id].operands().iter().map(|&o| module[o].shape.clone()).collect();
        let leaves: Vec<Position> =
            module[id].operands().iter().flat_map(|&o| self.leaves(o).collect::<Vec<_>>()).collect();
        let operand_slots = leaves.into_iter().map(|p| self.slot(p)).collect();
        // What is received comes at the done, into the memory that the start was given for it.
        let fills = matches!(op, Op::RecvDone(_));
        let leaves: Vec<Position> = self.leaves(id).collect();
        let result = |p: Position| match self.slot(p) {
            Some(slot) => EvaluatedLeaf::Slot(slot),
            None if (fills || self.makes(p)) && self.location(p) != Location::NOWHERE => EvaluatedLeaf::Array,
            None => EvaluatedLeaf::InPlace,
        };
        let results = leaves.into_iter().map(result).collect();
        Evaluate { operands, operand_slots, results, waits }
    }

    fn results(&mut self, entry: ComputationId) -> Result<Vec<ResultLeaf>, ExecutionError> {
        let root = self.module.root(entry).ok_or_else(|| ExecutionError::bug("a computation without a root"))?;
        let leaves: Vec<Position> = self.leaves(root).collect();
        let handed_over = |a: &ArrayShape| a.clone().with_layout(a.entry_layout());
        let leaf = |position: Position| ResultLeaf {
            shape: self.plan.dataflow.positions.shape(position).map_arrays(&mut { handed_over }),
            location: self.location(position),
            slot: self.slot(position),
        };
        Ok(leaves.into_iter().map(leaf).collect())
    }
}
