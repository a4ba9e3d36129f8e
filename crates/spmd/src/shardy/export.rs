//! What comes after propagation.

use super::edit::{Insertions, Uses, add_unary, all_ops, name_id};
use super::groups::given_sharding;
use super::import::{named, transform};
use super::read::{main_function, of_function, per_value};
use super::write::{set_attribute, set_of_function};
use crate::rules::gcd;
use hloom_ir::device_list::AxisRef;
use hloom_ir::sharding::NamedSharding;
use hloom_stablehlo::mlir::{Attr, AttrId, Module, OpId, OpKind, ValueId};

/// Hands the shardings of edges that are operations to what they are edges of, and takes the edges away.
pub(super) fn sink_edges(m: &mut Module<'_>) {
    let mut insertions = Insertions::default();
    let mut replaced: rustc_hash::FxHashMap<ValueId, ValueId> = Default::default();
    for op in all_ops(m) {
        let node = m.op(op);
        if node.operands.iter().any(|v| replaced.contains_key(v)) {
            let operands = node.operands.iter().map(|v| replaced.get(v).copied().unwrap_or(*v)).collect();
            m.ops[op.index()].operands = operands;
        }
        if matches!(m.kind(op), OpKind::SdyDataFlowEdge | OpKind::SdyFuncDataFlowEdge) {
            if let Some(&owner) = m.op(op).operands.first() {
                replaced.insert(m.op(op).first_result, owner);
            }
            insertions.remove(op);
        }
    }
    insertions.apply(m);
}

/// Takes sharding groups away.
pub(super) fn remove_groups(m: &mut Module<'_>) {
    let mut insertions = Insertions::default();
    for op in all_ops(m) {
        if m.kind(op) == OpKind::SdyShardingGroup {
            insertions.remove(op);
        }
    }
    insertions.apply(m);
}

/// Constraints are now what the program must do.
pub(super) fn constraints_to_reshards(m: &mut Module<'_>) {
    let name = name_id(m, "sdy.reshard");
    for op in all_ops(m) {
        if m.kind(op) == OpKind::SdyShardingConstraint {
            m.ops[op.index()].name = name;
        }
    }
}

/// A sum that a reshard asks to be made: an all-reduce in front of it, over the axes along which it no longer is in parts.
pub(super) fn sums_before_reshards(m: &mut Module<'_>) {
    let uses = Uses::new(m);
    let mut insertions = Insertions::default();
    for op in all_ops(m) {
        let (OpKind::SdyReshard, Some(&input)) = (m.kind(op), m.op(op).operands.first()) else { continue };
        let given = given_sharding(m, &uses, input).and_then(|id| named(m, id));
        let wanted = m.find(op, "sharding").and_then(|id| named(m, id));
        let (Some((mut given, mesh)), Some((wanted, _))) = (given, wanted) else { continue };
        let is_kept = |a: &AxisRef| wanted.unreduced.contains(a);
        let summed: Vec<AxisRef> = given.unreduced.iter().filter(|a| !is_kept(a)).cloned().collect();
        if summed.is_empty() {
            continue;
        }
        given.unreduced.retain(is_kept);
        let out = m.add_sharding(&given, mesh);
        let axis = |a: &AxisRef| {
            let name = given.mesh.axes.get(a.axis as usize).map_or("", |x| &x.0);
            a.sub_axis.map_or_else(|| format!("\"{name}\""), |(pre, size)| format!("\"{name}\":({pre}){size}"))
        };
        let axes: Vec<String> = summed.iter().map(axis).collect();
        let axes = Attr::Opaque(format!("#sdy<axis_ref_list{{{}}}>", axes.join(", ")).into_bytes().into());
        let axes = m.add_attr(axes);
        let (sum, result) = add_unary(m, "sdy.all_reduce", input, Some(("out_sharding", out)), Some(op));
        set_attribute(m, sum, "reduction_axes", axes);
        insertions.before(op, sum);
        m.ops[op.index()].operands[0] = result;
    }
    insertions.apply(m);
}

