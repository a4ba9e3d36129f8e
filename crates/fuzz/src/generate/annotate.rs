//! What changes no value: metadata, shardings, attributes for front ends and back ends, control dependencies, and the
//! header's aliasing, layouts and schedule.

use super::Generator;
use hloom_ir::attributes::AliasKind;
use hloom_ir::device_list::{AxisRef, IotaTransform, Mesh, MeshDevices};
use hloom_ir::entity::InstructionId;
use hloom_ir::instruction::{OriginTree, OriginalArray, OriginalValue, Statistics};
use hloom_ir::metadata::{FileLocation, Metadata, StackFrame, StackFrames};
use hloom_ir::module::{BufferDonor, InputOutputAlias};
use hloom_ir::op::Op;
use hloom_ir::shape::{Shape, ShapeIndex};
use hloom_ir::sharding::*;
use std::sync::Arc;

/// Strings that are hard to print and to read.
const TEXTS: &[&str] =
    &["jit(f)/mul", "", "a b", "say \"so\"", "back\\slash", "line\nend", "tab\there", "größe", "{brace", "x=1, y"];

pub(super) fn annotate(g: &mut Generator<'_, '_>) {
    if g.choices.chance(40) {
        g.module.stack_frames = stack_frames();
    }
    for computation in g.module.computations().to_vec() {
        for id in g.module[computation].instructions().to_vec() {
            annotate_instruction(g, id);
        }
    }
    hand_on_to_async_roots(g);
    control_dependencies(g);
    header(g);
}

/// What an async-start says of its operation is said of the operation itself, too: that is how text is read.
fn hand_on_to_async_roots(g: &mut Generator<'_, '_>) {
    let all = g.module.computations().iter().flat_map(|&c| g.module[c].instructions()).copied();
    for start in all.collect::<Vec<_>>() {
        let Op::AsyncStart(attributes) = &g.module[start].op else { continue };
        let Some(root) = g.module.root(attributes.calls) else { continue };
        let said = g.module[start].common.clone();
        let inner = &mut g.module.instruction_mut(root).common;
        inner.metadata = said.metadata.or(inner.metadata.take());
        inner.backend_config = said.backend_config.or(inner.backend_config.take());
        if let Some(said) = said.rare {
            let inner = inner.rare_mut();
            if !said.frontend_attributes.is_empty() {
                inner.frontend_attributes = said.frontend_attributes;
            }
            inner.statistics = said.statistics.or(inner.statistics.take());
        }
    }
}

fn annotate_instruction(g: &mut Generator<'_, '_>, id: InstructionId) {
    let shape = g.module[id].shape.clone();
    let mut common = std::mem::take(&mut g.module.instruction_mut(id).common);
    if g.choices.chance(20) {
        common.metadata = Some(Box::new(any_metadata(g)));
    }
    if g.choices.chance(15) && has_arrays_only(&shape) {
        common.sharding = Some(Arc::new(any_sharding(g, &shape)));
    }
    if g.choices.chance(10) {
        let config = *g.choices.pick(&[
            r#"{"a":{"b":[1,2]},"s":"}"}"#,
            "plain words",
            "{}",
            "quoted \"words\" and \\ and \n",
            "{unbalanced",
        ]);
        common.backend_config = Some(config.as_bytes().into());
    }
    if g.choices.chance(8) {
        for _ in 0..g.choices.between(1, 3) {
            let key = *g.choices.pick(&["k", "_xla_compute_type", "inlineable", "a.b-c"]);
            let value = *g.choices.pick(&["v", "", "true", "{\"a\": {1}}", "say \"so\"", "{unbalanced"]);
            common.rare_mut().frontend_attributes.insert(key.into(), value.into());
        }
    }
    if g.choices.chance(3) {
        let values = vec![("s".into(), 1.5), ("t-1".into(), f64::from(g.choices.below(1000) as u32))];
        common.rare_mut().statistics = Some(Statistics { visualizing_index: g.choices.between(0, 1), values });
    }
    if g.choices.chance(5) {
        common.rare_mut().origin = Some(OriginalValue::Tree(any_origin(g, &shape)));
    }
    let instruction = g.module.instruction_mut(id);
    instruction.common = common;
    if let Op::Parameter { replication, .. } = &mut instruction.op
        && g.choices.chance(10)
    {
        *replication = Some((0..shape.leaf_count()).map(|_| g.choices.chance(50)).collect());
    }
}

