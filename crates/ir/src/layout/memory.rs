//! Where the elements of an array lie in memory: the one definition of what a layout means.
//!
//! A layout is read in steps. The dimensions are put into physical order, slowest first; then each tile in turn joins
//! dimensions (`*`), fills the most minor ones up to whole tiles, splits each of them into a number of tiles and a place
//! in the tile, and moves the places behind the numbers. What is left, in row-major order, is the memory. Every step is a
//! transpose, a reshape or a padding at the end of dimensions, so whoever moves arrays can carry a layout out with those
//! ([`MemoryForm::stages`]), and the place of one element can be computed ([`MemoryForm::position`]).
//!
//! Different elements have different places, and all places are below [`MemoryForm::count`]; the places that no element
//! has are padding, and what they hold is undefined. Places count elements: [`element_bits`] says how wide those are.

use crate::layout::{DimVec, Layout, Tile};
use crate::shape::ArrayShape;

/// How an array becomes memory: a transpose, then one [`TileStage`] for each tile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryForm {
    /// The dimensions from the slowest to the fastest.
    pub order: DimVec,
    /// Their sizes in that order.
    pub physical: DimVec,
    /// What each tile does, in order.
    pub stages: Vec<TileStage>,
    /// The number of places, padding of tiles included.
    pub count: i64,
}

/// What one tile does to the physical dimensions: reshape to `joined`, pad at the end of dimensions up to `padded`,
/// reshape to `split`, transpose by `order`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TileStage {
    /// The sizes with the dimensions joined that the tile combines, and with as many in front as it needs.
    pub joined: DimVec,
    /// The sizes filled up to whole tiles.
    pub padded: DimVec,
    /// The sizes with the tiled dimensions split in two.
    pub split: DimVec,
    /// Dimension `k` of the result is dimension `order[k]` of the split ones.
    pub order: DimVec,
}

/// Bits that one element of the array takes: what the layout says, else the type's own, of which a sub-byte type takes
/// a whole byte.
pub fn element_bits(array: &ArrayShape) -> i64 {
    match array.layout.as_ref().map_or(0, |l| l.element_size_in_bits) {
        bits @ 1.. => bits,
        _ => array.element_type.bytes() as i64 * 8,
    }
}

impl MemoryForm {
    /// How `array` lies in memory (row-major where it has no layout); `None` if it has no bound, if the number of places
    /// does not fit in 63 bits, or if the layout is of another kind than described here (sparse, or of another physical
    /// shape).
    pub fn of(array: &ArrayShape) -> Option<MemoryForm> {
        let elements = array.element_count()?;
        let row_major;
        let layout = match &array.layout {
            Some(layout) => layout,
            None => {
                row_major = Layout::descending(array.rank());
                &row_major
            }
        };
        let unusual =
            |l: &Layout| l.rare.as_deref().is_some_and(|r| r.physical_shape.is_some() || !r.dim_level_types.is_empty());
        if unusual(layout) || !layout.is_permutation(array.rank()) {
            return None;
        }
        let order: DimVec = layout.minor_to_major.iter().rev().copied().collect();
        let physical: DimVec = order.iter().map(|&d| array.dims()[d as usize]).collect();
        let mut dims = physical.clone();
        let mut stages = Vec::new();
        // An array without elements takes no memory, and its other sizes may be of any size.
        if elements > 0 {
            for tile in &layout.tiles {
                let stage = TileStage::of(&dims, tile)?;
                dims = stage.dims();
                stages.push(stage);
            }
        }
        let count = if elements == 0 { 0 } else { product(&dims)? };
        Some(MemoryForm { order, physical, stages, count })
    }

    /// Whether no place is padding.
    pub fn is_dense(&self) -> bool {
        self.stages.iter().all(|s| s.joined == s.padded)
    }

    /// The place of the element at `index`, which must be inside the array.
    pub fn position(&self, index: &[i64]) -> i64 {
        let at: DimVec = self.order.iter().map(|&d| index[d as usize]).collect();
        let mut place = row_major(&at, &self.physical);
        for stage in &self.stages {
            let padded = row_major(&unravel(place, &stage.joined), &stage.padded);
            let split = unravel(padded, &stage.split);
            let at: DimVec = stage.order.iter().map(|&d| split[d as usize]).collect();
            place = row_major(&at, &stage.dims());
        }
        place
    }
}

impl TileStage {
    /// What `tile` does to dimensions of those sizes, slowest first; `None` if a size does not fit.
    fn of(dims: &[i64], tile: &Tile) -> Option<TileStage> {
        let sizes = &tile.0;
        let mut joined: DimVec = DimVec::from_elem(1, sizes.len().saturating_sub(dims.len()));
        joined.extend_from_slice(dims);
        let tiled = joined.len() - sizes.len();
        let mut within: DimVec = DimVec::new();
        let mut kept: DimVec = joined[..tiled].into();
        let mut carried = 1i64;
        for (k, &size) in sizes.iter().enumerate() {
            carried = carried.checked_mul(joined[tiled + k])?;
            // The last dimension has none to be joined with.
            if size == Tile::COMBINE && k + 1 < sizes.len() {
                continue;
            }
            kept.push(carried);
            within.push(size.max(1));
            carried = 1;
        }
        let joined = kept;
        let mut padded = joined.clone();
        let mut split: DimVec = joined[..tiled].into();
        for (size, &t) in padded[tiled..].iter_mut().zip(&within) {
            let tiles = *size / t + i64::from(*size % t != 0);
            *size = tiles.checked_mul(t)?;
            split.extend([tiles, t]);
        }
        product(&padded)?;
        // Numbers of tiles first, then the places in a tile.
        let (numbers, places) = (0..within.len()).map(|k| (tiled + 2 * k) as i64).map(|d| (d, d + 1)).unzip();
        let (numbers, places): (DimVec, DimVec) = (numbers, places);
        let order = (0..tiled as i64).chain(numbers).chain(places).collect();
        Some(TileStage { joined, padded, split, order })
    }

    /// The sizes that it leaves.
    pub fn dims(&self) -> DimVec {
        self.order.iter().map(|&d| self.split[d as usize]).collect()
    }
}

/// The product of sizes that are not negative; `None` if it does not fit.
fn product(sizes: &[i64]) -> Option<i64> {
    sizes.iter().try_fold(1i64, |n, &size| n.checked_mul(size))
}

/// The place of `index` among those of an array of `sizes` in row-major order.
fn row_major(index: &[i64], sizes: &[i64]) -> i64 {
    index.iter().zip(sizes).fold(0, |place, (&i, &size)| place * size + i)
}

/// The index that has the row-major place `place` in an array of `sizes`.
fn unravel(mut place: i64, sizes: &[i64]) -> DimVec {
    let mut index: DimVec = sizes.into();
    for (i, &size) in index.iter_mut().zip(sizes).rev() {
        *i = place % size;
        place /= size;
    }
    index
}
