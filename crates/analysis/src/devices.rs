//! Which devices a collective joins. Devices are numbered replica × partitions + partition.

use hloom_ir::attributes::CollectiveGroupMode;
use hloom_ir::device_list::ReplicaGroups;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;

/// A grid of devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each field is what its name says")]
pub struct DeviceGrid {
    pub replicas: usize,
    pub partitions: usize,
}

impl DeviceGrid {
    /// The number of devices.
    pub fn devices(self) -> usize {
        self.replicas.saturating_mul(self.partitions)
    }
    /// Which replica a device is.
    pub fn replica(self, device: usize) -> usize {
        device / self.partitions.max(1)
    }
    /// Which partition a device is.
    pub fn partition(self, device: usize) -> usize {
        device % self.partitions.max(1)
    }
    /// The device of a replica and a partition.
    pub fn device(self, replica: usize, partition: usize) -> usize {
        replica * self.partitions + partition
    }
}

/// The devices that meet `device` in a collective, in the group's order, the device itself among them. `None` if the
/// device is in no group, or the groups mean nothing.
pub fn group_of(op: &Op, grid: DeviceGrid, device: usize) -> Option<Vec<usize>> {
    use CollectiveGroupMode::*;
    let mode = op.group_mode()?;
    let groups = &op.collective()?.replica_groups;
    let (replica, partition) = (grid.replica(device), grid.partition(device));
    // The ids that a group may hold, the id of this device among them, and the devices that an id stands for.
    let (ids, id) = match mode {
        CrossReplica | CrossReplicaAndPartition => (grid.replicas, replica),
        CrossPartition => (grid.partitions, partition),
        FlattenedId => (grid.devices(), device),
    };
    let group = group_with(groups, ids, id)?;
    Some(match mode {
        CrossReplica => group.into_iter().map(|r| grid.device(r, partition)).collect(),
        CrossPartition => group.into_iter().map(|p| grid.device(replica, p)).collect(),
        CrossReplicaAndPartition => {
            group.into_iter().flat_map(|r| (0..grid.partitions).map(move |p| grid.device(r, p))).collect()
        }
        FlattenedId => group,
    })
}

/// The group that holds `id`; all ids in one group if none is named. Ids beyond those that there are stand for nothing,
/// as in XLA: a program for more replicas runs with fewer.
fn group_with(groups: &ReplicaGroups, ids: usize, id: usize) -> Option<Vec<usize>> {
    if groups.is_empty() {
        return Some((0..ids).collect());
    }
    let groups = groups.expand()?;
    let group = groups.into_iter().find(|g| g.contains(&(id as i64)))?;
    Some(group.into_iter().filter_map(|i| usize::try_from(i).ok().filter(|&i| i < ids)).collect())
}

/// The devices among which a collective-permute (or send and recv) moves data when `device` takes part: those that share
/// its partition, or, where ids are partitions, its replica. Position in the list is the id in the pairs.
pub fn plane_of(across_partitions: bool, grid: DeviceGrid, device: usize) -> Vec<usize> {
    if across_partitions {
        (0..grid.partitions).map(|p| grid.device(grid.replica(device), p)).collect()
    } else {
        (0..grid.replicas).map(|r| grid.device(r, grid.partition(device))).collect()
    }
}

/// The devices that a module's instructions name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImpliedDevices {
    /// The smallest grid that has them all.
    pub grid: DeviceGrid,
    /// An instruction that names the last of them.
    pub named_by: InstructionId,
}

/// The devices that the collectives of `module` name in their groups and pairs; `None` if they name none but the first.
/// What an id counts (replicas, partitions or both) is what its collective says; where ids count both, the devices are
/// partitions if anything else in the module is about partitions.
pub fn implied_devices(module: &Module) -> Option<ImpliedDevices> {
    use CollectiveGroupMode::*;
    // The largest number of replicas, of partitions, and of devices, with who names it.
    let mut most: [(i64, Option<InstructionId>); 3] = [(1, None); 3];
    let mut about_partitions = false;
    for &i in module.computations().iter().flat_map(|&c| module[c].instructions()) {
        let op = &module[i].op;
        about_partitions |= matches!(op, Op::PartitionId) || op.group_mode() == Some(CrossPartition);
        let transfers = transfer_pairs(module, i);
        let kind = match op.group_mode() {
            Some(CrossReplica | CrossReplicaAndPartition) => 0,
            Some(CrossPartition) => 1,
            Some(FlattenedId) => 2,
            None if transfers.is_some() => 2,
            None => continue,
        };
        let ends = |pairs: &[(i64, i64)]| pairs.iter().flat_map(|&(source, target)| [source, target]).max();
        let last = match op {
            Op::Send(_) | Op::Recv(_) => transfers.and_then(|pairs| ends(&pairs)),
            Op::CollectivePermute(p) | Op::CollectivePermuteStart(p) => ends(&p.source_target_pairs),
            _ => op.collective().and_then(|c| c.replica_groups.expand()).and_then(|g| g.into_iter().flatten().max()),
        };
        if let Some(count) = last.and_then(|id| id.checked_add(1)).filter(|&n| n > most[kind].0) {
            most[kind] = (count, Some(i));
        }
    }
    let count = |kind: usize| usize::try_from(most[kind].0).unwrap_or(1);
    let (mut replicas, mut partitions, devices) = (count(0), count(1), count(2));
    if devices > replicas.saturating_mul(partitions) {
        match about_partitions || partitions > 1 {
            true => partitions = devices.div_ceil(replicas),
            false => replicas = devices,
        }
    }
    let named_by = most.iter().max_by_key(|(n, _)| *n)?.1?;
    Some(ImpliedDevices { grid: DeviceGrid { replicas, partitions }, named_by })
}

