//! What a compiled program is at run time: lists of thunks, and where their arrays lie.
//!
//! Every array of a thunk is an entry of the program's *table*: an allocation and an offset. A run turns the table into
//! addresses on the device before its first thunk; a thunk finds its arrays side by side in it, operands first, then
//! results, then its scratch memory.

use crate::collective::Collective;
use crate::convolution::Convolution;
use crate::fft::Fft;
use crate::gemm::Gemm;
use crate::kernels::Made;
use crate::solver::Solver;
use hloom_analysis::devices::DeviceGrid;
use hloom_cuda_kernels::KernelSequence;
use hloom_ir::entity::InstructionId;
pub(crate) use hloom_runtime::lowering::ListId;
use hloom_runtime::placement::{AllocationSource, Location};
pub(crate) use hloom_runtime::planned_values::{Evaluate, EvaluatedLeaf, ResultLeaf};
use std::ops::Range;

/// A step of the program.
#[derive(Debug)]
pub(crate) struct Thunk {
    /// The instruction that it carries out.
    pub(crate) instruction: InstructionId,
    /// Its arrays in the table.
    pub(crate) arrays: Range<u32>,
    /// What to do.
    pub(crate) kind: ThunkKind,
}

/// What a thunk does with its arrays.
#[derive(Debug)]
pub(crate) enum ThunkKind {
    /// Copies the first to the second.
    Copy { bytes: usize },
    /// Writes the number of the device among the replicas, or among the partitions, to the only array.
    DeviceId { grid: DeviceGrid, of_replica: bool },
    /// Launches the kernels of that sequence.
    Kernels(KernelCall),
    /// A matrix product by cuBLASLt.
    Gemm(Box<Gemm>),
    /// A convolution by cuDNN.
    Convolution(Box<Convolution>),
    /// Fourier transforms by cuFFT.
    Fft(Box<Fft>),
    /// Factors of matrices by cuSOLVER, and triangular systems by cuBLAS.
    Solver(Box<Solver>),
    /// Runs `body` as long as the pred scalar (the first array), which `condition` makes, is true.
    While(While),
    /// Runs the list that the scalar (the only array) selects: by its truth, or by its number.
    Conditional { branches: Vec<ListId>, by_truth: bool },
    /// An exchange between the devices.
    Collective(Box<Collective>),
    /// Leaves the instruction to the evaluator, on the host.
    Evaluate(Box<Evaluate>),
}

impl ThunkKind {
    /// What it is, in a word.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ThunkKind::Copy { .. } => "copy",
            ThunkKind::DeviceId { .. } => "device id",
            ThunkKind::Kernels(_) => "kernel",
            ThunkKind::Gemm(_) => "gemm",
            ThunkKind::Convolution(_) => "convolution",
            ThunkKind::Fft(_) => "fft",
            ThunkKind::Solver(_) => "solver",
            ThunkKind::While(_) => "while",
            ThunkKind::Conditional { .. } => "conditional",
            ThunkKind::Collective(_) => "collective",
            ThunkKind::Evaluate(_) => "evaluated",
        }
    }
}

/// Kernels on the arrays of a thunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KernelCall {
    /// The number of the sequence.
    pub(crate) sequence: usize,
    /// How many of the arrays are operands.
    pub(crate) operands: u32,
    /// How many are results; the scratch memory comes after them.
    pub(crate) results: u32,
    /// Bytes of scratch memory that copies of operands are in.
    pub(crate) copied_bytes: usize,
}

/// A loop.
#[derive(Debug)]
pub(crate) struct While {
    pub(crate) condition: ListId,
    pub(crate) body: ListId,
    /// How often the body runs, where that can be seen in the program: the condition need not be looked at.
    pub(crate) trip_count: Option<u64>,
    /// The bytes of each leaf of the state, which come after the condition's result in the arrays.
    pub(crate) state: Vec<usize>,
    /// Whether the state alone decides how it goes on, so that a state that stays as it is means a loop without end.
    pub(crate) closed: bool,
}

/// A compiled program.
#[derive(Debug)]
pub(crate) struct ThunkProgram {
    /// The lists; the entry is the first.
    pub(crate) lists: Vec<Vec<Thunk>>,
    /// Where the arrays of all thunks lie.
    pub(crate) table: Vec<Location>,
    /// Where memory comes from.
    pub(crate) allocations: Vec<AllocationSource>,
    /// Bytes of the block of temporaries, the scratch memory at its end.
    pub(crate) temporary_bytes: usize,
    /// The leaves of the result.
    pub(crate) results: Vec<ResultLeaf>,
    /// How many values there are whose sizes are known at run time only.
    pub(crate) slots: usize,
    /// The slots of the arguments that are such values, by leaf.
    pub(crate) argument_slots: Vec<(usize, u32)>,
    /// The kernels that were asked for, in that order; thunks name those only that were made.
    pub(crate) made: Vec<Made>,
    /// Whether any thunk needs the evaluator.
    pub(crate) evaluates: bool,
    /// What it takes for the whole to be one graph.
    pub(crate) graph: GraphNeed,
}

/// What it takes for a program to be one graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GraphNeed {
    /// Every thunk is work for the device alone.
    Nothing,
    /// Loops and branches have to be nodes that the device decides about.
    ConditionalNodes,
    /// The host has a part in it, or it is too long.
    Never,
}

impl ThunkProgram {
    /// The kernels of that number.
    pub(crate) fn sequence(&self, number: usize) -> Option<&KernelSequence> {
        self.made.get(number)?.as_ref().ok()
    }
}
