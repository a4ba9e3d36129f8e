//! The graph that propagation works on.

use crate::axes::{Axis, AxisList, list_of, push_merged};
use crate::rules::{Dims, Rule};
use hloom_ir::device_list::{AxisRef, Mesh, MeshDevices};
use hloom_ir::sharding::{DimSharding, NamedSharding, UnreducedReduction};
use smallvec::SmallVec;
use std::sync::Arc;

/// A value of the graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ValueRef(pub u32);

/// An operation of the graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct OpRef(pub u32);

/// A mesh of the graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct MeshId(pub u32);

impl ValueRef {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl OpRef {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// How one dimension is cut.
#[derive(PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct TensorDim {
    pub axes: AxisList,
    pub closed: bool,
    pub priority: u32,
}

impl Clone for TensorDim {
    fn clone(&self) -> TensorDim {
        TensorDim { axes: list_of(&self.axes), ..*self }
    }
}

/// The sharding of a value.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(crate) struct TensorSharding {
    pub mesh: MeshId,
    pub dims: SmallVec<[TensorDim; 4]>,
    pub replicated: AxisList,
    pub unreduced: AxisList,
    pub reduction: UnreducedReduction,
}

impl Clone for TensorSharding {
    fn clone(&self) -> TensorSharding {
        let mut dims = SmallVec::with_capacity(self.dims.len());
        self.dims.iter().for_each(|d| dims.push(d.clone()));
        TensorSharding { dims, replicated: list_of(&self.replicated), unreduced: list_of(&self.unreduced), ..*self }
    }
}

impl TensorSharding {
    /// All dimensions open, without axes.
    pub(crate) fn fully_open(mesh: MeshId, rank: usize) -> TensorSharding {
        TensorSharding {
            mesh,
            dims: (0..rank).map(|_| TensorDim::default()).collect(),
            replicated: AxisList::new(),
            unreduced: AxisList::new(),
            reduction: UnreducedReduction::Sum,
        }
    }

    /// Whether no dimension is cut.
    pub(crate) fn has_no_axes(&self) -> bool {
        self.dims.iter().all(|d| d.axes.is_empty()) && self.replicated.is_empty() && self.unreduced.is_empty()
    }

    /// Whether it says nothing: all dimensions open and without axes.
    pub(crate) fn says_nothing(&self) -> bool {
        self.has_no_axes() && self.dims.iter().all(|d| !d.closed)
    }
}

/// Where a sharding was taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// The program says it.
    Annotated,
    /// It went along an operation.
    Through(OpRef),
    /// It is that of another member of a sharding group.
    Group(ValueRef),
}

/// One value.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub dims: Dims,
    pub sharding: Option<TensorSharding>,
    /// The operation whose result it is.
    pub def: Option<OpRef>,
    /// Operations that read it, each once, in order.
    pub users: SmallVec<[OpRef; 2]>,
    /// The sharding group it belongs to.
    pub group: Option<u32>,
}

/// Directions in which axes may go through an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Direction {
    None,
    Forward,
    Backward,
    Both,
}

impl Direction {
    fn bits(self) -> u8 {
        match self {
            Direction::None => 0,
            Direction::Forward => 1,
            Direction::Backward => 2,
            Direction::Both => 3,
        }
    }
    fn of_bits(bits: u8) -> Direction {
        [Direction::None, Direction::Forward, Direction::Backward, Direction::Both][usize::from(bits & 3)]
    }
    /// What either allows.
    pub(crate) fn or(self, other: Direction) -> Direction {
        Direction::of_bits(self.bits() | other.bits())
    }
    /// What both allow.
    pub(crate) fn and(self, other: Direction) -> Direction {
        Direction::of_bits(self.bits() & other.bits())
    }
}

/// What the order of strategies asks of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum OpClass {
    /// Element by element.
    Elementwise,
    /// Reshapes, transposes, moves between memories, data-flow edges: as early as element-wise operations.
    PassThrough,
    /// Dynamic slices and updates of them: early, and forward only.
    DynamicSlice,
    /// Late, and forward last of all.
    Broadcast,
    /// Everything else.
    Other,
    /// A barrier: an identity that lets axes through in this direction, whatever the round.
    Barrier(Direction),
}

/// How a value at the edge of a manual computation looks from the other side of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ManualView {
    /// The manual axes of each dimension, major to all others.
    pub dims: SmallVec<[AxisList; 4]>,
    /// The manual axes that cut no dimension.
    pub replicated: AxisList,
    /// Whether the value is inside, and seen from outside; else the other way round.
    pub from_outside: bool,
}

/// A value as an operation sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TensorRef {
    /// The value; none for what cannot be cut.
    pub value: Option<ValueRef>,
    /// The view, at the edges of manual computations.
    pub view: Option<Arc<ManualView>>,
}

impl From<Option<ValueRef>> for TensorRef {
    fn from(value: Option<ValueRef>) -> Self {
        TensorRef { value, view: None }
    }
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct GraphOp {
    pub rule: Arc<Rule>,
    /// Its operands and then its results.
    pub tensors: SmallVec<[TensorRef; 3]>,
    pub class: OpClass,
    /// Whether an operand that can be cut has other uses.
    pub has_shared_operands: bool,
}

/// Values and operations, in the order of the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub meshes: Vec<Arc<Mesh>>,
    pub values: Vec<Value>,
    pub ops: Vec<GraphOp>,
    /// What the program returns and the result it becomes, which has a sharding of its own.
    pub results: Vec<OpRef>,
    /// The members of each sharding group.
    pub groups: Vec<Vec<ValueRef>>,
    /// For each value, how its sharding came about, in order.
    pub history: Vec<(ValueRef, Origin, TensorSharding)>,
}

