//! Shardings, meshes and the device lists of collectives.

use super::error::{Result, error};
use super::metadata;
use super::module::Reader;
use crate::proto::messages::*;
use hloom_ir::device_list::{AxisRef, IotaTransform, Mesh, MeshDevices, ReplicaGroups};
use hloom_ir::diagnostic::codes::proto as codes;
use hloom_ir::metadata::Metadata;
use hloom_ir::shape::Shape;
use hloom_ir::sharding::*;
use prost::Message;
use std::sync::Arc;

/// The operation type of the metadata in which newer dumps say how unreduced parts combine.
const REDUCTION_OP: &str = "sdy::reduction_op";

pub(super) fn sharding(reader: &mut Reader<'_>, proto: &OpSharding) -> Result<Sharding> {
    if proto.kind != sharding_type::TUPLE || proto.named_sharding.is_some() {
        return Ok(Sharding::Leaf(Box::new(leaf(reader, proto)?)));
    }
    let mut leaves = Vec::with_capacity(proto.tuple_shardings.len());
    for element in &proto.tuple_shardings {
        if element.kind == sharding_type::TUPLE && element.named_sharding.is_none() {
            return error(&codes::BAD_SHARDING, "a tuple sharding has a tuple sharding inside");
        }
        leaves.push(leaf(reader, element)?);
    }
    Ok(Sharding::Tuple(leaves))
}

/// The shardings of an array, or of the leaves of a tuple, without what is said about where they come from.
pub(super) fn kinds(proto: &OpSharding) -> Result<Vec<ShardingKind>> {
    let one = |proto: &OpSharding| match &proto.named_sharding {
        Some(named) => Ok(ShardingKind::Named(named_sharding(named)?)),
        None => kind(proto),
    };
    match proto.kind == sharding_type::TUPLE && proto.named_sharding.is_none() {
        true => proto.tuple_shardings.iter().map(one).collect(),
        false => Ok(vec![one(proto)?]),
    }
}

/// The sharding of a value of that shape: one sharding of a whole tuple means the same for each leaf.
pub(super) fn sharding_of(reader: &mut Reader<'_>, proto: &OpSharding, shape: &Shape) -> Result<Sharding> {
    let sharding = sharding(reader, proto)?;
    let (Sharding::Leaf(leaf), Shape::Tuple(_)) = (&sharding, shape) else { return Ok(sharding) };
    let count = shape.leaf_count();
    // An integer takes up to eight bytes for one in the proto; payloads may be there by reference.
    let payload = |m: &Metadata| m.rare.as_ref().and_then(|r| r.payload.as_ref()).map_or(0, |p| p.len());
    let size = proto.encoded_len() * 8 + leaf.metadata.iter().map(payload).sum::<usize>();
    let refusal = "a sharding that stands for each of many leaves of tuples takes too much memory";
    reader.spend(size.saturating_mul(count), refusal)?;
    Ok(Sharding::Tuple(vec![(**leaf).clone(); count]))
}

fn leaf(reader: &mut Reader<'_>, proto: &OpSharding) -> Result<LeafSharding> {
    let (kind, metadata) = match &proto.named_sharding {
        Some(named) => (ShardingKind::Named(named_sharding(named)?), annotations(reader, &named.metadata)?),
        None => {
            let mut metadata = annotations(reader, &proto.metadata)?;
            // A sum is what is meant when nothing is said.
            metadata.retain(|m| !(&*m.op_type == REDUCTION_OP && &*m.op_name == "SUM"));
            (kind(proto)?, metadata)
        }
    };
    let group = match (proto.is_shard_group, proto.shard_group_type) {
        (false, _) => None,
        (true, 0) => Some(ShardGroup { id: proto.shard_group_id, kind: ShardGroupKind::As }),
        (true, 1) => Some(ShardGroup { id: proto.shard_group_id, kind: ShardGroupKind::Like }),
        (true, other) => return error(&codes::BAD_SHARDING, format!("{other} is not a kind of shard group")),
    };
    Ok(LeafSharding { kind, group, metadata })
}

