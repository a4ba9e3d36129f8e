//! Running a test: what comes out of it, and how that differs from what was expected.

use crate::file::{Expect, Expected, Kind, Position, TestFile};
use hloom_analysis::devices::DeviceGrid;
use hloom_compiler::{Backend, CompileOptions, Emit, registry};
use hloom_cpu::CpuBackend;
use hloom_formats::hlo_text::{self, PrintOptions, SourceMap};
use hloom_formats::proto;
use hloom_ir::diagnostic::{Diagnostic, Severity};
use hloom_ir::module::Module;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_passes::{Context, optimize};
use std::fmt::Write;
use std::path::Path;

/// A diagnostic that came, with its place in the text.
#[derive(Clone, Debug)]
pub struct Came {
    /// The diagnostic.
    pub diagnostic: Diagnostic,
    /// Where it points; `None` if nowhere.
    pub at: Option<Position>,
}

/// What came out of a test.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// All diagnostics, in the order of their places.
    pub diagnostics: Vec<Came>,
    /// What `print` or `elide` printed.
    pub output: Option<String>,
}

/// Runs the test at `path`.
pub fn run(path: &Path) -> Result<(), String> {
    let file = TestFile::load(path)?;
    let outcome = evaluate(&file)?;
    compare_diagnostics(&file.expected, &outcome.diagnostics)?;
    match &outcome.output {
        Some(output) => compare_output(&file, output),
        None => Ok(()),
    }
}

/// Carries out what `file` asks for. An error here is a fault that no expectation could allow, such as a print that
/// does not read back.
pub fn evaluate(file: &TestFile) -> Result<Outcome, String> {
    let text = file.text.as_bytes();
    let read = hlo_text::read(text);
    let mut outcome = Outcome { diagnostics: locate(read.diagnostics, &read.positions, text), output: None };
    let Some(module) = read.module else {
        if outcome.diagnostics.iter().all(|d| d.diagnostic.severity != Severity::Error) {
            return Err("nothing was read, and no error says why".into());
        }
        return Ok(outcome);
    };
    for kind in &file.kinds {
        match kind {
            Kind::Read => {}
            Kind::Verify => {
                if let Err(invalid) = verify(module.clone(), &VerifyOptions::default()) {
                    outcome.diagnostics.extend(locate(invalid.diagnostics, &read.positions, text));
                }
            }
            Kind::Print => outcome.output = Some(print_checked(&module, false)?),
            Kind::Elide => outcome.output = Some(print_checked(&module, true)?),
            Kind::Roundtrip => drop(print_checked(&module, false)?),
            Kind::Proto => through_proto(&module)?,
            Kind::Run => match verify(module.clone(), &VerifyOptions::default()) {
                Ok(verified) => {
                    let fault = file.execution.run(&verified)?;
                    outcome.diagnostics.extend(locate(fault.into_iter().collect(), &read.positions, text));
                }
                Err(invalid) => outcome.diagnostics.extend(locate(invalid.diagnostics, &read.positions, text)),
            },
            Kind::Opt => match verify(module.clone(), &VerifyOptions::default()) {
                Ok(verified) => outcome.output = Some(optimized(file, verified)?),
                Err(invalid) => outcome.diagnostics.extend(locate(invalid.diagnostics, &read.positions, text)),
            },
            Kind::Emit => match verify(module.clone(), &VerifyOptions::default()) {
                Ok(verified) => outcome.output = emitted(file, &verified)?,
                Err(invalid) => outcome.diagnostics.extend(locate(invalid.diagnostics, &read.positions, text)),
            },
        }
    }
    outcome.diagnostics.sort_by_key(|d| d.at);
    Ok(outcome)
}

/// The print of the module after the passes that `file` names. If the test runs the program, it runs the optimised one
/// as well, with the same expectations.
fn optimized(file: &TestFile, module: VerifiedModule) -> Result<String, String> {
    let backend = CpuBackend::new(1).map_err(|e| e.to_string())?;
    let passes = registry().list(file.passes.iter().map(String::as_str)).map_err(|d| d.to_string())?;
    let optimized = optimize(module, &passes, &Context { info: backend.info() }, None)
        .map_err(|f| format!("{} failed:\n{}", f.pass, list(&f.diagnostics)))?;
    if file.kinds.contains(&Kind::Run)
        && let Some(fault) = file.execution.run(&optimized.module)?
    {
        return Err(format!("the optimised program fails: {fault}"));
    }
    print_checked(optimized.module.module(), false)
}

/// What the CPU's compiler makes of the module in the form that `file` names, if the whole of it is expected; where only
/// some lines of it are, those are looked for. Without LLVM there is no machine code to look at.
fn emitted(file: &TestFile, module: &VerifiedModule) -> Result<Option<String>, String> {
    let Some(form) = file.emit else { return Ok(None) };
    let backend = CpuBackend::new(1).map_err(|e| e.to_string())?;
    let options = CompileOptions::new(DeviceGrid { replicas: 1, partitions: 1 });
    let text = hloom_compiler::emit(&backend, module, &options, form).map_err(|e| e.to_string())?;
    let Some(text) = text else {
        return match form {
            Emit::Llvm | Emit::Asm if !cfg!(feature = "llvm") => Ok(None),
            _ => Err(format!("nothing is made that could be printed as {}", form.name())),
        };
    };
    if file.has.is_empty() {
        return Ok(Some(text));
    }
    let mut lines = text.lines();
    match file.has.iter().find(|wanted| !lines.any(|line| line.contains(wanted.as_str()))) {
        Some(missing) => Err(format!("no line has `{missing}` (after those before it):\n{text}")),
        None => Ok(None),
    }
}

