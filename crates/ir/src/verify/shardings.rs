//! Shardings: the parts fit the shape, and the devices fit the parts.

use super::devices::{check_axes, check_mesh, check_unique};
use super::{Context, Report};
use crate::device_list::ReplicaGroups;
use crate::diagnostic::codes::verify as codes;
use crate::diagnostic::{Diagnostic, Part};
use crate::entity::InstructionId;
use crate::infer::{counted, text};
use crate::shape::Shape;
use crate::sharding::{NamedSharding, Sharding, ShardingKind, TileAssignment, TileDevices};

/// Checks the sharding of instruction `id` that `attribute` gives.
pub(super) fn check(
    context: &Context,
    id: InstructionId,
    attribute: &'static str,
    sharding: &Sharding,
    report: &mut Report,
) {
    let instruction = &context.module[id];
    let ids = (context.counts.partitions > 1).then_some(context.counts.partitions);
    if let Err(what) = check_sharding(sharding, &instruction.shape, ids) {
        report.add(
            Diagnostic::error(&codes::SHARDING, format!("sharding of `{}`: {what}", instruction.name()))
                .at_instruction(id, Part::Attribute(attribute))
                .label(format!("for {}", text(&instruction.shape))),
        );
    }
}

fn check_sharding(sharding: &Sharding, shape: &Shape, ids: Option<i64>) -> Result<(), String> {
    match (sharding, shape) {
        // Instructions with side effects may be sharded as one, whatever comes of them.
        (_, Shape::Token) => Ok(()),
        (Sharding::Leaf(leaf), _) => check_kind(&leaf.kind, shape, ids),
        (Sharding::Tuple(parts), Shape::Tuple(_)) => {
            let leaves = shape.leaves();
            // A tuple without leaves still has one sharding in protos.
            if parts.len() != leaves.len() && !(leaves.is_empty() && parts.len() == 1) {
                return Err(format!(
                    "it has {}, but the tuple has {} leaves",
                    counted(parts.len(), "part"),
                    leaves.len()
                ));
            }
            parts.iter().zip(leaves).try_for_each(|(part, (_, leaf))| match leaf {
                Shape::Token => Ok(()),
                leaf => check_kind(&part.kind, leaf, ids),
            })
        }
        (Sharding::Tuple(_), _) => Err(format!("it is for a tuple, but the shape is {}", text(shape))),
    }
}

fn check_kind(kind: &ShardingKind, shape: &Shape, ids: Option<i64>) -> Result<(), String> {
    match kind {
        ShardingKind::Replicated | ShardingKind::Manual | ShardingKind::Unknown | ShardingKind::Unreduced => Ok(()),
        ShardingKind::Maximal { device } => check_unique(&mut [*device], ids),
        ShardingKind::Tiled(tiles) => check_tiles(tiles, shape, ids),
        ShardingKind::Named(named) => check_named(named, shape, ids),
    }
}

fn check_tiles(tiles: &TileAssignment, shape: &Shape, ids: Option<i64>) -> Result<(), String> {
    if let Some(d) = tiles.dims.iter().position(|&d| d < 1) {
        return Err(format!("dimension {d} is cut into {} tiles", tiles.dims[d]));
    }
    let Some(count) = tiles.num_tiles().filter(|&n| n <= ReplicaGroups::MAX_DEVICES) else {
        return Err(format!("it has more than {} tiles", ReplicaGroups::MAX_DEVICES));
    };
    let devices = match &tiles.devices {
        TileDevices::Explicit(list) => {
            check_unique(&mut list.clone(), ids)?;
            list.len() as i64
        }
        TileDevices::Iota(iota) => {
            if !crate::layout::is_permutation(&iota.transpose_perm, iota.reshape_dims.len()) {
                return Err("its devices are transposed by something that is no permutation".to_owned());
            }
            iota.len().unwrap_or(-1)
        }
    };
    if devices != count {
        return Err(format!("{count} tiles, but {devices} devices"));
    }
    if let Some(ids) = ids.filter(|&ids| ids != count) {
        return Err(format!("it is over {count} devices, but there are {ids} partitions"));
    }
    check_rank(tiles.data_rank(), shape)
}

fn check_named(named: &NamedSharding, shape: &Shape, ids: Option<i64>) -> Result<(), String> {
    check_mesh(&named.mesh, ids)?;
    let lists = named.dims.iter().map(|d| &d.axes).chain([&named.replicated, &named.unreduced, &named.manual]);
    let axes: Vec<_> = lists.flatten().cloned().collect();
    check_axes(&named.mesh, &axes)?;
    if named.dims.iter().all(|d| d.axes.is_empty()) {
        return Ok(());
    }
    check_rank(named.dims.len(), shape)
}

fn check_rank(cut: usize, shape: &Shape) -> Result<(), String> {
    match shape.as_array_or_buffer() {
        Some(array) if array.rank() == cut => Ok(()),
        Some(array) => Err(format!("it cuts {}, but the array has {}", counted(cut, "dimension"), array.rank())),
        None => Err(format!("it cuts {}, but the shape is {}", counted(cut, "dimension"), text(shape))),
    }
}
