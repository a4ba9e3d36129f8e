//! The machine that kernels are made for, and its assembler, where there is one.

use hloom_cuda_codegen::{Architecture, KernelSequence};
use std::process::Command;

pub(crate) const ARCHITECTURE: Architecture = Architecture { capability: 90, accelerated: true };

/// Assembles all kernels, if `ptxas` (or what `HLOOM_PTXAS` names) is there.
#[allow(clippy::print_stderr, reason = "a test that is passed over says so")]
pub(crate) fn assemble(all: &[(String, KernelSequence)]) {
    let assembler = std::env::var_os("HLOOM_PTXAS").unwrap_or_else(|| "ptxas".into());
    if Command::new(&assembler).arg("--version").output().is_err() {
        eprintln!("there is no ptxas here: kernels are not assembled");
        return;
    }
    let folder = std::env::temp_dir().join(format!("hloom-ptx-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("there is a folder for temporary files");
    for (name, sequence) in all {
        for kernel in &sequence.kernels {
            let (from, to) = (folder.join("k.ptx"), folder.join("k.cubin"));
            std::fs::write(&from, &kernel.ptx).expect("it can be written");
            let run = Command::new(&assembler).arg("-arch=sm_90a").arg(&from).arg("-o").arg(&to).output();
            let run = run.expect("ptxas starts");
            assert!(run.status.success(), "{name}: {}\n{}", String::from_utf8_lossy(&run.stderr), kernel.ptx);
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
}
