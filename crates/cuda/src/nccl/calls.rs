//! What is asked of NCCL: a few calls, as data, and the trait that carries them out.

use crate::driver::Handle;
use hloom_ir::element_type::ElementType;
use hloom_ir::op::BinaryOp;
use std::fmt::Debug;

/// What the ranks of a communicator know each other by; the first of them makes it.
pub(crate) type UniqueId = [u8; 128];

/// A communicator, as the library calls it.
pub(crate) type CommunicatorHandle = usize;

/// A type that NCCL reduces, by its number there (`ncclDataType_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DataType(pub(crate) i32);

/// An operation that NCCL reduces by, by its number there (`ncclRedOp_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReductionOp(pub(crate) i32);

impl DataType {
    /// Bytes that are only moved.
    pub(crate) const BYTES: DataType = DataType(1);

    /// The number of a type, if NCCL has it.
    fn of(element_type: ElementType) -> Option<DataType> {
        use ElementType::{Bf16, F16, F32, F64, S8, S32, S64, U8, U32, U64};
        Some(DataType(match element_type {
            S8 => 0,
            U8 => 1,
            S32 => 2,
            U32 => 3,
            S64 => 4,
            U64 => 5,
            F16 => 6,
            F32 => 7,
            F64 => 8,
            Bf16 => 9,
            _ => return None,
        }))
    }
}

/// How NCCL reduces elements of a type by an operation, if it does as HLO says. Its minimum and maximum of floating-point
/// numbers do not: they pass over NaN.
pub(crate) fn reduction(op: BinaryOp, element_type: ElementType) -> Option<(DataType, ReductionOp)> {
    let data_type = DataType::of(element_type)?;
    let op = match op {
        BinaryOp::Add => 0,
        BinaryOp::Multiply => 1,
        BinaryOp::Maximum if element_type.is_integer() => 2,
        BinaryOp::Minimum if element_type.is_integer() => 3,
        _ => return None,
    };
    Some((data_type, ReductionOp(op)))
}

/// One of the calls of a group, on arrays at addresses of the kind `A`. Ranks are places in the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call<A> {
    /// Everyone gets the reduction of all.
    AllReduce { from: A, to: A, count: usize, reduction: (DataType, ReductionOp) },
    /// Rank `r` gets block `r` of the reduction, of `count` elements.
    ReduceScatter { from: A, to: A, count: usize, reduction: (DataType, ReductionOp) },
    /// Everyone gets the bytes of all, one after another.
    AllGather { from: A, to: A, bytes: usize },
    /// Everyone gets the bytes of the root.
    Broadcast { from: A, to: A, bytes: usize, root: usize },
    /// Sends bytes to a rank.
    Send { from: A, bytes: usize, rank: usize },
    /// Takes bytes from a rank.
    Receive { to: A, bytes: usize, rank: usize },
}

impl<A: Copy> Call<A> {
    /// The same call on other addresses.
    pub(crate) fn at<B>(&self, address: impl Fn(A) -> B) -> Call<B> {
        match *self {
            Call::AllReduce { from, to, count, reduction } => {
                Call::AllReduce { from: address(from), to: address(to), count, reduction }
            }
            Call::ReduceScatter { from, to, count, reduction } => {
                Call::ReduceScatter { from: address(from), to: address(to), count, reduction }
            }
            Call::AllGather { from, to, bytes } => Call::AllGather { from: address(from), to: address(to), bytes },
            Call::Broadcast { from, to, bytes, root } => {
                Call::Broadcast { from: address(from), to: address(to), bytes, root }
            }
            Call::Send { from, bytes, rank } => Call::Send { from: address(from), bytes, rank },
            Call::Receive { to, bytes, rank } => Call::Receive { to: address(to), bytes, rank },
        }
    }
}

/// What the library says is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal(pub(crate) String);

/// NCCL, as far as it is used. No call waits for other ranks: what is not done is asked for again.
pub(crate) trait CollectiveCalls: Debug + Send + Sync {
    /// What the ranks of a communicator to be know each other by.
    fn unique_id(&self) -> Result<UniqueId, Refusal>;

    /// Begins to make a communicator of `size` ranks, this one being `rank`, on the GPU that is this thread's.
    fn begin(&self, size: usize, id: &UniqueId, rank: usize) -> Result<CommunicatorHandle, Refusal>;

    /// Begins to put calls on a stream, all at once.
    ///
    /// # Safety
    /// The arrays must be as long as the calls say, and stay until what is on the stream is over.
    unsafe fn enqueue(
        &self,
        communicator: CommunicatorHandle,
        stream: Handle,
        calls: &[Call<u64>],
    ) -> Result<(), Refusal>;

    /// Whether what was begun has been done, as far as the host has a part in it.
    fn is_done(&self, communicator: CommunicatorHandle) -> Result<bool, Refusal>;

    /// Ends what is under way and takes the communicator away.
    fn abort(&self, communicator: CommunicatorHandle);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nccl_reduces_as_hlo_does_is_left_to_it() {
        use ElementType::{Bf16, C64, F8e4m3fn, F32, F64, Pred, S16, S32, U8};
        let sum = |t| reduction(BinaryOp::Add, t).map(|(t, op)| (t.0, op.0));
        assert_eq!([sum(U8), sum(S32), sum(F32), sum(F64), sum(Bf16)].map(|r| r.unwrap().0), [1, 2, 7, 8, 9]);
        assert_eq!([Pred, S16, C64, F8e4m3fn].map(sum), [None; 4]);
        let by = |op, t| reduction(op, t).map(|(_, op)| op.0);
        assert_eq!(by(BinaryOp::Multiply, F32), Some(1));
        assert_eq!((by(BinaryOp::Maximum, S32), by(BinaryOp::Minimum, U8)), (Some(2), Some(3)));
        assert_eq!((by(BinaryOp::Maximum, F32), by(BinaryOp::And, S32)), (None, None), "NaN is lost; there is no and");
    }
}
