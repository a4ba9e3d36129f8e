//! What collectives give to all devices alike, once for all of them.
//!
//! Sums and gathers are the same on every device of a group. Where nobody changes them afterwards the devices read one
//! and the same array, which the run brings besides their own memory: it is written once, and stays in the caches. It is
//! written again only after all of the group have come to the same collective again, and so have read what they needed.

use crate::collective::{group, work};
use crate::thunk::Location;
use hloom_comm::Collective;
use hloom_eval::run::DeviceGrid;
use hloom_ir::entity::InstructionId;
use hloom_plan::Plan;
use hloom_plan::dataflow::ValueId;
use rustc_hash::FxHashMap;

/// An array that the devices of a group have in common.
#[derive(Debug)]
pub(crate) struct SharedBuffer {
    pub(crate) bytes: usize,
    /// For each device the number of its group.
    pub(crate) groups: Vec<u32>,
}

/// Finds what can be common, and gives it places of its own: allocations after those of the plan.
pub(crate) fn find(plan: &Plan<'_>, grid: DeviceGrid, locations: &mut [Location]) -> Vec<SharedBuffer> {
    let (dataflow, mut shared_buffers) = (&plan.dataflow, Vec::new());
    if grid.devices() < 2 {
        return shared_buffers;
    }
    let module = dataflow.module();
    let mut moved: FxHashMap<ValueId, Location> = FxHashMap::default();
    for &i in module.computations().iter().flat_map(|&c| module[c].instructions()) {
        let Some(groups) = groups(plan, grid, i) else { continue };
        for position in dataflow.positions.of(i).filter(|&p| !dataflow.positions.is_tuple(p)) {
            let Some(value) = dataflow.at(position) else { continue };
            let is_own = dataflow.value(value).is_some_and(|v| v.position == position);
            let is_alone = plan.buffers.values(plan.buffers.of(value)).len() == 1;
            let location = locations.get(position as usize).copied().unwrap_or(Location::NOWHERE);
            let is_temporary = plan.allocations.get(location.allocation as usize).is_some_and(|a| a.is_temporary());
            let bytes = dataflow.positions.shape(position).byte_size().and_then(|n| usize::try_from(n).ok());
            if let (true, true, true, Some(bytes)) = (is_own, is_alone, is_temporary, bytes) {
                let allocation = (plan.allocations.len() + shared_buffers.len()) as u32;
                moved.insert(value, Location { allocation, offset: 0 });
                shared_buffers.push(SharedBuffer { bytes, groups: groups.clone() });
            }
        }
    }
    if !moved.is_empty() {
        for (position, location) in (0..).zip(locations) {
            if let Some(&place) = dataflow.at(position).and_then(|v| moved.get(&v)) {
                *location = place;
            }
        }
    }
    shared_buffers
}

/// The number of each device's group, if the collective gives the same to all of a group, whatever the device.
fn groups(plan: &Plan<'_>, grid: DeviceGrid, i: InstructionId) -> Option<Vec<u32>> {
    let module = plan.dataflow.module();
    let op = &module[i].op;
    op.collective()?;
    let work = work(module, i).filter(Collective::gives_all_the_same)?;
    let mut numbers: FxHashMap<Vec<usize>, u32> = FxHashMap::default();
    let mut of_device = Vec::with_capacity(grid.devices());
    for device in 0..grid.devices() {
        let group = group(op, grid, device).filter(|g| work.fits(g.len()))?;
        let next = numbers.len() as u32;
        of_device.push(*numbers.entry(group).or_insert(next));
    }
    Some(of_device)
}
