//! What the tests of the engine share: reading a program, and running what was compiled of it.

use hloom::execute::upload;
use hloom_cpu::CpuClient;
use hloom_formats::hlo_text;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_runtime::assemble;
use hloom_runtime::{ExecuteOptions, LoadedExecutable};
use hloom_value::{ExecutionError, Value};
use std::sync::Arc;

/// The program that `text` is.
pub(crate) fn parse(text: &str) -> VerifiedModule {
    let read = hlo_text::read(text.as_bytes());
    let module = read.module.unwrap_or_else(|| panic!("{:?}\n{text}", read.diagnostics));
    verify(module, &VerifyOptions::default()).unwrap_or_else(|e| panic!("{:?}\n{text}", e.diagnostics))
}

/// The results of each device for the arguments of each.
pub(crate) fn execute(
    client: &CpuClient,
    compiled: &Arc<dyn LoadedExecutable>,
    arguments: &[Vec<Value>],
    options: &ExecuteOptions<'_>,
) -> Result<Vec<Value>, ExecutionError> {
    let results = compiled.execute(upload(client, compiled.compiled(), arguments.to_vec())?, options)?;
    let module = compiled.compiled().module.module();
    let root = module.entry().and_then(|e| module.root(e)).expect("a root");
    results.into_iter().map(|leaves| assemble(&module[root].shape, &mut leaves.into_iter())).collect()
}
