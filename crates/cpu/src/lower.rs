//! From a planned module to a program: a place for every array, and a thunk for every instruction that does something.
//!
//! What all machines share (control flow, copies, the evaluator's part) is [`hloom_runtime::lowering`]'s; here are kernels,
//! library calls, collectives, and the memory that thunks have besides their arrays.

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
use hloom_ir::entity::InstructionId;
use hloom_ir::kernel_config::KernelConfig;
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use hloom_plan::Plan;
use hloom_plan::positions::Position;
use hloom_runtime::lowering::{Lowering, LoweringState, SharedThunk};
use hloom_runtime::placement::{
    AllocationSource, Location, argument_leaves, peak_bytes, sources, working_instructions,
};
use hloom_runtime::planned_values::PlannedValues;
use std::ops::Range;
use std::time::Instant;

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
    let mut lowering = CpuLowering {
        state: LoweringState::new(values, options.grid, options.fill_constants, report),
        table: Vec::new(),
        at: Vec::new(),
        lists: vec![Vec::new()],
        requests: Vec::new(),
        core,
        own: Location { allocation: (plan.allocations.len() + shared_buffers.len()) as u32, offset: 0 },
        own_bytes: 0,
    };
    let leaves = argument_leaves(plan).into_iter().enumerate();
    let argument_slots = leaves.filter_map(|(n, p)| Some((n, lowering.state.values.slot(p)?))).collect();
    lowering.computation(0, entry)?;
    let results = lowering.state.values.results(entry)?;
    lowering.state.stage("steps", begun);
    let mut footprints = lowering.footprints(concurrency > 1);
    let kernels = lowering.compile(source)?;
    for (steps, footprints) in lowering.lists.iter().zip(&mut footprints) {
        for (step, footprint) in steps.iter().zip(footprints) {
            if matches!(&step.kind, ThunkKind::OutputFusion(fusion) if !fusion.has_own_memory()) {
                footprint.forget_writes(lowering.own.allocation);
            }
        }
    }
    let forks = concurrent::arrange(&mut lowering.lists, footprints, concurrency, &core);
    lowering.state.native_thunks("array in common", shared_buffers.len());
    lowering.state.native_thunks("fork", forks);
    let CpuLowering { lists, table, own_bytes, state, .. } = lowering;
    let (slots, evaluates) = (state.values.slots(), state.evaluates);
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

struct CpuLowering<'p, 'm> {
    state: LoweringState<'p, 'm>,
    table: Vec<Location>,
    /// The position of the value in each entry of the table.
    at: Vec<Position>,
    lists: Vec<Vec<Thunk>>,
    /// Kernels to be compiled.
    requests: Vec<KernelRequest>,
    core: CoreCost,
    /// The memory that steps have besides their arrays, one after another.
    own: Location,
    own_bytes: usize,
}

impl<'p, 'm: 'p> Lowering<'p, 'm> for CpuLowering<'p, 'm> {
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
                let known = known_trip_count(&self.state.values.module[id]);
                let trip_count = known.map_or(self.core.assumed_trips as u64, |n| n.max(1));
                ThunkKind::While(Box::new(While { condition, body, state, closed, trip_count }))
            }
            SharedThunk::Conditional { branches, by_truth } => ThunkKind::Conditional { branches, by_truth },
            SharedThunk::Evaluate(evaluate) => ThunkKind::Evaluate(evaluate),
        };
        self.push(list, id, arrays, kind);
    }

    fn native_instruction(&mut self, list: ListId, id: InstructionId) -> Result<(), ExecutionError> {
        let values = &mut self.state.values;
        match values.module[id].op {
            Op::AllReduce(_)
            | Op::AllGather(_)
            | Op::ReduceScatter(_)
            | Op::AllToAll { .. }
            | Op::CollectiveBroadcast { .. }
            | Op::CollectivePermute(_) => match CollectiveThunk::new(values.module, id, values.for_evaluator(id)) {
                Some(collective) => {
                    let arrays = values.arrays(id);
                    self.state.native("collective");
                    self.state.evaluates = true;
                    self.push(list, id, arrays, ThunkKind::Collective(Box::new(collective)));
                    Ok(())
                }
                None => self.kernel(list, id),
            },
            _ => self.kernel(list, id),
        }
    }
}

impl CpuLowering<'_, '_> {
    /// Puts the places of values side by side into the table.
    fn enter(&mut self, values: Vec<Position>) -> Range<u32> {
        let start = self.table.len() as u32;
        self.table.extend(values.iter().map(|&p| self.state.values.location(p)));
        self.at.extend(values);
        start..self.table.len() as u32
    }

