//! Several collectives of one kind as one: devices meet once for all of them.
//!
//! Each has a level: how many others of its kind it waits for, one after another. Those of one level do not wait for each
//! other, so that any of them can be made one without a circle; the kinds have their turns one after another. Together go
//! those that do the same, among the same devices, up to a number of bytes: a single one that waits for everything would
//! overlap with nothing.

use crate::facts::pinned;
use crate::pass::{Context, Pass};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, InstructionId, SideTable};
use hloom_ir::instruction::{Common, Operands};
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::{Collective, Op};
use hloom_ir::opcode::Opcode;
use hloom_ir::order::PostOrder;
use hloom_ir::shape::Shape;
use hloom_target::Link;
use rustc_hash::FxHashMap;

/// The pass.
pub static PASS: Pass = Pass {
    name: "combine-collectives",
    statement: "makes one all-reduce, all-gather or reduce-scatter of several that do not wait for each other",
    keeps_schedule: false,
    run: |module: &mut Module, context: &Context<'_>| Ok(combine(module, context)) as Result<usize, Diagnostic>,
};

/// A kind of collectives that can be made one.
struct Kind {
    opcode: Opcode,
    /// So many bytes at most, of operands and results each, go together.
    max_bytes: i64,
    /// Whether what they make is needed here and there, or what they take comes so: one of them can go on beside the work
    /// that needs another, which is worth more than a meeting less. Only small ones go together.
    is_spread: bool,
}

/// The kinds, in the order in which they have their turns.
static KINDS: &[Kind] = &[
    Kind { opcode: Opcode::AllReduce, max_bytes: 32 << 20, is_spread: false },
    Kind { opcode: Opcode::AllGather, max_bytes: 4 << 20, is_spread: true },
    Kind { opcode: Opcode::ReduceScatter, max_bytes: 4 << 20, is_spread: true },
];
/// One that is so many times as long as a meeting takes to begin is not small.
const MEETINGS: f64 = 8.0;
/// And so many arrays.
const MAX_ARRAYS: usize = 256;
/// So many groups are looked through for one that fits.
const MAX_KINDS: usize = 16;

/// So many bytes of a kind go together on this machine.
fn most_bytes(kind: &Kind, context: &Context<'_>) -> i64 {
    let small = |l: &Link| MEETINGS * l.bandwidth * (l.latency_seconds + l.start_seconds);
    match context.target().links.first().filter(|_| kind.is_spread).map(small) {
        Some(bytes) => kind.max_bytes.min(bytes as i64),
        None => kind.max_bytes,
    }
}

fn combine(module: &mut Module, context: &Context<'_>) -> usize {
    let mut changes = 0;
    for kind in KINDS {
        let mut dead = Vec::new();
        for group in groups(module, kind, most_bytes(kind, context)) {
            if together(module, &group).is_some() {
                dead.extend_from_slice(&group.members);
            }
        }
        if !dead.is_empty() {
            let removed = module.remove_instructions(&dead);
            debug_assert!(removed.is_ok(), "{removed:?}");
        }
        changes += dead.len();
    }
    changes
}

/// The groups of more than one collective of a kind that can be one.
fn groups(module: &Module, kind: &Kind, most_bytes: i64) -> Vec<Group> {
    let is_candidate = |&i: &InstructionId| {
        module[i].opcode() == kind.opcode && module[i].operands().len() == 1 && module[i].shape.is_array()
    };
    let candidates = |c: ComputationId| module[c].instructions().iter().copied().filter(is_candidate);
    let places: Vec<ComputationId> =
        module.computations().iter().copied().filter(|&c| candidates(c).nth(1).is_some()).collect();
    if places.is_empty() {
        return Vec::new();
    }
    let (pinned, mut orders) = (pinned(module), PostOrder::new(module));
    let mut groups: Vec<Group> = Vec::new();
    for c in places {
        let level = levels(module, kind.opcode, &orders.instructions(c));
        let mut of_level: FxHashMap<(u32, Option<ComputationId>), Vec<usize>> = FxHashMap::default();
        for i in candidates(c).filter(|&i| !pinned[i]) {
            let Some((key, bytes)) = key(module, kind, i, level[i]) else { continue };
            // The last group of a kind is the one that may have room.
            let alike = of_level.entry((key.level, key.function)).or_default();
            match alike.iter().rev().take(MAX_KINDS).copied().find(|&g| groups[g].key == key) {
                Some(g) if groups[g].bytes + bytes <= most_bytes && groups[g].members.len() < MAX_ARRAYS => {
                    groups[g].bytes += bytes;
                    groups[g].members.push(i);
                }
                _ => {
                    alike.push(groups.len());
                    groups.push(Group { key, bytes, members: vec![i] });
                }
            }
        }
    }
    groups.retain(|g| g.members.len() > 1);
    groups
}

