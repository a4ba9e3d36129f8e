//! Named shardings as tile assignments and back, exactly.
//!
//! A mesh is an array of devices; its axes, cut where a sub-axis begins, are the digits of a device's place in it. A named
//! sharding says which digits number the tiles of each dimension, so the tile assignment is the mesh transposed to that
//! order. The way back reads the digits off the list of devices, and is checked by going forth again.

use super::{
    DimSharding, NamedSharding, ShardingKind, SubgroupType, Subgroups, TileAssignment, TileDevices, UnreducedReduction,
};
use crate::device_list::{AxisRef, IotaTransform, Mesh, MeshDevices, ReplicaGroups};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// No mesh has more axes, and no array more dimensions, than this.
const MAX_AXES: usize = 128;

/// A part of an axis: which axis, the size of what comes before it, and its own size.
type Digit = (usize, i64, i64);

impl DimSharding {
    /// Cut along these axes, and no others.
    pub fn closed(axes: Vec<AxisRef>) -> DimSharding {
        DimSharding { axes, closed: true, priority: None }
    }

    /// Cut along these axes, and others if propagation finds some.
    pub fn open(axes: Vec<AxisRef>) -> DimSharding {
        DimSharding { axes, closed: false, priority: None }
    }
}

impl NamedSharding {
    /// A sharding of an array of that rank that leaves every dimension open.
    pub fn fully_open(mesh: Arc<Mesh>, rank: usize) -> NamedSharding {
        NamedSharding {
            mesh,
            dims: vec![DimSharding::open(Vec::new()); rank],
            replicated: Vec::new(),
            unreduced: Vec::new(),
            manual: Vec::new(),
            reduction: UnreducedReduction::Sum,
        }
    }

    /// The sharding as tiles: those of the dimensions, then the manual, the unreduced and the replicated devices of each.
    /// `None` if an axis is not in the mesh, is used twice, or there are too many of them.
    pub fn to_tiles(&self) -> Option<ShardingKind> {
        if let MeshDevices::Maximal(device) = self.mesh.devices {
            return Some(ShardingKind::Maximal { device });
        }
        let count = self.mesh.size().filter(|&n| (1..=ReplicaGroups::MAX_DEVICES).contains(&n))?;
        if self.mesh.axes.len() > MAX_AXES || self.dims.len() > MAX_AXES {
            return None;
        }
        if self.mesh.axes.is_empty() {
            return Some(ShardingKind::Replicated);
        }
        let mut order: Vec<Digit> = Vec::new();
        let mut group = |axes: &[AxisRef]| -> Option<i64> {
            let mut size = 1i64;
            for axis in axes {
                let digit = self.digit(axis)?;
                if order.len() >= MAX_AXES {
                    return None;
                }
                size = size.checked_mul(digit.2)?;
                order.push(digit);
            }
            Some(size)
        };
        let mut tiles: SmallVec<[i64; 4]> = self.dims.iter().map(|d| group(&d.axes)).collect::<Option<_>>()?;
        let manual = group(&self.manual)?;
        let unreduced = group(&self.unreduced)?;
        let mut rest = Vec::new();
        for (index, &(_, size)) in self.mesh.axes.iter().enumerate() {
            rest.extend(remaining(&order, index, size)?);
        }
        let replicated: i64 = rest.iter().map(|d| d.2).product();
        order.extend(rest);
        if tiles.iter().all(|&t| t == 1) {
            if manual == 1 && unreduced == 1 {
                return Some(ShardingKind::Replicated);
            }
            if manual == count {
                return Some(ShardingKind::Manual);
            }
            if unreduced == count {
                return Some(ShardingKind::Unreduced);
            }
        }
        let mut types = Vec::new();
        for (size, kind) in [
            (manual, SubgroupType::Manual),
            (unreduced, SubgroupType::Unreduced),
            (replicated, SubgroupType::Replicated),
        ] {
            if size > 1 {
                tiles.push(size);
                types.push(kind);
            }
        }
        let subgroups = match &types[..] {
            [] => Subgroups::None,
            [SubgroupType::Replicated] => Subgroups::ReplicateLast,
            _ => Subgroups::Types(types),
        };
        let devices = self.devices(&order)?;
        Some(ShardingKind::Tiled(TileAssignment { dims: tiles, devices, subgroups }))
    }

