//! `hloom check`: programs in StableHLO that say themselves what they should compute.

use super::args::CheckArgs;
use super::{Outcome, Result, output, progress};
use hloom::check::{Failure, run_test};
use hloom::compiler::CompileOptions;
use hloom::eval::{DeviceGrid, Options};
use hloom::execute::run_on;
use hloom::formats::hlo_text::SourceMap;
use hloom::ir::diagnostic::{Blame, Diagnostic, Span};
use hloom::ir::entity::{EntityId, InstructionId};
use hloom::ir::verify::VerifiedModule;
use hloom::load::{display_name, read_bytes};
use hloom::runtime::Client;
use hloom::stablehlo::check::tests;
use hloom::stablehlo::{bytecode, mlir, read_bytecode, read_split_text};
use hloom::value::Value;
use hloom::{Engine, Format, Source};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

pub(crate) fn run(args: &CheckArgs) -> Result {
    let name = display_name(&args.file);
    let bytes = Arc::new(read_bytes(&args.file).map_err(|r| super::input::show_rejected(&r))?);
    super::crash::remember_input(name, &bytes);
    let hlo = match Format::of_bytes(&bytes) {
        Format::HloText if bytes.trim_ascii_start().starts_with(b"HloModule") => Some("HLO"),
        Format::HloProto | Format::HloModuleProto => Some("an HLO proto"),
        _ => None,
    };
    if let Some(what) = hlo {
        output::to_stderr(&format!(
            "error: `{name}` is {what}: `hloom check` takes programs in StableHLO, with what they should compute written in \
             them\n  = help: `hloom verify` checks a module, `hloom run --compare-with` its results\n"
        ));
        return Ok(Outcome::InputAtFault);
    }
    let is_bytecode = bytes.starts_with(bytecode::MAGIC);
    let format = if is_bytecode { Format::StableHloBytecode } else { Format::StableHlo };
    let source = Source { name: name.to_owned(), bytes: bytes.clone(), format, positions: SourceMap::default() };
    let parts = if is_bytecode { vec![read_bytecode(&bytes)] } else { read_split_text(&bytes) };
    let mut report = Report::default();
    let devices = Devices { engine: args.engine, client: RefCell::default() };
    let progress = progress::start(format!("checking {name}"));
    for part in parts {
        match part {
            Ok(module) => check(&module, &devices, &source, &mut report),
            Err(diagnostic) => report.failed(&source, vec![*diagnostic]),
        }
    }
    drop(progress);
    let Report { functions, held, failures, bug } = report;
    if functions == 0 && failures == 0 {
        output::to_stderr(&format!("error: there is nothing to check in `{name}`: no function without arguments\n"));
        return Ok(Outcome::InputAtFault);
    }
    output::to_stdout(format!("{functions} functions, {held} expectations hold, {failures} fail\n").as_bytes())?;
    Ok(match (failures, bug) {
        (0, _) => Outcome::Well,
        (_, true) => Outcome::Bug,
        _ => Outcome::InputAtFault,
    })
}

/// What runs programs: the same devices for all of them, opened when the first is run.
struct Devices {
    engine: Engine,
    client: RefCell<Option<Arc<dyn Client>>>,
}

impl Devices {
    fn client(&self, module: &VerifiedModule) -> std::result::Result<Arc<dyn Client>, Diagnostic> {
        if let Some(client) = &*self.client.borrow() {
            return Ok(client.clone());
        }
        let opened = self.engine.client(None).map_err(|e| e.into_diagnostics(module.module()).swap_remove(0))?;
        Ok(self.client.borrow_mut().insert(opened).clone())
    }
}

/// What came of the checks so far.
#[derive(Default)]
struct Report {
    functions: usize,
    held: usize,
    failures: usize,
    bug: bool,
}

impl Report {
    fn failed(&mut self, source: &Source, diagnostics: Vec<Diagnostic>) {
        self.failures += 1;
        self.bug |= diagnostics.iter().any(|d| d.blame == Blame::Hloom);
        output::show(source, None, &diagnostics);
    }
}

fn check(module: &mlir::Module<'_>, devices: &Devices, source: &Source, report: &mut Report) {
    for (name, test) in tests(module) {
        report.functions += 1;
        let note = format!("in the function @{name}");
        let failure = match test {
            Ok(test) => match run_test(test, &|m, grid, inputs, infeed| execute(devices, m, grid, inputs, infeed)) {
                Ok(held) => {
                    report.held += held;
                    continue;
                }
                Err(failure) => *failure,
            },
            Err(diagnostic) => Failure::from(*diagnostic),
        };
        report.failures += 1;
        report.bug |= failure.diagnostics.iter().any(|d| d.blame == Blame::Hloom);
        let diagnostics: Vec<Diagnostic> = failure.diagnostics.into_iter().map(|d| d.note(note.clone())).collect();
        let mut source = source.clone();
        if let Some(program) = &failure.program {
            for (i, &span) in program.spans.iter().enumerate().filter(|(_, s)| **s != Span::default()) {
                source.positions.set_instruction(InstructionId::from_index(i), span);
            }
        }
        output::show(&source, failure.program.as_ref().map(|p| &p.module), &diagnostics);
    }
}

fn execute(
    devices: &Devices,
    module: &VerifiedModule,
    grid: DeviceGrid,
    inputs: Vec<Vec<Value>>,
    infeed: Vec<Value>,
) -> std::result::Result<Vec<Value>, Diagnostic> {
    // Values for infeed are handed over in the evaluator only.
    if infeed.is_empty() {
        return run_on(&*devices.client(module)?, module, &CompileOptions::new(grid), inputs);
    }
    let queue: VecDeque<Value> = infeed.into();
    let infeed = (0..grid.devices()).map(|_| Mutex::new(queue.clone())).collect();
    let options = Options { infeed, ..Options::default() };
    hloom::eval::run(module, grid, inputs, &options).map_err(hloom::value::ExecutionError::into_diagnostic)
}
