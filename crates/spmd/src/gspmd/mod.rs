//! Propagation of shardings that are tiles without names, in GSPMD's manner.
//!
//! The devices are given axes: the prime factors of their number, in an order along which all annotations cut. Along those
//! axes tiles are named shardings, and go from value to value by the same rules. What GSPMD does besides: annotations hold
//! exactly as they are, but for dimensions said to be unspecified; that a value is replicated is known only if something
//! says so, and spreads too; parameters and results change only where that is allowed, and only to equal parts.

mod replicated;
mod virtual_mesh;

use crate::factors::engine::{self, Order, Rounds};
use crate::factors::{Strategy, TensorSharding, ValueRef};
use crate::propagate::{HloGraph, PropagationOptions, PropagationReport, regions, sequential};
use hloom_ir::Op;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;
use hloom_ir::sharding::{LeafSharding, NamedSharding, Sharding, ShardingKind, same_devices};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Gives every instruction a sharding; what nothing is known of is replicated.
pub fn propagate(module: &mut Module, options: &PropagationOptions) -> Result<PropagationReport, Vec<Diagnostic>> {
    let report = propagate_known(module, options)?;
    for c in sequential(module) {
        for i in module[c].instructions().to_vec() {
            if module[i].common.sharding.is_none() {
                let leaves = module[i].shape.leaf_count();
                let replicated = || LeafSharding::from(ShardingKind::Replicated);
                let sharding = match module[i].shape.is_tuple() {
                    true => Sharding::Tuple((0..leaves).map(|_| replicated()).collect()),
                    false => Sharding::Leaf(Box::new(replicated())),
                };
                module.instruction_mut(i).common.sharding = Some(Arc::new(sharding));
            }
        }
    }
    Ok(report)
}

/// Gives instructions a sharding where one is known.
pub fn propagate_known(
    module: &mut Module,
    options: &PropagationOptions,
) -> Result<PropagationReport, Vec<Diagnostic>> {
    let computations = sequential(module);
    let given: FxHashMap<InstructionId, Sharding> = computations
        .iter()
        .flat_map(|&c| module[c].instructions())
        .filter_map(|&i| Some((i, module[i].common.sharding.as_deref()?.clone())))
        .collect();
    let meshes = virtual_mesh::Meshes::find(module, &given);
    let edges = Edges::new(module, options);
    for (&i, sharding) in &given {
        let named = edges.named(module, i, sharding, &meshes);
        module.instruction_mut(i).common.sharding = named.map(Arc::new);
    }
    regions::separate(module, &computations)?;
    let mut built = HloGraph::for_tiles(module, &computations);
    built.mesh(&meshes.main);
    let mut known = replicated::Known::new(module, &computations, &built, &given, &edges);
    built.apply_annotations(module, &computations);
    engine::run(
        &mut built.graph,
        Rounds { strategy: Strategy::Aggressive, op_priority: true, user_priority: false, order: Order::Sweeps },
    );
    known.spread(&built);
    for &c in &computations {
        for i in module[c].instructions().to_vec() {
            let is_meant = !options.cse_prevention_only || is_scalar_broadcast(module, i);
            let sharding = match is_meant {
                true => edges.result(module, &built, &known, i, given.get(&i)),
                false => given.get(&i).cloned(),
            };
            module.instruction_mut(i).common.sharding = sharding.map(Arc::new);
        }
    }
    Ok(PropagationReport::new(built))
}

fn is_scalar_broadcast(module: &Module, i: InstructionId) -> bool {
    let scalar = |&o: &InstructionId| module[o].shape.as_array().is_some_and(|a| a.rank() == 0);
    matches!(module[i].op, Op::Broadcast { .. }) && module[i].operands().iter().all(scalar)
}

/// Makes copies of the calls that do nothing but state a sharding; they keep it.
pub fn annotations_to_copies(module: &mut Module) {
    for c in module.computations().to_vec() {
        for i in module[c].instructions().to_vec() {
            let states = matches!(&module[i].op, Op::CustomCall(call) if &*call.target == "Sharding");
            if states && module[i].operands().len() == 1 && module[i].common.sharding.is_some() {
                let instruction = module.instruction_mut(i);
                instruction.op = Op::Copy;
                instruction.common.backend_config = None;
                module.rename(i, "copy");
            }
        }
    }
}

/// Which parameters and results may be given shardings.
struct Edges {
    parameters: Vec<bool>,
    outputs: Vec<bool>,
    root: Option<InstructionId>,
}

impl Edges {
    fn new(module: &Module, options: &PropagationOptions) -> Edges {
        let root = module.entry().and_then(|e| module.root(e));
        Edges {
            parameters: options.allow_propagation_to_parameters.clone(),
            outputs: options.allow_propagation_to_output.clone(),
            root,
        }
    }

    /// Whether a leaf of an instruction may change; `None` for what is neither a parameter nor a result.
    fn may_change(&self, module: &Module, i: InstructionId, leaf: usize) -> Option<bool> {
        let pick = |list: &[bool], n: usize| match list {
            [one] => *one,
            all => all.get(n).copied().unwrap_or(false),
        };
        if let Op::Parameter { number, .. } = module[i].op
            && module.entry() == Some(module[i].parent())
        {
            // A list may be for the parameters, or for the leaves of the only one.
            let single = module.parameters(module[i].parent()).len() == 1;
            let n = if single { leaf } else { usize::try_from(number).unwrap_or(0) };
            return Some(pick(&self.parameters, n));
        }
        (self.root == Some(i)).then(|| pick(&self.outputs, leaf))
    }

