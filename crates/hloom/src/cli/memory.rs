//! `hloom memory`: the buffer assignment of a module, a summary of it, or a judgement of another's.

mod json;
pub(crate) mod planned;
mod report;

use super::args::{DialectArg, MemoryArgs, PackerArg, PartArg};
use super::json::report as json_report;
use super::{Outcome, Result, input, output, progress, usage_error};
use hloom::Verified;
use hloom::load::{Format, Source, display_name, read_bytes};
use hloom::plan::dump::{Part, dump_a, dump_b};
use hloom::plan::dump_checker::text_of;
use hloom::plan::{self, Packer, Plan};
use hloom::report::memory::MemoryReport;
use hloom::report::page::{self, Subject};
use hloom::target::{DumpDialect, Target};
use planned::{PlanOptions, Planned, with_plan};
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
        return check_dump(args, &verified, &target, dump);
    }
    let options = PlanOptions { schedule: args.schedule, packer: packer(args.packer) };
    let shown = with_plan(verified, &target, options, |planned| show_plan(args, planned, &target));
    shown.map_err(|rejected| input::show_rejected(&rejected))?
}

/// Shows what was planned as was asked.
fn show_plan(args: &MemoryArgs, planned: &Planned<'_>, target: &Target) -> Result {
    let Planned { verified, plan, notes } = planned;
    output::show(&verified.source, Some(verified.module.module()), notes);
    if args.html.is_none() && !args.json && !args.summary {
        output::to_stdout(dump(plan, target, args.part)?.as_bytes())?;
        return Ok(Outcome::Well);
    }
    let (path, text) = {
        let _progress = progress::start(format!("summing up {}", verified.source.name));
        let report = MemoryReport::new(&verified.module, plan, target);
        match &args.html {
            Some(path) => (path.as_str(), html(verified, &report)),
            None if args.json => ("-", json::to_json(&report)),
            None => ("-", report::to_text(&report)),
        }
    };
    output::to_path(path, text.as_bytes())?;
    Ok(Outcome::Well)
}

fn html(verified: &Verified, report: &MemoryReport<'_, '_>) -> String {
    let file = &verified.source.name;
    page::memory(&Subject {
        module: &verified.module,
        file,
        memory: Ok(report),
        timelines: &[],
        simulation_absent: None,
    })
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

/// Checks a dump of another compiler, or of ours.
fn check_dump(args: &MemoryArgs, verified: &Verified, target: &Target, dump: &str) -> Result {
    let bytes = read_bytes(dump).map_err(|r| input::show_rejected(&r))?;
    let module = verified.module.module();
    let faults = {
        let _progress = progress::start(format!("checking {dump}"));
        match text_of(&bytes) {
            Ok(text) => plan::dump_checker::check_dump(&verified.module, target, text),
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
