//! Compiling kernels: equal ones once, several threads at a time, as object code.

use crate::emit::ir::Ir;
use crate::emit::kernel::{Constants, Place, Slot};
use crate::emit::region::emit_region;
use crate::failure::LlvmError;
use crate::generator::{Effort, Generator};
use crate::machine::Machine;
use hloom_ir::Module;
use hloom_loader::ObjectCode;
use hloom_loops::graph::Graph;
use hloom_loops::kernel::{KernelLoops, KernelRequest, lower_requests};
use hloom_loops::nests::programs;
use hloom_loops::program::LoopProgram;
use hloom_loops::region::Region;
use hloom_loops::schedule::Schedule;
use hloom_loops::units::Units;
use hloom_loops::unsupported::Unsupported;
use inkwell::context::Context;
use std::sync::Arc;

/// Where a compiled kernel is, and what it costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KernelSymbol {
    /// The object that its function is in.
    pub object: usize,
    /// The number in its function's name: see [`KernelSymbol::name`].
    pub number: usize,
    /// Shares of the work. Any split gives bit-identical results.
    pub work_units: i64,
    /// About how long a unit takes on one core.
    pub unit_nanoseconds: f64,
}

impl KernelSymbol {
    /// The name of the function.
    pub fn name(&self) -> String {
        format!("k{}", self.number)
    }
}

/// Where a compiled region is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionSymbol {
    /// The object that its function is in.
    pub object: usize,
    /// The number in its function's name: see [`RegionSymbol::name`].
    pub number: usize,
}

impl RegionSymbol {
    /// The name of the function.
    pub fn name(&self) -> String {
        format!("r{}", self.number)
    }
}

/// How to compile.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine that the kernels are for.
    pub machine: Machine,
    /// The most threads to compile with.
    pub threads: usize,
    /// How much time the code is worth.
    pub effort: Effort,
}

impl Default for Options {
    fn default() -> Options {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        Options { machine: Machine::host().clone(), threads, effort: Effort::Full }
    }
}

/// Compiled kernels: object code, and where in it each is.
#[derive(Debug, Default)]
pub struct KernelObjects {
    /// The objects.
    pub objects: Vec<ObjectCode>,
    /// The different kernels, or why there is none.
    kernels: Vec<Result<KernelSymbol, Refused>>,
    /// For each request the number of its kernel.
    of_request: Vec<usize>,
    regions: Vec<Result<RegionSymbol, Refused>>,
}

impl KernelObjects {
    /// The kernel of the request of that number, or why there is none.
    pub fn kernel(&self, request: usize) -> Result<KernelSymbol, Refused> {
        let number = self.of_request.get(request);
        let kernel = number.and_then(|&n| self.kernels.get(n)).cloned();
        kernel.unwrap_or_else(|| Err(Refused::missing()))
    }
    /// The function of the region of that number, or why there is none.
    pub fn region(&self, number: usize) -> Result<RegionSymbol, Refused> {
        self.regions.get(number).cloned().unwrap_or_else(|| Err(Refused::missing()))
    }
    /// The number of different kernels.
    pub fn len(&self) -> usize {
        self.kernels.iter().filter(|k| k.is_ok()).count()
    }
    /// Whether there are no kernels.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Why a kernel was not made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is none for such a request.
    Unsupported(Unsupported),
    /// LLVM or the operating system failed; a bug or a lack of memory.
    Failed(LlvmError),
}

impl Refused {
    /// For a kernel that nobody asked for.
    fn missing() -> Refused {
        Refused::Failed(LlvmError("it was not asked for".into()))
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Unsupported(why) => why.fmt(f),
            Refused::Failed(why) => write!(f, "its kernel could not be compiled: {why}"),
        }
    }
}

impl std::error::Error for Refused {}

/// What is known of a kernel before it is compiled.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KernelFacts {
    /// The number of the kernel: that of all requests that it is for.
    pub number: usize,
    /// A measure of how much code it is: about the operations on elements in it, and ten for each nest of loops.
    pub size: usize,
    /// About how long all of it takes on one core.
    pub nanoseconds: f64,
    /// Shares of the work.
    pub work_units: i64,
}

/// Kernels whose loops are worked out, ready to be compiled.
#[derive(Debug)]
pub struct Prepared {
    work: Vec<Result<KernelLoops, Unsupported>>,
    of_request: Vec<usize>,
    options: Options,
}

