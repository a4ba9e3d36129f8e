//! Compiled modules: the scheduled HLO, and the code that a backend made of it.

use crate::emit::Emit;
use crate::report::CompileReport;
use hloom_analysis::devices::DeviceGrid;
use hloom_ir::diagnostic::{Diagnostic, Place};
use hloom_ir::module::Module;
use hloom_ir::shape::Shape;
use hloom_ir::verify::VerifiedModule;
use hloom_value::ExecutionError;
use std::any::Any;
use std::sync::Arc;

/// A module compiled for a machine, whether or not that machine is here.
#[derive(Clone, Debug)]
pub struct CompiledModule {
    /// The backend that made it.
    pub backend: &'static str,
    /// The machine that it is for, by its description's name.
    pub target: String,
    /// The program as it runs: scheduled, with its memory spaces and typed config.
    pub module: Arc<VerifiedModule>,
    /// The devices that it runs on.
    pub grid: DeviceGrid,
    /// The leaves of the parameters, with the name of the parameter each is of.
    pub parameters: Vec<(String, Shape)>,
    /// The leaves of the result.
    pub results: Vec<Shape>,
    /// Whether constants that the dump leaves out are made up.
    pub fill_constants: bool,
    /// What became of the program.
    pub report: CompileReport,
    /// What the backend made.
    pub code: Arc<dyn Code>,
}

/// What a backend makes of a scheduled module. A client of that backend knows its concrete type.
pub trait Code: std::fmt::Debug + Send + Sync + Any {
    /// What it consists of in one of the forms, if it has that form.
    fn emit(&self, module: &VerifiedModule, form: Emit) -> Option<String>;

    /// Its bytes, to be loaded without compiling; `None` if it cannot be saved.
    fn serialize(&self) -> Option<Vec<u8>>;
}

impl CompiledModule {
    /// The code, if it is of that type.
    pub fn code<C: Code>(&self) -> Option<&C> {
        let code: &dyn Any = &*self.code;
        code.downcast_ref()
    }

    /// The same error in terms of `source`, the program as it was before it was compiled: places are found by name, and
    /// left out where the compiler made the instruction.
    pub fn explain(&self, error: ExecutionError, source: &Module) -> ExecutionError {
        let diagnostic = place_in_source(error.into_diagnostic(), self.module.module(), source);
        ExecutionError::from_diagnostic(Box::new(diagnostic))
    }
}

/// A diagnostic about an instruction of `compiled`, at the instruction of the same name in `source`.
pub(crate) fn place_in_source(diagnostic: Diagnostic, compiled: &Module, source: &Module) -> Diagnostic {
    let Place::Instruction(id, part) = diagnostic.place else { return diagnostic };
    let name = compiled[id].name();
    match source.instruction_by_name(name) {
        Some(id) => diagnostic.at_instruction(id, part),
        None => diagnostic.at_place(Place::None).note(format!("in {name} of the compiled program")),
    }
}
