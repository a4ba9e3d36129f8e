//! Closed constraints as shardings of what they constrain.

use super::State;
use super::edit::{Insertions, Uses, add_unary, all_ops};
use super::groups::{given_sharding, owner_region};
use super::import::named;
use super::write::{set_attribute, set_of_function};
use hloom_stablehlo::mlir::{AttrId, Module, OpId, OpKind, ValueId};

/// Copies closed shardings of constraints to their inputs where nothing speaks against it.
pub(super) fn apply(m: &mut Module<'_>, state: State) {
    let mut order = all_ops(m);
    // Inner operations before those around them.
    order.reverse();
    let mut post: Vec<OpId> = Vec::with_capacity(order.len());
    post_order(m, &mut post);
    let mut insertions = Insertions::default();
    for op in post {
        match m.kind(op) {
            OpKind::SdyShardingConstraint => constraint(m, op, state, &mut insertions),
            OpKind::SdyManualComputation => {
                for i in 0..m.op(op).operands.len() {
                    let Some(sharding) = super::read::per_value(m, op, "in_shardings", i) else { continue };
                    let input = m.op(op).operands[i];
                    let uses = Uses::new(m);
                    if !should_apply(m, &uses, input, sharding, state) {
                        continue;
                    }
                    if !is_edge(m, &uses, input, state) {
                        set(m, &uses, input, sharding);
                        continue;
                    }
                    let (new, result) =
                        add_unary(m, "sdy.sharding_constraint", input, Some(("sharding", sharding)), Some(op));
                    place_after(m, &uses, input, new, &mut insertions);
                    for &(user, n) in uses.users(input) {
                        m.ops[user.index()].operands[n as usize] = result;
                    }
                }
            }
            _ => {}
        }
    }
    insertions.apply(m);
}

fn post_order(m: &Module<'_>, out: &mut Vec<OpId>) {
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
}

fn place_after(m: &Module<'_>, uses: &Uses, value: ValueId, op: OpId, insertions: &mut Insertions) {
    match (uses.def[value.index()], owner_region(m, value)) {
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
        None => state.edges && !is_function_argument(m, value),
    }
}

fn is_function_argument(m: &Module<'_>, value: ValueId) -> bool {
    m.functions().any(|(_, f)| m.op(f).regions.first().is_some_and(|&r| m.arguments(r).contains(&value.0)))
}

/// Whether a value can have a sharding at all.
fn is_shardable(m: &Module<'_>, uses: &Uses, value: ValueId, state: State) -> bool {
    super::read::is_tensor(m, value)
        && match uses.def[value.index()] {
            Some(_) => true,
            None => is_edge(m, uses, value, state) || is_function_argument(m, value),
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
            let owner = m.functions().find_map(|(_, f)| {
                let arguments = m.arguments(*m.op(f).regions.first()?);
                arguments.contains(&value.0).then(|| (f, (value.0 - arguments.start) as usize))
            });
            if let Some((function, i)) = owner {
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

fn constraint(m: &mut Module<'_>, op: OpId, state: State, insertions: &mut Insertions) {
    let mut uses = Uses::new(m);
    let Some(&input) = m.op(op).operands.first() else { return };
    if let Some(tail) = tail_of_chain(m, &uses, op) {
        // Later uses of the input mean what the chain makes of it.
        let place = |op: OpId| {
            m.regions.iter().enumerate().find_map(|(r, region)| {
                let block = region.blocks.first()?;
                block.ops.iter().position(|&o| o == op).map(|i| (r, i))
            })
        };
        let tail_place = place(tail);
        let later: Vec<(OpId, u32)> = uses
            .users(input)
            .iter()
            .copied()
            .filter(|&(user, _)| {
                user != op
                    && m.kind(user) != OpKind::FuncReturn
                    && matches!((tail_place, place(user)), (Some(t), Some(u)) if t.0 == u.0 && t.1 < u.1)
            })
            .collect();
        let result = m.op(tail).first_result;
        for (user, n) in later {
            m.ops[user.index()].operands[n as usize] = result;
        }
        uses = Uses::new(m);
    }
    let Some(sharding) = m.find(op, "sharding") else { return };
    if !should_apply(m, &uses, input, sharding, state) {
        return;
    }
    if !is_edge(m, &uses, input, state) {
        set(m, &uses, input, sharding);
        return;
    }
    // The constraint comes right after the value, and others use it instead: the edge keeps its freedom.
    insertions.remove(op);
    let result = m.op(op).first_result;
    let (copy, copied) = add_unary(m, "sdy.sharding_constraint", input, Some(("sharding", sharding)), Some(op));
    place_after(m, &uses, input, copy, insertions);
    for &(user, n) in uses.users(input).iter().chain(uses.users(result)) {
        if user != op && user != copy {
            m.ops[user.index()].operands[n as usize] = copied;
        }
    }
}