/// The code of the kernels as LLVM reads it, to look at.
pub fn llvm_ir(module: &Module, requests: &[KernelRequest], options: &Options) -> Result<String, Refused> {
    let (work, _) = lower_requests(module, requests, &options.machine.simd, &options.machine.core);
    let context = Context::create();
    let ir = Ir::new(&context, &options.machine);
    let mut constants = Constants::default();
    for (n, w) in work.iter().enumerate() {
        let w = w.as_ref().map_err(|why| Refused::Unsupported(why.clone()))?;
        emit_kernel(&ir, &options.machine, &w.graph, &w.programs, &format!("k{n}"), &mut constants);
    }
    Ok(ir.module.print_to_string().to_string())
}

/// The code of the kernels as assembly, to look at.
pub fn assembly(module: &Module, requests: &[KernelRequest], options: &Options) -> Result<String, LlvmError> {
    let (work, _) = lower_requests(module, requests, &options.machine.simd, &options.machine.core);
    let generator = Generator::for_machine(&options.machine, options.effort)?;
    generator.assembly(|generator, context| {
        let ir = Ir::new(context, &options.machine);
        generator.prepare(&ir.module);
        let mut constants = Constants::default();
        for (n, w) in work.iter().enumerate() {
            if let Ok(w) = w {
                emit_kernel(&ir, &options.machine, &w.graph, &w.programs, &format!("k{n}"), &mut constants);
            }
        }
        ir.module
    })
}

/// Works out the loops of the kernels of all requests.
pub fn prepare(module: &Module, requests: &[KernelRequest], options: &Options) -> Prepared {
    let (work, of_request) = lower_requests(module, requests, &options.machine.simd, &options.machine.core);
    Prepared { work, of_request, options: options.clone() }
}

/// Compiles a kernel for each request. What cannot be compiled is refused alone.
pub fn compile(module: &Module, requests: &[KernelRequest], options: &Options) -> KernelObjects {
    prepare(module, requests, options).compile(|_| true, &[])
}

impl Prepared {
    /// The kernel of that request.
    fn work(&self, request: usize) -> Option<&KernelLoops> {
        self.work.get(*self.of_request.get(request)?)?.as_ref().ok()
    }

    /// How many kernels were asked for.
    pub fn requests(&self) -> usize {
        self.of_request.len()
    }

    /// What is known of the kernel of that request, if there can be one.
    pub fn facts(&self, request: usize) -> Option<KernelFacts> {
        let work = self.work(request)?;
        let machine = &self.options.machine;
        let units = |p| Units::of(p, &Schedule::new(p, &machine.simd), &machine.core).count;
        let work_units = work.programs.iter().map(units).sum();
        let number = *self.of_request.get(request)?;
        Some(KernelFacts { number, size: work.size(), nanoseconds: work.nanoseconds(&machine.core), work_units })
    }

    /// How many rows of the product that is left to others are a unit of the kernel, if units are whole rows: unit `u` reads
    /// the product's result, and writes all results, from `u` times as many on, each element before any result in its place
    /// is written.
    pub fn rows_of_unit(&self, request: usize) -> Option<i64> {
        match &self.work(request)?.programs[..] {
            [program] => program.row_tiles.as_ref().map(|rows| rows.of_unit),
            _ => None,
        }
    }

    /// Compiles the kernels of those requests that want a function of their own, and regions, which name requests that
    /// there are facts of. What cannot be compiled is refused alone.
    pub fn compile(&self, is_wanted: impl Fn(usize) -> bool, regions: &[Region]) -> KernelObjects {
        let mut wanted = vec![false; self.work.len()];
        let requests = self.of_request.iter().enumerate();
        requests.filter(|(n, _)| is_wanted(*n)).for_each(|(_, &kernel)| wanted[kernel] = true);
        let refused = |w: &Result<KernelLoops, Unsupported>| {
            w.as_ref().err().map_or_else(Refused::missing, |e| Refused::Unsupported(e.clone()))
        };
        let mut library = KernelObjects {
            kernels: self.work.iter().map(|w| Err(refused(w))).collect(),
            of_request: self.of_request.clone(),
            regions: regions.iter().map(|_| Err(Refused::missing())).collect(),
            ..KernelObjects::default()
        };
        let jobs = jobs(self, &wanted, regions);
        let run = |job: &Job| compile_batch(self, job, regions);
        let made: Vec<Result<Batch, LlvmError>> = match &jobs[..] {
            [one] => vec![run(one)],
            _ if self.options.threads <= 1 => jobs.iter().map(run).collect(),
            _ => std::thread::scope(|scope| {
                let running: Vec<_> = jobs.iter().map(|job| scope.spawn(move || run(job))).collect();
                running
                    .into_iter()
                    .map(|t| t.join().unwrap_or_else(|_| Err(LlvmError("a thread panicked".into()))))
                    .collect()
            }),
        };
        for (batch, job) in made.into_iter().zip(jobs) {
            match batch {
                Ok(batch) => library.add(&job, batch),
                // One of them is at fault: each is tried alone.
                Err(_) if job.kernels.len() + job.regions.len() > 1 => {
                    for alone in job.parts() {
                        match run(&alone) {
                            Ok(batch) => library.add(&alone, batch),
                            Err(why) => library.refuse(&alone, &why),
                        }
                    }
                }
                Err(why) => library.refuse(&job, &why),
            }
        }
        library
    }
}

