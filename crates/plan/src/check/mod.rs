//! Proves a buffer assignment right, or says what is wrong with it.
//!
//! The module is run, without data: memory is a map from bytes to *who wrote them last*, and an instruction writes its
//! results where the assignment puts them. Whenever something is read, what is there must be what its maker wrote. Loops
//! are run twice round, since what is read in one round may have been overwritten in the round before; a conditional's
//! branches are run each from the same memory. So nothing is taken from the planner: no live range, no set of aliases, no
//! order but that of the schedule. Live ranges, where the assignment states them, must cover what was read. Besides, sizes, alignments, memory spaces and kinds of allocations are checked.

mod assignment;
mod local;
mod memory;
mod needs;
mod overwrite;
mod run;
mod statics;

pub use assignment::{Assigned, Assignment, Piece, Ranged};

use crate::positions::Positions;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::plan::TOO_LARGE;
use hloom_ir::verify::VerifiedModule;
use hloom_target::Target;

/// What is said at most: one fault often shows in many places.
const MAX_FAULTS: usize = 20;

/// Everything that is wrong with the assignment; nothing, if it is right.
pub fn check(module: &VerifiedModule, target: &Target, assignment: &Assignment) -> Vec<Diagnostic> {
    let module = module.module();
    let Some(positions) = Positions::new(module) else {
        return vec![Diagnostic::error(&TOO_LARGE, "the module's results have more than 2^32 parts")];
    };
    let mut faults = Vec::new();
    statics::check(&positions, target, assignment, &mut faults);
    local::check(&positions, assignment, &mut faults);
    if faults.is_empty() {
        run::run(&positions, assignment, &mut faults);
    }
    faults.truncate(MAX_FAULTS);
    faults
}
