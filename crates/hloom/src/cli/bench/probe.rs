//! Programs that each measure one number of the machine behind a client: what a call costs, how fast its memory is, how
//! fast it multiplies matrices and computes element by element.
//!
//! Arguments are computed where they are used, so that a probe of a gigabyte costs no gigabyte of input. What the
//! evaluator would do says nothing of the machine, and is refused.

use super::super::{Result, Stop, output, progress};
use hloom::analysis::devices::DeviceGrid;
use hloom::compiler::CompileOptions;
use hloom::cost::{CostModel, KernelKind, carried_chain};
use hloom::ir::diagnostic::Diagnostic;
use hloom::ir::entity::InstructionId;
use hloom::ir::module::Module;
use hloom::ir::op::Op;
use hloom::load::parse;
use hloom::runtime::{Buffer, Client, ExecuteOptions, LoadedExecutable};
use hloom::value::ExecutionError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Trees one after another in the program that measures plain operations: enough that memory does not matter.
const TREES: usize = 8;
/// Products in each tree.
const LEAVES: usize = 16;
/// Functions in the chain that measures them, each of which takes as long as many plain operations.
const FUNCTIONS: usize = 32;
/// Elements of an array that no cache holds.
const STREAMED: usize = 1 << 26;
/// A product is made larger until it takes as long.
const PRODUCT_SECONDS: f64 = 2e-3;
/// Work of a chain is made larger until a call costs as small a share of it.
const DISPATCH_SHARE: f64 = 0.05;
const SMALLEST_SIDE: usize = 256;
const LARGEST_SIDE: usize = 16384;
/// A program runs as often as fits in this, where that is more often than is asked for: what others do meanwhile comes and
/// goes.
const LEAST_TIME: Duration = Duration::from_millis(150);
/// Kernels one after another in the programs that measure what one costs.
const FEW_KERNELS: usize = 4;
const MANY_KERNELS: usize = 132;
/// Products and sums in a round of the loop that measures how long they are waited for.
const CHAINED: usize = 16;
/// Rounds of the loop that measures what a kernel costs besides its work.
const ROUNDS: usize = 4096;

/// Measures the machine behind a client.
pub(super) struct Probe<'c> {
    client: &'c dyn Client,
    repeat: u32,
    /// Seconds of a call that computes next to nothing.
    pub(super) dispatch: f64,
}

/// Element-wise operations whose rate is measured.
#[derive(Clone, Copy)]
pub(super) enum Operations {
    /// Products and sums.
    Vector,
    /// `tanh`.
    Transcendental,
}

