//! A client: virtual devices on one GPU, or a GPU for each device.

use crate::backend::{CudaBackend, architecture};
use crate::cubin::Assembler;
use crate::driver::Driver;
use crate::executable::CudaExecutable;
use crate::gpu::{self, Description, Gpu};
use crate::memory::Block;
use crate::prewarm::Prewarm;
use crate::spread::SpreadExecutable;
use hloom_compiler::{Backend, CompileError, CompiledModule};
use hloom_cuda_kernels::Architecture;
use hloom_ir::diagnostic::{Blame, Diagnostic, codes};
use hloom_ir::shape::ArrayShape;
use hloom_runtime::memory::MemoryStatistics;
use hloom_runtime::{Buffer, Client, DeviceDescription, LoadedExecutable};
use hloom_target::Target;
use hloom_value::ExecutionError;
use std::sync::Arc;

/// Virtual devices on one GPU, or a GPU for each device. Clones are the same client.
#[derive(Clone, Debug)]
pub struct CudaClient {
    backend: Arc<CudaBackend>,
    /// One for all devices, or one for each.
    gpus: Vec<Arc<Gpu>>,
    prewarm: Arc<Prewarm>,
    notes: Vec<String>,
}

/// Which GPUs of the machine a client takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CudaClientOptions {
    /// How many devices of a program run in this process. There is a GPU for each if the machine has as many; else all
    /// are virtual ones on one.
    pub devices: usize,
    /// The number of this process among those of its job on this machine: each takes GPUs of its own, as far as there are.
    pub process: usize,
}

impl Default for CudaClientOptions {
    fn default() -> CudaClientOptions {
        CudaClientOptions { devices: 1, process: 0 }
    }
}

impl CudaClientOptions {
    /// The numbers of the GPUs, where so many are seen.
    fn gpus(self, available: usize) -> Vec<usize> {
        let (available, devices) = (available.max(1), self.devices.max(1));
        let count = if devices <= available { devices } else { 1 };
        (0..count).map(|n| (self.process % available * count + n) % available).collect()
    }
}

impl CudaClient {
    /// A client of the machine's first GPU.
    pub fn new() -> Result<CudaClient, CompileError> {
        CudaClient::with(CudaClientOptions::default())
    }

    /// A client of the GPUs that are asked for.
    pub fn with(options: CudaClientOptions) -> Result<CudaClient, CompileError> {
        let failed = |error: ExecutionError| CompileError::of_source("device", vec![error.into_diagnostic()]);
        let assembler: Arc<Assembler> = Arc::default();
        let mut gpus = open(options, &assembler).map_err(failed)?;
        // What is compiled is for one kind.
        if gpus.iter().any(|g| g.description.capability != gpus[0].description.capability) {
            gpus.truncate(1);
        }
        let notes = notes(&gpus.iter().map(|g| &g.description).collect::<Vec<_>>(), options.devices);
        let target = target_of(&gpus[0].description).map_err(|d| CompileError::of_source("device", vec![d]))?;
        let backend = CudaBackend::new(target)?.with_assembler(assembler);
        let prewarm = Arc::new(Prewarm::begin(&gpus[0], backend.architecture()));
        Ok(CudaClient { backend: Arc::new(backend), gpus, prewarm, notes })
    }

    /// The GPU of a device.
    fn gpu(&self, device: usize) -> &Arc<Gpu> {
        self.gpus.get(device).unwrap_or(&self.gpus[0])
    }
}

