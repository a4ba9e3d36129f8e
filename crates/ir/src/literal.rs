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

/// A Rust type whose values are elements of arrays.
pub trait Element: Copy {
    /// Its element type.
    const TYPE: ElementType;
    /// Appends the value's bytes as literals hold them.
    fn write(self, out: &mut Vec<u8>);
}

macro_rules! elements {
    ($($rust:ty => $variant:ident),+ $(,)?) => {
        $(impl Element for $rust {
            const TYPE: ElementType = ElementType::$variant;
            fn write(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        })+
    };
}

elements! {
    i8 => S8, i16 => S16, i32 => S32, i64 => S64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    half::f16 => F16, half::bf16 => Bf16, f32 => F32, f64 => F64,
}

impl Element for bool {
    const TYPE: ElementType = ElementType::Pred;
    fn write(self, out: &mut Vec<u8>) {
        out.push(u8::from(self));
    }
}

impl Literal {
    /// An array of those dimensions with those elements in row-major order.
    pub fn array<T: Element>(
        dims: impl IntoIterator<Item = i64>,
        elements: &[T],
    ) -> Result<Literal, LiteralSizeMismatch> {
        let mut bytes = Vec::with_capacity(elements.len() * T::TYPE.bytes());
        elements.iter().for_each(|e| e.write(&mut bytes));
        ArrayLiteral::new(ArrayShape::new(T::TYPE, dims).with_default_layout(), bytes).map(Literal::Array)
    }
    /// An array without dimensions.
    pub fn scalar<T: Element>(value: T) -> Literal {
        let mut bytes = Vec::with_capacity(T::TYPE.bytes());
        value.write(&mut bytes);
        let shape = Arc::new(ArrayShape::new(T::TYPE, []).with_default_layout());
        Literal::Array(ArrayLiteral { shape, bytes: bytes.into(), dynamic_sizes: Vec::new() })
    }
    /// The scalar zero of a type (of f8e8m0fnu, which has none, the smallest number).
    pub fn zero(element_type: ElementType) -> Literal {
        let shape = Arc::new(ArrayShape::new(element_type, []).with_default_layout());
        let bytes = vec![0; element_type.bytes()].into();
        Literal::Array(ArrayLiteral { shape, bytes, dynamic_sizes: Vec::new() })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_hold_little_endian_bytes_in_row_major_order() {
        let literal = Literal::array([2, 2], &[1i16, 2, -1, 0x0102]).unwrap();
        let array = literal.as_array().unwrap();
        assert_eq!(array.shape().to_string(), "s16[2,2]{1,0}");
        assert_eq!(array.bytes(), [1, 0, 2, 0, 0xff, 0xff, 2, 1]);
        assert_eq!((array.len(), array.element(2), array.element(4)), (4, &[0xff, 0xff][..], &[][..]));
        assert_eq!(Literal::scalar(true).as_array().unwrap().bytes(), [1]);
        assert_eq!(Literal::scalar(half::bf16::ONE).shape().to_string(), "bf16[]");
    }

    #[test]
    fn the_number_of_elements_must_fit_the_shape() {
        let mismatch = |needed, given| LiteralSizeMismatch { needed, given };
        assert_eq!(Literal::array([3], &[1f32, 2.0]), Err(mismatch(Some(12), 8)));
        assert_eq!(Literal::array([i64::MAX, 2], &[1u8]), Err(mismatch(None, 1)));
        assert_eq!(Literal::array([-1], &[0u8; 0]), Err(mismatch(None, 0)));
        assert_eq!(Literal::array([ArrayShape::UNBOUNDED], &[0u8; 0]), Err(mismatch(None, 0)));
        let empty = Literal::array([0, i64::MAX], &[0u64; 0]).unwrap();
        assert!(empty.as_array().unwrap().is_empty());
    }

    #[test]
    fn elements_keep_their_bytes_under_another_shape() {
        let Literal::Array(array) = Literal::array([6], &[1u8, 2, 3, 4, 5, 6]).unwrap() else { unreachable!() };
        let reshaped = array.clone().with_shape(Arc::new(ArrayShape::new(ElementType::U8, [2, 3]))).unwrap();
        assert_eq!(reshaped.bytes(), array.bytes());
        assert!(array.with_shape(Arc::new(ArrayShape::new(ElementType::U8, [4]))).is_err());
    }
}
