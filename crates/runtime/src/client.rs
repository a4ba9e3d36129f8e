//! Clients: who owns devices, their memory and their compiler.

use crate::buffer::Buffer;
use crate::executable::LoadedExecutable;
use crate::memory::MemoryStatistics;
use hloom_compiler::{Backend, CompileError, CompileOptions, CompiledModule, compile};
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_ir::verify::VerifiedModule;
use hloom_value::{Array, ExecutionError, Value};
use std::sync::Arc;

/// What is told of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceDescription {
    /// Its number.
    pub id: usize,
    /// What kind of machine it is: `cpu`, `NVIDIA H200`.
    pub kind: String,
}

/// Devices of one kind in this process.
pub trait Client: std::fmt::Debug + Send + Sync {
    /// The compiler for its devices.
    fn backend(&self) -> &dyn Backend;

    /// The device of that number.
    fn device(&self, id: usize) -> DeviceDescription;

    /// An array of `shape` in the memory of a device, in the layout that the shape has, whose bytes `fill` writes.
    fn allocate(
        &self,
        device: usize,
        shape: ArrayShape,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Buffer, ExecutionError>;

    /// Waits until what the client began to load in the background is there.
    fn wait_until_ready(&self) {}

    /// What its user should know of the devices, a line each.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Makes a compiled module ready to run.
    fn load(&self, compiled: Arc<CompiledModule>) -> Result<Arc<dyn LoadedExecutable>, ExecutionError>;

    /// What the allocator of a device has done so far.
    fn memory_statistics(&self, device: usize) -> MemoryStatistics;

    /// Compiles a module and makes it ready to run.
    fn compile(
        &self,
        module: &VerifiedModule,
        options: &CompileOptions,
    ) -> Result<Arc<dyn LoadedExecutable>, CompileError> {
        let compiled = compile(self.backend(), module, options)?;
        Ok(self.load(Arc::new(compiled))?)
    }

    /// A copy of `array` on a device, row-major.
    fn upload(&self, device: usize, array: &Array) -> Result<Buffer, ExecutionError> {
        self.allocate(device, array.shape(), &mut |bytes| bytes.copy_from_slice(array.bytes()))
    }

    /// A leaf of a value on a device, in the order of dimensions of `shape`; one that is no array has no memory.
    fn upload_leaf(&self, device: usize, leaf: &Value, shape: &Shape) -> Result<Buffer, ExecutionError> {
        match leaf {
            Value::Array(array) => {
                let layout = shape.as_array_or_buffer().map(ArrayShape::entry_layout);
                let Some(layout) = layout.filter(|l| !l.is_descending() && l.is_permutation(array.rank())) else {
                    return self.upload(device, array);
                };
                let memory = array.to_memory(&layout)?;
                let shape = array.shape().with_layout(layout);
                self.allocate(device, shape, &mut |bytes| bytes.copy_from_slice(memory.bytes()))
            }
            Value::Token => Ok(Buffer::token()),
            Value::Opaque => Ok(Buffer::opaque()),
            Value::Tuple(_) => Err(ExecutionError::bug("a tuple is not a leaf")),
        }
    }

    /// A copy of a buffer with memory of its own.
    fn duplicate(&self, device: usize, buffer: &Buffer) -> Result<Buffer, ExecutionError> {
        let Some(shape) = buffer.shape().as_array() else { return Ok(buffer.clone()) };
        let mut failed = Ok(());
        let copy = self.allocate(device, shape.clone(), &mut |to| failed = buffer.read(to))?;
        failed.map(|()| copy)
    }
}