/// From which device to which a send or recv carries its data, where it says so: in an attribute for front ends.
pub fn transfer_pairs(module: &Module, i: InstructionId) -> Option<Vec<(i64, i64)>> {
    if !matches!(module[i].op, Op::Send(_) | Op::SendDone(_) | Op::Recv(_) | Op::RecvDone(_)) {
        return None;
    }
    let text = module[i].common.frontend_attribute("_xla_send_recv_source_target_pairs")?;
    let numbers: Vec<i64> = text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
    Some(numbers.chunks_exact(2).map(|p| (p[0], p[1])).collect())
}

/// `devices` as a module that names no counts wants them: partitions if it is about those, else replicas.
pub fn grid_of(module: &Module, devices: usize) -> DeviceGrid {
    let partitions = implied_devices(module).is_some_and(|i| i.grid.partitions > 1 && i.grid.replicas == 1);
    match partitions {
        true => DeviceGrid { replicas: 1, partitions: devices },
        false => DeviceGrid { replicas: devices, partitions: 1 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_ir::op::{AllGather, Collective};

    /// The group of every device for an all-gather on 2 replicas × 4 partitions.
    fn groups(channel_id: Option<i64>, global: bool, groups: &[&[i64]]) -> Vec<Option<Vec<usize>>> {
        let replica_groups = ReplicaGroups::Explicit(groups.iter().map(|g| g.to_vec()).collect());
        let collective = Collective { channel_id, use_global_device_ids: global, replica_groups, ..Default::default() };
        let op = Op::AllGather(Box::new(AllGather { collective, dimension: 0 }));
        (0..8).map(|d| group_of(&op, DeviceGrid { replicas: 2, partitions: 4 }, d)).collect()
    }

    #[test]
    fn every_mode_reads_its_ids() {
        // Replicas of the same partition.
        let cross_replica = groups(None, false, &[]);
        assert_eq!(cross_replica[1], Some(vec![1, 5]));
        assert_eq!(cross_replica[6], Some(vec![2, 6]));
        // A group's order is its own.
        assert_eq!(groups(None, false, &[&[1, 0]])[1], Some(vec![5, 1]));
        // All partitions of the group's replicas.
        assert_eq!(groups(Some(1), false, &[&[0], &[1]])[6], Some(vec![4, 5, 6, 7]));
        assert_eq!(groups(Some(1), false, &[&[1, 0]])[0], Some(vec![4, 5, 6, 7, 0, 1, 2, 3]));
        // Global ids.
        assert_eq!(groups(Some(1), true, &[&[0, 7], &[1, 2, 3, 4, 5, 6]])[7], Some(vec![0, 7]));
        // Ids that do not exist are passed over.
        assert_eq!(groups(Some(1), true, &[&[9, 0, 7]])[0], Some(vec![0, 7]));
        assert_eq!(groups(Some(1), false, &[&[0, 2], &[1, 3]])[6], Some(vec![4, 5, 6, 7]));
        // In no group, or meaningless.
        assert_eq!(groups(Some(1), true, &[&[0, 7]])[3], None);
        assert_eq!(groups(None, true, &[&[0, 7]])[0], None);
    }

    #[test]
    fn operations_without_a_choice_meet_across_partitions() {
        let collective = Box::new(Collective { channel_id: Some(1), ..Default::default() });
        let op = Op::AllToAll { collective, split_dimension: Some(0) };
        assert_eq!(group_of(&op, DeviceGrid { replicas: 2, partitions: 4 }, 6), Some(vec![4, 5, 6, 7]));
    }
}
