//! Shardings: how a value is spread over devices, in all the forms that HLO knows.
//!
//! Explicit and iota device lists and named meshes are kept apart: rewriting one into another is a pass's business, not
//! the reader's. Among the ways to write one tiling, [`ShardingKind::canonical`] is the one that XLA keeps.

mod canonical;
mod named;

pub use named::same_devices;

use crate::device_list::{AxisRef, IotaTransform, Mesh};
use crate::metadata::Metadata;
use smallvec::SmallVec;
use std::sync::Arc;

/// How a value is spread over devices; a tuple has one part per leaf.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Sharding {
    /// One array (or a whole tuple treated alike).
    Leaf(Box<LeafSharding>),
    /// One sharding per leaf of a tuple, in order.
    Tuple(Vec<LeafSharding>),
}

/// How one array is spread over devices.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LeafSharding {
    /// The kind, with what belongs to it.
    pub kind: ShardingKind,
    /// `shard_as 1` or `shard_like 1`.
    pub group: Option<ShardGroup>,
    /// `metadata={…}`: where the annotation came from.
    pub metadata: Vec<Metadata>,
}

impl From<ShardingKind> for LeafSharding {
    fn from(kind: ShardingKind) -> Self {
        LeafSharding { kind, group: None, metadata: Vec::new() }
    }
}

/// The forms a sharding takes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ShardingKind {
    /// Every device has it all.
    Replicated,
    /// One device has it.
    Maximal {
        /// That device.
        device: i64,
    },
    /// The program itself takes care (inside `shard_map`).
    Manual,
    /// Not decided.
    Unknown,
    /// Every device has a summand.
    Unreduced,
    /// Cut into tiles, each on one device.
    Tiled(TileAssignment),
    /// Cut along the axes of a named mesh.
    Named(NamedSharding),
}

/// An array of devices, one per tile.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TileAssignment {
    /// `devices=[2,1,4]…`: into how many tiles each dimension is cut; trailing ones are subgroup dimensions.
    pub dims: SmallVec<[i64; 4]>,
    /// Which device has which tile, row-major over `dims`.
    pub devices: TileDevices,
    /// What the trailing dimensions beyond the array's mean.
    pub subgroups: Subgroups,
}

/// The devices of a tile assignment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum TileDevices {
    /// Written out.
    Explicit(Vec<i64>),
    /// `<=[8]` or `<=[4,2]T(1,0)`.
    Iota(IotaTransform),
}

/// What trailing tile dimensions mean.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Subgroups {
    /// There are none.
    None,
    /// `last_tile_dim_replicate`: one, over which the tile is replicated.
    ReplicateLast,
    /// `last_tile_dims={manual, replicated}`: one per entry.
    Types(Vec<SubgroupType>),
}

/// The meaning of one trailing tile dimension.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "as the kinds of a sharding")]
pub enum SubgroupType {
    Replicated,
    Manual,
    Maximal,
    Unknown,
    Unreduced,
}

/// Ties the shardings of several instructions together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ShardGroup {
    /// The group's number.
    pub id: i64,
    /// `shard_as` (all the same) or `shard_like` (compatible).
    pub kind: ShardGroupKind,
}

/// How strictly a shard group ties.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ShardGroupKind {
    /// `shard_as`.
    As,
    /// `shard_like`.
    Like,
}

/// `{mesh['a'=2,'b'=4], [{'a'}, {'b', ?}], replicated={…}, unreduced={…}, manual={…}}`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NamedSharding {
    /// The mesh.
    pub mesh: Arc<Mesh>,
    /// The axes along which each dimension is cut.
    pub dims: Vec<DimSharding>,
    /// Axes over which it is replicated for certain.
    pub replicated: Vec<AxisRef>,
    /// Axes along which summands lie.
    pub unreduced: Vec<AxisRef>,
    /// Axes that the program handles itself.
    pub manual: Vec<AxisRef>,
    /// How unreduced parts combine.
    pub reduction: UnreducedReduction,
}

/// How unreduced parts combine; numbered as in XLA's protos.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs, reason = "each variant is the reduction of that name")]
pub enum UnreducedReduction {
    #[default]
    Sum = 0,
    Max = 1,
    Min = 2,
}

/// The axes along which one dimension is cut.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DimSharding {
    /// The axes, major first.
    pub axes: Vec<AxisRef>,
    /// Whether propagation may add no more (`?` in text means it may).
    pub closed: bool,
    /// In which round of propagation it takes part, the first if nothing is said. Only Shardy writes it (`{"x"}p1`).
    pub priority: Option<u32>,
}

impl Sharding {
    /// A leaf sharding of that kind with nothing else.
    pub fn leaf(kind: ShardingKind) -> Sharding {
        Sharding::Leaf(Box::new(kind.into()))
    }
    /// The parts: one for a leaf sharding, one per leaf for a tuple's.
    pub fn leaves(&self) -> &[LeafSharding] {
        match self {
            Sharding::Leaf(l) => std::slice::from_ref(l),
            Sharding::Tuple(t) => t,
        }
    }
}

impl TileAssignment {
    /// The number of tiles; `None` if it overflows.
    pub fn num_tiles(&self) -> Option<i64> {
        self.dims.iter().try_fold(1i64, |n, &d| if d < 0 { None } else { n.checked_mul(d) })
    }

    /// The number of leading dimensions that cut the array.
    pub fn data_rank(&self) -> usize {
        let trailing = match &self.subgroups {
            Subgroups::None => 0,
            Subgroups::ReplicateLast => 1,
            Subgroups::Types(t) => t.len(),
        };
        self.dims.len().saturating_sub(trailing)
    }
}
