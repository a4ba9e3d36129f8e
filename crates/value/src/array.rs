//! Values: arrays, tuples and tokens.
//!
//! An array's elements are in row-major order, one element of a sub-byte type a byte (signed ones sign-extended), as in
//! literals. Its dimensions are the *actual* sizes: where the program's shape has a dynamic dimension, the array is as
//! large as it is now, not as large as the bound. Memory is shared between clones and copied only when a shared array is
//! changed ([`Array::elements_mut`]), so an operation that owns the last reference works in place.

use crate::buffer::Buffer;
use crate::error::ExecutionError;
use crate::strided::{self, View};
use bytemuck::Pod;
use hloom_ir::diagnostic::codes;
use hloom_ir::element_type::ElementType;
use hloom_ir::layout::{DimVec, Layout};
use hloom_ir::literal::{ArrayLiteral, Literal};
use hloom_ir::shape::{ArrayShape, Shape};
use std::sync::Arc;

/// What an instruction makes.
#[derive(Clone, Debug)]
pub enum Value {
    /// An array (or the array in a buffer).
    Array(Array),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A token.
    Token,
    /// A value of an opaque type, which nothing here can look into.
    Opaque,
}

/// An array: type, actual sizes and elements.
#[derive(Clone, Debug)]
pub struct Array {
    element_type: ElementType,
    dims: DimVec,
    data: Arc<Buffer>,
}

impl Array {
    /// An array of zeros.
    pub fn zeroed(element_type: ElementType, dims: &[i64]) -> Result<Array, ExecutionError> {
        let len = byte_len(element_type, dims)?;
        Ok(Array { element_type, dims: dims.into(), data: Arc::new(Buffer::zeroed(len)?) })
    }

    /// An array with those bytes as elements.
    pub fn from_bytes(element_type: ElementType, dims: &[i64], bytes: &[u8]) -> Result<Array, ExecutionError> {
        if byte_len(element_type, dims)? != bytes.len() {
            return Err(ExecutionError::bug(format!("{} bytes given for {element_type}{dims:?}", bytes.len())));
        }
        Ok(Array { element_type, dims: dims.into(), data: Arc::new(Buffer::from_bytes(bytes)?) })
    }

    /// An array with those elements; `T` must have the size of the element type in literals.
    pub fn from_elements<T: Pod>(
        element_type: ElementType,
        dims: &[i64],
        elements: &[T],
    ) -> Result<Array, ExecutionError> {
        Array::from_bytes(element_type, dims, bytemuck::cast_slice(elements))
    }

    /// A scalar.
    pub fn scalar<T: Pod>(element_type: ElementType, element: T) -> Result<Array, ExecutionError> {
        Array::from_elements(element_type, &[], &[element])
    }

