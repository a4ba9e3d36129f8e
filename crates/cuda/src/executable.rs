//! Executables: compiled programs on a GPU, and their runs.

use crate::code::CudaCode;
use crate::cubin::Image;
use crate::driver::{DevicePointer, Handle};
use crate::exchange::{Exchange, TIME_LIMIT};
use crate::executor::{Executor, LoadedProgram};
use crate::gpu::Gpu;
use crate::graph::Graphs;
use crate::library_call::LibraryCall;
use crate::memory::Block;
use crate::nccl::Schedule;
use crate::thunk::{ThunkKind, ThunkProgram};
use hloom_compiler::CompiledModule;
use hloom_cuda_kernels::KernelSequence;
use hloom_eval::Options;
use hloom_eval::interpreter::Device;
use hloom_eval::run::{Leaving, Prepared, Shared, constant_value};
use hloom_ir::diagnostic::{Blame, codes};
use hloom_ir::entity::InstructionId;
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use hloom_runtime::placement::{AllocationSource, Location};
use hloom_runtime::{Buffer, ExecuteOptions, LoadedExecutable, check_arguments};
use hloom_value::{ExecutionError, Value};
use rustc_hash::FxHashMap;
use std::ffi::CString;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A compiled program on a GPU.
#[derive(Debug)]
pub(crate) struct CudaExecutable {
    gpu: Arc<Gpu>,
    compiled: Arc<CompiledModule>,
    kernels: LoadedKernels,
    /// The library calls, by list and place in it.
    calls: FxHashMap<(usize, usize), LibraryCall>,
    /// Memory that library calls work in.
    library_workspace: Option<Block>,
    /// Memory that collectives with other GPUs would work in, if there are any in the program.
    exchange_bytes: Option<usize>,
    /// The constants, by allocation.
    constants: Vec<Option<Arc<Block>>>,
    /// The temporaries of each device, kept from run to run, and the graphs over them.
    workspace: Mutex<Workspace>,
    /// What the evaluator needs, made when first needed.
    prepared: OnceLock<Result<EvaluatorState, ExecutionError>>,
}

/// Kernels on the GPU.
#[derive(Debug, Default)]
struct LoadedKernels {
    modules: Vec<Handle>,
    /// The functions of the kernels of each sequence.
    functions: Vec<Vec<Handle>>,
}

/// What stays between runs.
#[derive(Debug, Default)]
struct Workspace {
    temporaries: Vec<Block>,
    exchange: Option<Block>,
    graphs: Graphs,
}

/// Where the arrays of a device's run are: the start of each allocation, and the blocks that the run owns, by allocation.
struct Placed {
    bases: Vec<DevicePointer>,
    kept: Vec<Option<Arc<Block>>>,
}

/// What the evaluator has worked out of a module.
struct EvaluatorState(Prepared);

impl std::fmt::Debug for EvaluatorState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvaluatorState").finish_non_exhaustive()
    }
}

/// The code of a compiled module, which must be this backend's.
fn code(compiled: &CompiledModule) -> Result<&CudaCode, ExecutionError> {
    compiled.code::<CudaCode>().ok_or_else(|| ExecutionError::bug("the code is of another backend"))
}

impl CudaExecutable {
    /// Brings a program's kernels and constants to the GPU.
    pub(crate) fn new(gpu: Arc<Gpu>, compiled: Arc<CompiledModule>) -> Result<CudaExecutable, ExecutionError> {
        let code = code(&compiled)?;
        let program = &code.program;
        let device = &gpu.description;
        if !code.architecture.runs_on(device.capability) {
            let (made_for, capability) = (code.architecture, device.capability);
            let has = format!("{} has compute capability {}.{}", device.name, capability / 10, capability % 10);
            let message = format!("the program was compiled for {made_for}, and {has}");
            return Err(ExecutionError::new(&codes::eval::DEVICE_FAILED, message).blame(Blame::Machine));
        }
        gpu.enter()?;
        // The libraries choose their kernels while ours are assembled.
        let sequences: Vec<_> = program.made.iter().map(|made| made.as_ref().ok()).collect();
        let texts: Vec<&str> = sequences.iter().flatten().flat_map(|s| &s.kernels).map(|k| k.ptx.as_str()).collect();
        let assembler = gpu.assembler.clone();
        assembler.keep(code.cubins(), code.architecture);
        let assembling = assembler.begin(&texts, code.architecture);
        let calls = library_calls(&gpu, program)?;
        let images = assembling.finish()?;
        code.keep_cubins(texts.iter().zip(&images).map(|(text, image)| (text.to_string(), image.to_vec())));
        let kernels = load_kernels(&gpu, &sequences, &texts, &images)?;
        let bytes = calls.values().map(LibraryCall::workspace_bytes).max().filter(|&n| n > 0);
        let library_workspace = bytes.map(|bytes| Block::new(&gpu, bytes)).transpose()?;
        let constant = |source: &AllocationSource| constant_block(&gpu, &compiled, source);
        let constants = program.allocations.iter().map(constant).collect::<Result<_, _>>()?;
        let exchange_bytes = exchange_bytes(program);
        let (workspace, prepared) = (Mutex::default(), OnceLock::new());
        Ok(CudaExecutable {
            gpu,
            compiled,
            kernels,
            calls,
            library_workspace,
            exchange_bytes,
            constants,
            workspace,
            prepared,
        })
    }