    fn push(&mut self, list: ListId, instruction: InstructionId, arrays: Vec<Position>, kind: ThunkKind) {
        let arrays = self.enter(arrays);
        self.lists[list].push(Thunk { instruction, arrays, kind });
    }

    /// The code that was chosen for the instruction; what has none is left to the evaluator.
    fn kernel(&mut self, list: ListId, id: InstructionId) -> Result<(), ExecutionError> {
        match kernel_of(self.state.values.module, id) {
            KernelConfig::Loops => self.loops(list, id),
            KernelConfig::Library { .. } => self.library(list, id)?,
            KernelConfig::OutputFusion { .. } => self.output_fusion(list, id)?,
            KernelConfig::Evaluator { reason } => self.evaluate(list, id, &reason),
        }
        Ok(())
    }

    /// What is written on the instruction does not hold.
    fn mistaken(&self, id: InstructionId) -> ExecutionError {
        let config = kernel_of(self.state.values.module, id);
        ExecutionError::bug(format!(
            "{} has no kernel of the kind that is chosen for it, {config}",
            self.state.values.module[id].name()
        ))
    }

    /// A kernel written by hand.
    fn library(&mut self, list: ListId, id: InstructionId) -> Result<(), ExecutionError> {
        let call = LibraryCall::new(self.state.values.module, id).map_err(|_| self.mistaken(id))?;
        let arrays = self.state.values.arrays(id);
        self.state.native(call.name());
        let otherwise = call.may_refuse().then(|| Box::new(self.state.values.for_evaluator(id)));
        self.state.evaluates |= otherwise.is_some();
        self.push(list, id, arrays, ThunkKind::Library(Box::new(call), otherwise));
        Ok(())
    }

    /// Adds the step of an output fusion.
    fn output_fusion(&mut self, list: ListId, id: InstructionId) -> Result<(), ExecutionError> {
        let product = product_of(self.state.values.module, id).ok_or_else(|| self.mistaken(id))?;
        let request = self.requests.len();
        let fusion =
            OutputFusion::new(self.state.values.module, id, product, request).ok_or_else(|| self.mistaken(id))?;
        self.requests.push(fusion.wanted(id, product));
        let arrays = self.state.values.arrays(id);
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
        let in_place = self.state.values.is_in_place(id);
        let (arrays, request) = (self.state.values.arrays(id), self.requests.len());
        self.requests.push(KernelRequest { instruction: id, in_place, producer: None });
        self.push(list, id, arrays, ThunkKind::Pending(request));
    }

    /// What each step reads and writes, if anything runs beside another, or there are collectives to be waited for.
    fn footprints(&self, may_fork: bool) -> Vec<Vec<Footprint>> {
        let is_collective = |step: &Thunk| matches!(step.kind, ThunkKind::Collective(_));
        match may_fork || self.lists.iter().flatten().any(is_collective) {
            true => footprints(self.state.values.plan, &self.table, &self.at, &self.lists),
            false => Vec::new(),
        }
    }

    /// Makes the kernels that were asked for; what is refused one is left to the evaluator.
    fn compile(&mut self, source: KernelSource) -> Result<KernelCode, ExecutionError> {
        let (module, requests) = (self.state.values.module, std::mem::take(&mut self.requests));
        let begun = Instant::now();
        let kernels = Kernels::new(source, module, &requests, self.core)?;
        let mut library =
            crate::region::compile(self.state.values.plan, &self.table, &self.at, &mut self.lists, &kernels);
        self.state.stage("kernels", begun);
        let mut lists = std::mem::take(&mut self.lists);
        for list in &mut lists {
            for step in list {
                if let ThunkKind::Region(region) = &mut step.kind {
                    self.state.native("region");
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
                    self.state.native("output fusion");
                }
                Err(why) => {
                    step.arrays.end = own;
                    step.kind = ThunkKind::Evaluate(self.state.for_evaluator_because(id, &why));
                }
            }
            return;
        }
        let ThunkKind::Pending(request) = step.kind else { return };
        step.kind = match library.kernel(request) {
            Ok(kernel) => {
                self.state.native(if matches!(self.state.values.module[id].op, Op::Fusion(_)) {
                    "fusion"
                } else {
                    "instruction"
                });
                ThunkKind::Kernel(kernel)
            }
            Err(why) => ThunkKind::Evaluate(self.state.for_evaluator_because(id, &why)),
        };
    }

    /// The array of an entry of the table.
    fn array(&self, entry: u32) -> Array {
        let position = self.at.get(entry as usize);
        let shape = position.map(|&p| self.state.values.plan.dataflow.positions.shape(p));
        let location = self.table.get(entry as usize).copied().unwrap_or(Location::NOWHERE);
        let bytes = shape.and_then(Shape::byte_size).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        Array { location, bytes }
    }
}