impl<'c> Probe<'c> {
    /// A probe that takes the fastest of `repeat` runs.
    pub(super) fn new(client: &'c dyn Client, repeat: u32) -> Result<Probe<'c>> {
        let mut probe = Probe { client, repeat, dispatch: 0.0 };
        probe.dispatch =
            probe.fastest("a call", &arguments("f32", "16", 16, 1.0, 0.0), &chain("f32", 16, 1, "negate"))?;
        Ok(probe)
    }

    /// Seconds that a call and each of its kernels take where the kernels do next to nothing, one after another.
    pub(super) fn starts(&self) -> Result<(f64, f64)> {
        let arguments = arguments("f32", "4,4", 16, 0.25, 0.125);
        let measured = |length: usize| -> Result<(f64, f64)> {
            let program = products(length);
            let compiled = self.compiled("kernels", &program)?;
            let module = compiled.compiled().module.module();
            let entry = module.entry().into_iter().flat_map(|e| module[e].instructions().iter().copied());
            Ok((self.fastest("kernels", &arguments, &program)?, self.kernels(module, entry)? as f64))
        };
        let ((few, few_kernels), (many, many_kernels)) = (measured(FEW_KERNELS)?, measured(MANY_KERNELS)?);
        let launch = ((many - few) / (many_kernels - few_kernels).max(1.0)).max(0.0);
        Ok(((few - launch * few_kernels).max(0.0), launch))
    }

    /// Seconds that the result of an addition is waited for, in a loop whose rounds are chains of them.
    pub(super) fn operation(&self) -> Result<f64> {
        let program = chained_rounds();
        let seconds = self.fastest("operations", &arguments("f32", "16", 16, 1.0 / 512.0, 1.0), &program)?;
        let compiled = self.compiled("operations", &program)?;
        let module = compiled.compiled().module.module();
        let entry = module.entry().into_iter().flat_map(|e| module[e].instructions());
        let bodies = entry.filter_map(|&i| match module[i].op {
            Op::While { body, .. } => Some(body),
            _ => None,
        });
        let chain: f64 = bodies.map(|body| carried_chain(module, body)).sum();
        Ok(self.without_dispatch(seconds) / (ROUNDS as f64 * chain.max(1.0)))
    }

    /// Seconds that a kernel of next to no work takes among others, in a loop.
    pub(super) fn launch(&self) -> Result<f64> {
        let program = repeat();
        let seconds = self.fastest("kernels", &arguments("f32", "16", 16, 1.0 / 512.0, 1.0), &program)?;
        let kernels = self.kernels_of_loops(&program)?.max(1);
        Ok((seconds - self.dispatch).max(0.0) / (ROUNDS * kernels) as f64)
    }

    /// Bytes a second, for an array of so many elements of four bytes that is read and written again; with how long that
    /// took.
    pub(super) fn stream(&self, elements: usize) -> Result<(f64, f64)> {
        let dims = elements.to_string();
        let arguments = arguments("f32", &dims, elements, 1.0, 0.0);
        let seconds = self.fastest("memory", &arguments, &chain("f32", elements, 1, "negate"))?;
        Ok((8.0 * elements as f64 / self.without_dispatch(seconds), seconds))
    }

    /// Bytes a second of the memory, beyond all caches.
    pub(super) fn memory_bandwidth(&self) -> Result<f64> {
        Ok(self.stream(STREAMED)?.0)
    }

    /// Multiplications and additions a second in products of matrices.
    pub(super) fn product(&self, element_type: &str) -> Result<f64> {
        // The best of several sizes: larger ones may wait for memory that others use, smaller ones are soon over.
        let (mut side, mut best) = (SMALLEST_SIDE, 0.0f64);
        loop {
            let dims = format!("{side},{side}");
            let arguments = arguments(element_type, &dims, side * side, 1.0, -0.5);
            let seconds = self.fastest("products", &arguments, &dot(element_type, side))?;
            best = best.max(2.0 * (side as f64).powi(3) / self.without_dispatch(seconds));
            if seconds >= PRODUCT_SECONDS || side >= LARGEST_SIDE {
                return Ok(best);
            }
            side *= 2;
        }
    }

    /// Element-wise operations a second.
    pub(super) fn rate(&self, element_type: &str, operations: Operations) -> Result<f64> {
        // A megabyte or two, in cache, where that is enough.
        let mut elements = 1 << 18;
        loop {
            // Next to one: a product of many stays a normal number.
            let arguments = arguments(element_type, &elements.to_string(), elements, 1.0 / 512.0, 1.0);
            let (program, count) = match operations {
                Operations::Vector => (trees(element_type, elements), TREES * (2 * LEAVES - 1)),
                Operations::Transcendental => (chain(element_type, elements, FUNCTIONS, "tanh"), FUNCTIONS),
            };
            let seconds = self.fastest("element-wise code", &arguments, &program)?;
            if self.dispatch <= DISPATCH_SHARE * seconds || elements >= STREAMED {
                return Ok((elements * count) as f64 / self.without_dispatch(seconds));
            }
            elements *= 4;
        }
    }

    /// How many kernels one round of all loops of a program is, compiled.
    fn kernels_of_loops(&self, program: &str) -> Result<usize> {
        let compiled = self.compiled("kernels", program)?;
        let module = compiled.compiled().module.module();
        let entry: Vec<_> = module.entry().into_iter().flat_map(|e| module[e].instructions()).collect();
        let computations = entry.iter().filter_map(|&&i| match module[i].op {
            Op::While { condition, body } => Some([condition, body]),
            _ => None,
        });
        self.kernels(module, computations.flatten().flat_map(|c| module[c].instructions().iter().copied()))
    }

    /// How many of these instructions are kernels.
    fn kernels(&self, module: &Module, instructions: impl Iterator<Item = InstructionId>) -> Result<usize> {
        let model = CostModel::new(module, self.client.backend().target()).map_err(|fault| wrong(&fault.message))?;
        Ok(instructions.filter(|&i| model.kernel(i).kind != KernelKind::Free).count())
    }

    fn without_dispatch(&self, seconds: f64) -> f64 {
        (seconds - self.dispatch).max(seconds / 4.0)
    }

    /// The fastest run of a program on what another made, which it is given for each of its parameters.
    fn fastest(&self, what: &str, arguments: &str, program: &str) -> Result<f64> {
        let _progress = progress::start(format!("measuring {what}"));
        let wrong = |said: String| wrong(&format!("measuring {what}: {said}"));
        let failed = |fault: ExecutionError| wrong(fault.into_diagnostic().message);
        let compiled = |text: &str| -> Result<Arc<dyn LoadedExecutable>> {
            let module = parse(text).map_err(|rejected| wrong(rejected.to_string()))?;
            let options =
                CompileOptions { strict: true, ..CompileOptions::new(DeviceGrid { replicas: 1, partitions: 1 }) };
            self.client.compile(&module, &options).map_err(|e| wrong(messages(&e.into_diagnostics(module.module()))))
        };
        let options = ExecuteOptions::default();
        let made = compiled(arguments)?.execute(vec![Vec::new()], &options).map_err(failed)?;
        let made = made.first().and_then(|leaves| leaves.first()).cloned();
        let program = compiled(program)?;
        let parameters = program.compiled().parameters.len();
        let given: Vec<Buffer> = made.into_iter().cycle().take(parameters).collect();
        let mut fastest = f64::INFINITY;
        let first = Instant::now();
        let mut runs = 0;
        while runs <= self.repeat || first.elapsed() < LEAST_TIME {
            let arguments = vec![given.clone()];
            let begun = Instant::now();
            let results = program.execute(arguments, &options).map_err(failed)?;
            let lasted = begun.elapsed().as_secs_f64();
            drop(results);
            if runs > 0 {
                fastest = fastest.min(lasted);
            }
            runs = runs.saturating_add(1);
        }
        Ok(fastest)
    }

    fn compiled(&self, what: &str, text: &str) -> Result<Arc<dyn LoadedExecutable>> {
        let wrong = |said: String| wrong(&format!("measuring {what}: {said}"));
        let module = parse(text).map_err(|rejected| wrong(rejected.to_string()))?;
        let grid = DeviceGrid { replicas: 1, partitions: 1 };
        let options = CompileOptions { strict: true, ..CompileOptions::new(grid) };
        self.client.compile(&module, &options).map_err(|e| wrong(messages(&e.into_diagnostics(module.module()))))
    }
}

/// A program that makes an array of numbers without an order, from `offset` to `offset + scale`.
fn arguments(element_type: &str, dims: &str, elements: usize, scale: f64, offset: f64) -> String {
    let n = elements;
    format!(
        "HloModule arguments
ENTRY e {{
  number = u32[{n}] iota(), iota_dimension=0
  factor = u32[] constant(2654435761)
  factors = u32[{n}] broadcast(factor), dimensions={{}}
  hashed = u32[{n}] multiply(number, factors)
  eight = u32[] constant(8)
  eights = u32[{n}] broadcast(eight), dimensions={{}}
  bits = u32[{n}] shift-right-logical(hashed, eights)
  whole = f32[{n}] convert(bits)
  scale = f32[] constant({:e})
  scales = f32[{n}] broadcast(scale), dimensions={{}}
  offset = f32[] constant({offset:e})
  offsets = f32[{n}] broadcast(offset), dimensions={{}}
  scaled = f32[{n}] multiply(whole, scales)
  moved = f32[{n}] add(scaled, offsets)
  typed = {element_type}[{n}] convert(moved)
  ROOT shaped = {element_type}[{dims}] reshape(typed)
}}
",
        scale / f64::from(1 << 24)
    )
}

/// Products of small matrices, each with what the one before made.
fn products(length: usize) -> String {
    let mut body = "  v0 = f32[4,4] parameter(0)\n  y = f32[4,4] parameter(1)\n".to_owned();
    for n in 1..=length {
        let root = if n == length { "ROOT " } else { "" };
        let dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}";
        body += &format!("  {root}v{n} = f32[4,4] dot(v{}, y), {dims}\n", n - 1);
    }
    format!("HloModule products\nENTRY e {{\n{body}}}\n")
}

