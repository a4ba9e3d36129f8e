//! What the cost model is asked about: work, and the arrays that it reads and writes, as plain data.

use crate::fused::Fused;
use crate::work::{TILE_ELEMENTS, Work, elements, tile_elements, tiles};
use hloom_ir::ElementType;
use hloom_ir::attributes::FusionKind;
use hloom_ir::entity::{EntityId, InstructionId};
use hloom_ir::module::Module;
use hloom_ir::op::Op;
use hloom_ir::shape::{ArrayShape, Shape};
use hloom_target::Target;
use smallvec::SmallVec;

/// What sort of kernel it is: formulas differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelKind {
    /// Nothing is done: values are named, regrouped or seen as another shape.
    Free,
    /// Scalars only.
    Scalar,
    /// One element-wise instruction, conversion or reduction on its own.
    Single,
    /// A fusion without products.
    Loop,
    /// A fusion around a reduction over windows that slide.
    Sliding,
    /// A product or convolution, with what is fused with it.
    Matmul,
    /// The same elements, others of them side by side.
    Relayout,
    /// The same elements, side by side as they were.
    Copy,
}

/// An array that a kernel reads or writes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ArrayUse {
    /// Which operand it is a part of; of results, which leaf.
    pub index: u32,
    /// The type of its elements.
    pub element_type: ElementType,
    /// Elements of the whole array.
    pub elements: f64,
    /// Bytes that go through memory, padding included.
    pub bytes: f64,
    /// Tiles that the whole array takes, those of fewer than 8 rows counted as whole ones.
    pub tiles: f64,
    /// Whether its tiles have as many elements as vector units take at once.
    pub has_full_tiles: bool,
    /// Bytes of the whole array.
    pub whole: f64,
    /// The memory it lies in.
    pub space: i64,
}

impl ArrayUse {
    /// The share of the array that goes through memory.
    pub fn share(&self) -> f64 {
        self.bytes / self.whole.max(1.0)
    }

    /// Whether all of it does.
    pub fn is_whole(&self) -> bool {
        self.bytes > 0.999 * self.whole
    }
}

/// Work, and what it reads and writes.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// What sort.
    pub kind: KernelKind,
    /// What is computed.
    pub work: Work,
    /// What is read.
    pub operands: SmallVec<[ArrayUse; 4]>,
    /// What is written.
    pub results: SmallVec<[ArrayUse; 2]>,
}

/// Where the arrays of an instruction lie, in place of what their layouts say: a memory for each operand and for each
/// leaf of the result; further ones, and `None`, stay.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Placement {
    /// Of the operands.
    pub operands: SmallVec<[Option<i64>; 4]>,
    /// Of the leaves of the result.
    pub results: SmallVec<[Option<i64>; 2]>,
}

impl Kernel {
    /// Bytes read from and written to a memory.
    pub fn bytes_in(&self, space: i64) -> f64 {
        self.operands.iter().chain(&self.results).filter(|a| a.space == space).map(|a| a.bytes).sum()
    }

    /// Bytes of all operands and results.
    pub fn bytes(&self) -> f64 {
        self.operands.iter().chain(&self.results).map(|a| a.bytes).sum()
    }

    /// The kernel that an instruction is.
    pub(crate) fn of(
        module: &Module,
        id: InstructionId,
        target: &Target,
        fused: &[Option<Fused>],
        placement: &Placement,
    ) -> Kernel {
        let instruction = &module[id];
        let inner = match &instruction.op {
            Op::Fusion(fusion) => fused.get(fusion.calls.index()).and_then(Option::as_ref),
            _ => None,
        };
        let work = inner.map_or_else(|| Work::of(module, id), |f| f.work.clone());
        let mut kernel = Kernel { kind: KernelKind::Free, work, operands: SmallVec::new(), results: SmallVec::new() };
        for (n, &operand) in instruction.operands().iter().enumerate() {
            let share = match inner {
                Some(fused) => fused.share_read(n, target),
                None => share_read(module, id, n),
            };
            let space = placement.operands.get(n).copied().flatten();
            each_array(&module[operand].shape, |_, array| {
                kernel.operands.push(array_use(array, n, share, space, target));
            });
        }
        each_array(&instruction.shape, |leaf, array| {
            let share = match inner {
                Some(fused) => fused.written.get(leaf).copied().unwrap_or(1.0),
                None => share_written(module, id),
            };
            let space = placement.results.get(leaf).copied().flatten();
            kernel.results.push(array_use(array, leaf, share, space, target));
        });
        kernel.kind = kernel.kind_of(&instruction.op, module, id);
        kernel
    }

    fn kind_of(&self, op: &Op, module: &Module, id: InstructionId) -> KernelKind {
        use KernelKind::*;
        if is_free(op) || self.results.is_empty() {
            return Free;
        }
        if self.operands.iter().chain(&self.results).all(|a| a.elements <= 1.0) {
            return Scalar;
        }
        match op {
            _ if !self.work.matmuls.is_empty() => Matmul,
            Op::Fusion(fusion) if fusion.kind == FusionKind::Output => Sliding,
            Op::Fusion(_) => Loop,
            Op::Copy | Op::Transpose { .. } if keeps_fastest(module, id) => Copy,
            Op::Copy | Op::Transpose { .. } => Relayout,
            _ => Single,
        }
    }
}

