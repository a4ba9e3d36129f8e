//! Shapes: arrays with element type, dimensions and perhaps a layout; tuples of shapes; tokens; opaque values; buffers.
//!
//! A shape is cheap to clone: its body is shared and never changed in place. Whatever the dimensions say, nothing here
//! overflows: [`ArrayShape::element_count`] and [`ArrayShape::byte_size`] answer `None` when the number does not fit.
//! Tuples nest at most [`Shape::MAX_DEPTH`] deep: readers refuse more, so that code over shapes may recurse.

use crate::element_type::ElementType;
use crate::layout::{DimVec, Layout};
use smallvec::SmallVec;
use std::sync::Arc;

/// A path into a tuple shape: `{1,0}` is element 0 of element 1; the empty path is the whole.
pub type ShapeIndex = SmallVec<[i64; 2]>;

/// The type of a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Shape {
    /// An array.
    Array(Arc<ArrayShape>),
    /// A tuple of values.
    Tuple(Arc<[Shape]>),
    /// An ordering token without data.
    Token,
    /// A value of unknown form, for custom calls.
    Opaque,
    /// `b(f32[4])`: an array with an identity, which custom calls write in place.
    Buffer(Arc<ArrayShape>),
}

/// The shape of an array.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct ArrayShape {
    /// The type of each element.
    pub element_type: ElementType,
    /// Sizes, or upper bounds where dynamic; [`ArrayShape::UNBOUNDED`] for `?`.
    dims: DimVec,
    /// Which dimensions are dynamic; empty when none is.
    dynamic: SmallVec<[bool; 8]>,
    /// The layout, where one is set.
    pub layout: Option<Layout>,
}

// Sizes are copied as a block, which a derived clone of their lists does one by one.
impl Clone for ArrayShape {
    fn clone(&self) -> ArrayShape {
        ArrayShape { layout: self.layout.clone(), ..self.without_layout() }
    }
}

impl ArrayShape {
    /// The size of a dynamic dimension without a bound; the number XLA's protos use.
    pub const UNBOUNDED: i64 = i64::MIN;

    /// A static array without a layout.
    pub fn new(element_type: ElementType, dims: impl IntoIterator<Item = i64>) -> ArrayShape {
        ArrayShape { element_type, dims: dims.into_iter().collect(), dynamic: SmallVec::new(), layout: None }
    }

    /// An array some of whose dimensions are dynamic. `dynamic` is empty or has an entry for each dimension; an
    /// unbounded dimension counts as dynamic whatever it says.
    pub fn with_dynamic(
        element_type: ElementType,
        dims: impl IntoIterator<Item = i64>,
        dynamic: impl IntoIterator<Item = bool>,
    ) -> ArrayShape {
        let mut shape = ArrayShape::new(element_type, dims);
        shape.dynamic = dynamic.into_iter().collect();
        shape.dynamic.resize(shape.dims.len(), false);
        for (flag, &size) in shape.dynamic.iter_mut().zip(&shape.dims) {
            *flag |= size == Self::UNBOUNDED;
        }
        if !shape.dynamic.contains(&true) {
            shape.dynamic.clear();
        }
        shape
    }

    /// The same array with `layout`.
    pub fn with_layout(mut self, layout: Layout) -> ArrayShape {
        self.layout = Some(layout);
        self
    }

    /// The same array with the row-major layout.
    pub fn with_default_layout(self) -> ArrayShape {
        let rank = self.rank();
        self.with_layout(Layout::descending(rank))
    }

    /// The same array without a layout.
    pub fn without_layout(&self) -> ArrayShape {
        ArrayShape {
            element_type: self.element_type,
            dims: DimVec::from_slice(&self.dims),
            dynamic: SmallVec::from_slice(&self.dynamic),
            layout: None,
        }
    }

