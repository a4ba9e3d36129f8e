//! Real programs: whatever there is said to be a kernel for has one that LLVM takes, and the assembler, where there is one.

mod common;

use common::{ARCHITECTURE, assemble};
use hloom_cuda_codegen::{KernelSequence, generate, supports};
use hloom_formats::hlo_text;
use hloom_ir::InstructionId;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// The folder of programs beside the checkout, or where HLOOM_SHARED points.
fn folder() -> Option<PathBuf> {
    let named = std::env::var_os("HLOOM_SHARED").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|p| p.join("shared"));
    named.into_iter().chain(beside).map(|p| p.join("corpus")).find(|p| p.is_dir())
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that is passed over says so")]
fn what_is_supported_has_kernels() {
    let Some(folder) = folder() else {
        eprintln!("there is no corpus beside the project: nothing is compiled");
        return;
    };
    let wanted = std::env::var("HLOOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(30);
    let mut files: Vec<PathBuf> = Vec::new();
    let mut folders = vec![folder.join("exec"), folder.join("cpu_ba")];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).into_iter().flatten().filter_map(|e| Some(e.ok()?.path())) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "hlo") {
                files.push(path);
            }
        }
    }
    files.sort();
    let step = (files.len() / wanted).max(1);
    let (mut made, mut failures): (Vec<(String, KernelSequence)>, Vec<String>) = (Vec::new(), Vec::new());
    for file in files.iter().step_by(step) {
        let Ok(text) = std::fs::read(file) else { continue };
        let Some(module) = hlo_text::read(&text).module else { continue };
        let all: Vec<InstructionId> =
            module.computations().iter().flat_map(|&c| module[c].instructions().to_vec()).collect();
        for id in all {
            let name = format!("{} {}", file.display(), module[id].name());
            let kernels = catch_unwind(AssertUnwindSafe(|| {
                supports(&module, id).ok().map(|()| generate(&module, id, ARCHITECTURE))
            }));
            match kernels {
                Ok(None) => {}
                Ok(Some(Ok(sequence))) => made.push((name, sequence)),
                Ok(Some(Err(why))) => failures.push(format!("{name}: {why}")),
                Err(_) => failures.push(format!("{name}: a panic")),
            }
        }
    }
    made.dedup_by(|a, b| a.1 == b.1);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(made.len() > 50 || files.is_empty(), "only {} kernels were made", made.len());
    if std::env::var_os("HLOOM_CASES").is_none() {
        made.truncate(100);
    }
    assemble(&made);
}
