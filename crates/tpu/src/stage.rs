//! What a stage of the pipeline is, and what it may know besides the module.
//!
//! A stage is a plain function over a module. It answers with the number of changes it made, 0 only if the module is as it
//! was, or with a diagnostic; what it leaves is a valid module that computes what it computed before.

use crate::policy::Policy;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::module::Module;
use hloom_target::{Target, Topology};

/// What every stage may ask.
#[derive(Clone, Debug)]
pub struct StageContext<'t> {
    /// The machine.
    pub target: &'t Target,
    /// The slice of it that the program runs on.
    pub topology: Topology,
    /// What the machine's code generator prefers.
    pub policy: Policy,
}

impl<'t> StageContext<'t> {
    /// For `target` and a slice of it.
    pub fn new(target: &'t Target, topology: Topology) -> StageContext<'t> {
        StageContext { target, topology, policy: Policy::of(target) }
    }
}

/// A named step from a module to a module.
#[derive(Clone, Copy)]
pub struct Stage {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub statement: &'static str,
    /// Rewrites the module and says how many changes were made.
    pub run: fn(&mut Module, &StageContext<'_>) -> Result<usize, Diagnostic>,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stage").field(&self.name).finish()
    }
}
