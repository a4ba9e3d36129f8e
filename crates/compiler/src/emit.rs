//! The forms in which what a stage made can be printed, and printing it.

use crate::backend::{Backend, compile, optimize_for};
use crate::compiled::CompiledModule;
use crate::error::CompileError;
use crate::options::CompileOptions;
use hloom_formats::hlo_text::{self, PrintOptions};
use hloom_ir::verify::VerifiedModule;
use hloom_plan::dump::{Part, dump_a, dump_b};
use hloom_plan::{Packer, plan_with};
use hloom_target::DumpDialect;

const PRINT: PrintOptions = PrintOptions { elide_constants: false };

/// What to print of a compiled module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Emit {
    /// The module after the passes for every machine.
    Hlo,
    /// The final scheduled module.
    Schedule,
    /// Its buffer assignment.
    Memory,
    /// The loop programs of its kernels.
    Loops,
    /// What is executed, in order.
    Thunks,
    /// LLVM's code.
    Llvm,
    /// Machine code as assembly.
    Asm,
    /// Code for NVIDIA's GPUs.
    Ptx,
}

impl Emit {
    /// All forms.
    pub const ALL: [Emit; 8] =
        [Emit::Hlo, Emit::Schedule, Emit::Memory, Emit::Loops, Emit::Thunks, Emit::Llvm, Emit::Asm, Emit::Ptx];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Emit::Hlo => "hlo",
            Emit::Schedule => "schedule",
            Emit::Memory => "memory",
            Emit::Loops => "loops",
            Emit::Thunks => "thunks",
            Emit::Llvm => "llvm",
            Emit::Asm => "asm",
            Emit::Ptx => "ptx",
        }
    }
}

/// What the stage of `form` makes of `module`, as text; `None` if the backend makes nothing of that form.
pub fn emit(
    backend: &dyn Backend,
    module: &VerifiedModule,
    options: &CompileOptions,
    form: Emit,
) -> Result<Option<String>, CompileError> {
    if form == Emit::Hlo {
        let optimized = optimize_for(backend, module.clone(), options.excess_precision, backend.last_common_pass())?;
        return Ok(Some(hlo_text::print(optimized.module.module(), &PRINT)));
    }
    emit_compiled(backend, &compile(backend, module, options)?, form)
}

/// What a compiled module is in one of the forms, as text; `None` if it has nothing of that form.
pub fn emit_compiled(
    backend: &dyn Backend,
    compiled: &CompiledModule,
    form: Emit,
) -> Result<Option<String>, CompileError> {
    match form {
        Emit::Hlo => Ok(None),
        Emit::Schedule => Ok(Some(hlo_text::print(compiled.module.module(), &PRINT))),
        Emit::Memory => {
            let target = backend.target();
            let plan = plan_with(&compiled.module, target, Packer::Reference)
                .map_err(|found| CompileError::after("plan", found, compiled.module.module()))?;
            Ok(Some(match target.dialect {
                DumpDialect::A => dump_a(&plan, target),
                DumpDialect::B => dump_b(&plan, target, Part::Allocations),
            }))
        }
        form => Ok(compiled.code.emit(&compiled.module, form)),
    }
}
