//! What collectives have in common: their channel, how the ids in their replica groups are to be read, and how many
//! devices meet.

use crate::attributes::CollectiveGroupMode;
use crate::device_list::ReplicaGroups;
use crate::op::{Collective, Op};

impl Op {
    /// What all collectives have, if it is one that meets in replica groups.
    pub fn collective(&self) -> Option<&Collective> {
        match self {
            Op::AllReduce(a) | Op::AllReduceStart(a) => Some(&a.collective),
            Op::AllGather(a) | Op::AllGatherStart(a) => Some(&a.collective),
            Op::ReduceScatter(r) => Some(&r.collective),
            Op::CollectiveReduce(r) => Some(&r.collective),
            Op::AllToAll { collective, .. }
            | Op::RaggedAllToAll { collective, .. }
            | Op::CollectiveBroadcast { collective, .. } => Some(collective),
            _ => None,
        }
    }

    /// The channel over which devices or instructions meet, if it has one.
    pub fn channel_id(&self) -> Option<i64> {
        match self {
            Op::CollectivePermute(p) | Op::CollectivePermuteStart(p) => p.channel_id,
            Op::Send(t) | Op::SendDone(t) | Op::Recv(t) | Op::RecvDone(t) => t.channel_id,
            other => other.collective()?.channel_id,
        }
    }

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

    /// How many devices meet in each group of a collective, where its groups or the counts of devices tell it; a count
    /// of 1 may mean that nobody said, so a group of one is not known to be one.
    pub fn group_size(&self, replicas: i64, partitions: i64) -> Option<i64> {
        use CollectiveGroupMode::*;
        let listed = match &self.collective()?.replica_groups {
            ReplicaGroups::Explicit(groups) => groups.first().map(|g| g.len() as i64),
            ReplicaGroups::Iota { group_size, .. } => Some(*group_size),
            ReplicaGroups::MeshAxes { mesh, axes } => axes.iter().try_fold(1i64, |n, axis| {
                let whole = mesh.axes.get(axis.axis as usize)?.1;
                n.checked_mul(axis.sub_axis.map_or(whole, |(_, size)| size))
            }),
        };
        let size = match (self.group_mode()?, listed) {
            (CrossReplica, None) => Some(replicas),
            (CrossPartition, None) => Some(partitions),
            (CrossReplicaAndPartition, None) => replicas.checked_mul(partitions),
            // Groups may name replicas that there are not, and then have fewer devices than they name.
            (CrossReplicaAndPartition, Some(_)) if replicas == 1 => None,
            (CrossReplicaAndPartition, Some(n)) => n.checked_mul(partitions),
            (_, listed) => listed,
        };
        size.filter(|&n| n > 1)
    }
}
