//! Memory for what other processes contribute to a reduction.
//!
//! Fresh memory costs a page fault every few kilobytes, as much as moving the bytes: buffers are kept for the next
//! collective, up to a limit.

use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

/// How many bytes are kept.
const KEPT: usize = 512 << 20;
/// Buffers below this are not worth keeping.
const LEAST: usize = 64 << 10;

static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), bytes: 0 });

/// Buffers that nobody uses.
struct Pool {
    free: Vec<Vec<MaybeUninit<u128>>>,
    bytes: usize,
}

/// Bytes aligned for any element, which hold nothing yet.
#[derive(Debug, Default)]
pub(crate) struct StagingBuffer(Vec<MaybeUninit<u128>>);

fn bytes_of(buffer: &[MaybeUninit<u128>]) -> usize {
    size_of_val(buffer)
}

impl StagingBuffer {
    pub(crate) fn new(length: usize) -> StagingBuffer {
        let words = length.div_ceil(size_of::<u128>());
        let fits = |b: &Vec<MaybeUninit<u128>>| b.len() >= words && b.len() / 2 <= words;
        if length >= LEAST {
            let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = pool.free.iter().position(fits) {
                let buffer = pool.free.swap_remove(place);
                pool.bytes -= bytes_of(&buffer);
                return StagingBuffer(buffer);
            }
        }
        let mut buffer = Vec::with_capacity(words);
        // SAFETY: elements that may hold anything need no value, and there is room for them.
        unsafe { buffer.set_len(words) };
        StagingBuffer(buffer)
    }

    /// Makes it at least so long; what it holds is lost.
    pub(crate) fn make_room(&mut self, length: usize) {
        if bytes_of(&self.0) < length {
            // What it had goes first: it may be what is taken.
            *self = StagingBuffer::default();
            *self = StagingBuffer::new(length);
        }
    }

    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }
}

impl Drop for StagingBuffer {
    fn drop(&mut self) {
        let bytes = bytes_of(&self.0);
        if !(LEAST..=KEPT).contains(&bytes) {
            return;
        }
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        // The oldest go first.
        let mut over = 0;
        while pool.bytes + bytes > KEPT && over < pool.free.len() {
            pool.bytes -= bytes_of(&pool.free[over]);
            over += 1;
        }
        pool.free.drain(..over);
        pool.bytes += bytes;
        pool.free.push(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_for_what_is_about_as_long() {
        let (length, other) = ((1 << 20) + 48, 1 << 18);
        let first = StagingBuffer::new(length);
        let address = first.address();
        drop(first);
        // Much shorter ones leave it alone.
        assert_ne!(StagingBuffer::new(other).address(), address);
        let again = StagingBuffer::new(length - 32);
        assert_eq!((again.address(), again.address() % 16), (address, 0));
        assert_ne!(StagingBuffer::new(length).address(), address);
    }
}
