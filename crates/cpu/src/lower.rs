//! From a planned module to a program: a place for every array, and a thunk for every instruction that does something.
//!
//! Tuples, their elements and whatever else merely hands values on are no thunks: `plan` says that the value is where it
//! was. What the plan does not tie together where the run needs it tied is an error here, not a wrong result.

use crate::collective::CollectiveThunk;
use crate::concurrent;
use crate::dependence::{Footprint, footprints};
use crate::kernel::{KernelCode, KernelLibrary, KernelSource, Kernels};
use crate::kernel_choice::kernel_of;
use crate::library_call::LibraryCall;
use crate::output_fusion::{Array, OutputFusion, product_of};
use crate::shared_buffer;
use crate::thunk::{ListId, Thunk, ThunkKind, ThunkProgram, While};
use hloom_compiler::CompileOptions;
use hloom_compiler::CompileReport;
use hloom_cost::CoreCost;
use hloom_loops::KernelRequest;
use hloom_value::ExecutionError;

use hloom_analysis::cost::known_trip_count;
use hloom_analysis::devices::DeviceGrid;
use hloom_analysis::effects::reaches_outside;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::kernel_config::KernelConfig;
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::shape::Shape;
use hloom_plan::Plan;
use hloom_plan::positions::Position;
use hloom_runtime::placement::{
    AllocationSource, Location, argument_leaves, hands_on, peak_bytes, sources, working_instructions,
};
use hloom_runtime::planned_values::PlannedValues;
use std::ops::Range;
use std::time::Instant;

/// How often the body of a loop is thought to run if nothing is known.
pub(crate) const DEFAULT_TRIP_COUNT: u64 = 32;

/// Makes the program of a planned module, of which `concurrency` thunks may run at once, with the kernels of `source`.
pub(crate) fn lower(
    plan: &Plan<'_>,
    options: &CompileOptions,
    concurrency: usize,
    source: KernelSource,
    core: CoreCost,
    report: &mut CompileReport,
) -> Result<ThunkProgram, ExecutionError> {
    let begun = Instant::now();
    let module = plan.dataflow.module();
    let entry = module.entry().ok_or_else(|| ExecutionError::bug("a verified module has no entry"))?;
    let mut values = PlannedValues::new(plan)?;
    let shared_buffers = shared_buffer::find(plan, options.grid, &mut values.locations);
    let mut lowering = Lowering {
        values,
        table: Vec::new(),
        at: Vec::new(),
        lists: vec![Vec::new()],
        reaches_outside: vec![false],
        requests: Vec::new(),
        evaluates: false,
        fill_constants: options.fill_constants,
        grid: options.grid,
        own: Location { allocation: (plan.allocations.len() + shared_buffers.len()) as u32, offset: 0 },
        own_bytes: 0,
        report,
    };
    let leaves = argument_leaves(plan).into_iter().enumerate();
    let argument_slots = leaves.filter_map(|(n, p)| Some((n, lowering.values.slot(p)?))).collect();
    lowering.list(entry, 0)?;
    let results = lowering.values.results(entry)?;
    lowering.report.stages.push(("steps", begun.elapsed()));
    let mut footprints = lowering.footprints(concurrency > 1);
    let kernels = lowering.compile(source, core)?;
    for (steps, footprints) in lowering.lists.iter().zip(&mut footprints) {
        for (step, footprint) in steps.iter().zip(footprints) {
            if matches!(&step.kind, ThunkKind::OutputFusion(fusion) if !fusion.has_own_memory()) {
                footprint.forget_writes(lowering.own.allocation);
            }
        }
    }
    let forks = concurrent::arrange(&mut lowering.lists, footprints, concurrency, &core);
    if !shared_buffers.is_empty() {
        lowering.report.native.insert("array in common".into(), shared_buffers.len());
    }
    if forks > 0 {
        lowering.report.native.insert("fork".into(), forks);
    }
    let Lowering { lists, table, evaluates, own_bytes, values, .. } = lowering;
    let slots = values.slots();
    let (mut allocations, planned_bytes) = sources(plan, hloom_runtime::memory::ALIGNMENT)?;
    allocations.extend((0..shared_buffers.len()).map(|number| AllocationSource::SharedBuffer { number }));
    allocations.push(AllocationSource::Temporary { offset: planned_bytes });
    let temporary_bytes =
        planned_bytes.checked_add(own_bytes).ok_or_else(|| ExecutionError::out_of_memory(usize::MAX))?;
    let is_unused = |l: &Location| matches!(allocations.get(l.allocation as usize), Some(AllocationSource::Unused));
    if table.iter().any(is_unused) || results.iter().any(|r| is_unused(&r.location)) {
        return Err(ExecutionError::bug("an array has no memory of its own"));
    }
    let moves = |l: &Location| {
        let source = allocations.get(l.allocation as usize);
        matches!(
            source,
            Some(
                AllocationSource::Argument { .. }
                    | AllocationSource::Result { .. }
                    | AllocationSource::SharedBuffer { .. }
            )
        )
    };
    let moving = (0u32..).zip(&table).filter(|(_, l)| moves(l)).map(|(n, _)| n).collect();
    report.native_instructions = working_instructions(module).saturating_sub(report.fallback_steps());
    report.temp_bytes = temporary_bytes;
    report.peak_bytes = peak_bytes(plan, temporary_bytes);
    Ok(ThunkProgram {
        slots,
        argument_slots,
        lists,
        table,
        moving,
        allocations,
        temporary_bytes,
        results,
        shared_buffers,
        evaluates,
        kernels,
    })
}

