//! Shardy's passes over StableHLO: reading the program into a graph, propagating, and writing the shardings back.
//!
//! [`run`] takes passes by the names and options that Shardy gives them. Data-flow edges are kept in mind rather than
//! written as operations: a loop, a conditional or a manual computation holds the shardings of its edges itself. What the
//! passes keep: every operation that was there computes what it did.

mod build;
mod constraints;
mod edit;
mod export;
mod functions;
mod groups;
mod import;
mod passes;
mod read;
mod rules;
mod splitter;
mod write;

pub(crate) use export::{evenly_cut, whole_axes};
pub use passes::{PassName, all as all_passes, is_shardy, parse_passes};

use crate::factors::engine::{self, Rounds};
use hloom_ir::diagnostic::Diagnostic;
use hloom_stablehlo::mlir::Module;

/// Runs the passes over a program, one after the other.
pub fn run(module: &mut Module<'_>, passes: &[PassName]) -> Result<(), Vec<Diagnostic>> {
    let mut state = State::default();
    for pass in passes {
        passes::run(module, pass, &mut state)?;
    }
    Ok(())
}

/// What one pass leaves for the next besides the program.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Whether edges of the data flow are there: shardings go through loops, conditionals and manual computations.
    edges: bool,
    /// Whether they go through calls too.
    call_edges: bool,
}

/// Carries the shardings of a program as far as they go.
fn propagate(module: &mut Module<'_>, state: State, rounds: Rounds, keep_rules: bool) -> Result<(), Vec<Diagnostic>> {
    groups::separate_conflicts(module);
    let mut built = build::Built::new(module, state)?;
    engine::run(&mut built.graph, rounds);
    write::shardings(module, &built);
    if keep_rules {
        write::rules(module, &built);
    } else {
        write::drop_rules(module);
    }
    Ok(())
}
