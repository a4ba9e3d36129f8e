//! A run of a program on one device: memory for it, and an executor over its thunks.
//!
//! Safety of the whole: `plan` gives every value its place such that two values needed at once never overlap, but where
//! an instruction may work in place; arguments are written only if the run owns them; each run has its own block of
//! temporaries. Steps beside each other use different memory (`graph`). So while a step runs, nobody else writes what it
//! reads or touches what it writes.

use crate::client::CpuClient;
use crate::collective::Pending;
use crate::kernel::LoadedKernels;
use crate::library_call::Threads;
use crate::thunk::{
    AllocationSource, Evaluate, EvaluatedLeaf, ListId, Location, Thunk, ThunkKind, ThunkProgram, While,
};
use hloom_eval::interpreter::{Device, OperandValues};
use hloom_eval::ops;
use hloom_ir::diagnostic::codes;
use hloom_ir::entity::EntityId;
use hloom_ir::shape::Shape;
use hloom_runtime::memory::Block;
use hloom_runtime::pool::Permit;
use hloom_runtime::trace::Trace;
use hloom_runtime::{Buffer, Client};
use hloom_value::{Array, ExecutionError, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::ThreadId;

/// The memory of one run, kept for the next: the block of temporaries, and the addresses of all arrays.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// Keeps the memory alive that `addresses` lead to.
    _temporaries: Block,
    /// The start of each allocation.
    bases: Vec<*mut u8>,
    /// The address of each entry of the program's table.
    addresses: Vec<*mut u8>,
    /// The blocks that a run owns, by allocation; none between runs.
    kept: Vec<Option<Arc<Block>>>,
}

// SAFETY: a workspace is used by one run at a time, and its addresses are not tied to a thread.
unsafe impl Send for Workspace {}

impl Workspace {
    /// Memory for runs of a program.
    pub(crate) fn new(loaded: &LoadedProgram<'_>, client: &CpuClient) -> Result<Workspace, ExecutionError> {
        let program = loaded.program;
        let temporaries = client.allocator().block(program.temporary_bytes)?;
        let start = temporaries.start();
        let base = |(n, source): (usize, &AllocationSource)| match source {
            AllocationSource::Constant { .. } => loaded.constant(n).map_or(std::ptr::null_mut(), |b| b.start()),
            AllocationSource::Temporary { offset } => start.wrapping_add(*offset),
            AllocationSource::Unused
            | AllocationSource::Argument { .. }
            | AllocationSource::Result { .. }
            | AllocationSource::SharedBuffer { .. } => std::ptr::null_mut(),
        };
        let bases: Vec<*mut u8> = program.allocations.iter().enumerate().map(base).collect();
        let addresses = program.table.iter().map(|l| address(&bases, *l)).collect();
        Ok(Workspace { _temporaries: temporaries, bases, addresses, kept: Vec::new() })
    }

    /// Puts the arrays of this run in their places. The blocks of owned arguments and of results are in `kept` then, by
    /// allocation, until [`Workspace::clear`]; those of other arguments the caller keeps.
    fn place(
        &mut self,
        program: &ThunkProgram,
        arguments: &mut [Option<Buffer>],
        client: &CpuClient,
        common: &dyn Fn(usize) -> *mut u8,
    ) -> Result<(), ExecutionError> {
        self.kept.resize_with(program.allocations.len(), || None);
        for (n, source) in program.allocations.iter().enumerate() {
            let block = match *source {
                AllocationSource::Argument { leaf, owned } => {
                    let slot = arguments.get_mut(leaf).ok_or_else(|| ExecutionError::bug("a leaf is missing"))?;
                    if !owned {
                        self.bases[n] = slot.as_ref().and_then(Buffer::block_start).unwrap_or(std::ptr::null_mut());
                        continue;
                    }
                    let given = slot
                        .take()
                        .and_then(Buffer::into_memory::<Block>)
                        .ok_or_else(|| ExecutionError::bug("no memory given"))?;
                    match Arc::try_unwrap(given) {
                        Ok(own) => own,
                        Err(shared) => {
                            let mut copy = client.allocator().block(shared.len())?;
                            copy.bytes_mut().copy_from_slice(shared.bytes());
                            copy
                        }
                    }
                }
                AllocationSource::Result { bytes } => client.allocator().block(bytes)?,
                AllocationSource::SharedBuffer { number } => {
                    self.bases[n] = common(number);
                    continue;
                }
                _ => continue,
            };
            self.bases[n] = block.start();
            self.kept[n] = Some(Arc::new(block));
        }
        for &n in &program.moving {
            self.addresses[n as usize] = address(&self.bases, program.table[n as usize]);
        }
        Ok(())
    }

