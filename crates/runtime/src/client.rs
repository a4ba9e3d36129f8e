//! A client: virtual devices, the threads they share, and the memory they take.

use crate::buffer::Buffer;
use crate::executable::{CompileOptions, Effort, Executable};
use crate::memory::Allocator;
use crate::pool::Pool;
use crate::warm::Warming;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::verify::VerifiedModule;
use hloom_value::{Array, ExecutionError};
use std::sync::Arc;

/// How a client is to be.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// Threads that may compute at once; as many as the process has processors when absent.
    pub threads: Option<usize>,
    /// Bytes of memory that are kept for later when nothing uses them.
    pub max_kept_bytes: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions { threads: None, max_kept_bytes: 4 << 30 }
    }
}

/// Virtual devices in this process. Clones are the same client.
#[derive(Clone, Debug)]
pub struct Client {
    pool: Arc<Pool>,
    allocator: Allocator,
    /// The compiler is made ready meanwhile.
    _warming: Arc<Warming>,
}

impl Client {
    /// A client.
    pub fn new(options: &ClientOptions) -> Client {
        let threads = options.threads.unwrap_or_else(Pool::available_threads);
        Client {
            _warming: Arc::new(Warming::begin(Effort::Full)),
            pool: Arc::new(Pool::new(threads)),
            allocator: Allocator::new(options.max_kept_bytes),
        }
    }

    /// The threads.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The memory.
    pub fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// A copy of `array` on the devices.
    pub fn buffer(&self, array: &Array) -> Result<Buffer, ExecutionError> {
        Buffer::from_array(&self.allocator, array)
    }

    /// Compiles a module for the devices of `options.grid`.
    pub fn compile(&self, module: &VerifiedModule, options: &CompileOptions) -> Result<Executable, Vec<Diagnostic>> {
        Executable::new(self.clone(), module, options)
    }
}
