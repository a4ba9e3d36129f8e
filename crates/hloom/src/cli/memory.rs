//! `hloom memory`: the buffer assignment of a module, a summary of it, or a judgement of another's.

mod describe;
mod json;
mod page;
mod report;
mod schedule;

use super::args::{DialectArg, MemoryArgs, PartArg};
use super::json::report as json_report;
use super::{Outcome, Result, Stop, input, output, progress, usage_error};
use hloom::Verified;
use hloom::ir::diagnostic::Diagnostic;
use hloom::ir::diagnostic::codes::plan::{NEEDS_COPY, TOO_LARGE};
use hloom::load::read_bytes;
use hloom::plan::check::{Assignment, check, read_dump};
use hloom::plan::dump::{Part, dump_a, dump_b};
use hloom::plan::{Plan, plan};
use hloom::target::{DumpDialect, Target};
use report::Report;

pub(crate) fn run(args: &MemoryArgs) -> Result {
    let target = input::target(&args.target)?;
    let verified = input::load_verified(&args.file)?;
    if let Some(dump) = &args.check {
        return judge(args, &verified, &target, dump);
    }
    let verified = schedule::scheduled(args, verified, &target)?;
    let planned = {
        let _progress = progress::start(format!("planning {}", verified.source.name));
        plan(&verified.module, &target)
    };
    let planned = planned.map_err(|faults| show(&verified, &faults))?;
    prove(&verified, &target, &planned)?;
    if args.html.is_none() && !args.json && !args.summary {
        let dialect = match args.dialect {
            Some(DialectArg::A) => DumpDialect::A,
            Some(DialectArg::B) => DumpDialect::B,
            None => target.dialect,
        };
        output::to_stdout(dump(&planned, &target, dialect, args.part)?.as_bytes())?;
        return Ok(Outcome::Well);
    }
    let (path, text) = {
        let _progress = progress::start(format!("summing up {}", verified.source.name));
        let report = Report::new(&verified, &planned, &target);
        match &args.html {
            Some(path) => (path.as_str(), page::to_html(&report)),
            None if args.json => ("-", json::to_json(&report)),
            None => ("-", report::to_text(&report)),
        }
    };
    output::to_path(path, text.as_bytes())?;
    Ok(Outcome::Well)
}

fn dump(planned: &Plan<'_>, target: &Target, dialect: DumpDialect, part: Option<PartArg>) -> Result<String> {
    match (dialect, part) {
        (DumpDialect::A, None) => Ok(dump_a(planned, target)),
        (DumpDialect::A, Some(_)) => Err(usage_error("--part is for dialect b; dialect a is one text")),
        (DumpDialect::B, part) => {
            let part = match part {
                None | Some(PartArg::Allocations) => Part::Allocations,
                Some(PartArg::Values) => Part::Values,
                Some(PartArg::LiveRange) => Part::LiveRange,
            };
            Ok(dump_b(planned, target, part))
        }
    }
}

fn show(verified: &Verified, faults: &[Diagnostic]) -> Stop {
    output::show(&verified.source, Some(verified.module.module()), faults);
    Stop(Outcome::InputAtFault)
}

/// What was planned is run through the checker before anyone relies on it.
fn prove(verified: &Verified, target: &Target, planned: &Plan<'_>) -> Result<()> {
    let _progress = progress::start(format!("checking {}", verified.source.name));
    let faults = check(&verified.module, target, &Assignment::from(planned));
    let Some(first) = faults.first() else { return Ok(()) };
    if first.code == &TOO_LARGE {
        return Err(show(verified, &faults));
    }
    let message = "the memory of this module cannot be planned as it stands: it lacks a copy".to_owned();
    let mut diagnostic =
        Diagnostic::error(&NEEDS_COPY, message).at_place(first.place.clone()).note(first.message.clone());
    diagnostic.notes.extend(first.notes.iter().cloned());
    Err(show(verified, &[diagnostic]))
}

/// Judges a dump of another compiler, or of ours.
fn judge(args: &MemoryArgs, verified: &Verified, target: &Target, dump: &str) -> Result {
    let bytes = read_bytes(dump).map_err(|r| input::show_rejected(&r))?;
    let module = verified.module.module();
    let faults = match read_dump(module, &String::from_utf8_lossy(&bytes), dump) {
        Ok(assignment) => check(&verified.module, target, &assignment),
        Err(diagnostic) => vec![diagnostic],
    };
    if args.json {
        output::to_stdout(json_report(&verified.source, Some(module), &faults).as_bytes())?;
    } else {
        output::show(&verified.source, Some(module), &faults);
    }
    if !faults.is_empty() {
        return Ok(Outcome::InputAtFault);
    }
    if !args.json {
        output::to_stderr(&format!("{dump}: nothing is wrong with this assignment\n"));
    }
    Ok(Outcome::Well)
}
