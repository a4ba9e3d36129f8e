//! A run: a verified module on a grid of virtual devices, each its own thread.

use crate::custom_call::{self, CustomCalls};
use crate::interpreter::Device;
use crate::mixed_precision::MixedPrecision;
use crate::observe::{Observer, Verdict};
use crate::padding;
use crate::plan::Plan;
use hloom_comm::{Communicator, InProcess};
use hloom_ir::diagnostic::{Blame, codes};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::{ConstantValue, Op};
use hloom_ir::shape::Shape;
use hloom_ir::verify::VerifiedModule;
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use hloom_analysis::devices::DeviceGrid;

/// How a run is to go.
#[derive(Default)]
pub struct Options<'o> {
    /// Instructions that each device may execute; no limit when absent.
    pub max_steps: Option<u64>,
    /// Make up values for constants that the dump leaves out, instead of failing.
    pub fill_constants: bool,
    /// Code for custom calls besides that for the calls found in XLA's dumps.
    pub custom_calls: Option<&'o CustomCalls>,
    /// Who is told of every value.
    pub observer: Option<&'o dyn Observer>,
    /// Raise to end the run.
    pub cancel: Option<&'o AtomicBool>,
    /// How long a device waits in a collective for one that is still computing; ten minutes when absent.
    pub time_limit: Option<Duration>,
    /// How the devices meet; as threads of this process when absent.
    pub communicator: Option<Arc<dyn Communicator>>,
    /// The devices that run here; all when absent.
    pub devices: Option<&'o [usize]>,
    /// Values for infeed, per device, in order.
    pub infeed: Vec<Mutex<VecDeque<Value>>>,
    /// Takes what outfeed gives, with the device's number.
    pub outfeed: Option<&'o Mutex<Vec<(usize, Value)>>>,
    /// Is kept at the instruction that device 0 is at, for a progress display.
    pub progress: Option<&'o AtomicU32>,
}

/// What can be made of a module once, for all its runs.
pub struct Prepared {
    /// The order of evaluation.
    pub plan: Plan,
    /// The values of all constants but the elided ones.
    pub constants: FxHashMap<InstructionId, Value>,
    /// The custom calls found in XLA's dumps.
    pub builtin_calls: CustomCalls,
    /// What mixes floating-point types.
    pub mixed_precision: MixedPrecision,
}

impl Prepared {
    /// Nothing is prepared: enough for single instructions that call no computations.
    pub fn nothing() -> Prepared {
        Prepared {
            plan: Plan::default(),
            constants: FxHashMap::default(),
            builtin_calls: CustomCalls::default(),
            mixed_precision: MixedPrecision::default(),
        }
    }

    /// Prepares `module`; `fill_constants` as in [`Options`].
    pub fn new(module: &VerifiedModule, fill_constants: bool) -> Result<Prepared, ExecutionError> {
        let module = module.module();
        padding::check(module)?;
        let constants = constants(module, fill_constants)?;
        let mixed_precision = MixedPrecision::of(module);
        Ok(Prepared { plan: Plan::new(module), constants, builtin_calls: custom_call::builtin(), mixed_precision })
    }
}

/// What the devices of a run share.
pub struct Shared<'r> {
    /// The module.
    pub module: &'r Module,
    /// What was made of it before the run.
    pub prepared: &'r Prepared,
    /// The devices.
    pub grid: DeviceGrid,
    /// How the run is to go.
    pub options: &'r Options<'r>,
    /// How the devices meet.
    pub communicator: Arc<dyn Communicator>,
    /// Raised when the run is to end early.
    pub cancel: AtomicBool,
}

