//! Shardings of the graph as shardings of the module.

use super::hlo_graph::{HloGraph, is_shell};
use crate::factors::{TensorSharding, ValueRef, axis_refs};
use crate::shardy::{evenly_cut, whole_axes};
use hloom_ir::device_list::AxisRef;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::{ComputationId, InstructionId};
use hloom_ir::module::{Module, NewInstruction};
use hloom_ir::op::CustomCall;
use hloom_ir::sharding::{DimSharding, LeafSharding, NamedSharding, Sharding, ShardingKind};
use hloom_ir::{Op, Shape};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What is known of a leaf: a sharding of the graph, or only the array's rank.
type Known<'g> = Result<&'g TensorSharding, usize>;

struct Writer<'g> {
    built: &'g HloGraph,
    /// What is written for a sharding of the graph, or for none, by rank, and the manual axes around it.
    written: FxHashMap<(Known<'g>, &'g [u32]), Arc<Sharding>>,
}

impl<'g> Writer<'g> {
    fn named(&self, sharding: &TensorSharding, manual: &[u32]) -> NamedSharding {
        let graph = &self.built.graph;
        let mesh = graph.mesh_of(sharding.mesh);
        let mut unreduced = axis_refs(mesh, &sharding.unreduced);
        // Inside, what is summed along a manual axis is a value of its own on each device.
        unreduced.retain(|a| !manual.contains(&a.axis));
        NamedSharding {
            mesh: mesh.clone(),
            dims: sharding.dims.iter().map(|d| DimSharding::closed(axis_refs(mesh, &d.axes))).collect(),
            replicated: Vec::new(),
            unreduced,
            manual: manual.iter().map(|&axis| AxisRef { axis, sub_axis: None }).collect(),
            reduction: sharding.reduction,
        }
    }

    /// The sharding of a value, if it is one that an array of that shape can have; else the array's rank.
    fn known(&self, value: Option<ValueRef>, shape: &Shape) -> Known<'g> {
        let graph = &self.built.graph;
        let rank = shape.as_array().map_or(0, |a| a.rank());
        let known = value.and_then(|v| graph.values[v.index()].sharding.as_ref());
        known.filter(|s| s.dims.len() == rank || graph.is_maximal(s.mesh)).ok_or(rank)
    }

    /// The sharding of a leaf; what nothing is known of is on all devices alike.
    fn leaf(&self, known: Known<'_>, manual: &[u32]) -> LeafSharding {
        let kind = match (known, self.built.main_mesh) {
            (Ok(s), _) => ShardingKind::Named(self.named(s, manual)),
            (Err(rank), Some(mesh)) => ShardingKind::Named(self.named(&TensorSharding::fully_open(mesh, rank), manual)),
            (Err(_), None) => ShardingKind::Replicated,
        };
        kind.into()
    }

    fn instruction(&mut self, module: &Module, i: InstructionId) -> Arc<Sharding> {
        let built = self.built;
        let values = built.values(module, i);
        let manual = |value: Option<ValueRef>| {
            // An element of a tuple is inside a manual computation if what it was made of is.
            built.manual.of(value.map_or(i, |v| built.owners[v.index()].0))
        };
        let shape = &module[i].shape;
        if shape.is_tuple() {
            let leaf = |(n, (_, shape)): (usize, (_, &Shape))| {
                let value = values.get(n).copied().flatten();
                self.leaf(self.known(value, shape), manual(value))
            };
            return Arc::new(Sharding::Tuple(shape.leaves().into_iter().enumerate().map(leaf).collect()));
        }
        let value = values.first().copied().flatten();
        let key = (self.known(value, shape), manual(value));
        if let Some(written) = self.written.get(&key) {
            return written.clone();
        }
        let sharding = Arc::new(Sharding::Leaf(Box::new(self.leaf(key.0, key.1))));
        self.written.insert(key, sharding.clone());
        sharding
    }
}

/// Gives every instruction the sharding of its values.
pub(super) fn shardings(
    module: &mut Module,
    built: &HloGraph,
    computations: &[ComputationId],
) -> Result<(), Vec<Diagnostic>> {
    let mut w = Writer { built, written: FxHashMap::default() };
    for &c in computations {
        for i in module[c].instructions().to_vec() {
            let sharding = w.instruction(module, i);
            module.instruction_mut(i).common.sharding = Some(sharding);
        }
    }
    // What goes into a manual computation is annotated with the sharding outside.
    for (placed, inside, view) in &built.views {
        if let Some(s) = &built.graph.values[inside.index()].sharding {
            let named = w.named(&view.add(s), built.manual.of(*placed));
            module.instruction_mut(*placed).common.sharding =
                Some(Arc::new(Sharding::leaf(ShardingKind::Named(named))));
        }
    }
    let Some(entry) = module.entry() else { return Ok(()) };
    for p in module.parameters(entry) {
        edge_sharding(module, built, p);
    }
    results(module, &w, entry)
}

