//! The CUDA backend: its pipeline, what it has kernels for, and from a scheduled module to its code.

use crate::canonicalize;
use crate::canonicalize_convolutions;
use crate::canonicalize_sorts;
use crate::code::CudaCode;
use crate::convolution;
use crate::cubin::Assembler;
use crate::expand_cholesky;
use crate::expand_depthwise;
use crate::gemm;
use crate::kernels::{self, KernelSource};
use crate::lower::lower;
use hloom_compiler::{Backend, Code, CompileError, CompileOptions, CompileReport};
use hloom_cuda_attention::fuse_attention;
use hloom_cuda_kernels::Architecture;
use hloom_ir::diagnostic::codes::plan::BAD_TARGET;
use hloom_ir::diagnostic::{Blame, Diagnostic};
use hloom_ir::element_type::ElementType;
use hloom_ir::module::Module;
use hloom_ir::verify::VerifiedModule;
use hloom_passes::pass::FusionCandidate;
use hloom_passes::{Context, FusionLimits, Pass, PipelineStep, TargetInfo};
use hloom_plan::Packer;
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
    Once("expand-cholesky"),
    Fixpoint(1, &["simplify", "cse", "dce"]),
    Once("inline-calls"),
    Once("dce"),
    Once("flatten-call-graph"),
    // Before converts are moved away from what they are of.
    Once("widen-converted"),
    Once("bf16-normalization"),
    Once("canonicalize-dots"),
    Fixpoint(
        4,
        &["simplify", "simplify-conditionals", "simplify-loops", "fold-constants", "canonicalize-dots", "cse", "dce"],
    ),
    Once("hoist-invariants"),
    Once("unroll-double-buffers"),
    Once("reassociate-all-reduces"),
    Once("scatter-all-reduces"),
    Fixpoint(2, &["simplify", "cse", "dce"]),
    Once("combine-collectives"),
    Once("remove-barriers"),
    Once("remove-placements"),
    // Before shapes move away from the products that they are of; and after all that changes the operands of fusions, which
    // the config of an attention names by their numbers.
    Once("fuse-attention"),
    Once("sink-shapes"),
    // Transposes that have come to products are absorbed by them.
    Once("canonicalize-dots"),
    Once("canonicalize-gemms"),
    Once("expand-depthwise"),
    Once("canonicalize-convolutions"),
    Once("canonicalize-sorts"),
    Once("dce"),
    Once("fusion"),
    Once("bitcast-reshapes"),
    Once("flatten-call-graph"),
    Once("copy-insertion"),
    Once("schedule-program-order"),
];

/// The passes of this backend alone.
pub static PASSES: &[&Pass] = &[
    &FUSE_ATTENTION,
    &expand_cholesky::PASS,
    &canonicalize::PASS,
    &expand_depthwise::PASS,
    &canonicalize_convolutions::PASS,
    &canonicalize_sorts::PASS,
];

/// Attention as one instruction each.
static FUSE_ATTENTION: Pass = Pass {
    name: "fuse-attention",
    statement: "makes each attention one fusion, and its gradients another, where there are kernels for them",
    keeps_schedule: false,
    run: |module: &mut Module, context: &Context<'_>| {
        let changes = fuse_attention(module, architecture(context.target())?);
        Ok(changes) as Result<usize, Diagnostic>
    },
};

/// The compiler for a GPU of NVIDIA's.
#[derive(Debug)]
pub struct CudaBackend {
    info: CudaInfo,
    /// What assembles kernels on this machine, if programs are compiled to be run here.
    assembler: Option<Arc<Assembler>>,
}

/// A GPU, and what there are kernels for on it.
#[derive(Debug)]
struct CudaInfo {
    target: Target,
    architecture: Architecture,
}

impl TargetInfo for CudaInfo {
    fn target(&self) -> &Target {
        &self.target
    }

    fn supports_fusion(&self, module: &Module, candidate: &FusionCandidate<'_>) -> bool {
        kernels::supports_members(module, candidate.members, candidate.results)
    }

    fn fuses_products(&self) -> bool {
        false
    }

    /// XLA rounds them on GPUs: its products are of the type that the program says.
    fn widens_products(&self) -> bool {
        false
    }

    /// A branch of a graph takes as long as a kernel over some megabytes.
    fn speculated_elements(&self) -> i64 {
        1 << 20
    }

    fn fusion_limits(&self) -> FusionLimits {
        // Random numbers and what is made of them are hundreds of instructions on registers; and the rows that are under
        // way on all processors stay in the second cache. To write a number and read it back takes as long as fifty
        // instructions: the gradient of a GPT block takes 1.04 times as long if nothing is made again.
        // Scans have kernels by hand: what makes an operand is put where the result goes.
        FusionLimits {
            members: 512,
            row_bytes: 1 << 20,
            recomputed: 40.0,
            recomputed_in_row: 40.0,
            repeated: 2.0,
            skips_padding: true,
            scatters: true,
            scanned: 64,
        }
    }

