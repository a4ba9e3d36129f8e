//! The program of one device as compilers' dumps have it.
//!
//! A partitioner goes through the global program in post-order and writes the program of one device as it goes; the
//! arguments keep saying how the whole lies on the devices; groups of devices are written as the program's shardings are,
//! listed or counted. What schedules such a program decides between equals by that order, and whoever compares the result
//! with a dump finds the same.

use crate::global::Global;
use hloom_ir::device_list::ReplicaGroups;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::{Collective, Op};
use hloom_ir::order::PostOrder;
use hloom_ir::sharding::{ShardingKind, TileAssignment, TileDevices};
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_spmd::partition::PARTITIONED_MARK;

/// The program of one device that `global` was partitioned into, in the form of dumps. It no longer says that it was
/// partitioned: what is made of it is scheduled, which no global program is.
pub fn of(global: &Global) -> Result<VerifiedModule, Vec<Diagnostic>> {
    let mut module = global.program.module().clone();
    in_post_order(&mut module);
    let config = &global.source.config;
    module.config.frontend_attributes.remove(PARTITIONED_MARK);
    module.config.allow_spmd_sharding_propagation_to_output = config.allow_spmd_sharding_propagation_to_output.clone();
    module.config.allow_spmd_sharding_propagation_to_parameters =
        config.allow_spmd_sharding_propagation_to_parameters.clone();
    let parameters = |m: &Module| m.entry().map(|e| m.parameters(e)).unwrap_or_default();
    let of_source = parameters(&global.source);
    for (own, &whole) in parameters(&module).into_iter().zip(&of_source) {
        module.instruction_mut(own).common.sharding = global.source[whole].common.sharding.clone();
    }
    if are_listed(&global.source, &of_source) {
        list_groups(&mut module);
    }
    verify(module, &VerifyOptions::default()).map_err(|invalid| invalid.diagnostics)
}

fn in_post_order(module: &mut Module) {
    let mut post_order = PostOrder::new(module);
    let orders: Vec<_> = module.computations().iter().map(|&c| (c, post_order.instructions(c))).collect();
    for (c, order) in orders {
        // A post-order has every instruction once, so it is not refused.
        let _ = module.reorder(c, order);
    }
}

/// Whether the shardings of these name their devices one by one.
fn are_listed(module: &Module, parameters: &[InstructionId]) -> bool {
    let mut all = parameters.iter().filter_map(|&p| module[p].common.sharding.as_deref()).flat_map(|s| s.leaves());
    all.all(|leaf| match &leaf.kind {
        ShardingKind::Tiled(TileAssignment { devices, .. }) => matches!(devices, TileDevices::Explicit(_)),
        ShardingKind::Named(_) => false,
        _ => true,
    })
}

fn list_groups(module: &mut Module) {
    let all: Vec<InstructionId> =
        module.computations().iter().flat_map(|&c| module[c].instructions()).copied().collect();
    for i in all {
        let Some(groups) = module[i].op.collective().and_then(|c| c.replica_groups.expand()) else { continue };
        if let Some(collective) = collective_mut(&mut module.instruction_mut(i).op) {
            collective.replica_groups = ReplicaGroups::Explicit(groups);
        }
    }
}

fn collective_mut(op: &mut Op) -> Option<&mut Collective> {
    match op {
        Op::AllReduce(a) => Some(&mut a.collective),
        Op::AllGather(a) => Some(&mut a.collective),
        Op::ReduceScatter(r) => Some(&mut r.collective),
        Op::AllToAll { collective, .. } => Some(collective),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_formats::hlo_text::{self, PrintOptions};

    #[test]
    fn a_partitioned_program_is_written_as_a_partitioner_writes_it() {
        let whole = |devices: &str| {
            let text = "HloModule m, allow_spmd_sharding_propagation_to_output={true}, num_partitions=2
            ENTRY e {
              x = f32[8,4] parameter(0), sharding={devices=[2,1]DEVICES}
              a = f32[6,4] parameter(1), sharding={devices=[2,1]DEVICES}
              b = f32[6,4] parameter(2), sharding={devices=[2,1]DEVICES}
              first = f32[8,6] dot(x, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}
              second = f32[8,6] dot(x, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}
              ROOT y = f32[8,6] multiply(second, first)
            }"
            .replace("DEVICES", devices);
            let module = crate::parse(&text).unwrap_or_else(|e| panic!("{e}"));
            let global = Global::partition(module, 2).unwrap_or_else(|d| panic!("{d:?}"));
            let module = of(&global).unwrap_or_else(|d| panic!("{d:?}"));
            hlo_text::print(module.module(), &PrintOptions::default())
        };
        let text = whole("0,1");
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part} in\n{text}"));
        assert!(at("parameter(2)") < at("parameter(1)"), "the first operand's come first:\n{text}");
        assert!(text.contains("parameter(1), sharding={devices=[2,1]0,1}"), "{text}");
        assert!(text.contains("allow_spmd_sharding_propagation_to_output={true}"), "{text}");
        assert!(text.contains("replica_groups={{0,1}}") && !text.contains(PARTITIONED_MARK), "{text}");
        assert!(whole("<=[2]").contains("replica_groups=[1,2]<=[2]"), "groups are counted where tiles are");
    }
}