impl<'r> Shared<'r> {
    /// What the devices of `grid` share in a run of `module`.
    pub fn new(
        module: &'r VerifiedModule,
        prepared: &'r Prepared,
        grid: DeviceGrid,
        options: &'r Options<'r>,
    ) -> Shared<'r> {
        let time_limit = options.time_limit.unwrap_or(Duration::from_secs(600));
        Shared {
            module: module.module(),
            prepared,
            grid,
            options,
            communicator: options
                .communicator
                .clone()
                .unwrap_or_else(|| Arc::new(InProcess::new(grid.devices(), time_limit))),
            cancel: AtomicBool::new(false),
        }
    }

    /// What one device has that evaluates single instructions of `module`.
    pub fn alone(module: &'r Module, prepared: &'r Prepared, options: &'r Options<'r>) -> Shared<'r> {
        let grid = DeviceGrid { replicas: 1, partitions: 1 };
        let communicator = Arc::new(InProcess::new(1, Duration::ZERO));
        Shared { module, prepared, grid, options, communicator, cancel: AtomicBool::new(false) }
    }

    /// Fails if the run is to end.
    pub fn check_cancelled(&self) -> Result<(), ExecutionError> {
        let from_outside = self.options.cancel.is_some_and(|c| c.load(Ordering::Relaxed));
        if from_outside || self.cancel.load(Ordering::Relaxed) {
            self.cancel.store(true, Ordering::Relaxed);
            return Err(ExecutionError::new(&codes::eval::CANCELLED, "the run was cancelled"));
        }
        Ok(())
    }

    /// Fails if `device` has executed as many instructions as it may, or if the run is to end.
    pub fn check_step(
        &self,
        device: usize,
        instruction: InstructionId,
        steps_before: u64,
    ) -> Result<(), ExecutionError> {
        self.check_cancelled()?;
        if let (Some(progress), 0) = (self.options.progress, device) {
            progress.store(instruction.index() as u32, Ordering::Relaxed);
        }
        if let Some(limit) = self.options.max_steps
            && steps_before >= limit
        {
            return Err(ExecutionError::new(
                &codes::eval::TOO_MANY_STEPS,
                format!("{limit} instructions were executed and the program is not done"),
            ));
        }
        Ok(())
    }

    /// The next value of a device's infeed.
    pub fn infeed(&self, device: usize) -> Option<Value> {
        self.options.infeed.get(device)?.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Takes a value from a device's outfeed.
    pub fn outfeed(&self, device: usize, value: Value) {
        if let Some(outfeed) = self.options.outfeed {
            outfeed.lock().unwrap_or_else(PoisonError::into_inner).push((device, value));
        }
    }

    /// Whether anybody wants to see values.
    pub fn observes(&self) -> bool {
        self.options.observer.is_some()
    }

    /// Tells the observer, if there is one.
    pub fn observe(
        &self,
        device: usize,
        instruction: InstructionId,
        value: &Value,
        operands: &[Value],
    ) -> Result<(), ExecutionError> {
        match self.options.observer.map(|o| o.made(device, instruction, value, operands)) {
            Some(Verdict::Stop(diagnostic)) => Err(ExecutionError::from_diagnostic(diagnostic)),
            Some(Verdict::GoOn) | None => Ok(()),
        }
    }
}

/// What the thread of a device gives; that it could not be made is the machine's fault.
pub fn joined<T>(
    thread: std::io::Result<std::thread::ScopedJoinHandle<'_, Result<T, ExecutionError>>>,
) -> Result<T, ExecutionError> {
    match thread.map(std::thread::ScopedJoinHandle::join) {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(ExecutionError::bug("a device's thread panicked")),
        Err(error) => {
            let message = format!("no thread for a device: {error}");
            Err(ExecutionError::new(&codes::eval::OUT_OF_MEMORY, message).blame(Blame::Machine))
        }
    }
}

/// Tells the others that a device is done with its program, also if its thread panics or could not be made: they must not
/// wait for it.
pub struct Leaving<'s, 'r> {
    /// What the devices share.
    pub shared: &'s Shared<'r>,
    /// The device.
    pub ordinal: usize,
    /// Why it has failed; something until it is known to have gone well.
    pub failure: Option<String>,
}

impl<'s, 'r> Leaving<'s, 'r> {
    /// A device that is to run.
    pub fn new(shared: &'s Shared<'r>, ordinal: usize) -> Leaving<'s, 'r> {
        Leaving { shared, ordinal, failure: Some("no thread could be made for it".into()) }
    }

    /// Notes that the device runs.
    pub fn begun(&mut self) {
        self.failure = Some("its thread panicked".into());
    }

    /// Notes how the device's program ended.
    pub fn ended<T>(&mut self, result: &Result<T, ExecutionError>) {
        self.failure = result.as_ref().err().map(|fault| fault.diagnostic().message.clone());
    }
}

impl Drop for Leaving<'_, '_> {
    fn drop(&mut self) {
        if let Some(why) = &self.failure {
            // The others must not go on for a device that has failed.
            self.shared.cancel.store(true, Ordering::Relaxed);
            self.shared.communicator.cancel(self.ordinal, why);
        }
        self.shared.communicator.finish(self.ordinal);
    }
}

/// The stack of a device's thread; calls nest, and address space is cheap.
const STACK_BYTES: usize = 256 << 20;

/// Runs `module` on `grid`, with `inputs[d]` the arguments of device `d`; returns the result of each device.
pub fn run(
    module: &VerifiedModule,
    grid: DeviceGrid,
    inputs: Vec<Vec<Value>>,
    options: &Options<'_>,
) -> Result<Vec<Value>, ExecutionError> {
    let prepared = Prepared::new(module, options.fill_constants)?;
    run_prepared(module, &prepared, grid, inputs, options)
}

