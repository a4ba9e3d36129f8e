//! A caller of its own for every computation that runs as a step of the program.

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::module::Module;
use hloom_passes::{Context, Pass};

/// The pass.
pub(super) static PASS: Pass = Pass {
    name: "flatten-call-graph",
    statement: "copies computations that several calls, loops, branches or fusions share, so that each has one caller",
    keeps_schedule: true,
    run,
};

fn run(module: &mut Module, _: &Context<'_>) -> Result<usize, Diagnostic> {
    hloom_plan::flatten::flatten_call_graph(module)
}
