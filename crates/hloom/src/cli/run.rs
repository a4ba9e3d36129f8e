//! `hloom run`: a program on virtual devices, arrays in and out.

mod engine;
mod folder;
mod ranks;
pub(crate) mod replay;
mod saved;
pub(crate) mod trace;
mod watched;

pub(super) use engine::fallback_warnings;

use self::ranks::Ranks;
use super::args::RunArgs;
use super::interrupt::interrupted;
use super::progress::At;
use super::watch::Watch;
use super::{Outcome, Result, Stop, input, output, partition, whole};
use hloom::arrays::{self, Inputs};
use hloom::compiler::{CompileOptions, CompileReport, Effort};
use hloom::cpu::Prewarm;
use hloom::eval::DeviceGrid;
use hloom::execute::{choose_devices, run_on};
use hloom::formats::proto::Snapshot;
use hloom::global::Global;
use hloom::ir::diagnostic::Diagnostic;
use hloom::ir::entity::EntityId;
use hloom::ir::module::Module;
use hloom::ir::verify::VerifiedModule;
use hloom::value::{Array, ExecutionError, Value};
use hloom::{Engine, Verified};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) fn run(args: &RunArgs) -> Result {
    match hloom::comm::launched() {
        Some(process) => ranks::run(args, process),
        None => run_path(args, None),
    }
}

/// For how many devices the program is to be partitioned, if it is about whole arrays.
fn whole_devices(args: &RunArgs, verified: &Verified) -> Result<Option<i64>> {
    let (module, asked) = (verified.module.module(), args.devices.map(i64::from));
    let devices = match (args.per_device, args.global) {
        (true, _) => None,
        (_, true) => Some(partition::devices(module, asked)?).filter(|&n| n > 1),
        _ => whole::devices(module, asked)?,
    };
    if devices.is_some() && !args.global && args.input.as_deref().is_some_and(arrays::names_devices) {
        output::inform("the arrays are named by devices: the program is run as that of one device\n");
        return Ok(None);
    }
    Ok(devices)
}

fn run_path(args: &RunArgs, ranks: Option<&Ranks>) -> Result {
    match hloom::paths::to_path(&args.file).is_dir() {
        true => folder::run(args, ranks),
        false => run_file(args, ranks),
    }
}

fn run_file(args: &RunArgs, ranks: Option<&Ranks>) -> Result {
    let saved = saved::open(args)?;
    // Makes the compiler ready while the program and its arguments are read; what is compiled already needs none.
    let _prewarm = (saved.is_none() && args.engine == Engine::Cpu).then(|| Prewarm::begin(Effort::Full));
    let (verified, saved) = match saved {
        Some((verified, saved)) => (verified, saved),
        None => (load(args)?, None),
    };
    let (verified, global) = match whole_devices(args, &verified)? {
        Some(devices) if saved.is_none() => {
            let (verified, global) = whole::partitioned(verified, devices)?;
            (verified, Some(global))
        }
        _ => (verified, None),
    };
    let run = Run { args, verified: &verified, saved, snapshot: None, global: global.as_ref(), ranks };
    let mut grid = match &run.saved {
        Some(saved) => saved.executable.compiled().grid,
        None => run.devices()?,
    };
    let snapshot = replay::snapshot(&verified).map_err(|errors| run.fail(errors))?;
    if let (Some(snapshot), None) = (&snapshot, args.devices) {
        grid = replay::snapshot_grid(snapshot, grid);
    }
    let run = Run { snapshot: snapshot.as_ref(), ..run };
    let inputs = run.inputs(grid)?;
    match args.bench {
        Some(count) => run.bench(grid, inputs, count),
        None => run.once(grid, inputs),
    }
}

fn load(args: &RunArgs) -> Result<Verified> {
    let devices = args.devices.map(i64::from);
    let loaded = input::read(&args.file, None).map_err(|r| input::show_rejected(&r))?;
    let verified = input::verify_as(loaded, devices, args.precision).map_err(|r| input::show_rejected(&r))?;
    output::show(&verified.source, Some(verified.module.module()), &verified.diagnostics);
    Ok(verified)
}

