//! Shardings, meshes and the device lists of collectives.

use super::instruction::metadata;
use crate::proto::messages::*;
use hloom_ir::device_list::{AxisRef, IotaTransform, Mesh, MeshDevices, ReplicaGroups};
use hloom_ir::sharding::*;

pub(super) fn sharding(sharding: &Sharding) -> OpSharding {
    match sharding {
        Sharding::Leaf(l) => leaf(l),
        Sharding::Tuple(leaves) => OpSharding {
            kind: sharding_type::TUPLE,
            tuple_shardings: leaves.iter().map(leaf).collect(),
            ..OpSharding::default()
        },
    }
}

fn leaf(l: &LeafSharding) -> OpSharding {
    let annotations: Vec<Vec<u8>> = l.metadata.iter().map(metadata).collect();
    let mut p = OpSharding::default();
    match &l.kind {
        ShardingKind::Replicated => p.kind = sharding_type::REPLICATED,
        ShardingKind::Manual => p.kind = sharding_type::MANUAL,
        ShardingKind::Unknown => p.kind = sharding_type::UNKNOWN,
        ShardingKind::Unreduced => p.kind = sharding_type::UNREDUCED,
        ShardingKind::Maximal { device } => {
            p.kind = sharding_type::MAXIMAL;
            p.tile_assignment_devices = vec![*device];
        }
        ShardingKind::Tiled(tiles) => tiled(&mut p, tiles),
        ShardingKind::Named(named) => {
            p.named_sharding = Some(Box::new(named_sharding(named, annotations.clone())));
        }
    }
    if p.named_sharding.is_none() {
        p.metadata = annotations;
    }
    if let Some(group) = l.group {
        p.is_shard_group = true;
        p.shard_group_id = group.id;
        p.shard_group_type = match group.kind {
            ShardGroupKind::As => 0,
            ShardGroupKind::Like => 1,
        };
    }
    p
}

fn tiled(p: &mut OpSharding, tiles: &TileAssignment) {
    p.kind = sharding_type::OTHER;
    p.tile_assignment_dimensions = tiles.dims.to_vec();
    match &tiles.devices {
        TileDevices::Explicit(devices) => p.tile_assignment_devices = devices.clone(),
        TileDevices::Iota(t) => {
            p.iota_reshape_dims = t.reshape_dims.to_vec();
            p.iota_transpose_perm = t.transpose_perm.to_vec();
        }
    }
    match &tiles.subgroups {
        Subgroups::None => {}
        Subgroups::ReplicateLast => p.replicate_on_last_tile_dim = true,
        Subgroups::Types(types) => p.last_tile_dims = types.iter().map(|&t| subgroup_type(t)).collect(),
    }
}

fn subgroup_type(t: SubgroupType) -> i32 {
    match t {
        SubgroupType::Replicated => sharding_type::REPLICATED,
        SubgroupType::Maximal => sharding_type::MAXIMAL,
        SubgroupType::Manual => sharding_type::MANUAL,
        SubgroupType::Unknown => sharding_type::UNKNOWN,
        SubgroupType::Unreduced => sharding_type::UNREDUCED,
    }
}

fn named_sharding(named: &NamedSharding, metadata: Vec<Vec<u8>>) -> NamedShardingProto {
    let axes = |list: &[AxisRef]| list.iter().map(axis_ref).collect();
    NamedShardingProto {
        mesh: Some(mesh(&named.mesh)),
        dim_shardings: named
            .dims
            .iter()
            .map(|d| DimensionShardingProto { axes: axes(&d.axes), is_closed: d.closed })
            .collect(),
        replicated_axes: axes(&named.replicated),
        unreduced_axes: axes(&named.unreduced),
        metadata,
        manual_axes: axes(&named.manual),
        reduction_op: named.reduction as i32,
    }
}

fn mesh(mesh: &Mesh) -> MeshProto {
    let mut p = MeshProto {
        axes: mesh.axes.iter().map(|(name, size)| MeshAxisProto { name: name.to_string(), size: *size }).collect(),
        ..MeshProto::default()
    };
    match &mesh.devices {
        MeshDevices::Iota => {}
        MeshDevices::Maximal(device) => p.device_ids = vec![*device],
        MeshDevices::Explicit(devices) => p.device_ids = devices.clone(),
        MeshDevices::Transformed(t) => p.iota_transform = Some(iota(t)),
    }
    p
}

fn iota(t: &IotaTransform) -> IotaTransformProto {
    IotaTransformProto { reshape_dims: t.reshape_dims.to_vec(), transpose_perm: t.transpose_perm.to_vec() }
}

fn axis_ref(axis: &AxisRef) -> AxisRefProto {
    AxisRefProto {
        mesh_axis_index: i64::from(axis.axis),
        sub_axis_info: axis.sub_axis.map(|(pre_size, size)| SubAxisInfoProto { pre_size, size }),
    }
}

/// The groups of a collective, in the form in which they are kept.
pub(super) fn replica_groups(p: &mut InstructionAttributes, groups: &ReplicaGroups) {
    match groups {
        ReplicaGroups::Explicit(groups) => {
            let group = |g: &Vec<i64>| ReplicaGroup { replica_ids: g.clone() };
            let list = CollectiveDeviceListProto {
                replica_groups: groups.iter().map(group).collect(),
                ..CollectiveDeviceListProto::default()
            };
            p.collective_device_list = Some(Box::new(list));
        }
        ReplicaGroups::Iota { num_groups, group_size, devices } => {
            p.iota_collective_device_list = Some(Box::new(IotaReplicaGroupListProto {
                num_replica_groups: *num_groups,
                num_devices_per_group: *group_size,
                iota_reshape_dims: devices.reshape_dims.to_vec(),
                iota_transpose_perm: devices.transpose_perm.to_vec(),
            }));
        }
        ReplicaGroups::MeshAxes { mesh, axes } => {
            p.mesh_axes_replica_group_list = Some(Box::new(MeshAxesReplicaGroupListProto {
                mesh: Some(self::mesh(mesh)),
                axes: axes.iter().map(axis_ref).collect(),
            }));
        }
    }
}