/// The GPUs that are asked for.
fn open(options: CudaClientOptions, assembler: &Arc<Assembler>) -> Result<Vec<Arc<Gpu>>, ExecutionError> {
    let driver = Driver::open()?;
    let available = gpu::count(&driver)?;
    let mut driver = Some(driver);
    let mut gpus = Vec::new();
    for index in options.gpus(available) {
        let driver = driver.take().map_or_else(Driver::open, Ok)?;
        gpus.push(Arc::new(Gpu::open(driver, index, assembler.clone())?));
    }
    Ok(gpus)
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

/// What to say of the GPUs that are used for so many devices, and of those that are not.
fn notes(used: &[&Description], devices: usize) -> Vec<String> {
    let numbers: Vec<String> = used.iter().map(|d| d.index.to_string()).collect();
    match used {
        [] => Vec::new(),
        [Description { count: 1, .. }] => Vec::new(),
        [Description { name, count, index, .. }] => {
            let which = if *index == 0 { "the first of them".to_owned() } else { format!("number {index} of them") };
            let devices = if devices > 1 { format!(" for all {devices} devices") } else { String::new() };
            vec![format!(
                "the machine has {count} GPUs, and {which} is used{devices}, {name}; CUDA_VISIBLE_DEVICES says which is first"
            )]
        }
        [..] => vec![format!("the {devices} devices are on GPUs {}, and meet by NCCL", numbers.join(", "))],
    }
}

impl Client for CudaClient {
    fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    fn device(&self, id: usize) -> DeviceDescription {
        DeviceDescription { id, kind: self.gpu(id).description.name.clone() }
    }

    fn allocate(
        &self,
        device: usize,
        shape: ArrayShape,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Buffer, ExecutionError> {
        let len = shape.byte_size().and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
        let gpu = self.gpu(device);
        let block = Block::new(gpu, len)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| ExecutionError::out_of_memory(len))?;
        bytes.resize(len, 0);
        fill(&mut bytes);
        {
            let _enqueue = gpu.lock()?;
            gpu.upload(block.address(), &bytes)?;
        }
        Ok(Buffer::new(shape, Arc::new(block)))
    }

    fn load(&self, compiled: Arc<CompiledModule>) -> Result<Arc<dyn LoadedExecutable>, ExecutionError> {
        // A program for one device is run on the first, as is one whose devices are all virtual.
        if compiled.grid.devices() == 1 || self.gpus.len() == 1 {
            return Ok(Arc::new(CudaExecutable::new(self.gpus[0].clone(), compiled)?));
        }
        let part = |gpu: &Arc<Gpu>| CudaExecutable::new(gpu.clone(), compiled.clone());
        let parts = self.gpus.iter().map(part).collect::<Result<_, _>>()?;
        Ok(Arc::new(SpreadExecutable { compiled, parts }))
    }

    fn wait_until_ready(&self) {
        self.prewarm.wait();
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn memory_statistics(&self, device: usize) -> MemoryStatistics {
        self.gpu(device).pool.statistics()
    }

    fn duplicate(&self, _: usize, buffer: &Buffer) -> Result<Buffer, ExecutionError> {
        let (Some(from), Some(shape)) = (buffer.memory_as::<Block>(), buffer.shape().as_array()) else {
            return Ok(buffer.clone());
        };
        let (gpu, bytes) = (from.gpu(), buffer.byte_size());
        let block = Block::new(gpu, bytes)?;
        let _enqueue = gpu.lock()?;
        gpu.copy(block.address(), from.address(), bytes)?;
        gpu.synchronize()?;
        Ok(Buffer::new(shape.clone(), Arc::new(block)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, capability: u32, memory_bytes: usize) -> Description {
        let (name, driver_version) = (name.to_owned(), 13000);
        Description { name, capability, memory_bytes, driver_version, count: 1, index: 0, uuid: [0; 16] }
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
        assert!(notes(&[&one], 4).is_empty());
        let first = Description { count: 8, ..one };
        let third = Description { index: 2, ..first.clone() };
        let rest = "NVIDIA H200; CUDA_VISIBLE_DEVICES says which is first";
        assert_eq!(notes(&[&first], 1), [format!("the machine has 8 GPUs, and the first of them is used, {rest}")]);
        assert_eq!(
            notes(&[&third], 16),
            [format!("the machine has 8 GPUs, and number 2 of them is used for all 16 devices, {rest}")]
        );
        assert_eq!(notes(&[&first, &third], 2), ["the 2 devices are on GPUs 0, 2, and meet by NCCL"]);
    }

    #[test]
    fn devices_have_a_gpu_each_if_there_are_enough() {
        let gpus = |devices, process, available| CudaClientOptions { devices, process }.gpus(available);
        assert_eq!(gpus(1, 0, 1), [0]);
        assert_eq!(gpus(4, 0, 1), [0], "virtual devices");
        assert_eq!(gpus(1, 0, 8), [0]);
        assert_eq!(gpus(4, 0, 8), [0, 1, 2, 3]);
        assert_eq!(gpus(9, 0, 8), [0], "virtual devices");
        // Processes of one machine.
        assert_eq!([gpus(1, 0, 4), gpus(1, 3, 4)], [[0], [3]]);
        assert_eq!(gpus(2, 1, 4), [2, 3]);
        assert_eq!(gpus(1, 5, 1), [0], "each sees its own");
        assert_eq!(gpus(2, 5, 2), [0, 1], "each sees its own");
    }

    #[test]
    fn a_device_of_another_generation_is_refused() {
        let refused = target("NVIDIA B200", 100, 190_000_000_000).unwrap_err();
        assert_eq!(refused, "NVIDIA B200 has compute capability 10.0, which there are no kernels for");
    }
}
