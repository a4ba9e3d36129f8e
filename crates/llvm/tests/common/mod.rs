//! Kernels against the evaluator: while a program is evaluated, the kernel of each instruction is run on the same
//! operands, for each kind of machine that the host can be, in one piece and in shares, and the results are compared.

#![allow(dead_code, reason = "each test program uses a part of it")]

use hloom_eval::observe::{Observer, Verdict};
use hloom_eval::run::{DeviceGrid, Options as RunOptions, run};
use hloom_formats::hlo_text;
use hloom_fuzz::choices::Choices;
use hloom_fuzz::differential::{Agreement, compare_arrays, inputs};
use hloom_ir::verify::{VerifiedModule, VerifyOptions, verify};
use hloom_ir::{ElementType, InstructionId, Module, Op};
use hloom_llvm::{KernelObjects, Machine, Options, compile};
use hloom_loader::CodeImage;
use hloom_loops::abi::KernelFn;
use hloom_loops::{KernelRequest, supports};
use hloom_value::{Array, Value};
use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

/// A verified module from HLO text.
pub(crate) fn program(text: &str) -> VerifiedModule {
    let read = hlo_text::read(text.as_bytes());
    let module = read.module.unwrap_or_else(|| panic!("{:?}\n{text}", read.diagnostics));
    verify(module, &VerifyOptions::default()).unwrap_or_else(|e| panic!("{:?}\n{text}", e.diagnostics))
}

/// The machines whose code this one can run.
pub(crate) fn machines() -> Vec<Machine> {
    let host = Machine::host();
    let mut machines = vec![host.clone()];
    if host.simd.has_masks {
        machines.push(host.without_avx512());
    }
    machines
}

/// What was compared.
#[derive(Default, Debug)]
pub(crate) struct Summary {
    /// Kernels that were run.
    pub(crate) checked: usize,
    /// Why other instructions have none.
    pub(crate) unsupported: BTreeSet<String>,
}

/// Kernels in memory, each found by the number of its request.
pub(crate) struct LoadedKernels {
    objects: KernelObjects,
    image: CodeImage,
}

impl LoadedKernels {
    pub(crate) fn new(objects: KernelObjects, machine: &Machine) -> LoadedKernels {
        let image = CodeImage::load(&objects.objects, &machine.architecture).expect("the code can be loaded");
        LoadedKernels { objects, image }
    }

    /// The function of a request, and its work units.
    pub(crate) fn kernel(&self, request: usize) -> Option<(KernelFn, i64)> {
        let symbol = self.objects.kernel(request).ok()?;
        // SAFETY: the symbol is a kernel's.
        let function = unsafe { self.image.kernel(symbol.object, &symbol.name()) };
        Some((function.expect("it is in the object"), symbol.work_units))
    }
}

struct Checker<'m> {
    module: &'m Module,
    libraries: Vec<(Machine, LoadedKernels, HashMap<InstructionId, usize>)>,
    agreement: Option<Agreement>,
    state: Mutex<(usize, Vec<String>)>,
}

/// How near the results for arrays of a type must be, where sums may be added up in another order.
fn near(t: ElementType) -> Agreement {
    Agreement::Within(match t.component() {
        ElementType::Bf16 => 1.0 / 64.0,
        ElementType::F16 => 1.0 / 512.0,
        ElementType::F32 => 2e-5,
        _ => 1e-11,
    })
}

/// Whether it has floats so large that the evaluator, which adds them up in a wider type, does not overflow where others
/// must.
fn is_wild(value: &Value) -> bool {
    let Ok(array) = value.as_array() else { return false };
    let t = array.element_type();
    let Ok(wide) = hloom_eval::ops::elementwise::convert(array.clone(), ElementType::F64) else { return false };
    let limit = if t == ElementType::F16 { 100.0 } else { 1e6 };
    t.is_float() && wide.elements::<f64>().iter().any(|x| x.is_finite() && x.abs() > limit)
}

