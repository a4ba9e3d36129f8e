//! How an array lies in memory: the order of its dimensions, tiles, memory space and the rarer properties.
//!
//! A layout belongs to one array shape and `minor_to_major` is then a permutation of its dimensions (the verifier
//! checks this). Layouts never change what a program computes, only where and how it is stored; they are kept exactly
//! as a dump gives them.

pub mod bitcast;
pub mod memory;

#[cfg(test)]
mod tests;

use crate::element_type::ElementType;
use crate::shape::Shape;
use smallvec::SmallVec;

/// A list of dimension numbers or sizes; almost always short.
pub type DimVec = SmallVec<[i64; 4]>;

/// The physical layout of an array.
#[derive(PartialEq, Eq, Hash, Debug, Default)]
pub struct Layout {
    /// Dimensions from the fastest-varying to the slowest.
    pub minor_to_major: DimVec,
    /// `T(8,128)(2,1)`: tiles applied one after another to the most minor dimensions.
    pub tiles: SmallVec<[Tile; 1]>,
    /// `S(n)`: the memory space; 0 is the default one, the others belong to the target.
    pub memory_space: i64,
    /// `E(n)`: bits an element takes when it is packed; 0 means the type's natural size.
    pub element_size_in_bits: i64,
    /// What few layouts have; `None` when all of it has its default value.
    pub rare: Option<Box<RareLayout>>,
}

impl Clone for Layout {
    fn clone(&self) -> Layout {
        Layout {
            minor_to_major: DimVec::from_slice(&self.minor_to_major),
            tiles: self.tiles.clone(),
            memory_space: self.memory_space,
            element_size_in_bits: self.element_size_in_bits,
            rare: self.rare.clone(),
        }
    }
}

/// One tile: sizes of the most minor dimensions, major first. [`Tile::COMBINE`] (`*` in text) merges a dimension with
/// the next more minor one before tiling.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Tile(pub SmallVec<[i64; 2]>);

impl Tile {
    /// The size that stands for `*`; the number XLA's protos use.
    pub const COMBINE: i64 = i64::MIN;
}

/// Layout properties that few dumps have.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RareLayout {
    /// `L(n)`: the number of elements is rounded up to a multiple of this; 1 is the default.
    pub tail_padding_alignment_in_elements: i64,
    /// `#(u32)`: the type of indices in sparse layouts.
    pub index_primitive_type: Option<ElementType>,
    /// `*(u32)`: the type of pointers in sparse layouts.
    pub pointer_primitive_type: Option<ElementType>,
    /// `SC(d:i,j)`: dimensions that are split over several memories, and where.
    pub split_configs: Vec<SplitConfig>,
    /// `P(shape)`: the shape this array has physically, when it differs.
    pub physical_shape: Option<Shape>,
    /// `M(n)`: bytes before the data that hold the dynamic sizes.
    pub dynamic_shape_metadata_prefix_bytes: i64,
    /// `D(D,C,…)`: kept from protos; HLO text's own reader drops it.
    pub dim_level_types: Vec<DimLevel>,
}

impl Default for RareLayout {
    fn default() -> Self {
        RareLayout {
            tail_padding_alignment_in_elements: 1,
            index_primitive_type: None,
            pointer_primitive_type: None,
            split_configs: Vec::new(),
            physical_shape: None,
            dynamic_shape_metadata_prefix_bytes: 0,
            dim_level_types: Vec::new(),
        }
    }
}

/// A dimension split over several memories.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SplitConfig {
    /// Which dimension.
    pub dimension: i64,
    /// Where it is cut.
    pub split_indices: Vec<i64>,
}

/// How one dimension of a sparse array is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DimLevel {
    /// The kind of storage.
    pub kind: DimLevelKind,
    /// Whether coordinates occur once only.
    pub unique: bool,
    /// Whether coordinates are sorted.
    pub ordered: bool,
}

/// The kinds of storage of one dimension; numbered as in XLA's protos.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "each variant is the level type of that name")]
pub enum DimLevelKind {
    Dense = 0,
    Compressed = 1,
    Singleton = 2,
    LooseCompressed = 3,
}

impl Layout {
    /// Row-major: the last dimension varies fastest.
    pub fn descending(rank: usize) -> Layout {
        Layout { minor_to_major: (0..rank as i64).rev().collect(), ..Layout::default() }
    }

    /// The layout with that order of dimensions and nothing else.
    pub fn new(minor_to_major: impl IntoIterator<Item = i64>) -> Layout {
        Layout { minor_to_major: minor_to_major.into_iter().collect(), ..Layout::default() }
    }

    /// Whether this is [`Layout::descending`] with no other property.
    pub fn is_default(&self) -> bool {
        self.is_descending()
            && self.tiles.is_empty()
            && self.memory_space == 0
            && self.element_size_in_bits == 0
            && self.rare.is_none()
    }

    /// Whether the dimensions are in row-major order, whatever the other properties.
    pub fn is_descending(&self) -> bool {
        let rank = self.minor_to_major.len() as i64;
        self.minor_to_major.iter().enumerate().all(|(i, &d)| d == rank - 1 - i as i64)
    }

    /// Whether `minor_to_major` is a permutation of `0..rank`.
    pub fn is_permutation(&self, rank: usize) -> bool {
        is_permutation(&self.minor_to_major, rank)
    }

    /// The rare properties, to set.
    pub fn rare_mut(&mut self) -> &mut RareLayout {
        self.rare.get_or_insert_default()
    }
}

/// Whether `list` holds each of `0..len` exactly once.
pub fn is_permutation(list: &[i64], len: usize) -> bool {
    if list.len() != len {
        return false;
    }
    let mut seen: SmallVec<[bool; 16]> = SmallVec::from_elem(false, len);
    list.iter().all(|&d| match usize::try_from(d).ok().and_then(|d| seen.get_mut(d)) {
        Some(s) => !std::mem::replace(s, true),
        None => false,
    })
}