struct Run<'a> {
    args: &'a RunArgs,
    verified: &'a Verified,
    /// What was compiled already.
    saved: Option<saved::Saved>,
    /// What the file holds besides the program, if it is a snapshot.
    snapshot: Option<&'a Snapshot>,
    /// The program over whole arrays that `verified` is one device's part of.
    global: Option<&'a Global>,
    /// The ranks of the job, if there are several.
    ranks: Option<&'a Ranks>,
}

/// The arguments that `args` name, for the program that was read.
pub(crate) fn loaded_inputs(args: &RunArgs, verified: &Verified, grid: DeviceGrid) -> Result<Inputs> {
    let run = Run { args, verified, saved: None, snapshot: None, global: None, ranks: None };
    let snapshot = replay::snapshot(verified).map_err(|errors| run.fail(errors))?;
    Run { snapshot: snapshot.as_ref(), ..run }.inputs(grid)
}

/// The results of a program made of the one that is run, by the engine that was asked for.
fn by_engine(run: &Run<'_>, program: &VerifiedModule, grid: DeviceGrid, inputs: &Inputs) -> Option<Vec<Value>> {
    let client = run.args.engine.client(None).ok()?;
    run_on(&*client, program, &CompileOptions::new(grid), inputs.clone()).ok()
}

/// What timed runs gave.
struct Timed {
    compile: Duration,
    /// From the start of the process to the executable, if it was compiled already.
    load: Option<Duration>,
    runs: Vec<Duration>,
    report: CompileReport,
    results: Vec<Value>,
}