/// Collectives that become one.
struct Group {
    key: Key,
    bytes: i64,
    members: Vec<InstructionId>,
}

/// What collectives that become one have in common.
#[derive(PartialEq)]
struct Key {
    level: u32,
    /// What is reduced by.
    function: Option<ComputationId>,
    dimension: Option<i64>,
    /// All of it but the channel, which is each one's own.
    collective: Collective,
    has_channel: bool,
}

fn key(module: &Module, kind: &Kind, i: InstructionId, level: u32) -> Option<(Key, i64)> {
    let (collective, function, dimension) = match &module[i].op {
        Op::AllReduce(reduce) => (&reduce.collective, Some(reduce.to_apply), None),
        Op::AllGather(gather) => (&gather.collective, None, Some(gather.dimension)),
        Op::ReduceScatter(reduce) => (&reduce.collective, Some(reduce.to_apply), Some(reduce.dimension)),
        _ => return None,
    };
    let &[operand] = module[i].operands() else { return None };
    let bytes = module[i].shape.byte_size()?.max(module[operand].shape.byte_size()?);
    if bytes > kind.max_bytes || module[i].shape.is_dynamic() {
        return None;
    }
    let has_channel = collective.channel_id.is_some();
    let collective = Collective { channel_id: None, ..collective.clone() };
    Some((Key { level, function, dimension, collective, has_channel }, bytes))
}

/// How many collectives of a kind each instruction waits for, one after another.
fn levels(module: &Module, kind: Opcode, order: &[InstructionId]) -> SideTable<InstructionId, u32> {
    let mut level: SideTable<InstructionId, u32> = SideTable::with_len(module.instruction_slots(), 0);
    for &i in order {
        let waits_for = module[i].operands().iter().chain(module[i].common.control_predecessors());
        let after = |&o: &InstructionId| level[o] + u32::from(module[o].opcode() == kind);
        let most = waits_for.map(after).max().unwrap_or(0);
        level.set(i, most);
    }
    level
}

/// Makes one collective of a group.
fn together(module: &mut Module, group: &Group) -> Option<()> {
    let &first = group.members.first()?;
    let home = module[first].parent();
    let operands: Operands = group.members.iter().filter_map(|&m| module[m].operands().first().copied()).collect();
    let op = module[first].op.clone();
    let shape = Shape::tuple(group.members.iter().map(|&m| module[m].shape.clone()));
    let common = Common { metadata: module[first].common.metadata.clone(), ..Common::default() };
    if let Some(root) = module.root(home) {
        module.set_root(root);
    }
    let all =
        module.add_instruction(home, NewInstruction { name: op.opcode().name().into(), op, shape, operands, common });
    for (n, &member) in group.members.iter().enumerate() {
        let element = NewInstruction {
            name: "get-tuple-element".into(),
            op: Op::GetTupleElement { index: n as i64 },
            shape: module[member].shape.clone(),
            operands: Operands::from_slice(&[all]),
            common: Common::default(),
        };
        let element = module.add_instruction(home, element);
        let _same_computation = module.replace_all_uses(member, element);
    }
    Some(())
}
