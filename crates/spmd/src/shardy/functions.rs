//! Calls: a copy of a function for each call before propagation, and one for all that turned out alike afterwards.

use super::edit::{all_ops, clone_deep, returned};
use super::groups::given_sharding;
use super::read::{main_function, of_function};
use super::write::{set_attribute, set_of_function};
use hloom_stablehlo::mlir::{Attr, Module, OpId, OpKind};
use rustc_hash::{FxHashMap, FxHashSet};

/// No program has more copies of functions than this; what would have more keeps sharing them.
const MAX_COPIES: usize = 1 << 16;

fn by_name(m: &Module<'_>) -> FxHashMap<String, OpId> {
    m.functions().map(|(name, op)| (name.to_owned(), op)).collect()
}

fn calls_in(m: &Module<'_>, function: OpId) -> Vec<OpId> {
    let Some(&region) = m.op(function).regions.first() else { return Vec::new() };
    super::edit::ops_within(m, region).into_iter().filter(|&op| m.kind(op) == OpKind::Call).collect()
}

/// Takes away private functions that nothing calls.
pub(super) fn remove_uncalled(m: &mut Module<'_>) {
    let Some(main) = main_function(m) else { return };
    let names = by_name(m);
    let is_private = |m: &Module<'_>, op: OpId| m.string_attr(op, "sym_visibility") == Some("private");
    let mut stack: Vec<OpId> = names.values().copied().filter(|&f| f == main || !is_private(m, f)).collect();
    let mut kept: FxHashSet<OpId> = stack.iter().copied().collect();
    while let Some(function) = stack.pop() {
        let Some(&region) = m.op(function).regions.first() else { continue };
        for op in super::edit::ops_within(m, region) {
            for (_, id) in &m.op(op).attributes {
                let symbols: Vec<&str> = match m.attr(*id) {
                    Attr::Symbol(_) => m.as_str(*id).into_iter().collect(),
                    Attr::Array(items) => items.iter().filter_map(|&i| m.as_str(i)).collect(),
                    _ => continue,
                };
                for name in symbols {
                    if let Some(&callee) = names.get(name)
                        && kept.insert(callee)
                    {
                        stack.push(callee);
                    }
                }
            }
        }
    }
    let dead: FxHashSet<OpId> = names.values().copied().filter(|f| !kept.contains(f)).collect();
    if let Some(&region) = m.root.and_then(|root| m.op(root).regions.first()) {
        for block in &mut m.regions[region.index()].blocks {
            block.ops.retain(|op| !dead.contains(op));
        }
    }
}

/// A call without shardings has those of its function's results.
pub(super) fn results_to_calls(m: &mut Module<'_>) {
    let names = by_name(m);
    for op in all_ops(m) {
        if m.kind(op) != OpKind::Call || m.find(op, "sdy.sharding").is_some() {
            continue;
        }
        let Some(&callee) = m.string_attr(op, "callee").and_then(|n| names.get(n)) else { continue };
        let count = m.op(op).result_count as usize;
        let all: Option<Vec<_>> = (0..count).map(|i| of_function(m, callee, "res_attrs", i)).collect();
        if let Some(all) = all.filter(|a| !a.is_empty()) {
            let id = m.add_sharding_per_value(all);
            set_attribute(m, op, "sdy.sharding", id);
        }
    }
}

/// Gives each call a function of its own.
pub(super) fn flatten(m: &mut Module<'_>) {
    let Some(main) = main_function(m) else { return };
    let mut names = by_name(m);
    let mut called: FxHashSet<OpId> = FxHashSet::default();
    let mut pending = vec![main];
    let mut copies = 0;
    let mut new = Vec::new();
    while let Some(function) = pending.pop() {
        for call in calls_in(m, function) {
            let Some(callee) = m.string_attr(call, "callee").and_then(|n| names.get(n)).copied() else { continue };
            if called.insert(callee) {
                pending.push(callee);
                continue;
            }
            copies += 1;
            if copies > MAX_COPIES {
                continue;
            }
            let base = m.string_attr(callee, "sym_name").unwrap_or("f").to_owned();
            let original = m.string_attr(callee, "sdy.original_func_name").unwrap_or(&base).to_owned();
            let copy = clone_deep(m, callee, &mut FxHashMap::default());
            let name = (0..).map(|i| format!("{original}_{i}")).find(|n| !names.contains_key(n)).unwrap_or_default();
            let string = m.add_attr(Attr::String(name.clone().into_bytes().into()));
            set_attribute(m, copy, "sym_name", string);
            let original = m.add_attr(Attr::String(original.into_bytes().into()));
            set_attribute(m, copy, "sdy.original_func_name", original);
            let symbol = m.add_attr(Attr::Symbol(name.clone().into_bytes().into()));
            set_attribute(m, call, "callee", symbol);
            names.insert(name, copy);
            called.insert(copy);
            new.push(copy);
            pending.push(copy);
        }
    }
    if let Some(&region) = m.root.and_then(|root| m.op(root).regions.first())
        && let Some(block) = m.regions[region.index()].blocks.first_mut()
    {
        block.ops.extend(new);
    }
}

/// The results of functions other than the first have the shardings of what they return.
pub(super) fn returned_shardings(m: &mut Module<'_>) {
    let main = main_function(m);
    let functions: Vec<OpId> = m.functions().map(|(_, op)| op).filter(|&f| Some(f) != main).collect();
    let uses = super::edit::Uses::new(m);
    for function in functions {
        let Some(&region) = m.op(function).regions.first() else { continue };
        for (i, value) in returned(m, region).into_iter().enumerate() {
            let sharding = given_sharding(m, &uses, value);
            set_of_function(m, function, "res_attrs", i, sharding);
        }
    }
}

/// Copies of a function with the same shardings become one again.
pub(super) fn merge_copies(m: &mut Module<'_>) {
    let names = by_name(m);
    let key = |m: &Module<'_>, function: OpId| {
        let own = m.string_attr(function, "sym_name").unwrap_or("");
        let original = m.string_attr(function, "sdy.original_func_name").unwrap_or(own).to_owned();
        let list = |name: &str| m.find(function, name).map(|id| m.attr_text(id)).unwrap_or_default();
        (original, list("arg_attrs"), list("res_attrs"))
    };
    let mut first: FxHashMap<(String, String, String), OpId> = FxHashMap::default();
    for op in all_ops(m) {
        if m.kind(op) != OpKind::Call {
            continue;
        }
        let Some(&callee) = m.string_attr(op, "callee").and_then(|n| names.get(n)) else { continue };
        let kept = *first.entry(key(m, callee)).or_insert(callee);
        if kept != callee {
            let name = m.string_attr(kept, "sym_name").unwrap_or("").to_owned();
            let symbol = m.add_attr(Attr::Symbol(name.into_bytes().into()));
            set_attribute(m, op, "callee", symbol);
        }
    }
    let functions: Vec<OpId> = m.functions().map(|(_, op)| op).collect();
    for function in functions {
        m.ops[function.index()].attributes.retain(|(name, _)| name != "sdy.original_func_name");
    }
}