    /// The annotation of an instruction by the axes of the mesh.
    fn named(
        &self,
        module: &Module,
        i: InstructionId,
        sharding: &Sharding,
        meshes: &virtual_mesh::Meshes,
    ) -> Option<Sharding> {
        let unspecified = unspecified_dims(module, i);
        let shapes = module[i].shape.leaves();
        let leaf = |n: usize, l: &LeafSharding| -> LeafSharding {
            let rank = shapes.get(n).and_then(|(_, s)| s.as_array()).map_or(0, |a| a.rank());
            let may_change = self.may_change(module, i, n) == Some(true);
            let is_maximal = matches!(l.kind, ShardingKind::Maximal { .. });
            let named = NamedSharding::from_kind(&l.kind, rank, meshes.of(&l.kind)).filter(|_| !is_maximal);
            let kind = match named {
                Some(mut named) => {
                    for (d, dim) in named.dims.iter_mut().enumerate() {
                        dim.closed = !may_change && !unspecified.contains(&(d as i64));
                    }
                    ShardingKind::Named(named)
                }
                None => ShardingKind::Unknown,
            };
            LeafSharding { kind, group: l.group, metadata: Vec::new() }
        };
        Some(match sharding {
            Sharding::Leaf(l) => Sharding::Leaf(Box::new(leaf(0, l))),
            Sharding::Tuple(all) => Sharding::Tuple(all.iter().enumerate().map(|(n, l)| leaf(n, l)).collect()),
        })
    }

    /// The sharding of an instruction in the end; `None` if none is known.
    fn result(
        &self,
        module: &Module,
        built: &HloGraph,
        known: &replicated::Known,
        i: InstructionId,
        given: Option<&Sharding>,
    ) -> Option<Sharding> {
        let values = built.values(module, i);
        let shapes = module[i].shape.leaves();
        let mut any = false;
        let mut leaves: Vec<LeafSharding> = Vec::with_capacity(shapes.len());
        for (n, (_, shape)) in shapes.iter().enumerate() {
            let said = given.and_then(|s| match s {
                Sharding::Leaf(l) => Some(&**l),
                Sharding::Tuple(all) => all.get(n),
            });
            let edge = self.may_change(module, i, n);
            let value = match (edge, self.root == Some(i)) {
                (Some(_), true) => built.results.get(n).copied().flatten(),
                _ => values.get(n).copied().flatten(),
            };
            let found = value.and_then(|v| leaf_of(built, known, v, built.manual.of(built.owners[v.index()].0)));
            let divides = |kind: &ShardingKind| match (kind, shape.as_array()) {
                (ShardingKind::Tiled(t), Some(a)) => a.dims().iter().zip(&t.dims).all(|(n, t)| n % t == 0),
                _ => true,
            };
            let leaf = match (said, found) {
                (Some(said), Some(found)) => {
                    let stays = edge == Some(false) || !divides(&found) && edge.is_some();
                    let fixed = edge.is_none() && !is_open(said) && unspecified_dims(module, i).is_empty();
                    let unchanged = stays || fixed || same_devices(&said.kind, &found);
                    any = true;
                    if unchanged { said.clone() } else { found.into() }
                }
                (Some(said), None) => {
                    any |= !is_open(said);
                    said.clone()
                }
                (None, Some(found)) if edge != Some(false) || self.root == Some(i) => {
                    any = true;
                    if edge.is_some() && !divides(&found) { ShardingKind::Replicated.into() } else { found.into() }
                }
                (None, _) => ShardingKind::Replicated.into(),
            };
            leaves.push(if is_open(&leaf) { ShardingKind::Replicated.into() } else { leaf });
        }
        if !any && given.is_none() {
            return None;
        }
        match module[i].shape.is_tuple() {
            true => Some(Sharding::Tuple(leaves)),
            false => leaves.into_iter().next().map(|l| Sharding::Leaf(Box::new(l))).or_else(|| given.cloned()),
        }
    }
}

fn is_open(leaf: &LeafSharding) -> bool {
    matches!(leaf.kind, ShardingKind::Unknown)
}

/// The sharding of a value as tiles, if anything is known of it.
fn leaf_of(built: &HloGraph, known: &replicated::Known, value: ValueRef, manual: &[u32]) -> Option<ShardingKind> {
    let sharding = built.graph.values[value.index()].sharding.as_ref();
    let cuts = |s: &&TensorSharding| s.dims.iter().any(|d| !d.axes.is_empty()) || !s.unreduced.is_empty();
    match sharding.filter(cuts) {
        Some(s) => {
            let mut named = built.graph.to_named(s);
            named.manual = manual.iter().map(|&axis| hloom_ir::device_list::AxisRef { axis, sub_axis: None }).collect();
            named.to_tiles().map(ShardingKind::canonical)
        }
        None if !manual.is_empty() => {
            let mesh = built.graph.mesh_of(built.main_mesh?).clone();
            let rank = built.graph.values[value.index()].dims.len();
            let mut named = NamedSharding::fully_open(mesh, rank);
            named.manual = manual.iter().map(|&axis| hloom_ir::device_list::AxisRef { axis, sub_axis: None }).collect();
            named.to_tiles().map(ShardingKind::canonical)
        }
        None => known.of(value),
    }
}

/// The dimensions that an annotation leaves open: `backend_config="unspecified_dims=[0,1]"`.
fn unspecified_dims(module: &Module, i: InstructionId) -> Vec<i64> {
    let Op::CustomCall(call) = &module[i].op else { return Vec::new() };
    let config = module[i].common.backend_config.as_deref().unwrap_or(&[]);
    let Some(rest) = std::str::from_utf8(config).ok().and_then(|t| t.split_once("unspecified_dims=[")) else {
        return Vec::new();
    };
    if &*call.target != "Sharding" {
        return Vec::new();
    }
    let list = rest.1.split(']').next().unwrap_or("");
    list.split(',').filter_map(|n| n.trim().parse().ok()).collect()
}