impl KernelObjects {
    fn add(&mut self, job: &Job, batch: Batch) {
        let object = self.objects.len();
        for (&number, (work_units, unit_nanoseconds)) in job.kernels.iter().zip(batch.facts) {
            self.kernels[number] = Ok(KernelSymbol { object, number, work_units, unit_nanoseconds });
        }
        for &number in &job.regions {
            self.regions[number] = Ok(RegionSymbol { object, number });
        }
        self.objects.push(batch.object);
    }

    fn refuse(&mut self, job: &Job, why: &LlvmError) {
        job.kernels.iter().for_each(|&n| self.kernels[n] = Err(Refused::Failed(why.clone())));
        job.regions.iter().for_each(|&n| self.regions[n] = Err(Refused::Failed(why.clone())));
    }
}

/// Compiles the kernel of a graph and forgets it.
pub(crate) fn compile_graph(graph: Graph, options: &Options) -> Result<(), LlvmError> {
    let programs = programs(&graph, false).map_err(|why| LlvmError(why.to_string()))?;
    let job = Job { kernels: vec![0], regions: Vec::new(), effort: options.effort, size: 0 };
    let work = vec![Ok(KernelLoops { graph, programs })];
    let prepared = Prepared { work, of_request: vec![0], options: options.clone() };
    compile_batch(&prepared, &job, &[]).map(|_| ())
}

/// Kernels that are compiled together.
#[derive(Default)]
struct Job {
    kernels: Vec<usize>,
    regions: Vec<usize>,
    effort: Effort,
    size: usize,
}

impl Job {
    /// A job for each kernel and each region.
    fn parts(&self) -> impl Iterator<Item = Job> {
        let kernels = self.kernels.iter().map(|&n| Job { kernels: vec![n], effort: self.effort, ..Job::default() });
        let regions = self.regions.iter().map(|&n| Job { regions: vec![n], effort: self.effort, ..Job::default() });
        kernels.chain(regions)
    }
}

/// Kernels that take less than such a share of a start are compiled quickly where there are many: with so little work,
/// calling them costs as much as what better code would save.
const SMALL: f64 = 0.4;
const MANY_SMALL: usize = 24;
/// A thread pays for itself from so many items on.
const ITEMS_PER_THREAD: usize = 400;

/// Shares kernels and regions out among jobs of about equal size.
fn jobs(all: &Prepared, wanted: &[bool], regions: &[Region]) -> Vec<Job> {
    let Prepared { work, options, .. } = all;
    let core = &options.machine.core;
    let programs = |n: usize| work[n].iter().flat_map(|w| &w.programs);
    let size = |n: usize| work[n].as_ref().map_or(0, KernelLoops::size);
    let is_small = |n: usize| programs(n).map(|p| p.nanoseconds(core)).sum::<f64>() < SMALL * core.launch;
    let asked = (0..work.len()).filter(|&n| wanted[n] && work[n].is_ok());
    let (mut small, mut other): (Vec<usize>, Vec<usize>) = asked.partition(|&n| is_small(n));
    if small.len() < MANY_SMALL || options.effort == Effort::Quick {
        other.append(&mut small);
    }
    let of_request = |request: usize| all.work(request).map_or(0, KernelLoops::size);
    let region_size = |r: &Region| r.steps.iter().map(|s| s.size(&of_request)).sum();
    // Size, whether it is a region, and its number.
    let mut others: Vec<(usize, bool, usize)> = other.iter().map(|&n| (size(n), false, n)).collect();
    others.extend(regions.iter().enumerate().map(|(n, r)| (region_size(r), true, n)));
    let small = small.iter().map(|&n| (size(n), false, n)).collect();
    let mut jobs: Vec<Job> = Vec::new();
    for (mut parts, effort) in [(others, options.effort), (small, Effort::Quick)] {
        let total: usize = parts.iter().map(|p| p.0).sum();
        let count = options.threads.min(parts.len()).min(total / ITEMS_PER_THREAD + 1);
        let first = jobs.len();
        jobs.extend((0..count).map(|_| Job { effort, ..Job::default() }));
        // The largest first, each to the job that has least so far.
        parts.sort_by_key(|p| std::cmp::Reverse(p.0));
        for (size, is_region, n) in parts {
            if let Some(job) = jobs[first..].iter_mut().min_by_key(|j| j.size) {
                if is_region {
                    job.regions.push(n)
                } else {
                    job.kernels.push(n)
                }
                job.size += size;
            }
        }
    }
    jobs
}

