//! A client: virtual devices, the threads they share, and the memory they take.

use crate::backend::CpuBackend;
use crate::executable::CpuExecutable;
use hloom_compiler::{Backend, CompileError, CompiledModule};
use hloom_ir::shape::ArrayShape;
use hloom_runtime::memory::{Allocator, MemoryStatistics};
use hloom_runtime::pool::Pool;
use hloom_runtime::{Buffer, Client, DeviceDescription, LoadedExecutable};
use hloom_value::ExecutionError;
use std::sync::Arc;

/// How a client is to be.
#[derive(Clone, Copy, Debug)]
pub struct CpuClientOptions {
    /// Threads that may compute at once; as many as the process has processors when absent.
    pub threads: Option<usize>,
    /// Bytes of memory that are kept for later when nothing uses them.
    pub max_kept_bytes: usize,
}

impl Default for CpuClientOptions {
    fn default() -> Self {
        CpuClientOptions { threads: None, max_kept_bytes: 4 << 30 }
    }
}

/// Virtual devices in this process. Clones are the same client.
#[derive(Clone, Debug)]
pub struct CpuClient {
    backend: Arc<CpuBackend>,
    pool: Arc<Pool>,
    allocator: Allocator,
}

impl CpuClient {
    /// A client.
    pub fn new(options: &CpuClientOptions) -> Result<CpuClient, CompileError> {
        let threads = options.threads.unwrap_or_else(Pool::available_threads);
        Ok(CpuClient {
            backend: Arc::new(CpuBackend::new(threads)?),
            pool: Arc::new(Pool::new(threads)),
            allocator: Allocator::new(options.max_kept_bytes),
        })
    }

    /// The threads.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The memory.
    pub fn allocator(&self) -> &Allocator {
        &self.allocator
    }
}

impl Client for CpuClient {
    fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    fn device(&self, id: usize) -> DeviceDescription {
        DeviceDescription { id, kind: "cpu".into() }
    }

    fn allocate(&self, _: usize, shape: ArrayShape, fill: &mut dyn FnMut(&mut [u8])) -> Result<Buffer, ExecutionError> {
        self.allocator.buffer(shape, fill)
    }

    fn load(&self, compiled: Arc<CompiledModule>) -> Result<Arc<dyn LoadedExecutable>, ExecutionError> {
        Ok(Arc::new(CpuExecutable::new(self.clone(), compiled)?))
    }

    fn memory_statistics(&self, _: usize) -> MemoryStatistics {
        self.allocator.statistics()
    }
}
