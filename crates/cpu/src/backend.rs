//! The CPU backend: its pipeline, what it has kernels for, and from a scheduled module to its code.

use crate::code::{CodeHeader, CpuCode};
use crate::concurrency::may_fork;
use crate::features;
use crate::kernel::{KernelRecord, KernelSource};
use crate::kernel_choice;
use crate::library_call;
use crate::lower::lower;
use hloom_compiler::{Backend, Code, CompileError, CompileOptions, CompileReport};
use hloom_cost::CoreCost;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::kernel_config::KernelConfig;
use hloom_ir::module::Module;
use hloom_ir::verify::VerifiedModule;
use hloom_passes::pass::FusionCandidate;
use hloom_passes::{PipelineStep, TargetInfo};
use hloom_plan::Packer;
use hloom_plan::saved::SavedPlan;
use hloom_target::Target;
use std::sync::Arc;

use PipelineStep::{Fixpoint, Once};

/// From the verified module to the scheduled one.
static PIPELINE: &[PipelineStep] = &[
    Once("normalize-layouts"),
    Once("entry-layouts"),
    Once("legalize-mixed-precision"),
    Once("defuse"),
    Once("expand"),
    Once("legalize-products"),
    // What is called from many places is made small before it is copied to each.
    Fixpoint(1, &["simplify", "cse", "dce"]),
    Once("inline-calls"),
    Once("dce"),
    Once("flatten-call-graph"),
    // Before converts are moved away from what they are of.
    Once("widen-converted"),
    Once("bf16-normalization"),
    // Transposes of products go into them before they sink below what comes after.
    Once("canonicalize-dots"),
    // Before what it puts in can meet transposes to cancel with.
    Once("layout-assignment"),
    Fixpoint(
        4,
        &[
            "simplify",
            "simplify-conditionals",
            "simplify-loops",
            "sink-shapes",
            "fold-constants",
            "canonicalize-dots",
            "cse",
            "dce",
        ],
    ),
    Once("hoist-invariants"),
    Once("unroll-double-buffers"),
    Once("scatter-all-reduces"),
    Fixpoint(2, &["simplify", "cse", "dce"]),
    // Not made asynchronous here (`start-collectives`): the engine comes to a collective where it stands in the list and
    // waits for it before the first step that needs it, so that a start and a done would say nothing new.
    Once("combine-collectives"),
    Once("remove-barriers"),
    Once("remove-placements"),
    Once("split-reductions"),
    Once("fusion"),
    Once("bitcast-reshapes"),
    Once("flatten-call-graph"),
    Once("copy-insertion"),
    Once("assign-kernels"),
    Once("order-collectives"),
    Once("schedule-program-order"),
];

/// The compiler for a CPU with so many threads.
#[derive(Debug)]
pub struct CpuBackend {
    info: CpuInfo,
}

/// A CPU, and what there are kernels for on it.
#[derive(Debug)]
struct CpuInfo {
    target: Target,
    /// What one of its cores takes.
    core: CoreCost,
    threads: usize,
}

impl TargetInfo for CpuInfo {
    fn target(&self) -> &Target {
        &self.target
    }

    /// The fusion as loops, or, where it begins with a product, the product as a library call and the rest as its
    /// epilogue.
    fn supports_fusion(&self, module: &Module, candidate: &FusionCandidate<'_>) -> bool {
        kernel_choice::supports_fusion(module, candidate)
    }

    fn choose_kernel(&self, module: &Module, instruction: InstructionId) -> Option<KernelConfig> {
        kernel_choice::choose(module, instruction)
    }

    fn has_product(&self, lhs: ElementType, rhs: ElementType, to: ElementType) -> bool {
        library_call::has_product(lhs, rhs, to)
    }

    fn has_convolution(&self, lhs: ElementType, rhs: ElementType, to: ElementType) -> bool {
        library_call::has_convolution(lhs, rhs, to)
    }

    fn writes_out_stencils(&self) -> bool {
        true
    }
}

impl CpuBackend {
    /// The backend for a CPU of which programs may use so many threads at once.
    pub fn new(threads: usize) -> Result<CpuBackend, CompileError> {
        let described = |d| CompileError::of_source("target", vec![d]);
        let target = Target::named("cpu").map_err(described)?;
        let core = CoreCost::of(&target).map_err(described)?;
        Ok(CpuBackend { info: CpuInfo { target, core, threads: threads.max(1) } })
    }

    /// The threads that programs may use at once.
    pub fn threads(&self) -> usize {
        self.info.threads
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn info(&self) -> &dyn TargetInfo {
        &self.info
    }

    fn pipeline(&self) -> &[PipelineStep] {
        PIPELINE
    }

    fn last_common_pass(&self) -> Option<&'static str> {
        Some("remove-barriers")
    }

    fn generate(
        &self,
        scheduled: &Arc<VerifiedModule>,
        options: &CompileOptions,
        report: &mut CompileReport,
    ) -> Result<Arc<dyn Code>, CompileError> {
        let threads = self.info.threads;
        let source = KernelSource::Compiler { threads, effort: options.effort };
        Ok(Arc::new(self.lowered(scheduled, options, threads, source, None, report)?))
    }

    fn version(&self) -> String {
        concat!(env!("CARGO_PKG_VERSION"), "+", env!("HLOOM_SOURCES")).to_owned()
    }

    fn machine(&self) -> Vec<String> {
        features::detected()
    }

    fn deserialize(
        &self,
        scheduled: &Arc<VerifiedModule>,
        options: &CompileOptions,
        bytes: &[u8],
        report: &mut CompileReport,
    ) -> Result<Arc<dyn Code>, CompileError> {
        let unreadable = |why: String| CompileError::bug("load", why);
        let (header, rest): (CodeHeader, _) =
            postcard::take_from_bytes(bytes).map_err(|_| unreadable("the code is cut short".into()))?;
        let threads = usize::try_from(header.threads).unwrap_or(1).max(1);
        let record = KernelRecord::deserialize(rest).map_err(unreadable)?;
        Ok(Arc::new(self.lowered(scheduled, options, threads, KernelSource::Saved(record), header.memory, report)?))
    }
}

impl CpuBackend {
    /// The thunks of a scheduled module for a machine of so many threads.
    fn lowered(
        &self,
        scheduled: &Arc<VerifiedModule>,
        options: &CompileOptions,
        threads: usize,
        source: KernelSource,
        memory: Option<SavedPlan>,
        report: &mut CompileReport,
    ) -> Result<CpuCode, CompileError> {
        let failed = |stage| move |found| CompileError::after(stage, found, scheduled.module());
        let core = self.info.core;
        let may_fork = may_fork(scheduled, threads, &core);
        // Devices share the threads: where there are several, each runs mostly on one, and small values need no more
        // memory for the sake of steps beside each other.
        let packer = if may_fork && options.grid.devices() == 1 { Packer::Apart } else { Packer::Reference };
        let target = &self.info.target;
        let plan = report.stage("plan", |_| match &memory {
            Some(saved) => saved.restore(scheduled, target),
            None => hloom_plan::plan_beside_collectives(scheduled, target, packer),
        });
        let plan = plan.map_err(failed("plan"))?;
        let concurrency = if may_fork { threads } else { 1 };
        let program = lower(&plan, options, concurrency, source, core, report)
            .map_err(|error| failed("thunks")(vec![error.into_diagnostic()]))?;
        let memory = memory.or_else(|| SavedPlan::new(&plan));
        Ok(CpuCode { program, threads, core, memory })
    }
}
