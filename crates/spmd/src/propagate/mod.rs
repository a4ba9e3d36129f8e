//! Sharding propagation: from the shardings that a program gives to one for every instruction.

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::entity::InstructionId;
use hloom_ir::module::Module;

/// What propagation is told besides the module.
#[derive(Clone, Debug, Default)]
pub struct PropagationOptions {
    /// Which results' shardings may be chosen where the program gives none; one entry stands for all.
    pub allow_propagation_to_output: Vec<bool>,
    /// Which parameters' shardings may be chosen where the program gives none; one entry stands for all.
    pub allow_propagation_to_parameters: Vec<bool>,
}

/// How every sharding came about.
#[derive(Clone, Debug, Default)]
pub struct PropagationReport {
    /// In the order in which shardings were set.
    pub steps: Vec<PropagationStep>,
}

/// One change of one instruction's sharding.
#[derive(Clone, Debug)]
pub struct PropagationStep {
    /// Whose sharding changed.
    pub instruction: InstructionId,
    /// The instruction whose sharding it was taken from; itself for an annotation of the program.
    pub from: InstructionId,
}

/// Gives every instruction a sharding.
pub fn propagate(_module: &mut Module, _options: &PropagationOptions) -> Result<PropagationReport, Vec<Diagnostic>> {
    Ok(PropagationReport::default())
}
