//! The memory of arrays: bytes that are aligned for every element type and can be seen as a slice of any of them.
//!
//! Allocation never aborts the process: a size that cannot be had is an error that the caller can report.

use crate::error::ExecutionError;
use crate::memory;
use bytemuck::Pod;

/// From this size on the system is asked whether it has the memory; below, asking would cost more than it is worth.
const LARGE: usize = 64 << 20;

/// A block of bytes, aligned for every element type.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    words: Vec<u128>,
    len: usize,
}

impl Buffer {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Result<Buffer, ExecutionError> {
        let count = len.div_ceil(size_of::<u128>());
        let mut words: Vec<u128> = Vec::new();
        let no_memory = || ExecutionError::out_of_memory(len);
        if len < LARGE {
            words.try_reserve_exact(count).map_err(|_| no_memory())?;
            words.resize(count, 0);
            return Ok(Buffer { words, len });
        }
        // The system promises more memory than it has and ends the process that takes it at its word, so ask first.
        if memory::available().is_some_and(|available| len as u64 > available) {
            return Err(no_memory());
        }
        words.try_reserve_exact(count).map_err(|_| no_memory())?;
        drop(words);
        // Memory fresh from the system is zero already; `vec!` knows how to get it without writing it once more.
        Ok(Buffer { words: vec![0; count], len })
    }

    /// A copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Buffer, ExecutionError> {
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
