//! `hloom opt --passes` with stages of the pipeline for TPU-like machines: each runs alone, among passes for every machine.

use super::args::OptArgs;
use super::table::{Align, Table};
use super::{Outcome, Result, Stop, input, json, output, progress, usage_error};
use hloom::engine::registry;
use hloom::execute::choose_devices;
use hloom::formats::hlo_text::{self, PrintOptions};
use hloom::ir::diagnostic::{Blame, Diagnostic};
use hloom::ir::verify::VerifiedModule;
use hloom::passes::{Context, optimize};
use hloom::target::{Target, Topology};
use hloom::tpu::{STAGES, Stage, run_stage};

fn stage(name: &str) -> Option<&'static Stage> {
    STAGES.iter().copied().find(|s| s.name == name.trim())
}

/// Whether a stage is among the passes.
pub(crate) fn are_meant(names: &[String]) -> bool {
    names.iter().any(|name| stage(name).is_some())
}

/// All stages, each with what it does.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    STAGES.iter().map(|s| (s.name, s.statement))
}

pub(crate) fn run(args: &OptArgs, file: &str, names: &[String]) -> Result {
    let target = input::target(&args.target)?;
    if target.windows.is_none() {
        let name = names.iter().find(|n| stage(n).is_some()).map_or("", |n| n.trim());
        let message =
            format!("`{name}` is a stage for TPU-like machines, which {} is not; `--target` names one", target.name);
        return Err(usage_error(&message));
    }
    let verified = input::load_verified(file)?;
    let devices = choose_devices(verified.module.module(), None, None).map_err(|d| say(&[d]))?.grid.devices();
    let topology = target.usual_topology(devices);
    if let Some(folder) = &args.dump_after_each {
        output::make_folder(folder)?;
    }
    let mut module = verified.module;
    let mut done: Vec<(String, usize)> = Vec::new();
    for name in names.iter().map(|n| n.trim()) {
        let changes;
        (module, changes) = {
            let _progress = progress::start(format!("{name} of {}", verified.source.name));
            one(name, module, &target, topology.clone())?
        };
        done.push((name.to_owned(), changes));
        if let Some(folder) = &args.dump_after_each {
            output::to_path(&format!("{folder}/{:03}.{name}.hlo", done.len()), text(&module).as_bytes())?;
        }
    }
    if args.report {
        output::to_stderr(&report(&done, args.json));
    }
    output::to_path(args.output.as_deref().unwrap_or("-"), text(&module).as_bytes())?;
    Ok(Outcome::Well)
}

/// The module after one stage or pass, and how many changes that made.
fn one(name: &str, module: VerifiedModule, target: &Target, topology: Topology) -> Result<(VerifiedModule, usize)> {
    if let Some(stage) = stage(name) {
        return run_stage(stage, module, target, topology).map_err(|d| say(&[d]));
    }
    let list = registry().list([name]).map_err(|d| {
        say(&[d]);
        Stop(Outcome::UsageAtFault)
    })?;
    let optimized = optimize(module, &list, &Context { info: target }, None).map_err(|f| say(&f.diagnostics))?;
    let changes = optimized.report.changes();
    Ok((optimized.module, changes))
}

fn text(module: &VerifiedModule) -> String {
    hlo_text::print(module.module(), &PrintOptions { elide_constants: false })
}

fn report(done: &[(String, usize)], as_json: bool) -> String {
    if as_json {
        let pass = |(name, changes): &(String, usize)| serde_json::json!({ "pass": name, "changes": changes });
        return json::to_line(&serde_json::json!({ "passes": done.iter().map(pass).collect::<Vec<_>>() }));
    }
    let mut table = Table::new(&[("pass", Align::Left), ("changes", Align::Right)]);
    for (name, changes) in done {
        table.row([name.clone(), changes.to_string()]);
    }
    table.render()
}

/// Says what is wrong. The module is no longer the one in the file, so there is no text to point at.
fn say(diagnostics: &[Diagnostic]) -> Stop {
    for diagnostic in diagnostics {
        output::to_stderr(&format!("{diagnostic}\n"));
        diagnostic.notes.iter().for_each(|n| output::to_stderr(&format!("  {}\n", n.message)));
    }
    let ours = diagnostics.iter().any(|d| d.blame == Blame::Hloom);
    Stop(if ours { Outcome::Bug } else { Outcome::InputAtFault })
}
