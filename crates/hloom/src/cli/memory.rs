//! `hloom memory`: the buffer assignment of a module, a summary of it, or a judgement of another's.

mod describe;
mod json;
mod page;
mod prepare;
mod report;
mod schedule;

use super::args::{DialectArg, MemoryArgs, PackerArg, PartArg};
use super::json::report as json_report;
use super::{Outcome, Result, Stop, input, output, progress, usage_error};
use hloom::Verified;
use hloom::ir::diagnostic::Diagnostic;
use hloom::ir::diagnostic::codes::plan::{MIXED_CALLS, NEEDS_COPY, OVERLAP, SHARED_COMPUTATION, TOO_LARGE};
use hloom::load::{Format, Source, display_name, read_bytes};
use hloom::plan::check::{Assignment, check};
use hloom::plan::dump::{Part, dump_a, dump_b};
use hloom::plan::dump_checker::text_of;
use hloom::plan::{self, Packer, Plan, plan_with};
use hloom::target::{DumpDialect, Target};
use report::Report;
use std::sync::Arc;

pub(crate) fn run(args: &MemoryArgs) -> Result {
    let verified = input::load_verified(&args.file)?;
    let mut target = input::target_of(args.target.as_deref(), &verified)?;
    if let Some(dialect) = args.dialect {
        target.dialect = match dialect {
            DialectArg::A => DumpDialect::A,
            DialectArg::B => DumpDialect::B,
        };
    }
    let target = target;
    if let Some(dump) = &args.check {
        return judge(args, &verified, &target, dump);
    }
    let is_ready = verified.module.module().is_scheduled && args.schedule.is_none();
    let verified = if is_ready { verified } else { prepare::prepared(verified, &target, false)? };
    let mut verified = schedule::scheduled(args, verified, &target)?;
    // A schedule may be that of a program whose memory was never planned: it is mended once, and then judged.
    let mut is_mended = !is_ready;
    loop {
        match show_plan(args, &verified, &target) {
            Err(Unplanned::NotReady(_)) if !is_mended => {
                is_mended = true;
                verified = prepare::prepared(verified, &target, true)?;
            }
            Err(Unplanned::NotReady(faults)) => return Err(show(&verified, &faults)),
            Err(Unplanned::Stop(stop)) => return Err(stop),
            Ok(()) => return Ok(Outcome::Well),
        }
    }
}

/// Why nothing was shown.
enum Unplanned {
    /// The module shares computations, or lacks copies.
    NotReady(Vec<Diagnostic>),
    Stop(Stop),
}

impl From<Stop> for Unplanned {
    fn from(stop: Stop) -> Unplanned {
        Unplanned::Stop(stop)
    }
}

/// Plans the memory, proves the plan right, and shows it as was asked.
fn show_plan(args: &MemoryArgs, verified: &Verified, target: &Target) -> std::result::Result<(), Unplanned> {
    let planned = {
        let _progress = progress::start(format!("planning {}", verified.source.name));
        plan_with(&verified.module, target, packer(args.packer))
    };
    let planned = planned.map_err(|faults| {
        let is_shared = |f: &Diagnostic| f.code == &SHARED_COMPUTATION || f.code == &MIXED_CALLS;
        match faults.iter().all(is_shared) {
            true => Unplanned::NotReady(faults),
            false => Unplanned::Stop(show(verified, &faults)),
        }
    })?;
    prove(verified, target, &planned)?;
    if args.html.is_none() && !args.json && !args.summary {
        output::to_stdout(dump(&planned, target, args.part)?.as_bytes())?;
        return Ok(());
    }
    let (path, text) = {
        let _progress = progress::start(format!("summing up {}", verified.source.name));
        let report = Report::new(verified, &planned, target);
        match &args.html {
            Some(path) => (path.as_str(), page::to_html(&report)),
            None if args.json => ("-", json::to_json(&report)),
            None => ("-", report::to_text(&report)),
        }
    };
    output::to_path(path, text.as_bytes())?;
    Ok(())
}

fn packer(arg: PackerArg) -> Packer {
    match arg {
        PackerArg::Reference => Packer::Reference,
        PackerArg::Best => Packer::Best,
    }
}

fn dump(planned: &Plan<'_>, target: &Target, part: Option<PartArg>) -> Result<String> {
    match (target.dialect, part) {
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
fn prove(verified: &Verified, target: &Target, planned: &Plan<'_>) -> std::result::Result<(), Unplanned> {
    let _progress = progress::start(format!("checking {}", verified.source.name));
    let faults = check(&verified.module, target, &Assignment::from(planned));
    let Some(first) = faults.first() else { return Ok(()) };
    if first.code == &TOO_LARGE {
        return Err(show(verified, &faults).into());
    }
    let lack = if first.code == &OVERLAP { ": it lacks a copy" } else { "" };
    let message = format!("the memory of this module cannot be planned as it stands{lack}");
    let mut diagnostic =
        Diagnostic::error(&NEEDS_COPY, message).at_place(first.place.clone()).note(first.message.clone());
    diagnostic.notes.extend(first.notes.iter().cloned());
    Err(Unplanned::NotReady(vec![diagnostic]))
}

/// Judges a dump of another compiler, or of ours.
fn judge(args: &MemoryArgs, verified: &Verified, target: &Target, dump: &str) -> Result {
    let bytes = read_bytes(dump).map_err(|r| input::show_rejected(&r))?;
    let module = verified.module.module();
    let faults = {
        let _progress = progress::start(format!("judging {dump}"));
        match text_of(&bytes) {
            Ok(text) => plan::dump_checker::judge(&verified.module, target, text),
            Err(fault) => vec![fault],
        }
    };
    // What is at fault is shown in the dump, whose bytes stand in for a program's.
    let source = Source {
        name: display_name(dump).to_owned(),
        bytes: Arc::new(bytes),
        format: Format::HloText,
        positions: Default::default(),
    };
    if args.json {
        output::to_stdout(json_report(&source, Some(module), &faults).as_bytes())?;
    } else {
        output::show(&source, Some(module), &faults);
    }
    if !faults.is_empty() {
        return Ok(Outcome::InputAtFault);
    }
    if !args.json {
        output::to_stderr(&format!("{}: nothing is wrong with this assignment\n", source.name));
    }
    Ok(Outcome::Well)
}
