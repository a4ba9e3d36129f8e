//! The collectives of a module: which devices talk, how often, and how many bytes each sends.
//!
//! Bytes on the wire are those of the usual algorithms: rings for all-gather, reduce-scatter, all-reduce and broadcast, a
//! direct exchange for all-to-all. A collective that a schedule carries along in several places (its start, a fusion that it
//! overlaps with, its end: one channel and one `chain_id`) is counted once.

use hloom_analysis::cost::{ModuleCost, shape_bytes};
use hloom_ir::attributes::CollectiveGroupMode;
use hloom_ir::device_list::ReplicaGroups;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use rustc_hash::FxHashMap;
use serde::Serialize;

/// Groups with more devices than this together are described, not listed.
const MOST_LISTED: i64 = 4096;

/// All collectives of a module.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Collectives {
    /// How many devices there are, as the header or the groups say.
    pub devices: i64,
    /// The different ways in which devices are grouped.
    pub groupings: Vec<Grouping>,
    /// The collectives.
    pub all: Vec<CollectiveUse>,
}

/// A way in which devices are grouped.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Grouping {
    /// In words: the mesh axes, or the distance between neighbours.
    pub label: String,
    /// Devices in a group (2 for pairs).
    pub size: i64,
    /// Whether these are pairs of a source and a target.
    pub is_pairs: bool,
    /// The groups; empty where there are too many devices to list.
    pub groups: Vec<Vec<i64>>,
}

/// A collective.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CollectiveUse {
    /// The number of its instruction on the page.
    pub instruction: u32,
    /// Other instructions that are the same collective.
    pub also: Vec<u32>,
    /// What it is, without `-start`.
    pub kind: String,
    /// Which grouping.
    pub grouping: usize,
    /// How often it is executed in one run of the module.
    pub executions: u64,
    /// Bytes that a device puts in, in all executions together.
    pub bytes_in: u64,
    /// Bytes that a device sends, in all executions together.
    pub wire: u64,
    /// Whether it has a start and a done, so that other work can go on meanwhile.
    pub is_async: bool,
    /// Its channel.
    pub channel: Option<i64>,
}

/// The collectives of `module`; `number` gives the number of an instruction on the page.
pub fn collectives(module: &Module, costs: &ModuleCost, number: &dyn Fn(InstructionId) -> u32) -> Collectives {
    let header = module.config.replica_count.max(1).saturating_mul(module.config.num_partitions.max(1));
    let mut result = Collectives { devices: header, ..Collectives::default() };
    let mut known: FxHashMap<String, usize> = FxHashMap::default();
    let mut chains: FxHashMap<(i64, String), usize> = FxHashMap::default();
    for &computation in module.computations() {
        let runs = costs.runs(computation);
        let executions = runs.in_memory.saturating_add(runs.fused);
        for &id in module[computation].instructions() {
            let op = &module[id].op;
            let Some(grouping) = grouping(module, op) else { continue };
            let channel = op.channel_id();
            let chain = chain_id(module, id).and_then(|chain| Some((channel?, chain)));
            if let Some(first) = chain.as_ref().and_then(|c| chains.get(c)) {
                result.all[*first].also.push(number(id));
                continue;
            }
            let key = format!("{}{:?}", grouping.label, grouping.groups);
            let next = result.groupings.len();
            let index = *known.entry(key).or_insert(next);
            let size = grouping.size;
            if index == next {
                let most = grouping.groups.iter().flatten().max().map_or(0, |&d| d.saturating_add(1));
                result.devices = result.devices.max(most).max(if grouping.is_pairs { 0 } else { size });
                result.groupings.push(grouping);
            }
            let bytes_in =
                module[id].operands().iter().fold(0u64, |n, &o| n.saturating_add(shape_bytes(&module[o].shape)));
            let name = module[id].opcode().name();
            let kind = name.strip_suffix("-start").unwrap_or(name).to_owned();
            let is_async = name.ends_with("-start") || chain.is_some() || is_wrapped(module, id);
            if let Some(chain) = chain {
                chains.insert(chain, result.all.len());
            }
            result.all.push(CollectiveUse {
                instruction: number(id),
                also: Vec::new(),
                wire: wire_bytes(&kind, bytes_in, size).saturating_mul(executions),
                kind,
                grouping: index,
                executions,
                bytes_in: bytes_in.saturating_mul(executions),
                is_async,
                channel,
            });
        }
    }
    result
}