struct Batch {
    object: ObjectCode,
    /// For each kernel its work units and the cost of one.
    facts: Vec<(i64, f64)>,
}

fn compile_batch(all: &Prepared, job: &Job, regions: &[Region]) -> Result<Batch, LlvmError> {
    let machine = &all.options.machine;
    let generator = Generator::for_machine(machine, job.effort)?;
    let mut constants = Vec::new();
    let mut facts = Vec::new();
    let object = generator.object(|generator, context| {
        let ir = Ir::new(context, machine);
        generator.prepare(&ir.module);
        let mut known = Constants::default();
        for &n in &job.kernels {
            let Ok(w) = &all.work[n] else { continue };
            facts.push(emit_kernel(&ir, machine, &w.graph, &w.programs, &format!("k{n}"), &mut known));
        }
        for &n in &job.regions {
            emit_region(&ir, machine, &regions[n], &|request| all.work(request), &format!("r{n}"), &mut known);
        }
        constants = known.external;
        ir.module
    })?;
    let constants = constants.into_iter().map(|(name, data)| (name, Arc::new(data) as Arc<_>)).collect();
    Ok(Batch { object: ObjectCode { bytes: object.as_slice().into(), constants }, facts })
}

/// Writes the function of a kernel; its work units and the cost of one.
fn emit_kernel<'c>(
    ir: &Ir<'c>,
    machine: &Machine,
    graph: &Graph,
    programs: &[LoopProgram],
    name: &str,
    constants: &mut Constants<'c>,
) -> (i64, f64) {
    let context = ir.context;
    let (pointer, long) = (ir.pointer_type(), context.i64_type());
    let signature = context.void_type().fn_type(&[pointer.into(), long.into(), long.into()], false);
    let function = ir.module.add_function(name, signature, None);
    let nounwind = inkwell::attributes::Attribute::get_named_enum_kind_id("nounwind");
    let attribute = context.create_enum_attribute(nounwind, 0);
    function.add_attribute(inkwell::attributes::AttributeLoc::Function, attribute);
    ir.builder.position_at_end(context.append_basic_block(function, "entry"));
    let table = function.get_nth_param(0).expect("there are three").into_pointer_value();
    let begin = function.get_nth_param(1).expect("there are three");
    let end = function.get_nth_param(2).expect("there are three");
    let buffers: Vec<Slot<'c>> = (0..graph.inputs as usize + graph.outputs.len())
        .map(|n| {
            let at = ir.offset(table, ir.i64(n as i64 * 8));
            Slot::Memory(ir.load(pointer.into(), at, 8).into_pointer_value())
        })
        .collect();
    let (mut done, mut cost) = (0i64, 0.0);
    let mut place = Place { ir, machine, function, buffers: &buffers, constants, registers: &mut [] };
    let units = |program: &LoopProgram| Units::of(program, &Schedule::new(program, &machine.simd), &machine.core).count;
    for program in programs {
        let count = units(program);
        let from = ir.call2("llvm.smax", ir.sub(begin, ir.i64(done).into()), ir.i64(0).into());
        let to = ir.call2("llvm.smin", ir.sub(end, ir.i64(done).into()), ir.i64(count).into());
        if let Some(first) = &program.before {
            // All of it, in the only unit of what follows.
            let all = ir.i64(units(first)).into();
            let zero = ir.i64(0);
            let its = ir.select(ir.icmp(inkwell::IntPredicate::SLT, from, to), all, zero.into());
            place.nest(first, zero, its.into_int_value());
            cost += first.nanoseconds(&machine.core);
        }
        place.nest(program, from.into_int_value(), to.into_int_value());
        done += count;
        cost += program.nanoseconds(&machine.core);
    }
    ir.builder.build_return(None).expect("the builder is positioned");
    (done, cost / done.max(1) as f64)
}
