//! `hloom compile`: a module compiled for a machine, as a file to be loaded or as what any stage made.

pub(super) mod tpu;

use super::args::{CompileArgs, EffortArg};
use super::run::fallback_warnings;
use super::{Outcome, Result, Stop, input, output, progress, whole};
use hloom::compiler::{
    Backend, CompileError, CompileOptions, Effort, Emit, ExcessPrecision, compile, emit, emit_compiled, file,
    optimize_for,
};
use hloom::engine::backend_for;
use hloom::execute::choose_devices;
use hloom::ir::diagnostic::Diagnostic;
use hloom::target::Target;
use hloom::{Source, Verified};
use std::time::Instant;

pub(crate) fn run(args: &CompileArgs) -> Result {
    let target = input::target(&args.target)?;
    if target.windows.is_some() {
        return tpu::run(args, &target);
    }
    let backend = backend_of(&target)?;
    let verified = whole::local(input::load_verified_as(&args.file, args.precision)?, args.devices.map(i64::from))?;
    let module = verified.module.module();
    let chosen =
        choose_devices(module, args.devices.map(|n| n as usize), None).map_err(|d| fail(&verified, vec![d]))?;
    if let Some(reason) = &chosen.reason {
        output::to_stderr(&format!("{}: {reason}\n", verified.source.name));
    }
    let grid = chosen.grid;
    let effort = match args.effort {
        EffortArg::Quick => Effort::Quick,
        EffortArg::Full | EffortArg::Best => Effort::Full,
    };
    let options = CompileOptions {
        fill_constants: args.fill_constants,
        effort,
        strict: args.strict,
        excess_precision: args.excess_precision.into(),
        ..CompileOptions::new(grid)
    };
    let failed = |error: CompileError| fail(&verified, error.into_diagnostics(module));
    let to_text = args.output.as_deref().is_some_and(|o| o.ends_with(".hlo") || o.ends_with(".txt"));
    let form = args.emit.map(|e| e.0).or_else(|| (to_text || args.output.is_none()).then_some(Emit::Schedule));
    let begun = Instant::now();
    let nothing = |form: Emit| {
        let (name, backend) = (form.name(), backend.name());
        super::usage_error(&format!("the backend {backend} makes nothing that could be printed as {name}"))
    };
    if form == Some(Emit::Hlo) {
        let text = emit(&*backend, &verified.module, &options, Emit::Hlo).map_err(failed)?;
        let text = text.ok_or_else(|| nothing(Emit::Hlo))?;
        output::to_path(args.output.as_deref().unwrap_or("-"), text.as_bytes())?;
        return Ok(Outcome::Well);
    }
    let compiled = {
        let _progress = progress::start(format!("compiling {}", verified.source.name));
        compile(&*backend, &verified.module, &options).map_err(failed)?
    };
    let compile_ms = begun.elapsed().as_secs_f64() * 1e3;
    let bytes = match form {
        Some(form) => {
            let text = emit_compiled(&*backend, &compiled, form).map_err(failed)?;
            text.ok_or_else(|| nothing(form))?.into_bytes()
        }
        None => file::save(&*backend, &compiled, &verified.module).map_err(failed)?,
    };
    output::to_path(args.output.as_deref().unwrap_or("-"), &bytes)?;
    if args.json {
        let report = serde_json::json!({
            "target": compiled.target,
            "devices": grid.devices(),
            "compile_ms": compile_ms,
            "temp_bytes": compiled.report.temp_bytes,
            "peak_bytes": compiled.report.peak_bytes,
            "native": compiled.report.native_share(),
            "bytes": bytes.len(),
        });
        output::to_stderr(&format!("{report}\n"));
    } else {
        output::inform(&fallback_warnings(&compiled.report));
    }
    Ok(Outcome::Well)
}

/// The scheduled module that the backend for a machine makes of a program of one device.
pub(super) fn scheduled(verified: Verified, target: &Target) -> Result<Verified> {
    let backend = backend_of(target)?;
    let optimized = {
        let _progress = progress::start(format!("compiling {}", verified.source.name));
        optimize_for(&*backend, verified.module.clone(), ExcessPrecision::default(), None)
    };
    let module = optimized.map_err(|e| fail(&verified, e.into_diagnostics(verified.module.module())))?.module;
    // Its instructions are not those of the text.
    let source = Source { positions: Default::default(), ..verified.source };
    Ok(Verified { source, module, diagnostics: Vec::new() })
}

fn backend_of(target: &Target) -> Result<Box<dyn Backend>> {
    backend_for(target).map_err(|d| {
        output::to_stderr(&format!("{d}\n"));
        Stop(Outcome::UsageAtFault)
    })
}

/// Says what is wrong; the exit status says whose fault it is.
fn fail(verified: &Verified, diagnostics: Vec<Diagnostic>) -> Stop {
    output::show(&verified.source, Some(verified.module.module()), &diagnostics);
    Stop(Outcome::of(&diagnostics))
}
