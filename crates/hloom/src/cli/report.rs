//! `hloom report`: a page about a module, about two of them side by side, or an index of many.

mod index;

use super::args::ReportArgs;
use super::memory::planned::{PlanOptions, with_plan};
use super::{Outcome, Result, Stop, input, output, progress, usage_error};
use hloom::Verified;
use hloom::ir::module::Module;
use hloom::ir::op::Op;
use hloom::ir::shape::Shape;
use hloom::ir::verify::{VerifyOptions, verify};
use hloom::load::read_bytes;
use hloom::plan::Packer;
use hloom::report::memory::MemoryReport;
use hloom::report::page::{self, Subject};
use hloom::report::timeline::Timeline;
use hloom::target::Target;
use std::path::Path;

pub(crate) fn run(args: &ReportArgs) -> Result {
    let is_many = args.files.len() > 2 || args.files.iter().any(|f| Path::new(f).is_dir());
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
fn with_subject<T>(args: &ReportArgs, file: &str, number: usize, then: impl FnOnce(&Subject<'_>) -> T) -> Result<T> {
    let verified = input::load_verified(file)?;
    let timeline = args.trace.get(number).map(|path| timeline(path, verified.module.module())).transpose()?;
    let target = target(args, verified.module.module())?;
    Ok(with_memory(verified, &target, timeline.as_ref(), then))
}

/// Plans the memory of a module, if that can be done, and gives the module to `then` as it was read.
fn with_memory<T>(
    verified: Verified,
    target: &Target,
    timeline: Option<&Timeline>,
    then: impl FnOnce(&Subject<'_>) -> T,
) -> T {
    // To plan its memory a module may be given copies and a schedule; what is shown is the module as it is.
    let copy = verify(verified.module.module().clone(), &VerifyOptions { devices: None });
    let (module, file) = (verified.module, verified.source.name.clone());
    let copy = match copy {
        Ok(module) => Verified { source: verified.source, module, diagnostics: Vec::new() },
        // It was verified by the same rules before.
        Err(_) => {
            let memory = Err("it could not be copied".to_owned());
            return then(&Subject { module: &module, file: &file, memory, timeline });
        }
    };
    let mut then = Some(then);
    let options = PlanOptions { schedule: None, packer: Packer::Reference };
    let done = with_plan(copy, target, options, |planned| {
        let memory = MemoryReport::new(&planned.verified.module, planned.plan, target);
        let _progress = progress::start(format!("writing about {file}"));
        let subject = Subject { module: &module, file: &file, memory: Ok(&memory), timeline };
        then.take().map(|then| then(&subject))
    });
    match (done, then) {
        (Ok(Some(done)), _) => done,
        (Err(rejected), Some(then)) => {
            let reason = rejected.diagnostics.first().map_or_else(String::new, |d| d.message.clone());
            then(&Subject { module: &module, file: &file, memory: Err(reason), timeline })
        }
        // What is planned is given to `then` once, and what is not planned is not.
        _ => unreachable!("a module is planned or rejected"),
    }
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

/// The machine that was asked for, or that the module looks made for.
fn target(args: &ReportArgs, module: &Module) -> Result<Target> {
    match &args.target {
        Some(name) => input::target(name),
        None => input::target(likely_target(module)),
    }
}

/// Tiled layouts are TPUs', library calls of that kind GPUs'.
fn likely_target(module: &Module) -> &'static str {
    let all = || module.computations().iter().flat_map(|&c| module[c].instructions()).map(|&id| &module[id]);
    let is_tiled = |shape: &Shape| {
        let layout = shape.as_array().and_then(|a| a.layout.as_ref());
        layout.is_some_and(|l| !l.tiles.is_empty())
    };
    if all().any(|i| is_tiled(&i.shape)) {
        return "tpu-v6e";
    }
    let for_gpus = ["__cublas$", "__cudnn$", "__triton", "cu_threefry2x32", "__cub$"];
    let is_gpu_call =
        |op: &Op| matches!(op, Op::CustomCall(call) if for_gpus.iter().any(|prefix| call.target.starts_with(prefix)));
    let is_gpu_config = |config: &[u8]| {
        let found = |word: &[u8]| config.windows(word.len()).any(|w| w == word);
        found(b"\"fusion_backend_config\"") || found(b"\"force_earliest_schedule\"")
    };
    let is_gpu = all().any(|i| is_gpu_call(&i.op) || i.common.backend_config.as_deref().is_some_and(is_gpu_config));
    if is_gpu { "gpu-h100" } else { "cpu" }
}
