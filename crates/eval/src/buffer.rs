//! The memory of arrays: bytes that are aligned for every element type and can be seen as a slice of any of them.
//!
//! Allocation never aborts the process: a size that cannot be had is an error that the caller can report.

use crate::fault::Fault;
use bytemuck::Pod;

/// A block of bytes, aligned for every element type.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    words: Vec<u128>,
    len: usize,
}

impl Buffer {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Result<Buffer, Fault> {
        let count = len.div_ceil(size_of::<u128>());
        let mut words = Vec::new();
        words.try_reserve_exact(count).map_err(|_| Fault::out_of_memory(len))?;
        // `resize` on fresh memory compiles to a zero fill; the allocation itself has succeeded already.
        words.resize(count, 0);
        Ok(Buffer { words, len })
    }

    /// A copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Buffer, Fault> {
        let mut buffer = Buffer::zeroed(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        Ok(buffer)
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }

    /// All bytes, to change.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }

    /// The bytes as elements. The length must be a multiple of the element's size, which the owner sees to.
    pub fn elements<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    /// The bytes as elements, to change.
    pub fn elements_mut<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }
}