    /// Lets go of what belongs to a run that is over.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }
}

fn address(bases: &[*mut u8], location: Location) -> *mut u8 {
    match bases.get(location.allocation as usize) {
        Some(base) => base.wrapping_add(location.offset),
        None => std::ptr::null_mut(),
    }
}

/// What a run is told and tells.
pub(crate) struct RunContext<'r> {
    pub(crate) max_steps: u64,
    pub(crate) cancel: Option<&'r AtomicBool>,
    /// Raised when another device has failed.
    pub(crate) failed: &'r AtomicBool,
    /// Raised when a device's memory may be written to after it left: it must never be given back.
    pub(crate) leaks: &'r AtomicBool,
    pub(crate) progress: Option<&'r AtomicU32>,
    pub(crate) trace: Option<&'r Trace>,
    /// The blocks of what devices have in common, by group.
    pub(crate) shared_buffers: &'r [Vec<Block>],
    pub(crate) threads: usize,
}

/// One device executing the thunks.
pub(crate) struct ThunkExecutor<'r> {
    program: &'r ThunkProgram,
    /// The functions of the kernels.
    pub(crate) kernels: &'r LoadedKernels,
    pub(crate) client: &'r CpuClient,
    pub(crate) context: &'r RunContext<'r>,
    pub(crate) addresses: &'r [*mut u8],
    /// Leave to compute; an executor beside another has none of its own, since it never waits for a device.
    pub(crate) permit: Option<Permit<'r>>,
    /// The evaluator's idea of this device, if it is needed.
    pub(crate) device: Option<Device<'r>>,
    pub(crate) ordinal: usize,
    pub(crate) steps: u64,
    /// Threads that may share a step.
    pub(crate) threads: usize,
    /// Meetings that the device came to and has not waited for yet.
    pub(crate) pending: Vec<Pending>,
    /// The values whose sizes are known at run time only.
    slots: Vec<Option<Value>>,
    /// The thread of the device.
    owner: ThreadId,
}

/// A program with its kernels and constants in memory.
#[derive(Clone, Copy)]
pub(crate) struct LoadedProgram<'r> {
    pub(crate) program: &'r ThunkProgram,
    pub(crate) kernels: &'r LoadedKernels,
    /// By allocation.
    pub(crate) constants: &'r [Option<Arc<Block>>],
}

impl<'r> LoadedProgram<'r> {
    fn constant(&self, allocation: usize) -> Option<&'r Arc<Block>> {
        self.constants.get(allocation)?.as_ref()
    }
}

