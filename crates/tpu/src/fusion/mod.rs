//! Fusion: what is computed together, so that what is between it is never stored.
//!
//! Three steps for each computation that runs as steps of the program: groups with one result each ([`group`]), groups with
//! several ([`multi_output`]), and the fusions themselves ([`build`]). A convolution's group becomes an output fusion, with
//! a loop fusion inside it for each operand that is worked on; every other group becomes a loop fusion.

pub(crate) mod build;
mod classify;
mod group;
mod multi_output;
pub(crate) mod operands;
mod remake;
mod rows;

use crate::edit::{flow_computations, remove_dead};
use crate::stage::{StageContext, staged};
use classify::{Role, Roles};
use group::{Group, Groups, Side};
use hloom_ir::attributes::FusionKind;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::order::PostOrder;
use hloom_passes::Pass;
use rustc_hash::FxHashSet;

/// The stage.
pub(crate) static STAGE: Pass = Pass {
    name: "tpu-fusion",
    statement: "puts what is computed together into output and loop fusions",
    keeps_schedule: false,
    run: |module, context| staged(module, context, fuse_module),
};

fn fuse_module(module: &mut Module, context: &StageContext<'_>) -> Result<usize, Diagnostic> {
    let mut changes = 0;
    for c in flow_computations(module) {
        changes += fuse_computation(module, c, context)?;
    }
    remove_dead(module, context.target)?;
    Ok(changes)
}

fn fuse_computation(module: &mut Module, c: ComputationId, context: &StageContext<'_>) -> Result<usize, Diagnostic> {
    let mut changes = fuse_scatters(module, c);
    let order = PostOrder::new(module).instructions(c);
    let mut roles = Roles::new(module, &order);
    remake::mark(module, &order, &mut roles, context)?;
    let mut groups = Groups::new(module, &order, &roles, &context.policy);
    multi_output::merge(module, &order, &roles, &mut groups);
    for group in &groups.groups {
        changes += usize::from(fuse_group(module, &roles, &groups, group).is_some());
    }
    Ok(changes)
}

/// A scatter into what is cheap, as the zeros that a gradient is added to, makes that itself: it is not stored first.
fn fuse_scatters(module: &mut Module, c: ComputationId) -> usize {
    let is_single =
        |i: &InstructionId| matches!(module[*i].op, Op::Scatter(_)) && module[*i].shape.as_array().is_some();
    let scatters: Vec<InstructionId> = module[c].instructions().iter().copied().filter(is_single).collect();
    if scatters.is_empty() {
        return 0;
    }
    let roles = Roles::new(module, &PostOrder::new(module).instructions(c));
    let into_cheap = |i: &InstructionId| {
        let into = module[*i].operands().first();
        into.is_some_and(|&o| roles.of(o) == Role::Cheap) && module[*i].common.control_predecessors().is_empty()
    };
    let scatters: Vec<InstructionId> = scatters.into_iter().filter(into_cheap).collect();
    let mut fuse = |&i: &InstructionId| {
        let members = [i].into_iter().collect();
        build::fuse(module, &roles, &members, &[i], FusionKind::Custom, "scatter_fusion").is_some()
    };
    scatters.iter().filter(|i| fuse(i)).count()
}

fn fuse_group(module: &mut Module, roles: &Roles, groups: &Groups, group: &Group) -> Option<()> {
    let &first = group.roots.first()?;
    let is_bitcast = |i: InstructionId| matches!(module[i].op, Op::Bitcast);
    if let [only] = group.members.as_slice() {
        // A bitcast takes no time, and what is cheap has nothing to gain.
        if is_bitcast(*only) || roles.of(*only) == Role::Cheap && module[*only].operands().is_empty() {
            return None;
        }
    }
    let mut members: FxHashSet<InstructionId> = group.members.iter().copied().collect();
    let Some(convolution) = group.convolution else {
        let name = loop_name(module, first);
        build::fuse(module, roles, &members, &group.roots, FusionKind::Loop, name)?;
        return Some(());
    };
    for n in 0..module[convolution].operands().len() {
        let on_side = |i: &&InstructionId| groups.of.get(*i).is_some_and(|&(_, s)| s == Side::Operand(n));
        let mut side: FxHashSet<InstructionId> = group.members.iter().filter(on_side).copied().collect();
        // A part that is taken of an array stays beside the loop fusion, where everyone sees that only the part is read.
        let takes_part = |i: &InstructionId| {
            matches!(module[*i].op, Op::DynamicSlice { .. })
                && module[*i].operands().first().is_some_and(|o| !side.contains(o))
        };
        let parts: Vec<InstructionId> = side.iter().copied().filter(takes_part).collect();
        side.retain(|i| !parts.contains(i));
        let root = module[convolution].operands()[n];
        let is_cheap = roles.of(root) == Role::Cheap;
        // An operand that is only seen under other dimensions is no work.
        if !is_cheap && (side.is_empty() || side.iter().all(|&i| matches!(module[i].op, Op::Bitcast))) {
            continue;
        }
        let nested = fuse_operand(module, roles, &side, convolution, n)?;
        for i in &side {
            members.remove(i);
        }
        members.insert(nested);
    }
    build::fuse(module, roles, &members, &group.roots, FusionKind::Output, "fusion")?;
    Some(())
}

/// Makes a loop fusion of what makes operand `n` of the convolution.
fn fuse_operand(
    module: &mut Module,
    roles: &Roles,
    side: &FxHashSet<InstructionId>,
    convolution: InstructionId,
    n: usize,
) -> Option<InstructionId> {
    let root = module[convolution].operands()[n];
    if roles.of(root) == Role::Cheap {
        return build::fuse_read(module, roles, side, root, (convolution, n));
    }
    build::fuse(module, roles, side, &[root], FusionKind::Loop, loop_name(module, root))
}

/// What a loop fusion is called: by what it results in.
fn loop_name(module: &Module, root: InstructionId) -> &'static str {
    match module[root].op {
        Op::Reduce { .. } => "reduce_fusion",
        Op::DynamicUpdateSlice => "dynamic_update_slice_fusion",
        Op::Convert => "convert_fusion",
        _ => "loop_fusion",
    }
}
