//! Cases to hand over: with `HLOOM_DUMP_TO=DIR`, or where the compile options have XLA's `xla_dump_to`, what was compiled
//! and run goes into that folder, to be looked at with `hloom report DIR` and run again with `hloom run DIR`.
//!
//! Files are named as XLA names those that it dumps: of each program what came in, the module before the passes, after
//! each pass that changed something, and as it runs, its memory, a report on its compilation (time by pass, memory, cost,
//! what has no native code), and its first run with arguments and results. What cannot be written is left out: a program
//! never fails for it.

use crate::program::Source;
use hloom_analysis::cost::cost;
use hloom_compiler::{Backend, CompileReport, CompiledModule, Emit, registry};
use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_formats::proto::{Container, Snapshot, write, write_snapshot};
use hloom_ir::module::Module;
use hloom_ir::verify::VerifiedModule;
use hloom_passes::{Context, optimize};
use hloom_plan::dump::{Part, dump_b};
use hloom_plan::plan;
use hloom_runtime::{Buffer as Data, assemble};
use hloom_value::Value;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The variable that names the folder.
const VARIABLE: &str = "HLOOM_DUMP_TO";
const PRINT: PrintOptions = PrintOptions { elide_constants: false };

/// What the compile options say of dumps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DumpOptions {
    /// Where they go, where the variable says nothing.
    pub folder: Option<PathBuf>,
    /// Whether modules are written as protos, too.
    pub protos: bool,
}

/// Where the files of one program go.
#[derive(Debug)]
pub struct ProgramDump {
    folder: PathBuf,
    /// Whether modules are written as protos, too.
    protos: bool,
    /// `module_0006.jit_f`.
    key: String,
    has_run: AtomicBool,
}

/// The arguments of a run, kept while it runs.
pub(crate) struct Arguments(Vec<Vec<Value>>);

impl ProgramDump {
    /// Where the next program of that name goes; `None` unless the folder is asked for and can be written.
    pub fn begin(name: &str, options: &DumpOptions) -> Option<ProgramDump> {
        static PROGRAMS: AtomicUsize = AtomicUsize::new(0);
        let variable = std::env::var_os(VARIABLE).filter(|f| !f.is_empty()).map(PathBuf::from);
        let folder = variable.or_else(|| options.folder.clone())?;
        std::fs::create_dir_all(&folder).ok()?;
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' };
        let name: String = name.chars().map(plain).take(100).collect();
        // Other processes may write into the same folder.
        loop {
            let key = format!("module_{:04}.{name}", PROGRAMS.fetch_add(1, Ordering::Relaxed));
            match std::fs::create_dir(folder.join(&key)) {
                Ok(()) => {
                    return Some(ProgramDump { folder, protos: options.protos, key, has_run: AtomicBool::new(false) });
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(_) => return None,
            }
        }
    }

    fn write(&self, tail: &str, content: &[u8]) -> bool {
        std::fs::write(self.folder.join(format!("{}.{tail}", self.key)), content).is_ok()
    }

    fn write_module(&self, head: &str, module: &Module) {
        self.write(&format!("{head}.txt"), hlo_text::print(module, &PRINT).as_bytes());
        if self.protos
            && let Ok(bytes) = write(module, Container::Module)
        {
            self.write(&format!("{head}.hlo.pb"), &bytes);
        }
    }

    /// What came in, and the module that it was understood as.
    pub fn before(&self, source: &Source, module: &Module) {
        let file = match (source.format.as_str(), std::str::from_utf8(&source.code)) {
            ("mlir", Ok(_)) => "module.mlir",
            ("mlir", Err(_)) => "module.mlirbc",
            _ => "module.hlo.pb",
        };
        let _ = std::fs::write(self.folder.join(&self.key).join(file), &source.code);
        self.write_module("before_optimizations", module);
    }

    /// What was made of it by each pass and in the end, and what that took.
    pub fn after(&self, backend: &dyn Backend, module: &VerifiedModule, compiled: &CompiledModule) {
        self.passes(backend, module);
        let head = format!("{}_after_optimizations", backend.name());
        self.write_module(&head, compiled.module.module());
        if let Ok(plan) = plan(&compiled.module, backend.target()) {
            let text = dump_b(&plan, backend.target(), Part::Allocations);
            self.write(&format!("{head}-buffer-assignment.txt"), text.as_bytes());
        }
        if let Some(text) = compiled.code.emit(&compiled.module, Emit::Thunks) {
            self.write(&format!("{head}-thunks.txt"), text.as_bytes());
        }
        self.write("compile_report.txt", report(&compiled.report, module).as_bytes());
    }

    /// Runs the passes again, and writes the module after each that changed it.
    fn passes(&self, backend: &dyn Backend, module: &VerifiedModule) {
        let Ok(list) = registry().pipeline(backend.pipeline()) else { return };
        let (mut number, mut last) = (0, hlo_text::print(module.module(), &PRINT));
        let mut watch = |pass: &'static hloom_passes::Pass, module: &Module| {
            let text = hlo_text::print(module, &PRINT);
            if text != last {
                self.write(&format!("{number:04}.pipeline.after_{}.txt", pass.name), text.as_bytes());
                number += 1;
                last = text;
            }
        };
        // What fails has failed before, when the program was compiled.
        let _ = optimize(module.clone(), &list, &Context { info: backend.info() }, Some(&mut watch));
    }

