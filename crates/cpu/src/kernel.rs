//! Native kernels as thunks name them: by number, with what their calls need to know. Their code is object code until the
//! program is loaded.
//!
//! Lowering asks [`Kernels`] for what it wants: a compiler, or the [`KernelRecord`] that a compiler has left in a saved
//! program. Since all that is asked is recorded, the same module is lowered to the same thunks from either. Without the
//! feature `llvm` there is no compiler, and everything that would have a kernel is left to the evaluator.

use hloom_compiler::Effort;
use hloom_cost::CoreCost;
use hloom_ir::module::Module;
use hloom_loader::{CodeImage, LoadError, ObjectCode};
use hloom_loops::KernelRequest;
use hloom_loops::abi::{KernelFn, RegionFn};
use hloom_loops::region::Region;
use hloom_value::ExecutionError;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::sync::Arc;

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

impl Kernel {
    fn new(number: u32, units: i64, unit_nanoseconds: f64, core: &CoreCost) -> Kernel {
        let units = usize::try_from(units).unwrap_or(0);
        let whole = unit_nanoseconds * units as f64;
        let chunk = match core.is_shared(whole) {
            // At most 64 parts: enough to even out differences, few enough to cost nothing.
            true => ((core.worth_sharing() / unit_nanoseconds) as usize).max(units.div_ceil(64)),
            false => units,
        };
        Kernel { number, units, chunk: chunk.clamp(1, units.max(1)), nanoseconds: whole }
    }
}

/// A function in object code: the object's number, and the number in the function's name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct Symbol {
    pub(crate) object: u32,
    pub(crate) number: u32,
}

/// What is known of a kernel before it is compiled.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct KernelFacts {
    /// The number of the kernel: that of all requests that it is for.
    pub(crate) number: usize,
    /// A measure of how much code it is.
    pub(crate) size: usize,
    /// About how long all of it takes on one core.
    pub(crate) nanoseconds: f64,
    /// Shares of the work.
    pub(crate) work_units: i64,
}

/// A compiled kernel.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct CompiledKernel {
    symbol: Symbol,
    work_units: i64,
    unit_nanoseconds: f64,
}

/// An object file, and the data that its code refers to by name.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SavedObject {
    bytes: Vec<u8>,
    constants: Vec<(String, Vec<u8>)>,
}

/// All that a compiler of kernels has answered while a program was lowered.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelRecord {
    pub(crate) objects: Vec<ObjectCode>,
    answers: Answers,
}

/// What of a request does not follow from the module alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Asked {
    in_place: bool,
    producer_row: Option<i64>,
}

impl Asked {
    fn of(request: &KernelRequest) -> Asked {
        Asked { in_place: request.in_place, producer_row: request.producer.map(|p| p.row) }
    }
}

/// The answers, by request.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Answers {
    architecture: String,
    /// What was asked for, so that the answers are not taken for those to other questions.
    requests: Vec<Asked>,
    kernels: Vec<Result<CompiledKernel, String>>,
    regions: Vec<Result<Symbol, String>>,
    facts: FxHashMap<usize, KernelFacts>,
    rows_of_unit: FxHashMap<usize, usize>,
}

impl KernelRecord {
    /// Its bytes.
    pub(crate) fn serialize(&self) -> Option<Vec<u8>> {
        let save = |object: &ObjectCode| SavedObject {
            bytes: object.bytes.to_vec(),
            constants: object.constants.iter().map(|(n, c)| (n.clone(), c.as_ref().as_ref().to_vec())).collect(),
        };
        let objects: Vec<SavedObject> = self.objects.iter().map(save).collect();
        postcard::to_stdvec(&(objects, &self.answers)).ok()
    }

    /// What [`KernelRecord::serialize`] made.
    pub(crate) fn deserialize(bytes: &[u8]) -> Result<KernelRecord, String> {
        let read: Result<(Vec<SavedObject>, Answers), _> = postcard::from_bytes(bytes);
        let (objects, answers) = read.map_err(|e| format!("the kernels cannot be read: {e}"))?;
        let load = |object: SavedObject| ObjectCode {
            bytes: object.bytes.into(),
            constants: object.constants.into_iter().map(|(n, c)| (n, Arc::new(c) as Arc<_>)).collect(),
        };
        Ok(KernelRecord { objects: objects.into_iter().map(load).collect(), answers })
    }

    /// Whether these are the requests that it answers.
    fn answers(&self, requests: &[KernelRequest]) -> bool {
        requests.iter().map(Asked::of).eq(self.answers.requests.iter().copied())
            && self.answers.kernels.len() == requests.len()
    }
}

