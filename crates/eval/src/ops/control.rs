//! Tuples, order, control flow and calls.
//!
//! Asynchronous operations happen at their start, or where an update brings their last operand; the value travels through
//! update and done in the shape that HLO gives it, so that programs which look inside (get-tuple-element of a start) find
//! what they expect.

use crate::custom_call;
use crate::interpreter::{Device, OperandValues};
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};

/// Evaluates one instruction of this family.
pub fn evaluate(
    device: &mut Device<'_>,
    i: InstructionId,
    mut operands: OperandValues,
) -> Result<Value, ExecutionError> {
    let instruction = &device.module()[i];
    match &instruction.op {
        Op::Tuple => Ok(Value::Tuple(operands.into_vec())),
        Op::AfterAll => Ok(Value::Token),
        Op::GetTupleElement { index } => {
            let mut elements = first(operands)?.into_tuple()?;
            let index = usize::try_from(*index).ok().filter(|&n| n < elements.len());
            index.map(|n| elements.swap_remove(n)).ok_or_else(|| ExecutionError::bug("the tuple has no such element"))
        }
        Op::AddDependency => {
            operands.truncate(1);
            first(operands)
        }
        Op::OptBarrier | Op::Domain(_) => first(operands),
        Op::While { condition, body } => {
            let state = first(operands)?;
            while_loop(device, *condition, *body, state)
        }
        Op::Conditional { branches } => {
            if operands.is_empty() {
                return Err(ExecutionError::bug("a conditional has no operand"));
            }
            let selector = operands.remove(0).into_array()?;
            let branch = if selector.element_type() == ElementType::Pred {
                usize::from(selector.to_i64()? == 0)
            } else {
                // An index out of range takes the last branch.
                usize::try_from(selector.to_i64()?).unwrap_or(usize::MAX).min(branches.len().saturating_sub(1))
            };
            let missing = || ExecutionError::bug("a conditional has no such branch");
            let computation = *branches.get(branch).ok_or_else(missing)?;
            if branch >= operands.len() {
                return Err(missing());
            }
            device.call(computation, vec![operands.swap_remove(branch)])
        }
        Op::Call { to_apply, .. } => device.call(*to_apply, operands.into_vec()),
        Op::Fusion(f) => device.call(f.calls, operands.into_vec()),
        Op::CustomCall(_) => custom_call::evaluate(device, i, operands),
        Op::AsyncStart(start) => started(device, i, start.calls, operands.into_vec()),
        Op::AsyncUpdate { .. } if operands.len() > 1 => updated(device, i, operands),
        Op::AsyncUpdate { .. } => first(operands),
        Op::AsyncDone => element(first(operands)?, 1),
        Op::CopyStart { .. } => {
            let source = first(operands)?;
            Ok(Value::Tuple(vec![source.clone(), source, context(&instruction.shape, 2)?]))
        }
        Op::CopyDone => element(first(operands)?, 0),
        other => Err(ExecutionError::bug(format!("{} is not control flow", other.opcode()))),
    }
}

/// Runs a loop. One whose state no longer changes would never end: XLA's compiler takes such a loop out, and its value
/// is that state. (Not so if the loop looks outside, where something may change.) Whether it changes is asked rarely
/// (after 2¹⁰, 2¹¹, … iterations), since asking copies the state.
fn while_loop(
    device: &mut Device<'_>,
    condition: ComputationId,
    body: ComputationId,
    mut state: Value,
) -> Result<Value, ExecutionError> {
    let closed = ![body, condition].iter().any(|&c| device.shared.prepared.plan.reaches_outside(c));
    let mut iterations = 0u64;
    while truth(&device.call(condition, vec![state.clone()])?)? {
        iterations += 1;
        let before = (iterations >= 1024 && iterations.is_power_of_two() && closed).then(|| state.clone());
        state = device.call(body, vec![state])?;
        if before.is_some_and(|before| same_bits(&before, &state)) {
            break;
        }
    }
    Ok(state)
}

fn same_bits(a: &Value, b: &Value) -> bool {
    let (a, b) = (a.leaves(), b.leaves());
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| match (a, b) {
            (Value::Array(a), Value::Array(b)) => a.dims() == b.dims() && a.bytes() == b.bytes(),
            _ => true,
        })
}

/// What `i` has started, with all that it was given so far: run as soon as nothing is missing.
fn started(
    device: &mut Device<'_>,
    i: InstructionId,
    calls: ComputationId,
    operands: Vec<Value>,
) -> Result<Value, ExecutionError> {
    let module = device.module();
    let result = match operands.len() < module.parameters(calls).len() {
        true => Value::Tuple(Vec::new()),
        false => device.call(calls, operands.clone())?,
    };
    async_state(&module[i].shape, operands, result)
}

/// What was started before the update `i`, which brings further operands.
fn updated(device: &mut Device<'_>, i: InstructionId, mut operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    let mut start = i;
    while let (Op::AsyncUpdate { .. }, Some(&before)) = (&module[start].op, module[start].operands().first()) {
        start = before;
    }
    let Op::AsyncStart(start) = &module[start].op else {
        return Err(ExecutionError::bug("an update belongs to no start"));
    };
    let Value::Tuple(mut bound) = element(operands.remove(0), 0)? else {
        return Err(ExecutionError::bug("what was started has no operands"));
    };
    bound.extend(operands);
    started(device, i, start.calls, bound)
}

/// `((operands), result, contexts…)` in the form of `shape`.
pub fn async_state(shape: &Shape, operands: Vec<Value>, result: Value) -> Result<Value, ExecutionError> {
    let mut state = vec![Value::Tuple(operands), result];
    for n in 2..shape.as_tuple().map_or(0, <[Shape]>::len) {
        state.push(context(shape, n)?);
    }
    Ok(Value::Tuple(state))
}

/// A made-up value for element `n` of an asynchronous operation's state, which nothing computes with.
fn context(shape: &Shape, n: usize) -> Result<Value, ExecutionError> {
    match shape.as_tuple().and_then(|t| t.get(n)) {
        Some(shape) => Value::zeroed(shape),
        None => Ok(Value::Token),
    }
}

fn first(operands: OperandValues) -> Result<Value, ExecutionError> {
    operands.into_iter().next().ok_or_else(|| ExecutionError::bug("an operand is missing"))
}

fn element(tuple: Value, n: usize) -> Result<Value, ExecutionError> {
    let mut elements = tuple.into_tuple()?;
    if n < elements.len() {
        Ok(elements.swap_remove(n))
    } else {
        Err(ExecutionError::bug("the state has no such element"))
    }
}

/// The value of a pred scalar.
fn truth(value: &Value) -> Result<bool, ExecutionError> {
    value.as_array().and_then(Array::to_i64).map(|n| n != 0)
}