fn any_metadata(g: &mut Generator<'_, '_>) -> Metadata {
    let text = |g: &mut Generator<'_, '_>| Arc::from(*g.choices.pick(TEXTS));
    let mut metadata = Metadata { op_type: text(g), op_name: text(g), source_file: text(g), ..Metadata::default() };
    if g.choices.chance(50) {
        metadata.source_line = g.choices.between(0, 99) as i32;
    }
    if g.choices.chance(20) {
        metadata.source_end_line = g.choices.between(0, 99) as i32;
        metadata.source_column = g.choices.between(0, 99) as i32;
        metadata.source_end_column = g.choices.between(0, 99) as i32;
    }
    metadata.stack_frame_id = g.choices.between(0, g.module.stack_frames.frames.len() as i64) as i32;
    if g.choices.chance(10) {
        metadata.rare_mut().scheduling_name = (*g.choices.pick(TEXTS)).into();
        metadata.rare_mut().deduplicated_name = (*g.choices.pick(TEXTS)).into();
    }
    metadata
}

fn stack_frames() -> StackFrames {
    let location = |file_name_id, line| FileLocation {
        file_name_id,
        function_name_id: 3 - file_name_id,
        line,
        end_line: line,
        column: 4,
        end_column: 9,
    };
    StackFrames {
        file_names: vec!["model.py".into(), "dir/with \"quotes\".py".into()],
        function_names: vec!["<lambda>".into(), "step".into()],
        file_locations: vec![location(1, 10), location(2, 20), location(1, 30)],
        frames: vec![
            StackFrame { file_location_id: 1, parent_frame_id: 0 },
            StackFrame { file_location_id: 3, parent_frame_id: 1 },
            StackFrame { file_location_id: 2, parent_frame_id: 2 },
        ],
    }
}

/// Whether every leaf can have a sharding and there is at least one.
fn has_arrays_only(shape: &Shape) -> bool {
    let leaves = shape.leaves();
    !leaves.is_empty() && leaves.iter().all(|l| l.1.is_array())
}

fn any_sharding(g: &mut Generator<'_, '_>, shape: &Shape) -> Sharding {
    match shape {
        Shape::Tuple(_) => {
            let ranks: Vec<usize> = shape.leaves().iter().map(|l| rank(l.1)).collect();
            Sharding::Tuple(ranks.into_iter().map(|rank| leaf_sharding(g, rank)).collect())
        }
        leaf => Sharding::Leaf(Box::new(leaf_sharding(g, rank(leaf)))),
    }
}

fn rank(shape: &Shape) -> usize {
    shape.as_array_or_buffer().map_or(0, |a| a.rank())
}

fn leaf_sharding(g: &mut Generator<'_, '_>, rank: usize) -> LeafSharding {
    let n = g.options.partitions;
    let kind = match g.choices.below(10) {
        0 => ShardingKind::Manual,
        1 => ShardingKind::Maximal { device: g.choices.between(0, n - 1) },
        2 => ShardingKind::Unknown,
        3..=6 if rank > 0 && n > 1 => ShardingKind::Tiled(tile_assignment(g, rank, n)).canonical(),
        7 if rank > 0 && n > 1 => ShardingKind::Named(named_sharding(g, rank, n)),
        _ => ShardingKind::Replicated,
    };
    let grouped = matches!(kind, ShardingKind::Replicated | ShardingKind::Tiled(_)) && g.choices.chance(10);
    let group = grouped.then(|| ShardGroup {
        id: g.choices.between(0, 9),
        kind: if g.choices.chance(50) { ShardGroupKind::As } else { ShardGroupKind::Like },
    });
    let metadata = match g.choices.below(10) {
        8 => vec![any_metadata(g)],
        9 => vec![any_metadata(g), any_metadata(g)],
        _ => Vec::new(),
    };
    LeafSharding { kind, group, metadata }
}

/// All `n` devices along one dimension, or half of them along it and copies over the rest.
fn tile_assignment(g: &mut Generator<'_, '_>, rank: usize, n: i64) -> TileAssignment {
    let at = g.choices.below(rank);
    let halves = n % 2 == 0 && g.choices.chance(50);
    let mut dims: smallvec::SmallVec<[i64; 4]> = (0..rank).map(|_| 1).collect();
    dims[at] = if halves { n / 2 } else { n };
    let subgroups = match (halves, g.choices.below(2)) {
        (false, _) => Subgroups::None,
        (true, 0) => Subgroups::ReplicateLast,
        (true, _) => Subgroups::Types(vec![SubgroupType::Manual]),
    };
    if halves {
        dims.push(2);
    }
    let devices = match g.choices.below(3) {
        0 => TileDevices::Iota(IotaTransform::identity(n)),
        1 if n % 2 == 0 && n > 2 => TileDevices::Iota(IotaTransform {
            reshape_dims: [2, n / 2].into_iter().collect(),
            transpose_perm: [1, 0].into_iter().collect(),
        }),
        _ => {
            let mut list: Vec<i64> = (0..n).collect();
            g.choices.shuffle(&mut list);
            TileDevices::Explicit(list)
        }
    };
    TileAssignment { dims, devices, subgroups }
}

