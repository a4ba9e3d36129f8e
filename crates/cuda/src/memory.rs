//! Memory of a GPU: blocks from a pool that keeps what is given back.
//!
//! Sizes are rounded up to classes, so that blocks of nearly equal sizes are taken for each other. When the driver has no
//! more, what is kept is given back to it before that is an error.

use crate::driver::{DevicePointer, Driver, OUT_OF_MEMORY};
use crate::gpu::Gpu;
use hloom_runtime::DeviceMemory;
use hloom_runtime::memory::MemoryStatistics;
use hloom_value::ExecutionError;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Blocks begin at multiples of this.
const ALIGNMENT: usize = 256;
/// From this size on blocks are whole numbers of it: what the driver hands out.
const LARGE: usize = 2 << 20;

/// What is kept for the next to ask.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Shelves>);

#[derive(Debug, Default)]
struct Shelves {
    /// Free blocks by their size.
    free: FxHashMap<usize, Vec<DevicePointer>>,
    kept_bytes: usize,
    statistics: MemoryStatistics,
}

/// The size of the block for so many bytes: four steps to each power of two, then whole large ones.
fn block_size(bytes: usize) -> usize {
    let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
    if bytes >= LARGE {
        return bytes.next_multiple_of(LARGE);
    }
    let step = (bytes.next_power_of_two() / 8).max(ALIGNMENT);
    bytes.next_multiple_of(step)
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Shelves> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory from the driver that is never given back.
    pub(crate) fn fresh(&self, driver: &Driver, bytes: usize) -> Result<DevicePointer, ExecutionError> {
        let mut address = 0;
        // SAFETY: the out parameter is valid.
        let mut status = unsafe { (driver.allocate)(&mut address, bytes) };
        if status == OUT_OF_MEMORY && self.release(driver) {
            // SAFETY: as above.
            status = unsafe { (driver.allocate)(&mut address, bytes) };
        }
        if status == OUT_OF_MEMORY {
            let (mut free, mut total) = (0, 0);
            // SAFETY: the out parameters are valid.
            unsafe { (driver.memory_info)(&mut free, &mut total) };
            let in_use = self.lock().statistics.bytes_in_use;
            let note = format!("the GPU has {total} bytes, of which {free} are free; this process uses {in_use}");
            return Err(ExecutionError::out_of_memory(bytes).note(note));
        }
        driver.check(status, "cuMemAlloc").map(|()| address)
    }

    /// Gives all that is kept back to the driver; says whether there was any.
    fn release(&self, driver: &Driver) -> bool {
        let free = {
            let mut shelves = self.lock();
            shelves.kept_bytes = 0;
            std::mem::take(&mut shelves.free)
        };
        let mut any = false;
        for address in free.into_values().flatten() {
            any = true;
            // SAFETY: the block is nobody's. The driver waits for work that still uses it.
            unsafe { (driver.free)(address) };
        }
        any
    }

    /// What has been done so far.
    pub(crate) fn statistics(&self) -> MemoryStatistics {
        self.lock().statistics
    }
}

/// A piece of a GPU's memory, given back to its pool when dropped.
#[derive(Debug)]
pub(crate) struct Block {
    address: DevicePointer,
    len: usize,
    gpu: Arc<Gpu>,
}

impl Block {
    /// A block of at least `len` bytes; what they are is not said.
    pub(crate) fn new(gpu: &Arc<Gpu>, len: usize) -> Result<Block, ExecutionError> {
        if len > isize::MAX as usize / 2 {
            return Err(ExecutionError::out_of_memory(len));
        }
        let size = block_size(len);
        let count = |shelves: &mut Shelves, reused: bool| {
            let s = &mut shelves.statistics;
            s.requests += 1;
            s.reused += u64::from(reused);
            s.bytes_in_use += size;
            s.peak_bytes_in_use = s.peak_bytes_in_use.max(s.bytes_in_use);
        };
        let kept = {
            let mut shelves = gpu.pool.lock();
            let kept = shelves.free.get_mut(&size).and_then(Vec::pop);
            if kept.is_some() {
                shelves.kept_bytes -= size;
                count(&mut shelves, true);
            }
            kept
        };
        let address = match kept {
            Some(address) => address,
            None => {
                gpu.enter()?;
                let address = gpu.pool.fresh(&gpu.driver, size)?;
                count(&mut gpu.pool.lock(), false);
                address
            }
        };
        Ok(Block { address, len, gpu: gpu.clone() })
    }

    /// The GPU that it is on.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Where it begins.
    pub(crate) fn address(&self) -> DevicePointer {
        self.address
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let size = block_size(self.len);
        let mut shelves = self.gpu.pool.lock();
        shelves.statistics.bytes_in_use = shelves.statistics.bytes_in_use.saturating_sub(size);
        shelves.kept_bytes += size;
        shelves.free.entry(size).or_default().push(self.address);
    }
}

impl DeviceMemory for Block {
    fn len(&self) -> usize {
        self.len
    }

    fn host_bytes(&self) -> Option<&[u8]> {
        None
    }

    fn address(&self) -> usize {
        self.address as usize
    }

    fn read(&self, to: &mut [u8]) -> Result<(), ExecutionError> {
        if to.len() > self.len {
            return Err(ExecutionError::bug("a buffer is too short"));
        }
        let _enqueue = self.gpu.lock()?;
        self.gpu.download(to, self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_what_they_are_for_and_waste_little() {
        for bytes in [0, 1, 255, 256, 257, 5000, 70_000, 1 << 20, (1 << 20) + 1, 3 << 20, (1 << 30) + 5] {
            let size = block_size(bytes);
            assert!(size >= bytes && size.is_multiple_of(ALIGNMENT), "{bytes} bytes in {size}");
            assert!(
                size <= bytes + bytes / 3 + ALIGNMENT + if bytes >= LARGE { LARGE } else { 0 },
                "{bytes} in {size}"
            );
            assert_eq!(block_size(size), size, "a block's own size is its class");
        }
    }
}
