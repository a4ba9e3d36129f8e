//! The share of instructions that have native code: over real programs (a folder `shared/corpus` beside the checkout, or
//! in `HLOOM_SHARED`), and over generated ones.
//!
//! One in so many programs is compiled: all of them take minutes. `HLOOM_ONE_IN=1 cargo test --release -p hloom-cpu
//! --features llvm --test native_share` compiles all.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use hloom_compiler::{CompileOptions, Effort};
use hloom_cpu::{CpuClient, CpuClientOptions};
use hloom_eval::run::DeviceGrid;
use hloom_formats::hlo_text;
use hloom_fuzz::choices::Choices;
use hloom_fuzz::generate::{Options, generate};
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
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

/// How many instructions are native, and which are not, by reason.
#[derive(Default)]
struct Share {
    native: usize,
    left: BTreeMap<String, Vec<String>>,
}

impl Share {
    /// Compiles a program and counts it in.
    fn add(&mut self, client: &CpuClient, name: &str, module: &VerifiedModule, grid: DeviceGrid) {
        let options = CompileOptions { fill_constants: true, effort: Effort::Quick, ..CompileOptions::new(grid) };
        let compiled = client.compile(module, &options).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let report = &compiled.compiled().report;
        self.native += report.native_instructions;
        for (opcode, fallback) in &report.fallback {
            let of_reason = self.left.entry(format!("{opcode}: {}", fallback.reason)).or_default();
            of_reason.extend(fallback.instructions.iter().map(|i| format!("{name}: {i}")));
        }
    }

    /// Fails if fewer than 99 of 100 are native.
    fn check(&self) {
        let evaluated: usize = self.left.values().map(Vec::len).sum();
        let reasons: Vec<String> = self.left.iter().map(|(why, all)| format!("{} × {why}", all.len())).collect();
        eprintln!("{} instructions are native, {evaluated} are left to the evaluator: {reasons:#?}", self.native);
        assert!(self.native >= 99 * evaluated, "too few instructions are native: {:#?}", self.left);
    }
}

fn client() -> CpuClient {
    let client = CpuClient::new(&CpuClientOptions { threads: Some(2), ..CpuClientOptions::default() });
    client.expect("a client")
}

#[test]
fn nearly_all_instructions_of_real_programs_are_native() {
    let (client, mut share) = (client(), Share::default());
    for path in programs() {
        let text = std::fs::read(&path).expect("it can be read");
        let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(module) = hlo_text::read(&text).module else { continue };
        let Ok(module) = verify(module, &VerifyOptions::default()) else { continue };
        let devices: usize = name.rsplit_once(".d").and_then(|(_, n)| n.parse().ok()).unwrap_or(1);
        let partitions = (module.module().config.num_partitions.max(1) as usize).min(devices);
        share.add(&client, &name, &module, DeviceGrid { replicas: devices / partitions, partitions });
    }
    share.check();
}

/// Programs of the types that machines compute with: what the others become is converted, and that is tested elsewhere.
#[test]
fn nearly_all_instructions_of_generated_programs_are_native() {
    let cases = std::env::var("HLOOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(120u64);
    let (client, mut share) = (client(), Share::default());
    for seed in 0..cases {
        let mut choices = Choices::from_seed(seed).with_ordinary_numbers();
        let options = Options { layouts: seed % 3 == 1, ..Options::runnable() };
        let module = generate(&mut choices, &options);
        let module =
            verify(module, &VerifyOptions::default()).unwrap_or_else(|e| panic!("{seed}: {:?}", e.diagnostics));
        share.add(&client, &format!("case {seed}"), &module, DeviceGrid { replicas: 1, partitions: 1 });
    }
    share.check();
}
