//! What a program needs before its memory can be planned: computations with one caller each, and copies.

use crate::cli::words::plural;
use crate::cli::{Outcome, Result, Stop, input, output, progress};
use hloom::ir::diagnostic::codes::plan::NEEDS_COPY;
use hloom::ir::diagnostic::{Diagnostic, Place};
use hloom::plan::copies::insert_copies;
use hloom::plan::flatten::flatten_call_graph;
use hloom::target::Target;
use hloom::{Loaded, Verified};

/// The module with all that it lacks; says what was added. Where its schedule is not to be kept, what was added is right
/// whatever schedule it is given.
pub(super) fn prepared(verified: Verified, target: &Target, keep_schedule: bool) -> Result<Verified> {
    let Verified { source, module, diagnostics } = verified;
    let mut module = module.into_module();
    module.is_scheduled &= keep_schedule;
    let done = {
        let _progress = progress::start(format!("preparing {}", source.name));
        flatten_call_graph(&mut module)
            .map_err(|fault| vec![fault])
            .and_then(|shared| Ok((shared, insert_copies(&mut module, target)?)))
    };
    let (shared, inserted) = done.map_err(|faults| {
        output::show(&source, Some(&module), &faults);
        Stop(Outcome::InputAtFault)
    })?;
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
        let warning = Diagnostic::warning(&NEEDS_COPY, message).at_place(Place::Header);
        let how = "`hloom opt --passes flatten-call-graph,copy-insertion` writes the module that is planned";
        output::show(&source, Some(&module), &[warning.note(how)]);
    }
    let loaded = Loaded { source, module, diagnostics };
    input::verify(loaded, None).map_err(|r| input::show_rejected(&r))
}
