//! A client: virtual devices on one GPU.

use crate::backend::{CudaBackend, architecture};
use crate::executable::CudaExecutable;
use crate::gpu::{Description, Gpu};
use crate::memory::Block;
use crate::prewarm::Prewarm;
use hloom_compiler::{Backend, CompileError, CompiledModule};
use hloom_cuda_kernels::Architecture;
use hloom_ir::diagnostic::{Blame, Diagnostic, codes};
use hloom_ir::shape::ArrayShape;
use hloom_runtime::memory::MemoryStatistics;
use hloom_runtime::{Buffer, Client, DeviceDescription, LoadedExecutable};
use hloom_target::Target;
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
        let target = target_of(&gpu.description).map_err(|d| CompileError::of_source("device", vec![d]))?;
        let backend = CudaBackend::new(target)?.with_assembler(gpu.assembler.clone());
        let prewarm = Arc::new(Prewarm::begin(&gpu, backend.architecture()));
        Ok(CudaClient { backend: Arc::new(backend), gpu, prewarm })
    }

    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
}

/// The description of a GPU: of those whose code it runs, the one of the latest architecture whose memory is most like its
/// own. Code for another generation would not load, or not be what this one computes fastest with, so that none is made.
fn target_of(device: &Description) -> Result<Target, Diagnostic> {
    let mut known = Vec::new();
    let mut best: Option<(Architecture, u64, Target)> = None;
    for target in Target::names().filter_map(|name| Target::named(name).ok()) {
        if target.gpu_architecture.is_none() {
            continue;
        }
        let architecture = architecture(&target)?;
        known.push(format!("{} ({architecture})", target.name));
        if !architecture.runs_on(device.capability) {
            continue;
        }
        let memory = target.space(0).and_then(|s| s.bytes).map_or(0, i64::unsigned_abs);
        let off = memory.abs_diff(device.memory_bytes as u64);
        if best.as_ref().is_none_or(|(a, o, _)| architecture > *a || architecture == *a && off < *o) {
            best = Some((architecture, off, target));
        }
    }
    best.map(|(_, _, target)| target).ok_or_else(|| {
        let (name, capability) = (&device.name, device.capability);
        let message = format!(
            "{name} has compute capability {}.{}, which there are no kernels for",
            capability / 10,
            capability % 10
        );
        Diagnostic::error(&codes::eval::DEVICE_FAILED, message)
            .blame(Blame::Machine)
            .note(format!("there are kernels for {}", known.join(", ")))
    })
}

/// What to say of GPUs that are not used.
fn note_on_others(device: &Description) -> Option<String> {
    let Description { name, count, .. } = device;
    (*count > 1).then(|| {
        format!("the machine has {count} GPUs, and the first of them is used, {name}; CUDA_VISIBLE_DEVICES says which is first")
    })
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

    fn notes(&self) -> Vec<String> {
        note_on_others(&self.gpu.description).into_iter().collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, capability: u32, memory_bytes: usize) -> Description {
        Description { name: name.to_owned(), capability, memory_bytes, driver_version: 13000, count: 1 }
    }

    fn target(name: &str, capability: u32, memory_bytes: usize) -> Result<String, String> {
        target_of(&device(name, capability, memory_bytes)).map(|t| t.name).map_err(|d| d.message)
    }

    #[test]
    fn a_device_gets_the_description_of_its_generation_and_size() {
        assert_eq!(target("NVIDIA H200", 90, 150_000_000_000).as_deref(), Ok("gpu-h200"));
        assert_eq!(target("NVIDIA H100 PCIe", 90, 85_000_000_000).as_deref(), Ok("gpu-h100"));
        assert_eq!(target("NVIDIA L4", 89, 24_000_000_000).as_deref(), Ok("gpu-a100"));
    }

    #[test]
    fn gpus_that_are_not_used_are_named() {
        let one = device("NVIDIA H200", 90, 150_000_000_000);
        assert_eq!(note_on_others(&one), None);
        let said = note_on_others(&Description { count: 8, ..one }).unwrap();
        assert!(said.contains("8 GPUs") && said.contains("NVIDIA H200"), "{said}");
    }

    #[test]
    fn a_device_of_another_generation_is_refused() {
        let refused = target("NVIDIA B200", 100, 190_000_000_000).unwrap_err();
        assert_eq!(refused, "NVIDIA B200 has compute capability 10.0, which there are no kernels for");
    }
}