    /// The GPU that it runs on.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    fn prepared(&self) -> Result<&Prepared, ExecutionError> {
        let make = || Prepared::new(&self.compiled.module, self.compiled.fill_constants).map(EvaluatorState);
        self.prepared.get_or_init(make).as_ref().map(|state| &state.0).map_err(Clone::clone)
    }

    fn workspace(&self) -> MutexGuard<'_, Workspace> {
        self.workspace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error for temporaries that there is no room for, with what is resident and what takes most of them.
    fn without_room(&self, error: ExecutionError, device: usize) -> ExecutionError {
        let module = self.compiled.module.module();
        let constants: usize = self.constants.iter().flatten().map(|b| hloom_runtime::DeviceMemory::len(&**b)).sum();
        let library = self.library_workspace.as_ref().map_or(0, hloom_runtime::DeviceMemory::len);
        let entry = module.entry().map_or(&[][..], |entry| module[entry].instructions());
        let is_made = |i: &&InstructionId| !matches!(module[**i].op, Op::Parameter { .. } | Op::Constant(_));
        let bytes = |i: &&InstructionId| module[**i].shape.byte_size().unwrap_or(0);
        let error = error
            .note(format!("for the temporaries of device {device}"))
            .note(format!("constants take {constants} bytes, and what libraries work in {library}"));
        match entry.iter().filter(is_made).max_by_key(bytes) {
            Some(&largest) => {
                let (name, shape) = (module[largest].name(), &module[largest].shape);
                error.note(format!("the largest array of the program is {name}, {shape}")).at(largest)
            }
            None => error,
        }
    }

    /// Puts the arrays of a device's run in their places.
    fn place(
        &self,
        program: &ThunkProgram,
        temporaries: DevicePointer,
        arguments: &mut [Option<Buffer>],
    ) -> Result<Placed, ExecutionError> {
        let gpu = &self.gpu;
        let mut bases = vec![0; program.allocations.len()];
        let mut kept: Vec<Option<Arc<Block>>> = vec![None; program.allocations.len()];
        for (n, source) in program.allocations.iter().enumerate() {
            let block = match *source {
                AllocationSource::Unused | AllocationSource::SharedBuffer { .. } => continue,
                AllocationSource::Temporary { offset } => {
                    bases[n] = temporaries + offset as u64;
                    continue;
                }
                AllocationSource::Constant { .. } => {
                    bases[n] = self.constants.get(n).and_then(Option::as_ref).map_or(0, |b| b.address());
                    continue;
                }
                AllocationSource::Argument { leaf, owned } => {
                    let slot = arguments.get_mut(leaf).ok_or_else(|| ExecutionError::bug("a leaf is missing"))?;
                    if !owned {
                        bases[n] = slot.as_ref().and_then(Buffer::memory_as::<Block>).map_or(0, |b| b.address());
                        continue;
                    }
                    let given = slot
                        .take()
                        .and_then(Buffer::into_memory::<Block>)
                        .ok_or_else(|| ExecutionError::bug("no memory given"))?;
                    match Arc::try_unwrap(given) {
                        Ok(own) => own,
                        Err(shared) => {
                            let bytes = hloom_runtime::DeviceMemory::len(&*shared);
                            let copy = Block::new(gpu, bytes)?;
                            gpu.copy(copy.address(), shared.address(), bytes)?;
                            copy
                        }
                    }
                }
                AllocationSource::Result { bytes } => Block::new(gpu, bytes).map_err(|e| e.note("for a result"))?,
            };
            bases[n] = block.address();
            kept[n] = Some(Arc::new(block));
        }
        Ok(Placed { bases, kept })
    }
}

