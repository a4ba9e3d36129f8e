//! What a partitioned program sends, and why: every collective with its bytes, axes and reason, and the sums.

use crate::partition::axes::DeviceAxes;
use crate::partition::spec::Spec;
use crate::partition::{Note, Partitioned, Reason};
use hloom_analysis::cost::{cost, shape_bytes};
use hloom_ir::Op;
use hloom_ir::device_list::{Mesh, ReplicaGroups};
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::sharding::{Sharding, ShardingKind};
use hloom_ir::verify::VerifiedModule;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One collective.
#[derive(Clone, Debug)]
pub struct CollectiveReport {
    /// Its name in the program of one device.
    pub name: String,
    /// Its opcode.
    pub kind: &'static str,
    /// How often it runs.
    pub times: u64,
    /// Bytes of its operands, of one run.
    pub bytes_in: u64,
    /// Bytes that a device sends in a ring, of all runs.
    pub wire: f64,
    /// How many devices meet in a group.
    pub group: i64,
    /// The axes along which they meet.
    pub axes: String,
    /// The line of the source for which it is there.
    pub source: String,
    /// Why.
    pub reason: String,
}

/// What a program of one device costs.
#[derive(Clone, Debug, Default)]
pub struct PartitionReport {
    /// Its collectives.
    pub collectives: Vec<CollectiveReport>,
    /// Bytes that a device sends.
    pub wire_bytes: f64,
    /// Bytes that it sends along each set of axes.
    pub by_axes: BTreeMap<String, f64>,
    /// Its arithmetic operations.
    pub flops: u64,
    /// Bytes of its parameters.
    pub parameter_bytes: u64,
    /// Bytes of its results.
    pub result_bytes: u64,
    /// Instructions of the source that every device computes whole, though something of theirs was cut.
    pub gathered: Vec<String>,
}

/// The report on a program that was partitioned and then verified as `made`; `partitioned` says how it came about.
pub fn report(source: &Module, partitioned: &Partitioned, made: &VerifiedModule) -> PartitionReport {
    let module = made.module();
    let costs = cost(made);
    let notes: FxHashMap<InstructionId, _> = partitioned.notes.iter().map(|n| (n.instruction, n)).collect();
    let names = AxisNames::of(source, &partitioned.axes);
    let devices = partitioned.axes.devices();
    let mut result = PartitionReport { flops: costs.total.flops, ..PartitionReport::default() };
    for &c in module.computations() {
        let runs = costs.runs(c);
        let times = runs.in_memory.saturating_add(runs.fused);
        for &i in module[c].instructions() {
            let instruction = &module[i];
            let is_permute = matches!(instruction.op, Op::CollectivePermute(_));
            if !is_permute && instruction.op.collective().is_none() {
                continue;
            }
            let group = if is_permute { 2 } else { group_size(&instruction.op, devices) };
            let bytes_in: u64 = instruction.operands().iter().map(|&o| shape_bytes(&module[o].shape)).sum();
            let wire = wire_bytes(&instruction.op, bytes_in as f64, group) * times as f64;
            let note = notes.get(&i);
            let axes = note.map_or_else(String::new, |n| names.describe(&n.axes));
            let at = note.and_then(|n| n.source);
            let metadata = at.and_then(|s| source[s].common.metadata.as_deref());
            let line = metadata.filter(|m| !m.source_file.is_empty());
            let line = line.map_or_else(String::new, |m| format!("{}:{}", m.source_file, m.source_line));
            let reason = note.map_or_else(|| "as the program has it".to_owned(), |n| why(n, source, &names));
            *result.by_axes.entry(axes.clone()).or_default() += wire;
            result.wire_bytes += wire;
            result.collectives.push(CollectiveReport {
                name: instruction.name().to_owned(),
                kind: instruction.op.opcode().name(),
                times,
                bytes_in,
                wire,
                group,
                axes,
                source: line,
                reason,
            });
        }
    }
    if let Some(entry) = module.entry() {
        result.parameter_bytes = module.parameters(entry).iter().map(|&p| shape_bytes(&module[p].shape)).sum();
        result.result_bytes = module.root(entry).map_or(0, |r| shape_bytes(&module[r].shape));
    }
    let name = |&i: &InstructionId| format!("{} {}", source[i].op.opcode().name(), source[i].name());
    result.gathered = partitioned.gathered.iter().map(name).collect();
    result
}

