//! Collectives: which devices meet. Numbers of devices are compared only where they are known; a count of 1 in the
//! header may mean that nobody said, so it binds nothing.

use super::{Context, Counts, Report};
use crate::attributes::CollectiveGroupMode as Mode;
use crate::device_list::{AxisRef, Mesh, MeshDevices, ReplicaGroups};
use crate::diagnostic::codes::infer::SHARD_COUNT;
use crate::diagnostic::codes::verify as codes;
use crate::diagnostic::{Diagnostic, Part};
use crate::entity::InstructionId;
use crate::op::{Collective, CollectivePermute, Op};
use crate::shape::Shape;

/// Checks which devices meet in `id`, if it is a collective.
pub(super) fn check(context: &Context, id: InstructionId, report: &mut Report) {
    let op = &context.module[id].op;
    if let Some(collective) = op.collective() {
        collective_op(context, id, collective, report);
    } else if let Op::CollectivePermute(permute) | Op::CollectivePermuteStart(permute) = op {
        pairs(context, id, permute, report);
    }
}

fn groups_error(context: &Context, id: InstructionId, what: String) -> Diagnostic {
    let instruction = &context.module[id];
    Diagnostic::error(
        &codes::REPLICA_GROUPS,
        format!("replica_groups of {} `{}`: {what}", instruction.opcode(), instruction.name()),
    )
    .at_instruction(id, Part::Attribute("replica_groups"))
}

fn collective_op(context: &Context, id: InstructionId, collective: &Collective, report: &mut Report) {
    let op = &context.module[id].op;
    let Some(mode) = op.group_mode() else {
        report.add(
            Diagnostic::error(
                &codes::GROUP_MODE,
                format!("`{}` has use_global_device_ids=true but no channel_id", context.name(id)),
            )
            .at_instruction(id, Part::Attribute("use_global_device_ids"))
            .help("global device ids are counted over replicas and partitions, which needs a channel_id"),
        );
        return;
    };
    let groups = &collective.replica_groups;
    if groups.is_empty() {
        if mode == Mode::FlattenedId {
            report.add(groups_error(context, id, "global device ids need groups to be named".to_owned()));
            return;
        }
    } else if let Err(what) = check_groups(groups, ids_of(mode, context.counts), op) {
        report.add(groups_error(context, id, what));
        return;
    }
    // What the header's own counts say was compared with the shapes when those were inferred.
    let Counts { replicas, partitions } = context.counts;
    let config = &context.module.config;
    if (replicas, partitions) != (config.replica_count, config.num_partitions) {
        group_sizes(context, id, op.group_size(replicas, partitions), report);
    }
}

/// How many ids there are in `mode`, as far as is known.
fn ids_of(mode: Mode, counts: Counts) -> Option<i64> {
    let n = match mode {
        Mode::CrossReplica | Mode::CrossReplicaAndPartition => counts.replicas,
        Mode::CrossPartition => counts.partitions,
        Mode::FlattenedId => counts.total(),
    };
    (n > 1).then_some(n)
}

fn needs_equal_groups(op: &Op) -> bool {
    !matches!(op, Op::AllReduce(_) | Op::AllReduceStart(_) | Op::CollectiveReduce(_) | Op::CollectiveBroadcast { .. })
}

/// Whether each device is in a group; those that a broadcast does not name get zeros.
fn needs_every_device(op: &Op) -> bool {
    !matches!(op, Op::CollectiveBroadcast { .. })
}

