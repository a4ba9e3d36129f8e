//! Buffers: arrays on a device.
//!
//! A buffer is a handle; clones are the same array. An array is never changed while more than one handle to it exists:
//! a run that is given the last handle may take the memory for its own (donation), otherwise it leaves it as it is.

use crate::memory::{Allocator, Block};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_value::{Array, ExecutionError, Value};
use std::sync::Arc;

/// One array of a device, or a token: a leaf of an argument or a result.
#[derive(Clone, Debug)]
pub struct Buffer {
    shape: Shape,
    /// The elements in row-major order; `None` for what has no memory.
    block: Option<Arc<Block>>,
}

impl Buffer {
    /// A buffer that holds a copy of `array`.
    pub fn from_array(allocator: &Allocator, array: &Array) -> Result<Buffer, ExecutionError> {
        let mut block = allocator.block(array.bytes().len())?;
        block.bytes_mut().copy_from_slice(array.bytes());
        Ok(Buffer { shape: array.shape().into(), block: Some(Arc::new(block)) })
    }

    /// An array of `shape` whose elements, in row-major order, `fill` writes.
    pub fn filled(
        allocator: &Allocator,
        shape: ArrayShape,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Buffer, ExecutionError> {
        let len = shape.byte_size().and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
        let mut block = allocator.block(len)?;
        fill(block.bytes_mut());
        Ok(Buffer { shape: shape.into(), block: Some(Arc::new(block)) })
    }

    /// What stands for a token.
    pub fn token() -> Buffer {
        Buffer { shape: Shape::Token, block: None }
    }

    /// A leaf of a value; one that is no array has no memory.
    pub fn from_leaf(allocator: &Allocator, leaf: &Value) -> Result<Buffer, ExecutionError> {
        match leaf {
            Value::Array(array) => Buffer::from_array(allocator, array),
            Value::Token => Ok(Buffer { shape: Shape::Token, block: None }),
            Value::Opaque => Ok(Buffer { shape: Shape::Opaque, block: None }),
            Value::Tuple(_) => Err(ExecutionError::bug("a tuple is not a leaf")),
        }
    }

    /// The leaves of a value.
    pub fn from_value(allocator: &Allocator, value: &Value) -> Result<Vec<Buffer>, ExecutionError> {
        value.leaves().into_iter().map(|leaf| Buffer::from_leaf(allocator, leaf)).collect()
    }

    /// An array in `block`, which must be as large as the shape asks for.
    pub(crate) fn from_block(shape: Shape, block: Arc<Block>) -> Buffer {
        Buffer { shape, block: Some(block) }
    }

    /// What has no memory.
    pub(crate) fn empty(shape: Shape) -> Buffer {
        Buffer { shape, block: None }
    }

    pub(crate) fn block(&self) -> Option<&Arc<Block>> {
        self.block.as_ref()
    }

    pub(crate) fn into_block(self) -> Option<Arc<Block>> {
        self.block
    }

    /// The shape: of an array without layout, with its actual sizes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The elements, row-major; empty for what is no array.
    pub fn bytes(&self) -> &[u8] {
        let len = self.shape.byte_size().map_or(0, |n| n as usize);
        self.block.as_deref().and_then(|b| b.bytes().get(..len)).unwrap_or_default()
    }

    /// A copy as a value of the host.
    pub fn to_leaf(&self) -> Result<Value, ExecutionError> {
        match &self.shape {
            Shape::Array(a) | Shape::Buffer(a) => {
                Array::from_bytes(a.element_type, a.dims(), self.bytes()).map(Value::Array)
            }
            Shape::Token => Ok(Value::Token),
            _ => Ok(Value::Opaque),
        }
    }

    /// A copy with memory of its own.
    pub fn duplicate(&self, allocator: &Allocator) -> Result<Buffer, ExecutionError> {
        let Some(block) = &self.block else { return Ok(self.clone()) };
        let mut copy = allocator.block(block.len())?;
        copy.bytes_mut().copy_from_slice(block.bytes());
        Ok(Buffer { shape: self.shape.clone(), block: Some(Arc::new(copy)) })
    }

    /// Whether the array has that type and those sizes; a token or an opaque value is itself.
    pub fn fits(&self, shape: &Shape) -> bool {
        match (&self.shape, shape) {
            (Shape::Array(a), Shape::Array(s) | Shape::Buffer(s)) => {
                let size_fits = |(d, (&size, &bound)): (usize, (&i64, &i64))| {
                    size == bound || (s.is_dynamic_dim(d) && (bound == ArrayShape::UNBOUNDED || size <= bound))
                };
                a.element_type == s.element_type
                    && a.rank() == s.rank()
                    && a.dims().iter().zip(s.dims()).enumerate().all(size_fits)
            }
            (Shape::Token, Shape::Token) | (Shape::Opaque, Shape::Opaque) => true,
            _ => false,
        }
    }
}

/// A value of `shape` out of its leaves, copied to the host.
pub fn assemble(shape: &Shape, leaves: &mut impl Iterator<Item = Buffer>) -> Result<Value, ExecutionError> {
    match shape {
        Shape::Tuple(t) => t.iter().map(|s| assemble(s, leaves)).collect::<Result<_, _>>().map(Value::Tuple),
        _ => leaves.next().ok_or_else(|| ExecutionError::bug("a leaf is missing"))?.to_leaf(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_from_the_device_as_it_was() {
        let allocator = Allocator::new(1 << 20);
        let array = Array::new(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let value = Value::Tuple(vec![Value::Array(array.clone()), Value::Tuple(vec![Value::Token])]);
        let shape = Shape::tuple([array.shape().into(), Shape::tuple([Shape::Token])]);
        let buffers = Buffer::from_value(&allocator, &value).unwrap();
        assert!(buffers[0].fits(&shape.as_tuple().unwrap()[0]));
        let back = assemble(&shape, &mut buffers.into_iter()).unwrap();
        assert_eq!(back.leaves()[0].as_array().unwrap().bytes(), array.bytes());
        assert!(matches!(back.leaves()[1], Value::Token));
    }

    #[test]
    fn a_duplicate_has_memory_of_its_own() {
        let allocator = Allocator::new(1 << 20);
        let buffer = Buffer::from_array(&allocator, &Array::new(&[2], &[7i32, 8]).unwrap()).unwrap();
        let copy = buffer.duplicate(&allocator).unwrap();
        assert_eq!(copy.bytes(), buffer.bytes());
        assert_ne!(copy.bytes().as_ptr(), buffer.bytes().as_ptr());
    }
}