/// Whether nothing is done for the operation, or what is done is not counted here: calls, halves of asynchronous
/// operations, collectives.
fn is_free(op: &Op) -> bool {
    matches!(
        op,
        Op::Parameter { .. }
            | Op::Constant(_)
            | Op::Tuple
            | Op::GetTupleElement { .. }
            | Op::Bitcast
            | Op::AfterAll
            | Op::AddDependency
            | Op::OptBarrier
            | Op::Domain(_)
            | Op::ReplicaId
            | Op::PartitionId
            | Op::GetDimensionSize { .. }
            | Op::SetDimensionSize { .. }
            | Op::While { .. }
            | Op::Conditional { .. }
            | Op::Call { .. }
            | Op::AsyncStart(_)
            | Op::AsyncUpdate { .. }
            | Op::AsyncDone
            | Op::CopyStart { .. }
            | Op::CopyDone
            | Op::Send(_)
            | Op::SendDone(_)
            | Op::Recv(_)
            | Op::RecvDone(_)
            | Op::AllReduceDone
            | Op::AllGatherDone
            | Op::CollectivePermute(_)
            | Op::CollectivePermuteStart(_)
            | Op::CollectivePermuteDone
            | Op::CustomCall(_)
            | Op::Infeed { .. }
            | Op::Outfeed { .. }
    ) || op.collective().is_some()
}

/// Whether elements that lie side by side before a copy or transpose do so afterwards.
fn keeps_fastest(module: &Module, id: InstructionId) -> bool {
    let instruction = &module[id];
    let operand = instruction.operands().first().and_then(|&o| module[o].shape.as_array());
    let (Some(from), Some(to)) = (operand, instruction.shape.as_array()) else { return false };
    let fastest = |a: &ArrayShape| a.minor_to_major().into_iter().find(|&d| dimension(a, d) > 1);
    let source = fastest(to).and_then(|d| match &instruction.op {
        Op::Transpose { dimensions } => dimensions.get(usize::try_from(d).ok()?).copied(),
        _ => Some(d),
    });
    source == fastest(from)
}

fn dimension(array: &ArrayShape, dimension: i64) -> i64 {
    usize::try_from(dimension).ok().and_then(|d| array.dims().get(d).copied()).unwrap_or(1)
}

/// The share of operand `n` that an unfused instruction reads.
fn share_read(module: &Module, id: InstructionId, n: usize) -> f64 {
    let instruction = &module[id];
    let size = |shape: &Shape| crate::work::first_array(shape).map_or(0.0, elements);
    let whole = || instruction.operands().get(n).map_or(1.0, |&o| size(&module[o].shape)).max(1.0);
    match &instruction.op {
        Op::Slice { .. } | Op::DynamicSlice { .. } | Op::Gather(_) if n == 0 => {
            (size(&instruction.shape) / whole()).min(1.0)
        }
        Op::DynamicUpdateSlice if n == 0 => 0.0,
        Op::Scatter(_) if n < instruction.operands().len() / 2 => {
            let updates = instruction.operands().get(instruction.operands().len() / 2 + 1);
            (updates.map_or(0.0, |&u| size(&module[u].shape)) / whole()).min(1.0)
        }
        _ => 1.0,
    }
}

/// The share of its result that an unfused instruction writes.
fn share_written(module: &Module, id: InstructionId) -> f64 {
    let instruction = &module[id];
    let size = |shape: &Shape| crate::work::first_array(shape).map_or(0.0, elements);
    let updates = match &instruction.op {
        Op::DynamicUpdateSlice => instruction.operands().get(1),
        Op::Scatter(_) => instruction.operands().get(instruction.operands().len() / 2 + 1),
        _ => return 1.0,
    };
    (updates.map_or(0.0, |&u| size(&module[u].shape)) / size(&instruction.shape).max(1.0)).min(1.0)
}

/// Calls `f` with every array of a shape and its number among the leaves.
fn each_array<'s>(shape: &'s Shape, mut f: impl FnMut(usize, &'s ArrayShape)) {
    match shape {
        Shape::Array(a) | Shape::Buffer(a) => f(0, a),
        Shape::Tuple(_) => {
            for (n, (_, leaf)) in shape.leaves().into_iter().enumerate() {
                if let Some(array) = leaf.as_array_or_buffer() {
                    f(n, array);
                }
            }
        }
        Shape::Token | Shape::Opaque => {}
    }
}

fn array_use(array: &ArrayShape, index: usize, share: f64, space: Option<i64>, target: &Target) -> ArrayUse {
    let own = array.layout.as_ref().map_or(0, |l| l.memory_space);
    let elements = elements(array);
    let bits = f64::from(array.element_type.bits().max(1));
    let padded = target.array_bytes(array).map_or(elements * bits / 8.0, |b| b as f64);
    ArrayUse {
        index: u32::try_from(index).unwrap_or(u32::MAX),
        element_type: array.element_type,
        elements,
        bytes: padded * share,
        tiles: tiles(array).unwrap_or(padded * 8.0 / bits.max(8.0) / 1024.0),
        has_full_tiles: tile_elements(array).is_none_or(|n| n >= TILE_ELEMENTS),
        whole: padded,
        space: space.unwrap_or(own),
    }
}