impl Drop for CudaExecutable {
    /// Gives back what the driver holds for the program.
    fn drop(&mut self) {
        let gpu = self.gpu.clone();
        let Ok(_enqueue) = gpu.lock() else { return };
        // What does not end well leaves its kernels loaded, and nothing worse.
        if gpu.synchronize().is_ok() {
            self.workspace().graphs.clear(&gpu);
            for &module in &self.kernels.modules {
                // SAFETY: the module is ours, and nothing runs its kernels any more.
                unsafe { (gpu.driver.module_unload)(module) };
            }
        }
    }
}

impl LoadedExecutable for CudaExecutable {
    fn compiled(&self) -> &CompiledModule {
        &self.compiled
    }

    fn execute(
        &self,
        arguments: Vec<Vec<Buffer>>,
        options: &ExecuteOptions<'_>,
    ) -> Result<Vec<Vec<Buffer>>, ExecutionError> {
        self.run(arguments, options, None)
    }
}

impl CudaExecutable {
    /// Runs the program; `failed` is raised when another device of this process has failed.
    pub(crate) fn run(
        &self,
        arguments: Vec<Vec<Buffer>>,
        options: &ExecuteOptions<'_>,
        failed: Option<&AtomicBool>,
    ) -> Result<Vec<Vec<Buffer>>, ExecutionError> {
        let devices = options.local_devices(&self.compiled);
        check_arguments(&self.compiled, &arguments, &devices)?;
        let evaluates = code(&self.compiled)?.program.evaluates;
        if !evaluates && options.communicator.is_none() {
            return self.run_devices(arguments, options, None, failed);
        }
        let for_evaluator = eval_options(options, self.compiled.fill_constants);
        let nothing = Prepared::nothing();
        // Devices that only meet others need the evaluator for the words that they fail with.
        let prepared = if evaluates { self.prepared()? } else { &nothing };
        let shared = Shared::new(&self.compiled.module, prepared, self.compiled.grid, &for_evaluator);
        let mut leaving: Vec<Leaving<'_, '_>> = devices.iter().map(|&d| Leaving::new(&shared, d)).collect();
        let outcome = self.run_devices(arguments, options, Some((&shared, &devices)), failed);
        leaving.iter_mut().for_each(|l| l.ended(&outcome));
        outcome
    }