impl Run<'_> {
    fn module(&self) -> &Module {
        self.verified.module.module()
    }

    /// Says what is wrong; the exit status says whose fault it is.
    fn fail(&self, diagnostics: Vec<Diagnostic>) -> Stop {
        output::show(&self.verified.source, Some(self.module()), &diagnostics);
        Stop(Outcome::of(&diagnostics))
    }

    /// Says why a run did not come to its end.
    fn failed(&self, fault: ExecutionError) -> Stop {
        match self.ranks {
            Some(ranks) => self.fail(vec![ranks.explain(fault).into_diagnostic()]),
            None if interrupted().load(Ordering::Relaxed) => {
                output::to_stderr("interrupted\n");
                Stop(Outcome::InputAtFault)
            }
            None => self.fail(vec![fault.into_diagnostic()]),
        }
    }

    /// The devices that the program runs on; why, where neither it nor the command line says.
    fn devices(&self) -> Result<DeviceGrid> {
        let in_input = self.args.input.as_deref().and_then(arrays::ArrayFile::open);
        let in_input = in_input.and_then(|f| arrays::devices_named(&f));
        let asked = self.args.devices.map(|n| n as usize);
        let mut chosen = choose_devices(self.module(), asked, in_input).map_err(|d| self.fail(vec![d]))?;
        if let (Some(ranks), 1, None) = (self.ranks, chosen.grid.devices(), asked) {
            chosen = choose_devices(self.module(), Some(ranks.size()), None).map_err(|d| self.fail(vec![d]))?;
        }
        if let Some(reason) = &chosen.reason {
            output::inform(&format!("{}: {reason}\n", self.verified.source.name));
        }
        Ok(chosen.grid)
    }

    fn inputs(&self, grid: DeviceGrid) -> Result<Inputs> {
        let Some(global) = self.global else { return self.given(self.module(), grid) };
        let one = DeviceGrid { replicas: 1, partitions: 1 };
        let whole = self.given(&global.source, one)?.into_iter().next().unwrap_or_default();
        global.cut_inputs(&whole).map_err(|e| self.failed(e))
    }

    /// The results with their names.
    fn named(&self, results: &[Value]) -> Result<Vec<(String, Array)>> {
        match self.global {
            Some(global) => {
                let wholes = global.join_outputs(results).map_err(|e| self.failed(e))?;
                Ok(wholes.into_iter().map(|(n, a)| (format!("o{n}"), a)).collect())
            }
            None => Ok(arrays::outputs(results).into_iter().map(|(name, a)| (name, a.clone())).collect()),
        }
    }

    /// The arguments that a module takes on each device of a grid, as they are given.
    fn given(&self, module: &Module, grid: DeviceGrid) -> Result<Inputs> {
        let scalars = self.scalars()?;
        if let Some(path) = &self.args.input {
            let failed = |errors| self.fail(errors);
            let seed = self.args.seed;
            if let Some(file) = arrays::ArrayFile::open(path) {
                return arrays::gather(module, grid, Some((path, &file)), &scalars, seed).map_err(failed);
            }
            let bytes = hloom::load::read_bytes(path).map_err(|r| input::show_rejected(&r))?;
            return arrays::gather(module, grid, Some((path, &bytes[..])), &scalars, seed).map_err(failed);
        }
        if let (Some(snapshot), None) = (self.snapshot, self.args.seed) {
            return replay::snapshot_inputs(self, snapshot, grid);
        }
        let needs = module.entry().is_some_and(|entry| !module.parameters(entry).is_empty());
        if !scalars.is_empty() {
            let none: Option<(&str, &[u8])> = None;
            return arrays::gather(module, grid, none, &scalars, self.args.seed).map_err(|errors| self.fail(errors));
        }
        if needs && self.args.seed.is_none() {
            return Err(super::usage_error(
                "the program has parameters: give them with --input FILE.npz or --fill p0=1.5, or --seed N to make them up",
            ));
        }
        arrays::from_seed(module, grid, self.args.seed.unwrap_or(0)).map_err(|d| self.fail(vec![d]))
    }

    /// The numbers on the command line, with the names of the parameters that they fill.
    fn scalars(&self) -> Result<Vec<(String, String)>> {
        let pair = |text: &String| match text.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(super::usage_error(&format!("--fill takes a name and a number, as in p0=1.5, not {text}"))),
        };
        self.args.fill.iter().map(pair).collect()
    }

    /// The results of all devices, where they are to be written; `None` on ranks that have nothing more to do.
    fn collected(&self, grid: DeviceGrid, results: Vec<Value>) -> Result<Option<Vec<Value>>> {
        match self.ranks {
            Some(ranks) if self.args.output_per_rank => {
                let path = ranks.own_path(self.args.output.as_deref().unwrap_or_default());
                output::to_path(&path, &arrays::to_npz(&ranks.named(grid, &results)))?;
                Ok(None)
            }
            Some(ranks) => ranks.collect(grid, results),
            None => Ok(Some(results)),
        }
    }

    /// Runs once with everything that was asked for, and gives the results.
    fn once(&self, grid: DeviceGrid, inputs: Inputs) -> Result {
        let expected =
            replay::Expected::read(self.module(), self.args).map_err(|message| super::usage_error(&message))?;
        if self.ranks.is_some() {
            ranks::check_supported(self.args)?;
        }
        let watch = Watch::new(self.module(), self.args, &expected).map_err(|message| super::usage_error(&message))?;
        let kept = (self.args.snapshot.is_some() || self.args.compare_with.is_some()).then(|| inputs.clone());
        let begun = Instant::now();
        let engine = self.args.engine;
        let results = match watch.observer() {
            None => engine::once(self, grid, inputs)?,
            Some(_) if engine == Engine::Eval => watched::execute(self, grid, inputs, &watch)?,
            // Values are watched where every one of them is made, in the evaluator; what is watched is not changed by it.
            Some(_) => {
                watched::execute(self, grid, inputs.clone(), &watch)?;
                output::to_stderr(&format!(
                    "values are watched in the evaluator; the results are those of engine {}\n",
                    engine.name()
                ));
                engine::once(self, grid, inputs)?
            }
        };
        let elapsed = begun.elapsed();
        watch.report()?;
        let Some(results) = self.collected(grid, results)? else { return Ok(Outcome::Well) };
        if let Some(path) = &self.args.output {
            output::to_path(path, &arrays::to_npz(&self.named(&results)?))?;
        }
        if let (Some(path), Some(inputs)) = (&self.args.snapshot, &kept) {
            replay::write(self, path, inputs, &results)?;
        }
        if let Some(snapshot) = self.snapshot.filter(|_| self.args.input.is_none() && self.args.seed.is_none()) {
            replay::compare_with_snapshot(snapshot, &results);
        }
        if let Some(inputs) = &kept {
            replay::compare(self, &expected, grid, inputs, &results)?;
        }
        if self.args.json {
            output::to_stdout(format!("{}\n", summary(engine, grid, &self.named(&results)?, elapsed)).as_bytes())?;
        } else if self.args.output.is_none() {
            output::to_stdout(show_results(&self.named(&results)?).as_bytes())?;
        }
        Ok(Outcome::Well)
    }

    /// Times `count` runs after one to warm up.
    fn bench(&self, grid: DeviceGrid, inputs: Inputs, count: u32) -> Result {
        let mut timed = engine::bench(self, grid, inputs, count)?;
        let Some(results) = self.collected(grid, std::mem::take(&mut timed.results))? else { return Ok(Outcome::Well) };
        if let Some(path) = &self.args.output {
            output::to_path(path, &arrays::to_npz(&self.named(&results)?))?;
        }
        let mut times: Vec<f64> = timed.runs.iter().map(|t| t.as_secs_f64() * 1e3).collect();
        times.sort_by(f64::total_cmp);
        let (compile, devices, engine) = (timed.compile.as_secs_f64() * 1e3, grid.devices(), self.args.engine.name());
        let fastest = times.first().copied().unwrap_or(0.0);
        let median = times.get(times.len() / 2).copied().unwrap_or(0.0);
        let text = match self.args.json {
            true => {
                let mut report = serde_json::json!({
                    "compile_ms": compile,
                    "run_ms": fastest,
                    "run_ms_median": median,
                    "devices": devices,
                    "temp_bytes": timed.report.temp_bytes,
                    "peak_bytes": timed.report.peak_bytes,
                    "native": timed.report.native_share(),
                    "engine": engine,
                });
                if let Some(load) = timed.load {
                    report["load_ms"] = serde_json::json!(load.as_secs_f64() * 1e3);
                }
                format!("{report}\n")
            }
            false => format!(
                "compile {compile:.3} ms, run {fastest:.3} ms (median {median:.3} ms of {count}), {devices} devices, \
                 engine {engine}\n"
            ),
        };
        output::to_stdout(text.as_bytes())?;
        Ok(Outcome::Well)
    }
}

/// The instruction of `module` that a run is at.
fn instruction_at(module: &Module, at: &AtomicU32) -> At {
    let index = at.load(Ordering::Relaxed) as usize;
    let name = || module[hloom::ir::entity::InstructionId::from_index(index)].name().to_owned();
    if index < module.instruction_slots() { At::Name(name()) } else { At::Unknown }
}

/// The results' names and shapes as one JSON object.
fn summary(engine: Engine, grid: DeviceGrid, results: &[(String, Array)], elapsed: Duration) -> serde_json::Value {
    let outputs: Vec<_> = results
        .iter()
        .map(|(name, a)| serde_json::json!({ "name": name, "type": a.element_type().name(), "dims": a.dims() }))
        .collect();
    serde_json::json!({
        "engine": engine.name(),
        "devices": grid.devices(),
        "run_ms": elapsed.as_secs_f64() * 1e3,
        "outputs": outputs,
    })
}

/// The results for people: each array with its shape and, if it is small, its elements.
fn show_results(results: &[(String, Array)]) -> String {
    let mut text = String::new();
    for (name, array) in results {
        text.push_str(&format!("{name} = {}\n", super::watch::show_array(array)));
    }
    text
}