/// Whom lowering asks for kernels.
pub(crate) enum KernelSource {
    /// The compiler; with how many threads, and how much time the code is worth.
    #[cfg_attr(not(feature = "llvm"), allow(dead_code, reason = "this build has no compiler"))]
    Compiler { threads: usize, effort: Effort },
    /// What a compiler has left.
    Saved(KernelRecord),
}

/// The kernels of a program's requests, of which some may already be known.
pub(crate) struct Kernels {
    source: Prepared,
    requests: Vec<Asked>,
    pub(crate) core: CoreCost,
    asked: RefCell<(FxHashMap<usize, KernelFacts>, FxHashMap<usize, usize>)>,
}

enum Prepared {
    #[cfg(feature = "llvm")]
    Compiler(hloom_llvm::Prepared),
    #[cfg(not(feature = "llvm"))]
    Missing(usize),
    Saved(KernelRecord),
}

pub(crate) fn prewarm(effort: Effort) {
    #[cfg(feature = "llvm")]
    hloom_llvm::prewarm(of_llvm(effort));
    #[cfg(not(feature = "llvm"))]
    let _ = effort;
}

#[cfg(feature = "llvm")]
fn of_llvm(effort: Effort) -> hloom_llvm::Effort {
    match effort {
        Effort::Quick => hloom_llvm::Effort::Quick,
        Effort::Full => hloom_llvm::Effort::Full,
    }
}

impl Kernels {
    /// The kernels of `requests`.
    pub(crate) fn new(
        source: KernelSource,
        module: &Module,
        requests: &[KernelRequest],
        core: CoreCost,
    ) -> Result<Kernels, ExecutionError> {
        let source = match source {
            KernelSource::Saved(record) if record.answers(requests) => Prepared::Saved(record),
            KernelSource::Saved(_) => {
                return Err(ExecutionError::bug("the saved kernels are those of another program"));
            }
            #[cfg(feature = "llvm")]
            KernelSource::Compiler { threads, effort } => {
                let machine = hloom_llvm::Machine { core, ..hloom_llvm::Machine::host().clone() };
                let options = hloom_llvm::Options { machine, threads, effort: of_llvm(effort) };
                Prepared::Compiler(hloom_llvm::prepare(module, requests, &options))
            }
            #[cfg(not(feature = "llvm"))]
            KernelSource::Compiler { threads: _, effort: _ } => {
                let _ = module;
                Prepared::Missing(requests.len())
            }
        };
        let requests = requests.iter().map(Asked::of).collect();
        Ok(Kernels { source, requests, core, asked: RefCell::default() })
    }

    /// What is known of the kernel of a request before it is compiled, if there can be one.
    pub(crate) fn facts(&self, request: usize) -> Option<KernelFacts> {
        let facts = match &self.source {
            #[cfg(feature = "llvm")]
            Prepared::Compiler(prepared) => {
                let hloom_llvm::KernelFacts { number, size, nanoseconds, work_units } = prepared.facts(request)?;
                KernelFacts { number, size, nanoseconds, work_units }
            }
            #[cfg(not(feature = "llvm"))]
            Prepared::Missing(_) => return None,
            Prepared::Saved(record) => *record.answers.facts.get(&request)?,
        };
        self.asked.borrow_mut().0.insert(request, facts);
        Some(facts)
    }

    /// The rows of the product that are a unit of a request's kernel, if units are whole rows.
    pub(crate) fn rows_of_unit(&self, request: usize) -> Option<usize> {
        let rows = match &self.source {
            #[cfg(feature = "llvm")]
            Prepared::Compiler(prepared) => usize::try_from(prepared.rows_of_unit(request)?).ok()?,
            #[cfg(not(feature = "llvm"))]
            Prepared::Missing(_) => return None,
            Prepared::Saved(record) => *record.answers.rows_of_unit.get(&request)?,
        };
        self.asked.borrow_mut().1.insert(request, rows);
        Some(rows)
    }

