//! The one form of a tiled sharding among those that mean the same, as XLA chooses it.
//!
//! Trailing subgroup dimensions are sorted by kind and merged, those of size one are dropped, and the devices of a
//! replicated group are in ascending order. A list of devices that is an iota stays one wherever it can.

use super::{ShardingKind, SubgroupType, Subgroups, TileAssignment, TileDevices};
use crate::device_list::{IotaTransform, ReplicaGroups};
use smallvec::SmallVec;

type Dims = SmallVec<[i64; 4]>;

impl ShardingKind {
    /// The canonical form. A tile assignment whose parts do not fit each other is given back as it is.
    pub fn canonical(self) -> ShardingKind {
        let tiles = match self {
            ShardingKind::Tiled(tiles) if tiles.subgroups != Subgroups::None && fits(&tiles) => tiles,
            other => return other,
        };
        let types: Vec<SubgroupType> = match &tiles.subgroups {
            Subgroups::Types(types) => types.clone(),
            _ => vec![SubgroupType::Replicated],
        };
        let data = tiles.dims.len() - types.len();
        let is_whole = tiles.dims[..data].iter().all(|&d| d == 1);
        if let Some(kind) = types.first().filter(|&&first| is_whole && types.iter().all(|&t| t == first)) {
            match kind {
                SubgroupType::Replicated => return ShardingKind::Replicated,
                SubgroupType::Manual => return ShardingKind::Manual,
                SubgroupType::Unreduced => return ShardingKind::Unreduced,
                SubgroupType::Maximal | SubgroupType::Unknown => {}
            }
        }
        let (tiles, types) = merge_subgroups(tiles, &types, data);
        match types.as_slice() {
            [] => ShardingKind::Tiled(TileAssignment { subgroups: Subgroups::None, ..tiles }),
            [SubgroupType::Replicated] => partial_tile(tiles),
            [SubgroupType::Manual] if tiles.dims[..tiles.dims.len() - 1].iter().all(|&d| d == 1) => {
                ShardingKind::Manual
            }
            [.., SubgroupType::Replicated] => {
                let devices = sort_groups(&tiles);
                ShardingKind::Tiled(TileAssignment { devices, subgroups: Subgroups::Types(types), ..tiles })
            }
            _ => ShardingKind::Tiled(TileAssignment { subgroups: Subgroups::Types(types), ..tiles }),
        }
    }
}

/// Whether there are as many devices as tiles, and subgroups name dimensions that exist.
fn fits(tiles: &TileAssignment) -> bool {
    let trailing = match &tiles.subgroups {
        Subgroups::None => 0,
        Subgroups::ReplicateLast => 1,
        Subgroups::Types(types) => types.len(),
    };
    let count = match &tiles.devices {
        TileDevices::Explicit(list) => Some(list.len() as i64),
        TileDevices::Iota(iota) if crate::layout::is_permutation(&iota.transpose_perm, iota.reshape_dims.len()) => {
            iota.len()
        }
        TileDevices::Iota(_) => None,
    };
    trailing <= tiles.dims.len() && count.is_some_and(|n| n > 0 && tiles.num_tiles() == Some(n))
}

/// The place of a kind among the trailing dimensions.
fn rank_of(kind: SubgroupType) -> usize {
    match kind {
        SubgroupType::Maximal => 0,
        SubgroupType::Manual => 1,
        SubgroupType::Unreduced => 2,
        SubgroupType::Replicated => 3,
        SubgroupType::Unknown => 4,
    }
}

/// One trailing dimension for each kind, in the order of [`rank_of`]; the first `data` dimensions stay.
fn merge_subgroups(tiles: TileAssignment, types: &[SubgroupType], data: usize) -> (TileAssignment, Vec<SubgroupType>) {
    let mut trailing: Vec<(SubgroupType, usize)> =
        types.iter().enumerate().map(|(i, &t)| (t, data + i)).filter(|&(_, d)| tiles.dims[d] != 1).collect();
    trailing.sort_by_key(|&(t, _)| rank_of(t));
    let mut dims: Dims = tiles.dims[..data].into();
    let mut merged: Vec<SubgroupType> = Vec::new();
    for &(kind, d) in &trailing {
        match dims.last_mut() {
            Some(last) if merged.last() == Some(&kind) => *last *= tiles.dims[d],
            _ => {
                merged.push(kind);
                dims.push(tiles.dims[d]);
            }
        }
    }
    let order: Vec<usize> = (0..data).chain(trailing.iter().map(|&(_, d)| d)).collect();
    let devices = transposed(&tiles, &order);
    (TileAssignment { dims, devices, subgroups: Subgroups::None }, merged)
}

