//! Values that lie side by side: the slices of a fetch in parts, of whose memory the joined array is made.
//!
//! A custom call `ConcatBitcast` moves nothing: its result is the memory of its operands, one after another. So the
//! operands are given places within that of the result, each from when it begins itself. Where that cannot be (an operand
//! is needed after the call, lies in another memory, is joined twice or must share memory with something else), the result
//! has a place of its own, and the call is a copy.

use crate::buffers::Buffers;
use crate::dataflow::{Dataflow, ValueId};
use crate::live_range::LiveRanges;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::FxHashMap;

/// The call that reads the memory of its operands, one after another, as its result.
const CONCAT_BITCAST: &str = "ConcatBitcast";

/// Whether an instruction is a name for the memory of its operands, one after another.
pub(crate) fn joins(module: &Module, id: InstructionId) -> bool {
    matches!(&module[id].op, Op::CustomCall(call) if &*call.target == CONCAT_BITCAST)
}

/// A value's place within another's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seat {
    /// The value that it becomes a part of, and its bytes.
    pub(crate) whole: ValueId,
    pub(crate) whole_size: i64,
    pub(crate) offset: i64,
    pub(crate) size: i64,
}

/// The places of values within others.
#[derive(Debug, Default)]
pub(crate) struct SideBySide {
    seats: FxHashMap<ValueId, Seat>,
}

impl SideBySide {
    /// Among `values`, which are packed together, with their sizes.
    pub(crate) fn new(
        dataflow: &Dataflow<'_>,
        buffers: &Buffers,
        live: &LiveRanges,
        values: &[(ValueId, i64)],
        alignment: i64,
    ) -> SideBySide {
        let module = dataflow.module();
        let maker = |value: ValueId| dataflow.value(value).map(|v| dataflow.instruction(v));
        let joined = |&&(value, _): &&(ValueId, i64)| maker(value).is_some_and(|i| joins(module, i));
        let wholes: Vec<(ValueId, i64)> = values.iter().filter(joined).copied().collect();
        let mut side_by_side = SideBySide::default();
        if wholes.is_empty() {
            return side_by_side;
        }
        let sizes: FxHashMap<ValueId, i64> = values.iter().copied().collect();
        for (whole, whole_size) in wholes {
            let Some(begins) = live.of(whole).map(|r| r.start) else { continue };
            // What shares memory with the result comes after it.
            let later = |&v: &ValueId| v == whole || live.of(v).is_some_and(|r| r.start > begins);
            if !buffers.values(buffers.of(whole)).iter().all(later) {
                continue;
            }
            let mut seats: Vec<(ValueId, Seat)> = Vec::new();
            let mut offset = 0i64;
            let operands = maker(whole).map_or(&[][..], |i| module[i].operands());
            let are_seated = operands.iter().all(|&operand| {
                let Some(slice) = dataflow.at(dataflow.positions.whole(operand)) else { return false };
                let Some(&size) = sizes.get(&slice) else { return false };
                let seat = Seat { whole, whole_size, offset, size };
                let is_free = !side_by_side.seats.contains_key(&slice) && seats.iter().all(|s| s.0 != slice);
                seats.push((slice, seat));
                offset = offset.saturating_add(size);
                is_free
                    && size % alignment.max(1) == 0
                    && buffers.values(buffers.of(slice)).len() == 1
                    && live.of(slice).is_some_and(|r| r.end <= begins)
            });
            if are_seated && offset == whole_size {
                side_by_side.seats.extend(seats);
            }
        }
        side_by_side
    }

    /// The place of a value that is a part of another.
    pub(crate) fn seat(&self, value: ValueId) -> Option<Seat> {
        self.seats.get(&value).copied()
    }
}