/// Runs a program on one device with `arguments`, the leaves of all arguments, and returns the leaves of the result.
pub(crate) fn run_device<'r>(
    loaded: LoadedProgram<'r>,
    client: &'r CpuClient,
    workspace: &mut Workspace,
    arguments: Vec<Buffer>,
    device: Option<Device<'r>>,
    ordinal: usize,
    context: &'r RunContext<'r>,
) -> Result<Vec<Buffer>, ExecutionError> {
    let program = loaded.program;
    let mut arguments: Vec<Option<Buffer>> = arguments.into_iter().map(Some).collect();
    let common = |number: usize| {
        let group = program.shared_buffers.get(number).and_then(|c| c.groups.get(ordinal));
        let block =
            context.shared_buffers.get(number).zip(group).and_then(|(blocks, &group)| blocks.get(group as usize));
        block.map_or(std::ptr::null_mut(), Block::start)
    };
    let mut slots = vec![None; program.slots];
    for &(leaf, slot) in &program.argument_slots {
        let argument = arguments.get(leaf).and_then(Option::as_ref);
        slots[slot as usize] = Some(argument.ok_or_else(|| ExecutionError::bug("a leaf is missing"))?.to_leaf()?);
    }
    workspace.place(program, &mut arguments, client, &common)?;
    let mut executor = ThunkExecutor {
        program,
        kernels: loaded.kernels,
        client,
        context,
        addresses: &workspace.addresses,
        permit: Some(client.pool().enter()),
        device,
        ordinal,
        steps: 0,
        threads: context.threads,
        pending: Vec::new(),
        slots,
        owner: std::thread::current().id(),
    };
    let ended = executor.list(0);
    let slots = std::mem::take(&mut executor.slots);
    drop(executor);
    if let Err(fault) = ended {
        if context.leaks.load(Ordering::Relaxed) {
            std::mem::forget(arguments);
        }
        return Err(fault);
    }
    let mut results = Vec::with_capacity(program.results.len());
    for leaf in &program.results {
        if let Some(slot) = leaf.slot {
            let value = slots[slot as usize].as_ref().ok_or_else(|| ExecutionError::bug("a result was not made"))?;
            results.push(client.upload_leaf(ordinal, value, &leaf.shape)?);
            continue;
        }
        let n = leaf.location.allocation as usize;
        let block = match program.allocations.get(n) {
            _ if leaf.location.offset != 0 => None,
            Some(AllocationSource::Argument { leaf, owned: false }) => {
                arguments.get(*leaf).and_then(|a| a.as_ref()?.memory_as::<Block>())
            }
            Some(AllocationSource::Argument { .. } | AllocationSource::Result { .. }) => workspace.kept[n].clone(),
            Some(AllocationSource::Constant { .. }) => loaded.constant(n).cloned(),
            _ => None,
        };
        results.push(match (&leaf.shape, block) {
            (Shape::Array(_) | Shape::Buffer(_), Some(block)) => Buffer::new(leaf.shape.clone(), block),
            (Shape::Array(_) | Shape::Buffer(_), None) => {
                let bytes = leaf.shape.byte_size().unwrap_or(0) as usize;
                let mut block = client.allocator().block(bytes)?;
                let from = address(&workspace.bases, leaf.location);
                if bytes > 0 {
                    if from.is_null() {
                        return Err(ExecutionError::bug("a part of the result has no memory"));
                    }
                    // SAFETY: the leaf lies there, `bytes` long; the new block is nobody else's.
                    unsafe { std::ptr::copy_nonoverlapping(from, block.bytes_mut().as_mut_ptr(), bytes) };
                }
                Buffer::new(leaf.shape.clone(), Arc::new(block))
            }
            (other, _) => Buffer::without_memory(other.clone()),
        });
    }
    Ok(results)
}

impl<'r> ThunkExecutor<'r> {
    /// Leaves the collectives that the device came to.
    pub(crate) fn abandon(&self) {
        let communicator = self.device.as_ref().map(|d| &d.shared.communicator);
        if communicator.is_some_and(|c| !c.abandon(self.ordinal)) {
            self.context.leaks.store(true, Ordering::Relaxed);
        }
    }

    fn list(&mut self, list: ListId) -> Result<(), ExecutionError> {
        let program = self.program;
        self.each_step(&program.lists[list])
    }

    /// Does steps one after another.
    pub(crate) fn each_step(&mut self, steps: &[Thunk]) -> Result<(), ExecutionError> {
        let Some(trace) = self.context.trace else {
            for step in steps {
                self.step(step).map_err(|fault| fault.at(step.instruction))?;
            }
            return Ok(());
        };
        for step in steps {
            let begin = trace.now();
            self.step(step).map_err(|fault| fault.at(step.instruction))?;
            match std::thread::current().id() == self.owner {
                true => trace.add(self.ordinal, step.instruction, step.kind.name(), begin),
                false => trace.add_part(self.ordinal, self.owner, step.instruction, step.kind.name(), begin),
            }
        }
        Ok(())
    }

