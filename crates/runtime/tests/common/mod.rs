//! What the tests of the engine share: reading a program, and running what was compiled of it.

use hloom_formats::hlo_text;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_runtime::buffer::assemble;
use hloom_runtime::{Buffer, Client, Executable, ExecuteOptions};
use hloom_value::{ExecutionError, Value};

/// The program that `text` is.
pub(crate) fn parse(text: &str) -> VerifiedModule {
    let read = hlo_text::read(text.as_bytes());
    let module = read.module.unwrap_or_else(|| panic!("{:?}\n{text}", read.diagnostics));
    verify(module, &VerifyOptions::default()).unwrap_or_else(|e| panic!("{:?}\n{text}", e.diagnostics))
}

/// The results of each device for the arguments of each.
pub(crate) fn execute(
    client: &Client,
    compiled: &Executable,
    arguments: &[Vec<Value>],
    options: &ExecuteOptions<'_>,
) -> Result<Vec<Value>, ExecutionError> {
    let upload = |a: &Vec<Value>| {
        let leaves = a.iter().flat_map(|v| Buffer::from_value(client.allocator(), v).expect("there is memory"));
        leaves.collect::<Vec<_>>()
    };
    let results = compiled.execute(arguments.iter().map(upload).collect(), options)?;
    let module = compiled.module().module();
    let root = module.entry().and_then(|e| module.root(e)).expect("a root");
    results.into_iter().map(|leaves| assemble(&module[root].shape, &mut leaves.into_iter())).collect()
}
