//! How the ids in a collective's replica groups are to be read.

use crate::attributes::CollectiveGroupMode;
use crate::op::Op;

impl Op {
    /// What the ids in the replica groups (or source-target pairs) of a collective mean: its `mode` where one is
    /// written, otherwise what `channel_id` and `use_global_device_ids` say. `None` if it is not a collective, or asks
    /// for global ids without a channel, which means nothing.
    pub fn group_mode(&self) -> Option<CollectiveGroupMode> {
        use CollectiveGroupMode::*;
        let (channel_id, mode, global_ids) = match self {
            Op::CollectivePermute(p) | Op::CollectivePermuteStart(p) => (p.channel_id, None, None),
            // These operations have no choice of ids: with a channel they meet across partitions.
            Op::AllToAll { collective: c, .. }
            | Op::RaggedAllToAll { collective: c, .. }
            | Op::CollectiveBroadcast { collective: c, .. } => (c.channel_id, c.mode, None),
            other => {
                let c = other.collective()?;
                (c.channel_id, c.mode, Some(c.use_global_device_ids))
            }
        };
        match (mode, channel_id, global_ids) {
            (Some(mode), ..) => Some(mode),
            (None, None, Some(true)) => None,
            (None, None, _) => Some(CrossReplica),
            (None, Some(_), None) => Some(CrossPartition),
            (None, Some(_), Some(false)) => Some(CrossReplicaAndPartition),
            (None, Some(_), Some(true)) => Some(FlattenedId),
        }
    }
}
