//! Sharding propagation: from the shardings that a program gives to one for every instruction.
//!
//! A program whose annotations name the axes of a mesh (Shardy's) is propagated along factors; one whose annotations are
//! tiles (GSPMD's) by the rules of [`crate::gspmd`]. Either way every instruction has a sharding afterwards, and the
//! [`PropagationReport`] says how each came about.

mod check;
mod conflict;
mod hlo_graph;
mod hlo_rules;
mod manual;
mod named;
mod prepare;
pub(crate) mod regions;
mod report;
mod write_back;

pub use conflict::ShardingConflict;
pub(crate) use hlo_graph::HloGraph;
pub(crate) use named::sequential;
pub(crate) use prepare::prepare;
pub use report::{PropagationReport, PropagationStep, StepSource};

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::module::Module;
use hloom_ir::sharding::{Sharding, ShardingKind};

/// What propagation is told besides the module.
#[derive(Clone, Debug)]
pub struct PropagationOptions {
    /// Which results' shardings may be chosen where the program gives none, or gives tiles that may be refined; one entry
    /// stands for all, none for no result. Only programs annotated with tiles ask: named shardings say themselves which
    /// dimensions are open.
    pub allow_propagation_to_output: Vec<bool>,
    /// The same for parameters.
    pub allow_propagation_to_parameters: Vec<bool>,
    /// Whether all devices run one program: then tiles may be replicated over some of them.
    pub is_spmd: bool,
    /// Whether only broadcasts of scalars are given shardings, so that those that are to lie differently stay apart.
    pub cse_prevention_only: bool,
}

impl Default for PropagationOptions {
    fn default() -> Self {
        PropagationOptions {
            allow_propagation_to_output: vec![false],
            allow_propagation_to_parameters: vec![false],
            is_spmd: true,
            cse_prevention_only: false,
        }
    }
}

/// Whether a program names the axes of meshes in its annotations.
pub fn has_named_shardings(module: &Module) -> bool {
    let named = |s: &Sharding| s.leaves().iter().any(|l| matches!(l.kind, ShardingKind::Named(_)));
    module
        .computations()
        .iter()
        .any(|&c| module[c].instructions().iter().any(|&i| module[i].common.sharding.as_deref().is_some_and(named)))
}

/// Gives every instruction a sharding. Calls are written out in place on the way, and each loop and branch gets
/// computations of its own.
pub fn propagate(module: &mut Module, options: &PropagationOptions) -> Result<PropagationReport, Vec<Diagnostic>> {
    if has_named_shardings(module) {
        prepare(module)?;
        named::propagate(module)
    } else {
        prepare::write_out(module)?;
        crate::gspmd::propagate(module, options)
    }
}
