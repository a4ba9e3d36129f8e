//! Instructions and fusions to kernels for NVIDIA GPUs: [`generate`] gives the PTX of one instruction and how it is
//! launched.
//!
//! Buffers are those of the leaves of operands and results, dense and row-major, and begin at multiples of 16 bytes; pred
//! takes a byte, types of fewer bits take a byte an element. A result may lie in the memory of an operand that is read at
//! the index that is written, and nowhere else. Nothing here needs a GPU or knows the driver.
//!
//! [`plan`] decides on the kernels, [`mapping`] on their threads; `hloom_llvm::nvptx` writes them.

mod mapping;
mod plan;

pub use hloom_cuda_kernels::{Architecture, KernelSequence};
pub use hloom_loops::Unsupported;

use hloom_cuda_kernels::{KernelArgument, Launch, PtxKernel};
use hloom_ir::{InstructionId, Module};
use hloom_loops::graph::Graph;
use plan::Plan;
use rustc_hash::FxHashMap;
use std::sync::{Mutex, PoisonError};

/// The kernels that compute the results of `instruction` (a fusion, or an instruction that could be in one) from its
/// operands.
pub fn generate(
    module: &Module,
    instruction: InstructionId,
    architecture: Architecture,
) -> Result<KernelSequence, Unsupported> {
    sequence(Graph::of(module, instruction, None)?, false, architecture)
}

/// As [`generate`], where each dynamic-update-slice or scatter that makes a result from an operand has both in the same
/// memory: only what changes is written.
pub fn generate_in_place(
    module: &Module,
    instruction: InstructionId,
    architecture: Architecture,
) -> Result<KernelSequence, Unsupported> {
    sequence(Graph::of(module, instruction, None)?, true, architecture)
}

/// Whether there are kernels for an instruction, and if not, why.
pub fn supports(module: &Module, instruction: InstructionId) -> Result<(), Unsupported> {
    has_plan(Graph::of(module, instruction, None)?)
}

/// Whether there are kernels for a fusion of `members` with those `results`, and if not, why.
pub fn supports_members(
    module: &Module,
    members: &[InstructionId],
    results: &[InstructionId],
) -> Result<(), Unsupported> {
    has_plan(Graph::of_members(module, members, results, None)?)
}

fn has_plan(graph: Graph) -> Result<(), Unsupported> {
    static ANSWERS: Mutex<Option<FxHashMap<Graph, Result<(), Unsupported>>>> = Mutex::new(None);
    let locked = || ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(answer) = locked().as_ref().and_then(|answers| answers.get(&graph)) {
        return answer.clone();
    }
    // What there are kernels for is the same on all of them.
    let architecture = Architecture { capability: 80, accelerated: false };
    let answer = plan::plan(&graph, false, architecture).map(|_| ());
    remember(&mut locked(), graph, answer.clone());
    answer
}

/// How many answers are remembered.
const MOST_REMEMBERED: usize = 1024;

fn remember<K: std::hash::Hash + Eq, V>(answers: &mut Option<FxHashMap<K, V>>, key: K, answer: V) {
    let answers = answers.get_or_insert_default();
    if answers.len() >= MOST_REMEMBERED {
        answers.clear();
    }
    answers.insert(key, answer);
}

/// The kernels of a graph; those of an equal graph are found again.
fn sequence(graph: Graph, in_place: bool, architecture: Architecture) -> Result<KernelSequence, Unsupported> {
    type Key = (Graph, bool, Architecture);
    static MADE: Mutex<Option<FxHashMap<Key, KernelSequence>>> = Mutex::new(None);
    let locked = || MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (graph, in_place, architecture);
    if let Some(made) = locked().as_ref().and_then(|made| made.get(&key)) {
        return Ok(made.clone());
    }
    let plan = plan::plan(&key.0, in_place, architecture)?;
    let sequence = written(&key.0, &plan, architecture)?;
    remember(&mut locked(), key, sequence.clone());
    Ok(sequence)
}

fn written(graph: &Graph, plan: &Plan, architecture: Architecture) -> Result<KernelSequence, Unsupported> {
    let outputs = graph.outputs.len() as u32;
    let argument = |buffer: u32| match buffer {
        b if b < graph.inputs => KernelArgument::Operand(b),
        b if b < graph.inputs + outputs => KernelArgument::Result(b - graph.inputs),
        b => KernelArgument::Scratch(b - graph.inputs - outputs),
    };
    let mut kernels = Vec::new();
    for planned in &plan.kernels {
        let ptx = hloom_llvm::nvptx::ptx(&planned.kernel, &architecture.to_string())
            .map_err(|why| Unsupported::new(format!("code that LLVM refuses: {why}")))?;
        kernels.push(PtxKernel {
            name: planned.kernel.name.clone(),
            ptx,
            launch: Launch {
                grid: [planned.blocks, 1, 1],
                block: [planned.kernel.threads, 1, 1],
                dynamic_shared_bytes: 0,
                cluster: 1,
            },
            arguments: planned.kernel.buffers().into_iter().map(argument).collect(),
        });
    }
    Ok(KernelSequence { kernels, scratch: plan.scratch.clone() })
}
