//! TPU-like machines: from a local program to a scheduled module in the form of such machines' compilers.
//!
//! The pipeline is a list of passes, each a function over a module that can be run alone. [`compile_to_schedule`] runs all
//! of them on a verified module, after the rewrites that every machine has in common.

pub mod backend_config;
mod collectives;
mod dot_results;
mod dots;
mod edit;
mod elapsed;
mod fusion;
pub mod policy;
mod rematerialization;
mod schedule;
mod spaces;
mod split_64_bit;
mod stage;
pub mod tiling;
mod windows;

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::verify::VerifiedModule;
use hloom_passes::manager::Watcher;
use hloom_passes::{Context, Pass, PassList, Registry, optimize};
use hloom_target::{Target, Topology};
use stage::Slice;

/// All stages, in the order in which they run.
pub static STAGES: &[&Pass] = &[
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

/// The passes of the whole pipeline, of which `registry` has to have those of [`STAGES`].
pub fn pipeline(registry: &Registry) -> Result<PassList, Diagnostic> {
    registry.list(COMMON.iter().copied().chain(STAGES.iter().map(|s| s.name)))
}

/// Compiles a local program, one whose shapes are those of a single device, to a scheduled module for a slice of `target`.
pub fn compile_to_schedule(
    module: &VerifiedModule,
    target: &Target,
    topology: Topology,
) -> Result<VerifiedModule, Vec<Diagnostic>> {
    compile_with(module, target, topology, None)
}

/// As [`compile_to_schedule`]; `watcher` is told of every pass.
pub fn compile_with(
    module: &VerifiedModule,
    target: &Target,
    topology: Topology,
    watcher: Option<Watcher<'_>>,
) -> Result<VerifiedModule, Vec<Diagnostic>> {
    let list = pipeline(&hloom_compiler::registry().with(STAGES)).map_err(|d| vec![d])?;
    let slice = Slice { target, topology };
    let optimized = optimize(module.clone(), &list, &Context { info: &slice }, watcher);
    optimized.map(|o| o.module).map_err(|failed| failed.diagnostics)
}