/// The devices with the tile dimensions in another order; dimensions that are not named have size one.
fn transposed(tiles: &TileAssignment, order: &[usize]) -> TileDevices {
    if order.is_sorted() {
        return tiles.devices.clone();
    }
    if let TileDevices::Iota(iota) = &tiles.devices
        && let Some(digits) = Digits::of(iota, &tiles.dims)
    {
        return TileDevices::Iota(digits.in_order(order.iter().flat_map(|&d| digits.of_tile[d].clone())));
    }
    let Some(list) = explicit(&tiles.devices) else { return tiles.devices.clone() };
    let mut strides = vec![1usize; tiles.dims.len()];
    for d in (1..tiles.dims.len()).rev() {
        strides[d - 1] = strides[d] * tiles.dims[d] as usize;
    }
    let places = order.iter().fold(vec![0usize], |places, &d| {
        let steps = tiles.dims[d] as usize;
        places.iter().flat_map(|p| (0..steps).map(move |i| (p, i))).map(|(p, i)| p + i * strides[d]).collect()
    });
    TileDevices::Explicit(places.into_iter().filter_map(|p| list.get(p).copied()).collect())
}

fn explicit(devices: &TileDevices) -> Option<Vec<i64>> {
    match devices {
        TileDevices::Explicit(list) => Some(list.clone()),
        TileDevices::Iota(iota) => iota.expand(ReplicaGroups::MAX_DEVICES),
    }
}

/// Tiles that are replicated over the last dimension.
fn partial_tile(mut tiles: TileAssignment) -> ShardingKind {
    match tiles.dims.split_last() {
        Some((_, outer)) if outer.iter().all(|&d| d == 1) => return ShardingKind::Replicated,
        Some((1, _)) => {
            tiles.dims.pop();
            return ShardingKind::Tiled(TileAssignment { subgroups: Subgroups::None, ..tiles });
        }
        _ => {}
    }
    let devices = sort_groups(&tiles);
    ShardingKind::Tiled(TileAssignment { devices, subgroups: Subgroups::ReplicateLast, ..tiles })
}

/// The devices with those along the last dimension in ascending order.
fn sort_groups(tiles: &TileAssignment) -> TileDevices {
    let Some(&size) = tiles.dims.last() else { return tiles.devices.clone() };
    if let TileDevices::Iota(iota) = &tiles.devices {
        let rows = tiles.num_tiles().unwrap_or(size) / size;
        if let Some(digits) = Digits::of(iota, &[rows, size]) {
            let mut group = digits.of_tile[1].clone();
            group.sort_unstable();
            return TileDevices::Iota(digits.in_order(digits.of_tile[0].iter().copied().chain(group)));
        }
    }
    let Some(mut list) = explicit(&tiles.devices) else { return tiles.devices.clone() };
    list.chunks_mut(size as usize).for_each(<[i64]>::sort_unstable);
    TileDevices::Explicit(list)
}

/// An iota split so finely that each dimension of the tiles is a run of whole digits.
struct Digits {
    /// The sizes of the digits, in the order of the iota before it is transposed.
    sizes: Dims,
    /// For each dimension of the tiles, its digits, major first.
    of_tile: Vec<Vec<usize>>,
}

impl Digits {
    /// `None` if the dimensions of the tiles cut across those of the iota.
    fn of(iota: &IotaTransform, tile_dims: &[i64]) -> Option<Digits> {
        // The digits of each dimension of the iota, major first, and who they belong to.
        let mut parts: Vec<Vec<i64>> = vec![Vec::new(); iota.reshape_dims.len()];
        let mut of_tile: Vec<Vec<(usize, usize)>> = Vec::with_capacity(tile_dims.len());
        let mut axes = iota.transpose_perm.iter().map(|&p| p as usize);
        let (mut axis, mut left) = (0, 1);
        for &dim in tile_dims {
            let mut wanted = dim;
            let mut digits = Vec::new();
            while wanted > 1 {
                while left == 1 {
                    axis = axes.next()?;
                    left = *iota.reshape_dims.get(axis)?;
                }
                let digit = left.min(wanted);
                if left % digit != 0 || wanted % digit != 0 {
                    return None;
                }
                left /= digit;
                wanted /= digit;
                digits.push((axis, parts[axis].len()));
                parts[axis].push(digit);
            }
            of_tile.push(digits);
        }
        let firsts: Vec<usize> = parts
            .iter()
            .scan(0, |next, part| {
                let first = *next;
                *next += part.len();
                Some(first)
            })
            .collect();
        let of_tile = of_tile.into_iter().map(|d| d.into_iter().map(|(axis, i)| firsts[axis] + i).collect()).collect();
        Some(Digits { sizes: parts.into_iter().flatten().collect(), of_tile })
    }

