//! Axes for devices that have none: the prime factors of their number.

use hloom_ir::device_list::{Mesh, MeshDevices, ReplicaGroups};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::sharding::{NamedSharding, Sharding, ShardingKind, TileAssignment};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The orders of prime factors that are tried, at most.
const MAX_ORDERS: usize = 64;

/// A mesh for each number of devices that annotations speak of.
pub(super) struct Meshes {
    by_size: FxHashMap<i64, Arc<Mesh>>,
    /// Without axes: for what is replicated, which fits any mesh.
    none: Arc<Mesh>,
    /// The one with most devices.
    pub main: Arc<Mesh>,
}

impl Meshes {
    /// Along whose axes as many annotations as can be cut their arrays.
    pub(super) fn find(module: &Module, given: &FxHashMap<InstructionId, Sharding>) -> Meshes {
        let mut tiles: Vec<(InstructionId, &TileAssignment)> = Vec::new();
        let mut manual = false;
        for (&i, sharding) in given {
            for leaf in sharding.leaves() {
                match &leaf.kind {
                    ShardingKind::Tiled(t) => tiles.push((i, t)),
                    ShardingKind::Manual | ShardingKind::Unreduced => manual = true,
                    _ => {}
                }
            }
        }
        tiles.sort_by_key(|&(i, _)| i);
        let mut by_size: FxHashMap<i64, Vec<&TileAssignment>> = FxHashMap::default();
        for (_, t) in &tiles {
            if let Some(n) = t.num_tiles().filter(|n| (1..=ReplicaGroups::MAX_DEVICES).contains(n)) {
                by_size.entry(n).or_default().push(t);
            }
        }
        // What is manual is so over some axis, even if nothing says how many devices there are.
        let least = if manual { 2 } else { 1 };
        let most = by_size.keys().copied().max().unwrap_or(module.config.num_partitions).max(least);
        by_size.entry(most.min(ReplicaGroups::MAX_DEVICES)).or_default();
        let by_size: FxHashMap<i64, Arc<Mesh>> = by_size.into_iter().map(|(n, t)| (n, best(n, &t))).collect();
        let none = Arc::new(Mesh { axes: Vec::new(), devices: MeshDevices::Iota });
        let main = by_size.get(&most).unwrap_or(&none).clone();
        Meshes { by_size, none, main }
    }

    /// The mesh of a sharding.
    pub(super) fn of(&self, kind: &ShardingKind) -> &Arc<Mesh> {
        match kind {
            ShardingKind::Replicated => &self.none,
            ShardingKind::Tiled(t) => t.num_tiles().and_then(|n| self.by_size.get(&n)).unwrap_or(&self.main),
            _ => &self.main,
        }
    }
}

fn best(devices: i64, tiles: &[&TileAssignment]) -> Arc<Mesh> {
    let fits = |mesh: &Arc<Mesh>| {
        let is_named = |t: &&&TileAssignment| {
            NamedSharding::from_kind(&ShardingKind::Tiled((**t).clone()), t.data_rank(), mesh).is_some()
        };
        tiles.iter().filter(is_named).count()
    };
    let mut lists: Vec<MeshDevices> = vec![MeshDevices::Iota];
    for t in tiles.iter().take(4) {
        let list = t.expand_devices().unwrap_or_default();
        if list.len() as i64 == devices && !list.iter().copied().eq(0..devices) {
            lists.push(MeshDevices::Explicit(list));
        }
    }
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
                break;
            }
        }
    }
    best.map_or_else(|| Arc::new(Mesh { axes: Vec::new(), devices: MeshDevices::Iota }), |(_, mesh)| mesh)
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
