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
use hloom_ir::diagnostic::codes::plan::TOO_LARGE;
use hloom_ir::diagnostic::{Blame, Diagnostic};
use hloom_ir::entity::{ComputationId, SideTable};
use hloom_ir::module::Module;
use hloom_ir::verify::VerifiedModule;
use hloom_target::Target;

/// What is said at most: one fault often shows in many places.
const MAX_FAULTS: usize = 20;

/// Calls that nest no deeper fit on any stack.
const SHALLOW: usize = 200;
/// None are checked that nest deeper.
const MAX_DEPTH: usize = 20_000;
/// Bytes of the stack that a level takes at most.
const STACK_PER_LEVEL: usize = 16 << 10;

/// How deep calls nest, from the entry on.
fn depth(module: &Module) -> usize {
    let mut depths: SideTable<ComputationId, usize> = SideTable::with_len(module.computation_slots(), 0);
    for c in hloom_ir::order::computations(module) {
        let callees = module[c].instructions().iter().flat_map(|&i| module[i].op.called_computations());
        let deepest = callees.map(|callee| depths[callee]).max().unwrap_or(0);
        depths.set(c, deepest + 1);
    }
    module.entry().map_or(0, |entry| depths[entry])
}

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
        let depth = depth(module);
        let work = || {
            let mut faults = Vec::new();
            run::run(&positions, assignment, &mut faults);
            faults
        };
        if depth <= SHALLOW {
            faults = work();
        } else if depth > MAX_DEPTH {
            faults.push(Diagnostic::error(&TOO_LARGE, format!("calls nest more than {MAX_DEPTH} deep")));
        } else {
            // Each level takes a little of the stack, which is made for as many as there are.
            let stack = (8 << 20) + depth * STACK_PER_LEVEL;
            let ran = std::thread::scope(|scope| {
                let thread = std::thread::Builder::new().stack_size(stack).spawn_scoped(scope, work);
                thread.ok().and_then(|thread| thread.join().ok())
            });
            let failed = || Diagnostic::error(&TOO_LARGE, format!("there is no stack for calls {depth} deep"));
            faults = ran.unwrap_or_else(|| vec![failed().blame(Blame::Machine)]);
        }
    }
    faults.truncate(MAX_FAULTS);
    faults
}