    /// How the only device here meets those on other GPUs, if it does.
    fn exchange<'r>(
        &self,
        workspace: &mut Workspace,
        options: &ExecuteOptions<'_>,
        devices: usize,
        failed: Option<&'r AtomicBool>,
    ) -> Result<Option<Exchange<'r>>, ExecutionError> {
        let (Some(communicator), Some(bytes)) = (&options.communicator, self.exchange_bytes) else { return Ok(None) };
        if devices > 1 {
            let message = format!("{devices} devices of this process are on one GPU, and NCCL takes a GPU for each");
            let error = ExecutionError::new(&codes::eval::UNSUPPORTED, message).blame(Blame::Machine);
            return Err(error.help("start a process for every device, or let the process see as many GPUs"));
        }
        if workspace.exchange.is_none() {
            workspace.exchange =
                Some(Block::new(&self.gpu, bytes).map_err(|e| e.note("for exchanges with other GPUs"))?);
        }
        let scratch = workspace.exchange.as_ref().map_or(0, Block::address);
        let time_limit = options.time_limit.unwrap_or(TIME_LIMIT);
        Ok(Some(Exchange::new(communicator.clone(), scratch, time_limit, failed)))
    }

    /// Runs the program on the devices here, with what the evaluator needs, if it is needed, and the devices' numbers.
    fn run_devices(
        &self,
        arguments: Vec<Vec<Buffer>>,
        options: &ExecuteOptions<'_>,
        shared: Option<(&Shared<'_>, &[usize])>,
        failed: Option<&AtomicBool>,
    ) -> Result<Vec<Vec<Buffer>>, ExecutionError> {
        let program = &code(&self.compiled)?.program;
        let devices = arguments.len();
        let gpu = &self.gpu;
        let mut workspace = self.workspace();
        let _enqueue = gpu.lock()?;
        while workspace.temporaries.len() < devices {
            let device = workspace.temporaries.len();
            let block = Block::new(gpu, program.temporary_bytes);
            workspace.temporaries.push(block.map_err(|e| self.without_room(e, device))?);
        }
        gpu.make_lanes(devices)?;
        let exchange = self.exchange(&mut workspace, options, devices, failed)?;
        self.calls.values().try_for_each(|call| call.before_run(gpu))?;
        let (mut given, mut bases, mut kept, mut slots) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (device, arguments) in arguments.into_iter().enumerate() {
            let mut arguments: Vec<Option<Buffer>> = arguments.into_iter().map(Some).collect();
            let mut of_device = vec![None; program.slots];
            for &(leaf, slot) in &program.argument_slots {
                let argument = arguments.get(leaf).and_then(Option::as_ref);
                let argument = argument.ok_or_else(|| ExecutionError::bug("a leaf is missing"))?;
                of_device[slot as usize] = Some(read_leaf(gpu, argument)?);
            }
            let placed = self.place(program, workspace.temporaries[device].address(), &mut arguments)?;
            given.push(arguments);
            bases.push(placed.bases);
            kept.push(placed.kept);
            slots.push(of_device);
        }
        let loaded = LoadedProgram {
            program,
            functions: &self.kernels.functions,
            calls: &self.calls,
            workspace: self.library_workspace.as_ref().map_or(0, Block::address),
        };
        let evaluators = shared.iter().flat_map(|(s, devices)| devices.iter().map(|&d| Device::new(s, d))).collect();
        let mut executor = Executor::new(gpu, loaded, &bases, evaluators, slots, options);
        executor.exchange = exchange;
        let graphs = &mut workspace.graphs;
        let outcome = executor.run(graphs, &bases).and_then(|()| {
            executor.wait()?;
            executor.finish_trace()
        });
        outcome.map_err(|error| executor.abandon_exchange(error))?;
        let slots = executor.into_slots();
        let mut results = Vec::with_capacity(devices);
        for device in 0..devices {
            let mut of_device = Vec::with_capacity(program.results.len());
            for leaf in &program.results {
                let (given, kept, bases) = (&given[device], &kept[device], &bases[device]);
                of_device.push(match leaf.slot {
                    Some(slot) => {
                        let value = slots[device][slot as usize].as_ref();
                        self.upload_value(value.ok_or_else(|| ExecutionError::bug("a result was not made"))?)?
                    }
                    None => self.result(program, &leaf.shape, leaf.location, given, kept, bases)?,
                });
            }
            results.push(of_device);
        }
        gpu.synchronize()?;
        Ok(results)
    }

    /// A leaf of the result: the block that it fills, or a copy.
    fn result(
        &self,
        program: &ThunkProgram,
        shape: &Shape,
        location: Location,
        arguments: &[Option<Buffer>],
        kept: &[Option<Arc<Block>>],
        bases: &[DevicePointer],
    ) -> Result<Buffer, ExecutionError> {
        if !matches!(shape, Shape::Array(_) | Shape::Buffer(_)) {
            return Ok(Buffer::without_memory(shape.clone()));
        }
        let n = location.allocation as usize;
        let block = match program.allocations.get(n) {
            _ if location.offset != 0 => None,
            Some(AllocationSource::Argument { leaf, owned: false }) => {
                arguments.get(*leaf).and_then(|a| a.as_ref()?.memory_as::<Block>())
            }
            Some(AllocationSource::Argument { .. } | AllocationSource::Result { .. }) => kept[n].clone(),
            Some(AllocationSource::Constant { .. }) => self.constants.get(n).cloned().flatten(),
            _ => None,
        };
        if let Some(block) = block {
            return Ok(Buffer::new(shape.clone(), block));
        }
        let bytes = shape.byte_size().unwrap_or(0) as usize;
        let gpu = &self.gpu;
        let block = Block::new(gpu, bytes)?;
        if bytes > 0 {
            let base = bases.get(n).copied().filter(|&b| b != 0);
            let base = base.ok_or_else(|| ExecutionError::bug("a part of the result has no memory"))?;
            gpu.copy(block.address(), base + location.offset as u64, bytes)?;
        }
        Ok(Buffer::new(shape.clone(), Arc::new(block)))
    }

    /// A value of the host on the device; who calls holds the lock.
    fn upload_value(&self, value: &Value) -> Result<Buffer, ExecutionError> {
        match value {
            Value::Array(array) => {
                let block = Block::new(&self.gpu, array.bytes().len())?;
                self.gpu.upload(block.address(), array.bytes())?;
                Ok(Buffer::new(array.shape(), Arc::new(block)))
            }
            Value::Token => Ok(Buffer::token()),
            Value::Opaque => Ok(Buffer::opaque()),
            Value::Tuple(_) => Err(ExecutionError::bug("a tuple is not a leaf")),
        }
    }
}

/// A copy of a buffer as a value of the host; who calls holds the lock.
fn read_leaf(gpu: &crate::gpu::Gpu, buffer: &Buffer) -> Result<Value, ExecutionError> {
    let (Some(block), Some(shape)) = (buffer.memory_as::<Block>(), buffer.shape().as_array_or_buffer()) else {
        return buffer.to_leaf();
    };
    let mut array = hloom_value::Array::zeroed(shape.element_type, shape.dims())?;
    gpu.download(array.bytes_mut(), block.address())?;
    Ok(Value::Array(array))
}

