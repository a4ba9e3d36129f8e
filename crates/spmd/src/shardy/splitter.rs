//! A copy of each constant and each broadcast scalar for every use, so that one use's sharding is not another's; and equal
//! copies as one again.

use super::edit::{Insertions, Uses, all_ops, clone_op, name_id};
use super::read::dims;
use hloom_stablehlo::mlir::{Module, OpId, OpKind, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

fn preserves_constants(m: &Module<'_>, op: OpId) -> bool {
    let kind = m.kind(op);
    kind.is_elementwise() || matches!(kind, OpKind::BroadcastInDim | OpKind::Reshape | OpKind::Slice)
}

/// Gives each use of a constant expression or of a broadcast scalar its own copy.
pub(super) fn split(m: &mut Module<'_>) {
    let name = name_id(m, "sdy.constant");
    for op in all_ops(m) {
        if m.kind(op) == OpKind::Constant {
            m.ops[op.index()].name = name;
        }
    }
    let uses = Uses::new(m);
    let mut constants: FxHashSet<OpId> = FxHashSet::default();
    let mut order: Vec<OpId> = Vec::new();
    let mut insertions = Insertions::default();
    let def = |v: ValueId| uses.def.get(v.index()).copied().flatten();
    for op in all_ops(m) {
        let kind = m.kind(op);
        if matches!(kind, OpKind::Func | OpKind::SdyShardingGroup | OpKind::SdyMesh | OpKind::Module) {
            continue;
        }
        let operands = m.op(op).operands.clone();
        let constant_operands = operands.iter().all(|&v| def(v).is_some_and(|d| constants.contains(&d)));
        let is_constant = matches!(kind, OpKind::SdyConstant | OpKind::Iota)
            || (preserves_constants(m, op) && constant_operands && !operands.is_empty());
        let expands_scalar = kind == OpKind::BroadcastInDim && operands.first().is_some_and(|&v| dims(m, v).is_empty());
        if is_constant || expands_scalar {
            constants.insert(op);
            order.push(op);
            continue;
        }
        for (n, &value) in operands.iter().enumerate() {
            let Some(source) = def(value).filter(|d| constants.contains(d)) else { continue };
            if dims(m, value).is_empty() {
                continue;
            }
            let copy = copy_expression(m, source, value, &constants, &uses, &mut insertions);
            m.ops[op.index()].operands[n] = copy;
        }
    }
    // Originals that nobody uses any more are dropped, users before what they use.
    insertions.apply(m);
    let mut counts: FxHashMap<ValueId, usize> = FxHashMap::default();
    for op in all_ops(m) {
        for &v in &m.op(op).operands {
            *counts.entry(v).or_default() += 1;
        }
    }
    let groups = Uses::new(m);
    let mut dead = Insertions::default();
    for &op in order.iter().rev() {
        let users = |m: &Module<'_>| -> Vec<OpId> {
            m.op(op).results().flat_map(|v| groups.users(v).iter().map(|u| u.0).collect::<Vec<_>>()).collect()
        };
        let only_groups = users(m).iter().all(|&u| m.kind(u) == OpKind::SdyShardingGroup);
        let live: usize = m.op(op).results().map(|v| counts.get(&v).copied().unwrap_or(0)).sum();
        let in_groups = users(m).len();
        if live == 0 || (only_groups && live == in_groups) {
            for user in users(m) {
                dead.remove(user);
            }
            for v in m.op(op).operands.clone() {
                if let Some(count) = counts.get_mut(&v) {
                    *count = count.saturating_sub(1);
                }
            }
            dead.remove(op);
        }
    }
    dead.apply(m);
}

/// A copy of the expression that makes `value`, at the places of the originals; scalars are shared.
fn copy_expression(
    m: &mut Module<'_>,
    root: OpId,
    value: ValueId,
    constants: &FxHashSet<OpId>,
    uses: &Uses,
    insertions: &mut Insertions,
) -> ValueId {
    let mut map: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    // Operands before what uses them.
    let mut stack = vec![(root, false)];
    while let Some((op, ready)) = stack.pop() {
        if m.op(op).results().all(|v| map.contains_key(&v)) {
            continue;
        }
        if !ready {
            stack.push((op, true));
            for &v in m.op(op).operands.clone().iter().rev() {
                let source = uses.def.get(v.index()).copied().flatten();
                if let Some(source) = source.filter(|d| constants.contains(d) && !dims(m, v).is_empty()) {
                    stack.push((source, false));
                }
            }
            continue;
        }
        let copy = clone_op(m, op, &mut map);
        insertions.before(op, copy);
        for v in m.op(op).results() {
            for &(user, _) in uses.users(v) {
                if m.kind(user) == OpKind::SdyShardingGroup {
                    let group = clone_op(m, user, &mut map);
                    insertions.before(op, group);
                }
            }
        }
    }
    map.get(&value).copied().unwrap_or(value)
}

/// Makes equal constants and broadcast scalars of one region one.
pub(super) fn merge(m: &mut Module<'_>) {
    let mut insertions = Insertions::default();
    let mut replaced: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let mut region_of: FxHashMap<OpId, usize> = FxHashMap::default();
    for (r, region) in m.regions.iter().enumerate() {
        for block in &region.blocks {
            region_of.extend(block.ops.iter().map(|&op| (op, r)));
        }
    }
    let mut seen: FxHashMap<(usize, String), ValueId> = FxHashMap::default();
    for op in all_ops(m) {
        let node = m.op(op);
        if node.operands.iter().any(|v| replaced.contains_key(v)) {
            let operands = node.operands.iter().map(|v| replaced.get(v).copied().unwrap_or(*v)).collect();
            m.ops[op.index()].operands = operands;
        }
        let node = m.op(op);
        let is_scalar = |v: &ValueId| dims(m, *v).is_empty();
        let mergeable = match m.kind(op) {
            OpKind::SdyConstant | OpKind::Constant => true,
            OpKind::BroadcastInDim => node.operands.first().is_some_and(is_scalar),
            _ => false,
        };
        if !mergeable {
            continue;
        }
        let mut key: Vec<String> =
            node.attributes.iter().map(|(name, id)| format!("{name}={}", m.attr_text(*id))).collect();
        key.sort();
        key.push(m.type_text(m.value_type(node.first_result)));
        key.extend(node.operands.iter().map(|v| v.0.to_string()));
        let region = region_of.get(&op).copied().unwrap_or(usize::MAX);
        match seen.get(&(region, key.join(";"))) {
            Some(&kept) => {
                replaced.insert(node.first_result, kept);
                insertions.remove(op);
            }
            None => {
                seen.insert((region, key.join(";")), node.first_result);
            }
        }
    }
    insertions.apply(m);
}
