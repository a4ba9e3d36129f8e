//! Where the arrays that go into and come out of the program lie, in whatever order of devices the program states.
//!
//! A program may name several orders of its devices, and one grid of axes expresses only some of them. An array in another
//! order is cut as the grid would cut it, and its shards change places by one permute where it enters or leaves.

use super::Emit;
use super::axes::{DeviceAxes, tiles_of};
use super::body::{Body, Part, Val};
use super::spec::Spec;
use hloom_ir::device_list::ReplicaGroups;
use hloom_ir::entity::InstructionId;
use hloom_ir::sharding::{LeafSharding, ShardingKind, Subgroups, TileDevices};

/// How an array of the program's arguments or results lies.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// How it is cut.
    pub spec: Spec,
    /// What is stated of it, where the grid does not express that.
    stated: Option<StatedOrder>,
}

/// An order of devices that the grid does not express.
#[derive(Clone, Debug, PartialEq)]
struct StatedOrder {
    sharding: ShardingKind,
    /// By logical number, the device that has the shard on which the grid's device works.
    devices: Vec<i64>,
}

impl Placement {
    pub(crate) fn new(axes: &DeviceAxes, sharding: Option<&LeafSharding>, spec: Spec) -> Placement {
        let stated = sharding.and_then(|leaf| stated_order(axes, leaf, &spec));
        Placement { spec, stated }
    }

    /// The device that has the shard of a logical number.
    pub fn device(&self, axes: &DeviceAxes, logical: i64) -> i64 {
        self.stated.as_ref().map_or_else(|| axes.device(logical), |s| s.devices[logical as usize])
    }

    /// The logical number whose shard a device has.
    pub fn logical(&self, axes: &DeviceAxes, device: i64) -> i64 {
        if self.stated.is_none() && axes.order().is_none() {
            return device;
        }
        (0..axes.devices()).find(|&logical| self.device(axes, logical) == device).unwrap_or(device)
    }

    /// The sharding that says so.
    pub fn to_sharding(&self, axes: &DeviceAxes) -> ShardingKind {
        self.stated.as_ref().map_or_else(|| self.spec.to_sharding(axes), |s| s.sharding.clone())
    }

    /// By device, the number of the shard that it has.
    fn shards(&self, axes: &DeviceAxes) -> Vec<i64> {
        let used: Vec<u8> = self.spec.used().list().to_vec();
        let mut shards = vec![0; axes.devices() as usize];
        for logical in 0..axes.devices() {
            if let Some(shard) = shards.get_mut(self.device(axes, logical) as usize) {
                *shard = axes.coordinate(logical, &used);
            }
        }
        shards
    }

    /// By device, where the shard comes from that it works on (`into` the program), or that it is to have at the end.
    fn sources(&self, axes: &DeviceAxes, into: bool) -> Option<Vec<i64>> {
        let stated = self.stated.as_ref()?;
        let mut sources = vec![0; stated.devices.len()];
        for (logical, &outside) in (0..).zip(&stated.devices) {
            let inside = axes.device(logical);
            let (to, from) = if into { (inside, outside) } else { (outside, inside) };
            *sources.get_mut(usize::try_from(to).ok()?)? = from;
        }
        Some(sources)
    }
}

fn stated_order(axes: &DeviceAxes, leaf: &LeafSharding, spec: &Spec) -> Option<StatedOrder> {
    let tiles = tiles_of(&leaf.kind)?;
    if axes.tile_axes(&tiles).is_some() || spec.used().is_empty() {
        return None;
    }
    let lists = axes.tiles_in_order(&tiles.dims)?;
    if lists.get(..spec.dims.len())? != &spec.dims[..] {
        return None;
    }
    let order: Vec<u8> = lists.into_iter().flatten().collect();
    let mut listed = match &tiles.devices {
        TileDevices::Explicit(list) => list.clone(),
        TileDevices::Iota(iota) => iota.expand(ReplicaGroups::MAX_DEVICES)?,
    };
    if listed.len() as i64 != axes.devices() {
        return None;
    }
    let mut logical: Vec<i64> = (0..axes.devices()).map(|i| axes.with_coordinate(0, &order, i)).collect();
    // Which of several devices with the same shard is which does not matter: one that has its shard keeps it.
    let copies = match &tiles.subgroups {
        Subgroups::ReplicateLast => tiles.dims.last().copied().unwrap_or(1),
        _ => 1,
    };
    let copies = usize::try_from(copies).ok().filter(|&c| c > 0)?;
    for (numbers, holders) in logical.chunks_mut(copies).zip(listed.chunks_mut(copies)) {
        let mut at = 0;
        for n in 0..numbers.len() {
            let own = axes.device(numbers[n]);
            if let Some(found) = holders[at..].iter().position(|&h| h == own) {
                holders.swap(at, at + found);
                numbers.swap(at, n);
                at += 1;
            }
        }
    }
    let mut devices = vec![0; listed.len()];
    for (&number, &holder) in logical.iter().zip(&listed) {
        *devices.get_mut(usize::try_from(number).ok()?)? = holder;
    }
    let sharding = ShardingKind::Tiled(tiles.into_owned());
    Some(StatedOrder { sharding, devices })
}

impl Body<'_, '_> {
    /// A value whose shards lie as the placements of its leaves say, as the grid has them.
    pub(crate) fn entered(&mut self, value: Val, placements: &mut std::slice::Iter<'_, Placement>) -> Emit<Val> {
        self.relocated(value, placements, false)
    }

    /// A value whose shards are to lie as the placements of its leaves say.
    pub(crate) fn left(&mut self, value: Val, placements: &mut std::slice::Iter<'_, Placement>) -> Emit<Val> {
        self.relocated(value, placements, true)
    }

    /// Takes down which shards of an argument devices have.
    pub(crate) fn remember_entry(&mut self, value: &Val, placements: &mut std::slice::Iter<'_, Placement>) {
        match value {
            Val::Array(part) => {
                if let Some(placement) = placements.next() {
                    let shards = placement.shards(self.axes());
                    self.entries.insert(part.id, shards);
                }
            }
            Val::Tuple(elements) => elements.iter().for_each(|e| self.remember_entry(e, placements)),
            Val::Other(_) => {
                placements.next();
            }
        }
    }

    /// Whether the order of devices that is stated of an array of the source is none that the grid expresses.
    pub(crate) fn is_off_grid(&self, i: InstructionId) -> bool {
        let leaves = self.p.source[i].common.sharding.as_deref().map_or(&[][..], |s| s.leaves());
        leaves.iter().filter_map(|l| tiles_of(&l.kind)).any(|tiles| self.axes().tile_axes(&tiles).is_none())
    }

    fn relocated(&mut self, value: Val, placements: &mut std::slice::Iter<'_, Placement>, leaves: bool) -> Emit<Val> {
        Ok(match value {
            Val::Array(part) => {
                let sources = placements.next().and_then(|p| Some((p.spec.clone(), p.sources(self.axes(), !leaves)?)));
                let Some((spec, sources)) = sources else { return Ok(Val::Array(part)) };
                let part = if leaves { self.resharded(&part, &spec)? } else { part };
                let id = self.relocate(part.id, &sources)?;
                Val::Array(Part { id, free: None, ..part })
            }
            Val::Tuple(elements) => {
                let moved = elements.into_iter().map(|e| self.relocated(e, placements, leaves));
                Val::Tuple(moved.collect::<Emit<Vec<_>>>()?)
            }
            other => {
                placements.next();
                other
            }
        })
    }
}