struct Lowering<'p, 'm> {
    values: PlannedValues<'p, 'm>,
    table: Vec<Location>,
    /// The position of the value in each entry of the table.
    at: Vec<Position>,
    lists: Vec<Vec<Thunk>>,
    /// For each list whether anything besides its arrays decides what it does, or it does anything else.
    reaches_outside: Vec<bool>,
    /// Kernels to be compiled.
    requests: Vec<KernelRequest>,
    evaluates: bool,
    fill_constants: bool,
    grid: DeviceGrid,
    /// The memory that steps have besides their arrays, one after another.
    own: Location,
    own_bytes: usize,
    report: &'p mut CompileReport,
}

impl Lowering<'_, '_> {
    /// Adds the steps of `computation` to a list.
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

    /// Puts the places of values side by side into the table.
    fn enter(&mut self, values: Vec<Position>) -> Range<u32> {
        let start = self.table.len() as u32;
        self.table.extend(values.iter().map(|&p| self.values.location(p)));
        self.at.extend(values);
        start..self.table.len() as u32
    }

    fn push(&mut self, list: ListId, instruction: InstructionId, arrays: Vec<Position>, kind: ThunkKind) {
        let arrays = self.enter(arrays);
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
        let operands = instruction.operands();
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
            Op::Copy | Op::Reshape { .. } if instruction.shape.is_array() => {
                self.copy(list, id);
            }
            Op::CopyStart { .. } => self.copy(list, id),
            Op::ReplicaId | Op::PartitionId => {
                let kind = ThunkKind::DeviceId { grid: self.grid, of_replica: matches!(instruction.op, Op::ReplicaId) };
                self.push(list, id, self.values.arrays(id), kind);
                self.native("device id");
            }
            Op::While { condition, body } => {
                let parameter = |c| module.parameters(c).first().copied();
                let (Some(in_body), Some(in_condition)) = (parameter(*body), parameter(*condition)) else {
                    return Err(ExecutionError::bug("a loop without parameters"));
                };
                let (Some(next), Some(truth)) = (module.root(*body), module.root(*condition)) else {
                    return Err(ExecutionError::bug("a loop without a root"));
                };
                for (from, to) in [(operands[0], id), (id, in_body), (id, in_condition), (next, id)] {
                    self.values.must_be_tied(id, from, to)?;
                }
                let (condition, body) = (self.new_list(*condition)?, self.new_list(*body)?);
                let positions = &self.values.plan.dataflow.positions;
                let state = self.values.leaves(id).map(|p| self.values.bytes(p)).collect();
                let arrays = [positions.whole(truth)].into_iter().chain(self.values.leaves(id)).collect();
                let closed = ![condition, body].iter().any(|&l| self.reaches_outside[l]);
                let trip_count = known_trip_count(instruction).map_or(DEFAULT_TRIP_COUNT, |n| n.max(1));
                let repeat = While { condition, body, state, closed, trip_count };
                self.push(list, id, arrays, ThunkKind::While(Box::new(repeat)));
                self.reaches_outside[list] |= !closed;
                self.native("while");
            }
            Op::Conditional { branches } => {
                for (&branch, &operand) in branches.iter().zip(operands.iter().skip(1)) {
                    let (Some(&parameter), Some(root)) = (module.parameters(branch).first(), module.root(branch))
                    else {
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
            }
            Op::Call { to_apply, .. } => self.call(list, id, *to_apply, &[])?,
            Op::AsyncStart(start) => self.call(list, id, start.calls, &[1])?,
            Op::AllReduce(_)
            | Op::AllGather(_)
            | Op::ReduceScatter(_)
            | Op::AllToAll { .. }
            | Op::CollectiveBroadcast { .. }
            | Op::CollectivePermute(_) => match CollectiveThunk::new(module, id, self.values.for_evaluator(id)) {
                Some(collective) => {
                    let arrays = self.values.arrays(id);
                    self.native("collective");
                    self.evaluates = true;
                    self.push(list, id, arrays, ThunkKind::Collective(Box::new(collective)));
                }
                None => self.kernel(list, id)?,
            },
            op => {
                // What hands values on makes none; all else is done, for its value or its effect.
                if !hands_on(op) || self.values.leaves(id).any(|p| self.values.makes(p)) {
                    self.kernel(list, id)?;
                }
            }
        }
        Ok(())
    }

    /// The code that was chosen for the instruction; what has none is left to the evaluator.
    fn kernel(&mut self, list: ListId, id: InstructionId) -> Result<(), ExecutionError> {
        match kernel_of(self.values.module, id) {
            KernelConfig::Loops => self.loops(list, id),
            KernelConfig::Library { .. } => self.library(list, id)?,
            KernelConfig::OutputFusion { .. } => self.output_fusion(list, id)?,
            KernelConfig::Evaluator { reason } => self.evaluate(list, id, &reason),
        }
        Ok(())
    }

    /// What is written on the instruction does not hold.
    fn mistaken(&self, id: InstructionId) -> ExecutionError {
        let config = kernel_of(self.values.module, id);
        ExecutionError::bug(format!(
            "{} has no kernel of the kind that is chosen for it, {config}",
            self.values.module[id].name()
        ))
    }

    /// A kernel written by hand.
    fn library(&mut self, list: ListId, id: InstructionId) -> Result<(), ExecutionError> {
        let call = LibraryCall::new(self.values.module, id).map_err(|_| self.mistaken(id))?;
        let arrays = self.values.arrays(id);
        self.native(call.name());
        let otherwise = call.may_refuse().then(|| Box::new(self.values.for_evaluator(id)));
        self.evaluates |= otherwise.is_some();
        self.push(list, id, arrays, ThunkKind::Library(Box::new(call), otherwise));
        Ok(())
    }

    /// Adds the step of an output fusion.
    fn output_fusion(&mut self, list: ListId, id: InstructionId) -> Result<(), ExecutionError> {
        let product = product_of(self.values.module, id).ok_or_else(|| self.mistaken(id))?;
        let request = self.requests.len();
        let fusion = OutputFusion::new(self.values.module, id, product, request).ok_or_else(|| self.mistaken(id))?;
        self.requests.push(fusion.wanted(id, product));
        let arrays = self.values.arrays(id);
        let last = arrays.last().copied();
        self.push(list, id, arrays, ThunkKind::OutputFusion(Box::new(fusion)));
        // Memory of its own, should it need any.
        if let (Some(last), Some(step)) = (last, self.lists[list].last_mut()) {
            self.table.push(self.own);
            self.at.push(last);
            step.arrays.end += 1;
        }
        Ok(())
    }

    /// Asks for a kernel of loops.
    fn loops(&mut self, list: ListId, id: InstructionId) {
        let in_place = self.values.is_in_place(id);
        let (arrays, request) = (self.values.arrays(id), self.requests.len());
        self.requests.push(KernelRequest { instruction: id, in_place, producer: None });
        self.push(list, id, arrays, ThunkKind::Pending(request));
    }

    /// What each step reads and writes, if anything runs beside another, or there are collectives to be waited for.
    fn footprints(&self, may_fork: bool) -> Vec<Vec<Footprint>> {
        let is_collective = |step: &Thunk| matches!(step.kind, ThunkKind::Collective(_));
        match may_fork || self.lists.iter().flatten().any(is_collective) {
            true => footprints(self.values.plan, &self.table, &self.at, &self.lists),
            false => Vec::new(),
        }
    }

    /// Makes the kernels that were asked for; what is refused one is left to the evaluator.
    fn compile(&mut self, source: KernelSource, core: CoreCost) -> Result<KernelCode, ExecutionError> {
        let (module, requests) = (self.values.module, std::mem::take(&mut self.requests));
        let begun = Instant::now();
        let kernels = Kernels::new(source, module, &requests, core)?;
        let mut library = crate::region::compile(self.values.plan, &self.table, &self.at, &mut self.lists, &kernels);
        self.report.stages.push(("kernels", begun.elapsed()));
        let mut lists = std::mem::take(&mut self.lists);
        for list in &mut lists {
            for step in list {
                if let ThunkKind::Region(region) = &mut step.kind {
                    self.native("region");
                    region.outside.iter_mut().for_each(|step| self.resolve(step, &mut library, &kernels));
                }
                self.resolve(step, &mut library, &kernels);
            }
        }
        self.lists = lists;
        Ok(kernels.into_code(library, requests))
    }

    /// Gives a step its kernel.
    fn resolve(&mut self, step: &mut Thunk, library: &mut KernelLibrary, kernels: &Kernels) {
        let id = step.instruction;
        if let ThunkKind::OutputFusion(fusion) = &mut step.kind {
            let own = step.arrays.end - 1;
            match library.kernel(fusion.request) {
                Ok(kernel) => {
                    let rows_of_unit = kernels.rows_of_unit(fusion.request);
                    let arrays: Vec<Array> = (step.arrays.start..own).map(|entry| self.array(entry)).collect();
                    let bytes = fusion.resolve(kernel, rows_of_unit, &arrays);
                    self.own_bytes = self.own_bytes.max(bytes);
                    self.native("output fusion");
                }
                Err(why) => {
                    step.arrays.end = own;
                    step.kind = self.for_evaluator_because(id, &why);
                }
            }
            return;
        }
        let ThunkKind::Pending(request) = step.kind else { return };
        step.kind = match library.kernel(request) {
            Ok(kernel) => {
                self.native(if matches!(self.values.module[id].op, Op::Fusion(_)) { "fusion" } else { "instruction" });
                ThunkKind::Kernel(kernel)
            }
            Err(why) => self.for_evaluator_because(id, &why),
        };
    }

    /// The array of an entry of the table.
    fn array(&self, entry: u32) -> Array {
        let position = self.at.get(entry as usize);
        let shape = position.map(|&p| self.values.plan.dataflow.positions.shape(p));
        let location = self.table.get(entry as usize).copied().unwrap_or(Location::NOWHERE);
        let bytes = shape.and_then(Shape::byte_size).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        Array { location, bytes }
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
        let opcode = module[id].op.opcode();
        self.report.fall_back(opcode.name(), module[id].name(), reason);
        self.evaluates = true;
        ThunkKind::Evaluate(Box::new(self.values.for_evaluator(id)))
    }
}
