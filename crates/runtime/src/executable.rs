//! Executables: compiled modules on a client's devices, and their runs.

use crate::buffer::Buffer;
use crate::trace::Trace;
use hloom_compiler::CompiledModule;
use hloom_eval::custom_call::CustomCalls;
use hloom_ir::diagnostic::{Blame, codes};
use hloom_value::ExecutionError;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

/// A compiled module that is ready to run.
pub trait LoadedExecutable: std::fmt::Debug + Send + Sync {
    /// What was compiled.
    fn compiled(&self) -> &CompiledModule;

    /// Runs the program with `arguments[d]` the leaves of all arguments of device `d`, in order; returns the leaves of
    /// each device's result. Memory of arguments whose last handle is passed may be taken for results.
    fn execute(
        &self,
        arguments: Vec<Vec<Buffer>>,
        options: &ExecuteOptions<'_>,
    ) -> Result<Vec<Vec<Buffer>>, ExecutionError>;
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

/// Whether these are arguments for the program: for each device, of each leaf's type and sizes.
pub fn check_arguments(compiled: &CompiledModule, arguments: &[Vec<Buffer>]) -> Result<(), ExecutionError> {
    let bad = |message: String| ExecutionError::new(&codes::eval::BAD_INPUT, message).blame(Blame::Data);
    if arguments.len() != compiled.grid.devices() {
        let (given, needed) = (arguments.len(), compiled.grid.devices());
        return Err(bad(format!("arguments for {given} devices are given, the program runs on {needed}")));
    }
    for (device, leaves) in arguments.iter().enumerate() {
        if leaves.len() != compiled.parameters.len() {
            let (given, needed) = (leaves.len(), compiled.parameters.len());
            return Err(bad(format!("device {device} is given {given} arrays, the program takes {needed}")));
        }
        for (n, (given, (name, shape))) in leaves.iter().zip(&compiled.parameters).enumerate() {
            if !given.fits(shape) {
                let shape = shape.without_layout();
                let message = format!("array {n} of device {device}, for {name}, is {}, not {shape}", given.shape());
                return Err(bad(message));
            }
        }
    }
    Ok(())
}