/// Whether the computation of the instruction is run by an async-start.
fn is_wrapped(module: &Module, id: InstructionId) -> bool {
    // A computation of parameters and one collective is what an async-start calls.
    let computation = &module[module[id].parent()];
    let is_parameter = |&i: &InstructionId| i == id || matches!(module[i].op, Op::Parameter { .. });
    module.entry() != Some(module[id].parent()) && computation.instructions().iter().all(is_parameter)
}

/// `frontend_attributes={chain_id="0"}`: positions of one collective have it in common.
fn chain_id(module: &Module, id: InstructionId) -> Option<String> {
    let rare = module[id].common.rare.as_deref()?;
    rare.frontend_attributes.get("chain_id").map(|c| c.to_string())
}

/// Bytes that a device sends, in one execution among `n` devices.
fn wire_bytes(kind: &str, bytes_in: u64, n: i64) -> u64 {
    let (n, others) = (n.max(1) as u128, (n - 1).max(0) as u128);
    let bytes = u128::from(bytes_in);
    let wire = match kind {
        "all-gather" => bytes * others,
        "all-reduce" => 2 * bytes * others / n,
        "reduce-scatter" | "all-to-all" | "ragged-all-to-all" | "collective-reduce" => bytes * others / n,
        _ => bytes,
    };
    u64::try_from(wire).unwrap_or(u64::MAX)
}

/// How the devices of a collective are grouped; `None` if it is none.
fn grouping(module: &Module, op: &Op) -> Option<Grouping> {
    let (replicas, partitions) = (module.config.replica_count.max(1), module.config.num_partitions.max(1));
    if let Op::CollectivePermute(p) | Op::CollectivePermuteStart(p) = op {
        let groups: Vec<Vec<i64>> = p.source_target_pairs.iter().map(|&(s, t)| vec![s, t]).collect();
        let label = format!("{} pairs{}", groups.len(), shift(&groups));
        return Some(Grouping { label, size: 2, is_pairs: true, groups });
    }
    let collective = op.collective()?;
    let mode = op.group_mode().unwrap_or(CollectiveGroupMode::FlattenedId);
    let ids = match mode {
        CollectiveGroupMode::CrossReplica | CollectiveGroupMode::CrossReplicaAndPartition => replicas,
        CollectiveGroupMode::CrossPartition => partitions,
        CollectiveGroupMode::FlattenedId => replicas.saturating_mul(partitions),
    };
    let listed = match &collective.replica_groups {
        ReplicaGroups::Explicit(groups) if groups.is_empty() => Some(vec![(0..ids.min(MOST_LISTED)).collect()]),
        groups => groups.expand(),
    };
    // Where the header names one device only, ids in groups are those of devices.
    let is_unsaid = replicas.saturating_mul(partitions) == 1;
    let groups: Vec<Vec<i64>> = match mode {
        _ if is_unsaid => listed?,
        CollectiveGroupMode::FlattenedId => listed?,
        CollectiveGroupMode::CrossReplica => listed?
            .iter()
            .flat_map(|g| {
                (0..partitions).map(move |p| g.iter().map(|r| r.saturating_mul(partitions).saturating_add(p)).collect())
            })
            .collect(),
        CollectiveGroupMode::CrossPartition => listed?
            .iter()
            .flat_map(|g| {
                (0..replicas).map(move |r| g.iter().map(|p| r.saturating_mul(partitions).saturating_add(*p)).collect())
            })
            .collect(),
        CollectiveGroupMode::CrossReplicaAndPartition => listed?
            .iter()
            .map(|g| {
                g.iter()
                    .flat_map(|r| (0..partitions).map(move |p| r.saturating_mul(partitions).saturating_add(p)))
                    .collect()
            })
            .collect(),
    };
    let size = groups.iter().map(|g: &Vec<i64>| g.len() as i64).max().unwrap_or(0);
    let label = match &collective.replica_groups {
        ReplicaGroups::MeshAxes { mesh, axes } => {
            let names = axes.iter().filter_map(|a| mesh.axes.get(a.axis as usize));
            format!("mesh axis {}", names.map(|(name, size)| format!("{name} ({size})")).collect::<Vec<_>>().join(", "))
        }
        _ => along(&groups),
    };
    let devices: usize = groups.iter().map(Vec::len).sum();
    let groups = if devices as i64 > MOST_LISTED { Vec::new() } else { groups };
    Some(Grouping { label, size, is_pairs: false, groups })
}

