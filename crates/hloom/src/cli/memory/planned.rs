//! From a module to its memory, planned and proved: what it lacks for that (computations with one caller each, copies, a
//! schedule) is given to it first, and said.

use crate::cli::args::SchedulerArg;
use crate::cli::words::plural;
use crate::cli::{input, progress};
use hloom::ir::diagnostic::codes::plan::{
    MIXED_CALLS, NEEDS_COPY, NOT_SCHEDULED, OVERLAP, SHARED_COMPUTATION, TOO_LARGE,
};
use hloom::ir::diagnostic::{Diagnostic, Place};
use hloom::ir::module::Module;
use hloom::plan::check::{Assignment, check};
use hloom::plan::copies::insert_copies;
use hloom::plan::flatten::flatten_call_graph;
use hloom::plan::schedule::{Scheduler, schedule};
use hloom::plan::{Packer, Plan, plan_with};
use hloom::report::words::size;
use hloom::target::Target;
use hloom::{Loaded, Rejected, Source, Verified};

/// How memory is planned.
#[derive(Clone, Copy)]
pub(crate) struct PlanOptions {
    /// Schedule the module anew in this way; without one, only if it has no schedule.
    pub(crate) schedule: Option<SchedulerArg>,
    pub(crate) packer: Packer,
}

/// A module whose memory is planned.
pub(crate) struct Planned<'a> {
    pub(crate) verified: &'a Verified,
    pub(crate) plan: &'a Plan<'a>,
    /// What was done to the module first.
    pub(crate) notes: &'a [Diagnostic],
}

/// Why there is no plan.
enum Unplanned {
    /// The module shares computations, or lacks copies.
    NotReady(Vec<Diagnostic>),
    Wrong(Vec<Diagnostic>),
}

/// Plans the memory of a module, proves the plan right, and gives it to `then`.
pub(crate) fn with_plan<T>(
    verified: Verified,
    target: &Target,
    options: PlanOptions,
    then: impl FnOnce(&Planned<'_>) -> T,
) -> Result<T, Box<Rejected>> {
    let mut notes = Vec::new();
    let is_ready = verified.module.module().is_scheduled && options.schedule.is_none();
    let verified = if is_ready { verified } else { prepared(verified, target, false, &mut notes)? };
    let mut verified = scheduled(verified, target, options.schedule, &mut notes)?;
    // A schedule may be that of a program whose memory was never planned: it is mended once, and then judged.
    let mut is_mended = !is_ready;
    loop {
        let fault = match proved(&verified, target, options.packer) {
            Ok(plan) => return Ok(then(&Planned { verified: &verified, plan: &plan, notes: &notes })),
            Err(fault) => fault,
        };
        match fault {
            Unplanned::NotReady(_) if !is_mended => {
                is_mended = true;
                verified = prepared(verified, target, true, &mut notes)?;
            }
            Unplanned::NotReady(faults) | Unplanned::Wrong(faults) => {
                return Err(rejected(verified.source, verified.module.into_module(), faults));
            }
        }
    }
}

fn rejected(source: Source, module: Module, diagnostics: Vec<Diagnostic>) -> Box<Rejected> {
    Box::new(Rejected { source, module: Some(Box::new(module)), diagnostics })
}

/// The plan, run through the checker before anyone relies on it.
fn proved<'m>(verified: &'m Verified, target: &Target, packer: Packer) -> Result<Plan<'m>, Unplanned> {
    let planned = {
        let _progress = progress::start(format!("planning {}", verified.source.name));
        plan_with(&verified.module, target, packer)
    };
    let plan = planned.map_err(|faults| {
        let is_shared = |f: &Diagnostic| f.code == &SHARED_COMPUTATION || f.code == &MIXED_CALLS;
        match faults.iter().all(is_shared) {
            true => Unplanned::NotReady(faults),
            false => Unplanned::Wrong(faults),
        }
    })?;
    let _progress = progress::start(format!("checking {}", verified.source.name));
    let faults = check(&verified.module, target, &Assignment::from(&plan));
    let Some(first) = faults.first() else { return Ok(plan) };
    if first.code == &TOO_LARGE {
        return Err(Unplanned::Wrong(faults));
    }
    let lack = if first.code == &OVERLAP { ": it lacks a copy" } else { "" };
    let message = format!("the memory of this module cannot be planned as it stands{lack}");
    let mut diagnostic =
        Diagnostic::error(&NEEDS_COPY, message).at_place(first.place.clone()).note(first.message.clone());
    diagnostic.notes.extend(first.notes.iter().cloned());
    Err(Unplanned::NotReady(vec![diagnostic]))
}

