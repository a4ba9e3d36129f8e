//! Native kernels: what the crate `codegen` compiles, as the runtime calls it.
//!
//! Without the feature `llvm` there are none, and everything that would have one is left to the evaluator.

use hloom_ir::entity::InstructionId;

/// The code of a kernel: the addresses of its arrays, and the share of its units to do.
pub(crate) type KernelFn = unsafe extern "C" fn(arrays: *const *mut u8, begin: i64, end: i64);

/// A kernel, ready to be called while its library is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(crate) function: KernelFn,
    /// The whole work.
    pub(crate) units: usize,
    /// Units that one thread takes at a time; all of them if sharing does not pay.
    pub(crate) chunk: usize,
    /// About how long all of it takes on one core.
    pub(crate) nanoseconds: f64,
}

/// What a thread takes at a time should last at least so long, in nanoseconds.
pub(crate) const WORTH_SHARING: f64 = 15_000.0;

impl Kernel {
    #[cfg_attr(not(feature = "llvm"), allow(dead_code, reason = "nothing else makes kernels"))]
    fn new(function: KernelFn, units: i64, unit_nanoseconds: f64) -> Kernel {
        let units = usize::try_from(units).unwrap_or(0);
        let whole = unit_nanoseconds * units as f64;
        let chunk = match whole < 2.0 * WORTH_SHARING {
            true => units,
            // At most 64 parts: enough to even out differences, few enough to cost nothing.
            false => ((WORTH_SHARING / unit_nanoseconds) as usize).max(units.div_ceil(64)),
        };
        Kernel { function, units, chunk: chunk.clamp(1, units.max(1)), nanoseconds: whole }
    }
}

/// A kernel that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) instruction: InstructionId,
    /// Whether what the instruction does in place it does in one and the same memory.
    pub(crate) in_place: bool,
    /// A product in the fusion that is computed apart, and the elements of a row of it.
    pub(crate) product: Option<(InstructionId, i64)>,
}

#[cfg(feature = "llvm")]
mod imp {
    use super::{Kernel, Request};
    use crate::executable::Effort;
    pub(crate) use hloom_codegen::Prepared;
    use hloom_codegen::{KernelLibrary, KernelRequest, Options, Product, Region, RegionFn};
    use hloom_ir::entity::InstructionId;
    use hloom_ir::module::Module;

    /// Keeps kernels alive.
    #[derive(Debug, Default)]
    pub(crate) struct Library(KernelLibrary);

    pub(crate) fn warm_up(effort: Effort) {
        hloom_codegen::warm_up(of_codegen(effort));
    }

    fn of_codegen(effort: Effort) -> hloom_codegen::Effort {
        match effort {
            Effort::Quick => hloom_codegen::Effort::Quick,
            Effort::Full => hloom_codegen::Effort::Full,
        }
    }

    pub(crate) fn supports(
        module: &Module,
        instruction: InstructionId,
        product: Option<InstructionId>,
    ) -> Result<(), String> {
        hloom_codegen::supports(module, instruction, product).map_err(|why| why.to_string())
    }

    /// The rows of the product that are a unit of a request's kernel, if units are whole rows.
    pub(crate) fn rows_of_unit(prepared: &Prepared, request: usize) -> Option<usize> {
        prepared.rows_of_unit(request).and_then(|n| usize::try_from(n).ok())
    }

    /// Kernels whose loops are worked out.
    pub(crate) fn prepare(module: &Module, requests: &[Request], threads: usize, effort: Effort) -> Prepared {
        let product = |r: &Request| r.product.map(|(instruction, row)| Product { instruction, row });
        let wanted: Vec<KernelRequest> = requests
            .iter()
            .map(|r| KernelRequest { instruction: r.instruction, in_place: r.in_place, product: product(r) })
            .collect();
        let options = Options { threads, effort: of_codegen(effort), ..Options::default() };
        hloom_codegen::prepare(module, &wanted, &options)
    }

    /// Compiles regions, and the kernels of those requests that want a function of their own.
    pub(crate) fn compile(prepared: &Prepared, is_wanted: impl Fn(usize) -> bool, regions: &[Region]) -> Library {
        Library(prepared.compile(is_wanted, regions))
    }

    impl Library {
        /// The kernel of a request, or why there is none.
        pub(crate) fn kernel(&self, request: usize) -> Result<Kernel, String> {
            let kernel = self.0.kernel(request).map_err(|refused| refused.to_string())?;
            Ok(Kernel::new(kernel.function, kernel.work_units, kernel.unit_nanoseconds))
        }
        /// The function of a region, or why there is none.
        pub(crate) fn region(&self, number: usize) -> Result<RegionFn, String> {
            self.0.region(number).map_err(|refused| refused.to_string())
        }
    }
}

#[cfg(not(feature = "llvm"))]
mod imp {
    use super::{Kernel, Request};
    use crate::executable::Effort;
    use hloom_ir::entity::InstructionId;
    use hloom_ir::module::Module;

    /// Keeps kernels alive.
    #[derive(Debug, Default)]
    pub(crate) struct Library;

    pub(crate) fn warm_up(_: Effort) {}

    pub(crate) fn supports(_: &Module, _: InstructionId, _: Option<InstructionId>) -> Result<(), String> {
        Err("this build has no compiler of kernels".into())
    }

    pub(crate) fn rows_of_unit(_: &Prepared, _: usize) -> Option<usize> {
        None
    }

    /// No kernels.
    pub(crate) struct Prepared;

    pub(crate) fn prepare(_: &Module, _: &[Request], _: usize, _: Effort) -> Prepared {
        Prepared
    }

    pub(crate) fn compile(_: &Prepared, _: impl Fn(usize) -> bool, _: &[()]) -> Library {
        Library
    }

    impl Library {
        /// The kernel of a request, or why there is none.
        pub(crate) fn kernel(&self, _: usize) -> Result<Kernel, String> {
            Err("this build has no compiler of kernels".into())
        }
    }
}

pub(crate) use imp::{Library, Prepared, compile, prepare, rows_of_unit, supports, warm_up};