fn annotations(reader: &mut Reader<'_>, encoded: &[Vec<u8>]) -> Result<Vec<Metadata>> {
    encoded.iter().map(|m| metadata::metadata(reader, m)).collect()
}

fn kind(proto: &OpSharding) -> Result<ShardingKind> {
    Ok(match proto.kind {
        sharding_type::REPLICATED => ShardingKind::Replicated,
        sharding_type::MANUAL => ShardingKind::Manual,
        sharding_type::UNKNOWN => ShardingKind::Unknown,
        sharding_type::UNREDUCED => ShardingKind::Unreduced,
        sharding_type::MAXIMAL => match proto.tile_assignment_devices[..] {
            [device] => ShardingKind::Maximal { device },
            ref other => {
                return error(&codes::BAD_SHARDING, format!("a maximal sharding names {} devices", other.len()));
            }
        },
        sharding_type::OTHER => tiled(proto)?,
        other => return error(&codes::BAD_SHARDING, format!("{other} is not a type of sharding")),
    })
}

fn tiled(proto: &OpSharding) -> Result<ShardingKind> {
    let dims = &proto.tile_assignment_dimensions;
    let devices = if proto.iota_reshape_dims.is_empty() {
        TileDevices::Explicit(proto.tile_assignment_devices.clone())
    } else if !proto.tile_assignment_devices.is_empty() {
        return error(&codes::BAD_SHARDING, "a sharding lists devices and also says how to compute them");
    } else {
        TileDevices::Iota(iota(&proto.iota_reshape_dims, &proto.iota_transpose_perm)?)
    };
    let count = match &devices {
        TileDevices::Explicit(list) => Some(list.len() as i64),
        TileDevices::Iota(t) => t.len(),
    };
    // One device means no cutting at all, however many dimensions are named.
    if count == Some(1) {
        return Ok(ShardingKind::Replicated);
    }
    let subgroups = match (proto.replicate_on_last_tile_dim, &proto.last_tile_dims[..]) {
        (false, []) => Subgroups::None,
        (true, []) => Subgroups::ReplicateLast,
        (false, types) => Subgroups::Types(types.iter().map(|&t| subgroup_type(t)).collect::<Result<_>>()?),
        (true, _) => return error(&codes::BAD_SHARDING, "a sharding says twice what its last dimension means"),
    };
    let tiles = TileAssignment { dims: dims.iter().copied().collect(), devices, subgroups };
    if dims.is_empty() || dims.iter().any(|&d| d <= 0) || tiles.num_tiles() != count {
        let count = count.map_or("too many".into(), |n| n.to_string());
        return error(&codes::BAD_SHARDING, format!("a sharding into {dims:?} tiles names {count} devices"));
    }
    Ok(ShardingKind::Tiled(tiles))
}

fn subgroup_type(number: i32) -> Result<SubgroupType> {
    Ok(match number {
        sharding_type::REPLICATED => SubgroupType::Replicated,
        sharding_type::MAXIMAL => SubgroupType::Maximal,
        sharding_type::MANUAL => SubgroupType::Manual,
        sharding_type::UNKNOWN => SubgroupType::Unknown,
        sharding_type::UNREDUCED => SubgroupType::Unreduced,
        other => return error(&codes::BAD_SHARDING, format!("a subgroup of devices has the type {other}")),
    })
}

fn iota(reshape_dims: &[i64], transpose_perm: &[i64]) -> Result<IotaTransform> {
    if reshape_dims.len() != transpose_perm.len() {
        let (dims, perm) = (reshape_dims.len(), transpose_perm.len());
        return error(&codes::BAD_SHARDING, format!("a device list has {dims} dimensions but transposes {perm}"));
    }
    Ok(IotaTransform {
        reshape_dims: reshape_dims.iter().copied().collect(),
        transpose_perm: transpose_perm.iter().copied().collect(),
    })
}

