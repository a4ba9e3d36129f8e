//! Kernel assignment: the backend's decision which code each instruction gets, written down on the instruction.
//!
//! It is made here once, when the program is what will run; lowering carries it out.

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::module::Module;
use hloom_passes::facts::flow_computations;
use hloom_passes::{Context, Pass};

/// The pass.
pub(super) static PASS: Pass = Pass {
    name: "assign-kernels",
    statement: "writes on each instruction which code of the backend's it gets",
    keeps_schedule: true,
    run,
};

fn run(module: &mut Module, context: &Context<'_>) -> Result<usize, Diagnostic> {
    let mut changes = 0;
    for computation in flow_computations(module) {
        for i in module[computation].instructions().to_vec() {
            if let Some(config) = context.info.choose_kernel(module, i) {
                changes += usize::from(config.write(module.instruction_mut(i)));
            }
        }
    }
    Ok(changes)
}