    /// Compiles regions, and the kernels of those requests that want a function of their own.
    pub(crate) fn compile(&self, is_wanted: impl Fn(usize) -> bool, regions: &[Region]) -> KernelLibrary {
        let record = match &self.source {
            #[cfg(feature = "llvm")]
            Prepared::Compiler(prepared) => {
                let made = prepared.compile(is_wanted, regions);
                let kernel = |request| {
                    let found = made.kernel(request).map_err(|refused| refused.to_string())?;
                    let symbol = Symbol { object: found.object as u32, number: found.number as u32 };
                    let (work_units, unit_nanoseconds) = (found.work_units, found.unit_nanoseconds);
                    Ok(CompiledKernel { symbol, work_units, unit_nanoseconds })
                };
                let region = |number| {
                    let found = made.region(number).map_err(|refused| refused.to_string())?;
                    Ok(Symbol { object: found.object as u32, number: found.number as u32 })
                };
                let answers = Answers {
                    architecture: hloom_llvm::Machine::host().architecture.clone(),
                    kernels: (0..prepared.requests()).map(kernel).collect(),
                    regions: (0..regions.len()).map(region).collect(),
                    ..Answers::default()
                };
                KernelRecord { objects: made.objects, answers }
            }
            #[cfg(not(feature = "llvm"))]
            Prepared::Missing(requests) => {
                let _ = (is_wanted, regions);
                let missing = Err("this build has no compiler of kernels".to_owned());
                let answers = Answers { kernels: vec![missing; *requests], ..Answers::default() };
                KernelRecord { objects: Vec::new(), answers }
            }
            Prepared::Saved(record) => record.clone(),
        };
        let core = self.core;
        KernelLibrary { record, core, kernels: Vec::new(), numbers: FxHashMap::default(), regions: Vec::new() }
    }

    /// All that the program names of what was compiled, and all that was asked.
    pub(crate) fn into_code(self, library: KernelLibrary, requests: Vec<KernelRequest>) -> KernelCode {
        let KernelLibrary { mut record, kernels, regions, .. } = library;
        (record.answers.facts, record.answers.rows_of_unit) = self.asked.into_inner();
        record.answers.requests = self.requests;
        KernelCode { record, requests, kernels, regions }
    }
}

/// What was compiled, and what of it the program names.
#[derive(Debug)]
pub(crate) struct KernelLibrary {
    record: KernelRecord,
    core: CoreCost,
    kernels: Vec<Symbol>,
    numbers: FxHashMap<Symbol, u32>,
    regions: Vec<Symbol>,
}

impl KernelLibrary {
    fn compiled(&self, request: usize) -> Result<CompiledKernel, String> {
        let kernel = self.record.answers.kernels.get(request).cloned();
        kernel.unwrap_or_else(|| Err("it was not asked for".to_owned()))
    }

    /// The kernel of a request, or why there is none.
    pub(crate) fn kernel(&mut self, request: usize) -> Result<Kernel, String> {
        let CompiledKernel { symbol, work_units, unit_nanoseconds } = self.compiled(request)?;
        let next = self.kernels.len() as u32;
        let number = *self.numbers.entry(symbol).or_insert(next);
        if number == next {
            self.kernels.push(symbol);
        }
        Ok(Kernel::new(number, work_units, unit_nanoseconds, &self.core))
    }

    /// Whether a region was made.
    pub(crate) fn has_region(&self, number: usize) -> bool {
        matches!(self.record.answers.regions.get(number), Some(Ok(_)))
    }

    /// Whether the kernel of a request was made.
    pub(crate) fn has_kernel(&self, request: usize) -> bool {
        self.compiled(request).is_ok()
    }

    /// The number of a region's function in the program, or why there is none.
    pub(crate) fn region(&mut self, number: usize) -> Result<u32, String> {
        let region = self.record.answers.regions.get(number).cloned();
        self.regions.push(region.unwrap_or_else(|| Err("it was not asked for".to_owned()))?);
        Ok(self.regions.len() as u32 - 1)
    }
}

/// The object code of a program's kernels and regions, and where in it each is.
#[derive(Clone, Default, Debug)]
pub(crate) struct KernelCode {
    pub(crate) record: KernelRecord,
    /// What was asked for, in the scheduled module.
    pub(crate) requests: Vec<KernelRequest>,
    kernels: Vec<Symbol>,
    regions: Vec<Symbol>,
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
    pub(crate) fn load(&self) -> Result<LoadedKernels, LoadError> {
        let image = CodeImage::load(&self.record.objects, &self.record.answers.architecture)?;
        // SAFETY (both): the compiler names kernels `k` and regions `r`, and gives them their signatures.
        let kernel = |s: &Symbol| unsafe { image.kernel(s.object as usize, &format!("k{}", s.number)) };
        let region = |s: &Symbol| unsafe { image.region(s.object as usize, &format!("r{}", s.number)) };
        let kernels = self.kernels.iter().map(kernel).collect::<Result<_, _>>()?;
        let regions = self.regions.iter().map(region).collect::<Result<_, _>>()?;
        Ok(LoadedKernels { kernels, regions, _image: image })
    }
}
