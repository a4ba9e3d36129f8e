//! What a way of laying out parameters costs: the program is propagated and partitioned, and its time and memory are
//! worked out on the target.

use super::{ActivationClass, Choice, SearchOptions};
use crate::partition::Partitioned;
use crate::propagate::{PropagationOptions, propagate};
use hloom_analysis::cost::{cost, shape_bytes};
use hloom_cost::{CollectiveKind, Communication, CostModel};
use hloom_ir::Op;
use hloom_ir::device_list::{AxisRef, Mesh, MeshDevices};
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::sharding::{DimSharding, NamedSharding, Sharding, ShardingKind};
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_target::Topology;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What a layout costs on one device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// Seconds of a step: work and communication one after the other.
    pub seconds: f64,
    /// Of these, communication.
    pub communication_seconds: f64,
    /// Bytes that a device sends.
    pub wire_bytes: f64,
    /// Bytes of parameters, results and what lives between, at most.
    pub memory_bytes: u64,
}

/// The mesh of the search: axes `a`, `b`, … of those sizes.
pub(super) fn mesh(sizes: &[i64]) -> Arc<Mesh> {
    let name = |i: usize| char::from(b'a' + (i % 26) as u8).to_string();
    let axes = sizes.iter().enumerate().map(|(i, &n)| (name(i).into(), n)).collect();
    Arc::new(Mesh { axes, devices: MeshDevices::Iota })
}

/// The program with its parameters laid out so, and what is said of its activations; results that take a parameter's
/// memory lie as it does.
pub(super) fn annotated(source: &Module, mesh: &Arc<Mesh>, classes: &[ActivationClass], chosen: &Choice) -> Module {
    let layout = &chosen.layout;
    let mut module = source.clone();
    let Some(entry) = module.entry() else { return module };
    let named = |lists: &[super::AxisUse]| {
        let mut named = NamedSharding::fully_open(mesh.clone(), lists.len());
        for (dim, list) in named.dims.iter_mut().zip(lists) {
            let axes = list.iter().map(|&a| AxisRef { axis: a as u32, sub_axis: None }).collect();
            *dim = DimSharding { axes, closed: true, priority: None };
        }
        named
    };
    let parameters = module.parameters(entry);
    for (&p, lists) in parameters.iter().zip(layout) {
        if module[p].shape.is_array() {
            let sharding = Sharding::leaf(ShardingKind::Named(named(lists)));
            module.instruction_mut(p).common.sharding = Some(Arc::new(sharding));
        }
    }
    for (class, lists) in classes.iter().zip(&chosen.activations) {
        let Some(lists) = lists else { continue };
        let mut sharding = NamedSharding::fully_open(mesh.clone(), lists.len());
        for (dim, stated) in sharding.dims.iter_mut().zip(named(lists).dims).filter(|(_, s)| !s.axes.is_empty()) {
            *dim = stated;
        }
        for &i in class.members.iter().filter(|&&i| Some(i) != source.root(source[i].parent())) {
            let sharding = Sharding::leaf(ShardingKind::Named(sharding.clone()));
            module.instruction_mut(i).common.sharding = Some(Arc::new(sharding));
        }
    }
    if let Some(root) = module.root(entry).filter(|&r| matches!(module[r].op, Op::Tuple)) {
        let shapes = module[root].shape.leaves();
        if shapes.len() == module[root].operands().len() {
            let open = |rank: usize| NamedSharding::fully_open(mesh.clone(), rank);
            let mut leaves: Vec<NamedSharding> =
                shapes.iter().map(|(_, s)| open(s.as_array().map_or(0, |a| a.rank()))).collect();
            for alias in &source.config.input_output_alias {
                let (Ok(p), [o]) = (usize::try_from(alias.parameter), &alias.output_index[..]) else { continue };
                let fits = layout.get(p).zip(leaves.get_mut(*o as usize));
                if let Some((lists, leaf)) = fits.filter(|(lists, leaf)| lists.len() == leaf.dims.len()) {
                    *leaf = named(lists);
                }
            }
            let leaves = leaves.into_iter().map(|n| ShardingKind::Named(n).into()).collect();
            module.instruction_mut(root).common.sharding = Some(Arc::new(Sharding::Tuple(leaves)));
        }
    }
    module
}

/// Propagates and partitions the annotated program.
pub(super) fn realize(module: &mut Module, devices: i64) -> Result<(Partitioned, VerifiedModule), Vec<Diagnostic>> {
    propagate(module, &PropagationOptions::default())?;
    let mut partitioned = crate::partition::partition(module, devices).map_err(|d| vec![d])?;
    let made = std::mem::replace(&mut partitioned.module, Module::new("moved"));
    let made = verify(made, &VerifyOptions { devices: Some(devices) }).map_err(|invalid| invalid.diagnostics)?;
    Ok((partitioned, made))
}

