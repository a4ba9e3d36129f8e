//! A schedule for modules that come without one, or for which another is wanted.

use crate::cli::args::{MemoryArgs, SchedulerArg};
use crate::cli::stats::size;
use crate::cli::{Outcome, Result, Stop, input, output, progress};
use hloom::ir::diagnostic::codes::plan::NOT_SCHEDULED;
use hloom::ir::diagnostic::{Diagnostic, Place};
use hloom::plan::schedule::{Scheduler, schedule};
use hloom::target::Target;
use hloom::{Loaded, Verified};

/// The module with a schedule: its own, or one that is made for it.
pub(super) fn scheduled(args: &MemoryArgs, verified: Verified, target: &Target) -> Result<Verified> {
    let has_one = verified.module.module().is_scheduled;
    if has_one && args.schedule.is_none() {
        return Ok(verified);
    }
    let Verified { source, module, diagnostics } = verified;
    let mut module = module.into_module();
    let (scheduler, purpose) = match args.schedule {
        Some(SchedulerArg::Topological) => (Scheduler::Topological, "in plain topological order"),
        Some(SchedulerArg::Memory) | None => (Scheduler::Memory, "for little memory"),
    };
    let done = {
        let _progress = progress::start(format!("scheduling {}", source.name));
        schedule(&mut module, scheduler, target)
    };
    let done = done.map_err(|fault| {
        output::show(&source, Some(&module), &[fault]);
        Stop(Outcome::InputAtFault)
    })?;
    if args.schedule.is_none() {
        let bytes = |n: i128| size(u64::try_from(n).unwrap_or(u64::MAX));
        let (peak, before) = (bytes(done.peak), bytes(done.topological_peak));
        let message = format!("the module has no schedule; it was scheduled {purpose}");
        let live =
            format!("at most {peak} of temporaries and results are live at once, {before} in plain topological order");
        let warning = Diagnostic::warning(&NOT_SCHEDULED, message).at_place(Place::Header).note(live);
        let warning = warning.help("choose with --schedule memory or --schedule topological");
        output::show(&source, Some(&module), &[warning]);
    }
    let loaded = Loaded { source, module, diagnostics };
    input::verify(loaded, None).map_err(|r| input::show_rejected(&r))
}