/// No dimension is left open.
pub(super) fn close(m: &mut Module<'_>) {
    transform(m, |sharding| {
        for dim in &mut sharding.dims {
            dim.closed = true;
            dim.priority = None;
        }
        sharding.replicated.clear();
    });
}

/// The longest start of the axes of each dimension that cuts it into equal parts.
pub(crate) fn evenly_cut(sharding: &mut NamedSharding, dims: &[i64]) {
    let mesh = sharding.mesh.clone();
    let size =
        |axis: &AxisRef| axis.sub_axis.map_or_else(|| mesh.axes.get(axis.axis as usize).map_or(1, |a| a.1), |s| s.1);
    for (dim, &length) in sharding.dims.iter_mut().zip(dims) {
        let parts = dim.axes.iter().fold(1i64, |n, a| n.saturating_mul(size(a)));
        if parts > 0 && length % parts == 0 {
            continue;
        }
        let mut left = length;
        let mut kept = Vec::new();
        for axis in &dim.axes {
            let common = gcd(size(axis), left);
            if common == 1 {
                break;
            }
            if common == size(axis) {
                kept.push(axis.clone());
                left /= common;
            } else {
                let pre = axis.sub_axis.map_or(1, |s| s.0);
                kept.push(AxisRef { axis: axis.axis, sub_axis: Some((pre, common)) });
                break;
            }
        }
        dim.axes = kept;
    }
}

/// Open dimensions without the first sub-axis and what is minor to it.
pub(crate) fn whole_axes(sharding: &mut NamedSharding) {
    for dim in sharding.dims.iter_mut().filter(|d| !d.closed) {
        if let Some(first) = dim.axes.iter().position(|a| a.sub_axis.is_some()) {
            dim.axes.truncate(first);
        }
    }
}

/// Changes the shardings of a function's arguments and results.
fn of_edges(m: &mut Module<'_>, function: OpId, mut change: impl FnMut(&mut NamedSharding, &[i64])) {
    let Some(&region) = m.op(function).regions.first() else { return };
    let arguments: Vec<ValueId> = m.arguments(region).map(ValueId).collect();
    let results = super::edit::returned(m, region).to_vec();
    for (list, values) in [("arg_attrs", arguments), ("res_attrs", results)] {
        for (i, &value) in values.iter().enumerate() {
            let given = of_function(m, function, list, i);
            let Some((mut sharding, mesh)) = given.and_then(|id| named(m, id)) else { continue };
            change(&mut sharding, &super::read::dims(m, value));
            let id = m.add_sharding(&sharding, mesh);
            set_of_function(m, function, list, i, Some(id));
        }
    }
}

/// Inputs and outputs of functions, of calls and of manual computations are cut into equal parts.
pub(super) fn divide_inputs_and_outputs(m: &mut Module<'_>) {
    let functions: Vec<OpId> = m.functions().map(|(_, op)| op).collect();
    for function in functions {
        of_edges(m, function, evenly_cut);
    }
    for op in all_ops(m) {
        let lists: &[&'static str] = match m.kind(op) {
            OpKind::Call => &["sdy.sharding"],
            OpKind::SdyManualComputation => &["in_shardings", "out_shardings"],
            _ => continue,
        };
        for &list in lists {
            let values: Vec<ValueId> = match list {
                "in_shardings" => m.op(op).operands.to_vec(),
                _ => m.op(op).results().collect(),
            };
            let mut all: Vec<AttrId> = Vec::new();
            for (i, &value) in values.iter().enumerate() {
                let Some(old) = per_value(m, op, list, i) else { break };
                let Some((mut sharding, mesh)) = named(m, old) else { break };
                evenly_cut(&mut sharding, &super::read::dims(m, value));
                all.push(m.add_sharding(&sharding, mesh));
            }
            if !all.is_empty() && all.len() == values.len() {
                let id = m.add_sharding_per_value(all);
                set_attribute(m, op, list, id);
            }
        }
    }
}

/// The program's open inputs and outputs are cut along whole axes only.
pub(super) fn remove_sub_axes(m: &mut Module<'_>) {
    if let Some(main) = main_function(m) {
        of_edges(m, main, |sharding, _| whole_axes(sharding));
    }
}