    /// The type of the elements.
    pub fn element_type(&self) -> ElementType {
        self.element_type
    }
    /// The actual sizes.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }
    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.data.len() / self.element_type.bytes()
    }
    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }
    /// The elements' bytes.
    pub fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }
    /// The elements. `T` must have the size of the element type.
    pub fn elements<T: Pod>(&self) -> &[T] {
        debug_assert_eq!(size_of::<T>(), self.element_type.bytes());
        self.data.elements()
    }
    /// Whether nobody else holds the elements, so that changing them copies nothing.
    pub fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.data) == 1
    }
    /// Makes the memory this array's own, copying it if another value shares it; a fault if there is no room for a copy.
    /// Operations that change large arrays ask this first, since the copy that changing makes by itself cannot fail well.
    pub fn unshare(&mut self) -> Result<(), ExecutionError> {
        if Arc::get_mut(&mut self.data).is_none() {
            self.data = Arc::new(Buffer::from_bytes(self.data.bytes())?);
        }
        Ok(())
    }
    /// The elements, to change; copied first if another value shares them.
    pub fn elements_mut<T: Pod>(&mut self) -> &mut [T] {
        debug_assert_eq!(size_of::<T>(), self.element_type.bytes());
        Arc::make_mut(&mut self.data).elements_mut()
    }
    /// The elements' bytes, to change; copied first if another value shares them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.data).bytes_mut()
    }
    /// The array of that shape whose elements lie in `bytes` as its layout orders them ([`ArrayShape::entry_layout`]).
    pub fn from_memory(shape: &ArrayShape, bytes: &[u8]) -> Result<Array, ExecutionError> {
        let layout = shape.entry_layout();
        if layout.is_descending() {
            return Array::from_bytes(shape.element_type, shape.dims(), bytes);
        }
        let (physical, view) = physical(shape.dims(), &layout);
        let memory = Array::from_bytes(shape.element_type, &physical, bytes)?;
        let mut array = Array::zeroed(shape.element_type, shape.dims())?;
        let whole = View::whole(&physical);
        strided::copy(&physical, &memory, &whole, &mut array, &view)?;
        Ok(array)
    }

    /// The elements as a layout of these dimensions orders them: a row-major array of the sizes in physical order.
    pub fn to_memory(&self, layout: &Layout) -> Result<Array, ExecutionError> {
        if layout.is_descending() || !layout.is_permutation(self.rank()) {
            return Ok(self.clone());
        }
        let (physical, view) = physical(self.dims(), layout);
        let mut memory = Array::zeroed(self.element_type(), &physical)?;
        let whole = View::whole(&physical);
        strided::copy(&physical, self, &view, &mut memory, &whole)?;
        Ok(memory)
    }

    /// The same elements under other dimensions with as many elements.
    pub fn reshaped(self, dims: &[i64]) -> Result<Array, ExecutionError> {
        if byte_len(self.element_type, dims)? != self.data.len() {
            return Err(ExecutionError::bug(format!("{:?} does not have as many elements as {dims:?}", self.dims)));
        }
        Ok(Array { dims: dims.into(), ..self })
    }
    /// The same bytes as elements of another type and dimensions that take as many bytes.
    pub fn reinterpreted(self, element_type: ElementType, dims: &[i64]) -> Result<Array, ExecutionError> {
        if byte_len(element_type, dims)? != self.data.len() {
            return Err(ExecutionError::bug(format!(
                "{:?} does not have as many bytes as {element_type}{dims:?}",
                self.dims
            )));
        }
        Ok(Array { element_type, dims: dims.into(), data: self.data })
    }
    /// The value of an integer or pred scalar (or of the first element of an array).
    pub fn to_i64(&self) -> Result<i64, ExecutionError> {
        self.integer_at(0)
    }
    /// The integer or pred at row-major position `n`.
    pub fn integer_at(&self, n: usize) -> Result<i64, ExecutionError> {
        use ElementType::*;
        if n >= self.len() {
            return Err(ExecutionError::bug("an index has no such element"));
        }
        Ok(match self.element_type {
            Pred | U8 | U1 | U2 | U4 => self.elements::<u8>()[n].into(),
            S8 | S1 | S2 | S4 => self.elements::<i8>()[n].into(),
            S16 => self.elements::<i16>()[n].into(),
            U16 => self.elements::<u16>()[n].into(),
            S32 => self.elements::<i32>()[n].into(),
            U32 => self.elements::<u32>()[n].into(),
            S64 => self.elements::<i64>()[n],
            // An index beyond 2^63 is out of every range: the largest number that fits says so as well.
            U64 => i64::try_from(self.elements::<u64>()[n]).unwrap_or(i64::MAX),
            other => return Err(ExecutionError::bug(format!("{other} is not an integer type"))),
        })
    }
    /// The shape, without a layout.
    pub fn shape(&self) -> ArrayShape {
        ArrayShape::new(self.element_type, self.dims.iter().copied())
    }
    /// Row-major strides, in elements.
    pub fn strides(&self) -> DimVec {
        strides(&self.dims)
    }
}

/// Rust's types that are element types.
pub trait Native: Pod {
    /// The element type.
    const TYPE: ElementType;
}

macro_rules! native {
    ($($t:ty, $variant:ident;)+) => {$(
        impl Native for $t {
            const TYPE: ElementType = ElementType::$variant;
        }
    )+};
}

native! {
    i8, S8; i16, S16; i32, S32; i64, S64; u8, U8; u16, U16; u32, U32; u64, U64; f32, F32; f64, F64;
    half::f16, F16; half::bf16, Bf16; num_complex::Complex<f32>, C64; num_complex::Complex<f64>, C128;
}