fn named_sharding(g: &mut Generator<'_, '_>, rank: usize, n: i64) -> NamedSharding {
    let axes = if n % 2 == 0 { vec![("a".into(), 2), ("b".into(), n / 2)] } else { vec![("a".into(), n)] };
    let last = AxisRef { axis: axes.len() as u32 - 1, sub_axis: None };
    let mut dims: Vec<_> =
        (0..rank).map(|_| DimSharding { axes: Vec::new(), closed: g.choices.chance(70), priority: None }).collect();
    dims[g.choices.below(rank)].axes.push(AxisRef { axis: 0, sub_axis: None });
    let mut sharding = NamedSharding {
        mesh: Arc::new(Mesh { axes, devices: MeshDevices::Iota }),
        dims,
        replicated: Vec::new(),
        unreduced: Vec::new(),
        manual: Vec::new(),
        reduction: UnreducedReduction::Sum,
    };
    if last.axis > 0 {
        match g.choices.below(4) {
            0 => sharding.replicated.push(last),
            1 => sharding.unreduced.push(last),
            2 => sharding.manual.push(last),
            _ => {}
        }
    }
    sharding
}

fn any_origin(g: &mut Generator<'_, '_>, shape: &Shape) -> OriginTree {
    match shape {
        Shape::Tuple(parts) => OriginTree::Tuple(parts.iter().map(|p| any_origin(g, p)).collect()),
        _ if g.choices.chance(30) => OriginTree::Leaf(None),
        _ => {
            let index = if g.choices.chance(30) { ShapeIndex::from_slice(&[1, 0]) } else { ShapeIndex::new() };
            OriginTree::Leaf(Some(OriginalArray { instruction_name: "source.1".into(), index }))
        }
    }
}

/// Control dependencies on earlier instructions of the entry: along the list, so that no cycle comes about.
fn control_dependencies(g: &mut Generator<'_, '_>) {
    let Some(entry) = g.module.entry() else { return };
    let list = g.module[entry].instructions().to_vec();
    for at in 1..list.len() {
        if g.choices.chance(5) {
            let before = list[g.choices.below(at)];
            g.module.instruction_mut(list[at]).common.rare_mut().control_predecessors.push(before);
        }
    }
}

fn header(g: &mut Generator<'_, '_>) {
    let Some(entry) = g.module.entry() else { return };
    let Some(program) = g.module.program_shape(entry) else { return };
    g.module.is_scheduled = g.choices.chance(30);
    let mut outputs: Vec<_> = program.result.leaves().into_iter().map(|(i, s)| (i, s.clone())).collect();
    for (number, shape) in program.parameters.iter().enumerate() {
        for (parameter_index, leaf) in shape.leaves() {
            let parameter = number as i64;
            if let Some(at) = outputs.iter().position(|o| o.1 == *leaf).filter(|_| g.choices.chance(30)) {
                let (output_index, _) = outputs.remove(at);
                let kind = *g.choices.pick(AliasKind::ALL);
                let alias = InputOutputAlias { output_index, parameter, parameter_index, kind };
                g.module.config.input_output_alias.push(alias);
            } else if g.choices.chance(10) {
                g.module.config.buffer_donors.push(BufferDonor { parameter, parameter_index });
            }
        }
    }
    g.module.config.input_output_alias.sort_by(|a, b| a.output_index.cmp(&b.output_index));
    if g.choices.chance(10) {
        let flags = |g: &mut Generator<'_, '_>, n: usize| (0..n).map(|_| g.choices.chance(50)).collect::<Vec<_>>();
        g.module.config.allow_spmd_sharding_propagation_to_output = flags(g, 1);
        let parameters = program.parameters.len();
        g.module.config.allow_spmd_sharding_propagation_to_parameters = flags(g, parameters);
    }
    g.module.config.alias_passthrough_params = g.choices.chance(5);
    if g.choices.chance(20) {
        g.module.config.frontend_attributes.insert("fingerprint".into(), (*g.choices.pick(TEXTS)).into());
    }
    if g.choices.chance(30) {
        g.module.config.entry_layout = Some(program);
    }
}
