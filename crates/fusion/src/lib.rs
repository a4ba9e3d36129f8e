//! Fusion: instructions that are computed together, so that the values between them need no memory.
//!
//! [`short_rows`] prepares what is repeated, [`groups`] decides what is computed with what, [`multi_output`] puts groups
//! together that run over the same elements and read the same values, [`horizontal`] tiny ones that have nothing in
//! common, [`output`] adds the products that they follow, [`split`] cuts in two what no kernel is made of, and here the
//! groups become fusions. A fusion that ends in a
//! reduction is `kInput`, one that begins with a product `kOutput`, any other `kLoop`, as XLA's are. Only computations of
//! the program's flow are looked at: functions that are applied to elements have nothing to fuse.

mod cost;
mod groups;
mod horizontal;
mod multi_output;
mod output;
mod short_rows;
mod split;

use groups::{Facts, Group};
use hloom_ir::attributes::FusionKind;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::edit::Outlined;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::{Fusion, Op};
use hloom_ir::order::PostOrder;
use hloom_passes::dce::remove_dead_code;
use hloom_passes::facts::flow_computations;
use hloom_passes::pass::{Context, FusionCandidate, Pass};
use hloom_passes::rewrite::rewrite;
use multi_output::Makers;

/// The pass.
pub static PASS: Pass = Pass {
    name: "fusion",
    statement: "computes together what is made element by element, so that what lies between needs no memory",
    keeps_schedule: false,
    run: |module: &mut Module, context: &Context<'_>| Ok(fuse(module, context)) as Result<usize, Diagnostic>,
};

/// The passes of this crate.
pub static PASSES: &[&Pass] = &[&PASS];

fn fuse(module: &mut Module, context: &Context<'_>) -> usize {
    let prepared = rewrite(module, &[short_rows::RULES]);
    let limits = context.info.fusion_limits();
    let mut found: Vec<Group> = Vec::new();
    let mut facts = Facts::new(module);
    let mut makers = Makers::new(module);
    let mut orders = PostOrder::new(module);
    for computation in flow_computations(module) {
        let order = orders.instructions(computation);
        let groups = groups::group(module, computation, &order, &mut facts, limits);
        found.extend(multi_output::merge(module, computation, groups, &order, &facts, &mut makers));
    }
    let counts = output::count_members(module, &found);
    let fuses_products = context.info.fuses_products();
    let supports = |group: &Group, product: Option<InstructionId>| {
        let candidate = FusionCandidate { members: &group.members, results: &group.results, product };
        context.info.supports_fusion(module, &candidate)
    };
    let mut decided: Vec<(Group, bool)> = Vec::new();
    for mut group in found {
        let absorbed = if fuses_products { output::absorb_producer(module, &mut group, &facts, &counts) } else { 0 };
        if absorbed > 0 {
            if supports(&group, group.members.first().copied()) {
                decided.push((group, true));
                continue;
            }
            group.members.drain(..absorbed);
        }
        let mut pending = vec![group];
        while let Some(group) = pending.pop() {
            if !is_several(module, &group) {
                continue;
            }
            match supports(&group, None) {
                true => decided.push((group, false)),
                false => pending.extend(split::split(module, &group, &facts).into_iter().flatten()),
            }
        }
    }
    // What is made again in a group may be a result of another: all are copied before users turn to the fusions, or that
    // group would wait for the other, which the order of the groups does not know of.
    let made: Vec<Outlined> =
        decided.iter().filter_map(|(group, with_producer)| outline(module, group, *with_producer)).collect();
    for &(result, value) in made.iter().flat_map(|outlined| &outlined.values) {
        module.replace_all_uses(result, value).ok();
    }
    let made = made.len();
    if made > 0 {
        remove_dead_code(module);
    }
    prepared + made
}

/// Whether a group is more than one operation.
fn is_several(module: &Module, group: &Group) -> bool {
    group.members.iter().filter(|&&m| !matches!(module[m].op, Op::Constant(_))).nth(1).is_some()
}

/// Makes a fusion of `group`, which nobody uses yet.
fn outline(module: &mut Module, group: &Group, with_producer: bool) -> Option<Outlined> {
    let &last = group.results.last()?;
    let reduces = group.results.iter().any(|&r| matches!(module[r].op, Op::Reduce { .. }));
    let kind = match with_producer {
        true => FusionKind::Output,
        false if reduces => FusionKind::Input,
        false => FusionKind::Loop,
    };
    let name = format!("{}_fusion", module[last].opcode().name().replace('-', "_"));
    let fusion = |calls| Op::Fusion(Box::new(Fusion { kind, calls, output_operand_aliasing: Vec::new() }));
    module.outline_beside(&group.members, &group.results, &name, fusion).ok()
}
