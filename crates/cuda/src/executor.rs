//! A run of a program on the devices of one GPU: their thunks, one after another on one stream.
//!
//! All devices go through the lists together, so that who comes to a collective finds everybody there. Where the devices
//! take different branches, or loops of different lengths, each list is run for those that take it; a collective in it
//! whose group is not all there is an error that names who is missing.
//!
//! Safety of the whole: `plan` gives every value its place such that two values needed at once never overlap, but where an
//! instruction may work in place; arguments are written only if the run owns them; each device has temporaries of its own.
//! Since all work is on one stream, what a thunk enqueues runs when all before it is over. Where devices do not meet, the
//! work of each is on a stream of its own, and the one stream waits for all of them (see `lanes`). A device whose collectives
//! are with other GPUs is alone here (see `exchange`).

use crate::conditional::{Kind, Test};
use crate::driver::{DevicePointer, Handle};
use crate::enqueue::launch;
use crate::exchange::Exchange;
use crate::gpu::{Event, Gpu, Patience};
use crate::graph::{Graphs, Step};
use crate::library_call::LibraryCall;
use crate::thunk::{Evaluate, EvaluatedLeaf, GraphNeed, ListId, Thunk, ThunkKind, ThunkProgram, While};
use hloom_cuda_kernels::{KernelArgument, KernelSequence};
use hloom_eval::interpreter::{Device, OperandValues};
use hloom_eval::ops;
use hloom_eval::run::joined;
use hloom_ir::diagnostic::{Blame, codes};
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::shape::Shape;
use hloom_runtime::ExecuteOptions;
use hloom_runtime::placement::Location;
use hloom_value::{Array, ExecutionError, Value};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The stack of a thread of the evaluator; its calls nest, and address space is cheap.
const STACK_BYTES: usize = 256 << 20;

/// A program with its kernels on the GPU.
#[derive(Clone, Copy)]
pub(crate) struct LoadedProgram<'r> {
    pub(crate) program: &'r ThunkProgram,
    /// The functions of the kernels of each sequence.
    pub(crate) functions: &'r [Vec<Handle>],
    /// The library calls, by list and place in it.
    pub(crate) calls: &'r FxHashMap<(usize, usize), LibraryCall>,
    /// Memory that convolutions and factorisations work in.
    pub(crate) workspace: DevicePointer,
}

/// Whether a thunk needs neither other devices nor the host, nor what library calls of all devices share.
fn is_apart(thunk: &Thunk) -> bool {
    use ThunkKind::{Copy, DeviceId, Gemm, Kernels};
    matches!(thunk.kind, Copy { .. } | DeviceId { .. } | Kernels(_) | Gemm(_))
}

/// All devices walking over the thunks.
pub(crate) struct Executor<'r> {
    pub(crate) gpu: &'r Gpu,
    pub(crate) loaded: LoadedProgram<'r>,
    /// For each device the address of each entry of the table.
    addresses: Vec<Vec<DevicePointer>>,
    /// The evaluator's idea of each device, if it is needed.
    pub(crate) evaluators: Vec<Device<'r>>,
    /// For each device the values whose sizes are known at run time only.
    slots: Vec<Vec<Option<Value>>>,
    pub(crate) options: &'r ExecuteOptions<'r>,
    /// How the device meets those on other GPUs, where it is the only one here.
    pub(crate) exchange: Option<Exchange<'r>>,
    begun: Instant,
    steps: u64,
    /// Whether a graph is captured: nothing is waited for.
    captures: bool,
    /// Marks before each thunk, where the run is recorded.
    marks: Vec<Mark<'r>>,
}

/// A mark on the stream before a thunk of a device.
struct Mark<'r> {
    event: Event<'r>,
    thunk: Option<(usize, InstructionId, &'static str)>,
    /// When it was enqueued.
    at: Duration,
}