/// The groups in words: how many devices meet, and how far they are apart along each axis that the numbers show.
fn along(groups: &[Vec<i64>]) -> String {
    let Some(first) = groups.first() else { return "no devices".into() };
    if groups.iter().any(|g| g.len() != first.len()) {
        return format!("{} unequal groups", groups.len());
    }
    if groups.len() == 1 {
        return format!("all {} devices", first.len());
    }
    let steps = strides(first);
    let relative =
        |g: &[i64]| -> Vec<i64> { g.iter().map(|d| d.wrapping_sub(g.first().copied().unwrap_or(0))).collect() };
    let shape = relative(first);
    match steps {
        Some(steps) if groups.iter().all(|g| relative(g) == shape) => {
            let axes: Vec<String> = steps.iter().map(|(size, stride)| format!("{size} at stride {stride}")).collect();
            format!("{} groups of {}", groups.len(), axes.join(" × "))
        }
        _ => format!("{} groups of {}", groups.len(), first.len()),
    }
}

/// The sizes and strides, slowest first, of which the numbers of a group are the row-major walk; `None` if there are none.
fn strides(group: &[i64]) -> Option<Vec<(i64, i64)>> {
    if group.len() < 2 {
        return Some(vec![(group.len() as i64, 1)]);
    }
    let mut axes = Vec::new();
    let mut level: Vec<i64> = group.to_vec();
    while level.len() > 1 {
        let stride = level[1].wrapping_sub(level[0]);
        let mut size = 1;
        while size < level.len() && level[size].wrapping_sub(level[size - 1]) == stride {
            size += 1;
        }
        if !level.len().is_multiple_of(size) {
            return None;
        }
        if level.chunks(size).any(|c| c.windows(2).any(|w| w[1].wrapping_sub(w[0]) != stride)) {
            return None;
        }
        axes.push((size as i64, stride));
        level = level.chunks(size).map(|c| c[0]).collect();
    }
    axes.reverse();
    Some(axes)
}

/// The distance between source and target, if all pairs but those that wrap around have it.
fn shift(pairs: &[Vec<i64>]) -> String {
    let mut counts: FxHashMap<i64, usize> = FxHashMap::default();
    pairs
        .iter()
        .filter_map(|p| Some(p.get(1)?.wrapping_sub(*p.first()?)))
        .for_each(|d| *counts.entry(d).or_default() += 1);
    match counts.iter().max_by_key(|(d, n)| (**n, **d)) {
        Some((distance, &n)) if 2 * n > pairs.len() => format!(", mostly {distance:+}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_told_by_their_strides() {
        let words = |groups: &[&[i64]]| along(&groups.iter().map(|g| g.to_vec()).collect::<Vec<_>>());
        assert_eq!(words(&[&[0, 1, 2, 3]]), "all 4 devices");
        assert_eq!(words(&[&[0, 1], &[2, 3]]), "2 groups of 2 at stride 1");
        assert_eq!(words(&[&[0, 4], &[1, 5]]), "2 groups of 2 at stride 4");
        assert_eq!(words(&[&[0, 1, 8, 9], &[2, 3, 10, 11]]), "2 groups of 2 at stride 8 × 2 at stride 1");
        assert_eq!(words(&[&[0, 3, 1], &[2, 5, 4]]), "2 groups of 3");
        assert_eq!(words(&[&[0], &[1, 2]]), "2 unequal groups");
    }

    #[test]
    fn bytes_on_the_wire_are_those_of_rings() {
        assert_eq!(wire_bytes("all-gather", 100, 4), 300);
        assert_eq!(wire_bytes("all-reduce", 100, 4), 150);
        assert_eq!(wire_bytes("reduce-scatter", 100, 4), 75);
        assert_eq!(wire_bytes("collective-permute", 100, 2), 100);
        assert_eq!(wire_bytes("all-gather", u64::MAX, 4), u64::MAX);
    }
}