/// The library calls of a program, by list and place in it.
fn library_calls(
    gpu: &Arc<Gpu>,
    program: &ThunkProgram,
) -> Result<FxHashMap<(usize, usize), LibraryCall>, ExecutionError> {
    let mut calls = FxHashMap::default();
    let _enqueue = gpu.lock()?;
    for (list, thunks) in program.lists.iter().enumerate() {
        for (n, thunk) in thunks.iter().enumerate() {
            if let Some(call) = LibraryCall::new(gpu, thunk)? {
                calls.insert((list, n), call);
            }
        }
    }
    Ok(calls)
}

/// Loads the kernels of sequences, whose texts in order have these images.
fn load_kernels(
    gpu: &Gpu,
    sequences: &[Option<&KernelSequence>],
    texts: &[&str],
    images: &[Image],
) -> Result<LoadedKernels, ExecutionError> {
    let mut modules: FxHashMap<&str, Handle> = FxHashMap::default();
    for (&text, image) in texts.iter().zip(images) {
        if modules.contains_key(text) {
            continue;
        }
        let mut module = 0;
        // SAFETY: the image is whole, and ended by a zero where it is text.
        let call = unsafe { (gpu.driver.module_load)(&mut module, image.as_ptr().cast()) };
        gpu.driver.check(call, "cuModuleLoadData")?;
        modules.insert(text, module);
    }
    let mut functions = Vec::with_capacity(sequences.len());
    for sequence in sequences {
        let mut of_sequence = Vec::new();
        for kernel in sequence.map_or(&[][..], |s| &s.kernels[..]) {
            let module = *modules.get(kernel.ptx.as_str()).ok_or_else(|| ExecutionError::bug("a kernel is missing"))?;
            let name = CString::new(kernel.name.as_str()).map_err(|_| ExecutionError::bug("a name with a zero"))?;
            let mut function = 0;
            // SAFETY: the module is loaded, the name ends with a zero.
            let call = unsafe { (gpu.driver.module_function)(&mut function, module, name.as_ptr()) };
            gpu.driver.check(call, &format!("cuModuleGetFunction of {}", kernel.name))?;
            if kernel.launch.dynamic_shared_bytes > 0 {
                // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
                let bytes = kernel.launch.dynamic_shared_bytes as i32;
                // SAFETY: the function is of a loaded module.
                let call = unsafe { (gpu.driver.function_attribute)(function, 8, bytes) };
                gpu.driver.check(call, "cuFuncSetAttribute")?;
            }
            of_sequence.push(function);
        }
        functions.push(of_sequence);
    }
    Ok(LoadedKernels { modules: modules.into_values().collect(), functions })
}

/// The memory of a constant; none for other allocations, and none for what a dump leaves out, which a thunk of its own
/// fails for.
fn constant_block(
    gpu: &Arc<Gpu>,
    compiled: &CompiledModule,
    source: &AllocationSource,
) -> Result<Option<Arc<Block>>, ExecutionError> {
    let &AllocationSource::Constant { instruction, leaf, bytes } = source else { return Ok(None) };
    let block = Block::new(gpu, bytes).map_err(|e| e.at(instruction))?;
    let value = constant_value(compiled.module.module(), instruction, compiled.fill_constants);
    if let Some(value) = value.map_err(|error| error.at(instruction))? {
        let leaves = value.leaves();
        if let Some(array) = leaves.get(leaf).and_then(|leaf| leaf.as_array().ok()) {
            let from = array.bytes();
            let _enqueue = gpu.lock()?;
            gpu.upload(block.address(), &from[..from.len().min(bytes)])?;
        }
    }
    Ok(Some(Arc::new(block)))
}

/// The memory that the collectives of a program work in one after another if they are with other GPUs; `None` if there are
/// no collectives.
fn exchange_bytes(program: &ThunkProgram) -> Option<usize> {
    let bytes = program.lists.iter().flatten().filter_map(|thunk| match &thunk.kind {
        ThunkKind::Collective(collective) => Some(Schedule::new(collective, 0).scratch_bytes),
        _ => None,
    });
    bytes.max()
}

/// The same for the evaluator.
fn eval_options<'o>(options: &ExecuteOptions<'o>, fill_constants: bool) -> Options<'o> {
    Options {
        max_steps: options.max_steps,
        fill_constants,
        custom_calls: options.custom_calls,
        cancel: options.cancel,
        time_limit: options.time_limit,
        progress: options.progress,
        communicator: options.communicator.clone(),
        devices: options.devices,
        ..Options::default()
    }
}