impl<'r> Executor<'r> {
    /// A run over allocations that start at `bases`, for each device.
    pub(crate) fn new(
        gpu: &'r Gpu,
        loaded: LoadedProgram<'r>,
        bases: &[Vec<DevicePointer>],
        evaluators: Vec<Device<'r>>,
        slots: Vec<Vec<Option<Value>>>,
        options: &'r ExecuteOptions<'r>,
    ) -> Executor<'r> {
        let address = |bases: &[DevicePointer], l: &Location| match bases.get(l.allocation as usize) {
            Some(&base) if base != 0 => base + l.offset as u64,
            _ => 0,
        };
        let of_device = |bases: &Vec<DevicePointer>| loaded.program.table.iter().map(|l| address(bases, l)).collect();
        let addresses = bases.iter().map(of_device).collect();
        let (begun, marks) = (Instant::now(), Vec::new());
        let (exchange, steps, captures) = (None, 0, false);
        Executor { gpu, loaded, addresses, evaluators, slots, options, exchange, begun, steps, captures, marks }
    }

    /// The number of a device in the program.
    pub(crate) fn ordinal(&self, device: usize) -> usize {
        self.options.devices.and_then(|d| d.get(device)).copied().unwrap_or(device)
    }

    /// The values whose sizes were known at run time only.
    pub(crate) fn into_slots(self) -> Vec<Vec<Option<Value>>> {
        self.slots
    }

    /// Enqueues the whole program: as a graph, where that can be and the program has run before.
    pub(crate) fn run(&mut self, graphs: &mut Graphs, bases: &[Vec<DevicePointer>]) -> Result<(), ExecutionError> {
        let can_be_graph = match self.loaded.program.graph {
            GraphNeed::Nothing => true,
            GraphNeed::ConditionalNodes => graphs.has_run() && self.gpu.conditionals().is_some(),
            GraphNeed::Never => false,
        };
        if self.options.trace.is_some() || self.options.max_steps.is_some() || self.gpu.blocks {
            return self.enqueue_all();
        }
        // What goes to NCCL is met for on the host first.
        if !can_be_graph || self.exchange.is_some() {
            graphs.ran();
            return self.enqueue_all();
        }
        match graphs.step(bases) {
            Step::Enqueue => self.enqueue_all(),
            Step::Launch(graph) => graph.launch(self.gpu),
            Step::Capture => {
                let gpu = self.gpu;
                self.captures = true;
                let graph = crate::graph::capture(gpu, || self.enqueue_all());
                self.captures = false;
                let graph = graph?;
                graphs.keep(gpu, bases, graph)?.launch(gpu)
            }
        }
    }

    fn enqueue_all(&mut self) -> Result<(), ExecutionError> {
        let devices: Vec<usize> = (0..self.addresses.len()).collect();
        self.list(0, &devices)
    }

    fn list(&mut self, list: ListId, devices: &[usize]) -> Result<(), ExecutionError> {
        let thunks = &self.loaded.program.lists[list];
        let mut next = 0;
        while let Some(thunk) = thunks.get(next) {
            // What devices do each for itself up to where they meet goes on streams of their own.
            let is_watched = self.options.trace.is_some() || self.options.max_steps.is_some() || self.gpu.blocks;
            let apart = match devices.len() > 1 && !is_watched {
                true => thunks[next..].iter().take_while(|t| is_apart(t)).count(),
                false => 0,
            };
            if apart > 1 {
                self.apart(list, next..next + apart, devices)?;
                next += apart;
                continue;
            }
            self.thunk(thunk, (list, next), devices).map_err(|fault| fault.at(thunk.instruction))?;
            if self.gpu.blocks {
                self.wait().map_err(|fault| fault.at(thunk.instruction))?;
            }
            next += 1;
        }
        Ok(())
    }

    /// Enqueues thunks in which no device needs another, for each device on its lane; the stream waits for all.
    fn apart(&mut self, list: ListId, range: Range<usize>, devices: &[usize]) -> Result<(), ExecutionError> {
        let (gpu, program) = (self.gpu, self.loaded.program);
        let forked = gpu.fork(devices.len())?;
        let enqueued = devices.iter().enumerate().try_for_each(|(n, &device)| {
            gpu.on_lane(forked.lane(n), || {
                range.clone().try_for_each(|n| {
                    let thunk = &program.lists[list][n];
                    self.thunk(thunk, (list, n), &[device]).map_err(|fault| fault.at(thunk.instruction))
                })
            })
        });
        // What was enqueued before a fault is waited for too.
        let joined = forked.join();
        enqueued.and(joined)
    }

    /// Fails if the run is to end.
    fn check(&mut self, thunk: &Thunk) -> Result<(), ExecutionError> {
        if self.options.cancel.is_some_and(|c| c.load(Ordering::Relaxed)) {
            return Err(ExecutionError::new(&codes::eval::CANCELLED, "the run was cancelled"));
        }
        if self.options.time_limit.is_some_and(|limit| self.begun.elapsed() > limit) {
            let message = format!("the program is not done after {:.1} s", self.begun.elapsed().as_secs_f64());
            return Err(ExecutionError::new(&codes::eval::DEVICE_FAILED, message).blame(Blame::Machine));
        }
        if self.options.max_steps.is_some_and(|most| self.steps >= most) {
            let message = format!("{} instructions were executed and the program is not done", self.steps);
            return Err(ExecutionError::new(&codes::eval::TOO_MANY_STEPS, message));
        }
        self.steps += 1;
        if let Some(progress) = self.options.progress {
            progress.store(thunk.instruction.index() as u32, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn arrays(&self, thunk: &Thunk, device: usize) -> &[DevicePointer] {
        &self.addresses[device][thunk.arrays.start as usize..thunk.arrays.end as usize]
    }

    fn thunk(&mut self, thunk: &Thunk, place: (usize, usize), devices: &[usize]) -> Result<(), ExecutionError> {
        self.check(thunk)?;
        match &thunk.kind {
            ThunkKind::While(repeat) => return self.repeat(thunk, repeat, devices),
            ThunkKind::Conditional { branches, by_truth } => {
                return self.choose(thunk, branches, *by_truth, devices);
            }
            ThunkKind::Collective(collective) => {
                self.mark(devices[0], thunk)?;
                return self.collective(thunk, collective, devices);
            }
            ThunkKind::Evaluate(evaluate) => {
                self.mark(devices[0], thunk)?;
                return self.evaluate(thunk, evaluate, devices);
            }
            _ => {}
        }
        for &device in devices {
            self.mark(device, thunk)?;
            let (gpu, arrays) = (self.gpu, self.arrays(thunk, device));
            match &thunk.kind {
                ThunkKind::Copy { bytes } => gpu.copy(arrays[1], arrays[0], *bytes)?,
                ThunkKind::DeviceId { grid, of_replica } => {
                    let ordinal = self.ordinal(device);
                    let number = if *of_replica { grid.replica(ordinal) } else { grid.partition(ordinal) };
                    // SAFETY: the array is the result, a 32-bit integer.
                    let call = unsafe { (gpu.driver.fill_words)(arrays[0], number as u32, 1, gpu.stream()) };
                    gpu.driver.check(call, "cuMemsetD32Async")?;
                }
                ThunkKind::Kernels(call) => {
                    let (operands, rest) = arrays.split_at(call.operands as usize);
                    let (results, scratch) = rest.split_at(call.results as usize);
                    self.kernels(call.sequence, operands, results, scratch)?;
                }
                ThunkKind::Gemm(_) | ThunkKind::Convolution(_) | ThunkKind::Fft(_) | ThunkKind::Solver(_) => {
                    let workspace = self.loaded.workspace;
                    match (self.loaded.calls.get(&place), arrays) {
                        (Some(LibraryCall::Gemm(gemm)), &[l, r, to]) => gemm.enqueue(gpu, [l, r, to])?,
                        (Some(LibraryCall::Convolution(c)), &[l, r, to]) => c.enqueue(gpu, [l, r, to], workspace)?,
                        (Some(LibraryCall::Fft(fft)), &[from, to]) => fft.enqueue(gpu, from, to, None)?,
                        (Some(LibraryCall::Fft(fft)), &[from, to, copy]) => fft.enqueue(gpu, from, to, Some(copy))?,
                        (Some(LibraryCall::Solver(solver)), arrays) => solver.enqueue(gpu, arrays, workspace)?,
                        _ => return Err(ExecutionError::bug("a library call was not made ready")),
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Launches the kernels of a sequence.
    pub(crate) fn kernels(
        &self,
        sequence: usize,
        operands: &[DevicePointer],
        results: &[DevicePointer],
        scratch: &[DevicePointer],
    ) -> Result<(), ExecutionError> {
        let missing = || ExecutionError::bug("a kernel was not made");
        let kernels: &KernelSequence = self.loaded.program.sequence(sequence).ok_or_else(missing)?;
        let functions = self.loaded.functions.get(sequence).ok_or_else(missing)?;
        for (place, &address) in kernels.scratch.iter().zip(scratch) {
            if place.zeroed {
                self.gpu.zero(address, place.bytes as usize)?;
            }
        }
        for (kernel, &function) in kernels.kernels.iter().zip(functions) {
            let value = |argument: &KernelArgument| {
                let at = |list: &[DevicePointer], n: u32| list.get(n as usize).copied();
                match *argument {
                    KernelArgument::Operand(n) => at(operands, n),
                    KernelArgument::Result(n) => at(results, n),
                    KernelArgument::Scratch(n) => at(scratch, n),
                    KernelArgument::U32(n) => Some(u64::from(n)),
                    KernelArgument::U64(n) => Some(n),
                }
            };
            let values = kernel.arguments.iter().map(value).collect::<Option<Vec<u64>>>();
            let values = values.ok_or_else(|| ExecutionError::bug("a kernel asks for an array that there is not"))?;
            launch(self.gpu, function, kernel, values)?;
        }
        Ok(())
    }

    /// Runs a loop: as often as is known, or for as long as the condition holds, device by device.
    fn repeat(&mut self, thunk: &Thunk, repeat: &While, devices: &[usize]) -> Result<(), ExecutionError> {
        if let Some(count) = repeat.trip_count {
            for _ in 0..count {
                self.check(thunk)?;
                self.list(repeat.body, devices)?;
            }
            return Ok(());
        }
        if self.captures {
            return self.repeat_in_graph(thunk, repeat, devices);
        }
        let mut active = devices.to_vec();
        let mut iterations = 0u64;
        loop {
            self.list(repeat.condition, &active)?;
            let truth = self.scalars(thunk, &active, 1)?;
            active = active.iter().zip(truth).filter(|(_, truth)| truth[0] != 0).map(|(&d, _)| d).collect();
            if active.is_empty() {
                return Ok(());
            }
            self.check(thunk)?;
            // One whose state no longer changes would never end: its value is that state, as in the evaluator. Whether it
            // changes is asked rarely, since asking copies the state.
            iterations += 1;
            let asks = iterations >= 1024 && iterations.is_power_of_two() && repeat.closed;
            let before = if asks { Some(self.state(thunk, repeat, &active)?) } else { None };
            self.list(repeat.body, &active)?;
            if let Some(before) = before {
                let after = self.state(thunk, repeat, &active)?;
                let changes = before.iter().zip(&after).map(|(a, b)| a != b);
                active = active.iter().zip(changes).filter(|&(_, changes)| changes).map(|(&d, _)| d).collect();
                if active.is_empty() {
                    return Ok(());
                }
            }
        }
    }

    /// The state of a loop on each device.
    fn state(&self, thunk: &Thunk, repeat: &While, devices: &[usize]) -> Result<Vec<Vec<u8>>, ExecutionError> {
        let mut states = Vec::with_capacity(devices.len());
        for &device in devices {
            let mut state = Vec::new();
            for (&address, &bytes) in self.arrays(thunk, device)[1..].iter().zip(&repeat.state) {
                if address != 0 {
                    let start = state.len();
                    state.resize(start + bytes, 0);
                    self.gpu.download(&mut state[start..], address)?;
                }
            }
            states.push(state);
        }
        Ok(states)
    }

    /// Runs for each device the branch that it selects.
    fn choose(
        &mut self,
        thunk: &Thunk,
        branches: &[ListId],
        by_truth: bool,
        devices: &[usize],
    ) -> Result<(), ExecutionError> {
        if self.captures {
            return self.choose_in_graph(thunk, branches, by_truth, devices);
        }
        let selectors = self.scalars(thunk, devices, if by_truth { 1 } else { 4 })?;
        let branch = |s: [u8; 4]| match by_truth {
            true => usize::from(s[0] == 0),
            // One out of range takes the last branch.
            false => usize::try_from(i32::from_le_bytes(s)).unwrap_or(usize::MAX).min(branches.len().saturating_sub(1)),
        };
        let chosen: Vec<usize> = selectors.into_iter().map(branch).collect();
        for (n, &list) in branches.iter().enumerate() {
            let takes: Vec<usize> = devices.iter().zip(&chosen).filter(|&(_, &c)| c == n).map(|(&d, _)| d).collect();
            if !takes.is_empty() {
                self.list(list, &takes)?;
            }
        }
        Ok(())
    }

    /// A loop as a node of the graph that is captured.
    fn repeat_in_graph(&mut self, thunk: &Thunk, repeat: &While, devices: &[usize]) -> Result<(), ExecutionError> {
        let gpu = self.gpu;
        let nodes = gpu.conditionals().ok_or_else(|| ExecutionError::bug("the driver has no conditional nodes"))?;
        let truth = self.arrays(thunk, devices[0])[0];
        self.list(repeat.condition, devices)?;
        let node = nodes.node(gpu)?;
        nodes.set(gpu, node, truth, Test::IsTrue)?;
        nodes.body(gpu, node, Kind::While, || {
            self.list(repeat.body, devices)?;
            self.list(repeat.condition, devices)?;
            nodes.set(gpu, node, truth, Test::IsTrue)
        })
    }

    /// Branches as nodes of the graph that is captured.
    fn choose_in_graph(
        &mut self,
        thunk: &Thunk,
        branches: &[ListId],
        by_truth: bool,
        devices: &[usize],
    ) -> Result<(), ExecutionError> {
        let gpu = self.gpu;
        let nodes = gpu.conditionals().ok_or_else(|| ExecutionError::bug("the driver has no conditional nodes"))?;
        let selector = self.arrays(thunk, devices[0])[0];
        // All nodes hear what is selected before any body can write over it.
        let mut of_branch = Vec::with_capacity(branches.len());
        for branch in 0..branches.len() as u32 {
            let node = nodes.node(gpu)?;
            nodes.set(gpu, node, selector, Test::Selects { branch, branches: branches.len() as u32, by_truth })?;
            of_branch.push(node);
        }
        for (&list, node) in branches.iter().zip(of_branch) {
            nodes.body(gpu, node, Kind::If, || self.list(list, devices))?;
        }
        Ok(())
    }

    /// The first bytes of the first array of a thunk on each device, when all work before is done.
    fn scalars(&mut self, thunk: &Thunk, devices: &[usize], bytes: usize) -> Result<Vec<[u8; 4]>, ExecutionError> {
        self.wait()?;
        let mut scalars = Vec::with_capacity(devices.len());
        for &device in devices {
            let mut scalar = [0u8; 4];
            self.gpu.download(&mut scalar[..bytes], self.arrays(thunk, device)[0])?;
            scalars.push(scalar);
        }
        Ok(scalars)
    }

    /// What is left of the time that the run has.
    pub(crate) fn patience(&self) -> Patience<'r> {
        let left = self.options.time_limit.map(|limit| limit.saturating_sub(self.begun.elapsed()));
        Patience { cancel: self.options.cancel, time_limit: left, check: None }
    }

    /// Leaves a thunk to the evaluator, on copies of its operands.
    fn evaluate(&mut self, thunk: &Thunk, evaluate: &Evaluate, devices: &[usize]) -> Result<(), ExecutionError> {
        self.wait()?;
        let mut operands = Vec::with_capacity(devices.len());
        for &device in devices {
            let arrays = self.arrays(thunk, device);
            let mut leaves = arrays.iter().copied().zip(evaluate.operand_slots.iter().copied());
            let mut of_device = OperandValues::with_capacity(evaluate.operands.len());
            for shape in &evaluate.operands {
                of_device.push(self.read(shape, &mut leaves, device)?);
            }
            operands.push(of_device);
        }
        let values = self.values(thunk.instruction, evaluate.waits, operands, devices)?;
        for (&device, value) in devices.iter().zip(values) {
            let leaves = value.leaves();
            if leaves.len() != evaluate.results.len() {
                return Err(ExecutionError::bug("the evaluator's value is of another shape"));
            }
            let first = thunk.arrays.start as usize + evaluate.operand_slots.len();
            for (n, (leaf, &to)) in leaves.into_iter().zip(&evaluate.results).enumerate() {
                match (to, leaf) {
                    (EvaluatedLeaf::Array, Value::Array(array)) => {
                        self.gpu.upload(self.addresses[device][first + n], array.bytes())?;
                    }
                    (EvaluatedLeaf::Slot(slot), leaf) => self.slots[device][slot as usize] = Some(leaf.clone()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// The evaluator's values of an instruction on each device; devices that may wait for each other in threads.
    fn values(
        &mut self,
        id: InstructionId,
        waits: bool,
        operands: Vec<OperandValues>,
        devices: &[usize],
    ) -> Result<Vec<Value>, ExecutionError> {
        let mut evaluators: Vec<&mut Device<'r>> =
            self.evaluators.iter_mut().enumerate().filter(|(d, _)| devices.contains(d)).map(|(_, e)| e).collect();
        if evaluators.len() != operands.len() {
            return Err(ExecutionError::bug("the evaluator is not there"));
        }
        if !waits || evaluators.len() == 1 {
            let each = evaluators.iter_mut().zip(operands);
            return each.map(|(evaluator, operands)| ops::evaluate(evaluator, id, operands)).collect();
        }
        let results: Vec<Result<Value, ExecutionError>> = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (evaluator, operands) in evaluators.into_iter().zip(operands) {
                let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
                threads.push(builder.spawn_scoped(scope, move || ops::evaluate(evaluator, id, operands)));
            }
            threads.into_iter().map(joined).collect()
        });
        hloom_eval::run::all_or_fault(results)
    }

    /// The value of `shape` whose leaves are at the next addresses, or in the next slots.
    fn read(
        &self,
        shape: &Shape,
        leaves: &mut impl Iterator<Item = (DevicePointer, Option<u32>)>,
        device: usize,
    ) -> Result<Value, ExecutionError> {
        if let Shape::Tuple(elements) = shape {
            let elements = elements.iter().map(|element| self.read(element, leaves, device));
            return elements.collect::<Result<_, _>>().map(Value::Tuple);
        }
        let (address, slot) = leaves.next().ok_or_else(|| ExecutionError::bug("an operand has no place"))?;
        if let Some(slot) = slot {
            let value = self.slots[device].get(slot as usize).cloned().flatten();
            return value.ok_or_else(|| ExecutionError::bug("an operand was not made yet"));
        }
        match shape {
            Shape::Array(a) | Shape::Buffer(a) => {
                let mut array = Array::zeroed(a.element_type, a.dims())?;
                if address != 0 && !array.bytes().is_empty() {
                    self.gpu.download(array.bytes_mut(), address)?;
                }
                Ok(Value::Array(array))
            }
            Shape::Token => Ok(Value::Token),
            _ => Ok(Value::Opaque),
        }
    }

    /// Puts a mark before a thunk, if the run is recorded.
    fn mark(&mut self, device: usize, thunk: &Thunk) -> Result<(), ExecutionError> {
        let Some(trace) = self.options.trace else { return Ok(()) };
        let event = Event::new(self.gpu, true)?;
        event.record()?;
        let thunk = Some((self.ordinal(device), thunk.instruction, thunk.kind.name()));
        self.marks.push(Mark { event, thunk, at: trace.now() });
        Ok(())
    }

    /// Adds what was marked to the record; all work must be over but what this adds.
    pub(crate) fn finish_trace(&mut self) -> Result<(), ExecutionError> {
        let Some(trace) = self.options.trace else { return Ok(()) };
        let event = Event::new(self.gpu, true)?;
        event.record()?;
        self.marks.push(Mark { event, thunk: None, at: trace.now() });
        self.gpu.synchronize()?;
        let Some(first) = self.marks.first() else { return Ok(()) };
        for (mark, next) in self.marks.iter().zip(self.marks.iter().skip(1)) {
            let Some((device, instruction, kind)) = mark.thunk else { continue };
            let begin = first.at + mark.event.since(&first.event)?;
            trace.add_timed(device, instruction, kind, begin, next.event.since(&mark.event)?);
        }
        Ok(())
    }
}
