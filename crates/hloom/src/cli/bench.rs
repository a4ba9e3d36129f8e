//! `hloom bench`: how fast programs compile and run, and how near that is to what the machine can do.

mod calibrate;
mod probe;

use super::args::BenchArgs;
use super::run::trace;
use super::table::{Align, Table};
use super::{Outcome, Result, input, json, output};
use hloom::arrays;
use hloom::compiler::CompileOptions;
use hloom::engine::Engine;
use hloom::execute::{choose_devices, upload};
use hloom::ir::ElementType;
use hloom::ir::diagnostic::Diagnostic;
use hloom::ir::module::Module;
use hloom::ir::op::Op;
use hloom::runtime::pool::Pool;
use hloom::runtime::trace::Trace;
use hloom::runtime::{Buffer, Client, ExecuteOptions, LoadedExecutable};
use hloom::value::ExecutionError;
use hloom::{Verified, analysis};
use probe::Probe;
use serde::Serialize;
use std::time::Instant;

pub(crate) fn run(args: &BenchArgs) -> Result {
    let threads = args.threads.map(|n| n as usize);
    let client = args.engine.client(threads).map_err(|error| super::usage_error(&error.to_string()))?;
    client.notes().iter().for_each(|note| output::inform(&format!("{note}\n")));
    client.wait_until_ready();
    if args.calibrate {
        let threads = (args.engine == Engine::Cpu).then(|| threads.unwrap_or_else(Pool::available_threads));
        let text = calibrate::calibrated(&*client, threads, args.repeat)?;
        output::to_path(args.output.as_deref().unwrap_or("-"), text.as_bytes())?;
        return Ok(Outcome::Well);
    }
    let mut ceiling = Ceiling::new(Probe::new(&*client, PROBES)?)?;
    let mut rows = Vec::new();
    let mut outcome = Outcome::Well;
    for file in &args.files {
        match bench(args, &*client, &mut ceiling, file) {
            Ok(row) => rows.push(row),
            Err(stop) => outcome = outcome.max(stop.0),
        }
    }
    let text = match args.json {
        true => rows.iter().map(json::to_line).collect(),
        false => table(&rows) + &ceiling.text(args.engine),
    };
    output::to_stdout(text.as_bytes())?;
    Ok(outcome)
}

/// Runs of a program that measures the machine.
const PROBES: u32 = 4;

/// The best that was measured on this machine.
struct Ceiling<'c> {
    probe: Probe<'c>,
    /// Bytes read or written per second, in arrays that no cache holds.
    bytes: f64,
    /// Multiplications and additions per second in products of matrices, of the types that were asked for.
    products: Vec<(ElementType, f64)>,
}

impl<'c> Ceiling<'c> {
    fn new(probe: Probe<'c>) -> Result<Ceiling<'c>> {
        let bytes = probe.memory_bandwidth()?;
        Ok(Ceiling { probe, bytes, products: Vec::new() })
    }

    /// Multiplications and additions per second in products of matrices of that type.
    fn flops(&mut self, element_type: ElementType) -> Result<f64> {
        if let Some(&(_, known)) = self.products.iter().find(|(t, _)| *t == element_type) {
            return Ok(known);
        }
        let flops = self.probe.product(element_type.name())?;
        self.products.push((element_type, flops));
        Ok(flops)
    }

    fn text(&self, engine: Engine) -> String {
        let mut text = format!("the best measured on {}: {:.1} GB/s", engine.name(), self.bytes / 1e9);
        for (element_type, flops) in &self.products {
            text += &format!(", {:.1} GFLOP/s (products of {element_type})", flops / 1e9);
        }
        text + "\n"
    }
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

fn bench(args: &BenchArgs, client: &dyn Client, ceiling: &mut Ceiling<'_>, file: &str) -> Result<Row> {
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
    let of_products = match product_type(module) {
        Some(element_type) => per_second(flops) / ceiling.flops(element_type)?,
        None => 0.0,
    };
    Ok(Row {
        file: file.to_owned(),
        compile_ms,
        run_ms,
        run_ms_median: times.get(times.len() / 2).copied().unwrap_or(0.0),
        devices: grid.devices(),
        temp_bytes: compiled.compiled().report.temp_bytes,
        gflops: per_second(flops) / 1e9,
        gigabytes: per_second(bytes) / 1e9,
        share: of_products.max(per_second(bytes) / ceiling.bytes),
        evaluated: compiled.compiled().report.fallback_steps(),
    })
}

/// The type of the largest operand of a product or convolution of floating-point numbers.
fn product_type(module: &Module) -> Option<ElementType> {
    let all = module.computations().iter().flat_map(|&c| module[c].instructions());
    let products = all.filter(|&&i| matches!(module[i].op, Op::Dot(_) | Op::Convolution(_)));
    let lhs = products.filter_map(|&i| module[*module[i].operands().first()?].shape.as_array());
    let floats = lhs.filter(|a| a.element_type.is_float() && a.element_type.bits() >= 16);
    floats.max_by_key(|a| a.element_count().unwrap_or(i64::MAX)).map(|a| a.element_type)
}

/// The arithmetic of the program as it was written, and the bytes that the program moves as it runs.
fn work(verified: &Verified, compiled: &dyn LoadedExecutable) -> (f64, f64) {
    let written = analysis::cost::cost(&verified.module).total;
    let compiled = analysis::cost::cost(&compiled.compiled().module).total;
    (written.flops as f64, compiled.bytes as f64)
}

fn table(rows: &[Row]) -> String {
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
    table.render()
}
