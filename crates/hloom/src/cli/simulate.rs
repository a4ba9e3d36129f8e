//! `hloom simulate`: how long a program takes on a machine, what bounds it, and what if the machine were another.

mod json;
mod page;
mod sweep;
mod text;
mod trace;

use super::args::{CyclesArg, SimulateArgs};
use super::compile::{self, tpu};
use super::report::of_simulation;
use super::words::plural;
use super::{Outcome, Result, Stop, input, output, progress, usage_error, whole};
use hloom::cost::CustomCost;
use hloom::execute::choose_devices;
use hloom::ir::diagnostic::codes::plan::NOT_SCHEDULED;
use hloom::ir::diagnostic::codes::simulate::MEMORY_EXCEEDED;
use hloom::ir::diagnostic::{Diagnostic, Place};
use hloom::ir::module::Module;
use hloom::ir::op::Op;
use hloom::simulate::{CycleSource, Options, Simulation, prepare, simulate};
use hloom::target::{Recognized, Target, Topology, recognize};
use hloom::{Loaded, Verified};

pub(crate) fn run(args: &SimulateArgs) -> Result {
    let options = options(args)?;
    if args.sweep.is_some() {
        return sweep::run(args, &options);
    }
    let first = one(args, &args.file, &options)?;
    let mut outcome = first.outcome();
    let text = match &args.other {
        Some(other) => {
            let second = one(args, other, &options)?;
            outcome = outcome.max(second.outcome());
            match args.json {
                true => json::comparison(&first, &second),
                false => text::comparison(&first, &second),
            }
        }
        None if args.json => json::to_json(&first),
        None => text::report(&first),
    };
    if let Some(path) = &args.trace {
        output::to_path(path, trace::to_json(&first).as_bytes())?;
    }
    output::to_stdout(text.as_bytes())?;
    if let Some(path) = &args.html {
        let page = of_simulation(first.verified, &first.target, &first.simulation);
        output::to_path(path, page.as_bytes())?;
    }
    Ok(outcome)
}

/// A program and how its run was simulated.
pub(crate) struct Simulated {
    file: String,
    verified: Verified,
    target: Target,
    simulation: Simulation,
}

impl Simulated {
    fn module(&self) -> &Module {
        self.verified.module.module()
    }

    /// A program that does not fit is simulated all the same, and is at fault.
    fn outcome(&self) -> Outcome {
        match self.simulation.warnings.iter().any(|w| w.code == &MEMORY_EXCEEDED) {
            true => Outcome::InputAtFault,
            false => Outcome::Well,
        }
    }
}

/// Reads and simulates one program; what is wrong with it is shown.
fn one(args: &SimulateArgs, file: &str, options: &Options) -> Result<Simulated> {
    let verified = input::load_verified(file)?;
    let name = match &args.target {
        Some(name) => name.clone(),
        None => input::target_of(None, &verified)?.name,
    };
    let target = machine(args, &name)?;
    tell_other_generation(&verified, &target);
    let verified = prepared(verified, &target, options)?;
    let simulated = {
        let _progress = progress::start(format!("simulating {}", verified.source.name));
        simulate(&verified.module, &target, options)
    };
    let simulation = simulated.map_err(|faults| show(&verified, &faults))?;
    output::show(&verified.source, Some(verified.module.module()), &simulation.warnings);
    Ok(Simulated { file: file.to_owned(), verified, target, simulation })
}

/// Says so if a scheduled module has the form of one for a machine whose products read their operands in another way: what
/// its compiler decided for that machine stays as it is.
fn tell_other_generation(verified: &Verified, target: &Target) {
    let module = verified.module.module();
    if !module.is_scheduled || target.windows.is_none() {
        return;
    }
    if let Recognized::As(own, why) = recognize(module)
        && own.windows.is_some()
        && own.wraps_operands != target.wraps_operands
    {
        let (name, own) = (&verified.source.name, &own.name);
        let told = format!("{name}: it looks like a module for {own} ({why}); on {} it runs as it is\n", target.name);
        output::inform(&told);
    }
}

/// The machine of that name, with the changes that are asked for.
fn machine(args: &SimulateArgs, name: &str) -> Result<Target> {
    let mut description = input::described(name)?;
    for change in &args.set {
        let (key, value) = change
            .split_once('=')
            .ok_or_else(|| usage_error(&format!("`--set {change}`: it is written KEY=VALUE, as hbm_bandwidth=2x")))?;
        description
            .set(key.trim(), value.trim())
            .map_err(|fault| usage_error(&format!("`--set`: {}", fault.message)))?;
    }
    description.target().map_err(|fault| input::bad_target(name, &fault))
}

