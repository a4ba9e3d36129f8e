//! The programs of the filetests on the engine: what the evaluator must give, the engine must give too, and what is an
//! error there is the same error here.

use hloom::execute::upload;
use hloom_compiler::{CompileOptions, ExcessPrecision};
use hloom_cpu::{CpuClient, CpuClientOptions};
use hloom_eval::run::DeviceGrid;
use hloom_filetests::file::{Kind, TestFile};
use hloom_formats::hlo_text;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::eval::OUT_OF_MEMORY;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_runtime::assemble;
use hloom_runtime::{Client, ExecuteOptions};
use hloom_value::{ExecutionError, Value};
use std::path::Path;

#[test]
fn programs_of_the_filetests_run_on_the_engine() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../filetests/tests");
    let client =
        CpuClient::new(&CpuClientOptions { threads: Some(2), ..CpuClientOptions::default() }).expect("a client");
    let (mut failures, mut count) = (Vec::new(), 0);
    for path in hloom_filetests::discover(&root).expect("the folder of filetests can be read") {
        let file = TestFile::load(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let test = &file.execution;
        // What is fed, and a number of steps, are the evaluator's alone; waits in vain cost time.
        let evaluators = !test.infeed.is_empty() || !test.outfeed.is_empty() || test.max_steps.is_some();
        if !file.kinds.contains(&Kind::Run) || evaluators || test.time_limit.is_some() {
            continue;
        }
        let Some(module) = hlo_text::read(file.text.as_bytes()).module else { continue };
        let Ok(verified) = verify(module, &VerifyOptions::default()) else { continue };
        count += 1;
        let came = test.run_by(&verified, |module, grid, arguments, options| {
            execute(&client, module, grid, arguments, options.fill_constants)
        });
        let verdict = match (came, file.expected.first()) {
            (Ok(None), None) => Ok(()),
            (Ok(Some(d)), Some(wanted)) if d.code.to_string() == wanted.code => Ok(()),
            (Ok(Some(d)), _) => Err(d.to_string()),
            // The passes may leave nothing of an array that memory does not hold.
            (_, Some(wanted)) if wanted.code == OUT_OF_MEMORY.to_string() => Ok(()),
            (Ok(None), Some(wanted)) => Err(format!("ran, but must fail: {} {}", wanted.code, wanted.words)),
            (Err(wrong), _) => Err(wrong),
        };
        if let Err(why) = verdict {
            failures.push(format!("{}:\n{why}", path.strip_prefix(&root).unwrap_or(&path).display()));
        }
    }
    assert!(count > 200, "only {count} programs were found");
    assert!(failures.is_empty(), "{} of {count} fail:\n{}", failures.len(), failures.join("\n"));
}

fn execute(
    client: &CpuClient,
    module: &VerifiedModule,
    grid: DeviceGrid,
    arguments: Vec<Vec<Value>>,
    fill_constants: bool,
) -> Result<Vec<Value>, Diagnostic> {
    // The evaluator rounds whatever is written.
    let excess_precision = ExcessPrecision::Never;
    let options = CompileOptions { fill_constants, excess_precision, ..CompileOptions::new(grid) };
    let compiled = client.compile(module, &options).map_err(|e| e.into_diagnostics(module.module()).swap_remove(0))?;
    let run = || -> Result<Vec<Value>, ExecutionError> {
        let arguments = upload(client, compiled.compiled(), arguments.clone())?;
        let results = compiled.execute(arguments, &ExecuteOptions::default())?;
        let module = compiled.compiled().module.module();
        let root = module
            .entry()
            .and_then(|e| module.root(e))
            .ok_or_else(|| ExecutionError::bug("a program without a root"))?;
        results.into_iter().map(|leaves| assemble(&module[root].shape, &mut leaves.into_iter())).collect()
    };
    run().map_err(|fault| compiled.compiled().explain(fault, module.module()).into_diagnostic())
}