/// A loop of [`ROUNDS`] rounds, each of little work.
fn repeat() -> String {
    rounds("  z = f32[16] multiply(x, y)\n")
}

/// The same, where each round is a chain of products and sums.
fn chained_rounds() -> String {
    let mut work = "  half = f32[] constant(0.5)\n  halves = f32[16] broadcast(half), dimensions={}\n".to_owned();
    for n in 0..CHAINED {
        let from = if n == 0 { "x".to_owned() } else { format!("sum{}", n - 1) };
        let to = if n == CHAINED - 1 { "z".to_owned() } else { format!("sum{n}") };
        work += &format!("  p{n} = f32[16] multiply({from}, halves)\n  {to} = f32[16] add(p{n}, y)\n");
    }
    rounds(&work)
}

/// A loop of [`ROUNDS`] rounds that makes `z` of `x` and `y`.
fn rounds(work: &str) -> String {
    format!(
        "HloModule repeat
body {{
  s = (s32[], f32[16], f32[16]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[16] get-tuple-element(s), index=1
  y = f32[16] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(n, one)
{work}  ROOT t = (s32[], f32[16], f32[16]) tuple(next, z, y)
}}
condition {{
  s = (s32[], f32[16], f32[16]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  rounds = s32[] constant({ROUNDS})
  ROOT more = pred[] compare(n, rounds), direction=LT
}}
ENTRY e {{
  x = f32[16] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[16], f32[16]) tuple(zero, x, x)
  w = (s32[], f32[16], f32[16]) while(t), condition=condition, body=body
  ROOT z = f32[16] get-tuple-element(w), index=1
}}
"
    )
}

/// A chain of `length` functions of one value on an array.
fn chain(element_type: &str, elements: usize, length: usize, opcode: &str) -> String {
    let shape = format!("{element_type}[{elements}]");
    let mut body = format!("  v0 = {shape} parameter(0)\n");
    for n in 1..=length {
        let root = if n == length { "ROOT " } else { "" };
        body += &format!("  {root}v{n} = {shape} {opcode}(v{})\n", n - 1);
    }
    format!("HloModule chain\nENTRY e {{\n{body}}}\n")
}

/// Products of an array, summed by pairs, and that of the outcome again: as in most programs, some operations wait for
/// others and some do not. A chain would measure how long one operation takes, independent ones what no program reaches.
fn trees(element_type: &str, elements: usize) -> String {
    let shape = format!("{element_type}[{elements}]");
    let is_integer = element_type.starts_with(['s', 'u']);
    let mut body = format!("  t0 = {shape} parameter(0)\n");
    for leaf in 0..LEAVES {
        // The second half of the sum less the first is one, so that numbers stay normal from tree to tree.
        let number = if is_integer { format!("{}", 3 + 2 * leaf) } else { format!("{}", 1.0 + leaf as f64 / 64.0) };
        body += &format!("  number{leaf} = {element_type}[] constant({number})\n");
        body += &format!("  factor{leaf} = {shape} broadcast(number{leaf}), dimensions={{}}\n");
    }
    for tree in 1..=TREES {
        let mut names: Vec<String> = (0..LEAVES).map(|leaf| format!("p{tree}_{leaf}")).collect();
        for (leaf, name) in names.iter().enumerate() {
            body += &format!("  {name} = {shape} multiply(t{}, factor{leaf})\n", tree - 1);
        }
        while names.len() > 1 {
            let is_last = names.len() == 2;
            let combine = match is_last {
                _ if is_integer => "xor",
                true => "subtract",
                false => "add",
            };
            let pairs = names.chunks_exact(2).enumerate().map(|(n, pair)| {
                let name = if is_last { format!("t{tree}") } else { format!("d{tree}_{}_{n}", names.len()) };
                let root = if is_last && tree == TREES { "ROOT " } else { "" };
                body += &format!("  {root}{name} = {shape} {combine}({}, {})\n", pair[0], pair[1]);
                name
            });
            names = pairs.collect();
        }
    }
    format!("HloModule trees\nENTRY e {{\n{body}}}\n")
}

fn dot(element_type: &str, side: usize) -> String {
    let shape = format!("{element_type}[{side},{side}]");
    format!(
        "HloModule product\nENTRY e {{\n  x = {shape} parameter(0)\n  y = {shape} parameter(1)
  ROOT z = {shape} dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n}}\n"
    )
}

fn messages(diagnostics: &[Diagnostic]) -> String {
    let said: Vec<&str> = diagnostics.iter().map(|d| d.message.as_str()).collect();
    said.join("; ")
}

/// The machine, or what hloom does on it, is at fault.
pub(super) fn wrong(message: &str) -> Stop {
    output::to_stderr(&format!("error: {message}\n"));
    Stop(super::super::Outcome::MachineAtFault)
}