    fn digit(&self, axis: &AxisRef) -> Option<Digit> {
        let size = self.mesh.axes.get(axis.axis as usize)?.1;
        let (pre, part) = axis.sub_axis.unwrap_or((1, size));
        let fits = pre > 0 && part > 0 && pre.checked_mul(part).is_some_and(|n| size % n == 0);
        fits.then_some((axis.axis as usize, pre, part))
    }

    /// The devices of the mesh with its digits in that order.
    fn devices(&self, order: &[Digit]) -> Option<TileDevices> {
        let mut sorted: Vec<Digit> = order.to_vec();
        sorted.sort_unstable();
        let place = |d: &Digit| sorted.binary_search(d).ok().map(|i| i as i64);
        let transform = IotaTransform {
            reshape_dims: sorted.iter().map(|d| d.2).collect(),
            transpose_perm: order.iter().map(place).collect::<Option<_>>()?,
        }
        .canonical();
        match &self.mesh.devices {
            MeshDevices::Iota => Some(TileDevices::Iota(transform)),
            _ => {
                let devices = self.mesh.expand_devices(ReplicaGroups::MAX_DEVICES)?;
                let list = transform.expand(ReplicaGroups::MAX_DEVICES)?;
                let list = list.iter().map(|&i| devices.get(i as usize).copied()).collect::<Option<_>>()?;
                Some(TileDevices::Explicit(list))
            }
        }
    }

    /// A sharding of an array of that rank by the axes of `mesh`; `None` if its tiles are not along them. Dimensions are
    /// closed.
    pub fn from_kind(kind: &ShardingKind, rank: usize, mesh: &Arc<Mesh>) -> Option<NamedSharding> {
        let mut named = NamedSharding::fully_open(mesh.clone(), rank);
        named.dims.iter_mut().for_each(|d| d.closed = true);
        let all = || (0..mesh.axes.len() as u32).map(|axis| AxisRef { axis, sub_axis: None }).collect();
        let tiles = match kind {
            ShardingKind::Replicated => return Some(named),
            ShardingKind::Manual => return Some(NamedSharding { manual: all(), ..named }),
            ShardingKind::Unreduced => return Some(NamedSharding { unreduced: all(), ..named }),
            ShardingKind::Maximal { device } => {
                let mesh = Arc::new(Mesh { axes: Vec::new(), devices: MeshDevices::Maximal(*device) });
                return Some(NamedSharding { mesh, ..named });
            }
            ShardingKind::Named(given) => return (given.mesh == *mesh).then(|| given.clone()),
            ShardingKind::Unknown => return None,
            ShardingKind::Tiled(tiles) => tiles,
        };
        if tiles.data_rank() != rank || tiles.dims.iter().any(|&d| d < 1) {
            return None;
        }
        let places = places(tiles, mesh)?;
        let types = match &tiles.subgroups {
            Subgroups::None => Vec::new(),
            Subgroups::ReplicateLast => vec![SubgroupType::Replicated],
            Subgroups::Types(types) => types.clone(),
        };
        let mut stride = places.len();
        for (d, &size) in tiles.dims.iter().enumerate() {
            stride /= size as usize;
            let along: Vec<i64> = (0..size as usize).map(|i| places[i * stride]).collect();
            let axes = axes_along(&along, mesh)?;
            match d.checked_sub(rank).map(|i| types[i]) {
                None => named.dims[d].axes = axes,
                Some(SubgroupType::Manual) => named.manual.extend(axes),
                Some(SubgroupType::Unreduced) => named.unreduced.extend(axes),
                Some(SubgroupType::Replicated) => {}
                Some(SubgroupType::Maximal | SubgroupType::Unknown) => return None,
            }
        }
        // What was read off the edges must hold everywhere.
        let made = named.to_tiles()?;
        same_devices(&made, kind).then_some(named)
    }
}

impl ShardingKind {
    /// The sharding without names: tiles for what is named, all else as it is. `None` if the names do not fit the mesh.
    pub fn without_names(&self) -> Option<ShardingKind> {
        match self {
            ShardingKind::Named(named) => named.to_tiles(),
            other => Some(other.clone()),
        }
    }
}

impl TileAssignment {
    /// The devices, row-major over the tiles.
    pub fn expand_devices(&self) -> Option<Vec<i64>> {
        match &self.devices {
            TileDevices::Explicit(list) => Some(list.clone()),
            TileDevices::Iota(iota) => iota.expand(ReplicaGroups::MAX_DEVICES),
        }
    }
}

