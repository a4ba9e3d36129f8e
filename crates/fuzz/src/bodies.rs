//! What must be true of the readers, printers, the verifier and the evaluator for any input.
//!
//! A body returns what was broken, in words; a panic inside is a failure, too, and left to the caller to catch.

use crate::choices::Choices;
use crate::differential;
use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_formats::proto::{self, Container};
use hloom_ir::diagnostic::{Diagnostic, Place, Severity, codes};
use hloom_ir::module::{Module, ModuleConfig};
use hloom_ir::verify::{VerifyOptions, verify};

/// Whether the input was a module, so that a fuzzer can say how deep it gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It was refused, with an error.
    Refused,
    /// It was read, but is not valid.
    Read,
    /// It was read and verified.
    Verified,
}

const LOSSLESS: PrintOptions = PrintOptions { elide_constants: false };
const ELIDED: PrintOptions = PrintOptions { elide_constants: true };

/// Any bytes as HLO text: reading ends, refuses with an error or gives a module that prints and reads back. If it is
/// valid, it reads back the same; if not (two parameters of one number, say), the order in the print may leave things
/// open.
pub fn text_reader(data: &[u8]) -> Result<Verdict, String> {
    let read = hlo_text::read(data);
    check_places(&read.diagnostics, data)?;
    for diagnostic in &read.diagnostics {
        let _ = read.positions.resolve(data, &diagnostic.place);
    }
    let Some(module) = read.module else { return refused(&read.diagnostics) };
    if !is_valid(&module) {
        reads_back(&module)?;
        return Ok(Verdict::Read);
    }
    prints_back(&module)?;
    Ok(Verdict::Verified)
}

/// Any bytes as StableHLO text: reading and translating end, and refuse with an error or give a module that the
/// verifier accepts or refuses.
pub fn stablehlo_text(data: &[u8]) -> Result<Verdict, String> {
    let mut verdict = Verdict::Refused;
    for part in hloom_stablehlo::read_split_text(data) {
        verdict = stablehlo(part, data.len())?;
    }
    Ok(verdict)
}

/// The same for any bytes as MLIR bytecode.
pub fn stablehlo_bytecode(data: &[u8]) -> Result<Verdict, String> {
    stablehlo(hloom_stablehlo::read_bytecode(data), data.len())
}

fn stablehlo(read: Result<hloom_stablehlo::mlir::Module<'_>, Box<Diagnostic>>, size: usize) -> Result<Verdict, String> {
    let in_text = |d: &Diagnostic| match d.place {
        Place::Span(span) if span.start as usize > size || span.end < span.start => {
            Err(format!("{d} is at {span:?}, outside of the text"))
        }
        _ => Ok(()),
    };
    let module = match read {
        Ok(module) => module,
        Err(diagnostic) => return in_text(&diagnostic).map(|()| Verdict::Refused),
    };
    for (_, test) in hloom_stablehlo::check::tests(&module) {
        if let Err(diagnostic) = test {
            in_text(&diagnostic)?;
        }
    }
    match hloom_stablehlo::to_hlo(&module) {
        Err(diagnostic) => in_text(&diagnostic).map(|()| Verdict::Refused),
        Ok(module) => Ok(match verify(module, &VerifyOptions::default()) {
            Err(_) => Verdict::Read,
            Ok(module) => {
                // What cannot be said in StableHLO is refused; what is said must read back.
                if let Ok(text) = hloom_stablehlo::from_hlo(module.module()) {
                    hloom_stablehlo::read_text(text.as_bytes())
                        .map_err(|d| format!("what was written does not read back: {d}\n{text}"))?;
                }
                Verdict::Verified
            }
        }),
    }
}