/// Groups name devices `0..ids` once each, where `ids` is known, and otherwise none twice.
fn check_groups(groups: &ReplicaGroups, ids: Option<i64>, op: &Op) -> Result<(), String> {
    let equal = needs_equal_groups(op);
    let named = match groups {
        ReplicaGroups::Explicit(groups) => {
            if groups.iter().any(Vec::is_empty) {
                return Err("a group is empty".to_owned());
            }
            if let Some(other) = groups.iter().find(|g| equal && g.len() != groups[0].len()) {
                return Err(format!(
                    "groups of {} and of {} devices, but all must be of one size",
                    groups[0].len(),
                    other.len()
                ));
            }
            let mut all: Vec<i64> = groups.iter().flatten().copied().collect();
            check_unique(&mut all, ids)?;
            all.len() as i64
        }
        ReplicaGroups::Iota { num_groups, group_size, devices } => {
            let n = devices.len().filter(|&n| n <= ReplicaGroups::MAX_DEVICES);
            let fits = *num_groups > 0 && *group_size > 0 && num_groups.checked_mul(*group_size) == n;
            if !fits || !crate::layout::is_permutation(&devices.transpose_perm, devices.reshape_dims.len()) {
                return Err(format!("{num_groups} groups of {group_size} do not fit the list of devices"));
            }
            num_groups * group_size
        }
        ReplicaGroups::MeshAxes { mesh, axes } => {
            check_mesh(mesh, ids)?;
            check_axes(mesh, axes)?;
            mesh.size().unwrap_or(0)
        }
    };
    match ids {
        Some(ids) if ids < named || ids != named && needs_every_device(op) => {
            Err(format!("{named} devices are named, but there are {ids}"))
        }
        _ => Ok(()),
    }
}

/// No id is negative, repeated, or beyond `ids` where that is known. Sorts the list.
pub(super) fn check_unique(list: &mut [i64], ids: Option<i64>) -> Result<(), String> {
    list.sort_unstable();
    if let Some(twice) = list.windows(2).find(|w| w[0] == w[1]) {
        return Err(format!("device {} is named twice", twice[0]));
    }
    match (list.first(), list.last(), ids) {
        (Some(&low), ..) if low < 0 => Err(format!("there is no device {low}")),
        (_, Some(&high), Some(ids)) if high >= ids => {
            Err(format!("there is no device {high}: there are {ids}, counted from 0"))
        }
        _ => Ok(()),
    }
}

/// The axes of a mesh have sizes, and its devices fit them.
pub(super) fn check_mesh(mesh: &Mesh, ids: Option<i64>) -> Result<(), String> {
    if let Some((name, size)) = mesh.axes.iter().find(|a| a.1 < 1) {
        return Err(format!("axis '{name}' of the mesh has size {size}"));
    }
    let Some(n) = mesh.size().filter(|&n| n <= ReplicaGroups::MAX_DEVICES) else {
        return Err(format!("the mesh has more than {} devices", ReplicaGroups::MAX_DEVICES));
    };
    let listed = match &mesh.devices {
        MeshDevices::Iota => n,
        MeshDevices::Maximal(device) => {
            check_unique(&mut [*device], ids)?;
            n
        }
        MeshDevices::Transformed(t) => {
            if !crate::layout::is_permutation(&t.transpose_perm, t.reshape_dims.len()) {
                return Err("the mesh's devices are transposed by something that is no permutation".to_owned());
            }
            t.len().unwrap_or(-1)
        }
        MeshDevices::Explicit(list) => {
            check_unique(&mut list.clone(), ids)?;
            list.len() as i64
        }
    };
    if listed != n {
        return Err(format!("the mesh's axes make {n} devices, but {listed} are listed"));
    }
    Ok(())
}

/// Axes exist, parts of axes divide them, and none is named twice.
pub(super) fn check_axes(mesh: &Mesh, axes: &[AxisRef]) -> Result<(), String> {
    let mut parts = Vec::with_capacity(axes.len());
    for a in axes {
        let Some((name, size)) = mesh.axes.get(a.axis as usize) else {
            return Err(format!("axis {} is named, but the mesh has {}", a.axis, mesh.axes.len()));
        };
        let (before, part) = a.sub_axis.unwrap_or((1, *size));
        let end = before.checked_mul(part).filter(|&e| before > 0 && part > 0 && *size > 0 && size % e == 0);
        let Some(end) = end else {
            return Err(format!("axis '{name}' has size {size}, which ({before}){part} does not divide"));
        };
        parts.push((a.axis, before, end));
    }
    parts.sort_unstable();
    match parts.windows(2).find(|w| w[0].0 == w[1].0 && w[1].1 < w[0].2) {
        Some(w) => Err(format!("axis '{}' is named twice", mesh.axes.get(w[0].0 as usize).map_or("", |a| &a.0))),
        None => Ok(()),
    }
}

