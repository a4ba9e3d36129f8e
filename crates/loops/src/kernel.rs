//! Kernels that are wanted, and the loops they become: equal ones once.

use crate::graph::Graph;
use crate::joined_rows::joined_rows;
use crate::nests::programs;
use crate::peel::peel;
use crate::program::LoopProgram;
use crate::row_tiles::RowTiles;
use crate::simd::Simd;
use crate::tile::tile;
use crate::unsupported::Unsupported;
use hloom_cost::CoreCost;
use hloom_ir::{InstructionId, Module};
use rustc_hash::FxHashMap;

/// What is to be compiled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KernelRequest {
    /// A fusion, or an instruction that could be in one.
    pub instruction: InstructionId,
    /// Each dynamic-update-slice or scatter that makes a result from a parameter has both in the same memory.
    pub in_place: bool,
    /// What the kernel of a fusion leaves to others.
    pub producer: Option<Producer>,
}

/// A product or convolution that a fusion begins with, which is computed by others: the kernel finds its result in one more
/// buffer, behind those of the operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Producer {
    /// The instruction in the body of the fusion.
    pub instruction: InstructionId,
    /// The elements of a row of its result: units of the kernel are to be whole rows, if that is possible.
    pub row: i64,
}

/// Whether there is a kernel for an instruction, and if not, why. `producer`, in the body of a fusion, is left to others.
pub fn supports(
    module: &Module,
    instruction: InstructionId,
    producer: Option<InstructionId>,
) -> Result<(), Unsupported> {
    has_programs(Graph::of(module, instruction, producer)?)
}

/// Whether there is a kernel for a fusion of `members` with those `results`, one of which, `producer`, is left to
/// others.
pub fn supports_members(
    module: &Module,
    members: &[InstructionId],
    results: &[InstructionId],
    producer: Option<InstructionId>,
) -> Result<(), Unsupported> {
    has_programs(Graph::of_members(module, members, results, producer)?)
}

fn has_programs(graph: Graph) -> Result<(), Unsupported> {
    type Answers = FxHashMap<Graph, Result<(), Unsupported>>;
    thread_local! {
        /// Programs ask for the same graphs again and again.
        static ANSWERS: std::cell::RefCell<Answers> = std::cell::RefCell::default();
    }
    ANSWERS.with_borrow_mut(|answers| {
        if let Some(answer) = answers.get(&graph) {
            return answer.clone();
        }
        let answer = loop_programs(&graph, false).map(|_| ());
        if answers.len() >= MOST_ANSWERS {
            answers.clear();
        }
        answers.insert(graph, answer.clone());
        answer
    })
}

/// How many answers are remembered.
const MOST_ANSWERS: usize = 1024;

/// A kernel to be made.
#[derive(Debug)]
pub struct KernelLoops {
    /// What is computed.
    pub graph: Graph,
    /// The nests of loops that compute it, in order.
    pub programs: Vec<LoopProgram>,
}

impl KernelLoops {
    /// A measure of how much code it is.
    pub fn size(&self) -> usize {
        self.programs.iter().map(|p| p.items.len() + 10).sum()
    }

    /// About how long all of it takes on such a core.
    pub fn nanoseconds(&self, core: &CoreCost) -> f64 {
        self.programs.iter().flat_map(|p| p.before.as_deref().into_iter().chain([p])).map(|p| p.nanoseconds(core)).sum()
    }
}

/// The loop programs of a graph, as a processor does best.
fn loop_programs(graph: &Graph, in_place: bool) -> Result<Vec<LoopProgram>, Unsupported> {
    joined_rows(graph).map_or_else(|| programs(graph, in_place), |program| Ok(vec![program]))
}

/// The different kernels of the requests, and for each request the number of its kernel.
pub fn lower_requests(
    module: &Module,
    requests: &[KernelRequest],
    simd: &Simd,
    core: &CoreCost,
) -> (Vec<Result<KernelLoops, Unsupported>>, Vec<usize>) {
    let mut numbers: FxHashMap<(Graph, bool, Option<i64>), usize> = FxHashMap::default();
    let (mut work, mut of_request): (Vec<Result<KernelLoops, Unsupported>>, Vec<usize>) = (Vec::new(), Vec::new());
    for request in requests {
        let number = work.len();
        let graph = match Graph::of(module, request.instruction, request.producer.map(|p| p.instruction)) {
            Ok(graph) => graph,
            Err(why) => {
                work.push(Err(why));
                of_request.push(number);
                continue;
            }
        };
        let key = (graph, request.in_place, request.producer.map(|p| p.row));
        let number = *numbers.entry(key).or_insert_with_key(|(graph, in_place, row)| {
            work.push(loop_programs(graph, *in_place).map(|programs| {
                let parts = programs.into_iter().flat_map(|p| peel(p, simd, core));
                let mut programs: Vec<LoopProgram> = parts.flat_map(|p| tile(p, simd)).collect();
                programs.iter_mut().for_each(|p| p.cache_rows(core));
                if let (&Some(row), [program]) = (row, &mut programs[..]) {
                    program.row_tiles = RowTiles::new(program, simd, graph.inputs, row);
                }
                KernelLoops { graph: graph.clone(), programs }
            }));
            number
        });
        of_request.push(number);
    }
    (work, of_request)
}
