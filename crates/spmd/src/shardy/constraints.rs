//! Closed constraints as shardings of what they constrain.

use super::State;
use super::edit::{Insertions, Uses, add_unary};
use super::groups::given_sharding;
use super::import::named;
use super::write::{set_attribute, set_of_function};
use hloom_stablehlo::mlir::{AttrId, Module, OpId, OpKind, ValueId};

/// Copies closed shardings of constraints to their inputs where nothing speaks against it.
pub(super) fn apply(m: &mut Module<'_>, state: State) {
    let mut insertions = Insertions::default();
    let mut uses = Uses::new(m);
    // Inner operations before those around them.
    for op in post_order(m) {
        match m.kind(op) {
            OpKind::SdyShardingConstraint => constraint(m, &mut uses, op, state, &mut insertions),
            OpKind::SdyManualComputation => {
                for i in 0..m.op(op).operands.len() {
                    let Some(sharding) = super::read::per_value(m, op, "in_shardings", i) else { continue };
                    let input = m.op(op).operands[i];
                    if !should_apply(m, &uses, input, sharding, state) {
                        continue;
                    }
                    if !is_edge(m, &uses, input, state) {
                        set(m, &uses, input, sharding);
                        continue;
                    }
                    let (new, result) =
                        add_unary(m, "sdy.sharding_constraint", input, Some(("sharding", sharding)), Some(op));
                    place_after(&uses, input, new, &mut insertions);
                    for (user, n) in uses.users(input).to_vec() {
                        uses.replace(m, user, n, result);
                    }
                    uses.note(new, input, result);
                }
            }
            _ => {}
        }
    }
    insertions.apply(m);
}

fn post_order(m: &Module<'_>) -> Vec<OpId> {
    let mut out = Vec::with_capacity(m.ops.len());
    // Each operation once on the way in and once on the way out.
    let mut stack: Vec<(OpId, bool)> = m.body().iter().rev().map(|&op| (op, false)).collect();
    while let Some((op, done)) = stack.pop() {
        if done {
            out.push(op);
            continue;
        }
        stack.push((op, true));
        for &region in m.op(op).regions.iter().rev() {
            for block in m.region(region).blocks.iter().rev() {
                stack.extend(block.ops.iter().rev().map(|&op| (op, false)));
            }
        }
    }
    out
}

fn place_after(uses: &Uses, value: ValueId, op: OpId, insertions: &mut Insertions) {
    match (uses.def[value.index()], uses.region[value.index()]) {
        (Some(def), _) => insertions.after(def, op),
        (None, Some(region)) => insertions.at_start(region, op),
        (None, None) => {}
    }
}

/// Whether shardings flow into the value along an edge.
fn is_edge(m: &Module<'_>, uses: &Uses, value: ValueId, state: State) -> bool {
    match uses.def[value.index()].map(|op| m.kind(op)) {
        Some(OpKind::SdyDataFlowEdge) => true,
        Some(
            OpKind::While
            | OpKind::Case
            | OpKind::If
            | OpKind::OptimizationBarrier
            | OpKind::SdyManualComputation
            | OpKind::SdyNamedComputation,
        ) => state.edges,
        Some(_) => false,
        // Arguments of functions hold their shardings themselves; those of regions get theirs along edges.
        None => state.edges && !uses.argument.contains_key(&value),
    }
}

/// Whether a value can have a sharding at all.
fn is_shardable(m: &Module<'_>, uses: &Uses, value: ValueId, state: State) -> bool {
    super::read::is_tensor(m, value)
        && match uses.def[value.index()] {
            Some(_) => true,
            None => is_edge(m, uses, value, state) || uses.argument.contains_key(&value),
        }
}

fn should_apply(m: &Module<'_>, uses: &Uses, input: ValueId, sharding: AttrId, state: State) -> bool {
    if !is_shardable(m, uses, input, state) || given_sharding(m, uses, input).is_some() {
        return false;
    }
    if !named(m, sharding).is_some_and(|(s, _)| s.dims.iter().all(|d| d.closed)) {
        return false;
    }
    let text = m.attr_text(sharding);
    let differs = |&(user, n): &(OpId, u32)| {
        let other = match m.kind(user) {
            OpKind::SdyShardingConstraint => m.find(user, "sharding"),
            OpKind::SdyManualComputation => super::read::per_value(m, user, "in_shardings", n as usize),
            _ => None,
        };
        other.is_some_and(|id| m.attr_text(id) != text)
    };
    !uses.users(input).iter().any(differs)
}

