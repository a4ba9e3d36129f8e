//! `hloom bench`: how fast programs compile and run, and how near that is to what the machine can do.

use super::args::BenchArgs;
use super::run::trace;
use super::table::{Align, Table};
use super::{Outcome, Result, calibrate, input, json, output, progress};
use hloom::arrays;
use hloom::compiler::CompileOptions;
use hloom::cpu::roofline::{Ceiling, measure};
use hloom::cpu::{CpuClient, CpuClientOptions};
use hloom::execute::{choose_devices, upload};
use hloom::ir::diagnostic::Diagnostic;
use hloom::ir::verify::VerifiedModule;
use hloom::runtime::trace::Trace;
use hloom::runtime::{Buffer, Client, ExecuteOptions, LoadedExecutable};
use hloom::value::ExecutionError;
use hloom::{Verified, analysis};
use serde::Serialize;
use std::time::Instant;

pub(crate) fn run(args: &BenchArgs) -> Result {
    let options = CpuClientOptions { threads: args.threads.map(|n| n as usize), ..CpuClientOptions::default() };
    let client = CpuClient::new(&options).map_err(|error| super::usage_error(&error.to_string()))?;
    if args.calibrate {
        let text = calibrate::calibrated(&client, client.pool().threads(), args.repeat)?;
        output::to_path(args.output.as_deref().unwrap_or("-"), text.as_bytes())?;
        return Ok(Outcome::Well);
    }
    let ceiling = {
        let _progress = progress::start("measuring the machine".into());
        measure(&client).map_err(|fault| super::usage_error(&fault.into_diagnostic().message))?
    };
    let mut rows = Vec::new();
    let mut outcome = Outcome::Well;
    for file in &args.files {
        match bench(args, &client, ceiling, file) {
            Ok(row) => rows.push(row),
            Err(stop) => outcome = outcome.max(stop.0),
        }
    }
    let text = match args.json {
        true => rows.iter().map(json::to_line).collect(),
        false => table(&rows, ceiling, &client),
    };
    output::to_stdout(text.as_bytes())?;
    Ok(outcome)
}

/// One program, measured.
#[derive(Serialize)]
struct Row {
    file: String,
    compile_ms: f64,
    /// The fastest run.
    run_ms: f64,
    run_ms_median: f64,
    devices: usize,
    temp_bytes: usize,
    /// Per second, all devices together.
    gflops: f64,
    gigabytes: f64,
    /// Of the machine's own best: of products or of memory, whichever is nearer.
    share: f64,
    /// Instructions left to the evaluator.
    evaluated: usize,
}

fn bench(args: &BenchArgs, client: &dyn Client, ceiling: Ceiling, file: &str) -> Result<Row> {
    let verified = input::load_verified(file)?;
    let fail = |errors: Vec<Diagnostic>| {
        output::show(&verified.source, Some(verified.module.module()), &errors);
        super::Stop(Outcome::InputAtFault)
    };
    let failed = |fault: ExecutionError| fail(vec![fault.into_diagnostic()]);
    let module = verified.module.module();
    let grid = choose_devices(module, args.devices.map(|n| n as usize), None).map_err(|d| fail(vec![d]))?.grid;
    let inputs = arrays::from_seed(module, grid, args.seed).map_err(|d| fail(vec![d]))?;
    let options = CompileOptions { fill_constants: true, ..CompileOptions::new(grid) };
    let begun = Instant::now();
    let compiled = client.compile(&verified.module, &options).map_err(|e| fail(e.into_diagnostics(module)))?;
    let compile_ms = begun.elapsed().as_secs_f64() * 1e3;
    let arguments = upload(client, compiled.compiled(), inputs).map_err(failed)?;
    // Where results take the place of arguments, each run is given its own.
    let donates = !module.config.input_output_alias.is_empty();
    let once = |trace: Option<&Trace>| -> std::result::Result<f64, ExecutionError> {
        let fresh = arguments.iter().enumerate().map(|(device, leaves)| {
            let copy = |b: &Buffer| if donates { client.duplicate(device, b) } else { Ok(b.clone()) };
            leaves.iter().map(copy).collect()
        });
        let fresh = fresh.collect::<std::result::Result<_, _>>()?;
        let options = ExecuteOptions { trace, ..ExecuteOptions::default() };
        let begun = Instant::now();
        compiled.execute(fresh, &options).map_err(|fault| compiled.compiled().explain(fault, module))?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    };
    once(None).map_err(failed)?;
    let mut times =
        (0..args.repeat).map(|_| once(None)).collect::<std::result::Result<Vec<f64>, _>>().map_err(failed)?;
    times.sort_by(f64::total_cmp);
    if let Some(path) = &args.trace {
        let record = Trace::default();
        once(Some(&record)).map_err(failed)?;
        output::to_path(path, trace::to_json(trace::events(record, compiled.compiled().module.module())).as_bytes())?;
    }
    let run_ms = times.first().copied().unwrap_or(0.0);
    let (flops, bytes) = work(&verified, &*compiled);
    let per_second = |n: f64| n * grid.devices() as f64 / (run_ms / 1e3).max(1e-9);
    Ok(Row {
        file: file.to_owned(),
        compile_ms,
        run_ms,
        run_ms_median: times.get(times.len() / 2).copied().unwrap_or(0.0),
        devices: grid.devices(),
        temp_bytes: compiled.compiled().report.temp_bytes,
        gflops: per_second(flops) / 1e9,
        gigabytes: per_second(bytes) / 1e9,
        share: (per_second(flops) / ceiling.flops).max(per_second(bytes) / ceiling.bytes),
        evaluated: compiled.compiled().report.fallback_steps(),
    })
}