/// Whether two shardings of arrays of one rank put the same parts on the same devices.
pub fn same_devices(a: &ShardingKind, b: &ShardingKind) -> bool {
    let plain = |kind: &ShardingKind| kind.without_names().map(ShardingKind::canonical);
    match (plain(a), plain(b)) {
        (Some(ShardingKind::Tiled(a)), Some(ShardingKind::Tiled(b))) => {
            a.dims == b.dims && a.subgroups == b.subgroups && a.expand_devices() == b.expand_devices()
        }
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

/// The parts of axis `index` of that size that `used` leaves over, major first.
fn remaining(used: &[Digit], index: usize, size: i64) -> Option<Vec<Digit>> {
    let mut parts: Vec<(i64, i64)> = used.iter().filter(|d| d.0 == index).map(|d| (d.1, d.2)).collect();
    parts.sort_unstable();
    let mut left = Vec::new();
    let mut before = 1;
    for (pre, part) in parts {
        if pre < before || pre % before != 0 {
            return None;
        }
        if pre > before {
            left.push((index, before, pre / before));
        }
        before = pre * part;
    }
    if before < size {
        left.push((index, before, size / before));
    }
    Some(left)
}

/// For each tile, the place in the mesh of its device.
fn places(tiles: &TileAssignment, mesh: &Mesh) -> Option<Vec<i64>> {
    let devices = tiles.expand_devices()?;
    let of_mesh = mesh.expand_devices(ReplicaGroups::MAX_DEVICES)?;
    if devices.len() != of_mesh.len() || tiles.num_tiles() != Some(devices.len() as i64) {
        return None;
    }
    let place: FxHashMap<i64, i64> = of_mesh.iter().enumerate().map(|(i, &device)| (device, i as i64)).collect();
    devices.iter().map(|d| place.get(d).copied()).collect()
}

/// The axes along which the places go, major first.
fn axes_along(places: &[i64], mesh: &Mesh) -> Option<Vec<AxisRef>> {
    let mut axes: Vec<AxisRef> = Vec::new();
    // Minor digits first: how far the places go in equal steps, then what is major to that.
    let mut unit = 1;
    while unit < places.len() {
        let step = places[unit] - places[0];
        let mut count = 1;
        while (count + 1) * unit < places.len() && places[(count + 1) * unit] - places[0] == step * (count as i64 + 1) {
            count += 1;
        }
        count += 1;
        let mut count = count as i64;
        let mut stride = step;
        if step <= 0 {
            return None;
        }
        while count > 1 {
            let (index, post, size) = axis_at(mesh, stride)?;
            let within = stride / post;
            let room = size / within;
            let part = count.min(room);
            if size % within != 0 || room % part != 0 {
                return None;
            }
            let pre = room / part;
            let sub_axis = (pre != 1 || part != size).then_some((pre, part));
            match axes.last_mut() {
                Some(last) if last.axis == index && merges(mesh, last, (pre, part)) => {
                    let (_, old) = last.sub_axis.unwrap_or((1, size));
                    last.sub_axis = (pre != 1 || part * old != size).then_some((pre, part * old));
                }
                _ => axes.push(AxisRef { axis: index, sub_axis }),
            }
            if count % part != 0 {
                return None;
            }
            count /= part;
            stride *= part;
            unit *= part as usize;
        }
    }
    axes.reverse();
    Some(axes)
}

/// Whether `major` is what comes right before the sub-axis `minor`.
fn merges(mesh: &Mesh, minor: &AxisRef, major: (i64, i64)) -> bool {
    let size = mesh.axes[minor.axis as usize].1;
    minor.sub_axis.unwrap_or((1, size)).0 == major.0 * major.1
}

/// The axis whose digits have that stride: its number, the stride of its last digit, and its size.
fn axis_at(mesh: &Mesh, stride: i64) -> Option<(u32, i64, i64)> {
    let mut post = 1;
    for (i, &(_, size)) in mesh.axes.iter().enumerate().rev() {
        if size > 1 && stride >= post && stride < post * size {
            return (stride % post == 0).then_some((i as u32, post, size));
        }
        post *= size;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mesh(axes: &[(&str, i64)]) -> Arc<Mesh> {
        let axes = axes.iter().map(|&(n, s)| (n.into(), s)).collect();
        Arc::new(Mesh { axes, devices: MeshDevices::Iota })
    }
    fn axis(axis: u32) -> AxisRef {
        AxisRef { axis, sub_axis: None }
    }
    fn sub(axis: u32, pre: i64, size: i64) -> AxisRef {
        AxisRef { axis, sub_axis: Some((pre, size)) }
    }
    fn named(mesh: &Arc<Mesh>, dims: &[&[AxisRef]]) -> NamedSharding {
        let mut named = NamedSharding::fully_open(mesh.clone(), 0);
        named.dims = dims.iter().map(|d| DimSharding::closed(d.to_vec())).collect();
        named
    }
    fn tiled(dims: &[i64], reshape: &[i64], perm: &[i64], subgroups: Subgroups) -> ShardingKind {
        let iota = IotaTransform { reshape_dims: reshape.into(), transpose_perm: perm.into() };
        ShardingKind::Tiled(TileAssignment { dims: dims.into(), devices: TileDevices::Iota(iota), subgroups })
    }

    #[test]
    fn axes_become_tiles_in_the_order_of_their_use() {
        let m = mesh(&[("dp", 4), ("tp", 2)]);
        let tiles = |dims: &[&[AxisRef]]| named(&m, dims).to_tiles();
        assert_eq!(tiles(&[&[axis(0)], &[]]), Some(tiled(&[4, 1, 2], &[8], &[0], Subgroups::ReplicateLast)));
        assert_eq!(tiles(&[&[], &[axis(1)]]), Some(tiled(&[1, 2, 4], &[4, 2], &[1, 0], Subgroups::ReplicateLast)));
        assert_eq!(tiles(&[&[axis(1), axis(0)]]), Some(tiled(&[8], &[4, 2], &[1, 0], Subgroups::None)));
        assert_eq!(tiles(&[&[sub(0, 2, 2)]]), Some(tiled(&[2, 4], &[2, 2, 2], &[1, 0, 2], Subgroups::ReplicateLast)));
        assert_eq!(tiles(&[&[]]), Some(ShardingKind::Replicated));
        assert_eq!(tiles(&[&[axis(0)], &[axis(0)]]), None, "an axis twice");
        assert_eq!(tiles(&[&[axis(2)]]), None, "no such axis");
    }

    #[test]
    fn manual_and_unreduced_axes_are_subgroups() {
        let m = mesh(&[("x", 2), ("y", 4)]);
        let with = |manual: Vec<AxisRef>, unreduced: Vec<AxisRef>| {
            NamedSharding { manual, unreduced, ..named(&m, &[&[]]) }.to_tiles()
        };
        assert_eq!(with(vec![axis(0), axis(1)], vec![]), Some(ShardingKind::Manual));
        assert_eq!(with(vec![], vec![axis(0), axis(1)]), Some(ShardingKind::Unreduced));
        assert_eq!(
            with(vec![axis(1)], vec![]),
            Some(tiled(
                &[1, 4, 2],
                &[2, 4],
                &[1, 0],
                Subgroups::Types(vec![SubgroupType::Manual, SubgroupType::Replicated])
            ))
        );
    }

    #[test]
    fn explicit_lists_are_read_along_the_mesh() {
        let m = mesh(&[("x", 2), ("y", 4)]);
        let listed = |dims: &[i64], devices: &[i64], subgroups| {
            ShardingKind::Tiled(TileAssignment {
                dims: dims.into(),
                devices: TileDevices::Explicit(devices.to_vec()),
                subgroups,
            })
        };
        let read = |kind: &ShardingKind, rank| NamedSharding::from_kind(kind, rank, &m);
        let swapped = listed(&[4, 2], &[0, 4, 1, 5, 2, 6, 3, 7], Subgroups::None);
        assert_eq!(read(&swapped, 2), Some(named(&m, &[&[axis(1)], &[axis(0)]])));
        let halves = listed(&[2, 4], &[0, 1, 4, 5, 2, 3, 6, 7], Subgroups::ReplicateLast);
        assert_eq!(read(&halves, 1), Some(named(&m, &[&[sub(1, 1, 2)]])));
        let odd = listed(&[8], &[1, 0, 2, 3, 4, 5, 6, 7], Subgroups::None);
        assert_eq!(read(&odd, 1), None, "no order of axes gives this");
    }
}