/// Any bytes as HLO text: if it is a valid module, and not too large a one to try, the evaluator runs it or says why not;
/// it never comes to a state that a verified module should not lead to.
pub fn evaluator(data: &[u8]) -> Result<Verdict, String> {
    let read = hlo_text::read(data);
    let Some(module) = read.module else { return refused(&read.diagnostics) };
    let Ok(module) = verify(module, &VerifyOptions::default()) else { return Ok(Verdict::Read) };
    let config = &module.module().config;
    let devices = config.replica_count.max(1).saturating_mul(config.num_partitions.max(1));
    if devices > MAX_DEVICES || !is_small(module.module()) {
        return Ok(Verdict::Verified);
    }
    let arguments = differential::inputs(module.module(), devices as usize, &mut Choices::from_seed(1))?;
    let options = hloom_eval::Options {
        max_steps: Some(MAX_STEPS),
        fill_constants: true,
        time_limit: Some(std::time::Duration::from_secs(20)),
        ..Default::default()
    };
    let replicas = config.replica_count.max(1) as usize;
    let grid = hloom_eval::DeviceGrid { replicas, partitions: config.num_partitions.max(1) as usize };
    match hloom_eval::run(&module, grid, arguments, &options).map_err(|f| f.into_diagnostic()) {
        Err(bug) if bug.code == &codes::eval::INTERNAL => Err(format!("{bug}\n{:?}", bug.place)),
        _ => Ok(Verdict::Verified),
    }
}

/// More devices, instructions or elements than this are not tried.
const MAX_DEVICES: i64 = 16;
const MAX_STEPS: u64 = 20_000;
const MAX_ELEMENTS: i64 = 1 << 18;

/// Whether all arrays of a module together have few elements, and so have their windows.
fn is_small(module: &Module) -> bool {
    let mut left = MAX_ELEMENTS;
    for &i in module.computations().iter().flat_map(|&c| module[c].instructions()) {
        for (_, shape) in module[i].shape.leaves() {
            let count = shape.as_array_or_buffer().map_or(Some(1), |a| a.element_count());
            left = left.saturating_sub(count.unwrap_or(MAX_ELEMENTS));
        }
    }
    left > 0
}

/// Any bytes as a proto: as [`text_reader`], and the module is the same through text and through a proto.
pub fn proto_reader(data: &[u8]) -> Result<Verdict, String> {
    let module = match proto::read(data) {
        Ok(module) => module,
        Err(diagnostics) => return refused(&diagnostics),
    };
    if !is_valid(&module) {
        // It may not have a form in text: names, sizes and ids are as they came.
        let _ = hlo_text::read(hlo_text::print(&module, &LOSSLESS).as_bytes());
        let _ = proto::write(&module, Container::Module);
        return Ok(Verdict::Read);
    }
    let through = print_as_proto(&through_proto(&module, Container::Module)?);
    same("the proto, read back", &print_as_proto(&module), &through)?;
    // A proto may say less than a text does (layouts that are not set, say): what the text makes of it is compared.
    let (_, from_text) = reads_back(&module)?;
    prints_back(&from_text)?;
    keeps_through_proto(&from_text)?;
    Ok(Verdict::Verified)
}

/// A module that was generated: valid, and the same through text and protos.
pub fn generated(module: &Module) -> Result<(), String> {
    prints_back(module)?;
    keeps_through_proto(module)?;
    verify(module.clone(), &VerifyOptions::default())
        .map(|_| ())
        .map_err(|invalid| format!("a generated module is not valid:\n{}", list(&invalid.diagnostics)))
}

fn refused(diagnostics: &[Diagnostic]) -> Result<Verdict, String> {
    if diagnostics.iter().any(|d| d.severity == Severity::Error) {
        Ok(Verdict::Refused)
    } else {
        Err("nothing was read, and no error says why".into())
    }
}

/// Errors point into the text.
fn check_places(diagnostics: &[Diagnostic], data: &[u8]) -> Result<(), String> {
    for diagnostic in diagnostics {
        if let Place::Span(span) = diagnostic.place
            && (span.start > span.end || span.end as usize > data.len())
        {
            return Err(format!("{diagnostic} points to {span:?} of {} bytes", data.len()));
        }
    }
    Ok(())
}

