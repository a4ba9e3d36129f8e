//! `hloom opt`: a module after passes; what each did; the module after each.

use super::args::OptArgs;
use super::table::{Align, Table};
use super::{Outcome, Result, Stop, input, json, output, progress, sharding_passes, usage_error};
use hloom::engine::{backend_for, registry};
use hloom::formats::hlo_text::{self, PrintOptions};
use hloom::ir::diagnostic::{Blame, Diagnostic};
use hloom::ir::module::Module;
use hloom::passes::{Context, Failed, Pass, PassReport, PassesReport, TargetInfo, optimize};
use std::time::Duration;

const PRINT: PrintOptions = PrintOptions { elide_constants: false };

pub(crate) fn run(args: &OptArgs) -> Result {
    let Some(file) = &args.file else { return list() };
    if let Some(passes) = args.passes.as_deref().filter(|p| sharding_passes::are_meant(p)) {
        return sharding_passes::run(args, file, passes);
    }
    let target = input::target(&args.target)?;
    let is_tpu_like = target.windows.is_some();
    if let Some(stage) = args.passes.iter().flatten().map(|n| n.trim()).find(|n| !is_tpu_like && is_stage(n)) {
        let message =
            format!("`{stage}` is a stage for TPU-like machines, which {} is not; `--target` names one", target.name);
        return Err(usage_error(&message));
    }
    let at_fault = |d: Diagnostic| Stop(say(&[d], Outcome::UsageAtFault));
    let backend = backend_for(&target);
    let list = match &args.passes {
        Some(names) => registry().list(names.iter().map(|n| n.trim())),
        None if is_tpu_like => hloom::tpu::pipeline(registry()),
        None => backend.as_ref().map_err(Clone::clone).and_then(|b| registry().pipeline(b.pipeline())),
    };
    let list = list.map_err(at_fault)?;
    // A machine without a backend of its own can still be named to single passes.
    let info: &dyn TargetInfo = backend.as_ref().map_or(&target, |b| b.info());
    let verified = input::load_verified(file)?;
    let mut dumps = args.dump_after_each.as_deref().map(Dumps::new).transpose()?;
    let mut stopped = None;
    let mut watch = |pass: &'static Pass, module: &Module| {
        if let (Some(dumps), None) = (&mut dumps, &stopped) {
            stopped = dumps.write(pass.name, module).err();
        }
    };
    let optimized = {
        let _progress = progress::start(format!("optimising {}", verified.source.name));
        optimize(verified.module, &list, &Context { info }, Some(&mut watch))
    };
    if let Some(stop) = stopped {
        return Err(stop);
    }
    let optimized = optimized.map_err(|f| failed(&f))?;
    if args.report {
        let said = if args.json { json::to_line(&as_json(&optimized.report)) } else { report(&optimized.report) };
        output::to_stderr(&said);
    }
    let text = hlo_text::print(optimized.module.module(), &PRINT);
    output::to_path(args.output.as_deref().unwrap_or("-"), text.as_bytes())?;
    Ok(Outcome::Well)
}

fn is_stage(name: &str) -> bool {
    hloom::tpu::STAGES.iter().any(|s| s.name == name)
}

fn list() -> Result {
    let mut table = Table::new(&[("pass", Align::Left), ("what it does", Align::Left)]);
    for pass in registry().all() {
        table.row([pass.name.to_owned(), pass.statement.to_owned()]);
    }
    for (name, statement) in sharding_passes::all() {
        table.row([name.to_owned(), statement.to_owned()]);
    }
    output::to_stdout(table.render().as_bytes())?;
    Ok(Outcome::Well)
}

/// The module after each pass, in files numbered in the order of the passes.
struct Dumps<'a> {
    folder: &'a str,
    count: usize,
}

impl<'a> Dumps<'a> {
    fn new(folder: &'a str) -> Result<Dumps<'a>> {
        output::make_folder(folder)?;
        Ok(Dumps { folder, count: 0 })
    }

    fn write(&mut self, pass: &str, module: &Module) -> Result<()> {
        self.count += 1;
        let path = format!("{}/{:03}.{pass}.hlo", self.folder, self.count);
        output::to_path(&path, hlo_text::print(module, &PRINT).as_bytes())
    }
}

fn report(report: &PassesReport) -> String {
    let columns = [
        ("pass", Align::Left),
        ("runs", Align::Right),
        ("changes", Align::Right),
        ("ms", Align::Right),
        ("instructions", Align::Right),
    ];
    let mut table = Table::new(&columns);
    let ms = |time: Duration| format!("{:.3}", time.as_secs_f64() * 1e3);
    for pass in &report.passes {
        let counts = [pass.runs.to_string(), pass.changes.to_string(), ms(pass.time), pass.instructions.to_string()];
        table.row([pass.name.to_owned()].into_iter().chain(counts));
    }
    let none = String::new;
    table.row(["all".to_owned(), none(), report.changes().to_string(), ms(report.time()), none()]);
    table.row(["verifying".to_owned(), none(), none(), ms(report.verifying), none()]);
    table.render()
}

fn as_json(report: &PassesReport) -> serde_json::Value {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let pass = |p: &PassReport| {
        serde_json::json!({
            "pass": p.name,
            "runs": p.runs,
            "changes": p.changes,
            "ms": ms(p.time),
            "instructions": p.instructions,
        })
    };
    serde_json::json!({
        "passes": report.passes.iter().map(pass).collect::<Vec<_>>(),
        "changes": report.changes(),
        "ms": ms(report.time()),
        "verifying_ms": ms(report.verifying),
    })
}

fn failed(failed: &Failed) -> Stop {
    let ours = failed.diagnostics.iter().any(|d| d.blame == Blame::Hloom);
    Stop(say(&failed.diagnostics, if ours { Outcome::Bug } else { Outcome::InputAtFault }))
}

/// Says what is wrong. The module is no longer the one in the file, so there is no text to point at.
fn say(diagnostics: &[Diagnostic], outcome: Outcome) -> Outcome {
    for diagnostic in diagnostics {
        output::to_stderr(&format!("{diagnostic}\n"));
        diagnostic.notes.iter().for_each(|n| output::to_stderr(&format!("  {}\n", n.message)));
    }
    outcome
}
