//! The share of instructions that have native code, over real programs: a folder `shared/corpus` beside the checkout, or
//! in `HLOOM_SHARED`.
//!
//! One in so many programs is compiled: all of them take minutes. `HLOOM_ONE_IN=1 cargo test --release -p hloom-cpu
//! --features llvm --test native_share` compiles all.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use hloom_compiler::{CompileOptions, Effort};
use hloom_cpu::{CpuClient, CpuClientOptions};
use hloom_eval::run::DeviceGrid;
use hloom_formats::hlo_text;
use hloom_ir::verify::{VerifyOptions, verify};
use hloom_runtime::Client;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn programs() -> Vec<PathBuf> {
    let named = std::env::var_os("HLOOM_SHARED").map(PathBuf::from);
    let ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|a| a.join("shared"));
    let found = named.into_iter().chain(ancestors).map(|s| s.join("corpus/exec")).find(|f| f.is_dir());
    let Some(folder) = found else {
        eprintln!("skipped: there is no corpus/exec in a folder `shared` beside the checkout, nor in HLOOM_SHARED");
        return Vec::new();
    };
    let entries = std::fs::read_dir(folder).expect("it can be listed");
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("it can be listed").path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "hlo"));
    files.sort();
    let one_in = std::env::var("HLOOM_ONE_IN").ok().and_then(|n| n.parse().ok()).unwrap_or(8).max(1);
    files.into_iter().step_by(one_in).collect()
}

#[test]
fn nearly_all_instructions_of_real_programs_are_native() {
    let client = CpuClient::new(&CpuClientOptions { threads: Some(2), ..CpuClientOptions::default() });
    let client = client.expect("a client");
    let (mut native, mut left) = (0usize, BTreeMap::<String, Vec<String>>::new());
    for path in programs() {
        let text = std::fs::read(&path).expect("it can be read");
        let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(module) = hlo_text::read(&text).module else { continue };
        let Ok(module) = verify(module, &VerifyOptions::default()) else { continue };
        let devices: usize = name.rsplit_once(".d").and_then(|(_, n)| n.parse().ok()).unwrap_or(1);
        let partitions = (module.module().config.num_partitions.max(1) as usize).min(devices);
        let grid = DeviceGrid { replicas: devices / partitions, partitions };
        let options = CompileOptions { fill_constants: true, effort: Effort::Quick, ..CompileOptions::new(grid) };
        let compiled = client.compile(&module, &options).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let report = &compiled.compiled().report;
        native += report.native_instructions;
        for (opcode, fallback) in &report.fallback {
            let of_reason = left.entry(format!("{opcode}: {}", fallback.reason)).or_default();
            of_reason.extend(fallback.instructions.iter().map(|i| format!("{name}: {i}")));
        }
    }
    let evaluated: usize = left.values().map(Vec::len).sum();
    eprintln!("{native} instructions are native, {evaluated} are left to the evaluator: {left:#?}");
    assert!(native >= 99 * evaluated, "too few instructions are native: {left:#?}");
}
