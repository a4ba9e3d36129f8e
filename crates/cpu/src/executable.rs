//! Executables: compiled programs in memory, and their runs.

use crate::client::CpuClient;
use crate::code::CpuCode;
use crate::concurrent::expected_nanoseconds;
use crate::executor::{LoadedProgram, RunContext, Workspace, run_device};
use crate::kernel::LoadedKernels;
use crate::thunk::{AllocationSource, ThunkProgram};
use hloom_analysis::cost::known_trip_count;
use hloom_compiler::CompiledModule;
use hloom_eval::Options;
use hloom_eval::interpreter::Device;
use hloom_eval::run::{Leaving, Prepared, Shared, all_or_fault, constant_value, joined};
use hloom_ir::entity::InstructionId;
use hloom_ir::op::Op;
use hloom_runtime::float_mode::FloatMode;
use hloom_runtime::memory::Block;
use hloom_runtime::{Buffer, ExecuteOptions, LoadedExecutable, LocalDevices, check_arguments};
use hloom_value::{ExecutionError, Value};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The stack of a device's thread; the evaluator's calls nest, and address space is cheap.
const STACK_BYTES: usize = 256 << 20;

/// Calls of others' code that read and write no more bytes are thought to be over soon: factors of matrices of 16 rows are.
const SMALL_CALL: i64 = 1 << 13;

/// A compiled program in memory.
#[derive(Debug)]
pub(crate) struct CpuExecutable {
    client: CpuClient,
    compiled: Arc<CompiledModule>,
    kernels: LoadedKernels,
    /// The constants, by allocation.
    constants: Vec<Option<Arc<Block>>>,
    /// Memory of runs that are over, for the next.
    workspaces: Mutex<Vec<Workspace>>,
    /// What the evaluator needs, made when first needed.
    prepared: OnceLock<Result<EvaluatorState, ExecutionError>>,
    /// Whether a run is over before another thread would have begun with it.
    is_short: bool,
}

/// What the evaluator has worked out of a module.
struct EvaluatorState(Prepared);

impl std::fmt::Debug for EvaluatorState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvaluatorState").finish_non_exhaustive()
    }
}

/// The program of a compiled module, which must be this backend's.
fn program(compiled: &CompiledModule) -> Result<&ThunkProgram, ExecutionError> {
    let code = compiled.code::<CpuCode>();
    Ok(&code.ok_or_else(|| ExecutionError::bug("the code is of another backend"))?.program)
}

/// Whether a program of one device, all of whose loops are known to end soon, takes less than is worth a thread.
fn is_short(compiled: &CompiledModule) -> bool {
    let Some(code) = compiled.code::<CpuCode>() else { return false };
    let module = compiled.module.module();
    let is_open =
        |&i: &InstructionId| matches!(module[i].op, Op::While { .. }) && known_trip_count(&module[i]).is_none();
    let bytes = |i: InstructionId| module[i].shape.byte_size().unwrap_or(i64::MAX);
    let is_small_call = |i: InstructionId| {
        let arrays = module[i].operands().iter().copied().chain([i]);
        matches!(module[i].op, Op::CustomCall(_)) && arrays.map(bytes).fold(0, i64::saturating_add) <= SMALL_CALL
    };
    let time = expected_nanoseconds(&code.program.lists, &code.core, is_small_call);
    time.is_some_and(|time| time < code.core.worth_sharing())
        && compiled.grid.devices() == 1
        && !module.computations().iter().any(|&c| module[c].instructions().iter().any(is_open))
}

impl CpuExecutable {
    /// Brings a program's kernels and constants into memory.
    pub(crate) fn new(client: CpuClient, compiled: Arc<CompiledModule>) -> Result<CpuExecutable, ExecutionError> {
        let program = program(&compiled)?;
        let kernels = program.kernels.load();
        let kernels = kernels.map_err(|why| ExecutionError::bug(format!("kernels cannot be loaded: {why}")))?;
        let constant = |source: &AllocationSource| constant_block(&client, &compiled, source);
        let constants = program.allocations.iter().map(constant).collect::<Result<_, _>>()?;
        let workspaces = Mutex::new(Vec::new());
        let is_short = is_short(&compiled);
        Ok(CpuExecutable { client, compiled, kernels, constants, workspaces, prepared: OnceLock::new(), is_short })
    }

    fn prepared(&self) -> Result<&Prepared, ExecutionError> {
        let make = || Prepared::new(&self.compiled.module, self.compiled.fill_constants).map(EvaluatorState);
        self.prepared.get_or_init(make).as_ref().map(|state| &state.0).map_err(Clone::clone)
    }

