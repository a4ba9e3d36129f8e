//! Programs over several GPUs of this process: each device has a GPU, a thread and an executable of its own.

use crate::exchange::TIME_LIMIT;
use crate::executable::CudaExecutable;
use crate::gpu::Gpu;
use crate::memory::Block;
use hloom_comm::{Communicator, InProcess};
use hloom_compiler::CompiledModule;
use hloom_eval::run::{all_or_fault, joined};
use hloom_ir::diagnostic::{Blame, codes};
use hloom_runtime::{Buffer, DeviceMemory, ExecuteOptions, LoadedExecutable, check_arguments};
use hloom_value::ExecutionError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A program with an executable on each GPU.
#[derive(Debug)]
pub(crate) struct SpreadExecutable {
    pub(crate) compiled: Arc<CompiledModule>,
    pub(crate) parts: Vec<CudaExecutable>,
}

impl LoadedExecutable for SpreadExecutable {
    fn compiled(&self) -> &CompiledModule {
        &self.compiled
    }

    fn execute(
        &self,
        arguments: Vec<Vec<Buffer>>,
        options: &ExecuteOptions<'_>,
    ) -> Result<Vec<Vec<Buffer>>, ExecutionError> {
        let devices = options.local_devices(&self.compiled);
        check_arguments(&self.compiled, &arguments, &devices)?;
        if devices.len() > self.parts.len() {
            let message = format!("{} devices cannot run on {} GPUs", devices.len(), self.parts.len());
            return Err(ExecutionError::new(&codes::eval::UNSUPPORTED, message).blame(Blame::Machine));
        }
        let arguments = arguments.into_iter().zip(&self.parts).map(|(buffers, part)| brought(buffers, part.gpu()));
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        let in_process = || {
            let time_limit = options.time_limit.unwrap_or(TIME_LIMIT);
            Arc::new(InProcess::new(self.compiled.grid.devices(), time_limit)) as Arc<dyn Communicator>
        };
        let communicator = options.communicator.clone().unwrap_or_else(in_process);
        let failed = AtomicBool::new(false);
        let results: Vec<Result<Vec<Vec<Buffer>>, ExecutionError>> = std::thread::scope(|scope| {
            let mut threads = Vec::with_capacity(devices.len());
            for ((&device, arguments), part) in devices.iter().zip(arguments).zip(&self.parts) {
                let (communicator, failed) = (&communicator, &failed);
                let run = move || {
                    let of_device = [device];
                    let options = ExecuteOptions {
                        max_steps: options.max_steps,
                        cancel: options.cancel,
                        time_limit: options.time_limit,
                        threads: options.threads,
                        progress: options.progress.filter(|_| device == 0),
                        custom_calls: options.custom_calls,
                        trace: options.trace,
                        devices: Some(&of_device),
                        communicator: Some(communicator.clone()),
                    };
                    let result = part.run(vec![arguments], &options, Some(failed));
                    failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    result
                };
                let thread = std::thread::Builder::new().name(format!("device {device}")).spawn_scoped(scope, run);
                if thread.is_err() {
                    failed.store(true, Ordering::Relaxed);
                    communicator.cancel(device, "no thread could be made for it");
                }
                threads.push(thread);
            }
            threads.into_iter().map(joined).collect()
        });
        Ok(all_or_fault(results)?.into_iter().flatten().collect())
    }
}

/// The same arguments, with those on a GPU that are on another: one that all devices have in common was brought to one.
fn brought(arguments: Vec<Buffer>, gpu: &Arc<Gpu>) -> Result<Vec<Buffer>, ExecutionError> {
    let one = |buffer: Buffer| {
        let elsewhere = buffer.memory_as::<Block>().filter(|block| !Arc::ptr_eq(block.gpu(), gpu));
        let Some(block) = elsewhere else { return Ok(buffer) };
        let len = DeviceMemory::len(&*block);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| ExecutionError::out_of_memory(len))?;
        bytes.resize(len, 0);
        block.read(&mut bytes)?;
        let copy = Block::new(gpu, len)?;
        let _enqueue = gpu.lock()?;
        gpu.upload(copy.address(), &bytes)?;
        Ok(Buffer::new(buffer.shape().clone(), Arc::new(copy)))
    };
    arguments.into_iter().map(one).collect()
}