/// Shapes agree with the number of devices that meet.
fn group_sizes(context: &Context, id: InstructionId, size: Option<i64>, report: &mut Report) {
    let (Some(size), instruction) = (size, &context.module[id]) else { return };
    let mismatch = |what: String| {
        Diagnostic::error(&SHARD_COUNT, format!("{} `{}`: {what}", instruction.opcode(), instruction.name()))
            .at_instruction(id, Part::Shape)
            .note(format!("{size} devices meet in each group"))
    };
    let (dimension, grows, result) = match &instruction.op {
        Op::AllGather(g) => (g.dimension, true, Some(&instruction.shape)),
        Op::AllGatherStart(g) => (g.dimension, true, instruction.shape.at(&[1])),
        Op::ReduceScatter(r) => (r.dimension, false, Some(&instruction.shape)),
        Op::AllToAll { split_dimension: None, .. } if instruction.operands().len() as i64 != size => {
            let what = format!("{} operands, one for each of {size} devices are needed", instruction.operands().len());
            return report.add(mismatch(what));
        }
        Op::AllToAll { split_dimension: Some(d), .. } => {
            let operand = instruction.operands().first().and_then(|&o| context.module[o].shape.as_array());
            if let Some(n) = operand.and_then(|a| a.dims().get(usize::try_from(*d).ok()?)).filter(|&&n| n % size != 0) {
                report.add(mismatch(format!("dimension {d} has {n} elements, which {size} devices cannot share")));
            }
            return;
        }
        _ => return,
    };
    let results: &[Shape] = match result {
        Some(Shape::Tuple(t)) => t,
        Some(one) => std::slice::from_ref(one),
        None => return,
    };
    let extent = |s: &Shape| s.as_array()?.dims().get(usize::try_from(dimension).ok()?).copied();
    for (&operand, result) in instruction.operands().iter().zip(results) {
        let (Some(before), Some(after)) = (extent(&context.module[operand].shape), extent(result)) else { continue };
        let (whole, part) = if grows { (after, before) } else { (before, after) };
        // Unbounded sizes say nothing.
        if whole >= 0 && part >= 0 && part.checked_mul(size) != Some(whole) {
            let verb = if grows { "grows" } else { "shrinks" };
            report.add(mismatch(format!(
                "dimension {dimension} {verb} from {before} to {after}, not by the factor {size}"
            )));
        }
    }
}

/// Sources and targets of a collective-permute.
fn pairs(context: &Context, id: InstructionId, permute: &CollectivePermute, report: &mut Report) {
    let counts = context.counts;
    let ids = if permute.channel_id.is_some() { counts.partitions } else { counts.replicas };
    // Copies of slices may go from one device to several places.
    let once = permute.slice_sizes.is_empty();
    for (what, pick) in [("source", 0), ("target", 1)] {
        let mut list: Vec<i64> =
            permute.source_target_pairs.iter().map(|&(s, t)| if pick == 0 { s } else { t }).collect();
        if !once {
            list.sort_unstable();
            list.dedup();
        }
        if let Err(why) = check_unique(&mut list, (ids > 1).then_some(ids)) {
            let instruction = &context.module[id];
            report.add(
                Diagnostic::error(
                    &codes::SOURCE_TARGET_PAIRS,
                    format!("{what}s of {} `{}`: {why}", instruction.opcode(), instruction.name()),
                )
                .at_instruction(id, Part::Attribute("source_target_pairs")),
            );
        }
    }
}
