//! Why a module could not be compiled.

use hloom_ir::diagnostic::codes::passes::BROKEN_MODULE;
use hloom_ir::diagnostic::{Blame, Diagnostic};
use hloom_ir::module::Module;
use hloom_passes::Failed;
use hloom_value::ExecutionError;

/// Why a module could not be compiled: at which stage, what is wrong, and the module whose instructions the diagnostics
/// name, where that is not the one that was given.
#[derive(Debug)]
pub struct CompileError {
    /// The stage.
    pub stage: &'static str,
    /// What is wrong; at least one.
    pub diagnostics: Vec<Diagnostic>,
    /// What the diagnostics' places are in, if it is not the source.
    pub module: Option<Box<Module>>,
}

impl CompileError {
    /// What is wrong with the source.
    pub fn of_source(stage: &'static str, diagnostics: Vec<Diagnostic>) -> CompileError {
        CompileError { stage, diagnostics, module: None }
    }

    /// A state that no verified module should lead to: a bug of ours.
    pub fn bug(stage: &'static str, message: impl Into<String>) -> CompileError {
        let diagnostic = Diagnostic::error(&BROKEN_MODULE, message).blame(Blame::Hloom);
        CompileError { stage, diagnostics: vec![diagnostic], module: None }
    }

    /// What a stage found wrong with a module that the stages before it made of a valid one. Errors that accuse the program
    /// for what those stages did are bugs of ours; what the machine or the data cannot do stays what it is.
    pub fn after(stage: &'static str, diagnostics: Vec<Diagnostic>, module: &Module) -> CompileError {
        CompileError { stage, diagnostics, module: Some(Box::new(module.clone())) }
    }

    /// Whether it is a bug of ours.
    pub fn is_bug(&self) -> bool {
        self.diagnostics.iter().any(|d| d.blame == Blame::Hloom)
    }

    /// The diagnostics in terms of `source`: places are found by name, and left out where the compiler made the instruction.
    pub fn into_diagnostics(self, source: &Module) -> Vec<Diagnostic> {
        let CompileError { stage, diagnostics, module } = self;
        let explain = |d: Diagnostic| {
            let d = match &module {
                Some(module) => crate::compiled::place_in_source(d, module, source),
                None => d,
            };
            if d.blame == Blame::Hloom { d.note(format!("in the stage `{stage}` of the compiler")) } else { d }
        };
        diagnostics.into_iter().map(explain).collect()
    }
}

impl From<Failed> for CompileError {
    fn from(failed: Failed) -> CompileError {
        CompileError { stage: failed.pass, diagnostics: failed.diagnostics, module: Some(failed.module) }
    }
}

impl From<ExecutionError> for CompileError {
    fn from(error: ExecutionError) -> CompileError {
        CompileError { stage: "kernels", diagnostics: vec![error.into_diagnostic()], module: None }
    }
}

impl std::fmt::Display for CompileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let first = self.diagnostics.first().map_or("nothing is known", |d| &d.message);
        write!(f, "{}: {first}", self.stage)
    }
}

impl std::error::Error for CompileError {}
