//! Shardings, device lists and meshes.

use super::Printer;
use hloom_ir::device_list::{AxisRef, IotaTransform, Mesh, MeshDevices, ReplicaGroups};
use hloom_ir::display::write_int_list;
use hloom_ir::sharding::{
    LeafSharding, NamedSharding, ShardGroupKind, Sharding, ShardingKind, SubgroupType, Subgroups, TileAssignment,
    TileDevices, UnreducedReduction,
};

impl Printer<'_> {
    pub(super) fn sharding(&mut self, sharding: &Sharding) {
        match sharding {
            Sharding::Leaf(leaf) => self.leaf_sharding(leaf),
            Sharding::Tuple(leaves) => {
                self.out.push('{');
                for (i, leaf) in leaves.iter().enumerate() {
                    self.separator(i);
                    self.leaf_sharding(leaf);
                }
                self.out.push('}');
            }
        }
    }

    fn leaf_sharding(&mut self, leaf: &LeafSharding) {
        self.out.push('{');
        match &leaf.kind {
            ShardingKind::Replicated => self.text("replicated"),
            ShardingKind::Manual => self.text("manual"),
            ShardingKind::Unknown => self.text("unknown"),
            ShardingKind::Unreduced => self.text("unreduced"),
            ShardingKind::Maximal { device } => self.int_attribute("maximal device=", *device),
            ShardingKind::Tiled(tiles) => self.tile_assignment(tiles),
            ShardingKind::Named(named) => {
                self.named_sharding(named);
                if !leaf.metadata.is_empty() {
                    self.out.push(',');
                }
            }
        }
        if let Some(group) = leaf.group {
            let name = match group.kind {
                ShardGroupKind::As => " shard_as ",
                ShardGroupKind::Like => " shard_like ",
            };
            self.int_attribute(name, group.id);
        }
        if !leaf.metadata.is_empty() {
            self.text(" metadata={");
            // One entry needs no braces of its own, but in the form that names axes it has them.
            let bare = leaf.metadata.len() == 1 && !matches!(leaf.kind, ShardingKind::Named(_));
            for (i, metadata) in leaf.metadata.iter().enumerate() {
                self.comma(i);
                self.text(if bare { "" } else { "{" });
                self.metadata(metadata);
                self.text(if bare { "" } else { "}" });
            }
            self.out.push('}');
        }
        self.out.push('}');
    }

    fn tile_assignment(&mut self, tiles: &TileAssignment) {
        self.text("devices=[");
        write_int_list(&mut self.out, &tiles.dims);
        self.out.push(']');
        match &tiles.devices {
            TileDevices::Explicit(devices) => write_int_list(&mut self.out, devices),
            TileDevices::Iota(transform) => {
                self.text("<=");
                self.iota_transform(transform);
            }
        }
        match &tiles.subgroups {
            Subgroups::None => {}
            Subgroups::ReplicateLast => self.text(" last_tile_dim_replicate"),
            Subgroups::Types(types) => {
                self.text(" last_tile_dims={");
                for (i, kind) in types.iter().enumerate() {
                    self.comma(i);
                    self.text(match kind {
                        SubgroupType::Replicated => "replicated",
                        SubgroupType::Manual => "manual",
                        SubgroupType::Maximal => "maximal",
                        SubgroupType::Unknown => "unknown",
                        SubgroupType::Unreduced => "unreduced",
                    });
                }
                self.out.push('}');
            }
        }
    }

    /// `[8]` or `[4,2]T(1,0)`.
    fn iota_transform(&mut self, transform: &IotaTransform) {
        self.out.push('[');
        write_int_list(&mut self.out, &transform.reshape_dims);
        self.out.push(']');
        if transform.reshape_dims.len() > 1 {
            self.text("T(");
            write_int_list(&mut self.out, &transform.transpose_perm);
            self.out.push(')');
        }
    }

    /// What stands between the braces.
    fn named_sharding(&mut self, named: &NamedSharding) {
        self.mesh(&named.mesh);
        if matches!(named.mesh.devices, MeshDevices::Maximal(_)) {
            return;
        }
        if let Some(word) = whole_mesh_word(named) {
            self.text(", ");
            self.text(word);
            return;
        }
        self.text(", [");
        for (i, dim) in named.dims.iter().enumerate() {
            self.comma(i);
            self.out.push('{');
            self.axes(&named.mesh, &dim.axes, ", ");
            if !dim.closed {
                self.text(if dim.axes.is_empty() { "?" } else { ", ?" });
            }
            self.out.push('}');
        }
        self.out.push(']');
        let reduction = match named.reduction {
            UnreducedReduction::Sum => "",
            UnreducedReduction::Max => "max",
            UnreducedReduction::Min => "min",
        };
        for (name, reduction, axes) in [
            (", replicated=", "", &named.replicated),
            (", unreduced=", reduction, &named.unreduced),
            (", manual=", "", &named.manual),
        ] {
            if !axes.is_empty() {
                self.text(name);
                self.text(reduction);
                self.out.push('{');
                self.axes(&named.mesh, axes, ", ");
                self.out.push('}');
            }
        }
    }

    /// `mesh['a'=2,'b'=4]` with its devices, where they are not in order.
    fn mesh(&mut self, mesh: &Mesh) {
        if let MeshDevices::Maximal(device) = mesh.devices {
            self.int_attribute("maximal_mesh[device_id=", device);
            self.out.push(']');
            return;
        }
        self.text("mesh[");
        for (i, (name, size)) in mesh.axes.iter().enumerate() {
            self.text(if i > 0 { ",'" } else { "'" });
            self.text(name);
            self.int_attribute("'=", *size);
        }
        self.out.push(']');
        match &mesh.devices {
            MeshDevices::Iota | MeshDevices::Maximal(_) => {}
            MeshDevices::Transformed(transform) => {
                self.text(", device_ids=(");
                self.iota_transform(transform);
                self.out.push(')');
            }
            MeshDevices::Explicit(devices) => {
                self.text(", device_ids=(");
                write_int_list(&mut self.out, devices);
                self.out.push(')');
            }
        }
    }

    /// `'x'`, or `'x':(1)2` for a part of an axis.
    fn axes(&mut self, mesh: &Mesh, axes: &[AxisRef], separator: &str) {
        for (i, axis) in axes.iter().enumerate() {
            if i > 0 {
                self.text(separator);
            }
            self.out.push('\'');
            self.text(mesh.axes.get(axis.axis as usize).map_or("", |a| &a.0));
            self.out.push('\'');
            if let Some((before, size)) = axis.sub_axis {
                self.int_attribute(":(", before);
                self.int_attribute(")", size);
            }
        }
    }

    pub(super) fn replica_groups(&mut self, groups: &ReplicaGroups) {
        match groups {
            ReplicaGroups::Explicit(groups) => {
                self.out.push('{');
                for (i, group) in groups.iter().enumerate() {
                    if i > 0 {
                        self.out.push(',');
                    }
                    self.braced_list(group);
                }
                self.out.push('}');
            }
            ReplicaGroups::Iota { num_groups, group_size, devices } => {
                self.int_attribute("[", *num_groups);
                self.int_attribute(",", *group_size);
                self.text("]<=");
                self.iota_transform(devices);
            }
            ReplicaGroups::MeshAxes { mesh, axes } => {
                self.mesh(mesh);
                self.text(" {");
                self.axes(mesh, axes, ",");
                self.out.push('}');
            }
        }
    }
}

/// The word for a sharding of a scalar that treats all axes alike.
fn whole_mesh_word(named: &NamedSharding) -> Option<&'static str> {
    let is_all = |axes: &[AxisRef]| {
        axes.len() == named.mesh.axes.len()
            && axes.iter().enumerate().all(|(i, a)| a.axis as usize == i && a.sub_axis.is_none())
    };
    if !named.dims.is_empty() || !named.replicated.is_empty() || named.reduction != UnreducedReduction::Sum {
        return None;
    }
    match (named.unreduced.as_slice(), named.manual.as_slice()) {
        ([], []) => Some("replicated"),
        (axes, []) if is_all(axes) => Some("unreduced"),
        ([], axes) if is_all(axes) => Some("manual"),
        _ => None,
    }
}
