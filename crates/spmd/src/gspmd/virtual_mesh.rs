//! Axes for devices that have none: the prime factors of their number.

use hloom_ir::device_list::{Mesh, MeshDevices, ReplicaGroups};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::sharding::{NamedSharding, Sharding, ShardingKind, TileAssignment};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The orders of prime factors that are tried, at most.
const MAX_ORDERS: usize = 64;

/// A mesh along whose axes as many annotations as can be cut their arrays; `None` if there are no tiles at all.
pub(super) fn find(module: &Module, given: &FxHashMap<InstructionId, Sharding>) -> Option<Arc<Mesh>> {
    let mut tiles: Vec<(InstructionId, usize, &TileAssignment)> = Vec::new();
    for (&i, sharding) in given {
        for (n, leaf) in sharding.leaves().iter().enumerate() {
            if let ShardingKind::Tiled(t) = &leaf.kind {
                tiles.push((i, n, t));
            }
        }
    }
    tiles.sort_by_key(|&(i, n, _)| (i, n));
    let devices = match tiles.iter().filter_map(|(_, _, t)| t.num_tiles()).max() {
        Some(n) => n,
        None if given.values().any(|s| s.leaves().iter().any(|l| l.kind == ShardingKind::Manual)) => {
            module.config.num_partitions.max(1)
        }
        None => module.config.num_partitions.max(1),
    };
    if !(1..=ReplicaGroups::MAX_DEVICES).contains(&devices) {
        return None;
    }
    let rank = |t: &TileAssignment| t.data_rank();
    let fits = |mesh: &Arc<Mesh>| {
        let is_named =
            |t: &&TileAssignment| NamedSharding::from_kind(&ShardingKind::Tiled((*t).clone()), rank(t), mesh).is_some();
        tiles.iter().map(|(_, _, t)| *t).filter(is_named).count()
    };
    let mut lists: Vec<MeshDevices> = vec![MeshDevices::Iota];
    lists.extend(tiles.iter().take(4).filter_map(|(_, _, t)| {
        let list = t.expand_devices()?;
        (list.len() as i64 == devices && !list.is_sorted()).then_some(MeshDevices::Explicit(list))
    }));
    let mut best: Option<(usize, Arc<Mesh>)> = None;
    for factors in orders(devices) {
        for list in &lists {
            let axes = factors.iter().enumerate().map(|(i, &f)| (format!("axis_{i}").into(), f)).collect();
            let mesh = Arc::new(Mesh { axes, devices: list.clone() });
            let count = fits(&mesh);
            if best.as_ref().is_none_or(|(most, _)| count > *most) {
                best = Some((count, mesh));
            }
            if count == tiles.len() {
                return best.map(|(_, mesh)| mesh);
            }
        }
    }
    best.map(|(_, mesh)| mesh)
}

/// The prime factors of `n` in different orders.
fn orders(n: i64) -> Vec<Vec<i64>> {
    let mut factors = Vec::new();
    let (mut left, mut p) = (n, 2);
    while p * p <= left {
        while left % p == 0 {
            factors.push(p);
            left /= p;
        }
        p += 1;
    }
    if left > 1 {
        factors.push(left);
    }
    let mut all: Vec<Vec<i64>> = vec![Vec::new()];
    for &f in &factors {
        let mut next: Vec<Vec<i64>> = Vec::new();
        for order in &all {
            for place in 0..=order.len() {
                let mut longer = order.clone();
                longer.insert(place, f);
                if !next.contains(&longer) && next.len() < MAX_ORDERS {
                    next.push(longer);
                }
            }
        }
        all = next;
    }
    all
}
