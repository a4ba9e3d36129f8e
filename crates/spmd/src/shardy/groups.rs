//! Sharding groups: values that must have one sharding.

use super::edit::{Insertions, Uses, add_unary, all_ops};
use super::read::{of_function, per_value};
use hloom_stablehlo::mlir::{AttrId, Module, OpId, OpKind, ValueId};
use rustc_hash::FxHashMap;

/// The groups of the program, with the operations that name their members.
fn groups(m: &Module<'_>) -> Vec<(i64, Vec<OpId>)> {
    let mut order: Vec<(i64, Vec<OpId>)> = Vec::new();
    for op in all_ops(m) {
        if m.kind(op) != OpKind::SdyShardingGroup {
            continue;
        }
        let Some(id) = m.find(op, "group_id").and_then(|g| m.as_int(g)) else { continue };
        match order.iter_mut().find(|(g, _)| *g == id) {
            Some((_, ops)) => ops.push(op),
            None => order.push((id, vec![op])),
        }
    }
    order
}

/// Joins groups that have a value in common, and drops members that are named twice.
pub(super) fn import(m: &mut Module<'_>) {
    let found = groups(m);
    if found.is_empty() {
        return;
    }
    let number: FxHashMap<i64, usize> = found.iter().enumerate().map(|(i, (id, _))| (*id, i)).collect();
    let mut parent: Vec<usize> = (0..found.len()).collect();
    let root = |parent: &mut Vec<usize>, mut i: usize| {
        while parent[i] != i {
            parent[i] = parent[parent[i]];
            i = parent[i];
        }
        i
    };
    let mut first: FxHashMap<ValueId, usize> = FxHashMap::default();
    for (id, ops) in &found {
        for &op in ops {
            let Some(&value) = m.op(op).operands.first() else { continue };
            let own = number[id];
            let other = *first.entry(value).or_insert(own);
            let (a, b) = (root(&mut parent, own), root(&mut parent, other));
            parent[a.max(b)] = a.min(b);
        }
    }
    // Groups are numbered anew, in the order of the smallest number that each had.
    let mut roots: Vec<(i64, usize)> = Vec::new();
    for (i, (id, _)) in found.iter().enumerate() {
        let r = root(&mut parent, i);
        match roots.iter_mut().find(|(_, other)| *other == r) {
            Some((smallest, _)) => *smallest = (*smallest).min(*id),
            None => roots.push((*id, r)),
        }
    }
    roots.sort_unstable();
    let mut insertions = Insertions::default();
    let mut seen: rustc_hash::FxHashSet<(usize, ValueId)> = Default::default();
    for (i, (_, ops)) in found.iter().enumerate() {
        let r = root(&mut parent, i);
        let new = roots.iter().position(|(_, other)| *other == r).unwrap_or(0);
        for &op in ops {
            let Some(&value) = m.op(op).operands.first() else { continue };
            if !seen.insert((new, value)) {
                insertions.remove(op);
                continue;
            }
            let ty = m.find(op, "group_id").map(|g| m.attr(g).clone());
            if let Some(hloom_stablehlo::mlir::Attr::Integer(_, ty)) = ty {
                let id = m.add_attr(hloom_stablehlo::mlir::Attr::Integer(new as i64, ty));
                super::write::set_attribute(m, op, "group_id", id);
            }
        }
    }
    insertions.apply(m);
}

/// The sharding that the program gives a value itself.
pub(super) fn given_sharding(m: &Module<'_>, uses: &Uses, value: ValueId) -> Option<AttrId> {
    match uses.def[value.index()] {
        Some(op) => match m.kind(op) {
            OpKind::SdyShardingConstraint | OpKind::SdyReshard | OpKind::SdyDataFlowEdge => m.find(op, "sharding"),
            OpKind::SdyManualComputation => {
                per_value(m, op, "out_shardings", (value.0 - m.op(op).first_result.0) as usize)
            }
            _ => per_value(m, op, "sdy.sharding", (value.0 - m.op(op).first_result.0) as usize),
        },
        None => uses.argument.get(&value).and_then(|&(f, i)| of_function(m, f, "arg_attrs", i)),
    }
}

/// Where members of a group have different shardings of their own, each gets a constraint that leaves all open, and that is
/// the member instead.
pub(super) fn separate_conflicts(m: &mut Module<'_>) {
    let found = groups(m);
    if found.is_empty() {
        return;
    }
    let uses = Uses::new(m);
    let mut insertions = Insertions::default();
    for (_, ops) in found {
        let members: Vec<ValueId> = ops.iter().filter_map(|&op| m.op(op).operands.first().copied()).collect();
        let says_nothing = |text: &str| {
            let dims = text.split_once('[').map_or("", |(_, rest)| rest);
            dims.chars().all(|c| "{}[]?, >".contains(c)) && !text.contains("{}")
        };
        let texts: Vec<(AttrId, String)> = members
            .iter()
            .filter_map(|&v| given_sharding(m, &uses, v))
            .map(|id| (id, m.attr_text(id)))
            .filter(|(_, text)| !says_nothing(text))
            .collect();
        let Some((first, text)) = texts.first() else { continue };
        if texts.iter().all(|(_, other)| other == text) {
            continue;
        }
        let Some(mesh) = m.field(*first, "mesh").and_then(|id| Some((id, m.mesh(id)?))) else { continue };
        for value in members {
            let rank = super::read::dims(m, value).len();
            let open = hloom_ir::sharding::NamedSharding::fully_open(std::sync::Arc::new(mesh.1.clone()), rank);
            let sharding = m.add_sharding(&open, mesh.0);
            let def = uses.def[value.index()];
            let (op, result) = add_unary(m, "sdy.sharding_constraint", value, Some(("sharding", sharding)), def);
            match (def, uses.region[value.index()]) {
                (Some(def), _) => insertions.after(def, op),
                (None, Some(region)) => insertions.at_start(region, op),
                (None, None) => continue,
            }
            for &(user, n) in uses.users(value) {
                m.ops[user.index()].operands[n as usize] = result;
            }
        }
    }
    insertions.apply(m);
}
