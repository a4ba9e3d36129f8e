//! `hloom compile` for TPU-like machines: the scheduled module, or the memory of it.

use super::super::args::CompileArgs;
use super::super::{Outcome, Result, Stop, input, output, progress, usage_error, whole};
use super::fail;
use hloom::compiler::Emit;
use hloom::execute::choose_devices;
use hloom::formats::hlo_text::{self, PrintOptions};
use hloom::ir::diagnostic::Diagnostic;
use hloom::ir::module::Module;
use hloom::ir::verify::{VerifyOptions, verify};
use hloom::load::Format;
use hloom::passes::Pass;
use hloom::plan::check::{Assignment, check};
use hloom::plan::dump::{Part, dump_a, dump_b};
use hloom::plan::plan;
use hloom::target::{DumpDialect, Target, Topology};
use hloom::tpu::{compile_to_schedule, compile_with};
use hloom::{Source, Verified};

const PRINT: PrintOptions = PrintOptions { elide_constants: false };

pub(super) fn run(args: &CompileArgs, target: &Target) -> Result {
    let form = args.emit.map_or(Emit::Schedule, |e| e.0);
    if !matches!(form, Emit::Schedule | Emit::Memory) {
        let message = format!("for {} a schedule is made, or the memory of it, not {}", target.name, form.name());
        return Err(usage_error(&message));
    }
    let topology = args.topology.as_deref().map(Topology::parse).transpose().map_err(|d| usage_error(&d.message))?;
    let asked = args.devices.map(i64::from).or(topology.as_ref().map(|t| t.devices() as i64));
    let verified = input::load_verified_as(&args.file, args.precision)?;
    let verified = free_layouts(whole::local_as_in_dumps(verified, asked)?)?;
    let chosen = choose_devices(verified.module.module(), args.devices.map(|n| n as usize), None);
    let devices = chosen.map_err(|d| fail(&verified, vec![d]))?.grid.devices();
    let topology = match topology {
        Some(topology) if devices > 1 && topology.devices() != devices => {
            let message = format!("the program is for {devices} devices, the topology is of {}", topology.devices());
            return Err(usage_error(&message));
        }
        Some(topology) => topology,
        None => target.usual_topology(devices),
    };
    if let Some(folder) = &args.dump_after_each {
        output::make_folder(folder)?;
    }
    let mut stopped = None;
    let mut count = 0;
    let mut watch = |pass: &'static Pass, module: &Module| {
        if let (Some(folder), None) = (&args.dump_after_each, &stopped) {
            count += 1;
            let path = format!("{folder}/{count:03}.{}.hlo", pass.name);
            stopped = output::to_path(&path, hlo_text::print(module, &PRINT).as_bytes()).err();
        }
    };
    let compiled = {
        let _progress = progress::start(format!("compiling {}", verified.source.name));
        compile_with(&verified.module, target, topology, Some(&mut watch))
    };
    if let Some(stop) = stopped {
        return Err(stop);
    }
    let compiled = compiled.map_err(|faults| failed(&faults))?;
    let text = match form {
        Emit::Memory => {
            let planned = plan(&compiled, target).map_err(|faults| failed(&faults))?;
            let faults = check(&compiled, target, &Assignment::from(&planned));
            if !faults.is_empty() {
                return Err(failed(&faults));
            }
            match target.dialect {
                DumpDialect::A => dump_a(&planned, target),
                DumpDialect::B => dump_b(&planned, target, Part::Allocations),
            }
        }
        _ => hlo_text::print(compiled.module(), &PRINT),
    };
    output::to_path(args.output.as_deref().unwrap_or("-"), text.as_bytes())?;
    Ok(Outcome::Well)
}

/// The program without layouts of arguments and results where its format does not say how they lie: StableHLO leaves them
/// to the machine's compiler.
fn free_layouts(verified: Verified) -> Result<Verified> {
    if !matches!(verified.source.format, Format::StableHlo | Format::StableHloBytecode) {
        return Ok(verified);
    }
    let Verified { source, module, diagnostics } = verified;
    let mut module = module.into_module();
    module.config.entry_layout = None;
    let module = verify(module, &VerifyOptions::default()).map_err(|invalid| failed(&invalid.diagnostics))?;
    Ok(Verified { source, module, diagnostics })
}

/// The scheduled module that is made of a program of one device.
pub(in super::super) fn scheduled(verified: Verified, target: &Target, topology: Topology) -> Result<Verified> {
    let Verified { source, module, .. } = free_layouts(verified)?;
    let module = {
        let _progress = progress::start(format!("compiling {}", source.name));
        compile_to_schedule(&module, target, topology).map_err(|faults| failed(&faults))?
    };
    // Its instructions are not those of the text.
    let source = Source { positions: Default::default(), ..source };
    Ok(Verified { source, module, diagnostics: Vec::new() })
}

/// Says what is wrong. The module is no longer the one in the file, so there is no text to point at.
fn failed(faults: &[Diagnostic]) -> Stop {
    for fault in faults {
        output::to_stderr(&format!("{fault}\n"));
        fault.notes.iter().for_each(|n| output::to_stderr(&format!("  {}\n", n.message)));
    }
    Stop(Outcome::of(faults))
}