fn show(verified: &Verified, faults: &[Diagnostic]) -> Stop {
    output::show(&verified.source, Some(verified.module.module()), faults);
    Stop(Outcome::InputAtFault)
}

/// The module with a schedule: a program that has none is compiled for the machine, a dump whose compiler has fused it
/// already stays as it is but for the schedule. What was done is told.
fn prepared(verified: Verified, target: &Target, options: &Options) -> Result<Verified> {
    if verified.module.module().is_scheduled {
        return Ok(verified);
    }
    let topology = options.topology.as_ref();
    let asked = topology.map(|t| t.devices() as i64);
    let verified = match target.windows.is_some() {
        true => whole::local_as_in_dumps(verified, asked)?,
        false => whole::local(verified, asked)?,
    };
    // The cycles that a dump carries are asked for: those of another compilation are not meant.
    if options.cycles == CycleSource::Dump || is_fused(verified.module.module()) {
        return scheduled_only(verified, target);
    }
    let compiled = if target.windows.is_some() {
        let devices = choose_devices(verified.module.module(), None, None).map_err(|d| show(&verified, &[d]))?;
        let topology = topology.cloned().unwrap_or_else(|| target.usual_topology(devices.grid.devices()));
        tpu::scheduled(verified, target, topology)?
    } else {
        compile::scheduled(verified, target)?
    };
    let message = format!("the module has no schedule; it was compiled for {}", target.name);
    output::show(&compiled.source, None, &[Diagnostic::warning(&NOT_SCHEDULED, message)]);
    Ok(compiled)
}

/// Whether a compiler has been at work.
fn is_fused(module: &Module) -> bool {
    let mut all = module.computations().iter().flat_map(|&c| module[c].instructions());
    all.any(|&i| matches!(module[i].op, Op::Fusion(_)))
}

/// The module as it is but for a schedule that keeps little memory live, and the copies that its memory needs.
fn scheduled_only(verified: Verified, target: &Target) -> Result<Verified> {
    let Verified { source, module, diagnostics } = verified;
    let mut module = module.into_module();
    let done = {
        let _progress = progress::start(format!("scheduling {}", source.name));
        prepare(&mut module, target)
    };
    let done = done.map_err(|faults| {
        output::show(&source, Some(&module), &faults);
        Stop(Outcome::InputAtFault)
    })?;
    let mut message = "the module has no schedule; it was scheduled for little memory".to_owned();
    if done.copies > 0 {
        message += &format!(", with {} added for its memory", plural(done.copies, "instruction"));
    }
    output::show(&source, Some(&module), &[Diagnostic::warning(&NOT_SCHEDULED, message).at_place(Place::Header)]);
    input::verify(Loaded { source, module, diagnostics }, None).map_err(|r| input::show_rejected(&r))
}

fn options(args: &SimulateArgs) -> Result<Options> {
    let topology = args.topology.as_deref().map(topology).transpose()?;
    let pair = |option: &str, text: &str| -> Result<(String, String)> {
        let split = text.rsplit_once('=').map(|(a, b)| (a.trim().to_owned(), b.trim().to_owned()));
        split.ok_or_else(|| usage_error(&format!("`{option} {text}`: it is written NAME=VALUE")))
    };
    let mut costs = Vec::new();
    for given in &args.cost {
        let (name, value) = pair("--cost", given)?;
        let cost = CustomCost::parse(&value).ok_or_else(|| {
            usage_error(&format!("`--cost {given}`: a cost is 12us, 1.5ms, 3e6cycles, 1e12flops, memory or attention"))
        })?;
        costs.push((name, cost));
    }
    let mut trip_counts = Vec::new();
    for given in &args.trip_count {
        let (name, value) = pair("--trip-count", given)?;
        let trips =
            value.parse().map_err(|_| usage_error(&format!("`--trip-count {given}`: `{value}` is no number")))?;
        trip_counts.push((name, trips));
    }
    let cycles = match args.cycles {
        CyclesArg::Model => CycleSource::Model,
        CyclesArg::Dump => CycleSource::Dump,
    };
    Ok(Options { topology, cycles, costs, trip_counts })
}

fn topology(text: &str) -> Result<Topology> {
    Topology::parse(text).map_err(|fault| usage_error(&fault.message))
}