/// As [`run`], with what was made of the module before.
pub fn run_prepared(
    module: &VerifiedModule,
    prepared: &Prepared,
    grid: DeviceGrid,
    inputs: Vec<Vec<Value>>,
    options: &Options<'_>,
) -> Result<Vec<Value>, ExecutionError> {
    let shared = Shared::new(module, prepared, grid, options);
    let module = module.module();
    let entry = module.entry().ok_or_else(|| ExecutionError::bug("a verified module has no entry"))?;
    let devices = options.devices.map_or_else(|| (0..grid.devices()).collect(), <[usize]>::to_vec);
    if inputs.len() != devices.len() {
        let message = format!("inputs for {} devices given, {} needed", inputs.len(), devices.len());
        return Err(ExecutionError::bug(message));
    }
    check_inputs(module, entry, &inputs)?;
    let results: Vec<Result<Value, ExecutionError>> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (ordinal, arguments) in devices.into_iter().zip(inputs) {
            let shared = &shared;
            // A thread that cannot be made drops it, and the others do not wait for the device.
            let mut leaving = Leaving::new(shared, ordinal);
            let thread = std::thread::Builder::new()
                .name(format!("device {ordinal}"))
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, move || {
                    leaving.begun();
                    let result = Device::new(shared, ordinal).call(entry, arguments);
                    leaving.ended(&result);
                    result
                });
            threads.push(thread);
        }
        threads.into_iter().map(joined).collect()
    });
    all_or_fault(results)
}

/// What every device made, or what went wrong: a cancelled device says less than the one whose failure cancelled it.
pub fn all_or_fault<T>(results: impl IntoIterator<Item = Result<T, ExecutionError>>) -> Result<Vec<T>, ExecutionError> {
    let mut values = Vec::new();
    let mut failure: Option<ExecutionError> = None;
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(fault) => {
                let says_more = |f: &ExecutionError| f.diagnostic().code != &codes::eval::CANCELLED;
                if failure.as_ref().is_none_or(|f| !says_more(f) && says_more(&fault)) {
                    failure = Some(fault);
                }
            }
        }
    }
    failure.map_or(Ok(values), Err)
}

/// Checks that every device is given what the entry's parameters ask for.
fn check_inputs(module: &Module, entry: ComputationId, inputs: &[Vec<Value>]) -> Result<(), ExecutionError> {
    let parameters = module.parameters(entry);
    let bad = |message: String| ExecutionError::new(&codes::eval::BAD_INPUT, message).blame(Blame::Data);
    for (device, arguments) in inputs.iter().enumerate() {
        if parameters.len() != arguments.len() {
            let (given, needed) = (arguments.len(), parameters.len());
            return Err(bad(format!("{given} arguments are given to device {device}, the program takes {needed}")));
        }
        for (number, (&p, argument)) in parameters.iter().zip(arguments).enumerate() {
            let shape = &module[p].shape;
            if !argument.fits(shape) {
                let (given, needed) = (argument.description(), shape.without_layout());
                let message = format!("argument {number} of device {device} is {given}, but {needed} is needed");
                return Err(bad(message).at(p));
            }
        }
    }
    Ok(())
}

/// The values of all constants that the module has, made once, since loops ask for them again and again; those that the
/// dump leaves out only if they are to be filled.
fn constants(module: &Module, fill: bool) -> Result<FxHashMap<InstructionId, Value>, ExecutionError> {
    let mut values = FxHashMap::default();
    for &i in module.computations().iter().flat_map(|&c| module[c].instructions()) {
        if let Some(value) = constant_value(module, i, fill).map_err(|fault| fault.at(i))? {
            values.insert(i, value);
        }
    }
    Ok(values)
}

/// The value of a constant; `None` if the dump leaves it out and it is not to be filled, and for what is no constant.
pub fn constant_value(module: &Module, i: InstructionId, fill: bool) -> Result<Option<Value>, ExecutionError> {
    match &module[i].op {
        Op::Constant(ConstantValue::Literal(literal)) => Value::from_literal(literal).map(Some),
        Op::Constant(ConstantValue::Elided) if fill => filled(&module[i].shape).map(Some),
        _ => Ok(None),
    }
}

/// A made-up constant: small numbers that go up and down, so that nothing overflows and few elements are equal to their
/// neighbours; integers stay 0, which is in range of whatever they index.
fn filled(shape: &Shape) -> Result<Value, ExecutionError> {
    match (shape, Value::zeroed(shape)?) {
        (Shape::Array(a), Value::Array(array)) if a.element_type.is_float() => {
            let mut numbers = Array::zeroed(ElementType::F32, array.dims())?;
            for (n, x) in numbers.elements_mut::<f32>().iter_mut().enumerate() {
                *x = ((n * 7) % 17) as f32 / 16.0 - 0.5;
            }
            crate::ops::elementwise::convert(numbers, a.element_type).map(Value::Array)
        }
        (_, zeros) => Ok(zeros),
    }
}
