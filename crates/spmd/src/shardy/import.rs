//! Shardings made plain before propagation.

use super::edit::all_ops;
use hloom_ir::device_list::AxisRef;
use hloom_ir::sharding::NamedSharding;
use hloom_stablehlo::mlir::{Attr, AttrId, Module, OpKind};
use std::sync::Arc;

/// A `sdy.sharding` attribute with its mesh.
pub(super) fn named(m: &Module<'_>, id: AttrId) -> Option<(NamedSharding, AttrId)> {
    let mesh = m.field(id, "mesh")?;
    let found = Arc::new(m.mesh(mesh)?);
    Some((m.named_sharding(id, &found)?, mesh))
}

/// Changes every sharding of the program.
pub(super) fn transform(m: &mut Module<'_>, mut change: impl FnMut(&mut NamedSharding)) {
    for i in 0..m.attrs.len() {
        let id = AttrId(i as u32);
        if !matches!(m.attr(id), Attr::Struct(kind, _) if kind == "sdy.sharding") {
            continue;
        }
        let Some((old, mesh)) = named(m, id) else { continue };
        let mut new = old.clone();
        change(&mut new);
        if new != old {
            let made = m.add_sharding(&new, mesh);
            m.attrs[i] = m.attr(made).clone();
        }
    }
}

/// Leaves axes of one device out of all shardings.
pub(super) fn remove_size_one_axes(m: &mut Module<'_>) {
    transform(m, |sharding| {
        let mesh = sharding.mesh.clone();
        let cuts = |axis: &AxisRef| {
            axis.sub_axis.map_or_else(|| mesh.axes.get(axis.axis as usize).map_or(1, |a| a.1), |s| s.1) != 1
        };
        for dim in &mut sharding.dims {
            dim.axes.retain(cuts);
            if dim.axes.is_empty() && dim.closed {
                dim.priority = None;
            }
        }
        sharding.replicated.retain(cuts);
        sharding.unreduced.retain(cuts);
    });
}

/// Makes manual axes that cut no dimension of a value replicated ones, and puts manual axes in the order of the mesh.
pub(super) fn clean_manual_axes(m: &mut Module<'_>) {
    for op in all_ops(m) {
        if m.kind(op) != OpKind::SdyManualComputation {
            continue;
        }
        let names = m.find(op, "manual_axes").and_then(|id| m.field(id, "axes"));
        let names: Vec<String> =
            names.map_or(&[][..], |id| m.list(id)).iter().filter_map(|&a| m.as_str(a).map(str::to_owned)).collect();
        for list in ["in_shardings", "out_shardings"] {
            let Some(shardings) = m.find(op, list).and_then(|id| m.field(id, "shardings")) else { continue };
            let is_tensor: Vec<bool> = match list {
                "in_shardings" => m.op(op).operands.iter().map(|&v| super::read::is_tensor(m, v)).collect(),
                _ => m.op(op).results().map(|v| super::read::is_tensor(m, v)).collect(),
            };
            let mut all = m.list(shardings).to_vec();
            for (i, id) in all.iter_mut().enumerate() {
                let Some((mut sharding, mesh)) = named(m, *id) else { continue };
                if is_tensor.get(i) != Some(&true) {
                    continue;
                }
                let lists = sharding.dims.iter().map(|d| &d.axes).chain([&sharding.replicated, &sharding.unreduced]);
                let used: Vec<u32> = lists.flatten().map(|a| a.axis).collect();
                for (axis, (name, size)) in sharding.mesh.axes.iter().enumerate() {
                    let axis = axis as u32;
                    if *size > 1 && names.iter().any(|n| **n == **name) && !used.contains(&axis) {
                        sharding.replicated.push(AxisRef { axis, sub_axis: None });
                    }
                }
                sharding.replicated.sort_by_key(|a| (a.axis, a.sub_axis));
                *id = m.add_sharding(&sharding, mesh);
            }
            let id = m.add_sharding_per_value(all);
            super::write::set_attribute(m, op, list, id);
        }
    }
}