/// The fastest of some runs of a program on made-up inputs, after one to warm up.
pub(super) fn fastest_seconds(
    client: &dyn Client,
    program: &VerifiedModule,
    repeat: u32,
) -> std::result::Result<f64, Vec<Diagnostic>> {
    let one = |fault: Diagnostic| vec![fault];
    let failed = |fault: ExecutionError| vec![fault.into_diagnostic()];
    let module = program.module();
    let grid = choose_devices(module, None, None).map_err(one)?.grid;
    let inputs = arrays::from_seed(module, grid, 0).map_err(one)?;
    // What the evaluator does would say nothing of the machine.
    let options = CompileOptions { strict: true, ..CompileOptions::new(grid) };
    let compiled = client.compile(program, &options).map_err(|e| e.into_diagnostics(module))?;
    let arguments = upload(client, compiled.compiled(), inputs).map_err(failed)?;
    let mut fastest = f64::INFINITY;
    for run in 0..=repeat {
        let begun = Instant::now();
        compiled.execute(arguments.clone(), &ExecuteOptions::default()).map_err(failed)?;
        if run > 0 {
            fastest = fastest.min(begun.elapsed().as_secs_f64());
        }
    }
    Ok(fastest)
}

/// The arithmetic of the program as it was written, and the bytes that the program moves as it runs.
fn work(verified: &Verified, compiled: &dyn LoadedExecutable) -> (f64, f64) {
    let written = analysis::cost::cost(&verified.module).total;
    let compiled = analysis::cost::cost(&compiled.compiled().module).total;
    (written.flops as f64, compiled.bytes as f64)
}

fn table(rows: &[Row], ceiling: Ceiling, client: &CpuClient) -> String {
    let columns = ["file", "compile ms", "run ms", "GFLOP/s", "GB/s", "of the best", "evaluated"];
    let aligned: Vec<(&str, Align)> =
        columns.iter().enumerate().map(|(n, &c)| (c, if n == 0 { Align::Left } else { Align::Right })).collect();
    let mut table = Table::new(&aligned);
    for row in rows {
        table.row([
            row.file.clone(),
            format!("{:.2}", row.compile_ms),
            format!("{:.3}", row.run_ms),
            format!("{:.1}", row.gflops),
            format!("{:.1}", row.gigabytes),
            format!("{:.0} %", row.share * 100.0),
            row.evaluated.to_string(),
        ]);
    }
    let threads = client.pool().threads();
    let best = format!(
        "the best measured with {threads} threads: {:.1} GFLOP/s (f32 products), {:.1} GB/s\n",
        ceiling.flops / 1e9,
        ceiling.bytes / 1e9
    );
    table.render() + &best
}
