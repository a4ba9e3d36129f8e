//! `hloom run`: a program on virtual devices, arrays in and out.

use super::args::RunArgs;
use super::progress::{self, At};
use super::watch::Watch;
use super::{Outcome, Result, Stop, input, output};
use hloom::arrays::{self, Inputs};
use hloom::eval::{DeviceGrid, Options, Value};
use hloom::execute::device_grid;
use hloom::ir::diagnostic::{Blame, Diagnostic};
use hloom::ir::entity::EntityId;
use hloom::ir::module::Module;
use hloom::{Verified, load};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) fn run(args: &RunArgs) -> Result {
    let devices = args.devices.map(i64::from);
    let loaded = input::read(&args.file, None).map_err(|r| input::show_rejected(&r))?;
    let verified = input::verify(loaded, devices).map_err(|r| input::show_rejected(&r))?;
    output::show(&verified.source, Some(verified.module.module()), &verified.diagnostics);
    let run = Run { args, verified: &verified };
    let module = verified.module.module();
    let grid = device_grid(module, args.devices.map(|n| n as usize)).map_err(|d| run.fail(vec![d]))?;
    let inputs = run.inputs(grid)?;
    match args.bench {
        Some(count) => run.bench(grid, &inputs, count),
        None => run.once(grid, inputs),
    }
}

struct Run<'a> {
    args: &'a RunArgs,
    verified: &'a Verified,
}

impl Run<'_> {
    fn module(&self) -> &Module {
        self.verified.module.module()
    }

    /// Says what is wrong; the exit status says whose fault it is.
    fn fail(&self, diagnostics: Vec<Diagnostic>) -> Stop {
        let bug = diagnostics.iter().any(|d| d.blame == Blame::Hloom);
        output::show(&self.verified.source, Some(self.module()), &diagnostics);
        Stop(if bug { Outcome::Bug } else { Outcome::InputAtFault })
    }

    fn inputs(&self, grid: DeviceGrid) -> Result<Inputs> {
        let module = self.module();
        if let Some(path) = &self.args.input {
            let file = load::read_bytes(path).map_err(|r| input::show_rejected(&r))?;
            return arrays::from_npz(module, grid, &file).map_err(|errors| self.fail(errors));
        }
        let needs = module.entry().is_some_and(|entry| !module.parameters(entry).is_empty());
        if needs && self.args.seed.is_none() {
            return Err(super::usage_error(
                "the program has parameters: give them with --input FILE.npz, or --seed N to make them up",
            ));
        }
        arrays::from_seed(module, grid, self.args.seed.unwrap_or(0)).map_err(|d| self.fail(vec![d]))
    }

    /// Runs once with everything that was asked for, and gives the results.
    fn once(&self, grid: DeviceGrid, inputs: Inputs) -> Result {
        let watch = Watch::new(self.module(), self.args).map_err(|message| super::usage_error(&message))?;
        let begun = Instant::now();
        let results = self.execute(grid, inputs, Some(&watch))?;
        let elapsed = begun.elapsed();
        watch.report()?;
        if let Some(path) = &self.args.output {
            output::to_path(path, &arrays::to_npz(&results))?;
        }
        if self.args.json {
            output::to_stdout(format!("{}\n", self.summary(grid, &results, elapsed)).as_bytes())?;
        } else if self.args.output.is_none() {
            output::to_stdout(show_results(&results).as_bytes())?;
        }
        Ok(Outcome::Well)
    }

    /// The results' names and shapes as one JSON object.
    fn summary(&self, grid: DeviceGrid, results: &[Value], elapsed: Duration) -> serde_json::Value {
        let outputs: Vec<_> = arrays::outputs(results)
            .into_iter()
            .map(|(name, a)| serde_json::json!({ "name": name, "type": a.element_type().name(), "dims": a.dims() }))
            .collect();
        serde_json::json!({
            "engine": "eval",
            "devices": grid.devices(),
            "run_ms": elapsed.as_secs_f64() * 1e3,
            "outputs": outputs,
        })
    }

    fn execute(&self, grid: DeviceGrid, inputs: Inputs, watch: Option<&Watch<'_>>) -> Result<Vec<Value>> {
        let at = AtomicU32::new(u32::MAX);
        let options = Options {
            max_steps: self.args.max_steps,
            fill_constants: self.args.fill_constants,
            time_limit: self.args.time_limit.map(Duration::from_secs),
            observer: watch.and_then(Watch::observer),
            cancel: Some(interrupted()),
            progress: Some(&at),
            ..Options::default()
        };
        let names = || {
            let module = self.module();
            let index = at.load(Ordering::Relaxed) as usize;
            let known = index < module.instruction_slots();
            let name = || module[hloom::ir::entity::InstructionId::from_index(index)].name().to_owned();
            if known { At::Name(name()) } else { At::Unknown }
        };
        let result =
            progress::follow("running", names, || hloom::eval::run(&self.verified.module, grid, inputs, &options));
        result.map_err(|fault| {
            if interrupted().load(Ordering::Relaxed) {
                output::to_stderr("interrupted\n");
                return Stop(Outcome::InputAtFault);
            }
            self.fail(vec![fault.into_diagnostic()])
        })
    }

    /// Times `count` runs after one to warm up.
    fn bench(&self, grid: DeviceGrid, inputs: &Inputs, count: u32) -> Result {
        let begun = Instant::now();
        let plan = hloom::eval::plan::Plan::new(self.module());
        let compile = begun.elapsed();
        drop(plan);
        self.execute(grid, inputs.clone(), None)?;
        let mut times = Vec::new();
        for _ in 0..count {
            let fresh = inputs.clone();
            let begun = Instant::now();
            let results = self.execute(grid, fresh, None)?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            drop(results);
        }
        times.sort_by(f64::total_cmp);
        let report = serde_json::json!({
            "compile_ms": compile.as_secs_f64() * 1e3,
            "run_ms": times.first().copied().unwrap_or(0.0),
            "run_ms_median": times.get(times.len() / 2).copied().unwrap_or(0.0),
            "devices": grid.devices(),
            "temp_bytes": 0,
            "engine": "eval",
        });
        if self.args.json {
            output::to_stdout(format!("{report}\n").as_bytes())?;
        } else {
            let text = format!(
                "compile {:.3} ms, run {:.3} ms (median {:.3} ms of {count}), {} devices, engine eval\n",
                report["compile_ms"].as_f64().unwrap_or(0.0),
                report["run_ms"].as_f64().unwrap_or(0.0),
                report["run_ms_median"].as_f64().unwrap_or(0.0),
                grid.devices(),
            );
            output::to_stdout(text.as_bytes())?;
        }
        Ok(Outcome::Well)
    }
}

/// Is raised by Ctrl-C.
fn interrupted() -> &'static AtomicBool {
    static INTERRUPTED: AtomicBool = AtomicBool::new(false);
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // Without a handler Ctrl-C ends the process at once, which is well enough.
        let _ = ctrlc::set_handler(|| {
            // A second one does not wait for the run to notice the first.
            if INTERRUPTED.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        });
    });
    &INTERRUPTED
}

/// The results for people: each array with its shape and, if it is small, its elements.
fn show_results(results: &[Value]) -> String {
    let mut text = String::new();
    for (name, array) in arrays::outputs(results) {
        text.push_str(&format!("{name} = {}\n", super::watch::show_array(array)));
    }
    text
}