fn is_valid(module: &Module) -> bool {
    verify(module.clone(), &VerifyOptions::default()).is_ok()
}

/// What is printed reads back.
fn reads_back(module: &Module) -> Result<(String, Module), String> {
    let printed = hlo_text::print(module, &LOSSLESS);
    let again = hlo_text::read(printed.as_bytes());
    match again.module {
        Some(again) => Ok((printed, again)),
        None => Err(format!("the print does not read back:\n{}\n{printed}", list(&again.diagnostics))),
    }
}

/// What is printed reads back and prints the same.
pub fn prints_back(module: &Module) -> Result<(), String> {
    let (printed, again) = reads_back(module)?;
    same("the print, read back", &printed, &hlo_text::print(&again, &LOSSLESS))?;
    // The shorter print has only to be readable.
    let elided = hlo_text::print(module, &ELIDED);
    let again = hlo_text::read(elided.as_bytes());
    if again.module.is_none() {
        return Err(format!("the elided print does not read back:\n{}\n{elided}", list(&again.diagnostics)));
    }
    Ok(())
}

/// What is written as a proto reads back and prints the same, and so does the proto of the text.
pub fn keeps_through_proto(module: &Module) -> Result<(), String> {
    let printed = print_as_proto(module);
    for container in [Container::Module, Container::Proto] {
        same("the proto, read back", &printed, &print_as_proto(&through_proto(module, container)?))?;
    }
    let (_, from_text) = reads_back(module)?;
    let again = through_proto(&from_text, Container::Module)?;
    same("the proto of the text, read back", &printed, &print_as_proto(&again))
}

fn through_proto(module: &Module, container: Container) -> Result<Module, String> {
    let bytes = proto::write(module, container).map_err(|d| format!("no proto can be written:\n{}", list(&d)))?;
    proto::read(&bytes).map_err(|d| format!("the {container:?} does not read back:\n{}", list(&d)))
}

/// The print of `module` without what protos have no field for.
fn print_as_proto(module: &Module) -> String {
    let mut module = module.clone();
    forget_what_protos_lack(&mut module.config);
    hlo_text::print(&module, &LOSSLESS)
}

/// A few things that only the header of a text says, also of the modules in the recovery table.
fn forget_what_protos_lack(config: &mut ModuleConfig) {
    let defaults = ModuleConfig::default();
    config.replica_count = defaults.replica_count;
    config.num_partitions = defaults.num_partitions;
    config.alias_passthrough_params = defaults.alias_passthrough_params;
    config.allow_spmd_sharding_propagation_to_output = Vec::new();
    config.allow_spmd_sharding_propagation_to_parameters = Vec::new();
    if let Some(layout) = &mut config.entry_layout {
        // The entry's own shapes stand in for a layout that is not set.
        layout.parameters.iter_mut().for_each(|s| *s = s.with_default_layout());
        layout.result = layout.result.with_default_layout();
    }
    for entry in &mut config.origin_recovery_table {
        if let Some(recovery) = &mut entry.recovery {
            forget_what_protos_lack(&mut recovery.config);
        }
    }
}

fn list(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().take(20).map(|d| format!("  {d}\n")).collect()
}

/// An error with the first line in which two prints differ.
fn same(what: &str, expected: &str, came: &str) -> Result<(), String> {
    if expected == came {
        return Ok(());
    }
    let mut lines = expected.lines().map(Some).chain([None]).zip(came.lines().map(Some).chain([None])).enumerate();
    let difference = lines.find(|(_, (a, b))| a != b).map_or(String::new(), |(i, (a, b))| {
        format!(" at line {}\n  first  {}\n  then   {}", i + 1, a.unwrap_or("(end)"), b.unwrap_or("(end)"))
    });
    Err(format!("{what}, prints differently{difference}"))
}