fn why(note: &Note, source: &Module, names: &AxisNames) -> String {
    let label = |i: InstructionId| format!("{} {}", source[i].op.opcode().name(), source[i].name());
    let at = note.source.map(label);
    let of = at.map_or_else(String::new, |l| format!(" ({l})"));
    let general = match &note.reason {
        Reason::Reshard => "a value is needed in another form",
        Reason::Halo => "neighbouring shards' elements are needed",
        Reason::Combine => "the shards' results are combined",
        Reason::NoRule => "there is no rule for what is cut: it is computed whole",
    };
    let Some((change, value)) = note.change.as_deref().and_then(|c| Some((c, c.value?))) else {
        return format!("{general}{of}");
    };
    let (from, to) = (names.form(&change.from), names.form(&change.to));
    let along = change.from.partial.without(change.to.partial).list();
    let user = note.source.filter(|&u| u != value);
    let slot = user.and_then(|u| source[u].operands().iter().position(|&o| o == value));
    let place = match (user, slot) {
        (Some(user), Some(slot)) => format!(" for operand {slot} of {}", label(user)),
        (Some(user), None) => format!(" for {}", label(user)),
        _ => String::new(),
    };
    let made = producer(source, value);
    let text = match (along.is_empty(), &source[made].op) {
        (true, _) => format!("{} from {from} to {to}{place}", label(made)),
        (false, op) => {
            let how = match op {
                Op::Dot(_) | Op::RaggedDot(_) => "sums over its contracting dimension, split along",
                Op::Convolution(_) => "sums over its window and input features, split along",
                Op::Reduce { .. } => "reduces a dimension split along",
                Op::Gather(_) => "looks up rows that are split along",
                Op::Scatter(_) => "adds updates that are split along",
                _ => "is a sum in parts along",
            };
            let form = if change.from.dims == change.to.dims { String::new() } else { format!(", needed as {to}") };
            format!("{} {how} {}{form}{place}", label(made), names.describe(&along))
        }
    };
    match note.reason {
        Reason::Reshard => text,
        _ => format!("{general}: {text}"),
    }
}

/// What makes a value, where others only hand it on.
fn producer(source: &Module, value: InstructionId) -> InstructionId {
    let mut at = value;
    for _ in 0..8 {
        let operands = source[at].operands();
        let from = match &source[at].op {
            Op::GetTupleElement { index } => match operands.first().map(|&t| (&source[t].op, source[t].operands())) {
                Some((Op::Tuple, elements)) => usize::try_from(*index).ok().and_then(|n| elements.get(n)),
                _ => None,
            },
            Op::Copy => operands.first(),
            Op::CustomCall(call) if &*call.target == "Sharding" => operands.first(),
            _ => None,
        };
        match from {
            Some(&from) => at = from,
            None => break,
        }
    }
    at
}

fn group_size(op: &Op, devices: i64) -> i64 {
    let Some(collective) = op.collective() else { return 1 };
    match &collective.replica_groups {
        ReplicaGroups::Iota { group_size, .. } => *group_size,
        ReplicaGroups::Explicit(groups) => groups.first().map_or(devices, |g| g.len() as i64),
        mesh @ ReplicaGroups::MeshAxes { .. } => {
            mesh.expand().and_then(|g| g.first().map(|g| g.len() as i64)).unwrap_or(devices)
        }
    }
}

fn wire_bytes(op: &Op, bytes: f64, group: i64) -> f64 {
    let g = group as f64;
    match op {
        Op::AllReduce(_) | Op::AllReduceStart(_) => 2.0 * (g - 1.0) / g * bytes,
        Op::AllGather(_) | Op::AllGatherStart(_) => (g - 1.0) * bytes,
        Op::ReduceScatter(_) | Op::AllToAll { .. } | Op::RaggedAllToAll { .. } => (g - 1.0) / g * bytes,
        _ => bytes,
    }
}

/// The names of a mesh for the axes of the grid.
struct AxisNames {
    /// For each axis of the grid: the name of the mesh's axis, and how many times it is cut before.
    names: Vec<Option<(String, bool)>>,
    sizes: Vec<i64>,
}

impl AxisNames {
    fn of(source: &Module, axes: &DeviceAxes) -> AxisNames {
        let sizes: Vec<i64> = (0..axes.len()).map(|a| axes.size(a as u8)).collect();
        let mut names = vec![None; axes.len()];
        if let Some(mesh) = mesh_of(source)
            && mesh.size() == Some(axes.devices())
        {
            let mut stride = axes.devices();
            for (name, size) in &mesh.axes {
                let top = stride;
                stride /= size.max(&1);
                for (a, slot) in names.iter_mut().enumerate() {
                    let (low, high) = (axes.stride(a as u8), axes.stride(a as u8) * axes.size(a as u8));
                    if low >= stride && high <= top {
                        *slot = Some((name.to_string(), low == stride && high == top));
                    }
                }
            }
        }
        AxisNames { names, sizes }
    }

    /// How an array lies, as `[{dp}, {tp,fsdp}, {}]`, and what is still to be added up.
    fn form(&self, spec: &Spec) -> String {
        let dims: Vec<String> = spec.dims.iter().map(|l| format!("{{{}}}", self.describe(l))).collect();
        let partial = spec.partial.list();
        let parts =
            if partial.is_empty() { String::new() } else { format!(" in parts along {}", self.describe(&partial)) };
        format!("[{}]{parts}", dims.join(", "))
    }

    fn describe(&self, list: &[u8]) -> String {
        let mut parts: Vec<String> = Vec::new();
        for &a in list {
            let part = match &self.names[a as usize] {
                Some((name, _)) => name.clone(),
                None => format!("{}", self.sizes[a as usize]),
            };
            if self.names[a as usize].is_none() || parts.last() != Some(&part) {
                parts.push(part);
            }
        }
        let named = list.iter().all(|&a| self.names[a as usize].is_some());
        parts.join(if named { "," } else { "x" })
    }
}

/// The first mesh that a sharding of the program names.
fn mesh_of(module: &Module) -> Option<Arc<Mesh>> {
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    let mut shardings = all.filter_map(|&i| module[i].common.sharding.as_deref()).flat_map(Sharding::leaves);
    shardings.find_map(|leaf| match &leaf.kind {
        ShardingKind::Named(named) => Some(named.mesh.clone()),
        _ => None,
    })
}