/// Finds the places of diagnostics in the text.
fn locate(diagnostics: Vec<Diagnostic>, positions: &SourceMap, text: &[u8]) -> Vec<Came> {
    // The end of the text is behind its last word, where an expectation can stand beneath it.
    let end = text.trim_ascii_end().len();
    let position = |start: u32| {
        let before = &text[..(start as usize).min(end)];
        let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        Position {
            line: before.iter().filter(|&&b| b == b'\n').count() + 1,
            column: String::from_utf8_lossy(&before[line_start..]).chars().count() + 1,
        }
    };
    let came = |diagnostic: Diagnostic| {
        let at = positions.resolve(text, &diagnostic.place).map(|span| position(span.start));
        Came { diagnostic, at }
    };
    diagnostics.into_iter().map(came).collect()
}

/// Prints `module`, and checks that the print reads back and prints the same again.
fn print_checked(module: &Module, elide_constants: bool) -> Result<String, String> {
    let options = PrintOptions { elide_constants };
    let printed = hlo_text::print(module, &options);
    let again = hlo_text::read(printed.as_bytes());
    let Some(module) = again.module else {
        return Err(format!("the print does not read back:\n{}\n{printed}", list(&again.diagnostics)));
    };
    let twice = hlo_text::print(&module, &options);
    if printed != twice {
        return Err(format!("the print, read back, prints differently\n{}", difference(&printed, &twice)));
    }
    Ok(printed)
}

/// Checks that a proto keeps all that is printed but the counts of devices, for which it has no field.
fn through_proto(module: &Module) -> Result<(), String> {
    let options = PrintOptions { elide_constants: false };
    let print = |module: &Module| {
        let mut module = module.clone();
        (module.config.replica_count, module.config.num_partitions) = (1, 1);
        hlo_text::print(&module, &options)
    };
    for container in [proto::Container::Module, proto::Container::Proto] {
        let bytes = proto::write(module, container).map_err(|d| format!("no proto can be written:\n{}", list(&d)))?;
        let again = proto::read(&bytes).map_err(|d| format!("the proto does not read back:\n{}", list(&d)))?;
        let (direct, through) = (print(module), print(&again));
        if direct != through {
            return Err(format!("read from a proto, it prints differently\n{}", difference(&direct, &through)));
        }
    }
    Ok(())
}

fn list(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(|d| format!("  {d}\n")).collect()
}

/// Whether `came` is what `expected` asks for.
pub(crate) fn matches(expected: &Expected, came: &Came) -> bool {
    expected.severity == came.diagnostic.severity
        && expected.code == came.diagnostic.code.to_string()
        && expected.at == came.at
        && came.diagnostic.message.contains(&expected.words)
}

/// Checks that all that came was expected and all that was expected came.
fn compare_diagnostics(expected: &[Expected], came: &[Came]) -> Result<(), String> {
    let mut missing: Vec<&Expected> = expected.iter().collect();
    let mut unexpected = Vec::new();
    for c in came {
        match missing.iter().position(|e| matches(e, c)) {
            Some(i) => drop(missing.remove(i)),
            None => unexpected.push(c),
        }
    }
    if missing.is_empty() && unexpected.is_empty() {
        return Ok(());
    }
    let place = |at: Option<Position>| match at {
        Some(p) => format!("{}:{}", p.line, p.column),
        None => "no place".into(),
    };
    let mut message = String::new();
    for c in unexpected {
        let _ = writeln!(message, "came, but was not expected: {}: {}", place(c.at), c.diagnostic);
    }
    for e in missing {
        let severity = severity_word(e.severity);
        let _ =
            writeln!(message, "was expected, but did not come: {}: {severity} {}: {}", place(e.at), e.code, e.words);
    }
    Err(message)
}

/// `error` or `warning`.
pub(crate) fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

fn compare_output(file: &TestFile, output: &str) -> Result<(), String> {
    let expected = match &file.expect {
        Expect::Itself => &file.text,
        Expect::Block(text) | Expect::Beside(Some(text)) => text,
        Expect::Beside(None) => {
            return Err(format!("nothing says what to expect; HLOOM_BLESS=1 would write:\n{output}"));
        }
    };
    if expected.trim() == output.trim() { Ok(()) } else { Err(difference(expected.trim(), output.trim())) }
}

/// The first lines in which two texts differ.
pub fn difference(expected: &str, came: &str) -> String {
    let (mut a, mut b) = (expected.lines(), came.lines());
    let mut number = 0;
    loop {
        number += 1;
        match (a.next(), b.next()) {
            (None, None) => return "they differ in line ends only".into(),
            (x, y) if x == y => {}
            (x, y) => {
                let show = |line: Option<&str>| line.map_or("(the end)".into(), |l| format!("`{l}`"));
                return format!("at line {number} of the print\n expected {}\n but came {}", show(x), show(y));
            }
        }
    }
}
