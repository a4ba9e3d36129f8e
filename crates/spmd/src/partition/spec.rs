//! How one array lies on the devices, as lists of device axes.
//!
//! A dimension cut along axes `[a, b]` has as many shards as the axes' sizes multiply to; `a` is the more significant.
//! A shard has the dimension's size divided by that number, rounded up: where it does not divide, the last shards end in
//! padding whose contents mean nothing. Kept true: an axis is in one dimension, or in `partial`, or in `manual`, at most.

use super::axes::{AxisList, AxisSet, DeviceAxes, tiles_of};
use hloom_ir::ElementType;
use hloom_ir::attributes::ComparisonDirection;
use hloom_ir::device_list::IotaTransform;
use hloom_ir::op::BinaryOp;
use hloom_ir::shape::ArrayShape;
use hloom_ir::sharding::{
    LeafSharding, ShardingKind, SubgroupType, Subgroups, TileAssignment, TileDevices, UnreducedReduction,
};
use smallvec::SmallVec;

/// How the parts of a partial value combine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs, reason = "each variant is the reduction of that name")]
pub enum Reduction {
    #[default]
    Sum,
    Product,
    Max,
    Min,
    And,
    Or,
}

impl Reduction {
    /// The operation that combines two parts.
    pub fn op(self) -> BinaryOp {
        match self {
            Reduction::Sum => BinaryOp::Add,
            Reduction::Product => BinaryOp::Multiply,
            Reduction::Max => BinaryOp::Maximum,
            Reduction::Min => BinaryOp::Minimum,
            Reduction::And => BinaryOp::And,
            Reduction::Or => BinaryOp::Or,
        }
    }
    /// The reduction by that operation on elements of that type, if it is one whose parts can be combined in any order.
    pub fn of(op: BinaryOp, element_type: ElementType) -> Option<Reduction> {
        Some(match (op, element_type) {
            (BinaryOp::Add | BinaryOp::Or | BinaryOp::Maximum, ElementType::Pred) => Reduction::Or,
            (BinaryOp::Multiply | BinaryOp::And | BinaryOp::Minimum, ElementType::Pred) => Reduction::And,
            (BinaryOp::Add, _) => Reduction::Sum,
            (BinaryOp::Multiply, _) => Reduction::Product,
            (BinaryOp::Maximum, _) => Reduction::Max,
            (BinaryOp::Minimum, _) => Reduction::Min,
            (BinaryOp::And, _) => Reduction::And,
            (BinaryOp::Or, _) => Reduction::Or,
            _ => return None,
        })
    }
    /// What says which of two is kept, for largest and smallest.
    pub fn direction(self) -> Option<ComparisonDirection> {
        match self {
            Reduction::Max => Some(ComparisonDirection::Ge),
            Reduction::Min => Some(ComparisonDirection::Le),
            _ => None,
        }
    }
}

/// How one array lies on the devices.
#[derive(PartialEq, Eq, Hash, Debug, Default)]
pub struct Spec {
    /// The axes along which each dimension is cut.
    pub dims: SmallVec<[AxisList; 4]>,
    /// Axes along which the devices hold parts that are still to be combined.
    pub partial: AxisSet,
    /// How they are to be combined.
    pub reduction: Reduction,
    /// Axes that the program itself takes care of.
    pub manual: AxisSet,
}

impl Clone for Spec {
    fn clone(&self) -> Spec {
        Spec { dims: SmallVec::from_slice(&self.dims), ..*self }
    }
}

impl Spec {
    /// Whole on every device.
    pub fn replicated(rank: usize) -> Spec {
        Spec { dims: SmallVec::from_elem(AxisList::new(), rank), ..Spec::default() }
    }
    /// Cut along those axes.
    pub fn tiled(dims: impl IntoIterator<Item = AxisList>) -> Spec {
        Spec { dims: dims.into_iter().collect(), ..Spec::default() }
    }
    /// The axes that cut dimensions.
    pub fn used(&self) -> AxisSet {
        self.dims.iter().fold(AxisSet::EMPTY, |set, list| set.union(AxisSet::of(list)))
    }
    /// Whether no dimension is cut and nothing is to be combined.
    pub fn is_replicated(&self) -> bool {
        self.partial.is_empty() && self.dims.iter().all(|d| d.is_empty())
    }
    /// The same with nothing left to combine.
    pub fn complete(&self) -> Spec {
        Spec { partial: AxisSet::EMPTY, reduction: Reduction::Sum, ..self.clone() }
    }
    /// The same with dimension `d` whole.
    pub fn without_dim(&self, d: usize) -> Spec {
        let mut spec = self.clone();
        spec.dims[d].clear();
        spec
    }
    /// With parts along `axes` to be combined.
    pub fn with_partial(mut self, axes: AxisSet, reduction: Reduction) -> Spec {
        self.partial = axes;
        self.reduction = if axes.is_empty() { Reduction::Sum } else { reduction };
        self
    }

