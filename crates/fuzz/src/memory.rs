//! What must be true of memory planning for any input: a valid module is planned and the plan proved right, or it is said
//! why not; and a dump is judged, whatever it says.

use crate::bodies::Verdict;
use hloom_formats::hlo_text;
use hloom_ir::diagnostic::codes::plan::TOO_LARGE;
use hloom_ir::diagnostic::{Diagnostic, Place};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::Shape;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_plan::check::{Assignment, check};
use hloom_plan::copies::insert_copies;
use hloom_plan::dump::{Part, dump_a, dump_b};
use hloom_plan::flatten::flatten_call_graph;
use hloom_plan::plan;
use hloom_target::{DumpDialect, Target};

/// Stands between a module and a dump of its memory.
const SEPARATOR: &[u8] = b"\n=== dump ===\n";

/// More instructions than this, with all copies of computations, are not tried.
const MAX_INSTRUCTIONS: usize = 20_000;

fn read(data: &[u8]) -> Result<VerifiedModule, Verdict> {
    let module = hlo_text::read(data).module.ok_or(Verdict::Refused)?;
    verify(module, &VerifyOptions::default()).map_err(|_| Verdict::Read)
}

/// The machines that inputs are planned for, in turn, with their older and newer compilers.
fn target(data: &[u8]) -> Result<Target, String> {
    let (name, dialect) = [
        ("cpu", DumpDialect::B),
        ("tpu-v6e", DumpDialect::A),
        ("tpu-v6e", DumpDialect::B),
        ("tpu-v4", DumpDialect::A),
        ("gpu-h100", DumpDialect::B),
    ][data.len() % 5];
    Ok(Target { dialect, ..Target::named(name).map_err(|d| d.to_string())? })
}

/// Gives the module all that it lacks before its memory can be planned; `None` if that is refused.
fn prepared(mut module: Module, target: &Target) -> Result<Option<VerifiedModule>, String> {
    if flatten_call_graph(&mut module).is_err() || module.instruction_count() > MAX_INSTRUCTIONS {
        return Ok(None);
    }
    if let Err(faults) = insert_copies(&mut module, target) {
        return if are_too_large(&faults) { Ok(None) } else { Err(format!("copies are refused: {faults:?}")) };
    }
    let words = |d: &[Diagnostic]| d.iter().map(|d| format!("{d}\n")).collect::<String>();
    let valid = verify(module, &VerifyOptions::default());
    valid.map(Some).map_err(|e| format!("after copies the module is invalid: {}", words(&e.diagnostics)))
}

fn are_too_large(faults: &[Diagnostic]) -> bool {
    faults.iter().all(|f| f.code == &TOO_LARGE)
}

/// Whether a program may want what cannot be: it has buffers, whose identity no copy has, or a result that is said to be
/// several operands at once.
fn asks_too_much(module: &Module) -> bool {
    let mut all = module.computations().iter().flat_map(|&c| module[c].instructions());
    all.any(|&i| {
        let aliases = match &module[i].op {
            Op::Fusion(f) => f.output_operand_aliasing.as_slice(),
            Op::CustomCall(c) => c.output_operand_aliasing.as_slice(),
            Op::AsyncStart(a) => a.output_operand_aliasing.as_slice(),
            _ => &[],
        };
        let mut results: Vec<_> = aliases.iter().map(|a| &a.output_index).collect();
        results.sort_unstable();
        let is_twice = results.windows(2).any(|pair| pair[0] == pair[1]);
        is_twice || module[i].shape.leaves().iter().any(|(_, s)| matches!(s, Shape::Buffer(_)))
    })
}

/// Any bytes as HLO text: if it is a valid module, its memory is planned, and the proof of the plan holds.
pub fn planner(data: &[u8]) -> Result<Verdict, String> {
    let module = match read(data) {
        Ok(module) => module,
        Err(verdict) => return Ok(verdict),
    };
    if asks_too_much(module.module()) {
        return Ok(Verdict::Verified);
    }
    let target = target(data)?;
    let Some(module) = prepared(module.into_module(), &target)? else { return Ok(Verdict::Verified) };
    let planned = match plan(&module, &target) {
        Ok(planned) => planned,
        Err(faults) if are_too_large(&faults) => return Ok(Verdict::Verified),
        Err(faults) => return Err(format!("no plan: {faults:?}")),
    };
    let mut faults = check(&module, &target, &Assignment::from(&planned));
    // A program may say that what must share memory belongs into different memory spaces; that is its own fault.
    faults.retain(|f| !f.message.contains("belongs into memory space"));
    if !are_too_large(&faults) {
        return Err(format!("the plan is wrong: {}", faults.iter().map(|f| format!("{f}\n")).collect::<String>()));
    }
    Ok(Verdict::Verified)
}

/// Any bytes as a module and a dump of its memory: the dump is checked, and what is wrong with it is placed within it.
pub fn check_dump(data: &[u8]) -> Result<Verdict, String> {
    let at = data.windows(SEPARATOR.len()).position(|w| w == SEPARATOR);
    let Some(at) = at else { return Ok(Verdict::Refused) };
    let module = match read(&data[..at]) {
        Ok(module) => module,
        Err(verdict) => return Ok(verdict),
    };
    let dump = &data[at + SEPARATOR.len()..];
    let Ok(text) = hloom_plan::dump_checker::text_of(dump) else { return Ok(Verdict::Refused) };
    let faults = hloom_plan::dump_checker::check_dump(&module, &target(&data[..at])?, text);
    let places = faults.iter().flat_map(|f| f.notes.iter().map(|n| &n.place).chain([&f.place]));
    for place in places {
        match place {
            Place::None => {}
            Place::Span(span) if span.start <= span.end && span.end as usize <= dump.len() => {}
            other => return Err(format!("{other:?} is not in the dump of {} bytes", dump.len())),
        }
    }
    Ok(if faults.is_empty() { Verdict::Verified } else { Verdict::Refused })
}

/// Modules with dumps of their memory, each of at most `max_bytes`.
pub fn dumps(texts: &[Vec<u8>], max_bytes: usize) -> Vec<Vec<u8>> {
    let mut dumps = Vec::new();
    for (n, text) in texts.iter().enumerate() {
        let Ok(module) = read(text) else { continue };
        let options = hlo_text::PrintOptions { elide_constants: false };
        let cpu = Target::named("cpu");
        let Ok(Ok(Some(module))) = cpu.map(|cpu| prepared(module.into_module(), &cpu)) else { continue };
        let mut module = module.into_module();
        module.is_scheduled = true;
        let mut input = hlo_text::print(&module, &options).into_bytes();
        let (Ok(target), Ok(module)) = (target(&input), read(&input)) else { continue };
        let Ok(planned) = plan(&module, &target) else { continue };
        let dump = match n % 4 {
            0 | 1 => dump_a(&planned, &target),
            2 => dump_b(&planned, &target, Part::Allocations),
            _ => dump_b(&planned, &target, Part::LiveRange),
        };
        input.extend_from_slice(SEPARATOR);
        input.extend_from_slice(dump.as_bytes());
        if input.len() <= max_bytes {
            dumps.push(input);
        }
    }
    dumps
}