impl Array {
    /// An array with those elements, in row-major order; `None` if their number does not fit the dimensions.
    pub fn new<T: Native>(dims: &[i64], elements: &[T]) -> Option<Array> {
        Array::from_elements(T::TYPE, dims, elements).ok()
    }
    /// The elements, if they are of that type.
    pub fn as_slice<T: Native>(&self) -> Option<&[T]> {
        (self.element_type == T::TYPE).then(|| self.elements())
    }
}

/// The sizes of an array in the physical order of a layout, slowest first, and where the element at an index of those is in
/// the row-major array.
fn physical(dims: &[i64], layout: &Layout) -> (DimVec, View) {
    let logical = strides(dims);
    let order = || layout.minor_to_major.iter().rev().map(|&d| d as usize);
    (order().map(|d| dims[d]).collect(), View { start: 0, strides: order().map(|d| logical[d]).collect() })
}

/// Row-major strides of an array with those sizes, in elements.
pub fn strides(dims: &[i64]) -> DimVec {
    let mut strides: DimVec = dims.into();
    let mut stride = 1i64;
    for s in strides.iter_mut().rev() {
        let size = *s;
        *s = stride;
        // In an array without elements the other sizes may be of any size; its strides are not used.
        stride = i64::saturating_mul(stride, size.max(1));
    }
    strides
}

/// The number of indices in dimensions of those sizes. If one of them is zero the others may be of any size, so that their
/// product cannot be relied on; otherwise it is the size of something that exists.
pub fn index_count(sizes: &[i64]) -> usize {
    if sizes.contains(&0) { 0 } else { sizes.iter().product::<i64>() as usize }
}

/// Bytes of an array; a fault if no memory can hold it.
fn byte_len(element_type: ElementType, dims: &[i64]) -> Result<usize, ExecutionError> {
    let shape = ArrayShape::new(element_type, dims.iter().copied());
    if shape.is_unbounded() {
        let message = format!("an array {shape} was asked for, whose size nobody knows");
        return Err(ExecutionError::new(&codes::eval::UNSUPPORTED, message));
    }
    match shape.byte_size().map(usize::try_from) {
        Some(Ok(len)) => Ok(len),
        _ => Err(ExecutionError::out_of_memory(usize::MAX).note(format!("an array {shape} was asked for"))),
    }
}