    /// The sizes of a shard.
    pub fn local_dims(&self, axes: &DeviceAxes, dims: &[i64]) -> SmallVec<[i64; 4]> {
        let mut local = SmallVec::with_capacity(dims.len());
        for (&n, list) in dims.iter().zip(&self.dims) {
            local.push(shard_size(n, axes.product(list)));
        }
        local
    }
    /// The bytes of a shard.
    pub fn local_bytes(&self, axes: &DeviceAxes, shape: &ArrayShape) -> f64 {
        let elements: f64 = self.local_dims(axes, shape.dims()).iter().map(|&n| n as f64).product();
        elements * f64::from(shape.element_type.bits()) / 8.0
    }

    /// The sharding that says the same.
    pub fn to_sharding(&self, axes: &DeviceAxes) -> ShardingKind {
        let used = self.used();
        if axes.is_empty() || (used.is_empty() && self.partial.is_empty() && self.manual.is_empty()) {
            return ShardingKind::Replicated;
        }
        if self.manual == axes.all() {
            return ShardingKind::Manual;
        }
        let mut dims: SmallVec<[i64; 4]> = self.dims.iter().map(|l| axes.product(l)).collect();
        let mut order: AxisList = self.dims.iter().flatten().copied().collect();
        let mut types = Vec::new();
        let rest = axes.all().without(used).without(self.partial).without(self.manual);
        let groups = [
            (self.manual, SubgroupType::Manual),
            (self.partial, SubgroupType::Unreduced),
            (rest, SubgroupType::Replicated),
        ];
        for (set, kind) in groups {
            if !set.is_empty() {
                dims.push(axes.set_product(set));
                order.extend(set.list());
                types.push(kind);
            }
        }
        let subgroups = match types[..] {
            [] => Subgroups::None,
            [SubgroupType::Replicated] => Subgroups::ReplicateLast,
            _ => Subgroups::Types(types),
        };
        let devices = match axes.order() {
            None => TileDevices::Iota(
                IotaTransform {
                    reshape_dims: (0..axes.len()).map(|a| axes.size(a as u8)).collect(),
                    transpose_perm: order.iter().map(|&a| i64::from(a)).collect(),
                }
                .canonical(),
            ),
            Some(_) => {
                let logical = |i: i64| axes.with_coordinate(0, &order, i);
                TileDevices::Explicit((0..axes.devices()).map(|i| axes.device(logical(i))).collect())
            }
        };
        ShardingKind::Tiled(TileAssignment { dims, devices, subgroups })
    }

    /// What a sharding says of an array of that rank; `None` if the grid cannot express it.
    pub fn from_sharding(axes: &DeviceAxes, leaf: &LeafSharding, rank: usize) -> Option<Spec> {
        let tiles = match tiles_of(&leaf.kind) {
            Some(tiles) => tiles,
            None => match leaf.kind.without_names()? {
                ShardingKind::Manual => return Some(Spec { manual: axes.all(), ..Spec::replicated(rank) }),
                ShardingKind::Unreduced => {
                    return Some(Spec::replicated(rank).with_partial(axes.all(), reduction_of(&leaf.kind)));
                }
                _ => return Some(Spec::replicated(rank)),
            },
        };
        let data = tiles.data_rank();
        if data != rank {
            return None;
        }
        // Devices in an order that the grid cannot express lie in the grid's own: as many tiles, elsewhere.
        let mut lists = axes.tile_axes(&tiles).or_else(|| axes.tiles_in_order(&tiles.dims))?;
        let mut spec = Spec::default();
        let trailing: Vec<AxisList> = lists.drain(data..).collect();
        spec.dims = lists;
        if let Subgroups::Types(types) = &tiles.subgroups {
            for (kind, list) in types.iter().zip(&trailing) {
                match kind {
                    SubgroupType::Manual => spec.manual = spec.manual.union(AxisSet::of(list)),
                    SubgroupType::Unreduced => spec.partial = spec.partial.union(AxisSet::of(list)),
                    SubgroupType::Replicated | SubgroupType::Maximal | SubgroupType::Unknown => {}
                }
            }
        }
        spec.reduction = reduction_of(&leaf.kind);
        Some(spec)
    }
}

/// How parts of a value of that sharding are to be combined.
fn reduction_of(kind: &ShardingKind) -> Reduction {
    match kind {
        ShardingKind::Named(named) => match named.reduction {
            UnreducedReduction::Sum => Reduction::Sum,
            UnreducedReduction::Max => Reduction::Max,
            UnreducedReduction::Min => Reduction::Min,
        },
        _ => Reduction::Sum,
    }
}

/// The size of a shard of `n` elements cut into `shards`.
pub fn shard_size(n: i64, shards: i64) -> i64 {
    if shards <= 1 { n } else { n.div_euclid(shards) + i64::from(n.rem_euclid(shards) != 0) }
}
