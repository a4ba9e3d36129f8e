//! Runs of the program compiled for an engine's devices.

use super::super::interrupt::interrupted;
use super::super::{Result, output, progress};
use super::{Run, Timed, instruction_at, trace};
use hloom::arrays::Inputs;
use hloom::compiler::{CompileOptions, CompileReport};
use hloom::eval::DeviceGrid;
use hloom::execute::{download, upload};
use hloom::ir::entity::InstructionId;
use hloom::ir::module::Module;
use hloom::runtime::trace::Trace;
use hloom::runtime::{Buffer, Client, ExecuteOptions, LoadedExecutable};
use hloom::value::{ExecutionError, Value};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

fn client(run: &Run<'_>, grid: DeviceGrid) -> Result<Arc<dyn Client>> {
    if let Some(saved) = &run.saved {
        return Ok(saved.client.clone());
    }
    let threads = run.args.threads.map(|n| n as usize).or_else(|| run.ranks.map(|r| r.threads()));
    let devices = run.ranks.map_or(grid.devices(), |ranks| ranks.own_devices(grid).len());
    let client = run.args.engine.client_for(threads, devices);
    let client = client.map_err(|error| run.fail(error.into_diagnostics(run.module())))?;
    client.notes().iter().for_each(|note| output::inform(&format!("{note}\n")));
    Ok(client)
}

fn compile(run: &Run<'_>, client: &dyn Client, grid: DeviceGrid) -> Result<Arc<dyn LoadedExecutable>> {
    if let Some(saved) = &run.saved {
        if let Some(ranks) = run.ranks {
            ranks.check_same_program(saved.executable.compiled())?;
        }
        return Ok(saved.executable.clone());
    }
    // The same code whether it runs once or often: what is measured is what runs.
    let options = CompileOptions {
        fill_constants: run.args.fill_constants,
        strict: run.args.strict,
        excess_precision: run.args.excess_precision.into(),
        ..CompileOptions::new(grid)
    };
    let loaded = client.compile(&run.verified.module, &options);
    let loaded = loaded.map_err(|error| run.fail(error.into_diagnostics(run.module())))?;
    let report = &loaded.compiled().report;
    match run.args.report {
        true => output::inform(&describe(report)),
        false => output::inform(&fallback_warnings(report)),
    }
    if let Some(ranks) = run.ranks {
        ranks.check_same_program(loaded.compiled())?;
    }
    Ok(loaded)
}

