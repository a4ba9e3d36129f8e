//! How a collective is done among processes: who reduces what, in how many pieces.

use super::message::INLINE_BYTES;
use crate::collective::{Collective, CollectiveKind};

/// How a collective is done among processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Algorithm {
    /// Bytes are moved to where they belong.
    Move,
    /// Every process gets all contributions and reduces them.
    ReduceAll,
    /// Every process reduces its slice; then all get all slices.
    ReduceSlices,
    /// Every process reduces the blocks of its devices.
    ReduceBlocks,
}

/// Slices that fit into so many announcements go with them, a piece each: short messages are sent without asking the
/// receiver first.
const ANNOUNCED_PIECES: usize = 3;
/// The bytes of a slice of a piece.
const SLICE_OF_PIECE: usize = 128 << 10;
impl Algorithm {
    /// How a collective is done among so many processes. All of them choose the same.
    pub(super) fn of(collective: &Collective) -> Algorithm {
        match &collective.kind {
            // What goes with its announcement is reduced by every process: nobody waits for a second message.
            CollectiveKind::AllReduce(_) if bytes_of(collective) <= INLINE_BYTES => Algorithm::ReduceAll,
            CollectiveKind::AllReduce(_) => Algorithm::ReduceSlices,
            CollectiveKind::ReduceScatter(_) => Algorithm::ReduceBlocks,
            _ => Algorithm::Move,
        }
    }

    /// In how many pieces.
    pub(super) fn pieces(self, collective: &Collective, processes: usize) -> usize {
        if self != Algorithm::ReduceSlices {
            return 1;
        }
        let slice = bytes_of(collective).div_ceil(processes);
        match slice.div_ceil(INLINE_BYTES) {
            few @ 2..=ANNOUNCED_PIECES => few,
            _ => (slice / SLICE_OF_PIECE).max(1),
        }
    }
}

fn bytes_of(collective: &Collective) -> usize {
    collective.arrays.iter().map(|a| a.bytes).sum()
}
