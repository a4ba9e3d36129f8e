//! The shardings that a program in MLIR gives its values.

use crate::factors::{Graph, MeshId, TensorSharding};
use crate::rules::Dims;
use hloom_ir::device_list::Mesh;
use hloom_stablehlo::mlir::{Attr, AttrId, Module, OpId, ValueId};
use std::sync::Arc;

/// The meshes of a program, with the attributes that name them.
#[derive(Default)]
pub(super) struct Meshes {
    /// In the order of the graph's meshes.
    pub attributes: Vec<AttrId>,
}

impl Meshes {
    /// The mesh that an attribute names or holds, as one of the graph's.
    pub(super) fn find(&mut self, module: &Module<'_>, graph: &mut Graph, id: AttrId) -> Option<MeshId> {
        let same = |&known: &AttrId| known == id || module.attr(known) == module.attr(id);
        if let Some(i) = self.attributes.iter().position(same) {
            return Some(MeshId(i as u32));
        }
        let mesh: Mesh = module.mesh(id)?;
        self.attributes.push(id);
        Some(graph.add_mesh(Arc::new(mesh)))
    }

    /// A `sdy.sharding` attribute; `None` if it refers to what is not there.
    pub(super) fn sharding(&mut self, module: &Module<'_>, graph: &mut Graph, id: AttrId) -> Option<TensorSharding> {
        let mesh = self.find(module, graph, module.field(id, "mesh")?)?;
        let named = module.named_sharding(id, &graph.mesh_of(mesh).clone())?;
        Graph::sharding(&named, mesh)
    }
}

/// The `sdy.sharding` of the `i`th argument or result of a function.
pub(super) fn of_function(module: &Module<'_>, function: OpId, list: &str, i: usize) -> Option<AttrId> {
    let &dict = module.list(module.find(function, list)?).get(i)?;
    module.field(dict, "sdy.sharding")
}

/// The `i`th sharding of a `sdy.sharding_per_value` (or a sharding for all).
pub(super) fn per_value(module: &Module<'_>, op: OpId, name: &str, i: usize) -> Option<AttrId> {
    let id = module.find(op, name)?;
    match module.attr(id) {
        Attr::Struct(kind, _) if kind == "sdy.sharding" => Some(id),
        _ => module.list(module.field(id, "shardings")?).get(i).copied(),
    }
}

/// The dimensions of a value; none for what is no tensor.
pub(super) fn dims(module: &Module<'_>, value: ValueId) -> Dims {
    module.tensor(module.value_type(value)).map_or_else(Dims::new, |(dims, _)| Dims::from_slice(dims))
}

/// Whether a value is a tensor of known size.
pub(super) fn is_tensor(module: &Module<'_>, value: ValueId) -> bool {
    module.tensor(module.value_type(value)).is_some_and(|(dims, _)| dims.iter().all(|&d| d >= 0))
}

/// The function that the program starts with.
pub(super) fn main_function(module: &Module<'_>) -> Option<OpId> {
    let mut functions = module.functions();
    let first = functions.next()?;
    if first.0 == "main" {
        return Some(first.1);
    }
    let found = functions.find(|(name, _)| *name == "main");
    Some(found.map_or(first.1, |(_, op)| op))
}
