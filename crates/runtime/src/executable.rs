//! Executables: compiled programs, and their runs.

use crate::buffer::{Buffer, assemble};
use crate::client::Client;
use crate::compile::compile;
use crate::lower::Unplanned;
use crate::memory::Block;
use crate::program::Program;
use crate::report::Report;
use crate::run::{Controls, Workspace, run_device};
use crate::trace::Trace;
use hloom_eval::Options;
use hloom_eval::custom_call::CustomCalls;
use hloom_eval::interpreter::Device;
use hloom_eval::run::{DeviceGrid, Leaving, Prepared, Shared, all_or_fault, run_prepared};
use hloom_ir::diagnostic::{Blame, Diagnostic, Place, codes};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::shape::Shape;
use hloom_ir::verify::VerifiedModule;
use hloom_value::{ExecutionError, Value};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// How a program is to be compiled.
#[derive(Clone, Copy, Debug)]
pub struct CompileOptions {
    /// The devices.
    pub grid: DeviceGrid,
    /// Make up values for constants that the dump leaves out, instead of failing.
    pub fill_constants: bool,
    /// How much time the code is worth.
    pub effort: Effort,
}

/// How much time the code of a program is worth.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Effort {
    /// Little: the program is to run once.
    Quick,
    /// What makes it fast.
    #[default]
    Full,
}

/// How a run is to go.
#[derive(Default)]
pub struct ExecuteOptions<'o> {
    /// Steps that each device may execute; no limit when absent.
    pub max_steps: Option<u64>,
    /// Raise to end the run.
    pub cancel: Option<&'o AtomicBool>,
    /// How long a device waits in a collective for one that is still computing; ten minutes when absent.
    pub time_limit: Option<Duration>,
    /// Threads that may compute at once; as many as the client has when absent.
    pub threads: Option<usize>,
    /// Is kept at the instruction that device 0 is at, for a progress display.
    pub progress: Option<&'o AtomicU32>,
    /// Code for custom calls besides that for the calls found in XLA's dumps.
    pub custom_calls: Option<&'o CustomCalls>,
    /// Takes what ran where and when.
    pub trace: Option<&'o Trace>,
}

/// The stack of a device's thread; the evaluator's calls nest, and address space is cheap.
const STACK_BYTES: usize = 256 << 20;

/// A compiled program.
pub struct Executable {
    client: Client,
    /// The program as it runs.
    module: VerifiedModule,
    /// Its steps; without, the evaluator runs it.
    program: Option<Program>,
    /// Memory of runs that are over, for the next.
    workspaces: Mutex<Vec<Workspace>>,
    /// The leaves of the parameters: which parameter each is of, and its shape.
    inputs: Vec<(InstructionId, Shape)>,
    grid: DeviceGrid,
    fill_constants: bool,
    report: Report,
    /// What the evaluator needs, made when first needed.
    prepared: OnceLock<Result<Prepared, ExecutionError>>,
}

impl Executable {
    pub(crate) fn new(
        client: Client,
        module: &VerifiedModule,
        options: &CompileOptions,
    ) -> Result<Executable, Vec<Diagnostic>> {
        let mut report = Report::default();
        let (program, module) = match compile(module, &client, options, &mut report) {
            Ok(compiled) => (Some(compiled.program), compiled.module),
            Err(Unplanned::ExecutionError(fault)) => return Err(vec![fault.into_diagnostic()]),
            Err(Unplanned::Evaluate(reason)) => {
                report = Report { evaluated: Some(reason), ..Report::default() };
                (None, module.clone())
            }
        };
        let inputs = {
            let module = module.module();
            let parameters = module.entry().map_or_else(Vec::new, |entry| module.parameters(entry));
            let leaves =
                |p: InstructionId| module[p].shape.leaves().into_iter().map(move |(_, s)| (p, s.without_layout()));
            parameters.into_iter().flat_map(leaves).collect()
        };
        Ok(Executable {
            program,
            inputs,
            workspaces: Mutex::new(Vec::new()),
            client,
            module,
            grid: options.grid,
            fill_constants: options.fill_constants,
            report,
            prepared: OnceLock::new(),
        })
    }

    /// What became of the program.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The devices that it runs on.
    pub fn grid(&self) -> DeviceGrid {
        self.grid
    }

    /// The program as it runs.
    pub fn module(&self) -> &VerifiedModule {
        &self.module
    }

    /// The same fault in terms of `source`, the program as it was before it was compiled: places are found by name, and
    /// left out where the compiler made the instruction.
    pub fn explain(&self, fault: ExecutionError, source: &Module) -> ExecutionError {
        let mut diagnostic = fault.into_diagnostic();
        if let Place::Instruction(id, part) = diagnostic.place {
            let name = self.module.module()[id].name();
            diagnostic = match source.instruction_by_name(name) {
                Some(id) => diagnostic.at_instruction(id, part),
                None => diagnostic.at_place(Place::None).note(format!("in {name} of the compiled program")),
            };
        }
        ExecutionError::from_diagnostic(Box::new(diagnostic))
    }

    fn prepared(&self) -> Result<&Prepared, ExecutionError> {
        let prepared = self.prepared.get_or_init(|| Prepared::new(&self.module, self.fill_constants));
        prepared.as_ref().map_err(Clone::clone)
    }

    /// Runs the program with `arguments[d]` the leaves of all arguments of device `d`, in order; returns the leaves of
    /// each device's result. Memory of arguments whose last handle is passed may be taken for results.
    pub fn execute(
        &self,
        arguments: Vec<Vec<Buffer>>,
        options: &ExecuteOptions<'_>,
    ) -> Result<Vec<Vec<Buffer>>, ExecutionError> {
        self.check_arguments(&arguments)?;
        match &self.program {
            Some(program) => self.walk(program, arguments, options),
            None => self.evaluate(arguments, options),
        }
    }