impl Observer for Checker<'_> {
    fn made(&self, _: usize, instruction: InstructionId, value: &Value, operands: &[Value]) -> Verdict {
        let reductions =
            matches!(self.module[instruction].op, Op::Reduce { .. } | Op::ReduceWindow { .. } | Op::Fusion(_));
        if reductions && operands.iter().any(is_wild) {
            return Verdict::GoOn;
        }
        for (machine, library, numbers) in &self.libraries {
            let Some(&number) = numbers.get(&instruction) else { continue };
            for shares in [1, 3] {
                let results = run_kernel(library, number, operands, value, shares);
                let mut state = self.state.lock().expect("no thread panics with it");
                state.0 += 1;
                for (n, (expected, given)) in value.leaves().into_iter().zip(&results).enumerate() {
                    let Ok(expected) = expected.as_array() else { continue };
                    let agreement = self.agreement.unwrap_or(near(expected.element_type()));
                    if let Err(what) = compare_arrays(expected, given, agreement) {
                        let i = &self.module[instruction];
                        let shape = &i.shape;
                        let from: Vec<String> = operands.iter().map(Value::description).collect();
                        let bits = machine.simd.vector_bits;
                        state.1.push(format!(
                            "{} = {shape} {}({}), {bits} bits, {shares} shares, result {n}: {what}",
                            i.name(),
                            i.opcode(),
                            from.join(", ")
                        ));
                    }
                }
            }
        }
        Verdict::GoOn
    }
}

/// Runs a kernel on the leaves of `operands` in that many shares, the last first.
pub(crate) fn run_kernel(
    library: &LoadedKernels,
    number: usize,
    operands: &[Value],
    like: &Value,
    shares: i64,
) -> Vec<Array> {
    let (function, units) = library.kernel(number).expect("there is a kernel for each request");
    let leaves: Vec<&Array> = operands.iter().flat_map(Value::leaves).filter_map(|v| v.as_array().ok()).collect();
    // What a kernel does not write shows.
    let mut results: Vec<Array> = like
        .leaves()
        .into_iter()
        .filter_map(|v| v.as_array().ok())
        .map(|a| Array::from_bytes(a.element_type(), a.dims(), &vec![0xa5; a.bytes().len()]).expect("there is memory"))
        .collect();
    let mut buffers: Vec<*mut u8> = leaves.iter().map(|a| a.bytes().as_ptr().cast_mut()).collect();
    buffers.extend(results.iter_mut().map(|a| a.bytes_mut().as_mut_ptr()));
    for share in (0..shares).rev() {
        let (begin, end) = (units * share / shares, units * (share + 1) / shares);
        // SAFETY: the buffers are those that the kernel was compiled for, and the range lies within its units.
        unsafe { function(buffers.as_ptr(), begin, end) };
    }
    results
}

/// Whether an instruction is one that kernels are asked for at all.
fn is_candidate(op: &Op) -> bool {
    !matches!(
        op,
        Op::Parameter { .. }
            | Op::Tuple
            | Op::GetTupleElement { .. }
            | Op::Call { .. }
            | Op::OptBarrier
            | Op::AddDependency
    )
}

/// Runs `module` on `arguments` and checks every kernel on the way. Exactly, if `agreement` says so.
pub(crate) fn check_run(module: &VerifiedModule, arguments: Vec<Vec<Value>>, agreement: Option<Agreement>) -> Summary {
    let plain = module.module();
    let mut summary = Summary::default();
    let mut requests = Vec::new();
    for &i in plain.computations().iter().flat_map(|&c| plain[c].instructions()) {
        if !is_candidate(&plain[i].op) {
            continue;
        }
        match supports(plain, i, None) {
            Ok(()) => requests.push(KernelRequest { instruction: i, in_place: false, producer: None }),
            Err(why) => {
                summary.unsupported.insert(format!("{}: {}", plain[i].opcode(), why.what));
            }
        }
    }
    let mut libraries = Vec::new();
    for machine in machines() {
        let options = Options { machine: machine.clone(), ..Options::default() };
        let library = LoadedKernels::new(compile(plain, &requests, &options), &machine);
        let numbers = requests.iter().enumerate().map(|(n, r)| (r.instruction, n)).collect();
        libraries.push((machine, library, numbers));
    }
    let checker = Checker { module: plain, libraries, agreement, state: Mutex::default() };
    let partitions = usize::try_from(plain.config.num_partitions).unwrap_or(1).max(1);
    let grid = DeviceGrid { replicas: arguments.len() / partitions, partitions };
    let options = RunOptions { observer: Some(&checker), max_steps: Some(1_000_000), ..RunOptions::default() };
    // A program that fails has still been compared as far as it got.
    let _ = run(module, grid, arguments, &options);
    let (checked, failures) = checker.state.into_inner().expect("no thread panics with it");
    assert!(
        failures.is_empty(),
        "{} kernels differ:\n{}",
        failures.len(),
        failures[..failures.len().min(20)].join("\n")
    );
    summary.checked = checked;
    summary
}

