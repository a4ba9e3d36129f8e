//! `hloom report`: a page about a module, about two of them side by side, or an index of many.

mod index;

use super::args::ReportArgs;
use super::memory::planned::{PlanOptions, with_plan};
use super::{Outcome, Result, Stop, input, output, progress, usage_error};
use hloom::Verified;
use hloom::ir::diagnostic::Diagnostic;
use hloom::ir::module::Module;
use hloom::ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom::load::read_bytes;
use hloom::paths::to_path;
use hloom::plan::Packer;
use hloom::report::memory::MemoryReport;
use hloom::report::page::{self, Subject};
use hloom::report::timeline::Timeline;
use hloom::simulate::{Options, Simulation, prepare, simulate};
use hloom::target::{Recognized, Target, recognize};

pub(crate) fn run(args: &ReportArgs) -> Result {
    let is_many = args.files.len() > 2 || args.files.iter().any(|f| to_path(f).is_dir());
    if args.trace.len() > args.files.len() || (is_many && !args.trace.is_empty()) {
        return Err(usage_error("--trace is for one module, or for two that are compared, once for each"));
    }
    if args.pages && !is_many {
        return Err(usage_error("--pages is for an index: give a folder, or more than two modules"));
    }
    if is_many {
        return index::run(args);
    }
    let page = match args.files.as_slice() {
        [file] => with_subject(args, file, 0, page::report)?,
        [before, after] => with_subject(args, before, 0, |before| {
            with_subject(args, after, 1, |after| page::comparison(before, after))
        })??,
        _ => return Err(usage_error("at least one module is needed")),
    };
    write(&args.output, &page)?;
    Ok(Outcome::Well)
}

fn write(path: &str, page: &str) -> Result<()> {
    output::to_path(path, page.as_bytes())?;
    if path != "-" {
        output::to_stderr(&format!("wrote {path}\n"));
    }
    Ok(())
}

/// Reads a module and what there is beside it, and gives it to `then`.
fn with_subject<T>(args: &ReportArgs, file: &str, number: usize, then: impl Fn(&Subject<'_>) -> T) -> Result<T> {
    let verified = input::load_verified(file)?;
    let measured = args.trace.get(number).map(|path| timeline(path, verified.module.module())).transpose()?;
    let target = target(args, &verified)?;
    Ok(with_simulation(verified, &target, measured, then))
}

/// The page about a module that was simulated already.
pub(crate) fn of_simulation(verified: Verified, target: &Target, simulation: &Simulation) -> String {
    let module = verified.module.module();
    let timeline = Timeline::from_simulation(simulation, module, module);
    with_memory(verified, target, &[timeline], None, page::report)
}

/// Simulates a module and plans its memory, as far as that can be done, and gives the module to `then` as it was read.
fn with_simulation<T>(
    verified: Verified,
    target: &Target,
    measured: Option<Timeline>,
    then: impl Fn(&Subject<'_>) -> T,
) -> T {
    let (simulated, absent) = match simulated(&verified.module, target) {
        Ok(timeline) => (Some(timeline), None),
        Err(reason) => (None, Some(reason)),
    };
    let timelines: Vec<Timeline> = measured.into_iter().chain(simulated).collect();
    with_memory(verified, target, &timelines, absent.as_deref(), then)
}

/// Plans the memory of a module, if that can be done, and gives the module to `then` as it was read.
fn with_memory<T>(
    verified: Verified,
    target: &Target,
    timelines: &[Timeline],
    simulation_absent: Option<&str>,
    then: impl Fn(&Subject<'_>) -> T,
) -> T {
    let Verified { source, module, .. } = verified;
    let file = source.name.clone();
    let _progress = progress::start(format!("writing about {file}"));
    // To plan its memory a module may be given copies and a schedule; what is shown is the module as it is.
    let copy = Verified { source, module: module.clone(), diagnostics: Vec::new() };
    let options = PlanOptions { schedule: None, packer: Packer::Reference };
    let planned = with_plan(copy, target, options, |planned| {
        let memory = MemoryReport::new(&planned.verified.module, planned.plan, target);
        then(&Subject { module: &module, file: &file, memory: Ok(&memory), timelines, simulation_absent })
    });
    planned.unwrap_or_else(|rejected| {
        let reason = rejected.diagnostics.first().map_or_else(String::new, |d| d.message.clone());
        then(&Subject { module: &module, file: &file, memory: Err(reason), timelines, simulation_absent })
    })
}

/// When the instructions of a module would run on `target`; or why that cannot be told.
fn simulated(module: &VerifiedModule, target: &Target) -> std::result::Result<Timeline, String> {
    let reason = |faults: Vec<Diagnostic>| faults.first().map_or_else(String::new, |d| d.message.clone());
    let scheduled = match module.module().is_scheduled {
        true => None,
        false => {
            let mut copy = module.module().clone();
            prepare(&mut copy, target).map_err(reason)?;
            Some(verify(copy, &VerifyOptions { devices: None }).map_err(|e| reason(e.diagnostics))?)
        }
    };
    let scheduled = scheduled.as_ref().unwrap_or(module);
    let simulation = simulate(scheduled, target, &Options::default()).map_err(reason)?;
    Ok(Timeline::from_simulation(&simulation, scheduled.module(), module.module()))
}

fn timeline(path: &str, module: &Module) -> Result<Timeline> {
    let bytes = read_bytes(path).map_err(|r| input::show_rejected(&r))?;
    let read = Timeline::from_trace_events(&String::from_utf8_lossy(&bytes), module);
    let timeline = read.map_err(|reason| {
        output::to_stderr(&format!("error: `{path}` is no trace: {reason}\n"));
        Stop(Outcome::InputAtFault)
    })?;
    if !timeline.events.iter().any(|e| e.instruction.is_some()) {
        let hint = "it is shown, but nothing in it is an instruction of this module";
        output::to_stderr(&format!("warning: `{path}` is a trace of another program: {hint}\n"));
    }
    Ok(timeline)
}

/// The machine that was asked for, or that the module looks made for, which is then said. Where several fit, the page is
/// about the last of them: whoever reads it can ask for another.
fn target(args: &ReportArgs, verified: &Verified) -> Result<Target> {
    match (&args.target, recognize(verified.module.module())) {
        (None, Recognized::OneOf(what, targets)) => {
            let name = targets.last().copied().unwrap_or("cpu");
            let others = targets.join(", ");
            let file = &verified.source.name;
            output::to_stderr(&format!("{file}: taken for {name}: {what}; --target chooses another of {others}\n"));
            input::target(name)
        }
        (None, Recognized::Nothing) => {
            let file = &verified.source.name;
            output::to_stderr(&format!(
                "{file}: shown for cpu, as nothing in it is another machine's; --target chooses\n"
            ));
            input::target("cpu")
        }
        (asked, _) => input::target_of(asked.as_deref(), verified),
    }
}