    /// Sizes, or upper bounds where dynamic.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }
    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }
    /// Whether it has no dimensions.
    pub fn is_scalar(&self) -> bool {
        self.dims.is_empty()
    }
    /// Whether dimension `d` is dynamic; false beyond the rank.
    pub fn is_dynamic_dim(&self, d: usize) -> bool {
        self.dynamic.get(d).copied().unwrap_or(false)
    }
    /// Whether any dimension is dynamic.
    pub fn is_dynamic(&self) -> bool {
        !self.dynamic.is_empty()
    }
    /// Whether any dimension has no bound.
    pub fn is_unbounded(&self) -> bool {
        self.dims.contains(&Self::UNBOUNDED)
    }
    /// For each dimension whether it is dynamic.
    pub fn dynamic_dims(&self) -> impl Iterator<Item = bool> + '_ {
        (0..self.rank()).map(|d| self.is_dynamic_dim(d))
    }
    /// The number of elements (at the bounds, where dynamic), or `None` if it does not fit or is unbounded.
    pub fn element_count(&self) -> Option<i64> {
        if self.dims.iter().any(|&d| d < 0) {
            return None;
        }
        if self.dims.contains(&0) {
            return Some(0);
        }
        self.dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d))
    }
    /// Bytes of the elements stored densely, sub-byte types at one byte each; `None` as for `element_count`.
    pub fn byte_size(&self) -> Option<i64> {
        self.element_count()?.checked_mul(self.element_type.bytes() as i64)
    }
    /// Same element type and dimensions; layouts and dynamic flags set aside.
    pub fn same_dims_and_type(&self, other: &ArrayShape) -> bool {
        self.element_type == other.element_type && self.dims == other.dims
    }
    /// Same type, dimensions and dynamic flags; layouts set aside.
    pub fn equal_ignoring_layout(&self, other: &ArrayShape) -> bool {
        self.same_dims_and_type(other) && self.dynamic == other.dynamic
    }
    /// The same dimensions with another element type; the layout's order and tiles are kept, its element size is not.
    pub fn with_element_type(&self, element_type: ElementType) -> ArrayShape {
        let mut shape = self.clone();
        shape.element_type = element_type;
        if let Some(layout) = &mut shape.layout {
            layout.element_size_in_bits = 0;
        }
        shape
    }
    /// The dimensions from the fastest-varying to the slowest (row-major where no layout is set).
    pub fn minor_to_major(&self) -> DimVec {
        match &self.layout {
            Some(l) => l.minor_to_major.clone(),
            None => (0..self.rank() as i64).rev().collect(),
        }
    }
    /// The layout in which the array is handed to a program or comes from it: its own order of dimensions, and nothing
    /// else. Tiles are of machines whose memory the host does not look into, and of an array of dynamic size there is no
    /// saying where an element lies before it is known how many there are: both are row-major for the host.
    pub fn entry_layout(&self) -> Layout {
        Layout::new(self.entry_order())
    }

    /// The dimensions in the order of [`ArrayShape::entry_layout`], the fastest-varying first.
    fn entry_order(&self) -> impl Iterator<Item = i64> + '_ {
        let is_real = |l: &&Layout| l.tiles.is_empty() && l.is_permutation(self.rank()) && !self.is_dynamic();
        let stated = self.layout.as_ref().filter(is_real).map(|l| &l.minor_to_major);
        (0..self.rank()).map(move |n| stated.map_or((self.rank() - 1 - n) as i64, |order| order[n]))
    }

    /// Whether the elements of both lie in the same order where neither has tiles; dimensions of one element do not
    /// count.
    pub fn same_order(&self, other: &ArrayShape) -> bool {
        let counts = |&d: &i64| self.dims()[d as usize] != 1;
        let is_equal = || self.entry_order().filter(counts).eq(other.entry_order().filter(counts));
        self.dims() == other.dims() && (self.dims().contains(&0) || is_equal())
    }
}

impl From<ArrayShape> for Shape {
    fn from(a: ArrayShape) -> Shape {
        Shape::Array(Arc::new(a))
    }
}

impl Shape {
    /// How deep tuples may nest; real programs stay below ten.
    pub const MAX_DEPTH: usize = 128;

