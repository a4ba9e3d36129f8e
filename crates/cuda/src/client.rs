//! A client: virtual devices on one GPU.

use crate::backend::CudaBackend;
use crate::executable::CudaExecutable;
use crate::gpu::Gpu;
use crate::memory::Block;
use crate::prewarm::Prewarm;
use hloom_compiler::{Backend, CompileError, CompiledModule};
use hloom_ir::shape::ArrayShape;
use hloom_runtime::memory::MemoryStatistics;
use hloom_runtime::{Buffer, Client, DeviceDescription, LoadedExecutable};
use hloom_value::ExecutionError;
use std::sync::Arc;

/// Virtual devices on one GPU. Clones are the same client.
#[derive(Clone, Debug)]
pub struct CudaClient {
    backend: Arc<CudaBackend>,
    gpu: Arc<Gpu>,
    prewarm: Arc<Prewarm>,
}

impl CudaClient {
    /// A client of the machine's first GPU.
    pub fn new() -> Result<CudaClient, CompileError> {
        let failed = |error: ExecutionError| CompileError::of_source("device", vec![error.into_diagnostic()]);
        let gpu = Arc::new(Gpu::open().map_err(failed)?);
        let backend = CudaBackend::named(target_of(&gpu.description.name, gpu.description.capability))?;
        let prewarm = Arc::new(Prewarm::begin(&gpu, backend.architecture()));
        Ok(CudaClient { backend: Arc::new(backend), gpu, prewarm })
    }

    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
}

/// The description of a GPU, by what the driver calls it.
fn target_of(name: &str, capability: u32) -> &'static str {
    match capability {
        ..90 => "gpu-a100",
        _ if name.contains("H100") => "gpu-h100",
        _ => "gpu-h200",
    }
}

impl Client for CudaClient {
    fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    fn device(&self, id: usize) -> DeviceDescription {
        DeviceDescription { id, kind: self.gpu.description.name.clone() }
    }

    fn allocate(&self, _: usize, shape: ArrayShape, fill: &mut dyn FnMut(&mut [u8])) -> Result<Buffer, ExecutionError> {
        let len = shape.byte_size().and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
        let block = Block::new(&self.gpu, len)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| ExecutionError::out_of_memory(len))?;
        bytes.resize(len, 0);
        fill(&mut bytes);
        {
            let _enqueue = self.gpu.lock()?;
            self.gpu.upload(block.address(), &bytes)?;
        }
        Ok(Buffer::new(shape, Arc::new(block)))
    }

    fn load(&self, compiled: Arc<CompiledModule>) -> Result<Arc<dyn LoadedExecutable>, ExecutionError> {
        Ok(Arc::new(CudaExecutable::new(self.clone(), compiled)?))
    }

    fn wait_until_ready(&self) {
        self.prewarm.wait();
    }

    fn memory_statistics(&self, _: usize) -> MemoryStatistics {
        self.gpu.pool.statistics()
    }

    fn duplicate(&self, _: usize, buffer: &Buffer) -> Result<Buffer, ExecutionError> {
        let (Some(from), Some(shape)) = (buffer.memory_as::<Block>(), buffer.shape().as_array()) else {
            return Ok(buffer.clone());
        };
        let bytes = buffer.byte_size();
        let block = Block::new(&self.gpu, bytes)?;
        let _enqueue = self.gpu.lock()?;
        self.gpu.copy(block.address(), from.address(), bytes)?;
        self.gpu.synchronize()?;
        Ok(Buffer::new(shape.clone(), Arc::new(block)))
    }
}
