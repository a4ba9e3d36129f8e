//! Literals: the values of constants.
//!
//! An array's elements are stored in row-major (logical) order, little-endian, sub-byte types one element a byte
//! (signed ones sign-extended, unsigned and f4/f6 ones with zero upper bits), whatever layout the shape names: a layout
//! says how the value is stored on a device, not what it is. `bytes.len()` is always `element_count × element bytes`.

use crate::element_type::ElementType;
use crate::shape::{ArrayShape, Shape};
use std::sync::Arc;

/// A value known at compile time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Literal {
    /// An array.
    Array(ArrayLiteral),
    /// A tuple of values.
    Tuple(Vec<Literal>),
    /// A token.
    Token,
}

/// The value of an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrayLiteral {
    shape: Arc<ArrayShape>,
    bytes: Box<[u8]>,
    /// Actual sizes where the shape has dynamic dimensions (from protos); empty when they equal the bounds.
    pub dynamic_sizes: Vec<i32>,
}

/// The bytes given for a literal are not as many as its shape needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiteralSizeMismatch {
    /// Bytes the shape needs; `None` if that number does not fit in 63 bits or the shape is unbounded.
    pub needed: Option<i64>,
    /// Bytes given.
    pub given: usize,
}

impl ArrayLiteral {
    /// The array of that shape with those elements in row-major order.
    pub fn new(
        shape: impl Into<Arc<ArrayShape>>,
        bytes: impl Into<Box<[u8]>>,
    ) -> Result<ArrayLiteral, LiteralSizeMismatch> {
        let (shape, bytes) = (shape.into(), bytes.into());
        let needed = shape.byte_size();
        if needed != Some(bytes.len() as i64) {
            return Err(LiteralSizeMismatch { needed, given: bytes.len() });
        }
        Ok(ArrayLiteral { shape, bytes, dynamic_sizes: Vec::new() })
    }
    /// The shape.
    pub fn shape(&self) -> &ArrayShape {
        &self.shape
    }
    /// The shape, shared.
    pub fn shared_shape(&self) -> &Arc<ArrayShape> {
        &self.shape
    }
    /// The type of the elements.
    pub fn element_type(&self) -> ElementType {
        self.shape.element_type
    }
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.element_type().bytes()
    }
    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
    /// All elements, row-major, little-endian.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// The bytes of the element at row-major position `i`; empty beyond the end.
    pub fn element(&self, i: usize) -> &[u8] {
        let n = self.element_type().bytes();
        self.bytes.get(i * n..(i + 1) * n).unwrap_or_default()
    }
    /// The same elements under a shape that differs in layout only (or in another way that keeps their number).
    pub fn with_shape(self, shape: Arc<ArrayShape>) -> Result<ArrayLiteral, LiteralSizeMismatch> {
        let dynamic_sizes = self.dynamic_sizes;
        ArrayLiteral::new(shape, self.bytes).map(|l| ArrayLiteral { dynamic_sizes, ..l })
    }
}

impl Literal {
    /// The shape of the value.
    pub fn shape(&self) -> Shape {
        match self {
            Literal::Array(a) => Shape::Array(a.shape.clone()),
            Literal::Tuple(t) => Shape::tuple(t.iter().map(Literal::shape)),
            Literal::Token => Shape::Token,
        }
    }
    /// The array, if it is one.
    pub fn as_array(&self) -> Option<&ArrayLiteral> {
        match self {
            Literal::Array(a) => Some(a),
            _ => None,
        }
    }
}