/// An input that the program leaves open is cut into equal parts along whole axes.
fn edge_sharding(module: &mut Module, built: &HloGraph, i: InstructionId) {
    let values = built.values(module, i).to_vec();
    let shapes: Vec<Vec<i64>> =
        module[i].shape.leaves().iter().map(|(_, s)| s.as_array().map_or(Vec::new(), |a| a.dims().to_vec())).collect();
    let Some(mut sharding) = module.instruction_mut(i).common.sharding.take() else { return };
    let leaves = match Arc::make_mut(&mut sharding) {
        Sharding::Leaf(leaf) => std::slice::from_mut(&mut **leaf),
        Sharding::Tuple(all) => all,
    };
    for (n, leaf) in leaves.iter_mut().enumerate() {
        let known = values.get(n).copied().flatten().and_then(|v| built.graph.values[v.index()].sharding.as_ref());
        if let (ShardingKind::Named(named), Some(known), Some(dims)) = (&mut leaf.kind, known, shapes.get(n)) {
            at_the_edge(named, known, dims);
        }
    }
    module.instruction_mut(i).common.sharding = Some(sharding);
}

fn at_the_edge(named: &mut NamedSharding, known: &TensorSharding, dims: &[i64]) {
    evenly_cut(named, dims);
    for (dim, known) in named.dims.iter_mut().zip(&known.dims) {
        dim.closed = known.closed;
    }
    whole_axes(named);
    named.dims.iter_mut().for_each(|d| d.closed = true);
}

/// The root has the shardings of the results, through an instruction of its own where it computes something in another.
fn results(module: &mut Module, w: &Writer<'_>, entry: ComputationId) -> Result<(), Vec<Diagnostic>> {
    let Some(root) = module.root(entry) else { return Ok(()) };
    let shape = module[root].shape.clone();
    let mut leaves = Vec::new();
    for (n, (_, leaf)) in shape.leaves().into_iter().enumerate() {
        let value = w.built.results.get(n).copied().flatten();
        let mut sharding = w.leaf(w.known(value, leaf), &[]);
        let known = value.and_then(|v| w.built.graph.values[v.index()].sharding.as_ref());
        if let (ShardingKind::Named(named), Some(known), Some(array)) = (&mut sharding.kind, known, leaf.as_array()) {
            at_the_edge(named, known, array.dims());
        }
        leaves.push(sharding);
    }
    let sharding = match (shape.is_tuple(), leaves.len()) {
        (true, _) => Sharding::Tuple(leaves),
        (false, 1) => Sharding::Leaf(Box::new(leaves.remove(0))),
        (false, _) => return Ok(()),
    };
    let same = module[root].common.sharding.as_deref() == Some(&sharding);
    let mut holder = root;
    if !same && !is_shell(module, root) {
        let (op, operands) = match &shape {
            Shape::Array(_) => (Op::CustomCall(Box::new(CustomCall::new("Sharding"))), vec![root]),
            Shape::Tuple(elements) => (Op::Tuple, elements_of(module, entry, root, elements)),
            // A token lies nowhere.
            _ => return Ok(()),
        };
        let operands = operands.into_iter().collect();
        let new = NewInstruction { name: "result".into(), op, shape, operands, common: Default::default() };
        holder = module.add_instruction(entry, new);
        module.set_root(holder);
    }
    module.instruction_mut(holder).common.sharding = Some(Arc::new(sharding));
    Ok(())
}

/// The elements of a tuple, each with its part of the tuple's sharding.
fn elements_of(
    module: &mut Module,
    entry: ComputationId,
    tuple: InstructionId,
    shapes: &[Shape],
) -> Vec<InstructionId> {
    let leaves = module[tuple].common.sharding.as_deref().map_or_else(Vec::new, |s| s.leaves().to_vec());
    let mut leaves = leaves.into_iter();
    let element = |(n, shape): (usize, &Shape)| {
        let mut of_element: Vec<LeafSharding> = leaves.by_ref().take(shape.leaf_count()).collect();
        let sharding = match shape.is_tuple() {
            true => Some(Sharding::Tuple(of_element)),
            false => of_element.pop().map(|leaf| Sharding::Leaf(Box::new(leaf))),
        };
        let mut new = NewInstruction {
            name: "element".into(),
            op: Op::GetTupleElement { index: n as i64 },
            shape: shape.clone(),
            operands: [tuple].into_iter().collect(),
            common: Default::default(),
        };
        new.common.sharding = sharding.map(Arc::new);
        module.add_instruction(entry, new)
    };
    shapes.iter().enumerate().map(element).collect()
}
