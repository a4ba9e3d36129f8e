//! What a pass is, and what it may ask of the world.

use hloom_ir::diagnostic::Diagnostic;
use hloom_ir::element_type::ElementType;
use hloom_ir::entity::InstructionId;
use hloom_ir::kernel_config::KernelConfig;
use hloom_ir::module::Module;
use hloom_target::{Target, Topology};

/// A small named unit that rewrites a module.
#[derive(Clone, Copy)]
pub struct Pass {
    /// Its name, as in `hloom opt --passes NAME`.
    pub name: &'static str,
    /// What it does, in one line.
    pub statement: &'static str,
    /// Whether the order of a scheduled module is still a schedule afterwards. A pass that does not promise this is given
    /// a module without one.
    pub keeps_schedule: bool,
    /// Rewrites the module and says how many changes were made; 0 only if the module is as it was.
    pub run: fn(&mut Module, &Context<'_>) -> Result<usize, Diagnostic>,
}

/// What a pass may know besides the module.
#[derive(Clone, Copy, Debug)]
pub struct Context<'c> {
    /// The machine that the module is compiled for, and what its backend can do.
    pub info: &'c dyn TargetInfo,
}

impl<'c> Context<'c> {
    /// The machine that the module is compiled for.
    pub fn target(&self) -> &'c Target {
        self.info.target()
    }
}

/// Instructions of one computation that may become a fusion.
#[derive(Clone, Copy, Debug)]
pub struct FusionCandidate<'g> {
    /// All of them, each after those of its operands that are among them.
    pub members: &'g [InstructionId],
    /// Those among them that are needed elsewhere.
    pub results: &'g [InstructionId],
    /// The product or convolution among them that would have a kernel of its own, with the rest as its epilogue.
    pub product: Option<InstructionId>,
}

/// What passes ask of the machine and of the backend that compiles for it.
pub trait TargetInfo: std::fmt::Debug + Sync {
    /// The machine.
    fn target(&self) -> &Target;

    /// How the devices that the program is compiled for are joined, where that was asked for.
    fn topology(&self) -> Option<&Topology> {
        None
    }

    /// Whether the backend has a kernel for what would be one fusion. A group of instructions without one is not fused.
    fn supports_fusion(&self, module: &Module, candidate: &FusionCandidate<'_>) -> bool {
        let _ = (module, candidate);
        true
    }

    /// Which code of the backend's an instruction gets; `None` where there is nothing to choose.
    fn choose_kernel(&self, module: &Module, instruction: InstructionId) -> Option<KernelConfig> {
        let _ = (module, instruction);
        None
    }

    /// Whether products and convolutions take in the element-wise code after them. A backend whose libraries have epilogues
    /// of their own picks these out itself.
    fn fuses_products(&self) -> bool {
        true
    }

    /// Whether a product or convolution of bf16 that is converted to f32 at once keeps more digits than bf16 has. Where a
    /// choice depends on the digits, as that of the experts that a token goes to, all who run the program have to agree on
    /// them.
    fn widens_products(&self) -> bool {
        true
    }

    /// Of conditionals whose branches are a few cheap operations on arrays of at most so many elements both are taken: to
    /// branch takes longer than to make these.
    fn speculated_elements(&self) -> i64 {
        64
    }

    /// How large fusions may be.
    fn fusion_limits(&self) -> FusionLimits {
        FusionLimits::default()
    }

    /// Whether the backend has a kernel for products of arrays of the first two types with a result of the third.
    fn has_product(&self, lhs: ElementType, rhs: ElementType, to: ElementType) -> bool {
        let _ = (lhs, rhs, to);
        true
    }

    /// Whether the backend has a kernel for convolutions of arrays of the first two types with a result of the third.
    fn has_convolution(&self, lhs: ElementType, rhs: ElementType, to: ElementType) -> bool {
        let _ = (lhs, rhs, to);
        true
    }

    /// Whether a convolution of one feature is best a sum of its few terms, which becomes one loop with what comes after.
    fn writes_out_stencils(&self) -> bool {
        false
    }
}

/// How large fusions may be on a machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FusionLimits {
    /// More members than this, apart from those that are no code, make kernels that are slow to compile and run out of
    /// registers.
    pub members: usize,
    /// A reduction within a group reads rows of at most so many bytes, which are near for those who read them again.
    pub row_bytes: i64,
    /// What costs so many additions an element, and reads one array at most, is made again in another kernel rather than
    /// written to memory and read.
    pub recomputed: f64,
    /// What costs so many additions an element is made again in each loop of one kernel over the same row; without a
    /// limit where the kernel keeps what one loop has made for the next.
    pub recomputed_in_row: f64,
    /// What costs so many additions an element is made again wherever it is needed, however often that is.
    pub repeated: f64,
    /// Whether what lies between elements that a pad moves apart costs nothing: it is not read where it is not needed.
    pub skips_padding: bool,
    /// Whether scatters take in what makes their indices and updates.
    pub scatters: bool,
    /// Prefix scans of more elements have kernels of their own, which take in nothing.
    pub scanned: i64,
}

impl Default for FusionLimits {
    fn default() -> FusionLimits {
        FusionLimits {
            members: 96,
            row_bytes: 1 << 16,
            recomputed: 0.0,
            recomputed_in_row: f64::INFINITY,
            repeated: 1.0,
            skips_padding: false,
            scatters: false,
            scanned: i64::MAX,
        }
    }
}

/// A machine alone, for whose kernels nobody vouches: every fusion is taken for possible.
impl TargetInfo for Target {
    fn target(&self) -> &Target {
        self
    }
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pass").field(&self.name).finish()
    }
}