/// The module with one caller for each computation and all copies. Where its schedule is not to be kept, what was added is
/// right whatever schedule it is given.
fn prepared(
    verified: Verified,
    target: &Target,
    keep_schedule: bool,
    notes: &mut Vec<Diagnostic>,
) -> Result<Verified, Box<Rejected>> {
    let Verified { source, module, diagnostics } = verified;
    let mut module = module.into_module();
    module.is_scheduled &= keep_schedule;
    let done = {
        let _progress = progress::start(format!("preparing {}", source.name));
        flatten_call_graph(&mut module)
            .map_err(|fault| vec![fault])
            .and_then(|shared| Ok((shared, insert_copies(&mut module, target)?)))
    };
    let (shared, inserted) = match done {
        Ok(done) => done,
        Err(faults) => return Err(rejected(source, module, faults)),
    };
    let mut added = Vec::new();
    if shared > 0 {
        added.push(format!("{} for further callers", plural(shared, "computation")));
    }
    if inserted.copies > 0 {
        let word = if inserted.copies == 1 { "copy" } else { "copies" };
        added.push(format!("{} {word}", inserted.copies));
    }
    if !added.is_empty() {
        let message = format!("to plan the memory of this module, it was given {}", added.join(" and "));
        let how = "`hloom opt --passes flatten-call-graph,copy-insertion` writes the module that is planned";
        notes.push(Diagnostic::warning(&NEEDS_COPY, message).at_place(Place::Header).note(how));
    }
    input::verify(Loaded { source, module, diagnostics }, None)
}

/// The module with a schedule: its own, or one that is made for it.
fn scheduled(
    verified: Verified,
    target: &Target,
    wanted: Option<SchedulerArg>,
    notes: &mut Vec<Diagnostic>,
) -> Result<Verified, Box<Rejected>> {
    let has_one = verified.module.module().is_scheduled;
    if has_one && wanted.is_none() {
        return Ok(verified);
    }
    let Verified { source, module, diagnostics } = verified;
    let mut module = module.into_module();
    let (scheduler, purpose) = match wanted {
        Some(SchedulerArg::Topological) => (Scheduler::Topological, "in plain topological order"),
        Some(SchedulerArg::Memory) | None => (Scheduler::Memory, "for little memory"),
    };
    let done = {
        let _progress = progress::start(format!("scheduling {}", source.name));
        schedule(&mut module, scheduler, target)
    };
    let done = match done {
        Ok(done) => done,
        Err(fault) => return Err(rejected(source, module, vec![fault])),
    };
    if wanted.is_none() {
        let bytes = |n: i128| size(u64::try_from(n).unwrap_or(u64::MAX));
        let (peak, before) = (bytes(done.peak), bytes(done.topological_peak));
        let message = format!("the module has no schedule; it was scheduled {purpose}");
        let live =
            format!("at most {peak} of temporaries and results are live at once, {before} in plain topological order");
        let warning = Diagnostic::warning(&NOT_SCHEDULED, message).at_place(Place::Header).note(live);
        notes.push(warning.help("choose with --schedule memory or --schedule topological"));
    }
    input::verify(Loaded { source, module, diagnostics }, None)
}
