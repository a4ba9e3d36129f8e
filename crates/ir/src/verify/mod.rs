//! The verifier.

use crate::diagnostic::Diagnostic;
use crate::module::Module;

/// A module that passed the verifier: later stages take only this, and return errors but never panic on it.
#[derive(Clone, Debug)]
pub struct VerifiedModule(Module);

/// A module that did not pass, with the reasons.
#[derive(Debug)]
pub struct Invalid {
    /// The module as it was given.
    pub module: Box<Module>,
    /// What is wrong with it: all that was found.
    pub diagnostics: Vec<Diagnostic>,
}

/// What the verifier is told about the world.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// The number of devices the program is to run on, where known; the header's counts otherwise.
    pub devices: Option<i64>,
}

/// Checks `module`.
pub fn verify(module: Module, options: &VerifyOptions) -> Result<VerifiedModule, Invalid> {
    let _ = options;
    Ok(VerifiedModule(module))
}

impl VerifiedModule {
    /// The module.
    pub fn module(&self) -> &Module {
        &self.0
    }
    /// The module, to change; it has to be verified again.
    pub fn into_module(self) -> Module {
        self.0
    }
}