impl Value {
    /// The array.
    pub fn into_array(self) -> Result<Array, ExecutionError> {
        match self {
            Value::Array(a) => Ok(a),
            other => Err(ExecutionError::bug(format!("an array is needed where {} is", other.kind()))),
        }
    }
    /// The array.
    pub fn as_array(&self) -> Result<&Array, ExecutionError> {
        match self {
            Value::Array(a) => Ok(a),
            other => Err(ExecutionError::bug(format!("an array is needed where {} is", other.kind()))),
        }
    }
    /// The elements of a tuple.
    pub fn into_tuple(self) -> Result<Vec<Value>, ExecutionError> {
        match self {
            Value::Tuple(t) => Ok(t),
            other => Err(ExecutionError::bug(format!("a tuple is needed where {} is", other.kind()))),
        }
    }
    /// A value of that shape with every element zero; dynamic dimensions at their bounds.
    pub fn zeroed(shape: &Shape) -> Result<Value, ExecutionError> {
        Ok(match shape {
            Shape::Array(a) | Shape::Buffer(a) => Value::Array(Array::zeroed(a.element_type, a.dims())?),
            Shape::Tuple(t) => Value::Tuple(t.iter().map(Value::zeroed).collect::<Result<_, _>>()?),
            Shape::Token => Value::Token,
            Shape::Opaque => Value::Opaque,
        })
    }
    /// The value of a literal.
    pub fn from_literal(literal: &Literal) -> Result<Value, ExecutionError> {
        Ok(match literal {
            Literal::Array(a) => Value::Array(Array::from_literal(a)?),
            Literal::Tuple(t) => Value::Tuple(t.iter().map(Value::from_literal).collect::<Result<_, _>>()?),
            Literal::Token => Value::Token,
        })
    }
    /// The value as a literal; `None` for what has none.
    pub fn to_literal(&self) -> Option<Literal> {
        Some(match self {
            Value::Array(a) => {
                let shape = ArrayShape::new(a.element_type(), a.dims().iter().copied()).with_default_layout();
                Literal::Array(ArrayLiteral::new(shape, a.bytes()).ok()?)
            }
            Value::Tuple(elements) => Literal::Tuple(elements.iter().map(Value::to_literal).collect::<Option<_>>()?),
            Value::Token => Literal::Token,
            Value::Opaque => return None,
        })
    }
    /// Whether it is a value of that shape: dynamic dimensions may have any size up to their bounds.
    pub fn fits(&self, shape: &Shape) -> bool {
        match (self, shape) {
            (Value::Array(a), Shape::Array(s) | Shape::Buffer(s)) => {
                let size_fits = |(d, (&size, &bound)): (usize, (&i64, &i64))| {
                    size == bound || (s.is_dynamic_dim(d) && (bound == ArrayShape::UNBOUNDED || size <= bound))
                };
                a.element_type() == s.element_type
                    && a.rank() == s.rank()
                    && a.dims().iter().zip(s.dims()).enumerate().all(size_fits)
            }
            (Value::Tuple(values), Shape::Tuple(shapes)) => {
                values.len() == shapes.len() && values.iter().zip(shapes.iter()).all(|(v, s)| v.fits(s))
            }
            (Value::Token, Shape::Token) | (Value::Opaque, Shape::Opaque) => true,
            _ => false,
        }
    }
    /// What it is, in words for a message.
    pub fn description(&self) -> String {
        match self {
            Value::Array(a) => a.shape().to_string(),
            Value::Tuple(t) => format!("({})", t.iter().map(Value::description).collect::<Vec<_>>().join(", ")),
            other => other.kind().to_owned(),
        }
    }
    /// All parts that are not tuples, in order.
    pub fn leaves(&self) -> Vec<&Value> {
        fn walk<'a>(value: &'a Value, leaves: &mut Vec<&'a Value>) {
            match value {
                Value::Tuple(t) => t.iter().for_each(|v| walk(v, leaves)),
                leaf => leaves.push(leaf),
            }
        }
        let mut leaves = Vec::new();
        walk(self, &mut leaves);
        leaves
    }
    /// Bytes of all arrays in it.
    pub fn byte_size(&self) -> usize {
        match self {
            Value::Array(a) => a.bytes().len(),
            Value::Tuple(t) => t.iter().map(Value::byte_size).sum(),
            Value::Token | Value::Opaque => 0,
        }
    }
    fn kind(&self) -> &'static str {
        match self {
            Value::Array(_) => "an array",
            Value::Tuple(_) => "a tuple",
            Value::Token => "a token",
            Value::Opaque => "an opaque value",
        }
    }
}

impl Array {
    /// The value of a literal; cut to its actual sizes where it has dynamic dimensions.
    pub fn from_literal(literal: &ArrayLiteral) -> Result<Array, ExecutionError> {
        let full = Array::from_bytes(literal.element_type(), literal.shape().dims(), literal.bytes())?;
        if literal.dynamic_sizes.is_empty() {
            return Ok(full);
        }
        let sizes: DimVec = literal
            .dynamic_sizes
            .iter()
            .zip(full.dims())
            .enumerate()
            .map(
                |(d, (&size, &bound))| {
                    if literal.shape().is_dynamic_dim(d) { i64::from(size).clamp(0, bound) } else { bound }
                },
            )
            .collect();
        let mut leading = Array::zeroed(full.element_type(), &sizes)?;
        strided::copy(&sizes, &full, &View::whole(full.dims()), &mut leading, &View::whole(&sizes))?;
        Ok(leading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_made_its_own_changes_alone() {
        let original = Array::new(&[3], &[1i32, 2, 3]).unwrap();
        let mut copy = original.clone();
        copy.unshare().unwrap();
        copy.elements_mut::<i32>()[0] = 9;
        assert_eq!(original.as_slice::<i32>(), Some(&[1, 2, 3][..]));
        assert_eq!(copy.as_slice::<i32>(), Some(&[9, 2, 3][..]));
    }
}
