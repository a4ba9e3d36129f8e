//! What a stage of the pipeline may know besides the module.
//!
//! Stages are passes for TPU-like machines: each runs alone by its name, among those for every machine.

use crate::policy::Policy;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::diagnostic::codes::passes::NO_LIST;
use hloom_ir::module::Module;
use hloom_passes::{Context, TargetInfo};
use hloom_target::{Target, Topology};

/// What every stage may ask.
#[derive(Clone, Debug)]
pub(crate) struct StageContext<'t> {
    /// The machine.
    pub(crate) target: &'t Target,
    /// The slice of it that the program runs on.
    pub(crate) topology: Topology,
    /// What the machine's code generator prefers.
    pub(crate) policy: Policy,
}

/// A machine and the slice of it that a program is compiled for.
#[derive(Debug)]
pub(crate) struct Slice<'t> {
    pub(crate) target: &'t Target,
    pub(crate) topology: Topology,
}

impl TargetInfo for Slice<'_> {
    fn target(&self) -> &Target {
        self.target
    }

    fn topology(&self) -> Option<&Topology> {
        Some(&self.topology)
    }
}

/// Runs a stage as a pass: in the slice that was asked for, or else in the usual one for as many devices as the program has.
pub(crate) fn staged(
    module: &mut Module,
    context: &Context<'_>,
    stage: impl FnOnce(&mut Module, &StageContext<'_>) -> Result<usize, Diagnostic>,
) -> Result<usize, Diagnostic> {
    let target = context.target();
    if target.windows.is_none() {
        let message = format!("this is a stage for TPU-like machines, which `{}` is not", target.name);
        return Err(Diagnostic::error(&NO_LIST, message));
    }
    let config = &module.config;
    let devices = config.replica_count.max(1).saturating_mul(config.num_partitions.max(1));
    let usual = || target.usual_topology(usize::try_from(devices).unwrap_or(1));
    let topology = context.info.topology().cloned().unwrap_or_else(usual);
    stage(module, &StageContext { target, topology, policy: Policy::of(target) })
}