    /// What executors of concurrent regions need.
    pub(crate) fn fork(&self) -> Fork<'r> {
        let ThunkExecutor { program, kernels, client, context, addresses, ordinal, steps, owner, .. } = *self;
        Fork { program, kernels, client, context, addresses, ordinal, steps, owner }
    }

    /// Fails if the run is to end; else up to `wanted` steps may be done, which are counted.
    pub(crate) fn grant(&mut self, wanted: u64) -> Result<u64, ExecutionError> {
        let raised = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        if self.context.cancel.is_some_and(raised) || raised(self.context.failed) {
            return Err(ExecutionError::new(&codes::eval::CANCELLED, "the run was cancelled"));
        }
        if self.steps >= self.context.max_steps {
            let message = format!("{} instructions were executed and the program is not done", self.steps);
            return Err(ExecutionError::new(&codes::eval::TOO_MANY_STEPS, message));
        }
        let granted = wanted.min(self.context.max_steps - self.steps);
        self.steps += granted;
        Ok(granted)
    }

    /// Fails if the run is to end.
    fn check(&mut self, step: &Thunk) -> Result<(), ExecutionError> {
        self.grant(1)?;
        if let Some(progress) = self.context.progress {
            progress.store(step.instruction.index() as u32, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn step(&mut self, step: &Thunk) -> Result<(), ExecutionError> {
        self.check(step)?;
        let arrays = &self.addresses[step.arrays.start as usize..step.arrays.end as usize];
        match &step.kind {
            ThunkKind::Copy { bytes } => {
                // SAFETY: both arrays are that long, and values that are needed at once do not overlap.
                unsafe { std::ptr::copy(arrays[0], arrays[1], *bytes) }
            }
            ThunkKind::DeviceId { grid, of_replica } => {
                let number = if *of_replica { grid.replica(self.ordinal) } else { grid.partition(self.ordinal) };
                // SAFETY: the array is the result, a 32-bit integer.
                unsafe { arrays[0].cast::<u32>().write_unaligned(number as u32) }
            }
            ThunkKind::Kernel(kernel) => {
                let function = self.kernels.kernels[kernel.number as usize];
                if kernel.chunk >= kernel.units {
                    // SAFETY: the arrays are those of the instruction that the kernel was made for.
                    unsafe { function(arrays.as_ptr(), 0, kernel.units as i64) }
                } else {
                    let arrays = Arrays(arrays.as_ptr());
                    let (trace, device, owner) = (self.context.trace, self.ordinal, self.owner);
                    self.client.pool().each(kernel.units, kernel.chunk, self.threads, &|begin, end| {
                        let now = trace.map(Trace::now);
                        // SAFETY: as above; units are independent of each other.
                        unsafe { function(arrays.start(), begin as i64, end as i64) }
                        if let (Some(trace), Some(now)) = (trace, now) {
                            trace.add_part(device, owner, step.instruction, "part of a kernel", now);
                        }
                    });
                }
            }
            ThunkKind::Pending(_) => return Err(ExecutionError::bug("a kernel was not made")),
            ThunkKind::Concurrent(section) => crate::concurrent::run(self, section)?,
            ThunkKind::Await => crate::collective::wait(self, step)?,
            ThunkKind::Region(region) => crate::region::run(self, region)?,
            ThunkKind::Library(call, otherwise) => {
                let threads = Threads { pool: self.client.pool(), most: self.threads };
                // SAFETY: the arrays are the instruction's operands and results; `plan` puts none of these into another's
                // memory but those of sorts.
                if unsafe { call.run(arrays, &threads) }.is_none() {
                    let refused = || ExecutionError::bug("a kernel refuses its arrays");
                    self.evaluate(step, otherwise.as_deref().ok_or_else(refused)?)?;
                }
            }
            // SAFETY: the arrays are the fusion's operands and results, and memory of its own; `plan` puts none of the results
            // where another operand is but in its place.
            ThunkKind::OutputFusion(fusion) => unsafe { fusion.run(self, arrays)? },
            ThunkKind::While(repeat) => self.repeat(step, repeat)?,
            ThunkKind::Conditional { branches, by_truth } => {
                let selector = arrays[0];
                let branch = match by_truth {
                    // SAFETY: a pred of one byte, made by a step before.
                    true => usize::from(unsafe { selector.read() } == 0),
                    false => {
                        // SAFETY: a 32-bit integer, aligned as every value is.
                        let number = unsafe { selector.cast::<i32>().read_unaligned() };
                        // One out of range takes the last branch.
                        usize::try_from(number).unwrap_or(usize::MAX).min(branches.len().saturating_sub(1))
                    }
                };
                let list =
                    *branches.get(branch).ok_or_else(|| ExecutionError::bug("a conditional has no such branch"))?;
                self.list(list)?;
            }
            ThunkKind::Collective(collective) => crate::collective::run(self, step, collective)?,
            ThunkKind::Evaluate(evaluate) => self.evaluate(step, evaluate)?,
        }
        Ok(())
    }

    /// Runs a loop. One whose state no longer changes would never end: its value is that state, as in the evaluator.
    /// Whether it changes is asked rarely (after 2¹⁰, 2¹¹, … iterations), since asking copies the state.
    fn repeat(&mut self, step: &Thunk, repeat: &While) -> Result<(), ExecutionError> {
        let arrays = &self.addresses[step.arrays.start as usize..step.arrays.end as usize];
        let (truth, state) = arrays.split_first().ok_or_else(|| ExecutionError::bug("a loop without a condition"))?;
        let leaves = || {
            let leaves = state.iter().zip(&repeat.state).filter(|(a, _)| !a.is_null());
            // SAFETY: the leaves of the state lie there, so long, and nothing writes to them between two iterations.
            leaves.map(|(&address, &bytes)| unsafe { std::slice::from_raw_parts(address, bytes) })
        };
        let mut iterations = 0u64;
        loop {
            self.list(repeat.condition)?;
            // SAFETY: a pred of one byte, which the condition has just made.
            if unsafe { truth.read() } == 0 {
                return Ok(());
            }
            self.check(step)?;
            iterations += 1;
            let asks = iterations >= 1024 && iterations.is_power_of_two() && repeat.closed;
            let before: Option<Vec<Vec<u8>>> = asks.then(|| leaves().map(<[u8]>::to_vec).collect());
            self.list(repeat.body)?;
            if before.is_some_and(|before| before.iter().zip(leaves()).all(|(a, b)| a == b)) {
                return Ok(());
            }
        }
    }

    /// Leaves a step to the evaluator, on copies of its operands.
    pub(crate) fn evaluate(&mut self, step: &Thunk, evaluate: &Evaluate) -> Result<(), ExecutionError> {
        let arrays = &self.addresses[step.arrays.start as usize..step.arrays.end as usize];
        let (of_operands, of_results) = arrays
            .split_at_checked(evaluate.operand_slots.len())
            .ok_or_else(|| ExecutionError::bug("an operand has no place"))?;
        let mut leaves = of_operands.iter().copied().zip(evaluate.operand_slots.iter().copied());
        let mut operands = OperandValues::with_capacity(evaluate.operands.len());
        for shape in &evaluate.operands {
            // SAFETY: the operands' leaves come first in the step's arrays, in order, and hold their values.
            operands.push(unsafe { read(shape, &mut leaves, &self.slots)? });
        }
        let device = self.device.as_mut().ok_or_else(|| ExecutionError::bug("the evaluator is not there"))?;
        let i = step.instruction;
        let value = match evaluate.waits {
            true => waiting(&mut self.permit, || ops::evaluate(device, i, operands)),
            false => ops::evaluate(device, i, operands),
        }?;
        let leaves = value.leaves();
        if leaves.len() != evaluate.results.len() {
            return Err(ExecutionError::bug("the evaluator's value is of another shape"));
        }
        for ((leaf, &to), &address) in leaves.into_iter().zip(&evaluate.results).zip(of_results) {
            match (to, leaf) {
                (EvaluatedLeaf::Array, Value::Array(array)) => {
                    let bytes = array.bytes();
                    // SAFETY: the leaf's place is as large as its shape, which the evaluator keeps to.
                    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address, bytes.len()) }
                }
                (EvaluatedLeaf::Slot(slot), leaf) => self.slots[slot as usize] = Some(leaf.clone()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Does `wait` without the permit, if there is one.
pub(crate) fn waiting<T>(permit: &mut Option<Permit<'_>>, wait: impl FnOnce() -> T) -> T {
    match permit {
        Some(permit) => permit.without(wait),
        None => wait(),
    }
}

impl Drop for ThunkExecutor<'_> {
    /// Whoever leaves before a collective took place that it came to says so: the others must not touch its memory.
    fn drop(&mut self) {
        if !self.pending.is_empty() {
            self.abandon();
        }
    }
}

/// What executors of concurrent regions need. They do thunks that need neither the evaluator nor other devices, on one
/// thread each.
pub(crate) struct Fork<'r> {
    program: &'r ThunkProgram,
    kernels: &'r LoadedKernels,
    client: &'r CpuClient,
    context: &'r RunContext<'r>,
    addresses: &'r [*mut u8],
    ordinal: usize,
    steps: u64,
    owner: ThreadId,
}

// SAFETY: the addresses are not tied to a thread, and concurrent thunks use different memory.
unsafe impl Sync for Fork<'_> {}

impl<'r> Fork<'r> {
    /// An executor on this thread.
    pub(crate) fn executor(&self) -> ThunkExecutor<'r> {
        let Fork { program, kernels, client, context, addresses, ordinal, steps, owner } = *self;
        let (device, permit, pending, slots) = (None, None, Vec::new(), Vec::new());
        ThunkExecutor {
            program,
            kernels,
            client,
            context,
            addresses,
            permit,
            device,
            ordinal,
            steps,
            threads: 1,
            pending,
            slots,
            owner,
        }
    }
}

/// A step's arrays, for the threads that work on it.
#[derive(Clone, Copy)]
struct Arrays(*const *mut u8);
// SAFETY: kernels write disjoint parts of what the addresses lead to.
unsafe impl Sync for Arrays {}
impl Arrays {
    fn start(self) -> *const *mut u8 {
        self.0
    }
}

/// The value of `shape` whose leaves are at the next addresses, or in the next slots.
///
/// # Safety
/// The addresses must lead to arrays of the shape's leaves, or be null where there is none.
unsafe fn read(
    shape: &Shape,
    leaves: &mut impl Iterator<Item = (*mut u8, Option<u32>)>,
    slots: &[Option<Value>],
) -> Result<Value, ExecutionError> {
    if let Shape::Tuple(elements) = shape {
        let mut values = Vec::with_capacity(elements.len());
        for element in elements.iter() {
            // SAFETY: the caller's promise.
            values.push(unsafe { read(element, leaves, slots)? });
        }
        return Ok(Value::Tuple(values));
    }
    let (address, slot) = leaves.next().ok_or_else(|| ExecutionError::bug("an operand has no place"))?;
    if let Some(slot) = slot {
        let value = slots.get(slot as usize).cloned().flatten();
        return value.ok_or_else(|| ExecutionError::bug("an operand was not made yet"));
    }
    match shape {
        Shape::Array(a) | Shape::Buffer(a) => {
            let len = a.byte_size().map_or(0, |n| n as usize);
            if address.is_null() && len > 0 {
                return Array::zeroed(a.element_type, a.dims()).map(Value::Array);
            }
            // SAFETY: the caller's promise.
            let bytes = if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(address, len) } };
            Array::from_bytes(a.element_type, a.dims(), bytes).map(Value::Array)
        }
        Shape::Token => Ok(Value::Token),
        _ => Ok(Value::Opaque),
    }
}
