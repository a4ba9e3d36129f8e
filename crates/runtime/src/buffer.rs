//! Buffers: arrays on a device.
//!
//! A buffer is a handle; clones are the same array. An array is never changed while more than one handle to it exists:
//! a run that is given the last handle may take the memory for its own (donation), otherwise it leaves it as it is.

use crate::memory::Block;
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_value::{Array, ExecutionError, Value};
use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

/// One array of a device, or a token: a leaf of an argument or a result.
#[derive(Clone, Debug)]
pub struct Buffer {
    shape: Shape,
    /// `None` for what has no memory.
    memory: Option<Arc<dyn DeviceMemory>>,
}

/// Memory of a device.
pub trait DeviceMemory: std::fmt::Debug + Send + Sync + Any {
    /// The number of bytes.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, where the host can look at them in place.
    fn host_bytes(&self) -> Option<&[u8]>;

    /// Where it begins, in the address space of the device.
    fn address(&self) -> usize {
        self.host_bytes().map_or(0, |bytes| bytes.as_ptr() as usize)
    }

    /// Copies the first bytes to the host, as many as `to` has.
    fn read(&self, to: &mut [u8]) -> Result<(), ExecutionError>;
}

impl DeviceMemory for Block {
    fn len(&self) -> usize {
        Block::len(self)
    }
    fn host_bytes(&self) -> Option<&[u8]> {
        Some(self.bytes())
    }
    fn read(&self, to: &mut [u8]) -> Result<(), ExecutionError> {
        let from = self.bytes().get(..to.len()).ok_or_else(|| ExecutionError::bug("a buffer is too short"))?;
        to.copy_from_slice(from);
        Ok(())
    }
}

impl Buffer {
    /// An array in memory that is as large as the shape asks for, in the layout that the shape has.
    pub fn new(shape: impl Into<Shape>, memory: Arc<dyn DeviceMemory>) -> Buffer {
        Buffer { shape: shape.into(), memory: Some(memory) }
    }

    /// What stands for a token.
    pub fn token() -> Buffer {
        Buffer::without_memory(Shape::Token)
    }

    /// What stands for a value that nothing can look into.
    pub fn opaque() -> Buffer {
        Buffer::without_memory(Shape::Opaque)
    }

    /// What has no memory.
    pub fn without_memory(shape: Shape) -> Buffer {
        Buffer { shape, memory: None }
    }

    /// The memory.
    pub fn memory(&self) -> Option<&Arc<dyn DeviceMemory>> {
        self.memory.as_ref()
    }

    /// The memory, if it is of that kind.
    pub fn memory_as<M: DeviceMemory>(&self) -> Option<Arc<M>> {
        downcast(self.memory.clone()?)
    }

    /// Where its memory begins, if that is of the host and of this process.
    pub fn block_start(&self) -> Option<*mut u8> {
        let memory: &dyn Any = &**self.memory.as_ref()?;
        memory.downcast_ref::<Block>().map(Block::start)
    }

    /// Gives up the handle for its memory, if that is of that kind.
    pub fn into_memory<M: DeviceMemory>(self) -> Option<Arc<M>> {
        downcast(self.memory?)
    }

    /// The shape, with the actual sizes; an array without layout is row-major.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The bytes that the array takes.
    pub fn byte_size(&self) -> usize {
        self.shape.byte_size().map_or(0, |n| n as usize)
    }

    /// The elements as they lie in memory, where the host can look at them in place; none for what is no array.
    pub fn host_bytes(&self) -> Option<&[u8]> {
        match &self.memory {
            Some(memory) => memory.host_bytes()?.get(..self.byte_size()),
            None => Some(&[]),
        }
    }

