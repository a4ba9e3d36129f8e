//! Custom calls: code outside the program that a program asks for by name.
//!
//! Those found in XLA's dumps are provided here, one file per library; a user adds their own with
//! [`CustomCalls::register`], which also takes precedence.

pub mod async_collective;
mod attention;
pub mod attributes;
mod block_scaled;
mod convolution;
mod convolution_graph;
mod dynamic_shape;
mod gemm;
mod linear_algebra;
pub mod placement;
mod random;
mod selection;
mod solver;
mod sparse;
mod tpu;

use crate::interpreter::{Device, OperandValues};
use hloom_ir::diagnostic::codes;
use hloom_ir::entity::InstructionId;
use hloom_ir::op::{CustomCall, Op};
use hloom_ir::shape::Shape;
use hloom_value::ExecutionError;
use hloom_value::Value;
use rustc_hash::FxHashMap;

/// What provides a custom call: given the device, the instruction and the operands, it makes the result.
pub type Handler =
    Box<dyn Fn(&mut Device<'_>, InstructionId, OperandValues) -> Result<Value, ExecutionError> + Send + Sync>;

/// Custom calls by target name.
#[derive(Default)]
pub struct CustomCalls {
    handlers: FxHashMap<Box<str>, Handler>,
}

impl CustomCalls {
    /// Provides `target`, in place of what was registered under that name before.
    pub fn register(&mut self, target: impl Into<Box<str>>, handler: Handler) {
        self.handlers.insert(target.into(), handler);
    }

    /// What provides `target`.
    pub fn get(&self, target: &str) -> Option<&Handler> {
        self.handlers.get(target)
    }
}

/// The calls found in XLA's dumps that hloom provides.
pub fn builtin() -> CustomCalls {
    let mut calls = CustomCalls::default();
    placement::register(&mut calls);
    dynamic_shape::register(&mut calls);
    async_collective::register(&mut calls);
    gemm::register(&mut calls);
    convolution::register(&mut calls);
    block_scaled::register(&mut calls);
    attention::register(&mut calls);
    solver::register(&mut calls);
    selection::register(&mut calls);
    linear_algebra::register(&mut calls);
    random::register(&mut calls);
    sparse::register(&mut calls);
    tpu::register(&mut calls);
    calls
}

/// Evaluates a custom call. One that nobody provides matters only if something needs its value.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    let call = attributes(device, i)?;
    let options = device.shared.options;
    let given = options.custom_calls.and_then(|calls| calls.get(&call.target));
    if let Some(handler) = given.or_else(|| device.shared.prepared.builtin_calls.get(&call.target)) {
        // No rule says what a custom call takes: one that does not fit is not what a verified module cannot have.
        let value = handler(device, i, operands).map_err(|fault| fault.of_program(&call.target))?;
        // What follows relies on it, whoever provides the call.
        if !value.fits(&module[i].shape) {
            let (gives, declared) = (value.description(), module[i].shape.without_layout());
            return Err(unsupported(device, i, &format!("it gives {gives}, but is declared to give {declared}")));
        }
        return Ok(value);
    }
    let needed = !module[i].users().is_empty() || module.root(module[i].parent()) == Some(i);
    if !needed {
        return Value::zeroed(&module[i].shape);
    }
    let message = format!("{} calls \"{}\", which nobody provides", module[i].name(), call.target);
    let fault = ExecutionError::new(&codes::eval::UNKNOWN_CUSTOM_CALL, message);
    Err(fault.help("provide it in Rust with CustomCalls::register, or replace the call in the program"))
}

/// The attributes of a custom call.
fn attributes<'m>(device: &Device<'m>, i: InstructionId) -> Result<&'m CustomCall, ExecutionError> {
    match &device.module()[i].op {
        Op::CustomCall(call) => Ok(call),
        other => Err(ExecutionError::bug(format!("{} is not a custom call", other.opcode()))),
    }
}

/// The call's `backend_config` as JSON; an empty object if there is none.
fn config(device: &Device<'_>, i: InstructionId) -> Result<serde_json::Value, ExecutionError> {
    let Some(text) = &device.module()[i].common.backend_config else { return Ok(serde_json::json!({})) };
    serde_json::from_slice(text).map_err(|e| unsupported(device, i, &format!("its backend_config is not JSON: {e}")))
}

/// A use of a known call that is not provided.
fn unsupported(device: &Device<'_>, i: InstructionId, why: &str) -> ExecutionError {
    let target = attributes(device, i).map_or_else(|_| String::new(), |c| c.target.to_string());
    ExecutionError::new(
        &codes::eval::UNSUPPORTED,
        format!("{} calls \"{target}\" in a way that is not supported: {why}", device.module()[i].name()),
    )
}

/// `results` in the form of `shape`: as they are, or followed by made-up values (workspaces) for what the shape has more.
fn shaped(shape: &Shape, results: Vec<Value>) -> Result<Value, ExecutionError> {
    match shape {
        Shape::Tuple(elements) => {
            let mut values = results;
            values.truncate(elements.len());
            for element in &elements[values.len()..] {
                values.push(Value::zeroed(element)?);
            }
            Ok(Value::Tuple(values))
        }
        _ => results.into_iter().next().ok_or_else(|| ExecutionError::bug("a custom call made nothing")),
    }
}
