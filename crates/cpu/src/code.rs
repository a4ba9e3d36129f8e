//! The code of a compiled module: its thunks and kernels, not yet in memory.

use crate::thunk::ThunkProgram;
use hloom_compiler::{Code, Emit};
use hloom_ir::verify::VerifiedModule;

/// What the CPU backend makes of a scheduled module.
#[derive(Debug)]
pub struct CpuCode {
    pub(crate) program: ThunkProgram,
}

impl Code for CpuCode {
    fn emit(&self, _: &VerifiedModule, _: Emit) -> Option<String> {
        None
    }

    fn serialize(&self) -> Option<Vec<u8>> {
        None
    }
}