    /// Where the elements begin, in the address space of the device; 0 for what is no array.
    pub fn address(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.address())
    }

    /// The elements as they lie in memory: in place where the host can look at them, otherwise copied.
    pub fn to_host(&self) -> Result<Cow<'_, [u8]>, ExecutionError> {
        if let Some(bytes) = self.host_bytes() {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut bytes = vec![0; self.byte_size()];
        self.read(&mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    /// Copies the elements to the host as they lie in memory.
    pub fn read(&self, to: &mut [u8]) -> Result<(), ExecutionError> {
        match &self.memory {
            Some(memory) => memory.read(to),
            None => Ok(()),
        }
    }

    /// A copy as a value of the host.
    pub fn to_leaf(&self) -> Result<Value, ExecutionError> {
        match &self.shape {
            Shape::Array(a) | Shape::Buffer(a) => {
                let mut array = Array::zeroed(a.element_type, a.dims())?;
                self.read(array.bytes_mut())?;
                match a.entry_layout().is_descending() {
                    true => Ok(Value::Array(array)),
                    false => Array::from_memory(a, array.bytes()).map(Value::Array),
                }
            }
            Shape::Token => Ok(Value::Token),
            _ => Ok(Value::Opaque),
        }
    }

    /// Whether the array has that type, those sizes and that layout; a token or an opaque value is itself.
    pub fn fits(&self, shape: &Shape) -> bool {
        match (&self.shape, shape) {
            // What was made for this very parameter.
            (Shape::Array(a), Shape::Array(s)) if Arc::ptr_eq(a, s) => true,
            (Shape::Array(a), Shape::Array(s) | Shape::Buffer(s)) => {
                let size_fits = |(d, (&size, &bound)): (usize, (&i64, &i64))| {
                    size == bound || (s.is_dynamic_dim(d) && (bound == ArrayShape::UNBOUNDED || size <= bound))
                };
                a.element_type == s.element_type
                    && a.rank() == s.rank()
                    && a.dims().iter().zip(s.dims()).enumerate().all(size_fits)
                    && (s.is_dynamic() || a.same_order(s))
            }
            (Shape::Token, Shape::Token) | (Shape::Opaque, Shape::Opaque) => true,
            _ => false,
        }
    }
}

fn downcast<M: DeviceMemory>(memory: Arc<dyn DeviceMemory>) -> Option<Arc<M>> {
    let memory: Arc<dyn Any + Send + Sync> = memory;
    memory.downcast().ok()
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
    use crate::memory::Allocator;

    fn buffer(array: &Array) -> Buffer {
        let mut block = Allocator::new(1 << 20).block(array.bytes().len()).unwrap();
        block.bytes_mut().copy_from_slice(array.bytes());
        Buffer::new(array.shape(), Arc::new(block))
    }

    #[test]
    fn a_value_comes_back_from_the_device_as_it_was() {
        let array = Array::new(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let shape = Shape::tuple([array.shape().into(), Shape::tuple([Shape::Token])]);
        let buffers = [buffer(&array), Buffer::token()];
        assert!(buffers[0].fits(&shape.as_tuple().unwrap()[0]));
        let back = assemble(&shape, &mut buffers.into_iter()).unwrap();
        assert_eq!(back.leaves()[0].as_array().unwrap().bytes(), array.bytes());
        assert!(matches!(back.leaves()[1], Value::Token));
    }

    #[test]
    fn a_column_major_array_comes_back_as_it_was_meant() {
        let array = Array::new(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let layout = hloom_ir::layout::Layout::new([0, 1]);
        let memory = array.to_memory(&layout).unwrap();
        assert_eq!(memory.as_slice::<f32>(), Some(&[1.0, 4.0, 2.0, 5.0, 3.0, 6.0][..]));
        let shape = array.shape().with_layout(layout);
        let mut block = Allocator::new(1 << 20).block(24).unwrap();
        block.bytes_mut().copy_from_slice(memory.bytes());
        let column_major = Buffer::new(shape.clone(), Arc::new(block));
        assert!(column_major.fits(&shape.into()) && !column_major.fits(&array.shape().into()));
        assert_eq!(column_major.to_leaf().unwrap().as_array().unwrap().bytes(), array.bytes());
    }

    #[test]
    fn memory_is_taken_only_by_who_has_the_last_handle() {
        let first = buffer(&Array::new(&[2], &[7i32, 8]).unwrap());
        let second = first.clone();
        assert!(Arc::try_unwrap(first.into_memory::<Block>().unwrap()).is_err());
        assert!(Arc::try_unwrap(second.into_memory::<Block>().unwrap()).is_ok());
    }
}
