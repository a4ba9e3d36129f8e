//! Runs of the program compiled for this machine.

use super::super::args::RunArgs;
use super::super::{Result, output, progress};
use super::{Run, Timed, instruction_at, interrupted, trace};
use hloom::arrays::Inputs;
use hloom::eval::DeviceGrid;
use hloom::ir::diagnostic::Diagnostic;
use hloom::ir::entity::InstructionId;
use hloom::ir::module::Module;
use hloom::ir::shape::Shape;
use hloom::ir::verify::VerifiedModule;
use hloom::runtime::buffer::assemble;
use hloom::runtime::trace::Trace;
use hloom::runtime::{
    Buffer, Client, ClientOptions, CompileOptions, Effort, Executable, ExecuteOptions, Report, Warming,
};
use hloom::value::{ExecutionError, Value};
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// Makes the compiler ready while the program and its arguments are read.
pub(super) fn warm_up(args: &RunArgs) -> Warming {
    Warming::begin(if args.bench.is_some() { Effort::Full } else { Effort::Quick })
}

fn client(run: &Run<'_>) -> Client {
    Client::new(&ClientOptions { threads: run.args.threads.map(|n| n as usize), ..ClientOptions::default() })
}

fn compile(run: &Run<'_>, client: &Client, grid: DeviceGrid, effort: Effort) -> Result<Executable> {
    let options = CompileOptions { grid, fill_constants: run.args.fill_constants, effort };
    let compiled = client.compile(&run.verified.module, &options).map_err(|errors| run.fail(errors))?;
    if run.args.report {
        output::to_stderr(&describe(compiled.report()));
    }
    Ok(compiled)
}

/// The arguments on the devices: what devices share in `inputs` they share there, too. Each array is given up as soon as
/// all devices have it: there is never more than one of them twice.
fn upload(client: &Client, inputs: Inputs) -> std::result::Result<Vec<Vec<Buffer>>, ExecutionError> {
    fn flatten(value: Value, leaves: &mut Vec<Value>) {
        match value {
            Value::Tuple(elements) => elements.into_iter().for_each(|v| flatten(v, leaves)),
            leaf => leaves.push(leaf),
        }
    }
    let leaves = |arguments: Vec<Value>| {
        let mut leaves = Vec::new();
        arguments.into_iter().for_each(|v| flatten(v, &mut leaves));
        leaves.into_iter()
    };
    let mut devices: Vec<std::vec::IntoIter<Value>> = inputs.into_iter().map(leaves).collect();
    let mut uploaded: Vec<Vec<Buffer>> = vec![Vec::new(); devices.len()];
    loop {
        // All devices have the same leaves in the same order.
        let same: Vec<Value> = devices.iter_mut().filter_map(Iterator::next).collect();
        if same.is_empty() {
            return Ok(uploaded);
        }
        let mut first: Option<(*const u8, Buffer)> = None;
        for (leaf, to) in same.iter().zip(&mut uploaded) {
            let address = leaf.as_array().map_or(std::ptr::null(), |a| a.bytes().as_ptr());
            let shared = first.as_ref().filter(|f| f.0 == address).map(|f| f.1.clone());
            let buffer = shared.map_or_else(|| Buffer::from_leaf(client.allocator(), leaf), Ok)?;
            first.get_or_insert_with(|| (address, buffer.clone()));
            to.push(buffer);
        }
    }
}

/// For each leaf of the arguments, whether a result takes its place.
pub(crate) fn donated(module: &Module) -> Vec<bool> {
    let parameters = module.entry().map_or_else(Vec::new, |entry| module.parameters(entry).to_vec());
    let aliases = &module.config.input_output_alias;
    let each = |(n, p): (usize, InstructionId)| {
        let is_given = aliases.iter().any(|a| a.parameter == n as i64);
        std::iter::repeat_n(is_given, module[p].shape.leaf_count())
    };
    parameters.into_iter().enumerate().flat_map(each).collect()
}

fn execute(
    run: &Run<'_>,
    compiled: &Executable,
    arguments: Vec<Vec<Buffer>>,
    trace: Option<&Trace>,
) -> Result<Vec<Vec<Buffer>>> {
    let at = AtomicU32::new(u32::MAX);
    let options = ExecuteOptions {
        max_steps: run.args.max_steps,
        time_limit: run.args.time_limit.map(Duration::from_secs),
        cancel: Some(interrupted()),
        progress: Some(&at),
        trace,
        ..ExecuteOptions::default()
    };
    let work = || compiled.execute(arguments, &options);
    progress::follow("running", || instruction_at(compiled.module().module(), &at), work)
        .map_err(|fault| run.failed(compiled.explain(fault, run.module())))
}