fn set(m: &mut Module<'_>, uses: &Uses, value: ValueId, sharding: AttrId) {
    match uses.def[value.index()] {
        Some(op) => {
            let count = m.op(op).result_count as usize;
            let number = (value.0 - m.op(op).first_result.0) as usize;
            let mut all = Vec::with_capacity(count);
            let Some((like, mesh)) = named(m, sharding) else { return };
            for i in 0..count {
                let id = match super::read::per_value(m, op, "sdy.sharding", i) {
                    _ if i == number => sharding,
                    Some(old) => old,
                    None => {
                        let other = hloom_stablehlo::mlir::ValueId(m.op(op).first_result.0 + i as u32);
                        let rank = super::read::dims(m, other).len();
                        let open = hloom_ir::sharding::NamedSharding::fully_open(like.mesh.clone(), rank);
                        m.add_sharding(&open, mesh)
                    }
                };
                all.push(id);
            }
            let id = m.add_sharding_per_value(all);
            set_attribute(m, op, "sdy.sharding", id);
        }
        None => {
            if let Some(&(function, i)) = uses.argument.get(&value) {
                set_of_function(m, function, "arg_attrs", i, Some(sharding));
            }
        }
    }
}

/// The end of a chain of constraints that begins with `head`, if all of it is about one value.
fn tail_of_chain(m: &Module<'_>, uses: &Uses, head: OpId) -> Option<OpId> {
    let &input = m.op(head).operands.first()?;
    let is_constraint = |op: OpId| m.kind(op) == OpKind::SdyShardingConstraint;
    let constrains = |op: OpId| matches!(m.kind(op), OpKind::SdyShardingConstraint | OpKind::SdyManualComputation);
    if uses.def[input.index()].is_some_and(is_constraint) || given_sharding(m, uses, input).is_some() {
        return None;
    }
    if uses.users(input).iter().any(|&(user, _)| user != head && constrains(user)) {
        return None;
    }
    let mut tail = head;
    while let &[(next, _)] = uses.users(m.op(tail).first_result) {
        if !is_constraint(next) {
            break;
        }
        tail = next;
    }
    let ends_well = !uses.users(m.op(tail).first_result).iter().any(|&(user, _)| constrains(user));
    (tail != head && ends_well).then_some(tail)
}

fn constraint(m: &mut Module<'_>, uses: &mut Uses, op: OpId, state: State, insertions: &mut Insertions) {
    let Some(&input) = m.op(op).operands.first() else { return };
    if let Some(tail) = tail_of_chain(m, uses, op) {
        // Later uses of the input mean what the chain makes of it.
        let tail_place = uses.place.get(&tail);
        let is_later = |&(user, _): &(OpId, u32)| {
            let place = uses.place.get(&user);
            user != op
                && m.kind(user) != OpKind::FuncReturn
                && matches!((tail_place, place), (Some(t), Some(u)) if t.0 == u.0 && t.1 < u.1)
        };
        let later: Vec<(OpId, u32)> = uses.users(input).iter().copied().filter(is_later).collect();
        let result = m.op(tail).first_result;
        for (user, n) in later {
            uses.replace(m, user, n, result);
        }
    }
    let Some(sharding) = m.find(op, "sharding") else { return };
    if !should_apply(m, uses, input, sharding, state) {
        return;
    }
    if !is_edge(m, uses, input, state) {
        set(m, uses, input, sharding);
        return;
    }
    // A constraint comes right after the value, and others use it instead: the edge keeps its freedom.
    insertions.remove(op);
    let result = m.op(op).first_result;
    let (copy, copied) = add_unary(m, "sdy.sharding_constraint", input, Some(("sharding", sharding)), Some(op));
    place_after(uses, input, copy, insertions);
    let users: Vec<(OpId, u32)> = uses.users(input).iter().chain(uses.users(result)).copied().collect();
    for (user, n) in users {
        if user != op {
            uses.replace(m, user, n, copied);
        }
    }
    uses.note(copy, input, copied);
}
