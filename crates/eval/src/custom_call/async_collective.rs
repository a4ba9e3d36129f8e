//! The calls that mark where an asynchronous collective starts and ends in scheduled TPU programs.
//!
//! One logical collective appears several times: in the fusion that starts it, in fusions that carry it along, and in the
//! one that waits for it, each with the same channel. `AsyncCollectiveStart` takes the collective's result and gives its
//! operands, its result and flags; `AsyncCollectiveDone` takes all of those and gives the result. Here the collective
//! is complete at its start, and the others repeat it harmlessly.

use super::{CustomCalls, shaped};
use crate::interpreter::{Device, OperandValues};
use hloom_ir::entity::InstructionId;
use hloom_ir::op::Op;
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
    values.rotate_left(1);
    shaped(&device.module()[i].shape, values)
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
    let result = given.and_then(|n| operands.into_iter().nth(n));
    result.ok_or_else(|| super::unsupported(device, i, "none of its operands has the shape of its result"))
}