fn download(run: &Run<'_>, results: Vec<Vec<Buffer>>) -> Result<Vec<Value>> {
    let module = run.module();
    let root = module.entry().and_then(|entry| module.root(entry));
    let shape = root.map_or(Shape::Token, |root| module[root].shape.clone());
    let values = results.into_iter().map(|leaves| assemble(&shape, &mut leaves.into_iter()));
    values.collect::<std::result::Result<_, _>>().map_err(|fault| run.failed(fault))
}

/// Compiles and runs the program once.
pub(super) fn once(run: &Run<'_>, grid: DeviceGrid, inputs: Inputs) -> Result<Vec<Value>> {
    let client = client(run);
    let compiled = compile(run, &client, grid, Effort::Quick)?;
    let arguments = upload(&client, inputs).map_err(|fault| run.failed(fault))?;
    let record = run.args.trace.as_ref().map(|_| Trace::default());
    let results = execute(run, &compiled, arguments, record.as_ref())?;
    if let (Some(path), Some(record)) = (&run.args.trace, record) {
        output::to_path(path, trace::to_json(record, compiled.module().module()).as_bytes())?;
    }
    download(run, results)
}

/// Times compiling, and `count` runs after one to warm up.
pub(super) fn bench(run: &Run<'_>, grid: DeviceGrid, inputs: Inputs, count: u32) -> Result<Timed> {
    let client = client(run);
    let arguments = upload(&client, inputs).map_err(|fault| run.failed(fault))?;
    let begun = Instant::now();
    let compiled = compile(run, &client, grid, Effort::Full)?;
    let compile = begun.elapsed();
    // Where results take the place of arguments, each run is given its own.
    let donated = donated(run.module());
    let copy = |(b, &given): (&Buffer, &bool)| if given { b.duplicate(client.allocator()) } else { Ok(b.clone()) };
    let fresh = || {
        let copies = arguments.iter().map(|leaves| leaves.iter().zip(&donated).map(copy).collect());
        copies.collect::<std::result::Result<Vec<Vec<Buffer>>, ExecutionError>>().map_err(|fault| run.failed(fault))
    };
    let mut results = execute(run, &compiled, fresh()?, None)?;
    let mut runs = Vec::new();
    for _ in 0..count {
        let arguments = fresh()?;
        // Results of the last run are gone before the next, as they would be in a training loop.
        drop(results);
        let begun = Instant::now();
        results = execute(run, &compiled, arguments, None)?;
        runs.push(begun.elapsed());
    }
    Ok(Timed { compile, runs, temp_bytes: compiled.report().temp_bytes, results: download(run, results)? })
}

/// What became of the program, for people.
fn describe(report: &Report) -> String {
    if let Some(reason) = &report.evaluated {
        return format!("the whole program is left to the evaluator: {reason}\n");
    }
    let mut text = String::new();
    for (stage, time) in &report.stages {
        text.push_str(&format!("{stage} {:.2} ms, ", time.as_secs_f64() * 1e3));
    }
    text.push_str(&format!("{} native steps, {} bytes of temporaries\n", report.native_steps(), report.temp_bytes));
    for (what, count) in &report.native {
        text.push_str(&format!("  {what}: {count}\n"));
    }
    if !report.fallback.is_empty() {
        text.push_str(&format!("{} steps are left to the evaluator\n", report.fallback_steps()));
    }
    for (opcode, fallback) in &report.fallback {
        let (names, reason) = (fallback.instructions.join(", "), &fallback.reason);
        text.push_str(&format!("  {opcode}: {} ({reason}): {names}\n", fallback.instructions.len()));
    }
    text
}

/// Compiles and runs a program once, without options.
pub(crate) fn compiled(
    module: &VerifiedModule,
    grid: DeviceGrid,
    inputs: Inputs,
) -> std::result::Result<Vec<Value>, Vec<Diagnostic>> {
    let client = Client::new(&ClientOptions::default());
    let compiled = client.compile(module, &CompileOptions { grid, fill_constants: false, effort: Effort::Quick })?;
    let fault = |f: ExecutionError| vec![compiled.explain(f, module.module()).into_diagnostic()];
    let arguments = upload(&client, inputs).map_err(fault)?;
    let results = compiled.execute(arguments, &ExecuteOptions::default()).map_err(fault)?;
    let module = module.module();
    let root = module.entry().and_then(|entry| module.root(entry));
    let shape = root.map_or(Shape::Token, |root| module[root].shape.clone());
    results.into_iter().map(|leaves| assemble(&shape, &mut leaves.into_iter()).map_err(fault)).collect()
}
