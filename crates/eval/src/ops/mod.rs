//! The operations, one file per family; [`evaluate`] finds the right one.

pub mod bitcast;
pub mod collective;
pub mod contraction;
pub mod control;
pub mod data_movement;
pub mod dynamic;
pub mod elementwise;
pub mod fft;
pub mod gather_scatter;
pub mod linear_algebra;
pub mod normalization;
pub mod random;
pub mod reduction;
pub mod sort;
pub mod transfer;

use crate::interpreter::{Device, OperandValues};
use hloom_ir::entity::InstructionId;
use hloom_ir::op::Op;
use hloom_value::ExecutionError;
use hloom_value::{Array, Value};

pub use data_movement::slice_to;

/// Evaluates one instruction on the values of its operands.
pub fn evaluate(device: &mut Device<'_>, i: InstructionId, operands: OperandValues) -> Result<Value, ExecutionError> {
    match &device.module()[i].op {
        Op::Parameter { .. } => Err(ExecutionError::bug("a parameter has no value")),
        Op::Unary { .. }
        | Op::Binary(_)
        | Op::Compare { .. }
        | Op::Select
        | Op::Clamp
        | Op::Convert
        | Op::BitcastConvert
        | Op::ReducePrecision { .. }
        | Op::StochasticConvert => elementwise::evaluate(device, i, operands),
        Op::Constant(_)
        | Op::Iota { .. }
        | Op::Bitcast
        | Op::Copy
        | Op::Reshape { .. }
        | Op::Broadcast { .. }
        | Op::Transpose { .. }
        | Op::Reverse { .. }
        | Op::Concatenate { .. }
        | Op::Slice { .. }
        | Op::DynamicSlice { .. }
        | Op::DynamicUpdateSlice
        | Op::Pad { .. } => data_movement::evaluate(device, i, operands),
        Op::DynamicReshape | Op::GetDimensionSize { .. } | Op::SetDimensionSize { .. } => {
            dynamic::evaluate(device, i, operands)
        }
        Op::Gather(_) | Op::Scatter(_) => gather_scatter::evaluate(device, i, operands),
        Op::Dot(_) | Op::RaggedDot(_) | Op::ScaledDot(_) | Op::Convolution(_) => {
            contraction::evaluate(device, i, operands)
        }
        Op::Map { .. } | Op::Reduce { .. } | Op::ReduceWindow { .. } | Op::SelectAndScatter { .. } | Op::Scan(_) => {
            reduction::evaluate(device, i, operands)
        }
        Op::Sort { .. } | Op::TopK { .. } => sort::evaluate(device, i, operands),
        Op::Fft { .. } => fft::evaluate(device, i, operands),
        Op::Cholesky { .. } | Op::TriangularSolve { .. } => linear_algebra::evaluate(device, i, operands),
        Op::BatchNormTraining { .. } | Op::BatchNormInference { .. } | Op::BatchNormGrad { .. } => {
            normalization::evaluate(device, i, operands)
        }
        Op::Rng { .. } | Op::RngBitGenerator { .. } | Op::RngGetAndUpdateState { .. } => {
            random::evaluate(device, i, operands)
        }
        Op::ReplicaId
        | Op::PartitionId
        | Op::AllReduce(_)
        | Op::AllReduceStart(_)
        | Op::AllReduceDone
        | Op::AllGather(_)
        | Op::AllGatherStart(_)
        | Op::AllGatherDone
        | Op::ReduceScatter(_)
        | Op::CollectiveReduce(_)
        | Op::AllToAll { .. }
        | Op::RaggedAllToAll { .. }
        | Op::CollectiveBroadcast { .. }
        | Op::CollectivePermute(_)
        | Op::CollectivePermuteStart(_)
        | Op::CollectivePermuteDone
        | Op::Send(_)
        | Op::SendDone(_)
        | Op::Recv(_)
        | Op::RecvDone(_)
        | Op::Infeed { .. }
        | Op::Outfeed { .. } => collective::evaluate(device, i, operands),
        Op::Tuple
        | Op::GetTupleElement { .. }
        | Op::AfterAll
        | Op::AddDependency
        | Op::OptBarrier
        | Op::Domain(_)
        | Op::While { .. }
        | Op::Conditional { .. }
        | Op::Call { .. }
        | Op::Fusion(_)
        | Op::CustomCall(_)
        | Op::AsyncStart(_)
        | Op::AsyncUpdate { .. }
        | Op::AsyncDone
        | Op::CopyStart { .. }
        | Op::CopyDone => control::evaluate(device, i, operands),
    }
}

/// The operands as `N` arrays.
pub fn arrays<const N: usize>(operands: OperandValues) -> Result<[Array; N], ExecutionError> {
    let arrays = operands.into_iter().map(Value::into_array).collect::<Result<Vec<_>, _>>()?;
    let given = arrays.len();
    arrays.try_into().map_err(|_| ExecutionError::bug(format!("{given} operands given, {N} needed")))
}
