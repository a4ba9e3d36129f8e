//! Native kernels as thunks name them: by number, with what their calls need to know. Their code is object code until the
//! program is loaded.
//!
//! Without the feature `llvm` there are none, and everything that would have one is left to the evaluator.

use hloom_loader::{CodeImage, ObjectCode};
use hloom_loops::abi::{KernelFn, RegionFn};

/// A kernel of a program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Kernel {
    /// Its number in [`KernelCode::kernels`].
    pub(crate) number: u32,
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
    fn new(number: u32, units: i64, unit_nanoseconds: f64) -> Kernel {
        let units = usize::try_from(units).unwrap_or(0);
        let whole = unit_nanoseconds * units as f64;
        let chunk = match whole < 2.0 * WORTH_SHARING {
            true => units,
            // At most 64 parts: enough to even out differences, few enough to cost nothing.
            false => ((WORTH_SHARING / unit_nanoseconds) as usize).max(units.div_ceil(64)),
        };
        Kernel { number, units, chunk: chunk.clamp(1, units.max(1)), nanoseconds: whole }
    }
}

/// A function in object code: the object's number, and the number in the function's name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Symbol {
    pub(crate) object: u32,
    pub(crate) number: u32,
}

/// The object code of a program's kernels and regions.
#[derive(Clone, Default, Debug)]
pub(crate) struct KernelCode {
    /// The architecture that it is for: `x86_64`, `aarch64`.
    pub(crate) architecture: String,
    /// What the processor must have, as LLVM names it.
    pub(crate) features: String,
    pub(crate) objects: Vec<ObjectCode>,
    pub(crate) kernels: Vec<Symbol>,
    pub(crate) regions: Vec<Symbol>,
}

/// The functions of a program's kernels and regions, by their numbers.
#[derive(Debug)]
pub(crate) struct LoadedKernels {
    pub(crate) kernels: Vec<KernelFn>,
    pub(crate) regions: Vec<RegionFn>,
    /// Keeps the functions alive.
    _image: CodeImage,
}

impl KernelCode {
    /// Brings the code into executable memory.
    pub(crate) fn load(&self) -> Result<LoadedKernels, String> {
        let image = CodeImage::load(&self.objects, &self.architecture)?;
        // SAFETY (both): the compiler names kernels `k` and regions `r`, and gives them their signatures.
        let kernel = |s: &Symbol| unsafe { image.kernel(s.object as usize, &format!("k{}", s.number)) };
        let region = |s: &Symbol| unsafe { image.region(s.object as usize, &format!("r{}", s.number)) };
        let kernels = self.kernels.iter().map(kernel).collect::<Result<_, _>>()?;
        let regions = self.regions.iter().map(region).collect::<Result<_, _>>()?;
        Ok(LoadedKernels { kernels, regions, _image: image })
    }
}

#[cfg(feature = "llvm")]
mod imp {
    use super::{Kernel, KernelCode, Symbol};
    use hloom_compiler::Effort;
    use hloom_ir::module::Module;
    pub(crate) use hloom_llvm::Prepared;
    use hloom_llvm::{KernelObjects, Machine, Options};
    use hloom_loops::KernelRequest;
    use hloom_loops::region::Region;
    use rustc_hash::FxHashMap;

    pub(crate) fn prewarm(effort: Effort) {
        hloom_llvm::prewarm(of_llvm(effort));
    }

    fn of_llvm(effort: Effort) -> hloom_llvm::Effort {
        match effort {
            Effort::Quick => hloom_llvm::Effort::Quick,
            Effort::Full => hloom_llvm::Effort::Full,
        }
    }

    /// The rows of the product that are a unit of a request's kernel, if units are whole rows.
    pub(crate) fn rows_of_unit(prepared: &Prepared, request: usize) -> Option<usize> {
        prepared.rows_of_unit(request).and_then(|n| usize::try_from(n).ok())
    }

    /// Kernels whose loops are worked out.
    pub(crate) fn prepare(module: &Module, requests: &[KernelRequest], threads: usize, effort: Effort) -> Prepared {
        let options = Options { threads, effort: of_llvm(effort), ..Options::default() };
        hloom_llvm::prepare(module, requests, &options)
    }

    /// Compiles regions, and the kernels of those requests that want a function of their own.
    pub(crate) fn compile(prepared: &Prepared, is_wanted: impl Fn(usize) -> bool, regions: &[Region]) -> Library {
        let objects = prepared.compile(is_wanted, regions);
        Library { objects, kernels: Vec::new(), numbers: FxHashMap::default(), regions: Vec::new() }
    }

    /// What was compiled, and what of it the program names.
    #[derive(Debug, Default)]
    pub(crate) struct Library {
        objects: KernelObjects,
        kernels: Vec<Symbol>,
        numbers: FxHashMap<Symbol, u32>,
        regions: Vec<Symbol>,
    }

    impl Library {
        /// The kernel of a request, or why there is none.
        pub(crate) fn kernel(&mut self, request: usize) -> Result<Kernel, String> {
            let found = self.objects.kernel(request).map_err(|refused| refused.to_string())?;
            let symbol = Symbol { object: found.object as u32, number: found.number as u32 };
            let next = self.kernels.len() as u32;
            let number = *self.numbers.entry(symbol).or_insert(next);
            if number == next {
                self.kernels.push(symbol);
            }
            Ok(Kernel::new(number, found.work_units, found.unit_nanoseconds))
        }

        /// Whether a region was made.
        pub(crate) fn has_region(&self, number: usize) -> bool {
            self.objects.region(number).is_ok()
        }

        /// Whether the kernel of a request was made.
        pub(crate) fn has_kernel(&self, request: usize) -> bool {
            self.objects.kernel(request).is_ok()
        }

        /// The number of a region's function in the program, or why there is none.
        pub(crate) fn region(&mut self, number: usize) -> Result<u32, String> {
            let found = self.objects.region(number).map_err(|refused| refused.to_string())?;
            self.regions.push(Symbol { object: found.object as u32, number: found.number as u32 });
            Ok(self.regions.len() as u32 - 1)
        }

        /// All that the program names.
        pub(crate) fn into_code(self) -> KernelCode {
            let machine = Machine::host();
            KernelCode {
                architecture: machine.architecture.clone(),
                features: machine.features.clone(),
                objects: self.objects.objects,
                kernels: self.kernels,
                regions: self.regions,
            }
        }
    }
}

#[cfg(not(feature = "llvm"))]
mod imp {
    use super::{Kernel, KernelCode};
    use hloom_compiler::Effort;
    use hloom_ir::module::Module;
    use hloom_loops::KernelRequest;

    pub(crate) fn prewarm(_: Effort) {}

    pub(crate) fn rows_of_unit(_: &Prepared, _: usize) -> Option<usize> {
        None
    }

    /// No kernels.
    pub(crate) struct Prepared;

    pub(crate) fn prepare(_: &Module, _: &[KernelRequest], _: usize, _: Effort) -> Prepared {
        Prepared
    }

    pub(crate) fn compile(_: &Prepared, _: impl Fn(usize) -> bool, _: &[()]) -> Library {
        Library
    }

    /// No kernels.
    #[derive(Debug, Default)]
    pub(crate) struct Library;

    impl Library {
        /// The kernel of a request, or why there is none.
        pub(crate) fn kernel(&mut self, _: usize) -> Result<Kernel, String> {
            Err("this build has no compiler of kernels".into())
        }

        /// All that the program names.
        pub(crate) fn into_code(self) -> KernelCode {
            KernelCode::default()
        }
    }
}

pub(crate) use imp::{Library, Prepared, compile, prepare, prewarm, rows_of_unit};
