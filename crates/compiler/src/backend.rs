//! Backends, and the way through one.

use crate::compiled::{Code, CompiledModule};
use crate::error::CompileError;
use crate::options::{CompileOptions, ExcessPrecision};
use crate::passes::registry;
use crate::report::{CompileReport, Fallback};
use hloom_ir::diagnostic::codes::passes::NO_NATIVE_CODE;
use hloom_ir::diagnostic::{Diagnostic, Part};
use hloom_ir::module::Module;
use hloom_ir::shape::Shape;
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_passes::{Context, Optimized, Pass, PipelineStep, TargetInfo, optimize, planted};
use hloom_target::Target;
use std::sync::Arc;

/// A compiler for a kind of machine. It needs none to be there.
pub trait Backend: std::fmt::Debug + Send + Sync {
    /// Its name: `cpu`, `eval`, `tpu`, `cuda`.
    fn name(&self) -> &'static str;

    /// The machine, and what the backend can do on it.
    fn info(&self) -> &dyn TargetInfo;

    /// The machine.
    fn target(&self) -> &Target {
        self.info().target()
    }

    /// The stages that rewrite the module, in order: from the verified module to the scheduled one.
    fn pipeline(&self) -> &[PipelineStep];

    /// Passes of the backend alone, which its pipeline may name besides those for every machine.
    fn passes(&self) -> &'static [&'static Pass] {
        &[]
    }

    /// The last pass of the pipeline that is for every machine; what comes after it is for this one.
    fn last_common_pass(&self) -> Option<&'static str> {
        None
    }

    /// Plans the memory of a scheduled module and makes its code.
    fn generate(
        &self,
        scheduled: &Arc<VerifiedModule>,
        options: &CompileOptions,
        report: &mut CompileReport,
    ) -> Result<Arc<dyn Code>, CompileError>;

    /// Names the backend's own version: code that another has saved is not loaded.
    fn version(&self) -> String;

    /// What the machine at hand has that code may depend on: code runs only where everything is that it was saved with.
    fn machine(&self) -> Vec<String>;

    /// The code whose bytes [`Code::serialize`] made, for the scheduled module that it is of.
    fn deserialize(
        &self,
        scheduled: &Arc<VerifiedModule>,
        options: &CompileOptions,
        bytes: &[u8],
        report: &mut CompileReport,
    ) -> Result<Arc<dyn Code>, CompileError>;
}

/// Runs the stages of a backend's pipeline that rewrite the module, as far as the pass `until` (included) where that is
/// given. Where bf16 values are rounded is up to the caller ([`ExcessPrecision::for_module`]).
pub fn optimize_for(
    backend: &dyn Backend,
    module: VerifiedModule,
    precision: ExcessPrecision,
    until: Option<&str>,
) -> Result<Optimized, CompileError> {
    let precision = precision.for_module(module.module());
    let steps = backend.pipeline();
    let end = until.and_then(|last| steps.iter().rposition(|s| s.names().contains(&last)));
    let steps = steps[..end.map_or(steps.len(), |n| n + 1)].iter().filter_map(|step| match *step {
        PipelineStep::Once(name) => precision.step(name).map(PipelineStep::Once),
        several @ PipelineStep::Fixpoint(..) => Some(several),
    });
    let passes = registry().with(backend.passes());
    let list = passes.pipeline(&steps.collect::<Vec<_>>()).map_err(|d| CompileError::of_source("pipeline", vec![d]))?;
    Ok(optimize(module, &list, &Context { info: backend.info() }, None)?)
}

/// Compiles `module`.
pub fn compile(
    backend: &dyn Backend,
    module: &VerifiedModule,
    options: &CompileOptions,
) -> Result<CompiledModule, CompileError> {
    let mut report = CompileReport::default();
    let optimized =
        report.stage("passes", |_| optimize_for(backend, module.clone(), options.excess_precision, None))?;
    report.passes = optimized.report;
    let module = Arc::new(with_planted_fault(optimized.module, backend.name()));
    let (parameters, results) = signature(module.module());
    let code = backend.generate(&module, options, &mut report)?;
    if options.strict && !report.fallback.is_empty() {
        return Err(without_native_code(&report, &module));
    }
    Ok(CompiledModule {
        backend: backend.name(),
        target: backend.target().name.clone(),
        module,
        grid: options.grid,
        parameters,
        results,
        fill_constants: options.fill_constants,
        report,
        code,
    })
}

/// The module, with the fault in it that a test asks for.
fn with_planted_fault(module: VerifiedModule, backend: &str) -> VerifiedModule {
    if planted::asked_at(backend).is_none() {
        return module;
    }
    let mut faulty = module.module().clone();
    match planted::plant(&mut faulty, backend) {
        0 => module,
        _ => verify(faulty, &VerifyOptions::default()).unwrap_or(module),
    }
}

/// What is wrong under `strict`: each instruction that would be left to the evaluator.
fn without_native_code(report: &CompileReport, module: &VerifiedModule) -> CompileError {
    let module = module.module();
    let mut diagnostics = Vec::new();
    for (opcode, Fallback { reason, instructions }) in &report.fallback {
        for name in instructions {
            let message = format!("there is no native code for {opcode}: {reason}");
            let diagnostic = Diagnostic::error(&NO_NATIVE_CODE, message);
            diagnostics.push(match module.instruction_by_name(name) {
                Some(id) => diagnostic.at_instruction(id, Part::Opcode),
                None => diagnostic.note(format!("in {name} of the compiled program")),
            });
        }
    }
    CompileError::after("native code", diagnostics, module)
}

/// The leaves of the parameters, each with its parameter's name, and the leaves of the result, in the layouts in which they
/// are handed over: those that the header names.
pub(crate) fn signature(module: &Module) -> (Vec<(String, Shape)>, Vec<Shape>) {
    let Some(entry) = module.entry() else { return (Vec::new(), Vec::new()) };
    let Some(program) = module.config.entry_layout.clone().or_else(|| module.program_shape(entry)) else {
        return (Vec::new(), Vec::new());
    };
    let handed_over = |leaf: &Shape| leaf.map_arrays(&mut |a| a.clone().with_layout(a.entry_layout()));
    let leaves = |shape: &Shape| shape.leaves().into_iter().map(|(_, leaf)| handed_over(leaf)).collect::<Vec<Shape>>();
    let parameters = module.parameters(entry).into_iter().zip(&program.parameters);
    let named =
        parameters.flat_map(|(p, shape)| leaves(shape).into_iter().map(move |s| (module[p].name().to_owned(), s)));
    (named.collect(), leaves(&program.result))
}