fn named_sharding(proto: &NamedShardingProto) -> Result<NamedSharding> {
    let mesh = mesh(proto.mesh.as_ref())?;
    let axes = |list: &[AxisRefProto]| list.iter().map(|a| axis_ref(a, &mesh)).collect::<Result<Vec<_>>>();
    let reduction = match proto.reduction_op {
        0 => UnreducedReduction::Sum,
        1 => UnreducedReduction::Max,
        2 => UnreducedReduction::Min,
        other => return error(&codes::BAD_SHARDING, format!("{other} is not a way to reduce")),
    };
    Ok(NamedSharding {
        dims: proto
            .dim_shardings
            .iter()
            .map(|d| Ok(DimSharding { axes: axes(&d.axes)?, closed: d.is_closed, priority: None }))
            .collect::<Result<_>>()?,
        replicated: axes(&proto.replicated_axes)?,
        unreduced: axes(&proto.unreduced_axes)?,
        manual: axes(&proto.manual_axes)?,
        reduction,
        mesh,
    })
}

fn mesh(proto: Option<&MeshProto>) -> Result<Arc<Mesh>> {
    let none = MeshProto::default();
    let proto = proto.unwrap_or(&none);
    let devices = match (&proto.axes[..], &proto.device_ids[..], &proto.iota_transform) {
        (_, [], None) => MeshDevices::Iota,
        ([], [device], None) => MeshDevices::Maximal(*device),
        ([], list, _) => {
            return error(&codes::BAD_SHARDING, format!("a mesh without axes names {} devices", list.len()));
        }
        (_, list, None) => MeshDevices::Explicit(list.to_vec()),
        (_, [], Some(t)) => MeshDevices::Transformed(iota(&t.reshape_dims, &t.transpose_perm)?),
        (_, _, Some(_)) => {
            return error(&codes::BAD_SHARDING, "a mesh lists its devices and also says how to compute them");
        }
    };
    Ok(Arc::new(Mesh { axes: proto.axes.iter().map(|a| (a.name.as_str().into(), a.size)).collect(), devices }))
}

fn axis_ref(proto: &AxisRefProto, mesh: &Mesh) -> Result<AxisRef> {
    match u32::try_from(proto.mesh_axis_index) {
        Ok(axis) if (axis as usize) < mesh.axes.len() => {
            Ok(AxisRef { axis, sub_axis: proto.sub_axis_info.as_ref().map(|s| (s.pre_size, s.size)) })
        }
        _ => {
            let (axis, count) = (proto.mesh_axis_index, mesh.axes.len());
            error(&codes::BAD_SHARDING, format!("axis {axis} is none of the {count} axes of the mesh"))
        }
    }
}

/// The groups of a collective, in whichever of the forms they were given.
pub(super) fn replica_groups(p: &InstructionAttributes) -> Result<ReplicaGroups> {
    if let Some(list) = &p.mesh_axes_replica_group_list {
        let mesh = mesh(list.mesh.as_ref())?;
        let axes = list.axes.iter().map(|a| axis_ref(a, &mesh)).collect::<Result<_>>()?;
        return Ok(ReplicaGroups::MeshAxes { mesh, axes });
    }
    let nested = p.collective_device_list.as_ref().and_then(|l| l.iota_replica_group_list.as_ref());
    if let Some(list) = p.iota_collective_device_list.as_deref().or(nested) {
        return Ok(ReplicaGroups::Iota {
            num_groups: list.num_replica_groups,
            group_size: list.num_devices_per_group,
            devices: iota(&list.iota_reshape_dims, &list.iota_transpose_perm)?,
        });
    }
    let groups = p.collective_device_list.as_ref().map_or(&p.replica_groups, |l| &l.replica_groups);
    Ok(ReplicaGroups::Explicit(groups.iter().map(|g| g.replica_ids.clone()).collect()))
}
