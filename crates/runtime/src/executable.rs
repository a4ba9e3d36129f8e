//! Executables: compiled modules on a client's devices, and their runs.

use crate::buffer::Buffer;
use crate::trace::Trace;
use hloom_comm::Communicator;
use hloom_compiler::CompiledModule;
use hloom_eval::custom_call::CustomCalls;
use hloom_ir::diagnostic::{Blame, codes};
use hloom_value::ExecutionError;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

/// A compiled module that is ready to run.
pub trait LoadedExecutable: std::fmt::Debug + Send + Sync {
    /// What was compiled.
    fn compiled(&self) -> &CompiledModule;

    /// Whether a run is over before another thread would have begun with it, so that the caller had better run it itself.
    fn is_short(&self) -> bool {
        false
    }

    /// Runs the program with `arguments[n]` the leaves of all arguments of the `n`th device that runs here, in order; returns the leaves of
    /// each device's result. Memory of arguments whose last handle is passed may be taken for results.
    fn execute(
        &self,
        arguments: Vec<Vec<Buffer>>,
        options: &ExecuteOptions<'_>,
    ) -> Result<Vec<Vec<Buffer>>, ExecutionError>;
}

/// The devices of a program that run in this process; most programs have one.
pub type LocalDevices = SmallVec<[usize; 8]>;

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
    /// The devices of the program that run in this process; all when absent.
    pub devices: Option<&'o [usize]>,
    /// How the devices meet; as threads of this process when absent.
    pub communicator: Option<Arc<dyn Communicator>>,
}

impl ExecuteOptions<'_> {
    /// The devices of a program that run in this process.
    pub fn local_devices(&self, compiled: &CompiledModule) -> LocalDevices {
        self.devices.map_or_else(|| (0..compiled.grid.devices()).collect(), LocalDevices::from_slice)
    }
}

/// Whether these are arguments for the program: for each of its `devices` here, of each leaf's type, sizes and
/// layout.
pub fn check_arguments(
    compiled: &CompiledModule,
    arguments: &[Vec<Buffer>],
    devices: &[usize],
) -> Result<(), ExecutionError> {
    let bad = |message: String| ExecutionError::new(&codes::eval::BAD_INPUT, message).blame(Blame::Data);
    if arguments.len() != devices.len() || devices.iter().any(|&d| d >= compiled.grid.devices()) {
        let (given, needed) = (arguments.len(), devices.len());
        return Err(bad(format!("arguments for {given} devices are given, the program runs on {needed}")));
    }
    for (device, leaves) in devices.iter().zip(arguments) {
        if leaves.len() != compiled.parameters.len() {
            let (given, needed) = (leaves.len(), compiled.parameters.len());
            return Err(bad(format!("device {device} is given {given} arrays, the program takes {needed}")));
        }
        for (n, (given, (name, shape))) in leaves.iter().zip(&compiled.parameters).enumerate() {
            if !given.fits(shape) {
                // Of the layout it is spoken only where nothing else is wrong.
                let (given, shape) = match given.shape().equal_ignoring_layout(shape) {
                    true => (given.shape().with_default_layout(), shape.with_default_layout()),
                    false => (given.shape().without_layout(), shape.without_layout()),
                };
                let message = format!("array {n} of device {device}, for {name}, is {given}, not {shape}");
                return Err(bad(message));
            }
        }
    }
    Ok(())
}