    /// The arguments of the first run, to be written with its results; `None` for further runs.
    pub(crate) fn arguments(&self, module: &Module, inputs: &[Vec<Data>]) -> Option<Arguments> {
        if self.has_run.swap(true, Ordering::Relaxed) {
            return None;
        }
        let entry = module.entry()?;
        let of_device = |leaves: &Vec<Data>| {
            let mut leaves = leaves.iter().cloned();
            let parameters = module.parameters(entry);
            parameters.iter().map(|&p| assemble(&module[p].shape, &mut leaves).ok()).collect::<Option<Vec<_>>>()
        };
        Some(Arguments(inputs.iter().map(of_device).collect::<Option<_>>()?))
    }

    /// A run: the program with its arguments and its first device's results.
    pub(crate) fn run(&self, backend: &dyn Backend, module: &Module, arguments: &Arguments, results: &[Vec<Data>]) {
        let literals = |values: &Vec<Value>| values.iter().map(Value::to_literal).collect::<Option<Vec<_>>>();
        let Some(arguments) = arguments.0.iter().map(literals).collect::<Option<Vec<_>>>() else { return };
        let root = module.entry().and_then(|e| module.root(e));
        let result = root
            .zip(results.first())
            .and_then(|(root, leaves)| assemble(&module[root].shape, &mut leaves.iter().cloned()).ok()?.to_literal());
        let platform = format!("hloom {}", backend.name());
        let snapshot = Snapshot { arguments, result, platform, arguments_left_out: false };
        if let Ok(bytes) = write_snapshot(module, &snapshot) {
            self.write("execution_0000.hlo_snapshot.pb", &bytes);
        }
    }
}

/// What compiling took, and what came of it, in words.
fn report(report: &CompileReport, module: &VerifiedModule) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut text = format!("{:<32} {:>10}\n", "stage", "ms");
    for (name, time) in &report.stages {
        let _ = writeln!(text, "{name:<32} {:>10.3}", ms(*time));
    }
    let _ = writeln!(text, "\n{:<32} {:>10} {:>8} {:>8} {:>12}", "pass", "ms", "runs", "changes", "instructions");
    for pass in &report.passes.passes {
        let (time, runs, changes) = (ms(pass.time), pass.runs, pass.changes);
        let _ = writeln!(text, "{:<32} {time:>10.3} {runs:>8} {changes:>8} {:>12}", pass.name, pass.instructions);
    }
    let _ = writeln!(text, "{:<32} {:>10.3}", "verifying", ms(report.passes.verifying));
    let total = cost(module).total;
    let _ = write!(
        text,
        "\nbytes of temporaries: {}\nbytes at the peak: {}\nflops: {}\ntranscendentals: {}\nbytes accessed: {}\n\
         instructions with native code: {}\n",
        report.temp_bytes,
        report.peak_bytes,
        total.flops,
        total.transcendentals,
        total.bytes,
        report.native_instructions
    );
    for (opcode, fallback) in &report.fallback {
        let names = fallback.instructions.join(", ");
        let _ = writeln!(text, "left to the evaluator: {opcode}: {}: {names}", fallback.reason);
    }
    text
}