    /// Walks over the steps, on this thread if there is one device.
    fn walk(
        &self,
        program: &Program,
        arguments: Vec<Vec<Buffer>>,
        options: &ExecuteOptions<'_>,
    ) -> Result<Vec<Vec<Buffer>>, ExecutionError> {
        let mut commons: Vec<Vec<Block>> = Vec::with_capacity(program.commons.len());
        for common in &program.commons {
            let groups = common.groups.iter().max().map_or(0, |&last| last + 1);
            let blocks = (0..groups).map(|_| self.client.allocator().block(common.bytes));
            commons.push(blocks.collect::<Result<_, _>>()?);
        }
        let (failed, gone) = (AtomicBool::new(false), RwLock::new(Vec::new()));
        let controls = Controls {
            max_steps: options.max_steps.unwrap_or(u64::MAX),
            cancel: options.cancel,
            failed: &failed,
            gone: &gone,
            progress: options.progress,
            trace: options.trace,
            commons: &commons,
            threads: options.threads.unwrap_or(usize::MAX),
        };
        let for_evaluator = program.evaluates.then(|| eval_options(options, self.fill_constants));
        let shared = match &for_evaluator {
            Some(options) => Some(Shared::new(&self.module, self.prepared()?, self.grid, options)),
            None => None,
        };
        let run = |ordinal: usize, arguments: Vec<Buffer>| {
            let mut leaving = shared.as_ref().map(|shared| Leaving { shared, ordinal, failed: true });
            let device = shared.as_ref().map(|shared| Device::new(shared, ordinal));
            let quiet = Controls { progress: None, ..controls };
            let controls = if ordinal == 0 { &controls } else { &quiet };
            let mut workspace = match self.workspaces().pop() {
                Some(workspace) => workspace,
                None => Workspace::new(program, &self.client)?,
            };
            let result = run_device(program, &self.client, &mut workspace, arguments, device, ordinal, controls);
            self.workspaces().push(workspace);
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            if let Some(leaving) = &mut leaving {
                leaving.failed = result.is_err();
            }
            result
        };
        if arguments.len() == 1 {
            return arguments.into_iter().enumerate().map(|(n, a)| run(n, a)).collect();
        }
        let results: Vec<Result<Vec<Buffer>, ExecutionError>> = std::thread::scope(|scope| {
            let spawn = |(ordinal, arguments): (usize, Vec<Buffer>)| {
                let run = &run;
                let builder = std::thread::Builder::new().name(format!("device {ordinal}"));
                builder.stack_size(STACK_BYTES).spawn_scoped(scope, move || run(ordinal, arguments))
            };
            let threads: Vec<_> = arguments.into_iter().enumerate().map(spawn).collect();
            let join = |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, _>>| match thread.map(|t| t.join()) {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(ExecutionError::bug("a device's thread panicked")),
                Err(error) => {
                    Err(ExecutionError::new(&codes::eval::OUT_OF_MEMORY, format!("no thread for a device: {error}")))
                }
            };
            threads.into_iter().map(join).collect()
        });
        all_or_fault(results)
    }

    fn workspaces(&self) -> MutexGuard<'_, Vec<Workspace>> {
        self.workspaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The parameters of the entry.
    fn parameters(&self) -> Vec<InstructionId> {
        let module = self.module.module();
        module.entry().map_or_else(Vec::new, |entry| module.parameters(entry))
    }

    fn check_arguments(&self, arguments: &[Vec<Buffer>]) -> Result<(), ExecutionError> {
        let bad = |message: String| ExecutionError::new(&codes::eval::BAD_INPUT, message).blame(Blame::Data);
        if arguments.len() != self.grid.devices() {
            let (given, needed) = (arguments.len(), self.grid.devices());
            return Err(bad(format!("arguments for {given} devices are given, the program runs on {needed}")));
        }
        for (device, leaves) in arguments.iter().enumerate() {
            if leaves.len() != self.inputs.len() {
                let (given, needed) = (leaves.len(), self.inputs.len());
                return Err(bad(format!("device {device} is given {given} arrays, the program takes {needed}")));
            }
            for (n, (given, (parameter, shape))) in leaves.iter().zip(&self.inputs).enumerate() {
                if !given.fits(shape) {
                    let name = self.module.module()[*parameter].name();
                    let message =
                        format!("array {n} of device {device}, for {name}, is {}, not {shape}", given.shape());
                    return Err(bad(message).at(*parameter));
                }
            }
        }
        Ok(())
    }

    /// Leaves the whole run to the evaluator.
    fn evaluate(
        &self,
        arguments: Vec<Vec<Buffer>>,
        options: &ExecuteOptions<'_>,
    ) -> Result<Vec<Vec<Buffer>>, ExecutionError> {
        let module = self.module.module();
        let parameters = self.parameters();
        let shapes: Vec<&Shape> = parameters.iter().map(|&p| &module[p].shape).collect();
        let values = |leaves: Vec<Buffer>| {
            let mut leaves = leaves.into_iter();
            shapes.iter().map(|shape| assemble(shape, &mut leaves)).collect::<Result<Vec<Value>, ExecutionError>>()
        };
        let inputs = arguments.into_iter().map(values).collect::<Result<Vec<_>, _>>()?;
        let options = eval_options(options, self.fill_constants);
        let results = run_prepared(&self.module, self.prepared()?, self.grid, inputs, &options)?;
        results.iter().map(|r| Buffer::from_value(self.client.allocator(), r)).collect()
    }
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
        infeed: Vec::<Mutex<VecDeque<Value>>>::new(),
        ..Options::default()
    }
}