    fn has_product(&self, lhs: ElementType, rhs: ElementType, to: ElementType) -> bool {
        gemm::has_product(lhs, rhs, to)
    }

    fn has_convolution(&self, lhs: ElementType, rhs: ElementType, to: ElementType) -> bool {
        convolution::has_convolution(lhs, rhs, to)
    }
}

/// What PTX is made for on a target, by its description.
pub(crate) fn architecture(target: &Target) -> Result<Architecture, Diagnostic> {
    let name = &target.name;
    let refused = |why: String| Diagnostic::error(&BAD_TARGET, format!("{name}: {why}")).blame(Blame::Data);
    let Some(text) = &target.gpu_architecture else {
        let why = "it does not say what code is made for, so that there can be none for CUDA".to_owned();
        return Err(refused(why).help("add a line such as gpu_architecture = \"sm_90a\" to the description"));
    };
    let architecture: Architecture = text.parse().map_err(|why| refused(format!("`gpu_architecture`: {why}")))?;
    match architecture.capability {
        80..100 => Ok(architecture),
        _ => Err(refused(format!("there are kernels for sm_80 to sm_90a, and none for {architecture}"))),
    }
}

impl CudaBackend {
    /// The backend for a GPU.
    pub fn new(target: Target) -> Result<CudaBackend, CompileError> {
        let architecture = architecture(&target).map_err(|d| CompileError::of_source("target", vec![d]))?;
        Ok(CudaBackend { info: CudaInfo { target, architecture }, assembler: None })
    }

    /// The same backend, whose kernels are assembled while others are made.
    pub(crate) fn with_assembler(self, assembler: Arc<Assembler>) -> CudaBackend {
        CudaBackend { assembler: Some(assembler), ..self }
    }

    /// The backend for the GPU of that name.
    pub fn named(target: &str) -> Result<CudaBackend, CompileError> {
        let target = Target::named(target).map_err(|d| CompileError::of_source("target", vec![d]))?;
        CudaBackend::new(target)
    }

    /// What PTX is made for.
    pub fn architecture(&self) -> Architecture {
        self.info.architecture
    }

    /// The thunks of a scheduled module.
    fn lowered(
        &self,
        scheduled: &Arc<VerifiedModule>,
        options: &CompileOptions,
        source: KernelSource,
        report: &mut CompileReport,
    ) -> Result<CudaCode, CompileError> {
        let failed = |stage| move |found| CompileError::after(stage, found, scheduled.module());
        let plan = report.stage("plan", |_| hloom_plan::plan_with(scheduled, &self.info.target, Packer::Reference));
        let plan = plan.map_err(failed("plan"))?;
        let program =
            lower(&plan, options, source, report).map_err(|error| failed("thunks")(vec![error.into_diagnostic()]))?;
        Ok(CudaCode::new(program, self.info.architecture))
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn info(&self) -> &dyn TargetInfo {
        &self.info
    }

    fn pipeline(&self) -> &[PipelineStep] {
        PIPELINE
    }

    fn passes(&self) -> &'static [&'static Pass] {
        PASSES
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
        let source = KernelSource::Compiler(self.info.architecture, self.assembler.clone());
        Ok(Arc::new(self.lowered(scheduled, options, source, report)?))
    }

    fn version(&self) -> String {
        concat!(env!("CARGO_PKG_VERSION"), "+", env!("HLOOM_SOURCES")).to_owned()
    }

    fn machine(&self) -> Vec<String> {
        vec![self.info.architecture.to_string()]
    }

    fn deserialize(
        &self,
        scheduled: &Arc<VerifiedModule>,
        options: &CompileOptions,
        bytes: &[u8],
        report: &mut CompileReport,
    ) -> Result<Arc<dyn Code>, CompileError> {
        let saved = kernels::Saved::deserialize(bytes).map_err(|why| CompileError::bug("load", why))?;
        let (sequences, cubins) = (saved.sequences, saved.cubins);
        let code = self.lowered(scheduled, options, KernelSource::Saved(sequences), report)?;
        code.keep_cubins(cubins);
        Ok(Arc::new(code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_without_an_architecture_is_refused_with_what_to_add() {
        let plain = Target::named("gpu-h200").unwrap();
        let of = |text: Option<&str>| Target { gpu_architecture: text.map(str::to_owned), ..plain.clone() };
        assert_eq!(architecture(&of(Some("sm_80"))), Ok(Architecture { capability: 80, accelerated: false }));
        let refused = architecture(&of(None)).unwrap_err();
        assert!(refused.notes.iter().any(|n| n.message.contains("gpu_architecture")), "{refused:?}");
        for (text, said) in
            [("hopper", "is no architecture"), ("sm_100", "none for sm_100"), ("sm_75", "none for sm_75")]
        {
            let refused = architecture(&of(Some(text))).unwrap_err();
            assert!(refused.message.contains(said), "{}", refused.message);
        }
    }
}