/// The arguments of the devices that run in this process.
fn own(run: &Run<'_>, grid: DeviceGrid, inputs: Inputs) -> Inputs {
    let Some(ranks) = run.ranks else { return inputs };
    let devices = ranks.own_devices(grid);
    inputs.into_iter().enumerate().filter(|(d, _)| devices.contains(d)).map(|(_, arguments)| arguments).collect()
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

/// Runs the program; where `at` is given, that is kept at the instruction that the first device is at.
fn execute(
    run: &Run<'_>,
    compiled: &dyn LoadedExecutable,
    arguments: Vec<Vec<Buffer>>,
    trace: Option<&Trace>,
    at: Option<&AtomicU32>,
) -> Result<Vec<Vec<Buffer>>> {
    let grid = compiled.compiled().grid;
    let devices = run.ranks.map(|ranks| ranks.own_devices(grid));
    let options = ExecuteOptions {
        devices: devices.as_deref(),
        communicator: run.ranks.map(|ranks| ranks.communicator(grid)),
        max_steps: run.args.max_steps,
        time_limit: run.args.time_limit.map(Duration::from_secs),
        cancel: Some(interrupted()),
        progress: at,
        trace,
        ..ExecuteOptions::default()
    };
    let results = compiled.execute(arguments, &options);
    results.map_err(|fault| run.failed(compiled.compiled().explain(fault, run.module())))
}

/// Compiles and runs the program once.
pub(super) fn once(run: &Run<'_>, grid: DeviceGrid, inputs: Inputs) -> Result<Vec<Value>> {
    let client = client(run, grid)?;
    let inputs = own(run, grid, inputs);
    let compiled = compile(run, &*client, grid)?;
    let arguments = upload(&*client, compiled.compiled(), inputs).map_err(|fault| run.failed(fault))?;
    let results = traced(run, &*compiled, arguments)?;
    download(run.module(), results).map_err(|fault| run.failed(fault))
}

/// Runs the program once, showing how far it is, and writes its record where one is asked for.
fn traced(run: &Run<'_>, compiled: &dyn LoadedExecutable, arguments: Vec<Vec<Buffer>>) -> Result<Vec<Vec<Buffer>>> {
    let module = compiled.compiled().module.module();
    let at = AtomicU32::new(u32::MAX);
    let followed = |arguments, record: Option<&Trace>| {
        let work = || execute(run, compiled, arguments, record, Some(&at));
        progress::follow("running", || instruction_at(module, &at), work)
    };
    let Some(path) = &run.args.trace else { return followed(arguments, None) };
    if let Some(ranks) = run.ranks {
        // All begin their records at the same time.
        ranks.meet()?;
    }
    let record = Trace::default();
    let results = followed(arguments, Some(&record))?;
    let mut events = trace::events(record, module);
    if let Some(ranks) = run.ranks {
        events = ranks.collect_events(events)?;
    }
    if run.ranks.is_none_or(|r| r.rank() == 0) {
        output::to_path(path, trace::to_json(events).as_bytes())?;
    }
    Ok(results)
}

/// Times compiling, and `count` runs after one to warm up.
pub(super) fn bench(run: &Run<'_>, grid: DeviceGrid, inputs: Inputs, count: u32) -> Result<Timed> {
    let client = client(run, grid)?;
    client.wait_until_ready();
    let begun = Instant::now();
    let compiled = compile(run, &*client, grid)?;
    let compile = begun.elapsed();
    let inputs = own(run, grid, inputs);
    let arguments = upload(&*client, compiled.compiled(), inputs).map_err(|fault| run.failed(fault))?;
    let load = run.saved.as_ref().and_then(|saved| saved.load);
    // Where results take the place of arguments, each run is given its own.
    let donated = donated(run.module());
    let fresh = || {
        let copies = arguments.iter().enumerate().map(|(device, leaves)| {
            let copy = |(b, &given): (&Buffer, &bool)| if given { client.duplicate(device, b) } else { Ok(b.clone()) };
            leaves.iter().zip(&donated).map(copy).collect()
        });
        copies.collect::<std::result::Result<Vec<Vec<Buffer>>, ExecutionError>>().map_err(|fault| run.failed(fault))
    };
    // Nothing that is only shown is within the clock.
    let progress = progress::start(format!("running {count} times"));
    let mut results = execute(run, &*compiled, fresh()?, None, None)?;
    let mut runs = Vec::new();
    for _ in 0..count {
        let arguments = fresh()?;
        // Results of the last run are gone before the next, as they would be in a training loop.
        drop(results);
        let begun = Instant::now();
        results = execute(run, &*compiled, arguments, None, None)?;
        runs.push(begun.elapsed());
    }
    drop(progress);
    if run.args.trace.is_some() {
        // One more, which is not timed: recording takes time itself.
        let arguments = fresh()?;
        drop(results);
        results = traced(run, &*compiled, arguments)?;
    }
    let results = download(run.module(), results).map_err(|fault| run.failed(fault))?;
    let report = compiled.compiled().report.clone();
    Ok(Timed { compile, load, runs, report, results })
}

/// What became of the program, for people.
fn describe(report: &CompileReport) -> String {
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

/// One line for each reason why instructions are left to the evaluator.
pub(crate) fn fallback_warnings(report: &CompileReport) -> String {
    let line = |(opcode, fallback): (&String, &hloom::compiler::Fallback)| {
        let (first, count) = (fallback.instructions.first().map_or("", String::as_str), fallback.instructions.len());
        let others = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        format!("warning: no native code for {opcode} ({}): {first}{others} left to the evaluator\n", fallback.reason)
    };
    report.fallback.iter().map(line).collect()
}
