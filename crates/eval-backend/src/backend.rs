//! A backend whose code is the module itself.

use hloom_compiler::{Backend, Code, CompileError, CompileOptions, CompileReport, Emit};
use hloom_eval::run::Prepared;
use hloom_ir::verify::VerifiedModule;
use hloom_passes::{PipelineStep, TargetInfo};
use hloom_target::Target;
use std::sync::Arc;

/// The evaluator as a backend. Nothing is rewritten: a module runs as it is.
#[derive(Debug)]
pub struct EvalBackend {
    target: Target,
}

/// What the evaluator has worked out of a module.
pub(crate) struct EvalCode(pub(crate) Prepared);

impl std::fmt::Debug for EvalCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EvalCode").finish_non_exhaustive()
    }
}

impl Code for EvalCode {
    fn emit(&self, _: &VerifiedModule, _: Emit) -> Option<String> {
        None
    }
    fn serialize(&self) -> Option<Vec<u8>> {
        Some(Vec::new())
    }
}

impl EvalBackend {
    /// The backend.
    pub fn new() -> Result<EvalBackend, CompileError> {
        let target = Target::named("cpu").map_err(|d| CompileError::of_source("target", vec![d]))?;
        Ok(EvalBackend { target })
    }
}

impl Backend for EvalBackend {
    fn name(&self) -> &'static str {
        "eval"
    }

    fn info(&self) -> &dyn TargetInfo {
        &self.target
    }

    fn pipeline(&self) -> &[PipelineStep] {
        &[]
    }

    fn generate(
        &self,
        scheduled: &Arc<VerifiedModule>,
        options: &CompileOptions,
        _: &mut CompileReport,
    ) -> Result<Arc<dyn Code>, CompileError> {
        Ok(Arc::new(EvalCode(Prepared::new(scheduled, options.fill_constants)?)))
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn machine(&self) -> Vec<String> {
        Vec::new()
    }

    fn deserialize(
        &self,
        scheduled: &Arc<VerifiedModule>,
        options: &CompileOptions,
        _: &[u8],
        report: &mut CompileReport,
    ) -> Result<Arc<dyn Code>, CompileError> {
        self.generate(scheduled, options, report)
    }
}
