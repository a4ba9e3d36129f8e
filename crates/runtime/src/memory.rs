//! Memory for arrays: aligned blocks from an allocator that keeps what is given back.
//!
//! Invariants: a block is aligned to [`ALIGNMENT`] bytes; its bytes are always initialised (fresh memory comes zeroed from
//! the system, memory used before holds what was in it), so that looking at them is never undefined; a block belongs to
//! one [`Block`] until that is dropped.
//!
//! Sizes are rounded up to classes, four to each power of two, so that at most a fifth of a block is unused and blocks of
//! nearly equal sizes are taken for each other. What is kept is bounded: beyond the bound blocks go back to the system.

use crate::buffer::Buffer;
use hloom_ir::shape::ArrayShape;
use hloom_value::ExecutionError;
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The alignment of every block: a cache line, and the widest vector register.
pub const ALIGNMENT: usize = 64;

/// From this size on the system is asked whether it has the memory.
const LARGE: usize = 64 << 20;

/// The size of a large page. Memory in such pages is there sooner, and found faster, than in small ones.
const LARGE_PAGE: usize = 2 << 20;

/// Gives and takes back blocks. Clones are the same allocator.
#[derive(Clone, Debug)]
pub struct Allocator(Arc<Mutex<Shelves>>);

/// What is kept for the next to ask.
#[derive(Debug)]
struct Shelves {
    /// Free blocks of each class.
    free: Vec<Vec<Memory>>,
    kept_bytes: usize,
    max_kept_bytes: usize,
    statistics: MemoryStatistics,
}

/// What an allocator has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MemoryStatistics {
    /// Bytes in blocks that are in use.
    pub bytes_in_use: usize,
    /// The most that `bytes_in_use` has been.
    pub peak_bytes_in_use: usize,
    /// Blocks that were asked for.
    pub requests: u64,
    /// Those among them that had been used before.
    pub reused: u64,
}

impl MemoryStatistics {
    /// Counts a block that is given.
    fn count(&mut self, size: usize, reused: bool) {
        self.requests += 1;
        self.reused += u64::from(reused);
        self.bytes_in_use += size;
        self.peak_bytes_in_use = self.peak_bytes_in_use.max(self.bytes_in_use);
    }
}

/// Memory from the system, not yet given back.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    class: usize,
}

// SAFETY: the memory is owned, and nothing about it belongs to a thread.
unsafe impl Send for Memory {}
// SAFETY: a shared `Memory` gives out its address only; who uses it must see to it (see `Block`).
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was allocated in `Allocator::fresh` with this very layout, and is given back once.
        unsafe { dealloc(self.start.as_ptr(), layout(self.class)) }
    }
}

/// The class of a size: `4·log2` steps.
fn class_of(size: usize) -> usize {
    let lines = size.div_ceil(ALIGNMENT).max(1);
    if lines <= 4 {
        return lines - 1;
    }
    // With `2^k < lines <= 2^(k+1)` there are four steps of `2^(k-2)` lines each.
    let k = (usize::BITS - 1 - (lines - 1).leading_zeros()) as usize;
    let step = (lines - (1 << k)).div_ceil(1 << (k - 2));
    4 * (k - 1) + step - 1
}

/// The bytes of a class's blocks; the inverse of [`class_of`] for sizes that are at the top of their class.
fn class_size(class: usize) -> usize {
    if class < 4 {
        return (class + 1) * ALIGNMENT;
    }
    let (k, step) = (class / 4 + 1, class % 4 + 1);
    ((1 << k) + (step << (k - 2))) * ALIGNMENT
}

/// Whether blocks of this size are put into large pages.
fn in_large_pages(size: usize) -> bool {
    size >= 2 * LARGE_PAGE
}

/// The layout of a class's blocks. Sizes are checked before a class is made, so it exists.
fn layout(class: usize) -> Layout {
    let size = class_size(class);
    let alignment = if in_large_pages(size) { LARGE_PAGE } else { ALIGNMENT };
    Layout::from_size_align(size, alignment).unwrap_or(Layout::new::<u64>())
}