    /// The iota whose digits come in that order.
    fn in_order(&self, order: impl Iterator<Item = usize>) -> IotaTransform {
        IotaTransform { reshape_dims: self.sizes.clone(), transpose_perm: order.map(|d| d as i64).collect() }
            .canonical()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SubgroupType::*;

    fn iota(dims: &[i64], reshape: &[i64], perm: &[i64], subgroups: Subgroups) -> ShardingKind {
        let devices = IotaTransform { reshape_dims: reshape.into(), transpose_perm: perm.into() };
        ShardingKind::Tiled(TileAssignment { dims: dims.into(), devices: TileDevices::Iota(devices), subgroups })
    }
    fn listed(dims: &[i64], devices: &[i64], subgroups: Subgroups) -> ShardingKind {
        ShardingKind::Tiled(TileAssignment {
            dims: dims.into(),
            devices: TileDevices::Explicit(devices.to_vec()),
            subgroups,
        })
    }

    #[test]
    fn subgroups_are_sorted_and_merged() {
        assert_eq!(
            iota(&[2, 2], &[4], &[0], Subgroups::Types(vec![Replicated, Manual])).canonical(),
            iota(&[2, 2], &[2, 2], &[1, 0], Subgroups::Types(vec![Manual, Replicated])),
        );
        assert_eq!(
            listed(&[1, 1, 2, 2], &[0, 1, 2, 3], Subgroups::Types(vec![Replicated, Manual])).canonical(),
            listed(&[1, 1, 2, 2], &[0, 2, 1, 3], Subgroups::Types(vec![Manual, Replicated])),
        );
        assert_eq!(
            iota(&[2, 2, 1, 2], &[8], &[0], Subgroups::Types(vec![Manual, Replicated, Manual])).canonical(),
            iota(&[2, 4], &[8], &[0], Subgroups::Types(vec![Manual])),
        );
    }

    #[test]
    fn replicated_groups_are_in_ascending_order() {
        assert_eq!(
            listed(&[1, 2, 2], &[1, 0, 3, 2], Subgroups::ReplicateLast).canonical(),
            listed(&[1, 2, 2], &[0, 1, 2, 3], Subgroups::ReplicateLast),
        );
        assert_eq!(
            iota(&[2, 2, 4], &[2, 8], &[1, 0], Subgroups::ReplicateLast).canonical(),
            iota(&[2, 2, 4], &[2, 4, 2], &[1, 0, 2], Subgroups::ReplicateLast),
        );
    }

    #[test]
    fn what_is_not_cut_is_no_tiling() {
        assert_eq!(listed(&[1, 2], &[0, 1], Subgroups::ReplicateLast).canonical(), ShardingKind::Replicated);
        assert_eq!(listed(&[1, 2], &[0, 1], Subgroups::Types(vec![Manual])).canonical(), ShardingKind::Manual);
        assert_eq!(
            listed(&[2, 1], &[1, 0], Subgroups::ReplicateLast).canonical(),
            listed(&[2], &[1, 0], Subgroups::None)
        );
    }

    /// Whatever the form, the groups of devices that hold the same tile stay the same.
    #[test]
    fn the_meaning_stays() {
        let groups = |kind: &ShardingKind| {
            let ShardingKind::Tiled(t) = kind else { panic!("{kind:?} is not tiled") };
            let list = explicit(&t.devices).expect("few devices");
            let size = *t.dims.last().expect("a replicated dimension") as usize;
            let mut groups: Vec<Vec<i64>> = list.chunks(size).map(<[i64]>::to_vec).collect();
            groups.iter_mut().for_each(|g| g.sort_unstable());
            groups
        };
        for (reshape, perm) in [
            (&[4, 6][..], &[1, 0][..]),
            (&[2, 3, 4], &[2, 0, 1]),
            (&[2, 2, 2, 3], &[3, 1, 0, 2]),
            (&[24], &[0]),
            (&[3, 8], &[1, 0]),
        ] {
            for dims in [&[4, 6][..], &[6, 4], &[2, 4, 3], &[2, 3, 4], &[2, 12], &[3, 8]] {
                let given = iota(dims, reshape, perm, Subgroups::ReplicateLast);
                let canonical = given.clone().canonical();
                assert_eq!(groups(&given), groups(&canonical), "{given:?}");
                assert_eq!(canonical.clone().canonical(), canonical);
            }
        }
    }

    #[test]
    fn nonsense_stays_as_it_is() {
        let wrong = listed(&[2, 2], &[0], Subgroups::Types(vec![Manual, Manual, Manual]));
        assert_eq!(wrong.clone().canonical(), wrong);
    }
}
