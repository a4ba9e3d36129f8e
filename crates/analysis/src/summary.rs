//! A module in numbers: how much of each operation, what it costs, what devices exchange, what goes in and out.

use crate::cost::{self, Cost, ModuleCost};
use hloom_ir::device_list::ReplicaGroups;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::opcode::Opcode;
use hloom_ir::verify::VerifiedModule;
use std::collections::BTreeMap;

/// A module in numbers.
#[derive(Clone, Debug)]
pub struct Summary {
    /// One line per opcode that occurs, the most expensive first.
    pub opcodes: Vec<OpcodeLine>,
    /// One line per kind of collective and grouping, by opcode.
    pub collectives: Vec<CollectiveLine>,
    /// The parameters of the entry, in order.
    pub parameters: Vec<InstructionId>,
    /// What one run costs.
    pub cost: ModuleCost,
}

/// How much there is of an opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpcodeLine {
    /// The opcode.
    pub opcode: Opcode,
    /// How many instructions have it.
    pub count: u64,
    /// What all their executions cost in one run of the module.
    pub cost: Cost,
}

/// How much there is of a kind of collective.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CollectiveLine {
    /// The opcode; an asynchronous collective is counted where it starts.
    pub opcode: Opcode,
    /// Which devices meet, in words: `4 groups of 2`.
    pub groups: String,
    /// How many instructions there are.
    pub count: u64,
    /// How often they are executed in one run of the module.
    pub executions: u64,
    /// Bytes that a device puts in, in all executions together.
    pub bytes: u64,
}

/// `module` in numbers.
pub fn summarise(module: &VerifiedModule) -> Summary {
    let cost = cost::cost(module);
    let module = module.module();
    let mut opcodes: BTreeMap<Opcode, (u64, Cost)> = BTreeMap::new();
    let mut collectives: BTreeMap<(Opcode, String), (u64, u64, u64)> = BTreeMap::new();
    for &computation in module.computations() {
        for &id in module.computation(computation).instructions() {
            let opcode = module.instruction(id).opcode();
            let line = opcodes.entry(opcode).or_default();
            line.0 += 1;
            line.1 += cost.all_runs(module, id);
            if let Some(groups) = groups(&module.instruction(id).op) {
                let runs = cost.runs(computation);
                let executions = runs.in_memory.saturating_add(runs.fused);
                let line = collectives.entry((opcode, groups)).or_default();
                line.0 += 1;
                line.1 = line.1.saturating_add(executions);
                line.2 = line.2.saturating_add(payload(module, id).saturating_mul(executions));
            }
        }
    }
    let mut opcodes: Vec<OpcodeLine> =
        opcodes.into_iter().map(|(opcode, (count, cost))| OpcodeLine { opcode, count, cost }).collect();
    opcodes.sort_by_key(|l| {
        let work = l.cost.flops.saturating_add(l.cost.transcendentals);
        std::cmp::Reverse((work, l.cost.bytes, l.count))
    });
    let collectives = collectives
        .into_iter()
        .map(|((opcode, groups), (count, executions, bytes))| CollectiveLine {
            opcode,
            groups,
            count,
            executions,
            bytes,
        })
        .collect();
    let parameters = module.entry().map(|e| module.parameters(e)).unwrap_or_default();
    Summary { opcodes, collectives, parameters, cost }
}

/// Bytes of an instruction's operands: what a device puts into a collective.
fn payload(module: &Module, id: InstructionId) -> u64 {
    let operands = module.instruction(id).operands().iter();
    operands.fold(0, |n, &o| n.saturating_add(cost::shape_bytes(&module.instruction(o).shape)))
}

/// Which devices meet, if the operation is a collective.
fn groups(op: &Op) -> Option<String> {
    if let Op::CollectivePermute(p) | Op::CollectivePermuteStart(p) = op {
        return Some(format!("{} pairs", p.source_target_pairs.len()));
    }
    Some(match &op.collective()?.replica_groups {
        ReplicaGroups::Explicit(groups) => match groups.first() {
            None => "all devices".into(),
            Some(first) if groups.iter().all(|g| g.len() == first.len()) => {
                of_size(groups.len() as i64, first.len() as i64)
            }
            Some(_) => format!("{} unequal groups", groups.len()),
        },
        ReplicaGroups::Iota { num_groups, group_size, .. } => of_size(*num_groups, *group_size),
        mesh @ ReplicaGroups::MeshAxes { .. } => match mesh.expand() {
            Some(groups) => of_size(groups.len() as i64, groups.first().map_or(0, |g| g.len() as i64)),
            None => "groups along mesh axes".into(),
        },
    })
}

fn of_size(groups: i64, size: i64) -> String {
    let plural = if groups == 1 { "" } else { "s" };
    format!("{groups} group{plural} of {size}")
}
