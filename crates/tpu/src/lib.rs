//! TPU-like machines: from a local program to a scheduled module in the form of such machines' compilers.
//!
//! The pipeline is a list of named [`Stage`]s, each a function over a module that can be run alone. [`compile_to_schedule`]
//! runs all of them on a verified module, after the rewrites that every machine has in common.

pub mod backend_config;
mod collectives;
mod dots;
mod edit;
mod elapsed;
mod fusion;
pub mod policy;
mod rematerialization;
mod schedule;
mod spaces;
mod split_64_bit;
pub mod stage;
pub mod tiling;
mod windows;

use hloom_compiler::registry;
use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::module::Module;
use hloom_ir::verify::VerifiedModule;
use hloom_passes::{PipelineStep, optimize};
use hloom_target::{Target, Topology};
pub use stage::{Stage, StageContext};

/// All stages, in the order in which they run.
pub static STAGES: &[&Stage] = &[
    &split_64_bit::STAGE,
    &collectives::windowed_einsum::STAGE,
    &tiling::STAGE,
    &dots::STAGE,
    &fusion::STAGE,
    &collectives::narrow::STAGE,
    &fusion::operands::STAGE,
    &collectives::start::STAGE,
    &schedule::COPIES,
    &schedule::LIST,
    &schedule::LATENCY,
    &collectives::fuse::STAGE,
    &collectives::note::STAGE,
    &rematerialization::STAGE,
    &spaces::scalars::STAGE,
    &spaces::STAGE,
    &windows::STAGE,
];

/// The passes for every machine that come first.
static COMMON: &[&str] = &[
    "normalize-layouts",
    "defuse",
    "simplify",
    "cse",
    "dce",
    "inline-calls",
    "dce",
    "flatten-call-graph",
    "remove-placements",
    "bf16-normalization",
    "simplify",
    "simplify-conditionals",
    "simplify-loops",
    "sink-shapes",
    "fold-constants",
    "sink-converts",
    "cse",
    "dce",
    "simplify",
    "cse",
    "dce",
];

/// The name of a stage.
pub type StageName = &'static str;

/// Compiles a local program, one whose shapes are those of a single device, to a scheduled module for a slice of `target`.
pub fn compile_to_schedule(
    module: &VerifiedModule,
    target: &Target,
    topology: Topology,
) -> Result<VerifiedModule, Vec<Diagnostic>> {
    compile_with(module, target, topology, &mut |_, _| ())
}

/// Runs one stage on a module, and says how many changes it made.
pub fn run_stage(
    stage: &Stage,
    module: VerifiedModule,
    target: &Target,
    topology: Topology,
) -> Result<(VerifiedModule, usize), Diagnostic> {
    let mut module = module.into_module();
    let changes = (stage.run)(&mut module, &StageContext::new(target, topology))?;
    Ok((spaces::verified(module)?, changes))
}

/// As [`compile_to_schedule`]; `watch` is shown the module after the common passes and after every stage.
pub fn compile_with(
    module: &VerifiedModule,
    target: &Target,
    topology: Topology,
    watch: &mut dyn FnMut(StageName, &Module),
) -> Result<VerifiedModule, Vec<Diagnostic>> {
    let steps: Vec<PipelineStep> = COMMON.iter().map(|&name| PipelineStep::Once(name)).collect();
    let list = registry().pipeline(&steps).map_err(|d| vec![d])?;
    let context = hloom_passes::Context { info: target };
    let optimized = optimize(module.clone(), &list, &context, None).map_err(|failed| failed.diagnostics)?;
    let context = StageContext::new(target, topology);
    let mut module = optimized.module.into_module();
    watch("common", &module);
    for stage in STAGES {
        (stage.run)(&mut module, &context).map_err(|d| vec![d])?;
        watch(stage.name, &module);
        if cfg!(debug_assertions) {
            let checked = spaces::verified(module);
            let checked = checked.map_err(|d| vec![d.note(format!("after the stage `{}`", stage.name))])?;
            module = checked.into_module();
        }
    }
    spaces::verified(module).map_err(|d| vec![d])
}
