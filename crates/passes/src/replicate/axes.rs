//! The edges of manual computations, by the axes of their mesh.

use super::{Replicate, Tiling, error};
use hloom_ir::Op;
use hloom_ir::device_list::AxisRef;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::sharding::{DimSharding, NamedSharding, Sharding, ShardingKind};

/// Where a value goes into a manual computation, or comes out of one.
pub(super) struct Edge<'m> {
    /// How it is cut outside.
    outside: &'m NamedSharding,
    /// The axes that are manual inside.
    manual: &'m [AxisRef],
    pub(super) inward: bool,
}

fn named(module: &Module, i: InstructionId) -> Option<&NamedSharding> {
    match module[i].common.sharding.as_deref() {
        Some(Sharding::Leaf(leaf)) => match &leaf.kind {
            ShardingKind::Named(named) => Some(named),
            _ => None,
        },
        _ => None,
    }
}

impl<'m> Edge<'m> {
    /// The edge that instruction `i` is, if it is one.
    pub(super) fn of(module: &'m Module, i: InstructionId) -> Option<Edge<'m>> {
        let Op::CustomCall(call) = &module[i].op else { return None };
        let &[x] = module[i].operands() else { return None };
        let (inward, outside, inside) = match &*call.target {
            "SPMDFullToShardShape" => (true, x, i),
            "SPMDShardToFullShape" => (false, i, x),
            _ => return None,
        };
        Some(Edge { outside: named(module, outside)?, manual: &named(module, inside)?.manual, inward })
    }

    /// How the value is cut over `devices`. With `own` that is what the body has to do with: axes that it leaves to others
    /// do not cut.
    pub(super) fn tiling(&self, devices: usize, own: bool) -> Replicate<Tiling> {
        let mut named = self.outside.clone();
        if own {
            let is_manual = |axis: &AxisRef| self.manual.iter().any(|m| m.axis == axis.axis);
            named.dims.iter_mut().for_each(|d| d.axes.retain(is_manual));
            named.unreduced.retain(is_manual);
        }
        named.manual.clear();
        let rank = named.dims.len();
        Tiling::of(&ShardingKind::Named(named).into(), rank, devices)
    }

    /// Where each device is on the axes that the manual computation leaves to others; all at one place if it leaves none.
    pub(super) fn free_places(&self, devices: usize) -> Replicate<Vec<i64>> {
        let axes = 0..self.outside.mesh.axes.len() as u32;
        let free = axes.filter(|a| self.manual.iter().all(|m| m.axis != *a));
        let free = free.map(|axis| AxisRef { axis, sub_axis: None }).collect();
        let mut named = NamedSharding::fully_open(self.outside.mesh.clone(), 0);
        named.dims.push(DimSharding::closed(free));
        let places = Tiling::of(&ShardingKind::Named(named).into(), 1, devices)?;
        let place = |at: &Vec<i64>| at.first().copied().ok_or_else(|| error("a device has no place in a mesh"));
        places.index.iter().map(place).collect()
    }
}