impl Allocator {
    /// An allocator that keeps at most `max_kept_bytes` for later.
    pub fn new(max_kept_bytes: usize) -> Allocator {
        Allocator(Arc::new(Mutex::new(Shelves {
            free: Vec::new(),
            kept_bytes: 0,
            max_kept_bytes,
            statistics: MemoryStatistics::default(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Shelves> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of at least `len` bytes; what they are is not said.
    pub fn block(&self, len: usize) -> Result<Block, ExecutionError> {
        if len > isize::MAX as usize / 2 {
            return Err(ExecutionError::out_of_memory(len));
        }
        let class = class_of(len);
        let size = class_size(class);
        let kept = {
            let mut shelves = self.lock();
            let kept = shelves.free.get_mut(class).and_then(Vec::pop);
            if kept.is_some() {
                shelves.kept_bytes -= size;
                shelves.statistics.count(size, true);
            }
            kept
        };
        let memory = match kept {
            Some(memory) => memory,
            None => {
                let memory = fresh(class)?;
                self.lock().statistics.count(size, false);
                memory
            }
        };
        Ok(Block { memory: Some(memory), len, allocator: self.clone() })
    }

    /// A buffer of `shape` whose bytes, in the layout that the shape has, `fill` writes.
    pub fn buffer(&self, shape: ArrayShape, fill: &mut dyn FnMut(&mut [u8])) -> Result<Buffer, ExecutionError> {
        let len = shape.byte_size().and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
        let mut block = self.block(len)?;
        fill(block.bytes_mut());
        Ok(Buffer::new(shape, Arc::new(block)))
    }

    fn take_back(&self, memory: Memory) {
        let size = class_size(memory.class);
        let mut shelves = self.lock();
        shelves.statistics.bytes_in_use -= size;
        if shelves.kept_bytes + size > shelves.max_kept_bytes {
            drop(shelves);
            drop(memory);
            return;
        }
        shelves.kept_bytes += size;
        if shelves.free.len() <= memory.class {
            shelves.free.resize_with(memory.class + 1, Vec::new);
        }
        shelves.free[memory.class].push(memory);
    }

    /// What has been done so far.
    pub fn statistics(&self) -> MemoryStatistics {
        self.lock().statistics
    }
}

/// Zeroed memory from the system.
fn fresh(class: usize) -> Result<Memory, ExecutionError> {
    let size = class_size(class);
    // The system promises more memory than it has and ends the process that takes it at its word, so ask first.
    if size >= LARGE && hloom_value::memory::available().is_some_and(|available| size as u64 > available) {
        return Err(ExecutionError::out_of_memory(size));
    }
    let start = if in_large_pages(size) {
        zeroed_in_large_pages(layout(class))
    } else {
        // SAFETY: no class is of size zero.
        unsafe { alloc_zeroed(layout(class)) }
    };
    NonNull::new(start).map(|start| Memory { start, class }).ok_or_else(|| ExecutionError::out_of_memory(size))
}

/// Asks for large pages before the memory is touched for the first time: after that it is too late.
fn zeroed_in_large_pages(layout: Layout) -> *mut u8 {
    // SAFETY: the layout is not of size zero. What is advised is the memory's own whole pages, and advice that the system
    // does not take changes nothing. The memory is of the layout's size.
    unsafe {
        let start = alloc(layout);
        if !start.is_null() {
            #[cfg(all(target_os = "linux", not(miri)))]
            libc::madvise(start.cast(), layout.size() / LARGE_PAGE * LARGE_PAGE, libc::MADV_HUGEPAGE);
            start.write_bytes(0, layout.size());
        }
        start
    }
}

/// A piece of memory, given back to its allocator when dropped.
#[derive(Debug)]
pub struct Block {
    /// Present until the block is dropped.
    memory: Option<Memory>,
    len: usize,
    allocator: Allocator,
}

impl Block {
    /// Where it begins. Writing through it is for who holds the only handle, or has been given a part of it to write.
    pub fn start(&self) -> *mut u8 {
        self.memory.as_ref().map_or(NonNull::dangling().as_ptr(), |m| m.start.as_ptr())
    }

    /// The number of bytes that were asked for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no bytes were asked for.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes. Nobody may write to the block while they are looked at.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is `len` bytes or more, initialised, and lives as long as the block. Writers hold the only
        // handle (`bytes_mut`), or are a run that has been given the block for itself.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }

    /// The bytes, to change.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the exclusive borrow keeps others away.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.allocator.take_back(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_are_for_and_waste_little() {
        let mut last = 0;
        for lines in 1..5000usize {
            let size = lines * ALIGNMENT - lines % ALIGNMENT;
            let class = class_of(size);
            let held = class_size(class);
            assert!(held >= size, "{size} bytes in class {class} of {held}");
            assert!(lines <= 4 || held * 4 <= size * 5 + 4 * ALIGNMENT, "{size} bytes in class {class} of {held}");
            assert!(class >= last, "classes grow with sizes");
            assert_eq!(class_of(held), class, "a class's own size is in it");
            last = class;
        }
    }

    #[test]
    fn what_is_given_back_is_used_again() {
        let allocator = Allocator::new(1 << 20);
        let first = allocator.block(1000).unwrap();
        let address = first.start();
        assert_eq!(address as usize % ALIGNMENT, 0);
        drop(first);
        let second = allocator.block(980).unwrap();
        assert_eq!(second.start(), address);
        let third = allocator.block(980).unwrap();
        assert_ne!(third.start(), address);
        let s = allocator.statistics();
        assert_eq!((s.requests, s.reused), (3, 1));
        drop((second, third));
        assert_eq!(allocator.statistics().bytes_in_use, 0);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let allocator = Allocator::new(4096);
        let blocks: Vec<Block> = (0..8).map(|_| allocator.block(1024).unwrap()).collect();
        drop(blocks);
        assert_eq!(allocator.lock().kept_bytes, 4096);
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(Allocator::new(0).block(usize::MAX).is_err());
        assert!(Allocator::new(0).block(1 << 60).is_err());
    }
}
