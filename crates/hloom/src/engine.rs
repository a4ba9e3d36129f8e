//! The engines by name: which backend compiles for a target, and which client runs what it makes.

use hloom_compiler::{Backend, CompileError};
use hloom_cpu::{CpuBackend, CpuClient, CpuClientOptions};
use hloom_cuda::{CudaBackend, CudaClient, CudaClientOptions};
use hloom_eval_backend::EvalClient;
use hloom_ir::diagnostic::codes::passes::NO_LIST;
use hloom_ir::diagnostic::{Blame, Diagnostic};
use hloom_passes::Registry;
use hloom_runtime::Client;
use hloom_runtime::pool::Pool;
use hloom_target::Target;
use std::sync::{Arc, LazyLock};

/// What runs a program.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Engine {
    /// Compiled for this machine.
    #[default]
    Cpu,
    /// Compiled for an NVIDIA GPU of this machine.
    Cuda,
    /// The reference evaluator.
    Eval,
}

impl Engine {
    /// All engines.
    pub const ALL: [Engine; 3] = [Engine::Cpu, Engine::Cuda, Engine::Eval];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Cpu => "cpu",
            Engine::Cuda => "cuda",
            Engine::Eval => "eval",
        }
    }

    /// A client of the engine; `threads` is how many may compute at once, as many as there are processors when absent.
    pub fn client(self, threads: Option<usize>) -> Result<Arc<dyn Client>, CompileError> {
        self.client_for(threads, 1)
    }

    /// The same for programs that have so many devices in this process: on several GPUs each has one, if there are as many.
    pub fn client_for(self, threads: Option<usize>, devices: usize) -> Result<Arc<dyn Client>, CompileError> {
        let process = hloom_comm::local_rank().unwrap_or(0);
        Ok(match self {
            Engine::Cpu => Arc::new(CpuClient::new(&CpuClientOptions { threads, ..CpuClientOptions::default() })?),
            Engine::Cuda => Arc::new(CudaClient::with(CudaClientOptions { devices, process })?),
            Engine::Eval => Arc::new(EvalClient::new()?),
        })
    }
}

/// The backend that compiles for a machine.
pub fn backend_for(target: &Target) -> Result<Box<dyn Backend>, Diagnostic> {
    let first = |error: CompileError| {
        let unknown = || Diagnostic::error(&NO_LIST, "the backend cannot be made").blame(Blame::Hloom);
        error.diagnostics.into_iter().next().unwrap_or_else(unknown)
    };
    match target.name.as_str() {
        "cpu" => Ok(Box::new(CpuBackend::new(Pool::available_threads()).map_err(first)?)),
        _ if target.gpu_architecture.is_some() => Ok(Box::new(CudaBackend::new(target.clone()).map_err(first)?)),
        name => Err(Diagnostic::error(&NO_LIST, format!("there is no backend for the target `{name}`"))
            .blame(Blame::Data)
            .note("there is one for cpu, and one for GPUs whose descriptions say what code is made for (gpu_architecture)")
            .help("name the passes with --passes")),
    }
}

/// All passes by name.
pub fn registry() -> &'static Registry {
    static ALL: LazyLock<Registry> =
        LazyLock::new(|| hloom_compiler::registry().with(hloom_tpu::STAGES).with(hloom_cuda::PASSES));
    &ALL
}