/// The price of a program of one device.
pub(super) fn price(made: &VerifiedModule, options: &SearchOptions<'_>) -> Result<Price, Diagnostic> {
    let module = made.module();
    let model = CostModel::new(module, options.target)?;
    let devices: i64 = options.mesh.iter().product();
    let shaped = Topology::parse(&options.mesh.iter().map(i64::to_string).collect::<Vec<_>>().join("x"))?;
    let communication = match Communication::new(options.target, shaped) {
        Ok(communication) => communication,
        Err(_) => Communication::new(options.target, Topology::parse(&devices.to_string())?)?,
    };
    let runs = cost(made);
    let (mut work, mut sent, mut wire) = (0.0, 0.0, 0.0);
    for &c in module.computations() {
        let times = runs.runs(c).in_memory as f64;
        if times == 0.0 {
            continue;
        }
        for &i in module[c].instructions() {
            let op = &module[i].op;
            let bytes = |ids: &[InstructionId]| ids.iter().map(|&o| shape_bytes(&module[o].shape) as f64).sum::<f64>();
            let transfer = match (CollectiveKind::of(op), op) {
                (Some(kind), _) => {
                    let group = op.collective().and_then(|c| c.replica_groups.expand());
                    let group = group.and_then(|g| g.into_iter().next()).unwrap_or_else(|| (0..devices).collect());
                    let group: Vec<usize> = group.iter().filter_map(|&d| usize::try_from(d).ok()).collect();
                    let whole = match kind {
                        CollectiveKind::AllGather => shape_bytes(&module[i].shape) as f64,
                        _ => bytes(module[i].operands()),
                    };
                    Some(communication.collective(kind, whole, &communication.shape_of(&group)))
                }
                (None, Op::CollectivePermute(permute)) => {
                    let device = |d: i64| usize::try_from(d).unwrap_or(0);
                    let pairs: Vec<(usize, usize)> =
                        permute.source_target_pairs.iter().map(|&(s, t)| (device(s), device(t))).collect();
                    Some(communication.permute(&pairs, bytes(module[i].operands())))
                }
                _ => None,
            };
            if let Some(transfer) = transfer {
                sent += transfer.seconds * times;
                wire += transfer.wire_bytes * times;
            } else if !joins_its_user(module, i) {
                // A call of which nothing is known costs the same however the rest lies.
                work += model.instruction(i).map_or(0.0, |c| c.seconds) * times;
            }
        }
    }
    Ok(Price { seconds: work + sent, communication_seconds: sent, wire_bytes: wire, memory_bytes: memory(module) })
}

/// Whether an instruction will be computed where its only user needs it.
fn joins_its_user(module: &Module, i: InstructionId) -> bool {
    let op = &module[i].op;
    let light = op.is_elementwise()
        || matches!(
            op,
            Op::Broadcast { .. } | Op::Reshape { .. } | Op::Iota { .. } | Op::Slice { .. } | Op::Pad { .. }
        );
    let [user] = module[i].users() else { return false };
    light && (module[*user].op.is_elementwise() || matches!(module[*user].op, Op::Reduce { .. } | Op::Broadcast { .. }))
}

/// Bytes that are live at once, at most, if instructions run in the order in which they are listed.
fn memory(module: &Module) -> u64 {
    let mut peaks: FxHashMap<ComputationId, u64> = FxHashMap::default();
    let mut result = 0;
    for c in hloom_ir::order::computations(module) {
        let listed = module[c].instructions();
        let place: FxHashMap<InstructionId, usize> = listed.iter().enumerate().map(|(n, &i)| (i, n)).collect();
        let mut ends: Vec<Vec<InstructionId>> = vec![Vec::new(); listed.len() + 1];
        let (mut live, mut peak) = (0u64, 0u64);
        for (n, &i) in listed.iter().enumerate() {
            let is_name = matches!(module[i].op, Op::Tuple | Op::GetTupleElement { .. });
            let fused = joins_its_user(module, i);
            let bytes = if is_name || fused { 0 } else { shape_bytes(&module[i].shape) };
            let last = module[i].users().iter().filter_map(|u| place.get(u)).max().copied().unwrap_or(n);
            let is_kept = module.root(c) == Some(i) || matches!(module[i].op, Op::Parameter { .. });
            if bytes > 0 {
                live += bytes;
                ends[if is_kept { listed.len() } else { last }].push(i);
            }
            let called = module[i].op.called_computations().iter().filter_map(|c| peaks.get(c)).max();
            peak = peak.max(live + called.copied().unwrap_or(0));
            for ended in std::mem::take(&mut ends[n]) {
                live = live.saturating_sub(shape_bytes(&module[ended].shape));
            }
        }
        let own: u64 = match module.entry() == Some(c) {
            true => 0,
            false => module.parameters(c).iter().map(|&p| shape_bytes(&module[p].shape)).sum(),
        };
        peaks.insert(c, peak.saturating_sub(own));
        if module.entry() == Some(c) {
            result = peak;
        }
    }
    result
}
