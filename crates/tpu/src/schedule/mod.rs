//! Schedules: first one that keeps little memory live, then, where collectives run beside other work, one that hides them.

mod latency;
mod list;

use crate::edit::flow_computations;
use crate::elapsed::Elapsed;
use crate::stage::{StageContext, staged};
use hloom_compiler::registry;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::order::PostOrder;
use hloom_passes::Pass;

/// The stage that adds copies.
pub(crate) static COPIES: Pass = Pass {
    name: "insert-copies",
    statement: "adds the copies without which loops, branches, in-place operations and results could not share memory",
    keeps_schedule: false,
    run: |module, context| {
        staged(module, context, |module, context| {
            let pass = registry().find("copy-insertion")?;
            (pass.run)(module, &hloom_passes::Context { info: context.target })
        })
    },
};

/// The stage that orders every computation for little memory.
pub(crate) static LIST: Pass = Pass {
    name: "list-schedule",
    statement: "orders every computation so that little memory is live at once",
    keeps_schedule: true,
    run: |module, context| staged(module, context, list_schedule),
};

fn list_schedule(module: &mut Module, context: &StageContext<'_>) -> Result<usize, Diagnostic> {
    let mut is_body = vec![false; module.computation_slots()];
    for &c in module.computations() {
        for &i in module[c].instructions() {
            if let Op::Fusion(fusion) = &module[i].op {
                is_body[fusion.calls.index()] = true;
            }
        }
    }
    let mut orders = Vec::new();
    let mut post_order = PostOrder::new(module);
    for &c in module.computations() {
        let order = match is_body[c.index()] {
            true => post_order.instructions(c),
            false => list::order(module, c, context.target, &mut post_order)?,
        };
        orders.push((c, scalars_first(module, order)));
    }
    for (c, order) in orders {
        // An order has every instruction once, so it is not refused.
        let _ = module.reorder(c, order);
    }
    module.is_scheduled = true;
    Ok(1)
}

/// Parameters that are single numbers go to the front of the entry: what is computed of them decides on addresses.
fn scalars_first(module: &Module, order: Vec<InstructionId>) -> Vec<InstructionId> {
    let Some(&first) = order.first() else { return order };
    if module.entry() != Some(module[first].parent()) {
        return order;
    }
    let is_first = |i: &InstructionId| {
        matches!(module[*i].op, Op::Parameter { .. })
            && module[*i].shape.as_array().is_some_and(|a| a.is_scalar())
            && module[*i].common.control_predecessors().is_empty()
    };
    let (front, rest): (Vec<_>, Vec<_>) = order.into_iter().partition(is_first);
    front.into_iter().chain(rest).collect()
}

/// The stage that hides collectives.
pub(crate) static LATENCY: Pass = Pass {
    name: "latency-hiding-schedule",
    statement: "starts collectives early and waits for them late, so that other work hides them",
    keeps_schedule: true,
    run: |module, context| staged(module, context, hide_latency),
};

fn hide_latency(module: &mut Module, context: &StageContext<'_>) -> Result<usize, Diagnostic> {
    let computations: Vec<_> =
        flow_computations(module).into_iter().filter(|&c| latency::has_starts(module, c)).collect();
    let orders: Vec<_> = match computations.is_empty() {
        true => Vec::new(),
        false => {
            let elapsed = Elapsed::new(module, context)?;
            computations.into_iter().map(|c| (c, latency::order(module, c, &elapsed))).collect()
        }
    };
    let changes = orders.len();
    for (c, order) in orders {
        let order = scalars_first(module, order);
        let _ = module.reorder(c, order);
    }
    Ok(changes)
}
