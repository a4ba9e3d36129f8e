//! What a compiled program is at run time: lists of thunks, and where their arrays lie.
//!
//! Every array of a step is an entry of the program's *table*: an allocation and an offset. A run turns the table into
//! addresses once, before its first step; a step finds its arrays side by side in it, operands first, then results.

use crate::collective::CollectiveThunk;
use crate::concurrent::ConcurrentRegion;
use crate::kernel::{Kernel, KernelCode};
use crate::library_call::LibraryCall;
use crate::output_fusion::OutputFusion;
use crate::shared_buffer::SharedBuffer;
use hloom_analysis::devices::DeviceGrid;
use hloom_ir::entity::InstructionId;
pub(crate) use hloom_runtime::lowering::ListId;
pub(crate) use hloom_runtime::placement::{AllocationSource, Location};
pub(crate) use hloom_runtime::planned_values::{Evaluate, EvaluatedLeaf, ResultLeaf};
use std::ops::Range;

/// A step.
#[derive(Debug)]
pub(crate) struct Thunk {
    /// The instruction that it carries out.
    pub(crate) instruction: InstructionId,
    /// Its arrays in the table.
    pub(crate) arrays: Range<u32>,
    /// What to do.
    pub(crate) kind: ThunkKind,
}

/// What a step does with its arrays.
#[derive(Debug)]
pub(crate) enum ThunkKind {
    /// Copies the first to the second.
    Copy { bytes: usize },
    /// Writes the number of the device among the replicas, or among the partitions, to the only array.
    DeviceId { grid: DeviceGrid, of_replica: bool },
    /// Stands for the kernel of that request until it is made.
    Pending(usize),
    /// Calls a kernel on all of them.
    Kernel(Kernel),
    /// Calls the function of a region: a loop with all that is in it.
    Region(Box<crate::region::RegionCall>),
    /// Calls a kernel written by hand; what it refuses is for the evaluator.
    Library(Box<LibraryCall>, Option<Box<Evaluate>>),
    /// Calls a kernel written by hand, and another on what it makes.
    OutputFusion(Box<OutputFusion>),
    /// Runs `body` as long as the pred scalar (the first array), which `condition` makes, is true.
    While(Box<While>),
    /// Runs the list that the scalar (the only array) selects: by its truth, or by its number.
    Conditional { branches: Vec<ListId>, by_truth: bool },
    /// Meets other devices; if it is awaited later, it only comes to the meeting.
    Collective(Box<CollectiveThunk>),
    /// Waits for the collective that the instruction is.
    Await,
    /// Runs thunks concurrently.
    Concurrent(Box<ConcurrentRegion>),
    /// Leaves the instruction to the evaluator.
    Evaluate(Box<Evaluate>),
}

impl ThunkKind {
    /// What it is, in a word.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ThunkKind::Copy { .. } => "copy",
            ThunkKind::DeviceId { .. } => "device id",
            ThunkKind::Kernel(_) | ThunkKind::Pending(_) => "kernel",
            ThunkKind::Region(_) => "region",
            ThunkKind::Library(..) => "library",
            ThunkKind::OutputFusion(_) => "output fusion",
            ThunkKind::While(_) => "loop",
            ThunkKind::Conditional { .. } => "conditional",
            ThunkKind::Collective(_) => "collective",
            ThunkKind::Await => "wait",
            ThunkKind::Concurrent(_) => "steps beside each other",
            ThunkKind::Evaluate(_) => "evaluated",
        }
    }
}

/// A loop. Its arrays are the condition's result, then the leaves of the state.
#[derive(Debug)]
pub(crate) struct While {
    pub(crate) condition: ListId,
    pub(crate) body: ListId,
    /// The bytes of each leaf of the state.
    pub(crate) state: Vec<usize>,
    /// Whether the state alone decides how it goes on, so that a state that stays as it is means a loop without end.
    pub(crate) closed: bool,
    /// About how often the body runs.
    pub(crate) trip_count: u64,
}

/// A compiled program.
#[derive(Debug)]
pub(crate) struct ThunkProgram {
    /// The lists; the entry is the first.
    pub(crate) lists: Vec<Vec<Thunk>>,
    /// Where the arrays of all steps lie.
    pub(crate) table: Vec<Location>,
    /// Entries of the table whose addresses differ from run to run.
    pub(crate) moving: Vec<u32>,
    /// Where memory comes from.
    pub(crate) allocations: Vec<AllocationSource>,
    /// Bytes of the block of temporaries.
    pub(crate) temporary_bytes: usize,
    /// The leaves of the result.
    pub(crate) results: Vec<ResultLeaf>,
    /// How many values there are whose sizes are known at run time only.
    pub(crate) slots: usize,
    /// The slots of the arguments that are such values, by leaf.
    pub(crate) argument_slots: Vec<(usize, u32)>,
    /// What devices have in common.
    pub(crate) shared_buffers: Vec<SharedBuffer>,
    /// Whether any step needs the evaluator.
    pub(crate) evaluates: bool,
    /// The kernels.
    pub(crate) kernels: KernelCode,
}