impl Graph {
    /// Adds a mesh.
    pub(crate) fn add_mesh(&mut self, mesh: Arc<Mesh>) -> MeshId {
        self.meshes.push(mesh);
        MeshId(self.meshes.len() as u32 - 1)
    }

    pub(crate) fn mesh_of(&self, id: MeshId) -> &Arc<Mesh> {
        &self.meshes[id.0 as usize]
    }

    /// Whether a mesh has one device that is named: nothing spreads over it.
    pub(crate) fn is_maximal(&self, id: MeshId) -> bool {
        matches!(self.mesh_of(id).devices, MeshDevices::Maximal(_))
    }

    /// Adds a value.
    pub(crate) fn add_value(&mut self, dims: Dims, sharding: Option<TensorSharding>) -> ValueRef {
        let id = ValueRef(self.values.len() as u32);
        if let Some(sharding) = &sharding {
            self.history.push((id, Origin::Annotated, sharding.clone()));
        }
        self.values.push(Value { dims, sharding, def: None, users: SmallVec::new(), group: None });
        id
    }

    /// Adds an operation; its results must have no other.
    pub(crate) fn add_op(&mut self, op: GraphOp) -> OpRef {
        let id = OpRef(self.ops.len() as u32);
        for (i, tensor) in op.tensors.iter().enumerate() {
            let Some(value) = tensor.value else { continue };
            let value = &mut self.values[value.index()];
            if i < op.rule.operands {
                if value.users.last() != Some(&id) {
                    value.users.push(id);
                }
            } else {
                value.def.get_or_insert(id);
            }
        }
        self.ops.push(op);
        id
    }

    /// A sharding over the mesh `mesh` of the graph; `None` if an axis does not fit it.
    pub(crate) fn sharding(named: &NamedSharding, mesh: MeshId) -> Option<TensorSharding> {
        let list = |axes: &[AxisRef]| -> Option<AxisList> {
            axes.iter()
                .map(|a| {
                    let size = named.mesh.axes.get(a.axis as usize)?.1;
                    let (pre, part) = a.sub_axis.unwrap_or((1, size));
                    let fits = pre > 0 && part > 0 && pre.checked_mul(part).is_some_and(|n| size % n == 0);
                    fits.then_some(Axis { index: a.axis, pre, size: part })
                })
                .collect()
        };
        let dims = named
            .dims
            .iter()
            .map(|d| Some(TensorDim { axes: list(&d.axes)?, closed: d.closed, priority: d.priority.unwrap_or(0) }));
        Some(TensorSharding {
            mesh,
            dims: dims.collect::<Option<_>>()?,
            replicated: list(&named.replicated)?,
            unreduced: list(&named.unreduced)?,
            reduction: named.reduction,
        })
    }

    /// The sharding in terms of its mesh.
    pub(crate) fn to_named(&self, sharding: &TensorSharding) -> NamedSharding {
        let mesh = self.mesh_of(sharding.mesh).clone();
        let list = |axes: &[Axis]| axis_refs(&mesh, axes);
        let dims = sharding.dims.iter().map(|d| DimSharding {
            axes: list(&d.axes),
            closed: d.closed,
            priority: (d.priority > 0).then_some(d.priority),
        });
        NamedSharding {
            dims: dims.collect(),
            replicated: list(&sharding.replicated),
            unreduced: list(&sharding.unreduced),
            manual: Vec::new(),
            reduction: sharding.reduction,
            mesh: mesh.clone(),
        }
    }
}

/// Axes as those of their mesh.
pub(crate) fn axis_refs(mesh: &Mesh, axes: &[Axis]) -> Vec<AxisRef> {
    let axis = |a: &Axis| {
        let whole = mesh.axes.get(a.index as usize).map_or(1, |m| m.1);
        AxisRef { axis: a.index, sub_axis: (a.pre != 1 || a.size != whole).then_some((a.pre, a.size)) }
    };
    axes.iter().map(axis).collect()
}

impl ManualView {
    /// The sharding on the other side of the edge.
    pub(crate) fn apply(&self, sharding: &TensorSharding) -> TensorSharding {
        if self.from_outside { self.add(sharding) } else { self.strip(sharding) }
    }

    /// The sharding on the value's own side.
    pub(crate) fn revert(&self, sharding: &TensorSharding) -> TensorSharding {
        if self.from_outside { self.strip(sharding) } else { self.add(sharding) }
    }

    /// With the manual axes in front.
    pub(crate) fn add(&self, sharding: &TensorSharding) -> TensorSharding {
        let mut out = sharding.clone();
        for (dim, manual) in out.dims.iter_mut().zip(&self.dims) {
            let mut axes = manual.clone();
            dim.axes.iter().for_each(|&a| push_merged(&mut axes, a));
            dim.axes = axes;
        }
        for &axis in &self.replicated {
            if !out.replicated.iter().any(|a| a.overlaps(axis)) {
                out.replicated.push(axis);
            }
        }
        out.replicated.sort_unstable_by_key(|a| (a.index, a.pre));
        out
    }

    /// Without the manual axes.
    pub(crate) fn strip(&self, sharding: &TensorSharding) -> TensorSharding {
        let mut out = sharding.clone();
        let is_manual =
            |axis: &Axis| self.dims.iter().flatten().chain(&self.replicated).any(|manual| manual.contains(*axis));
        for dim in &mut out.dims {
            dim.axes.retain(|a| !is_manual(a));
        }
        out.replicated.retain(|a| !is_manual(a));
        out
    }
}