    /// A static array without a layout.
    pub fn array(element_type: ElementType, dims: impl IntoIterator<Item = i64>) -> Shape {
        ArrayShape::new(element_type, dims).into()
    }
    /// A scalar without a layout.
    pub fn scalar(element_type: ElementType) -> Shape {
        Shape::array(element_type, [])
    }
    /// A tuple.
    pub fn tuple(elements: impl IntoIterator<Item = Shape>) -> Shape {
        Shape::Tuple(elements.into_iter().collect())
    }
    /// The array, if it is one.
    pub fn as_array(&self) -> Option<&ArrayShape> {
        match self {
            Shape::Array(a) => Some(a),
            _ => None,
        }
    }
    /// The array, or the array in the buffer.
    pub fn as_array_or_buffer(&self) -> Option<&ArrayShape> {
        match self {
            Shape::Array(a) | Shape::Buffer(a) => Some(a),
            _ => None,
        }
    }
    /// The elements, if it is a tuple.
    pub fn as_tuple(&self) -> Option<&[Shape]> {
        match self {
            Shape::Tuple(t) => Some(t),
            _ => None,
        }
    }
    /// Whether it is an array.
    pub fn is_array(&self) -> bool {
        matches!(self, Shape::Array(_))
    }
    /// Whether it is a tuple.
    pub fn is_tuple(&self) -> bool {
        matches!(self, Shape::Tuple(_))
    }
    /// Whether it is an array of that type without dimensions.
    pub fn is_scalar_of(&self, element_type: ElementType) -> bool {
        self.as_array().is_some_and(|a| a.is_scalar() && a.element_type == element_type)
    }
    /// The element type of an array or buffer.
    pub fn element_type(&self) -> Option<ElementType> {
        self.as_array_or_buffer().map(|a| a.element_type)
    }
    /// The part at `index`.
    pub fn at(&self, index: &[i64]) -> Option<&Shape> {
        index.iter().try_fold(self, |s, &i| s.as_tuple()?.get(usize::try_from(i).ok()?))
    }
    /// All parts that are not tuples, in order, each with its path.
    pub fn leaves(&self) -> Vec<(ShapeIndex, &Shape)> {
        fn walk<'a>(shape: &'a Shape, index: &mut ShapeIndex, leaves: &mut Vec<(ShapeIndex, &'a Shape)>) {
            match shape {
                Shape::Tuple(elements) => {
                    for (i, element) in elements.iter().enumerate() {
                        index.push(i as i64);
                        walk(element, index, leaves);
                        index.pop();
                    }
                }
                _ => leaves.push((index.clone(), shape)),
            }
        }
        let mut leaves = Vec::new();
        walk(self, &mut ShapeIndex::new(), &mut leaves);
        leaves
    }
    /// The number of parts that are not tuples.
    pub fn leaf_count(&self) -> usize {
        match self {
            Shape::Tuple(t) => t.iter().map(Shape::leaf_count).sum(),
            _ => 1,
        }
    }
    /// Equal but for layouts.
    pub fn equal_ignoring_layout(&self, other: &Shape) -> bool {
        match (self, other) {
            (Shape::Array(a), Shape::Array(b)) | (Shape::Buffer(a), Shape::Buffer(b)) => {
                Arc::ptr_eq(a, b) || a.equal_ignoring_layout(b)
            }
            (Shape::Tuple(a), Shape::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.equal_ignoring_layout(b))
            }
            (Shape::Token, Shape::Token) | (Shape::Opaque, Shape::Opaque) => true,
            _ => false,
        }
    }
    /// The same shape with every array's layout replaced by `f` of it.
    pub fn map_arrays(&self, f: &mut impl FnMut(&ArrayShape) -> ArrayShape) -> Shape {
        match self {
            Shape::Array(a) => f(a).into(),
            Shape::Buffer(a) => Shape::Buffer(Arc::new(f(a))),
            Shape::Tuple(t) => Shape::Tuple(t.iter().map(|s| s.map_arrays(f)).collect()),
            other => other.clone(),
        }
    }
    /// The same shape without layouts; arrays that have none are shared.
    pub fn without_layout(&self) -> Shape {
        match self {
            Shape::Array(a) if a.layout.is_some() => a.without_layout().into(),
            Shape::Buffer(a) if a.layout.is_some() => Shape::Buffer(Arc::new(a.without_layout())),
            Shape::Tuple(t) => Shape::Tuple(t.iter().map(Shape::without_layout).collect()),
            other => other.clone(),
        }
    }
    /// The same shape with the row-major layout wherever none is set.
    pub fn with_default_layout(&self) -> Shape {
        self.map_arrays(&mut |a| match a.layout {
            Some(_) => a.clone(),
            None => a.clone().with_default_layout(),
        })
    }
    /// Whether any array in it is dynamic.
    pub fn is_dynamic(&self) -> bool {
        match self {
            Shape::Array(a) | Shape::Buffer(a) => a.is_dynamic(),
            Shape::Tuple(t) => t.iter().any(Shape::is_dynamic),
            _ => false,
        }
    }
    /// Bytes of all arrays in it, stored densely; `None` when the number does not fit.
    pub fn byte_size(&self) -> Option<i64> {
        match self {
            Shape::Array(a) | Shape::Buffer(a) => a.byte_size(),
            Shape::Tuple(t) => t.iter().try_fold(0i64, |n, s| n.checked_add(s.byte_size()?)),
            Shape::Token | Shape::Opaque => Some(0),
        }
    }
}

/// The shapes that go into and come out of a computation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ProgramShape {
    /// One shape per parameter.
    pub parameters: Vec<Shape>,
    /// The shape of the result.
    pub result: Shape,
}

impl ProgramShape {
    /// The same parameters and results in the layouts of another program's, as far as those have as many dimensions: that of
    /// a program for all devices, say, for a part of it.
    pub fn with_layouts_of(&self, other: &ProgramShape) -> ProgramShape {
        fn laid_out(shape: &Shape, like: &Shape) -> Shape {
            match (shape, like) {
                (Shape::Array(a), Shape::Array(b)) if a.rank() == b.rank() => {
                    ArrayShape { layout: b.layout.clone(), ..ArrayShape::clone(a) }.into()
                }
                (Shape::Tuple(a), Shape::Tuple(b)) if a.len() == b.len() => {
                    Shape::tuple(a.iter().zip(b.iter()).map(|(a, b)| laid_out(a, b)))
                }
                _ => shape.clone(),
            }
        }
        let parameters = self.parameters.iter().enumerate();
        let parameters = parameters.map(|(n, p)| other.parameters.get(n).map_or_else(|| p.clone(), |o| laid_out(p, o)));
        ProgramShape { parameters: parameters.collect(), result: laid_out(&self.result, &other.result) }
    }
}
