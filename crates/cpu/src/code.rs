//! The code of a compiled module: its thunks and kernels, not yet in memory.

use crate::thunk::ThunkProgram;
use hloom_compiler::{Code, Emit};
use hloom_cost::CoreCost;
use hloom_ir::verify::VerifiedModule;
use hloom_loops::Simd;
use hloom_loops::kernel::lower_requests;
use hloom_plan::saved::SavedPlan;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// What the CPU backend makes of a scheduled module.
#[derive(Debug)]
pub struct CpuCode {
    pub(crate) program: ThunkProgram,
    /// The threads that its memory is planned for.
    pub(crate) threads: usize,
    /// What one core takes of the machine that it is for.
    pub(crate) core: CoreCost,
    /// Where values lie.
    pub(crate) memory: Option<SavedPlan>,
}

/// What a file says before the kernels.
#[derive(Serialize, Deserialize)]
pub(crate) struct CodeHeader {
    pub(crate) threads: u64,
    pub(crate) memory: Option<SavedPlan>,
}

impl Code for CpuCode {
    fn emit(&self, module: &VerifiedModule, form: Emit) -> Option<String> {
        match form {
            Emit::Thunks => Some(self.program.display(module.module())),
            Emit::Loops => Some(self.loops(module)),
            Emit::Llvm => self.llvm(module, false),
            Emit::Asm => self.llvm(module, true),
            _ => None,
        }
    }

    /// The kernels, and where values lie; thunks are worked out again from the module when it is loaded, which needs no
    /// compiler.
    fn serialize(&self) -> Option<Vec<u8>> {
        let header = CodeHeader { threads: self.threads as u64, memory: self.memory.clone() };
        let mut bytes = postcard::to_stdvec(&header).ok()?;
        bytes.extend(self.program.kernels.record.serialize()?);
        Some(bytes)
    }
}

impl CpuCode {
    /// The loops of each kernel, and the instructions that it is for.
    fn loops(&self, module: &VerifiedModule) -> String {
        let (module, requests) = (module.module(), &self.program.kernels.requests);
        let (kernels, of_request) = lower_requests(module, requests, &simd(), &self.core);
        let mut text = String::new();
        for (n, kernel) in kernels.iter().enumerate() {
            let served = requests.iter().zip(&of_request).filter(|&(_, &k)| k == n);
            let names: Vec<&str> = served.map(|(r, _)| module[r.instruction].name()).collect();
            let _ = match kernel {
                Ok(loops) => writeln!(text, "// {}\n{loops}", names.join(", ")),
                Err(why) => writeln!(text, "// {}\nno kernel: {why}\n", names.join(", ")),
            };
        }
        text
    }

    #[cfg(feature = "llvm")]
    fn llvm(&self, module: &VerifiedModule, assembly: bool) -> Option<String> {
        let requests = &self.program.kernels.requests;
        let machine = hloom_llvm::Machine { core: self.core, ..hloom_llvm::Machine::host().clone() };
        let options = hloom_llvm::Options { machine, ..hloom_llvm::Options::default() };
        let text = match assembly {
            true => hloom_llvm::assembly(module.module(), requests, &options).map_err(|e| e.to_string()),
            false => hloom_llvm::llvm_ir(module.module(), requests, &options).map_err(|e| e.to_string()),
        };
        Some(text.unwrap_or_else(|why| format!("; {why}\n")))
    }

    #[cfg(not(feature = "llvm"))]
    fn llvm(&self, _: &VerifiedModule, _: bool) -> Option<String> {
        None
    }
}

/// The vectors of the machine that kernels are made for.
fn simd() -> Simd {
    #[cfg(feature = "llvm")]
    return hloom_llvm::Machine::host().simd;
    #[cfg(not(feature = "llvm"))]
    Simd { vector_bits: 128, has_masks: false }
}
