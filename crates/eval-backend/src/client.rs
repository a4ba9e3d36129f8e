//! A client whose devices are interpreted.

use crate::backend::{EvalBackend, EvalCode};
use hloom_compiler::{Backend, CompileError, CompiledModule};
use hloom_eval::Options;
use hloom_eval::run::run_prepared;
use hloom_ir::layout::Layout;
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_runtime::memory::{Allocator, MemoryStatistics};
use hloom_runtime::{Buffer, Client, DeviceDescription, ExecuteOptions, LoadedExecutable, assemble, check_arguments};
use hloom_value::{ExecutionError, Value};
use std::sync::Arc;

/// Bytes of memory that are kept for later when nothing uses them.
const MAX_KEPT_BYTES: usize = 1 << 30;

/// Interpreted devices in this process.
#[derive(Debug)]
pub struct EvalClient {
    backend: EvalBackend,
    allocator: Allocator,
}

impl EvalClient {
    /// A client.
    pub fn new() -> Result<EvalClient, CompileError> {
        Ok(EvalClient { backend: EvalBackend::new()?, allocator: Allocator::new(MAX_KEPT_BYTES) })
    }
}

impl Client for EvalClient {
    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn device(&self, id: usize) -> DeviceDescription {
        DeviceDescription { id, kind: "evaluator".into() }
    }

    fn allocate(&self, _: usize, shape: ArrayShape, fill: &mut dyn FnMut(&mut [u8])) -> Result<Buffer, ExecutionError> {
        self.allocator.buffer(shape, fill)
    }

    fn load(&self, compiled: Arc<CompiledModule>) -> Result<Arc<dyn LoadedExecutable>, ExecutionError> {
        Ok(Arc::new(EvalExecutable { compiled, allocator: self.allocator.clone() }))
    }

    fn memory_statistics(&self, _: usize) -> MemoryStatistics {
        self.allocator.statistics()
    }
}

/// A module and what is needed to interpret it.
#[derive(Debug)]
struct EvalExecutable {
    compiled: Arc<CompiledModule>,
    allocator: Allocator,
}

impl LoadedExecutable for EvalExecutable {
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
        let code =
            self.compiled.code::<EvalCode>().ok_or_else(|| ExecutionError::bug("the code is of another backend"))?;
        let module = self.compiled.module.module();
        let parameters = module.entry().map_or_else(Vec::new, |entry| module.parameters(entry));
        let shapes: Vec<&Shape> = parameters.iter().map(|&p| &module[p].shape).collect();
        let values = |leaves: Vec<Buffer>| {
            let mut leaves = leaves.into_iter();
            shapes.iter().map(|shape| assemble(shape, &mut leaves)).collect::<Result<Vec<Value>, ExecutionError>>()
        };
        let inputs = arguments.into_iter().map(values).collect::<Result<Vec<_>, _>>()?;
        let options = Options {
            max_steps: options.max_steps,
            fill_constants: self.compiled.fill_constants,
            custom_calls: options.custom_calls,
            cancel: options.cancel,
            time_limit: options.time_limit,
            progress: options.progress,
            communicator: options.communicator.clone(),
            devices: Some(&devices),
            ..Options::default()
        };
        let results = run_prepared(&self.compiled.module, &code.0, self.compiled.grid, inputs, &options)?;
        results.iter().map(|value| self.buffers(value)).collect()
    }
}

impl EvalExecutable {
    /// The leaves of a value.
    fn buffers(&self, value: &Value) -> Result<Vec<Buffer>, ExecutionError> {
        let leaf = |(leaf, shape): (&Value, &Shape)| match leaf {
            Value::Array(a) => {
                let layout =
                    shape.as_array_or_buffer().map_or_else(|| Layout::descending(a.rank()), |s| s.entry_layout());
                let memory = a.to_memory(&layout)?;
                let shape = a.shape().with_layout(layout);
                self.allocator.buffer(shape, &mut |bytes| bytes.copy_from_slice(memory.bytes()))
            }
            Value::Token => Ok(Buffer::token()),
            _ => Ok(Buffer::opaque()),
        };
        value.leaves().into_iter().zip(&self.compiled.results).map(leaf).collect()
    }
}
