//! Propagation of named shardings over an HLO module.

use super::hlo_graph::HloGraph;
use super::report::PropagationReport;
use super::{check, prepare, regions, write_back};
use crate::factors::engine::{self, Order, Rounds};
use crate::factors::{Strategy, ValueRef};
use hloom_ir::Op;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::sharding::{Sharding, ShardingKind};

/// The computations that run as steps of the program, callers first.
pub(crate) fn sequential(module: &Module) -> Vec<ComputationId> {
    let mut order: Vec<ComputationId> = module.entry().into_iter().collect();
    let mut next = 0;
    while let Some(&c) = order.get(next) {
        next += 1;
        for &i in module[c].instructions() {
            if matches!(module[i].op, Op::While { .. } | Op::Conditional { .. } | Op::Call { .. }) {
                order.extend(module[i].op.called_computations());
            }
        }
    }
    order
}

/// Gives every instruction of a prepared module a sharding.
pub(super) fn propagate(module: &mut Module) -> Result<PropagationReport, Vec<Diagnostic>> {
    let computations = sequential(module);
    check::check(module, &computations)?;
    apply_constraints(module, &computations)?;
    regions::separate(module, &computations)?;
    let mut built = HloGraph::new(module, &computations);
    built.apply_annotations(module, &computations);
    let rounds =
        Rounds { strategy: Strategy::Aggressive, op_priority: true, user_priority: true, order: Order::Latest };
    engine::run(&mut built.graph, rounds);
    write_back::shardings(module, &built, &computations)?;
    Ok(PropagationReport::new(built))
}

pub(super) fn is_constraint(module: &Module, i: InstructionId) -> bool {
    matches!(&module[i].op, Op::CustomCall(c) if &*c.target == "Sharding")
}

/// Whether a constraint leaves no choice.
fn is_closed(module: &Module, i: InstructionId) -> bool {
    match module[i].common.sharding.as_deref() {
        Some(Sharding::Leaf(leaf)) => match &leaf.kind {
            ShardingKind::Named(named) => !named.dims.is_empty() && named.dims.iter().all(|d| d.closed),
            _ => false,
        },
        _ => false,
    }
}

/// The one sharding that all constraints of a value ask for, if they agree.
fn constraints_agree(module: &Module, x: InstructionId) -> bool {
    let mut all = module[x].users().iter().filter(|&&u| is_constraint(module, u));
    let first = all.next().map(|&u| &module[u].common.sharding);
    all.all(|&u| Some(&module[u].common.sharding) == first)
}

/// A closed constraint on the state of a loop, or on what a conditional gives: others use the constraint instead, so that
/// the loop keeps its freedom.
fn apply_constraints(module: &mut Module, computations: &[ComputationId]) -> Result<(), Vec<Diagnostic>> {
    for &c in computations {
        let mut changed = false;
        for i in module[c].instructions().to_vec() {
            if !is_constraint(module, i) || !is_closed(module, i) {
                continue;
            }
            let x = module[i].operands()[0];
            if module[x].common.sharding.is_some() || !flows_in(module, c, x) || !constraints_agree(module, x) {
                continue;
            }
            let users = module[x].users().to_vec();
            if users.len() < 2 {
                continue;
            }
            for user in users {
                for n in 0..module[user].operands().len() {
                    if user != i && module[user].operands()[n] == x && !is_constraint(module, user) {
                        module.replace_operand(user, n, i).map_err(prepare::failed)?;
                        changed = true;
                    }
                }
            }
        }
        if changed {
            let order = hloom_ir::order::PostOrder::new(module).instructions(c);
            module.reorder(c, order).map_err(prepare::failed)?;
        }
    }
    Ok(())
}

/// Whether a value comes along an edge of the data flow: the state of a loop inside or after it, or a conditional's result.
fn flows_in(module: &Module, c: ComputationId, x: InstructionId) -> bool {
    let mut at = x;
    while let Op::GetTupleElement { .. } = module[at].op {
        match module[at].operands().first() {
            Some(&tuple) => at = tuple,
            None => return false,
        }
    }
    match &module[at].op {
        Op::While { .. } | Op::Conditional { .. } | Op::OptBarrier => true,
        Op::Parameter { .. } => module.entry() != Some(c),
        Op::CustomCall(call) => matches!(&*call.target, "SPMDFullToShardShape" | "SPMDShardToFullShape"),
        _ => false,
    }
}

impl HloGraph {
    /// Copies a closed constraint to its input, where the input has no sharding and no other constraint differs.
    pub(crate) fn apply_annotations(&mut self, module: &Module, computations: &[ComputationId]) {
        let built = self;
        for &c in computations {
            for &i in module[c].instructions() {
                if !is_constraint(module, i) || !is_closed(module, i) {
                    continue;
                }
                let x = module[i].operands()[0];
                if flows_in(module, c, x) || !constraints_agree(module, x) {
                    continue;
                }
                let value = |i: InstructionId| built.values(module, i).first().copied().flatten();
                let input = value(x);
                // At the edge of a manual computation the annotation is seen from outside.
                let wanted = match built.views.iter().find(|(placed, _, _)| *placed == i) {
                    Some((_, inside, view)) => {
                        built.graph.values[inside.index()].sharding.as_ref().map(|s| view.add(s))
                    }
                    None => value(i).and_then(|v| built.graph.values[v.index()].sharding.clone()),
                };
                let is_open = |v: ValueRef| built.graph.values[v.index()].sharding.is_none();
                if let (Some(input), Some(mut wanted)) = (input.filter(|&v| is_open(v)), wanted) {
                    wanted.replicated.clear();
                    let origin = built.graph.values[input.index()].users.first().copied();
                    let origin = origin.map_or(crate::factors::Origin::Annotated, crate::factors::Origin::Through);
                    built.graph.history.push((input, origin, wanted.clone()));
                    built.graph.values[input.index()].sharding = Some(wanted);
                }
            }
        }
    }
}
