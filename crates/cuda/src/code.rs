//! The code of a compiled module: its thunks and kernels, not yet on a device.

use crate::kernels::Saved;
use crate::thunk::ThunkProgram;
use hloom_compiler::{Code, Emit};
use hloom_cuda_kernels::Architecture;
use hloom_ir::verify::VerifiedModule;
use rustc_hash::FxHashMap;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// What the CUDA backend makes of a scheduled module.
#[derive(Debug)]
pub struct CudaCode {
    pub(crate) program: ThunkProgram,
    pub(crate) architecture: Architecture,
    /// Machine code by the text that it is of, as far as it has been assembled.
    cubins: Mutex<FxHashMap<String, Arc<[u8]>>>,
}

impl CudaCode {
    pub(crate) fn new(program: ThunkProgram, architecture: Architecture) -> CudaCode {
        CudaCode { program, architecture, cubins: Mutex::default() }
    }

    /// The machine code that there is.
    pub(crate) fn cubins(&self) -> Vec<(String, Arc<[u8]>)> {
        let kept = self.cubins.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().map(|(ptx, cubin)| (ptx.clone(), cubin.clone())).collect()
    }

    /// Takes machine code that was assembled before.
    pub(crate) fn keep_cubins(&self, cubins: impl IntoIterator<Item = (String, Vec<u8>)>) {
        let mut kept = self.cubins.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(cubins.into_iter().map(|(ptx, cubin)| (ptx, cubin.into())));
    }
}

impl Code for CudaCode {
    fn emit(&self, module: &VerifiedModule, form: Emit) -> Option<String> {
        match form {
            Emit::Thunks => Some(self.program.display(module.module())),
            Emit::Ptx => Some(self.ptx()),
            _ => None,
        }
    }

    /// The kernels; thunks and memory are worked out again from the module when it is loaded, which needs no compiler.
    fn serialize(&self) -> Option<Vec<u8>> {
        let cubins = self.cubins.lock().unwrap_or_else(PoisonError::into_inner);
        let cubins = cubins.iter().map(|(ptx, cubin)| (ptx.clone(), cubin.to_vec())).collect();
        Saved { sequences: self.program.made.clone(), cubins }.serialize()
    }
}

impl CudaCode {
    /// The text of every kernel, once.
    fn ptx(&self) -> String {
        let mut seen = HashSet::new();
        let kernels = self.program.made.iter().flatten().flat_map(|s| &s.kernels);
        let once = kernels.filter(|k| seen.insert(&k.ptx));
        once.map(|k| k.ptx.trim_end().to_owned() + "\n").collect::<Vec<_>>().join("\n")
    }
}
