//! Executables: compiled programs, and their runs.

use crate::buffer::{Buffer, assemble};
use crate::client::Client;
use crate::report::Report;
use hloom_eval::custom_call::CustomCalls;
use hloom_eval::run::{DeviceGrid, Prepared, run_prepared};
use hloom_eval::{Fault, Options, Value};
use hloom_ir::diagnostic::{Blame, Diagnostic, Place, codes};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::shape::Shape;
use hloom_ir::verify::VerifiedModule;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// How a program is to be compiled.
#[derive(Clone, Copy, Debug)]
pub struct CompileOptions {
    /// The devices.
    pub grid: DeviceGrid,
    /// Make up values for constants that the dump leaves out, instead of failing.
    pub fill_constants: bool,
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
}

/// A compiled program.
pub struct Executable {
    client: Client,
    /// The program as it runs.
    module: VerifiedModule,
    grid: DeviceGrid,
    fill_constants: bool,
    report: Report,
    /// What the evaluator needs, made when first needed.
    prepared: OnceLock<Result<Prepared, Fault>>,
}

impl Executable {
    pub(crate) fn new(
        client: Client,
        module: &VerifiedModule,
        options: &CompileOptions,
    ) -> Result<Executable, Vec<Diagnostic>> {
        let report = Report { evaluated: Some("no compiler is there yet".into()), ..Report::default() };
        Ok(Executable {
            client,
            module: module.clone(),
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
    pub fn explain(&self, fault: Fault, source: &Module) -> Fault {
        let mut diagnostic = fault.into_diagnostic();
        if let Place::Instruction(id, part) = diagnostic.place {
            let name = self.module.module()[id].name();
            diagnostic = match source.instruction_by_name(name) {
                Some(id) => diagnostic.at_instruction(id, part),
                None => diagnostic.at_place(Place::None).note(format!("in {name} of the compiled program")),
            };
        }
        Fault::from_diagnostic(Box::new(diagnostic))
    }

    fn prepared(&self) -> Result<&Prepared, Fault> {
        let prepared = self.prepared.get_or_init(|| Prepared::new(&self.module, self.fill_constants));
        prepared.as_ref().map_err(Clone::clone)
    }

    /// Runs the program with `arguments[d]` the leaves of all arguments of device `d`, in order; returns the leaves of
    /// each device's result. Memory of arguments whose last handle is passed may be taken for results.
    pub fn execute(
        &self,
        arguments: Vec<Vec<Buffer>>,
        options: &ExecuteOptions<'_>,
    ) -> Result<Vec<Vec<Buffer>>, Fault> {
        self.check_arguments(&arguments)?;
        self.evaluate(arguments, options)
    }

    /// The parameters of the entry.
    fn parameters(&self) -> Vec<InstructionId> {
        let module = self.module.module();
        module.entry().map_or_else(Vec::new, |entry| module.parameters(entry))
    }

    fn check_arguments(&self, arguments: &[Vec<Buffer>]) -> Result<(), Fault> {
        let module = self.module.module();
        let bad = |message: String| Fault::new(&codes::eval::BAD_INPUT, message).blame(Blame::Data);
        if arguments.len() != self.grid.devices() {
            let (given, needed) = (arguments.len(), self.grid.devices());
            return Err(bad(format!("arguments for {given} devices are given, the program runs on {needed}")));
        }
        for (device, leaves) in arguments.iter().enumerate() {
            let mut leaves = leaves.iter();
            for p in self.parameters() {
                for (index, shape) in module[p].shape.leaves() {
                    let name = module[p].name();
                    let missing = || bad(format!("device {device} is not given {name}{index:?}")).at(p);
                    let given = leaves.next().ok_or_else(missing)?;
                    if !given.fits(shape) {
                        let needed = shape.without_layout();
                        let message = format!("{name}{index:?} of device {device} is {}, not {needed}", given.shape());
                        return Err(bad(message).at(p));
                    }
                }
            }
            if leaves.next().is_some() {
                return Err(bad(format!("device {device} is given more arguments than the program takes")));
            }
        }
        Ok(())
    }

    /// Leaves the whole run to the evaluator.
    fn evaluate(&self, arguments: Vec<Vec<Buffer>>, options: &ExecuteOptions<'_>) -> Result<Vec<Vec<Buffer>>, Fault> {
        let module = self.module.module();
        let parameters = self.parameters();
        let shapes: Vec<&Shape> = parameters.iter().map(|&p| &module[p].shape).collect();
        let values = |leaves: Vec<Buffer>| {
            let mut leaves = leaves.into_iter();
            shapes.iter().map(|shape| assemble(shape, &mut leaves)).collect::<Result<Vec<Value>, Fault>>()
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
        custom_calls: CustomCalls::default(),
        cancel: options.cancel,
        time_limit: options.time_limit,
        progress: options.progress,
        infeed: Vec::<Mutex<VecDeque<Value>>>::new(),
        ..Options::default()
    }
}