/// Checks every instruction of an HLO text on random arguments.
pub(crate) fn check(text: &str, seed: u64) -> Summary {
    let module = program(text);
    let mut choices = Choices::from_seed(seed);
    let arguments = inputs(module.module(), 1, &mut choices).expect("parameters are arrays");
    check_run(&module, arguments, None)
}

/// As [`check`], and every instruction must have had a kernel.
pub(crate) fn check_all(text: &str, seed: u64) {
    let summary = check(text, seed);
    assert!(summary.unsupported.is_empty(), "{:?}", summary.unsupported);
    assert!(summary.checked > 0, "nothing was compared");
}

/// As [`check_all`], with floats between −1 and 1: sums of any order are then near each other.
pub(crate) fn check_mild(text: &str, seed: u64) {
    let module = program(text);
    let arguments = mild_arguments(&module, seed);
    let summary = check_run(&module, vec![arguments], None);
    assert!(summary.unsupported.is_empty(), "{:?}", summary.unsupported);
    assert!(summary.checked > 0, "nothing was compared");
}

/// Random arguments whose floats are between −1 and 1.
pub(crate) fn mild_arguments(module: &VerifiedModule, seed: u64) -> Vec<Value> {
    let mut choices = Choices::from_seed(seed);
    let mut arguments = inputs(module.module(), 1, &mut choices).expect("parameters are arrays").remove(0);
    for value in &mut arguments {
        if let Value::Array(array) = value
            && array.element_type().is_float()
        {
            let numbers: Vec<f64> = (0..array.len()).map(|_| choices.between(-1000, 1000) as f64 / 1000.0).collect();
            let wide = Array::new(array.dims(), &numbers).expect("as many numbers as before");
            *array = hloom_eval::ops::elementwise::convert(wide, array.element_type()).expect("floats become floats");
        }
    }
    arguments
}

/// Checks the root's kernel where its result takes the place of the first operand.
pub(crate) fn check_in_place(text: &str, seed: u64) {
    let module = program(text);
    let mut arguments = mild_arguments(&module, seed);
    let grid = DeviceGrid { replicas: 1, partitions: 1 };
    let results = run(&module, grid, vec![arguments.clone()], &RunOptions::default());
    let expected = results.unwrap_or_else(|f| panic!("{}", f.diagnostic().message)).remove(0);
    let plain = module.module();
    let root = plain.entry().and_then(|e| plain.root(e)).expect("there is a root");
    for machine in machines() {
        let requests = [KernelRequest { instruction: root, in_place: true, producer: None }];
        let objects = compile(plain, &requests, &Options { machine: machine.clone(), ..Options::default() });
        let library = LoadedKernels::new(objects, &machine);
        let (function, units) = library.kernel(0).expect("there is one");
        let mut changed = arguments[0].as_array().expect("an array").clone();
        changed.unshare().expect("there is memory");
        let mut buffers: Vec<*mut u8> =
            arguments.iter_mut().filter_map(|v| v.as_array().ok()).map(|a| a.bytes().as_ptr().cast_mut()).collect();
        let place = changed.bytes_mut().as_mut_ptr();
        buffers[0] = place;
        buffers.push(place);
        // SAFETY: the buffers are those that the kernel was compiled for; nothing else uses `changed` meanwhile.
        unsafe { function(buffers.as_ptr(), 0, units) };
        let wanted = expected.as_array().expect("an array");
        compare_arrays(wanted, &changed, near(wanted.element_type())).unwrap_or_else(|what| panic!("{what}\n{text}"));
    }
}
