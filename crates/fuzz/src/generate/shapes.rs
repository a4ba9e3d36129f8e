//! Random element types, dimensions and layouts.
//!
//! The layout of an array follows from its dimensions (chosen once per module and list of dimensions) and the size in
//! bits from its type, so that layouts agree wherever shapes do: through tuples, calls and loops.

use super::Generator;
use hloom_ir::element_type::ElementType;
use hloom_ir::layout::{DimVec, Layout, SplitConfig, Tile};
use hloom_ir::shape::{ArrayShape, Shape};

impl Generator<'_, '_> {
    /// Any of the element types asked for; the common ones more often.
    pub(super) fn any_type(&mut self) -> ElementType {
        let common = [ElementType::F32, ElementType::S32, ElementType::Bf16, ElementType::Pred];
        if self.choices.chance(40) {
            let t = *self.choices.pick(&common);
            if self.options.element_types.contains(&t) {
                return t;
            }
        }
        *self.choices.pick(&self.options.element_types)
    }

    /// One of the element types that `fits`; `otherwise` if none of those asked for does.
    pub(super) fn type_where(&mut self, otherwise: ElementType, fits: impl Fn(ElementType) -> bool) -> ElementType {
        let fitting: Vec<_> = self.options.element_types.iter().copied().filter(|&t| fits(t)).collect();
        if fitting.is_empty() { otherwise } else { *self.choices.pick(&fitting) }
    }

    /// The size of a dimension, at most `limit`.
    pub(super) fn any_size(&mut self, limit: i64) -> i64 {
        let size = *self.choices.pick(&[2, 1, 3, 4, 5, 7, 8, 16, 2, 3, 4]);
        let size = if self.choices.chance(2) { 0 } else { size };
        size.min(limit.max(1))
    }

    /// Any dimensions of that rank, within the limit on elements.
    pub(super) fn any_dims(&mut self, rank: usize) -> DimVec {
        let mut room = self.options.max_elements.max(1);
        let mut dims = DimVec::new();
        for _ in 0..rank {
            let size = self.any_size(room);
            room /= size.max(1);
            dims.push(size);
        }
        dims
    }

    /// Any static array shape.
    pub(super) fn any_shape(&mut self) -> ArrayShape {
        let t = self.any_type();
        self.any_shape_of(t)
    }

    /// Any static array shape of that type.
    pub(super) fn any_shape_of(&mut self, t: ElementType) -> ArrayShape {
        let rank = *self.choices.pick(&[0, 1, 2, 2, 3, 3, 4, 5]);
        ArrayShape::new(t, self.any_dims(rank))
    }

    /// Whether an array of those dimensions is within the limit on elements.
    pub(super) fn is_small_enough(&self, dims: &[i64]) -> bool {
        let count = dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
        dims.iter().all(|&d| d >= 0) && count.is_some_and(|n| n <= self.options.max_elements)
    }

    /// `shape` with a layout on every array.
    pub(super) fn with_layouts(&mut self, shape: &Shape) -> Shape {
        shape.map_arrays(&mut |a| {
            let layout = self.layout_of(a);
            a.clone().with_layout(layout)
        })
    }

    fn layout_of(&mut self, shape: &ArrayShape) -> Layout {
        let rank = shape.rank();
        if !self.options.layouts {
            return Layout::descending(rank);
        }
        let key = DimVec::from_slice(shape.dims());
        let mut layout = match self.layouts.get(&key) {
            Some(layout) => layout.clone(),
            None => {
                let layout = self.any_layout(rank, shape.dims());
                self.layouts.insert(key, layout.clone());
                layout
            }
        };
        if shape.element_type.is_sub_byte() && layout.memory_space != 0 {
            layout.element_size_in_bits = i64::from(shape.element_type.bits().next_power_of_two());
        }
        layout
    }

    fn any_layout(&mut self, rank: usize, dims: &[i64]) -> Layout {
        let mut layout = Layout::descending(rank);
        if self.choices.chance(25) {
            self.choices.shuffle(&mut layout.minor_to_major);
        }
        if self.choices.chance(15) {
            layout.tiles.push(Tile(match rank {
                0 | 1 => [128].into_iter().collect(),
                _ => [8, 128].into_iter().collect(),
            }));
            match self.choices.below(4) {
                0 => layout.tiles.push(Tile([2, 1].into_iter().collect())),
                1 if rank >= 3 => layout.tiles.insert(0, Tile([Tile::COMBINE, 8, 128].into_iter().collect())),
                _ => {}
            }
        }
        if self.choices.chance(12) {
            layout.memory_space = self.choices.between(1, 5);
        }
        if self.choices.chance(3) {
            layout.rare_mut().tail_padding_alignment_in_elements = 1 << self.choices.below(8);
        }
        let smallest = dims.iter().copied().min().unwrap_or(0);
        if smallest > 1 && self.choices.chance(3) {
            // Within any dimension: whether they are counted from the major or the minor side.
            let split_indices = vec![self.choices.between(1, smallest - 1)];
            layout.rare_mut().split_configs.push(SplitConfig { dimension: 0, split_indices });
        }
        if layout.rare.as_deref().is_some_and(|r| *r == Default::default()) {
            layout.rare = None;
        }
        layout
    }
}

/// The dimensions of `shape` without the one at `at`.
pub(super) fn without(dims: &[i64], at: &[usize]) -> DimVec {
    dims.iter().enumerate().filter(|(d, _)| !at.contains(d)).map(|(_, &size)| size).collect()
}

/// `0..n` as dimension numbers.
pub(super) fn all_dims(n: usize) -> DimVec {
    (0..n as i64).collect()
}
