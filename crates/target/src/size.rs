//! How many bytes a value takes on a machine.
//!
//! The size is that of one buffer: for a tuple that is the table of pointers, not what they point at. Sizes that do not
//! fit in 63 bits, and arrays without a bound, have none (`None`).

use crate::description::Target;
use hloom_ir::layout::memory::{MemoryForm, element_bits};
use hloom_ir::shape::{ArrayShape, Shape};

impl Target {
    /// The bytes that a value of that shape takes, padding included.
    pub fn byte_size(&self, shape: &Shape) -> Option<i64> {
        match shape {
            Shape::Array(array) | Shape::Buffer(array) => self.array_bytes(array),
            Shape::Tuple(elements) => {
                let table = i64::try_from(elements.len()).ok()?.checked_mul(self.tuple_pointer_bytes)?;
                round_up(table, self.tuple_granule)
            }
            Shape::Token => Some(0),
            Shape::Opaque => Some(self.opaque_bytes),
        }
    }

    /// The memory space that a value of that shape lies in.
    pub fn memory_space(shape: &Shape) -> i64 {
        match shape {
            Shape::Array(a) | Shape::Buffer(a) => a.layout.as_ref().map_or(0, |l| l.memory_space),
            _ => 0,
        }
    }

    /// The bytes that an array takes, padding included.
    pub fn array_bytes(&self, array: &ArrayShape) -> Option<i64> {
        let elements = array.element_count()?;
        if elements == 0 {
            return Some(0);
        }
        let layout = array.layout.as_ref();
        let space = self.space(layout.map_or(0, |l| l.memory_space));
        let is_tiled = layout.is_some_and(|l| !l.tiles.is_empty()) && !space.is_some_and(|s| s.ignores_tiles);
        let padded = if is_tiled { MemoryForm::of(array)?.count } else { elements };
        let rare = layout.and_then(|l| l.rare.as_deref());
        let tail = rare.map_or(1, |r| r.tail_padding_alignment_in_elements.max(1));
        let bytes = element_bytes(array, round_up(padded, tail)?)?;
        let bytes = match space {
            Some(space) if !is_tiled && tail == 1 => round_up(bytes, space.untiled_granule)?,
            _ => bytes,
        };
        // Dynamic sizes lie before the elements where the layout says so, else behind them.
        let sizes = match rare.map_or(0, |r| r.dynamic_shape_metadata_prefix_bytes) {
            0 if array.is_dynamic() => self.dynamic_size_bytes.checked_mul(array.rank() as i64)?,
            prefix => prefix.max(0),
        };
        bytes.checked_add(sizes)
    }
}

/// The bytes of `count` elements; a layout may pack several into a byte.
fn element_bytes(array: &ArrayShape, count: i64) -> Option<i64> {
    Some(count.checked_mul(element_bits(array))?.checked_add(7)? / 8)
}

/// The smallest multiple of `granule` that is not below `n`; `None` when it does not fit.
pub fn round_up(n: i64, granule: i64) -> Option<i64> {
    let granule = granule.max(1);
    match n.checked_rem(granule)? {
        0 => Some(n),
        rest => n.checked_add(granule - rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hloom_ir::element_type::ElementType::*;
    use hloom_ir::layout::{Layout, Tile};
    use smallvec_free::tiles;

    /// Shapes with tiles, written as in HLO text would be: order, first tile, memory space.
    mod smallvec_free {
        use super::*;

        pub(super) fn tiles(
            element_type: hloom_ir::ElementType,
            dims: &[i64],
            order: &[i64],
            tile: &[i64],
            space: i64,
        ) -> Shape {
            let mut layout = Layout::new(order.iter().copied());
            if !tile.is_empty() {
                layout.tiles.push(Tile(tile.iter().copied().collect()));
            }
            layout.memory_space = space;
            ArrayShape::new(element_type, dims.iter().copied()).with_layout(layout).into()
        }
    }

    #[test]
    fn tiles_fill_the_minor_dimensions_up() {
        let v6e = Target::named("tpu-v6e").unwrap();
        let cases = [
            (tiles(F32, &[], &[], &[128], 0), 512),
            (tiles(Bf16, &[], &[], &[256], 0), 512),
            (tiles(Pred, &[], &[], &[512], 0), 512),
            (tiles(F32, &[1000], &[0], &[1024], 0), 4096),
            (tiles(Bf16, &[8, 100], &[0, 1], &[8, 128], 0), 26624),
            (tiles(F32, &[4096, 3584], &[1, 0], &[8, 128], 1), 58720256),
            (tiles(U32, &[], &[], &[], 2), 4),
            (tiles(S32, &[2], &[0], &[], 4), 4096),
            (tiles(F32, &[0, 3], &[1, 0], &[8, 128], 0), 0),
        ];
        for (shape, bytes) in cases {
            assert_eq!(v6e.byte_size(&shape), Some(bytes), "{shape}");
        }
    }

    #[test]
    fn tuples_are_tables_of_pointers() {
        let scalar = tiles(F32, &[], &[], &[], 0);
        let of = |n: usize| Shape::tuple(std::iter::repeat_n(scalar.clone(), n));
        let size = |target: &str, n| Target::named(target).unwrap().byte_size(&of(n)).unwrap();
        assert_eq!([3, 15, 17].map(|n| size("tpu-v6e", n)), [32, 64, 96]);
        assert_eq!((size("tpu-v4", 3), size("cpu", 3)), (512, 24));
    }

    #[test]
    fn sizes_that_do_not_fit_are_none() {
        let cpu = Target::named("cpu").unwrap();
        assert_eq!(cpu.byte_size(&tiles(F32, &[i64::MAX, 2], &[1, 0], &[], 0)), None);
        assert_eq!(cpu.byte_size(&tiles(F32, &[i64::MAX / 4], &[0], &[8, 128], 0)), None);
        assert_eq!(cpu.byte_size(&Shape::array(S4, [3])), Some(3));
    }

    #[test]
    fn arrays_of_dynamic_size_carry_their_sizes() {
        let shape: Shape = ArrayShape::with_dynamic(F32, [4, 5], [true, false]).into();
        assert_eq!(Target::named("cpu").unwrap().byte_size(&shape), Some(80 + 8));
        let mut layout = Layout::new([1, 0]);
        layout.tiles = [Tile([4, 128].into_iter().collect())].into_iter().collect();
        layout.rare_mut().dynamic_shape_metadata_prefix_bytes = 1024;
        let shape = ArrayShape::with_dynamic(F32, [4, 5], [true, false]).with_layout(layout);
        assert_eq!(Target::named("tpu-v5e").unwrap().byte_size(&shape.into()), Some(4 * 128 * 4 + 1024));
    }
}
