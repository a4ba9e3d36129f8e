//! Writing what was found back into the program.

use super::build::{Built, Store};
use super::edit::all_ops;
use super::read::is_tensor;
use crate::factors::{Graph, MeshId, TensorSharding};
use hloom_stablehlo::mlir::{Attr, AttrId, Module, Named, OpId, ValueId};
use rustc_hash::FxHashMap;

/// Sets an attribute, in place of the one of that name.
pub(super) fn set_attribute(m: &mut Module<'_>, op: OpId, name: &'static str, id: AttrId) {
    let attributes = &mut m.ops[op.index()].attributes;
    match attributes.iter_mut().find(|(n, _)| n == name) {
        Some(slot) => slot.1 = id,
        // In the order of their names, as MLIR keeps them.
        None => {
            let place = attributes.iter().position(|(n, _)| **n > *name && n.contains('.') == name.contains('.'));
            attributes.insert(place.unwrap_or(attributes.len()), (name.into(), id));
        }
    }
}

/// Sets or takes away the `sdy.sharding` of the `i`th argument or result of a function.
pub(super) fn set_of_function(m: &mut Module<'_>, function: OpId, list: &'static str, i: usize, id: Option<AttrId>) {
    let count = match list {
        "arg_attrs" => m.op(function).regions.first().map_or(0, |&r| m.arguments(r).len()),
        _ => match m.find(function, "function_type").map(|id| m.attr(id)) {
            Some(Attr::Type(ty)) => match m.ty(*ty) {
                hloom_stablehlo::mlir::Type::Function(_, results) => results.len(),
                _ => 0,
            },
            _ => 0,
        },
    };
    if i >= count {
        return;
    }
    let mut dicts: Vec<AttrId> = m.find(function, list).map_or(Vec::new(), |id| m.list(id).to_vec());
    if dicts.is_empty() && id.is_none() {
        return;
    }
    while dicts.len() < count {
        dicts.push(m.add_attr(Attr::Dict(Vec::new())));
    }
    let mut fields: Vec<Named<'_>> = match m.attr(dicts[i]) {
        Attr::Dict(fields) => fields.clone(),
        _ => Vec::new(),
    };
    fields.retain(|(name, _)| name != "sdy.sharding");
    if let Some(id) = id {
        fields.push(("sdy.sharding".into(), id));
    }
    dicts[i] = m.add_attr(Attr::Dict(fields));
    let id = m.add_attr(Attr::Array(dicts));
    set_attribute(m, function, list, id);
}

/// Writes the shardings of the graph's values.
pub(super) fn shardings(m: &mut Module<'_>, built: &Built) {
    // Shardings that are written as a list, one for each value of an operation.
    let mut lists: FxHashMap<(OpId, &'static str), Vec<(usize, TensorSharding)>> = FxHashMap::default();
    let mut order: Vec<(OpId, &'static str)> = Vec::new();
    for (i, value) in built.graph.values.iter().enumerate() {
        let Some(sharding) = &value.sharding else { continue };
        let own = crate::factors::ValueRef(i as u32);
        let whole = match built.views.get(&own) {
            Some(view) => view.add(sharding),
            None => sharding.clone(),
        };
        let (key, number) = match built.stores[i] {
            Store::Argument(function, n) => {
                let id = attribute(m, built, &whole);
                set_of_function(m, function, "arg_attrs", n, Some(id));
                continue;
            }
            Store::FunctionResult(function, n) => {
                let id = attribute(m, built, &whole);
                set_of_function(m, function, "res_attrs", n, Some(id));
                continue;
            }
            Store::Attribute(op) => {
                let id = attribute(m, built, sharding);
                set_attribute(m, op, "sharding", id);
                continue;
            }
            Store::Result(op, n) => ((op, "sdy.sharding"), n),
            Store::In(op, n) => ((op, "in_shardings"), n),
            Store::Out(op, n) => ((op, "out_shardings"), n),
        };
        let list = lists.entry(key).or_insert_with(|| {
            order.push(key);
            Vec::new()
        });
        list.push((number, whole));
    }
    for key in order {
        let given = lists.remove(&key).unwrap_or_default();
        write_list(m, built, key, given);
    }
}

/// Writes a list of shardings; values of which nothing is known are open, over the same mesh.
fn write_list(
    m: &mut Module<'_>,
    built: &Built,
    (op, name): (OpId, &'static str),
    given: Vec<(usize, TensorSharding)>,
) {
    let values: Vec<ValueId> = match name {
        "in_shardings" => m.op(op).operands.to_vec(),
        _ => m.op(op).results().collect(),
    };
    let Some(mesh) = given.first().map(|(_, s)| s.mesh) else { return };
    let mut all: Vec<AttrId> = Vec::with_capacity(values.len());
    for (i, &value) in values.iter().enumerate() {
        let known = given.iter().find(|(n, _)| *n == i);
        let old = m.find(op, name).and_then(|id| m.field(id, "shardings")).and_then(|l| m.list(l).get(i).copied());
        let id = match (known, old) {
            (Some((_, sharding)), _) => attribute(m, built, sharding),
            (None, Some(old)) => old,
            (None, None) => {
                let rank = if is_tensor(m, value) { super::read::dims(m, value).len() } else { 0 };
                attribute(m, built, &TensorSharding::fully_open(mesh, rank))
            }
        };
        all.push(id);
    }
    let id = m.add_sharding_per_value(all);
    set_attribute(m, op, name, id);
}

fn attribute(m: &mut Module<'_>, built: &Built, sharding: &TensorSharding) -> AttrId {
    sharding_attribute(m, &built.graph, &built.meshes.attributes, sharding)
}

pub(super) fn sharding_attribute(
    m: &mut Module<'_>,
    graph: &Graph,
    meshes: &[AttrId],
    sharding: &TensorSharding,
) -> AttrId {
    let MeshId(mesh) = sharding.mesh;
    m.add_sharding(&graph.to_named(sharding), meshes[mesh as usize])
}

/// Writes the rules by which shardings went.
pub(super) fn rules(m: &mut Module<'_>, built: &Built) {
    for &(op, op_ref) in &built.rules {
        if m.find(op, "sdy.sharding_rule").is_none() {
            let text = built.graph.ops[op_ref.index()].rule.to_string();
            let id = m.add_attr(Attr::Opaque(text.into_bytes().into()));
            set_attribute(m, op, "sdy.sharding_rule", id);
        }
    }
}

/// Takes rules away, but for those that the program gave on its own account.
pub(super) fn drop_rules(m: &mut Module<'_>) {
    for op in all_ops(m) {
        let custom = |m: &Module<'_>, id: AttrId| m.attr_text(id).ends_with("custom>");
        if m.find(op, "sdy.sharding_rule").is_some_and(|id| !custom(m, id)) {
            m.ops[op.index()].attributes.retain(|(name, _)| name != "sdy.sharding_rule");
        }
    }
}