    /// Executes the thunks, on this thread if there is one device.
    fn execute_thunks(
        &self,
        program: &ThunkProgram,
        arguments: Vec<Vec<Buffer>>,
        devices: LocalDevices,
        options: &ExecuteOptions<'_>,
    ) -> Result<Vec<Vec<Buffer>>, ExecutionError> {
        let mut shared_buffers: Vec<Vec<Block>> = Vec::with_capacity(program.shared_buffers.len());
        for common in &program.shared_buffers {
            let groups = common.groups.iter().max().map_or(0, |&last| last + 1);
            // Groups of other processes have their own elsewhere.
            let is_here = |group: u32| devices.iter().any(|&d| common.groups.get(d) == Some(&group));
            let bytes = |group: u32| if is_here(group) { common.bytes } else { 0 };
            let blocks = (0..groups).map(|group| self.client.allocator().block(bytes(group)));
            shared_buffers.push(blocks.collect::<Result<_, _>>()?);
        }
        let loaded = LoadedProgram { program, kernels: &self.kernels, constants: &self.constants };
        let (failed, leaks) = (AtomicBool::new(false), AtomicBool::new(false));
        let context = RunContext {
            max_steps: options.max_steps.unwrap_or(u64::MAX),
            cancel: options.cancel,
            failed: &failed,
            leaks: &leaks,
            progress: options.progress,
            trace: options.trace,
            shared_buffers: &shared_buffers,
            threads: options.threads.unwrap_or(usize::MAX),
        };
        let for_evaluator = program.evaluates.then(|| eval_options(options, self.compiled.fill_constants));
        let shared = match &for_evaluator {
            Some(options) => Some(Shared::new(&self.compiled.module, self.prepared()?, self.compiled.grid, options)),
            None => None,
        };
        let first = devices.first().copied();
        let leaving = |ordinal: usize| shared.as_ref().map(|shared| Leaving::new(shared, ordinal));
        let run = |ordinal: usize, arguments: Vec<Buffer>, mut leaving: Option<Leaving<'_, '_>>| {
            leaving.iter_mut().for_each(Leaving::begun);
            let device = shared.as_ref().map(|shared| Device::new(shared, ordinal));
            let quiet = RunContext { progress: None, ..context };
            let context = if Some(ordinal) == first { &context } else { &quiet };
            let waiting = self.workspaces().pop();
            let workspace = waiting.map_or_else(|| Workspace::new(&loaded, &self.client), Ok);
            let result = workspace.and_then(|mut workspace| {
                let float_mode = FloatMode::current().with_subnormals_as_zeros().enter();
                let result = run_device(loaded, &self.client, &mut workspace, arguments, device, ordinal, context);
                drop(float_mode);
                match leaks.load(Ordering::Relaxed) {
                    true => std::mem::forget(workspace),
                    false => {
                        workspace.clear();
                        self.workspaces().push(workspace);
                    }
                }
                result
            });
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            if let Some(leaving) = &mut leaving {
                leaving.ended(&result);
            }
            result
        };
        if arguments.len() == 1 {
            let result = devices.into_iter().zip(arguments).map(|(n, a)| run(n, a, leaving(n))).collect();
            if leaks.load(Ordering::Relaxed) {
                std::mem::forget(shared_buffers);
            }
            return result;
        }
        let results: Vec<Result<Vec<Buffer>, ExecutionError>> = std::thread::scope(|scope| {
            let spawn = |(ordinal, arguments): (usize, Vec<Buffer>)| {
                // Made here: a thread that cannot be made drops it, and the others do not wait for the device.
                let (run, leaving) = (&run, leaving(ordinal));
                let builder = std::thread::Builder::new().name(format!("device {ordinal}"));
                builder.stack_size(STACK_BYTES).spawn_scoped(scope, move || run(ordinal, arguments, leaving))
            };
            let threads: Vec<_> = devices.into_iter().zip(arguments).map(spawn).collect();
            threads.into_iter().map(joined).collect()
        });
        if leaks.load(Ordering::Relaxed) {
            std::mem::forget(shared_buffers);
        }
        all_or_fault(results)
    }

    fn workspaces(&self) -> MutexGuard<'_, Vec<Workspace>> {
        self.workspaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoadedExecutable for CpuExecutable {
    fn compiled(&self) -> &CompiledModule {
        &self.compiled
    }

    fn is_short(&self) -> bool {
        self.is_short
    }

    fn execute(
        &self,
        arguments: Vec<Vec<Buffer>>,
        options: &ExecuteOptions<'_>,
    ) -> Result<Vec<Vec<Buffer>>, ExecutionError> {
        let devices = options.local_devices(&self.compiled);
        check_arguments(&self.compiled, &arguments, &devices)?;
        self.execute_thunks(program(&self.compiled)?, arguments, devices, options)
    }
}

/// The memory of a constant; none for other allocations, and none for what a dump leaves out, which a thunk of its own
/// fails for.
fn constant_block(
    client: &CpuClient,
    compiled: &CompiledModule,
    source: &AllocationSource,
) -> Result<Option<Arc<Block>>, ExecutionError> {
    let &AllocationSource::Constant { instruction, leaf, bytes } = source else { return Ok(None) };
    let mut block = client.allocator().block(bytes)?;
    let value = constant_value(compiled.module.module(), instruction, compiled.fill_constants);
    if let Some(value) = value.map_err(|error| error.at(instruction))? {
        let leaves = value.leaves();
        if let Some(array) = leaves.get(leaf).and_then(|leaf| leaf.as_array().ok()) {
            let (to, from) = (block.bytes_mut(), array.bytes());
            let end = from.len().min(to.len());
            to[..end].copy_from_slice(&from[..end]);
        }
    }
    Ok(Some(Arc::new(block)))
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
        infeed: Vec::<Mutex<VecDeque<Value>>>::new(),
        ..Options::default()
    }
}
