//! The calls that mark where an asynchronous collective starts and ends in scheduled TPU programs.
//!
//! One logical collective appears several times: in the fusion that starts it, in fusions that carry it along, and in the
//! one that waits for it, each with the same channel. `AsyncCollectiveStart` takes the collective's result and gives its
//! operands, its result and flags; `AsyncCollectiveDone` takes all of those and gives the result. The results of a
//! collective of several arrays stand one by one, as its operands do. Here the collective is complete at its start, and the
//! others repeat it harmlessly.

use super::{CustomCalls, shaped};
use crate::interpreter::{Device, OperandValues};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use hloom_value::ExecutionError;
use hloom_value::Value;

pub(super) fn register(calls: &mut CustomCalls) {
    calls.register("AsyncCollectiveStart", Box::new(start));
    calls.register("AsyncCollectiveDone", Box::new(done));
}

/// The plan hands over the collective's result and, after it, the collective's own operands.
fn start(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let mut values = operands.into_vec();
    if values.is_empty() {
        return Err(super::unsupported(device, i, "it has no operand"));
    }
    let result = values.remove(0);
    let shape = &device.module()[i].shape;
    let is_tuple = shape.as_tuple().and_then(|elements| elements.get(values.len())).is_some_and(Shape::is_tuple);
    match result {
        Value::Tuple(results) if !is_tuple => values.extend(results),
        result => values.push(result),
    }
    shaped(shape, values)
}

/// The result that the start handed over: the last operand of the result's shape before the collective's repetition (the
/// collective's own operands, which may have that shape too, come before it).
fn done(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    let (shape, names) = (&module[i].shape, module[i].operands());
    let is_collective = |o: InstructionId| {
        let op = &module[o].op;
        op.collective().is_some() || matches!(op, Op::CollectivePermute(_))
    };
    let repetition = names.iter().position(|&o| is_collective(o)).unwrap_or(names.len());
    let given = names[..repetition].iter().rposition(|&o| module[o].shape.equal_ignoring_layout(shape));
    let result = match given {
        Some(n) => operands.into_iter().nth(n),
        None => one_by_one(module, shape, &names[..repetition])
            .map(|first| Value::Tuple(operands.into_iter().skip(first).take(shape.leaf_count()).collect())),
    };
    result.ok_or_else(|| super::unsupported(device, i, "none of its operands has the shape of its result"))
}

/// Where the elements of a tuple stand one by one among `operands`: the last such place.
pub fn one_by_one(module: &Module, tuple: &Shape, operands: &[InstructionId]) -> Option<usize> {
    let elements = tuple.as_tuple().filter(|elements| !elements.is_empty())?;
    let fits = |given: &[InstructionId]| {
        given.iter().zip(elements).all(|(&o, element)| module[o].shape.equal_ignoring_layout(element))
    };
    operands.windows(elements.len()).rposition(fits)
}
