//! Calls that say where a value is to be, how it is sharded or laid out, and compute nothing.

use super::{CustomCalls, unsupported};
use crate::interpreter::{Device, OperandValues};
use hloom_ir::entity::InstructionId;
use hloom_value::ExecutionError;
use hloom_value::Value;

/// Targets that say how a value is spread over the devices.
const SHARDING: [&str; 5] = [
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape",
];

/// Targets that say where a value is to be, or what may not be moved across it, and give it back.
pub const PLACEMENTS: [&str; 14] = [
    "xla.sdy.FuncResultSharding",
    "xla.sdy.PropagationBarrier",
    "ShardBarrierFrom",
    "ShardBarrierTo",
    "MoveToHost",
    "MoveToDevice",
    "annotate_device_placement",
    "PinToDevice",
    "PinToDeviceSram",
    "PinToVmem",
    "Pin",
    "Unpin",
    "LayoutConstraint",
    "SPMDPartitionerBarrier",
];

pub(super) fn register(calls: &mut CustomCalls) {
    for target in SHARDING.into_iter().chain(PLACEMENTS) {
        calls.register(target, Box::new(identity));
    }
    for target in ["AllocateBuffer", "CreateBuffer"] {
        calls.register(target, Box::new(|device, i, _| Value::zeroed(&device.module()[i].shape)));
    }
}

fn identity(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    let module = device.module();
    let mut values = operands.into_vec();
    let result = if values.len() == 1 { values.swap_remove(0) } else { Value::Tuple(values) };
    // Shard and full shape differ where the program is not partitioned yet.
    let fits = match (&result, module[i].shape.as_array_or_buffer()) {
        (Value::Array(a), Some(shape)) => {
            let dims = a.dims().iter().zip(shape.dims()).enumerate();
            a.rank() == shape.rank() && dims.into_iter().all(|(d, (n, bound))| n == bound || shape.is_dynamic_dim(d))
        }
        _ => true,
    };
    if fits { Ok(result) } else { Err(unsupported(device, i, "the program must be partitioned first")) }
}
