//! Collectives in which every device meets itself alone.

use super::{beside, operand};
use crate::pass::{Context, Pass};
use crate::rewrite::{Rule, rewrite};
use hloom_ir::attributes::CollectiveGroupMode;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;
use smallvec::SmallVec;

/// The pass.
pub static PASS: Pass = Pass {
    name: "simplify-collectives",
    statement: "drops collectives in which every device meets itself alone, and permutations that move nothing",
    keeps_schedule: false,
    run: |module: &mut Module, _: &Context<'_>| Ok(rewrite(module, &[RULES])),
};

/// The rules.
pub static RULES: &[Rule] = &[
    Rule {
        name: "groups-of-one",
        statement: "all-reduce, all-gather, reduce-scatter or all-to-all in groups of one device → its operands",
        opcodes: &[Opcode::AllReduce, Opcode::AllGather, Opcode::ReduceScatter, Opcode::AllToAll],
        apply: groups_of_one,
    },
    Rule {
        name: "permute-to-itself",
        statement: "collective-permute from every device to itself → its operand",
        opcodes: &[Opcode::CollectivePermute],
        apply: permute_to_itself,
    },
];

/// Groups of more devices than this are not looked at one by one.
const MAX_GROUPS: usize = 1 << 16;

fn groups_of_one(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let op = &module[i].op;
    // Where groups are of replicas, all partitions of these meet.
    (op.group_mode()? != CollectiveGroupMode::CrossReplicaAndPartition).then_some(())?;
    let groups = op.collective()?.replica_groups.expand()?;
    (!groups.is_empty() && groups.len() <= MAX_GROUPS && groups.iter().all(|g| g.len() == 1)).then_some(())?;
    // A device that is in none of them fails at it; whether there is one is known only if the groups name all up to a count.
    let mut named: Vec<i64> = groups.iter().flatten().copied().collect();
    named.sort_unstable();
    named.into_iter().eq(0..groups.len() as i64).then_some(())?;
    let operands = SmallVec::<[InstructionId; 4]>::from_slice(module[i].operands());
    let value = match (module[i].shape.is_tuple(), operands.as_slice()) {
        (true, all) => beside(module, i).tuple(all).ok()?,
        (false, &[only]) => only,
        _ => return None,
    };
    module[value].shape.equal_ignoring_layout(&module[i].shape).then_some(value)
}

fn permute_to_itself(module: &mut Module, i: InstructionId) -> Option<InstructionId> {
    let Op::CollectivePermute(permute) = &module[i].op else { return None };
    let &[x] = module[i].operands() else { return None };
    let ids = match module[i].op.group_mode()? {
        CollectiveGroupMode::CrossPartition => module.config.num_partitions,
        _ => module.config.replica_count,
    };
    // A count of 1 may mean that nobody said; who is not named gets zeros.
    let mut named: Vec<i64> = permute.source_target_pairs.iter().filter(|(s, t)| s == t).map(|&(s, _)| s).collect();
    named.sort_unstable();
    let all = named.len() == permute.source_target_pairs.len() && named.iter().copied().eq(0..ids) && ids > 1;
    (all && permute.slice_sizes.is_empty()).then_some(())?;
    operand(module, i, 0).filter(|_| module[x].shape.equal_ignoring_layout(&module[i].shape))
}
